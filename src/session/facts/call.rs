//! A model call: before it leaves, its attempts, and what it came to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::message::Block;
use crate::event::{CostKnown, Lane, Micros, Usage};

fn is_nothing<T: Default + PartialEq>(amount: &T) -> bool {
    *amount == T::default()
}

/// Written before a request leaves. A call without its `settled` is charged its reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Call {
    pub lane: Lane,
    /// Counts the lane's calls in the session from 1.
    pub n: u64,
    pub model: String,
    /// sha256 of the rest of the request body.
    pub digest: String,
    pub rest_bytes: u64,
    pub estimate_tokens: u64,
    pub max_output_tokens: u64,
    pub reserved: Micros,
    /// Reserved input and output, against `limits.tokens`.
    pub reserved_tokens: u64,
}

/// Written after a call ended, whichever way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Settled {
    pub lane: Lane,
    pub n: u64,
    /// The model that answered.
    pub model: String,
    /// Of all attempts together.
    pub usage: Option<Usage>,
    /// Of the reply that arrived whole, where `usage` is not that alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_usage: Option<Usage>,
    pub cost: Micros,
    pub known: CostKnown,
    /// Input and output charged against `limits.tokens`.
    pub charged_tokens: u64,
    pub attempts: Vec<Attempt>,
    pub duration_ms: u64,
    pub waited_ms: u64,
    /// Agent lane: the window's fill after this reply, and the window.
    pub occupancy_tokens: Option<u64>,
    pub window_tokens: Option<u64>,
    /// The session's cost after it, all lanes.
    pub total_cost: Micros,
    /// `end`, `tool_use`, `max_tokens`, …, or `error: …`.
    pub stop: String,
    /// Why the call failed, absent when a reply arrived whole.
    pub error: Option<String>,
    /// The reply's decoded blocks for lanes whose messages are not entries (judge).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<Vec<Block>>,
    /// What the provider reported to have changed in the request, as JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_transformations: Option<String>,
    /// The estimator's correction as it stood after this call, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor_pct: Option<u64>,
}

impl Settled {
    /// What the provider reported with the reply that arrived whole, if it reported anything.
    pub fn reported(&self) -> Option<&Usage> {
        match self.known {
            CostKnown::Reported => self.usage.as_ref(),
            _ => self.reply_usage.as_ref(),
        }
    }
}

impl Attempt {
    /// Whether it brought the reply, or cost something.
    pub fn is_served(&self) -> bool {
        self.error.is_none() || self.cost > Micros::ZERO || self.charged_tokens > 0
    }

    /// Where its line ends in `wire.jsonl`.
    pub const fn ends(&self) -> u64 {
        self.wire_offset.saturating_add(self.wire_bytes)
    }
}

/// One HTTP try inside a call, and where its line stands in `wire.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Attempt {
    pub status: Option<u16>,
    pub error: Option<String>,
    /// What a failed attempt is charged, since its reply had begun: money and tokens.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub cost: Micros,
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub charged_tokens: u64,
    /// The wait that followed.
    pub wait_ms: Option<u64>,
    pub wire_offset: u64,
    pub wire_bytes: u64,
}
