//! One stream per rule of the `anthropic` decoder.

use std::time::Duration;

use spettro::event::Usage;
use spettro::model::wire::Wire;
use spettro::model::{ModelError, Reply, Stop};
use spettro::session::Block;

use super::{Decoded, body, in_any_chunking};

fn decoded(name: &str) -> Decoded {
    in_any_chunking(Wire::Anthropic, &body(&format!("anthropic/{name}")))
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

#[test]
fn overlapping_blocks_go_by_index() {
    let reply = reply("overlapping.sse");
    assert_eq!(
        reply.blocks,
        [text("Look"), call("t1", "bash", r#"{"command":"ls"}"#), call("t2", "grep", r#"{"pattern":"x"}"#)]
    );
    assert_eq!(reply.stop, Stop::ToolUse);
    assert_eq!(reply.model.as_deref(), Some("m-1"));
}

#[test]
fn arguments_are_what_was_sent() {
    let reply = reply("no-arguments.sse");
    assert_eq!(
        reply.blocks,
        [
            call("a", "none", "{}"),
            call("b", "empty", "{}"),
            call("c", "at-start", r#"{ "k": [1, 2.50] }"#),
            call("d", "broken", r#"{"path":"/tm"#),
            // Its end never came: nothing is guessed.
            call("e", "open", ""),
        ]
    );
    assert_eq!(reply.stop, Stop::MaxTokens);
}

#[test]
fn thinking_is_assembled_with_its_signature() {
    let decoded = decoded("thinking.sse");
    assert_eq!(decoded.thinking, "Let me \"see\"\né€/");
    let raw = |raw: &str| Some(raw.to_owned());
    assert_eq!(
        decoded.reply.unwrap().blocks,
        [
            Block::Thinking {
                text: "Let me \"see\"\né€/".into(),
                raw: raw(
                    r#"{"type":"thinking","thinking":"Let me \"see\"\né€/","signature":"EqQB+/==","extra":{"n":1.0}}"#
                ),
            },
            Block::Thinking { text: String::new(), raw: raw(r#"{"type":"redacted_thinking","data":"Zm9v\/YmFy"}"#) },
            text("Done."),
        ]
    );
}

#[test]
fn unknown_blocks_keep_their_bytes_and_unknown_events_are_ignored() {
    let raw = |raw: &str| Block::Raw { raw: raw.into() };
    assert_eq!(
        reply("unknown-blocks.sse").blocks,
        [
            raw(r#"{"type":"hologram","z":1.50,"a":"\u00e9","deep":{ "k" : [ ] }}"#),
            raw(
                r#"{"type":"server_tool_use","id":"s1","name":"web_search","input":{"query": "tokyo", "n":1e2},"caller":{"type":"direct"}}"#
            ),
            raw(r#"{"type":"compaction","content":"shorter"}"#),
            text("cited"),
        ]
    );
}

#[test]
fn usage_overwrites_and_counts_the_cache() {
    assert_eq!(
        reply("usage.sse").usage,
        Some(Usage {
            input_tokens: 110 + 70 + 1_000,
            output_tokens: 20,
            cache_read_tokens: 1_000,
            cache_write_tokens: 30,
            cache_write_1h_tokens: 40,
            reasoning_tokens: 0,
        })
    );
}

#[test]
fn a_refusal_keeps_its_details_and_loses_its_calls() {
    let reply = reply("refusal.sse");
    assert_eq!(reply.stop, Stop::Refused(r#"{"type":"refusal","category":"cyber","explanation":"no"}"#.into()));
    assert_eq!(reply.blocks, [text("I will ")]);
    assert_eq!(reply.calls().count(), 0);
}

#[test]
fn every_stop_reason_has_its_meaning() {
    assert_eq!(reply("pause.sse").stop, Stop::Pause);
    assert_eq!(reply("context.sse").stop, Stop::ContextExceeded);
    assert_eq!(reply("new-reason.sse").stop, Stop::Other("compaction".into()));
    assert_eq!(reply("thinking.sse").stop, Stop::End);
}

#[test]
fn an_error_inside_a_200_is_typed_and_ends_the_reading() {
    let decoded = decoded("overloaded.sse");
    assert_eq!(decoded.reply, Err(ModelError::Overloaded { message: "Overloaded".into(), wait: None }));
    assert_eq!((decoded.text.as_str(), decoded.partial.text.as_str()), ("Half", "Half"));
    assert_eq!(decoded.partial.output_bytes, 4);
    assert_eq!(decoded.partial.usage.unwrap().input_tokens, 10);
    assert_eq!(
        error("rate-limited.sse"),
        ModelError::RateLimited { message: "Please try again in 7s".into(), wait: Some(Duration::from_secs(7)) }
    );
}

#[test]
fn wrong_frames_end_the_reading() {
    for name in ["not-json.sse", "no-index.sse", "never-started.sse", "wrong-delta.sse", "page.html"] {
        let decoded = decoded(name);
        assert!(matches!(decoded.reply, Err(ModelError::Malformed(_))), "{name}: {:?}", decoded.reply);
        assert!(!decoded.text.contains('b'), "{name} was read on");
    }
}

#[test]
fn only_the_stop_reason_makes_a_reply_whole() {
    for name in ["stop-lost.sse", "after-stop.sse"] {
        let reply = reply(name);
        assert_eq!((reply.text().as_str(), reply.stop), ("whole", Stop::End), "{name}");
    }
    for name in ["stop-cut.sse", "no-reason.sse"] {
        assert_eq!(error(name), ModelError::Truncated, "{name}");
    }
}

#[test]
fn carriage_returns_a_mark_comments_and_data_lines_are_read() {
    assert_eq!(reply("cr-bom.sse").text(), "é€😀 split over lines");
}

#[test]
fn changes_to_the_request_are_reported() {
    assert_eq!(
        reply("transformed.sse").input_transformations.as_deref(),
        Some(r#"[ {"type":"thinking_dropped","path":"messages.1"} ]"#)
    );
    assert_eq!(reply("usage.sse").input_transformations, None);
}

#[test]
fn each_call_has_its_own_id_and_calls_ask_for_tools() {
    let reply = reply("no-ids.sse");
    let ids: Vec<_> = reply.calls().map(|(id, ..)| id).collect();
    assert_eq!(ids, ["call_1", "call_2", "call_3"]);
    assert_eq!(reply.stop, Stop::ToolUse);
}

#[test]
fn a_body_that_is_not_streamed_is_read() {
    let reply = reply("whole.json");
    assert_eq!(
        reply.blocks,
        [
            Block::Thinking {
                text: "t".into(),
                raw: Some(r#"{"type":"thinking","thinking":"t","signature":"s\/"}"#.into())
            },
            text("hi"),
            call("t", "bash", r#"{ "command" : "ls" }"#),
            Block::Raw { raw: r#"{"type":"hologram","z":1.50}"#.into() },
        ]
    );
    assert_eq!(reply.usage.unwrap().total_tokens(), 7);
    assert_eq!(error("error-200.json"), ModelError::Overloaded { message: "Overloaded".into(), wait: None });

    let whole = body("anthropic/whole.json");
    let cut = &whole[..whole.len() - 2];
    assert_eq!(in_any_chunking(Wire::Anthropic, cut).reply, Err(ModelError::Truncated));
}
