//! Replies of Chat Completions.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::super::error::ModelError;
use super::super::super::reply::{Delta, Partial, Reply, Stop, blocks_text};
use super::super::error;
use super::super::json::{self, Assembled, Fields, Str};
use super::super::sse::Event;
use super::super::stream::{Reader, frame, malformed, malformed_body, read, settle, text};
use super::calls::{CallDelta, Calls};
use crate::event::Usage;
use crate::session::Block;

/// One chunk, or a whole completion. What is large and seldom there is boxed: each chunk is moved about.
#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Option<Vec<Choice<'a>>>,
    usage: Option<Box<Counts>>,
    x_groq: Option<Groq>,
    #[serde(borrow)]
    model: Option<Str<'a>>,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow)]
    input_transformations: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: u64,
    #[serde(borrow)]
    delta: Option<Message<'a>>,
    #[serde(borrow)]
    message: Option<Box<Message<'a>>>,
    #[serde(borrow)]
    finish_reason: Option<Str<'a>>,
    usage: Option<Box<Counts>>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    role: Option<Str<'a>>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning_content: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning_details: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    refusal: Option<Str<'a>>,
    #[serde(borrow)]
    tool_calls: Option<Vec<CallDelta<'a>>>,
}

/// A part of a content that is a list.
#[derive(Deserialize)]
struct Part<'a> {
    #[serde(rename = "type")]
    kind: Option<String>,
    text: Option<String>,
    #[serde(borrow)]
    thinking: Option<&'a RawValue>,
    refusal: Option<String>,
}

#[derive(Deserialize)]
struct Groq {
    usage: Option<Box<Counts>>,
}

#[derive(Deserialize)]
struct Counts {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    total_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
    completion_tokens_details: Option<CompletionDetails>,
    /// DeepSeek's name for the cached part.
    prompt_cache_hit_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct CompletionDetails {
    reasoning_tokens: Option<u64>,
}

impl Counts {
    /// `None` when the object names neither side.
    fn usage(&self) -> Option<Usage> {
        if self.prompt_tokens.is_none() && self.completion_tokens.is_none() {
            return None;
        }
        let input_tokens = self.prompt_tokens.unwrap_or(0);
        let completion = self.completion_tokens.unwrap_or(0);
        let reasoning_tokens =
            self.completion_tokens_details.as_ref().and_then(|details| details.reasoning_tokens).unwrap_or(0);
        // Some servers (xAI, Gemini behind gateways) leave reasoning out of the completion: the total tells, or
        // that there is more reasoning than completion.
        let with_reasoning = completion.saturating_add(reasoning_tokens);
        let apart = reasoning_tokens > completion
            || (reasoning_tokens > 0 && self.total_tokens == Some(input_tokens.saturating_add(with_reasoning)));
        let details = self.prompt_tokens_details.as_ref();
        let cache_write_tokens =
            details.and_then(|details| details.cache_write_tokens).or(self.cache_creation_input_tokens).unwrap_or(0);
        Some(Usage {
            input_tokens,
            output_tokens: if apart { with_reasoning } else { completion },
            cache_read_tokens: details
                .and_then(|details| details.cached_tokens)
                .or(self.prompt_cache_hit_tokens)
                .unwrap_or(0),
            cache_write_tokens,
            cache_write_1h_tokens: 0,
            reasoning_tokens,
        })
    }
}

/// The state of one reply.
#[derive(Default)]
pub(in super::super) struct Chat {
    /// Texts and parts of unknown types, in order.
    content: Vec<Block>,
    reasoning: String,
    /// The key under which reasoning came first: it goes back under the same.
    reasoning_key: Option<&'static str>,
    details: Vec<Detail>,
    refusal: String,
    calls: Calls,
    usage: Option<Usage>,
    model: Option<String>,
    input_transformations: Option<String>,
    finish_reason: Option<String>,
    seen_choice: bool,
    /// `[DONE]` was seen: nothing after it counts.
    over: bool,
    output_bytes: u64,
}

/// One element of `reasoning_details` (OpenRouter and Vercel), joined from its pieces.
struct Detail {
    kind: String,
    index: Option<String>,
    raw: Assembled,
}

impl Reader for Chat {
    fn event(&mut self, event: Event<'_>, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        if self.over {
            return Ok(());
        }
        if event.data.trim_ascii() == b"[DONE]" {
            self.over = true;
            return Ok(());
        }
        if event.name == b"error" {
            return Err(error::in_reply(event.data));
        }
        self.take(frame(event.data)?, event.data, deltas)
    }

    fn whole(&mut self, body: &[u8]) -> Result<(), ModelError> {
        let chunk: Chunk<'_> = serde_json::from_slice(body).map_err(|error| malformed_body(&error, body))?;
        self.take(chunk, body, &mut Vec::new())?;
        if !self.seen_choice {
            return Err(ModelError::Malformed("a completion without a choice".into()));
        }
        // The body's own end is a terminal signal.
        self.finish_reason.get_or_insert_with(|| "stop".into());
        Ok(())
    }

    fn terminal(&self) -> bool {
        self.finish_reason.is_some()
    }

    fn reply(&mut self) -> Result<Reply, ModelError> {
        let mut blocks = Vec::new();
        if let Some(thinking) = self.thinking()? {
            blocks.push(thinking);
        }
        blocks.append(&mut self.content);
        blocks.append(&mut std::mem::take(&mut self.calls).finish()?);
        let refusal = std::mem::take(&mut self.refusal);
        let reason = self.finish_reason.take().unwrap_or_default();
        let stop = match reason.as_str() {
            _ if !refusal.is_empty() => Stop::Refused(refusal),
            "stop" | "end_turn" | "eos" => Stop::End,
            "tool_calls" | "function_call" => Stop::ToolUse,
            "length" | "max_tokens" => Stop::MaxTokens,
            "stop_sequence" => Stop::StopSequence,
            "model_length" | "model_context_window_exceeded" => Stop::ContextExceeded,
            "content_filter" | "refusal" | "safety" | "sensitive" => Stop::Refused(reason),
            _ => Stop::Other(reason),
        };
        let (blocks, stop) = settle(blocks, stop);
        Ok(Reply {
            blocks,
            stop,
            usage: self.usage.take(),
            model: self.model.take(),
            input_transformations: self.input_transformations.take(),
        })
    }

    fn partial(&self) -> Partial {
        Partial { text: blocks_text(&self.content), usage: self.usage.clone(), output_bytes: self.output_bytes }
    }
}

impl Chat {
    fn take(&mut self, chunk: Chunk<'_>, data: &[u8], deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let flat = chunk.object.is_some_and(|object| object.get() == r#""error""#);
        if flat || chunk.error.is_some_and(|error| !json::is_hollow(error)) {
            return Err(error::in_reply(data));
        }
        if self.model.is_none() {
            self.model = chunk.model.filter(|model| !model.is_empty()).map(|model| model.0.into_owned());
        }
        if let Some(what) = chunk.input_transformations.filter(|what| !json::is_hollow(what)) {
            self.input_transformations = Some(what.get().to_owned());
        }
        // Reports are of the whole so far: the last one counts.
        self.report(chunk.x_groq.and_then(|groq| groq.usage), deltas);
        for choice in chunk.choices.into_iter().flatten().filter(|choice| choice.index == 0) {
            self.seen_choice = true;
            if let Some(error) = choice.error.filter(|error| !json::is_hollow(error)) {
                return Err(error::in_reply(error.get().as_bytes()));
            }
            for message in choice.delta.into_iter().chain(choice.message.map(|message| *message)) {
                self.grow(message, deltas)?;
            }
            self.report(choice.usage, deltas);
            if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
                self.finish(reason.0.into_owned())?;
                deltas.push(Delta::Other);
            }
        }
        self.report(chunk.usage, deltas);
        Ok(())
    }

    /// The first reason stands: gateways repeat it with the usage.
    fn finish(&mut self, reason: String) -> Result<(), ModelError> {
        if matches!(reason.as_str(), "error" | "network_error" | "insufficient_system_resource") {
            let message = format!("the provider broke the reply off: `{reason}`");
            return Err(ModelError::Overloaded { message, wait: None });
        }
        self.finish_reason.get_or_insert(reason);
        Ok(())
    }

    fn report(&mut self, counts: Option<Box<Counts>>, deltas: &mut Vec<Delta>) {
        if let Some(usage) = counts.and_then(|counts| counts.usage()) {
            self.usage = Some(usage);
            deltas.push(Delta::Other);
        }
    }

    fn grow(&mut self, message: Message<'_>, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let before = deltas.len();
        // The same reasoning may stand under both keys: it is taken once.
        for (key, raw) in [("reasoning_content", message.reasoning_content), ("reasoning", message.reasoning)] {
            if let Some(text) = raw.and_then(json::as_string).filter(|text| !text.is_empty()) {
                self.reasoning_key.get_or_insert(key);
                self.think(text, deltas);
                break;
            }
        }
        for detail in message.reasoning_details.into_iter().flatten() {
            self.detail(detail)?;
            if deltas.len() == before {
                deltas.push(Delta::Other);
            }
        }
        if let Some(content) = message.content {
            self.contents(content, deltas)?;
        }
        if let Some(refusal) = message.refusal.filter(|refusal| !refusal.is_empty()) {
            self.refuse(&refusal, deltas);
        }
        for call in message.tool_calls.iter().flatten() {
            self.output_bytes += self.calls.push(call) as u64;
            deltas.push(Delta::Call);
        }
        if deltas.len() == before && message.role.is_some() {
            deltas.push(Delta::Other);
        }
        Ok(())
    }

    fn say(&mut self, text: Cow<'_, str>, deltas: &mut Vec<Delta>) {
        if text.is_empty() {
            return;
        }
        self.output_bytes += text.len() as u64;
        match self.content.last_mut() {
            Some(Block::Text { text: all }) => all.push_str(&text),
            _ => self.content.push(Block::Text { text: text.to_string() }),
        }
        deltas.push(Delta::Text(text.into_owned()));
    }

    fn think(&mut self, text: Cow<'_, str>, deltas: &mut Vec<Delta>) {
        if text.is_empty() {
            return;
        }
        self.output_bytes += text.len() as u64;
        self.reasoning.push_str(&text);
        deltas.push(Delta::Thinking(text.into_owned()));
    }

    fn refuse(&mut self, text: &str, deltas: &mut Vec<Delta>) {
        self.output_bytes += text.len() as u64;
        self.refusal.push_str(text);
        deltas.push(Delta::Other);
    }

    /// A content is a string, or (Mistral) a list of parts.
    fn contents(&mut self, raw: &RawValue, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        if !raw.get().starts_with('[') {
            self.say(text(raw)?, deltas);
            return Ok(());
        }
        let wrong = |error| malformed(&error, raw.get().as_bytes());
        for part in read::<Vec<&RawValue>>(raw)? {
            let known: Part<'_> = serde_json::from_str(part.get()).map_err(wrong)?;
            match (known.kind.as_deref(), known.text, known.thinking, known.refusal) {
                (Some("text"), Some(text), ..) => self.say(text.into(), deltas),
                (Some("thinking"), _, Some(thinking), _) => self.think(thinking_text(thinking), deltas),
                (Some("refusal"), _, _, Some(refusal)) => self.refuse(&refusal, deltas),
                _ => {
                    self.output_bytes += part.get().len() as u64;
                    self.content.push(Block::Raw { raw: part.get().to_owned() });
                    deltas.push(Delta::Other);
                }
            }
        }
        Ok(())
    }

    /// Pieces of readable reasoning are joined by type and index; everything else stays as it came.
    fn detail(&mut self, raw: &RawValue) -> Result<(), ModelError> {
        self.output_bytes += raw.get().len() as u64;
        let fields = Fields::parse(raw).map_err(|error| malformed(&error, raw.get().as_bytes()))?;
        let kind = fields.get("type").and_then(json::as_string).unwrap_or_default();
        let index = fields.get("index").map(RawValue::get);
        let joinable = matches!(&*kind, "reasoning.text" | "reasoning.summary");
        let earlier = self
            .details
            .iter_mut()
            .rev()
            .find(|other| joinable && other.kind == kind && other.index.as_deref() == index);
        let Some(earlier) = earlier else {
            let (kind, index) = (kind.into_owned(), index.map(str::to_owned));
            self.details.push(Detail { kind, index, raw: Assembled::new(raw) });
            return Ok(());
        };
        for (name, value) in &fields.0 {
            match (&**name, json::as_string(value)) {
                ("type" | "index", _) => {}
                ("text" | "summary", Some(text)) => earlier.raw.append(name, &text),
                _ if value.get() == "null" => {}
                _ => earlier.raw.set(name, value),
            }
        }
        Ok(())
    }

    /// The reasoning block. Its `raw` is an object of the fields that go back into the message.
    fn thinking(&mut self) -> Result<Option<Block>, ModelError> {
        let text = std::mem::take(&mut self.reasoning);
        let mut fields = Vec::new();
        if let Some(key) = self.reasoning_key {
            fields.push(format!("{}:{}", json::string(key), json::string(&text)));
        }
        let mut details = Vec::new();
        for detail in std::mem::take(&mut self.details) {
            details.push(detail.raw.finish().map_err(|error| ModelError::Malformed(error.to_string()))?);
        }
        if !details.is_empty() {
            fields.push(format!("\"reasoning_details\":[{}]", details.join(",")));
        }
        if text.is_empty() && fields.is_empty() {
            return Ok(None);
        }
        let raw = (!fields.is_empty()).then(|| format!("{{{}}}", fields.join(",")));
        Ok(Some(Block::Thinking { text, raw }))
    }
}

/// The text of a thinking part: a string, or a list of text parts.
fn thinking_text(raw: &RawValue) -> Cow<'_, str> {
    if let Some(text) = json::as_string(raw) {
        return text;
    }
    let parts: Vec<Part<'_>> = serde_json::from_str(raw.get()).unwrap_or_default();
    parts.into_iter().filter_map(|part| part.text).collect()
}
