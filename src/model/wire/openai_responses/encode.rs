//! Requests of the Responses API.

use super::super::super::request::{Front, ToolSchema};
use super::super::envelope;
use super::super::history::{self, Say};
use super::super::json::{push_string, string};
use crate::session::{Block, Message};

/// Fields of the rest: no extra field may bring them a second time.
const REST: [&str; 3] = ["instructions", "tools", "input"];

pub fn front(front: &Front<'_>) -> Vec<u8> {
    let mut fields = vec![
        ("model", string(front.model)),
        ("max_output_tokens", front.max_output_tokens.to_string()),
        ("stream", "true".to_owned()),
        ("store", "false".to_owned()),
        ("include", r#"["reasoning.encrypted_content"]"#.to_owned()),
    ];
    if let Some(tool) = front.force_tool {
        fields.push(("tool_choice", format!(r#"{{"type":"function","name":{}}}"#, string(tool))));
    }
    if let Some(effort) = front.reasoning_effort {
        fields.push(("reasoning", format!(r#"{{"effort":{}}}"#, string(effort))));
    }
    let extra = history::merged(&mut fields, front.extra_body, &["reasoning"]);
    history::front(&fields, &extra, &REST)
}

pub fn head(system: &str, tools: &[ToolSchema]) -> String {
    let mut head = String::new();
    if !system.trim().is_empty() {
        head.push_str(&format!(r#""instructions":{},"#, string(system)));
    }
    if !tools.is_empty() {
        let tools: Vec<String> = tools
            .iter()
            .map(|tool| {
                // Strict is what the API takes for granted, and it refuses most schemas.
                format!(
                    r#"{{"type":"function","name":{},"description":{},"parameters":{},"strict":false}}"#,
                    string(tool.name),
                    string(&tool.description),
                    tool.parameters.get()
                )
            })
            .collect();
        head.push_str(&format!(r#""tools":[{}],"#, tools.join(",")));
    }
    head.push_str(r#""input":["#);
    head
}

pub fn messages(messages: &[Message], follows: bool, out: &mut Vec<u8>) -> u64 {
    let mut count = 0;
    let mut send = |item: &[u8]| {
        if follows || count > 0 {
            out.push(b',');
        }
        out.extend_from_slice(item);
        count += 1;
    };
    for say in history::group(messages) {
        match say {
            Say::Assistant(blocks) => assistant(blocks).iter().for_each(|item| send(item.as_bytes())),
            Say::User { results, texts } => {
                for result in results {
                    let mut item = br#"{"type":"function_call_output","call_id":"#.to_vec();
                    push_string(&mut item, result.call_id);
                    item.extend_from_slice(br#","output":"#);
                    push_string(&mut item, result.text);
                    item.push(b'}');
                    send(&item);
                }
                if !texts.is_empty() {
                    let parts: Vec<String> = texts
                        .iter()
                        .map(|text| format!(r#"{{"type":"input_text","text":{}}}"#, string(text)))
                        .collect();
                    send(format!(r#"{{"type":"message","role":"user","content":[{}]}}"#, parts.join(",")).as_bytes());
                }
            }
        }
    }
    count
}

/// The items of one reply. Those that the provider sent go back as they were; an item may only bear its own id
/// beside all the reasoning that came before it.
fn assistant(blocks: &[Block]) -> Vec<String> {
    let whole = !blocks.iter().any(|block| matches!(block, Block::Thinking { raw: None, .. }));
    let mut items = Vec::new();
    // Reasoning that nothing follows is refused.
    let mut reasoning = Vec::new();
    let mut wrapped = None;
    for block in blocks {
        let envelope = wrapped.take();
        let item = match block {
            Block::Thinking { raw: Some(raw), .. } if envelope::is(raw) => {
                wrapped = envelope::open(raw).filter(|_| whole);
                continue;
            }
            Block::Thinking { raw: Some(raw), .. } => {
                if history::kind(raw).as_deref() == Some("reasoning") {
                    reasoning.push(raw.clone());
                }
                continue;
            }
            Block::Thinking { raw: None, .. } => continue,
            Block::Text { text } => {
                let item = envelope.and_then(|envelope| envelope.with_text(text));
                if item.is_none() && text.trim().is_empty() {
                    continue;
                }
                item.unwrap_or_else(|| {
                    let text = string(text);
                    format!(
                        r#"{{"type":"message","role":"assistant","content":[{{"type":"output_text","text":{text}}}]}}"#
                    )
                })
            }
            Block::Call { id, name, arguments } => {
                let arguments = history::sendable_arguments(arguments);
                let item = envelope.and_then(|envelope| envelope.with_string(&arguments));
                item.filter(|item| is_call(item, id, name)).unwrap_or_else(|| {
                    let (id, name, arguments) = (string(id), string(name), string(&arguments));
                    format!(r#"{{"type":"function_call","call_id":{id},"name":{name},"arguments":{arguments}}}"#)
                })
            }
            Block::Raw { raw } => raw.clone(),
        };
        items.append(&mut reasoning);
        items.push(item);
    }
    items
}

/// An item whose call was given another id or name is not that call any more.
fn is_call(item: &str, id: &str, name: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Call {
        call_id: String,
        name: String,
    }
    serde_json::from_str::<Call>(item).is_ok_and(|call| (call.call_id.as_str(), call.name.as_str()) == (id, name))
}
