//! `spettro replay`: a recorded session run again, hermetically.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use super::args::{ReplayArgs, ReportFormat};
use super::failure::Failure;
use super::live::Shelf;
use super::run::Exit;
use crate::cassette::Tape;
use crate::event::Outcome;
use crate::replay::{Options, ReplayError, Report, replay as again};

/// Replays, prints the report, and gives the exit code.
pub fn replay(args: &ReplayArgs, out: &mut dyn Write, err: &mut dyn Write) -> Exit {
    let outcome = match look(args) {
        Ok(report) => match print(args, &report, out) {
            Ok(()) => report.outcome(),
            // A reader that went away has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => report.outcome(),
            Err(error) => say(&Failure::new(Outcome::Environment, error), err),
        },
        Err(failure) => say(&failure, err),
    };
    if args.git_bisect {
        let code = match outcome {
            Outcome::Met => 0,
            Outcome::Diverged => 1,
            _ => 125,
        };
        return Exit { code, signal: None };
    }
    outcome.into()
}

fn say(failure: &Failure, err: &mut dyn Write) -> Outcome {
    let hint = failure.hint.as_deref().map(|hint| format!("hint: {hint}\n")).unwrap_or_default();
    let _ = write!(err, "error: {}\n{hint}", failure.message);
    failure.outcome
}

fn look(args: &ReplayArgs) -> Result<Report, Failure> {
    let tape = Rc::new(tape(args)?);
    let options = Options {
        faults: args.faults.into(),
        chunks: args.chunks,
        from_tape: args.from_tape.iter().map(|part| (*part).into()).collect(),
        temporary: temporary(),
        clock_offset: Duration::ZERO,
    };
    once(&tape, &options)
}

/// One replay on a runtime of its own.
fn once(tape: &Rc<Tape>, options: &Options) -> Result<Report, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|error| Failure::new(Outcome::Environment, format!("start the runtime: {error}")))?;
    let local = tokio::task::LocalSet::new();
    Ok(local.block_on(&runtime, again(tape, options))?)
}

fn temporary() -> PathBuf {
    std::env::temp_dir()
}

fn tape(args: &ReplayArgs) -> Result<Tape, Failure> {
    let path = &args.recording;
    if path.is_file() {
        return Ok(if args.allow_incomplete { Tape::of_incomplete_file(path)? } else { Tape::of_file(path)? });
    }
    let dir = match path.join("session.jsonl").is_file() {
        true => path.clone(),
        false => session(args, path)?,
    };
    Ok(Tape::of_session(&dir)?)
}

fn session(args: &ReplayArgs, name: &Path) -> Result<PathBuf, Failure> {
    let shelf = Shelf::open(args.session_dir.as_deref())?;
    let id = name.to_string_lossy();
    shelf.find(&id).map_err(|failure| {
        // A path that is not there is no misspelt session.
        if id.contains('/') { Failure::usage(format!("`{id}` is no file and no session")) } else { failure }
    })
}

fn print(args: &ReplayArgs, report: &Report, out: &mut dyn Write) -> std::io::Result<()> {
    match args.output_format {
        ReportFormat::Text => write!(out, "{}", report.text())?,
        ReportFormat::Json => {
            serde_json::to_writer(&mut *out, report)?;
            writeln!(out)?;
        }
    }
    out.flush()
}

impl From<ReplayError> for Failure {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::Session(error) => error.into(),
            ReplayError::Scratch(..) => Failure::new(Outcome::Environment, error)
                .hint("`TMPDIR` names the folder for temporary files"),
            ReplayError::Inside(_) => Failure::new(Outcome::Environment, error)
                .hint("set `TMPDIR` to a folder outside of any repository"),
            error => Failure::new(Outcome::Unusable, error),
        }
    }
}
