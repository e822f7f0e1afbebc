//! The pure core over made-up histories: pairing, cuts, stubs, and that the facts rebuild what the run has.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::cut::{cut, is_paired, open_round, tail_start, withheld};
use super::history::History;
use super::prune::{Reach, at_most, plan};
use super::summarize::{SECTIONS, extract, message, read, request};
use crate::event::ToolStatus;
use crate::model::wire::AfterEdit;
use crate::model::{Factor, Reply, Stop};
use crate::session::{Block, Compaction, Edit, Message, Origin, Output, Prune, SummaryBy, entry_name};

pub(super) fn compaction() -> Compaction {
    Compaction {
        from: "e2".into(),
        to: "e3".into(),
        summary: "notes".into(),
        by: SummaryBy::Model,
        kept: Vec::new(),
        edits: Vec::new(),
        withheld: None,
        before_tokens: 9,
        after_tokens: 5,
        pruned_tokens: 1,
        forced: false,
        before_call: 1,
    }
}

fn user(origin: Origin, text: &str) -> Message {
    Message::User { origin, text: text.into() }
}

fn call(id: &str, name: &str, arguments: &str) -> Block {
    Block::Call { id: id.into(), name: name.into(), arguments: arguments.into() }
}

fn thinking(text: &str) -> Block {
    Block::Thinking { text: text.into(), raw: Some(format!("{{\"type\":\"thinking\",\"thinking\":\"{text}\"}}")) }
}

fn agent(blocks: Vec<Block>) -> Message {
    Message::Assistant { blocks, interrupted: false, refused: None }
}

fn result(id: &str, text: &str) -> Message {
    Message::Tool { call_id: id.into(), tool: "bash".into(), text: text.into(), is_error: false }
}

/// A history with entries 1, 3, 5, …, each result's output spooled under its entry.
fn history(messages: Vec<Message>) -> History {
    let mut history = History::default();
    for (index, message) in messages.into_iter().enumerate() {
        let entry = index as u64 * 2 + 1;
        if let Message::Tool { text, .. } = &message {
            let (chars, lines) = (text.chars().count() as u64, text.lines().count() as u64);
            history.output(entry, Output { status: ToolStatus::Ok, chars, lines, spool: Some(entry) });
        }
        history.push(entry, message);
    }
    history.take_unsealed();
    history
}

/// One prompt, then `rounds` of one call each, with results of `size` characters.
fn run_of(rounds: usize, size: usize) -> History {
    let mut messages = vec![user(Origin::Prompt, "Reach the goal.")];
    for round in 0..rounds {
        let id = format!("c{round}");
        let arguments = format!("{{\"command\":\"step {round}\"}}");
        messages.push(agent(vec![thinking("hm"), call(&id, "bash", &arguments)]));
        messages.push(result(&id, &"word and word\n".repeat(size / 14 + 1)));
    }
    history(messages)
}

fn apply(history: &mut History, made: &super::cut::Cut, text: &str) -> Compaction {
    let name = |index: usize| entry_name(history.entries()[index]);
    let fact = Compaction {
        from: name(1),
        to: name(made.tail - 1),
        summary: text.into(),
        kept: made.kept.iter().map(|index| name(*index)).collect(),
        edits: made.edits.clone(),
        withheld: withheld(history, AfterEdit::WithholdBehind, made.tail, &made.edits),
        ..compaction()
    };
    history.compact(9_999, &fact).expect("it fits its own history");
    fact
}

#[test]
fn a_run_with_one_user_message_is_cut_between_its_rounds() {
    let mut history = run_of(20, 400);
    let made = cut(&history, 3, 10_000, Factor::default()).expect("a span");
    assert_eq!((made.tail, made.kept.len()), (1 + 17 * 2, 0), "three calls stay");
    apply(&mut history, &made, "notes");
    let messages = history.messages();
    assert_eq!(messages.len(), 1 + 1 + 6);
    assert_eq!(messages[0], user(Origin::Prompt, "Reach the goal."));
    assert_eq!(messages[1], user(Origin::Summary, "notes"));
    assert!(is_paired(messages));
    // Reasoning behind the edit is gone, that of the unanswered round is not.
    let thinks = |message: &Message| matches!(message, Message::Assistant { blocks, .. } if blocks.len() == 2);
    assert_eq!(messages.iter().filter(|message| thinks(message)).count(), 1);
    assert!(thinks(&messages[6]));
}

#[test]
fn the_last_three_user_messages_stay_and_older_continuations_are_short() {
    let mut messages = vec![user(Origin::Prompt, "first")];
    for n in 0..5 {
        messages.push(agent(vec![Block::Text { text: format!("done {n}") }]));
        messages.push(user(Origin::Goal, &format!("{n} {}", "go on ".repeat(300))));
    }
    messages.push(user(Origin::Steer, "leave the parser alone"));
    for n in 0..3 {
        let id = format!("c{n}");
        messages.push(agent(vec![call(&id, "bash", "{}")]));
        messages.push(result(&id, "x"));
    }
    let mut history = history(messages);
    let made = cut(&history, 3, 50_000, Factor::default()).expect("a span");
    apply(&mut history, &made, "notes");
    let texts: Vec<&str> = history
        .messages()
        .iter()
        .filter_map(|message| match message {
            Message::User { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(texts.len(), 5, "{texts:?}");
    assert_eq!((texts[0], texts[1], texts[4]), ("first", "notes", "leave the parser alone"));
    assert!(texts[2].starts_with("3 go on") && texts[2].chars().count() < 620, "{}", texts[2].len());
    assert_eq!(texts[3].len(), 2 + 1_800, "the latest continuation is whole");
}

#[test]
fn over_the_budget_the_oldest_rounds_go_first_and_then_the_newest_result_is_short() {
    let history = run_of(10, 4_000);
    let all = cut(&history, 3, 100_000, Factor::default()).expect("a span");
    let one = cut(&history, 3, 2_000, Factor::default()).expect("a span");
    assert_eq!((all.tail, one.tail), (15, 19));
    assert!(one.edits.is_empty());
    let short = cut(&history, 3, 600, Factor::default()).expect("a span");
    let [Edit::Text { entry, text }] = short.edits.as_slice() else { panic!("{:?}", short.edits) };
    assert_eq!(entry, &entry_name(41));
    assert!(text.starts_with("word and word\n") && text.contains("spool:41"), "{text}");
    assert!(text.chars().count() < 1_200);
}

#[test]
fn each_wires_rule_says_which_reasoning_an_edit_takes_along() {
    let history = run_of(5, 100);
    let edit = |index: usize| vec![Edit::Text { entry: entry_name(history.entries()[index]), text: "short".into() }];
    let range = |rule, from, edits: &[Edit]| {
        let withheld = withheld(&history, rule, from, edits)?;
        let place = |name: &String| history.entries().iter().position(|entry| entry_name(*entry) == *name);
        Some((place(&withheld.from), withheld.until.as_ref().and_then(place)))
    };
    // The result at 4 was edited; the round from 9 on is open.
    assert_eq!(range(AfterEdit::Keep, 1, &edit(4)), None);
    assert_eq!(range(AfterEdit::WithholdBehind, 5, &edit(4)), Some((Some(5), Some(9))));
    assert_eq!(range(AfterEdit::DropBefore, 1, &edit(4)), Some((Some(1), Some(4))));
    assert_eq!(range(AfterEdit::DropBefore, 1, &edit(10)), Some((Some(1), Some(9))), "never that of the open round");
    assert_eq!(range(AfterEdit::DropBefore, 1, &[]), None, "nothing was edited that is still there");
}

#[test]
fn nothing_is_cut_where_there_is_nothing_to_cut() {
    assert_eq!(tail_start(&[user(Origin::Prompt, "x")], 3), None);
    assert_eq!(cut(&run_of(2, 100), 3, 10_000, Factor::default()), None);
}

#[test]
fn spooled_outputs_become_the_documented_stub_and_stubs_stay() {
    let text = format!("go test ./...\n{}FAIL spettro/internal/agent\n", "line of output\n".repeat(300));
    let mut history = history(vec![
        user(Origin::Prompt, "x"),
        agent(vec![call("c1", "bash", r#"{"command":"go test ./..."}"#)]),
        result("c1", &text),
        agent(vec![call("c2", "bash", "{}")]),
        result("c2", "short"),
    ]);
    let first = plan(&history, 5, Reach::Spooled);
    let stub = format!(
        "[output elided: {} chars, spool:5 — re-read with tool-output {{\"id\":\"spool:5\"}}] bash \
         args={{\"command\":\"go test ./...\"}} — 302 lines, status ok, head: \"go test ./...\", tail: \"FAIL \
         spettro/internal/agent\"",
        text.chars().count()
    );
    assert_eq!(first.edits, [Edit::Text { entry: "e5".into(), text: stub }]);
    let fact = Prune { edits: first.edits, withheld: None, before_tokens: 1, after_tokens: 1, before_call: 1 };
    history.prune(first.first, &fact).expect("it fits");
    for reach in [Reach::Spooled, Reach::Everything] {
        assert!(plan(&history, 5, reach).edits.is_empty(), "a stub is never pruned again");
    }
}

#[test]
fn without_a_copy_an_excerpt_stays_and_long_arguments_go() {
    let content = "x".repeat(5_000);
    let arguments = serde_json::json!({"path": "a.rs", "content": content}).to_string();
    let mut history = History::default();
    for (entry, message) in [
        user(Origin::Prompt, "x"),
        agent(vec![call("c1", "file-write", &arguments)]),
        result("c1", &format!("HEAD{}TAIL", "é".repeat(4_000))),
    ]
    .into_iter()
    .enumerate()
    {
        history.push(entry as u64 + 1, message);
    }
    assert!(plan(&history, 3, Reach::Spooled).edits.is_empty());
    let all = plan(&history, 3, Reach::Everything);
    let [Edit::Arguments { block: 0, arguments, .. }, Edit::Text { text, .. }] = all.edits.as_slice() else {
        panic!("{:?}", all.edits)
    };
    let marker = "[elided from history: 5000 chars — the file on disk is authoritative]";
    assert_eq!(*arguments, serde_json::json!({"path": "a.rs", "content": marker}).to_string());
    assert!(text.starts_with("[output elided: 4008 chars, no copy is kept]"), "{text}");
    assert!(text.contains("HEAD") && text.ends_with("TAIL") && text.chars().count() < 900, "{text}");
    assert_eq!(all.first, 1);
}

#[test]
fn nobody_is_sent_to_a_copy_that_is_gone_and_old_stubs_stay_as_they_are() {
    let mut history = run_of(6, 4_000);
    let before = plan(&history, 5, Reach::Spooled);
    assert_eq!(before.edits.len(), 2);
    history.forget_copies(|id| id <= 9);
    assert!(plan(&history, 5, Reach::Spooled).edits.is_empty(), "nothing to be re-read from a copy");
    let Some(Edit::Text { text, .. }) = plan(&history, 5, Reach::Everything).edits.pop() else { panic!("a stub") };
    assert!(text.contains(" chars, no copy is kept] bash") && !text.contains("spool:"), "{text}");
    // A stub that was sent names its copy for ever: the prefix must not change.
    let mut history = run_of(6, 4_000);
    let sent = Prune { edits: before.edits, withheld: None, before_tokens: 1, after_tokens: 1, before_call: 1 };
    history.prune(before.first, &sent).expect("it fits");
    history.forget_copies(|_| true);
    let stubbed =
        |message: &&Message| matches!(message, Message::Tool { text, .. } if text.contains("spool:5 — re-read"));
    assert_eq!(history.messages().iter().filter(stubbed).count(), 1);
    assert!(plan(&history, 5, Reach::Everything).edits.is_empty());
}

fn reply(text: &str, stop: Stop) -> Reply {
    Reply {
        blocks: vec![Block::Text { text: text.into() }],
        stop,
        usage: None,
        model: None,
        input_transformations: None,
    }
}

fn summary() -> String {
    SECTIONS.map(|section| format!("## {section}\nnone\n")).concat()
}

#[test]
fn only_a_whole_summary_with_all_sections_is_one() {
    assert_eq!(read(&reply(&summary(), Stop::End)), Ok(summary().trim().to_owned()));
    assert!(read(&reply(&summary(), Stop::MaxTokens)).is_err());
    assert!(read(&reply(&summary(), Stop::Refused("no".into()))).is_err());
    assert!(read(&reply(&summary(), Stop::ToolUse)).is_err());
    assert!(read(&reply("  ", Stop::End)).is_err());
    for section in SECTIONS {
        let without = summary().replace(&format!("## {section}\n"), "");
        let error = read(&reply(&without, Stop::End)).expect_err(section);
        assert!(error.contains(section), "{error}");
    }
    let thoughts = Reply { blocks: vec![thinking("hm")], ..reply("", Stop::End) };
    assert!(read(&thoughts).is_err());
}

#[test]
fn the_files_changed_come_from_the_tools() {
    let changed = ["b.rs", "a.rs"].map(str::to_owned).into_iter().collect();
    let message = |changed: &BTreeSet<String>, most| message("notes", changed, most, Factor::default());
    assert!(message(&changed, 100).ends_with("records\n- a.rs\n- b.rs"));
    assert!(!message(&BTreeSet::new(), 100).contains("records"));
    // A small window is not filled with names.
    let many = (0..1_000).map(|n| format!("src/room/file-{n:04}.rs")).collect();
    let text = message(&many, 400);
    assert!(crate::model::Count::of_text(&text).tokens() < 400 + 80, "{}", text.len());
    assert!(text.contains("- src/room/file-0000.rs\n") && text.contains(" more"), "{text}");
}

#[test]
fn what_the_summarizer_is_given_fits_keeps_earlier_notes_and_holds_no_thinking() {
    let mut messages = vec![user(Origin::Prompt, "Reach the goal."), user(Origin::Summary, "EARLIER NOTES")];
    for n in 0..400 {
        let id = format!("c{n}");
        messages.push(agent(vec![thinking("SECRET THOUGHT"), call(&id, "bash", "{\"command\":\"make\"}")]));
        messages.push(result(&id, &format!("out {n} {}", "x1! ".repeat(2_000))));
    }
    let history = history(messages);
    for budget in [2_000, 6_000, 80_000] {
        let text = request(&history, 1..700, budget, Factor::default(), "the parser");
        assert!(crate::model::Count::of_text(&text).tokens() <= budget, "{budget}");
        assert!(text.contains("EARLIER NOTES") && text.contains("the parser") && text.contains("Reach the goal."));
        assert!(!text.contains("SECRET"));
        assert!(text.contains("out 348 "), "the newest of the span is there");
    }
}

#[test]
fn an_extract_names_what_was_done_last() {
    let text = extract(&run_of(30, 100), 1..50, 4_000);
    assert!(text.contains("step 23") && !text.contains("step 3\""), "{text}");
    assert!(text.contains("spool:") && text.chars().count() < 4_100);
}

/// Histories as they may come: rounds with several calls, texts, user messages, operator notes, refused and
/// interrupted replies, outputs in several scripts with and without a copy, earlier summaries.
fn histories() -> impl Strategy<Value = History> {
    let round = (0usize..4, 0usize..5_000, any::<bool>(), 0u8..9, 0usize..4);
    (prop::collection::vec(round, 1..40), any::<bool>(), any::<bool>()).prop_map(|(rounds, summed, spooled)| {
        let mut messages = vec![user(Origin::Prompt, "the goal")];
        if summed {
            messages.push(user(Origin::Summary, &"earlier notes ".repeat(80)));
        }
        for (n, (calls, size, thinks, what, script)) in rounds.into_iter().enumerate() {
            let mut blocks = Vec::new();
            if thinks {
                blocks.push(thinking("t"));
            }
            if calls == 0 {
                blocks.push(Block::Text { text: format!("said {n}") });
            }
            blocks.extend((0..calls).map(|c| call(&format!("c{n}-{c}"), "bash", "{\"command\":\"x\"}")));
            messages.push(agent(blocks));
            let word = ["a b\n", "目標を達成\n", "{\"k\":[1]}\\\t", "[output elided: "][script];
            let text = word.repeat(size / word.len());
            messages.extend((0..calls).map(|c| result(&format!("c{n}-{c}"), &text)));
            match what {
                6 => messages.push(Message::Assistant {
                    blocks: vec![Block::Text { text: "cut o".into() }],
                    interrupted: true,
                    refused: None,
                }),
                7 => messages.push(Message::Assistant {
                    blocks: vec![Block::Text { text: "no".into() }, call(&format!("r{n}"), "bash", "{}")],
                    interrupted: false,
                    refused: Some("declined".into()),
                }),
                0 => messages.push(user(Origin::Steer, "steer")),
                1 => messages.push(user(Origin::Goal, &"again ".repeat(200))),
                2 => messages.push(Message::Operator { text: "note".into() }),
                _ if calls == 0 => messages.push(user(Origin::Job, "job-1 exited with 0")),
                _ => {}
            }
        }
        if spooled { history(messages) } else { history_without_copies(messages) }
    })
}

fn history_without_copies(messages: Vec<Message>) -> History {
    let mut history = History::default();
    for (index, message) in messages.into_iter().enumerate() {
        history.push(index as u64 + 1, message);
    }
    history.take_unsealed();
    history
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_cut_parts_a_call_from_its_result(mut history in histories(), calls in 1usize..5, budget in 100u64..20_000) {
        prop_assert!(is_paired(history.messages()));
        let before = history.clone();
        let open = open_round(before.messages());
        let Some(made) = cut(&history, calls, budget, Factor::default()) else { return Ok(()) };
        let weight = |history: &History| history.count(0..history.messages().len());
        apply(&mut history, &made, "notes");
        let messages = history.messages();
        prop_assert!(is_paired(messages));
        prop_assert_eq!(&messages[0], &before.messages()[0]);
        let is_reply = matches!(before.messages()[made.tail], Message::Assistant { .. });
        prop_assert!(is_reply, "a tail begins with a reply");
        let withheld_all = messages[..messages.len() - 1].iter().all(|message| match message {
            Message::Assistant { blocks, .. } => !blocks.iter().any(|block| matches!(block, Block::Thinking { .. })),
            _ => true,
        });
        prop_assert!(open.is_some() || withheld_all, "reasoning behind an edit is withheld");
        if let Some(open) = open {
            // The open round is as it was, but for results that had to become short.
            let Message::Assistant { blocks, .. } = &before.messages()[open] else { return Ok(()) };
            let same = matches!(&messages[messages.len() - (before.messages().len() - open)],
                Message::Assistant { blocks: now, .. } if now == blocks);
            prop_assert!(same);
        }
        prop_assert!(weight(&history).tokens() <= weight(&before).tokens() + 40, "a cut makes nothing larger");
    }

    #[test]
    fn cuts_and_plans_are_pure_and_no_plan_frees_more_than_is_foreseen(
        history in histories(), calls in 1usize..5, budget in 100u64..20_000,
    ) {
        let before = history.clone();
        let made = cut(&history, calls, budget, Factor::default());
        prop_assert_eq!(&made, &cut(&history, calls, budget, Factor::default()));
        for reach in [Reach::Spooled, Reach::Everything] {
            let end = history.messages().len();
            let planned = plan(&history, end, reach);
            prop_assert_eq!(&planned, &plan(&history, end, reach));
            prop_assert!(planned.freed.tokens() <= at_most(&history, end).tokens());
        }
        prop_assert_eq!(history.messages(), before.messages());
        // What is kept verbatim takes no more than it may, unless the last round alone is more.
        if let Some(made) = made {
            let rounds = before.messages()[made.tail..]
                .iter()
                .filter(|message| matches!(message, Message::Assistant { refused: None, .. }))
                .count();
            let kept = made.kept.iter().fold(before.count(made.tail..before.messages().len()), |sum, index| {
                sum.plus(before.counts()[*index])
            });
            let edited = !made.edits.is_empty();
            prop_assert!(rounds == 1 || edited || kept.tokens() <= budget, "{} of {budget}", kept.tokens());
        }
    }

    #[test]
    fn what_the_summarizer_is_given_always_fits(
        history in histories(), budget in 600u64..30_000, factor in 50u64..=300, focus in "\\PC{0,3000}",
    ) {
        let end = history.messages().len();
        let factor = Factor(factor);
        let text = request(&history, 1..end, budget, factor, &focus);
        prop_assert!(factor.apply(crate::model::Count::of_text(&text).tokens()) <= budget);
        prop_assert!(text.ends_with("with all seven sections."));
    }

    #[test]
    fn pruning_twice_is_pruning_once(mut history in histories(), end in 0usize..80) {
        let end = end.min(history.messages().len());
        let first = plan(&history, end, Reach::Everything);
        let count = history.messages().len();
        let withheld = withheld(&history, AfterEdit::WithholdBehind, first.first + 1, &first.edits);
        let fact = Prune {
            edits: first.edits, withheld, before_tokens: 0, after_tokens: 0,
            before_call: 1,
        };
        history.prune(first.first, &fact).expect("it fits");
        prop_assert_eq!(history.messages().len(), count);
        prop_assert!(is_paired(history.messages()));
        prop_assert!(plan(&history, end, Reach::Everything).edits.is_empty());
    }
}
