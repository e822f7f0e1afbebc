//! What an earlier run of the session left: its baseline, its request, and the stage in which it stood.

use std::collections::BTreeMap;

use super::super::baseline::{Found, listing};
use super::super::failure::Cause;
use super::super::iterate::{Stage, State};
use super::{RunParts, notice};
use crate::compact::History;
use crate::event::Outcome;
use crate::model::Conversation;
use crate::session::{self, Fact, Line, Session};

/// What an earlier run of the session found, when its baseline was complete.
pub(super) fn earlier_baseline(session: &Session, lines: &[Line]) -> Result<Option<Found>, Cause> {
    let mut found: Option<Found> = None;
    for line in lines {
        match &line.fact {
            Fact::Baseline { git_tree, listing: name } => {
                let files = match name {
                    Some(name) => listing(session, name)
                        .map_err(|error| Cause::new(Outcome::Unusable, format!("read the baseline: {error}")))?,
                    None => BTreeMap::new(),
                };
                found =
                    Some(Found { git_tree: git_tree.clone(), files, checks: Vec::new(), progress: None, cause: None });
            }
            Fact::Checks { iteration: 0, results } => {
                if let Some(found) = &mut found {
                    found.checks.clone_from(results);
                    return Ok(Some(found.clone()));
                }
            }
            _ => {}
        }
    }
    // Without its checks the baseline was not complete; nothing had been changed then, so it is taken again.
    Ok(None)
}

/// The agent's request as the last run left it, and where the loop stands.
pub(super) fn restore(parts: &RunParts, state: &session::State, head: &str) -> Result<(Conversation, State), Cause> {
    let conversation = History::conversation(parts.endpoint.wire, head, state);
    let last = state.calls.iter().rev().find(|(call, _)| call.lane == crate::event::Lane::Agent);
    if let Some((call, _)) = last
        && !state.sent.is_empty()
        && call.digest != conversation.rest().digest()
    {
        notice(
            &parts.session,
            "history_differs",
            format!("the history as this build encodes it differs from call {} of the last run", call.n),
        )?;
    }
    let mut standing = State {
        iteration: state.iteration,
        verdict: state.verdicts.last().cloned(),
        checks: state.checks.last().map(|(_, results)| results.clone()).unwrap_or_default(),
        steps_taken: steps_of_iteration(&parts.lines),
        ..State::default()
    };
    let ended = state.last_turn.filter(|(iteration, _)| *iteration == state.iteration && *iteration > 0);
    let judged = state.verdicts.last().is_some_and(|verdict| verdict.iteration == state.iteration);
    let checked = parts
        .lines
        .iter()
        .any(|line| matches!(&line.fact, Fact::Progress(progress) if progress.iteration == state.iteration));
    standing.turn = ended.map(|(_, end)| (end, turn_reason(&parts.lines)));
    standing.stage = match ended {
        None if state.iteration > 0 => Stage::Turn,
        // A failed or refused turn has no verdict; its checks and progress were its end.
        Some((_, crate::event::TurnEnd::Failed | crate::event::TurnEnd::Refused)) if checked => Stage::Begin,
        Some(_) if !judged => Stage::After,
        _ => Stage::Begin,
    };
    standing.undecided = judged && undecided(&parts.lines);
    Ok((conversation, standing))
}

/// Whether the last verdict is younger than the last end of a run.
fn undecided(lines: &[Line]) -> bool {
    let last = lines.iter().rev().find(|line| matches!(line.fact, Fact::Verdict { .. } | Fact::End(_)));
    last.is_some_and(|line| matches!(line.fact, Fact::Verdict { .. }))
}

fn turn_reason(lines: &[Line]) -> Option<String> {
    lines.iter().rev().find_map(|line| match &line.fact {
        Fact::Turn { why, .. } => Some(why.clone()),
        _ => None,
    })?
}

/// Agent calls since the last iteration began.
fn steps_of_iteration(lines: &[Line]) -> u64 {
    let mut steps = 0;
    for line in lines {
        match &line.fact {
            Fact::Iteration { .. } => steps = 0,
            Fact::Call(call) if call.lane == crate::event::Lane::Agent => steps += 1,
            _ => {}
        }
    }
    steps
}

/// Whether the current iteration began without its opening message (the runner died between the two lines).
pub(super) fn opening_missing(state: &session::State) -> bool {
    state.openings < state.iteration
}
