//! What the facts add up to.

use super::*;

/// Lines as a session would write them.
fn lines(facts: impl IntoIterator<Item = Fact>) -> Vec<Line> {
    let lab = Lab::new();
    let session = lab.create("s");
    for fact in facts {
        session.append(fact).expect("appended");
    }
    Session::read(&lab.dir("s")).expect("read").1
}

fn texts(messages: &[Message]) -> Vec<&str> {
    messages
        .iter()
        .map(|message| match message {
            Message::User { text, .. } | Message::Operator { text } | Message::Tool { text, .. } => text.as_str(),
            Message::Assistant { blocks, .. } => match blocks.first() {
                Some(Block::Text { text }) => text.as_str(),
                _ => "",
            },
        })
        .collect()
}

fn groups(state: &State) -> Vec<Vec<&str>> {
    state.sent.iter().map(|group| texts(group)).collect()
}

#[test]
fn an_agent_call_seals_what_was_said_whether_it_settled_or_not() {
    let state = fold(&lines([
        user("goal"),
        call(Lane::Agent, 1),
        settled(Lane::Agent, 1, Vec::new()),
        assistant("one", &["c1"]),
        result("c1", "out"),
        call(Lane::Judge, 1),
        call(Lane::Agent, 2),
        user("late"),
        call(Lane::Agent, 3),
        call(Lane::Agent, 4),
        settled(Lane::Agent, 4, Vec::new()),
        assistant("two", &[]),
    ]));
    assert_eq!(groups(&state), [vec!["goal"], vec!["one", "out"], vec!["late"], vec![]]);
    assert_eq!(texts(&state.unsent), ["two"]);
    let calls: Vec<_> = state.calls.iter().map(|(call, settled)| (call.lane, call.n, settled.is_some())).collect();
    let (agent, judge) = (Lane::Agent, Lane::Judge);
    assert_eq!(calls, [(agent, 1, true), (judge, 1, false), (agent, 2, false), (agent, 3, false), (agent, 4, true)]);
    assert!(state.dangling.is_empty());
}

#[test]
fn a_recut_changes_a_result_that_was_not_sent_yet_and_no_other() {
    let state = fold(&lines([
        user("goal"),
        call(Lane::Agent, 1),
        assistant("one", &["c1", "c2"]),
        result("c1", "long long"),
        result("c2", "short"),
        Fact::Recut { call_id: "c1".into(), text: "cut".into() },
        call(Lane::Agent, 2),
        // The same id again, in a later reply: the sealed result stays as it was sent.
        assistant("two", &["c1"]),
        result("c1", "second"),
        Fact::Recut { call_id: "c2".into(), text: "never".into() },
        Fact::Recut { call_id: "c1".into(), text: "cut too".into() },
    ]));
    assert_eq!(groups(&state), [vec!["goal"], vec!["one", "cut", "short"]]);
    assert_eq!(texts(&state.unsent), ["two", "cut too"]);
}

#[test]
fn calls_without_a_result_dangle_with_whether_they_had_started() {
    let state = fold(&lines([
        user("goal"),
        call(Lane::Agent, 1),
        assistant("one", &["c1", "c2", "c3"]),
        tool_started("c1"),
        tool("c1", ToolStatus::Ok),
        result("c1", "out"),
        tool_started("c2"),
    ]));
    assert_eq!(state.dangling, [(call_block("c2"), true), (call_block("c3"), false)]);
}

#[test]
fn repeated_call_ids_pair_by_order() {
    let state = fold(&lines([
        assistant("one", &["c", "c"]),
        tool_started("c"),
        result("c", "first"),
        tool_started("c"),
        result("c", "second"),
        assistant("two", &["c", "c", "c"]),
        tool_started("c"),
        result("c", "first"),
        tool_started("c"),
    ]));
    assert_eq!(state.dangling, [(call_block("c"), true), (call_block("c"), false)]);
}

#[test]
fn calls_of_a_refused_reply_never_dangle_and_it_stays_in_its_group() {
    let refused = Fact::Message(Message::Assistant {
        blocks: vec![Block::Text { text: "no".into() }, call_block("c1")],
        interrupted: false,
        refused: Some("policy".into()),
    });
    let state = fold(&lines([user("goal"), call(Lane::Agent, 1), refused, user("again"), call(Lane::Agent, 2)]));
    assert_eq!(groups(&state), [vec!["goal"], vec!["no", "again"]]);
    assert!(state.dangling.is_empty());
}

#[test]
fn history_is_that_of_the_branch_and_money_that_of_the_session() {
    let state = fold(&lines([
        frozen(), // 1
        run("run-1"),
        Fact::Iteration { iteration: 1 }, // 3
        user("goal"),                     // 4
        call(Lane::Agent, 1),
        assistant("kept", &["c1"]), // 6
        tool("c1", ToolStatus::Ok),
        result("c1", "kept too"), // 8
        tasks("old"),             // 9
        Fact::Turn { iteration: 1, end: TurnEnd::Done, summary: None, why: None },
        Fact::Checks { iteration: 1, results: vec![check("a")] }, // 11
        verdict(VerdictKind::Unmet),                              // 12
        progress(1),
        Fact::Iteration { iteration: 2 }, // 14
        user("left behind"),              // 15
        call(Lane::Agent, 2),
        assistant("left too", &["c9"]), // 17
        tool("c9", ToolStatus::Ok),
        tasks("new"), // 19
        Fact::Turn { iteration: 2, end: TurnEnd::Stuck, summary: None, why: None },
        verdict(VerdictKind::Impossible),
        progress(2),
        Fact::Elapsed { active_ms: 50, waited_ms: 7 },
        Fact::Learned { window_tokens: Some(9), factor_pct: Some(130) },
        Fact::Learned { window_tokens: Some(8), factor_pct: None },
        end("run-1", Outcome::Unmet),
        run("run-2"),
        Fact::Tip { entry: "e12".into() },
        Fact::Iteration { iteration: 2 },
        user("other way"),
        call(Lane::Agent, 3),
    ]));
    assert_eq!(groups(&state), [vec!["goal"], vec!["kept", "kept too", "other way"]]);
    assert!(state.unsent.is_empty());
    assert_eq!(state.tasks.tasks[0].content, "old");
    assert_eq!(state.marks.get("src/a.rs").map(String::as_str), Some("of c1"));
    assert_eq!((state.iteration, state.last_turn), (2, Some((1, TurnEnd::Done))));
    assert_eq!(state.verdicts.iter().map(|verdict| verdict.kind).collect::<Vec<_>>(), [VerdictKind::Unmet]);
    assert_eq!((state.checks.len(), state.checks[0].0), (1, 1));
    assert_eq!(state.progress.iter().map(|progress| progress.stall_halves).collect::<Vec<_>>(), [1]);
    assert_eq!(state.calls.len(), 3, "every call was paid for");
    assert_eq!((state.runs.len(), state.ends.len()), (2, 1));
    assert_eq!((state.active_ms, state.waited_ms, state.factor_pct), (50, 7, Some(130)));
    assert_eq!(state.frozen.expect("frozen").goal_name, "demo");
    assert!(state.dangling.is_empty());
}

#[test]
fn unknown_kinds_are_walked_through() {
    let mut lines = lines([user("a"), user("b"), user("c")]);
    lines[1] = serde_json::from_str(r#"{"seq":2,"t":"t","id":"e2","parent":"e1","kind":"later"}"#).expect("a line");
    assert!(matches!(lines[1].fact, Fact::Unknown(_)));
    assert_eq!(texts(&fold(&lines).unsent), ["a", "c"]);
}

#[test]
fn nothing_folds_to_nothing() {
    let state = fold(&[]);
    assert!(state.sent.is_empty() && state.unsent.is_empty() && state.frozen.is_none());
}

#[test]
fn steering_waits_until_its_message_stands_in_the_log() {
    let steer = |text: &str| Fact::Steer { text: text.into() };
    let delivery = || Fact::Delivery { what: "steer".into(), before_call: 2 };
    let delivered = |text: &str| Fact::Message(Message::User { origin: Origin::Steer, text: text.into() });
    let state = fold(&lines([user("goal"), steer("a"), steer("b"), steer("a"), delivery(), delivered("a")]));
    assert_eq!(state.steers, ["b", "a"], "the oldest of equal texts was meant");
    let state = fold(&lines([user("goal"), steer("a"), delivery()]));
    assert_eq!(state.steers, ["a"], "the runner died between the delivery and its message");
    let state = fold(&lines([user("goal"), steer("a"), delivered("a"), Fact::Tip { entry: "e1".into() }]));
    assert!(state.steers.is_empty(), "it was read, whichever way the history went");
}

#[test]
fn jobs_are_open_until_the_agent_was_told_and_their_numbers_are_never_given_again() {
    let started = |job: &str| Fact::JobStarted { job: job.into(), command: "make watch".into() };
    let told = |job: &str| Fact::Delivery { what: job.into(), before_call: 2 };
    let exited = |job: &str| Fact::JobExited { job: job.into(), state: "exited with 0".into(), duration_ms: 3 };
    let state = fold(&lines([
        user("goal"),
        started("job-1"),
        started("job-2"),
        started("job-11"),
        exited("job-11"),
        told("job-11"),
        exited("job-2"),
        Fact::Tip { entry: "e1".into() },
    ]));
    assert_eq!(state.last_job, 11);
    let open = |id: &str, ended: Option<&str>| OpenJob {
        id: id.into(),
        command: "make watch".into(),
        ended: ended.map(str::to_owned),
    };
    assert_eq!(state.open_jobs, [open("job-1", None), open("job-2", Some("exited with 0"))]);
}
