//! Which endpoints a goal's lanes use, and what must be known of them before anything is spent.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use super::failure::Failure;
use super::lanes::Lanes;
use super::run::key_names;
use crate::cassette::Player;
use crate::event::{Lane, Outcome};
use crate::goal::{Config, Effective, Problem};
use crate::model::{Endpoint, EndpointError, Http, KeySource, Keys, ModelSpec, ask_window, describe, resolve};
use crate::process::key_command;
use crate::world::{Env, Transport, World};

/// The lanes of a run.
pub struct Models {
    pub agent: Endpoint,
    pub judge: Option<Endpoint>,
    pub summarizer: Endpoint,
    pub transport: Rc<dyn Transport>,
    /// Those that no variable holds; nothing is read of them yet.
    pub keys: Keys,
}

/// The models of a session that is gone on with.
pub struct Frozen<'a> {
    /// As they stood at the session's start, by lane.
    pub endpoints: &'a BTreeMap<String, serde_json::Value>,
    /// The window that an overflow has named since.
    pub learned_window: Option<u64>,
    /// Calls that came to no reply, by lane and number.
    pub lost: Vec<(Lane, u64)>,
    /// The configuration that the session was started with.
    pub config: Box<dyn Fn() -> Result<Config, Vec<Problem>> + 'a>,
}

/// Resolves the lanes. A session keeps its models: of what a resume says about them only the way to the server and
/// the sizes that it names are obeyed; what is not, is noted.
///
/// # Errors
/// Unknown models, missing keys, unpriced models under a cost limit, unusable cassettes.
pub fn models(
    config: &Config,
    frozen: Option<&Frozen<'_>>,
    env: &dyn Env,
    run_id: &str,
    notes: &mut Vec<String>,
) -> Result<Models, Failure> {
    let mut players: Vec<(std::path::PathBuf, Rc<Player>)> = Vec::new();
    let mut recorded: BTreeMap<Lane, Rc<dyn Transport>> = BTreeMap::new();
    let mut lane = |lane: Lane, spec: &ModelSpec| -> Result<Endpoint, Failure> {
        let kept = match frozen.and_then(|frozen| Some((frozen, frozen.endpoints.get(lane.name())?))) {
            Some((frozen, json)) => {
                let endpoint: Endpoint = serde_json::from_value(json.clone())
                    .map_err(|error| Failure::new(Outcome::Unusable, format!("the session's endpoint: {error}")))?;
                Some((frozen, endpoint))
            }
            None => None,
        };
        let cassette = match &kept {
            Some((_, endpoint)) => endpoint.cassette.clone(),
            None => spec.cassette.clone(),
        };
        let Some(file) = cassette else {
            let endpoint = match kept {
                Some((frozen, endpoint)) => resumed(lane, endpoint, frozen, spec, config, env, notes)?,
                None => resolve(spec, &config.providers, &config.prices, env)?,
            };
            check(&endpoint, config, env)?;
            return Ok(endpoint);
        };
        let player = match players.iter().find(|(path, _)| *path == file) {
            Some((_, player)) => player.clone(),
            None => {
                let player = Rc::new(Player::open(&file)?);
                player.without(frozen.iter().flat_map(|frozen| frozen.lost.iter().copied()));
                players.push((file.clone(), player.clone()));
                player
            }
        };
        let described = match lane {
            // A tape may hold no summaries. When none is needed that is no fault; when one is, the miss says so.
            Lane::Summarizer if !player.head().lanes.contains_key(lane.name()) => Lane::Agent,
            lane => lane,
        };
        let endpoint = match kept {
            Some((frozen, endpoint)) => {
                if spec.cassette.as_ref() != Some(&file) {
                    notes.push(keeps(lane, &format!("the recording `{}`", file.display())));
                }
                let window_tokens = endpoint.window_tokens.min(learned(lane, frozen));
                Endpoint { window_tokens, ..endpoint }
            }
            None => recorded_endpoint(&player, described, &file)?,
        };
        recorded.insert(lane, player);
        Ok(endpoint)
    };
    let agent = lane(Lane::Agent, &config.model)?;
    let judge = match &config.judge {
        Some(judge) => Some(lane(Lane::Judge, judge.model.as_ref().unwrap_or(&config.model))?),
        None => None,
    };
    let summarizer = lane(Lane::Summarizer, config.summarizer.as_ref().unwrap_or(&config.model))?;
    let hidden = key_names([Some(&agent), judge.as_ref(), Some(&summarizer)]);
    let run_id = run_id.to_owned();
    let keys = Keys::new(Rc::new(move |argv| key_command(argv, hidden.clone(), run_id.clone())));
    let live: Rc<dyn Transport> = Rc::new(Http::with_keys(keys.clone()));
    let transport = if recorded.is_empty() { live } else { Rc::new(Lanes { recorded, live }) };
    Ok(Models { agent, judge, summarizer, transport, keys })
}

/// What must be asked before a call can leave: keys that no variable holds.
///
/// # Errors
/// A key that is not there.
pub async fn read_keys<'a>(keys: &Keys, endpoints: impl IntoIterator<Item = &'a Endpoint>) -> Result<(), Failure> {
    for endpoint in endpoints.into_iter().filter(|endpoint| endpoint.cassette.is_none()) {
        if let KeySource::At(at) = &endpoint.key
            && let Err(why) = keys.get(at, false).await
        {
            return Err(EndpointError::NoKey { model: endpoint.name(), why }.into());
        }
    }
    Ok(())
}

/// Asks local servers for windows that nobody has named. What one says holds for all lanes that use it.
pub async fn ask_windows<'a>(
    world: &World,
    endpoints: impl IntoIterator<Item = &'a mut Endpoint>,
    notes: &mut Vec<String>,
) {
    let mut asked: Vec<Endpoint> = Vec::new();
    for endpoint in endpoints.into_iter().filter(|endpoint| endpoint.window_assumed && endpoint.cassette.is_none()) {
        if let Some(same) = asked.iter().find(|other| (other.url(), &other.model) == (endpoint.url(), &endpoint.model))
        {
            endpoint.window_tokens = same.window_tokens;
            endpoint.max_output_tokens = same.max_output_tokens;
            endpoint.window_assumed = same.window_assumed;
            continue;
        }
        let named = ask_window(world, endpoint).await;
        let (name, window) = (endpoint.name(), endpoint.window_tokens);
        notes.push(if named {
            format!("{name}: its server gives it a window of {window} tokens")
        } else {
            format!("{name}: its server does not say how large its window is; {window} tokens are taken (`context_window` names another)")
        });
        asked.push(endpoint.clone());
    }
}

fn keeps(lane: Lane, what: &str) -> String {
    format!("the session keeps {what} for the {lane}: a resume cannot change it")
}

/// No window of the lane is larger than an overflow has said.
fn learned(lane: Lane, frozen: &Frozen<'_>) -> u64 {
    frozen.learned_window.filter(|_| lane == Lane::Agent).unwrap_or(u64::MAX)
}

/// A session's endpoint, reached as today's configuration says.
fn resumed(
    lane: Lane,
    kept: Endpoint,
    frozen: &Frozen<'_>,
    spec: &ModelSpec,
    config: &Config,
    env: &dyn Env,
    notes: &mut Vec<String>,
) -> Result<Endpoint, Failure> {
    let same =
        |other: &Endpoint| (&other.provider, &other.model, other.wire) == (&kept.provider, &kept.model, kept.wire);
    let asked = match spec.cassette {
        None => resolve(spec, &config.providers, &config.prices, env).ok().filter(same),
        Some(_) => None,
    };
    let (spec, fresh) = match asked {
        Some(fresh) => (spec.clone(), fresh),
        None => {
            let old = (frozen.config)().map_err(|problems| {
                let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
                Failure::usage(lines.join("\n"))
            })?;
            let own = match lane {
                Lane::Judge => old.judge.and_then(|judge| judge.model),
                Lane::Summarizer => old.summarizer,
                Lane::Agent | Lane::Miner | Lane::Curator => None,
            };
            let old_spec = own.unwrap_or(old.model);
            if old_spec != *spec {
                notes.push(keeps(lane, &format!("`{}`", kept.name())));
            }
            let fresh = resolve(&old_spec, &old.providers, &old.prices, env)?;
            (old_spec, fresh)
        }
    };
    let named_window = spec.context_window.filter(|window| *window != kept.window_tokens);
    Ok(Endpoint {
        model: kept.model,
        wire: kept.wire,
        window_tokens: named_window.unwrap_or(kept.window_tokens.min(learned(lane, frozen))),
        max_output_tokens: spec.max_output_tokens.unwrap_or(kept.max_output_tokens),
        price: kept.price.or(fresh.price),
        free_because_local: kept.free_because_local,
        ..fresh
    })
}

/// The endpoint that a cassette's replies came from, as its head describes it.
fn recorded_endpoint(player: &Player, lane: Lane, file: &Path) -> Result<Endpoint, Failure> {
    let unusable = |what: String| Failure::new(Outcome::Unusable, format!("`{}` {what}", file.display()));
    let described =
        player.head().lanes.get(lane.name()).ok_or_else(|| unusable(format!("holds no replies for the {lane}")))?;
    let mut endpoint = serde_json::to_value(placeholder()).map_err(|error| Failure::new(Outcome::Internal, error))?;
    if let Some(fields) = endpoint.as_object_mut() {
        fields.extend(described.iter().map(|(name, value)| (name.clone(), value.clone())));
    }
    let mut endpoint: Endpoint = serde_json::from_value(endpoint)
        .map_err(|error| unusable(format!("describes the {lane} in a way this build does not read: {error}")))?;
    endpoint.cassette = Some(file.to_owned());
    Ok(endpoint)
}

/// What is known to keep a run's models from being asked before a key, a recording or a server is looked for: names
/// that mean nothing, and prices that a cost limit needs.
pub fn foreseen(effective: &Effective, env: &dyn Env) -> Vec<Problem> {
    let config = &effective.config;
    let lanes = [
        ("model", Some(&config.model)),
        ("judge.model", config.judge.as_ref().and_then(|judge| judge.model.as_ref())),
        ("summarizer.model", config.summarizer.as_ref()),
    ];
    let named = lanes.into_iter().filter_map(|(key, spec)| Some((key, spec.filter(|spec| spec.cassette.is_none())?)));
    named
        .filter_map(|(key, spec)| {
            let described = describe(spec, &config.providers, &config.prices, env).map_err(Failure::from);
            let failure = described.and_then(|endpoint| priced(&endpoint, config)).err()?;
            Some(effective.problem(key, failure.message, failure.hint))
        })
        .collect()
}

/// A key that is missing, or a price that a cost limit needs.
fn check(endpoint: &Endpoint, config: &Config, env: &dyn Env) -> Result<(), Failure> {
    if let KeySource::Env(names) = &endpoint.key
        && !names.iter().any(|name| env.var(name).is_some_and(|value| !value.trim().is_empty()))
    {
        let error = EndpointError::MissingKey { model: endpoint.name(), variables: names.clone() };
        return Err(error.into());
    }
    priced(endpoint, config)
}

fn priced(endpoint: &Endpoint, config: &Config) -> Result<(), Failure> {
    if endpoint.price.is_none() && config.limits.cost.is_some() {
        let name = endpoint.name();
        return Err(Failure::usage(format!("`{name}` has no known price, so a cost limit cannot be kept")).hint(
            format!(
                "add its price (dollars per million tokens) to the goal file:\n\
             prices:\n  \"{name}\": {{input: 1.00, output: 3.00}}\n\
             or borrow a known one (`like: provider/model` in the model's map), or set `limits.cost: unlimited`"
            ),
        ));
    }
    Ok(())
}

/// An endpoint of which nothing is known yet; a cassette's head fills it in.
fn placeholder() -> Endpoint {
    Endpoint {
        provider: "cassette".to_owned(),
        model: "recorded".to_owned(),
        wire: crate::model::wire::Wire::Anthropic,
        base_url: "http://recorded.invalid".to_owned(),
        key: KeySource::None,
        own: true,
        local: true,
        window_tokens: 200_000,
        max_output_tokens: 8_192,
        reasoning_effort: None,
        headers: BTreeMap::new(),
        env_headers: BTreeMap::new(),
        query_params: BTreeMap::new(),
        extra_body: Vec::new(),
        ca_file: None,
        window_assumed: false,
        price: Some(crate::model::Price::FREE),
        idle_timeout: std::time::Duration::from_secs(120),
        first_event_timeout: std::time::Duration::from_secs(300),
        cassette: None,
        free_because_local: false,
        force_tool: true,
    }
}
