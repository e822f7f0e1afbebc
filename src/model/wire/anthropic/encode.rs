//! Requests of the Messages API.

use super::super::super::request::{Front, ToolSchema};
use super::super::history::{self, Say, ToolResult};
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
        let before = out.len();
        if follows || count > 0 {
            out.push(b',');
        }
        let mut blocks = Blocks::begin(out, if matches!(say, Say::User { .. }) { "user" } else { "assistant" });
        match say {
            Say::User { results, texts } => {
                results.iter().for_each(|result| blocks.result(result));
                texts.iter().for_each(|text| blocks.text(text));
            }
            Say::Assistant(said) => assistant(said, &mut blocks),
        }
        if blocks.end() {
            count += 1;
        } else {
            out.truncate(before);
        }
    }
    count
}

/// The blocks of one message, written behind one another.
struct Blocks<'a> {
    out: &'a mut Vec<u8>,
    /// Where the first block begins.
    begin: usize,
}

impl<'a> Blocks<'a> {
    fn begin(out: &'a mut Vec<u8>, role: &str) -> Blocks<'a> {
        out.extend_from_slice(br#"{"role":""#);
        out.extend_from_slice(role.as_bytes());
        out.extend_from_slice(br#"","content":["#);
        Blocks { begin: out.len(), out }
    }

    /// False when there was none.
    fn end(self) -> bool {
        let any = self.out.len() > self.begin;
        self.out.extend_from_slice(b"]}");
        any
    }

    fn next(&mut self, begin: &[u8]) -> &mut Vec<u8> {
        if self.out.len() > self.begin {
            self.out.push(b',');
        }
        self.out.extend_from_slice(begin);
        self.out
    }

    fn text(&mut self, text: &str) {
        let out = self.next(br#"{"type":"text","text":"#);
        push_string(out, text);
        out.push(b'}');
    }

    fn result(&mut self, result: &ToolResult<'_>) {
        let out = self.next(br#"{"type":"tool_result","tool_use_id":"#);
        push_string(out, result.call_id);
        out.extend_from_slice(br#","content":"#);
        push_string(out, result.text);
        if result.is_error {
            out.extend_from_slice(br#","is_error":true"#);
        }
        out.push(b'}');
    }

    fn call(&mut self, id: &str, name: &str, arguments: &str) {
        let out = self.next(br#"{"type":"tool_use","id":"#);
        push_string(out, id);
        out.extend_from_slice(br#","name":"#);
        push_string(out, name);
        out.extend_from_slice(br#","input":"#);
        out.extend_from_slice(history::sendable_arguments(arguments).as_bytes());
        out.push(b'}');
    }
}

fn is_thinking(raw: &str) -> bool {
    matches!(history::kind(raw).as_deref(), Some("thinking" | "redacted_thinking"))
}

fn assistant(said: &[Block], blocks: &mut Blocks<'_>) {
    // Thinking alone is no message, and blocks of white space alone are refused.
    let is_hollow = |block: &Block| match block {
        Block::Thinking { .. } => true,
        Block::Text { text } => text.trim().is_empty(),
        Block::Call { .. } | Block::Raw { .. } => false,
    };
    if said.iter().all(is_hollow) {
        return;
    }
    for block in said {
        match block {
            Block::Text { text } if text.trim().is_empty() => {}
            Block::Text { text } => blocks.text(text),
            Block::Call { id, name, arguments } => blocks.call(id, name, arguments),
            // Reasoning of another wire is no block of this one.
            Block::Thinking { raw: Some(raw), .. } if is_thinking(raw) => {
                blocks.next(raw.as_bytes());
            }
            Block::Thinking { .. } => {}
            Block::Raw { raw } => {
                blocks.next(raw.as_bytes());
            }
        }
    }
}
