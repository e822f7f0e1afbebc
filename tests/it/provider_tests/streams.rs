//! What both wires say.

use serde_json::{Value, json};

use super::client::*;
use crate::provider::{Lane, Reply, Script, Usage, Wire};

#[test]
fn both_wires_stream_the_same_script() {
    for wire in Wire::MESSAGES {
        let provider = Script::new()
            .agent(
                Reply::thinking("hm, let me think about this for a while")
                    .and_text("Grüße, 世界 — und noch etwas mehr Text, damit es mehrere Stücke gibt")
                    .and_call("bash", json!({"command": "echo 'a long enough command to need several deltas'"}))
                    .and_raw_call("file-read", "{\"path\": 7")
                    .id("mine")
                    .usage_of(Usage { input: 1000, output: 50, cache_read: 600, cache_write: 100, ..Usage::default() }),
            )
            .judge(Reply::verdict("unmet", "r", "n"))
            .start();
        let mut client = Client::new(&provider);
        let response = client.ask(wire, &request(wire, hello()));
        assert_eq!((response.status, response.whole), (200, true));
        assert_eq!(response.header("content-type"), Some("text/event-stream; charset=utf-8"));
        let got = read(wire, &response);
        assert_eq!(got.text, "Grüße, 世界 — und noch etwas mehr Text, damit es mehrere Stücke gibt");
        assert_eq!(got.thinking, "hm, let me think about this for a while");
        let command = json!({"command": "echo 'a long enough command to need several deltas'"}).to_string();
        let call = |id: &str, name: &str, arguments: &str| (id.to_owned(), name.to_owned(), arguments.to_owned());
        assert_eq!(got.calls, [call("call_1_2", "bash", &command), call("mine", "file-read", "{\"path\": 7")]);
        assert_eq!(got.stop, if wire == Wire::Anthropic { "tool_use" } else { "tool_calls" });
        assert_eq!(got.usage, Some((1000, 50, 600)));

        let verdict = read(wire, &client.ask(wire, &judge_request(wire)));
        let arguments: Value = serde_json::from_str(&verdict.calls[0].2).expect("JSON");
        assert_eq!(arguments, json!({"verdict": "unmet", "reason": "r", "next_step": "n", "criteria": []}));
        assert_eq!((provider.count(Lane::Agent), provider.count(Lane::Judge)), (1, 1));
        let served = provider.served_usage()[&Lane::Agent];
        let cache_write = if wire == Wire::Anthropic { 100 } else { 0 };
        assert_eq!(
            served,
            Usage { input: 1000, output: 50, cache_read: 600, cache_write, ..Usage::default() },
            "what the wire has no field for was not reported"
        );
        provider.finish();
    }
}

#[test]
fn the_anthropic_stream_has_the_vendors_order() {
    let provider = Script::new()
        .agent(Reply::thinking("t").and_block(json!({"type": "redacted_thinking", "data": "x"})).and_text("a"))
        .start();
    let response = Client::new(&provider).ask(Wire::Anthropic, &request(Wire::Anthropic, hello()));
    let names: Vec<String> = response.events().into_iter().map(|(event, _)| event).collect();
    let expected = [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(names, expected);
    let events = response.events();
    assert_eq!(events[0].1["message"]["model"], "model-1", "the model that was asked for answers");
    assert_eq!(events[4].1["delta"]["type"], "signature_delta");
    assert_eq!(events[6].1["content_block"], json!({"type": "redacted_thinking", "data": "x"}));
    let indexes: Vec<_> = events.iter().filter_map(|(_, data)| data["index"].as_u64()).collect();
    assert_eq!(indexes, [0, 0, 0, 0, 1, 1, 2, 2, 2]);
    provider.finish();
}

#[test]
fn the_chat_stream_ends_as_servers_end_it() {
    let wire = Wire::OpenAiChat;
    let provider = Script::new().agent(Reply::text("a").repeat(2)).start();
    let mut client = Client::new(&provider);
    let events = client.ask(wire, &request(wire, hello())).events();
    let n = events.len();
    assert_eq!(events[n - 1].1, "[DONE]");
    assert_eq!(events[n - 2].1["choices"], json!([]), "usage comes in a chunk of its own");
    assert_eq!(events[n - 3].1["choices"][0]["finish_reason"], "stop");
    let mut silent = request(wire, hello());
    silent.as_object_mut().expect("a map").remove("stream_options");
    assert_eq!(read(wire, &client.ask(wire, &silent)).usage, None, "usage is for who asks for it");
    assert_eq!(provider.served().iter().filter(|served| served.usage.is_some()).count(), 1);
    provider.finish();
}

#[test]
fn stops_are_translated_and_usage_can_be_missing() {
    let cases = [
        ("end", "end_turn", "stop"),
        ("max_tokens", "max_tokens", "length"),
        ("refusal", "refusal", "content_filter"),
        ("pause", "pause_turn", "stop"),
        ("something_new", "something_new", "something_new"),
    ];
    for (stop, anthropic, chat) in cases {
        for (wire, expected) in [(Wire::Anthropic, anthropic), (Wire::OpenAiChat, chat)] {
            let provider = Script::new().agent(Reply::text("a").stop(stop).no_usage()).start();
            let response = Client::new(&provider).ask(wire, &request(wire, hello()));
            let got = read(wire, &response);
            assert_eq!((got.stop.as_str(), got.usage), (expected, None));
            assert!(!response.body.windows(5).any(|w| w == b"usage"), "no usage at all");
            provider.finish();
        }
    }
}

#[test]
fn usage_is_computed_from_the_body_when_the_script_gives_none() {
    for wire in Wire::MESSAGES {
        let provider = Script::new().agent(Reply::text("12345678")).start();
        let body = request(wire, hello());
        let got = read(wire, &Client::new(&provider).ask(wire, &body));
        let input = (body.to_string().len() as u64).div_ceil(4);
        assert_eq!(got.usage, Some((input, 2, 0)));
        provider.finish();
    }
}
