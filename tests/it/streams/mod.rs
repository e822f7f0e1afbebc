//! Streams, terminals, files and folders that fail: the run goes on, or says why not.

mod files;
mod pipes;
mod places;

use std::process::Command;

use crate::provider::{Provider, Reply, Script};
use crate::sandbox::{Finished, PATIENCE, Sandbox};

/// A goal of one iteration with one command, and its provider.
fn goal(sandbox: &Sandbox) -> Provider {
    let provider = Script::new()
        .agent(Reply::text("Looking.").and_call("bash", serde_json::json!({"command": "echo made > made.txt"})))
        .agent(Reply::text("It is made."))
        .judge(Reply::verdict("met", "the file is there", ""))
        .start();
    sandbox.goal(&provider, "goal: Make a file.\n");
    provider
}

/// Runs a shell script in which `$SPETTRO` is the binary.
fn shell(sandbox: &Sandbox, script: &str) -> Finished {
    sandbox.start(shell_command(sandbox, script)).wait(PATIENCE)
}

fn shell_command(sandbox: &Sandbox, script: &str) -> Command {
    let mut command = sandbox.command("bash");
    command.args(["-c", script]).env("SPETTRO", env!("CARGO_BIN_EXE_spettro"));
    command
}

/// The run came to its end, with its result on disk.
#[track_caller]
fn assert_met(sandbox: &Sandbox) {
    let result: serde_json::Value =
        serde_json::from_str(&sandbox.read(sandbox.session_dir().join("result.json"))).expect("a result");
    assert_eq!((&result["state"], &result["outcome"]), (&"finished".into(), &"met".into()), "{result}");
    assert_eq!(sandbox.read("made.txt"), "made\n");
}

/// A test that needs something this machine lacks says so.
fn skipped(why: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}
