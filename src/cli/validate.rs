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
            Ok(effective) if !args.trust_goal && !effective.untrusted.is_empty() => {
                outcome = Outcome::Usage;
                write_problems(&effective.untrusted, err)?;
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    struct NoVars;
    impl Env for NoVars {
        fn var(&self, _: &str) -> Option<String> {
            None
        }
        fn vars(&self) -> Vec<(String, String)> {
            Vec::new()
        }
    }

    fn run(folder: &Path, files: &[&str], set: &[&str], stdin: Option<&str>) -> (Outcome, String, String) {
        let args = ValidateArgs {
            files: files.iter().map(Into::into).collect(),
            set: set.iter().map(|text| (*text).to_owned()).collect(),
            trust_goal: false,
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let outcome = validate(&args, stdin, &NoVars, None, folder, &mut out, &mut err).unwrap();
        (outcome, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    const GOOD: &str = "version: 1\ngoal: |\n  one\n  two\nmodel: a/b\n";

    #[test]
    fn valid_files_are_shown_with_who_set_what() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.yaml"), GOOD).unwrap();
        let (outcome, out, err) = run(folder.path(), &["a.yaml"], &["limits.cost=0.25"], None);
        assert_eq!((outcome, err.as_str()), (Outcome::Met, ""));
        assert!(out.starts_with("# a.yaml is valid; sha256 "), "{out}");
        assert!(out.contains("\ngoal: |-  # a.yaml\n  one\n  two\n"), "{out}");
        assert!(out.contains("\n  cost: 0.25  # --set limits.cost\n"), "{out}");
        assert!(out.contains("\n  stall: 3  # default\n"), "{out}");
    }

    #[test]
    fn every_file_is_checked_and_one_bad_one_is_enough() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.yaml"), GOOD).unwrap();
        std::fs::write(folder.path().join("b.yaml"), format!("{GOOD}max_cost: 5\nsync: x\n")).unwrap();
        let (outcome, out, err) = run(folder.path(), &["b.yaml", "a.yaml", "c.yaml"], &[], None);
        assert_eq!(outcome, Outcome::Usage);
        assert!(out.contains("# a.yaml is valid"), "{out}");
        let wanted = "b.yaml:6:1: max_cost: unknown key; did you mean `limits.cost`?\n\
                      b.yaml:7:1: sync: `x` is not one of `step`, `strict`\n2 problems\nc.yaml: does not exist\n";
        assert_eq!(err, wanted);
    }

    #[test]
    fn stdin_is_a_file_too_and_set_is_checked_first() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(run(folder.path(), &["-"], &[], Some(GOOD)).0, Outcome::Met);
        let (outcome, _, err) = run(folder.path(), &["-"], &["x"], Some(GOOD));
        assert_eq!((outcome, err.as_str()), (Outcome::Usage, "command line: --set: expected KEY=VALUE, found `x`\n"));
    }
}
