//! A message of the history, as it is stored.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a user message comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The first message.
    Prompt,
    /// A continuation after a verdict.
    Goal,
    Steer,
    Job,
    /// What stands for a compacted span: made from a `compaction`, never logged as a message of its own.
    Summary,
}

/// A message of the agent's history, independent of any wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    User {
        origin: Origin,
        text: String,
    },
    /// Said by the harness: nudges, notes about the budget.
    Operator {
        text: String,
    },
    Assistant {
        blocks: Vec<Block>,
        /// The reply was cut off by the runner (signal, limit, crash): its text stands, its calls are not here.
        #[serde(default, skip_serializing_if = "is_false")]
        interrupted: bool,
        /// The model refused: kept for people, left out of every later request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
    /// The result of one tool call.
    Tool {
        call_id: String,
        tool: String,
        text: String,
        #[serde(default, skip_serializing_if = "is_false")]
        is_error: bool,
    },
}

fn is_false(b: &bool) -> bool {
    !*b
}

/// One block of an assistant message, in the order received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    Text {
        text: String,
    },
    Call {
        id: String,
        name: String,
        /// The arguments' JSON text exactly as the model wrote it; not necessarily valid.
        arguments: String,
    },
    /// Reasoning. `raw` is the JSON text to send back verbatim, where the wire wants it back.
    Thinking {
        text: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        raw: Option<String>,
    },
    /// A block of a type this build does not know: its JSON text, sent back verbatim.
    Raw {
        raw: String,
    },
}
