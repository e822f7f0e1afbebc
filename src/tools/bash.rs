//! `bash`: foreground commands, and the start of background jobs.

use std::path::Path;
use std::time::Duration;

use super::args::Args;
use super::dispatch::{Done, Place, ToolOptions};
use super::error::ToolError;
use super::escape::{escape, escape_line};
use super::output::{Whole, one_line, thousands};
use crate::event::ToolStatus;
use crate::process;
use crate::world::{Captured, Command, CommandKind, Ending, ExecError, Finished};

/// Most bytes kept from the start and from the end of a command's output.
const KEEP_BYTES: usize = 2 << 20;
/// Between TERM and KILL for a foreground command.
const COMMAND_GRACE: Duration = Duration::from_secs(2);
/// Between TERM and KILL for a job.
const JOB_GRACE: Duration = Duration::from_secs(5);
const LABEL_CHARS: usize = 120;
/// Most leftover processes that are named one by one.
const LEFT_NAMES: usize = 20;

/// Runs or starts a command. `next_job` is the name that a background job would get.
pub(super) async fn run(at: Place<'_>, args: &Args, next_job: &str) -> Result<Done, ToolError> {
    let command = args.required("command")?;
    let background = args.flag("run_in_background");
    if command.contains('\0') {
        return Err(ToolError::argument("command", "must not contain a NUL character"));
    }
    if background && args.has("timeout") {
        return Err(ToolError::argument("timeout", "does not go with `run_in_background`: a job has none"));
    }
    let cwd = args.text("cwd").unwrap_or(".");
    if cwd.contains('\0') {
        return Err(ToolError::argument("cwd", "must not contain a NUL character"));
    }
    let limit = at.options.command_limit;
    let timeout = args.number("timeout").map_or(limit, |seconds| Duration::from_secs(seconds).min(limit));
    let start = Command {
        kind: if background { CommandKind::Job } else { CommandKind::Tool },
        argv: vec!["bash".into(), "-c".into(), command.to_owned()],
        cwd: if cwd == "." { at.roots.real.clone() } else { at.roots.to_real(Path::new(cwd)) },
        env: Vec::new(),
        timeout: (!background).then_some(timeout),
        grace: if background { JOB_GRACE } else { COMMAND_GRACE },
        keep_bytes: KEEP_BYTES,
        label: one_line(command, LABEL_CHARS),
    };
    // The path of a bad working directory is told as the model wrote it.
    let failed = |error| match error {
        ExecError::BadCwd(_) => ToolError::Failed(format!(
            "working directory `{}` cannot be entered; the command was not started",
            escape_line(cwd.as_bytes())
        )),
        error => ToolError::Failed(error.to_string()),
    };
    if background {
        at.world.exec.start(next_job, start).await.map_err(failed)?;
        let text = format!("{next_job} started; read its output with job-output, wait for it with wait");
        return Ok(Done { job: Some(next_job.to_owned()), ..Done::ok(text) });
    }
    let finished = at.world.exec.run(start).await.map_err(failed)?;
    Ok(Done {
        status: status(finished.ending),
        output_bytes: Some(finished.output.total_bytes()),
        ..Done::of(Whole::of_bytes(report(finished, timeout, at.options)))
    })
}

fn status(ending: Ending) -> ToolStatus {
    match ending {
        Ending::Exited(0) => ToolStatus::Ok,
        Ending::TimedOut => ToolStatus::Timeout,
        Ending::Cancelled => ToolStatus::Interrupted,
        Ending::Exited(_) | Ending::Signaled(_) | Ending::Lost | Ending::TooManyProcesses => ToolStatus::Error,
    }
}

/// The output as it was captured and, each on a line of its own, what it left running and how it ended.
fn report(mut finished: Finished, timeout: Duration, options: &ToolOptions) -> Vec<u8> {
    let mut raw = captured(std::mem::take(&mut finished.output));
    let failed = finished.ending != Ending::Exited(0) && !options.removed.is_empty();
    let hint = if failed { process::hint(&escape(&raw), &options.removed) } else { None };
    let mut line = |line: &str| {
        end_line(&mut raw);
        raw.extend_from_slice(line.as_bytes());
    };
    if !finished.leftovers.is_empty() {
        line(&leftovers(&finished, options.jobs));
    }
    match finished.ending {
        Ending::Exited(0) => {}
        Ending::Exited(status) => line(&format!("[exit status {status}]")),
        Ending::Signaled(signal) => line(&format!("[killed by signal {signal}]")),
        Ending::TimedOut => line(&format!(
            "[timed out after {}s; the command and everything it started were ended]",
            timeout.as_secs_f64()
        )),
        Ending::Lost => line("[lost: its supervisor disappeared; the command and everything it started were ended]"),
        Ending::Cancelled => line("[ended because spettro is shutting down]"),
        Ending::TooManyProcesses => {
            line("[killed: it started more than 1,024 processes; everything it started was ended]");
        }
    }
    if let Some(hint) = hint {
        line(&format!("[hint: {hint}]"));
    }
    if raw.is_empty() { b"[no output]".to_vec() } else { raw }
}

fn captured(output: Captured) -> Vec<u8> {
    let mut raw = output.head;
    if output.omitted_bytes > 0 {
        end_line(&mut raw);
        let omitted = thousands(output.omitted_bytes);
        let note = format!("[{omitted} bytes of output were not kept: only the first and last 2 MiB are]\n");
        raw.extend_from_slice(note.as_bytes());
    }
    raw.extend_from_slice(&output.tail);
    raw
}

fn end_line(raw: &mut Vec<u8>) {
    if !raw.is_empty() && !raw.ends_with(b"\n") {
        raw.push(b'\n');
    }
}

fn leftovers(finished: &Finished, jobs: bool) -> String {
    let left = &finished.leftovers;
    let (noun, verb) = match (finished.kept, left.len()) {
        (true, 1) => ("process", "runs on until the run ends"),
        (true, _) => ("processes", "run on until the run ends"),
        (false, 1) => ("process", "was stopped"),
        (false, _) => ("processes", "were stopped"),
    };
    let mut names: Vec<String> =
        left.iter().take(LEFT_NAMES).map(|one| format!("{} {}", one.pid, escape_line(one.name.as_bytes()))).collect();
    if left.len() > LEFT_NAMES {
        names.push(format!("and {} more", left.len() - LEFT_NAMES));
    }
    let hint = if jobs && !finished.kept { " Use run_in_background to keep a process." } else { "" };
    format!("[{} background {noun} left by this command {verb}: {}.{hint}]", left.len(), names.join(", "))
}
