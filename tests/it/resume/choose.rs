//! Which session `--resume` means, and with which configuration it goes on.

use super::support::{GOAL, Scene, append, judge, script, worker};
use crate::provider::Script;
use crate::sandbox::{PATIENCE, Sandbox};

/// A scene whose first run was killed while its first request was in flight.
fn killed(scene: Scene) -> Scene {
    let gate = scene.provider.hold();
    let running = scene.start();
    gate.wait_until_held(PATIENCE);
    running.kill();
    gate.release();
    scene
}

#[test]
fn instructions_that_changed_since_do_not_change_the_head() {
    let scene = Scene::of(2);
    scene.sandbox.write("AGENTS.md", "Use tabs.\n");
    let scene = killed(scene);
    scene.sandbox.write("AGENTS.md", "Use spaces.\n");
    scene.resume(&[]).expect_code(0);
    let requests = scene.provider.agent_requests();
    let head = |n: usize| {
        let rest = String::from_utf8_lossy(requests[n].rest()).into_owned();
        rest.split("\"messages\":").next().expect("a head").to_owned()
    };
    assert!(head(0).contains("Use tabs."), "{}", head(0));
    for n in 1..requests.len() {
        assert_eq!(head(n), head(0), "request {n}");
    }
    scene.provider.finish();
}

#[test]
fn an_id_alone_is_enough_from_anywhere() {
    let scene = killed(Scene::of(2));
    let (id, elsewhere) = (scene.id(), scene.sandbox.root().join("elsewhere"));
    std::fs::create_dir(&elsewhere).expect("the sandbox is writable");
    // Without the goal file too: what it said is stored.
    std::fs::remove_file(&scene.goal).expect("it is there");
    let mut command = scene.sandbox.command(env!("CARGO_BIN_EXE_spettro"));
    command.args(["run", "--resume", &id]).current_dir(&elsewhere);
    let finished = scene.sandbox.start(command).wait(PATIENCE).expect_code(0);
    assert_eq!(scene.sandbox.read("lines.txt"), "line-1\nline-2\n", "it worked in its own workspace");
    let result = finished.result();
    assert_eq!(result["workspace"].as_str(), scene.sandbox.workspace().to_str());
    assert_eq!(result["limits"]["iterations"], 30, "the stored limits");
    assert_eq!(std::fs::read_dir(&elsewhere).expect("it is there").count(), 0);
    scene.provider.finish();
}

#[test]
fn a_prefix_is_enough_when_it_fits_one() {
    let scene = killed(Scene::of(1));
    let id = scene.id();
    let finished = scene.sandbox.run(["run", "--resume", &id[..id.len() - 3]]).expect_code(0);
    assert_eq!(finished.result()["session_id"], id);
    scene.provider.finish();
}

#[test]
fn a_prefix_that_fits_several_names_them() {
    let scene = killed(Scene::of(1));
    scene.provider.allow_rewrite();
    let scene = killed(scene);
    let ids: Vec<String> = scene
        .sandbox
        .session_dirs()
        .iter()
        .map(|dir| dir.file_name().expect("a name").to_string_lossy().into_owned())
        .collect();
    assert_eq!(ids.len(), 2);
    let refused = scene.sandbox.run(["run", "--resume", "session-"]).expect_code(2);
    for id in &ids {
        assert!(refused.stderr.contains(id.as_str()), "{id}: {}", refused.stderr);
    }
    scene.provider.finish();
}

#[test]
fn latest_is_the_one_that_was_at_work_last() {
    let scene = killed(Scene::of(1));
    let first = scene.id();
    scene.provider.allow_rewrite();
    let scene = killed(scene);
    let finished = scene.resume(&[]).expect_code(0);
    assert_ne!(finished.result()["session_id"], first);
    // That one is met now, and still the latest.
    let refused = scene.resume(&[]).expect_code(2);
    assert!(refused.stderr.contains("is met already"), "{}", refused.stderr);
    let finished = scene.sandbox.run(["run", "--resume", &first]).expect_code(0);
    assert_eq!(finished.result()["session_id"], first);
    scene.provider.finish();
}

#[test]
fn auto_takes_this_goals_unfinished_session_and_else_begins_one() {
    let scene = Scene::of(1);
    let auto = || scene.sandbox.run(["run", "--resume", "auto", "--goal", "../goal.yaml"]);
    auto().expect_code(0);
    assert_eq!(scene.sandbox.session_dirs().len(), 1, "there was none: a fresh one");
    scene.provider.allow_rewrite();
    auto().expect_code(0);
    assert_eq!(scene.sandbox.session_dirs().len(), 2, "a met one is not gone on with");

    let gate = scene.provider.hold();
    let running = scene.start();
    gate.wait_until_held(PATIENCE);
    running.kill();
    gate.release();
    let dirs = scene.sandbox.session_dirs();
    assert_eq!(dirs.len(), 3);
    let finished = auto().expect_code(0);
    assert_eq!(scene.sandbox.session_dirs().len(), 3, "the unfinished one");
    assert_eq!(id_of(&finished.result()), dirs[2].file_name().and_then(|name| name.to_str()));
    let refused = scene.sandbox.run(["run", "--resume", "auto"]).expect_code(2);
    assert!(refused.stderr.contains("needs a goal"), "{}", refused.stderr);
    let _ = scene.provider.take_problems();
}

fn id_of(result: &serde_json::Value) -> Option<&str> {
    result["session_id"].as_str()
}

#[test]
fn auto_does_not_take_another_goals_session() {
    let scene = killed(Scene::of(1));
    scene.provider.allow_rewrite();
    scene.sandbox.goal(&scene.provider, "goal: Something else.\n");
    scene.sandbox.run(["run", "--resume", "auto", "--goal", "../goal.yaml"]).expect_code(0);
    assert_eq!(scene.sandbox.session_dirs().len(), 2);
    let _ = scene.provider.take_problems();
}

#[test]
fn a_goal_text_that_changed_is_refused_unless_allowed() {
    let scene = killed(Scene::of(2));
    scene.sandbox.goal(&scene.provider, &GOAL.replace("one line", "two lines"));
    let refused = scene.resume(&["--goal", "../goal.yaml"]).expect_code(2);
    assert!(refused.stderr.contains("the goal's text differs"), "{}", refused.stderr);
    assert!(refused.stderr.contains("--resume-changed"), "{}", refused.stderr);
    let finished = scene.resume(&["--goal", "../goal.yaml", "--resume-changed"]).expect_code(0);
    super::support::audit(&scene, &finished, 2);
    scene.provider.finish();
}

#[test]
fn other_changes_of_the_goal_file_are_taken_with_a_notice() {
    let scene = killed(Scene::of(2));
    scene.sandbox.goal(&scene.provider, &GOAL.replace("iterations: 30", "iterations: 31"));
    let finished = scene.resume(&["--goal", "../goal.yaml"]).expect_code(0);
    assert!(finished.stderr.contains("configuration differs"), "{}", finished.stderr);
    assert_eq!(finished.result()["limits"]["iterations"], 31);
    scene.provider.finish();
}

#[test]
fn a_model_that_changed_is_not_taken_and_that_is_said() {
    let scene = killed(Scene::of(2));
    let finished = scene.resume(&["--model", "other/model-2"]).expect_code(0);
    assert!(finished.stderr.contains("the session keeps `own/test/model-1` for the agent"), "{}", finished.stderr);
    super::support::audit(&scene, &finished, 2);
    scene.provider.finish();

    let scene = killed(Scene::of(2));
    let finished = scene.resume(&[]).expect_code(0);
    assert!(!finished.stderr.contains("the session keeps"), "nothing changed: {}", finished.stderr);
    scene.provider.finish();
}

#[test]
fn a_workspace_that_is_gone_is_named() {
    let scene = killed(Scene::of(1));
    let id = scene.id();
    std::fs::remove_dir_all(scene.sandbox.workspace()).expect("it is there");
    let mut command = scene.sandbox.command(env!("CARGO_BIN_EXE_spettro"));
    command.args(["run", "--resume", &id]).current_dir(scene.sandbox.root());
    let refused = scene.sandbox.start(command).wait(PATIENCE).expect_code(2);
    assert!(refused.stderr.contains(scene.sandbox.workspace().to_str().expect("UTF-8")), "{}", refused.stderr);
    scene.provider.finish();
}

#[test]
fn a_met_session_is_not_gone_on_with() {
    let scene = Scene::of(1);
    scene.run().expect_code(0);
    let before = scene.lines();
    let refused = scene.resume(&[]).expect_code(2);
    assert!(refused.stderr.contains("is met already"), "{}", refused.stderr);
    assert_eq!(scene.lines(), before, "nothing was written");
    scene.provider.finish();
}

#[test]
fn what_is_no_session_is_refused_with_two() {
    let scene = killed(Scene::of(1));
    let long = "a".repeat(200);
    let id = scene.id();
    let newline = format!("{id}\n");
    for bad in ["../x", "a/b", ".hidden", "", &long, &newline, "..", "/etc", "-", " ", "\u{e9}"] {
        let refused = scene.sandbox.run(["run".to_owned(), format!("--resume={bad}")]).expect_code(2);
        assert!(refused.stderr.contains("no session id"), "{bad:?}: {}", refused.stderr);
    }
    let unknown = scene.sandbox.run(["run", "--resume", "session-19990101-000000-00000000"]).expect_code(2);
    assert!(unknown.stderr.contains("no session `session-19990101-000000-00000000`"), "{}", unknown.stderr);
    assert_eq!(scene.facts("run").len(), 1, "nothing was touched");
    scene.provider.finish();
}

#[test]
fn without_any_session_latest_says_so() {
    let sandbox = Sandbox::new();
    let refused = sandbox.run(["run", "--resume", "latest"]).expect_code(2);
    assert!(refused.stderr.contains("no saved sessions for"), "{}", refused.stderr);
    assert!(!sandbox.spettro_home().join("sessions").exists(), "nothing was made");
}

#[test]
fn a_run_without_resume_begins_anew_and_names_the_unfinished_one() {
    let scene = killed(Scene::of(1));
    let id = scene.id();
    scene.provider.allow_rewrite();
    let finished = scene.run().expect_code(0);
    assert_ne!(finished.result()["session_id"], id);
    assert!(finished.stderr.contains(&id), "{}", finished.stderr);
    let _ = scene.provider.take_problems();
}

#[test]
fn a_session_folder_of_ones_own_is_named_in_the_resume_command() {
    let script = Script::new().one_session().agent(worker(append)).judge(judge(2));
    let scene = Scene::new(script, "goal: Write.\nlimits: {iterations: 1}\n");
    let finished = scene.sandbox.run(["run", "--goal", "../goal.yaml", "--session-dir", "../own", "--json"]);
    let result = finished.expect_code(10).result();
    let mut resume: Vec<String> = serde_json::from_value(result["commands"]["resume"].clone()).expect("a command");
    resume.remove(0);
    resume.extend(["--max-iterations".to_owned(), "2".to_owned(), "--json".to_owned()]);
    // From another folder: the command works wherever it is run.
    let elsewhere = scene.sandbox.root().join("else/where");
    std::fs::create_dir_all(&elsewhere).expect("the sandbox is writable");
    let mut command = scene.sandbox.command(env!("CARGO_BIN_EXE_spettro"));
    command.args(&resume).current_dir(elsewhere);
    let again = scene.sandbox.start(command).wait(PATIENCE).expect_code(0).result();
    assert_eq!(again["session_id"], result["session_id"]);
    scene.provider.finish();
}

#[test]
fn a_run_ended_before_its_first_request_can_be_gone_on_with() {
    let scene =
        Scene::new(script(1), &format!("{GOAL}setup: [\"test -e go || {{ echo $$ >> pids; sleep 1000; }}\"]\n"));
    let running = scene.start();
    let pids = super::support::wait_for_pids(&scene, 1);
    running.kill();
    super::support::assert_dead(&pids);
    scene.sandbox.write("go", "");
    let finished = scene.resume(&[]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    scene.provider.finish();
}
