//! What a replay finds: where it parted from its recording, and what could be compared.

use serde::Serialize;

use crate::event::Lane;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Aspect {
    /// The requests of every lane, byte for byte.
    Requests,
    /// What a request only hints at: a difference is a warning.
    Hints,
    Tools,
    Deliveries,
    Events,
    /// Tokens, money, compactions.
    Ledger,
    /// What tools for files gave and did, in the scratch copy of the workspace.
    Files,
    /// The workspace, at the end of each iteration and of the run.
    Trees,
    /// Nothing recorded is left over.
    Leftovers,
}

impl Aspect {
    pub const ALL: [Aspect; 9] = [
        Aspect::Requests,
        Aspect::Hints,
        Aspect::Tools,
        Aspect::Deliveries,
        Aspect::Events,
        Aspect::Ledger,
        Aspect::Files,
        Aspect::Trees,
        Aspect::Leftovers,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Aspect::Requests => "requests",
            Aspect::Hints => "cache hints",
            Aspect::Tools => "tool calls",
            Aspect::Deliveries => "deliveries",
            Aspect::Events => "events",
            Aspect::Ledger => "ledger",
            Aspect::Files => "file tools",
            Aspect::Trees => "trees",
            Aspect::Leftovers => "nothing left over",
        }
    }
}

/// How a comparison came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    Identical,
    Diverged,
    /// It could not be made: never a pass.
    Unverified,
}

/// One comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Compared {
    pub what: Aspect,
    pub standing: Standing,
    /// How many were compared.
    pub count: u64,
    /// Why it could not be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What a divergence probably comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Guess {
    Clock,
    Path,
    Id,
    Ordering,
    Prompt,
    ToolSchema,
    Price,
    Memory,
    ToolResult,
    Unknown,
}

impl Guess {
    pub const fn words(self) -> &'static str {
        match self {
            Guess::Clock => "a time or date",
            Guess::Path => "a path",
            Guess::Id => "an id",
            Guess::Ordering => "another order of the same things",
            Guess::Prompt => "the prompt",
            Guess::ToolSchema => "a tool's schema",
            Guess::Price => "a price or the model catalogue",
            Guess::Memory => "memory",
            Guess::ToolResult => "a tool's result",
            Guess::Unknown => "unknown",
        }
    }
}

/// Where the replay parted from the recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Divergence {
    pub what: Aspect,
    /// In words: what differs.
    pub text: String,
    pub run: u64,
    pub iteration: u64,
    /// Agent calls so far.
    pub step: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane: Option<Lane>,
    /// The call of the lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<u64>,
    /// Counts the request's messages from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<u64>,
    /// JSON pointer into the request, or into the fact.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pointer: String,
    /// Of the first differing byte of the request's body behind its front.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub byte: Option<u64>,
    /// Lines with their signs, a few around them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub diff: Vec<String>,
    pub guess: Guess,
}
