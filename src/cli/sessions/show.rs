//! `spettro sessions show`: an outline of what happened.

use std::io::Write;
use std::path::Path;

use serde::Serialize;

use super::plain;
use crate::cli::failure::Failure;
use crate::event::Lane;
use crate::report::{count, signal_words};
use crate::session::{Fact, SummaryBy};

/// What `--json` prints.
#[derive(Serialize)]
struct Shown {
    session_id: String,
    workspace: String,
    outline: Vec<Row>,
}

/// One line of the outline: which fact it is about, and when that was.
#[derive(Serialize)]
struct Row {
    seq: u64,
    t: String,
    text: String,
}

/// Outlines a session.
///
/// # Errors
/// A log that cannot be read.
pub fn show(dir: &Path, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let (header, lines, _) = super::read(dir)?;
    let mut outline = Vec::new();
    if !json {
        writeln!(out, "{}  {}", header.id, plain(&header.workspace, 200))?;
    }
    let (mut steps, mut tools) = (0u64, 0u64);
    for line in &lines {
        let text = match &line.fact {
            Fact::Frozen(frozen) => {
                format!("goal {}: {}", plain(&frozen.goal_name, 64), plain(frozen.goal.trim(), 200))
            }
            Fact::Run(run) => {
                let what = if run.resumed { "resumed" } else { "run" };
                format!("{what} {}  {}  {}", run.run, plain(&run.model, 100), line.t)
            }
            Fact::Iteration { iteration } => {
                (steps, tools) = (0, 0);
                format!("  iteration {iteration}")
            }
            Fact::Call(call) if call.lane == Lane::Agent => {
                steps += 1;
                continue;
            }
            Fact::Tool(_) => {
                tools += 1;
                continue;
            }
            Fact::Prune(prune) => {
                format!(
                    "    pruned before step {}: {} → {} tokens",
                    prune.before_call, prune.before_tokens, prune.after_tokens
                )
            }
            Fact::Compaction(made) => {
                let by = match made.by {
                    SummaryBy::Model => "summarized",
                    SummaryBy::Extract => "cut down by rule",
                };
                format!(
                    "    {by} before step {}: {} → {} tokens",
                    made.before_call, made.before_tokens, made.after_tokens
                )
            }
            Fact::CompactionFailed { reason, failures, of } => {
                format!("    not compacted ({failures} of {of}): {}", plain(reason, 200))
            }
            Fact::CompactionPaused { reason } => format!("    compaction paused: {}", plain(reason, 200)),
            Fact::Turn { end, .. } => {
                format!("    turn {} after {}, {}", end.name(), count(steps, "step"), count(tools, "tool call"))
            }
            Fact::Verdict { verdict } => {
                format!("    verdict {}: {}", verdict.kind.name(), plain(&verdict.reason, 200))
            }
            Fact::Tip { entry } => format!("  back to {}", plain(entry, 20)),
            Fact::Interrupted { reason } => format!("    interrupted: {}", plain(&signal_words(reason), 100)),
            Fact::End(end) => format!("ended {}", end.outcome.name()),
            _ => continue,
        };
        if json {
            outline.push(Row { seq: line.seq, t: line.t.clone(), text: text.trim().to_owned() });
        } else {
            writeln!(out, "{text}")?;
        }
    }
    if json {
        super::json(out, &Shown { session_id: header.id, workspace: header.workspace, outline })?;
    }
    Ok(())
}
