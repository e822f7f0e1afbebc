//! `spettro validate FILE…`: what is in force and who set it, or everything that is wrong. No network, no process.

use std::io::{self, Write};
use std::path::Path;

use super::args::ValidateArgs;
use crate::event::Outcome;
use crate::goal::{GoalSource, Problem, load};
use crate::world::Env;

/// Checks each file. Valid ones are shown on `out` as YAML with each value's origin as a comment; problems go to
/// `err`, a line each (a hint below it). `stdin`: the text for the file `-`.
///
/// # Errors
/// When `out` or `err` cannot be written.
pub fn validate(
    args: &ValidateArgs,
    stdin: Option<&str>,
    env: &dyn Env,
    home: Option<&Path>,
    cwd: &Path,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<Outcome> {
    let overrides = match args.overrides() {
        Ok(overrides) => overrides,
        Err(problems) => {
            write_problems(&problems, err)?;
            return Ok(Outcome::Usage);
        }
    };
    let mut outcome = Outcome::Met;
    for (index, file) in args.files.iter().enumerate() {
        let source = match stdin {
            Some(text) if file.as_os_str() == "-" => GoalSource::Stdin(text.to_owned()),
            _ => GoalSource::File(file.clone()),
        };
        match load(&source, &overrides, env, home, cwd) {
            Ok(effective) => {
                let document = if index == 0 { "" } else { "---\n" };
                writeln!(out, "{document}# {} is valid; sha256 {}", file.display(), effective.config.digest)?;
                write!(out, "{}", effective.annotated)?;
            }
            Err(problems) => {
                outcome = Outcome::Usage;
                write_problems(&problems, err)?;
            }
        }
    }
    Ok(outcome)
}

/// One line a problem, hints below, and how many there are when they are several.
///
/// # Errors
/// When `err` cannot be written.
pub fn write_problems(problems: &[Problem], err: &mut dyn Write) -> io::Result<()> {
    for problem in problems {
        writeln!(err, "{problem}")?;
    }
    if problems.len() > 1 {
        writeln!(err, "{} problems", problems.len())?;
    }
    Ok(())
}
