//! Runs that were ended from outside, and sessions of several runs.

use rustix::process::Signal;
use serde_json::json;

use super::support::Recording;
use crate::provider::{Reply, Script};
use crate::resume::support::{LASTING, eventually};
use crate::sandbox::{PATIENCE, Running, json_lines};

fn met() -> Reply {
    Reply::verdict("met", "yes", "")
}

fn start(recording: &Recording) -> Running {
    recording.sandbox.spawn(["run", "--goal", recording.goal.to_str().expect("UTF-8")])
}

/// A run whose second command lasts, once that has begun.
fn in_a_command(recording: &Recording) -> Running {
    let running = start(recording);
    eventually("the command has begun", || recording.sandbox.exists("pids"));
    running
}

fn lasting() -> Script {
    Script::new()
        .agent(Reply::bash("echo one >> a.txt"))
        .agent(Reply::bash(LASTING))
        .agent(Reply::bash("echo again >> a.txt"))
        .agent(Reply::complete("done"))
        .judge(met())
}

#[test]
fn a_signal_inside_a_command_and_the_resume() {
    let recording = Recording::new(lasting(), "goal: x\n");
    let running = in_a_command(&recording);
    running.signal(Signal::TERM);
    running.wait(PATIENCE);
    recording.replay(&[]).expect_same();
    recording.sandbox.run(["run", "--resume", "latest"]).expect_code(0);
    let replayed = recording.replay(&[]);
    replayed.expect_same();
    assert_eq!(replayed.report["runs"], 2);
}

#[test]
fn a_kill_inside_a_command_and_the_resume() {
    let recording = Recording::new(lasting(), "goal: x\n");
    in_a_command(&recording).kill();
    recording.replay(&[]).expect_same();
    recording.sandbox.run(["run", "--resume", "latest"]).expect_code(0);
    let replayed = recording.replay(&[]);
    replayed.expect_same();
    assert_eq!(replayed.report["runs"], 2);
}

#[test]
fn a_stop_lets_the_command_finish() {
    let script = Script::new().agent(Reply::bash("echo $$ > pids; sleep 0.5; echo done")).agent(Reply::complete("x"));
    let recording = Recording::new(script, "goal: x\n");
    let running = in_a_command(&recording);
    recording.sandbox.run(["stop", "latest"]).expect_code(0);
    running.wait(PATIENCE).expect_code(75);
    recording.replay(&[]).expect_same();
}

#[test]
fn a_signal_inside_a_reply() {
    let script = Script::new()
        .agent(Reply::text("so far and no further").stall_after(250))
        .agent(Reply::complete("done"))
        .judge(met());
    let recording = Recording::new(script, "goal: x\n");
    let running = start(&recording);
    recording.provider.wait_for_request(1, PATIENCE);
    // Enough of the reply has come when the provider stalls.
    std::thread::yield_now();
    running.signal(Signal::INT);
    running.wait(PATIENCE);
    recording.replay(&[]).expect_same();
    recording.sandbox.run(["run", "--resume", "latest"]).expect_code(0);
    recording.replay(&[]).expect_same();
}

#[test]
fn a_signal_between_two_attempts() {
    let script = Script::new().agent(Reply::error(429).header("retry-after", "100"));
    let recording = Recording::new(script, "goal: x\n");
    let running = start(&recording);
    running.wait_for_stderr("trying again", PATIENCE);
    running.signal(Signal::TERM);
    running.wait(PATIENCE);
    recording.replay(&[]).expect_same();
}

#[test]
fn the_time_limit_inside_a_command_a_reply_and_a_check() {
    let inside = [
        (Script::new().agent(Reply::bash("sleep 1000")), ""),
        (Script::new().agent(Reply::text("so far and no further").stall_after(250)), ""),
        (Script::new().agent(Reply::text("done")), "checks: [{name: slow, run: 'test ! -e x || sleep 1000'}]\n"),
    ];
    for (index, (script, checks)) in inside.into_iter().enumerate() {
        let recording = Recording::new(script, &format!("goal: x\nlimits: {{time: 600ms}}\n{checks}"));
        if index == 2 {
            // Only behind the baseline is there something that it waits for.
            let running = start(&recording);
            recording.provider.wait_for_request(1, PATIENCE);
            recording.sandbox.write("x", "");
            running.wait(PATIENCE).expect_code(14);
        } else {
            recording.run(14);
        }
        recording.replay(&[]).expect_same();
    }
}

#[test]
fn limits_on_steps_and_money() {
    let script =
        || Script::new().agent(Reply::bash("echo x").forever()).judge(Reply::verdict("unmet", "no", "").forever());
    let recording = Recording::new(script(), "goal: x\nlimits: {steps: 3}\n");
    recording.run(10);
    recording.replay(&[]).expect_same();
    let recording = Recording::new(script(), "goal: x\nlimits: {cost: 0.15}\n");
    recording.run(13);
    recording.replay(&[]).expect_same();
}

#[test]
fn a_provider_that_gives_up_and_a_judge_that_gives_no_verdict() {
    let script = Script::new().agent(Reply::error(500).forever());
    let recording = Recording::new(script, "goal: x\nrate_limit: {max_wait: 1s}\n");
    recording.run(21);
    recording.replay(&[]).expect_same();
    let script = Script::new().agent(Reply::text("done")).judge(Reply::text("maybe").forever());
    let recording = Recording::new(script, "goal: x\n");
    recording.run(15);
    recording.replay(&[]).expect_same();
}

#[test]
fn steering_arrives_where_it_did() {
    let script = Script::new()
        .agent(Reply::bash("echo $$ > pids; while ! test -e go; do sleep 0.02; done"))
        .agent(Reply::bash("echo x"))
        .agent(Reply::complete("done"))
        .judge(met());
    let recording = Recording::new(script, "goal: x\n");
    let running = in_a_command(&recording);
    recording.sandbox.run(["steer", "latest", "Mind the gap."]).expect_code(0);
    recording.sandbox.write("go", "");
    running.wait(PATIENCE).expect_code(0);
    let lines = json_lines(&recording.sandbox.session_dir().join("session.jsonl"));
    assert!(lines.iter().any(|line| line["origin"] == json!("steer")), "it was delivered");
    recording.replay(&[]).expect_same();
}

#[test]
fn a_resume_with_other_limits() {
    let script = Script::new()
        .agent(Reply::bash("echo x"))
        .agent(Reply::bash("echo y"))
        .agent(Reply::complete("done"))
        .judge(Reply::verdict("unmet", "no", ""))
        .judge(met());
    let recording = Recording::new(script, "goal: x\nlimits: {steps: 1}\n");
    recording.run(10);
    recording.sandbox.run(["run", "--resume", "latest", "--max-steps", "9"]).expect_code(0);
    recording.replay(&[]).expect_same();
}
