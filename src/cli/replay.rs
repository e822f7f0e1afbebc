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
use crate::process::itself;
use crate::replay::{Chunks, Options, ReplayError, Report, replay as again};

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
    let place = place(args)?;
    let tape = Rc::new(tape(args, &place)?);
    let problems = tape.problems();
    if !problems.is_empty() {
        let text = format!("{}: {}", place.display(), problems.join("; "));
        return Err(Failure::new(Outcome::Unusable, text));
    }
    let options = Options {
        faults: args.faults.into(),
        chunks: args.chunks,
        from_tape: args.from_tape.iter().map(|part| (*part).into()).collect(),
        temporary: temporary(),
        clock_offset: Duration::ZERO,
        backwards: false,
    };
    let mut report = once(&tape, &options)?;
    for number in 2..=args.times {
        report.vary(format!("time {number}"), &once(&tape, &options)?);
    }
    if args.perturb {
        elsewhere(args, &place, &options.temporary, &mut report)?;
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
    let years = Duration::from_secs(3 * 366 * 86_400 + 12_345);
    vec![
        ("three years later", Options { clock_offset: years, ..options.clone() }),
        ("folders listed backwards", Options { backwards: true, ..options.clone() }),
        ("replies in one piece", Options { chunks: Chunks::Whole, ..options.clone() }),
        ("replies byte by byte", Options { chunks: Chunks::Bytes, ..options.clone() }),
        ("replies in random pieces", Options { chunks: Chunks::Random(0x5eed), ..options.clone() }),
    ]
}

/// The same in a process whose variables are others: they are the process's own, and read by whatever it consists of.
fn elsewhere(args: &ReplayArgs, place: &Path, temporary: &Path, report: &mut Report) -> Result<(), Failure> {
    let folder = tempfile::Builder::new()
        .prefix("other variables ")
        .tempdir_in(temporary)
        .map_err(|error| Failure::new(Outcome::Environment, format!("make a temporary folder: {error}")))?;
    let variables = [
        ("HOME", "/nonexistent/home".as_ref()),
        ("SPETTRO_HOME", "/nonexistent/spettro".as_ref()),
        ("TMPDIR", folder.path().as_os_str()),
        ("TZ", "Pacific/Kiritimati".as_ref()),
        ("LANG", "tr_TR.UTF-8".as_ref()),
        ("LC_ALL", "tr_TR.UTF-8".as_ref()),
    ];
    let told = itself(&args.once_more(place), &variables)
        .map_err(|error| Failure::new(Outcome::Environment, format!("start this program again: {error}")))?;
    match serde_json::from_slice(&told.stdout) {
        Ok(other) => report.vary_told("other variables".to_owned(), &other),
        Err(_) => {
            report.warnings.push(format!("other variables: {}", String::from_utf8_lossy(&told.stderr).trim()));
            report.vary_told("other variables".to_owned(), &serde_json::Value::Null);
        }
    }
    Ok(())
}

fn once(tape: &Rc<Tape>, options: &Options) -> Result<Report, Failure> {
    Ok(again(tape, options)?)
}

fn temporary() -> PathBuf {
    std::env::temp_dir()
}

/// The file, or the session's folder.
fn place(args: &ReplayArgs) -> Result<PathBuf, Failure> {
    let path = &args.recording;
    match path.is_file() || path.join("session.jsonl").is_file() {
        true => Ok(path.clone()),
        false => session(args, path),
    }
}

fn tape(args: &ReplayArgs, place: &Path) -> Result<Tape, Failure> {
    Ok(match place.is_file() {
        true if args.allow_incomplete => Tape::of_incomplete_file(place)?,
        true => Tape::of_file(place)?,
        false => Tape::of_session(place)?,
    })
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
