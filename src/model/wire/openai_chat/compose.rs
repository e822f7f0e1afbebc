//! A reply as the event stream from which it is decoded: what is stored where the received bytes may not be.

use serde_json::{Value, json};

use super::super::super::reply::{Reply, Stop};
use super::super::json;
use super::super::sse;
use crate::event::Usage;
use crate::session::Block;

/// Reasons that the decoder takes for a refusal by themselves.
const REFUSALS: [&str; 4] = ["content_filter", "refusal", "safety", "sensitive"];

/// The events of `reply`; without `whole` those that end it are left out.
pub(in super::super) fn compose(reply: &Reply, whole: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let model = reply.model.as_ref().map_or(String::new(), |model| format!(",\"model\":{}", json::string(model)));
    let told = reply.input_transformations.as_ref();
    let told = told.map_or(String::new(), |what| format!(",\"input_transformations\":{what}"));
    let mut chunk = |choices: &str, rest: &str| {
        let data = format!("{{\"object\":\"chat.completion.chunk\"{model},\"choices\":[{choices}]{rest}}}");
        sse::write(&mut out, None, &data);
    };
    let said = |delta: &str| format!("{{\"index\":0,\"delta\":{delta}}}");
    chunk(&said("{\"role\":\"assistant\"}"), &told);
    let mut calls = 0;
    for block in &reply.blocks {
        chunk(&said(&delta(block, calls)), "");
        calls += usize::from(matches!(block, Block::Call { .. }));
    }
    if whole {
        let (reason, refusal) = stop(&reply.stop);
        if let Some(refusal) = refusal {
            chunk(&said(&json!({"refusal": refusal}).to_string()), "");
        }
        chunk(&format!("{{\"index\":0,\"delta\":{{}},\"finish_reason\":{}}}", json::string(reason)), "");
    }
    if let Some(usage) = &reply.usage {
        chunk("", &format!(",\"usage\":{}", counts(usage)));
    }
    if whole {
        sse::write(&mut out, None, "[DONE]");
    }
    out
}

fn delta(block: &Block, index: usize) -> String {
    match block {
        Block::Text { text } => json!({"content": text}).to_string(),
        Block::Raw { raw } => format!("{{\"content\":[{raw}]}}"),
        // The fields of the message themselves.
        Block::Thinking { raw: Some(raw), .. } => raw.clone(),
        Block::Thinking { text, raw: None } => json!({"content": [{"type": "thinking", "thinking": text}]}).to_string(),
        Block::Call { id, name, arguments } => {
            let function = json!({"name": name, "arguments": arguments});
            json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]}).to_string()
        }
    }
}

fn counts(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    })
}

/// The reason, and the words of a refusal.
fn stop(stop: &Stop) -> (&str, Option<&str>) {
    match stop {
        Stop::End => ("stop", None),
        Stop::ToolUse => ("tool_calls", None),
        Stop::MaxTokens => ("length", None),
        Stop::StopSequence => ("stop_sequence", None),
        Stop::ContextExceeded => ("model_context_window_exceeded", None),
        Stop::Refused(reason) if REFUSALS.contains(&reason.as_str()) => (reason, None),
        Stop::Refused(words) => ("stop", Some(words)),
        // No server of this wire pauses.
        Stop::Pause => ("pause", None),
        Stop::Other(other) => (other, None),
    }
}
