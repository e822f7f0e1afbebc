//! What a run came to, in its session's folder: `result.json` and `summary.md`.

use std::path::Path;

use serde_json::Value;

use super::derived::{EVENTS_FILE, write_json};
use super::error::SessionError;
use super::facts::{Fact, Line};
use super::files::write_whole;
use crate::event::RunResult;

/// [`Session::write_result`](super::Session::write_result) for a session that nobody can ask any more.
///
/// # Errors
/// The system's.
pub fn write_result(dir: &Path, result: &RunResult, summary: &str) -> Result<(), SessionError> {
    write(dir, result, summary, result.outcome.is_some())
}

/// The same for a run whose end has been told, and that came to something else behind it: its last event says so too.
/// Only for who has the session to himself.
///
/// # Errors
/// The system's, and an events.jsonl that does not end with the end of this run.
pub fn amend_result(dir: &Path, result: &RunResult, summary: &str) -> Result<(), SessionError> {
    write(dir, result, summary, true)?;
    let file = dir.join(EVENTS_FILE);
    let text = std::fs::read(&file).map_err(SessionError::io("read", &file))?;
    let whole = text.strip_suffix(b"\n").unwrap_or(&text);
    let last = whole.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let amended = serde_json::from_slice(&whole[last..]).and_then(|mut event: Value| {
        if event["type"] == "run.finished" && event["run"] == result.run_id.as_str() {
            event["result"] = serde_json::to_value(result)?;
        }
        serde_json::to_vec(&event)
    });
    let amended = amended.map_err(|error| SessionError::io("read", &file)(error.into()))?;
    write_whole(&file, &[&text[..last], &amended, b"\n"].concat(), true)
}

/// What the last run in a log came to that has no end there: it stood still, and was ended from outside of its loop,
/// which alone writes the log.
pub fn ended_outside(dir: &Path, lines: &[Line]) -> Option<RunResult> {
    let last = lines.iter().rev().find_map(|line| match &line.fact {
        Fact::Run(start) => Some(Some(&start.run)),
        Fact::End(_) => Some(None),
        _ => None,
    });
    let run = last.flatten()?;
    let text = std::fs::read(dir.join("result.json")).ok()?;
    let result: RunResult = serde_json::from_slice(&text).ok()?;
    (result.run_id == *run && result.outcome.is_some()).then_some(result)
}

pub(super) fn write(dir: &Path, result: &RunResult, summary: &str, sync: bool) -> Result<(), SessionError> {
    write_whole(&dir.join("summary.md"), summary.as_bytes(), sync)?;
    write_json(&dir.join("result.json"), result, sync)
}
