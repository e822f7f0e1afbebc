//! What came of a retake beside what had come of the session: tools, outcome, cost.

use std::fmt::Write;

use serde::Serialize;
use similar::{ChangeTag, TextDiff};

use crate::cassette::Tape;
use crate::event::{Lane, Micros, Outcome, RunResult, ToolStatus};
use crate::session::{Fact, Line};

/// The version of the report.
const REPORT_VERSION: u32 = 1;

/// What a session was run against.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Against {
    /// The replies of a cassette.
    Cassette(String),
    /// A live model.
    Model(String),
}

/// A tool call that came to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Done {
    pub tool: String,
    /// At most 120 characters: the command, the path.
    pub summary: String,
    pub status: ToolStatus,
}

/// One of the two.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Side {
    pub model: String,
    /// `null`: it never ended.
    pub outcome: Option<Outcome>,
    pub iterations: u64,
    /// Agent calls.
    pub steps: u64,
    pub cost_usd: f64,
    pub tools: Vec<Done>,
    /// Why it ended so, where an error was the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip)]
    pub unsaid: u64,
    #[serde(skip)]
    pub other_requests: u64,
    #[serde(skip)]
    cost: Micros,
}

impl Side {
    /// From the facts of a session.
    pub fn of(facts: &[Line]) -> Side {
        let mut side = Side::default();
        for line in facts {
            match &line.fact {
                Fact::Run(run) => side.model.clone_from(&run.model),
                Fact::Iteration { iteration } => side.iterations = *iteration,
                Fact::Call(call) if call.lane == Lane::Agent => side.steps += 1,
                Fact::Settled(settled) => side.cost = settled.total_cost,
                Fact::Tool(done) => side.tools.push(Done {
                    tool: done.tool.clone(),
                    summary: done.summary.clone(),
                    status: done.status,
                }),
                Fact::End(end) => {
                    side.outcome = Some(end.outcome);
                    side.error = end.result.error.as_ref().map(|error| error.message.clone());
                }
                _ => {}
            }
        }
        side.cost_usd = side.cost.dollars();
        side
    }
}

/// A session and its retake.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RetakeReport {
    pub v: u32,
    /// Of the recorded session.
    pub session: String,
    pub against: Against,
    pub same_tools: bool,
    pub same_outcome: bool,
    pub original: Side,
    pub now: Side,
    /// Requests that differ from those that the replies were recorded for; reported, not enforced.
    pub other_requests: u64,
    /// Steering that was not said again, because the run was over before.
    pub unsaid: u64,
}

pub fn report(tape: &Tape, against: Against, mut now: Side, result: &RunResult) -> RetakeReport {
    // A run that never began has no end in its log.
    now.outcome = now.outcome.or(result.outcome);
    now.error = now.error.or_else(|| result.error.as_ref().map(|error| error.message.clone()));
    let original = Side::of(tape.facts());
    RetakeReport {
        v: REPORT_VERSION,
        session: tape.name().to_owned(),
        against,
        same_tools: original.tools == now.tools,
        same_outcome: original.outcome == now.outcome,
        other_requests: now.other_requests,
        unsaid: now.unsaid,
        original,
        now,
    }
}

impl RetakeReport {
    /// The same when tools and outcome are; what ended it from outside stands for itself.
    pub fn outcome(&self) -> Outcome {
        match self.now.outcome {
            Some(outcome) if outcome.signal().is_some() => outcome,
            _ if self.same_tools && self.same_outcome => Outcome::Met,
            _ => Outcome::Diverged,
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let against = match &self.against {
            Against::Cassette(file) => format!("the replies of {file}"),
            Against::Model(model) => format!("{model}, live"),
        };
        let same = |same: bool| if same { "the same" } else { "another" };
        let (tools, outcome) = (same(self.same_tools), same(self.same_outcome));
        let _ = writeln!(out, "{} against {against}: {tools} tool sequence, {outcome} outcome", self.session);
        let row = |out: &mut String, what: &str, original: &str, now: &str| {
            let _ = writeln!(out, "  {what:<12} {original:<24} {now}");
        };
        let (one, two) = (&self.original, &self.now);
        let ended = |side: &Side| side.outcome.map_or("none", Outcome::name);
        row(&mut out, "", "original", "now");
        row(&mut out, "model", &one.model, &two.model);
        row(&mut out, "outcome", ended(one), ended(two));
        row(&mut out, "iterations", &one.iterations.to_string(), &two.iterations.to_string());
        row(&mut out, "steps", &one.steps.to_string(), &two.steps.to_string());
        row(&mut out, "tool calls", &one.tools.len().to_string(), &two.tools.len().to_string());
        row(&mut out, "cost", &format!("${}", one.cost), &format!("${}", two.cost));
        let lines = |side: &Side| side.tools.iter().map(line).collect::<String>();
        let (before, after) = (lines(one), lines(two));
        if !(before.is_empty() && after.is_empty()) {
            let _ = writeln!(out, "tools:");
        }
        for change in TextDiff::from_lines(&before, &after).iter_all_changes() {
            let sign = match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            };
            let _ = writeln!(out, "{sign} {}", change.value().trim_end_matches('\n'));
        }
        if let Some(error) = &two.error {
            let _ = writeln!(out, "error: {}", one_line(error));
        }
        if self.other_requests > 0 {
            let _ = writeln!(
                out,
                "note: {} requests are not those that the replies were recorded for",
                self.other_requests
            );
        }
        if self.unsaid > 0 {
            let _ = writeln!(out, "note: {} steering messages were not said: the run was over before", self.unsaid);
        }
        out
    }
}

fn line(done: &Done) -> String {
    format!("{} {} {}\n", done.tool, one_line(&done.summary), done.status.name())
}

/// What models and tools wrote must not steer a terminal.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
