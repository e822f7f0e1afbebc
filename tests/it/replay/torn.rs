//! Recordings that end before their run did: no divergence, and no pass.

use std::path::Path;

use serde_json::{Value, json};

use super::sealed::{packed, rewritten};
use super::support::{Recording, replay};
use crate::provider::{Reply, Script};
use crate::sandbox::{Sandbox, json_lines};

fn met() -> Reply {
    Reply::verdict("met", "yes", "")
}

fn recorded() -> Recording {
    let script = Script::new()
        .agent(Reply::bash("seq 1 3000"))
        .agent(Reply::call("tool-output", json!({"id": 1})))
        .agent(Reply::complete("done"))
        .judge(met());
    let recording = Recording::new(script, "goal: x\nchecks: ['true']\n");
    recording.run(0);
    recording
}

#[test]
fn a_file_that_breaks_off_is_equal_so_far() {
    let recording = recorded();
    let file = packed(&recording);
    let text = std::fs::read_to_string(&file).expect("text");
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let begun = lines.iter().position(|line| line.contains("\"kind\":\"run\"")).expect("a run");
    let cut = file.with_extension("cut.jsonl");
    for count in (begun + 1..lines.len()).step_by(4).chain([lines.len() - 1]) {
        std::fs::write(&cut, lines[..count].concat()).expect("written");
        let replayed = replay(&cut, &["--allow-incomplete"]);
        assert_eq!(replayed.report.get("diverged"), None, "{count} lines: {:#}", replayed.report);
        assert_eq!(replayed.finished.code, Some(32), "{count} lines: {:#}", replayed.report);
    }
    // What is there is compared all the same.
    let wire = lines.iter().rposition(|line| line.contains("\"type\":\"wire\"")).expect("a request");
    let other = lines[..=wire].concat().replace("\"estimate_tokens\":", "\"estimate_tokens\":1");
    std::fs::write(&cut, other).expect("written");
    assert_eq!(replay(&cut, &["--allow-incomplete"]).finished.code, Some(30));
}

#[test]
fn a_run_that_its_host_ended_is_no_divergence() {
    let recording = recorded();
    let file = packed(&recording);
    let all = json_lines(&file);
    let end = all.iter().find(|line| line["kind"] == "end").expect("an end");
    let base = |line: &&Value| {
        matches!(line["kind"].as_str(), Some("baseline" | "listing"))
            || line["kind"] == "command" && line["purpose"] == "check"
            || matches!(line["kind"].as_str(), Some("checks" | "progress")) && line["iteration"] == 0
    };
    for (n, baseline) in [(1, true), (2, true), (2, false)] {
        let broken = rewritten(&file, true, |lines| {
            let at = lines.iter().position(|line| line["kind"] == "call" && line["n"] == n).expect("a call");
            let mut end = end.clone();
            end["outcome"] = json!("environment");
            let result = &mut end["result"];
            (result["outcome"], result["exit_code"]) = (json!("environment"), json!(23));
            let facts = lines[..=at].iter().filter(|line| baseline || !base(line)).cloned().chain([end]);
            let wires = lines.iter().filter(|line| line["type"] == "wire" && line["lane"] == "agent");
            let wires = wires.filter(|line| line["n"].as_u64() < Some(n)).cloned();
            let rest =
                lines.iter().filter(|line| matches!(line["type"].as_str(), Some("base" | "blob" | "spool"))).cloned();
            let mut last = lines.last().expect("an end").clone();
            last["outcome"] = json!("environment");
            let tree = facts.clone().rfind(|line| line["kind"] == "progress").map(|line| line["workspace"].clone());
            last["tree"] = tree.unwrap_or_default();
            if last["tree"].is_null() {
                last.as_object_mut().expect("an object").shift_remove("tree");
            }
            *lines = facts.chain(wires).chain(rest).chain([last]).collect();
        });
        let replayed = replay(&broken, &[]);
        assert_eq!(replayed.report.get("diverged"), None, "{n}, {baseline}: {:#}", replayed.report);
        assert_eq!(replayed.finished.code, Some(32), "{n}, {baseline}: {:#}", replayed.report);
        let said = replayed.report["compared"].to_string();
        assert!(said.contains("the recording ends here"), "{said}");
    }
}

#[test]
fn a_run_for_which_a_recorded_model_had_no_reply_is_the_same_again() {
    let recording = recorded();
    let replies = recording.sandbox.root().join("replies.jsonl");
    let name = replies.to_str().expect("UTF-8");
    recording.sandbox.run(["cassette", "pack", "latest", "-o", name]).expect_code(0);
    let goal = format!("goal: x\nchecks: ['false']\nmodel: {{cassette: {name}}}\n");
    let goal = recording.sandbox.goal_without_model(&goal);
    recording.sandbox.run([Path::new("run"), Path::new("--goal"), &goal]).expect_code(31);
    recording.replay(&[]).expect_same();
}

#[test]
fn a_wire_log_that_lost_its_end_leaves_a_gap() {
    let script = Script::new()
        .agent(Reply::bash("echo one"))
        .agent(Reply::bash("echo two"))
        .agent(Reply::bash("echo three"))
        .agent(Reply::complete("done"))
        .judge(Reply::verdict("unmet", "no", "more").forever());
    let recording = Recording::new(script, "goal: x\nlimits: {steps: 2}\n");
    recording.run(10);
    let wire = recording.sandbox.session_dir().join("wire.jsonl");
    let text = std::fs::read_to_string(&wire).expect("text");
    let kept = text.split_inclusive('\n').next().expect("a line").len();
    std::fs::write(&wire, &text[..kept + 30]).expect("cut");
    recording.sandbox.run(["run", "--resume", "latest", "--max-steps", "3"]).expect_code(10);
    let lines = recording.sandbox.session_lines();
    assert!(lines.iter().any(|line| line["kind"] == "wire_cut" && line["bytes"] == kept), "it is written down");
    let written = std::fs::read_to_string(&wire).expect("text");
    assert!(written.len() > kept && written.starts_with(&text[..kept]), "what came later stands behind what was left");

    // Opened again, nothing of it is cut.
    recording.sandbox.run(["run", "--resume", "latest", "--max-steps", "4"]).expect_code(10);
    assert!(std::fs::read_to_string(&wire).expect("text").starts_with(&written));

    let check = |replayed: &super::support::Replayed| {
        assert_eq!(replayed.report.get("diverged"), None, "{:#}", replayed.report);
        assert_eq!(replayed.finished.code, Some(32), "{:#}", replayed.report);
        assert_eq!(replayed.report["steps"], 2, "up to the request whose reply is lost: {:#}", replayed.report);
        let said = replayed.report["compared"].to_string();
        assert!(said.contains("the reply to agent call 2 is not in it"), "{said}");
    };
    check(&recording.replay(&[]));
    let file = packed(&recording);
    check(&replay(&file, &[]));
    recording.sandbox.run([Path::new("cassette"), Path::new("verify"), &file]).expect_code(0);
    // Without the fact that says so the bytes are missing.
    let silent = rewritten(&file, true, |lines| lines.retain(|line| line["kind"] != "wire_cut"));
    Sandbox::new().run([Path::new("replay"), &silent]).expect_code(31);
}

#[test]
fn a_session_of_a_header_alone_holds_nothing() {
    let recording = recorded();
    let dir = recording.sandbox.session_dir();
    let log = dir.join("session.jsonl");
    let text = std::fs::read_to_string(&log).expect("text");
    std::fs::write(&log, text.split_inclusive('\n').next().expect("a header")).expect("written");
    let said = Sandbox::new().run([Path::new("replay"), &dir]).expect_code(31).stderr;
    assert!(said.contains("holds nothing") && !said.contains("pack"), "{said}");
}
