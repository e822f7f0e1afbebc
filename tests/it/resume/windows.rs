//! `kill -9` in the windows that matter: between what was written down and what depends on it.

use std::path::Path;

use super::support::{
    GOAL, LASTING, Scene, append, assert_dead, audit, facts, judge, judged_iteration, script, wait_for_pids, worker,
};
use crate::provider::{Lane, Reply, Script};
use crate::sandbox::PATIENCE;

#[test]
fn killed_while_an_agent_request_is_in_flight_the_same_request_is_sent_again() {
    let scene = Scene::of(2);
    let gate = scene.provider.hold();
    let running = scene.start();
    gate.wait_until_held(PATIENCE);
    assert_eq!(running.kill().signal, Some(9));
    gate.release();
    let finished = scene.resume(&[]).expect_code(0);
    let money = audit(&scene, &finished, 2);
    assert_eq!(money.unsettled.iter().map(|(lane, n, _)| (lane.as_str(), *n)).collect::<Vec<_>>(), [("agent", 1)]);
    let requests = scene.provider.agent_requests();
    assert_eq!(requests[0].rest(), requests[1].rest(), "nothing was said in between");
    scene.provider.finish();
}

#[test]
fn killed_while_a_tool_runs_the_call_is_told_as_interrupted_and_not_run_again() {
    let script = Script::new()
        .one_session()
        .agent(worker(|n| if n == 1 { format!("echo once >> ran; {LASTING}") } else { append(n) }))
        .judge(judge(2));
    let scene = Scene::new(script, GOAL);
    let running = scene.start();
    let pids = wait_for_pids(&scene, 2);
    assert_eq!(running.kill().signal, Some(9));
    assert_dead(&pids);
    let before = scene.provider.count(Lane::Agent);
    let finished = scene.resume(&[]).expect_code(0);
    let money = audit(&scene, &finished, 2);
    assert!(money.unsettled.is_empty(), "its reply had been settled: {money:?}");
    let told = &scene.provider.agent_requests()[before];
    let results = told.tool_results();
    assert_eq!(results.len(), 1);
    assert!(results[0].is_error, "{results:?}");
    for words in ["interrupted", "effects are unknown", "not run again"] {
        assert!(results[0].text.contains(words), "{words}: {results:?}");
    }
    assert_eq!(scene.sandbox.read("ran"), "once\n", "not run again");
    scene.provider.finish();
}

#[test]
fn killed_before_a_later_call_of_the_same_reply_that_one_was_not_run() {
    let script = Script::new()
        .one_session()
        .agent(
            Reply::bash(&format!("echo first >> ran; {LASTING}"))
                .and_call("bash", serde_json::json!({"command": "echo second >> ran"})),
        )
        .agent(Reply::text("done"))
        .judge(judge(1));
    let scene = Scene::new(script, GOAL);
    let running = scene.start();
    let pids = wait_for_pids(&scene, 2);
    assert_eq!(running.kill().signal, Some(9));
    assert_dead(&pids);
    let finished = scene.resume(&[]).expect_code(0);
    audit(&scene, &finished, 1);
    let results = scene.provider.agent_requests()[1].tool_results();
    assert_eq!(results.len(), 2, "every call has its result");
    assert!(results[0].text.contains("effects are unknown"), "{results:?}");
    assert!(results[1].text.contains("not run"), "{results:?}");
    assert!(!results[1].text.contains("effects are unknown"), "it never started: {results:?}");
    assert_eq!(scene.sandbox.read("ran"), "first\n");
    scene.provider.finish();
}

/// A check that lasts until the file `go` is there.
const WAITING_CHECK: &str = "goal: Write one line after another.
limits: {iterations: 30, stall: 12}
checks:
  - {name: waits, run: \"test -e turn-over || exit 0; echo $$ >> pids; until test -e go; do sleep 0.01; done\"}
";

#[test]
fn killed_in_a_check_the_check_runs_again_and_the_turn_does_not() {
    let script =
        Script::new().one_session().agent(worker(|n| format!("{}; touch turn-over", append(n)))).judge(judge(1));
    let scene = Scene::new(script, WAITING_CHECK);
    let running = scene.start();
    let pids = wait_for_pids(&scene, 1);
    assert_eq!(running.kill().signal, Some(9));
    assert_dead(&pids);
    let asked = scene.provider.count(Lane::Agent);
    scene.sandbox.write("go", "");
    let finished = scene.resume(&[]).expect_code(0);
    audit(&scene, &finished, 1);
    assert_eq!(scene.provider.count(Lane::Agent), asked, "the turn was over");
    assert_eq!(scene.sandbox.read("lines.txt"), "line-1\n");
    assert_eq!(finished.result()["checks"][0]["status"], "pass");
    scene.provider.finish();
}

#[test]
fn killed_between_check_and_judge_the_judge_is_asked() {
    let scene = Scene::of(3);
    let running = scene.start();
    scene.wait_for_log("progress of the second iteration", |lines| facts(lines, "progress").len() == 2);
    let killed = running.kill();
    assert_eq!(killed.signal, Some(9));
    let finished = scene.resume(&[]).expect_code(0);
    audit(&scene, &finished, 3);
    scene.provider.finish();
}

#[test]
fn killed_inside_the_judge_call_the_same_iteration_is_judged_again() {
    let gate = crate::provider::Gate::new();
    let script = Script::new()
        .one_session()
        .agent(worker(append))
        .judge(Reply::verdict("unmet", "held", "").held(&gate))
        .judge(judge(2));
    let scene = Scene::new(script, GOAL);
    let running = scene.start();
    gate.wait_until_held(PATIENCE);
    let agents = scene.provider.count(Lane::Agent);
    assert_eq!(running.kill().signal, Some(9));
    gate.release();
    let finished = scene.resume(&[]).expect_code(0);
    let money = audit(&scene, &finished, 2);
    assert_eq!(money.unsettled.iter().map(|(lane, n, _)| (lane.as_str(), *n)).collect::<Vec<_>>(), [("judge", 1)]);
    let judged: Vec<u64> = scene.provider.judge_requests().iter().map(|r| judged_iteration(r)).collect();
    assert_eq!(judged, [1, 1, 2]);
    assert!(scene.provider.count(Lane::Agent) > agents, "after that the second iteration");
    scene.provider.finish();
}

/// Cuts the log behind the n-th fact of a kind, as a runner that died there leaves it.
fn cut_behind(scene: &Scene, kind: &str, n: usize) {
    let path = scene.sandbox.session_dir().join("session.jsonl");
    let text = scene.sandbox.read(&path);
    let mut kept = String::new();
    let mut found = 0;
    for line in text.split_inclusive('\n') {
        kept.push_str(line);
        found += usize::from(line.contains(&format!("\"kind\":\"{kind}\"")));
        if found == n {
            break;
        }
    }
    assert_eq!(found, n, "there are so many {kind}");
    scene.sandbox.write(path, kept);
}

#[test]
fn killed_right_after_a_verdict_of_unmet_the_next_iteration_begins() {
    let scene = Scene::of(3);
    let running = scene.start();
    scene.wait_for_log("the first verdict", |lines| facts(lines, "verdict").len() == 1);
    assert_eq!(running.kill().signal, Some(9));
    cut_behind(&scene, "verdict", 1);
    let asked = scene.provider.requests().len();
    scene.provider.allow_rewrite();
    let finished = scene.resume(&[]).expect_code(0);
    super::support::no_fact_is_doubled(&scene.lines(), 3);
    assert_eq!(finished.result()["iterations"], 3);
    assert!(scene.provider.requests().len() > asked);
    scene.provider.finish();
}

#[test]
fn killed_right_after_a_verdict_of_met_it_is_met_without_another_call() {
    let scene = Scene::of(2);
    scene.run().expect_code(0);
    cut_behind(&scene, "verdict", 2);
    let asked = scene.provider.requests().len();
    let finished = scene.resume(&[]).expect_code(0);
    assert_eq!(scene.provider.requests().len(), asked, "the verdict stands");
    audit(&scene, &finished, 2);
    assert_eq!(finished.result()["verdict"]["kind"], "met");
    scene.provider.finish();
}

#[test]
fn killed_right_after_the_verdict_of_the_last_iteration_allowed_it_is_unmet_without_another_call() {
    let scene = Scene::new(script(9), "goal: Write.\nlimits: {iterations: 2}");
    scene.run().expect_code(10);
    cut_behind(&scene, "verdict", 2);
    let asked = scene.provider.requests().len();
    let finished = scene.resume(&[]).expect_code(10);
    assert_eq!(scene.provider.requests().len(), asked, "the limit spans the session");
    assert_eq!(finished.result()["iterations"], 2);
    assert_eq!(finished.result()["limit_hit"], "limits.iterations");
    scene.provider.finish();
}

#[test]
fn killed_right_after_the_reply_that_ends_a_turn_the_turn_is_over() {
    let scene = Scene::of(1);
    scene.run().expect_code(0);
    // The messages: prompt, call, result, and the text that ends the turn. Its settlement is lost too.
    cut_behind(&scene, "message", 4);
    let finished = scene.resume(&[]).expect_code(0);
    let lines = scene.lines();
    super::support::no_fact_is_doubled(&lines, 1);
    super::support::every_request_continues_the_one_before(&scene.provider);
    let unreported = finished.result()["unreported_calls"].clone();
    assert_eq!(unreported.as_array().map(Vec::len), Some(1), "{unreported}");
    scene.provider.finish();

    // The same with the settlement: nothing is lost, and nothing is asked twice.
    let scene = Scene::of(1);
    scene.run().expect_code(0);
    cut_behind(&scene, "settled", 2);
    let asked = scene.provider.count(Lane::Agent);
    let finished = scene.resume(&[]).expect_code(0);
    super::support::no_fact_is_doubled(&scene.lines(), 1);
    assert_eq!(scene.provider.count(Lane::Agent), asked, "the turn was over");
    assert_eq!(finished.result()["result"], "Iteration 1 has its line.");
    scene.provider.finish();
}

#[test]
fn the_log_can_end_behind_any_of_its_lines() {
    let scene = Scene::of(2);
    scene.run().expect_code(0);
    let path = scene.sandbox.session_dir().join("session.jsonl");
    let whole = scene.sandbox.read(&path);
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    // From the first agent call on; behind `end` it is met.
    let first = lines.iter().position(|line| line.contains("\"kind\":\"call\"")).expect("a call");
    scene.provider.allow_rewrite();
    let end = lines.iter().position(|line| line.contains("\"kind\":\"end\"")).expect("an end");
    for count in first + 1..end {
        scene.sandbox.write(&path, lines[..count].concat());
        for derived in ["events.jsonl", "metadata.json", "status.json", "tasks.json"] {
            let _ = std::fs::remove_file(Path::new(&path).with_file_name(derived));
        }
        let finished = scene.resume(&[]);
        assert_eq!(finished.code, Some(0), "cut behind line {count}: {}\n{}", lines[count - 1], finished.stderr);
        super::support::no_fact_is_doubled(&scene.lines(), 2);
        assert_eq!(scene.facts("end").len(), 1);
    }
    let problems = scene.provider.problems();
    assert!(problems.is_empty(), "{problems:#?}");
    scene.provider.finish();
}
