//! Checks, executed by spettro and never believed from a transcript.

use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::config::{Check, Shell};
use crate::event::{CheckResult, CheckStatus};
use crate::model::hex;
use crate::session::Spool;
use crate::turn::mask;
use crate::world::{Captured, Command, CommandKind, Ending, ExecError, Halt, Roots, World};

/// Output kept from each end of a check.
const KEEP_BYTES: usize = 2 * 1024 * 1024;
/// TERM to KILL, when a check's time is over.
const GRACE: Duration = Duration::from_secs(2);
const TAIL_LINES: usize = 40;
const EXCERPT_CHARS: usize = 2_000;
/// Larger outputs go to the spool.
const SPOOLED_BYTES: u64 = 2_000;

/// Why checks could not give an answer.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// At the baseline: what the check starts is not there.
    #[error("check `{check}` cannot run: {reason}")]
    Missing { check: String, reason: String },
}

/// Runs one check to its end. A halted run leaves it `not_run`. `removed` are variables that it does not see: a failure
/// that names one gets a hint.
pub async fn run(
    world: &World,
    halt: &Halt,
    roots: &Roots,
    spool: &Spool,
    check: &Check,
    removed: &[String],
) -> CheckResult {
    let command = command(CommandKind::Check, &check.run, roots, &check.cwd, check.timeout, &check.env);
    let started = world.clock.elapsed();
    let ran = halt.run(world.exec.run(command)).await;
    let duration_ms = world.clock.elapsed().saturating_sub(started).as_millis() as u64;
    let mut result = not_run(check);
    result.duration_ms = duration_ms;
    let finished = match ran {
        Err(_) => return result,
        Ok(Err(ExecError::ShuttingDown)) => return result,
        Ok(Err(error)) => {
            result.status = CheckStatus::Fail;
            result.exit_code = match error {
                ExecError::NotFound(_) => Some(127),
                ExecError::NotExecutable(_) => Some(126),
                _ => None,
            };
            result.tail = error.to_string();
            result.signature = signature(&result.tail);
            return result;
        }
        Ok(Ok(finished)) => finished,
    };
    (result.status, result.exit_code) = match finished.ending {
        Ending::Exited(code) if code == check.expect => (CheckStatus::Pass, Some(code)),
        Ending::Exited(code) => (CheckStatus::Fail, Some(code)),
        Ending::TimedOut => (CheckStatus::Timeout, None),
        Ending::Cancelled => return result,
        Ending::Signaled(_) | Ending::Lost | Ending::TooManyProcesses => (CheckStatus::Fail, None),
    };
    let printed_bytes = finished.output.total_bytes();
    let raw = Bytes::from(finished.output.joined());
    if printed_bytes > SPOOLED_BYTES {
        result.spool = Some(spool.put(raw.clone()));
    }
    let text = String::from_utf8_lossy(&raw);
    result.head = head(&text);
    result.tail = tail(&text);
    if let Ending::Signaled(signal) = finished.ending {
        result.tail.push_str(&format!("\n[killed by signal {signal}]"));
    }
    if result.status != CheckStatus::Pass {
        result.signature = signature(&text);
        if let Some(hint) = crate::process::hint(&text, removed) {
            result.tail.push_str(&format!("\n[hint: {hint}]"));
        }
    }
    result
}

/// A check that was not run.
pub fn not_run(check: &Check) -> CheckResult {
    CheckResult {
        name: check.name.clone(),
        required: check.required,
        status: CheckStatus::NotRun,
        exit_code: None,
        duration_ms: 0,
        head: String::new(),
        tail: String::new(),
        spool: None,
        signature: String::new(),
    }
}

/// At the baseline a program that is not there ends the run, unless what is missing is a path in the workspace (the
/// agent may be about to make it).
///
/// # Errors
/// `Missing`, naming the program.
pub fn program_exists(check: &Check, result: &CheckResult) -> Result<(), CheckError> {
    if !matches!(result.exit_code, Some(126 | 127)) || check.expect == result.exit_code.unwrap_or(0) {
        return Ok(());
    }
    let program = missing_program(&result.tail);
    if program.as_ref().is_some_and(|program| program.contains('/') && !program.starts_with('/')) {
        return Ok(());
    }
    let reason = match (result.exit_code, program) {
        (Some(127), Some(program)) => format!("`{program}`: command not found"),
        (_, Some(program)) => format!("`{program}` cannot be executed"),
        (Some(127), None) => "it ended with 127, as when a command is not found".to_owned(),
        (_, None) => "it ended with 126, as when a file cannot be executed".to_owned(),
    };
    Err(CheckError::Missing { check: check.name.clone(), reason })
}

/// The program that a shell's message names: `bash: line 1: NAME: command not found`, or our own `` `NAME`: … ``.
fn missing_program(tail: &str) -> Option<String> {
    tail.lines().rev().find_map(|line| {
        if let Some(rest) = line.strip_prefix('`') {
            return rest.split_once('`').map(|(name, _)| name.to_owned());
        }
        let before = ["command not found", "not found", "No such file or directory", "Permission denied"]
            .iter()
            .find_map(|words| line.trim_end().strip_suffix(words))?;
        let before = before.trim_end().trim_end_matches(':');
        before.rsplit(": ").next().map(str::to_owned)
    })
}

/// The command for a check or a setup step.
pub fn command(
    kind: CommandKind,
    run: &Shell,
    roots: &Roots,
    cwd: &std::path::Path,
    timeout: Duration,
    env: &[(String, String)],
) -> Command {
    Command {
        kind,
        argv: run.argv.clone(),
        cwd: roots.real.join(cwd),
        env: env.to_vec(),
        timeout: Some(timeout),
        grace: GRACE,
        keep_bytes: KEEP_BYTES,
        label: run.shown.clone(),
    }
}

/// Captured output as text; what was dropped from the middle is said.
pub fn text(output: &Captured) -> String {
    String::from_utf8_lossy(&output.joined()).into_owned()
}

fn head(text: &str) -> String {
    text.chars().take(EXCERPT_CHARS).collect()
}

/// The last 40 lines, at most 2,000 characters.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n");
    let count = last.chars().count();
    last.chars().skip(count.saturating_sub(EXCERPT_CHARS)).collect()
}

fn signature(text: &str) -> String {
    hex(&Sha256::digest(mask(text).as_bytes())[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_program_is_found_in_the_shells_words() {
        assert_eq!(missing_program("bash: line 1: cargoo: command not found"), Some("cargoo".into()));
        assert_eq!(missing_program("bash: line 1: ./test.sh: No such file or directory"), Some("./test.sh".into()));
        assert_eq!(missing_program("bash: line 1: ./t.sh: Permission denied"), Some("./t.sh".into()));
        assert_eq!(missing_program("`foo`: command not found"), Some("foo".into()));
        assert_eq!(missing_program("> jest\n\nsh: 1: jest: not found"), Some("jest".into()));
        assert_eq!(missing_program("all fine"), None);
    }

    #[test]
    fn the_tail_is_the_last_forty_lines_within_two_thousand_characters() {
        let many: String = (0..100).map(|n| format!("line {n}\n")).collect();
        assert!(tail(&many).starts_with("line 60") && tail(&many).ends_with("line 99"));
        assert_eq!(tail(&"x".repeat(5_000)).chars().count(), 2_000);
    }
}
