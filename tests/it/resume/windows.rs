//! `kill -9` in the windows that matter: between what was written down and what depends on it.

use serde_json::Value;

use super::support::{
    GOAL, LASTING, Scene, append, assert_dead, audit, facts, iteration_of, judge, judged_iteration, script,
    wait_for_pids, worker,
};
use crate::provider::{Lane, Reply, Request, Script, Wire, respond_with};
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

/// Runs a goal, then cuts its log behind each line in turn, from the first call to the last before the end, and goes
/// on from there. `hold` looks at what came of it; it gets words for the place.
#[track_caller]
fn cut_behind_every_line(scene: &Scene, hold: impl Fn(&[Value], &str)) {
    scene.run().expect_code(0);
    let path = scene.sandbox.session_dir().join("session.jsonl");
    let whole = scene.sandbox.read(&path);
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let at = |kind: &str| lines.iter().position(|line| line.contains(&format!("\"kind\":\"{kind}\"")));
    let (first, end) = (at("call").expect("a call"), at("end").expect("an end"));
    // Each of these sessions begins where another one was in its middle.
    scene.provider.allow_rewrite();
    for count in first + 1..end {
        let place = format!("cut behind line {count}: {}", lines[count - 1]);
        scene.sandbox.write(&path, lines[..count].concat());
        for derived in ["events.jsonl", "metadata.json", "status.json", "tasks.json"] {
            let _ = std::fs::remove_file(path.with_file_name(derived));
        }
        let finished = scene.resume(&[]);
        assert_eq!(finished.code, Some(0), "{place}\n{}", finished.stderr);
        let log = scene.lines();
        assert_eq!(facts(&log, "end").len(), 1, "{place}");
        hold(&log, &place);
        let problems = scene.provider.problems();
        assert!(problems.is_empty(), "{place}\n{problems:#?}");
    }
}

#[test]
fn the_log_can_end_behind_any_of_its_lines() {
    for wire in Wire::ALL {
        cut_behind_every_line(&Scene::on(wire, script(2), GOAL), |log, place| {
            let held = std::panic::catch_unwind(|| super::support::no_fact_is_doubled(log, 2));
            assert!(held.is_ok(), "{place}");
        });
    }
}

/// Ends its first turn with `goal-complete` behind several calls, has a reply cut at the output cap in the second,
/// refuses in the third, and is through in the fourth.
fn varied(request: &Request) -> Reply {
    let todo = serde_json::json!({"todos": [{"id": "a", "content": "all of it"}]});
    let results = request.tool_results();
    let text = request.new_text();
    match opened(request) {
        1 if results.is_empty() => Reply::bash(&append(1)).and_call("todo-write", todo),
        1 => Reply::text("That is it.").and_call("goal-complete", serde_json::json!({"summary": "one line"})),
        2 if text.contains("Go on exactly where it ended") || text.contains("interrupted here") => {
            Reply::text(" and the second half.")
        }
        2 => Reply::text("The first half").stop("max_tokens"),
        3 => Reply::refusal("I would rather not."),
        _ => Reply::text("All is done."),
    }
}

/// The iteration, told from what opens each.
fn opened(request: &Request) -> u64 {
    let text = request.text();
    iteration_of(request) + text.matches("Your last turn ended with a refusal").count() as u64
}

#[test]
fn the_log_can_end_behind_any_line_of_turns_that_end_in_other_ways() {
    let verdicts = respond_with(|request| match judged_iteration(request) {
        4 => Reply::verdict("met", "at last", ""),
        _ => Reply::verdict("unmet", "not yet", ""),
    });
    let script = Script::new().agent(respond_with(varied).forever()).judge(verdicts.forever());
    let goal = "goal: Write.\nlimits: {stall: 9}\nchecks: [\"true\"]\n";
    cut_behind_every_line(&Scene::new(script, goal), |log, place| {
        let numbers = |kind: &str| -> Vec<u64> {
            let number = |fact: &Value| fact["iteration"].as_u64().or(fact["verdict"]["iteration"].as_u64());
            facts(log, kind).iter().map(|fact| number(fact).expect("a number")).collect()
        };
        assert_eq!(numbers("iteration"), [1, 2, 3, 4], "{place}");
        assert_eq!(numbers("turn"), [1, 2, 3, 4], "{place}");
        assert_eq!(numbers("verdict"), [1, 2, 4], "a refused turn has none; {place}");
        let refused = facts(log, "message").iter().filter(|message| message["refused"].is_string()).count();
        assert_eq!(refused, 1, "{place}");
        let turns = facts(log, "turn");
        let ends: Vec<&str> = turns.iter().map(|turn| turn["end"].as_str().expect("an end")).collect();
        assert_eq!(ends, ["done", "done", "refused", "done"], "{place}");
        assert_eq!(turns[0]["summary"], "one line", "{place}");
    });
}
