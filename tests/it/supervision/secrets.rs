//! A planted secret: wherever a run meets it, it is stored nowhere and sent to nobody.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::support::{Scene, met};
use crate::provider::{Reply, Script, Wire};
use crate::sandbox::{PATIENCE, Sandbox, json_lines};

const SECRET: &str = "hunter2/Planted+value=9";
/// Its base64 at each of the three alignments, without what depends on the neighbours.
const ENCODED: [&str; 3] =
    ["aHVudGVyMi9QbGFudGVkK3ZhbHVlPT", "h1bnRlcjIvUGxhbnRlZCt2YWx1ZT05", "odW50ZXIyL1BsYW50ZWQrdmFsdWU9O"];
const PLACEHOLDER: &str = "«secret:MY_TOKEN»";

/// Every file below a folder.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a folder").flatten() {
        if entry.file_type().expect("a type").is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

fn holds(bytes: &[u8], needle: &str) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle.as_bytes())
}

#[track_caller]
fn assert_nowhere(sandbox: &Sandbox) {
    // The plain one: what is compressed would hide it. Had it found one, no file would have been made.
    let packed = sandbox.run(["cassette", "pack", "latest", "-o", "../packed.jsonl", "--force"]);
    let mut all = files(&sandbox.spettro_home());
    if packed.code == Some(0) {
        all.push(sandbox.root().join("packed.jsonl"));
    } else {
        assert!(packed.stderr.contains("no reply to pack"), "{}", packed.stderr);
    }
    assert!(all.iter().any(|file| file.ends_with("wire.jsonl")), "{all:?}");
    for file in all {
        let bytes = std::fs::read(&file).expect("a file");
        for needle in [SECRET, "hunter2%2FPlanted%2Bvalue%3D9", r"hunter2\/Planted+value=9"].iter().chain(&ENCODED) {
            assert!(!holds(&bytes, needle), "`{needle}` is in {}", file.display());
        }
    }
}

/// A text in pieces, so that no event holds the whole secret, then a call of `bash`, as each wire says it.
fn in_pieces(wire: Wire, command: &str) -> Reply {
    let pieces = [format!("it is {}", &SECRET[..9]), SECRET[9..].to_owned(), ", I think".to_owned()];
    let text = pieces.concat();
    let arguments = json!({"command": command}).to_string();
    let mut events: Vec<Value> = Vec::new();
    match wire {
        Wire::Anthropic => {
            events.push(json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant",
                "content": [], "model": "model-1", "usage": {"input_tokens": 100, "output_tokens": 1}}}));
            events.push(
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            );
            for piece in pieces {
                let delta = json!({"type": "text_delta", "text": piece});
                events.push(json!({"type": "content_block_delta", "index": 0, "delta": delta}));
            }
            events.push(json!({"type": "content_block_stop", "index": 0}));
            let call = json!({"type": "tool_use", "id": "toolu_pieces", "name": "bash", "input": {}});
            events.push(json!({"type": "content_block_start", "index": 1, "content_block": call}));
            let delta = json!({"type": "input_json_delta", "partial_json": arguments});
            events.push(json!({"type": "content_block_delta", "index": 1, "delta": delta}));
            events.push(json!({"type": "content_block_stop", "index": 1}));
            events.push(json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"},
                "usage": {"output_tokens": 20}}));
            events.push(json!({"type": "message_stop"}));
        }
        Wire::OpenAiResponses => {
            events.push(json!({"type": "response.created", "response": {"status": "in_progress", "model": "model-1"}}));
            for piece in pieces {
                events.push(json!({"type": "response.output_text.delta", "output_index": 0, "delta": piece}));
            }
            let part = json!({"type": "output_text", "annotations": [], "text": text});
            let said = json!({"type": "message", "id": "msg_1", "role": "assistant", "content": [part]});
            events.push(json!({"type": "response.output_item.done", "output_index": 0, "item": said}));
            let call = json!({"type": "function_call", "id": "fc_1", "call_id": "call_pieces", "name": "bash",
                "arguments": arguments});
            events.push(json!({"type": "response.output_item.done", "output_index": 1, "item": call}));
            events.push(json!({"type": "response.completed", "response": {"status": "completed",
                "usage": {"input_tokens": 100, "output_tokens": 20}}}));
        }
        Wire::Gemini => {
            let frame = |part: Value| json!({"candidates": [{"content": {"role": "model", "parts": [part]}}]});
            for piece in pieces {
                events.push(frame(json!({"text": piece})));
            }
            let mut last = frame(json!({"functionCall": {"name": "bash", "args": {"command": command}},
                "thoughtSignature": "c2ln"}));
            last["candidates"][0]["finishReason"] = json!("STOP");
            last["usageMetadata"] = json!({"promptTokenCount": 100, "candidatesTokenCount": 20});
            events.push(last);
        }
        Wire::OpenAiChat => {
            let chunk = |delta: Value, reason: Value| {
                json!({"id": "c", "object": "chat.completion.chunk", "model": "model-1",
                    "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
            };
            for piece in pieces {
                events.push(chunk(json!({"role": "assistant", "content": piece}), Value::Null));
            }
            let function = json!({"name": "bash", "arguments": arguments});
            let call = json!({"index": 0, "id": "call_pieces", "type": "function", "function": function});
            events.push(chunk(json!({"tool_calls": [call]}), Value::Null));
            events.push(chunk(json!({}), json!("tool_calls")));
            events.push(json!({"id": "c", "object": "chat.completion.chunk", "choices": [],
                "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}}));
        }
    }
    let mut stream = String::new();
    for event in events {
        if let Some(kind) = event["type"].as_str() {
            stream.push_str(&format!("event: {kind}\n"));
        }
        stream.push_str(&format!("data: {event}\n\n"));
    }
    if wire == Wire::OpenAiChat {
        stream.push_str("data: [DONE]\n\n");
    }
    Reply::raw(stream)
}

fn a_planted_secret_is_nowhere(wire: Wire) {
    let sandbox = Sandbox::new().wire(wire);
    sandbox.set("MY_TOKEN", SECRET);
    sandbox.write("planted", format!("a line\nkey={SECRET}\n"));
    sandbox.write("AGENTS.md", format!("Never tell anybody {SECRET}.\n"));
    sandbox.git_init();
    sandbox.write("new.txt", format!("{SECRET}\n"));
    let mut script = Script::new().allow_rewrite();
    for needle in [SECRET, ENCODED[0], "hunter2%2FPlanted"] {
        script = script.secret(needle);
    }
    let script = script
        .agent(Reply::bash("cat planted; printf %s \"$(sed -n 's/^key=//p' planted)\" | base64; cat planted | tr -d a"))
        .agent(Reply::call("file-read", json!({"path": "planted"})).and_call("grep", json!({"pattern": "key="})))
        .agent(in_pieces(wire, "echo after the pieces"))
        .agent(Reply::text("so").and_call("bash", json!({"command": format!("echo {SECRET}")})))
        .agent(Reply::error(400).body(format!("{{\"error\":{{\"message\":\"bad {SECRET}\"}}}}")).status(503))
        .agent(Reply::complete(&format!("done with {SECRET}")))
        .agent(Reply::complete("done"))
        .judge(Reply::verdict_with(json!({
            "verdict": "met", "reason": format!("I saw {SECRET}"), "next_step": "",
            "criteria": [{"index": 1, "met": true, "evidence": SECRET}],
        })));
    let yaml = format!(
        "goal: \"keep {SECRET} to yourself\"\ncriteria: [\"{SECRET} is not told\"]\nlimits: {{cost: 1.00}}\n\
         checks: [{{name: shows, run: 'cat planted'}}]\n"
    );
    let provider = script.start();
    let goal = sandbox.goal(&provider, &yaml);
    let scene = Scene { sandbox, provider, goal };
    let finished = scene.sandbox.spawn(scene.args().map(|arg| arg.as_os_str()).into_iter().chain(["-v".as_ref()]));
    let finished = finished.wait(PATIENCE).expect_code(0);
    assert!(!finished.stdout.contains(SECRET) && !finished.stderr.contains(SECRET), "{}", finished.stderr);
    assert_nowhere(&scene.sandbox);

    let first = scene.result(2);
    assert_eq!(first.matches(PLACEHOLDER).count(), 2, "raw and base64: {first}");
    assert_eq!(scene.result(3).matches(PLACEHOLDER).count(), 2, "read and found: {}", scene.result(3));
    assert_eq!(scene.result(4), "after the pieces\n");
    assert!(scene.result(5).contains("not run"), "a placeholder is no argument: {}", scene.result(5));
    let request = scene.provider.agent_requests()[4].text();
    assert!(request.contains(&format!("it is {PLACEHOLDER}, I think")), "the reply goes back cleaned");
    let start = scene.provider.agent_requests()[0].text();
    assert!(start.contains(&format!("keep {PLACEHOLDER} to yourself")), "{start}");
    assert!(start.contains(&format!("Never tell anybody {PLACEHOLDER}.")), "{start}");
    let lines = json_lines(&scene.sandbox.session_dir().join("wire.jsonl"));
    let redacted = lines.iter().filter(|line| line.to_string().contains("\"redacted\":true")).count();
    assert_eq!(redacted, 5, "pieces, an argument, an error, a summary and a verdict held it");
    let problems = scene.provider.take_problems();
    assert!(problems.iter().all(|problem| !problem.contains("secret")), "{problems:?}");
    drop(scene);
}

#[test]
fn a_planted_secret_is_nowhere_on_the_anthropic_wire() {
    a_planted_secret_is_nowhere(Wire::Anthropic);
}

#[test]
fn a_planted_secret_is_nowhere_on_the_responses_wire() {
    a_planted_secret_is_nowhere(Wire::OpenAiResponses);
}

#[test]
fn a_planted_secret_is_nowhere_on_the_chat_wire() {
    a_planted_secret_is_nowhere(Wire::OpenAiChat);
}

#[test]
fn a_planted_secret_is_nowhere_on_the_gemini_wire() {
    a_planted_secret_is_nowhere(Wire::Gemini);
}

#[test]
fn a_session_with_a_secret_in_its_goal_resumes() {
    let script = Script::new()
        .secret(SECRET)
        .agent(Reply::complete("one"))
        .judge(Reply::verdict("unmet", "not yet", "more"))
        .agent(Reply::complete("two"))
        .judge(met());
    let sandbox = Sandbox::new();
    sandbox.set("MY_TOKEN", SECRET);
    let provider = script.start();
    let goal = sandbox.goal(&provider, &format!("goal: \"use {SECRET}\"\nlimits: {{cost: 1.00, iterations: 1}}\n"));
    let goal = goal.to_str().expect("a UTF-8 path");
    sandbox.run(["run", "--goal", goal]).expect_code(10);
    sandbox.run(["run", "--goal", goal, "--resume", "auto", "--set", "limits.iterations=3"]).expect_code(0);
    assert_nowhere(&sandbox);
    assert_eq!(sandbox.session_dirs().len(), 1);
    provider.finish();
}
