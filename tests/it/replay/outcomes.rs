//! A run of every outcome that leaves a session, packed where there is a reply to pack, replays as somebody else.

use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::json;

use super::far::far;
use super::support::{Recording, replay};
use crate::provider::{Reply, Script};
use crate::resume::support::{LASTING, eventually};
use crate::sandbox::{PATIENCE, Sandbox};

fn met() -> Reply {
    Reply::verdict("met", "yes", "")
}

fn unmet() -> Reply {
    Reply::verdict("unmet", "no", "more")
}

/// Replays what was recorded here and far away.
#[track_caller]
fn replays(recording: &Recording, outcome: &str) {
    let dir = recording.sandbox.session_dir();
    let lines = recording.sandbox.session_lines();
    let end = lines.iter().rev().find(|line| line["kind"] == "end").expect("it ended");
    assert_eq!(end["outcome"], outcome);
    let file = recording.sandbox.root().join("run.cassette.zst");
    let packed = recording.sandbox.run(["cassette", "pack", "latest", "-o", file.to_str().expect("UTF-8")]);
    // A run that never got a reply has its folder only.
    let recorded: PathBuf = if packed.code == Some(0) { file } else { dir };
    assert!(packed.code == Some(0) || packed.stderr.contains("no reply to pack"), "{packed:?}");
    let asked = recording.provider.requests().len();
    let here = replay(&recorded, &[]);
    here.expect_same();
    if let Some(there) = far(&recorded, &[]) {
        there.expect_same();
        assert_eq!(there.report, here.report);
    }
    assert_eq!(recording.provider.requests().len(), asked);
}

#[track_caller]
fn ends(code: i32, outcome: &str, script: Script, goal: &str) {
    let recording = Recording::new(script, goal);
    recording.run(code);
    replays(&recording, outcome);
}

#[test]
fn met_and_unmet() {
    let script = Script::new().agent(Reply::bash("echo x > a.txt")).agent(Reply::complete("done")).judge(met());
    ends(0, "met", script, "goal: x\nchecks: ['test -f a.txt']\n");
    let script = Script::new().agent(Reply::text("done").forever()).judge(unmet().forever());
    ends(10, "unmet", script, "goal: x\nlimits: {iterations: 2}\n");
}

#[test]
fn impossible_and_stalled() {
    let impossible = || Reply::verdict("impossible", "it contradicts itself", "");
    ends(11, "impossible", Script::new().agent(Reply::text("no")).judge(impossible().repeat(2)), "goal: x\n");
    let script = Script::new().agent(Reply::text("thinking").forever()).judge(unmet().forever());
    ends(12, "stalled", script, "goal: x\nlimits: {stall: 2}\n");
}

#[test]
fn the_limits_on_money_and_time() {
    let script = || Script::new().agent(Reply::bash("echo x").forever()).judge(unmet().forever());
    ends(13, "cost_limit", script(), "goal: x\nlimits: {cost: 0.15}\n");
    ends(14, "time_limit", Script::new().agent(Reply::bash("sleep 1000")), "goal: x\nlimits: {time: 500ms}\n");
}

#[test]
fn no_verdict_no_provider_no_room_no_will() {
    let script = Script::new().agent(Reply::text("done")).judge(Reply::text("maybe").forever());
    ends(15, "judge_failed", script, "goal: x\n");
    let script = Script::new().agent(Reply::error(500).forever());
    ends(21, "provider", script, "goal: x\nrate_limit: {max_wait: 100ms}\n");
    let script = Script::new().agent(Reply::bash("echo x")).agent(Reply::error(400));
    ends(21, "provider", script, "goal: x\n");
    let script = Script::new().agent(Reply::bash("echo x")).agent(Reply::overflow(8_192).forever());
    ends(22, "context", script, "goal: x\n");
    ends(24, "refused", Script::new().agent(Reply::refusal("I will not").repeat(3)), "goal: x\n");
}

#[test]
fn a_policy_stop() {
    let script = || Script::new().agent(Reply::bash("echo 2 > kept.txt")).agent(Reply::complete("done")).judge(met());
    let sandbox = Sandbox::new();
    sandbox.write("kept.txt", "1\n");
    sandbox.git_init();
    let recording = Recording::in_place(sandbox, script(), "goal: x\nprotect: [kept.txt]\nrecord: effects\n");
    recording.run(16);
    replays(&recording, "policy");
    // Where all is recorded there is no doubt either.
    let replayed = recording.replay(&[]);
    assert_eq!((replayed.finished.code, &replayed.report["standing"]), (Some(0), &json!("identical")));
}

#[test]
fn saved_by_a_named_wait() {
    let script = Script::new().agent(Reply::bash("echo x")).agent(Reply::error(429).header("retry-after", "3600"));
    ends(75, "saved", script, "goal: x\nrate_limit: {max_wait: 1m}\n");
}

#[test]
fn signals() {
    for (signal, outcome) in [(Signal::HUP, "hangup"), (Signal::INT, "interrupt"), (Signal::TERM, "terminated")] {
        let script =
            Script::new().agent(Reply::bash("echo one")).agent(Reply::call("bash", json!({"command": LASTING})));
        let recording = Recording::new(script, "goal: x\n");
        let goal = recording.goal.to_str().expect("UTF-8");
        let running = recording.sandbox.spawn(["run", "--goal", goal]);
        eventually("the command has begun", || recording.sandbox.exists("pids"));
        running.signal(signal);
        running.wait(PATIENCE);
        replays(&recording, outcome);
    }
}
