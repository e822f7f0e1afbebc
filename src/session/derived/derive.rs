//! Events from facts: the same ones live and when `events.jsonl` is rebuilt. Pure.

use std::collections::BTreeMap;

use crate::event::{CompactionStage, Event, Lane, ToolStatus};
use crate::session::facts::{Compaction, Fact, Line, Message, Origin, RunStart, Settled, SummaryBy, ToolDone};

/// What earlier facts of the session say about later events.
#[derive(Debug, Clone, Default)]
pub struct DeriveState {
    /// The goal's name.
    goal: String,
    /// `limits.iterations` of the present run.
    iterations: u64,
    /// Calls that were refused and whose message, which says why, is still to come: call id → tool.
    refused: BTreeMap<String, String>,
}

/// The events that one fact gives, in order. Facts must come in the order of the log, each once; `frozen` before
/// the first `run`, whose event names the goal.
pub fn derive(line: &Line, state: &mut DeriveState) -> Vec<Event> {
    match &line.fact {
        Fact::Frozen(frozen) => {
            state.goal.clone_from(&frozen.goal_name);
            Vec::new()
        }
        Fact::Run(run) => {
            state.iterations = run.limits.iterations;
            vec![run_started(run, &state.goal)]
        }
        Fact::Iteration { iteration } => {
            vec![Event::IterationStarted { iteration: *iteration, of: state.iterations }]
        }
        Fact::Attempt { lane, n, number, attempt } => vec![Event::AttemptFailed {
            lane: *lane,
            n: *n,
            attempt: *number,
            error: attempt.error.clone().unwrap_or_default(),
            status: attempt.status,
            wait_ms: attempt.wait_ms,
        }],
        Fact::Settled(settled) => vec![call_finished(settled)],
        Fact::ToolStarted(start) => vec![Event::ToolStarted {
            call_id: start.call_id.clone(),
            tool: start.tool.clone(),
            summary: start.summary.clone(),
        }],
        Fact::Tool(done) if done.status == ToolStatus::Refused => {
            state.refused.insert(done.call_id.clone(), done.tool.clone());
            Vec::new()
        }
        Fact::Tool(done) => vec![tool_finished(done)],
        Fact::Message(Message::Tool { call_id, text, .. }) => match state.refused.remove(call_id) {
            Some(tool) => vec![Event::ToolDenied { call_id: call_id.clone(), tool, reason: first_line(text) }],
            None => Vec::new(),
        },
        Fact::Message(Message::User { origin: Origin::Steer, text }) => {
            vec![Event::SteerDelivered { text: text.clone() }]
        }
        Fact::Tasks { graph } => vec![Event::TaskChanged { tasks: graph.tasks.clone() }],
        Fact::Checks { iteration, results } => {
            results.iter().map(|check| Event::CheckFinished { iteration: *iteration, check: check.clone() }).collect()
        }
        Fact::Verdict { verdict } => vec![Event::Verdict { verdict: verdict.clone(), of: state.iterations }],
        Fact::JobStarted { job, command } => {
            vec![Event::JobStarted { job: job.clone(), command: command.clone() }]
        }
        Fact::JobExited { job, state, duration_ms } => {
            vec![Event::JobFinished { job: job.clone(), state: state.clone(), duration_ms: *duration_ms }]
        }
        Fact::Notice { code, text } => vec![Event::Notice { code: code.clone(), text: text.clone() }],
        Fact::Interrupted { reason } => vec![Event::RunInterrupted { reason: reason.clone() }],
        Fact::End(end) => vec![Event::RunFinished { result: end.result.clone() }],
        Fact::Call(call) if call.lane == Lane::Summarizer => {
            vec![Event::CompactionStarted { n: call.n, input_tokens: call.estimate_tokens }]
        }
        Fact::Prune(prune) => vec![Event::CompactionFinished {
            stage: CompactionStage::Prune,
            before_tokens: prune.before_tokens,
            after_tokens: prune.after_tokens,
            pruned_tokens: prune.before_tokens.saturating_sub(prune.after_tokens),
            summarized_tokens: 0,
            forced: false,
        }],
        Fact::Compaction(compaction) => vec![compacted(compaction)],
        Fact::CompactionFailed { reason, failures, of } => {
            vec![Event::CompactionFailed { reason: reason.clone(), failures: *failures, of: *of }]
        }
        Fact::CompactionPaused { reason } => vec![Event::CompactionPaused { reason: reason.clone() }],
        Fact::Message(_)
        | Fact::Recut { .. }
        | Fact::Call(_)
        | Fact::Turn { .. }
        | Fact::Progress(_)
        | Fact::Baseline { .. }
        | Fact::Delivery { .. }
        | Fact::Command(_)
        | Fact::Jobs { .. }
        | Fact::Listing { .. }
        | Fact::WireCut { .. }
        | Fact::Guarded(_)
        | Fact::Effects(_)
        | Fact::Halted { .. }
        | Fact::Steer { .. }
        | Fact::Learned { .. }
        | Fact::Elapsed { .. }
        | Fact::Tip { .. }
        | Fact::Unknown(_) => Vec::new(),
    }
}

fn run_started(run: &RunStart, goal: &str) -> Event {
    Event::RunStarted {
        version: run.version.clone(),
        goal: goal.to_owned(),
        config_digest: run.config_digest.clone(),
        workspace: run.workspace.clone(),
        model: run.model.clone(),
        judge_model: run.judge_model.clone(),
        limits: run.limits.clone(),
        endpoints: run.endpoints.clone(),
        sandbox: run.sandbox.clone(),
        resumed: run.resumed,
        recorded: run.recorded,
    }
}

fn compacted(compaction: &Compaction) -> Event {
    let freed = compaction.before_tokens.saturating_sub(compaction.after_tokens);
    let pruned_tokens = compaction.pruned_tokens.min(freed);
    Event::CompactionFinished {
        stage: match compaction.by {
            SummaryBy::Model => CompactionStage::Summary,
            SummaryBy::Extract => CompactionStage::Extract,
        },
        before_tokens: compaction.before_tokens,
        after_tokens: compaction.after_tokens,
        pruned_tokens,
        summarized_tokens: freed - pruned_tokens,
        forced: compaction.forced,
    }
}

fn call_finished(settled: &Settled) -> Event {
    Event::CallFinished {
        lane: settled.lane,
        n: settled.n,
        model: settled.model.clone(),
        usage: settled.usage.clone(),
        cost: settled.cost,
        known: settled.known,
        total_cost: settled.total_cost,
        occupancy_tokens: settled.occupancy_tokens,
        window_tokens: settled.window_tokens,
        duration_ms: settled.duration_ms,
    }
}

fn tool_finished(done: &ToolDone) -> Event {
    Event::ToolFinished {
        call_id: done.call_id.clone(),
        tool: done.tool.clone(),
        summary: done.summary.clone(),
        status: done.status,
        duration_ms: done.duration_ms,
        output_bytes: done.output_bytes,
        spool: done.spool,
    }
}

/// Why a call was refused, for one line: the first of the message that the model got, at most 200 characters.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(200).collect()
}
