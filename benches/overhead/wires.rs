//! What the wires themselves cost: bytes of a long reply decoded in a second, and a request's new messages encoded
//! behind a short and a long history.

use std::time::Duration;

use serde_json::json;
use spettro::model::wire::Wire;
use spettro::model::{Rest, ToolSchema};
use spettro::session::{Block, Message, Origin};

use crate::Result;

/// Bytes of the stream that is decoded, about.
const STREAM_BYTES: usize = 8 << 20;
/// Steps of the long history, of more than 10 MB on every wire, and of the short one.
const LONG: usize = 12_000;
const SHORT: usize = 20;
/// As much as one read of a socket brings.
const READ_BYTES: usize = 16 << 10;

/// What one wire costs.
pub struct Cost {
    pub wire: Wire,
    /// Decoded, in millions of bytes a second.
    pub megabytes: f64,
    /// A step's messages encoded behind the long history.
    pub step: Duration,
    /// The same, over a step behind the short one.
    pub growth: f64,
}

pub fn measure(rounds: usize) -> Result<Vec<Cost>> {
    Wire::ALL
        .into_iter()
        .map(|wire| {
            let stream = stream(wire);
            let mut best = Duration::MAX;
            for _ in 0..rounds.max(3) {
                best = best.min(decode(wire, &stream)?);
            }
            let (long, bytes) = step(wire, LONG);
            if bytes < 10_000_000 {
                return Err(format!("{}: {bytes} bytes are no long history", wire.name()).into());
            }
            let growth = long.as_secs_f64() / step(wire, SHORT).0.as_secs_f64();
            Ok(Cost { wire, megabytes: stream.len() as f64 / best.as_secs_f64() / 1e6, step: long, growth })
        })
        .collect()
}

/// The time that this thread has spent on a core, so that neighbours do not count.
fn on_core() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    // A clock that starts at zero: neither part is negative.
    Duration::new(spent.tv_sec.unsigned_abs(), spent.tv_nsec as u32)
}

fn decode(wire: Wire, stream: &[u8]) -> Result<Duration> {
    let started = on_core();
    let mut decoder = wire.decoder();
    let mut deltas = Vec::new();
    for chunk in stream.chunks(READ_BYTES) {
        decoder.push(chunk, &mut deltas)?;
        deltas.clear();
    }
    let reply = decoder.finish()?;
    let took = on_core().saturating_sub(started);
    if reply.text().is_empty() {
        return Err(format!("{}: the stream was not understood", wire.name()).into());
    }
    Ok(took)
}

/// A reply of one long text, in pieces of a line each.
fn stream(wire: Wire) -> Vec<u8> {
    let line = "    let length = usize::try_from(bytes.len()).map_err(|_| Error::TooLong)?; // as «said»\n";
    let (start, end): (Vec<String>, Vec<String>) = match wire {
        Wire::Anthropic => (
            vec![
                json!({"type": "message_start", "message": {"content": [], "model": "m"}}).to_string(),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
                    .to_string(),
            ],
            vec![
                json!({"type": "content_block_stop", "index": 0}).to_string(),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}).to_string(),
            ],
        ),
        Wire::OpenAiResponses => (
            vec![json!({"type": "response.created", "response": {"status": "in_progress", "model": "m"}}).to_string()],
            vec![json!({"type": "response.completed", "response": {"status": "completed"}}).to_string()],
        ),
        Wire::OpenAiChat => {
            (Vec::new(), vec![json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}).to_string()])
        }
        Wire::Gemini => (Vec::new(), vec![json!({"candidates": [{"finishReason": "STOP"}]}).to_string()]),
    };
    let piece = match wire {
        Wire::Anthropic => {
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": line}})
        }
        Wire::OpenAiResponses => json!({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0,
            "content_index": 0, "delta": line, "logprobs": [], "sequence_number": 7}),
        Wire::OpenAiChat => json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": {"content": line}, "finish_reason": null}]}),
        Wire::Gemini => json!({"candidates": [{"content": {"parts": [{"text": line}], "role": "model"}, "index": 0}],
            "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 10, "totalTokenCount": 20},
            "modelVersion": "m", "responseId": "r"}),
    }
    .to_string();
    let frame = |data: &String| format!("data: {data}\n\n").into_bytes();
    let mut stream: Vec<u8> = start.iter().flat_map(frame).collect();
    let piece = frame(&piece);
    while stream.len() < STREAM_BYTES {
        stream.extend_from_slice(&piece);
    }
    stream.extend(end.iter().flat_map(frame));
    stream
}

/// The time of one step's messages behind so many steps (the median of the last ones), and the bytes of all.
fn step(wire: Wire, before: usize) -> (Duration, u64) {
    let no_tools: &[ToolSchema] = &[];
    let mut rest = Rest::new(wire, &wire.head("be good", no_tools));
    rest.seal(&[Message::User { origin: Origin::Prompt, text: "go".into() }]);
    let mut times = Vec::new();
    for n in 0..before + 51 {
        let call = Block::Call { id: format!("c{n}"), name: "bash".into(), arguments: "{\"command\":\"ls\"}".into() };
        let said = Message::Assistant { blocks: vec![call], interrupted: false, refused: None };
        let text = "a line of output\n".repeat(40);
        let result = Message::Tool { call_id: format!("c{n}"), tool: "bash".into(), text, is_error: false };
        let started = on_core();
        rest.seal(&[said, result]);
        std::hint::black_box(rest.digest());
        times.push(on_core().saturating_sub(started));
    }
    let mut last = times.split_off(before);
    last.sort();
    (last[last.len() / 2], rest.len())
}
