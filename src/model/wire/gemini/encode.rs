//! Requests of the Gemini API.

use super::super::super::request::{Front, ToolSchema};
use super::super::envelope;
use super::super::history::{self, Say, ToolResult};
use super::super::json::string;
use super::super::stream::is_made_up;
use super::schema;
use crate::session::{Block, Message};

/// Fields of the rest, in both spellings: no extra field may bring them a second time.
const REST: [&str; 4] = ["systemInstruction", "system_instruction", "tools", "contents"];

pub fn front(front: &Front<'_>) -> Vec<u8> {
    let thinking = front
        .reasoning_effort
        .map_or(String::new(), |effort| format!(r#","thinkingConfig":{}"#, thinking(front.model, effort)));
    let mut fields =
        vec![("generationConfig", format!(r#"{{"maxOutputTokens":{}{thinking}}}"#, front.max_output_tokens))];
    if let Some(tool) = front.force_tool {
        let config = format!(r#"{{"mode":"ANY","allowedFunctionNames":[{}]}}"#, string(tool));
        fields.push(("toolConfig", format!(r#"{{"functionCallingConfig":{config}}}"#)));
    }
    let extra = history::merged(&mut fields, front.extra_body, &["generationConfig", "toolConfig"]);
    history::front(&fields, &extra, &REST)
}

/// The 2.x models are given a budget of tokens (as Google's own OpenAI path maps the words), later ones a level.
fn thinking(model: &str, effort: &str) -> String {
    let budget = match effort {
        "none" => 0,
        "minimal" | "low" => 1_024,
        "medium" => 8_192,
        "high" => 24_576,
        _ => return format!(r#"{{"thinkingLevel":{}}}"#, string(effort)),
    };
    match effort {
        _ if model.contains("gemini-2") => format!(r#"{{"thinkingBudget":{budget}}}"#),
        // Later models cannot leave it out, and not all of them know `minimal`.
        "none" => r#"{"thinkingLevel":"low"}"#.to_owned(),
        _ => format!(r#"{{"thinkingLevel":{}}}"#, string(effort)),
    }
}

pub fn head(system: &str, tools: &[ToolSchema]) -> String {
    let mut head = String::new();
    if !system.trim().is_empty() {
        head.push_str(&format!(r#""systemInstruction":{{"parts":[{{"text":{}}}]}},"#, string(system)));
    }
    if !tools.is_empty() {
        let tools: Vec<String> = tools
            .iter()
            .map(|tool| {
                let parameters = schema::parameters(tool.parameters.get());
                let parameters = parameters.map_or(String::new(), |schema| format!(r#","parameters":{schema}"#));
                format!(r#"{{"name":{},"description":{}{parameters}}}"#, string(tool.name), string(&tool.description))
            })
            .collect();
        head.push_str(&format!(r#""tools":[{{"functionDeclarations":[{}]}}],"#, tools.join(",")));
    }
    head.push_str(r#""contents":["#);
    head
}

pub fn messages(messages: &[Message], follows: bool, out: &mut Vec<u8>) -> u64 {
    let mut count = 0;
    for say in history::group(messages) {
        let (role, parts) = match say {
            Say::Assistant(blocks) => ("model", model(blocks)),
            Say::User { results, texts } => {
                let texts = texts.iter().map(|text| format!(r#"{{"text":{}}}"#, string(text)));
                ("user", results.iter().map(result).chain(texts).collect())
            }
        };
        if parts.is_empty() {
            continue;
        }
        if follows || count > 0 {
            out.push(b',');
        }
        out.extend_from_slice(format!(r#"{{"role":"{role}","parts":[{}]}}"#, parts.join(",")).as_bytes());
        count += 1;
    }
    count
}

/// An id that the model never gave is not told to it either: results are then matched in their order.
fn id(call_id: &str) -> String {
    if is_made_up(call_id) { String::new() } else { format!(r#""id":{},"#, string(call_id)) }
}

fn result(result: &ToolResult<'_>) -> String {
    let key = if result.is_error { "error" } else { "result" };
    format!(
        r#"{{"functionResponse":{{{}"name":{},"response":{{"{key}":{}}}}}}}"#,
        id(result.call_id),
        string(result.tool),
        string(result.text)
    )
}

/// The parts of one reply. Those that came with a signature go back as they were.
fn model(blocks: &[Block]) -> Vec<String> {
    let mut parts = Vec::new();
    let (mut wrapped, mut said) = (None, false);
    for block in blocks {
        let envelope = wrapped.take();
        let part = match block {
            Block::Thinking { raw: Some(raw), .. } if envelope::is(raw) => {
                wrapped = envelope::open(raw);
                continue;
            }
            Block::Thinking { raw: Some(raw), .. } => {
                // Reasoning of another wire is no part of this one.
                if raw.contains(r#""thoughtSignature""#) {
                    parts.push(raw.clone());
                }
                continue;
            }
            // What nothing signs, the provider does not want back.
            Block::Thinking { raw: None, .. } => continue,
            Block::Text { text } => {
                let part = envelope.and_then(|envelope| envelope.with_text(text));
                if part.is_none() && text.trim().is_empty() {
                    continue;
                }
                part.unwrap_or_else(|| format!(r#"{{"text":{}}}"#, string(text)))
            }
            Block::Call { id: call_id, name, arguments } => {
                let arguments = history::sendable_arguments(arguments);
                let part = envelope.and_then(|envelope| envelope.with_object(&arguments));
                part.unwrap_or_else(|| {
                    format!(r#"{{"functionCall":{{{}"name":{},"args":{arguments}}}}}"#, id(call_id), string(name))
                })
            }
            Block::Raw { raw } => raw.clone(),
        };
        said = true;
        parts.push(part);
    }
    // Thoughts alone are no content.
    if said { parts } else { Vec::new() }
}
