//! What makes a request well formed. Every request of every test is held against these rules.

mod anthropic;
mod chat;
mod gemini;
mod responses;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::reply::{Block, Reply};
use super::request::{Lane, Request, Wire, forced_tool, model_of_path, tool_names};
use super::stream;

/// What a test says about its requests.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// The key that every request must carry; absent: none may.
    pub key: Option<String>,
    pub any_key: bool,
    /// Texts that no request may contain (the key is one of them).
    pub secrets: Vec<String>,
    /// No agent request starts a second session.
    pub one_session: bool,
    /// How many agent requests need not continue an earlier one.
    pub rewrites: u64,
    /// Thinking may come from elsewhere than this provider.
    pub foreign_history: bool,
}

/// Holds requests against the rules, and remembers what later ones must agree with.
#[derive(Debug, Default)]
pub struct Checker {
    pub rules: Rules,
    /// Per session, the last agent request's rest less its closing brackets; the latest session is the last.
    sessions: Vec<Vec<u8>>,
    /// The content of each reply sent to the agent, as the anthropic wire has it; by the id of its first call,
    /// or by its text when it has none.
    sent: BTreeMap<String, Vec<Vec<Value>>>,
    /// By the same: the digest of the messages that each of those replies answered. Reasoning holds for these alone.
    bound: BTreeMap<String, BTreeSet<u64>>,
    /// The digest of the messages of the agent's last request.
    asked: u64,
    /// Rounds that were open when the history before them was edited: their reasoning had to come back.
    open_at_edit: BTreeSet<String>,
    /// The blocks of those replies that only the provider understands, and the chat wire's reasoning.
    opaque: BTreeMap<String, Value>,
    reasoning: BTreeSet<String>,
    /// The items of each reply as the responses wire has them, and its parts as the gemini wire has them.
    items: Vec<Vec<Value>>,
    parts: Vec<Vec<Value>>,
    /// Agent requests that did not continue the one before: the history was edited, which was allowed.
    pub rewritten: u64,
    /// A reply paused the turn: the history may end with an assistant message.
    paused: bool,
}

impl Checker {
    pub fn new(rules: Rules) -> Checker {
        Checker { rules, ..Checker::default() }
    }

    /// Remembers a reply with content to the agent, before it is sent.
    pub fn sent(&mut self, reply: &Reply, n: usize) {
        self.items.push(stream::responses::items(reply, n));
        self.parts.push(stream::gemini::parts(reply));
        self.paused |= matches!(reply.stop.as_deref(), Some("pause" | "pause_turn"));
        self.rules.foreign_history |= reply.raw.is_some() || reply.body.is_some();
        let blocks: Vec<Value> = reply
            .blocks
            .iter()
            .map(|block| match block {
                Block::Text(text) => json!({"type": "text", "text": text}),
                Block::Thinking { text, signature } => {
                    json!({"type": "thinking", "thinking": text, "signature": signature})
                }
                Block::Call { id, name, .. } => json!({"type": "tool_use", "id": id, "name": name}),
                Block::Other(value) => value.clone(),
            })
            .collect();
        self.opaque.extend(blocks.iter().filter(|block| is_opaque(block)).map(|block| (sorted(block), block.clone())));
        self.reasoning.insert(thoughts(&blocks));
        let key = source_key(&blocks);
        self.bound.entry(key.clone()).or_default().insert(self.asked);
        self.sent.entry(key).or_default().push(blocks);
    }

    /// Everything that is wrong with a request.
    pub fn check(&mut self, request: &Request) -> Vec<String> {
        let mut found = Found::default();
        self.headers(request, &mut found);
        let body: Value = match serde_json::from_slice(&request.body) {
            Ok(body) => body,
            Err(error) => {
                found.say(format!("the body is not valid JSON: {error}"));
                return found.0;
            }
        };
        self.secrets(request, &body, &mut found);
        settings(request, &body, &mut found);
        tools(request.wire, &body, &mut found);
        let list = match request.wire {
            Wire::Anthropic | Wire::OpenAiChat => "messages",
            Wire::OpenAiResponses => "input",
            Wire::Gemini => "contents",
        };
        let messages = body[list].as_array().map(Vec::as_slice).unwrap_or_default();
        if messages.is_empty() {
            found.say(format!("`{list}` is missing or empty"));
        }
        if request.lane == Lane::Agent {
            let models = |message: &Value| {
                let role = message["role"].as_str().unwrap_or_default();
                matches!(role, "assistant" | "model") || message["type"] == "function_call"
            };
            self.prefix(request, !messages.iter().any(models), &mut found);
        }
        let before = anthropic::digests(&request.body);
        if request.lane == Lane::Agent {
            self.asked = before.last().copied().unwrap_or_default();
        }
        match request.wire {
            Wire::Anthropic => self.anthropic(request, &body["system"], messages, &before, &mut found),
            Wire::OpenAiResponses => self.responses(request, &body, &mut found),
            Wire::OpenAiChat => self.chat(messages, &mut found),
            Wire::Gemini => self.gemini(request, &body, &mut found),
        }
        found.0
    }

    fn headers(&self, request: &Request, found: &mut Found) {
        if !request.header("content-type").is_some_and(|kind| kind.starts_with("application/json")) {
            found.say(format!("content-type is {:?}, not application/json", request.header("content-type")));
        }
        if request.wire == Wire::Anthropic && request.header("anthropic-version").is_none() {
            found.say("no anthropic-version header");
        }
        let given = match request.wire {
            Wire::Anthropic => request.header("x-api-key").map(str::to_owned),
            Wire::Gemini => request.header("x-goog-api-key").map(str::to_owned),
            Wire::OpenAiResponses | Wire::OpenAiChat => {
                request.header("authorization").map(|value| value.strip_prefix("Bearer ").unwrap_or(value).to_owned())
            }
        };
        match (&self.rules.key, given) {
            (Some(expected), Some(given)) if *expected != given => found.say("another API key than the expected one"),
            (Some(_), None) => found.say("no API key"),
            (None, Some(_)) if !self.rules.any_key => found.say("an API key although the endpoint is keyless"),
            _ => {}
        }
    }

    fn secrets(&self, request: &Request, body: &Value, found: &mut Found) {
        let is_key_header = |name: &str| matches!(name, "x-api-key" | "x-goog-api-key" | "authorization");
        for secret in self.rules.secrets.iter().chain(&self.rules.key) {
            if contains(&request.body, secret.as_bytes()) || any_text(body, &|text| text.contains(secret.as_str())) {
                found.say("the body contains a secret");
            }
            let mut headers = request.headers.iter().filter(|(name, _)| !is_key_header(name));
            if request.path.contains(secret) || request.query.contains(secret) {
                found.say("the URL contains a secret");
            }
            if let Some((name, _)) = headers.find(|(_, value)| value.contains(secret)) {
                found.say(format!("the header {name} contains a secret"));
            }
        }
    }

    /// The rest of an agent request begins with the rest of the session's request before, less its `]}`. A
    /// request without any assistant message may start a session of its own.
    fn prefix(&mut self, request: &Request, fresh: bool, found: &mut Found) {
        let rest = request.rest();
        let Some(kept) = rest.strip_suffix(b"]}") else {
            found.say("the rest of the body does not run from the system prompt, tools or messages to `]}`");
            return;
        };
        let continued = (0..self.sessions.len())
            .filter(|&index| rest.starts_with(&self.sessions[index]))
            .max_by_key(|&index| (self.sessions[index].len(), index));
        match (continued, self.sessions.last()) {
            (Some(index), _) => {
                self.sessions.remove(index);
            }
            (None, Some(last)) if !fresh || self.rules.one_session => {
                if self.rules.rewrites > 0 {
                    self.rewritten += 1;
                    self.rules.rewrites =
                        self.rules.rewrites.saturating_sub(u64::from(self.rules.rewrites != u64::MAX));
                } else {
                    let same = last.iter().zip(rest).take_while(|(a, b)| a == b).count();
                    found.say(format!(
                        "the previous request is not a prefix of this one: they part at byte {same} of the rest\n    \
                         before: {}\n    now:    {}",
                        excerpt(last, same),
                        excerpt(rest, same)
                    ));
                }
                self.sessions.pop();
            }
            (None, _) => {}
        }
        self.sessions.push(kept.to_vec());
    }
}

/// A block whatever the order of its keys.
fn sorted(block: &Value) -> String {
    match block {
        Value::Object(fields) => {
            let fields: BTreeMap<&String, String> = fields.iter().map(|(name, value)| (name, sorted(value))).collect();
            format!("{fields:?}")
        }
        Value::Array(items) => format!("{:?}", items.iter().map(sorted).collect::<Vec<_>>()),
        other => other.to_string(),
    }
}

#[derive(Default)]
struct Found(Vec<String>);

impl Found {
    fn say(&mut self, what: impl Into<String>) {
        self.0.push(what.into());
    }

    fn unless(&mut self, right: bool, what: impl Into<String>) {
        if !right {
            self.say(what);
        }
    }
}

fn settings(request: &Request, body: &Value, found: &mut Found) {
    if request.wire == Wire::Gemini {
        found.unless(!blank(model_of_path(&request.path)), "the path names no model");
    } else {
        found.unless(named(&body["model"]), "`model` is missing or empty");
        found.unless(body["stream"] == true, "`stream` is not true");
    }
    let limits: Vec<&Value> = match request.wire {
        Wire::Anthropic => vec![&body["max_tokens"]],
        Wire::OpenAiResponses => vec![&body["max_output_tokens"]],
        Wire::Gemini => vec![&body["generationConfig"]["maxOutputTokens"]],
        Wire::OpenAiChat => vec![&body["max_tokens"], &body["max_completion_tokens"]],
    };
    let given: Vec<_> = limits.into_iter().filter(|limit| !limit.is_null()).collect();
    let positive = given.len() == 1 && given[0].as_u64().is_some_and(|limit| limit > 0);
    found.unless(positive, "the output limit is missing, named twice or not a positive whole number");
}

fn tools(wire: Wire, body: &Value, found: &mut Found) {
    let list = match body.get("tools") {
        None => &[][..],
        Some(Value::Array(list)) if wire == Wire::Gemini && list.len() == 1 => {
            list[0]["functionDeclarations"].as_array().map(Vec::as_slice).unwrap_or_default()
        }
        Some(Value::Array(list)) if !list.is_empty() => list,
        Some(_) => return found.say("`tools` is not a list, or an empty one"),
    };
    let mut names = BTreeSet::new();
    for (index, tool) in list.iter().enumerate() {
        let (tool, schema) = match wire {
            Wire::Anthropic => (tool, &tool["input_schema"]),
            Wire::OpenAiResponses | Wire::Gemini => (tool, &tool["parameters"]),
            Wire::OpenAiChat => (&tool["function"], &tool["function"]["parameters"]),
        };
        let name = tool["name"].as_str().unwrap_or_default();
        let valid =
            (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        found.unless(valid, format!("tools[{index}]: {name:?} is no name for a tool"));
        found.unless(names.insert(name), format!("tools[{index}]: {name} is offered twice"));
        // Google's word is written large, and a function without parameters has no schema.
        let object = match wire {
            Wire::Gemini => schema.is_null() || schema["type"] == "OBJECT",
            _ => schema["type"] == "object",
        };
        found.unless(object, format!("tools[{index}]: the schema of {name} is no object's"));
    }
    if let Some(forced) = forced_tool(&body["tool_choice"], &body["toolConfig"])
        && !tool_names(&body["tools"]).any(|name| name == forced)
    {
        found.say(format!("`tool_choice` forces {forced}, which is not offered"));
    }
}

fn call_id(at: &str, id: &str, ids: &mut BTreeSet<String>, found: &mut Found) {
    if id.is_empty() {
        found.say(format!("{at}: a call without an id"));
    } else if !ids.insert(id.to_owned()) {
        found.say(format!("{at}: the call id {id} was used before"));
    }
}

fn named(value: &Value) -> bool {
    value.as_str().is_some_and(|name| !blank(name))
}

fn blank(text: &str) -> bool {
    text.trim().is_empty()
}

fn joined(blocks: &[Value]) -> String {
    blocks.iter().filter(|block| block["type"] == "text").filter_map(|block| block["text"].as_str()).collect()
}

fn is_opaque(block: &Value) -> bool {
    !matches!(block["type"].as_str(), Some("text" | "tool_use"))
}

/// What tells a reply from others: its first call's id, else its text.
fn source_key(blocks: &[Value]) -> String {
    match blocks.iter().find(|block| block["type"] == "tool_use") {
        Some(call) => format!("call {}", call["id"]),
        None => format!("text {}", joined(blocks)),
    }
}

fn thoughts(blocks: &[Value]) -> String {
    blocks.iter().filter_map(|block| block["thinking"].as_str()).collect()
}

fn any_text(value: &Value, holds: &dyn Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => holds(text),
        Value::Array(items) => items.iter().any(|item| any_text(item, holds)),
        Value::Object(fields) => fields.iter().any(|(name, item)| holds(name) || any_text(item, holds)),
        _ => false,
    }
}

pub fn contains(bytes: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && bytes.windows(part.len()).any(|window| window == part)
}

/// What stands around a place, on one line.
fn excerpt(bytes: &[u8], at: usize) -> String {
    let (from, to) = (at.saturating_sub(60).min(bytes.len()), (at + 60).min(bytes.len()));
    String::from_utf8_lossy(&bytes[from..to]).replace('\n', " ")
}
