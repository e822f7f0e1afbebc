//! Every wire, and streams as hostile as they come: recorded, and the same again.

use std::path::Path;

use serde_json::{Value, json};

use super::support::Recording;
use crate::provider::{Reply, Request, Script, Step, Wire, answer, respond_with};
use crate::sandbox::{Sandbox, json_lines};

fn met() -> Reply {
    Reply::verdict("met", "yes", "")
}

/// The reply's stream with CRLF for its line ends and no blank line at its end.
fn crlf(reply: Reply) -> Step {
    respond_with(move |request: &Request| {
        let (.., pieces, _) = answer(&reply, request);
        let text = String::from_utf8(pieces.concat()).expect("UTF-8").replace("\r\n", "\n");
        Reply::raw(text.trim_end().replace('\n', "\r\n") + "\r\n")
    })
}

/// A stream that begins, and then tells of an error that may pass.
fn failing(wire: Wire) -> Step {
    respond_with(move |request: &Request| {
        let (.., pieces, _) = answer(&Reply::text("half of a text, and no more").no_terminal(), request);
        let error = match wire {
            Wire::Anthropic => {
                "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\
                \"message\":\"Overloaded\"}}\n\n"
            }
            Wire::OpenAiResponses => {
                "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":\
                {\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"Overloaded\"}}}\n\n"
            }
            Wire::OpenAiChat => "data: {\"error\":{\"code\":503,\"message\":\"Overloaded\"}}\n\n",
            Wire::Gemini => {
                "data: {\"error\":{\"code\":503,\"status\":\"UNAVAILABLE\",\"message\":\"Overloaded\"}}\n\n"
            }
        };
        Reply::raw([pieces.concat(), error.as_bytes().to_vec()].concat())
    })
}

fn wires(recording: &Recording) -> Vec<Value> {
    json_lines(&recording.sandbox.session_dir().join("wire.jsonl"))
}

/// Whether a network read began inside a character of four bytes.
fn is_split(line: &Value) -> bool {
    let Some(body) = line["response"]["body"].as_str() else { return false };
    let reads = line["response"]["reads"].as_array().expect("a list");
    let inside = |at: &Value| !body.is_char_boundary(usize::try_from(at.as_u64().expect("a number")).expect("small"));
    reads.iter().any(inside)
}

#[test]
fn each_wire_is_the_same_again_whatever_its_streams_look_like() {
    for wire in Wire::ALL {
        let add = |word: &str| json!({"command": format!("echo {word} >> made")});
        let script = Script::new()
            .agent(Reply::thinking("first I look").and_text("\u{1d11e}\u{1f600}").and_call("bash", add("one")).split(3))
            .agent(failing(wire))
            .agent(Reply::text("cut").and_call("bash", add(&"never".repeat(200))).cut_after(1_100))
            .agent(crlf(Reply::text("\u{e4}\u{20ac}").and_call("bash", add("two")).and_call("bash", add("three"))))
            .agent(Reply::complete("done"))
            .judge(met());
        let recording = Recording::on(wire, script, "goal: x\n");
        recording.run(0);
        assert_eq!(recording.sandbox.read("made"), "one\ntwo\nthree\n", "{}", wire.name());
        let lines = wires(&recording);
        assert!(lines.iter().any(is_split), "{}: a character was cut", wire.name());
        assert_eq!(lines.len(), 6, "{}: two failed attempts among them", wire.name());
        for how in
            [&[][..], &["--faults", "replay"], &["--chunks", "1"], &["--chunks", "rand:3"], &["--chunks", "whole"]]
        {
            let replayed = recording.replay(how);
            replayed.expect_same();
            assert_eq!(replayed.report["steps"], 3, "{}: {how:?}", wire.name());
        }
    }
}

#[test]
fn a_limit_in_the_middle_of_a_calls_arguments_comes_again_there() {
    for wire in Wire::ALL {
        let long = json!({"command": format!("echo {}", "x".repeat(3_000))});
        let script = Script::new().agent(Reply::bash("echo one")).agent(Reply::call("bash", long).stall_after(2_000));
        let recording = Recording::on(wire, script, "goal: x\nlimits: {time: 1s}\n");
        recording.run(14);
        let last = wires(&recording).pop().expect("an attempt");
        let body = last["response"]["body"].as_str().expect("text");
        assert_eq!((&last["end"], body.len()), (&json!("abort"), 2_000), "{}", wire.name());
        assert!(body.contains("xxxxxxxxxxxxxxxx"), "{}: {body}", wire.name());
        let replayed = recording.replay(&[]);
        replayed.expect_same();
        assert_eq!(replayed.report["steps"], 2, "{}", wire.name());
    }
}

#[test]
fn the_same_request_with_other_answers_gets_them_in_their_order() {
    let unmet = |why: &str| Reply::verdict("unmet", why, "go on");
    let script = Script::new()
        .agent(Reply::text("One.").forever())
        .judge(unmet("a"))
        .judge(met())
        .judge(unmet("b"))
        .judge(met())
        .judge(unmet("c"))
        .judge(met());
    let recording = Recording::new(script, "goal: x\njudge: {votes: 3}\nlimits: {stall: 9}\n");
    recording.run(0);
    let calls = |lines: &[Value]| -> Vec<Value> {
        let judge = lines.iter().filter(|line| line["kind"] == "call" && line["lane"] == "judge");
        judge.map(|line| line["digest"].clone()).collect()
    };
    let digests = calls(&recording.sandbox.session_lines());
    assert_eq!(digests.len(), 6);
    assert!(digests[..3].iter().all(|digest| *digest == digests[0]), "three times the same request");
    let replayed = recording.replay(&[]);
    replayed.expect_same();
    assert_eq!(replayed.report["iterations"], 2, "two votes of three were against the first");
}

#[test]
fn a_secret_that_is_longer_today_changes_nothing() {
    let secret = "corp-5d1f0a77b2c9";
    let sandbox = Sandbox::new();
    sandbox.set("CORP_TOKEN", secret);
    sandbox.write("login.txt", format!("token {secret}\n"));
    let script = Script::new()
        .secret(secret)
        .agent(Reply::bash("cat login.txt"))
        .agent(Reply::call("file-read", json!({"path": "login.txt"})))
        .agent(Reply::complete("done"))
        .judge(met());
    let recording = Recording::in_place(sandbox, script, "goal: x\n");
    recording.run(0);
    let log = recording.sandbox.read(recording.sandbox.session_dir().join("session.jsonl"));
    assert!(log.contains("\u{ab}secret:CORP_TOKEN\u{bb}") && !log.contains(secret));
    let longer = Sandbox::new();
    longer.set("CORP_TOKEN", format!("{secret}-and-twenty-bytes-too"));
    longer.set(crate::sandbox::KEY_VARIABLE, "sk-recorded-0123456789-and-twenty-more-by");
    let dir = recording.sandbox.session_dir();
    let words = [Path::new("replay"), &dir, Path::new("--json")];
    let finished = longer.run(words);
    let report: Value = serde_json::from_str(&finished.stdout).expect("a report");
    assert!(matches!(finished.code, Some(0 | 32)), "{report:#}");
    for one in report["compared"].as_array().expect("a list") {
        assert!(one["standing"] != "diverged", "{one:#}");
    }
    assert_eq!(report["compared"][0], json!({"what": "requests", "standing": "identical", "count": 4}));
}
