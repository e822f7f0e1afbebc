//! A reply as the event stream from which it is decoded: what is stored where the received bytes may not be.

use serde_json::{Value, json};

use super::super::super::reply::{Reply, Stop};
use super::super::envelope;
use super::super::json;
use super::super::sse;
use crate::event::Usage;
use crate::session::Block;

/// The events of `reply`; without `whole` the one that ends it is left out.
pub(in super::super) fn compose(reply: &Reply, whole: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut event = |kind: &str, rest: &str| {
        sse::write(&mut out, Some(kind), &format!("{{\"type\":{}{rest}}}", json::string(kind)));
    };
    let told = reply.input_transformations.as_ref();
    let mut about = told.map_or(String::new(), |what| format!(",\"input_transformations\":{what}"));
    if let Some(model) = &reply.model {
        about.push_str(&format!(",\"model\":{}", json::string(model)));
    }
    if let Some(usage) = &reply.usage {
        about.push_str(&format!(",\"usage\":{}", counts(usage)));
    }
    event("response.created", &format!(",\"response\":{{\"status\":\"in_progress\"{about}}}"));
    let mut items = items(&reply.blocks);
    let (status, details) = stop(&reply.stop, &mut items, whole);
    for (index, item) in items.iter().enumerate() {
        event("response.output_item.done", &format!(",\"output_index\":{index},\"item\":{item}"));
    }
    if whole {
        let details = details
            .map_or(String::new(), |reason| format!(",\"incomplete_details\":{{\"reason\":{}}}", json::string(reason)));
        let response = format!("{{\"status\":{}{details}{about}}}", json::string(status));
        event(&format!("response.{status}"), &format!(",\"response\":{response}"));
    }
    out
}

fn items(blocks: &[Block]) -> Vec<String> {
    let mut items = Vec::new();
    let mut wrapped = None;
    for block in blocks {
        let envelope = wrapped.take();
        items.push(match block {
            Block::Thinking { raw: Some(raw), .. } if envelope::is(raw) => {
                wrapped = envelope::open(raw);
                continue;
            }
            Block::Thinking { raw: Some(raw), .. } | Block::Raw { raw } => raw.clone(),
            Block::Thinking { text, raw: None } => {
                json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}).to_string()
            }
            Block::Text { text } => {
                let item = envelope.and_then(|envelope| envelope.with_text(text));
                item.unwrap_or_else(|| {
                    // In two parts, so that no envelope is found where there was none.
                    json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
                        .to_string()
                })
            }
            Block::Call { id, name, arguments } => {
                let item = envelope.and_then(|envelope| envelope.with_string(arguments));
                item.unwrap_or_else(|| {
                    json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments}).to_string()
                })
            }
        });
    }
    items
}

fn counts(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    })
}

/// The status, and why a response is incomplete. A refusal in words is an item of its own.
fn stop<'a>(stop: &'a Stop, items: &mut Vec<String>, whole: bool) -> (&'static str, Option<&'a str>) {
    match stop {
        Stop::End | Stop::ToolUse => ("completed", None),
        Stop::MaxTokens => ("incomplete", Some("max_output_tokens")),
        Stop::StopSequence => ("incomplete", Some("stop_sequence")),
        Stop::ContextExceeded => ("incomplete", Some("model_context_window_exceeded")),
        Stop::Pause => ("incomplete", Some("pause")),
        Stop::Refused(reason) if reason == "content_filter" => ("incomplete", Some("content_filter")),
        Stop::Refused(words) => {
            if whole {
                let content = json!([{"type": "refusal", "refusal": words}]);
                items.push(json!({"type": "message", "role": "assistant", "content": content}).to_string());
            }
            ("completed", None)
        }
        Stop::Other(other) => ("incomplete", Some(other)),
    }
}
