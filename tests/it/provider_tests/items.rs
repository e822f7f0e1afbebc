//! The rules of the two wires whose requests are lists of items and of contents: each has a request that breaks it.

use serde_json::{Value, json};

use super::client::*;
use crate::provider::{Lane, Reply, Script, Wire};

fn complaints(wire: Wire, body: &Value) -> Vec<String> {
    after(wire, None, body)
}

/// The complaints about a request, behind a first one that got this reply.
fn after(wire: Wire, reply: Option<Reply>, body: &Value) -> Vec<String> {
    let script = Script::new().judge(Reply::text("a").forever());
    let provider = reply
        .iter()
        .fold(script, |script, reply| script.agent(reply.clone()))
        .agent(Reply::text("x").forever())
        .start();
    let mut client = Client::new(&provider);
    if reply.is_some() {
        client.ask(wire, &request(wire, hello_on(wire)));
    }
    client.ask(wire, body);
    let problems = provider.take_problems();
    problems.into_iter().map(|problem| problem.split_once("): ").expect("it names the request").1.to_owned()).collect()
}

#[track_caller]
fn assert_complains(found: &[String], about: &str) {
    assert!(found.iter().any(|complaint| complaint.contains(about)), "{about:?} not in {found:?}");
}

fn user(wire: Wire) -> Value {
    hello_on(wire)[0].clone()
}

const BOTH: [Wire; 2] = [Wire::OpenAiResponses, Wire::Gemini];

#[test]
fn well_formed_requests_are_left_in_peace() {
    for wire in BOTH {
        let [call, result] = round(wire, "a");
        let messages = json!([user(wire), call, result, user(wire)]);
        assert_eq!(complaints(wire, &request(wire, messages)), Vec::<String>::new());
        assert_eq!(complaints(wire, &judge_request(wire)), Vec::<String>::new());
    }
}

#[test]
fn calls_and_results_belong_together() {
    for wire in BOTH {
        let [call, result] = round(wire, "a");
        let [_, other] = round(wire, "b");
        let found = |messages: Value| complaints(wire, &request(wire, messages));
        let gemini = wire == Wire::Gemini;
        let missing = if gemini { "the last calls have no results" } else { "the call a has no result" };
        assert_complains(&found(json!([user(wire), call])), missing);
        let before = if gemini { "0 responses for 1 calls" } else { "the call a before it has no result" };
        assert_complains(&found(json!([user(wire), call, user(wire)])), before);
        let orphan = if gemini { "1 responses for 0 calls" } else { "the result of a has no call" };
        assert_complains(&found(json!([user(wire), result])), orphan);
        let wrong = if gemini { "another id than its call" } else { "the result of b has no call" };
        assert_complains(&found(json!([user(wire), call, other])), wrong);
        let twice = if gemini { "1 responses for 0 calls" } else { "two results for the call a" };
        assert_complains(&found(json!([user(wire), call, result, result])), twice);
        assert!(!found(json!([call, result])).is_empty(), "the user begins");
    }
}

#[test]
fn responses_are_not_stored_and_their_tools_are_not_strict() {
    let wire = Wire::OpenAiResponses;
    for (key, value, about) in [
        ("store", json!(true), "`store`"),
        ("include", json!([]), "encrypted reasoning"),
        ("previous_response_id", json!("resp_1"), "nothing is stored"),
        ("max_output_tokens", json!(0), "output limit"),
        ("input", json!([]), "`input`"),
        ("stream", json!(false), "`stream`"),
    ] {
        let mut body = request(wire, hello_on(wire));
        body[key] = value;
        assert_complains(&complaints(wire, &body), about);
    }
    let mut strict = request(wire, hello_on(wire));
    strict["tools"][0].as_object_mut().expect("a tool").remove("strict");
    assert_complains(&complaints(wire, &strict), "`strict`");
    let bare = json!([user(wire), {"type": "reasoning", "id": "rs_1", "summary": []}, user(wire)]);
    let found = complaints(wire, &request(wire, bare));
    assert_complains(&found, "needs its encrypted content");
    assert_complains(&found, "nothing follows the reasoning");
}

#[test]
fn items_come_back_as_they_were_sent_and_in_their_place() {
    let wire = Wire::OpenAiResponses;
    let reply = || Reply::thinking("t").and_text("ok").and_call("bash", json!({})).id("a");
    let items = |n: &str| {
        [
            json!({"id": format!("rs_{n}_0"), "type": "reasoning", "encrypted_content": "c2lnbmF0dXJl+1/0==",
                "summary": [{"type": "summary_text", "text": "t"}]}),
            json!({"id": format!("msg_{n}_1"), "type": "message", "status": "completed", "role": "assistant",
                "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": "ok"}]}),
            json!({"id": format!("fc_{n}_2"), "type": "function_call", "status": "completed", "arguments": "{}",
                "call_id": "a", "name": "bash"}),
        ]
    };
    let [reasoning, message, call] = items("000001");
    let result = json!({"type": "function_call_output", "call_id": "a", "output": "ok"});
    let found = |said: &[&Value]| {
        let mut messages = vec![user(wire)];
        messages.extend(said.iter().map(|item| (*item).clone()));
        messages.push(result.clone());
        after(wire, Some(reply()), &request(wire, json!(messages)))
    };
    assert_eq!(found(&[&reasoning, &message, &call]), Vec::<String>::new());
    let about = "changed, missing or not in their place";
    assert_complains(&found(&[&message, &call]), about);
    assert_complains(&found(&[&message, &reasoning, &call]), about);
    let mut changed = message.clone();
    changed["status"] = json!("incomplete");
    assert_complains(&found(&[&reasoning, &changed, &call]), about);
    let reordered = json!({"type": "message", "id": message["id"], "status": "completed", "role": "assistant",
        "content": message["content"]});
    assert_complains(&found(&[&reasoning, &reordered, &call]), "serialized anew");
    let bare = json!({"type": "function_call", "call_id": "a", "name": "bash", "arguments": "{}"});
    assert_complains(&found(&[&reasoning, &message, &bare]), about);
}

#[test]
fn gemini_refuses_what_its_api_does_not_know() {
    let wire = Wire::Gemini;
    let body = || request(wire, hello_on(wire));
    let mut stream = body();
    stream["stream"] = json!(true);
    // It stands behind the contents as well.
    assert_complains(&complaints(wire, &stream), "a field \"stream\"");
    let with = |schema: Value| {
        let mut body = body();
        body["tools"][0]["functionDeclarations"][0]["parameters"] = schema;
        complaints(wire, &body)
    };
    let object = |schema: Value| json!({"type": "OBJECT", "properties": {"p": schema}});
    assert_eq!(with(object(json!({"type": "STRING", "minLength": 1}))), Vec::<String>::new());
    assert_complains(&with(object(json!({"type": "STRING", "$ref": "x"}))), "refuses the key \"$ref\"");
    assert_complains(&with(object(json!({"type": "string"}))), "no type of a schema");
    assert_complains(&with(object(json!({"type": "OBJECT"}))), "an object without properties");
    assert_complains(&with(object(json!({}))), "a schema without a type");
    assert_complains(
        &with(json!({"type": "OBJECT", "properties": {"p": {"type": "STRING"}}, "additionalProperties": false})),
        "refuses the key",
    );
    let parts = |parts: Value| complaints(wire, &request(wire, json!([{"role": "user", "parts": parts}])));
    assert_complains(&parts(json!([])), "has no parts");
    assert_complains(&parts(json!([{"text": " "}])), "has an empty text");
    let found = complaints(wire, &request(wire, json!([{"role": "assistant", "parts": [{"text": "x"}]}])));
    assert_complains(&found, "role \"assistant\"");
    let provider = Script::new().agent(Reply::text("x")).start();
    let path = "/v1beta/models/model-1:streamGenerateContent";
    Client::new(&provider).post(path, headers(wire), body().to_string().as_bytes());
    assert_complains(&provider.take_problems(), "events are not asked for");
}

#[test]
fn signatures_come_back_with_their_part() {
    let wire = Wire::Gemini;
    let reply = || Reply::thinking("t").and_call("bash", json!({"command": "ls"})).id("a");
    let part = json!({"functionCall": {"name": "bash", "args": {"command": "ls"}, "id": "a"},
        "thoughtSignature": "c2lnbmF0dXJl+1/0=="});
    let [_, result] = round(wire, "a");
    let found = |part: &Value| {
        let messages = json!([user(wire), {"role": "model", "parts": [part]}, result]);
        after(wire, Some(reply()), &request(wire, messages))
    };
    assert_eq!(found(&part), Vec::<String>::new());
    let mut unsigned = part.clone();
    unsigned.as_object_mut().expect("a part").remove("thoughtSignature");
    assert_complains(&found(&unsigned), "not as they were sent");
    let mut changed = part.clone();
    changed["functionCall"]["args"] = json!({"command": "rm"});
    assert_complains(&found(&changed), "a signed part was changed");
    let reordered = json!({"thoughtSignature": "c2lnbmF0dXJl+1/0==", "functionCall": part["functionCall"]});
    assert_complains(&found(&reordered), "changed or serialized anew");
}

#[test]
fn both_stream_what_the_script_says() {
    for wire in BOTH {
        let provider = Script::new()
            .agent(
                Reply::thinking("hm")
                    .and_text("Grüße, 世界 — und noch etwas mehr Text, damit es mehrere Stücke gibt")
                    .and_call("bash", json!({"command": "ls"}))
                    .usage(1_000, 50),
            )
            .judge(Reply::verdict("unmet", "r", "n"))
            .start();
        let mut client = Client::new(&provider);
        let got = read(wire, &client.ask(wire, &request(wire, hello_on(wire))));
        assert_eq!(got.text, "Grüße, 世界 — und noch etwas mehr Text, damit es mehrere Stücke gibt");
        assert_eq!((got.thinking.as_str(), got.calls.len()), ("hm", 1));
        assert_eq!(got.calls[0].2, "{\"command\":\"ls\"}");
        assert_eq!(got.usage, Some((1_000, 50, 0)));
        assert_eq!(got.stop, if wire == Wire::Gemini { "STOP" } else { "completed" });
        client.ask(wire, &judge_request(wire));
        assert_eq!((provider.count(Lane::Agent), provider.count(Lane::Judge)), (1, 1));
        provider.finish();
    }
}

#[test]
fn requests_answer_what_tests_ask() {
    for wire in BOTH {
        let provider = Script::new().agent(Reply::text("x")).start();
        let [call, result] = round(wire, "a");
        Client::new(&provider).ask(wire, &request(wire, json!([user(wire), call, result, user(wire)])));
        let request = provider.wait_for_lane_request(Lane::Agent, 1, SOON);
        assert_eq!(
            (request.system().as_str(), request.tool_names(), request.max_tokens()),
            ("be good", vec!["bash".into()], Some(100))
        );
        let results = request.tool_results();
        assert_eq!((results.len(), results[0].id.as_str(), results[0].text.as_str()), (1, "a", "ok"));
        assert_eq!(request.new_text(), "hello");
        assert!(request.rest().ends_with(b"]}") && request.rest().starts_with(b"\""));
        provider.finish();
    }
}
