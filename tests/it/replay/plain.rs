//! Runs that came to their end.

use std::path::Path;

use serde_json::json;

use super::support::{Recording, replay};
use crate::compaction::support::{steps, summary};
use crate::provider::{Reply, Script, Wire};
use crate::sandbox::Sandbox;

fn one_line() -> Script {
    Script::new()
        .agent(Reply::text("I look first.").and_call("bash", json!({"command": "echo hello; echo one > a.txt"})))
        .agent(Reply::text("Done."))
        .judge(Reply::verdict("met", "the file is there", ""))
}

#[test]
fn a_run_is_the_same_again() {
    let recording = Recording::new(one_line(), "goal: Write a.txt.\nchecks: [{name: there, run: test -f a.txt}]\n");
    recording.run(0);
    let replayed = recording.replay(&[]);
    replayed.expect_same();
    assert_eq!(replayed.report["steps"], 2);
    assert_eq!(replayed.report["iterations"], 1);
    let requests = replayed.report["compared"][0].clone();
    assert_eq!((&requests["what"], &requests["count"]), (&json!("requests"), &json!(3)), "agent, agent, judge");
}

#[test]
fn the_other_wire_too() {
    let recording = Recording::on(Wire::OpenAiChat, one_line(), "goal: Write a.txt.\n");
    recording.run(0);
    recording.replay(&[]).expect_same();
}

#[test]
fn what_is_recorded_may_not_touch_the_host() {
    let root = Sandbox::new();
    let victim = root.write("precious.txt", "keep me");
    let command = format!("echo ran >> {}", victim.display());
    let script = Script::new()
        .agent(Reply::bash(&command))
        .agent(Reply::call("file-write", json!({"path": "b.txt", "content": "b"})))
        .agent(Reply::complete("done"))
        .judge(Reply::verdict("met", "yes", ""));
    // In a sandbox the run itself could not touch it.
    let recording = Recording::new(script, "goal: x\nsandbox: {files: off}\n");
    recording.run(0);
    assert_eq!(std::fs::read_to_string(&victim).expect("there"), "keep meran\n");
    recording.sandbox.sh("rm b.txt");
    recording.replay(&[]).expect_same();
    assert_eq!(std::fs::read_to_string(&victim).expect("there"), "keep meran\n", "no command ran again");
    assert!(!recording.sandbox.exists("b.txt"), "no file tool wrote there");
}

/// Three iterations with commits, a long output, looks at files, and lists of tasks.
fn three() -> Script {
    let unmet = || Reply::verdict("unmet", "no", "more");
    Script::new()
        .agent(Reply::bash("echo one >> a.txt; git add -A; git commit -qm one"))
        .agent(Reply::text("One."))
        .agent(
            Reply::call("file-read", json!({"path": "a.txt"}))
                .and_call("bash", json!({"command": "seq 1 3000"}))
                .and_call("grep", json!({"pattern": "one"}))
                .and_call("todo-write", json!({"todos": [{"content": "go on", "status": "pending"}]})),
        )
        .agent(Reply::call("tool-output", json!({"id": 2})))
        .agent(Reply::text("Two."))
        .agent(Reply::bash("git checkout -q -b side; echo three >> a.txt; git commit -qam three; echo x > new"))
        .agent(Reply::complete("all done"))
        .judge(unmet())
        .judge(unmet())
        .judge(Reply::verdict("met", "three lines", ""))
}

#[test]
fn three_iterations_in_a_repository() {
    let sandbox = Sandbox::new();
    sandbox.write("x.txt", "x\n");
    sandbox.git_init();
    let goal = "goal: Write a.txt.\nchecks: [{name: slow, run: 'sleep 0.05; seq 1 900; test -f a.txt'}]\n";
    let recording = Recording::in_place(sandbox, three(), goal);
    recording.run(0);
    let replayed = recording.replay(&[]);
    replayed.expect_same();
    assert_eq!(replayed.report["iterations"], 3);
}

#[test]
fn a_folder_inside_a_repository() {
    let sandbox = Sandbox::new();
    sandbox.write("sub/dir/x.txt", "x\n");
    sandbox.git_init();
    let inside = sandbox.workspace().join("sub/dir");
    let goal = format!("goal: Write a.txt.\nworkspace: {}\n", inside.display());
    let recording = Recording::in_place(sandbox, three(), &goal);
    recording.run(0);
    recording.replay(&[]).expect_same();
}

#[test]
fn jobs_end_where_they_did() {
    let lines = "for i in 1 2 3; do echo line $i; sleep 0.05; done";
    let script = Script::new()
        .agent(Reply::call("bash", json!({"command": lines, "run_in_background": true})))
        .agent(Reply::bash("sleep 0.1; echo x"))
        .agent(Reply::call("wait", json!({"job_id": "job-1", "timeout": 20})))
        .agent(
            Reply::call("job-output", json!({"job_id": "job-1"}))
                .and_call("bash", json!({"command": "sleep 100", "run_in_background": true})),
        )
        .agent(Reply::text("A turn ends with a job alive."))
        .agent(Reply::call("job-kill", json!({"job_id": "job-2"})))
        .agent(Reply::complete("done"))
        .judge(Reply::verdict("unmet", "no", "end the job"))
        .judge(Reply::verdict("met", "yes", ""));
    let recording = Recording::new(script, "goal: Jobs.\n");
    recording.run(0);
    let replayed = recording.replay(&[]);
    replayed.expect_same();
}

#[test]
fn failures_of_a_provider_are_left_out_or_come_again() {
    let script = Script::new()
        .agent(Reply::error(429).header("retry-after-ms", "20"))
        .agent(Reply::error(500).header("retry-after-ms", "20"))
        .agent(Reply::bash("echo one >> a.txt"))
        .agent(Reply::text("A longer text, which is cut off.").cut_after(300))
        .agent(Reply::refuse_connection())
        .agent(Reply::text("A longer text, which is reset: ä€𝄞.").reset().cut_after(420))
        .agent(Reply::complete("done"))
        .judge(Reply::text("I think so"))
        .judge(Reply::verdict("met", "yes", ""));
    let recording = Recording::new(script, "goal: x\n");
    recording.run(0);
    for how in [&[][..], &["--faults", "replay"], &["--chunks", "1"], &["--chunks", "rand:7"], &["--chunks", "whole"]] {
        recording.replay(how).expect_same();
    }
}

#[test]
fn compaction_comes_at_the_same_step_and_fails_the_same_way() {
    for (failing, steps_taken) in [(0, 45), (3, 60)] {
        let mut script = Script::new().allow_rewrite().agent(steps(steps_taken, 900));
        if failing > 0 {
            script = script.summarizer(Reply::text("no").forever());
        } else {
            script = script.summarizer(summary());
        }
        let script = script.judge(Reply::verdict("met", "yes", ""));
        let sandbox = Sandbox::new();
        let provider = script.key("sk-recorded-0123456789").start();
        let more = "limits: {steps: 600, steps_per_iteration: 600, cost: unlimited}\n";
        let model = sandbox.model_yaml(&provider, "test/model-1").replace("200000", "16000").replace("8192", "1024");
        let goal = sandbox.goal(&provider, &format!("goal: Count.\n{more}{model}"));
        let recording = Recording { sandbox, provider, goal };
        recording.run(0);
        let events = recording.sandbox.read(recording.sandbox.session_dir().join("events.jsonl"));
        assert!(events.contains("compaction.finished"), "the history was compacted");
        assert_eq!(events.contains("compaction.paused"), failing > 0);
        recording.replay(&[]).expect_same();
    }
}

#[test]
fn a_packed_session_replays_too() {
    let recording = Recording::new(one_line(), "goal: Write a.txt.\n");
    recording.run(0);
    let file = recording.sandbox.root().join("run.cassette.zst");
    let file = file.to_str().expect("UTF-8");
    recording.sandbox.run(["cassette", "pack", "latest", "-o", file]).expect_code(0);
    replay(Path::new(file), &[]).expect_same();
}

#[test]
fn many_times_and_under_other_circumstances() {
    let recording = Recording::new(three(), "goal: Write a.txt.\nworkspace_mode: in_place\n");
    recording.sandbox.git_init();
    recording.run(0);
    let replayed = recording.replay(&["--times", "2", "--perturb"]);
    replayed.expect_same();
    let variants = replayed.report["variants"].as_array().expect("a list");
    assert!(variants.len() > 2, "{variants:?}");
}
