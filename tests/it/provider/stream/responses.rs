//! A reply as the Responses API streams it.

use serde_json::{Value, json};

use super::super::reply::{Block, Reply, Usage};
use super::deltas;

/// The items of a reply as they are finished. A refusal in words is a message of its own.
pub fn items(reply: &Reply, n: usize) -> Vec<Value> {
    let mut items = Vec::new();
    for (index, block) in reply.blocks.iter().enumerate() {
        let id = |kind: &str| format!("{kind}_{n:06}_{index}");
        items.push(match block {
            Block::Text(text) => json!({
                "id": id("msg"), "type": "message", "status": "completed", "role": "assistant",
                "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": text}],
            }),
            Block::Thinking { text, signature } => json!({
                "id": id("rs"), "type": "reasoning", "encrypted_content": signature,
                "summary": [{"type": "summary_text", "text": text}],
            }),
            Block::Call { id: call_id, name, arguments } => json!({
                "id": id("fc"), "type": "function_call", "status": "completed", "arguments": arguments,
                "call_id": call_id, "name": name,
            }),
            Block::Other(_) => continue,
        });
    }
    if reply.stop.as_deref() == Some("refusal") {
        items.push(json!({
            "id": format!("msg_{n:06}_refusal"), "type": "message", "status": "completed", "role": "assistant",
            "content": [{"type": "refusal", "refusal": "I cannot help with that."}],
        }));
    }
    items
}

pub fn events(reply: &Reply, n: usize, model: &str, usage: Option<Usage>) -> Vec<Vec<u8>> {
    let mut events: Vec<Value> = Vec::new();
    let response = |status: &str| {
        json!({
            "id": format!("resp_{n:06}"), "object": "response", "created_at": 1_760_000_000u64 + n as u64,
            "status": status, "error": null, "incomplete_details": null, "model": model, "output": [],
        })
    };
    events.push(json!({"type": "response.created", "response": response("in_progress")}));
    events.push(json!({"type": "response.in_progress", "response": response("in_progress")}));
    let items = items(reply, n);
    for (index, item) in items.iter().enumerate() {
        let mut started = item.clone();
        let field = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
        let delta = |kind: &str, delta: &str| {
            json!({"type": format!("response.{kind}.delta"), "item_id": item["id"], "output_index": index,
                "content_index": 0, "delta": delta})
        };
        let grown: Vec<Value> = match item["type"].as_str() {
            Some("function_call") => {
                started["arguments"] = json!("");
                deltas(&field("arguments")).iter().map(|text| delta("function_call_arguments", text)).collect()
            }
            Some("reasoning") => {
                started["summary"] = json!([]);
                let text = item["summary"][0]["text"].as_str().unwrap_or_default();
                deltas(text).iter().map(|text| delta("reasoning_summary_text", text)).collect()
            }
            _ => {
                started["content"] = json!([]);
                let part = &item["content"][0];
                match part["refusal"].as_str() {
                    Some(refusal) => deltas(refusal).iter().map(|text| delta("refusal", text)).collect(),
                    None => deltas(part["text"].as_str().unwrap_or_default())
                        .iter()
                        .map(|text| delta("output_text", text))
                        .collect(),
                }
            }
        };
        events.push(json!({"type": "response.output_item.added", "output_index": index, "item": started}));
        events.extend(grown);
        events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
    }
    if !reply.no_terminal {
        let (status, reason) = match reply.stop.as_deref() {
            Some("max_tokens" | "context_exceeded") => ("incomplete", json!({"reason": "max_output_tokens"})),
            None | Some("end" | "tool_use" | "stop_sequence" | "pause" | "refusal") => ("completed", Value::Null),
            Some(other) => ("incomplete", json!({"reason": other})),
        };
        let mut last = response(status);
        last["incomplete_details"] = reason;
        last["output"] = Value::Array(items);
        if let Some(usage) = usage {
            last["usage"] = json!({
                "input_tokens": usage.input, "input_tokens_details": {"cached_tokens": usage.cache_read},
                "output_tokens": usage.output, "output_tokens_details": {"reasoning_tokens": usage.reasoning},
                "total_tokens": usage.input + usage.output,
            });
        }
        events.push(json!({"type": format!("response.{status}"), "response": last}));
    }
    let event = |(number, mut data): (usize, Value)| {
        data["sequence_number"] = json!(number);
        format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default()).into_bytes()
    };
    events.into_iter().enumerate().map(event).collect()
}
