//! A tool call: before it runs, and after.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::ToolStatus;

/// Written before a tool runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolStart {
    pub call_id: String,
    pub tool: String,
    pub summary: String,
}

/// Written after a tool ended, just before the message with its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolDone {
    pub call_id: String,
    pub tool: String,
    pub summary: String,
    pub status: ToolStatus,
    pub duration_ms: u64,
    /// Of the whole output.
    pub output_bytes: u64,
    /// Characters and lines of the whole text that the model could read.
    #[serde(default)]
    pub chars: u64,
    #[serde(default)]
    pub lines: u64,
    /// Its id in the spool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spool: Option<u64>,
    /// The length of what is kept there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spool_bytes: Option<u64>,
    /// Files read or written, with the digest of their content then: what `file-write` may overwrite.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<ReadMark>,
    /// Files it changed, as shown paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
}

/// The agent has seen this file with this content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReadMark {
    /// As shown.
    pub path: String,
    /// sha256 of the content.
    pub sha256: String,
}
