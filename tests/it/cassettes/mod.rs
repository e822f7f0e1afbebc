//! `spettro cassette` and `run --cassette`, at the binary.

mod files;
mod released;
mod schema;
mod verbs;

use std::path::PathBuf;

use serde_json::json;

use crate::goal::support::{Case, met};
use crate::provider::{Reply, Script};

/// A run that reads a file, fails once on the way to the server, and spools one output.
fn recorded() -> Case {
    let script = Script::new()
        .agent(Reply::error(529))
        .agent(Reply::call("file-read", json!({"path": "notes.txt"})).and_text("First I look."))
        .agent(Reply::bash("seq 1 30000; printf changed > notes.txt"))
        .agent(Reply::complete("done"))
        .judge(met());
    let case = Case::new(script, "goal: change the notes");
    case.sandbox.write("notes.txt", "as it was\n");
    case.sandbox.write("other.txt", "never touched\n");
    case
}

/// The session of a run that met its goal, packed as plain lines beside the workspace.
fn packed(case: &Case, name: &str) -> PathBuf {
    let file = case.sandbox.root().join(name);
    case.sandbox.run(["cassette", "pack", "latest", "-o", file.to_str().expect("a path")]).expect_code(0);
    file
}
