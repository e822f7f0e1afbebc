//! An independent, plain reading of recorded streams: JSON line by JSON line, no state machine. It knows only what
//! well-behaved vendors send.

use serde_json::{Value, json};
use spettro::event::Usage;
use spettro::model::Reply;
use spettro::session::Block;

/// What both readings can be brought to.
#[derive(Debug, Default, PartialEq)]
pub struct Plain {
    pub text: String,
    pub thinking: String,
    /// Id, name, and the arguments parsed.
    pub calls: Vec<(String, String, Value)>,
    /// Blocks that go back as they came, parsed.
    pub kept: Vec<Value>,
    pub usage: Option<Usage>,
    pub stop: String,
}

/// The reply of the decoder, made plain. `keep_thinking`: its blocks are among the kept ones (anthropic).
pub fn plain(reply: &Reply, keep_thinking: bool) -> Plain {
    let mut plain = Plain { usage: reply.usage.clone(), stop: reply.stop.name(), ..Plain::default() };
    let parsed = |text: &str| serde_json::from_str(text).unwrap();
    for block in &reply.blocks {
        match block {
            Block::Text { text } => plain.text.push_str(text),
            Block::Call { id, name, arguments } => {
                plain.calls.push((id.clone(), name.clone(), parsed(arguments)));
            }
            // What the wire keeps around a block.
            Block::Thinking { raw: Some(raw), .. } if raw.starts_with(r#"{"envelope""#) => {}
            Block::Thinking { text, raw } => {
                plain.thinking.push_str(text);
                plain.kept.extend(raw.as_deref().filter(|_| keep_thinking).map(parsed));
            }
            Block::Raw { raw } => plain.kept.push(parsed(raw)),
        }
    }
    plain
}

/// The JSON of every data line.
fn frames(stream: &str) -> Vec<Value> {
    stream
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .map(str::trim)
        .filter(|data| *data != "[DONE]")
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn stop(reason: &str) -> String {
    match reason {
        "end_turn" | "stop" => "end".into(),
        "tool_calls" => "tool_use".into(),
        "length" => "max_tokens".into(),
        other => other.into(),
    }
}

pub fn anthropic(stream: &str) -> Plain {
    let mut blocks: Vec<Value> = Vec::new();
    let mut inputs: Vec<String> = Vec::new();
    let mut usage = json!({});
    let mut plain = Plain::default();
    for frame in frames(stream) {
        let index = number(&frame["index"]) as usize;
        let mut counts = Value::Null;
        match frame["type"].as_str().unwrap() {
            "message_start" => counts = frame["message"]["usage"].clone(),
            "content_block_start" => {
                assert_eq!(index, blocks.len());
                blocks.push(frame["content_block"].clone());
                inputs.push(String::new());
            }
            "content_block_delta" => {
                for (name, value) in frame["delta"].as_object().unwrap() {
                    match (name.as_str(), value.as_str()) {
                        ("type", _) => {}
                        ("partial_json", Some(more)) => inputs[index].push_str(more),
                        (name, Some(more)) => {
                            let old = blocks[index][name].as_str().unwrap_or_default().to_owned();
                            blocks[index][name] = json!(old + more);
                        }
                        // Citations of texts.
                        (_, None) => assert_eq!(blocks[index]["type"], "text"),
                    }
                }
            }
            "message_delta" => {
                plain.stop = stop(frame["delta"]["stop_reason"].as_str().unwrap());
                counts = frame["usage"].clone();
            }
            _ => {}
        }
        for (name, value) in counts.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
            usage[name] = value.clone();
        }
    }
    for (mut block, input) in blocks.into_iter().zip(inputs) {
        if !input.is_empty() {
            block["input"] = serde_json::from_str(&input).unwrap();
        }
        block_of(block, &mut plain);
    }
    plain.usage = Some(anthropic_usage(&usage));
    plain
}

pub fn anthropic_whole(body: &str) -> Plain {
    let body: Value = serde_json::from_str(body).unwrap();
    let mut plain = Plain {
        stop: stop(body["stop_reason"].as_str().unwrap()),
        usage: Some(anthropic_usage(&body["usage"])),
        ..Plain::default()
    };
    for block in body["content"].as_array().unwrap() {
        block_of(block.clone(), &mut plain);
    }
    plain
}

fn block_of(block: Value, plain: &mut Plain) {
    let field = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
    match block["type"].as_str().unwrap() {
        "text" => plain.text.push_str(&field("text")),
        "tool_use" => plain.calls.push((field("id"), field("name"), block["input"].clone())),
        "thinking" => {
            plain.thinking.push_str(&field("thinking"));
            plain.kept.push(block);
        }
        _ => plain.kept.push(block),
    }
}

fn anthropic_usage(usage: &Value) -> Usage {
    let (written, read) = (number(&usage["cache_creation_input_tokens"]), number(&usage["cache_read_input_tokens"]));
    let long = number(&usage["cache_creation"]["ephemeral_1h_input_tokens"]);
    Usage {
        input_tokens: number(&usage["input_tokens"]) + written + read,
        output_tokens: number(&usage["output_tokens"]),
        cache_read_tokens: read,
        cache_write_tokens: written - long,
        cache_write_1h_tokens: long,
        reasoning_tokens: 0,
    }
}

pub fn chat(stream: &str) -> Plain {
    chat_frames(&frames(stream), "delta")
}

pub fn chat_whole(body: &str) -> Plain {
    chat_frames(&[serde_json::from_str(body).unwrap()], "message")
}

fn chat_frames(frames: &[Value], key: &str) -> Plain {
    let mut plain = Plain::default();
    let mut calls: Vec<(u64, String, String, String)> = Vec::new();
    for frame in frames {
        let choice = &frame["choices"][0];
        let message = &choice[key];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        plain.text += &text(&message["content"]);
        let reasoning = text(&message["reasoning_content"]);
        plain.thinking += &if reasoning.is_empty() { text(&message["reasoning"]) } else { reasoning };
        for (n, call) in message["tool_calls"].as_array().into_iter().flatten().enumerate() {
            let index = if key == "message" { n as u64 } else { call["index"].as_u64().unwrap() };
            if calls.iter().all(|(other, ..)| *other != index) {
                calls.push((index, String::new(), String::new(), String::new()));
            }
            let open = calls.iter_mut().find(|(other, ..)| *other == index).unwrap();
            open.1 += &text(&call["id"]);
            open.2 += &text(&call["function"]["name"]);
            open.3 += &text(&call["function"]["arguments"]);
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            plain.stop = stop(reason);
        }
        if frame["usage"].is_object() {
            plain.usage = Some(chat_usage(&frame["usage"]));
        }
    }
    if !calls.is_empty() && plain.stop == "end" {
        plain.stop = "tool_use".into();
    }
    plain.calls = calls
        .into_iter()
        .map(|(_, id, name, arguments)| (id, name, serde_json::from_str(&arguments).unwrap()))
        .collect();
    plain
}

fn chat_usage(usage: &Value) -> Usage {
    let (prompt, completion) = (number(&usage["prompt_tokens"]), number(&usage["completion_tokens"]));
    let reasoning = number(&usage["completion_tokens_details"]["reasoning_tokens"]);
    // xAI adds reasoning to the total only; gateways to Gemini report more of it than of completion.
    let apart = number(&usage["total_tokens"]) == prompt + completion + reasoning || reasoning > completion;
    let details = &usage["prompt_tokens_details"];
    Usage {
        input_tokens: prompt,
        output_tokens: completion + if apart { reasoning } else { 0 },
        cache_read_tokens: number(&details["cached_tokens"]),
        cache_write_tokens: number(&details["cache_write_tokens"]) + number(&usage["cache_creation_input_tokens"]),
        cache_write_1h_tokens: 0,
        reasoning_tokens: reasoning,
    }
}

pub fn responses(stream: &str) -> Plain {
    let frames = frames(stream);
    let done = frames.iter().filter(|frame| frame["type"] == "response.output_item.done");
    let items: Vec<Value> = done.map(|frame| frame["item"].clone()).collect();
    let last = frames.iter().find(|frame| frame["type"] == "response.completed").unwrap();
    response(&items, &last["response"])
}

pub fn responses_whole(body: &str) -> Plain {
    let body: Value = serde_json::from_str(body).unwrap();
    response(body["output"].as_array().unwrap(), &body)
}

fn response(items: &[Value], response: &Value) -> Plain {
    let mut plain = Plain::default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for item in items {
        match item["type"].as_str().unwrap() {
            "message" => plain.text.extend(item["content"].as_array().unwrap().iter().map(|part| text(&part["text"]))),
            "function_call" => {
                let arguments = serde_json::from_str(item["arguments"].as_str().unwrap()).unwrap();
                plain.calls.push((text(&item["call_id"]), text(&item["name"]), arguments));
            }
            "reasoning" => {
                let parts: Vec<String> = item["summary"].as_array().unwrap().iter().map(|p| text(&p["text"])).collect();
                plain.thinking += &parts.join("\n\n");
            }
            _ => plain.kept.push(item.clone()),
        }
    }
    let usage = &response["usage"];
    plain.usage = Some(Usage {
        input_tokens: number(&usage["input_tokens"]),
        output_tokens: number(&usage["output_tokens"]),
        cache_read_tokens: number(&usage["input_tokens_details"]["cached_tokens"]),
        reasoning_tokens: number(&usage["output_tokens_details"]["reasoning_tokens"]),
        ..Usage::default()
    });
    plain.stop = if plain.calls.is_empty() { "end".into() } else { "tool_use".into() };
    plain
}

pub fn gemini(stream: &str) -> Plain {
    contents(&frames(stream))
}

pub fn gemini_whole(body: &str) -> Plain {
    contents(&[serde_json::from_str(body).unwrap()])
}

fn contents(frames: &[Value]) -> Plain {
    let mut plain = Plain::default();
    for frame in frames {
        let candidate = &frame["candidates"][0];
        for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
            let text = part["text"].as_str().unwrap_or_default();
            if part["thought"] == true {
                plain.thinking += text;
            } else {
                plain.text += text;
            }
            if let Some(call) = part.get("functionCall") {
                let id = call["id"].as_str().map_or_else(|| format!("call_{}", plain.calls.len() + 1), str::to_owned);
                plain.calls.push((id, call["name"].as_str().unwrap().to_owned(), call["args"].clone()));
            } else if text.is_empty() && part.get("thoughtSignature").is_some() {
                plain.kept.push(part.clone());
            }
        }
        if let Some(reason) = candidate["finishReason"].as_str() {
            assert_eq!(reason, "STOP");
        }
        let usage = &frame["usageMetadata"];
        plain.usage = Some(Usage {
            input_tokens: number(&usage["promptTokenCount"]),
            output_tokens: number(&usage["candidatesTokenCount"]) + number(&usage["thoughtsTokenCount"]),
            cache_read_tokens: number(&usage["cachedContentTokenCount"]),
            reasoning_tokens: number(&usage["thoughtsTokenCount"]),
            ..Usage::default()
        });
    }
    plain.stop = if plain.calls.is_empty() { "end".into() } else { "tool_use".into() };
    plain
}
