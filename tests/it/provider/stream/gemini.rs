//! A reply as the Gemini API streams it.

use serde_json::{Map, Value, json};

use super::super::reply::{Block, Reply, Usage};
use super::deltas;

/// The parts of a reply as they are meant to come back: a signature stands in the part that follows its thought, or
/// in an empty one at the end. A call whose arguments are no object never leaves this provider.
pub fn parts(reply: &Reply) -> Vec<Value> {
    let mut parts = Vec::new();
    let mut signature: Option<String> = None;
    let mut signed = |mut part: Value, signature: &mut Option<String>| {
        if let Some(signature) = signature.take() {
            part["thoughtSignature"] = json!(signature);
        }
        parts.push(part);
    };
    for block in &reply.blocks {
        match block {
            Block::Text(text) => signed(json!({"text": text}), &mut signature),
            Block::Thinking { signature: own, .. } => signature.clone_from(own),
            Block::Call { id, name, arguments } => {
                let Ok(arguments) = serde_json::from_str::<Map<String, Value>>(arguments) else { continue };
                let mut call = json!({"name": name, "args": arguments});
                if let Some(id) = id.as_deref().filter(|id| !id.is_empty()) {
                    call["id"] = json!(id);
                }
                signed(json!({"functionCall": call}), &mut signature);
            }
            Block::Other(_) => {}
        }
    }
    if signature.is_some() {
        signed(json!({"text": ""}), &mut signature);
    }
    parts
}

pub fn events(reply: &Reply, n: usize, model: &str, usage: Option<Usage>) -> Vec<Vec<u8>> {
    let mut events: Vec<Value> = Vec::new();
    let frame = |parts: Vec<Value>| {
        json!({
            "candidates": [{"content": {"parts": parts, "role": "model"}, "index": 0}],
            "modelVersion": model, "responseId": format!("resp_{n:06}"),
        })
    };
    for block in &reply.blocks {
        if let Block::Thinking { text, .. } = block {
            events.extend(deltas(text).iter().map(|text| frame(vec![json!({"text": text, "thought": true})])));
        }
    }
    for part in parts(reply) {
        match part["text"].as_str() {
            // A signed part comes whole, so that it can go back as it came.
            Some(text) if part.get("thoughtSignature").is_none() => {
                events.extend(deltas(text).iter().map(|text| frame(vec![json!({"text": text})])));
            }
            _ => events.push(frame(vec![part])),
        }
    }
    if !reply.no_terminal {
        let reason = match reply.stop.as_deref() {
            None | Some("end" | "tool_use" | "stop_sequence" | "pause") => "STOP",
            Some("max_tokens" | "context_exceeded") => "MAX_TOKENS",
            Some("refusal") => "SAFETY",
            Some(other) => other,
        };
        let mut last = frame(vec![json!({"text": ""})]);
        last["candidates"][0]["finishReason"] = json!(reason);
        events.push(last);
    }
    let many = events.len();
    for (index, event) in events.iter_mut().enumerate() {
        if let Some(usage) = usage {
            // Repeated in each event; only the last one knows all of the output.
            let output = if index + 1 == many { usage.output } else { usage.output.min(1) };
            event["usageMetadata"] = json!({
                "promptTokenCount": usage.input, "cachedContentTokenCount": usage.cache_read,
                "candidatesTokenCount": output.saturating_sub(usage.reasoning),
                "thoughtsTokenCount": usage.reasoning, "totalTokenCount": usage.input + output,
            });
        }
    }
    // Google's servers end lines with CR LF.
    events.into_iter().map(|event| format!("data: {event}\r\n\r\n").into_bytes()).collect()
}
