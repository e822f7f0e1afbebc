//! What guards of the workspace found stands in the recording: put back, told, and ended the run at the same place.

use serde_json::Value;

use super::support::Recording;
use crate::provider::{Reply, Script};
use crate::sandbox::{Sandbox, json_lines};

fn repository() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("README", "a project");
    sandbox.write("tests/a", "1\n");
    sandbox.git_init();
    sandbox
}

/// An agent that does these things, one turn each.
fn turns(all: &[&str]) -> Script {
    let script = all
        .iter()
        .fold(Script::new(), |script, command| script.agent(Reply::bash(command)).agent(Reply::complete("done")));
    let script = (1..all.len()).fold(script, |script, _| script.judge(Reply::verdict("unmet", "no", "more")));
    script.judge(Reply::verdict("met", "yes", ""))
}

fn guarded(recording: &Recording) -> Vec<Value> {
    let mut lines = json_lines(&recording.sandbox.session_dir().join("session.jsonl"));
    lines.retain(|line| line["kind"] == "guarded");
    lines
}

#[test]
fn what_was_put_back_once_is_told_at_the_same_place() {
    let recording = Recording::in_place(
        repository(),
        turns(&["git config core.fsmonitor ./x", "git config user.email me@example.org"]),
        "goal: x\n",
    );
    recording.run(0);
    assert_eq!(guarded(&recording).len(), 1, "ordinary settings are nothing");
    recording.replay(&[]).expect_same();
}

#[test]
fn a_repository_that_the_agent_made_is_none_at_the_start_of_a_replay() {
    let sandbox = Sandbox::new();
    let script = turns(&["git init -q . && git config alias.x '!id'", "echo x"]);
    let recording = Recording::in_place(sandbox, script, "goal: x\n");
    recording.run(0);
    assert_eq!(guarded(&recording).len(), 1);
    recording.replay(&[]).expect_same();
}

#[test]
fn the_second_time_ends_the_replay_as_it_ended_the_run() {
    let hook = "echo exit > .git/hooks/post-commit; chmod +x .git/hooks/post-commit";
    let script = turns(&["git config core.fsmonitor ./x", hook]);
    let recording = Recording::in_place(repository(), script, "goal: x\nlimits: {stall: 9}\n");
    recording.run(16);
    assert_eq!(guarded(&recording).len(), 2);
    recording.replay(&[]).expect_same();
}

#[test]
fn a_protected_file_ends_the_replay_as_it_ended_the_run() {
    let recording =
        Recording::in_place(repository(), turns(&["true", "echo 2 > tests/a"]), "goal: x\nprotect: [tests]\n");
    recording.run(16);
    assert_eq!(guarded(&recording)[0]["guard"], "protected");
    recording.replay(&[]).expect_same();
}

#[test]
fn what_was_found_at_the_very_end_is_in_the_recording_too() {
    let script = Script::new().agent(Reply::bash("git config alias.x '!id'")).agent(Reply::text("…").stall());
    let recording = Recording::in_place(repository(), script, "goal: x\nlimits: {time: 2s}\n");
    recording.run(14);
    assert_eq!(guarded(&recording).len(), 1);
    recording.replay(&[]).expect_same();
}

#[test]
fn outputs_are_numbered_as_they_came_and_written_once() {
    // Each is longer than what stands in the log itself; the last one failed, and says so behind it.
    let script = Script::new()
        .agent(Reply::bash("seq 1 2000"))
        .agent(Reply::bash("seq 2 2001; exit 3"))
        .agent(Reply::complete("done"))
        .judge(Reply::verdict("met", "yes", ""));
    let recording = Recording::in_place(repository(), script, "goal: x\nchecks: ['seq 3 2002']\n");
    recording.run(0);
    let spool = recording.sandbox.session_dir().join("spool");
    let whole = |from: u64| (from..from + 2000).map(|n| format!("{n}\n")).collect::<String>();
    let read = |id: u64| std::fs::read_to_string(spool.join(id.to_string())).expect("an output");
    // The check runs before the first turn, and after it.
    let mut found = vec![read(1), read(2), read(3), read(4)];
    found.sort();
    let mut right = vec![whole(1), format!("{}[exit status 3]", whole(2)), whole(3), whole(3)];
    right.sort();
    assert_eq!(found, right);
    assert!(!spool.join("5").exists(), "nothing is there twice");
    recording.replay(&[]).expect_same();
}
