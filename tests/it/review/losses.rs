//! What disappears under a run, and under a session that is gone on with.

use spettro::event::Outcome;

use crate::goal::support::{Case, met, unmet};
use crate::provider::{Reply, Script};

#[test]
fn a_workspace_that_is_removed_ends_the_run() {
    let script = Script::new().agent(Reply::bash("rm -rf \"$PWD\"")).agent(Reply::complete("done"));
    // In the sandbox the folder itself cannot be removed, only what is in it.
    let case = Case::new(script, "goal: x\nchecks: ['true']\nsandbox: {files: off}");
    let ended = case.run().expect(Outcome::Environment);
    assert!(ended.error().contains("workspace"), "{}", ended.error());
    case.provider.finish();
}

#[test]
fn a_session_folder_that_is_removed_is_policy_and_the_result_is_still_given() {
    let script = Script::new().agent(Reply::bash("sleep 0.3")).agent(Reply::complete("done"));
    let case = Case::new(script, "goal: x");
    let goal = case.goal.to_str().expect("a path");
    let out = case.sandbox.root().join("out.json");
    let running = case.sandbox.spawn(["run", goal, "--output-format", "jsonl", "-o", out.to_str().expect("a path")]);
    running.wait_for_stdout("\"tool.started\"", crate::sandbox::PATIENCE);
    // The run writes there meanwhile, so that a first try may find the folder not empty.
    let folder = case.sandbox.session_dir();
    while folder.exists() {
        let _ = std::fs::remove_dir_all(&folder);
    }
    let finished = running.wait(crate::sandbox::PATIENCE).expect_code(16);
    let result: serde_json::Value = serde_json::from_str(&case.sandbox.read(&out)).expect("JSON");
    assert_eq!((result["outcome"].as_str(), result["exit_code"].as_u64()), (Some("policy"), Some(16)));
    assert!(!finished.stderr.contains("panicked"), "{}", finished.stderr);
    let _ = case.provider.take_problems();
}

#[test]
fn a_copy_that_is_gone_is_not_made_anew() {
    let script = Script::new().agent(Reply::bash("echo work > done")).agent(Reply::text("a")).judge(unmet("no"));
    let case = Case::new(script, "goal: x\nworkspace_mode: copy\nlimits: {iterations: 1}");
    let ended = case.run().expect(Outcome::Unmet);
    let copy = ended.result.paths.as_ref().and_then(|paths| paths.copy.clone()).expect("a copy");
    std::fs::remove_dir_all(&copy).expect("it is there");
    let finished = case.sandbox.run(["run", "--resume", "latest", "--max-iterations", "2", "--json"]).expect_code(31);
    assert!(finished.stderr.contains("is gone"), "{}", finished.stderr);
    assert!(!std::path::Path::new(&copy).exists());
    case.provider.finish();
}

#[test]
fn a_workspace_that_is_gone_is_said_on_resume() {
    let script = Script::new().agent(Reply::text("a")).judge(unmet("no"));
    let case = Case::new(script, "goal: x\nlimits: {iterations: 1}");
    let ended = case.run().expect(Outcome::Unmet);
    std::fs::remove_dir_all(case.sandbox.workspace()).expect("it is there");
    let id = ended.result.session_id.as_deref().expect("a session");
    let mut command = case.sandbox.command(env!("CARGO_BIN_EXE_spettro"));
    command.args(["run", "--resume", id, "--json"]).current_dir(case.sandbox.root());
    let finished = case.sandbox.start(command).wait(crate::sandbox::PATIENCE).expect_code(2);
    assert!(finished.stderr.contains("does not exist"), "{}", finished.stderr);
    assert_eq!(finished.result()["outcome"], "usage");
    case.provider.finish();
}

#[test]
fn a_resume_without_its_key_is_auth_and_harms_nothing() {
    let script = Script::new().key("the-key-12345").agent(Reply::text("a")).judge(unmet("no"));
    let case = Case::new(script, "goal: x\nlimits: {iterations: 1}");
    let ended = case.run().expect(Outcome::Unmet);
    let before = ended.facts("end").len();
    case.sandbox.unset(crate::sandbox::KEY_VARIABLE);
    case.sandbox.run(["run", "--resume", "latest", "--max-iterations", "2"]).expect_code(20);
    assert_eq!(ended.facts("end").len(), before);
    case.sandbox.set(crate::sandbox::KEY_VARIABLE, "the-key-12345");
    case.provider.push(crate::provider::Lane::Agent, Reply::complete("done"));
    case.provider.push(crate::provider::Lane::Judge, met());
    case.resume(&ended, &["--max-iterations", "2"]).expect(Outcome::Met);
    case.provider.finish();
}

#[test]
fn a_resume_in_another_workspace_is_said() {
    let script = Script::new().agent(Reply::text("a")).judge(unmet("no")).agent(Reply::text("b")).judge(unmet("no"));
    let case = Case::new(script, "goal: x\nlimits: {iterations: 1}");
    let ended = case.run().expect(Outcome::Unmet);
    std::fs::create_dir(case.sandbox.root().join("other")).expect("a folder");
    let again = case.resume(&ended, &["--workspace", "../other", "--max-iterations", "2"]).expect(Outcome::Unmet);
    assert!(again.finished.stdout.contains("goes on in"), "{}", again.finished.stdout);
    assert!(!ended.finished.stdout.contains("goes on in"));
    case.provider.finish();
}
