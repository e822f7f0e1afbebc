//! What derives from the log: events, metadata, tasks, status. Each carries the seq it stands at.
//!
//! Invariant: everything here can be deleted and comes back from the facts.

mod derive;
mod events;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use derive::{DeriveState, derive};
pub(super) use events::{EVENTS_FILE, Events};

use super::error::SessionError;
use super::facts::{Fact, Header, Line};
use super::files::{read_optional, write_whole};
use crate::event::{Lane, Limits, Micros, Outcome, TaskGraph, UsageBy, UsageRow, Verdict};

pub(super) const METADATA_FILE: &str = "metadata.json";
pub(super) const TASKS_FILE: &str = "tasks.json";
pub(super) const STATUS_FILE: &str = "status.json";
const DERIVED_VERSION: u32 = 1;

/// `metadata.json`: what lists and searches need of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metadata {
    pub v: u32,
    /// The seq of the last fact in it.
    pub seq: u64,
    pub id: String,
    pub title: String,
    /// A snapshot's name.
    pub name: Option<String>,
    /// The session it was copied from.
    pub from: Option<String>,
    /// `run`, `batch`, `fork`, `snapshot`.
    pub origin: String,
    pub workspace: String,
    /// RFC 3339.
    pub created_at: String,
    /// RFC 3339: when the last fact was written.
    pub updated_at: String,
    pub message_count: u64,
    pub goal: GoalState,
    pub usage: SessionUsage,
    /// Of the last run; absent while one runs, and when the last one died.
    pub outcome: Option<Outcome>,
}

/// Where the goal stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GoalState {
    pub name: String,
    /// sha256 of its text.
    pub digest: String,
    /// The first 1,000 characters of its text.
    pub objective: String,
    /// `running`, or the outcome's name.
    pub state: String,
    pub iteration: u64,
    /// Iterations without progress, in halves.
    pub no_progress_halves: u64,
    pub active_ms: u64,
    pub waited_ms: u64,
    pub limits: Option<Limits>,
    pub last_verdict: Option<Verdict>,
}

/// What the session has used, all runs and lanes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionUsage {
    pub calls: u64,
    pub input_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
    pub output_tokens: u64,
    /// Input of the agent's last call.
    pub last_prompt_tokens: u64,
    /// Calls that died with their run included, at their reservation.
    pub cost: Micros,
    /// Whether every model in use has a price.
    pub priced: bool,
    pub by_lane: UsageBy,
    pub by_model: UsageBy,
}

/// `status.json`: what a dashboard polls.
#[derive(Serialize)]
struct Status<'a> {
    v: u32,
    seq: u64,
    session: &'a str,
    run: &'a str,
    state: &'a str,
    iteration: u64,
    iterations: Option<u64>,
    steps: u64,
    calls: u64,
    cost: Micros,
    cost_limit: Option<Micros>,
    occupancy_tokens: Option<u64>,
    window_tokens: Option<u64>,
    /// What runs now.
    tool: Option<&'a str>,
    updated_at: &'a str,
}

#[derive(Serialize)]
struct Tasks<'a> {
    v: u32,
    seq: u64,
    #[serde(flatten)]
    graph: &'a TaskGraph,
}

/// The running totals behind the derived files: one cheap step a fact.
pub(super) struct Overview {
    metadata: Metadata,
    tasks: TaskGraph,
    run: String,
    steps: u64,
    occupancy_tokens: Option<u64>,
    window_tokens: Option<u64>,
    tool: Option<String>,
    /// Calls that left and are not settled yet, with their reservation.
    open: BTreeMap<(Lane, u64), (String, Micros)>,
    checked: bool,
}

impl Overview {
    pub(super) fn new(header: &Header) -> Overview {
        Overview {
            metadata: Metadata {
                v: DERIVED_VERSION,
                seq: 0,
                id: header.id.clone(),
                title: String::new(),
                name: None,
                from: None,
                origin: "run".to_owned(),
                workspace: header.workspace.clone(),
                created_at: header.created.clone(),
                updated_at: header.created.clone(),
                message_count: 0,
                goal: GoalState { state: "running".to_owned(), ..GoalState::default() },
                usage: SessionUsage { priced: true, ..SessionUsage::default() },
                outcome: None,
            },
            tasks: TaskGraph::default(),
            run: String::new(),
            steps: 0,
            occupancy_tokens: None,
            window_tokens: None,
            tool: None,
            open: BTreeMap::new(),
            checked: false,
        }
    }

    /// Whether a call or a check was ever made.
    pub(super) fn is_used(&self) -> bool {
        self.checked || self.metadata.usage.calls > 0 || !self.open.is_empty()
    }

    pub(super) fn is_ended(&self) -> bool {
        self.metadata.outcome.is_some()
    }

    pub(super) fn observe(&mut self, line: &Line) {
        self.metadata.seq = line.seq;
        self.metadata.updated_at.clone_from(&line.t);
        let (outcome, goal) = (&mut self.metadata.outcome, &mut self.metadata.goal);
        match &line.fact {
            Fact::Frozen(frozen) => {
                goal.name.clone_from(&frozen.goal_name);
                goal.digest.clone_from(&frozen.goal_digest);
                goal.objective = frozen.goal.chars().take(1_000).collect();
                self.metadata.title = frozen.title.clone().unwrap_or_else(|| title(&frozen.goal));
                let unpriced = |endpoint: &serde_json::Value| endpoint.get("price").is_none_or(|price| price.is_null());
                self.metadata.usage.priced = !frozen.endpoints.values().any(unpriced);
            }
            Fact::Run(run) => {
                *outcome = None;
                goal.state = "running".to_owned();
                goal.limits = Some(run.limits.clone());
                self.run.clone_from(&run.run);
                self.charge_open();
            }
            Fact::End(end) => {
                *outcome = Some(end.outcome);
                goal.state = end.outcome.name().to_owned();
                self.tool = None;
                self.charge_open();
            }
            Fact::Message(_) => self.metadata.message_count += 1,
            Fact::Tasks { graph } => self.tasks = graph.clone(),
            Fact::Verdict { verdict } => goal.last_verdict = Some(verdict.clone()),
            Fact::Checks { .. } => self.checked = true,
            Fact::Iteration { iteration } => goal.iteration = *iteration,
            Fact::Progress(progress) => goal.no_progress_halves = progress.stall_halves,
            Fact::Elapsed { active_ms, waited_ms } => (goal.active_ms, goal.waited_ms) = (*active_ms, *waited_ms),
            Fact::Call(call) => {
                self.steps += u64::from(call.lane == Lane::Agent);
                self.open.insert((call.lane, call.n), (call.model.clone(), call.reserved));
            }
            Fact::Attempt { lane, n, attempt, .. } => {
                if let Some((_, reserved)) = self.open.get_mut(&(*lane, *n)) {
                    *reserved = reserved.saturating_add(attempt.cost);
                }
            }
            Fact::Settled(settled) => {
                self.open.remove(&(settled.lane, settled.n));
                let usage = settled.usage.clone().unwrap_or_default();
                if settled.lane == Lane::Agent {
                    self.occupancy_tokens = settled.occupancy_tokens.or(self.occupancy_tokens);
                    self.window_tokens = settled.window_tokens.or(self.window_tokens);
                    if settled.usage.is_some() {
                        self.metadata.usage.last_prompt_tokens = usage.input_tokens;
                    }
                }
                let row = UsageRow { calls: 1, usage, cost: settled.cost };
                self.metadata.usage.add(settled.lane, &settled.model, &row);
            }
            Fact::ToolStarted(start) => self.tool = Some(format!("{} {}", start.tool, start.summary)),
            Fact::Tool(_) => self.tool = None,
            _ => {}
        }
    }

    /// What left and was never settled when its run ended or died is charged what was reserved for it.
    fn charge_open(&mut self) {
        for ((lane, _), (model, reserved)) in std::mem::take(&mut self.open) {
            let row = UsageRow { calls: 1, cost: reserved, ..UsageRow::default() };
            self.metadata.usage.add(lane, &model, &row);
        }
    }

    /// Whether the derived files of a session stand where the log stands.
    pub(super) fn is_saved(&self, dir: &Path) -> Result<bool, SessionError> {
        #[derive(Deserialize)]
        struct Stand {
            seq: u64,
        }
        for name in [METADATA_FILE, TASKS_FILE, STATUS_FILE] {
            let stand = read_optional(&dir.join(name))?;
            let stand = stand.and_then(|bytes| serde_json::from_slice::<Stand>(&bytes).ok());
            if stand.is_none_or(|stand| stand.seq != self.metadata.seq) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes all three, each whole. `sync` at the end of a run.
    pub(super) fn save(&self, dir: &Path, sync: bool) -> Result<(), SessionError> {
        let Metadata { seq, id, goal, usage, updated_at, .. } = &self.metadata;
        let status = Status {
            v: DERIVED_VERSION,
            seq: *seq,
            session: id,
            run: &self.run,
            state: &goal.state,
            iteration: goal.iteration,
            iterations: goal.limits.as_ref().map(|limits| limits.iterations),
            steps: self.steps,
            calls: usage.calls,
            cost: usage.cost,
            cost_limit: goal.limits.as_ref().and_then(|limits| limits.cost),
            occupancy_tokens: self.occupancy_tokens,
            window_tokens: self.window_tokens,
            tool: self.tool.as_deref(),
            updated_at,
        };
        let tasks = Tasks { v: DERIVED_VERSION, seq: *seq, graph: &self.tasks };
        write_json(&dir.join(TASKS_FILE), &tasks, sync)?;
        write_json(&dir.join(STATUS_FILE), &status, sync)?;
        write_json(&dir.join(METADATA_FILE), &self.metadata, sync)
    }
}

impl SessionUsage {
    fn add(&mut self, lane: Lane, model: &str, row: &UsageRow) {
        let usage = &row.usage;
        let written = usage.cache_write_tokens.saturating_add(usage.cache_write_1h_tokens);
        self.calls += row.calls;
        self.input_tokens = self.input_tokens.saturating_add(usage.input_tokens);
        self.cache_read_tokens = self.cache_read_tokens.saturating_add(usage.cache_read_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(written);
        self.output_tokens = self.output_tokens.saturating_add(usage.output_tokens);
        self.cost = self.cost.saturating_add(row.cost);
        for total in [
            self.by_lane.entry(lane.name().to_owned()).or_default(),
            self.by_model.entry(model.to_owned()).or_default(),
        ] {
            total.calls += row.calls;
            total.usage.add(&row.usage);
            total.cost = total.cost.saturating_add(row.cost);
        }
    }
}

/// Pretty JSON with a final newline, for people who look.
pub(super) fn write_json<T: Serialize>(path: &Path, value: &T, sync: bool) -> Result<(), SessionError> {
    let mut content =
        serde_json::to_vec_pretty(value).map_err(|error| SessionError::io("encode", path)(error.into()))?;
    content.push(b'\n');
    write_whole(path, &content, sync)
}

/// A session's title: the first line of the goal that is not empty, whitespace folded, at most 60 characters with
/// the «…» of a longer one.
pub fn title(goal: &str) -> String {
    const MOST_CHARS: usize = 60;
    let line = goal.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let folded = line.split_whitespace().collect::<Vec<_>>().join(" ");
    if folded.chars().count() <= MOST_CHARS {
        return folded;
    }
    let start: String = folded.chars().take(MOST_CHARS - 1).collect();
    format!("{}…", start.trim_end())
}
