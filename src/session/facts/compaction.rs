//! What makes a history smaller: stubs, summaries, and the edits that they consist of.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A change of one message of the history where it stands; entries are named by their ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Edit {
    /// The text of a tool result or user message is another one.
    Text { entry: String, text: String },
    /// The arguments of a call are others; `block` counts the blocks of its message from 0.
    Arguments { entry: String, block: usize, arguments: String },
}

/// Reasoning that is left out of every later request, because what stood before it was edited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Withheld {
    /// The messages from this entry on …
    pub from: String,
    /// … up to this one, which keeps its own; to the end when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

/// Tokens are by the estimator, of the whole request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Prune {
    pub edits: Vec<Edit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withheld: Option<Withheld>,
    pub before_tokens: u64,
    pub after_tokens: u64,
    /// Of the next agent call.
    pub before_call: u64,
}

/// Who wrote a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SummaryBy {
    Model,
    /// Taken from the transcript by rule, because the summarizer failed and the request did not fit.
    Extract,
}

/// The messages from `from` to `to` are gone; in their place stand the summary, then `kept` in this order; then
/// `edits` are made and reasoning is withheld. Tokens are by the estimator, of the whole request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Compaction {
    pub from: String,
    pub to: String,
    /// As it is sent. Its message has this entry's id.
    pub summary: String,
    pub by: SummaryBy,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edits: Vec<Edit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withheld: Option<Withheld>,
    pub before_tokens: u64,
    pub after_tokens: u64,
    /// What pruning alone would have freed; 0 where that was too little to be tried.
    pub pruned_tokens: u64,
    /// The request did not fit, or somebody asked for it.
    pub forced: bool,
    /// Of the next agent call.
    pub before_call: u64,
}
