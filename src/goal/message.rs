//! The continuation: the one user message that sends the agent on after an iteration.

use std::fmt::Write;

use super::packet::excerpt_end;
use super::progress::fails;
use crate::event::{CheckResult, TurnEnd, Verdict};

/// A goal longer than this is cut in continuations; the first message has it whole.
const GOAL_BYTES: usize = 4 * 1024;

/// What the continuation is made from.
pub struct Onward<'a> {
    pub goal: &'a str,
    /// Absent after a failed or refused turn.
    pub verdict: Option<&'a Verdict>,
    /// How the turn ended, and why when it failed.
    pub turn: (TurnEnd, Option<&'a str>),
    pub checks: &'a [CheckResult],
    /// The evidence, when this is the stall nudge.
    pub nudge: Option<&'a str>,
    /// Background jobs that live, as `job-1 (command)`.
    pub jobs: &'a [String],
}

/// Why the goal is not met, the goal, the next step, and the end of each failed check's output.
pub fn continuation(onward: &Onward<'_>) -> String {
    let mut text = String::new();
    match (onward.verdict, onward.turn) {
        (_, (TurnEnd::Refused, why)) => {
            let _ = writeln!(
                text,
                "Your last turn ended with a refusal{}. If part of the goal cannot be done, do the rest.",
                why.map(|why| format!(" ({why})")).unwrap_or_default()
            );
        }
        (_, (TurnEnd::Failed, why)) => {
            let _ = writeln!(text, "Your last turn failed: {}.", why.unwrap_or("no usable reply"));
        }
        (Some(verdict), _) => {
            let _ = writeln!(text, "The goal is not met yet: {}", verdict.reason);
        }
        (None, _) => text.push_str("The goal is not met yet.\n"),
    }
    if let Some(evidence) = onward.nudge {
        let _ = writeln!(
            text,
            "\nThere was no progress for several iterations ({evidence}). If the next one brings none either, the run \
             ends as stalled. Question what you took for granted, and take another way."
        );
    }
    text.push_str("\nThe goal:\n");
    if onward.goal.len() > GOAL_BYTES {
        let mut end = GOAL_BYTES;
        while !onward.goal.is_char_boundary(end) {
            end -= 1;
        }
        let _ = writeln!(text, "{}\n[see the first message for the whole goal]", &onward.goal[..end]);
    } else {
        let _ = writeln!(text, "{}", onward.goal);
    }
    let next = onward.verdict.map(|verdict| verdict.next_step.as_str()).filter(|step| !step.is_empty());
    let _ = writeln!(text, "\nNext: {}", next.unwrap_or("Keep going."));
    if !onward.jobs.is_empty() {
        let _ = writeln!(
            text,
            "\nStill running in the background: {}. End with job-kill what you no longer need.",
            onward.jobs.join(", ")
        );
    }
    for check in onward.checks.iter().filter(|check| fails(check)) {
        let exit = check.exit_code.map_or(check.status.name().to_owned(), |code| format!("exit {code}"));
        let _ = writeln!(
            text,
            "\nCheck `{}` failed ({exit}). The end of its output:\n{}",
            check.name,
            excerpt_end(&check.tail, 2_000)
        );
    }
    text
}
