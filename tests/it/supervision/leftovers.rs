//! What a foreground command leaves running.

use std::time::Duration;

use super::support::{Scene, alive, assert_dead, job, met};
use crate::provider::{Gate, Lane, Reply, Script};
use crate::sandbox::PATIENCE;

#[test]
fn what_a_command_leaves_is_stopped_and_told() {
    let scene = Scene::new(
        Script::new()
            .agent(Reply::bash("sleep 60 & echo $! >> pids; echo hi"))
            .agent(Reply::complete("done"))
            .judge(met()),
    );
    let running = scene.start();
    scene.provider.wait_for_answer(1, PATIENCE);
    let begun = std::time::Instant::now();
    let result = scene.result(2);
    let took = begun.elapsed();
    let pid = scene.pids(1)[0];
    assert_dead(&[pid]);
    assert_eq!(
        result,
        format!(
            "hi\n[1 background process left by this command was stopped: {pid} sleep. Use run_in_background to keep a \
             process.]"
        )
    );
    assert!(took < Duration::from_secs(1), "{took:?}");
    running.wait(PATIENCE).expect_code(0);
    scene.provider.finish();
}

#[test]
fn with_leave_it_lives_until_the_run_ends() {
    let gate = Gate::new();
    let goal = "goal: keep the daemon\nleftovers: run\nlimits: {cost: 1.00}\n";
    let daemon = "setsid bash -c 'trap \"\" TERM; echo $$ >> pids; while :; do echo noise; sleep 0.01; done' & \
                  until [ -s pids ]; do :; done; echo built";
    let scene = Scene::with(
        Script::new()
            .agent(Reply::bash(daemon))
            .agent(Reply::bash("sleep 1; echo next"))
            .agent(Reply::complete("done").held(&gate))
            .judge(met()),
        goal,
    );
    let running = scene.start();
    let told = scene.result(2);
    let pid = scene.pids(1)[0];
    let (said, note) = told.rsplit_once('\n').expect("a note");
    assert!(said.contains("built"), "{told}");
    assert!(note.contains("left by this command") && note.contains("on until the run ends: "), "{note}");
    assert!(note.contains(&format!("{pid} bash")), "{note}");
    assert_eq!(scene.result(3), "next\n", "the next command is told of its own alone");
    assert!(alive(pid));
    let environment = std::fs::read(format!("/proc/{pid}/environ")).expect("it lives");
    assert!(String::from_utf8_lossy(&environment).contains("SPETTRO_JOB_ID=command-"), "it can be attributed");
    gate.release();
    running.wait(PATIENCE).expect_code(0);
    assert_dead(&[pid]);
    scene.provider.finish();
}

#[test]
fn a_kept_daemon_is_no_work() {
    let goal = "goal: keep the daemon\nleftovers: run\nlimits: {cost: 1.00, idle: 2s}\n";
    let scene = Scene::with(
        Script::new()
            .agent(Reply::bash("sleep 60 & echo $! >> pids"))
            .agent(job("exec sleep 5"))
            .agent(Reply::call("wait", serde_json::json!({"timeout": 20})))
            .agent(Reply::complete("done"))
            .judge(met()),
        goal,
    );
    scene.start().wait(PATIENCE).expect_code(0);
    assert_dead(&scene.pids(1));
    assert_eq!(scene.provider.count(Lane::Agent), 4);
    scene.provider.finish();
}

#[test]
fn a_failure_that_names_a_removed_variable_says_how_to_pass_it() {
    let goal = "goal: publish\nlimits: {cost: 1.00, iterations: 1}\n\
                checks: [{name: token, run: 'test -n \"${DEPLOY_TOKEN:?is missing}\"'}]\n";
    let scene = Scene::with(
        Script::new()
            .agent(Reply::bash("set -u; echo $DEPLOY_TOKEN"))
            .agent(Reply::complete("done"))
            .judge(Reply::verdict("unmet", "no", "pass it").forever()),
        goal,
    );
    scene.sandbox.set("DEPLOY_TOKEN", "a-value-that-is-long");
    let finished = scene.start().wait(PATIENCE);
    assert_eq!(finished.result()["outcome"], "unmet");
    let hint = "env: {pass: [DEPLOY_TOKEN]}";
    assert!(scene.result(2).contains(hint), "{}", scene.result(2));
    let checks = finished.result()["checks"].to_string();
    assert!(checks.contains(hint), "{checks}");
    scene.provider.finish();
}
