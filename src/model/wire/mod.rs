//! The wires: pure encoders and decoders, bytes in and out.
//!
//! Invariant: no I/O, no clock, no runtime; the same bytes in any chunking give the same reply. Called by the
//! gateway (live) and by whoever reads recorded bytes.

mod anthropic;
mod openai_chat;
mod sse;

use super::error::ModelError;
use super::reply::{Delta, Partial, Reply};
use super::request::{Front, ToolSchema};
use crate::session::Message;

/// A wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Wire {
    #[serde(rename = "anthropic")]
    Anthropic,
    #[serde(rename = "openai-chat")]
    OpenAiChat,
}

impl Wire {
    pub const ALL: [Wire; 2] = [Wire::Anthropic, Wire::OpenAiChat];

    pub const fn name(self) -> &'static str {
        match self {
            Wire::Anthropic => "anthropic",
            Wire::OpenAiChat => "openai-chat",
        }
    }

    pub fn from_name(name: &str) -> Option<Wire> {
        Wire::ALL.into_iter().find(|wire| wire.name() == name)
    }

    /// The URL of a call, from the base URL that the vendor's own clients take (a closing slash is forgiven).
    pub fn url(self, base_url: &str) -> String {
        let base = base_url.trim_end_matches('/');
        match self {
            Wire::Anthropic => format!("{base}/v1/messages"),
            Wire::OpenAiChat => format!("{base}/chat/completions"),
        }
    }

    /// Headers of a call (names in lower case), the key's included when there is one.
    pub fn headers(self, key: Option<&str>) -> Vec<(String, String)> {
        match self {
            Wire::Anthropic => anthropic::headers(key),
            Wire::OpenAiChat => openai_chat::headers(key),
        }
    }

    /// The start of a body: `{` and the fields that may differ from call to call, each followed by a comma.
    pub fn front(self, front: &Front<'_>) -> Vec<u8> {
        match self {
            Wire::Anthropic => anthropic::front(front),
            Wire::OpenAiChat => openai_chat::front(front),
        }
    }

    /// The start of the rest: system prompt and tools, up to and with the opening bracket of the messages (and,
    /// where the wire puts it there, the system message).
    pub fn head(self, system: &str, tools: &[ToolSchema]) -> String {
        match self {
            Wire::Anthropic => anthropic::head(system, tools),
            Wire::OpenAiChat => openai_chat::head(system, tools),
        }
    }

    /// Encodes the messages said since the last request, which `follows` earlier ones or not; appends to `out`
    /// and returns how many wire messages that made. Refused assistant messages are left out.
    pub fn messages(self, messages: &[Message], follows: bool, out: &mut Vec<u8>) -> u64 {
        match self {
            Wire::Anthropic => anthropic::messages(messages, follows, out),
            Wire::OpenAiChat => openai_chat::messages(messages, follows, out),
        }
    }

    /// The end of a body.
    pub const fn close(self) -> &'static str {
        "]}"
    }

    /// A decoder for one 2xx response.
    pub fn decoder(self) -> Decoder {
        match self {
            Wire::Anthropic => Decoder::Anthropic(Box::default()),
            Wire::OpenAiChat => Decoder::OpenAiChat(Box::default()),
        }
    }

    /// Classifies a response that is not 2xx. `headers` have lower-case names. `now_unix` (seconds) resolves a
    /// `retry-after` date.
    pub fn error(self, status: u16, headers: &[(String, String)], body: &[u8], now_unix: u64) -> ModelError {
        let _ = (self, status, headers, body, now_unix);
        todo!("H1")
    }
}

/// Decodes one streamed response (or a whole JSON body, where a server answers without streaming).
pub enum Decoder {
    Anthropic(Box<anthropic::Decoder>),
    OpenAiChat(Box<openai_chat::Decoder>),
}

impl Decoder {
    /// Takes the next bytes, in any chunking; reports what they brought. After an error it takes no more.
    pub fn push(&mut self, chunk: &[u8], deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        match self {
            Decoder::Anthropic(decoder) => decoder.push(chunk, deltas),
            Decoder::OpenAiChat(decoder) => decoder.push(chunk, deltas),
        }
    }

    /// The end of the body: the reply, or `Truncated` when no terminal signal had been seen.
    pub fn finish(&mut self) -> Result<Reply, ModelError> {
        match self {
            Decoder::Anthropic(decoder) => decoder.finish(),
            Decoder::OpenAiChat(decoder) => decoder.finish(),
        }
    }

    /// What had arrived, for a reply that never became whole.
    pub fn partial(&self) -> Partial {
        match self {
            Decoder::Anthropic(decoder) => decoder.partial(),
            Decoder::OpenAiChat(decoder) => decoder.partial(),
        }
    }
}
