//! The result object: what `result.json`, `--output-format json` and `run.finished` hold.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CheckResult, Lane, Leaked, Limits, Micros, Outcome, UsageBy, Verdict};

/// The version of the result object.
pub const RESULT_VERSION: u32 = 1;

/// How a run ended, with everything needed to go on. Written at every end, and as `state: running` from the start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    pub v: u32,
    /// `running` until the run has ended, then `finished`.
    pub state: String,
    pub outcome: Option<Outcome>,
    pub exit_code: Option<u8>,
    pub retryable: bool,
    pub retry_after_s: Option<u64>,
    pub error: Option<ResultError>,
    /// What is wrong with the goal file and the settings over it, when that is why no run began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<ResultProblem>,
    pub run_id: String,
    pub session_id: Option<String>,
    pub goal: Option<GoalRef>,
    pub workspace: Option<String>,
    pub model: Option<String>,
    pub judge_model: Option<String>,
    /// True when replies came from a cassette.
    #[serde(default)]
    pub recorded_model: bool,
    pub verdict: Option<Verdict>,
    #[serde(default)]
    pub checks: Vec<CheckResult>,
    /// The agent's last message.
    pub result: Option<String>,
    pub iterations: u64,
    pub steps: u64,
    pub duration_ms: u64,
    /// Without waits for the provider.
    pub active_ms: u64,
    pub waited_ms: u64,
    /// Dollars; of the session, resumes included.
    pub total_cost_usd: f64,
    /// Dollars by lane; of the session.
    #[serde(default)]
    pub cost_usd: BTreeMap<String, f64>,
    /// Of this run alone.
    pub run_usage: RunUsage,
    #[serde(default)]
    pub usage_by_lane: UsageBy,
    #[serde(default)]
    pub usage_by_model: UsageBy,
    /// Calls that were charged without the provider's report: their reservation or the upper bound.
    #[serde(default)]
    pub unreported_calls: Vec<UnsettledCall>,
    pub peak_occupancy_tokens: u64,
    /// Of the session.
    #[serde(default)]
    pub compactions: Compactions,
    pub limits: Option<Limits>,
    /// The key of the limit that ended the run, as `limits.cost`.
    pub limit_hit: Option<String>,
    pub sandbox: String,
    pub changes: Option<Changes>,
    #[serde(default)]
    pub memory_saved: Vec<String>,
    #[serde(default)]
    pub leaked: Vec<Leaked>,
    pub paths: Option<Paths>,
    /// The private copy of `workspace_mode: copy` where no session is kept and `paths` cannot name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<String>,
    pub commands: Commands,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResultError {
    pub message: String,
    pub hint: Option<String>,
}

/// One thing that is wrong with a goal, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResultProblem {
    /// The file as it was named, `environment`, or `command line`.
    pub file: String,
    /// Counted from 1, as the column.
    pub line: Option<u64>,
    pub column: Option<u64>,
    /// The key path, the variable or the flag; empty when it is about the whole.
    pub key: String,
    pub message: String,
    pub hint: Option<String>,
}

impl ResultProblem {
    /// `goal.yaml:7:1: limits.cost: message`.
    pub fn line(&self) -> String {
        let mut line = self.file.clone();
        for number in self.line.iter().chain(&self.column) {
            line.push_str(&format!(":{number}"));
        }
        if !self.key.is_empty() {
            line.push_str(&format!(": {}", self.key));
        }
        format!("{line}: {}", self.message)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GoalRef {
    pub name: String,
    pub file: Option<String>,
    /// sha256 of the goal text.
    pub digest: String,
}

/// What this run alone used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunUsage {
    pub calls: u64,
    pub tokens: u64,
    pub cost: Micros,
    pub iterations: u64,
    pub steps: u64,
}

/// How often the history was made smaller, and how often that failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Compactions {
    /// By stubs alone.
    pub pruned: u64,
    /// By a summary.
    pub summarized: u64,
    /// By an extract, for want of a summary.
    pub extracted: u64,
    /// Calls of the summarizer that gave no usable summary.
    pub failed: u64,
    /// No summaries are asked for until one that is forced or asked for succeeds.
    pub paused: bool,
}

/// A call whose cost the provider did not report, with what was charged for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnsettledCall {
    pub lane: Lane,
    pub n: u64,
    pub charged: Micros,
    /// `reservation` or `upper_bound`.
    pub why: super::CostKnown,
}

/// What changed in the workspace from the session's start to now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Changes {
    /// Commit ids; absent where the workspace is no git repository.
    pub base: Option<String>,
    pub head: Option<String>,
    pub branch: Option<String>,
    pub files: Vec<String>,
    pub insertions: Option<u64>,
    pub deletions: Option<u64>,
    /// Path of `changes.patch`; absent where the workspace is no git repository.
    pub patch: Option<String>,
}

/// Where things are, as absolute paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Paths {
    pub session: String,
    pub result: String,
    pub summary: String,
    pub events: String,
    /// The private copy the agent worked in, with `workspace_mode: copy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<String>,
}

/// Commands that work, as argument lists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Commands {
    pub resume: Option<Vec<String>>,
    pub export: Option<Vec<String>>,
    pub replay: Option<Vec<String>>,
}
