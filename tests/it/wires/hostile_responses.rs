//! One stream per rule of the `openai-responses` decoder.

use std::time::Duration;

use spettro::event::Usage;
use spettro::model::wire::Wire;
use spettro::model::{ModelError, Reply, Stop};
use spettro::session::{Block, Message};

use super::{Decoded, body, in_any_chunking};

fn decoded(name: &str) -> Decoded {
    in_any_chunking(Wire::OpenAiResponses, &body(&format!("openai-responses/{name}")))
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

/// What goes back of a reply.
fn sent(reply: &Reply) -> String {
    let mut out = Vec::new();
    Wire::OpenAiResponses.messages(&[reply.message()], false, &mut out);
    String::from_utf8(out).unwrap()
}

/// The finished items of a stream, as bytes, in their order in the output.
fn items(name: &str) -> Vec<String> {
    let stream = String::from_utf8(body(&format!("openai-responses/{name}"))).unwrap();
    let mut items = Vec::new();
    let done = "data: {\"type\":\"response.output_item.done\"";
    for line in stream.lines().filter(|line| line.starts_with(done)) {
        let (head, item) = line.split_once(",\"item\":").unwrap();
        let index = head.rsplit_once("\"output_index\":").map_or(items.len(), |(_, index)| index.parse().unwrap());
        items.push((index, item.strip_suffix('}').unwrap().to_owned()));
    }
    items.sort();
    items.into_iter().map(|(_, item)| item).collect()
}

#[test]
fn overlapping_items_go_by_their_place() {
    let reply = reply("overlapping.sse");
    assert_eq!(
        seen(&reply),
        [text("Look"), call("c1", "bash", r#"{"command":"ls"}"#), call("c2", "grep", r#"{"pattern":"x"}"#)]
    );
    assert_eq!(reply.stop, Stop::ToolUse);
    assert_eq!(reply.model.as_deref(), Some("m-1"));
}

#[test]
fn items_go_back_byte_for_byte() {
    for name in
        ["overlapping.sse", "reasoning.sse", "reasoning-open.sse", "escaped.sse", "parts.sse", "unknown-items.sse"]
    {
        assert_eq!(sent(&reply(name)), items(name).join(","), "{name}");
    }
}

#[test]
fn escapes_are_read_and_kept() {
    let reply = reply("escaped.sse");
    assert_eq!(seen(&reply), [text("café / 😀"), call("c1", "bash", r#"{"a": "\u00e9"}"#)]);
}

#[test]
fn an_edited_block_stands_in_its_item() {
    let mut reply = reply("overlapping.sse");
    for block in &mut reply.blocks {
        if let Block::Call { id, arguments, .. } = block
            && id == "c1"
        {
            *arguments = "{}".into();
        }
    }
    let items = items("overlapping.sse");
    let edited = items[1].replace(r#""{\"command\":\"ls\"}""#, r#""{}""#);
    assert_ne!(edited, items[1]);
    assert_eq!(sent(&reply), [items[0].as_str(), &edited, &items[2]].join(","));
}

#[test]
fn reasoning_is_read_and_kept_whole() {
    let decoded = decoded("reasoning.sse");
    assert_eq!(decoded.thinking, "First \"this\"then\nthat");
    let reply = decoded.reply.unwrap();
    assert_eq!(
        reply.blocks[0],
        Block::Thinking { text: "First \"this\"\n\nthen\nthat".into(), raw: Some(items("reasoning.sse").remove(0)) }
    );
    let Block::Thinking { text, raw: Some(_) } = &self::reply("reasoning-open.sse").blocks[0] else { panic!() };
    assert_eq!(text, "hm", "open models say what they think");
}

#[test]
fn what_the_provider_did_not_store_is_not_named_to_it() {
    // Neither the empty reasoning nor the id of the call that it led to.
    assert_eq!(
        sent(&reply("reasoning-unstored.sse")),
        r#"{"type":"function_call","call_id":"c1","name":"bash","arguments":"{}"}"#
    );
}

#[test]
fn withheld_reasoning_takes_the_ids_along() {
    let mut reply = reply("reasoning.sse");
    reply.blocks.retain(|block| !matches!(block, Block::Thinking { .. }));
    assert_eq!(
        sent(&reply),
        r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"So."}]}"#
    );
}

#[test]
fn unknown_items_keep_their_bytes_and_unknown_events_are_ignored() {
    let reply = reply("unknown-items.sse");
    assert_eq!(reply.blocks[0], Block::Raw { raw: items("unknown-items.sse").remove(0) });
    assert_eq!(reply.text(), "found");
}

#[test]
fn a_refusal_keeps_its_words_and_loses_its_calls() {
    let decoded = decoded("refusal.sse");
    let reply = decoded.reply.unwrap();
    assert_eq!(reply.stop, Stop::Refused("I cannot.".into()));
    assert_eq!(reply.text(), "I will ");
    assert_eq!(reply.calls().count(), 0);
    let reply = self::reply("content-filter.sse");
    assert_eq!((reply.stop.clone(), reply.text()), (Stop::Refused("content_filter".into()), "Half".into()));
}

#[test]
fn a_reply_cut_at_its_cap_is_whole_and_none_of_its_calls_goes_back() {
    let reply = reply("max-tokens.sse");
    assert_eq!(reply.stop, Stop::MaxTokens);
    assert_eq!(seen(&reply), [text("Half"), call("c1", "bash", "{\"comm")]);
    assert_eq!(sent(&reply), items("max-tokens.sse")[0]);
    assert_eq!(self::reply("new-reason.sse").stop, Stop::Other("compaction".into()));
}

#[test]
fn usage_includes_what_was_cached() {
    assert_eq!(
        reply("overlapping.sse").usage,
        Some(Usage {
            input_tokens: 10,
            output_tokens: 5,
            cache_read_tokens: 4,
            reasoning_tokens: 2,
            ..Usage::default()
        })
    );
    assert_eq!(reply("usage-late.sse").usage, None);
}

#[test]
fn an_error_inside_a_200_is_typed_and_ends_the_reading() {
    let decoded = decoded("failed-server.sse");
    assert_eq!(decoded.reply, Err(ModelError::Overloaded { message: "The server had an error".into(), wait: None }));
    assert_eq!((decoded.text.as_str(), decoded.partial.text.as_str()), ("Half", "Half"));
    assert_eq!(decoded.partial.output_bytes, 4);
    let ModelError::RateLimited { wait, .. } = error("failed-rate.sse") else { panic!() };
    assert_eq!(wait, Some(Duration::from_secs_f64(11.054)));
    assert!(matches!(error("failed-overflow.sse"), ModelError::ContextOverflow { limit_tokens: None, .. }));
    assert!(matches!(error("failed-quota.sse"), ModelError::Quota(_)));
    assert_eq!(
        error("error-event.sse"),
        ModelError::RateLimited { message: "Please try again in 7s".into(), wait: Some(Duration::from_secs(7)) }
    );
    assert_eq!(error("error-nested.sse"), ModelError::RateLimited { message: "Too Many Requests".into(), wait: None });
    assert_eq!(error("error-200.json"), ModelError::Overloaded { message: "m".into(), wait: None });
    assert!(matches!(error("cancelled.sse"), ModelError::Overloaded { .. }));
}

#[test]
fn wrong_frames_end_the_reading() {
    for name in ["not-json.sse", "wrong-shape.sse", "no-item.sse"] {
        let decoded = decoded(name);
        assert!(matches!(decoded.reply, Err(ModelError::Malformed(_))), "{name}: {:?}", decoded.reply);
        assert!(!decoded.text.contains('b'), "{name} was read on");
    }
    assert_eq!(error("nameless.sse"), ModelError::Malformed("a tool call without a name".into()));
}

#[test]
fn only_the_terminal_event_makes_a_reply_whole() {
    for name in ["last-blank-lost.sse", "after-end.sse"] {
        let reply = reply(name);
        assert_eq!((reply.text().as_str(), reply.stop), ("so", Stop::End), "{name}");
    }
    for name in ["cut-completed.sse", "no-terminal.sse"] {
        assert_eq!(error(name), ModelError::Truncated, "{name}");
    }
}

#[test]
fn items_that_were_not_finished_are_what_was_seen_of_them() {
    assert_eq!(reply("no-done.sse").blocks, [text("Half of it")]);
    assert_eq!(reply("deltas-alone.sse").blocks, [text("ab"), call("c1", "bash", r#"{"command":"ls"}"#)]);
    let reply = reply("only-output.sse");
    assert_eq!(seen(&reply), [text("all at once"), call("c1", "bash", "{}")]);
}

#[test]
fn without_a_place_items_go_by_their_ids() {
    let reply = reply("no-index.sse");
    assert_eq!(seen(&reply), [text("Hello"), call("c1", "bash", "{}")]);
}

#[test]
fn each_call_has_its_own_id() {
    let reply = reply("same-ids.sse");
    let calls: Vec<_> = reply.calls().collect();
    assert_eq!(calls, [("c", "bash", "{}"), ("call_2", "bash", r#"{"a":1}"#), ("call_3", "bash", r#"{"b": 2}"#)]);
    let sent = format!("[{}]", sent(&reply));
    let sent: serde_json::Value = serde_json::from_str(&sent).unwrap();
    assert_eq!(sent[1]["call_id"], "call_2", "the item of an id that was taken is written anew");
    assert_eq!(sent[2]["arguments"], r#"{"b": 2}"#);
}

#[test]
fn carriage_returns_and_a_mark_are_read() {
    assert_eq!(reply("cr-bom.sse").text(), "é€😀");
}

#[test]
fn a_body_that_is_not_streamed_is_read() {
    let reply = reply("whole.json");
    assert_eq!(reply.calls().collect::<Vec<_>>(), [("c1", "bash", r#"{ "command" : "ls" }"#)]);
    assert_eq!((reply.text().as_str(), reply.usage.map(|usage| usage.total_tokens())), ("hi", Some(7)));
    let whole = body("openai-responses/whole.json");
    let cut = &whole[..whole.len() - 2];
    assert_eq!(in_any_chunking(Wire::OpenAiResponses, cut).reply, Err(ModelError::Truncated));
}

#[test]
fn reasoning_alone_is_nothing_to_send() {
    let raw = r#"{"type":"reasoning","id":"rs_1","encrypted_content":"x","summary":[]}"#;
    let alone = Message::Assistant {
        blocks: vec![Block::Thinking { text: String::new(), raw: Some(raw.into()) }],
        interrupted: false,
        refused: None,
    };
    let mut out = Vec::new();
    assert_eq!(Wire::OpenAiResponses.messages(&[alone], false, &mut out), 0);
}
