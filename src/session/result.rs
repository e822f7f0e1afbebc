//! What a run came to, in its session's folder: `result.json` and `summary.md`.

use std::path::Path;

use super::derived::write_json;
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
