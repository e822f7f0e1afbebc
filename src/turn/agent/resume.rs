//! Where an agent goes on that an earlier run left in the middle of its work.

use super::{Agent, GOAL_COMPLETE, TurnDone};
use crate::event::{Lane, ToolStatus, TurnEnd};
use crate::session::{Block, Message, SessionError, State};
use crate::tools::ToolCall;

impl Agent {
    /// Goes on where an earlier run ended: results of calls that were running or never started, and a word after an
    /// interruption. `in_turn`: a turn was under way, and its opening message was said. `last_text` becomes the last
    /// text of the agent.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn resume(&mut self, state: &State, in_turn: bool, last_text: &mut String) -> Result<(), SessionError> {
        self.parts.tools.restore(state.marks.clone(), state.tasks.clone());
        self.parts.tools.restore_jobs(state.last_job);
        self.parts.steering.borrow_mut().extend(state.steers.iter().cloned());
        for message in &state.recent {
            if let Message::Assistant { blocks, refused: None, .. } = message {
                let text = crate::model::blocks_text(blocks);
                if !text.trim().is_empty() {
                    *last_text = text;
                }
            }
            self.keep(message.clone());
        }
        for (block, started) in &state.dangling {
            let Block::Call { id, name, arguments } = block else { continue };
            let call = ToolCall { id: id.clone(), name: name.clone(), arguments: arguments.clone() };
            let text = if *started {
                "[interrupted: the runner ended while this call ran; its effects are unknown. It was not run again.]"
            } else {
                "[not run: the runner ended before this call started]"
            };
            let (mut ran, took) = self.not_run(&call, text.to_owned());
            ran.status = ToolStatus::Interrupted;
            self.record(&call, &ran, took)?;
        }
        match last_step(state) {
            _ if !in_turn => {}
            LastStep::Open => {}
            LastStep::Cut => self.operator("You were interrupted here; go on.")?,
            LastStep::Over { end, complete, why } => {
                self.over = Some(TurnDone { end, last_text: last_text.clone(), complete, why });
            }
        }
        self.jobs_are_gone(&state.open_jobs)
    }
}

/// What the last messages of an unfinished turn mean for the next request.
enum LastStep {
    /// There is something to answer.
    Open,
    /// The agent spoke last, and was not through: a word must follow, since a request ends with what is to be answered.
    Cut,
    /// The reply that ended the turn is there; only the line that says so is missing.
    Over { end: TurnEnd, complete: Option<String>, why: Option<String> },
}

fn last_step(state: &State) -> LastStep {
    match state.unsent.last() {
        Some(Message::Assistant { interrupted: true, .. }) => LastStep::Cut,
        Some(Message::Assistant { refused: Some(why), .. }) => {
            LastStep::Over { end: TurnEnd::Refused, complete: None, why: Some(why.clone()) }
        }
        Some(Message::Assistant { blocks, .. }) if !blocks.iter().any(|block| matches!(block, Block::Call { .. })) => {
            let settled = state.calls.iter().rev().find(|(call, _)| call.lane == Lane::Agent);
            let stop = settled.and_then(|(_, settled)| settled.as_ref()).map(|settled| settled.stop.as_str());
            let silent = crate::model::blocks_text(blocks).trim().is_empty();
            match stop {
                // The provider goes on from the assistant's own message.
                Some("pause") => LastStep::Open,
                Some("end" | "stop_sequence") if !silent => {
                    LastStep::Over { end: TurnEnd::Done, complete: None, why: None }
                }
                _ => LastStep::Cut,
            }
        }
        Some(Message::Tool { .. }) => match completed(state) {
            complete @ Some(_) => LastStep::Over { end: TurnEnd::Done, complete, why: None },
            None => LastStep::Open,
        },
        _ => LastStep::Open,
    }
}

/// The summary of a `goal-complete` among the last reply's calls, when it was accepted.
fn completed(state: &State) -> Option<String> {
    let results = state.unsent.iter().rev().take_while(|message| matches!(message, Message::Tool { .. }));
    let id = results.into_iter().find_map(|message| match message {
        Message::Tool { call_id, tool, is_error: false, .. } if tool == GOAL_COMPLETE => Some(call_id),
        _ => None,
    })?;
    let calls = state.unsent.iter().rev().find_map(|message| match message {
        Message::Assistant { blocks, .. } => Some(blocks),
        _ => None,
    })?;
    let arguments = calls.iter().find_map(|block| match block {
        Block::Call { id: call, arguments, .. } if call == id => Some(arguments),
        _ => None,
    })?;
    let arguments: serde_json::Value = serde_json::from_str(arguments).ok()?;
    Some(arguments.get("summary")?.as_str()?.to_owned())
}
