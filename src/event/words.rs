//! Words that several rooms share: lanes, money, usage, checks, verdicts, tasks.
//!
//! Plain data without behaviour that could fail. They stand here because a report may only look at
//! events, and a session may only store what an event may name.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who calls the model. Every call of every lane goes through the one gateway and the one ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    Agent,
    Judge,
    Summarizer,
    Miner,
    Curator,
}

impl Lane {
    pub const fn name(self) -> &'static str {
        match self {
            Lane::Agent => "agent",
            Lane::Judge => "judge",
            Lane::Summarizer => "summarizer",
            Lane::Miner => "miner",
            Lane::Curator => "curator",
        }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An amount of money in integer micro-dollars (1 dollar = 1,000,000). Never a float inside the program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Micros(pub u64);

impl Micros {
    pub const ZERO: Micros = Micros(0);

    pub const fn saturating_add(self, other: Micros) -> Micros {
        Micros(self.0.saturating_add(other.0))
    }

    pub const fn saturating_sub(self, other: Micros) -> Micros {
        Micros(self.0.saturating_sub(other.0))
    }

    /// Dollars, for the published result only (`total_cost_usd`).
    pub fn dollars(self) -> f64 {
        self.0 as f64 / 1_000_000.0
    }

    /// Reads a decimal amount of dollars (`5`, `5.00`, `0.000001`) exactly; more than six decimals, signs,
    /// exponents and non-finite words are refused.
    pub fn parse_dollars(text: &str) -> Option<Micros> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || fraction.len() > 6 {
            return None;
        }
        let whole: u64 = whole.parse().ok()?;
        let fraction: u64 = format!("{fraction:0<6}").parse().ok()?;
        whole.checked_mul(1_000_000)?.checked_add(fraction).map(Micros)
    }
}

impl std::iter::Sum for Micros {
    fn sum<I: Iterator<Item = Micros>>(iter: I) -> Micros {
        iter.fold(Micros::ZERO, Micros::saturating_add)
    }
}

/// Shown to people with two decimals, or with up to six where two would hide a small amount: `0.31`, `0.0042`.
impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.0 / 1_000_000, self.0 % 1_000_000);
        if self.0 >= 1_000_000 || fraction % 10_000 == 0 {
            let cents = self.0 / 10_000 + u64::from(self.0 % 10_000 >= 5_000);
            return write!(f, "{}.{:02}", cents / 100, cents % 100);
        }
        let text = format!("{whole}.{fraction:06}");
        f.write_str(text.trim_end_matches('0'))
    }
}

/// What a provider reported for one call. `input_tokens` is the whole input, cached parts included;
/// `output_tokens` is the whole output, reasoning included.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_read_tokens: u64,
    /// Written to the provider's cache with its short (five-minute or only) lifetime.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u64,
    /// Written with the one-hour lifetime.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_1h_tokens: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reasoning_tokens: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Usage {
    /// What counts against `limits.tokens`.
    pub const fn total_tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// Saturating: the numbers are whatever a server reported.
    pub fn add(&mut self, other: &Usage) {
        for (sum, more) in [
            (&mut self.input_tokens, other.input_tokens),
            (&mut self.output_tokens, other.output_tokens),
            (&mut self.cache_read_tokens, other.cache_read_tokens),
            (&mut self.cache_write_tokens, other.cache_write_tokens),
            (&mut self.cache_write_1h_tokens, other.cache_write_1h_tokens),
            (&mut self.reasoning_tokens, other.reasoning_tokens),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// What made a history smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CompactionStage {
    /// Old outputs became stubs; no model was asked.
    Prune,
    Summary,
    /// The summarizer failed, and the request had to fit.
    Extract,
}

/// How the cost of a call is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CostKnown {
    /// The provider reported usage.
    Reported,
    /// A 2xx stream began and reported no usage: input and received output at the upper bound.
    UpperBound,
    /// The call has no settlement (the runner died): its reservation.
    Reservation,
    /// Nothing was answered, or an HTTP error was: costs nothing.
    Free,
}

/// How one check ended. Only `pass` passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckStatus {
    Pass,
    Fail,
    Timeout,
    NotRun,
}

impl CheckStatus {
    pub const fn name(self) -> &'static str {
        match self {
            CheckStatus::Pass => "pass",
            CheckStatus::Fail => "fail",
            CheckStatus::Timeout => "timeout",
            CheckStatus::NotRun => "not_run",
        }
    }
}

/// The result of one executed check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckResult {
    pub name: String,
    pub required: bool,
    pub status: CheckStatus,
    /// The program's exit code; absent when it did not exit by itself or did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    pub duration_ms: u64,
    /// The first lines of its output, at most 2,000 characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub head: String,
    /// The last 40 lines of its output, at most 2,000 characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tail: String,
    /// The spool id of the full output, when it was spooled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spool: Option<u64>,
    /// Its output with digits, paths, hex and durations masked, as a digest: the failure signature.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub signature: String,
}

/// The three verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerdictKind {
    Met,
    Unmet,
    Impossible,
}

impl VerdictKind {
    pub const fn name(self) -> &'static str {
        match self {
            VerdictKind::Met => "met",
            VerdictKind::Unmet => "unmet",
            VerdictKind::Impossible => "impossible",
        }
    }
}

/// Who gave a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerdictBy {
    /// A required check failed, or all passed and the judge is off.
    Checks,
    Judge,
}

/// The answer to one criterion of the goal. `index` counts from 1, as the packet shows them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CriterionResult {
    pub index: u64,
    pub met: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub evidence: String,
}

/// Given by checks and judge together, once an iteration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    pub kind: VerdictKind,
    pub by: VerdictBy,
    pub iteration: u64,
    pub reason: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub next_step: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub criteria: Vec<CriterionResult>,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TurnEnd {
    /// The model asked for no more tools, or called `goal-complete`.
    Done,
    /// `steps_per_iteration` (or the session's step limit) was reached.
    Budget,
    /// The same call gave the same result too often.
    Stuck,
    Refused,
    Failed,
}

impl TurnEnd {
    pub const fn name(self) -> &'static str {
        match self {
            TurnEnd::Done => "done",
            TurnEnd::Budget => "budget",
            TurnEnd::Stuck => "stuck",
            TurnEnd::Refused => "refused",
            TurnEnd::Failed => "failed",
        }
    }
}

/// A task's status, as stored. Aliases are accepted on input only (`tools::tasks`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    Pending,
    InProgress,
    Completed,
    Blocked,
    Cancelled,
}

impl TaskStatus {
    pub const fn name(self) -> &'static str {
        match self {
            TaskStatus::Pending => "pending",
            TaskStatus::InProgress => "in_progress",
            TaskStatus::Completed => "completed",
            TaskStatus::Blocked => "blocked",
            TaskStatus::Cancelled => "cancelled",
        }
    }

    /// Completed and cancelled tasks gate nothing any more.
    pub const fn is_closed(self) -> bool {
        matches!(self, TaskStatus::Completed | TaskStatus::Cancelled)
    }
}

/// One task of the session's graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Task {
    pub id: String,
    pub content: String,
    pub status: TaskStatus,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<String>,
}

/// The whole task graph, in the order it was written. `highest_id` is the highest N of a `task-N` ever used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskGraph {
    pub tasks: Vec<Task>,
    #[serde(default)]
    pub highest_id: u64,
}

impl TaskGraph {
    pub fn open_count(&self) -> usize {
        self.tasks.iter().filter(|task| !task.status.is_closed()).count()
    }
}

/// How a tool call ended, as stored and shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    Ok,
    /// The tool ran and says that it failed (also `[exit status N]` of a command).
    Error,
    /// It was never run: bad arguments, unknown tool, too many calls in one reply.
    Refused,
    Timeout,
    /// The runner ended while it ran; its effects are unknown.
    Interrupted,
}

impl ToolStatus {
    pub const fn name(self) -> &'static str {
        match self {
            ToolStatus::Ok => "ok",
            ToolStatus::Error => "error",
            ToolStatus::Refused => "refused",
            ToolStatus::Timeout => "timeout",
            ToolStatus::Interrupted => "interrupted",
        }
    }
}

/// A process that outlived the teardown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Leaked {
    pub pid: i32,
    pub uid: u32,
    pub command: String,
}

/// Limits as they are in force. `None` means unlimited; only tokens, cost, time and idle can be that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Limits {
    pub iterations: u64,
    pub steps: u64,
    pub steps_per_iteration: u64,
    /// Micro-dollars.
    pub cost: Option<Micros>,
    pub tokens: Option<u64>,
    pub time_ms: Option<u64>,
    pub idle_ms: Option<u64>,
    pub command_ms: u64,
    pub stall: u64,
    pub consecutive_errors: u64,
}

/// Per-lane and per-model totals.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsageRow {
    pub calls: u64,
    pub usage: Usage,
    pub cost: Micros,
}

/// Totals by a name (a lane or a model), in byte order of the name.
pub type UsageBy = BTreeMap<String, UsageRow>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_read_exactly_or_not_at_all() {
        assert_eq!(Micros::parse_dollars("5.00"), Some(Micros(5_000_000)));
        assert_eq!(Micros::parse_dollars("5"), Some(Micros(5_000_000)));
        assert_eq!(Micros::parse_dollars("0.000001"), Some(Micros(1)));
        for bad in ["", ".5", "5.", "-1", "+1", "1e3", "inf", "nan", "0.0000001", "1_000", " 1"] {
            assert_eq!(Micros::parse_dollars(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn money_is_shown_with_cents_unless_they_would_hide_it() {
        assert_eq!(Micros(310_000).to_string(), "0.31");
        assert_eq!(Micros(5_000_000).to_string(), "5.00");
        assert_eq!(Micros(4_200).to_string(), "0.0042");
        assert_eq!(Micros(1).to_string(), "0.000001");
        assert_eq!(Micros(0).to_string(), "0.00");
        assert_eq!(Micros(12_345_678).to_string(), "12.35");
        assert_eq!(Micros(u64::MAX).to_string(), "18446744073709.55");
    }
}
