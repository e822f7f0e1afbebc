//! A reply as the bytes of a wire: an event stream, or a plain body.

pub mod gemini;
pub mod responses;

use serde_json::{Map, Value, json};

use super::reply::{Block, Reply, Usage, UsageReport};
use super::request::{Asked, Request, Wire};

/// What is sent for one reply.
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    /// The body, one piece an event.
    pub pieces: Vec<Vec<u8>>,
    /// Sent with `transfer-encoding: chunked`.
    pub chunked: bool,
    /// What the stream reports when it is sent whole.
    pub usage: Option<Usage>,
}

/// Gives every call its id and every thinking block its signature.
pub fn with_ids(reply: &mut Reply, request_n: usize) {
    for (index, block) in reply.blocks.iter_mut().enumerate() {
        match block {
            Block::Call { id: id @ None, .. } => *id = Some(format!("call_{request_n}_{index}")),
            Block::Thinking { signature: signature @ None, .. } => {
                *signature = Some(format!("c2lnbmF0dXJl+{request_n}/{index}=="));
            }
            _ => {}
        }
    }
}

pub fn response(reply: &Reply, request: &Request, asked: &Asked) -> Response {
    let mut headers = reply.headers.clone();
    let mut default_header = |name: &str, value: String| {
        if !headers.iter().any(|(n, _)| n == name) {
            headers.push((name.to_owned(), value));
        }
    };
    let id_header = match request.wire {
        Wire::Anthropic => "request-id",
        Wire::OpenAiResponses | Wire::OpenAiChat => "x-request-id",
        Wire::Gemini => "x-goog-request-id",
    };
    default_header(id_header, format!("req_{}", request.n));
    if let Some(raw) = &reply.raw {
        default_header("content-type", "text/event-stream; charset=utf-8".to_owned());
        return Response { status: reply.status, headers, pieces: vec![raw.clone()], chunked: true, usage: None };
    }
    if reply.status != 200 || reply.body.is_some() {
        default_header("content-type", "application/json".to_owned());
        let body = reply.body.clone().unwrap_or_else(|| error_body(request.wire, reply).to_string().into_bytes());
        return Response { status: reply.status, headers, pieces: vec![body], chunked: false, usage: None };
    }
    default_header("content-type", "text/event-stream; charset=utf-8".to_owned());
    let reports = request.wire != Wire::OpenAiChat || asked.include_usage;
    let usage = usage(reply, asked).filter(|_| reports).map(|usage| as_reported(request.wire, usage));
    let pieces = match request.wire {
        Wire::Anthropic => anthropic(reply, request.n, &asked.model, usage),
        Wire::OpenAiResponses => responses::events(reply, request.n, &asked.model, usage),
        Wire::OpenAiChat => chat(reply, request.n, &asked.model, usage),
        Wire::Gemini => gemini::events(reply, request.n, &asked.model, usage),
    };
    Response { status: 200, headers, pieces, chunked: true, usage: usage.filter(|_| !reply.no_terminal) }
}

fn usage(reply: &Reply, asked: &Asked) -> Option<Usage> {
    match reply.usage {
        UsageReport::Nothing => None,
        UsageReport::Given(usage) => Some(usage),
        UsageReport::Computed => {
            let out: usize = reply
                .blocks
                .iter()
                .map(|block| match block {
                    Block::Text(text) => text.len(),
                    Block::Thinking { text, .. } => text.len(),
                    Block::Call { name, arguments, .. } => name.len() + arguments.len(),
                    Block::Other(value) => value.to_string().len(),
                })
                .sum();
            let (input, output) = (asked.body_bytes.div_ceil(4) as u64, out.div_ceil(4).max(1) as u64);
            Some(Usage { input, output, ..Usage::default() })
        }
    }
}

/// Without what the wire has no field for.
fn as_reported(wire: Wire, usage: Usage) -> Usage {
    match wire {
        Wire::Anthropic => Usage { reasoning: 0, ..usage },
        Wire::OpenAiResponses | Wire::OpenAiChat | Wire::Gemini => Usage { cache_write: 0, cache_write_1h: 0, ..usage },
    }
}

fn error_body(wire: Wire, reply: &Reply) -> Value {
    let (kind, message) = match (reply.overflow, wire) {
        (Some(window), Wire::Anthropic) => {
            ("invalid_request_error", format!("prompt is too long: {} tokens > {window} maximum", window + 1_234))
        }
        (Some(window), Wire::Gemini) => (
            "INVALID_ARGUMENT",
            format!(
                "The input token count ({}) exceeds the maximum number of tokens allowed ({window}).",
                window + 1_234
            ),
        ),
        (Some(window), Wire::OpenAiResponses | Wire::OpenAiChat) => (
            "invalid_request_error",
            format!(
                "This model's maximum context length is {window} tokens. However, your messages resulted in {} tokens.",
                window + 1_234
            ),
        ),
        (None, _) => match reply.status {
            400 => ("invalid_request_error", "scripted: invalid request".to_owned()),
            401 => ("authentication_error", "scripted: invalid key".to_owned()),
            403 => ("permission_error", "scripted: not permitted".to_owned()),
            404 => ("not_found_error", "scripted: no such model".to_owned()),
            429 => ("rate_limit_error", "scripted: rate limit reached".to_owned()),
            529 => ("overloaded_error", "scripted: overloaded".to_owned()),
            status => ("api_error", format!("scripted: status {status}")),
        },
    };
    match wire {
        Wire::Anthropic => json!({"type": "error", "error": {"type": kind, "message": message}}),
        Wire::Gemini => {
            let status = match reply.status {
                400 => "INVALID_ARGUMENT",
                401 => "UNAUTHENTICATED",
                403 => "PERMISSION_DENIED",
                404 => "NOT_FOUND",
                429 => "RESOURCE_EXHAUSTED",
                503 => "UNAVAILABLE",
                _ => "INTERNAL",
            };
            json!({"error": {"code": reply.status, "message": message, "status": status}})
        }
        Wire::OpenAiResponses | Wire::OpenAiChat => {
            let code = if reply.overflow.is_some() { json!("context_length_exceeded") } else { Value::Null };
            json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
        }
    }
}

/// The wire's word for a stop.
fn stop_word(wire: Wire, reply: &Reply) -> String {
    let calls = reply.blocks.iter().any(|block| matches!(block, Block::Call { .. }));
    let stop = reply.stop.as_deref().unwrap_or(if calls { "tool_use" } else { "end" });
    match (wire, stop) {
        (Wire::Anthropic, "end") => "end_turn",
        (Wire::Anthropic, "pause") => "pause_turn",
        (Wire::Anthropic, "context_exceeded") => "model_context_window_exceeded",
        (Wire::OpenAiChat, "end" | "stop_sequence" | "pause") => "stop",
        (Wire::OpenAiChat, "tool_use") => "tool_calls",
        (Wire::OpenAiChat, "max_tokens" | "context_exceeded") => "length",
        (Wire::OpenAiChat, "refusal") => "content_filter",
        // The other wires have more to say than a word.
        (_, other) => other,
    }
    .to_owned()
}

/// Cuts a text into deltas: about 16 characters each, at most 32 of them, at character borders.
fn deltas(text: &str) -> Vec<&str> {
    let size = text.len().div_ceil(32).max(16);
    let mut pieces = Vec::new();
    let mut left = text;
    while !left.is_empty() {
        let mut end = size.min(left.len());
        while !left.is_char_boundary(end) {
            end += 1;
        }
        let (piece, rest) = left.split_at(end);
        pieces.push(piece);
        left = rest;
    }
    pieces
}

// --------------------------------------------------------------------------------------------- anthropic

fn anthropic(reply: &Reply, n: usize, model: &str, usage: Option<Usage>) -> Vec<Vec<u8>> {
    let event = |data: Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default());
    let mut message = json!({
        "id": format!("msg_{n:06}"), "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": null, "stop_sequence": null,
    });
    if let Some(usage) = usage {
        // The first report knows the input and the first token only.
        message["usage"] = anthropic_usage(Usage { output: usage.output.min(1), ..usage });
    }
    let mut events = vec![event(json!({"type": "message_start", "message": message})), event(json!({"type": "ping"}))];
    for (index, block) in reply.blocks.iter().enumerate() {
        let (start, pieces) = match block {
            Block::Text(text) => {
                let pieces = deltas(text).into_iter().map(|t| json!({"type": "text_delta", "text": t})).collect();
                (json!({"type": "text", "text": ""}), pieces)
            }
            Block::Thinking { text, signature } => {
                let mut pieces: Vec<Value> =
                    deltas(text).into_iter().map(|t| json!({"type": "thinking_delta", "thinking": t})).collect();
                pieces.push(json!({"type": "signature_delta", "signature": signature}));
                (json!({"type": "thinking", "thinking": "", "signature": ""}), pieces)
            }
            Block::Call { id, name, arguments } => {
                let mut pieces = vec![json!({"type": "input_json_delta", "partial_json": ""})];
                pieces.extend(deltas(arguments).iter().map(|t| json!({"type": "input_json_delta", "partial_json": t})));
                (json!({"type": "tool_use", "id": id, "name": name, "input": {}}), pieces)
            }
            Block::Other(value) => (value.clone(), Vec::new()),
        };
        events.push(event(json!({"type": "content_block_start", "index": index, "content_block": start})));
        for delta in pieces {
            events.push(event(json!({"type": "content_block_delta", "index": index, "delta": delta})));
        }
        events.push(event(json!({"type": "content_block_stop", "index": index})));
    }
    if !reply.no_terminal {
        let stop = stop_word(Wire::Anthropic, reply);
        let mut end = json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null}});
        if let Some(usage) = usage {
            end["usage"] = anthropic_usage(usage);
        }
        events.push(event(end));
        events.push(event(json!({"type": "message_stop"})));
    }
    events.into_iter().map(String::into_bytes).collect()
}

/// Its `input_tokens` is what was neither read from nor written to the cache.
fn anthropic_usage(usage: Usage) -> Value {
    let written = usage.cache_write + usage.cache_write_1h;
    json!({
        "input_tokens": usage.input.saturating_sub(usage.cache_read + written),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write,
            "ephemeral_1h_input_tokens": usage.cache_write_1h,
        },
        "output_tokens": usage.output,
    })
}

// --------------------------------------------------------------------------------------------------- chat

fn chat(reply: &Reply, n: usize, model: &str, usage: Option<Usage>) -> Vec<Vec<u8>> {
    let chunk = |choices: Value| {
        json!({
            "id": format!("chatcmpl-{n:06}"), "object": "chat.completion.chunk", "created": 1_760_000_000u64 + n as u64,
            "model": model, "choices": choices,
        })
    };
    let data = |value: Value| format!("data: {value}\n\n");
    let delta = |delta: Value| data(chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}])));
    let mut events = vec![delta(json!({"role": "assistant", "content": ""}))];
    let mut call_index = 0;
    for block in &reply.blocks {
        match block {
            Block::Text(text) => {
                events.extend(deltas(text).into_iter().map(|t| delta(json!({"content": t}))));
            }
            Block::Thinking { text, .. } => {
                events.extend(deltas(text).into_iter().map(|t| delta(json!({"reasoning_content": t}))));
            }
            Block::Call { id, name, arguments } => {
                let mut call = Map::new();
                call.insert("index".to_owned(), json!(call_index));
                if let Some(id) = id.as_deref().filter(|id| !id.is_empty()) {
                    call.insert("id".to_owned(), json!(id));
                }
                call.insert("type".to_owned(), json!("function"));
                call.insert("function".to_owned(), json!({"name": name, "arguments": ""}));
                events.push(delta(json!({"tool_calls": [call]})));
                for piece in deltas(arguments) {
                    events
                        .push(delta(json!({"tool_calls": [{"index": call_index, "function": {"arguments": piece}}]})));
                }
                call_index += 1;
            }
            Block::Other(_) => {}
        }
    }
    if !reply.no_terminal {
        let stop = stop_word(Wire::OpenAiChat, reply);
        events.push(data(chunk(json!([{"index": 0, "delta": {}, "finish_reason": stop}]))));
        if let Some(usage) = usage {
            let mut last = chunk(json!([]));
            last["usage"] = json!({
                "prompt_tokens": usage.input,
                "completion_tokens": usage.output,
                "total_tokens": usage.input + usage.output,
                "prompt_tokens_details": {"cached_tokens": usage.cache_read},
                "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
            });
            events.push(data(last));
        }
        events.push("data: [DONE]\n\n".to_owned());
    }
    events.into_iter().map(String::into_bytes).collect()
}
