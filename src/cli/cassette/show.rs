//! `spettro cassette show`: what is recorded, for people and for programs.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;

use crate::cassette::{Exchange, Head, Tape};
use crate::cli::failure::Failure;
use crate::cli::sessions::plain;
use crate::event::{Compactions, CostKnown, Lane, Micros, Outcome};
use crate::report::{count, signal_words};
use crate::session::{Block, Fact, Line, Settled, SummaryBy};

/// What `--json` prints.
#[derive(Serialize)]
struct Shown<'a> {
    head: &'a Head,
    /// Whether it ends as a whole one does. A session's folder has no end.
    complete: bool,
    facts: usize,
    lanes: BTreeMap<&'static str, LaneShown>,
    spooled: usize,
    base_files: Option<usize>,
    outcome: Option<Outcome>,
    /// Absent with replies only.
    #[serde(skip_serializing_if = "Option::is_none")]
    totals: Option<Totals>,
}

/// What a session came to: money, compactions, jobs.
#[derive(Default, Serialize)]
struct Totals {
    /// Dollars, by lane and all together.
    cost_usd: BTreeMap<&'static str, f64>,
    total_cost_usd: f64,
    compactions: Compactions,
    jobs: Vec<JobShown>,
    #[serde(skip)]
    spent: BTreeMap<&'static str, Micros>,
    #[serde(skip)]
    total: Micros,
}

/// A background job.
#[derive(Serialize)]
struct JobShown {
    job: String,
    command: String,
    /// How it ended; absent when that is not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
}

impl Totals {
    fn of(facts: &[Line]) -> Totals {
        let mut totals = Totals::default();
        for line in facts {
            match &line.fact {
                Fact::Settled(settled) => {
                    let spent = totals.spent.entry(settled.lane.name()).or_default();
                    *spent = spent.saturating_add(settled.cost);
                    // The session's own: a call that nobody lived to settle is in it.
                    totals.total = settled.total_cost;
                }
                Fact::Prune(_) => totals.compactions.pruned += 1,
                Fact::Compaction(done) => match done.by {
                    SummaryBy::Model => {
                        totals.compactions.summarized += 1;
                        totals.compactions.paused = false;
                    }
                    SummaryBy::Extract => totals.compactions.extracted += 1,
                },
                Fact::CompactionFailed { .. } => totals.compactions.failed += 1,
                Fact::CompactionPaused { .. } => totals.compactions.paused = true,
                Fact::JobStarted { job, command } => totals.jobs.push(JobShown {
                    job: job.clone(),
                    command: command.clone(),
                    state: None,
                    duration_ms: None,
                }),
                Fact::JobExited { job, state, duration_ms } => {
                    // A number is given once in a session.
                    if let Some(known) = totals.jobs.iter_mut().find(|known| known.job == *job) {
                        (known.state, known.duration_ms) = (Some(state.clone()), Some(*duration_ms));
                    }
                }
                _ => {}
            }
        }
        totals.cost_usd = totals.spent.iter().map(|(lane, spent)| (*lane, spent.dollars())).collect();
        totals.total_cost_usd = totals.total.dollars();
        totals
    }

    fn text(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let lanes: Vec<String> = self.spent.iter().map(|(lane, spent)| format!("{lane} ${spent}")).collect();
        writeln!(out, "cost: ${} ({})", self.total, lanes.join(", "))?;
        let Compactions { pruned, summarized, extracted, failed, paused } = self.compactions;
        if self.compactions != Compactions::default() {
            let paused = if paused { ", paused" } else { "" };
            let by_whom = format!("{summarized} summarized, {extracted} extracted");
            writeln!(out, "compactions: {pruned} pruned, {by_whom}, {failed} failed{paused}")?;
        }
        if !self.jobs.is_empty() {
            writeln!(out, "jobs: {}", self.jobs.len())?;
        }
        Ok(())
    }
}

#[derive(Serialize)]
struct LaneShown {
    calls: usize,
    attempts: usize,
    /// Calls whose reply arrived whole.
    replies: usize,
    /// Of the largest request's rest; absent when requests are not recorded.
    largest_request_bytes: Option<u64>,
    reply_bytes: u64,
}

fn lane(calls: &[Exchange]) -> LaneShown {
    let attempts = || calls.iter().flat_map(|call| &call.attempts);
    LaneShown {
        calls: calls.len(),
        attempts: attempts().count(),
        replies: calls.iter().filter(|call| call.reply().is_some()).count(),
        largest_request_bytes: attempts().filter_map(|attempt| Some(attempt.request.as_ref()?.rest.len())).max(),
        reply_bytes: attempts().map(|attempt| attempt.body.len() as u64).sum(),
    }
}

/// One object.
pub fn json(tape: &Tape, out: &mut dyn Write) -> Result<(), Failure> {
    let shown = Shown {
        head: tape.head(),
        complete: tape.end().is_some(),
        facts: tape.facts().len(),
        lanes: tape.lanes().map(|(name, calls)| (name.name(), lane(calls))).collect(),
        spooled: tape.spooled().len(),
        base_files: tape.base().map(|base| base.files.len()),
        outcome: tape.outcome(),
        totals: tape.is_session().then(|| Totals::of(tape.facts())),
    };
    let text = serde_json::to_string_pretty(&shown).map_err(|error| Failure::new(Outcome::Internal, error))?;
    writeln!(out, "{text}")?;
    Ok(())
}

/// Head, lanes, and the run step by step.
pub fn text(tape: &Tape, out: &mut dyn Write) -> Result<(), Failure> {
    let head = tape.head();
    writeln!(out, "{}: {}", plain(&head.goal.name, 64), plain(head.goal.text.trim(), 200))?;
    writeln!(out, "{}, by spettro {}, format {}", plain(&head.provenance, 200), plain(&head.spettro, 32), head.format)?;
    if let Some(source) = &head.source {
        let commit = source.git_commit.as_deref().map(|commit| format!(" at {}", plain(commit, 12)));
        let (workspace, start) = (plain(&source.workspace, 200), plain(&source.clock_start, 32));
        writeln!(out, "{workspace}{} from {start}", commit.unwrap_or_default())?;
        if !source.redacted.is_empty() {
            writeln!(out, "values replaced: {}", plain(&source.redacted.join(", "), 400))?;
        }
    }
    writeln!(out, "holds {}", head.parts.join(", "))?;
    for (name, calls) in tape.lanes() {
        let shown = lane(calls);
        let model = head.lanes.get(name.name()).and_then(|lane| lane.get("model")?.as_str()).unwrap_or("?");
        let (calls, attempts) = (count(shown.calls as u64, "call"), count(shown.attempts as u64, "attempt"));
        let replies = if shown.replies == 1 { "1 reply".to_owned() } else { format!("{} replies", shown.replies) };
        writeln!(out, "{name}: {}, {calls}, {attempts}, {replies}", plain(model, 100))?;
    }
    let outcome = tape.outcome().map_or_else(|| "none yet".to_owned(), |outcome| outcome.name().to_owned());
    writeln!(out, "outcome: {outcome}")?;
    if tape.is_session() {
        Totals::of(tape.facts()).text(out)?;
        return steps(tape, out);
    }
    for (name, calls) in tape.lanes() {
        for call in calls {
            writeln!(out, "  {name} {}: {} bytes", call.n, call.attempts.iter().map(|a| a.body.len()).sum::<usize>())?;
        }
    }
    Ok(())
}

fn steps(tape: &Tape, out: &mut dyn Write) -> Result<(), Failure> {
    let mut step = 0;
    for line in tape.facts() {
        match &line.fact {
            Fact::Run(run) => {
                writeln!(out, "{} {}", if run.resumed { "resumed" } else { "run" }, plain(&run.run, 40))?;
            }
            Fact::Iteration { iteration } => writeln!(out, "iteration {iteration}")?,
            Fact::Settled(settled) => {
                let calls = tape.exchanges(settled.lane);
                let said = calls.iter().find(|call| call.n == settled.n).and_then(|call| call.said.as_deref());
                let what = settled.error.clone().unwrap_or_else(|| words(said.unwrap_or_default()));
                let name = match settled.lane {
                    Lane::Agent => {
                        step += 1;
                        format!("step {step}")
                    }
                    lane => lane.to_string(),
                };
                let tries = match settled.attempts.len() {
                    0 | 1 => String::new(),
                    tries => format!(" ({tries} attempts)"),
                };
                writeln!(out, "  {name}{tries}, {}: {}", cost(settled), plain(&what, 160))?;
            }
            Fact::Prune(prune) => {
                let (count, tokens) = (prune.edits.len(), sizes(prune.before_tokens, prune.after_tokens));
                writeln!(out, "  pruned: {count} edits, {tokens}")?;
            }
            Fact::Compaction(done) => {
                let by = match done.by {
                    SummaryBy::Model => "summarized",
                    SummaryBy::Extract => "extracted",
                };
                let forced = if done.forced { ", forced" } else { "" };
                writeln!(out, "  {by}: {}{forced}", sizes(done.before_tokens, done.after_tokens))?;
            }
            Fact::CompactionFailed { reason, .. } => writeln!(out, "  no summary: {}", plain(reason, 160))?,
            Fact::CompactionPaused { .. } => writeln!(out, "  summaries paused")?,
            Fact::JobStarted { job, command } => writeln!(out, "    {job} started: {}", plain(command, 120))?,
            Fact::JobExited { job, state, .. } => writeln!(out, "    {job} {}", plain(state, 100))?,
            Fact::Tool(done) => {
                let (tool, status, summary) = (&done.tool, done.status.name(), plain(&done.summary, 120));
                writeln!(out, "    {tool} {status}: {summary}")?;
            }
            Fact::Checks { results, .. } => {
                for check in results {
                    writeln!(out, "  check {} {}", plain(&check.name, 64), check.status.name())?;
                }
            }
            Fact::Verdict { verdict } => {
                writeln!(out, "  verdict {}: {}", verdict.kind.name(), plain(&verdict.reason, 160))?;
            }
            Fact::Interrupted { reason } => writeln!(out, "  interrupted: {}", plain(&signal_words(reason), 100))?,
            Fact::End(end) => writeln!(out, "end: {}", end.outcome.name())?,
            _ => {}
        }
    }
    Ok(())
}

/// What a call cost, and how that is known when the provider did not say it.
fn cost(settled: &Settled) -> String {
    let doubt = match settled.known {
        CostKnown::Reported | CostKnown::Free => "",
        CostKnown::Reservation => " (reserved)",
        CostKnown::UpperBound => " (at most)",
    };
    format!("${}{doubt}", settled.cost)
}

fn sizes(before: u64, after: u64) -> String {
    format!("{before} to {after} tokens")
}

/// What a reply said: its text, else what it asked for.
fn words(blocks: &[Block]) -> String {
    let text = blocks.iter().find_map(|block| match block {
        Block::Text { text } if !text.trim().is_empty() => Some(text.trim().to_owned()),
        _ => None,
    });
    let calls = blocks.iter().filter_map(|block| match block {
        Block::Call { name, .. } => Some(name.as_str()),
        _ => None,
    });
    text.unwrap_or_else(|| calls.collect::<Vec<_>>().join(", "))
}
