//! What happened in a session, reduced to what two runs of the same thing share. Pure.
//!
//! Left out: failed attempts, notices, waiting, versions, the sandbox's level, run ids, and every duration.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::records::hex;
use crate::event::Event;
use crate::session::{DeriveState, Line, derive};

/// The events that a session's facts give, each reduced: `{"type":…}` and the fields that count, no durations.
pub fn events(facts: &[Line]) -> Vec<Value> {
    let mut state = DeriveState::default();
    facts.iter().flat_map(|line| derive(line, &mut state)).filter_map(|event| reduced(&event)).collect()
}

/// sha256 (hex) of [`events`], one JSON text a line.
pub fn event_digest(facts: &[Line]) -> String {
    let (mut state, mut digest) = (DeriveState::default(), EventDigest::default());
    for event in facts.iter().flat_map(|line| derive(line, &mut state)) {
        digest.take(&event);
    }
    digest.finish()
}

/// The same of events as they come.
#[derive(Default)]
pub struct EventDigest(Sha256);

impl EventDigest {
    pub fn take(&mut self, event: &Event) {
        if let Some(event) = reduced(event) {
            self.0.update(event.to_string());
            self.0.update(b"\n");
        }
    }

    pub fn finish(self) -> String {
        hex(&self.0.finalize())
    }
}

fn reduced(event: &Event) -> Option<Value> {
    Some(match event {
        Event::AttemptFailed { .. }
        | Event::Notice { .. }
        | Event::RunWaiting { .. }
        | Event::StepStarted { .. }
        | Event::ModelDelta { .. } => return None,
        Event::RunStarted { goal, resumed, .. } => json!({"type": "run.started", "goal": goal, "resumed": resumed}),
        Event::RunFinished { result } => json!({"type": "run.finished", "outcome": result.outcome}),
        event => {
            let mut event = serde_json::to_value(event).ok()?;
            without_durations(&mut event);
            event
        }
    })
}

fn without_durations(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| name != "duration_ms");
            fields.values_mut().for_each(without_durations);
        }
        Value::Array(items) => items.iter_mut().for_each(without_durations),
        _ => {}
    }
}
