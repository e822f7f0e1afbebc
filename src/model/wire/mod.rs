//! The wires: pure encoders and decoders, bytes in and out.
//!
//! Invariant: no I/O, no clock, no runtime; the same bytes in any chunking give the same reply. Called by the
//! gateway (live) and by whoever reads recorded bytes.

mod anthropic;
#[cfg(test)]
mod compose_tests;
mod envelope;
mod error;
mod gemini;
mod history;
mod json;
mod openai_chat;
mod openai_responses;
mod sse;
mod stream;

use super::error::ModelError;
use super::reply::{Delta, Partial, Reply};
use super::request::{Front, ToolSchema};
use crate::session::Message;

/// A wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Wire {
    #[serde(rename = "anthropic")]
    Anthropic,
    #[serde(rename = "openai-responses")]
    OpenAiResponses,
    #[serde(rename = "openai-chat")]
    OpenAiChat,
    #[serde(rename = "gemini")]
    Gemini,
}

/// What becomes of reasoning in the history when a part of it is edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterEdit {
    /// It goes back as it was.
    Keep,
    /// None is sent back that was thought after the edited text: the provider holds it against the exact text
    /// before it.
    WithholdBehind,
    /// None is sent back that was thought before the edit: it speaks of what is no more.
    DropBefore,
}

impl Wire {
    pub const ALL: [Wire; 4] = [Wire::Anthropic, Wire::OpenAiResponses, Wire::OpenAiChat, Wire::Gemini];

    pub const fn name(self) -> &'static str {
        match self {
            Wire::Anthropic => "anthropic",
            Wire::OpenAiResponses => "openai-responses",
            Wire::OpenAiChat => "openai-chat",
            Wire::Gemini => "gemini",
        }
    }

    pub fn from_name(name: &str) -> Option<Wire> {
        Wire::ALL.into_iter().find(|wire| wire.name() == name)
    }

    /// The URL of a call, from the base URL that the vendor's own clients take (a closing slash is forgiven). On one
    /// wire the model stands in it.
    pub fn url(self, base_url: &str, model: &str) -> String {
        let base = base_url.trim_end_matches('/');
        match self {
            Wire::Anthropic => format!("{base}/v1/messages"),
            Wire::OpenAiResponses => format!("{base}/responses"),
            Wire::OpenAiChat => format!("{base}/chat/completions"),
            Wire::Gemini => gemini::url(base, model),
        }
    }

    /// Headers of a call (names in lower case), the key's included when there is one.
    pub fn headers(self, key: Option<&str>) -> Vec<(String, String)> {
        match self {
            Wire::Anthropic => anthropic::headers(key),
            Wire::OpenAiResponses => openai_responses::headers(key),
            Wire::OpenAiChat => openai_chat::headers(key),
            Wire::Gemini => gemini::headers(key),
        }
    }

    /// The start of a body: `{` and the fields that may differ from call to call, each followed by a comma.
    pub fn front(self, front: &Front<'_>) -> Vec<u8> {
        match self {
            Wire::Anthropic => anthropic::front(front),
            Wire::OpenAiResponses => openai_responses::front(front),
            Wire::OpenAiChat => openai_chat::front(front),
            Wire::Gemini => gemini::front(front),
        }
    }

    /// The start of the rest: system prompt and tools, up to and with the opening bracket of the messages (and,
    /// where the wire puts it there, the system message and a comma).
    pub fn head(self, system: &str, tools: &[ToolSchema]) -> String {
        match self {
            Wire::Anthropic => anthropic::head(system, tools),
            Wire::OpenAiResponses => openai_responses::head(system, tools),
            Wire::OpenAiChat => openai_chat::head(system, tools),
            Wire::Gemini => gemini::head(system, tools),
        }
    }

    /// Encodes the messages said since the last request, which `follows` earlier ones or not; appends to `out`
    /// and returns how many wire messages that made. What is said between two assistant messages becomes one side's
    /// say, results first; so a list gives the same bytes at once and reply by reply. Refused assistant messages
    /// are left out, and those of which nothing can be sent.
    pub fn messages(self, messages: &[Message], follows: bool, out: &mut Vec<u8>) -> u64 {
        match self {
            Wire::Anthropic => anthropic::messages(messages, follows, out),
            Wire::OpenAiResponses => openai_responses::messages(messages, follows, out),
            Wire::OpenAiChat => openai_chat::messages(messages, follows, out),
            Wire::Gemini => gemini::messages(messages, follows, out),
        }
    }

    pub const fn after_edit(self) -> AfterEdit {
        match self {
            Wire::Anthropic => AfterEdit::WithholdBehind,
            Wire::OpenAiResponses => AfterEdit::DropBefore,
            Wire::OpenAiChat | Wire::Gemini => AfterEdit::Keep,
        }
    }

    /// The end of a body.
    pub const fn close(self) -> &'static str {
        "]}"
    }

    /// A decoder for one 2xx response.
    pub fn decoder(self) -> Decoder {
        match self {
            Wire::Anthropic => Decoder(Kind::Anthropic(Box::default())),
            Wire::OpenAiResponses => Decoder(Kind::OpenAiResponses(Box::default())),
            Wire::OpenAiChat => Decoder(Kind::OpenAiChat(Box::default())),
            Wire::Gemini => Decoder(Kind::Gemini(Box::default())),
        }
    }

    /// An event stream that decodes to `reply`: stored in place of received bytes that hold a secret. Without `whole`
    /// the events that end a reply are left out.
    pub fn compose(self, reply: &Reply, whole: bool) -> Vec<u8> {
        match self {
            Wire::Anthropic => anthropic::compose(reply, whole),
            Wire::OpenAiResponses => openai_responses::compose(reply, whole),
            Wire::OpenAiChat => openai_chat::compose(reply, whole),
            Wire::Gemini => gemini::compose(reply, whole),
        }
    }

    /// Classifies a response that is not 2xx. `headers` have lower-case names. `now_unix` (seconds) resolves a
    /// `retry-after` date.
    pub fn error(self, status: u16, headers: &[(String, String)], body: &[u8], now_unix: u64) -> ModelError {
        error::http(status, headers, body, now_unix)
    }
}

/// Decodes one streamed response (or a whole JSON body, where a server answers without streaming).
pub struct Decoder(Kind);

enum Kind {
    Anthropic(Box<anthropic::Decoder>),
    OpenAiResponses(Box<openai_responses::Decoder>),
    OpenAiChat(Box<openai_chat::Decoder>),
    Gemini(Box<gemini::Decoder>),
}

impl Decoder {
    /// Takes the next bytes, in any chunking; reports what they brought. After an error it takes no more and
    /// returns that error again.
    pub fn push(&mut self, chunk: &[u8], deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        match &mut self.0 {
            Kind::Anthropic(decoder) => decoder.push(chunk, deltas),
            Kind::OpenAiResponses(decoder) => decoder.push(chunk, deltas),
            Kind::OpenAiChat(decoder) => decoder.push(chunk, deltas),
            Kind::Gemini(decoder) => decoder.push(chunk, deltas),
        }
    }

    /// The end of the body: the reply, or `Truncated` when no terminal signal had been seen. Called once.
    pub fn finish(&mut self) -> Result<Reply, ModelError> {
        match &mut self.0 {
            Kind::Anthropic(decoder) => decoder.finish(),
            Kind::OpenAiResponses(decoder) => decoder.finish(),
            Kind::OpenAiChat(decoder) => decoder.finish(),
            Kind::Gemini(decoder) => decoder.finish(),
        }
    }

    /// What had arrived, for a reply that never became whole.
    pub fn partial(&self) -> Partial {
        match &self.0 {
            Kind::Anthropic(decoder) => decoder.partial(),
            Kind::OpenAiResponses(decoder) => decoder.partial(),
            Kind::OpenAiChat(decoder) => decoder.partial(),
            Kind::Gemini(decoder) => decoder.partial(),
        }
    }
}
