//! `spettro sessions compact`: makes the history of a session smaller, between its runs.

use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;

use crate::cli::failure::Failure;
use crate::cli::live::Shelf;
use crate::cli::models::{Frozen, models, read_keys};
use crate::cli::run::secrets;
use crate::compact::{Budget, Compactor, History, Place, Wish, head};
use crate::event::{Event, Outcome, Record};
use crate::model::{CallError, Gateway, GatewayParts};
use crate::report::compacted_words;
use crate::session::{self, Listener, Session};
use crate::world::{Halt, RealEnv, World};

/// Hears what came of it.
#[derive(Default)]
struct Heard(RefCell<Vec<Event>>);

impl Listener for Heard {
    fn event(&self, record: &Record) {
        self.0.borrow_mut().push(record.event.clone());
    }
}

/// Compacts a session.
///
/// # Errors
/// An unknown or running session; a summarizer that gives nothing usable, in which case the history is as it was.
pub fn compact(shelf: &Shelf, id: &str, wish: &Wish, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let dir = shelf.find(id)?;
    let (_, _, state) = super::read(&dir)?;
    let frozen = super::frozen(&state, &dir)?;
    let config = super::config(frozen)?;
    let kept = Frozen {
        endpoints: &frozen.endpoints,
        learned_window: state.window_tokens,
        lost: state.lost_calls(),
        config: Box::new(|| Ok(config.clone())),
    };
    // The configuration is the session's own: there is nothing that it could keep against it.
    let models = models(&config, Some(&kept), &RealEnv, "sessions-compact", &mut Vec::new())?;
    let secrets = secrets(&config, [Some(&models.agent), models.judge.as_ref(), Some(&models.summarizer)], &RealEnv);
    models.keys.hide_in(&secrets);
    let world = World { transport: models.transport.clone(), ..shelf.world().clone() };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Outcome::Environment, format!("start the runtime: {error}")))?;
    let heard = Rc::new(Heard::default());
    let listener: Rc<dyn Listener> = heard.clone();
    runtime.block_on(async {
        if !wish.prune_only {
            read_keys(&models.keys, [&models.summarizer]).await?;
        }
        let opened = Session::open(&world, &dir, "sessions-compact", vec![listener]).await?;
        // Read again under the lock.
        let state = session::fold(&opened.lines);
        let frozen = super::frozen(&state, &dir)?;
        let mut endpoint = models.agent;
        endpoint.window_tokens = state.window_tokens.unwrap_or(u64::MAX).min(endpoint.window_tokens);
        let limits = state.runs.last().map_or(&config.limits, |run| &run.limits);
        let gateway = Gateway::new(GatewayParts {
            world: world.clone(),
            session: opened.session.clone(),
            halt: Halt::new(),
            limits,
            state: &state,
            max_wait: config.rate_limit_max_wait,
            deltas: false,
            secrets,
        });
        let summarizer_head = frozen.heads.get("summarizer").cloned().unwrap_or_else(|| head(&models.summarizer));
        let budget = Budget::fold(opened.lines.iter().map(|line| &line.fact));
        let mut compactor =
            Compactor::new(config.compaction, models.summarizer, summarizer_head, &frozen.system, budget);
        let agent_head = frozen.heads.get("agent").map_or("", String::as_str);
        let mut conversation = History::conversation(endpoint.wire, agent_head, &state);
        let mut history = History::of(&state);
        conversation.seal(history.take_unsealed());
        let mut place = Place {
            gateway: &gateway,
            session: &opened.session,
            endpoint: &mut endpoint,
            history: &mut history,
            conversation: &mut conversation,
        };
        let done = compactor.asked(&mut place, wish).await.map_err(failure);
        opened.session.save_derived()?;
        opened.session.sync_now().await?;
        done
    })?;
    let heard = heard.0.borrow();
    let finished = heard.iter().find(|event| matches!(event, Event::CompactionFinished { .. }));
    if let (None, Some(reason)) = (finished, heard.iter().find_map(failed)) {
        return Err(Failure::new(Outcome::Environment, format!("not compacted: {reason}"))
            .hint("the history is as it was; try again, or use `--prune-only`"));
    }
    if json {
        let mut object = serde_json::json!({"compacted": finished.is_some()});
        let told = finished.map(serde_json::to_value).transpose();
        let told = told.map_err(|error| Failure::new(Outcome::Internal, error))?;
        // The event's own fields, so that there is one shape for both.
        if let (Some(object), Some(serde_json::Value::Object(fields))) = (object.as_object_mut(), told) {
            object.extend(fields.into_iter().filter(|(name, _)| name != "type"));
        }
        return super::json(out, &object);
    }
    match finished.and_then(compacted_words) {
        Some(words) => writeln!(out, "{words}")?,
        None if wish.prune_only => writeln!(out, "nothing to prune: no output before the last tool rounds is large")?,
        None => writeln!(out, "nothing to compact: the history is as small as it gets")?,
    }
    Ok(())
}

fn failed(event: &Event) -> Option<&str> {
    match event {
        Event::CompactionFailed { reason, .. } => Some(reason),
        _ => None,
    }
}

fn failure(error: CallError) -> Failure {
    match error {
        CallError::Session(error) => error.into(),
        CallError::Limit(hit) => Failure::usage(format!("a summary would break the session's `{}`", hit.key()))
            .hint("`--prune-only` asks no model"),
        error => Failure::new(Outcome::Environment, error),
    }
}
