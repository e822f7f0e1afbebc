//! Requests: exact bytes, and that they only grow.

use proptest::prelude::*;
use serde_json::value::RawValue;
use spettro::model::wire::Wire;
use spettro::model::{Front, Rest, ToolSchema};
use spettro::session::{Block, Message, Origin};

fn tool() -> ToolSchema {
    ToolSchema {
        name: "bash",
        description: "Runs \"it\"".into(),
        parameters: RawValue::from_string(r#"{"type":"object", "z":1.50}"#.into()).unwrap(),
    }
}

fn front<'a>(extra_body: &'a [(String, String)]) -> Front<'a> {
    Front { model: "m-1", max_output_tokens: 4_096, extra_body, ..Front::default() }
}

fn user(text: &str) -> Message {
    Message::User { origin: Origin::Prompt, text: text.into() }
}

fn operator(text: &str) -> Message {
    Message::Operator { text: text.into() }
}

fn result(call_id: &str, text: &str, is_error: bool) -> Message {
    Message::Tool { call_id: call_id.into(), tool: "bash".into(), text: text.into(), is_error }
}

fn assistant(blocks: Vec<Block>) -> Message {
    Message::Assistant { blocks, interrupted: false, refused: None }
}

fn text(text: &str) -> Block {
    Block::Text { text: text.into() }
}

fn call(id: &str, arguments: &str) -> Block {
    Block::Call { id: id.into(), name: "bash".into(), arguments: arguments.into() }
}

fn encoded(wire: Wire, messages: &[Message]) -> String {
    let mut out = Vec::new();
    wire.messages(messages, false, &mut out);
    String::from_utf8(out).unwrap()
}

fn fronts(wire: Wire, front: &Front<'_>) -> String {
    String::from_utf8(wire.front(front)).unwrap()
}

#[test]
fn fronts_name_model_limit_and_hints() {
    let none = front(&[]);
    assert_eq!(
        fronts(Wire::Anthropic, &none),
        r#"{"model":"m-1","max_tokens":4096,"stream":true,"cache_control":{"type":"ephemeral"},"#
    );
    assert_eq!(
        fronts(Wire::OpenAiChat, &none),
        r#"{"model":"m-1","max_tokens":4096,"stream":true,"stream_options":{"include_usage":true},"#
    );
    let all =
        Front { force_tool: Some("verdict"), reasoning_effort: Some("high"), native: true, slow_steps: true, ..none };
    assert_eq!(
        fronts(Wire::Anthropic, &all),
        concat!(
            r#"{"model":"m-1","max_tokens":4096,"stream":true,"cache_control":{"type":"ephemeral","ttl":"1h"},"#,
            r#""tool_choice":{"type":"tool","name":"verdict"},"output_config":{"effort":"high"},"#
        )
    );
    assert_eq!(
        fronts(Wire::OpenAiChat, &all),
        concat!(
            r#"{"model":"m-1","max_completion_tokens":4096,"stream":true,"stream_options":{"include_usage":true},"#,
            r#""tool_choice":{"type":"function","function":{"name":"verdict"}},"reasoning_effort":"high","#
        )
    );
}

#[test]
fn extra_fields_win_and_never_come_twice() {
    let extra = [
        ("temperature".to_owned(), "0.5".to_owned()),
        ("stream".to_owned(), "false".to_owned()),
        ("messages".to_owned(), "[]".to_owned()),
    ];
    assert_eq!(
        fronts(Wire::Anthropic, &front(&extra)),
        r#"{"model":"m-1","max_tokens":4096,"cache_control":{"type":"ephemeral"},"temperature":0.5,"stream":false,"#
    );
}

#[test]
fn heads_carry_system_and_tools() {
    assert_eq!(
        Wire::Anthropic.head("Be \"good\"", &[tool()]),
        concat!(
            r#""system":[{"type":"text","text":"Be \"good\"","cache_control":{"type":"ephemeral","ttl":"1h"}}],"#,
            r#""tools":[{"name":"bash","description":"Runs \"it\"","input_schema":{"type":"object", "z":1.50}}],"#,
            r#""messages":["#
        )
    );
    assert_eq!(
        Wire::OpenAiChat.head("Be \"good\"", &[tool()]),
        concat!(
            r#""tools":[{"type":"function","function":{"name":"bash","description":"Runs \"it\"","#,
            r#""parameters":{"type":"object", "z":1.50}}}],"#,
            r#""messages":[{"role":"system","content":"Be \"good\""},"#
        )
    );
    for wire in Wire::ALL {
        assert_eq!(wire.head("", &[]), r#""messages":["#);
    }
}

#[test]
fn headers_carry_a_key_when_there_is_one() {
    let named = |wire: Wire, key, name: &str| {
        wire.headers(key).into_iter().find(|(other, _)| other == name).map(|(_, value)| value)
    };
    assert_eq!(named(Wire::Anthropic, Some("k"), "x-api-key").as_deref(), Some("k"));
    assert_eq!(named(Wire::Anthropic, None, "anthropic-version").as_deref(), Some("2023-06-01"));
    assert_eq!(named(Wire::OpenAiChat, Some("k"), "authorization").as_deref(), Some("Bearer k"));
    assert_eq!(named(Wire::OpenAiChat, None, "authorization"), None);
}

fn history() -> Vec<Message> {
    vec![
        user("Do it"),
        operator("Budget: 3 steps"),
        assistant(vec![
            Block::Thinking {
                text: "t".into(),
                raw: Some(r#"{"type":"thinking","thinking":"t","signature":"s"}"#.into()),
            },
            text("On it"),
            text(" "),
            call("a", r#"{ "command":"ls" }"#),
            call("b", r#"{"command":"#),
        ]),
        operator("Note"),
        result("a", "file\n", false),
        result("b", "", true),
        user("Go on"),
        Message::Assistant { blocks: vec![text("No"), call("c", "{}")], interrupted: false, refused: Some("x".into()) },
        user("Then that"),
        assistant(vec![Block::Raw { raw: r#"{"type":"hologram","z":1.50}"#.into() }]),
        assistant(vec![text("")]),
        assistant(vec![]),
    ]
}

#[test]
fn anthropic_gets_results_first_and_blocks_verbatim() {
    assert_eq!(
        encoded(Wire::Anthropic, &history()),
        concat!(
            r#"{"role":"user","content":[{"type":"text","text":"Do it"},{"type":"text","text":"[operator] Budget: 3 steps"}]},"#,
            r#"{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"text","text":"On it"},"#,
            r#"{"type":"tool_use","id":"a","name":"bash","input":{ "command":"ls" }},"#,
            r#"{"type":"tool_use","id":"b","name":"bash","input":{"_unparsed":"{\"command\":"}}]},"#,
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"file\n"},"#,
            r#"{"type":"tool_result","tool_use_id":"b","content":"(no output)","is_error":true},"#,
            r#"{"type":"text","text":"[operator] Note"},{"type":"text","text":"Go on"}]},"#,
            r#"{"role":"user","content":[{"type":"text","text":"Then that"}]},"#,
            r#"{"role":"assistant","content":[{"type":"hologram","z":1.50}]}"#
        )
    );
}

#[test]
fn chat_gets_tool_messages_and_one_user_message() {
    assert_eq!(
        encoded(Wire::OpenAiChat, &history()),
        concat!(
            r#"{"role":"user","content":"Do it\n\n[operator] Budget: 3 steps"},"#,
            r#"{"role":"assistant","content":"On it ","tool_calls":["#,
            r#"{"id":"a","type":"function","function":{"name":"bash","arguments":"{ \"command\":\"ls\" }"}},"#,
            r#"{"id":"b","type":"function","function":{"name":"bash","arguments":"{\"_unparsed\":\"{\\\"command\\\":\"}"}}]},"#,
            r#"{"role":"tool","tool_call_id":"a","content":"file\n"},"#,
            r#"{"role":"tool","tool_call_id":"b","content":"(no output)"},"#,
            r#"{"role":"user","content":"[operator] Note\n\nGo on"},"#,
            r#"{"role":"user","content":"Then that"},"#,
            r#"{"role":"assistant","content":[{"type":"hologram","z":1.50}]}"#
        )
    );
}

#[test]
fn chat_keeps_reasoning_of_its_own() {
    let reasoning = |raw: &str| Block::Thinking { text: "Hm".into(), raw: Some(raw.into()) };
    let own = assistant(vec![reasoning(r#"{"reasoning_content":"Hm"}"#), call("a", "{}")]);
    assert_eq!(
        encoded(Wire::OpenAiChat, std::slice::from_ref(&own)),
        concat!(
            r#"{"role":"assistant","content":null,"reasoning_content":"Hm","tool_calls":["#,
            r#"{"id":"a","type":"function","function":{"name":"bash","arguments":"{}"}}]}"#
        )
    );
    // On the other wire, and alone, it is nothing that could be sent.
    assert!(!encoded(Wire::Anthropic, &[own]).contains("Hm"));
    for wire in Wire::ALL {
        let alone = assistant(vec![reasoning(r#"{"type":"thinking","thinking":"Hm"}"#)]);
        assert_eq!(encoded(wire, &[alone]), "");
    }
}

#[test]
fn arguments_that_are_no_object_are_wrapped() {
    for bad in ["", "null", "[1]", "7", "{\"a\":1}{\"a\":1}", r#"{"a":"\ud800"}"#] {
        let sent = encoded(Wire::Anthropic, &[assistant(vec![call("a", bad)])]);
        let sent: serde_json::Value = serde_json::from_str(&sent).unwrap();
        assert_eq!(sent["content"][0]["input"]["_unparsed"], bad);
    }
}

#[test]
fn a_list_that_follows_starts_with_a_comma() {
    for wire in Wire::ALL {
        let mut out = b"[0".to_vec();
        assert_eq!(
            wire.messages(&[user("a"), result("x", "y", false)], true, &mut out),
            if wire == Wire::Anthropic { 1 } else { 2 }
        );
        assert!(out.starts_with(b"[0,{\"role\":"));
        let before = out.clone();
        assert_eq!(wire.messages(&[assistant(vec![]), user(" ")], true, &mut out), 0);
        assert_eq!(out, before, "nothing said, nothing added");
    }
}

fn any_message() -> impl Strategy<Value = Message> {
    let words = "[a-z\"\\\\\n é€]{0,8}";
    let block = prop_oneof![
        words.prop_map(|text| Block::Text { text }),
        (words, words).prop_map(|(id, arguments)| Block::Call { id, name: "t".into(), arguments }),
        words.prop_map(|id| Block::Call { id, name: "t".into(), arguments: "{\"k\": 1}".into() }),
        words.prop_map(|text| Block::Thinking { text, raw: None }),
        Just(Block::Thinking { text: "x".into(), raw: Some(r#"{"type":"thinking","thinking":"x"}"#.into()) }),
        Just(Block::Thinking { text: "x".into(), raw: Some(r#"{"reasoning":"x"}"#.into()) }),
        Just(Block::Raw { raw: r#"{"type":"new"}"#.into() }),
    ];
    prop_oneof![
        words.prop_map(|text| Message::User { origin: Origin::Steer, text }),
        words.prop_map(|text| Message::Operator { text }),
        (words, words, any::<bool>()).prop_map(|(call_id, text, is_error)| Message::Tool {
            call_id,
            tool: "t".into(),
            text,
            is_error
        }),
        (proptest::collection::vec(block, 0..4), any::<bool>()).prop_map(|(blocks, refused)| Message::Assistant {
            blocks,
            interrupted: false,
            refused: refused.then(|| "no".into()),
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Sealed reply by reply or at once, the rest is the same; it is JSON; what was sent stays an exact prefix.
    #[test]
    fn a_rest_only_grows(messages in proptest::collection::vec(any_message(), 1..12), system in "[a-z]{0,3}") {
        for wire in Wire::ALL {
            let head = wire.head(&system, &[tool()]);
            let mut at_once = Rest::new(wire, &head);
            at_once.seal(&messages);
            let mut by_reply = Rest::new(wire, &head);
            let mut sent = by_reply.bytes_from(0);
            let mut from = 0;
            for (n, message) in messages.iter().enumerate() {
                // A request is sent before each reply.
                if matches!(message, Message::Assistant { .. }) && n > from {
                    by_reply.seal(&messages[from..n]);
                    from = n;
                    let now = by_reply.bytes_from(0);
                    prop_assert!(now.starts_with(&sent[..sent.len() - wire.close().len()]));
                    sent = now;
                }
            }
            by_reply.seal(&messages[from..]);
            prop_assert_eq!(by_reply.bytes_from(0), at_once.bytes_from(0));
            prop_assert_eq!(by_reply.digest(), at_once.digest());

            let mut out = Vec::new();
            let count = wire.messages(&messages, false, &mut out);
            if count > 0 {
                let body: Vec<u8> = at_once.body(&wire.front(&front(&[]))).concat();
                let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
                let system = u64::from(wire == Wire::OpenAiChat && !system.is_empty());
                prop_assert_eq!(body["messages"].as_array().unwrap().len() as u64, count + system);
            }
        }
    }
}
