//! Replies of the Messages API.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::super::error::ModelError;
use super::super::super::reply::{Delta, Partial, Reply, Stop};
use super::super::error;
use super::super::json::{self, Assembled, Fields, Str};
use super::super::sse::Event;
use super::super::stream::{Reader, frame, malformed, malformed_body, need, read, settle, text};
use crate::event::Usage;
use crate::session::Block;

#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Str<'a>>,
    #[serde(borrow)]
    index: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    input_transformations: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// A message, whole or as it starts.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Option<Vec<&'a RawValue>>,
    model: Option<String>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    stop_reason: Option<String>,
    #[serde(borrow)]
    stop_details: Option<&'a RawValue>,
    #[serde(borrow)]
    input_transformations: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct MessageDelta<'a> {
    stop_reason: Option<String>,
    #[serde(borrow)]
    stop_details: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct BlockStart<'a> {
    text: Option<String>,
    thinking: Option<String>,
    id: Option<String>,
    name: Option<String>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

/// Token counts as reported. Each report overwrites what it names; none is added to another.
#[derive(Default, Deserialize)]
struct Counts {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation: Option<Writes>,
}

#[derive(Default, Deserialize)]
struct Writes {
    ephemeral_5m_input_tokens: Option<u64>,
    ephemeral_1h_input_tokens: Option<u64>,
}

impl Counts {
    fn overwrite(&mut self, newer: Counts) {
        self.input_tokens = newer.input_tokens.or(self.input_tokens);
        self.output_tokens = newer.output_tokens.or(self.output_tokens);
        self.cache_creation_input_tokens = newer.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
        self.cache_read_input_tokens = newer.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.cache_creation = newer.cache_creation.or(self.cache_creation.take());
    }

    /// `None` when nothing was reported.
    fn usage(&self) -> Option<Usage> {
        if self.input_tokens.is_none() && self.output_tokens.is_none() {
            return None;
        }
        let (short, long) = self.cache_creation.as_ref().map_or((0, 0), |writes| {
            (writes.ephemeral_5m_input_tokens.unwrap_or(0), writes.ephemeral_1h_input_tokens.unwrap_or(0))
        });
        let written = self.cache_creation_input_tokens.unwrap_or(short.saturating_add(long));
        let read = self.cache_read_input_tokens.unwrap_or(0);
        let long = long.min(written);
        Some(Usage {
            input_tokens: self.input_tokens.unwrap_or(0).saturating_add(written).saturating_add(read),
            output_tokens: self.output_tokens.unwrap_or(0),
            cache_read_tokens: read,
            cache_write_tokens: written - long,
            cache_write_1h_tokens: long,
            reasoning_tokens: 0,
        })
    }
}

enum Content {
    Text(String),
    Call {
        id: String,
        name: String,
        /// What the start already held, where a server sends the arguments there.
        start: String,
        arguments: String,
    },
    Thinking {
        text: String,
        raw: Assembled,
    },
    /// Reasoning that cannot be read.
    Redacted(Assembled),
    Unknown(Assembled),
}

struct Open {
    index: u64,
    content: Content,
    finished: bool,
}

/// The state of one reply.
#[derive(Default)]
pub(in super::super) struct Messages {
    /// In the order started.
    blocks: Vec<Open>,
    counts: Counts,
    model: Option<String>,
    input_transformations: Option<String>,
    stop_reason: Option<String>,
    stop_details: Option<String>,
    /// `message_stop` was seen: nothing after it counts.
    over: bool,
    output_bytes: u64,
}

impl Reader for Messages {
    fn event(&mut self, event: Event<'_>, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        if self.over {
            return Ok(());
        }
        let frame: Frame<'_> = frame(event.data)?;
        let name = String::from_utf8_lossy(event.name);
        let kind = match &frame.kind {
            Some(kind) => kind,
            None if frame.error.is_some() => "error",
            None => &name,
        };
        match kind {
            "message_start" => {
                let message = need(frame.message, "message", event.data)?;
                let message: Message<'_> = read(message)?;
                self.header(&message)?;
                deltas.push(Delta::Other);
            }
            "content_block_start" => {
                let index = self.index(&frame, event.data)?;
                self.start(index, need(frame.content_block, "content_block", event.data)?, deltas)?;
            }
            "content_block_delta" => {
                let index = self.index(&frame, event.data)?;
                let delta = need(frame.delta, "delta", event.data)?;
                self.grow(index, delta, deltas)?;
            }
            "content_block_stop" => {
                let index = self.index(&frame, event.data)?;
                self.open(index)?.finished = true;
                deltas.push(Delta::Other);
            }
            "message_delta" => {
                if let Some(delta) = frame.delta {
                    let delta: MessageDelta<'_> = read(delta)?;
                    self.stopped(delta.stop_reason, delta.stop_details);
                }
                self.report(frame.usage)?;
                self.transformed(frame.input_transformations);
                deltas.push(Delta::Other);
            }
            "message_stop" => {
                self.over = true;
                deltas.push(Delta::Other);
            }
            "error" => return Err(error::in_reply(event.data)),
            // `ping` and what is unknown.
            _ => {}
        }
        Ok(())
    }

    fn whole(&mut self, body: &[u8]) -> Result<(), ModelError> {
        let frame: Frame<'_> = serde_json::from_slice(body).map_err(|error| malformed_body(&error, body))?;
        if frame.error.is_some() || frame.kind.as_deref() == Some("error") {
            return Err(error::in_reply(body));
        }
        let message: Message<'_> = serde_json::from_slice(body).map_err(|error| malformed(&error, body))?;
        let Some(content) = &message.content else {
            return Err(ModelError::Malformed("a message without content".into()));
        };
        self.header(&message)?;
        for (index, block) in content.iter().enumerate() {
            let index = index as u64;
            self.start(index, block, &mut Vec::new())?;
            self.open(index)?.finished = true;
        }
        self.stopped(message.stop_reason.clone(), message.stop_details);
        Ok(())
    }

    fn terminal(&self) -> bool {
        self.stop_reason.is_some()
    }

    fn reply(&mut self) -> Result<Reply, ModelError> {
        let mut open = std::mem::take(&mut self.blocks);
        open.sort_by_key(|block| block.index);
        let mut blocks = Vec::with_capacity(open.len());
        for block in open {
            blocks.push(block.close()?);
        }
        let stop = match self.stop_reason.take().unwrap_or_default().as_str() {
            "end_turn" => Stop::End,
            "tool_use" => Stop::ToolUse,
            "max_tokens" => Stop::MaxTokens,
            "stop_sequence" => Stop::StopSequence,
            "pause_turn" => Stop::Pause,
            "model_context_window_exceeded" => Stop::ContextExceeded,
            "refusal" => Stop::Refused(self.stop_details.take().unwrap_or_else(|| "refusal".into())),
            other => Stop::Other(other.into()),
        };
        let (blocks, stop) = settle(blocks, stop);
        Ok(Reply {
            blocks,
            stop,
            usage: self.counts.usage(),
            model: self.model.take(),
            input_transformations: self.input_transformations.take(),
        })
    }

    fn partial(&self) -> Partial {
        let text = self.blocks.iter().filter_map(|block| match &block.content {
            Content::Text(text) => Some(text.as_str()),
            _ => None,
        });
        Partial { text: text.collect(), usage: self.counts.usage(), output_bytes: self.output_bytes }
    }
}

impl Messages {
    fn header(&mut self, message: &Message<'_>) -> Result<(), ModelError> {
        self.model = message.model.clone().filter(|model| !model.is_empty());
        self.report(message.usage)?;
        self.transformed(message.input_transformations);
        Ok(())
    }

    fn report(&mut self, usage: Option<&RawValue>) -> Result<(), ModelError> {
        if let Some(usage) = usage {
            self.counts.overwrite(read(usage)?);
        }
        Ok(())
    }

    fn transformed(&mut self, what: Option<&RawValue>) {
        if let Some(what) = what.filter(|what| !json::is_hollow(what)) {
            self.input_transformations = Some(what.get().to_owned());
        }
    }

    fn stopped(&mut self, reason: Option<String>, details: Option<&RawValue>) {
        if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
            self.stop_reason = Some(reason);
        }
        if let Some(details) = details.filter(|details| !json::is_hollow(details)) {
            self.stop_details = Some(details.get().to_owned());
        }
    }

    fn index(&self, frame: &Frame<'_>, data: &[u8]) -> Result<u64, ModelError> {
        read(need(frame.index, "index", data)?)
    }

    /// The block that a delta or a stop means: the last one started at that index.
    fn open(&mut self, index: u64) -> Result<&mut Open, ModelError> {
        self.blocks
            .iter_mut()
            .rev()
            .find(|block| block.index == index)
            .ok_or_else(|| ModelError::Malformed(format!("block {index} was never started")))
    }

    fn start(&mut self, index: u64, raw: &RawValue, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let kind: Kind = read(raw)?;
        let content = match kind.kind.as_str() {
            "text" => {
                let text = read::<BlockStart<'_>>(raw)?.text.unwrap_or_default();
                self.output_bytes += text.len() as u64;
                deltas.push(if text.is_empty() { Delta::Other } else { Delta::Text(text.clone()) });
                Content::Text(text)
            }
            "tool_use" => {
                let start: BlockStart<'_> = read(raw)?;
                let Some(name) = start.name.filter(|name| !name.is_empty()) else {
                    return Err(ModelError::Malformed("a tool call without a name".into()));
                };
                let input = start.input.map(|input| input.get()).unwrap_or_default();
                self.output_bytes += input.len() as u64;
                deltas.push(Delta::Call);
                Content::Call { id: start.id.unwrap_or_default(), name, start: input.into(), arguments: String::new() }
            }
            "thinking" => {
                let text = read::<BlockStart<'_>>(raw)?.thinking.unwrap_or_default();
                self.output_bytes += text.len() as u64;
                deltas.push(if text.is_empty() { Delta::Other } else { Delta::Thinking(text.clone()) });
                Content::Thinking { text, raw: Assembled::new(raw) }
            }
            kind => {
                self.output_bytes += raw.get().len() as u64;
                deltas.push(Delta::Other);
                let raw = Assembled::new(raw);
                if kind == "redacted_thinking" { Content::Redacted(raw) } else { Content::Unknown(raw) }
            }
        };
        self.blocks.push(Open { index, content, finished: false });
        Ok(())
    }

    fn grow(&mut self, index: u64, raw: &RawValue, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let fields = Fields::parse(raw).map_err(|error| malformed(&error, raw.get().as_bytes()))?;
        let field = |name: &str| text(need(fields.get(name), name, raw.get().as_bytes())?);
        let kind = field("type")?;
        let block = self.open(index)?;
        let mut received = 0;
        match (&mut block.content, &*kind) {
            (Content::Text(text), "text_delta") => {
                let more = field("text")?;
                received = more.len();
                text.push_str(&more);
                deltas.push(if more.is_empty() { Delta::Other } else { Delta::Text(more.into_owned()) });
            }
            (Content::Call { arguments, .. }, "input_json_delta") => {
                let more = field("partial_json")?;
                received = more.len();
                arguments.push_str(&more);
                deltas.push(Delta::Call);
            }
            (Content::Thinking { text, raw }, "thinking_delta") => {
                let more = field("thinking")?;
                received = more.len();
                text.push_str(&more);
                raw.append("thinking", &more);
                deltas.push(if more.is_empty() { Delta::Other } else { Delta::Thinking(more.into_owned()) });
            }
            (Content::Thinking { raw, .. }, "signature_delta") => {
                if let Some(signature) = fields.get("signature") {
                    raw.set("signature", signature);
                }
                deltas.push(Delta::Other);
            }
            (Content::Unknown(block) | Content::Redacted(block), kind) => {
                received = raw.get().len();
                unknown(block, kind, &fields);
                deltas.push(Delta::Other);
            }
            (_, "text_delta" | "input_json_delta" | "thinking_delta" | "signature_delta") => {
                return Err(ModelError::Malformed(format!("`{kind}` for a block of another type")));
            }
            // Citations and what else may adorn a known block.
            _ => deltas.push(Delta::Other),
        }
        self.output_bytes += received as u64;
        Ok(())
    }
}

/// What a delta does to a block of unknown type: known deltas by their rule, others field by field.
fn unknown(block: &mut Assembled, kind: &str, fields: &Fields<'_>) {
    for (name, value) in &fields.0 {
        let text = json::as_string(value);
        match (kind, &**name, text) {
            (_, "type", _) => {}
            ("input_json_delta", "partial_json", Some(text)) => block.pieces("input", &text),
            ("citations_delta", "citation", _) => block.push("citations", value),
            ("signature_delta", ..) => block.set(name, value),
            (_, _, Some(text)) => block.append(name, &text),
            (_, _, None) => block.set(name, value),
        }
    }
}

impl Open {
    fn close(self) -> Result<Block, ModelError> {
        let finished = self.finished;
        let text_of = |raw: Assembled| raw.finish().map_err(|error| ModelError::Malformed(error.to_string()));
        Ok(match self.content {
            Content::Text(text) => Block::Text { text },
            Content::Call { id, name, start, arguments } => {
                // Only a finished block without any text of arguments means its start's (or no) input.
                let arguments = match (arguments.is_empty() && finished, start.is_empty()) {
                    (false, _) => arguments,
                    (true, false) => start,
                    (true, true) => "{}".into(),
                };
                Block::Call { id, name, arguments }
            }
            // Without its end it may lack the signature, and is then refused when sent back.
            Content::Thinking { text, raw } => {
                Block::Thinking { text, raw: if finished { Some(text_of(raw)?) } else { None } }
            }
            Content::Redacted(raw) => Block::Thinking { text: String::new(), raw: Some(text_of(raw)?) },
            Content::Unknown(raw) => Block::Raw { raw: text_of(raw)? },
        })
    }
}

#[derive(Deserialize)]
struct Kind {
    #[serde(rename = "type")]
    kind: String,
}
