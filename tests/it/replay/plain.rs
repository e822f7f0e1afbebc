//! Runs that came to their end.

use serde_json::json;

use super::support::Recording;
use crate::provider::{Reply, Script, Wire};

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
}

#[test]
fn the_other_wire_too() {
    let recording = Recording::on(Wire::OpenAiChat, one_line(), "goal: Write a.txt.\n");
    recording.run(0);
    recording.replay(&[]).expect_same();
}
