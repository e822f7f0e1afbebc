//! Requests of the Messages API.

use super::super::super::request::{Front, ToolSchema};
use super::super::history::{self, Say};
use super::super::json::{push_string, string};
use crate::session::{Block, Message};

/// Fields of the rest: no extra field may bring them a second time.
const REST: [&str; 3] = ["system", "tools", "messages"];

pub fn front(front: &Front<'_>) -> Vec<u8> {
    let ttl = if front.slow_steps { r#"{"type":"ephemeral","ttl":"1h"}"# } else { r#"{"type":"ephemeral"}"# };
    let mut fields = vec![
        ("model", string(front.model)),
        ("max_tokens", front.max_output_tokens.to_string()),
        ("stream", "true".to_owned()),
        // Automatic caching: the provider moves the marker of the tail along.
        ("cache_control", ttl.to_owned()),
    ];
    if let Some(tool) = front.force_tool {
        fields.push(("tool_choice", format!(r#"{{"type":"tool","name":{}}}"#, string(tool))));
    }
    match front.reasoning_effort {
        None | Some("none") => {}
        // The API's lowest level is `low`.
        Some(effort) => {
            let effort = if effort == "minimal" { "low" } else { effort };
            fields.push(("output_config", format!(r#"{{"effort":{}}}"#, string(effort))));
        }
    }
    history::front(&fields, front.extra_body, &REST)
}

pub fn head(system: &str, tools: &[ToolSchema]) -> String {
    let mut head = String::new();
    if !system.trim().is_empty() {
        // The provider puts tools before the system prompt, so that one marker caches both.
        head.push_str(r#""system":[{"type":"text","text":"#);
        head.push_str(&string(system));
        head.push_str(r#","cache_control":{"type":"ephemeral","ttl":"1h"}}],"#);
    }
    if !tools.is_empty() {
        let tools: Vec<String> = tools
            .iter()
            .map(|tool| {
                format!(
                    r#"{{"name":{},"description":{},"input_schema":{}}}"#,
                    string(tool.name),
                    string(&tool.description),
                    tool.parameters.get()
                )
            })
            .collect();
        head.push_str(&format!(r#""tools":[{}],"#, tools.join(",")));
    }
    head.push_str(r#""messages":["#);
    head
}

pub fn messages(messages: &[Message], follows: bool, out: &mut Vec<u8>) -> u64 {
    let mut count = 0;
    for say in history::group(messages) {
        let (role, blocks) = match &say {
            Say::Assistant(blocks) => ("assistant", assistant(blocks)),
            Say::User { .. } => ("user", user(&say)),
        };
        if blocks.is_empty() {
            continue;
        }
        if follows || count > 0 {
            out.push(b',');
        }
        out.extend_from_slice(format!(r#"{{"role":"{role}","content":["#).as_bytes());
        out.extend_from_slice(&blocks.join(&b","[..]));
        out.extend_from_slice(b"]}");
        count += 1;
    }
    count
}

fn text(text: &str) -> Vec<u8> {
    let mut block = br#"{"type":"text","text":"#.to_vec();
    push_string(&mut block, text);
    block.push(b'}');
    block
}

fn user(say: &Say<'_>) -> Vec<Vec<u8>> {
    let Say::User { results, texts } = say else { return Vec::new() };
    let results = results.iter().map(|result| {
        let mut block = br#"{"type":"tool_result","tool_use_id":"#.to_vec();
        push_string(&mut block, result.call_id);
        block.extend_from_slice(br#","content":"#);
        push_string(&mut block, result.text);
        if result.is_error {
            block.extend_from_slice(br#","is_error":true"#);
        }
        block.push(b'}');
        block
    });
    results.chain(texts.iter().map(|words| text(words))).collect()
}

fn is_thinking(raw: &str) -> bool {
    matches!(history::kind(raw).as_deref(), Some("thinking" | "redacted_thinking"))
}

fn assistant(blocks: &[Block]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for block in blocks {
        match block {
            // Blocks of white space alone are refused.
            Block::Text { text } if text.trim().is_empty() => {}
            Block::Text { text: words } => out.push(text(words)),
            Block::Call { id, name, arguments } => {
                let mut call = br#"{"type":"tool_use","id":"#.to_vec();
                push_string(&mut call, id);
                call.extend_from_slice(br#","name":"#);
                push_string(&mut call, name);
                call.extend_from_slice(br#","input":"#);
                call.extend_from_slice(history::sendable_arguments(arguments).as_bytes());
                call.push(b'}');
                out.push(call);
            }
            // Reasoning of another wire is no block of this one.
            Block::Thinking { raw: Some(raw), .. } if is_thinking(raw) => {
                out.push(raw.as_bytes().to_vec());
            }
            Block::Thinking { .. } => {}
            Block::Raw { raw } => out.push(raw.as_bytes().to_vec()),
        }
    }
    // Thinking alone is no message.
    if blocks.iter().all(|block| matches!(block, Block::Thinking { .. } | Block::Text { .. }))
        && !blocks.iter().any(|block| matches!(block, Block::Text { text } if !text.trim().is_empty()))
    {
        out.clear();
    }
    out
}
