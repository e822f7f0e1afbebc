//! One stream per rule of the `gemini` decoder.

use std::time::Duration;

use spettro::event::Usage;
use spettro::model::wire::Wire;
use spettro::model::{ModelError, Reply, Stop};
use spettro::session::{Block, Message, Origin};

use super::{Decoded, body, in_any_chunking};

fn decoded(name: &str) -> Decoded {
    in_any_chunking(Wire::Gemini, &body(&format!("gemini/{name}")))
}

fn reply(name: &str) -> Reply {
    decoded(name).reply.unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn error(name: &str) -> ModelError {
    decoded(name).reply.expect_err(name)
}

fn text(text: &str) -> Block {
    Block::Text { text: text.into() }
}

fn call(id: &str, name: &str, arguments: &str) -> Block {
    Block::Call { id: id.into(), name: name.into(), arguments: arguments.into() }
}

/// The blocks without what only goes back.
fn seen(reply: &Reply) -> Vec<Block> {
    let silent = |block: &&Block| !matches!(block, Block::Thinking { text, raw: Some(_) } if text.is_empty());
    reply.blocks.iter().filter(silent).cloned().collect()
}

fn sent(reply: &Reply) -> String {
    let mut out = Vec::new();
    Wire::Gemini.messages(&[reply.message()], false, &mut out);
    String::from_utf8(out).unwrap()
}

fn model(parts: &str) -> String {
    format!(r#"{{"role":"model","parts":[{parts}]}}"#)
}

#[test]
fn texts_are_joined_and_the_last_usage_wins() {
    let reply = reply("text.sse");
    assert_eq!((reply.blocks.as_slice(), &reply.stop), (&[text("Hello")][..], &Stop::End));
    assert_eq!(reply.model.as_deref(), Some("m-1"));
    assert_eq!(
        reply.usage,
        Some(Usage {
            input_tokens: 10,
            output_tokens: 5 + 2,
            cache_read_tokens: 4,
            reasoning_tokens: 2,
            ..Usage::default()
        })
    );
}

#[test]
fn calls_come_whole_and_go_back_byte_for_byte() {
    let reply = reply("calls.sse");
    assert_eq!(
        seen(&reply),
        [
            text("Look"),
            call("x1", "bash", r#"{ "command": "ls", "n": 1.50 }"#),
            call("call_2", "grep", r#"{"pattern":"caf\u00e9"}"#)
        ]
    );
    assert_eq!(reply.stop, Stop::ToolUse, "the wire itself says STOP");
    assert_eq!(
        sent(&reply),
        model(concat!(
            r#"{"text":"Look"},"#,
            r#"{"functionCall":{"name":"bash","args":{ "command": "ls", "n": 1.50 },"id":"x1"},"thoughtSignature":"Eq+/=="},"#,
            r#"{"functionCall":{"name":"grep","args":{"pattern":"caf\u00e9"}}}"#
        ))
    );
}

#[test]
fn results_bear_the_id_of_their_call_where_it_has_one() {
    let result = |call_id: &str, tool: &str, is_error| Message::Tool {
        call_id: call_id.into(),
        tool: tool.into(),
        text: "ok".into(),
        is_error,
    };
    let note = Message::User { origin: Origin::Steer, text: "note".into() };
    let mut out = Vec::new();
    Wire::Gemini.messages(&[note, result("x1", "bash", false), result("call_2", "grep", true)], false, &mut out);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        concat!(
            r#"{"role":"user","parts":["#,
            r#"{"functionResponse":{"id":"x1","name":"bash","response":{"result":"ok"}}},"#,
            r#"{"functionResponse":{"name":"grep","response":{"error":"ok"}}},"#,
            r#"{"text":"note"}]}"#
        )
    );
}

#[test]
fn signed_texts_stay_parts_of_their_own() {
    let reply = reply("signed-text.sse");
    assert_eq!(reply.text(), "before signed after");
    assert_eq!(
        sent(&reply),
        model(concat!(
            r#"{"text":"before "},{"text":"signed","thoughtSignature":"c2ln\/+=="},{"text":" after"},"#,
            r#"{"text":"","thoughtSignature":"ZW5k"}"#
        ))
    );
    assert!(sent(&self::reply("late-signature.sse")).contains(r#"{"text":"","thoughtSignature":"bGF0ZQ=="}"#));
}

#[test]
fn thoughts_are_no_text_and_go_back_where_they_are_signed() {
    let decoded = decoded("thoughts.sse");
    assert_eq!((decoded.thinking.as_str(), decoded.text.as_str()), ("First thissealed", "So."));
    let reply = decoded.reply.unwrap();
    assert_eq!(reply.blocks[0], Block::Thinking { text: "First this".into(), raw: None });
    assert_eq!(sent(&reply), model(r#"{"text":"sealed","thought":true,"thoughtSignature":"c2lnMQ=="},{"text":"So."}"#));
}

#[test]
fn calls_without_arguments_have_none() {
    let reply = reply("no-args.sse");
    assert_eq!(
        reply.calls().collect::<Vec<_>>(),
        [("call_1", "none", "{}"), ("call_2", "null", "{}"), ("call_3", "empty", "{}")]
    );
    assert!(sent(&reply).starts_with(&model(r#"{"functionCall":{"name":"none"}}"#)[..50]), "{}", sent(&reply));
}

#[test]
fn each_call_has_its_own_id() {
    let reply = reply("no-ids.sse");
    let ids: Vec<_> = reply.calls().map(|(id, ..)| id).collect();
    assert_eq!(ids, ["call_1", "call_2", "call_3"]);
}

#[test]
fn unknown_parts_keep_their_bytes() {
    let reply = reply("unknown-parts.sse");
    let code = r#"{"executableCode":{"language":"PYTHON", "code":"1\u002b1"},"z":1.50}"#;
    assert_eq!(reply.blocks[0], Block::Raw { raw: code.into() });
    assert!(sent(&reply).contains(code));
}

#[test]
fn refusals_keep_their_details_and_lose_their_calls() {
    let reply = reply("safety.sse");
    let ratings = r#"[{"category":"HARM_CATEGORY_DANGEROUS_CONTENT","probability":"HIGH","blocked":true}]"#;
    assert_eq!(reply.stop, Stop::Refused(format!(r#"{{"finishReason":"SAFETY","safetyRatings":{ratings}}}"#)));
    assert_eq!((reply.text().as_str(), reply.calls().count()), ("I will ", 0));
    let blocked = self::reply("blocked.sse");
    assert_eq!(blocked.stop, Stop::Refused(r#"{"blockReason":"PROHIBITED_CONTENT","safetyRatings":[]}"#.into()));
    assert_eq!(blocked.usage.map(|usage| usage.input_tokens), Some(9));
    assert_eq!(self::reply("recitation.sse").stop, Stop::Refused(r#"{"finishReason":"RECITATION"}"#.into()));
    assert_eq!(self::reply("not-blocked.sse").stop, Stop::End);
}

#[test]
fn every_finish_reason_has_its_meaning() {
    assert_eq!(reply("max-tokens.sse").stop, Stop::MaxTokens);
    assert_eq!(reply("new-reason.sse").stop, Stop::Other("HOLOGRAM".into()));
    let empty = reply("empty.sse");
    assert_eq!((empty.blocks.len(), empty.stop), (0, Stop::End));
    // The model's slip may not come again; a request without its signatures stays wrong.
    assert!(error("malformed-call.sse").retryable());
    assert!(matches!(error("no-signature.sse"), ModelError::InvalidRequest(_)));
}

#[test]
fn only_a_finish_reason_makes_a_reply_whole() {
    for name in ["last-blank-lost.sse", "second-candidate.sse"] {
        let reply = reply(name);
        assert_eq!((reply.text().as_str(), reply.stop), ("so", Stop::End), "{name}");
    }
    assert_eq!(reply("after-stop.sse").usage.map(|usage| usage.total_tokens()), Some(17));
    for name in ["no-terminal.sse", "cut.sse"] {
        assert_eq!(error(name), ModelError::Truncated, "{name}");
    }
}

#[test]
fn an_error_inside_a_200_is_typed_and_ends_the_reading() {
    let decoded = decoded("error-inside.sse");
    assert!(matches!(decoded.reply, Err(ModelError::Overloaded { wait: None, .. })), "{:?}", decoded.reply);
    assert_eq!((decoded.text.as_str(), decoded.partial.text.as_str()), ("Half", "Half"));
    assert_eq!(decoded.partial.usage.unwrap().input_tokens, 10);
    assert_eq!(
        error("rate-limited.sse"),
        ModelError::RateLimited { message: "Resource has been exhausted".into(), wait: Some(Duration::from_secs(34)) }
    );
    assert!(matches!(error("error-200.json"), ModelError::Overloaded { .. }));
}

#[test]
fn wrong_frames_end_the_reading() {
    for name in ["not-json.sse", "wrong-shape.sse", "nameless.sse", "neither.json", "page.html"] {
        let decoded = decoded(name);
        assert!(matches!(decoded.reply, Err(ModelError::Malformed(_))), "{name}: {:?}", decoded.reply);
        assert!(!decoded.text.contains('b'), "{name} was read on");
    }
}

#[test]
fn carriage_returns_comments_and_a_mark_are_read() {
    assert_eq!(reply("crlf-bom.sse").text(), "é€😀 split");
}

#[test]
fn a_body_that_is_not_streamed_is_read() {
    let reply = reply("whole.json");
    assert_eq!(reply.calls().collect::<Vec<_>>(), [("x1", "bash", r#"{ "command" : "ls" }"#)]);
    assert_eq!(reply.text(), "hi");
    let whole = body("gemini/whole.json");
    let cut = &whole[..whole.len() - 2];
    assert_eq!(in_any_chunking(Wire::Gemini, cut).reply, Err(ModelError::Truncated));
}

#[test]
fn a_key_that_is_refused_is_no_wrong_request() {
    let body = br#"{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}"#;
    assert_eq!(Wire::Gemini.error(400, &[], body, 0), ModelError::Auth("API key not valid.".into()));
}
