//! Stage 2, where to cut: what is kept as it is, and what one summary stands for. Pure.

use super::history::History;
use super::prune::{arguments_of, elided, stub};
use super::text::head;
use crate::model::wire::AfterEdit;
use crate::model::{Count, Factor, message_count};
use crate::session::{Block, Edit, Message, Origin, Withheld, entry_name};

/// Of the latest user messages of the span, so many stay.
const USER_MESSAGES: usize = 3;
/// Of an older continuation so much stays.
const CONTINUATION_CHARS: usize = 600;
/// So many tool calls stay with their results, and so many when the request must fit.
pub const TAIL_CALLS: usize = 3;
pub const TAIL_CALLS_FORCED: usize = 2;

/// A span, and what is kept of it and after it. Indices are those of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The first message after the span; the span begins with the second message of all.
    pub tail: usize,
    /// Messages of the span that stay, in order.
    pub kept: Vec<usize>,
    pub edits: Vec<Edit>,
    /// What the history loses, the summary not counted.
    pub freed: Count,
}

/// Where the verbatim tail begins: at the last reply, or at an earlier one so that the tail holds `calls` tool calls.
/// `None` without a reply. A tail begins with a reply, so what stands before it is a closed round: each of its calls
/// has its result.
pub fn tail_start(messages: &[Message], calls: usize) -> Option<usize> {
    let mut start = None;
    let mut found = 0;
    for (index, message) in messages.iter().enumerate().skip(1).rev() {
        let Message::Assistant { blocks, refused: None, .. } = message else { continue };
        start = Some(index);
        found += blocks.iter().filter(|block| matches!(block, Block::Call { .. })).count();
        if found >= calls {
            break;
        }
    }
    start
}

/// Cuts a history. What is kept takes at most `budget` tokens: over that the oldest goes first, then the results of
/// the last round become short. `None` when nothing is left to be summarized.
pub fn cut(history: &History, calls: usize, budget: u64, factor: Factor) -> Option<Cut> {
    let messages = history.messages();
    let mut tail = tail_start(messages, calls)?;
    let tokens = |count: Count| factor.apply(count.tokens());
    let weigh = |from: usize| tokens(history.count(from..messages.len()));
    while weigh(tail) > budget
        && let Some(next) = (tail + 1..messages.len())
            .find(|index| matches!(messages[*index], Message::Assistant { refused: None, .. }))
    {
        tail = next;
    }
    if tail <= 1 {
        return None;
    }
    let mut edits = Vec::new();
    let mut saved = Count::default();
    if weigh(tail) > budget {
        shorten(history, tail, &mut edits, &mut saved, |saved| weigh(tail) - tokens(saved).min(weigh(tail)) <= budget);
    }
    let mut room = budget.saturating_sub(tokens(history.count(tail..messages.len()).minus(saved)));
    let newest_goal = messages
        .iter()
        .rposition(|message| matches!(message, Message::User { origin: Origin::Goal | Origin::Prompt, .. }));
    let users = (1..tail).rev().filter(|index| {
        matches!(&messages[*index], Message::User { origin: Origin::Prompt | Origin::Goal | Origin::Steer, .. })
    });
    let mut kept = Vec::new();
    let mut kept_count = Count::default();
    for index in users.take(USER_MESSAGES) {
        let mut count = history.counts()[index];
        let mut edit = None;
        if let Message::User { origin: origin @ Origin::Goal, text } = &messages[index]
            && newest_goal != Some(index)
        {
            let text = head(text, CONTINUATION_CHARS);
            count = message_count(&Message::User { origin: *origin, text: text.clone() });
            edit = Some(Edit::Text { entry: entry_name(history.entries()[index]), text });
        }
        if tokens(count) > room {
            break;
        }
        room -= tokens(count);
        kept_count = kept_count.plus(count);
        kept.push(index);
        edits.extend(edit);
    }
    kept.reverse();
    let freed = history.count(1..tail).minus(kept_count).plus(saved);
    Some(Cut { tail, kept, edits, freed })
}

/// Makes results and arguments of the last rounds short, the largest first, until `enough` of it is saved.
fn shorten(history: &History, tail: usize, edits: &mut Vec<Edit>, saved: &mut Count, enough: impl Fn(Count) -> bool) {
    let messages = history.messages();
    let mut calls: &[Block] = &[];
    let mut options: Vec<(Count, Edit)> = Vec::new();
    for (index, message) in messages.iter().enumerate().skip(tail) {
        let entry = || entry_name(history.entries()[index]);
        match message {
            Message::Assistant { blocks, .. } => {
                calls = blocks;
                for (block, call) in blocks.iter().enumerate() {
                    let Block::Call { name, arguments, .. } = call else { continue };
                    if let Some(new) = elided(name, arguments) {
                        let less = Count::of(arguments.as_bytes()).minus(Count::of(new.as_bytes()));
                        options.push((less, Edit::Arguments { entry: entry(), block, arguments: new }));
                    }
                }
            }
            Message::Tool { call_id, tool, text, .. } => {
                let new = stub(tool, arguments_of(calls, call_id), text, history.output_of(index));
                let new = format!("{}\n{new}", super::text::head_and_tail(text, 600));
                if new.len() < text.len() {
                    let less = Count::of_text(text).minus(Count::of_text(&new));
                    options.push((less, Edit::Text { entry: entry(), text: new }));
                }
            }
            _ => {}
        }
    }
    options.sort_by_key(|(less, _)| std::cmp::Reverse(less.tokens()));
    for (less, edit) in options {
        if enough(*saved) {
            break;
        }
        *saved = saved.plus(less);
        edits.push(edit);
    }
}

/// The last reply, while nothing has answered its results: its reasoning must come back with them.
pub fn open_round(messages: &[Message]) -> Option<usize> {
    let last = messages.iter().rposition(|message| matches!(message, Message::Assistant { refused: None, .. }))?;
    let answered = messages[last..].iter().any(|message| matches!(message, Message::Tool { .. }));
    answered.then_some(last)
}

/// What reasoning does not come back after an edit, by the wire's rule: that of the replies from `from` on, or only
/// until the last edit; never that of the open round.
pub fn withheld(history: &History, rule: AfterEdit, from: usize, edits: &[Edit]) -> Option<Withheld> {
    let messages = history.messages();
    let open = open_round(messages).unwrap_or(messages.len());
    let until = match rule {
        AfterEdit::Keep => return None,
        AfterEdit::WithholdBehind => open,
        AfterEdit::DropBefore => {
            let edited = |index: &usize| {
                let name = entry_name(history.entries()[*index]);
                edits.iter().any(
                    |edit| matches!(edit, Edit::Text { entry, .. } | Edit::Arguments { entry, .. } if *entry == name),
                )
            };
            (from..messages.len()).rev().find(edited)?.min(open)
        }
    };
    let thinks = |message: &Message| match message {
        Message::Assistant { blocks, .. } => blocks.iter().any(|block| matches!(block, Block::Thinking { .. })),
        _ => false,
    };
    if from >= until || !messages[from..until].iter().any(thinks) {
        return None;
    }
    Some(Withheld {
        from: entry_name(history.entries()[from]),
        until: history.entries().get(until).map(|entry| entry_name(*entry)),
    })
}

/// Whether each call has its one result right behind its reply, and no result is without its call. The last reply
/// may wait for its results.
pub fn is_paired(messages: &[Message]) -> bool {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        match message {
            Message::Assistant { blocks, refused: None, .. } => {
                if !open.is_empty() {
                    return false;
                }
                open.extend(blocks.iter().filter_map(|block| match block {
                    Block::Call { id, .. } => Some(id.as_str()),
                    _ => None,
                }));
            }
            Message::Tool { call_id, .. } => match open.iter().position(|id| id == call_id) {
                Some(index) => {
                    open.remove(index);
                }
                None => return false,
            },
            _ => {}
        }
    }
    true
}
