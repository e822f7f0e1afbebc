//! One run a workspace, one writer a session.

use std::time::Duration;

use super::support::Scene;
use crate::sandbox::{PATIENCE, Sandbox};

/// A second one waits five seconds; one more for a slow machine's start.
const WAIT: std::ops::RangeInclusive<f64> = 4.5..=9.0;

#[test]
fn a_second_run_on_a_workspace_or_a_session_waits_and_then_names_the_holder() {
    let scene = Scene::of(1);
    let gate = scene.provider.hold();
    let first = scene.start();
    gate.wait_until_held(PATIENCE);
    let id = scene.id();

    // A workspace of its own for the second one on the session: only the session's lock stands in its way.
    let other = scene.sandbox.root().join("elsewhere");
    std::fs::create_dir(&other).expect("the sandbox is writable");
    let on_workspace = scene.start();
    let elsewhere = other.to_str().expect("UTF-8");
    let on_session = scene.sandbox.spawn(["run", "--resume", &id, "--workspace", elsewhere]);
    for (second, what) in [(on_workspace, "workspace `"), (on_session, "session `")] {
        let second = second.wait(PATIENCE).expect_code(75);
        assert!(WAIT.contains(&second.duration.as_secs_f64()), "{:?}", second.duration);
        for words in [what, "in use by", &format!("process {}", first.pid()), "since 20"] {
            assert!(second.stderr.contains(words), "{words}: {}", second.stderr);
        }
    }
    assert_eq!(scene.sandbox.session_dirs().len(), 1, "no second session was begun");

    gate.release();
    first.wait(PATIENCE).expect_code(0);
    assert_eq!(scene.facts("run").len(), 1, "nobody else wrote into it");
    scene.provider.finish();
}

#[test]
fn a_second_run_that_waits_goes_on_when_the_first_one_ends() {
    let scene = Scene::of(1);
    let gate = scene.provider.hold();
    let first = scene.start();
    gate.wait_until_held(PATIENCE);
    scene.provider.allow_rewrite();
    let second = scene.start();
    gate.release();
    first.wait(PATIENCE).expect_code(0);
    let second = second.wait(PATIENCE).expect_code(0);
    assert!(second.duration < Duration::from_secs(30));
    assert_eq!(scene.sandbox.session_dirs().len(), 2);
    let _ = scene.provider.take_problems();
}

#[test]
fn a_killed_run_leaves_no_lock() {
    let scene = Scene::of(1);
    let gate = scene.provider.hold();
    let first = scene.start();
    gate.wait_until_held(PATIENCE);
    first.kill();
    gate.release();
    let again = scene.resume(&[]).expect_code(0);
    assert!(again.duration < Duration::from_secs(4), "it did not wait for the dead: {:?}", again.duration);
    scene.provider.finish();
}

#[test]
fn copies_of_a_workspace_do_not_stand_in_each_others_way() {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", "a\n");
    let provider = super::support::script(1).start();
    provider.allow_rewrite();
    sandbox.goal(&provider, "goal: Write.\nworkspace_mode: copy\n");
    let gate = provider.hold();
    let runs = [(); 2].map(|()| sandbox.spawn(["run", "--goal", "../goal.yaml"]));
    provider.wait_for_request(2, PATIENCE);
    gate.release();
    for run in runs {
        run.wait(PATIENCE).expect_code(0);
    }
    assert!(!sandbox.exists("lines.txt"), "both worked in copies");
    let _ = provider.take_problems();
}
