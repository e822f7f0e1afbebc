//! `spettro validate FILE…`: what is in force and who set it, or everything that is wrong. No network; a process only
//! where git is asked about `--trusted-ref`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::args::ValidateArgs;
use super::confine;
use super::failure::Failure;
use super::models;
use crate::event::{Outcome, ResultProblem};
use crate::goal::{Effective, GoalSource, Problem, load};
use crate::report::clean;
use crate::world::Env;

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    valid: bool,
    /// In the order of the command line. Empty when that is what is wrong.
    files: Vec<FileReport>,
    /// Of the command line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<ResultProblem>,
}

#[derive(Serialize)]
struct FileReport {
    file: PathBuf,
    valid: bool,
    /// sha256 of what is in force.
    digest: Option<String>,
    problems: Vec<ResultProblem>,
}

/// Checks each file. Valid ones are shown on `out` as YAML with each value's origin as a comment; problems go to
/// `err`, a line each (a hint below it). With `--json` all of it is one object on `out`. `stdin`: the text for the
/// file `-`.
///
/// # Errors
/// When `out` or `err` cannot be written, and when git cannot be asked.
pub fn validate(
    args: &ValidateArgs,
    stdin: Option<&str>,
    env: &dyn Env,
    home: Option<&Path>,
    cwd: &Path,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<Outcome, Failure> {
    let mut report = Report { valid: true, files: Vec::new(), problems: Vec::new() };
    let overrides = match args.overrides() {
        Ok(overrides) => overrides,
        Err(problems) => {
            report.valid = false;
            report.problems = problems.iter().map(Into::into).collect();
            match args.json {
                true => super::sessions::json(out, &report)?,
                false => write_problems(&problems, err)?,
            }
            return Ok(Outcome::Usage);
        }
    };
    for (index, file) in args.files.iter().enumerate() {
        let source = match stdin {
            Some(text) if file.as_os_str() == "-" => GoalSource::Stdin(text.to_owned()),
            _ => GoalSource::File(file.clone()),
        };
        let mut digest = None;
        let problems = match load(&source, &overrides, env, home, cwd) {
            Ok(effective) => {
                let mut problems = doubts(args, &effective)?;
                problems.extend(models::foreseen(&effective, env));
                problems.extend(confine::foreseen(&effective, home));
                if problems.is_empty() && !args.json {
                    let document = if index == 0 { "" } else { "---\n" };
                    writeln!(out, "{document}# {} is valid; sha256 {}", file.display(), effective.config.digest)?;
                    write!(out, "{}", effective.annotated)?;
                }
                digest = Some(effective.config.digest).filter(|_| problems.is_empty());
                problems
            }
            Err(problems) => problems,
        };
        report.valid &= problems.is_empty();
        if !args.json {
            write_problems(&problems, err)?;
        }
        report.files.push(FileReport {
            file: file.clone(),
            valid: problems.is_empty(),
            digest,
            problems: problems.iter().map(Into::into).collect(),
        });
    }
    if args.json {
        super::sessions::json(out, &report)?;
    }
    Ok(if report.valid { Outcome::Met } else { Outcome::Usage })
}

/// The keys of a goal file of the repository for which nobody vouches.
fn doubts(args: &ValidateArgs, effective: &Effective) -> Result<Vec<Problem>, Failure> {
    match args.trust.doubt(effective.untrusted.clone()) {
        Ok(None) => Ok(Vec::new()),
        Ok(Some(doubt)) => Ok(doubt.settle(effective.config.goal_file.as_deref())?.err().unwrap_or_default()),
        Err(problems) => Ok(problems),
    }
}

/// One line a problem, hints below, and how many there are when they are several.
///
/// # Errors
/// When `err` cannot be written.
pub fn write_problems(problems: &[Problem], err: &mut dyn Write) -> io::Result<()> {
    for problem in problems {
        writeln!(err, "error: {}", clean(&problem.to_string()))?;
    }
    if problems.len() > 1 {
        writeln!(err, "{} problems", problems.len())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::trust::TrustArgs;

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
            // The files lie in the folder that they are about.
            trust: TrustArgs { trust_goal: true, trusted_ref: None },
            json: false,
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let outcome = validate(&args, stdin, &NoVars, None, folder, &mut out, &mut err).unwrap();
        (outcome, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    const GOOD: &str = "version: 1\ngoal: |\n  one\n  two\nmodel: anthropic/claude-sonnet-5-5\n";

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
        let wanted = "error: b.yaml:6:1: max_cost: unknown key; did you mean `limits.cost`?\n\
                      error: b.yaml:7:1: sync: `x` is not one of `step`, `strict`\n2 problems\nerror: c.yaml: does not exist\n";
        assert_eq!(err, wanted);
    }

    #[test]
    fn stdin_is_a_file_too_and_set_is_checked_first() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(run(folder.path(), &["-"], &[], Some(GOOD)).0, Outcome::Met);
        let (outcome, _, err) = run(folder.path(), &["-"], &["x"], Some(GOOD));
        assert_eq!(
            (outcome, err.as_str()),
            (Outcome::Usage, "error: command line: --set: expected KEY=VALUE, found `x`\n")
        );
    }

    #[test]
    fn what_a_run_would_refuse_is_no_valid_file() {
        let folder = tempfile::tempdir().unwrap();
        let write = |model: &str, rest: &str| {
            let text = format!("version: 1\ngoal: x\nmodel: {model}\n{rest}");
            std::fs::write(folder.path().join("a.yaml"), text).unwrap();
            run(folder.path(), &["a.yaml"], &[], None)
        };
        let (outcome, out, err) = write("antropic/claude-sonnet-5-5", "judge:\n  model: openai/gpt-99\n");
        assert_eq!((outcome, out.as_str()), (Outcome::Usage, ""));
        let lines: Vec<&str> = err.lines().filter(|line| !line.starts_with("  hint")).collect();
        let starts = ["error: a.yaml:3:1: model: `antropic`", "error: a.yaml:5:3: judge.model: `openai/gpt-99`"];
        assert!(lines.len() == 3 && lines.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{err}");
        let (outcome, _, err) = write("anthropic/claude-sonet-5-5", "");
        assert!(outcome == Outcome::Usage && err.contains("anthropic/claude-sonnet-5-5"), "{err}");

        // A key that is missing here is no fault of the file; a price that is missing under a limit is.
        assert_eq!(write("anthropic/claude-sonnet-5-5", "").0, Outcome::Met);
        let own = "{id: gw/some, wire: openai-chat, base_url: \"https://gw.example/v1\"}";
        let (outcome, _, err) = write(own, "limits: {cost: 1.00}\n");
        assert!(outcome == Outcome::Usage && err.starts_with("error: a.yaml:3:1: model: "), "{err}");
        assert!(err.contains("no known price") && err.contains("\n  prices:\n"), "{err}");
        assert_eq!(write(own, "limits: {cost: unlimited}\n").0, Outcome::Met, "without a limit none is needed");
    }

    #[test]
    fn a_workspace_that_holds_what_runs_rely_on_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.yaml"), format!("{GOOD}workspace: .\n")).unwrap();
        let args =
            ValidateArgs { files: vec!["a.yaml".into()], set: Vec::new(), trust: TrustArgs::default(), json: true };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let home = folder.path().canonicalize().unwrap().join("home");
        std::fs::create_dir(&home).unwrap();
        let outcome = validate(&args, None, &NoVars, Some(&home), folder.path(), &mut out, &mut err).unwrap();
        assert_eq!((outcome, err.len()), (Outcome::Usage, 0));
        let report: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((&report["valid"], &report["files"][0]["valid"]), (&false.into(), &false.into()));
        let problem = &report["files"][0]["problems"][0];
        assert_eq!(
            (&problem["line"], &problem["column"], &problem["key"]),
            (&6.into(), &1.into(), &"workspace".into())
        );
        assert!(problem["hint"].as_str().is_some_and(|hint| hint.contains("--sandbox off")), "{report}");
    }
}
