//! The agent's history as it is sent: its messages, the entries they came with, and what each weighs.
//!
//! Invariant: counting is incremental; nothing that stands unchanged is looked at again for the pressure of a step.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::Lane;
use crate::model::wire::Wire;
use crate::model::{Conversation, Count, Factor, message_count};
use crate::session::{self, Block, Compaction, Message, Output, Prune, Settled, State};

#[derive(Debug, Clone, Default)]
pub struct History {
    messages: Vec<Message>,
    entries: Vec<u64>,
    counts: Vec<Count>,
    outputs: BTreeMap<u64, Output>,
    changed: BTreeSet<String>,
    /// So many messages are sealed in the request.
    sealed: usize,
}

impl History {
    /// The history that the facts add up to.
    pub fn of(state: &State) -> History {
        let messages: Vec<Message> = state.sent.iter().flatten().chain(&state.unsent).cloned().collect();
        History {
            counts: messages.iter().map(message_count).collect(),
            sealed: messages.len() - state.unsent.len(),
            messages,
            entries: state.entries.clone(),
            outputs: state.outputs.clone(),
            changed: state.changed.clone(),
        }
    }

    /// The request that the session's last run left, with what is sealed of this history.
    pub fn conversation(wire: Wire, head: &str, state: &State) -> Conversation {
        let calls: Vec<Option<&Settled>> = state
            .calls
            .iter()
            .filter(|(call, _)| call.lane == Lane::Agent)
            .map(|(_, settled)| settled.as_ref())
            .collect();
        // After an edit only the calls since then have sent what stands in the history.
        let (before, since) = calls.split_at(calls.len().saturating_sub(state.sent.len()));
        let known = Factor(state.factor_pct.unwrap_or(100));
        let learned = before.iter().rev().find_map(|settled| (*settled)?.factor_pct).map(Factor).unwrap_or_default();
        // What is edited and not reported on since was measured with what was known last.
        let mut conversation = Conversation::new(wire, head, if state.edited { known } else { learned });
        // Call by call, so that occupancy and what was learnt are what they were in the run before.
        for (index, group) in state.sent.iter().enumerate() {
            conversation.seal(group);
            if index == 0 && state.edited {
                conversation.trust();
            }
            if let Some(usage) = since.get(index).and_then(|settled| (*settled)?.reported()) {
                let after = state.sent.get(index + 1).unwrap_or(&state.unsent);
                conversation.replied(usage, reply_in(after));
            }
        }
        conversation.set_factor(known);
        conversation
    }

    /// A message was said, and logged as this entry.
    pub fn push(&mut self, entry: u64, message: Message) {
        self.counts.push(message_count(&message));
        self.entries.push(entry);
        self.messages.push(message);
    }

    /// What is known of the output behind the result that comes with this entry.
    pub fn output(&mut self, entry: u64, output: Output) {
        self.outputs.insert(entry, output);
    }

    /// Outputs whose copies are gone have none.
    pub(super) fn forget_copies(&mut self, is_gone: impl Fn(u64) -> bool) {
        for output in self.outputs.values_mut() {
            output.spool = output.spool.filter(|id| !is_gone(*id));
        }
    }

    pub fn changed(&mut self, paths: &[String]) {
        self.changed.extend(paths.iter().cloned());
    }

    /// The result of a call stands shorter, before it was ever sent.
    pub fn recut(&mut self, id: &str, new: &str) {
        for index in (self.sealed..self.messages.len()).rev() {
            if let Message::Tool { call_id, text, .. } = &mut self.messages[index]
                && call_id == id
            {
                new.clone_into(text);
                self.counts[index] = message_count(&self.messages[index]);
                return;
            }
        }
    }

    /// What was said since the last request; it is taken to be sealed from now on.
    pub fn take_unsealed(&mut self) -> &[Message] {
        let from = std::mem::replace(&mut self.sealed, self.messages.len());
        &self.messages[from..]
    }

    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    pub(super) fn entries(&self) -> &[u64] {
        &self.entries
    }

    pub(super) fn counts(&self) -> &[Count] {
        &self.counts
    }

    pub(super) fn output_of(&self, index: usize) -> Option<&Output> {
        self.outputs.get(&self.entries[index])
    }

    pub(super) fn changed_files(&self) -> &BTreeSet<String> {
        &self.changed
    }

    /// The count of a range of messages.
    pub(super) fn count(&self, range: std::ops::Range<usize>) -> Count {
        self.counts[range].iter().fold(Count::default(), |sum, count| sum.plus(*count))
    }

    /// `first` is the index of the first message that changes.
    pub(super) fn prune(&mut self, first: usize, prune: &Prune) -> Result<(), String> {
        session::prune(&mut self.messages, &self.entries, prune)?;
        self.recount(first);
        Ok(())
    }

    pub(super) fn compact(&mut self, own: u64, compaction: &Compaction) -> Result<(), String> {
        session::compact(&mut self.messages, &mut self.entries, own, compaction)?;
        let entries: BTreeSet<u64> = self.entries.iter().copied().collect();
        self.outputs.retain(|entry, _| entries.contains(entry));
        self.recount(1);
        Ok(())
    }

    /// The history is another one from this message on, and is to be sent anew.
    fn recount(&mut self, first: usize) {
        self.counts.truncate(first);
        self.counts.extend(self.messages[self.counts.len()..].iter().map(message_count));
        self.sealed = 0;
    }
}

/// The blocks of the reply that opens what was said after a call.
fn reply_in(messages: &[Message]) -> &[Block] {
    let reply = messages.iter().find_map(|message| match message {
        Message::Assistant { blocks, .. } => Some(blocks.as_slice()),
        _ => None,
    });
    reply.unwrap_or_default()
}
