//! What of the recorded workspace is written by a replay: what a tool for files may come to, and nothing else.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::{Value, json};

use super::support::{Recording, Replayed};
use crate::provider::{Reply, Script};
use crate::sandbox::{PATIENCE, Sandbox, json_lines};

fn repository() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("src/a.txt", "one\n");
    sandbox.write("src/b.txt", "two\n");
    sandbox.write("old/c.txt", "three\n");
    sandbox.write(".gitignore", "*.log\n");
    sandbox.git_init();
    sandbox
}

fn recorded(agent: impl IntoIterator<Item = Reply>) -> Recording {
    let script = agent.into_iter().fold(Script::new(), Script::agent);
    let script = script.agent(Reply::complete("done")).judge(Reply::verdict("met", "yes", ""));
    let recording = Recording::in_place(repository(), script, "goal: x\nrecord: effects\n");
    recording.run(0);
    recording
}

#[track_caller]
fn expect_all(replayed: &Replayed) {
    replayed.expect_same();
    assert_eq!(replayed.standing("trees"), "identical", "{:#}", replayed.report);
    assert_eq!(replayed.standing("files"), "identical", "{:#}", replayed.report);
}

/// The files that a replay makes in its scratch workspace, as the kernel saw it; `None` where nobody can see it.
fn written(recording: &Recording) -> Option<BTreeSet<String>> {
    if !Command::new("strace").arg("true").output().is_ok_and(|output| output.status.success()) {
        println!("skipped: no strace here, or it may not trace");
        return None;
    }
    let elsewhere = Sandbox::new();
    let trace = elsewhere.root().join("trace");
    let mut command = elsewhere.command("strace");
    command.args(["-f", "-s", "300", "-e", "trace=openat,open,symlink,symlinkat,rename,renameat", "-o"]);
    command.arg(&trace).arg(env!("CARGO_BIN_EXE_spettro")).arg("replay").arg(recording.sandbox.session_dir());
    elsewhere.start(command).wait(PATIENCE).expect_code(0);
    let calls = elsewhere.read(&trace);
    let made = calls.lines().filter(|line| line.contains("O_CREAT") || line.contains("symlink"));
    let inside = made.filter_map(|line| Some(line.split_once("/workspace/")?.1.split_once('"')?.0.to_owned()));
    Some(inside.filter(|path| !path.starts_with(".git/")).collect())
}

fn paths(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|&path| path.to_owned()).collect()
}

#[test]
fn what_nobody_looks_at_is_written_nowhere() {
    let busy =
        || Reply::bash("echo more >> src/a.txt; mkdir new; echo new > new/d.txt; rm -r old; ln -s src/b.txt link");
    let recording = recorded([busy()]);
    expect_all(&recording.replay(&[]));
    if let Some(written) = written(&recording) {
        assert_eq!(written, paths(&[]));
    }
    let recording = recorded([busy(), Reply::call("file-read", json!({"path": "src/a.txt"}))]);
    expect_all(&recording.replay(&[]));
    if let Some(written) = written(&recording) {
        assert_eq!(written, paths(&[".gitignore", "src/a.txt"]));
    }
    let recording = recorded([busy(), Reply::call("grep", json!({"pattern": "n", "path": "src"}))]);
    expect_all(&recording.replay(&[]));
    if let Some(written) = written(&recording) {
        assert_eq!(written, paths(&[".gitignore", "src/a.txt", "src/b.txt"]));
    }
}

#[test]
fn whoever_looks_sees_what_was_recorded_until_then() {
    let recording = recorded([
        Reply::call("file-read", json!({"path": "src/a.txt"})),
        // What was looked at changes, goes, becomes a folder, and comes back.
        Reply::bash(
            "echo more >> src/a.txt; rm src/b.txt; mkdir src/b.txt; echo deep > src/b.txt/e; echo '*.tmp' >> .gitignore",
        ),
        Reply::call("file-read", json!({"path": "src/a.txt"}))
            .and_call("file-read", json!({"path": "src/b.txt/e"}))
            .and_call("file-read", json!({"path": "src/b.txt"}))
            .and_call("file-write", json!({"path": "src/x.tmp", "content": "ignored\n"}))
            .and_call("grep", json!({"pattern": "e", "path": "src"})),
        Reply::bash("rm -r src/b.txt old; echo back > src/b.txt; ln -s src/b.txt link; chmod +x src/a.txt"),
        Reply::call("file-read", json!({"path": "link"}))
            .and_call("file-edit", json!({"path": "src/b.txt", "old_string": "back", "new_string": "there"}))
            .and_call("glob", json!({"path": "."}))
            .and_call("glob", json!({"pattern": "**/*"}))
            .and_call("grep", json!({"pattern": "."})),
    ]);
    let replayed = recording.replay(&["--perturb"]);
    expect_all(&replayed);
    let files = replayed.report["compared"].as_array().expect("a list").iter().find(|one| one["what"] == "files");
    assert_eq!(files.expect("compared")["count"], 11, "{:#}", replayed.report);
}

#[test]
fn another_content_of_an_effect_is_found_though_nobody_looks() {
    let recording = recorded([Reply::bash("echo more >> src/a.txt")]);
    expect_all(&recording.replay(&[]));
    let path = recording.sandbox.session_dir().join("session.jsonl");
    let mut lines = json_lines(&path);
    let effects: Vec<&mut Value> = lines.iter_mut().filter(|line| line["kind"] == "effects").collect();
    for line in effects {
        line["files"][0]["after"]["content"] = json!("one\nless\n");
    }
    std::fs::write(&path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).expect("written");
    let replayed = recording.replay(&[]);
    assert_eq!(replayed.standing("trees"), "diverged", "{:#}", replayed.report);
    assert_eq!(replayed.finished.code, Some(30));
}

#[test]
fn what_a_tool_lets_be_ignored_is_followed_without_recorded_effects() {
    for (more, standing) in [(Some("old"), "identical"), (None, "unverified")] {
        let ignore = Script::new()
            .agent(Reply::call("file-read", json!({"path": ".gitignore"})))
            .agent(Reply::call("file-write", json!({"path": ".gitignore", "content": "old\n"})));
        // What a tool has looked for is in the recording.
        let looks = [more, Some("src")].into_iter().flatten();
        let looks = looks.fold(ignore, |script, path| {
            script.agent(Reply::call("grep", json!({"pattern": "nothing of that kind", "path": path})))
        });
        let script = looks.agent(Reply::complete("done")).judge(Reply::verdict("met", "yes", ""));
        let recording = Recording::in_place(repository(), script, "goal: x\n");
        recording.run(0);
        let replayed = recording.replay(&[]);
        replayed.expect_same();
        assert_eq!(replayed.standing("trees"), standing, "{:#}", replayed.report);
        assert_eq!(replayed.standing("files"), "identical", "{:#}", replayed.report);
    }
}

#[test]
fn whether_an_empty_folder_is_left_is_not_recorded() {
    for (command, standing) in [("rm -r old", "identical"), ("rm old/c.txt", "unverified")] {
        let recording = recorded([
            Reply::bash(command),
            Reply::call("glob", json!({"path": "."})).and_call("grep", json!({"pattern": "o"})),
        ]);
        let replayed = recording.replay(&[]);
        replayed.expect_same();
        assert_eq!(replayed.standing("trees"), "identical", "{:#}", replayed.report);
        assert_eq!(replayed.standing("files"), standing, "{:#}", replayed.report);
    }
}
