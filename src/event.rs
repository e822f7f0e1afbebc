//! What happened: the types that every room may emit, and the words they share.
//!
//! An event is for people and tools that watch a run. Events that come from stored facts are *derived* from
//! them (`session::derive`), live and after a crash alike; only `step.started`, `run.waiting` and `model.delta`
//! exist nowhere else. Invariant: this room knows no other room.

mod outcome;
mod result;
mod words;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use outcome::Outcome;
pub use result::{
    Changes, Commands, Compactions, GoalRef, Paths, RESULT_VERSION, ResultError, ResultProblem, RunResult, RunUsage,
    UnsettledCall,
};
pub use words::*;

/// The version of the event stream (`"v"`); unknown types within it are to be ignored by readers.
pub const EVENT_VERSION: u32 = 1;

/// One line of `events.jsonl` and of `--output-format jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    pub v: u32,
    /// Counts the events of a session from 1.
    pub seq: u64,
    /// RFC 3339, UTC, milliseconds.
    pub t: String,
    pub run: String,
    pub session: String,
    /// The seq of the fact that it derives from; absent for what exists nowhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fact: Option<u64>,
    #[serde(flatten)]
    pub event: Event,
}

/// What happened. The tag is `type`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type")]
pub enum Event {
    #[serde(rename = "run.started")]
    RunStarted {
        version: String,
        goal: String,
        /// sha256 of the effective configuration.
        config_digest: String,
        workspace: String,
        model: String,
        judge_model: Option<String>,
        limits: Limits,
        /// Endpoints that are not the provider's own, by name.
        endpoints: Vec<String>,
        /// The sandbox level obtained.
        sandbox: String,
        resumed: bool,
        /// Replies come from a cassette.
        #[serde(default)]
        recorded: bool,
    },
    /// Waiting for a provider; counts toward neither `time` nor `idle`.
    #[serde(rename = "run.waiting")]
    RunWaiting { lane: Lane, reason: String, wait_ms: u64 },
    #[serde(rename = "iteration.started")]
    IterationStarted { iteration: u64, of: u64 },
    #[serde(rename = "step.started")]
    StepStarted { iteration: u64, step: u64 },
    /// A call of any lane was settled.
    #[serde(rename = "call.finished")]
    CallFinished {
        lane: Lane,
        /// Counts the calls of this lane in the session from 1.
        n: u64,
        model: String,
        usage: Option<Usage>,
        cost: Micros,
        known: CostKnown,
        /// Of the session, all lanes.
        total_cost: Micros,
        /// Agent lane: tokens in the window now; and the window.
        occupancy_tokens: Option<u64>,
        window_tokens: Option<u64>,
        duration_ms: u64,
    },
    #[serde(rename = "attempt.failed")]
    AttemptFailed {
        lane: Lane,
        n: u64,
        attempt: u64,
        error: String,
        status: Option<u16>,
        /// The wait that follows; absent when no further attempt does.
        wait_ms: Option<u64>,
    },
    #[serde(rename = "tool.started")]
    ToolStarted {
        call_id: String,
        tool: String,
        /// At most 120 characters, without control characters.
        summary: String,
    },
    #[serde(rename = "tool.finished")]
    ToolFinished {
        call_id: String,
        tool: String,
        summary: String,
        status: ToolStatus,
        duration_ms: u64,
        output_bytes: u64,
        spool: Option<u64>,
    },
    #[serde(rename = "tool.denied")]
    ToolDenied { call_id: String, tool: String, reason: String },
    #[serde(rename = "job.started")]
    JobStarted { job: String, command: String },
    #[serde(rename = "job.finished")]
    JobFinished { job: String, state: String, duration_ms: u64 },
    #[serde(rename = "task.changed")]
    TaskChanged { tasks: Vec<Task> },
    #[serde(rename = "steer.delivered")]
    SteerDelivered { text: String },
    /// The summarizer was asked; its calls count from 1.
    #[serde(rename = "compaction.started")]
    CompactionStarted { n: u64, input_tokens: u64 },
    /// The history is smaller. Tokens are of the whole request, by the estimator.
    #[serde(rename = "compaction.finished")]
    CompactionFinished {
        stage: CompactionStage,
        before_tokens: u64,
        after_tokens: u64,
        /// What old outputs gave, and what the summary gave beyond that.
        pruned_tokens: u64,
        summarized_tokens: u64,
        /// The request did not fit, or somebody asked for it.
        forced: bool,
    },
    /// The summarizer gave nothing usable; the history is as it was.
    #[serde(rename = "compaction.failed")]
    CompactionFailed {
        reason: String,
        /// In a row; at `of` it pauses.
        failures: u64,
        of: u64,
    },
    #[serde(rename = "compaction.paused")]
    CompactionPaused { reason: String },
    #[serde(rename = "check.finished")]
    CheckFinished { iteration: u64, check: CheckResult },
    #[serde(rename = "verdict")]
    Verdict { verdict: Verdict, of: u64 },
    #[serde(rename = "checkpoint")]
    Checkpoint { iteration: u64, digest: String },
    #[serde(rename = "notice")]
    Notice { code: String, text: String },
    #[serde(rename = "run.interrupted")]
    RunInterrupted { reason: String },
    /// The last line of its run.
    #[serde(rename = "run.finished")]
    RunFinished { result: Box<RunResult> },
    /// Only on stdout with `--deltas`, never stored.
    #[serde(rename = "model.delta")]
    ModelDelta { lane: Lane, text: String },
}
