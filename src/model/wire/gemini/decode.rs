//! Replies of the Gemini API.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::super::error::ModelError;
use super::super::super::reply::{Delta, Partial, Reply, Stop, blocks_text};
use super::super::envelope::{self, Holds};
use super::super::error;
use super::super::json::{self, Str};
use super::super::sse::Event;
use super::super::stream::{Reader, frame, malformed_body, read, settle};
use crate::event::Usage;
use crate::session::Block;

/// One event, or a whole response.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Frame<'a> {
    #[serde(borrow)]
    candidates: Option<Vec<Candidate<'a>>>,
    #[serde(borrow)]
    prompt_feedback: Option<&'a RawValue>,
    usage_metadata: Option<Counts>,
    #[serde(borrow)]
    model_version: Option<Str<'a>>,
    #[serde(borrow, rename = "input_transformations")]
    input_transformations: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(default)]
    index: u64,
    #[serde(borrow)]
    content: Option<Parts<'a>>,
    finish_reason: Option<String>,
    finish_message: Option<String>,
    #[serde(borrow)]
    safety_ratings: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Parts<'a> {
    #[serde(borrow)]
    parts: Option<Vec<&'a RawValue>>,
}

/// What is read of a part.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(default)]
    thought: bool,
    #[serde(borrow)]
    thought_signature: Option<&'a RawValue>,
    #[serde(borrow)]
    function_call: Option<FunctionCall<'a>>,
}

#[derive(Deserialize)]
struct FunctionCall<'a> {
    id: Option<String>,
    name: Option<String>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Feedback {
    #[serde(rename = "blockReason")]
    block_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Counts {
    prompt_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
    tool_use_prompt_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
}

impl Counts {
    /// `None` when nothing is counted. The prompt includes what was cached; thoughts are billed as output and
    /// counted apart from it.
    fn usage(&self) -> Option<Usage> {
        let output = [self.candidates_token_count, self.thoughts_token_count];
        if self.prompt_token_count.is_none() && output.iter().all(Option::is_none) {
            return None;
        }
        let input = self.prompt_token_count.unwrap_or(0);
        let thoughts = self.thoughts_token_count.unwrap_or(0);
        Some(Usage {
            input_tokens: input.saturating_add(self.tool_use_prompt_token_count.unwrap_or(0)),
            output_tokens: self.candidates_token_count.unwrap_or(0).saturating_add(thoughts),
            cache_read_tokens: self.cached_content_token_count.unwrap_or(0),
            cache_write_tokens: 0,
            cache_write_1h_tokens: 0,
            reasoning_tokens: thoughts,
        })
    }
}

/// The state of one reply.
#[derive(Default)]
pub(in super::super) struct Content {
    blocks: Vec<Block>,
    usage: Option<Usage>,
    model: Option<String>,
    input_transformations: Option<String>,
    stop: Option<Stop>,
    output_bytes: u64,
}

impl Reader for Content {
    fn event(&mut self, event: Event<'_>, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        if event.data.trim_ascii() == b"[DONE]" {
            return Ok(());
        }
        if event.name == b"error" {
            return Err(error::in_reply(event.data));
        }
        let frame: Frame<'_> = frame(event.data)?;
        self.take(frame, event.data, deltas)
    }

    fn whole(&mut self, body: &[u8]) -> Result<(), ModelError> {
        let frame: Frame<'_> = serde_json::from_slice(body).map_err(|error| malformed_body(&error, body))?;
        self.take(frame, body, &mut Vec::new())?;
        if self.stop.is_some() { Ok(()) } else { Err(ModelError::Malformed("neither a reply nor an error".into())) }
    }

    fn terminal(&self) -> bool {
        self.stop.is_some()
    }

    fn reply(&mut self) -> Result<Reply, ModelError> {
        let stop = self.stop.take().unwrap_or(Stop::End);
        let (blocks, stop) = settle(std::mem::take(&mut self.blocks), stop);
        Ok(Reply {
            blocks,
            stop,
            usage: self.usage.take(),
            model: self.model.take(),
            input_transformations: self.input_transformations.take(),
        })
    }

    fn partial(&self) -> Partial {
        Partial { text: blocks_text(&self.blocks), usage: self.usage.clone(), output_bytes: self.output_bytes }
    }
}

impl Content {
    fn take(&mut self, frame: Frame<'_>, data: &[u8], deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        if frame.error.is_some_and(|error| !json::is_hollow(error)) {
            return Err(error::in_reply(data));
        }
        // Each report is of the whole so far: the last one counts.
        if let Some(usage) = frame.usage_metadata.as_ref().and_then(Counts::usage) {
            self.usage = Some(usage);
        }
        // Named with each event.
        let named = |model: &Str<'_>| !model.is_empty() && self.model.as_deref() != Some(model);
        if let Some(model) = frame.model_version.filter(named) {
            self.model = Some(model.0.into_owned());
        }
        if let Some(what) = frame.input_transformations.filter(|what| !json::is_hollow(what)) {
            self.input_transformations = Some(what.get().to_owned());
        }
        let blocked = |raw: &&RawValue| {
            let feedback: Option<Feedback> = serde_json::from_str(raw.get()).ok();
            let reason = feedback.and_then(|feedback| feedback.block_reason);
            reason.is_some_and(|reason| !reason.is_empty() && reason != "BLOCK_REASON_UNSPECIFIED")
        };
        if let Some(feedback) = frame.prompt_feedback.filter(blocked) {
            self.stop = Some(Stop::Refused(feedback.get().to_owned()));
            deltas.push(Delta::Other);
        }
        for candidate in frame.candidates.into_iter().flatten().filter(|candidate| candidate.index == 0) {
            for part in candidate.content.iter().filter_map(|content| content.parts.as_ref()).flatten() {
                self.part(part, deltas)?;
            }
            let reason = candidate.finish_reason.as_deref().unwrap_or_default();
            if !reason.is_empty() && reason != "FINISH_REASON_UNSPECIFIED" {
                let stop = stop(reason, &candidate)?;
                // A refusal that was told stands.
                if !matches!(self.stop, Some(Stop::Refused(_))) {
                    self.stop = Some(stop);
                }
                deltas.push(Delta::Other);
            }
        }
        Ok(())
    }

    fn part(&mut self, raw: &RawValue, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let part: Part<'_> = read(raw)?;
        let signed = part.thought_signature.is_some_and(|signature| !json::is_hollow(signature));
        if let Some(call) = part.function_call {
            return self.call(raw, &call, deltas);
        }
        let Some(sent) = part.text else {
            self.output_bytes += raw.get().len() as u64;
            self.blocks.push(Block::Raw { raw: raw.get().to_owned() });
            deltas.push(Delta::Other);
            return Ok(());
        };
        let text: String = read(sent)?;
        self.output_bytes += text.len() as u64;
        let nothing = text.is_empty();
        match (part.thought, signed) {
            (true, true) => {
                self.blocks.push(Block::Thinking { text: text.clone(), raw: Some(raw.get().to_owned()) });
            }
            (true, false) => match self.blocks.last_mut() {
                Some(Block::Thinking { text: all, raw: None }) => all.push_str(&text),
                _ if nothing => {}
                _ => self.blocks.push(Block::Thinking { text: text.clone(), raw: None }),
            },
            // Nothing but a signature.
            (false, true) if nothing => self.blocks.push(Block::Raw { raw: raw.get().to_owned() }),
            (false, true) => {
                self.blocks.extend(envelope::around(Holds::Text, raw.get(), sent.get(), &json::string(&text)));
                self.blocks.push(Block::Text { text: text.clone() });
            }
            (false, false) => match self.blocks.as_mut_slice() {
                // A part that was signed stays by itself.
                [.., Block::Thinking { raw: Some(raw), .. }, Block::Text { .. }] if envelope::is(raw) => {
                    if !nothing {
                        self.blocks.push(Block::Text { text: text.clone() });
                    }
                }
                [.., Block::Text { text: all }] => all.push_str(&text),
                _ if nothing => {}
                _ => self.blocks.push(Block::Text { text: text.clone() }),
            },
        }
        deltas.push(match (nothing, part.thought) {
            (true, _) => Delta::Other,
            (false, true) => Delta::Thinking(text),
            (false, false) => Delta::Text(text),
        });
        Ok(())
    }

    /// A call comes whole.
    fn call(&mut self, raw: &RawValue, call: &FunctionCall<'_>, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let Some(name) = call.name.clone().filter(|name| !name.is_empty()) else {
            return Err(ModelError::Malformed("a tool call without a name".into()));
        };
        self.output_bytes += raw.get().len() as u64;
        let arguments = call.args.map(RawValue::get).filter(|args| *args != "null");
        if let Some(arguments) = arguments {
            self.blocks.extend(envelope::around(Holds::Call, raw.get(), arguments, arguments));
        } else {
            self.blocks.extend(envelope::without_arguments(raw.get()));
        }
        self.blocks.push(Block::Call {
            id: call.id.clone().unwrap_or_default(),
            name,
            arguments: arguments.unwrap_or("{}").to_owned(),
        });
        deltas.push(Delta::Call);
        Ok(())
    }
}

fn stop(reason: &str, candidate: &Candidate<'_>) -> Result<Stop, ModelError> {
    let told = || match &candidate.finish_message {
        Some(message) => format!("`{reason}`: {message}"),
        None => format!("`{reason}`"),
    };
    Ok(match reason {
        "STOP" => Stop::End,
        "MAX_TOKENS" => Stop::MaxTokens,
        "SAFETY"
        | "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => Stop::Refused(details(reason, candidate)),
        // The model wrote a call that is none; another time it may write a good one.
        "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "TOO_MANY_TOOL_CALLS" | "MALFORMED_RESPONSE" => {
            return Err(ModelError::Malformed(told()));
        }
        "MISSING_THOUGHT_SIGNATURE" => return Err(ModelError::InvalidRequest(told())),
        other => Stop::Other(other.into()),
    })
}

/// What is known of a refusal, as JSON.
fn details(reason: &str, candidate: &Candidate<'_>) -> String {
    let mut details = format!(r#"{{"finishReason":{}"#, json::string(reason));
    if let Some(message) = &candidate.finish_message {
        details.push_str(&format!(r#","finishMessage":{}"#, json::string(message)));
    }
    if let Some(ratings) = candidate.safety_ratings.filter(|ratings| !json::is_hollow(ratings)) {
        details.push_str(&format!(r#","safetyRatings":{ratings}"#));
    }
    details.push('}');
    details
}
