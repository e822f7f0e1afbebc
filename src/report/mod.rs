//! CONTRACT (report helper): what a person and a pipeline see. Knows events only.
#![allow(unused_variables, dead_code)]
use std::time::Duration;

use crate::event::{Record, RunResult};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Text,
    Jsonl,
    Json,
}

/// How stderr is used.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    pub terminal: bool,
    pub colour: bool,
    pub quiet: bool,
    pub verbose: u8,
}

/// The lines (or bars) on stderr, and for `jsonl` the events on stdout. Never panics on a dead terminal or closed pipe.
pub struct Console {}
impl Console {
    pub fn new(format: Format, look: Look, deltas: bool, goal_name: String) -> Console {
        todo!()
    }
    pub fn event(&self, record: &Record) {
        todo!()
    }
    /// Called about once a second: bars move; off a terminal a heartbeat line every 30 s while something runs or waits.
    pub fn tick(&self, since_start: Duration) {
        todo!()
    }
    /// The end: the summary on stdout (`text`), the result object (`json`), nothing more for `jsonl`; the resume line on stderr.
    pub fn finish(&self, result: &RunResult) {
        todo!()
    }
    pub fn notice(&self, text: &str) {
        todo!()
    }
}
/// summary.md: verdict first, then checks, criteria, cost by lane, iterations, changes, next step, how to resume.
pub fn summary_markdown(result: &RunResult) -> String {
    todo!()
}
/// The plain-text summary for stdout.
pub fn summary_text(result: &RunResult) -> String {
    todo!()
}
/// Strips control sequences and breaks CI workflow commands (`::…`, `##[…`) visibly.
pub fn clean(text: &str) -> String {
    todo!()
}
