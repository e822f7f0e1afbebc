//! `kill -9` before the first iteration, and of runs whose replies are recorded.

use super::support::{GOAL, Scene, eventually, facts, script};
use crate::sandbox::PATIENCE;

/// The log as a runner leaves it that died behind this line.
fn cut(scene: &Scene, behind: impl Fn(&str) -> bool) {
    let path = scene.sandbox.session_dir().join("session.jsonl");
    let text = scene.sandbox.read(&path);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let at = lines.iter().position(|line| behind(line)).expect("there is such a line");
    scene.sandbox.write(&path, lines[..=at].concat());
    for derived in ["events.jsonl", "metadata.json", "status.json", "tasks.json"] {
        let _ = std::fs::remove_file(path.with_file_name(derived));
    }
}

#[test]
fn killed_in_the_setup_the_setup_is_run_again() {
    let setup = "setup: ['echo x >> began; [ -e go ] || sleep 1000; echo x >> done']\n";
    let scene = Scene::new(script(1), &format!("{GOAL}{setup}"));
    let running = scene.start();
    eventually("the setup began", || scene.sandbox.exists("began"));
    assert_eq!(running.kill().signal, Some(9));
    scene.sandbox.write("go", "");
    scene.resume(&[]).expect_code(0);
    assert_eq!(scene.sandbox.read("began"), "x\nx\n");
    assert_eq!(scene.sandbox.read("done"), "x\n");
    scene.provider.finish();
}

#[test]
fn a_setup_that_was_through_is_not_run_again() {
    let scene = Scene::new(script(2), &format!("{GOAL}setup: ['echo x >> done']\n"));
    let gate = scene.provider.hold();
    let running = scene.start();
    gate.wait_until_held(PATIENCE);
    assert_eq!(running.kill().signal, Some(9));
    gate.release();
    scene.resume(&[]).expect_code(0);
    assert_eq!(scene.sandbox.read("done"), "x\n");
    scene.provider.finish();
}

#[test]
fn killed_before_the_first_run_was_written_down_the_session_begins_and_replays() {
    let scene = Scene::new(script(1), &format!("{GOAL}record: effects\n"));
    scene.run().expect_code(0);
    cut(&scene, |line| line.contains("\"kind\":\"frozen\""));
    scene.provider.allow_rewrite();
    scene.resume(&[]).expect_code(0);
    let runs = facts(&scene.lines(), "run");
    assert_eq!(runs.iter().map(|run| run["resumed"].as_bool()).collect::<Vec<_>>(), [Some(false)]);
    scene.sandbox.run(["replay", "latest"]).expect_code(0);
}

#[test]
fn with_recorded_replies_a_lost_call_takes_none_away() {
    let scene = Scene::of(2);
    scene.run().expect_code(0);
    scene.sandbox.run(["cassette", "pack", "latest", "-o", "../run.jsonl"]).expect_code(0);
    std::fs::remove_dir_all(scene.sandbox.session_dir()).expect("it is there");
    std::fs::remove_file(scene.sandbox.workspace().join("lines.txt")).expect("it is there");
    scene.sandbox.goal_without_model(&format!("{GOAL}model: {{cassette: run.jsonl}}\n"));
    scene.run().expect_code(0);
    cut(&scene, |line| line.contains("\"kind\":\"call\"") && line.contains("\"n\":2") && line.contains("\"agent\""));
    let finished = scene.resume(&[]).expect_code(0);
    assert_eq!(finished.result()["iterations"], 2);
    let calls = facts(&scene.lines(), "call");
    let agent: Vec<u64> =
        calls.iter().filter(|call| call["lane"] == "agent").filter_map(|call| call["n"].as_u64()).collect();
    let recorded = scene.provider.agent_requests().len() as u64;
    assert_eq!(agent, (1..=recorded + 1).collect::<Vec<_>>(), "each recorded reply was given, and one call was lost");
    scene.provider.finish();
}
