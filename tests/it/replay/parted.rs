//! Recordings that this build does not repeat: what was changed is named, and nothing else.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::support::{Recording, Replayed, replay};
use crate::provider::{Reply, Script};
use crate::sandbox::{Sandbox, json_lines};

fn recorded(steps_limit: u64) -> Recording {
    let script = Script::new()
        .agent(Reply::bash("echo hello"))
        .agent(Reply::call("bash", json!({"command": "seq 1 2000"})))
        .agent(Reply::text("Done."))
        .judge(Reply::verdict("met", "yes", "").forever());
    let recording = Recording::new(script, &format!("goal: x\nlimits: {{steps: {steps_limit}}}\n"));
    recording.run(0);
    recording
}

fn log(recording: &Recording) -> PathBuf {
    recording.sandbox.session_dir().join("session.jsonl")
}

/// Changes the lines of a log.
fn edit(path: &Path, change: impl Fn(&mut Value)) {
    let mut lines = json_lines(path);
    lines.iter_mut().for_each(change);
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(path, text).expect("written");
}

#[test]
fn another_output_of_a_command_is_named() {
    let recording = recorded(9);
    edit(&log(&recording), |line| {
        if line["kind"] == "command" && line["label"] == "echo hello" {
            line["output"]["bytes"] = json!("hallo\n");
        }
    });
    let replayed = recording.replay(&[]);
    replayed.first();
    let diverged = replayed.report["diverged"].as_array().expect("a list");
    let request = diverged.iter().find(|one| one["what"] == "requests").expect("a request differs");
    assert_eq!((&request["lane"], &request["call"]), (&json!("agent"), &json!(2)), "{request:#}");
    assert_eq!((&request["iteration"], &request["step"]), (&json!(1), &json!(2)), "{request:#}");
    assert_eq!(request["message"], 2, "after the goal and the reply: {request:#}");
    assert_eq!(request["pointer"], "/messages/2/content/0/content", "{request:#}");
    assert!(request["byte"].as_u64().is_some_and(|byte| byte > 0));
    assert_eq!(request["guess"], "tool_result", "{request:#}");
    assert_eq!(request["diff"], json!(["- hello", "+ hallo"]), "{request:#}");
    assert_eq!(replayed.standing("requests"), "diverged");
    assert_eq!(replayed.standing("tools"), "diverged");
    assert_eq!(replayed.standing("ledger"), "unverified", "what comes behind it was not compared");
}

#[test]
fn a_run_that_asks_once_more_and_one_that_stops_early() {
    let recording = recorded(3);
    let limit = |steps: u64| {
        edit(&log(&recording), |line| {
            if line["kind"] == "run" {
                line["limits"]["steps"] = json!(steps);
            }
        });
    };
    limit(2);
    let early = recording.replay(&[]);
    assert_eq!(early.first()["pointer"], "/limits", "{:#}", early.report);
    let said = early.report["diverged"].to_string();
    assert!(said.contains("recording has the"), "{said}");
    assert_eq!(early.report["steps"], 2);
    limit(3);
    recording.replay(&[]).expect_same();

    // A run that was ended by its limit, and has a larger one now.
    let script =
        Script::new().agent(Reply::bash("echo x").forever()).judge(Reply::verdict("unmet", "no", "").forever());
    let recording = Recording::new(script, "goal: x\nlimits: {steps: 2}\n");
    recording.run(10);
    edit(&log(&recording), |line| {
        if line["kind"] == "run" {
            line["limits"]["steps"] = json!(3);
        }
    });
    let more = recording.replay(&[]);
    assert_eq!(more.finished.code, Some(30), "{:#}", more.report);
}

#[test]
fn a_prompt_of_another_build_is_changed_not_diverged() {
    let recording = recorded(9);
    edit(&log(&recording), |line| {
        if line["kind"] == "frozen" {
            let system = line["system"].as_str().expect("text").replacen("coding agent", "careful agent", 1);
            line["system"] = json!(system);
        }
    });
    let replayed = recording.replay(&[]);
    assert_eq!(replayed.finished.code, Some(30));
    let changed = replayed.report["changed"].as_array().expect("a list");
    assert_eq!((&changed[0]["source"], &changed[0]["from_tape"]), (&json!("prompt"), &json!(false)));
    assert!(changed[0]["diff"].to_string().contains("careful agent"), "{changed:?}");
    assert_eq!(replayed.report.get("diverged"), None, "nothing was replayed");
    assert_eq!(replayed.report["steps"], 0);
    recording.replay(&["--from-tape", "prompt,tools"]).expect_same();
}

#[test]
fn tool_schemas_of_another_build_are_changed() {
    let recording = recorded(9);
    edit(&log(&recording), |line| {
        if line["kind"] == "frozen" {
            let head =
                line["heads"]["agent"].as_str().expect("text").replacen("\"name\":\"bash\"", "\"name\":\"bosh\"", 1);
            line["heads"]["agent"] = json!(head);
        }
    });
    let replayed = recording.replay(&[]);
    assert_eq!(replayed.finished.code, Some(30));
    assert_eq!(replayed.report["changed"][0]["source"], "tools", "{:#}", replayed.report);
}

#[test]
fn git_bisect_gets_its_own_codes() {
    let recording = recorded(9);
    let code = |recording: &Recording| {
        let dir = recording.sandbox.session_dir();
        Sandbox::new().run(["replay", dir.to_str().expect("UTF-8"), "--git-bisect"]).code
    };
    assert!(matches!(code(&recording), Some(0 | 125)));
    edit(&log(&recording), |line| {
        if line["kind"] == "command" && line["label"] == "echo hello" {
            line["output"]["bytes"] = json!("hallo\n");
        }
    });
    assert_eq!(code(&recording), Some(1));
    std::fs::write(log(&recording), "{}\n").expect("written");
    assert_eq!(code(&recording), Some(125));
}

#[test]
fn what_is_no_recording_is_said() {
    let sandbox = Sandbox::new();
    sandbox.run(["replay", "latest"]).expect_code(2);
    sandbox.run(["replay", "./nowhere.cassette.zst"]).expect_code(31);
    sandbox.write("x.cassette.jsonl", "hello\n");
    sandbox.run(["replay", "x.cassette.jsonl"]).expect_code(31);
    let recording = recorded(9);
    let text = std::fs::read_to_string(log(&recording)).expect("read");
    let broken = text.replacen("\"kind\":\"settled\"", "\"kind\":\"sett", 1);
    std::fs::write(log(&recording), broken).expect("written");
    let elsewhere = Sandbox::new();
    elsewhere.run(["replay", recording.sandbox.session_dir().to_str().expect("UTF-8")]).expect_code(31);
}

#[test]
fn a_recording_cut_anywhere_is_never_taken_for_another_run() {
    let recording = recorded(9);
    let text = std::fs::read_to_string(log(&recording)).expect("read");
    let lines: Vec<&str> = text.lines().collect();
    for count in (4..lines.len()).step_by(3) {
        let cut: String = lines[..count].iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(log(&recording), cut).expect("written");
        let replayed: Replayed = replay(&recording.sandbox.session_dir(), &[]);
        assert_eq!(replayed.report.get("diverged"), None, "{count} lines: {:#}", replayed.report);
        assert!(matches!(replayed.finished.code, Some(0 | 32)), "{count} lines: {:#}", replayed.report);
    }
}
