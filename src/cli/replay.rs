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
use crate::replay::{Chunks, Options, ReplayError, Report, replay as again};
use crate::report::clean;

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
    let hint = failure.hint.as_deref().map(|hint| format!("hint: {}\n", clean(hint))).unwrap_or_default();
    let _ = write!(err, "error: {}\n{hint}", clean(&failure.message));
    failure.outcome
}

fn look(args: &ReplayArgs) -> Result<Report, Failure> {
    let tape = Rc::new(tape(args)?);
    if !tape.is_session() {
        let message = format!("`{}` holds replies only; there is no run to replay in it", args.recording.display());
        let hint = "as a goal's model it serves: `model: {cassette: FILE}`";
        return Err(Failure::new(Outcome::Unusable, message).hint(hint));
    }
    let options = Options {
        faults: args.faults.into(),
        chunks: args.chunks,
        from_tape: args.from_tape.iter().map(|part| (*part).into()).collect(),
        temporary: temporary(),
        clock_offset: Duration::ZERO,
        env: Vec::new(),
        backwards: false,
    };
    let mut report = once(&tape, &options)?;
    for number in 2..=args.times {
        report.vary(format!("time {number}"), &once(&tape, &options)?);
    }
    if args.perturb {
        for (what, options) in perturbed(&options) {
            report.vary(what.to_owned(), &once(&tape, &options)?);
        }
        // A mask of the whole process: set for one replay, and put back.
        let mask = umask(rustix::fs::Mode::from_raw_mode(0o002));
        let other = once(&tape, &options);
        umask(mask);
        report.vary("umask 002".to_owned(), &other?);
        let deeper = tempfile::Builder::new()
            .prefix("another folder, with a longer name than any recording has ")
            .tempdir_in(&options.temporary)
            .map_err(|error| Failure::new(Outcome::Environment, format!("make a temporary folder: {error}")))?;
        let other = once(&tape, &Options { temporary: deeper.path().to_owned(), ..options })?;
        report.vary("in another folder".to_owned(), &other);
    }
    Ok(report)
}

fn umask(mask: rustix::fs::Mode) -> rustix::fs::Mode {
    rustix::process::umask(mask)
}

/// One thing after another that must not matter.
fn perturbed(options: &Options) -> Vec<(&'static str, Options)> {
    let variables = [
        ("HOME", "/nonexistent/home"),
        ("SPETTRO_HOME", "/nonexistent/spettro"),
        ("TMPDIR", "/nonexistent/tmp"),
        ("TZ", "Pacific/Kiritimati"),
        ("LANG", "tr_TR.UTF-8"),
        ("LC_ALL", "tr_TR.UTF-8"),
    ];
    let env = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let years = Duration::from_secs(3 * 366 * 86_400 + 12_345);
    vec![
        ("other variables", Options { env, ..options.clone() }),
        ("three years later", Options { clock_offset: years, ..options.clone() }),
        ("folders listed backwards", Options { backwards: true, ..options.clone() }),
        ("replies in one piece", Options { chunks: Chunks::Whole, ..options.clone() }),
        ("replies byte by byte", Options { chunks: Chunks::Bytes, ..options.clone() }),
        ("replies in random pieces", Options { chunks: Chunks::Random(0x5eed), ..options.clone() }),
    ]
}

fn once(tape: &Rc<Tape>, options: &Options) -> Result<Report, Failure> {
    Ok(again(tape, options)?)
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
    let id = name.to_string_lossy();
    // A recording that is not there is no misspelt session.
    if id.contains('/') || id.ends_with(".zst") || id.ends_with(".jsonl") {
        return Err(Failure::new(Outcome::Unusable, format!("`{id}` is no file and no session")));
    }
    Shelf::open(args.session_dir.as_deref())?.find(&id)
}

fn print(args: &ReplayArgs, report: &Report, out: &mut dyn Write) -> std::io::Result<()> {
    match args.format() {
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
            ReplayError::Scratch(..) | ReplayError::Runtime(_) => {
                Failure::new(Outcome::Environment, error).hint("`TMPDIR` names the folder for temporary files")
            }
            ReplayError::Inside(_) => {
                Failure::new(Outcome::Environment, error).hint("set `TMPDIR` to a folder outside of any repository")
            }
            error => Failure::new(Outcome::Unusable, error),
        }
    }
}
