//! A reply as the event stream from which it is decoded: what is stored where the received bytes may not be.

use serde_json::{Map, Value, json};

use super::super::super::reply::{Reply, Stop};
use super::super::envelope;
use super::super::json;
use super::super::sse;
use super::super::stream::is_made_up;
use crate::event::Usage;
use crate::session::Block;

/// The events of `reply`; without `whole` the one that ends it is left out.
pub(in super::super) fn compose(reply: &Reply, whole: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut about = reply.model.as_ref().map_or(String::new(), |m| format!(",\"modelVersion\":{}", json::string(m)));
    if let Some(what) = &reply.input_transformations {
        about.push_str(&format!(",\"input_transformations\":{what}"));
    }
    if let Some(usage) = &reply.usage {
        about.push_str(&format!(",\"usageMetadata\":{}", counts(usage)));
    }
    let mut event = |candidate: &str| {
        let data = format!("{{\"candidates\":[{candidate}]{about}}}");
        sse::write(&mut out, None, &data);
    };
    for part in parts(&reply.blocks) {
        event(&format!("{{\"content\":{{\"role\":\"model\",\"parts\":[{part}]}},\"index\":0}}"));
    }
    if !whole {
        return out;
    }
    match stop(&reply.stop) {
        End::Candidate(fields) => event(&Value::Object(fields).to_string()),
        End::Blocked(feedback) => {
            let data = format!("{{\"promptFeedback\":{feedback}{about}}}");
            sse::write(&mut out, None, &data);
        }
    }
    out
}

fn parts(blocks: &[Block]) -> Vec<String> {
    let mut parts = Vec::new();
    let mut wrapped = None;
    for block in blocks {
        let envelope = wrapped.take();
        parts.push(match block {
            Block::Thinking { raw: Some(raw), .. } if envelope::is(raw) => {
                wrapped = envelope::open(raw);
                continue;
            }
            Block::Thinking { raw: Some(raw), .. } | Block::Raw { raw } => raw.clone(),
            Block::Thinking { text, raw: None } => json!({"text": text, "thought": true}).to_string(),
            Block::Text { text } => {
                let part = envelope.and_then(|envelope| envelope.with_text(text));
                part.unwrap_or_else(|| json!({"text": text}).to_string())
            }
            Block::Call { id, name, arguments } => {
                let part = envelope.and_then(|envelope| envelope.with_object(arguments));
                part.unwrap_or_else(|| {
                    let id = if is_made_up(id) { String::new() } else { format!("\"id\":{},", json::string(id)) };
                    format!("{{\"functionCall\":{{{id}\"name\":{},\"args\":{arguments}}}}}", json::string(name))
                })
            }
        });
    }
    parts
}

fn counts(usage: &Usage) -> Value {
    json!({
        "promptTokenCount": usage.input_tokens,
        "candidatesTokenCount": usage.output_tokens.saturating_sub(usage.reasoning_tokens),
        "thoughtsTokenCount": usage.reasoning_tokens,
        "cachedContentTokenCount": usage.cache_read_tokens,
    })
}

enum End<'a> {
    Candidate(Map<String, Value>),
    /// The prompt was refused; its feedback as JSON text.
    Blocked(&'a str),
}

fn stop(stop: &Stop) -> End<'_> {
    let reason = match stop {
        Stop::End | Stop::ToolUse => "STOP",
        Stop::MaxTokens => "MAX_TOKENS",
        Stop::StopSequence => "stop_sequence",
        Stop::ContextExceeded => "context_exceeded",
        Stop::Pause => "pause",
        Stop::Other(other) => other,
        Stop::Refused(details) => match serde_json::from_str::<Map<String, Value>>(details) {
            Ok(fields) if fields.contains_key("finishReason") => return End::Candidate(fields),
            Ok(fields) if fields.contains_key("blockReason") => return End::Blocked(details),
            _ => "SAFETY",
        },
    };
    End::Candidate(Map::from_iter([("finishReason".to_owned(), json!(reason))]))
}
