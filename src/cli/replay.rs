//! `spettro replay`: a recorded session run again, hermetically unless it is asked for otherwise.

mod real;
mod retake;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;

use self::real::Machine;
use super::args::{ReplayArgs, ReportFormat};
use super::failure::Failure;
use super::live::Shelf;
use super::run::{Exit, current_dir, secrets};
use crate::cassette::Tape;
use crate::event::Outcome;
use crate::goal::{GoalSource, Overrides, Problem, load};
use crate::model::Endpoint;
use crate::process::{Dispositions, itself};
use crate::replay::{Chunks, Options, Real, ReplayError, Report, Today, ToolMode, replay as again};
use crate::report::clean;
use crate::world::{RealEnv, home_dir};

/// Replays, prints the report, and gives the exit code.
pub fn replay(args: &ReplayArgs, dispositions: &Dispositions, out: &mut dyn Write, err: &mut dyn Write) -> Exit {
    let reported = match args.cassette.is_some() || args.live {
        true => retake::retake(args, dispositions, err)
            .map(|report| (report.outcome(), written(args, &report, || report.text()))),
        false => look(args, dispositions).map(|report| (report.outcome(), written(args, &report, || report.text()))),
    };
    let reported = reported.and_then(|(outcome, text)| Ok((outcome, text?)));
    let outcome = match reported {
        Ok((outcome, text)) => match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => outcome,
            // A reader that went away has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => outcome,
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

fn look(args: &ReplayArgs, dispositions: &Dispositions) -> Result<Report, Failure> {
    let tools: ToolMode = args.tools.into();
    let live = tools == ToolMode::Live;
    if live && !args.trust {
        return Err(untrusted("`--tools live` runs the recorded commands"));
    }
    if live && args.perturb {
        return Err(Failure::usage("`--perturb` goes with `--tools recorded` or `stub`: what really runs feels it"));
    }
    for (flag, given) in [("--trust", args.trust), ("--repo", args.repo.is_some())] {
        if given && !live {
            return Err(Failure::usage(format!("`{flag}` goes with `--tools live`, `--cassette` or `--live`")));
        }
    }
    let place = place(args)?;
    let tape = Rc::new(tape(args, &place, live)?);
    if !tape.is_session() {
        let message = format!("`{}` holds replies only; there is no run to replay in it", args.recording.display());
        let hint = "as a goal's model it serves: `model: {cassette: FILE}`";
        return Err(Failure::new(Outcome::Unusable, message).hint(hint));
    }
    let today = args.goal.as_deref().map(|goal| today(goal, &tape)).transpose()?;
    let real: Option<Rc<dyn Real>> = match live {
        true => Some(Rc::new(Machine::new(args, &tape, dispositions)?)),
        false => None,
    };
    let options = Options {
        tools,
        real,
        today,
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
        // What a goal of today is made of may stand in the home directory.
        if args.goal.is_none() {
            elsewhere(args, &place, &options.temporary, &mut report)?;
        }
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

fn untrusted(what: &str) -> Failure {
    Failure::usage(format!("{what}, and a recording is not to be trusted"))
        .hint("`--trust` lets them run: in the recorded sandbox, in a scratch copy of the workspace")
}

/// A goal file as it is today, with all that is laid over it.
fn today(goal: &Path, tape: &Tape) -> Result<Today, Failure> {
    let env = RealEnv;
    // However it was named: what it names itself is stored with its own folder before it.
    let folder = goal.parent().and_then(|folder| current_dir().ok()?.join(folder).canonicalize().ok());
    let named = folder.zip(goal.file_name()).map_or_else(|| goal.to_owned(), |(folder, name)| folder.join(name));
    let loaded =
        load(&GoalSource::File(named), &Overrides::default(), &env, home_dir(&env).as_deref(), &current_dir()?);
    let config = loaded.map_err(|problems| problems_of(&problems))?.config;
    let endpoints = endpoints(tape);
    let secrets = secrets(&config, endpoints.iter().map(Some), &env);
    Ok(Today { config, secrets })
}

fn problems_of(problems: &[Problem]) -> Failure {
    Failure::usage(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

/// The endpoints of a session, for the names of their keys.
fn endpoints(tape: &Tape) -> Vec<Endpoint> {
    let stored = tape.frozen().into_iter().flat_map(|frozen| frozen.endpoints.values());
    stored.filter_map(|endpoint| serde_json::from_value(endpoint.clone()).ok()).collect()
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

/// The recording, when it contradicts itself nowhere; `whole`: with all that is known of the workspace.
fn tape(args: &ReplayArgs, place: &Path, whole: bool) -> Result<Tape, Failure> {
    let tape = match place.is_file() {
        true if args.allow_incomplete => Tape::of_incomplete_file(place)?,
        true => Tape::of_file(place)?,
        false if whole => Tape::of_whole_session(place)?,
        false => Tape::of_session(place)?,
    };
    let problems = tape.problems();
    if !problems.is_empty() {
        let text = format!("{}: {}", place.display(), problems.join("; "));
        return Err(Failure::new(Outcome::Unusable, text));
    }
    Ok(tape)
}

fn session(args: &ReplayArgs, name: &Path) -> Result<PathBuf, Failure> {
    let id = name.to_string_lossy();
    // A recording that is not there is no misspelt session.
    if id.contains('/') || id.ends_with(".zst") || id.ends_with(".jsonl") {
        return Err(Failure::new(Outcome::Unusable, format!("`{id}` is no file and no session")));
    }
    Shelf::open(args.session_dir.as_deref())?.find(&id)
}

/// What stdout carries of a report.
fn written(args: &ReplayArgs, report: &impl Serialize, text: impl Fn() -> String) -> Result<String, Failure> {
    match args.format() {
        ReportFormat::Text => Ok(text()),
        ReportFormat::Json => match serde_json::to_string(report) {
            Ok(json) => Ok(json + "\n"),
            Err(error) => Err(Failure::new(Outcome::Internal, error)),
        },
    }
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
            ReplayError::Stopped(outcome) => Failure::new(outcome, error),
            ReplayError::Real(cause) => cause.into(),
            ReplayError::Workspace(error) => error.into(),
            ReplayError::NoCommit { .. } => Failure::new(Outcome::Unusable, error).hint(
                "fetch the whole history (`fetch-depth: 0` of actions/checkout, or `git fetch --unshallow`), or name a \
                 repository that has it with `--repo DIR`",
            ),
            ReplayError::NoContent(_) => Failure::new(Outcome::Unusable, error)
                .hint("a session's own folder holds more than its cassette; `--tools recorded` needs none of it"),
            ReplayError::OtherGoal { .. } => Failure::new(Outcome::Unusable, error)
                .hint("`--goal` takes the goal file that was recorded, as it is today"),
            error => Failure::new(Outcome::Unusable, error),
        }
    }
}
