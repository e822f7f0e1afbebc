//! `--tools stub`: the recording alone, without a workspace.

use serde_json::json;

use super::support::{Recording, refused};
use crate::provider::{Reply, Script};

fn script() -> Script {
    Script::new()
        .agent(Reply::bash("echo one > a.txt").and_call("file-write", json!({"path": "b.txt", "content": "b"})))
        .agent(Reply::complete("done"))
}

#[test]
fn without_a_workspace_trees_and_the_judges_requests_are_unverified() {
    let recording = Recording::new(script().judge(Reply::verdict("met", "yes", "")), "goal: x\nrecord: effects\n");
    recording.run(0);
    let replayed = recording.replay(&["--tools", "stub"]);
    assert_eq!(replayed.finished.code, Some(32), "{:#}", replayed.report);
    assert_eq!(replayed.report["tools"], "stub");
    for what in ["trees", "files", "requests"] {
        assert_eq!(replayed.standing(what), "unverified", "{:#}", replayed.report);
    }
    for what in ["hints", "tools", "deliveries", "events", "ledger", "leftovers"] {
        assert_eq!(replayed.standing(what), "identical", "{:#}", replayed.report);
    }
    let requests = &replayed.report["compared"][0];
    assert_eq!((&requests["what"], &requests["count"]), (&json!("requests"), &json!(2)), "the agent's were compared");
    assert!(requests["why"].as_str().is_some_and(|why| why.contains("judge")), "{requests:#}");
}

#[test]
fn without_a_judge_only_the_workspace_is_unverified() {
    let recording = Recording::new(script(), "goal: x\njudge: off\nchecks: ['test -f a.txt']\n");
    recording.run(0);
    let replayed = recording.replay(&["--tools", "stub"]);
    replayed.expect_same();
    assert_eq!((replayed.standing("trees"), replayed.finished.code), ("unverified".to_owned(), Some(32)));
}

#[test]
fn a_judges_request_that_differs_is_no_divergence_and_an_agents_is() {
    let recording = Recording::new(script().judge(Reply::verdict("met", "yes", "")), "goal: x\n");
    recording.run(0);
    let file = super::sealed::packed(&recording);
    // What the recording says that the file tool gave goes to the agent, and to the judge.
    let changed = super::sealed::edited(&file, |line| {
        if line["kind"] == "message" && line["role"] == "tool" && line["tool"] == "bash" {
            line["text"] = json!("something else");
        }
        if line["kind"] == "command" && line["purpose"] == "tool" {
            line["output"] = json!({"bytes": "else\n", "head_bytes": 5});
        }
    });
    let replayed = super::support::replay(&changed, &["--tools", "stub"]);
    let first = replayed.first();
    assert!(first["lane"] == "agent" || first["what"] == "tools", "{:#}", replayed.report);
}

#[test]
fn a_word_that_is_none_is_refused() {
    let recording = Recording::new(script().judge(Reply::verdict("met", "yes", "")), "goal: x\n");
    recording.run(0);
    let said = refused(&recording.sandbox.session_dir(), &["--tools", "dead"], 2);
    assert!(said.contains("recorded") && said.contains("live") && said.contains("stub"), "{said}");
}
