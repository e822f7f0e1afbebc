//! What would make a run wait for ever: pipes and files without end where it looks, and readers that take nothing.

use serde_json::Value;
use spettro::event::Outcome;

use crate::goal::support::{Case, content, met};
use crate::provider::{Reply, Script};
use crate::sandbox::{PATIENCE, Sandbox};

#[test]
fn pipes_in_the_place_of_ignore_files_are_not_waited_for() {
    let script = Script::new()
        .agent(Reply::bash("mkdir d; mkfifo d/.gitignore .ignore; echo x > d/file"))
        .agent(Reply::call("glob", serde_json::json!({"pattern": "**/file"})))
        .agent(Reply::complete("done"))
        .judge(met());
    let case = Case::new(script, "goal: x\nlimits: {time: 40s}");
    case.run().expect(Outcome::Met);
    assert!(case.provider.agent_requests()[2].tool_results()[0].text.contains("d/file"));
    case.provider.finish();
}

#[test]
fn a_protected_file_without_end_is_told_without_reading_it() {
    let sandbox = Sandbox::new();
    sandbox.write("data.bin", "1");
    let script = Script::new().agent(Reply::bash("truncate -s 3T data.bin")).agent(Reply::complete("done"));
    let case = Case::within(sandbox, script, "goal: x\nprotect: [data.bin]\nlimits: {time: 40s}");
    let ended = case.run().expect(Outcome::Policy);
    assert!(ended.error().contains("data.bin"), "{}", ended.error());
    case.provider.finish();
}

/// Starts a run whose stdout is a pipe that is full and that nobody reads, does `then` once its session is there, and
/// gives its exit code and its result.
fn unread(limits: &str, then: &str) -> (String, Value) {
    let sandbox = Sandbox::new();
    let provider = content().start();
    sandbox.goal(&provider, &format!("goal: x\n{limits}"));
    let script = format!(
        "mkfifo ../out; exec 9<>../out; dd if=/dev/zero of=../out bs=4096 count=16 2>/dev/null
        \"$SPETTRO\" run --goal ../goal.yaml --output-format jsonl -o ../own.json >../out 2>../err 9>&- & runner=$!
        until [ -e ../home/.spettro/sessions/*/*/session.jsonl ]; do sleep 0.02; done
        {then}
        wait $runner; echo $? >../code"
    );
    let mut command = sandbox.command("bash");
    command.args(["-c", &script]).env("SPETTRO", env!("CARGO_BIN_EXE_spettro"));
    sandbox.start(command).wait(PATIENCE);
    let own: Value = serde_json::from_str(&sandbox.read("../own.json")).expect("a result");
    let stored = sandbox.read(sandbox.session_dir().join("result.json"));
    assert_eq!(serde_json::from_str::<Value>(&stored).expect("a result"), own);
    // Its log has no end: who looks at it is told all the same.
    assert!(sandbox.session_lines().iter().all(|line| line["kind"] != "end"));
    let outcome = own["outcome"].as_str().expect("a word");
    let message = own["error"]["message"].as_str().expect("a text");
    let shown = sandbox.run(["sessions", "show", "latest"]).expect_code(0).stdout;
    assert!(shown.contains(&format!("ended `{outcome}` ({message}); the log has no end")), "{shown}");
    let again = ["run", "--resume", "latest", "--max-time", "1m"];
    let resumed = sandbox.spawn(again).wait(PATIENCE);
    assert!(resumed.stderr.contains(&format!("it ended as `{outcome}` ({message})")), "{}", resumed.stderr);
    let _ = provider.take_problems();
    (sandbox.read("../code"), own)
}

#[test]
fn a_signal_ends_a_run_that_stands_still() {
    let (code, result) = unread("", "kill -TERM $runner");
    assert_eq!(code, "143\n");
    assert_eq!((&result["state"], &result["outcome"]), (&"finished".into(), &"terminated".into()), "{result}");
    assert!(result["session_id"].is_string() && result["commands"]["resume"].is_array(), "{result}");
}

#[test]
fn a_limit_on_time_ends_a_run_that_stands_still() {
    let (code, result) = unread("limits: {time: 1s}\n", "");
    assert_eq!(code, "14\n");
    assert_eq!((&result["outcome"], &result["exit_code"]), (&"time_limit".into(), &14.into()), "{result}");
}
