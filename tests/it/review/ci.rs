//! What a CI job relies on before a run and around it: files that are judged as a run does, JSON, hints that lead on.

use serde_json::Value;

use crate::goal::support::content;
use crate::sandbox::Sandbox;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_file_that_a_run_refuses_is_not_valid_and_a_missing_key_is_no_fault_of_the_file() {
    let sandbox = Sandbox::new();
    let model = |model: &str| sandbox.write("goal.yaml", format!("version: 1\ngoal: x\nmodel: {model}\n"));
    for wrong in ["antropic/claude-sonnet-5-5", "anthropic/claude-sonet-5-5"] {
        model(wrong);
        let said = sandbox.run(["validate", "goal.yaml"]).expect_code(2);
        assert!(said.stderr.starts_with("error: goal.yaml:3:1: model: "), "{}", said.stderr);
        sandbox.run(["run", "goal.yaml", "--trust-goal"]).expect_code(2);
        let report = json(&sandbox.run(["validate", "goal.yaml", "--json"]).expect_code(2).stdout);
        let problem = &report["files"][0]["problems"][0];
        assert_eq!((&report["valid"], &problem["line"], &problem["column"]), (&false.into(), &3.into(), &1.into()));
    }
    model("anthropic/claude-sonnet-5-5");
    let report = json(&sandbox.run(["validate", "goal.yaml", "--json"]).expect_code(0).stdout);
    assert_eq!((&report["valid"], &report["files"][0]["file"]), (&true.into(), &"goal.yaml".into()));
    sandbox.run(["run", "goal.yaml"]).expect_code(20);
}

#[test]
fn validate_takes_the_commit_that_its_hint_names() {
    let sandbox = Sandbox::new();
    sandbox.write("goal.yaml", "version: 1\ngoal: x\nmodel: anthropic/claude-sonnet-5-5\nsandbox: {files: off}\n");
    sandbox.git_init();
    let said = sandbox.run(["validate", "goal.yaml"]).expect_code(2);
    assert!(said.stderr.contains("sandbox.files") && said.stderr.contains("--trusted-ref"), "{}", said.stderr);
    sandbox.run(["validate", "goal.yaml", "--trusted-ref", "HEAD"]).expect_code(0);
    let said = sandbox.run(["validate", "goal.yaml", "--trusted-ref", "none"]).expect_code(2);
    assert!(said.stderr.contains("--trusted-ref"), "{}", said.stderr);
}

#[test]
fn the_problems_of_a_goal_are_a_list_in_the_result() {
    let sandbox = Sandbox::new();
    sandbox.write("goal.yaml", "version: \"1\"\ngoal: x\nmodel: anthropic/claude-sonnet-5-5\nlimits: {time: 0}\n");
    let finished = sandbox.run(["run", "goal.yaml", "--json"]).expect_code(2);
    let result = json(&finished.stdout);
    let problems = result["problems"].as_array().expect("a list");
    assert_eq!(problems.len(), 2, "{result}");
    assert_eq!((&problems[0]["key"], &problems[0]["line"]), (&"version".into(), &1.into()));
    assert!(problems[0]["hint"].as_str().is_some_and(|hint| hint.contains("without quotes")), "{result}");
    assert_eq!((&problems[1]["key"], &problems[1]["line"]), (&"limits.time".into(), &4.into()));
    assert!(problems[1]["hint"].as_str().is_some_and(|hint| hint.contains("unlimited")), "{result}");
    assert!(!problems[1]["message"].as_str().expect("a text").contains("0s"), "no value that is refused next");
    assert!(!result["error"]["message"].as_str().expect("a text").contains("hint"), "{result}");
    let errors = finished.stderr.lines().filter(|line| line.starts_with("error: goal.yaml:")).count();
    assert_eq!(errors, 2, "{}", finished.stderr);
}

#[test]
fn checks_tell_the_same_as_json_and_say_when_there_are_none() {
    let sandbox = Sandbox::new();
    let goal = "version: 1\ngoal: x\nmodel: anthropic/claude-sonnet-5-5\n";
    sandbox.write("goal.yaml", goal);
    let said = sandbox.run(["checks", "goal.yaml"]).expect_code(0);
    assert!(said.stdout.contains("no checks"), "{}", said.stdout);
    sandbox.write("goal.yaml", format!("{goal}checks: [{{name: bad, run: 'exit 4'}}]\n"));
    let report = json(&sandbox.run(["checks", "goal.yaml", "--json"]).expect_code(10).stdout);
    assert_eq!((&report["outcome"], &report["exit_code"]), (&"unmet".into(), &10.into()));
    assert_eq!((&report["checks"][0]["name"], &report["checks"][0]["exit_code"]), (&"bad".into(), &4.into()));
    sandbox.write("goal.yaml", format!("{goal}nonsense: 1\n"));
    let report = json(&sandbox.run(["checks", "goal.yaml", "--json"]).expect_code(2).stdout);
    assert_eq!(report["problems"][0]["line"], 4);
}

#[test]
fn a_recording_that_is_not_there_is_31_and_a_minus_is_no_file() {
    let sandbox = Sandbox::new();
    for missing in ["nope.zst", "nope.jsonl", "./nope"] {
        sandbox.run(["replay", missing, "--json"]).expect_code(31);
    }
    sandbox.write("goal.yaml", "version: 1\ngoal: x\nmodel: anthropic/claude-sonnet-5-5\n");
    let said = sandbox.run(["run", "goal.yaml", "-o", "-"]).expect_code(2);
    assert!(said.stderr.contains("--json"), "{}", said.stderr);
    let said = sandbox.run(["run", "goal.yaml", "--deltas"]).expect_code(2);
    assert!(said.stderr.contains("--output-format jsonl"), "{}", said.stderr);
    let said = sandbox.run(["run", "goal.yaml", "--json", "--output-format", "text"]).expect_code(2);
    assert_eq!(json(&said.stdout)["outcome"], "usage");
    assert!(!sandbox.workspace().join("-").exists());
}

#[test]
fn a_goal_is_read_from_a_pipe_that_the_command_line_names() {
    let sandbox = Sandbox::new();
    sandbox.write("made.yaml", "version: 1\ngoal: x\nmodel: anthropic/claude-sonnet-5-5\n");
    sandbox.sh("mkfifo goal.fifo; (cat made.yaml > goal.fifo) >/dev/null 2>&1 &");
    sandbox.run(["validate", "goal.fifo"]).expect_code(0);
}

#[test]
fn verbs_about_a_recording_speak_json() {
    let sandbox = Sandbox::new();
    let provider = content().start();
    let goal = sandbox.goal(&provider, "goal: x");
    sandbox.run(["run", "--goal", goal.to_str().expect("a path")]).expect_code(0);
    provider.finish();
    sandbox.run(["cassette", "pack", "latest", "-o", "a.zst"]).expect_code(0);
    let said = sandbox.run(["cassette", "pack", "latest", "-o", "none/a.zst"]).expect_code(2);
    assert!(!said.stderr.contains(".cassette-"), "{}", said.stderr);
    let said = sandbox.run(["cassette", "strip", "a.zst", "-o", "-"]).expect_code(2);
    assert!(said.stderr.contains("hint: "), "{}", said.stderr);
    let shown = json(&sandbox.run(["cassette", "verify", "a.zst", "--json"]).expect_code(0).stdout);
    assert_eq!((&shown["whole"], shown["problems"].as_array().map(Vec::len)), (&true.into(), Some(0)));
    let shown = json(&sandbox.run(["cassette", "diff", "a.zst", "latest", "--json"]).expect_code(0).stdout);
    assert_eq!((&shown["same"], &shown["difference"]), (&true.into(), &Value::Null));
    let shown = json(&sandbox.run(["cassette", "lint", "a.zst", "--json"]).expect_code(0).stdout);
    assert_eq!(shown["findings"].as_array().map(Vec::len), Some(0));
    let shown = json(&sandbox.run(["sessions", "show", "latest", "--json"]).expect_code(0).stdout);
    let texts = shown["outline"].to_string();
    assert!(texts.contains("iteration 1") && texts.contains("ended met"), "{shown}");
    let report = json(&sandbox.run(["replay", "a.zst", "--times", "2", "--json"]).stdout);
    assert_eq!((&report["variants"][0]["what"], &report["variants"][0]["agrees"]), (&"time 2".into(), &true.into()));
    // Of replies alone there is no run; the message says which file that is.
    sandbox.run(["cassette", "strip", "a.zst", "-o", "replies.jsonl"]).expect_code(0);
    let said = sandbox.run(["replay", "replies.jsonl"]).expect_code(31);
    assert!(said.stderr.contains("`replies.jsonl` holds replies only"), "{}", said.stderr);
}
