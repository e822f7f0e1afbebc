//! What a run came to, in its session's folder: `result.json` and `summary.md`.

use std::path::Path;

use super::derived::write_json;
use super::error::SessionError;
use super::files::write_whole;
use crate::event::RunResult;

/// [`Session::write_result`](super::Session::write_result) for a session that nobody can ask any more.
///
/// # Errors
/// The system's.
pub fn write_result(dir: &Path, result: &RunResult, summary: &str) -> Result<(), SessionError> {
    write(dir, result, summary, result.outcome.is_some())
}

pub(super) fn write(dir: &Path, result: &RunResult, summary: &str, sync: bool) -> Result<(), SessionError> {
    write_whole(&dir.join("summary.md"), summary.as_bytes(), sync)?;
    write_json(&dir.join("result.json"), result, sync)
}
