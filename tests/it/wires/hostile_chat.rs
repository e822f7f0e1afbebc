//! One stream per rule of the `openai-chat` decoder.

use std::time::Duration;

use spettro::event::Usage;
use spettro::model::wire::Wire;
use spettro::model::{ModelError, Reply, Stop};
use spettro::session::Block;

use super::{Decoded, body, in_any_chunking};

fn decoded(name: &str) -> Decoded {
    in_any_chunking(Wire::OpenAiChat, &body(&format!("openai-chat/{name}")))
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

/// The calls of a stream as (id, name, arguments).
fn calls(name: &str) -> Vec<(String, String, String)> {
    reply(name).calls().map(|(id, name, arguments)| (id.into(), name.into(), arguments.into())).collect()
}

fn expect(name: &str, expected: &[(&str, &str, &str)]) {
    let got = calls(name);
    let got: Vec<_> =
        got.iter().map(|(id, name, arguments)| (id.as_str(), name.as_str(), arguments.as_str())).collect();
    assert_eq!(got, expected, "{name}");
}

#[test]
fn calls_are_told_apart_whatever_the_server_does() {
    let (x, y) = (r#"{"x":1}"#, r#"{"y":2}"#);
    expect("index-zero.sse", &[("a", "one", x), ("b", "two", y), ("c", "one", "{}")]);
    expect(
        "no-index.sse",
        &[("a", "one", x), ("b", "two", y), ("call_3", "three", r#"{"z":3}"#), ("call_4", "three", r#"{"z":4}"#)],
    );
    expect("no-ids.sse", &[("call_1", "one", "{}"), ("call_2", "two", y), ("call_3", "one", r#"{"again":true}"#)]);
    expect("same-ids.sse", &[("call_2", "one", x), ("call_3", "two", y), ("call_4", "one", r#"{"x":3}"#)]);
    expect("id-again.sse", &[("a", "one", x)]);
    expect("new-id-each-piece.sse", &[("a", "one", x), ("d", "two", "{}")]);
    expect("arguments-first.sse", &[("a", "one", x)]);
    expect("whole-call.sse", &[("a", "one", x), ("b", "two", y)]);
    expect("interleaved.sse", &[("a", "one", x), ("b", "two", y)]);
    expect("name-in-pieces.sse", &[("a", "file-read", r#"{"path":"x"}"#)]);
}

#[test]
fn arguments_are_what_was_sent() {
    expect("object-arguments.sse", &[("a", "one", r#"{ "x": 1.50 }"#)]);
    // Nothing is guessed into `{}`.
    expect("empty-arguments.sse", &[("a", "one", ""), ("b", "two", "")]);
    expect("length.sse", &[("a", "one", r#"{"x":"#)]);
    assert_eq!(reply("length.sse").stop, Stop::MaxTokens);
    assert!(matches!(error("nameless.sse"), ModelError::Malformed(_)));
}

#[test]
fn calls_ask_for_tools_whatever_the_reason_says() {
    assert_eq!(reply("object-arguments.sse").stop, Stop::ToolUse);
    assert_eq!(reply("finish-twice.sse").stop, Stop::ToolUse);
}

#[test]
fn reasoning_under_two_keys_is_taken_once() {
    let decoded = decoded("reasoning-twice.sse");
    assert_eq!(decoded.thinking, "Hmm, \"é\".");
    assert_eq!(
        decoded.reply.unwrap().blocks,
        [
            Block::Thinking {
                text: "Hmm, \"é\".".into(), raw: Some(r#"{"reasoning_content":"Hmm, \"é\"."}"#.into())
            },
            text("Yes"),
        ]
    );
    assert_eq!(
        reply("reasoning.sse").blocks[0],
        Block::Thinking { text: "Hm".into(), raw: Some(r#"{"reasoning":"Hm"}"#.into()) }
    );
}

#[test]
fn reasoning_details_are_joined_and_kept() {
    assert_eq!(
        reply("details.sse").blocks[0],
        Block::Thinking {
            text: "ab".into(),
            raw: Some(
                concat!(
                    r#"{"reasoning":"ab","reasoning_details":["#,
                    r#"{"type":"reasoning.text","text":"ab","format":"f","index":0,"signature":"s=="},"#,
                    r#"{"type":"reasoning.encrypted","data":"\/x","index":0},"#,
                    r#"{"type":"reasoning.encrypted","data":"y","index":0}]}"#
                )
                .into()
            ),
        }
    );
}

#[test]
fn a_content_may_be_a_list_of_parts() {
    assert_eq!(
        reply("parts.sse").blocks,
        [
            Block::Thinking { text: "Hm".into(), raw: None },
            text("See "),
            Block::Raw { raw: r#"{"type":"reference","reference_ids":[1, 2.0]}"#.into() },
            text("this"),
        ]
    );
}

#[test]
fn usage_comes_late_often_or_never() {
    assert_eq!(
        reply("usage-late.sse").usage,
        Some(Usage {
            input_tokens: 11,
            output_tokens: 7,
            cache_read_tokens: 4,
            reasoning_tokens: 2,
            ..Usage::default()
        })
    );
    // The total says that reasoning is not in the completion.
    assert_eq!(
        reply("usage-each.sse").usage,
        Some(Usage { input_tokens: 11, output_tokens: 9, reasoning_tokens: 2, ..Usage::default() })
    );
    assert_eq!(reply("no-usage.sse").usage, None);
    assert_eq!(reply("finish-twice.sse").usage.unwrap().output_tokens, 2);
}

#[test]
fn only_the_finish_reason_makes_a_reply_whole() {
    assert_eq!(error("done-alone.sse"), ModelError::Truncated);
    for name in ["no-done.sse", "last-frame-cut.sse"] {
        let reply = reply(name);
        assert_eq!((reply.text().as_str(), reply.stop), ("Yes", Stop::End), "{name}");
    }
}

#[test]
fn a_refusal_keeps_its_details_and_loses_its_calls() {
    let refusal = reply("refusal.sse");
    assert_eq!((refusal.stop, refusal.blocks), (Stop::Refused("I cannot.".into()), vec![]));
    let filtered = reply("content-filter.sse");
    assert_eq!((filtered.stop, filtered.blocks), (Stop::Refused("content_filter".into()), vec![text("Sure, ")]));
}

#[test]
fn errors_inside_a_200_are_typed() {
    assert_eq!(
        error("error-object.sse"),
        ModelError::RateLimited {
            message: "Rate limit reached. Please try again in 2.5s".into(),
            wait: Some(Duration::from_millis(2_500))
        }
    );
    assert_eq!(error("error-flat.sse"), ModelError::Overloaded { message: "engine died".into(), wait: None });
    assert_eq!(
        error("error-line.sse"),
        ModelError::ContextOverflow {
            message: "the request exceeds the available context size (4096 tokens)".into(),
            limit_tokens: Some(4_096)
        }
    );
    assert_eq!(error("error-choice.sse"), ModelError::Overloaded { message: "Upstream gone".into(), wait: None });
    assert!(matches!(error("error-finish.sse"), ModelError::Overloaded { .. }));
    assert_eq!(
        error("error-200.json"),
        ModelError::RateLimited { message: "Provider returned error".into(), wait: None }
    );
}

#[test]
fn wrong_frames_end_the_reading() {
    for name in ["not-json.sse", "wrong-shape.sse", "not-an-object.sse"] {
        let decoded = decoded(name);
        assert!(matches!(decoded.reply, Err(ModelError::Malformed(_))), "{name}: {:?}", decoded.reply);
        assert!(!decoded.text.contains('b'), "{name} was read on");
    }
}

#[test]
fn only_the_first_choice_counts() {
    assert_eq!(reply("second-choice.sse").text(), "Yes!");
}

#[test]
fn crlf_a_mark_and_comments_are_read() {
    let reply = reply("crlf.sse");
    assert_eq!((reply.text().as_str(), reply.usage.unwrap().input_tokens), ("é€😀", 11));
}

#[test]
fn a_body_that_is_not_streamed_is_read() {
    let reply = reply("whole.json");
    assert_eq!(reply.stop, Stop::ToolUse);
    assert_eq!(reply.text(), "Yes");
    assert_eq!(reply.calls().collect::<Vec<_>>(), [("a", "one", r#"{"x":1}"#)]);
    assert_eq!(reply.usage.unwrap().total_tokens(), 18);

    let whole = body("openai-chat/whole.json");
    assert_eq!(in_any_chunking(Wire::OpenAiChat, &whole[..whole.len() - 1]).reply, Err(ModelError::Truncated));
    assert!(matches!(in_any_chunking(Wire::OpenAiChat, br#"{"id":"x"}"#).reply, Err(ModelError::Malformed(_))));
}
