//! A client of a few lines, requests for it to send, and an independent reading of what it gets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::provider::{Provider, Wire};

/// How long anything here may take at most.
pub const SOON: Duration = Duration::from_secs(10);

pub struct Client {
    pub reader: BufReader<TcpStream>,
}

/// A response as far as it came.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Sizes of the chunks; empty with a content length.
    pub chunks: Vec<usize>,
    /// The framing said that the body was over.
    pub whole: bool,
    /// The error that ended it.
    pub error: Option<std::io::ErrorKind>,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// `(event, data)` of each frame; every frame has the wire's form.
    pub fn events(&self) -> Vec<(String, Value)> {
        let text = std::str::from_utf8(&self.body).expect("a stream is UTF-8").replace("\r\n", "\n");
        let frames = text.strip_suffix("\n\n").expect("the last frame is closed").split("\n\n");
        frames
            .map(|frame| {
                let (event, data) = match frame.split_once('\n') {
                    Some((event, data)) => (event.strip_prefix("event: ").expect("an event line"), data),
                    None => ("", frame),
                };
                let data = data.strip_prefix("data: ").expect("a data line");
                let value = if data == "[DONE]" { json!("[DONE]") } else { serde_json::from_str(data).expect("JSON") };
                (event.to_owned(), value)
            })
            .collect()
    }
}

impl Client {
    pub fn new(provider: &Provider) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", provider.port())).expect("the provider listens");
        stream.set_nodelay(true).expect("small writes go out at once");
        stream.set_read_timeout(Some(SOON)).expect("a timeout is set");
        Client { reader: BufReader::new(stream) }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).expect("the provider reads");
    }

    pub fn post(&mut self, path: &str, headers: &str, body: &[u8]) -> Response {
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {length}\r\n\r\n");
        self.send(head.as_bytes());
        self.send(body);
        self.response().expect("an answer begins")
    }

    /// Sends without waiting for an answer.
    pub fn send_request(&mut self, wire: Wire, body: &Value) {
        let (path, headers, body) = (path(wire), headers(wire), body.to_string());
        let length = body.len();
        self.send(
            format!("POST {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {length}\r\n\r\n{body}").as_bytes(),
        );
    }

    pub fn ask(&mut self, wire: Wire, body: &Value) -> Response {
        self.post(path(wire), headers(wire), body.to_string().as_bytes())
    }

    pub fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        Ok(line.strip_suffix("\r\n").map(str::to_owned).ok_or(std::io::ErrorKind::UnexpectedEof)?)
    }

    pub fn response(&mut self) -> std::io::Result<Response> {
        let status = self.line()?;
        let status = status.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).expect("a status line");
        let mut response = Response {
            status: status.parse().expect("a status"),
            headers: Vec::new(),
            body: Vec::new(),
            chunks: Vec::new(),
            whole: false,
            error: None,
        };
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(": ").expect("a header");
            response.headers.push((name.to_owned(), value.to_owned()));
        }
        match self.body(&mut response) {
            Ok(()) => response.whole = true,
            Err(error) => response.error = Some(error.kind()),
        }
        Ok(response)
    }

    pub fn body(&mut self, response: &mut Response) -> std::io::Result<()> {
        if let Some(length) = response.header("content-length") {
            let length: u64 = length.parse().expect("a length");
            self.some(length, &mut response.body)?;
            return Ok(());
        }
        assert_eq!(response.header("transfer-encoding"), Some("chunked"));
        loop {
            let size = u64::from_str_radix(&self.line()?, 16).expect("a chunk's size");
            if size > 0 {
                self.some(size, &mut response.body)?;
                response.chunks.push(size as usize);
            }
            assert_eq!(self.line()?, "", "a chunk is closed by CR LF");
            if size == 0 {
                return Ok(());
            }
        }
    }

    pub fn some(&mut self, bytes: u64, into: &mut Vec<u8>) -> std::io::Result<()> {
        let read = (&mut self.reader).take(bytes).read_to_end(into)?;
        if read as u64 == bytes { Ok(()) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Reads on until the connection ends; the error if it was no clean end.
    pub fn end(&mut self) -> Option<std::io::ErrorKind> {
        self.reader.read_to_end(&mut Vec::new()).err().map(|error| error.kind())
    }
}

pub fn path(wire: Wire) -> &'static str {
    match wire {
        Wire::Anthropic => "/v1/messages",
        Wire::OpenAiResponses => "/v1/responses",
        Wire::OpenAiChat => "/v1/chat/completions",
        Wire::Gemini => "/v1beta/models/model-1:streamGenerateContent?alt=sse",
    }
}

pub fn headers(wire: Wire) -> &'static str {
    match wire {
        Wire::Anthropic => "Content-Type: application/json\r\nanthropic-version: 2023-06-01\r\n",
        Wire::OpenAiResponses | Wire::OpenAiChat | Wire::Gemini => "Content-Type: application/json\r\n",
    }
}

/// A well-formed agent request with these messages, items or contents (without the chat wire's system message).
pub fn request(wire: Wire, messages: Value) -> Value {
    match wire {
        Wire::Anthropic => json!({
            "model": "model-1", "max_tokens": 100, "stream": true, "system": "be good",
            "tools": [{"name": "bash", "description": "d", "input_schema": {"type": "object"}}],
            "messages": messages,
        }),
        Wire::OpenAiResponses => json!({
            "model": "model-1", "max_output_tokens": 100, "stream": true, "store": false,
            "include": ["reasoning.encrypted_content"], "instructions": "be good",
            "tools": [{"type": "function", "name": "bash", "parameters": {"type": "object"}, "strict": false}],
            "input": messages,
        }),
        Wire::Gemini => json!({
            "generationConfig": {"maxOutputTokens": 100}, "systemInstruction": {"parts": [{"text": "be good"}]},
            "tools": [{"functionDeclarations": [{"name": "bash", "description": "d"}]}],
            "contents": messages,
        }),
        Wire::OpenAiChat => {
            let mut all = vec![json!({"role": "system", "content": "be good"})];
            all.extend(messages.as_array().expect("a list").iter().cloned());
            json!({
                "model": "model-1", "max_tokens": 100, "stream": true, "stream_options": {"include_usage": true},
                "tools": [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}],
                "messages": all,
            })
        }
    }
}

pub fn hello() -> Value {
    json!([{"role": "user", "content": "hello"}])
}

/// A user's greeting as the wire has it.
pub fn hello_on(wire: Wire) -> Value {
    match wire {
        Wire::Anthropic | Wire::OpenAiChat => hello(),
        Wire::OpenAiResponses => {
            json!([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}])
        }
        Wire::Gemini => json!([{"role": "user", "parts": [{"text": "hello"}]}]),
    }
}

pub fn judge_request(wire: Wire) -> Value {
    let mut body = request(wire, hello_on(wire));
    match wire {
        Wire::Anthropic => body["tools"][0]["name"] = json!("verdict"),
        Wire::OpenAiResponses => body["tools"][0]["name"] = json!("verdict"),
        Wire::OpenAiChat => body["tools"][0]["function"]["name"] = json!("verdict"),
        Wire::Gemini => body["tools"][0]["functionDeclarations"][0]["name"] = json!("verdict"),
    }
    body
}

/// Both wires' messages of one round: a call with this id, and its result.
pub fn round(wire: Wire, id: &str) -> [Value; 2] {
    match wire {
        Wire::Anthropic => [
            json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "bash", "input": {}}]}),
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "ok"}]}),
        ],
        Wire::OpenAiResponses => [
            json!({"type": "function_call", "call_id": id, "name": "bash", "arguments": "{}"}),
            json!({"type": "function_call_output", "call_id": id, "output": "ok"}),
        ],
        Wire::Gemini => [
            json!({"role": "model", "parts": [{"functionCall": {"id": id, "name": "bash", "args": {}}}]}),
            json!({"role": "user", "parts": [
                {"functionResponse": {"id": id, "name": "bash", "response": {"result": "ok"}}}]}),
        ],
        Wire::OpenAiChat => [
            json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": id, "type": "function", "function": {"name": "bash", "arguments": "{}"}}]}),
            json!({"role": "tool", "tool_call_id": id, "content": "ok"}),
        ],
    }
}

/// What an independent reading of a stream gives: text, thinking, calls as (id, name, arguments), stop, usage as
/// (input, output, cache read).
#[derive(Debug, Default, PartialEq)]
pub struct Understood {
    pub text: String,
    pub thinking: String,
    pub calls: Vec<(String, String, String)>,
    pub stop: String,
    pub usage: Option<(u64, u64, u64)>,
}

pub fn read(wire: Wire, response: &Response) -> Understood {
    let mut out = Understood::default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for (event, data) in response.events() {
        match wire {
            Wire::Anthropic => {
                assert_eq!(data["type"], event.as_str(), "the event's name is the data's type");
                let (block, delta) = (&data["content_block"], &data["delta"]);
                if block["type"] == "tool_use" {
                    assert_eq!(block["input"], json!({}));
                    out.calls.push((text(&block["id"]), text(&block["name"]), String::new()));
                }
                out.text += &text(&delta["text"]);
                out.thinking += &text(&delta["thinking"]);
                if delta["type"] == "input_json_delta" {
                    out.calls.last_mut().expect("a call is open").2 += &text(&delta["partial_json"]);
                }
                if event == "message_delta" {
                    out.stop = text(&delta["stop_reason"]);
                    let usage = &data["usage"];
                    let part = |name: &str| usage[name].as_u64().unwrap_or_default();
                    let cached = part("cache_read_input_tokens");
                    let input = part("input_tokens") + part("cache_creation_input_tokens") + cached;
                    out.usage = usage.is_object().then(|| (input, part("output_tokens"), cached));
                }
            }
            Wire::OpenAiResponses => {
                assert_eq!(data["type"], event.as_str(), "the event's name is the data's type");
                let delta = text(&data["delta"]);
                match event.as_str() {
                    "response.output_text.delta" => out.text += &delta,
                    "response.reasoning_summary_text.delta" => out.thinking += &delta,
                    "response.function_call_arguments.delta" => {
                        out.calls.last_mut().expect("a call is open").2 += &delta;
                    }
                    "response.output_item.added" if data["item"]["type"] == "function_call" => {
                        out.calls.push((text(&data["item"]["call_id"]), text(&data["item"]["name"]), String::new()));
                    }
                    "response.completed" | "response.incomplete" => {
                        let response = &data["response"];
                        out.stop = text(&response["status"]);
                        let usage = &response["usage"];
                        let part = |value: &Value| value.as_u64().unwrap_or_default();
                        let cached = part(&usage["input_tokens_details"]["cached_tokens"]);
                        let counts = (part(&usage["input_tokens"]), part(&usage["output_tokens"]), cached);
                        out.usage = usage.is_object().then_some(counts);
                    }
                    _ => {}
                }
            }
            Wire::Gemini => {
                let candidate = &data["candidates"][0];
                for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
                    let into = if part["thought"] == true { &mut out.thinking } else { &mut out.text };
                    into.push_str(&text(&part["text"]));
                    if let Some(call) = part.get("functionCall") {
                        out.calls.push((text(&call["id"]), text(&call["name"]), call["args"].to_string()));
                    }
                }
                out.stop += &text(&candidate["finishReason"]);
                let usage = &data["usageMetadata"];
                let part = |name: &str| usage[name].as_u64().unwrap_or_default();
                let output = part("candidatesTokenCount") + part("thoughtsTokenCount");
                let counts = (part("promptTokenCount"), output, part("cachedContentTokenCount"));
                out.usage = usage.is_object().then_some(counts);
            }
            Wire::OpenAiChat => {
                let choice = &data["choices"][0];
                out.text += &text(&choice["delta"]["content"]);
                out.thinking += &text(&choice["delta"]["reasoning_content"]);
                for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
                    let index = call["index"].as_u64().expect("an index") as usize;
                    if index == out.calls.len() {
                        out.calls.push((text(&call["id"]), text(&call["function"]["name"]), String::new()));
                    }
                    out.calls[index].2 += &text(&call["function"]["arguments"]);
                }
                out.stop += &text(&choice["finish_reason"]);
                if let Some(usage) = data.get("usage") {
                    let part = |name: &str| usage[name].as_u64().expect("a number");
                    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a number");
                    out.usage = Some((part("prompt_tokens"), part("completion_tokens"), cached));
                }
            }
        }
    }
    out
}
