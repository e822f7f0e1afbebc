//! A reply as the event stream from which it is decoded: what is stored where the received bytes may not be.

use serde_json::{Map, Value, json};

use super::super::super::reply::{Reply, Stop};
use super::super::json;
use super::super::sse;
use crate::event::Usage;
use crate::session::Block;

/// The events of `reply`; without `whole` those that end it are left out.
pub(in super::super) fn compose(reply: &Reply, whole: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut message = Map::new();
    message.insert("role".to_owned(), json!("assistant"));
    message.insert("content".to_owned(), json!([]));
    if let Some(model) = &reply.model {
        message.insert("model".to_owned(), json!(model));
    }
    if let Some(usage) = &reply.usage {
        message.insert("usage".to_owned(), counts(usage));
    }
    let mut message = Value::Object(message).to_string();
    if let Some(what) = &reply.input_transformations {
        // Into the object, as the JSON text that it is.
        message.pop();
        message.push_str(&format!(",\"input_transformations\":{what}}}"));
    }
    let mut event = |kind: &str, rest: &str| {
        sse::write(&mut out, Some(kind), &format!("{{\"type\":{}{rest}}}", json::string(kind)));
    };
    event("message_start", &format!(",\"message\":{message}"));
    for (index, block) in reply.blocks.iter().enumerate() {
        let Parts { start, delta, end } = parts(block);
        event("content_block_start", &format!(",\"index\":{index},\"content_block\":{start}"));
        if let Some(delta) = delta {
            event("content_block_delta", &format!(",\"index\":{index},\"delta\":{delta}"));
        }
        if end {
            event("content_block_stop", &format!(",\"index\":{index}"));
        }
    }
    if whole {
        let (reason, details) = stop(&reply.stop);
        let details = details.map_or(String::new(), |details| format!(",\"stop_details\":{details}"));
        event("message_delta", &format!(",\"delta\":{{\"stop_reason\":{}{details}}}", json::string(reason)));
        event("message_stop", "");
    }
    out
}

/// A block's events.
struct Parts {
    start: String,
    delta: Option<String>,
    /// Whether it is told to be complete.
    end: bool,
}

fn parts(block: &Block) -> Parts {
    let (start, delta, end) = match block {
        Block::Text { text } => {
            (json!({"type": "text", "text": ""}).to_string(), Some(json!({"type": "text_delta", "text": text})), true)
        }
        Block::Call { id, name, arguments } => (
            json!({"type": "tool_use", "id": id, "name": name, "input": {}}).to_string(),
            Some(json!({"type": "input_json_delta", "partial_json": arguments})).filter(|_| !arguments.is_empty()),
            // A complete call without a text of arguments would have an empty object of them.
            !arguments.is_empty(),
        ),
        Block::Thinking { raw: Some(raw), .. } | Block::Raw { raw } => (raw.clone(), None, true),
        Block::Thinking { text, raw: None } => (json!({"type": "thinking", "thinking": text}).to_string(), None, false),
    };
    Parts { start, delta: delta.map(|delta| delta.to_string()), end }
}

fn counts(usage: &Usage) -> Value {
    let written = usage.cache_write_tokens.saturating_add(usage.cache_write_1h_tokens);
    json!({
        "input_tokens": usage.input_tokens.saturating_sub(written + usage.cache_read_tokens),
        "output_tokens": usage.output_tokens,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write_tokens,
            "ephemeral_1h_input_tokens": usage.cache_write_1h_tokens,
        },
    })
}

/// The reason, and details as JSON text.
fn stop(stop: &Stop) -> (&str, Option<&str>) {
    match stop {
        Stop::End => ("end_turn", None),
        Stop::ToolUse => ("tool_use", None),
        Stop::MaxTokens => ("max_tokens", None),
        Stop::StopSequence => ("stop_sequence", None),
        Stop::Pause => ("pause_turn", None),
        Stop::ContextExceeded => ("model_context_window_exceeded", None),
        Stop::Refused(details) => {
            let json = serde_json::from_str::<serde::de::IgnoredAny>(details).is_ok();
            ("refusal", Some(details.as_str()).filter(|_| json))
        }
        Stop::Other(other) => (other, None),
    }
}
