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
    assert_eq!(
        fronts(Wire::OpenAiResponses, &none),
        concat!(
            r#"{"model":"m-1","max_output_tokens":4096,"stream":true,"store":false,"#,
            r#""include":["reasoning.encrypted_content"],"#
        )
    );
    assert_eq!(fronts(Wire::Gemini, &none), r#"{"generationConfig":{"maxOutputTokens":4096},"#);
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
fn a_tool_is_forced_in_the_wires_own_words() {
    let forced = Front { force_tool: Some("verdict"), ..front(&[]) };
    assert!(fronts(Wire::OpenAiResponses, &forced).ends_with(r#""tool_choice":{"type":"function","name":"verdict"},"#));
    assert!(
        fronts(Wire::Gemini, &forced)
            .ends_with(r#""toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["verdict"]}},"#)
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
    assert_eq!(
        Wire::OpenAiResponses.head("Be \"good\"", &[tool()]),
        concat!(
            r#""instructions":"Be \"good\"","#,
            r#""tools":[{"type":"function","name":"bash","description":"Runs \"it\"","#,
            r#""parameters":{"type":"object", "z":1.50},"strict":false}],"input":["#
        )
    );
    let one = ToolSchema {
        parameters: RawValue::from_string(
            r#"{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}"#.into(),
        )
        .unwrap(),
        ..tool()
    };
    assert_eq!(
        Wire::Gemini.head("Be \"good\"", &[tool(), one]),
        concat!(
            r#""systemInstruction":{"parts":[{"text":"Be \"good\""}]},"#,
            r#""tools":[{"functionDeclarations":[{"name":"bash","description":"Runs \"it\""},"#,
            r#"{"name":"bash","description":"Runs \"it\"","#,
            r#""parameters":{"type":"OBJECT","properties":{"a":{"type":"STRING"}}}}]}],"contents":["#
        )
    );
    for (wire, head) in [
        (Wire::Anthropic, r#""messages":["#),
        (Wire::OpenAiResponses, r#""input":["#),
        (Wire::OpenAiChat, r#""messages":["#),
        (Wire::Gemini, r#""contents":["#),
    ] {
        assert_eq!(wire.head("", &[]), head);
    }
}

#[test]
fn an_effort_is_said_in_the_wires_own_words() {
    let efforts = |wire: Wire, model: &'static str| {
        ["none", "minimal", "low", "medium", "high", "xhigh"].map(|effort| {
            let front = fronts(wire, &Front { model, reasoning_effort: Some(effort), ..front(&[]) });
            let body: serde_json::Value = serde_json::from_str(&format!("{}}}", front.trim_end_matches(','))).unwrap();
            match wire {
                Wire::Gemini => body["generationConfig"]["thinkingConfig"].to_string(),
                _ => body["reasoning"]["effort"].to_string(),
            }
        })
    };
    let level = |level: &str| format!(r#"{{"thinkingLevel":"{level}"}}"#);
    let budget = |tokens: u64| format!(r#"{{"thinkingBudget":{tokens}}}"#);
    assert_eq!(
        efforts(Wire::Gemini, "gemini-3.1-pro-preview"),
        ["low", "minimal", "low", "medium", "high", "xhigh"].map(level)
    );
    assert_eq!(
        efforts(Wire::Gemini, "gemini-2.5-flash"),
        [budget(0), budget(1_024), budget(1_024), budget(8_192), budget(24_576), level("xhigh")]
    );
    assert_eq!(
        efforts(Wire::OpenAiResponses, "gpt"),
        ["none", "minimal", "low", "medium", "high", "xhigh"].map(|word| format!("\"{word}\""))
    );
}

#[test]
fn extra_objects_add_to_the_wires_own() {
    let extra = [
        ("generationConfig".to_owned(), r#"{"temperature":0,"maxOutputTokens":9}"#.to_owned()),
        ("safetySettings".to_owned(), "[]".to_owned()),
        ("contents".to_owned(), "[]".to_owned()),
        ("system_instruction".to_owned(), "{}".to_owned()),
    ];
    assert_eq!(
        fronts(Wire::Gemini, &front(&extra)),
        r#"{"generationConfig":{"maxOutputTokens":9,"temperature":0},"safetySettings":[],"#
    );
    let extra = [("reasoning".to_owned(), r#"{"summary":"auto"}"#.to_owned()), ("store".to_owned(), "true".to_owned())];
    let front = Front { reasoning_effort: Some("low"), ..front(&extra) };
    assert_eq!(
        fronts(Wire::OpenAiResponses, &front),
        concat!(
            r#"{"model":"m-1","max_output_tokens":4096,"stream":true,"include":["reasoning.encrypted_content"],"#,
            r#""reasoning":{"effort":"low","summary":"auto"},"store":true,"#
        )
    );
}

#[test]
fn urls_are_the_vendors_own() {
    for (wire, base, url) in [
        (Wire::Anthropic, "https://h", "https://h/v1/messages"),
        (Wire::OpenAiResponses, "https://h/v1/", "https://h/v1/responses"),
        (Wire::OpenAiChat, "https://h/v1", "https://h/v1/chat/completions"),
        (Wire::Gemini, "https://h/v1beta/", "https://h/v1beta/models/m-1:streamGenerateContent?alt=sse"),
    ] {
        assert_eq!(wire.url(base, "m-1"), url);
    }
    assert_eq!(
        Wire::Gemini.url("https://h/v1beta", "tunedModels/my model?"),
        "https://h/v1beta/tunedModels/my%20model%3F:streamGenerateContent?alt=sse"
    );
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
    assert_eq!(named(Wire::OpenAiResponses, Some("k"), "authorization").as_deref(), Some("Bearer k"));
    assert_eq!(named(Wire::Gemini, Some("k"), "x-goog-api-key").as_deref(), Some("k"));
    assert_eq!(named(Wire::Gemini, Some("k"), "authorization"), None);
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
fn responses_get_items() {
    assert_eq!(
        encoded(Wire::OpenAiResponses, &history()),
        concat!(
            r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"Do it"},"#,
            r#"{"type":"input_text","text":"[operator] Budget: 3 steps"}]},"#,
            r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"On it"}]},"#,
            r#"{"type":"function_call","call_id":"a","name":"bash","arguments":"{ \"command\":\"ls\" }"},"#,
            r#"{"type":"function_call","call_id":"b","name":"bash","arguments":"{\"_unparsed\":\"{\\\"command\\\":\"}"},"#,
            r#"{"type":"function_call_output","call_id":"a","output":"file\n"},"#,
            r#"{"type":"function_call_output","call_id":"b","output":"(no output)"},"#,
            r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"[operator] Note"},"#,
            r#"{"type":"input_text","text":"Go on"}]},"#,
            r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"Then that"}]},"#,
            r#"{"type":"hologram","z":1.50}"#
        )
    );
}

#[test]
fn gemini_gets_contents_with_results_first() {
    assert_eq!(
        encoded(Wire::Gemini, &history()),
        concat!(
            r#"{"role":"user","parts":[{"text":"Do it"},{"text":"[operator] Budget: 3 steps"}]},"#,
            r#"{"role":"model","parts":[{"text":"On it"},"#,
            r#"{"functionCall":{"id":"a","name":"bash","args":{ "command":"ls" }}},"#,
            r#"{"functionCall":{"id":"b","name":"bash","args":{"_unparsed":"{\"command\":"}}}]},"#,
            r#"{"role":"user","parts":[{"functionResponse":{"id":"a","name":"bash","response":{"result":"file\n"}}},"#,
            r#"{"functionResponse":{"id":"b","name":"bash","response":{"error":"(no output)"}}},"#,
            r#"{"text":"[operator] Note"},{"text":"Go on"}]},"#,
            r#"{"role":"user","parts":[{"text":"Then that"}]},"#,
            r#"{"role":"model","parts":[{"type":"hologram","z":1.50}]}"#
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
        assert!(
            wire == Wire::OpenAiChat
                || !encoded(wire, &[assistant(vec![reasoning(r#"{"reasoning_content":"Hm"}"#)])]).contains("Hm")
        );
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
            if matches!(wire, Wire::Anthropic | Wire::Gemini) { 1 } else { 2 }
        );
        assert!(out.starts_with(b"[0,{\""));
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
            let mut sent = by_reply.parts_from(0).concat();
            let mut from = 0;
            for (n, message) in messages.iter().enumerate() {
                // A request is sent before each reply.
                if matches!(message, Message::Assistant { .. }) && n > from {
                    by_reply.seal(&messages[from..n]);
                    from = n;
                    let now = by_reply.parts_from(0).concat();
                    prop_assert!(now.starts_with(&sent[..sent.len() - wire.close().len()]));
                    sent = now;
                }
            }
            by_reply.seal(&messages[from..]);
            prop_assert_eq!(by_reply.parts_from(0).concat(), at_once.parts_from(0).concat());
            prop_assert_eq!(by_reply.digest(), at_once.digest());

            let mut out = Vec::new();
            let count = wire.messages(&messages, false, &mut out);
            if count > 0 {
                let body: Vec<u8> = at_once.body(&wire.front(&front(&[]))).concat();
                let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
                let system = u64::from(wire == Wire::OpenAiChat && !system.is_empty());
                let list = match wire {
                    Wire::Anthropic | Wire::OpenAiChat => "messages",
                    Wire::OpenAiResponses => "input",
                    Wire::Gemini => "contents",
                };
                prop_assert_eq!(body[list].as_array().unwrap().len() as u64, count + system);
            }
        }
    }
}
