//! Replies of the Responses API.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::super::error::ModelError;
use super::super::super::reply::{Delta, Partial, Reply, Stop};
use super::super::envelope::{self, Holds};
use super::super::error;
use super::super::json::{self, Str};
use super::super::sse::Event;
use super::super::stream::{Reader, frame, malformed_body, need, read, settle, text};
use crate::event::Usage;
use crate::session::Block;

#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Str<'a>>,
    output_index: Option<u64>,
    #[serde(borrow)]
    item_id: Option<Str<'a>>,
    #[serde(borrow)]
    delta: Option<&'a RawValue>,
    #[serde(borrow)]
    item: Option<&'a RawValue>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// A response, as it starts, as it ends, or whole.
#[derive(Deserialize)]
struct Body<'a> {
    status: Option<String>,
    model: Option<String>,
    #[serde(borrow)]
    output: Option<Vec<&'a RawValue>>,
    usage: Option<Counts>,
    incomplete_details: Option<Incomplete>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    input_transformations: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Incomplete {
    reason: Option<String>,
}

#[derive(Deserialize)]
struct Counts {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    input_tokens_details: Option<InputDetails>,
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Deserialize)]
struct InputDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct OutputDetails {
    reasoning_tokens: Option<u64>,
}

impl Counts {
    /// `None` when the object names neither side. The input includes what was cached, the output the reasoning.
    fn usage(&self) -> Option<Usage> {
        if self.input_tokens.is_none() && self.output_tokens.is_none() {
            return None;
        }
        let input = self.input_tokens_details.as_ref();
        Some(Usage {
            input_tokens: self.input_tokens.unwrap_or(0),
            output_tokens: self.output_tokens.unwrap_or(0),
            cache_read_tokens: input.and_then(|input| input.cached_tokens).unwrap_or(0),
            cache_write_tokens: input.and_then(|input| input.cache_write_tokens).unwrap_or(0),
            cache_write_1h_tokens: 0,
            reasoning_tokens: self.output_tokens_details.as_ref().and_then(|out| out.reasoning_tokens).unwrap_or(0),
        })
    }
}

/// What is read of an item.
#[derive(Deserialize)]
struct Item<'a> {
    #[serde(rename = "type")]
    kind: Option<String>,
    id: Option<String>,
    call_id: Option<String>,
    name: Option<String>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    summary: Option<&'a RawValue>,
    #[serde(borrow)]
    encrypted_content: Option<&'a RawValue>,
}

/// A part of a message or of reasoning.
#[derive(Deserialize)]
struct Part<'a> {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    refusal: Option<String>,
}

/// An item of which something was seen.
#[derive(Default)]
struct Open {
    index: Option<u64>,
    id: Option<String>,
    kind: String,
    call_id: String,
    name: String,
    /// What deltas brought: the text of a message, the arguments of a call.
    grown: String,
    refusal: String,
    /// The item as it was finished.
    done: Option<Box<RawValue>>,
}

/// The state of one reply.
#[derive(Default)]
pub(in super::super) struct Response {
    items: Vec<Open>,
    usage: Option<Usage>,
    model: Option<String>,
    input_transformations: Option<String>,
    /// Set by the event that ends a reply; nothing after it counts.
    stop: Option<Stop>,
    output_bytes: u64,
}

impl Reader for Response {
    fn event(&mut self, event: Event<'_>, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        if self.stop.is_some() || event.data.trim_ascii() == b"[DONE]" {
            return Ok(());
        }
        let frame: Frame<'_> = frame(event.data)?;
        let kind = frame.kind.as_deref().unwrap_or_default();
        if kind == "error" || event.name == b"error" || frame.error.is_some_and(|error| !json::is_hollow(error)) {
            return Err(error::in_reply(event.data));
        }
        match kind {
            // Keep-alives: they say nothing new.
            "response.in_progress" | "response.queued" => return Ok(()),
            "response.created" => {
                if let Some(response) = frame.response {
                    let body: Body<'_> = read(response)?;
                    self.header(&body);
                }
                deltas.push(Delta::Other);
            }
            "response.output_item.added" => {
                let raw = need(frame.item, "item", event.data)?;
                let item: Item<'_> = read(raw)?;
                let calls = item.kind.as_deref() == Some("function_call");
                self.begun(frame.output_index, &item);
                deltas.push(if calls { Delta::Call } else { Delta::Other });
            }
            "response.output_item.done" => {
                let raw = need(frame.item, "item", event.data)?;
                self.finished(frame.output_index, raw, deltas)?;
            }
            "response.output_text.delta" => {
                let more = text(need(frame.delta, "delta", event.data)?)?;
                self.output_bytes += more.len() as u64;
                self.open(frame.output_index, frame.item_id.as_deref()).grown.push_str(&more);
                deltas.push(if more.is_empty() { Delta::Other } else { Delta::Text(more.into_owned()) });
            }
            "response.refusal.delta" => {
                let more = text(need(frame.delta, "delta", event.data)?)?;
                self.output_bytes += more.len() as u64;
                self.open(frame.output_index, frame.item_id.as_deref()).refusal.push_str(&more);
                deltas.push(Delta::Other);
            }
            "response.function_call_arguments.delta" => {
                let more = text(need(frame.delta, "delta", event.data)?)?;
                self.output_bytes += more.len() as u64;
                self.open(frame.output_index, frame.item_id.as_deref()).grown.push_str(&more);
                deltas.push(Delta::Call);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                let more = text(need(frame.delta, "delta", event.data)?)?;
                self.output_bytes += more.len() as u64;
                deltas.push(if more.is_empty() { Delta::Other } else { Delta::Thinking(more.into_owned()) });
            }
            "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" => {
                let body: Body<'_> = read(need(frame.response, "response", event.data)?)?;
                self.end(&body, kind.trim_start_matches("response."))?;
                deltas.push(Delta::Other);
            }
            kind if kind.starts_with("response.") => deltas.push(Delta::Other),
            _ => {}
        }
        Ok(())
    }

    fn whole(&mut self, body: &[u8]) -> Result<(), ModelError> {
        let response: Body<'_> = serde_json::from_slice(body).map_err(|error| malformed_body(&error, body))?;
        if response.status.is_none() && response.error.is_some_and(|error| !json::is_hollow(error)) {
            return Err(error::in_reply(body));
        }
        let Some(status) = response.status.clone() else {
            return Err(ModelError::Malformed("neither a response nor an error".into()));
        };
        self.end(&response, &status)
    }

    fn terminal(&self) -> bool {
        self.stop.is_some()
    }

    fn reply(&mut self) -> Result<Reply, ModelError> {
        let mut items = std::mem::take(&mut self.items);
        if items.iter().all(|item| item.index.is_some()) {
            items.sort_by_key(|item| item.index);
        }
        let (mut blocks, mut refusal) = (Vec::new(), String::new());
        for item in items {
            item.close(&mut blocks, &mut refusal)?;
        }
        let stop = match self.stop.take() {
            _ if !refusal.is_empty() => Stop::Refused(refusal),
            stop => stop.unwrap_or(Stop::End),
        };
        if stop != Stop::MaxTokens
            && blocks.iter().any(|block| matches!(block, Block::Call { name, .. } if name.is_empty()))
        {
            return Err(ModelError::Malformed("a tool call without a name".into()));
        }
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
        let texts = self.items.iter().filter(|item| item.kind != "function_call").map(|item| item.grown.as_str());
        Partial { text: texts.collect(), usage: self.usage.clone(), output_bytes: self.output_bytes }
    }
}

impl Response {
    fn header(&mut self, body: &Body<'_>) {
        if let Some(model) = body.model.as_ref().filter(|model| !model.is_empty()) {
            self.model = Some(model.clone());
        }
        if let Some(usage) = body.usage.as_ref().and_then(Counts::usage) {
            self.usage = Some(usage);
        }
        if let Some(what) = body.input_transformations.filter(|what| !json::is_hollow(what)) {
            self.input_transformations = Some(what.get().to_owned());
        }
    }

    /// The item that an event means: by its place in the output, by its id where no place is named, else the last.
    fn find(&mut self, index: Option<u64>, id: Option<&str>) -> Option<&mut Open> {
        let at = match (index, id) {
            (Some(_), _) if self.items.iter().any(|item| item.index == index) => {
                self.items.iter().rposition(|item| item.index == index)
            }
            (_, Some(id)) => self
                .items
                .iter()
                .rposition(|item| item.id.as_deref() == Some(id) && (index.is_none() || item.index.is_none())),
            (Some(_), None) => None,
            (None, None) => self.items.len().checked_sub(1),
        };
        at.map(|at| &mut self.items[at])
    }

    /// The same, begun when it never was.
    fn open(&mut self, index: Option<u64>, id: Option<&str>) -> &mut Open {
        let at = match self.find(index, id) {
            Some(_) => None,
            None => {
                self.items.push(Open { index, id: id.map(str::to_owned), ..Open::default() });
                Some(self.items.len() - 1)
            }
        };
        match at {
            Some(at) => &mut self.items[at],
            None => self.find(index, id).unwrap_or_else(|| unreachable!("it was found a line before")),
        }
    }

    fn begun(&mut self, index: Option<u64>, item: &Item<'_>) {
        let id = item.id.clone().or_else(|| item.call_id.clone());
        self.items.push(Open {
            index,
            id,
            kind: item.kind.clone().unwrap_or_default(),
            call_id: item.call_id.clone().unwrap_or_default(),
            name: item.name.clone().unwrap_or_default(),
            ..Open::default()
        });
    }

    fn finished(&mut self, index: Option<u64>, raw: &RawValue, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let item: Item<'_> = read(raw)?;
        let id = item.id.as_deref().or(item.call_id.as_deref());
        let known = if index.is_none() && id.is_none() { None } else { self.find(index, id) };
        if known.is_none() {
            self.begun(index, &item);
        }
        let kind = item.kind.clone().unwrap_or_default();
        let whole = matches!(kind.as_str(), "message" | "function_call");
        let text = if kind == "message" { parts_text(item.content)? } else { String::new() };
        let open = self.find(index, id).unwrap_or_else(|| unreachable!("it was begun a line before"));
        let silent = open.grown.is_empty() && open.refusal.is_empty();
        open.kind = kind;
        open.done = Some(raw.to_owned());
        if silent && !text.is_empty() {
            // A server that sends nothing but whole items.
            open.grown.push_str(&text);
            deltas.push(Delta::Text(text));
        } else {
            deltas.push(if item.call_id.is_some() { Delta::Call } else { Delta::Other });
        }
        if silent || !whole {
            self.output_bytes += raw.get().len() as u64;
        }
        Ok(())
    }

    fn end(&mut self, body: &Body<'_>, status: &str) -> Result<(), ModelError> {
        self.header(body);
        // Some servers tell their items only here.
        let output = body.output.as_deref().unwrap_or_default();
        if !output.is_empty() && (self.items.is_empty() || self.items.iter().any(|item| item.done.is_none())) {
            self.items.clear();
            for raw in output {
                self.finished(Some(self.items.len() as u64), raw, &mut Vec::new())?;
            }
        }
        let reason = body.incomplete_details.as_ref().and_then(|details| details.reason.as_deref());
        self.stop = Some(match (status, reason) {
            ("completed", _) => Stop::End,
            ("incomplete", None | Some("max_output_tokens" | "max_tokens")) => Stop::MaxTokens,
            ("incomplete", Some("content_filter")) => Stop::Refused("content_filter".into()),
            ("incomplete", Some(other)) => Stop::Other(other.into()),
            ("failed", _) => {
                return Err(match body.error.filter(|error| !json::is_hollow(error)) {
                    Some(error) => error::in_reply(error.get().as_bytes()),
                    None => {
                        ModelError::Overloaded { message: "the response failed, without a reason".into(), wait: None }
                    }
                });
            }
            ("cancelled", _) => {
                return Err(ModelError::Overloaded {
                    message: "the provider cancelled the response".into(),
                    wait: None,
                });
            }
            (other, _) => return Err(ModelError::Malformed(format!("a response that is `{other}` is none"))),
        });
        Ok(())
    }
}

impl Open {
    fn close(self, blocks: &mut Vec<Block>, refusal: &mut String) -> Result<(), ModelError> {
        let Some(raw) = self.done else {
            // Its end never came: what deltas brought is all there is.
            refusal.push_str(&self.refusal);
            match self.kind.as_str() {
                "function_call" => {
                    blocks.push(Block::Call { id: self.call_id, name: self.name, arguments: self.grown });
                }
                _ if !self.grown.is_empty() => blocks.push(Block::Text { text: self.grown }),
                _ => {}
            }
            return Ok(());
        };
        let item: Item<'_> = read(&raw)?;
        match item.kind.as_deref() {
            Some("message") => message(&raw, item.content, blocks, refusal)?,
            Some("function_call") => {
                // Text as the API says; an object where a server sends it parsed.
                let (arguments, sent) = match item.arguments {
                    Some(sent) => (json::as_string(sent), sent.get()),
                    None => (None, ""),
                };
                if let Some(arguments) = &arguments {
                    blocks.extend(envelope::around(Holds::Call, raw.get(), sent, &json::string(arguments)));
                }
                blocks.push(Block::Call {
                    id: item.call_id.or(item.id).unwrap_or_default(),
                    name: item.name.unwrap_or_default(),
                    arguments: match arguments {
                        Some(arguments) => arguments.into_owned(),
                        None if sent.is_empty() => self.grown,
                        None => sent.to_owned(),
                    },
                });
            }
            Some("reasoning") => {
                let mut text = parts_text(item.summary)?;
                let content = item.content.filter(|content| !json::is_hollow(content));
                if text.is_empty() {
                    text = parts_text(content)?;
                }
                // Nothing is stored at the provider: an id alone means nothing to it.
                let sealed = item.encrypted_content.is_some_and(|sealed| !json::is_hollow(sealed));
                let raw = (sealed || content.is_some()).then(|| raw.get().to_owned());
                blocks.push(Block::Thinking { text, raw });
            }
            _ => blocks.push(Block::Raw { raw: raw.get().to_owned() }),
        }
        Ok(())
    }
}

/// A message's text as one block, and what it says of a refusal.
fn message(
    raw: &RawValue,
    content: Option<&RawValue>,
    blocks: &mut Vec<Block>,
    refusal: &mut String,
) -> Result<(), ModelError> {
    let (mut text, mut only, mut parts) = (String::new(), None, 0);
    for part in self::parts(content)? {
        parts += 1;
        if let Some(words) = part.refusal {
            refusal.push_str(&words);
        } else if let Some(sent) = part.text {
            text.push_str(&self::text(sent)?);
            only = Some(sent.get());
        }
    }
    let Some(sent) = only else { return Ok(()) };
    if parts == 1 {
        blocks.extend(envelope::around(Holds::Text, raw.get(), sent, &json::string(&text)));
    } else {
        blocks.push(envelope::whole(raw.get(), &text));
    }
    blocks.push(Block::Text { text });
    Ok(())
}

/// The parts of a content: a list, one text, or nothing.
fn parts(content: Option<&RawValue>) -> Result<Vec<Part<'_>>, ModelError> {
    match content {
        None => Ok(Vec::new()),
        Some(raw) if raw.get() == "null" => Ok(Vec::new()),
        Some(raw) if raw.get().starts_with('"') => Ok(vec![Part { kind: None, text: Some(raw), refusal: None }]),
        Some(raw) => read(raw),
    }
}

fn parts_text(content: Option<&RawValue>) -> Result<String, ModelError> {
    let mut texts: Vec<String> = Vec::new();
    let mut separator = "";
    for part in parts(content)? {
        if part.kind.as_deref() == Some("summary_text") {
            separator = "\n\n";
        }
        if let Some(text) = part.text {
            texts.push(read(text)?);
        }
    }
    Ok(texts.join(separator))
}
