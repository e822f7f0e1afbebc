//! The edits that make a history smaller, as the facts state them: the live run and a resume apply the same ones.
//!
//! Pure. `entries[i]` is the seq of the entry that `messages[i]` came with; both lists always have one length. An
//! edit that names what is not there is an error, and then nothing of it has been applied.

use std::collections::BTreeMap;

use super::facts::{Block, Compaction, Edit, Message, Origin, Prune, Withheld};
use super::log::{entry_id, entry_seq};

/// The id of the entry with this seq.
pub fn entry_name(seq: u64) -> String {
    entry_id(seq)
}

/// Applies a prune: outputs and arguments become stubs where they stand.
///
/// # Errors
/// What it names that is not there.
pub fn prune(messages: &mut [Message], entries: &[u64], prune: &Prune) -> Result<(), String> {
    let places = Places::of(entries);
    places.check(messages, &prune.edits)?;
    let range = places.range(prune.withheld.as_ref())?;
    places.apply(messages, &prune.edits);
    withhold(&mut messages[range]);
    Ok(())
}

/// Applies a compaction, whose own entry has the seq `own`.
///
/// # Errors
/// What it names that is not there.
pub fn compact(messages: &mut Vec<Message>, entries: &mut Vec<u64>, own: u64, fact: &Compaction) -> Result<(), String> {
    let places = Places::of(entries);
    let from = places.place(&fact.from)?;
    let to = places.place(&fact.to)?;
    if from > to {
        return Err(format!("the span `{}` to `{}` runs backwards", fact.from, fact.to));
    }
    let mut kept = Vec::with_capacity(fact.kept.len());
    for entry in &fact.kept {
        let index = places.place(entry)?;
        if !(from..=to).contains(&index) || kept.contains(&index) {
            return Err(format!("`{entry}` is not of the span, or kept twice"));
        }
        kept.push(index);
    }
    places.check(messages, &fact.edits)?;
    places.range(fact.withheld.as_ref())?;
    let summary = Message::User { origin: Origin::Summary, text: fact.summary.clone() };
    let new: Vec<(u64, Message)> = std::iter::once((own, summary))
        .chain(kept.into_iter().map(|index| (entries[index], messages[index].clone())))
        .collect();
    entries.splice(from..=to, new.iter().map(|(entry, _)| *entry));
    messages.splice(from..=to, new.into_iter().map(|(_, message)| message));
    let places = Places::of(entries);
    // Edits of messages that have gone with their span are no more.
    places.apply(messages, &fact.edits);
    let range = places.range(fact.withheld.as_ref())?;
    withhold(&mut messages[range]);
    Ok(())
}

/// Where each entry stands: an edit names entries, and a history may have tens of thousands of both.
struct Places {
    index: BTreeMap<u64, usize>,
}

impl Places {
    fn of(entries: &[u64]) -> Places {
        Places { index: entries.iter().enumerate().map(|(index, entry)| (*entry, index)).collect() }
    }

    fn place(&self, entry: &str) -> Result<usize, String> {
        let place = entry_seq(entry).and_then(|seq| self.index.get(&seq).copied());
        place.ok_or_else(|| format!("the history has no entry `{entry}`"))
    }

    /// Where the message of an edit stands, when the edit fits it.
    fn target(&self, messages: &[Message], edit: &Edit) -> Result<usize, String> {
        let (entry, fits): (&String, fn(&Message, usize) -> bool) = match edit {
            Edit::Text { entry, .. } => {
                (entry, |message, _| matches!(message, Message::Tool { .. } | Message::User { .. }))
            }
            Edit::Arguments { entry, .. } => (
                entry,
                |message, block| matches!(message, Message::Assistant { blocks, .. } if matches!(blocks.get(block), Some(Block::Call { .. }))),
            ),
        };
        let block = match edit {
            Edit::Text { .. } => 0,
            Edit::Arguments { block, .. } => *block,
        };
        let index = self.place(entry)?;
        if fits(&messages[index], block) { Ok(index) } else { Err(format!("entry `{entry}` is nothing to edit so")) }
    }

    fn check(&self, messages: &[Message], edits: &[Edit]) -> Result<(), String> {
        edits.iter().try_for_each(|edit| self.target(messages, edit).map(|_| ()))
    }

    /// Edits that were checked. What was long is freed, not kept as the room of what is short.
    fn apply(&self, messages: &mut [Message], edits: &[Edit]) {
        for edit in edits {
            let Ok(index) = self.target(messages, edit) else { continue };
            match (edit, &mut messages[index]) {
                (Edit::Text { text: new, .. }, Message::Tool { text, .. } | Message::User { text, .. }) => {
                    *text = String::from(new.as_str());
                }
                (Edit::Arguments { block, arguments: new, .. }, Message::Assistant { blocks, .. }) => {
                    if let Some(Block::Call { arguments, .. }) = blocks.get_mut(*block) {
                        *arguments = String::from(new.as_str());
                    }
                }
                _ => {}
            }
        }
    }

    fn range(&self, withheld: Option<&Withheld>) -> Result<std::ops::Range<usize>, String> {
        let Some(withheld) = withheld else { return Ok(0..0) };
        let from = self.place(&withheld.from)?;
        let until = match &withheld.until {
            Some(until) => self.place(until)?,
            None => self.index.len(),
        };
        Ok(from.min(until)..until)
    }
}

fn withhold(messages: &mut [Message]) {
    for message in messages {
        if let Message::Assistant { blocks, .. } = message {
            blocks.retain(|block| !matches!(block, Block::Thinking { .. }));
        }
    }
}
