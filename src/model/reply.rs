//! What a wire's decoder makes of a response: one reply, whatever the wire.

use crate::event::Usage;
use crate::session::{Block, Message};

/// Why the model stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    End,
    ToolUse,
    /// The output cap was reached.
    MaxTokens,
    StopSequence,
    /// The provider paused its own tools; the history is resent as it is.
    Pause,
    /// The window is full (a reply that says so, not an error).
    ContextExceeded,
    /// Declined; the reply's calls are already stripped.
    Refused(String),
    /// A reason this build does not know, as the provider named it.
    Other(String),
}

impl Stop {
    pub fn name(&self) -> String {
        match self {
            Stop::End => "end".into(),
            Stop::ToolUse => "tool_use".into(),
            Stop::MaxTokens => "max_tokens".into(),
            Stop::StopSequence => "stop_sequence".into(),
            Stop::Pause => "pause".into(),
            Stop::ContextExceeded => "context_exceeded".into(),
            Stop::Refused(_) => "refused".into(),
            Stop::Other(other) => other.clone(),
        }
    }
}

/// A reply that arrived whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub blocks: Vec<Block>,
    pub stop: Stop,
    /// Absent when the server reported none.
    pub usage: Option<Usage>,
    /// The model that answered, when named.
    pub model: Option<String>,
    /// Provider-reported changes to the request, as JSON text, when not empty.
    pub input_transformations: Option<String>,
}

impl Reply {
    /// A refusal that came as an error.
    pub const fn refused(details: String) -> Reply {
        Reply {
            blocks: Vec::new(),
            stop: Stop::Refused(details),
            usage: None,
            model: None,
            input_transformations: None,
        }
    }

    /// The message that it becomes. Calls of a reply that was cut, at its output cap or because the window was full,
    /// are not taken over: none of them may run, and half a call cannot be sent back.
    pub fn message(&self) -> Message {
        let mut blocks = self.blocks.clone();
        if matches!(self.stop, Stop::MaxTokens | Stop::ContextExceeded) {
            blocks.retain(|block| !matches!(block, Block::Call { .. }));
        }
        let refused = match &self.stop {
            Stop::Refused(details) => Some(details.clone()),
            _ => None,
        };
        Message::Assistant { blocks, interrupted: false, refused }
    }

    /// All text blocks, joined.
    pub fn text(&self) -> String {
        blocks_text(&self.blocks)
    }

    pub fn calls(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.blocks.iter().filter_map(|block| match block {
            Block::Call { id, name, arguments } => Some((id.as_str(), name.as_str(), arguments.as_str())),
            _ => None,
        })
    }
}

/// The text of an assistant message's blocks, joined.
pub fn blocks_text(blocks: &[Block]) -> String {
    blocks
        .iter()
        .filter_map(|block| match block {
            Block::Text { text } => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

/// What one chunk of a response brought, besides state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    Text(String),
    Thinking(String),
    /// A piece of a tool call; shown to nobody, but a sign of life.
    Call,
    /// Any other semantic event (start of a message or block, stop, usage). Keep-alives are none.
    Other,
}

/// What is known of a reply that did not (yet) arrive whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Partial {
    /// The text that arrived.
    pub text: String,
    /// Usage reported so far, if any.
    pub usage: Option<Usage>,
    /// Bytes of text, thinking and arguments received: the bound for what an unreported stream cost.
    pub output_bytes: u64,
}

impl Partial {
    /// The text and the usage as if they were all there is.
    pub fn as_reply(&self) -> Reply {
        let text = (!self.text.is_empty()).then(|| Block::Text { text: self.text.clone() });
        Reply {
            blocks: text.into_iter().collect(),
            stop: Stop::End,
            usage: self.usage.clone(),
            model: None,
            input_transformations: None,
        }
    }
}
