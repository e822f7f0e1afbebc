//! `replay SESSION --cassette F` and `--live --yes`: a session's goal against other replies.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::support::Recording;
use crate::provider::{Reply, Script};
use crate::resume::support::eventually;
use crate::sandbox::{Finished, PATIENCE, Sandbox};

fn met() -> Reply {
    Reply::verdict("met", "yes", "")
}

fn script() -> Script {
    Script::new()
        .agent(Reply::bash("echo one > a.txt; cat start.txt"))
        .agent(Reply::call("file-read", json!({"path": "a.txt"})))
        .agent(Reply::complete("done"))
        .judge(met())
}

/// A session whose workspace is again as it was, and the session as a cassette.
fn recorded(script: Script) -> (Recording, PathBuf) {
    let sandbox = Sandbox::new();
    sandbox.write("start.txt", "as it began\n");
    let recording = Recording::in_place(sandbox, script, "goal: x\nchecks: ['test -f a.txt']\nlimits: {cost: 2.50}\n");
    recording.run(0);
    recording.sandbox.sh("rm a.txt");
    let file = super::sealed::packed(&recording);
    (recording, file)
}

fn retake(recording: &Recording, more: &[&str]) -> Finished {
    let words = [&["replay", "latest", "--output-format", "json"], more].concat();
    let finished = recording.sandbox.run(words);
    assert!(!recording.sandbox.exists("a.txt"), "the workspace is not touched");
    let left: Vec<_> = std::fs::read_dir(recording.sandbox.root().join("tmp")).expect("there").collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(recording.sandbox.session_dirs().len(), 1, "no session is made");
    finished
}

#[track_caller]
fn report(finished: &Finished, code: i32) -> Value {
    assert_eq!(finished.code, Some(code), "{finished:?}");
    serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}: {finished:?}"))
}

#[test]
fn against_its_own_replies_it_is_the_same() {
    let (recording, file) = recorded(script());
    let asked = recording.provider.requests().len();
    let finished = retake(&recording, &["--cassette", file.to_str().expect("UTF-8"), "--trust"]);
    let report = report(&finished, 0);
    assert_eq!((&report["same_tools"], &report["same_outcome"]), (&json!(true), &json!(true)));
    assert_eq!(report["now"]["tools"], report["original"]["tools"]);
    assert_eq!(report["now"]["tools"].as_array().map(Vec::len), Some(3), "{report:#}");
    assert_eq!(report["now"]["tools"][0]["tool"], "bash");
    assert_eq!((&report["now"]["outcome"], &report["now"]["steps"]), (&json!("met"), &json!(3)));
    assert!(report["original"]["cost_usd"].as_f64() > Some(0.0), "{report:#}");
    assert_eq!(report["now"]["cost_usd"], report["original"]["cost_usd"], "priced as recorded");
    assert_eq!(recording.provider.requests().len(), asked, "no provider is asked");
}

#[test]
fn against_other_replies_the_tools_are_laid_side_by_side() {
    let other = Script::new().agent(Reply::bash("echo other > a.txt")).agent(Reply::complete("done")).judge(met());
    let (_other, file) = recorded(other);
    let (recording, _) = recorded(script());
    let file = file.to_str().expect("UTF-8");
    let report = report(&retake(&recording, &["--cassette", file, "--trust"]), 30);
    assert_eq!((&report["same_tools"], &report["same_outcome"]), (&json!(false), &json!(true)));
    let said = recording.sandbox.run(["replay", "latest", "--cassette", file, "--trust"]).expect_code(30).stdout;
    for line in ["another tool sequence, the same outcome", "+ bash \"echo other > a.txt\" ok", "- file-read a.txt ok"]
    {
        assert!(said.contains(line), "{line}: {said}");
    }
}

#[test]
fn a_cassette_that_ends_too_early_is_another_outcome() {
    let unmet = || Reply::verdict("unmet", "no", "more");
    let turn = |script: Script| script.agent(Reply::bash("echo one >> a.txt")).agent(Reply::complete("done"));
    let sandbox = Sandbox::new();
    let short = Recording::in_place(sandbox, turn(Script::new()).judge(unmet()), "goal: x\nlimits: {iterations: 1}\n");
    short.run(10);
    let file = super::sealed::packed(&short);
    let longer = turn(turn(Script::new())).judge(unmet()).judge(met());
    let recording = Recording::new(longer, "goal: x\n");
    recording.run(0);
    recording.sandbox.sh("rm a.txt");
    let report = report(&retake(&recording, &["--cassette", file.to_str().expect("UTF-8"), "--trust"]), 30);
    assert_eq!((&report["original"]["outcome"], &report["now"]["outcome"]), (&json!("met"), &json!("unusable")));
    assert!(report["now"]["error"].as_str().is_some_and(|error| error.contains("agent call 3")), "{report:#}");
}

#[test]
fn bad_input_is_refused_before_anything_runs() {
    let (recording, file) = recorded(script());
    let file = file.to_str().expect("UTF-8");
    let asked = recording.provider.requests().len();
    let refused = |words: &[&str], code: i32, said: &str| {
        let finished = retake(&recording, words);
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(code), ""), "{words:?}: {finished:?}");
        assert!(finished.stderr.contains(said), "{words:?}: {}", finished.stderr);
    };
    refused(&["--cassette", file], 2, "--trust");
    refused(&["--cassette", "/nonexistent.zst", "--trust"], 31, "/nonexistent.zst");
    let broken = recording.sandbox.write(recording.sandbox.root().join("broken.jsonl"), "{\"type\":\"head\"}\n");
    refused(&["--cassette", broken.to_str().expect("UTF-8"), "--trust"], 31, "broken.jsonl");
    refused(&["--live"], 2, "2.50");
    refused(&["--live"], 2, "--yes");
    refused(&["--live", "--yes", "--model", "nobody/nothing"], 2, "nobody");
    refused(&["--yes"], 2, "--live");
    refused(&["--model", "test/model-1"], 2, "--live");
    refused(&["--live", "--yes", "--cassette", file], 2, "--cassette");
    refused(&["--live", "--yes", "--tools", "stub"], 2, "--tools");
    refused(&["--live", "--yes", "--goal", "goal.yaml"], 2, "--goal");
    assert_eq!(recording.provider.requests().len(), asked);
    let packed = recording.sandbox.run(["replay", file, "--live", "--yes"]).expect_code(2);
    assert!(packed.stderr.contains("--trust"), "{}", packed.stderr);
}

#[test]
fn a_session_whose_model_is_a_cassette_names_no_live_one() {
    let (recording, file) = recorded(script());
    let goal = format!("goal: x\nmodel: {{cassette: {}}}\n", file.display());
    recording.sandbox.goal_without_model(&goal);
    recording.run(0);
    let said = recording.sandbox.run(["replay", "latest", "--live", "--yes"]).expect_code(2).stderr;
    assert!(said.contains("--model"), "{said}");
}

#[test]
fn live_it_is_priced_and_reported_beside_the_original() {
    let twice = script().agent(Reply::bash("echo two > a.txt")).agent(Reply::complete("done")).judge(met());
    let (recording, _) = recorded(twice);
    let asked = recording.provider.requests().len();
    let report = report(&retake(&recording, &["--live", "--yes"]), 30);
    assert_eq!(recording.provider.requests().len(), asked + 3, "agent, agent, judge");
    assert_eq!((&report["same_tools"], &report["same_outcome"]), (&json!(false), &json!(true)), "{report:#}");
    assert_eq!(report["against"], json!({"model": "own/test/model-1"}), "{report:#}");
    assert!(report["now"]["cost_usd"].as_f64() > Some(0.0), "{report:#}");
    assert!(report["now"]["cost_usd"].as_f64() < report["original"]["cost_usd"].as_f64(), "{report:#}");
    let checks = recording.provider.requests()[asked].text().to_owned();
    assert!(checks.contains(recording.sandbox.workspace().to_str().expect("UTF-8")), "it is shown where it was");
}

#[test]
fn live_it_keeps_the_goals_limits() {
    let unmet = Reply::verdict("unmet", "no", "more");
    let script = script().agent(Reply::bash("echo again >> a.txt").forever()).judge(unmet.forever());
    let sandbox = Sandbox::new();
    sandbox.write("start.txt", "");
    let goal = "goal: x\nchecks: ['test -f a.txt']\nlimits: {steps: 5}\n";
    let recording = Recording::in_place(sandbox, script, goal);
    recording.run(0);
    recording.sandbox.sh("rm a.txt");
    let report = report(&retake(&recording, &["--live", "--yes"]), 30);
    assert_eq!(report["now"]["steps"], 5, "{report:#}");
    assert_eq!(report["now"]["outcome"], "unmet", "{report:#}");
}

#[test]
fn steering_is_said_again_after_as_many_calls() {
    let waits = "echo > begun; while ! test -e go; do sleep 0.02; done; rm go begun";
    let script = Script::new()
        .agent(Reply::bash(waits))
        .agent(Reply::complete("done"))
        .judge(met())
        .agent(Reply::bash("echo quick"))
        .agent(Reply::complete("done"))
        .judge(met());
    let recording = Recording::new(script, "goal: x\n");
    let running = recording.sandbox.spawn(["run", "--goal", recording.goal.to_str().expect("UTF-8")]);
    eventually("the command has begun", || recording.sandbox.exists("begun"));
    recording.sandbox.run(["steer", "latest", "mind the gap"]).expect_code(0);
    recording.sandbox.write("go", "");
    running.wait(PATIENCE).expect_code(0);
    let asked = recording.provider.requests().len();
    let report = report(&retake(&recording, &["--live", "--yes"]), 30);
    assert_eq!(report["unsaid"], 0, "{report:#}");
    let requests = recording.provider.requests();
    let said = |index: usize| requests[asked + index].text().contains("mind the gap");
    assert!(!said(0) && said(1), "it comes before the second call, as it did");
}
