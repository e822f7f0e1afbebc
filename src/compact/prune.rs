//! Stage 1: old tool outputs become stubs, long old arguments too. Pure, no model is asked.

use std::fmt::Write;

use super::history::History;
use super::text::{clip, head_and_tail};
use crate::model::Count;
use crate::session::{Block, Edit, Message, Output, entry_name};

/// Results up to this stay.
const LARGE_BYTES: usize = 2_000;
/// An output without a copy leaves so many characters of its head and tail.
const EXCERPT_CHARS: usize = 600;
const ARGS_CHARS: usize = 120;
const LINE_CHARS: usize = 80;
/// What every stub begins with.
const STUB: &str = "[output elided: ";
/// No stub is longer, its excerpt included.
const STUB_CHARS: usize = 1_000;

/// Which outputs go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Those with a copy in the spool.
    Spooled,
    /// All large ones, and long strings in arguments.
    Everything,
}

/// What pruning would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    pub edits: Vec<Edit>,
    pub freed: Count,
    /// The index of the first message that is edited.
    pub first: usize,
}

impl Plan {
    fn add(&mut self, index: usize, before: Count, after: Count, edit: Edit) {
        if self.edits.is_empty() {
            self.first = index;
        }
        self.edits.push(edit);
        self.freed = self.freed.plus(before.minus(after));
    }
}

/// Plans the edits of the messages before `end`. The first message is never touched, nor is a stub.
pub fn plan(history: &History, end: usize, reach: Reach) -> Plan {
    let mut plan = Plan::default();
    let mut calls: &[Block] = &[];
    for (index, message) in history.messages().iter().enumerate().take(end).skip(1) {
        let entry = || entry_name(history.entries()[index]);
        match message {
            Message::Assistant { blocks, .. } => {
                calls = blocks;
                if reach == Reach::Everything {
                    for (block, arguments, new) in shorter_arguments(blocks) {
                        let (before, after) = (Count::of(arguments.as_bytes()), Count::of(new.as_bytes()));
                        plan.add(index, before, after, Edit::Arguments { entry: entry(), block, arguments: new });
                    }
                }
            }
            Message::Tool { call_id, tool, text, .. } if text.len() > LARGE_BYTES && !is_stub(text) => {
                let output = history.output_of(index);
                if reach == Reach::Spooled && output.is_none_or(|output| output.spool.is_none()) {
                    continue;
                }
                let new = stub(tool, arguments_of(calls, call_id), text, output);
                let (before, after) = (Count::of_text(text), Count::of_text(&new));
                plan.add(index, before, after, Edit::Text { entry: entry(), text: new });
            }
            _ => {}
        }
    }
    plan
}

/// No more than this can be freed by any plan. It is known without making one: of what is large, all.
pub fn at_most(history: &History, end: usize) -> Count {
    let large = |message: &Message| match message {
        Message::Assistant { blocks, .. } => {
            blocks.iter().any(|block| matches!(block, Block::Call { arguments, .. } if arguments.len() > LARGE_BYTES))
        }
        Message::Tool { text, .. } => text.len() > LARGE_BYTES && !is_stub(text),
        _ => false,
    };
    let messages = history.messages().iter().zip(history.counts()).take(end).skip(1);
    messages.filter(|(message, _)| large(message)).fold(Count::default(), |sum, (_, count)| sum.plus(*count))
}

/// What stands for an output. A stub is short: a long text that begins like one is none.
fn is_stub(text: &str) -> bool {
    text.starts_with(STUB) && text.chars().nth(STUB_CHARS).is_none()
}

pub(super) fn arguments_of<'a>(calls: &'a [Block], call_id: &str) -> &'a str {
    let found = calls.iter().rev().find_map(|block| match block {
        Block::Call { id, arguments, .. } if id == call_id => Some(arguments.as_str()),
        _ => None,
    });
    found.unwrap_or("{}")
}

/// What stands in a result's place.
pub(super) fn stub(tool: &str, arguments: &str, text: &str, output: Option<&Output>) -> String {
    let spool = output.and_then(|output| output.spool);
    let chars = output.map_or(0, |output| output.chars).max(text.chars().count() as u64);
    let lines = output.map_or(0, |output| output.lines).max(text.lines().count() as u64);
    let mut stub = match spool {
        Some(id) => {
            format!("{STUB}{chars} chars, spool:{id} — re-read with tool-output {{\"id\":\"spool:{id}\"}}]")
        }
        None => format!("{STUB}{chars} chars, no copy is kept]"),
    };
    let status = output.map_or("unknown", |output| output.status.name());
    // Writing to a String cannot fail.
    let _ = write!(stub, " {tool} args={} — {lines} lines, status {status}", clip(arguments, ARGS_CHARS));
    if spool.is_some() {
        let mut said = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with("[truncated: "));
        let head = said.next().unwrap_or_default();
        let tail = said.next_back().unwrap_or(head);
        let _ = write!(stub, ", head: \"{}\", tail: \"{}\"", clip(head, LINE_CHARS), clip(tail, LINE_CHARS));
    } else {
        stub.push('\n');
        stub.push_str(&head_and_tail(text, EXCERPT_CHARS));
    }
    stub
}

/// The calls of a message whose arguments hold long strings: block, arguments, shorter ones.
fn shorter_arguments(blocks: &[Block]) -> Vec<(usize, &str, String)> {
    let mut shorter = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        let Block::Call { name, arguments, .. } = block else { continue };
        if let Some(new) = elided(name, arguments) {
            shorter.push((index, arguments.as_str(), new));
        }
    }
    shorter
}

/// The arguments with their long strings elided; `None` when there are none, or what is there is no JSON object.
pub(super) fn elided(tool: &str, arguments: &str) -> Option<String> {
    if arguments.len() <= LARGE_BYTES {
        return None;
    }
    let mut value: serde_json::Value = serde_json::from_str(arguments).ok()?;
    value.as_object()?;
    let files = matches!(tool, "file-write" | "file-edit" | "multi-edit");
    let mut any = false;
    elide(&mut value, files, &mut any);
    any.then(|| value.to_string())
}

fn elide(value: &mut serde_json::Value, files: bool, any: &mut bool) {
    use serde_json::Value;
    match value {
        Value::String(text) if text.len() > LARGE_BYTES => {
            let chars = text.chars().count();
            *text = if files {
                format!("[elided from history: {chars} chars — the file on disk is authoritative]")
            } else {
                format!("[elided from history: {chars} chars]")
            };
            *any = true;
        }
        Value::Array(items) => items.iter_mut().for_each(|item| elide(item, files, any)),
        Value::Object(fields) => fields.values_mut().for_each(|field| elide(field, files, any)),
        _ => {}
    }
}
