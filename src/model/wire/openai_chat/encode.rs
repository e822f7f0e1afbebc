//! Requests of Chat Completions.

use super::super::super::request::{Front, ToolSchema};
use super::super::history::{self, Say};
use super::super::json::{push_string, string};
use crate::session::{Block, Message};

/// Fields of the rest: no extra field may bring them a second time.
const REST: [&str; 2] = ["tools", "messages"];

pub fn front(front: &Front<'_>) -> Vec<u8> {
    // OpenAI's own models refuse `max_tokens`; most servers that copy the API know nothing else.
    let limit = if front.native { "max_completion_tokens" } else { "max_tokens" };
    let mut fields = vec![
        ("model", string(front.model)),
        (limit, front.max_output_tokens.to_string()),
        ("stream", "true".to_owned()),
        ("stream_options", r#"{"include_usage":true}"#.to_owned()),
    ];
    if let Some(tool) = front.force_tool {
        fields.push(("tool_choice", format!(r#"{{"type":"function","function":{{"name":{}}}}}"#, string(tool))));
    }
    if let Some(effort) = front.reasoning_effort {
        fields.push(("reasoning_effort", string(effort)));
    }
    history::front(&fields, front.extra_body, &REST)
}

/// With a system prompt it ends with the system message and a comma: a body has at least one message more.
pub fn head(system: &str, tools: &[ToolSchema]) -> String {
    let mut head = String::new();
    if !tools.is_empty() {
        let tools: Vec<String> = tools
            .iter()
            .map(|tool| {
                format!(
                    r#"{{"type":"function","function":{{"name":{},"description":{},"parameters":{}}}}}"#,
                    string(tool.name),
                    string(&tool.description),
                    tool.parameters.get()
                )
            })
            .collect();
        head.push_str(&format!(r#""tools":[{}],"#, tools.join(",")));
    }
    head.push_str(r#""messages":["#);
    if !system.trim().is_empty() {
        head.push_str(&format!(r#"{{"role":"system","content":{}}},"#, string(system)));
    }
    head
}

pub fn messages(messages: &[Message], follows: bool, out: &mut Vec<u8>) -> u64 {
    let mut count = 0;
    let mut send = |message: Vec<u8>| {
        if follows || count > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&message);
        count += 1;
    };
    for say in history::group(messages) {
        match say {
            Say::Assistant(blocks) => {
                if let Some(message) = assistant(blocks) {
                    send(message);
                }
            }
            Say::User { results, texts } => {
                for result in results {
                    let mut message = br#"{"role":"tool","tool_call_id":"#.to_vec();
                    push_string(&mut message, result.call_id);
                    message.extend_from_slice(br#","content":"#);
                    push_string(&mut message, result.text);
                    message.push(b'}');
                    send(message);
                }
                if !texts.is_empty() {
                    // One string: not every server takes a list of parts.
                    let mut message = br#"{"role":"user","content":"#.to_vec();
                    push_string(&mut message, &texts.join("\n\n"));
                    message.push(b'}');
                    send(message);
                }
            }
        }
    }
    count
}

/// `None` when nothing of the message can be sent.
fn assistant(blocks: &[Block]) -> Option<Vec<u8>> {
    let calls: Vec<&Block> = blocks.iter().filter(|block| matches!(block, Block::Call { .. })).collect();
    let content = content(blocks);
    if content.is_none() && calls.is_empty() {
        return None;
    }
    let mut message = br#"{"role":"assistant","content":"#.to_vec();
    message.extend_from_slice(&content.unwrap_or_else(|| b"null".to_vec()));
    let reasoning = blocks.iter().find_map(|block| match block {
        Block::Thinking { raw: Some(raw), .. } => raw.strip_prefix('{').and_then(|raw| raw.strip_suffix('}')),
        _ => None,
    });
    // Reasoning of another wire has no place here.
    if let Some(fields) = reasoning.filter(|fields| fields.starts_with(r#""reasoning"#)) {
        message.push(b',');
        message.extend_from_slice(fields.as_bytes());
    }
    if !calls.is_empty() {
        message.extend_from_slice(br#","tool_calls":["#);
        for (n, block) in calls.into_iter().enumerate() {
            let Block::Call { id, name, arguments } = block else { continue };
            if n > 0 {
                message.push(b',');
            }
            message.extend_from_slice(br#"{"id":"#);
            push_string(&mut message, id);
            message.extend_from_slice(br#","type":"function","function":{"name":"#);
            push_string(&mut message, name);
            message.extend_from_slice(br#","arguments":"#);
            push_string(&mut message, &history::sendable_arguments(arguments));
            message.extend_from_slice(b"}}");
        }
        message.push(b']');
    }
    message.push(b'}');
    Some(message)
}

/// The content: one string, or a list of parts where some part is not text.
fn content(blocks: &[Block]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    if !blocks.iter().any(|block| matches!(block, Block::Raw { .. })) {
        let text = super::super::super::reply::blocks_text(blocks);
        if text.is_empty() {
            return None;
        }
        push_string(&mut out, &text);
        return Some(out);
    }
    for block in blocks {
        let comma = if out.is_empty() { b'[' } else { b',' };
        match block {
            Block::Text { text } if !text.is_empty() => {
                out.push(comma);
                out.extend_from_slice(br#"{"type":"text","text":"#);
                push_string(&mut out, text);
                out.push(b'}');
            }
            Block::Raw { raw } => {
                out.push(comma);
                out.extend_from_slice(raw.as_bytes());
            }
            _ => {}
        }
    }
    out.push(b']');
    Some(out)
}
