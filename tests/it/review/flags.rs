//! Flags and variables: obeyed, or refused before anything is spent.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;
use spettro::event::Outcome;

use crate::goal::support::{Case, content, met, unmet};
use crate::provider::{Reply, Script};
use crate::sandbox::{PATIENCE, json_lines};

#[test]
fn a_place_where_no_file_can_be_is_refused_before_anything_is_spent() {
    let case = Case::new(Script::new(), "goal: x");
    let goal = case.goal.to_str().expect("a path");
    for file in ["missing/out.json", ".", "/"] {
        let finished = case.sandbox.run(["run", goal, "--json", "-o", file]).expect_code(2);
        let result: Value = serde_json::from_str(&finished.stdout).expect("a result on stdout");
        assert_eq!((result["outcome"].as_str(), result["exit_code"].as_u64()), (Some("usage"), Some(2)));
        assert!(finished.stderr.contains("-o"), "{}", finished.stderr);
    }
    assert_eq!((case.provider.requests().len(), case.sandbox.session_dirs().len()), (0, 0));
    case.provider.finish();
}

#[test]
fn a_device_stays_a_device() {
    let case = Case::new(content(), "goal: x");
    let goal = case.goal.to_str().expect("a path");
    // A link, so that a mistake here costs the link and not the machine's own device.
    let null = case.sandbox.root().join("null");
    std::os::unix::fs::symlink("/dev/null", &null).expect("a link");
    case.sandbox.run(["run", goal, "-o", null.to_str().expect("a path")]).expect_code(0);
    assert!(null.symlink_metadata().expect("it is there").is_symlink());
    case.provider.finish();
}

#[test]
fn a_session_is_called_by_its_name() {
    let case = Case::new(content(), "goal: the goal's own words");
    let ended = case.with(&["--session-name", "  night\tshift  "]).expect(Outcome::Met);
    let dir = ended.dir.as_ref().expect("a session");
    let title = |file: &str| -> Value {
        serde_json::from_str::<Value>(&case.sandbox.read(dir.join(file))).expect("JSON")["title"].clone()
    };
    assert_eq!(title("metadata.json"), "night shift");
    let id = ended.result.session_id.as_deref().expect("an id");
    let again = case.sandbox.run(["run", "--resume", id, "--session-name", "x", "--json"]).expect_code(2);
    assert!(again.stderr.contains("--session-name"), "{}", again.stderr);
    let goal = case.goal.to_str().expect("a path");
    case.sandbox.run(["run", goal, "--session-name", " \t"]).expect_code(2);
    assert_eq!(case.sandbox.session_dirs().len(), 1);
    case.provider.finish();
}

#[test]
fn the_debug_log_says_what_was_asked_for() {
    let case = Case::new(content(), "goal: x");
    let quiet = case.run().expect(Outcome::Met);
    assert!(!quiet.dir.expect("a session").join("debug.log").exists(), "nothing to warn of");
    case.sandbox.set("SPETTRO_LOG", "trace");
    let loud = case.run().expect(Outcome::Met);
    let file = loud.dir.expect("a session").join("debug.log");
    assert!(!case.sandbox.read(&file).is_empty());
    assert_eq!(file.metadata().expect("a file").permissions().mode() & 0o777, 0o600);
    case.sandbox.set("SPETTRO_LOG", "spettro=nonsense=more");
    let ended = case.run().expect(Outcome::Usage);
    assert!(ended.error().contains("SPETTRO_LOG"), "{}", ended.error());
    case.provider.finish();
}

#[test]
fn a_recording_of_other_requests_is_said_once_at_the_end() {
    let case = Case::new(content(), "goal: x");
    case.run().expect(Outcome::Met);
    case.sandbox.run(["cassette", "pack", "latest", "-o", "../run.jsonl"]).expect_code(0);
    let notices = |goal: &str| {
        case.sandbox.goal_without_model(&format!("{goal}\nmodel: {{cassette: run.jsonl}}"));
        let ended = case.run().expect(Outcome::Met);
        let lines = json_lines(&ended.dir.expect("a session").join("session.jsonl"));
        let codes = lines.iter().filter(|line| line["code"] == "recorded_differs");
        codes.map(|line| line["text"].as_str().expect("a text").to_owned()).collect::<Vec<_>>()
    };
    // The same goal in the same place: the same requests.
    assert_eq!(notices("goal: x"), Vec::<String>::new());
    let told = notices("goal: another");
    assert!(told.len() == 1 && told[0].starts_with("2 requests"), "{told:?}");
    case.provider.finish();
}

#[test]
fn a_dry_run_takes_the_baseline_and_leaves_nothing() {
    let case = Case::new(
        Script::new(),
        "goal: the words\nchecks: [{name: unit, run: 'echo broken; exit 3'}, {name: late, run: 'touch late', when: before_judge}]",
    );
    case.sandbox.git_init();
    let goal = case.goal.to_str().expect("a path");
    let finished = case.sandbox.run(["run", goal, "--dry-run"]).expect_code(0);
    for wanted in ["check unit: fail (exit 3)", "git: branch main", "date at start:", "the words", "POST http"] {
        assert!(finished.stdout.contains(wanted), "{wanted}: {}", finished.stdout);
    }
    let finished = case.sandbox.run(["run", goal, "--dry-run", "--json"]).expect_code(0);
    let object: Value = serde_json::from_str(&finished.stdout).expect("one object");
    assert_eq!(object["baseline"]["checks"][0]["exit_code"], 3);
    assert_eq!(object["request"]["max_tokens"], 8_192);
    assert!(!case.sandbox.exists("late"));
    assert_eq!((case.provider.requests().len(), case.sandbox.session_dirs().len()), (0, 0));

    // What would end the run at its baseline ends this too.
    let case = Case::new(Script::new(), "goal: x\nchecks: ['no-such-program-here']");
    let goal = case.goal.to_str().expect("a path");
    let finished = case.sandbox.run(["run", goal, "--dry-run", "--json"]).expect_code(23);
    assert!(finished.stderr.contains("no-such-program-here"), "{}", finished.stderr);
    assert_eq!(finished.result()["outcome"], "environment");
}

#[test]
fn a_resume_keeps_its_model_and_says_so_and_finds_a_server_that_has_moved() {
    let script = Script::new().agent(Reply::text("a")).judge(unmet("no"));
    let case = Case::new(script, "goal: x\nlimits: {iterations: 1}");
    let ended = case.run().expect(Outcome::Unmet);
    case.provider.push(crate::provider::Lane::Agent, Reply::text("b"));
    case.provider.push(crate::provider::Lane::Judge, unmet("no"));
    let other = case.sandbox.model_yaml(&case.provider, "test/other-model");
    let set = format!("model={}", other.trim_start_matches("model: ").trim());
    let again = case.resume(&ended, &["--max-iterations", "2", "--set", &set]).expect(Outcome::Unmet);
    let notices: Vec<Value> = again.facts("notice");
    assert!(
        notices.iter().any(|notice| notice["text"].as_str().is_some_and(|text| text.contains("keeps"))),
        "{notices:?}"
    );
    assert_eq!(case.provider.agent_requests()[1].json()["model"], "test/model-1");

    // The same model at another address.
    let moved = Script::new().one_session().agent(Reply::complete("done")).judge(met()).start();
    let there = case.sandbox.model_yaml(&moved, "test/model-1");
    let set = format!("model={}", there.trim_start_matches("model: ").trim());
    case.resume(&again, &["--max-iterations", "3", "--set", &set]).expect(Outcome::Met);
    assert_eq!(moved.agent_requests().len(), 1);
    let _ = moved.take_problems();
    case.provider.finish();
}

#[test]
fn what_a_resume_was_allowed_stays_allowed() {
    let script = Script::new().agent(Reply::text("a")).judge(unmet("no")).agent(Reply::text("b")).judge(unmet("no"));
    let case = Case::new(script, "goal: x\nlimits: {iterations: 1, cost: 1.00}");
    let ended = case.run().expect(Outcome::Unmet);
    let again = case.resume(&ended, &["--max-iterations", "2", "--max-cost", "+5"]).expect(Outcome::Unmet);
    let limits = again.result.limits.as_ref().expect("limits");
    assert_eq!((limits.iterations, limits.cost), (2, spettro::event::Micros::parse_dollars("6")));
    let once_more = case.resume(&again, &["--max-tokens", "5000000"]).expect(Outcome::Unmet);
    let limits = once_more.result.limits.as_ref().expect("limits");
    assert_eq!((limits.iterations, limits.cost), (2, spettro::event::Micros::parse_dollars("6")));
    assert_eq!(limits.tokens, Some(5_000_000));
    case.provider.finish();
}

#[test]
fn a_goal_from_a_closed_stdin_is_an_empty_one() {
    let case = Case::new(Script::new(), "goal: x");
    let mut command = case.sandbox.command("bash");
    command.args(["-c", "exec \"$0\" run --goal - --json <&-", env!("CARGO_BIN_EXE_spettro")]);
    let finished = case.sandbox.start(command).wait(PATIENCE).expect_code(2);
    let result: Value = serde_json::from_str(&finished.stdout).expect("a result on stdout");
    assert_eq!(result["outcome"], "usage");
    case.provider.finish();
}
