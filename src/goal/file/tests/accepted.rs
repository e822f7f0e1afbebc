//! What is accepted, and what it means.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::compact::Settings;
use crate::event::{Limits, Micros};
use crate::goal::{When, WorkspaceMode};
use crate::model::Price;
use crate::model::wire::Wire;
use crate::process::sandbox::{Files, Network, Wanted};
use crate::world::KeyAt;

#[test]
fn the_smallest_goal_gets_the_defaults() {
    let place = Place::new();
    place.write("make it work.yaml", "version: 1\ngoal: |\n  Do it.\n\nmodel: anthropic/claude-sonnet\n");
    let config = place.source(&GoalSource::File("make it work.yaml".into())).unwrap().config;
    assert_eq!(config.name, "make-it-work");
    assert_eq!(config.goal, "Do it.");
    assert_eq!(config.goal_file, Some(place.path().join("make it work.yaml")));
    assert_eq!(config.workspace, place.path());
    assert_eq!(config.workspace_mode, WorkspaceMode::InPlace);
    assert_eq!(config.model.id, "anthropic/claude-sonnet");
    let judge = config.judge.unwrap();
    assert_eq!((judge.messages, judge.retries, judge.votes, judge.model), (10, 2, 1, None));
    assert_eq!(judge.timeout, Duration::from_secs(120));
    let hour = 60 * 60 * 1_000;
    let limits = Limits {
        iterations: 20,
        steps: 500,
        steps_per_iteration: 200,
        cost: Some(Micros(5_000_000)),
        tokens: None,
        time_ms: Some(2 * hour),
        idle_ms: Some(hour / 4),
        command_ms: hour / 6,
        stall: 3,
        consecutive_errors: 3,
    };
    assert_eq!(config.limits, limits);
    assert_eq!(config.compaction, Settings { auto: true, threshold_pct: 85, max_failures: 3 });
    assert_eq!(config.spool_max_bytes, 1 << 30);
    assert_eq!(config.summarizer, None);
    assert_eq!(config.rate_limit_max_wait, Duration::from_secs(30 * 60));
    assert_eq!(config.instructions, ["AGENTS.md", "SPETTRO.md"]);
    assert_eq!(config.tools_allow, None);
    assert!(
        !config.skip_if_met
            && !config.sync_strict
            && !config.record_effects
            && !config.leftovers_run
            && !config.env.clean
    );
    assert_eq!(config.sandbox, Wanted::default());
    assert!(!config.yaml.contains("sandbox"), "written down, a resume would take it for one that somebody wrote");
    assert!(config.criteria.is_empty() && config.checks.is_empty() && config.setup.is_empty());
}

#[test]
fn every_key_reaches_the_configuration() {
    let place = everything();
    let config = place.load().map_err(|problems| place.lines(&problems)).unwrap().config;
    assert_eq!(config.name, "everything");
    assert_eq!(config.criteria, ["it works", "it is tested"]);
    assert_eq!(config.workspace, place.path().join("work"));
    assert_eq!(config.workspace_mode, WorkspaceMode::Copy);
    assert_eq!(config.spool_max_bytes, 64 << 20);
    assert!(config.record_effects);
    assert_eq!(config.setup[0].argv, ["bash", "-euo", "pipefail", "-c", "make deps"]);
    assert_eq!(
        (config.setup[1].argv.as_slice(), config.setup[1].shown.as_str()),
        (&["cargo".to_owned(), "fetch".into()][..], "cargo fetch")
    );
    let model = &config.model;
    assert_eq!((model.id.as_str(), model.wire, model.context_window), ("tiny", Some(Wire::Anthropic), Some(9000)));
    assert_eq!((model.max_output_tokens, model.reasoning_effort.as_deref()), (Some(800), Some("high")));
    assert_eq!((model.base_url.as_deref(), model.api_key_env.as_deref()), (Some("https://h/"), Some("K")));
    assert_eq!((model.headers["a"].as_str(), model.query_params["c"].as_str()), ("b", "d"));
    assert_eq!(model.extra_body, [("e".to_owned(), "1".to_owned())]);
    assert_eq!(model.like.as_deref(), Some("anthropic/x"));
    assert_eq!(model.idle_timeout, Some(Duration::from_secs(60)));
    assert_eq!(model.first_event_timeout, Some(Duration::from_secs(120)));
    let judge = config.judge.as_ref().unwrap();
    let judge_model = judge.model.as_ref().unwrap();
    assert_eq!((judge_model.id.as_str(), judge_model.provider.as_deref()), ("big", Some("local")));
    assert_eq!((judge.messages, judge.timeout, judge.retries, judge.votes), (4, Duration::from_secs(90), 0, 3));
    let [test, lint, start] = config.checks.as_slice() else { panic!() };
    assert_eq!((test.name.as_str(), test.run.argv[4].as_str()), ("cargo test", "cargo test"));
    assert_eq!(
        (test.timeout, test.expect, test.when, test.required),
        (Duration::from_secs(600), 0, When::EachIteration, true)
    );
    assert_eq!(lint.run.argv, ["cargo", "clippy", "--", "-D", "all warnings"]);
    assert_eq!(lint.run.shown, "cargo clippy -- -D 'all warnings'");
    assert_eq!((lint.cwd.as_path(), lint.timeout), (Path::new("sub"), Duration::from_secs(5_400)));
    assert_eq!((lint.expect, lint.when, lint.required), (3, When::BeforeJudge, false));
    assert_eq!(lint.env, [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "two".to_owned())]);
    assert_eq!((start.name.as_str(), start.when), ("true", When::Start));
    assert!(config.skip_if_met && config.sync_strict && config.leftovers_run && config.env.clean);
    assert_eq!(config.protect, ["tests/**", "*.lock"]);
    let limits = Limits {
        iterations: 7,
        steps: 70,
        steps_per_iteration: 9,
        cost: Some(Micros(500_000)),
        tokens: Some(1_000_000),
        time_ms: None,
        idle_ms: Some(600_000),
        command_ms: 30_000,
        stall: 2,
        consecutive_errors: 4,
    };
    assert_eq!(config.limits, limits);
    assert_eq!(config.compaction, Settings { auto: false, threshold_pct: 70, max_failures: 5 });
    assert_eq!(config.summarizer.as_ref().map(|model| model.id.as_str()), Some("local/small"));
    assert_eq!(config.rate_limit_max_wait, Duration::ZERO);
    assert!(config.instructions.is_empty());
    assert_eq!(config.tools_allow, Some(vec!["bash".to_owned(), "file-read".to_owned()]));
    assert_eq!(config.tools_deny, ["grep"]);
    let sandbox = Wanted {
        files: Files::ReadOnly,
        network: Network::Ports(vec![443, 8080]),
        write: [place.path().join("out"), "~/shared".into(), "/var/x".into()].to_vec(),
        read: vec![place.path().join("in")],
        written: true,
    };
    assert_eq!(config.sandbox, sandbox);
    assert_eq!(config.env.pass, ["CARGO_*"]);
    let local = &config.providers["local"];
    assert_eq!((local.wire, local.base_url.as_str()), (Wire::OpenAiChat, "http://127.0.0.1:8080/v1"));
    assert_eq!((local.api_key_env.as_deref(), local.query_params["v"].as_str()), (Some("LOCAL_KEY"), "2"));
    let body: Vec<(&str, &str)> = local.extra_body.iter().map(|(name, json)| (name.as_str(), json.as_str())).collect();
    assert_eq!(body, [("temperature", "0.7"), ("stop", r#"["a",null,true]"#), ("nested", r#"{"n":1}"#)]);
    let other = &config.providers["other"];
    assert_eq!(other.api_key_at, Some(KeyAt::File(place.path().join("keys/other"))));
    assert_eq!(other.ca_file.as_deref(), Some(Path::new("/etc/corp.pem")));
    assert_eq!(other.env_http_headers["x-tenant"], "CORP_TENANT");
    let vault = &config.providers["vault"].api_key_at;
    assert_eq!(*vault, Some(KeyAt::Command(["vault", "print"].map(str::to_owned).to_vec())));
    let price = Price {
        input: 3_000_000,
        output: 15_000_000,
        cache_read: Some(1),
        cache_write: Some(3_750_000),
        cache_write_1h: Some(6_000_000),
        above: None,
    };
    assert_eq!(config.prices["local/tiny"], price);
    assert_eq!(config.redact, ["MY_PASS"]);
}

#[test]
fn the_sample_above_has_every_key_of_this_version() {
    let Ok(Node::Map(sample)) = node::parse(&std::fs::read_to_string(everything().path().join("goal.yaml")).unwrap())
    else {
        panic!()
    };
    let mut seen = BTreeSet::new();
    fn collect(kind: &'static keys::Kind, node: &Node, path: &str, seen: &mut BTreeSet<String>) {
        let (below, level) = keys::below(kind, path.to_owned());
        match node {
            Node::List(items) => items.iter().for_each(|item| {
                if let keys::Kind::List { of, .. } = kind {
                    collect(of, item, &format!("{path}[]"), seen);
                }
            }),
            Node::Map(entries) => {
                for (name, node) in entries {
                    if let keys::Kind::Named { of, .. } = kind {
                        collect(of, node, &format!("{path}.*"), seen);
                    } else if let Some(key) = below.iter().find(|key| key.name == name) {
                        seen.insert(format!("{level}.{name}"));
                        collect(&key.kind, node, &format!("{level}.{name}"), seen);
                    }
                }
            }
            _ => {}
        }
    }
    for (name, node) in &sample {
        let key = keys::GOAL.iter().find(|key| key.name == name).unwrap();
        seen.insert(name.clone());
        collect(&key.kind, node, name, &mut seen);
    }
    let mut lacking = Vec::new();
    keys::walk(keys::GOAL, "", &mut |path, key| {
        let model = path.starts_with("judge.model.")
            || path.starts_with("summarizer.model.")
            || path.ends_with("model.cassette");
        if !matches!(key.kind, keys::Kind::Later(_)) && !model && !seen.contains(path) {
            lacking.push(path.to_owned());
        }
    });
    assert_eq!(lacking, Vec::<String>::new());
}

#[test]
fn the_goal_may_stand_in_a_file_of_its_own() {
    let place = Place::new();
    place.write("goals/text.md", "\u{feff}# Do\r\n\r\nit ${env:HOME}\r\n");
    place.write("goals/goal.yaml", "version: 1\r\ngoal: {file: text.md}\r\nmodel: a/b\r\nworkspace: ..\r\n");
    let config = place.source(&GoalSource::File("goals/goal.yaml".into())).unwrap().config;
    assert_eq!(config.goal, "# Do\n\nit ${env:HOME}");
    assert_eq!(config.workspace, place.path());
}

#[test]
fn byte_order_marks_and_windows_line_ends_are_no_content() {
    let place = Place::new();
    place.write("goal.yaml", "\u{feff}version: 1\r\ngoal: |\r\n  one\r\n  two\r\nmodel: a/b\r\nchecks:\r\n- make\r\n");
    let config = place.load().unwrap().config;
    assert_eq!(config.goal, "one\ntwo");
    assert_eq!(config.checks[0].run.argv[4], "make");
}

#[test]
fn a_prompt_is_a_goal_without_a_file() {
    let mut place = Place::new();
    place.overrides.checks = vec!["make test".into(), "make lint".into()];
    place.set("model", "a/b");
    let effective = place.source(&GoalSource::Prompt(" fix it ${env:X}\n".into())).unwrap();
    let config = &effective.config;
    assert_eq!((config.name.as_str(), config.goal.as_str()), ("prompt", "fix it ${env:X}"));
    assert_eq!((config.goal_file.as_ref(), config.workspace.as_path()), (None, place.path().as_path()));
    let names: Vec<&str> = config.checks.iter().map(|check| check.name.as_str()).collect();
    assert_eq!(names, ["make test", "make lint"]);
    assert_eq!(config.checks[1].run.argv, ["bash", "-euo", "pipefail", "-c", "make lint"]);
    let origin = |path: &str| effective.origins.iter().find(|(key, ..)| key == path).unwrap().2.clone();
    assert_eq!(origin("goal"), Origin::Flag("--prompt".into()));
    assert_eq!(origin("checks"), Origin::Flag("--check".into()));

    let problems = place.source(&GoalSource::Prompt("  \n".into())).unwrap_err();
    assert_eq!(place.lines(&problems), ["command line: --prompt: is empty"]);
}

#[test]
fn a_goal_from_stdin_has_its_paths_from_here() {
    let place = Place::new();
    place.write("sub/x", "");
    let config = place.source(&GoalSource::Stdin(goal("workspace: sub\n"))).unwrap().config;
    assert_eq!((config.name.as_str(), config.workspace), ("stdin", place.path().join("sub")));
}

#[test]
fn money_stays_exact_however_it_is_written() {
    for (text, micros) in [
        ("5", 5_000_000),
        ("5.00", 5_000_000),
        ("'5.00'", 5_000_000),
        ("0.1", 100_000),
        ("9007199254.740993", 9_007_199_254_740_993),
    ] {
        let config = config(&format!("limits: {{cost: {text}}}\n"));
        assert_eq!(config.limits.cost, Some(Micros(micros)), "{text}");
    }
    assert_eq!(config("limits: {cost: unlimited, idle: unlimited}\n").limits.cost, None);
    for text in ["4.9999999999999999999", "1e0", "0x5", "5.", "1_000", ".5"] {
        assert_eq!(refused(&format!("limits: {{cost: {text}}}\n")).len(), 1, "{text}");
    }
}
