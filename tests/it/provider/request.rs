//! One request as it arrived, and what tests ask about it, the same on both wires.

use std::time::Instant;

use serde::Deserialize;
use serde_json::Value;

/// Who calls, told from the request alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    Agent,
    /// Its requests offer (or force) a tool named `verdict`.
    Judge,
    /// Its requests offer no tools, and their system prompt asks for working notes.
    Summarizer,
}

impl Lane {
    pub const ALL: [Lane; 3] = [Lane::Agent, Lane::Judge, Lane::Summarizer];

    pub const fn name(self) -> &'static str {
        match self {
            Lane::Agent => "agent",
            Lane::Judge => "judge",
            Lane::Summarizer => "summarizer",
        }
    }
}

/// What an answer depends on.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    pub model: String,
    /// Chat wire: usage is reported to who asks for it.
    pub include_usage: bool,
    pub judges: bool,
    pub summarizes: bool,
    pub body_bytes: usize,
}

impl Asked {
    /// Reads the few fields without building the messages. Anything unreadable is a default: the checks name it.
    pub fn of(wire: Wire, path: &str, body: &[u8]) -> Asked {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Few {
            model: Value,
            tools: Value,
            tool_choice: Value,
            #[serde(rename = "toolConfig")]
            tool_config: Value,
            stream_options: Value,
            system: Value,
            instructions: Value,
            #[serde(rename = "systemInstruction")]
            system_instruction: Value,
        }
        let few: Few = serde_json::from_slice(body).unwrap_or_default();
        let judges = tool_names(&few.tools).any(|name| name == "verdict")
            || forced_tool(&few.tool_choice, &few.tool_config) == Some("verdict");
        // The system prompt of the chat wire stands among the messages, which are not built: it comes first.
        let notes = "You write the working notes of a coding agent";
        let head = &body[..body.len().min(2_000)];
        let summarizes = few.tools.is_null()
            && ([&few.system, &few.instructions, &few.system_instruction["parts"]]
                .iter()
                .any(|system| content_text(system).starts_with(notes))
                || head.windows(notes.len()).any(|window| window == notes.as_bytes()));
        Asked {
            model: match wire {
                Wire::Gemini => model_of_path(path).to_owned(),
                _ => few.model.as_str().unwrap_or_default().to_owned(),
            },
            include_usage: few.stream_options["include_usage"] == true,
            judges,
            summarizes,
            body_bytes: body.len(),
        }
    }
}

/// The model that a path of the Gemini API names.
pub fn model_of_path(path: &str) -> &str {
    let name = path.rsplit_once("/models/").map_or(path, |(_, name)| name);
    name.split_once(':').map_or(name, |(name, _)| name)
}

/// Which protocol a path speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    Anthropic,
    OpenAiResponses,
    OpenAiChat,
    Gemini,
}

impl Wire {
    pub const ALL: [Wire; 4] = [Wire::Anthropic, Wire::OpenAiResponses, Wire::OpenAiChat, Wire::Gemini];

    /// Those whose requests are a list of `messages`, with roles and contents.
    pub const MESSAGES: [Wire; 2] = [Wire::Anthropic, Wire::OpenAiChat];

    pub const fn name(self) -> &'static str {
        match self {
            Wire::Anthropic => "anthropic",
            Wire::OpenAiResponses => "openai-responses",
            Wire::OpenAiChat => "openai-chat",
            Wire::Gemini => "gemini",
        }
    }

    /// Any prefix may stand before the wire's own path.
    pub fn of_path(path: &str) -> Option<Wire> {
        if path.ends_with("/v1/messages") {
            Some(Wire::Anthropic)
        } else if path.ends_with("/responses") {
            Some(Wire::OpenAiResponses)
        } else if path.ends_with("/chat/completions") {
            Some(Wire::OpenAiChat)
        } else if path.contains("/models/") && path.ends_with(":streamGenerateContent") {
            Some(Wire::Gemini)
        } else {
            None
        }
    }
}

/// The result of a tool call, as the model sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    pub id: String,
    pub text: String,
    /// Always false on the chat wire, which has no such mark.
    pub is_error: bool,
}

/// One request to a model.
#[derive(Debug, Clone)]
pub struct Request {
    /// Counts all requests from 1, in the order they arrived.
    pub n: usize,
    /// Counts the lane's requests from 1.
    pub lane_n: usize,
    pub lane: Lane,
    pub wire: Wire,
    /// Without the query.
    pub path: String,
    /// Without the question mark.
    pub query: String,
    /// Names in lower case, in the order received.
    pub headers: Vec<(String, String)>,
    /// Empty when the script is `light`, and afterwards when it forgets bodies.
    pub body: Vec<u8>,
    /// When its first byte was there, and when all of it was.
    pub first_byte: Instant,
    pub received: Instant,
}

impl Request {
    /// All but its body and headers.
    pub(super) fn without_body(&self) -> Request {
        let Request { n, lane_n, lane, wire, first_byte, received, .. } = *self;
        let (path, query) = (self.path.clone(), self.query.clone());
        Request { n, lane_n, lane, wire, path, query, headers: Vec::new(), body: Vec::new(), first_byte, received }
    }

    /// The body, parsed. Panics when it is not JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("request {} is not JSON: {e}", self.n))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The body from the first of its top-level keys `system`, `tools`, `messages` on; empty without any.
    pub fn rest(&self) -> &[u8] {
        rest_start(&self.body).map_or(&[], |start| &self.body[start..])
    }

    /// The list that grows, whatever the wire calls it.
    pub fn messages(&self) -> Vec<Value> {
        let body = self.json();
        let lists = ["messages", "input", "contents"];
        lists.iter().find_map(|name| body[*name].as_array()).cloned().unwrap_or_default()
    }

    /// The system prompt, joined.
    pub fn system(&self) -> String {
        let body = self.json();
        match self.wire {
            Wire::Anthropic => content_text(&body["system"]),
            Wire::OpenAiResponses => content_text(&body["instructions"]),
            Wire::Gemini => content_text(&body["systemInstruction"]["parts"]),
            Wire::OpenAiChat => match body["messages"].get(0) {
                Some(first) if matches!(first["role"].as_str(), Some("system" | "developer")) => {
                    content_text(&first["content"])
                }
                _ => String::new(),
            },
        }
    }

    /// Names of the tools on offer, in order.
    pub fn tool_names(&self) -> Vec<String> {
        tool_names(&self.json()["tools"]).map(str::to_owned).collect()
    }

    /// The one tool that it forces.
    pub fn forced(&self) -> Option<String> {
        let body = self.json();
        forced_tool(&body["tool_choice"], &body["toolConfig"]).map(str::to_owned)
    }

    /// The output limit it names.
    pub fn max_tokens(&self) -> Option<u64> {
        let body = self.json();
        let keys = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
        let named = keys.iter().find_map(|key| body[*key].as_u64());
        named.or_else(|| body["generationConfig"]["maxOutputTokens"].as_u64())
    }

    /// What follows the last assistant message: tool results, in order.
    pub fn tool_results(&self) -> Vec<ToolResult> {
        let mut results = Vec::new();
        for message in self.tail() {
            if message["role"] == "tool" {
                results.push(ToolResult {
                    id: message["tool_call_id"].as_str().unwrap_or_default().to_owned(),
                    text: content_text(&message["content"]),
                    is_error: false,
                });
            }
            if message["type"] == "function_call_output" {
                results.push(ToolResult {
                    id: message["call_id"].as_str().unwrap_or_default().to_owned(),
                    text: content_text(&message["output"]),
                    is_error: false,
                });
            }
            for response in message["parts"].as_array().into_iter().flatten().filter_map(|p| p.get("functionResponse"))
            {
                let error = response["response"]["error"].as_str();
                let text = error.or(response["response"]["result"].as_str());
                results.push(ToolResult {
                    id: response["id"].as_str().unwrap_or_default().to_owned(),
                    text: text.unwrap_or_default().to_owned(),
                    is_error: error.is_some(),
                });
            }
            for block in message["content"].as_array().into_iter().flatten() {
                if block["type"] == "tool_result" {
                    results.push(ToolResult {
                        id: block["tool_use_id"].as_str().unwrap_or_default().to_owned(),
                        text: content_text(&block["content"]),
                        is_error: block["is_error"].as_bool().unwrap_or(false),
                    });
                }
            }
        }
        results
    }

    /// What follows the last assistant message: text of user (and system) messages, joined by blank lines.
    pub fn new_text(&self) -> String {
        let tail = self.tail();
        let texts = tail.iter().filter(|m| m["role"] != "tool").map(|m| match m.get("parts") {
            Some(parts) => content_text(parts),
            None => content_text(&m["content"]),
        });
        texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n")
    }

    /// The messages after the last assistant message (without a leading system message).
    fn tail(&self) -> Vec<Value> {
        let messages = self.messages();
        let models = |m: &Value| {
            let item = matches!(m["type"].as_str(), Some("function_call" | "reasoning"));
            item || m["role"] == "assistant" || m["role"] == "model"
        };
        match messages.iter().rposition(models) {
            Some(last) => messages[last + 1..].to_vec(),
            None => messages.into_iter().skip_while(|m| m["role"] == "system" || m["role"] == "developer").collect(),
        }
    }
}

/// The text of a content: a string, or the text blocks of a list, joined by line ends.
pub fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

/// Names in a body's `tools`, whatever its wire.
pub fn tool_names(tools: &Value) -> impl Iterator<Item = &str> {
    let declared = tools[0]["functionDeclarations"].as_array();
    let list = declared.or(tools.as_array()).into_iter().flatten();
    list.filter_map(|tool| tool["name"].as_str().or_else(|| tool["function"]["name"].as_str()))
}

/// The one tool that a body's `tool_choice` or `toolConfig` forces, whatever its wire.
pub fn forced_tool<'a>(choice: &'a Value, config: &'a Value) -> Option<&'a str> {
    let calling = &config["functionCallingConfig"];
    let named = calling["allowedFunctionNames"][0].as_str().filter(|_| calling["mode"] == "ANY");
    choice["name"].as_str().or_else(|| choice["function"]["name"].as_str()).or(named)
}

/// Where the rest of a body starts: at the quote of its first top-level key `system`, `tools`, `messages`, or
/// what other wires call them.
pub fn rest_start(body: &[u8]) -> Option<usize> {
    let mut at = skip_space(body, 0);
    if body.get(at) != Some(&b'{') {
        return None;
    }
    at = skip_space(body, at + 1);
    while body.get(at) == Some(&b'"') {
        let end = skip_string(body, at)?;
        let names: [&[u8]; 7] =
            [b"system", b"tools", b"messages", b"instructions", b"input", b"systemInstruction", b"contents"];
        if names.contains(&&body[at + 1..end - 1]) {
            return Some(at);
        }
        at = skip_space(body, end);
        if body.get(at) != Some(&b':') {
            return None;
        }
        at = skip_space(body, skip_value(body, at + 1)?);
        if body.get(at) == Some(&b',') {
            at = skip_space(body, at + 1);
        }
    }
    None
}

fn skip_space(body: &[u8], mut at: usize) -> usize {
    while body.get(at).is_some_and(u8::is_ascii_whitespace) {
        at += 1;
    }
    at
}

/// From an opening quote to behind the closing one.
fn skip_string(body: &[u8], open: usize) -> Option<usize> {
    let mut at = open + 1;
    loop {
        match body.get(at)? {
            b'\\' => at += 2,
            b'"' => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// From before a value to behind it.
fn skip_value(body: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0usize;
    loop {
        match body.get(at)? {
            b'"' => {
                at = skip_string(body, at)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return Some(at),
            b'}' | b']' => depth -= 1,
            b',' if depth == 0 => return Some(at),
            _ => {}
        }
        at += 1;
    }
}
