//! HUP, INT and TERM, wherever the run stands: it is torn down in order, dies of that signal, and goes on later.

use rustix::process::Signal;
use serde_json::Value;

use super::support::{
    GOAL, LASTING, Scene, append, assert_dead, facts, judge, no_fact_is_doubled, wait_for_pids, worker,
};
use crate::provider::{Lane, Reply, Script};
use crate::sandbox::{Finished, PATIENCE, Running};

const SIGNALS: [(Signal, i32, &str, u64); 3] = [
    (Signal::HUP, libc::SIGHUP, "hangup", 129),
    (Signal::INT, libc::SIGINT, "interrupt", 130),
    (Signal::TERM, libc::SIGTERM, "terminated", 143),
];

/// Sends the signal and holds what is left against the rules of an interrupted run.
#[track_caller]
fn interrupted(scene: &Scene, running: Running, (signal, number, name, code): (Signal, i32, &str, u64)) -> Finished {
    running.signal(signal);
    let finished = running.wait(PATIENCE);
    assert_eq!(finished.signal, Some(number), "it dies of that signal\n{}", finished.stderr);
    let lines = scene.lines();
    let told = facts(&lines, "interrupted");
    assert_eq!(told.last().map(|fact| fact["reason"].clone()), Some(Value::from(name)), "{told:?}");
    let end = facts(&lines, "end").pop().expect("the run has an end");
    assert_eq!(end["outcome"], name);
    let result = finished.result();
    assert_eq!((&result["state"], &result["outcome"]), (&Value::from("finished"), &Value::from(name)));
    assert_eq!(result["exit_code"], code);
    let resume: Vec<String> = serde_json::from_value(result["commands"]["resume"].clone()).expect("a command");
    assert_eq!(resume, ["spettro", "run", "--resume", &scene.id()]);
    assert_eq!(result["leaked"], serde_json::json!([]));
    finished
}

/// Runs exactly what the interrupted run's result says.
#[track_caller]
fn resumed_as_the_result_says(scene: &Scene, finished: &Finished) -> Finished {
    let resume: Vec<String> =
        serde_json::from_value(finished.result()["commands"]["resume"].clone()).expect("a command");
    scene.sandbox.run(&resume[1..])
}

#[test]
fn in_the_middle_of_a_command() {
    for signal in SIGNALS {
        let script = Script::new()
            .one_session()
            .agent(worker(|n| if n == 1 { format!("echo once >> ran; {LASTING}") } else { append(n) }))
            .judge(judge(2));
        let scene = Scene::new(script, GOAL);
        let running = scene.start();
        let pids = wait_for_pids(&scene, 2);
        let finished = interrupted(&scene, running, signal);
        assert_dead(&pids);
        let again = resumed_as_the_result_says(&scene, &finished).expect_code(0);
        assert_eq!(again.result()["outcome"], "met");
        let told = scene.provider.agent_requests()[1].tool_results();
        assert!(told[0].is_error && told[0].text.contains("ended because spettro is shutting down"), "{told:?}");
        assert_eq!(scene.sandbox.read("ran"), "once\n");
        no_fact_is_doubled(&scene.lines(), 2);
        scene.provider.finish();
    }
}

#[test]
fn in_the_middle_of_a_reply_its_text_is_kept() {
    for signal in SIGNALS {
        let words = "I have read the first half and now look at";
        // Some of the text has gone out, the end of the reply has not.
        let half = Reply::text(words).stall_after(900);
        let script = Script::new().one_session().agent(half).agent(worker(append)).judge(judge(1));
        let scene = Scene::new(script, GOAL);
        let running = scene.sandbox.spawn(["run", "--deltas", "--output-format", "jsonl", "--goal", "../goal.yaml"]);
        running.wait_for_stdout("model.delta", PATIENCE);
        let finished = interrupted(&scene, running, signal);
        let kept: Vec<Value> = scene.facts("message").into_iter().filter(|m| m["role"] == "assistant").collect();
        assert_eq!(kept.len(), 1, "{kept:?}");
        assert_eq!(kept[0]["interrupted"], true);
        let arrived = kept[0]["blocks"][0]["text"].as_str().expect("a text");
        assert!(arrived.len() > 5 && words.starts_with(arrived), "{kept:?}");
        let again = resumed_as_the_result_says(&scene, &finished).expect_code(0);
        assert_eq!(again.result()["outcome"], "met");
        let request = &scene.provider.agent_requests()[1];
        assert!(request.text().contains(arrived), "what had arrived is in the history");
        assert!(request.new_text().contains("interrupted here; go on"), "{}", request.new_text());
        scene.provider.finish();
    }
}

#[test]
fn while_a_request_waits_for_its_answer() {
    for signal in SIGNALS {
        let script = Script::new().one_session().agent(Reply::text("never").stall()).agent(worker(append));
        let scene = Scene::new(script.judge(judge(1)), GOAL);
        let running = scene.start();
        scene.provider.wait_for_request(1, PATIENCE);
        let finished = interrupted(&scene, running, signal);
        assert_eq!(finished.result()["total_cost_usd"], 0.0, "nothing was answered");
        resumed_as_the_result_says(&scene, &finished).expect_code(0);
        let requests = scene.provider.agent_requests();
        assert_eq!(requests[0].rest(), requests[1].rest(), "nothing was said in between");
        no_fact_is_doubled(&scene.lines(), 1);
        scene.provider.finish();
    }
}

#[test]
fn in_a_check() {
    let goal = format!(
        "goal: Write.\nchecks:\n  - {{name: waits, run: {}}}\n",
        Value::from(format!("test -e lines.txt || exit 0; test ! -e go || exit 0; {LASTING}"))
    );
    for signal in SIGNALS {
        let script = Script::new().one_session().agent(worker(append)).judge(judge(1));
        let scene = Scene::new(script, &goal);
        let running = scene.start();
        let pids = wait_for_pids(&scene, 2);
        let finished = interrupted(&scene, running, signal);
        assert_dead(&pids);
        assert_eq!(finished.result()["checks"][0]["status"], "not_run");
        scene.sandbox.write("go", "");
        let asked = scene.provider.agent_requests().len();
        resumed_as_the_result_says(&scene, &finished).expect_code(0);
        assert_eq!(scene.provider.agent_requests().len(), asked, "the turn was over");
        no_fact_is_doubled(&scene.lines(), 1);
        scene.provider.finish();
    }
}

#[test]
fn in_the_judge_call() {
    for signal in SIGNALS {
        let script = Script::new()
            .one_session()
            .agent(worker(append))
            .judge(Reply::verdict("met", "too late", "").stall())
            .judge(judge(2));
        let scene = Scene::new(script, GOAL);
        let running = scene.start();
        scene.provider.wait_for_lane_request(Lane::Judge, 1, PATIENCE);
        let finished = interrupted(&scene, running, signal);
        assert_eq!(finished.result()["verdict"], Value::Null);
        resumed_as_the_result_says(&scene, &finished).expect_code(0);
        no_fact_is_doubled(&scene.lines(), 2);
        scene.provider.finish();
    }
}

#[test]
fn while_waiting_for_a_retry() {
    for signal in SIGNALS {
        let busy = Reply::error(529).header("retry-after", "600");
        let script = Script::new().one_session().agent(busy).agent(worker(append)).judge(judge(1));
        let scene = Scene::new(script, GOAL);
        let running = scene.start();
        scene.wait_for_log("the failed attempt", |lines| !facts(lines, "attempt").is_empty());
        let finished = interrupted(&scene, running, signal);
        assert!(finished.duration < PATIENCE / 2, "it did not wait the ten minutes");
        resumed_as_the_result_says(&scene, &finished).expect_code(0);
        no_fact_is_doubled(&scene.lines(), 1);
        scene.provider.finish();
    }
}

#[test]
fn a_background_job_dies_with_the_run() {
    let job = Reply::call("bash", serde_json::json!({"command": LASTING, "run_in_background": true}));
    let script = Script::new().one_session().agent(job).agent(Reply::text("never").stall()).agent(Reply::text("done"));
    let scene = Scene::new(script.judge(judge(1)), GOAL);
    let running = scene.start();
    let pids = wait_for_pids(&scene, 2);
    scene.provider.wait_for_request(2, PATIENCE);
    let finished = interrupted(&scene, running, SIGNALS[2]);
    assert_dead(&pids);
    resumed_as_the_result_says(&scene, &finished).expect_code(0);
    scene.provider.finish();
}

#[test]
fn the_result_is_written_before_anything_is_ended_so_that_a_kill_in_the_teardown_loses_nothing() {
    let stubborn = "trap '' TERM; echo $$ >> pids; while :; do sleep 60 & echo $! >> pids; wait; done";
    let script = Script::new().one_session().agent(worker(move |_| stubborn.to_owned())).judge(judge(1));
    let scene = Scene::new(script, GOAL);
    let running = scene.start();
    let pids = wait_for_pids(&scene, 2);
    running.signal(Signal::TERM);
    let result = || -> Option<Value> {
        let text = std::fs::read_to_string(scene.sandbox.session_dir().join("result.json")).ok()?;
        serde_json::from_str(&text).ok()
    };
    super::support::eventually("the result says how the run ended", || {
        result().is_some_and(|result| result["outcome"] == "terminated")
    });
    // The command ignores TERM, so the teardown is not over.
    running.signal(Signal::KILL);
    running.wait(PATIENCE);
    let result = result().expect("a result");
    assert_eq!((&result["state"], &result["exit_code"]), (&Value::from("finished"), &Value::from(143)));
    assert_eq!(scene.facts("interrupted").len(), 1);
    assert_eq!(scene.facts("end").len(), 0, "the run did not come to its end");
    assert_dead(&pids);
}
