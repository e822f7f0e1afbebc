//! The workspace of a replay: what tools for files give and do in it, and whether it becomes what was recorded.

use serde_json::{Value, json};

use super::support::{Recording, Replayed, replay};
use crate::provider::{Reply, Script};
use crate::sandbox::{PATIENCE, Sandbox, json_lines};

fn met() -> Reply {
    Reply::verdict("met", "yes", "")
}

/// A repository with a few files.
fn repository() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("src/a.txt", "one\n");
    sandbox.write("src/b.txt", "two\n");
    sandbox.write(".gitignore", "ignored\n");
    sandbox.git_init();
    sandbox
}

/// Two iterations: commands, checks and tools for files that all change something.
fn busy() -> Script {
    Script::new()
        .agent(Reply::bash(
            "echo three >> src/a.txt; rm src/b.txt; ln -s a.txt src/link; echo x > run.sh; chmod +x run.sh",
        ))
        .agent(
            Reply::call("file-read", json!({"path": "src/a.txt"}))
                .and_call("file-edit", json!({"path": "src/a.txt", "old_string": "three", "new_string": "drei"}))
                .and_call("file-write", json!({"path": "new/c.txt", "content": "four\n"}))
                .and_call("grep", json!({"pattern": "drei"}))
                .and_call("glob", json!({"pattern": "**/*.txt"})),
        )
        .agent(Reply::text("One."))
        .agent(Reply::bash("git add -A; git commit -qm all; mv new newer; echo y > ignored"))
        .agent(Reply::call("file-read", json!({"path": "newer/c.txt"})))
        .agent(Reply::complete("done"))
        .judge(Reply::verdict("unmet", "no", "more"))
        .judge(met())
}

const CHECKS: &str = "checks: [{name: counts, run: 'echo run >> counted.log'}]\n";

fn compared(replayed: &Replayed, what: &str) -> Value {
    let all = replayed.report["compared"].as_array().expect("a list");
    all.iter().find(|one| one["what"] == what).cloned().expect("compared")
}

#[track_caller]
fn expect_all(replayed: &Replayed) {
    replayed.expect_same();
    assert_eq!(replayed.standing("trees"), "identical", "{:#}", replayed.report);
    assert_eq!(replayed.standing("files"), "identical", "{:#}", replayed.report);
    assert_eq!(replayed.finished.code, Some(0), "{:#}", replayed.report);
}

fn edit(recording: &Recording, change: impl Fn(&mut Value)) {
    let path = recording.sandbox.session_dir().join("session.jsonl");
    let mut lines = json_lines(&path);
    lines.iter_mut().for_each(change);
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(path, text).expect("written");
}

#[test]
fn with_recorded_effects_a_workspace_that_changes_is_followed_to_its_end() {
    let recording = Recording::in_place(repository(), busy(), &format!("goal: x\nrecord: effects\n{CHECKS}"));
    recording.run(0);
    let replayed = recording.replay(&["--perturb"]);
    expect_all(&replayed);
    assert_eq!(compared(&replayed, "files")["count"], 6, "{:#}", replayed.report);
    // The baseline, two iterations, and the end.
    assert_eq!(compared(&replayed, "trees")["count"], 4, "{:#}", replayed.report);

    let file = recording.sandbox.root().join("run.cassette.zst");
    let name = file.to_str().expect("UTF-8");
    recording.sandbox.run(["cassette", "pack", "latest", "-o", name]).expect_code(0);
    expect_all(&replay(&file, &[]));
}

#[test]
fn the_flag_records_them_too_and_a_word_that_is_none_is_refused() {
    let recording = Recording::new(busy(), "goal: x\n");
    let goal = recording.goal.to_str().expect("UTF-8");
    recording.sandbox.run(["run", "--goal", goal, "--record", "everything"]).expect_code(2);
    recording.sandbox.spawn(["run", "--goal", goal, "--record", "effects"]).wait(PATIENCE);
    let lines = json_lines(&recording.sandbox.session_dir().join("session.jsonl"));
    assert!(lines.iter().any(|line| line["kind"] == "effects"));
    expect_all(&recording.replay(&[]));
}

#[test]
fn without_them_only_what_commands_did_is_in_doubt() {
    let script = || {
        Script::new()
            .agent(Reply::call("file-write", json!({"path": "src/c.txt", "content": "c\n"})))
            .agent(Reply::call("file-read", json!({"path": "src/c.txt"})))
            .agent(Reply::text("One."))
    };
    let unmet = || Reply::verdict("unmet", "no", "more");
    let files_alone = script().agent(Reply::complete("done")).judge(unmet()).judge(met());
    let recording = Recording::in_place(repository(), files_alone, "goal: x\n");
    recording.run(0);
    expect_all(&recording.replay(&[]));

    let command = script().agent(Reply::bash("echo d > src/d.txt")).agent(Reply::complete("done"));
    let recording = Recording::in_place(repository(), command.judge(unmet()).judge(met()), "goal: x\n");
    recording.run(0);
    let replayed = recording.replay(&[]);
    replayed.expect_same();
    let trees = compared(&replayed, "trees");
    assert_eq!((&trees["standing"], &trees["count"]), (&json!("unverified"), &json!(2)), "{:#}", replayed.report);
    assert!(trees["why"].as_str().is_some_and(|why| why.contains("record: effects")), "{trees:#}");
    assert_eq!(replayed.standing("files"), "identical", "before the command all was known");
    assert_eq!(replayed.finished.code, Some(32));
}

#[test]
fn another_effect_is_another_workspace() {
    let recording = Recording::in_place(repository(), busy(), "goal: x\nrecord: effects\n");
    recording.run(0);
    edit(&recording, |line| {
        if line["kind"] == "effects"
            && let Some(files) = line["files"].as_array_mut()
        {
            files.retain(|file| file["path"] != "run.sh");
        }
    });
    let replayed = recording.replay(&[]);
    assert_eq!(replayed.standing("trees"), "diverged", "{:#}", replayed.report);
    assert_eq!(replayed.finished.code, Some(30));
}

#[test]
fn another_result_of_a_tool_for_files_is_named() {
    let script = Script::new()
        .agent(Reply::call("file-read", json!({"path": "src/a.txt"})))
        .agent(Reply::complete("done"))
        .judge(met());
    let recording = Recording::in_place(repository(), script, "goal: x\n");
    recording.run(0);
    expect_all(&recording.replay(&[]));
    edit(&recording, |line| {
        if line["kind"] == "message" && line["role"] == "tool" {
            line["text"] = json!(line["text"].as_str().expect("text").replace("one", "eins"));
        }
    });
    let replayed = recording.replay(&[]);
    assert_eq!(replayed.standing("files"), "diverged", "{:#}", replayed.report);
    let first = replayed.first();
    assert_eq!(first["what"], "files", "{:#}", replayed.report);
    assert!(first["diff"].to_string().contains("eins"), "{first:#}");
}

#[test]
fn what_is_not_in_the_recording_is_unverified() {
    let ignored = Script::new()
        .agent(Reply::call("file-read", json!({"path": "ignored"})))
        .agent(Reply::complete("done"))
        .judge(met());
    let sandbox = repository();
    sandbox.write("ignored", "secret plans\n");
    let recording = Recording::in_place(sandbox, ignored, "goal: x\nrecord: effects\n");
    recording.run(0);
    let replayed = recording.replay(&[]);
    replayed.expect_same();
    let files = compared(&replayed, "files");
    assert_eq!(files["standing"], "unverified", "{:#}", replayed.report);
    assert!(files["why"].as_str().is_some_and(|why| why.contains("`ignored`")), "{files:#}");
    assert_eq!(replayed.finished.code, Some(32));
}

#[test]
fn a_look_while_a_job_writes_is_unverified() {
    let script = Script::new()
        .agent(Reply::call(
            "bash",
            json!({
                "command": "while ! test -e go; do sleep 0.02; done; echo more > src/more.txt; touch wrote; sleep 100",
                "run_in_background": true
            }),
        ))
        .agent(Reply::call("file-write", json!({"path": "go", "content": ""})))
        .agent(Reply::call("wait", json!({"timeout": 1})))
        .agent(Reply::call("grep", json!({"pattern": "more"})))
        .agent(Reply::call("job-kill", json!({"job_id": "job-1"})))
        .agent(Reply::complete("done"))
        .judge(met());
    let recording = Recording::in_place(repository(), script, "goal: x\nrecord: effects\n");
    recording.run(0);
    let replayed = recording.replay(&[]);
    replayed.expect_same();
    let files = compared(&replayed, "files");
    assert_eq!((&files["standing"], &files["why"]), (&json!("unverified"), &json!("a job was running")), "{files:#}");
    assert_eq!(replayed.standing("trees"), "identical", "at its end all is recorded: {:#}", replayed.report);
}

#[test]
fn a_secret_in_a_file_is_not_in_the_effects() {
    let sandbox = repository();
    sandbox.set("MY_API_KEY", "hush-hush-0123456789");
    let script = Script::new()
        .agent(Reply::call("file-write", json!({"path": "src/key.txt", "content": "plain\n"})))
        .agent(Reply::bash("printf 'hush-hush-%s' 0123456789 > src/key.txt"))
        .agent(Reply::complete("done"))
        .judge(met());
    let recording = Recording::in_place(sandbox, script, "goal: x\nrecord: effects\n");
    recording.run(0);
    assert_eq!(recording.sandbox.read("src/key.txt"), "hush-hush-0123456789");
    let log = recording.sandbox.session_dir().join("session.jsonl");
    assert!(!std::fs::read_to_string(&log).expect("read").contains("hush-hush-0123456789"));
    expect_all(&recording.replay(&[]));
}
