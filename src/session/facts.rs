//! The facts of a session's log: the shapes that are stored, and nothing else.
//!
//! A fact is one line of `session.jsonl`. Those that carry history are entries: they have an `id` (`e` and their
//! `seq`) and a `parent`. Everything that a run knows after a crash is folded from these lines.

mod call;
mod compaction;
mod message;
mod tool;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::call::{Attempt, Call, Settled};
pub use self::compaction::{Compaction, Edit, Prune, SummaryBy, Withheld};
pub use self::message::{Block, Message, Origin};
pub use self::tool::{ReadMark, ToolDone, ToolStart};
use super::effects::Effects;
use super::line::UnknownFact;
use super::outside::{CommandRun, Guarded, JobSeen, ListedChange};
use crate::event::{CheckResult, Lane, Leaked, Limits, Outcome, RunResult, TaskGraph, TurnEnd, Verdict};

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
    /// A command was over, or a job was started: what a replay takes instead of starting a process.
    Command(Box<CommandRun>),
    /// Jobs stood otherwise than was written down before, when the loop looked at them.
    Jobs {
        jobs: Vec<JobSeen>,
    },
    /// The workspace was listed: its digest (absent when it has none), and where the baseline is a listing too and was
    /// compared with, what differs from it.
    Listing {
        digest: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        changed: Vec<ListedChange>,
    },
    /// Files of the workspace were found changed (`record: effects`).
    Effects(Effects),
    /// `wire.jsonl` was found shorter than the facts before this one say: their bytes from here on are lost, and others
    /// may stand there later.
    WireCut {
        bytes: u64,
    },
    /// A guard of the workspace found something.
    Guarded(Guarded),
    /// A limit on time ends the run.
    Halted {
        why: String,
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
    /// A kind that this build does not know: kept as it stands, and walked through.
    #[serde(skip)]
    Unknown(UnknownFact),
}

impl Fact {
    /// The kinds that this build reads (`Unknown` holds all others).
    pub const KINDS: [&str; 37] = [
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
        "command",
        "jobs",
        "listing",
        "effects",
        "wire_cut",
        "guarded",
        "halted",
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
    /// The folder of the workspace inside its repository; absent at its top, and where it is in none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_prefix: Option<String>,
    /// Names of variables that commands did not see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    /// The effective configuration as YAML, where it is another one than the session was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// Hex of the seed from which the run's ids and jitter are drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_seed: Option<String>,
    /// Names of the variables whose values are replaced by `«secret:NAME»`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redacted: Vec<String>,
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
