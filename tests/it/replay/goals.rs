//! `--goal`: the goal file and its workspace as they are today, against the recorded ones.

use serde_json::{Value, json};

use super::support::{Recording, Replayed, really, refused};
use crate::provider::{Reply, Script};
use crate::sandbox::Sandbox;

const GOAL: &str = "goal: Write a.txt.\nlimits: {iterations: 3}\nchecks: ['test -f a.txt']\n";

fn recorded() -> Recording {
    let sandbox = Sandbox::new();
    sandbox.write("AGENTS.md", "Be brief.\n");
    let script = Script::new()
        .agent(Reply::bash("echo one > a.txt"))
        .agent(Reply::complete("done"))
        .judge(Reply::verdict("met", "yes", ""));
    let recording = Recording::in_place(sandbox, script, &format!("{GOAL}record: effects\n"));
    recording.run(0);
    recording
}

fn today(recording: &Recording, more: &[&str]) -> Replayed {
    let goal = recording.goal.to_str().expect("UTF-8");
    recording.replay(&[&["--goal", goal], more].concat())
}

/// The one part that is changed: nothing was replayed.
#[track_caller]
fn changed(replayed: &Replayed) -> Value {
    assert_eq!(replayed.finished.code, Some(30), "{:#}", replayed.report);
    assert_eq!(replayed.report["steps"], 0, "it ends before the first request");
    let parts = replayed.report["changed"].as_array().expect("a list");
    assert_eq!(parts.len(), 1, "{:#}", replayed.report);
    assert_eq!(parts[0]["from_tape"], false);
    parts[0].clone()
}

#[track_caller]
fn rewrite(recording: &Recording, from: &str, to: &str) {
    let text = recording.sandbox.read(&recording.goal);
    assert!(text.contains(from), "{text}");
    recording.sandbox.write(&recording.goal, text.replace(from, to));
}

#[test]
fn the_same_goal_is_the_same() {
    let recording = recorded();
    let replayed = today(&recording, &[]);
    replayed.expect_same();
    assert_eq!(replayed.finished.code, Some(0), "{:#}", replayed.report);
    assert_eq!(replayed.report.get("changed"), None);
}

#[test]
fn what_can_be_is_perturbed_beside_the_goal_of_today_and_the_rest_is_told() {
    let recording = recorded();
    let goal = recording.goal.to_str().expect("UTF-8");
    // The program that is started again replays, and starts nothing.
    let replayed = recording.replay(&["--goal", goal, "--perturb"]);
    replayed.expect_same();
    let variants = replayed.report["variants"].as_array().expect("a list");
    assert!(variants.iter().any(|one| one["what"] == "other variables" && one["agrees"] == true), "{variants:?}");
    let warnings = replayed.report["warnings"].as_array().expect("a list");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].as_str().is_some_and(|said| said.starts_with("`HOME` and `SPETTRO_HOME`")), "{warnings:?}");
}

#[test]
fn another_text_of_the_goal() {
    let recording = recorded();
    rewrite(&recording, "Write a.txt.", "Write b.txt.");
    let part = changed(&today(&recording, &[]));
    assert_eq!((&part["source"], &part["diff"]), (&json!("goal"), &json!(["- Write a.txt.", "+ Write b.txt."])));
    let replayed = today(&recording, &["--from-tape", "goal"]);
    replayed.expect_same();
    assert_eq!(replayed.report["changed"][0]["from_tape"], true);
    assert_eq!(replayed.finished.code, Some(0), "{:#}", replayed.report);
}

#[test]
fn another_configuration() {
    let recording = recorded();
    rewrite(&recording, "iterations: 3", "iterations: 4");
    let part = changed(&today(&recording, &[]));
    assert_eq!(part["source"], "config", "{part:#}");
    assert!(part["diff"].to_string().contains("iterations: 4"), "{part:#}");
    today(&recording, &["--from-tape", "config"]).expect_same();
}

#[test]
fn other_instructions_of_the_workspace() {
    let recording = recorded();
    recording.sandbox.write("AGENTS.md", "Be thorough.\n");
    // Without a goal file the session's own are used.
    recording.replay(&[]).expect_same();
    let part = changed(&today(&recording, &[]));
    assert_eq!((&part["source"], &part["which"]), (&json!("prompt"), &json!("instructions")), "{part:#}");
    assert!(part["diff"].to_string().contains("thorough"), "{part:#}");
    today(&recording, &["--from-tape", "prompt"]).expect_same();
}

#[test]
fn other_tools_are_two_parts() {
    let recording = recorded();
    rewrite(&recording, "limits:", "tools: {deny: [grep]}\nlimits:");
    let replayed = today(&recording, &[]);
    let sources: Vec<&Value> =
        replayed.report["changed"].as_array().expect("a list").iter().map(|part| &part["source"]).collect();
    assert_eq!(sources, ["config", "tools"], "{:#}", replayed.report);
    // One of them alone is not enough.
    assert_eq!(today(&recording, &["--from-tape", "config"]).finished.code, Some(30));
    today(&recording, &["--from-tape", "config,tools"]).expect_same();
}

#[test]
fn a_goal_of_another_name_is_another_goal() {
    let recording = recorded();
    rewrite(&recording, "goal: Write", "name: other\ngoal: Write");
    let goal = recording.goal.to_str().expect("UTF-8");
    let said = refused(&recording.sandbox.session_dir(), &["--goal", goal], 31);
    assert!(said.contains("`other`"), "{said}");
    refused(&recording.sandbox.session_dir(), &["--goal", goal, "--from-tape", "goal,config"], 31);
}

#[test]
fn a_goal_file_that_is_none_is_refused() {
    let recording = recorded();
    let dir = recording.sandbox.session_dir();
    refused(&dir, &["--goal", "/nonexistent/goal.yaml"], 2);
    let bad = recording.sandbox.write(recording.sandbox.root().join("bad.yaml"), "version: 1\ngoal: x\nlimts: {}\n");
    let said = refused(&dir, &["--goal", bad.to_str().expect("UTF-8")], 2);
    assert!(said.contains("limts"), "{said}");
    refused(&dir, &["--from-tape", "nothing"], 2);
}

#[test]
#[cfg(target_os = "linux")]
fn with_live_tools_too() {
    let recording = recorded();
    let goal = recording.goal.to_str().expect("UTF-8");
    let words = ["--goal", goal, "--tools", "live", "--trust"];
    let replayed = really(&recording.sandbox.session_dir(), &words);
    replayed.expect_same();
    assert_eq!(replayed.finished.code, Some(0), "{:#}", replayed.report);
}
