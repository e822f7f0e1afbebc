//! The command line: one file per verb, and the only table from errors to exit codes.
//!
//! Invariant: nothing calls this room but `main`. stdout is data, stderr is talk.

pub mod args;
mod cassette;
mod catalog;
mod checks;
mod confine;
mod crashed;
mod doctor;
mod dry_run;
pub mod exit_codes;
pub mod failure;
pub mod help;
mod jobs;
mod lanes;
mod later;
mod live;
mod logging;
mod models;
mod output;
mod replay;
mod run;
pub mod schema;
mod sessions;
mod steer;
mod stop;
mod streams;
mod trust;
pub mod validate;

use std::ffi::OsString;
use std::io::{self, Read, Write};

use clap::Parser;

use self::args::{Cli, SchemaOf, ValidateArgs, Verb};
use self::failure::Failure;
pub use self::run::Exit;
use self::streams::{Data, Talk};
use crate::event::Outcome;
use crate::process::Dispositions;
use crate::report::clean;
use crate::world::{RealEnv, home_dir};

/// Runs a command line. What a signal did before is told by `dispositions`.
pub fn main(argv: impl IntoIterator<Item = OsString>, dispositions: &Dispositions) -> Exit {
    let argv: Vec<OsString> = argv.into_iter().collect();
    let cli = match Cli::try_parse_from(&argv) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to stdout and are no error; a pipe that was closed has seen enough.
            let _ = error.print();
            return match argv.get(2..) {
                _ if !error.use_stderr() => Outcome::Met.into(),
                Some(words) if argv[1] == "run" => run::misused(words, &error.to_string()),
                _ => Outcome::Usage.into(),
            };
        }
    };
    let (mut out, mut err) = (Data::new(io::stdout()), Talk(io::stderr()));
    let ended = match &cli.verb {
        Verb::Run(args) => return run::run(args, dispositions),
        Verb::Replay(args) => return replay::replay(args, dispositions, &mut out, &mut err),
        Verb::Zygote => return Outcome::Usage.into(),
        Verb::Help(args) => help::help(args, &mut out, &mut err).map_err(Failure::from),
        Verb::Validate(args) => validate(args, &mut out, &mut err),
        Verb::Schema(args) => schema(args.of, &mut out),
        Verb::Checks(args) => checks::checks(args, dispositions, &mut out, &mut err),
        Verb::Cassette(args) => cassette::cassette(args, &mut out),
        Verb::Sessions(args) => sessions::sessions(args, &mut out, &mut err),
        Verb::Models(args) => catalog::models(args, &mut out),
        Verb::Steer(args) => steer::steer(args, &mut out),
        Verb::Stop(args) => stop::stop(args, &mut out),
        Verb::Jobs(args) => jobs::jobs(args, &mut out),
        Verb::Doctor(args) => doctor::doctor(args, &mut out, &mut err),
    };
    match ended.and_then(|outcome| out.flush().map(|()| outcome).map_err(Failure::from)) {
        Ok(outcome) => outcome.into(),
        Err(failure) => {
            let hint = failure.hint.as_deref().map(|hint| format!("hint: {}\n", clean(hint))).unwrap_or_default();
            let _ = write!(err, "error: {}\n{hint}", clean(&failure.message));
            failure.outcome.into()
        }
    }
}

impl From<io::Error> for Failure {
    /// What a verb has to say could not be written, or what it needs not be read.
    fn from(error: io::Error) -> Self {
        Failure::new(Outcome::Environment, error)
    }
}

fn validate(args: &ValidateArgs, out: &mut dyn Write, err: &mut dyn Write) -> Result<Outcome, Failure> {
    let mut stdin = None;
    if args.files.iter().any(|file| file.as_os_str() == "-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text)?;
        stdin = Some(text);
    }
    let env = RealEnv;
    let cwd = run::current_dir()?;
    validate::validate(args, stdin.as_deref(), &env, home_dir(&env).as_deref(), &cwd, out, err)
}

fn schema(of: SchemaOf, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let text = match of {
        SchemaOf::Goal => serde_json::to_string_pretty(&crate::goal::schema())
            .map_err(|error| Failure::new(Outcome::Internal, error))?,
        SchemaOf::Events => schema::events(),
        SchemaOf::Result => schema::result(),
        SchemaOf::Facts => schema::facts(),
        SchemaOf::Cassette => schema::cassette(),
    };
    writeln!(out, "{}", text.trim_end())?;
    Ok(Outcome::Met)
}
