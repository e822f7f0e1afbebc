//! Which endpoints a goal's lanes use, and what must be known of them before anything is spent.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use super::failure::Failure;
use super::lanes::Lanes;
use crate::cassette::Player;
use crate::event::{Lane, Outcome};
use crate::goal::Config;
use crate::model::{Endpoint, Http, KeySource, ModelSpec, resolve};
use crate::world::{Env, Transport};

/// The lanes of a run.
pub struct Models {
    pub agent: Endpoint,
    pub judge: Option<Endpoint>,
    pub summarizer: Endpoint,
    pub transport: Rc<dyn Transport>,
}

/// Resolves the lanes; `stored` are the endpoints that a session has frozen, by lane.
///
/// # Errors
/// Unknown models, missing keys, unpriced models under a cost limit, unusable cassettes.
pub fn models(
    config: &Config,
    stored: Option<&BTreeMap<String, serde_json::Value>>,
    env: &dyn Env,
) -> Result<Models, Failure> {
    let mut players: Vec<(std::path::PathBuf, Rc<Player>)> = Vec::new();
    let mut recorded: BTreeMap<Lane, Rc<dyn Transport>> = BTreeMap::new();
    let mut lane = |lane: Lane, spec: &ModelSpec| -> Result<Endpoint, Failure> {
        let frozen = stored.and_then(|stored| stored.get(lane.name()));
        let endpoint = match frozen {
            Some(json) => serde_json::from_value::<Endpoint>(json.clone())
                .map_err(|error| Failure::new(Outcome::Unusable, format!("the session's endpoint: {error}")))?,
            None if spec.cassette.is_some() => placeholder(),
            None => resolve(spec, &config.providers, &config.prices, env)?,
        };
        let cassette = match frozen {
            Some(_) => endpoint.cassette.clone(),
            None => spec.cassette.clone(),
        };
        let Some(file) = cassette else {
            check(&endpoint, config, env)?;
            return Ok(endpoint);
        };
        let player = match players.iter().find(|(path, _)| *path == file) {
            Some((_, player)) => player.clone(),
            None => {
                let player = Rc::new(Player::open(&file)?);
                players.push((file.clone(), player.clone()));
                player
            }
        };
        let described = match lane {
            // A tape may hold no summaries. When none is needed that is no fault; when one is, the miss says so.
            Lane::Summarizer if !player.head().lanes.contains_key(lane.name()) => Lane::Agent,
            lane => lane,
        };
        let endpoint = if frozen.is_some() { endpoint } else { recorded_endpoint(&player, described, &file)? };
        recorded.insert(lane, player);
        Ok(endpoint)
    };
    let agent = lane(Lane::Agent, &config.model)?;
    let judge = match &config.judge {
        Some(judge) => Some(lane(Lane::Judge, judge.model.as_ref().unwrap_or(&config.model))?),
        None => None,
    };
    let summarizer = lane(Lane::Summarizer, config.summarizer.as_ref().unwrap_or(&config.model))?;
    let live: Rc<dyn Transport> = Rc::new(Http::new());
    let transport = if recorded.is_empty() { live } else { Rc::new(Lanes { recorded, live }) };
    Ok(Models { agent, judge, summarizer, transport })
}

/// On a resume: one line for each lane whose configured model or address is not the one that the session keeps.
pub fn kept(config: &Config, models: &Models, env: &dyn Env) -> Vec<String> {
    let judge = config.judge.as_ref().map(|judge| judge.model.as_ref().unwrap_or(&config.model));
    let lanes = [(Lane::Agent, Some(&config.model), Some(&models.agent)), (Lane::Judge, judge, models.judge.as_ref())];
    let differs = |spec: &ModelSpec, stored: &Endpoint| match (&spec.cassette, &stored.cassette) {
        (None, None) => resolve(spec, &config.providers, &config.prices, env).map_or(true, |asked| {
            (asked.name(), &asked.base_url, asked.wire) != (stored.name(), &stored.base_url, stored.wire)
        }),
        (asked, stored) => asked != stored,
    };
    let changed = lanes.into_iter().filter_map(|(lane, spec, stored)| {
        let (spec, stored) = (spec?, stored?);
        let name = stored.name();
        differs(spec, stored).then(|| {
            format!(
                "the {lane} stays with `{name}` as the session was started: a resume changes no model and no address"
            )
        })
    });
    changed.collect()
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

/// A key that is missing, or a price that a cost limit needs.
fn check(endpoint: &Endpoint, config: &Config, env: &dyn Env) -> Result<(), Failure> {
    if let KeySource::Env(names) = &endpoint.key
        && !names.iter().any(|name| env.var(name).is_some_and(|value| !value.trim().is_empty()))
    {
        let error = crate::model::EndpointError::MissingKey { model: endpoint.name(), variables: names.clone() };
        return Err(error.into());
    }
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
        query_params: BTreeMap::new(),
        extra_body: Vec::new(),
        price: Some(crate::model::Price::FREE),
        idle_timeout: std::time::Duration::from_secs(120),
        first_event_timeout: std::time::Duration::from_secs(300),
        cassette: None,
        free_because_local: false,
        force_tool: true,
    }
}
