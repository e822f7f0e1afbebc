//! `spettro doctor --live`: one cheap request for each model of the lanes, to see that it answers, calls a tool and
//! reports what it costs. The calls go through the gateway as all others do; their session is thrown away.

use std::io::Write;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;

use super::{Report, State};
use crate::cli::args::DoctorArgs;
use crate::cli::failure::Failure;
use crate::cli::lanes::NoExec;
use crate::cli::models::{Models, ask_windows, models, read_keys};
use crate::cli::run::secrets;
use crate::event::{Lane, Micros};
use crate::goal::{Config, GoalSource, Problem, load};
use crate::model::{Ask, CallError, Conversation, Endpoint, Gateway, GatewayParts, ModelError, Patience, ToolSchema};
use crate::session::{self, Block, Message, Origin, Session, Store};
use crate::world::{Halt, RealClock, RealDir, RealEnv, RealIds, World};

/// Named in the ledger of children, if a key command leaves one.
const RUN_ID: &str = "doctor-live";
/// Room for a model that has to reason before it calls a tool.
const MOST_OUTPUT_TOKENS: u64 = 2_048;
const PATIENCE: Patience = Patience { attempts: 2, wait: Duration::from_secs(20) };
const ATTEMPT: Duration = Duration::from_secs(60);

const SYSTEM: &str = "This is a test of the connection.";
const QUESTION: &str = "Call the tool `ready` once, with `ok` set to true, and say nothing else.";
const PARAMETERS: &str = r#"{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}"#;

/// What one model did when it was spoken to.
#[derive(Debug, Serialize)]
pub(super) struct Spoken {
    lanes: Vec<Lane>,
    model: String,
    wire: &'static str,
    window_tokens: u64,
    /// Nobody names it, not even the server.
    window_assumed: bool,
    max_output_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    answered_by: Option<String>,
    /// Whether it called the tool that it was given.
    tools: bool,
    /// Whether a request may force a tool; absent where the catalogue says that it is of no use to ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    forced_tool: Option<bool>,
    /// Micro-dollars per million tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    input_price: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_price: Option<u64>,
    /// Of these requests, micro-dollars.
    cost: Micros,
    cost_reported: bool,
    duration_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Speaks to each model once, and adds what came of it to the report.
///
/// # Errors
/// A goal file or flags that name no models; what is wrong with a provider is an item of the report.
pub(super) fn live(
    report: &mut Report,
    args: &DoctorArgs,
    home: Option<&Path>,
    cwd: &Path,
    err: &mut dyn Write,
) -> Result<(), Failure> {
    let env = RealEnv;
    let unusable = |problems: Vec<Problem>, err: &mut dyn Write| -> Failure {
        match crate::cli::validate::write_problems(&problems, err) {
            Ok(()) => Failure::usage("the models to speak to are not known"),
            Err(error) => error.into(),
        }
    };
    let overrides = match args.overrides() {
        Ok(overrides) => overrides,
        Err(problems) => return Err(unusable(problems, err)),
    };
    let source = match &args.goal {
        Some(file) => GoalSource::File(file.clone()),
        None => GoalSource::Prompt("none".to_owned()),
    };
    let effective = match load(&source, &overrides, &env, home, cwd) {
        Ok(effective) => effective,
        Err(problems) => return Err(unusable(problems, err)),
    };
    let config = effective.config;
    if !effective.untrusted.is_empty() && !args.trust_goal {
        return Err(unusable(effective.untrusted, err));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut notes = Vec::new();
    let spoken = match models(&config, None, &env, RUN_ID, &mut notes) {
        Ok(models) => runtime.block_on(speak(models, &config, &mut notes)),
        Err(failure) => Err(failure),
    };
    for note in notes {
        report.add("live", State::Note, note, None);
    }
    match spoken {
        Ok(spoken) => {
            for one in &spoken {
                let state = if one.error.is_some() { State::Fail } else { one.state() };
                report.add("live", state, one.to_string(), None);
            }
            report.live = spoken;
        }
        Err(failure) => report.add("live", State::Fail, failure.message, failure.hint.as_deref()),
    }
    Ok(())
}

async fn speak(models: Models, config: &Config, notes: &mut Vec<String>) -> Result<Vec<Spoken>, Failure> {
    let Models { mut agent, mut judge, mut summarizer, transport, keys } = models;
    let secrets = secrets(config, [Some(&agent), judge.as_ref(), Some(&summarizer)], &RealEnv);
    keys.hide_in(&secrets);
    read_keys(&keys, [&agent, &summarizer].into_iter().chain(&judge)).await?;
    let world = World {
        transport,
        exec: Rc::new(NoExec),
        dir: Rc::new(RealDir),
        clock: Rc::new(RealClock::new()),
        ids: Rc::new(RealIds::random()?),
        env: Rc::new(RealEnv),
    };
    ask_windows(&world, [&mut agent, &mut summarizer].into_iter().chain(&mut judge), notes).await;
    let mut asked: Vec<(Endpoint, Vec<Lane>)> = Vec::new();
    let lanes = [(Lane::Agent, Some(agent)), (Lane::Judge, judge), (Lane::Summarizer, Some(summarizer))];
    for (lane, endpoint) in lanes {
        let Some(endpoint) = endpoint.filter(|endpoint| endpoint.cassette.is_none()) else { continue };
        match asked.iter_mut().find(|(other, _)| *other == endpoint) {
            Some((_, lanes)) => lanes.push(lane),
            None => asked.push((endpoint, vec![lane])),
        }
    }
    let folder = tempfile::tempdir()?;
    let store = Store::new(folder.path().to_owned());
    let id = Store::new_id(&world);
    let session = Session::create(&world, &store, folder.path(), &id, RUN_ID, Vec::new())?;
    let gateway = Gateway::new(GatewayParts {
        world: world.clone(),
        session: session.clone(),
        halt: Halt::new(),
        limits: &config.limits,
        state: &session::fold(&[]),
        max_wait: PATIENCE.wait,
        deltas: false,
        secrets,
    });
    let mut spoken = Vec::new();
    for (endpoint, lanes) in asked {
        spoken.push(ask(&gateway, &world, endpoint, lanes).await);
    }
    Ok(spoken)
}

async fn ask(gateway: &Gateway, world: &World, endpoint: Endpoint, lanes: Vec<Lane>) -> Spoken {
    let tool = ToolSchema {
        name: "ready",
        description: "Say that you are there.".to_owned(),
        parameters: serde_json::value::RawValue::from_string(PARAMETERS.to_owned())
            .unwrap_or_else(|_| unreachable!("the schema is a constant, parsed by a test")),
    };
    let lane = lanes.first().copied().unwrap_or(Lane::Agent);
    let mut spoken = Spoken {
        lanes,
        model: endpoint.name(),
        wire: endpoint.wire.name(),
        window_tokens: endpoint.window_tokens,
        window_assumed: endpoint.window_assumed,
        max_output_tokens: endpoint.max_output_tokens,
        answered_by: None,
        tools: false,
        forced_tool: endpoint.force_tool.then_some(true),
        input_price: endpoint.price.as_ref().map(|price| price.input),
        output_price: endpoint.price.as_ref().map(|price| price.output),
        cost: Micros::ZERO,
        cost_reported: true,
        duration_ms: 0,
        error: None,
    };
    let short = Endpoint { max_output_tokens: endpoint.max_output_tokens.min(MOST_OUTPUT_TOKENS), ..endpoint };
    let head = short.wire.head(SYSTEM, &[tool]);
    let begun = world.clock.elapsed();
    let (spent, unreported) = gateway.ledger(|ledger| (ledger.spent(), ledger.unreported().len()));
    let reply = loop {
        let mut conversation = Conversation::new(short.wire, &head, gateway.factor(lane));
        conversation.seal(&[Message::User { origin: Origin::Prompt, text: QUESTION.to_owned() }]);
        let forced = spoken.forced_tool == Some(true);
        let ask = Ask {
            lane,
            endpoint: &short,
            force_tool: forced.then_some("ready"),
            attempt_timeout: Some(ATTEMPT),
            entry: false,
            patience: Some(PATIENCE),
        };
        match gateway.call(&mut conversation, &ask).await {
            // As the judge does: without, where it cannot be forced.
            Err(CallError::Model(ModelError::InvalidRequest(_))) if forced => spoken.forced_tool = Some(false),
            other => break other,
        }
    };
    spoken.duration_ms = u64::try_from(world.clock.elapsed().saturating_sub(begun).as_millis()).unwrap_or(u64::MAX);
    (spoken.cost, spoken.cost_reported) =
        gateway.ledger(|ledger| (ledger.spent().saturating_sub(spent), ledger.unreported().len() == unreported));
    match reply {
        Ok(reply) => {
            spoken.tools =
                reply.blocks.iter().any(|block| matches!(block, Block::Call { name, .. } if name == "ready"));
            spoken.answered_by = reply.model.filter(|model| *model != short.model);
        }
        Err(error) => spoken.error = Some(error.to_string()),
    }
    spoken
}

impl Spoken {
    /// A model that calls no tools is of no use to an agent, and one that was not billed is not a surprise yet.
    fn state(&self) -> State {
        match (self.tools, self.lanes.contains(&Lane::Agent)) {
            (false, true) => State::Fail,
            (false, false) => State::Note,
            (true, _) if self.cost_reported => State::Ok,
            (true, _) => State::Note,
        }
    }
}

impl std::fmt::Display for Spoken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lanes: Vec<&str> = self.lanes.iter().map(|lane| lane.name()).collect();
        write!(f, "{} ({}, {})", self.model, lanes.join(", "), self.wire)?;
        if let Some(error) = &self.error {
            return write!(f, ": {error}");
        }
        if let Some(model) = &self.answered_by {
            write!(f, ", answered by {model}")?;
        }
        let assumed = if self.window_assumed { " (assumed)" } else { "" };
        write!(f, ": window {}{assumed}, output {}", self.window_tokens, self.max_output_tokens)?;
        f.write_str(if self.tools { "; calls tools" } else { "; called no tool" })?;
        f.write_str(match self.forced_tool {
            Some(true) => ", forced ones too",
            Some(false) => ", and refuses to be forced",
            None => ", and is not asked to be forced",
        })?;
        match (self.input_price, self.output_price) {
            (Some(0), Some(0)) => f.write_str("; free")?,
            (Some(input), Some(output)) => {
                write!(f, "; ${} and ${} per million tokens", Micros(input), Micros(output))?;
            }
            _ => f.write_str("; no price is known")?,
        }
        let known = if self.cost_reported { "" } else { " at most: it reported no usage" };
        write!(f, "; this cost ${}{known}; {} ms", self.cost, self.duration_ms)
    }
}
