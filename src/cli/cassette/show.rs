//! `spettro cassette show`: what is recorded, for people and for programs.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;

use crate::cassette::{Exchange, Head, Tape};
use crate::cli::failure::Failure;
use crate::cli::sessions::plain;
use crate::event::{Lane, Outcome};
use crate::report::{count, signal_words};
use crate::session::{Block, Fact};

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
                writeln!(out, "  {name}{tries}: {}", plain(&what, 160))?;
            }
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
