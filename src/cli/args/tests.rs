//! What the command line takes, and what it refuses.

use clap::CommandFactory;

use super::*;
use crate::event::Micros;

fn run(args: &[&str]) -> RunArgs {
    let all = ["spettro", "run"].iter().chain(args);
    match Cli::try_parse_from(all).unwrap().verb {
        Verb::Run(run) => *run,
        other => panic!("{other:?}"),
    }
}

fn refused(args: &[&str]) -> clap::error::ErrorKind {
    let error = Cli::try_parse_from(["spettro"].iter().chain(args)).unwrap_err();
    assert_eq!(error.exit_code(), 2, "{error}");
    error.kind()
}

fn messages(problems: Vec<Problem>) -> Vec<String> {
    problems.iter().map(Problem::to_string).collect()
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn one_goal_from_one_place() {
    assert_eq!(run(&["--goal", "g.yaml"]).asked(), Ok(Asked::File("g.yaml".into())));
    assert_eq!(run(&["g.yaml"]).asked(), Ok(Asked::File("g.yaml".into())));
    assert_eq!(run(&["--goal", "-"]).asked(), Ok(Asked::Stdin));
    assert_eq!(run(&["-p", "do it"]).asked(), Ok(Asked::Prompt("do it".into())));
    assert_eq!(run(&["--resume", "latest"]).asked(), Ok(Asked::Stored));
    assert_eq!(run(&["--resume", "latest", "g.yaml"]).asked(), Ok(Asked::File("g.yaml".into())));
    let hint = "\n  hint: start `spettro run` once for each";
    let message = format!("command line: --goal: 2 goals in one run are not in this version yet{hint}");
    assert_eq!(messages(run(&["a.yaml", "b.yaml"]).asked().unwrap_err()), std::slice::from_ref(&message));
    assert_eq!(messages(run(&["--goal", "a.yaml", "b.yaml"]).asked().unwrap_err()), [message]);
    assert_eq!(run(&[]).asked().unwrap_err()[0].message, "no goal was given");
    assert_eq!(refused(&["run", "-p", "x", "--goal", "g.yaml"]), clap::error::ErrorKind::ArgumentConflict);
    assert_eq!(refused(&["run", "-p", "x", "g.yaml"]), clap::error::ErrorKind::ArgumentConflict);
}

#[test]
fn flags_set_keys() {
    let args = run(&[
        "g.yaml",
        "--max-cost",
        "2.50",
        "--max-time",
        "5m",
        "--set",
        "limits.stall=5",
        "--check",
        "make",
        "--set",
        "name=a=b",
    ]);
    let overrides = args.overrides().unwrap();
    let settings: Vec<(&str, &str, &str)> =
        overrides.settings.iter().map(|s| (s.flag.as_str(), s.key.as_str(), s.value.as_str())).collect();
    assert_eq!(
        settings,
        [
            ("--max-cost", "limits.cost", "2.50"),
            ("--max-time", "limits.time", "5m"),
            ("--set limits.stall", "limits.stall", "5"),
            ("--set name", "name", "a=b"),
        ]
    );
    assert_eq!(overrides.checks, ["make"]);
    let error = run(&["g.yaml", "--set", "limits.stall"]).overrides().unwrap_err();
    assert_eq!(messages(error), ["command line: --set: expected KEY=VALUE, found `limits.stall`"]);
}

#[test]
fn more_money_for_a_resumed_session() {
    let args = run(&["--resume", "latest", "--max-cost", "+5"]);
    assert_eq!(args.added_cost(), Ok(Some(Micros(5_000_000))));
    assert!(args.overrides().unwrap().settings.is_empty());
    assert!(run(&["--resume", "latest", "--max-cost", "+five"]).added_cost().is_err());
    assert!(run(&["--resume", "latest", "--max-cost", "+0"]).added_cost().is_err());
    let fresh = run(&["g.yaml", "--max-cost", "+5"]);
    assert_eq!(fresh.added_cost(), Ok(None));
    assert_eq!(fresh.overrides().unwrap().settings[0].value, "+5");
}

#[test]
fn flags_of_later_versions_are_refused_by_name() {
    let each: &[&[&str]] = &[
        &["--memory", "off"],
        &["--fork"],
        &["--at", "3"],
        &["--parallel", "2"],
        &["--shard", "1/2"],
        &["--run-dir", "d"],
        &["--max-total-cost", "5"],
        &["--filter", "x"],
        &["--list"],
        &["--ok-on", "unmet"],
        &["--force"],
        &["--preemptible"],
        &["--metrics-file", "m.prom"],
    ];
    let mut names = std::collections::BTreeSet::new();
    for flags in each {
        let args: Vec<&str> = ["g.yaml"].iter().chain(*flags).copied().collect();
        let message = format!("command line: {0}: `{0}` is not in this version yet", flags[0]);
        assert_eq!(messages(run(&args).asked().unwrap_err()), [message]);
        names.insert(flags[0].trim_start_matches("--").to_owned());
    }
    // For tests, and nothing that comes later.
    names.insert("pretend-landlock".to_owned());
    // No hidden flag of `run` is accepted without being in the table above.
    let command = Cli::command();
    let run = command.find_subcommand("run").unwrap();
    for arg in run.get_arguments().filter(|arg| arg.is_hide_set()) {
        assert!(names.contains(arg.get_long().unwrap()), "{arg:?}");
    }
    assert_eq!(names.len(), run.get_arguments().filter(|arg| arg.is_hide_set()).count());
}

#[test]
fn unknown_flags_and_verbs_are_usage_errors() {
    use clap::error::ErrorKind;
    assert_eq!(refused(&["run", "g.yaml", "--max-dollars", "5"]), ErrorKind::UnknownArgument);
    assert_eq!(refused(&["walk"]), ErrorKind::InvalidSubcommand);
    assert_eq!(refused(&["validate"]), ErrorKind::MissingRequiredArgument);
    assert_eq!(refused(&["run", "--output-format", "xml", "g.yaml"]), ErrorKind::InvalidValue);
    assert_eq!(refused(&["run", "--resume-changed", "g.yaml"]), ErrorKind::MissingRequiredArgument);
    assert_eq!(refused(&["jobs", "kill"]), ErrorKind::MissingRequiredArgument);
}

#[test]
fn the_other_verbs_take_what_they_say() {
    let parse = |args: &[&str]| Cli::try_parse_from(["spettro"].iter().chain(args)).unwrap().verb;
    assert!(matches!(parse(&["jobs"]), Verb::Jobs(JobsArgs { what: None, session: None, session_dir: None })));
    let Verb::Jobs(jobs) = parse(&["jobs", "kill", "job-1", "all", "--session", "x"]) else { panic!() };
    assert_eq!(jobs.session.as_deref(), Some("x"));
    assert_eq!(jobs.what, Some(JobsVerb::Kill { ids: vec!["job-1".into(), "all".into()] }));
    assert!(matches!(parse(&["schema", "facts"]), Verb::Schema(SchemaArgs { of: SchemaOf::Facts })));
    assert!(matches!(parse(&["steer", "x", "y"]), Verb::Steer(_)));
    assert!(matches!(parse(&["stop", "x"]), Verb::Stop(_)));
    assert!(matches!(parse(&["__zygote"]), Verb::Zygote));
    assert!(matches!(parse(&["help", "exit-codes"]), Verb::Help(_)));
    let Verb::Cassette(cassette) = parse(&["cassette", "pack", "latest", "-o", "f", "--force"]) else { panic!() };
    let (session, output) = ("latest".to_owned(), Some(PathBuf::from("f")));
    assert_eq!(cassette.what, CassetteVerb::Pack { session, output, force: true, allow: Vec::new() });
    assert_eq!(run(&["g.yaml", "--json"]).format(), OutputFormat::Json);
    assert_eq!(run(&["g.yaml", "-vv"]).verbose, 2);
}
