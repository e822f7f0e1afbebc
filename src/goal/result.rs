//! The result object, made from what the run knows; the same function serves every end, and the start.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use super::failure::Cause;
use super::file::Problem;
use super::iterate::State;
use super::watch::Timer;
use crate::event::{
    Changes, Commands, Compactions, GoalRef, Lane, Leaked, Limits, Outcome, Paths, RESULT_VERSION, ResultError,
    RunResult, RunUsage,
};
use crate::model::Gateway;

/// Totals of the session when this run began.
#[derive(Debug, Clone, Copy, Default)]
pub struct Before {
    pub calls: u64,
    pub tokens: u64,
    pub cost: crate::event::Micros,
    pub iterations: u64,
    pub steps: u64,
}

impl Before {
    pub fn now(gateway: &Gateway, iterations: u64) -> Before {
        gateway.ledger(|ledger| Before {
            calls: ledger.all_calls(),
            tokens: ledger.tokens(),
            cost: ledger.spent(),
            iterations,
            steps: ledger.calls(Lane::Agent),
        })
    }
}

/// What does not change during a run.
#[derive(Debug, Clone)]
pub struct Identity {
    pub run: String,
    pub session: String,
    pub session_dir: std::path::PathBuf,
    pub workspace: String,
    /// The private copy, with `workspace_mode: copy`.
    pub copy: Option<String>,
    pub goal: GoalRef,
    pub model: String,
    pub judge_model: Option<String>,
    pub recorded: bool,
    pub sandbox: String,
    pub limits: Limits,
    pub before: Before,
    pub compactions: Rc<Cell<Compactions>>,
    /// The command that goes on with the session; empty when it is not kept.
    pub resume: Vec<String>,
}

/// How the run ended; absent while it runs.
pub struct Ending<'a> {
    pub outcome: Outcome,
    pub cause: Option<&'a Cause>,
    pub changes: Option<Changes>,
    pub leaked: Vec<Leaked>,
}

/// The result of a run, finished or still running.
pub fn result(
    identity: &Identity,
    gateway: &Gateway,
    timer: &Timer,
    state: &State,
    ending: Option<Ending<'_>>,
) -> RunResult {
    let now = Before::now(gateway, state.iteration);
    let before = identity.before;
    let (by_lane, by_model, unreported, peak) = gateway.ledger(|ledger| {
        (ledger.by_lane().clone(), ledger.by_model().clone(), ledger.unreported().to_vec(), ledger.peak_occupancy())
    });
    let outcome = ending.as_ref().map(|ending| ending.outcome);
    let cause = ending.as_ref().and_then(|ending| ending.cause).filter(|cause| Some(cause.outcome) == outcome);
    let dir = &identity.session_dir;
    let finished = outcome.is_some();
    // Without a command that resumes it, a session is not kept.
    let kept = !identity.resume.is_empty();
    let resumable = kept && outcome != Some(Outcome::Met);
    let (changes, leaked) = ending.map_or((None, Vec::new()), |ending| (ending.changes, ending.leaked));
    RunResult {
        v: RESULT_VERSION,
        state: if finished { "finished" } else { "running" }.to_owned(),
        outcome,
        exit_code: outcome.map(Outcome::code),
        retryable: cause.map_or(outcome.is_some_and(Outcome::retryable), |cause| cause.retryable),
        retry_after_s: cause.and_then(|cause| cause.retry_after).map(|wait| wait.as_secs()),
        error: cause.map(|cause| ResultError { message: cause.message.clone(), hint: cause.hint.clone() }),
        problems: Vec::new(),
        run_id: identity.run.clone(),
        session_id: Some(identity.session.clone()),
        goal: Some(identity.goal.clone()),
        workspace: Some(identity.workspace.clone()),
        model: Some(identity.model.clone()),
        judge_model: identity.judge_model.clone(),
        recorded_model: identity.recorded,
        verdict: state.verdict.clone(),
        checks: state.checks.clone(),
        result: state.summary.clone().or_else(|| Some(state.last_text.clone())).filter(|text| !text.is_empty()),
        iterations: state.iteration,
        steps: now.steps,
        duration_ms: millis(timer.run()),
        active_ms: millis(timer.active()),
        waited_ms: millis(timer.waited()),
        total_cost_usd: now.cost.dollars(),
        cost_usd: by_lane.iter().map(|(lane, row)| (lane.clone(), row.cost.dollars())).collect::<BTreeMap<_, _>>(),
        run_usage: RunUsage {
            calls: now.calls - before.calls,
            tokens: now.tokens - before.tokens,
            cost: now.cost.saturating_sub(before.cost),
            iterations: now.iterations - before.iterations,
            steps: now.steps - before.steps,
        },
        usage_by_lane: by_lane,
        usage_by_model: by_model,
        unreported_calls: unreported,
        peak_occupancy_tokens: peak,
        compactions: identity.compactions.get(),
        limits: Some(identity.limits.clone()),
        limit_hit: cause
            .and_then(|cause| cause.limit.clone())
            .or_else(|| state.limit_hit.clone())
            .filter(|_| matches!(outcome, Some(Outcome::CostLimit | Outcome::TimeLimit | Outcome::Unmet))),
        sandbox: identity.sandbox.clone(),
        changes,
        memory_saved: Vec::new(),
        leaked,
        paths: kept.then(|| Paths {
            session: shown(dir),
            result: shown(&dir.join("result.json")),
            summary: shown(&dir.join("summary.md")),
            events: shown(&dir.join("events.jsonl")),
            copy: identity.copy.clone(),
        }),
        copy: identity.copy.clone().filter(|_| !kept),
        commands: Commands {
            resume: resumable.then(|| identity.resume.clone()),
            export: of_session(identity, &["cassette", "pack"]).filter(|_| finished && peak > 0),
            replay: of_session(identity, &["replay"]).filter(|_| finished && peak > 0),
        },
    }
}

/// A verb's command about the session, where that is kept: what stands behind `spettro run --resume` names it.
fn of_session(identity: &Identity, verb: &[&str]) -> Option<Vec<String>> {
    let named = identity.resume.get(3..).filter(|named| !named.is_empty())?;
    let words = ["spettro"].iter().chain(verb).map(|word| (*word).to_owned());
    Some(words.chain(named.iter().cloned()).collect())
}

/// The result of a run that ended before it had a session.
pub fn early(run: &str, outcome: Outcome, message: String, hint: Option<String>) -> RunResult {
    RunResult {
        v: RESULT_VERSION,
        state: "finished".to_owned(),
        outcome: Some(outcome),
        exit_code: Some(outcome.code()),
        retryable: outcome.retryable(),
        retry_after_s: None,
        error: Some(ResultError { message, hint }),
        problems: Vec::new(),
        run_id: run.to_owned(),
        session_id: None,
        goal: None,
        workspace: None,
        model: None,
        judge_model: None,
        recorded_model: false,
        verdict: None,
        checks: Vec::new(),
        result: None,
        iterations: 0,
        steps: 0,
        duration_ms: 0,
        active_ms: 0,
        waited_ms: 0,
        total_cost_usd: 0.0,
        cost_usd: BTreeMap::new(),
        run_usage: RunUsage::default(),
        usage_by_lane: BTreeMap::new(),
        usage_by_model: BTreeMap::new(),
        unreported_calls: Vec::new(),
        peak_occupancy_tokens: 0,
        compactions: Compactions::default(),
        limits: None,
        limit_hit: None,
        sandbox: String::new(),
        changes: None,
        memory_saved: Vec::new(),
        leaked: Vec::new(),
        paths: None,
        copy: None,
        commands: Commands::default(),
    }
}

/// The result of a run whose goal is wrong: each problem as it is, and all of them as one error.
pub fn refused(run: &str, problems: &[Problem]) -> RunResult {
    let lines: Vec<String> = problems.iter().map(Problem::line).collect();
    let hint = match problems {
        [problem] => problem.hint.clone(),
        _ => None,
    };
    RunResult {
        problems: problems.iter().map(Into::into).collect(),
        ..early(run, Outcome::Usage, lines.join("\n"), hint)
    }
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
