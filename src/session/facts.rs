//! The facts of a session's log: the shapes that are stored, and nothing else.
//!
//! A fact is one line of `session.jsonl`. Those that carry history are entries: they have an `id` (`e` and their
//! `seq`) and a `parent`. Everything that a run knows after a crash is folded from these lines.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::{
    CheckResult, CostKnown, Lane, Leaked, Limits, Micros, Outcome, RunResult, TaskGraph, ToolStatus, TurnEnd, Usage,
    Verdict,
};

/// The version of `session.jsonl`; a newer major is refused.
pub const LOG_VERSION: u32 = 1;

/// The first line of `session.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Header {
    /// Always `spettro session`.
    pub kind: String,
    pub v: u32,
    pub id: String,
    /// Canonical path of the project, as shown.
    pub workspace: String,
    /// RFC 3339.
    pub created: String,
}

/// Every further line: `{"seq":1,"t":"…","id":"e1","parent":"e0","kind":"message",…}`. The envelope comes first, then
/// the kind, then the fact's own fields; see `line.rs` for how it is written and read.
#[derive(Debug, Clone, PartialEq, JsonSchema)]
pub struct Line {
    /// Counts from 1 without gaps.
    pub seq: u64,
    /// RFC 3339, UTC, milliseconds.
    pub t: String,
    /// Entries only: `e` and the seq.
    #[schemars(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Entries only: the entry this one follows; absent for the first.
    #[schemars(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    #[schemars(flatten)]
    pub fact: Fact,
}

/// What happened, as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Fact {
    // entries
    Frozen(Box<Frozen>),
    Message(Message),
    Tasks {
        graph: TaskGraph,
    },
    Verdict {
        verdict: Verdict,
    },
    Checks {
        iteration: u64,
        results: Vec<CheckResult>,
    },
    /// An iteration began.
    Iteration {
        iteration: u64,
    },
    /// The result of a call of the last reply stands shorter than its own message says, because the results of
    /// that reply together were too large. Only before they are sent.
    Recut {
        call_id: String,
        text: String,
    },
    /// Old outputs of the history became stubs; no message went.
    Prune(Box<Prune>),
    /// A span of the history became one summary.
    Compaction(Box<Compaction>),
    // the rest
    /// A run of the session started.
    Run(Box<RunStart>),
    Call(Call),
    /// One attempt of a call failed.
    Attempt {
        lane: Lane,
        n: u64,
        number: u64,
        attempt: Attempt,
    },
    Settled(Box<Settled>),
    ToolStarted(ToolStart),
    Tool(Box<ToolDone>),
    /// A turn ended.
    Turn {
        iteration: u64,
        end: TurnEnd,
        summary: Option<String>,
        /// For failed and refused turns.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// What progress was measured from, after the turn and its checks.
    Progress(Box<Progress>),
    /// The workspace as the session found it: the tree of a private snapshot where it is a git repository, else
    /// the name of a file in the session folder with the digests of all files.
    Baseline {
        git_tree: Option<String>,
        listing: Option<String>,
    },
    /// Background jobs.
    JobStarted {
        job: String,
        command: String,
    },
    JobExited {
        job: String,
        state: String,
        duration_ms: u64,
    },
    /// Something reached the agent at a step boundary (steering, a job's exit): which, before which agent call.
    Delivery {
        what: String,
        before_call: u64,
    },
    /// Steering was accepted; it reaches the agent with the next message of origin `steer`, in this run or a later.
    Steer {
        text: String,
    },
    /// Learned about the model in use.
    Learned {
        window_tokens: Option<u64>,
        factor_pct: Option<u64>,
    },
    /// The summarizer gave nothing usable; the history is as it was.
    CompactionFailed {
        reason: String,
        /// In a row, this one included; at `of` compaction by itself pauses.
        failures: u64,
        of: u64,
    },
    /// From here on the history is not summarized by itself, until a compaction succeeds.
    CompactionPaused {
        reason: String,
    },
    /// Time spent so far in the session, and how much of it was waiting for a provider.
    Elapsed {
        active_ms: u64,
        waited_ms: u64,
    },
    Notice {
        code: String,
        text: String,
    },
    Interrupted {
        reason: String,
    },
    Tip {
        entry: String,
    },
    End(Box<End>),
    /// A kind that this build does not know, with all its fields (`kind` too): read, kept and walked through.
    #[serde(skip)]
    Unknown(serde_json::Map<String, serde_json::Value>),
}

impl Fact {
    /// The kinds that this build reads (`Unknown` holds all others).
    pub const KINDS: [&str; 30] = [
        "frozen",
        "message",
        "tasks",
        "verdict",
        "checks",
        "iteration",
        "recut",
        "prune",
        "compaction",
        "run",
        "call",
        "attempt",
        "settled",
        "tool_started",
        "tool",
        "turn",
        "progress",
        "baseline",
        "job_started",
        "job_exited",
        "delivery",
        "steer",
        "learned",
        "compaction_failed",
        "compaction_paused",
        "elapsed",
        "notice",
        "interrupted",
        "tip",
        "end",
    ];

    /// Whether it carries history and so has an id and a parent.
    pub const fn is_entry(&self) -> bool {
        matches!(
            self,
            Fact::Frozen(_)
                | Fact::Message(_)
                | Fact::Tasks { .. }
                | Fact::Verdict { .. }
                | Fact::Checks { .. }
                | Fact::Iteration { .. }
                | Fact::Recut { .. }
                | Fact::Prune(_)
                | Fact::Compaction(_)
        )
    }
}

/// What never changes in a session, in the bytes that were sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Frozen {
    /// The goal's text as read at start.
    pub goal: String,
    pub goal_name: String,
    /// sha256 of `goal`.
    pub goal_digest: String,
    pub goal_file: Option<String>,
    /// What the session is called (`--session-name`); without it, the goal's first line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    pub system: String,
    /// The environment block that opens the first message.
    pub environment: String,
    /// Per lane, the exact bytes of the head of the request's rest (system, tools, up to the messages).
    pub heads: BTreeMap<String, String>,
    /// The effective configuration as YAML, and its sha256.
    pub config: String,
    pub config_digest: String,
    /// Resolved endpoints with window, limits and prices as they stood, per lane, as JSON; without the values of
    /// headers and query parameters, which may be secrets.
    pub endpoints: BTreeMap<String, serde_json::Value>,
}

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

fn is_nothing<T: Default + PartialEq>(amount: &T) -> bool {
    *amount == T::default()
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

/// One run of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunStart {
    pub run: String,
    /// Of spettro.
    pub version: String,
    pub resumed: bool,
    /// Replies come from a cassette.
    #[serde(default)]
    pub recorded: bool,
    pub config_digest: String,
    pub model: String,
    pub judge_model: Option<String>,
    pub limits: Limits,
    pub endpoints: Vec<String>,
    pub sandbox: String,
    /// Where the agent works, as shown, and for `workspace_mode: copy` the copy's path.
    pub workspace: String,
    /// The commit and branch at the start, where the workspace is a repository.
    pub git_base: Option<String>,
    pub git_branch: Option<String>,
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

/// The components of progress after one iteration (0 = the baseline). `None` is «unknown», never «same».
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    pub iteration: u64,
    pub workspace: Option<String>,
    pub head: Option<String>,
    /// Names of passing checks.
    pub passing: Vec<String>,
    /// Failure signatures as `check name:signature`.
    pub failing: Vec<String>,
    /// Digest of the task graph.
    pub tasks: String,
    /// The stall count after this iteration, in halves (2 = one full iteration without progress).
    pub stall_halves: u64,
    /// Whether the next message is the stall nudge.
    pub nudge: bool,
    /// Failed or refused turns in a row.
    pub consecutive_errors: u64,
}

/// A run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct End {
    pub run: String,
    pub outcome: Outcome,
    pub result: Box<RunResult>,
    #[serde(default)]
    pub leaked: Vec<Leaked>,
}
