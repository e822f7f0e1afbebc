//! What a server may send without end: each costs bounded memory, and time that grows as its bytes do.

use std::time::Duration;

use spettro::model::wire::Wire;
use spettro::model::{Delta, ModelError};

use super::{Decoded, decode};

fn event(data: &str) -> String {
    format!("data: {data}\n\n")
}

/// What begins a reply, an event that says `text` in it (with `more` fields), and what ends it.
fn frames(wire: Wire, text: &str, more: &str) -> [String; 3] {
    let [start, middle, end] = match wire {
        Wire::Anthropic => [
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#.to_owned(),
            format!(
                r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{text}"{more}}}{more}}}"#
            ),
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#.to_owned(),
        ],
        Wire::OpenAiResponses => [
            r#"{"type":"response.created","response":{}}"#.to_owned(),
            format!(r#"{{"type":"response.output_text.delta","output_index":0,"delta":"{text}"{more}}}"#),
            r#"{"type":"response.completed","response":{"status":"completed"}}"#.to_owned(),
        ],
        Wire::OpenAiChat => [
            r#"{"choices":[{"delta":{"role":"assistant"}}]}"#.to_owned(),
            format!(r#"{{"choices":[{{"delta":{{"content":"{text}"{more}}}{more}}}]{more}}}"#),
            r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#.to_owned(),
        ],
        Wire::Gemini => [
            r#"{"candidates":[]}"#.to_owned(),
            format!(r#"{{"candidates":[{{"content":{{"parts":[{{"text":"{text}"{more}}}]{more}}}{more}}}]{more}}}"#),
            r#"{"candidates":[{"finishReason":"STOP"}]}"#.to_owned(),
        ],
    };
    [event(&start), event(&middle), event(&end)]
}

fn malformed(decoded: &Decoded, what: &str) -> bool {
    matches!(&decoded.reply, Err(ModelError::Malformed(message)) if message.contains(what))
}

#[test]
fn nesting_without_end_is_passed_over_where_nobody_reads() {
    let deep = format!(r#","x":{}{}"#, "[".repeat(1_000_000), "]".repeat(1_000_000));
    for wire in Wire::ALL {
        let stream = frames(wire, "yes", &deep).concat();
        assert_eq!(decode(wire, [stream.as_bytes()]).reply.unwrap().text(), "yes", "{wire:?}");
    }
}

#[test]
fn nesting_without_end_is_refused_where_a_value_is_read() {
    let deep = "[".repeat(1_000_000);
    for (wire, start) in [
        (Wire::Anthropic, r#"{"type":"message_start","message":"#),
        (Wire::OpenAiResponses, r#"{"type":"response.completed","response":"#),
        (Wire::OpenAiChat, r#"{"choices":"#),
        (Wire::Gemini, r#"{"candidates":"#),
    ] {
        for body in [event(&format!("{start}{deep}")), format!("{start}{deep}")] {
            assert!(decode(wire, [body.as_bytes()]).reply.is_err(), "{wire:?}");
        }
    }
}

#[test]
fn an_error_without_end_is_an_error() {
    let deep = format!(r#"{{"error":{}{}}}"#, "[".repeat(1_000_000), "]".repeat(1_000_000));
    let wide = format!(r#"{{"error":[{}0]}}"#, "0,".repeat(1_000_000));
    for wire in Wire::ALL {
        for body in [&deep, &wide] {
            assert!(decode(wire, [event(body).as_bytes()]).reply.is_err(), "{wire:?}");
            // What an error says is kept short.
            assert!(wire.error(500, &[], body.as_bytes(), 0).to_string().len() < 5_000, "{wire:?}");
        }
    }
}

/// Pushes the same bytes until they are refused, at most so many mebibytes.
fn flood(wire: Wire, start: &[u8], again: &[u8], mebibytes: usize) -> (Result<(), ModelError>, bool) {
    let mut decoder = wire.decoder();
    let mut deltas: Vec<Delta> = Vec::new();
    let chunk = again.repeat((1 << 20) / again.len());
    let pushed = decoder
        .push(start, &mut deltas)
        .and_then(|()| (0..mebibytes).try_for_each(|_| decoder.push(&chunk, &mut deltas)));
    (pushed, !deltas.is_empty())
}

#[test]
fn a_line_without_end_is_refused() {
    // All wires read lines and bodies with the same code: each case is one wire's.
    let cases = [r#"data: {"x":""#, "event: ", ": ", " "];
    for (wire, start) in Wire::ALL.into_iter().zip(cases) {
        let (pushed, _) = flood(wire, start.as_bytes(), b"x", 66);
        assert!(matches!(pushed, Err(ModelError::Malformed(_))), "{wire:?} {start}");
    }
}

#[test]
fn a_body_without_end_is_refused() {
    let cases = [(r#"{"x":""#, "x"), ("", " \n"), ("{", "\n"), ("", "\u{feff}")];
    for (wire, (start, again)) in Wire::ALL.into_iter().zip(cases) {
        let (pushed, _) = flood(wire, start.as_bytes(), again.as_bytes(), 66);
        assert!(matches!(pushed, Err(ModelError::Malformed(_))), "{wire:?} {start:?} {again:?}");
    }
}

#[test]
fn data_lines_without_an_event_are_refused() {
    for (wire, field) in [(Wire::Anthropic, "data"), (Wire::OpenAiChat, "error")] {
        let line = format!("{field}: {}\n", "x".repeat(200));
        let (pushed, _) = flood(wire, b"", line.as_bytes(), 70);
        assert!(matches!(pushed, Err(ModelError::Malformed(_))), "{wire:?} {field}");
    }
}

/// A flood of them does not look like life, so that the idle timeout ends it.
#[test]
fn keep_alives_are_no_events() {
    for wire in Wire::ALL {
        for again in [": keep-alive\n\n", "event: ping\n\n", "\r\n", "id: 7\n\n", "retry: 1\r\r"] {
            assert_eq!(flood(wire, b": hi\n", again.as_bytes(), 4), (Ok(()), false), "{wire:?} {again:?}");
        }
    }
}

#[test]
fn a_reply_of_too_many_blocks_is_refused() {
    let events = |data: fn(usize) -> String| (0..5_000).map(|n| event(&data(n))).collect::<String>();
    for (wire, stream) in [
        (
            Wire::Anthropic,
            events(|n| {
                format!(r#"{{"type":"content_block_start","index":{n},"content_block":{{"type":"text","text":"a"}}}}"#)
            }),
        ),
        (
            Wire::OpenAiResponses,
            events(|n| {
                format!(r#"{{"type":"response.output_item.added","output_index":{n},"item":{{"type":"message"}}}}"#)
            }),
        ),
        (Wire::OpenAiChat, events(|n| format!(r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":{n}}}]}}}}]}}"#))),
        (Wire::OpenAiChat, events(|_| r#"{"choices":[{"delta":{"reasoning_details":[{}]}}]}"#.to_owned())),
        (Wire::OpenAiChat, events(|_| r#"{"choices":[{"delta":{"content":[{}]}}]}"#.to_owned())),
        (Wire::Gemini, events(|_| r#"{"candidates":[{"content":{"parts":[{}]}}]}"#.to_owned())),
    ] {
        let decoded = decode(wire, [stream.as_bytes()]);
        assert!(malformed(&decoded, "4096 blocks"), "{wire:?}: {:?}", decoded.reply);
    }
}

#[test]
fn a_list_without_end_is_refused() {
    let list = format!("[{}{{}}]", "{},".repeat(5_000));
    for (wire, data) in [
        (Wire::Anthropic, format!(r#"{{"content":{list}}}"#)),
        (
            Wire::OpenAiResponses,
            format!(r#"{{"type":"response.completed","response":{{"status":"completed","output":{list}}}}}"#),
        ),
        (Wire::OpenAiChat, format!(r#"{{"choices":{list}}}"#)),
        (Wire::OpenAiChat, format!(r#"{{"choices":[{{"delta":{{"content":{list}}}}}]}}"#)),
        (Wire::OpenAiChat, format!(r#"{{"choices":[{{"delta":{{"tool_calls":{list}}}}}]}}"#)),
        (Wire::OpenAiChat, format!(r#"{{"choices":[{{"delta":{{"reasoning_details":{list}}}}}]}}"#)),
        (Wire::Gemini, format!(r#"{{"candidates":{list}}}"#)),
        (Wire::Gemini, format!(r#"{{"candidates":[{{"content":{{"parts":{list}}}}}]}}"#)),
    ] {
        // Only a whole message of this wire has a list.
        let body = if wire == Wire::Anthropic { data } else { event(&data) };
        let decoded = decode(wire, [body.as_bytes()]);
        assert!(malformed(&decoded, "4096 elements"), "{wire:?}: {:?}", decoded.reply);
    }
}

/// Time of this thread on a core for a stream.
fn on_core(wire: Wire, stream: &str) -> Duration {
    let now = || {
        let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(spent.tv_sec.unsigned_abs(), spent.tv_nsec as u32)
    };
    let started = now();
    decode(wire, stream.as_bytes().chunks(16 << 10)).reply.unwrap();
    now().saturating_sub(started)
}

#[test]
fn a_block_of_many_new_fields_costs_what_its_bytes_cost() {
    let stream = |fields: usize| {
        let start = r#"{"type":"content_block_start","index":0,"content_block":{"type":"new"}}"#;
        let delta = |n| format!(r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"x","f{n}":{n}}}}}"#);
        let end = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;
        event(start) + &(0..fields).map(|n| event(&delta(n))).collect::<String>() + &event(end)
    };
    let (few, many) = (on_core(Wire::Anthropic, &stream(2_000)), on_core(Wire::Anthropic, &stream(32_000)));
    // Sixteen times when linear, 256 times when each field is looked for among all others.
    assert!(many < few * 64, "{few:?} and {many:?}");
}
