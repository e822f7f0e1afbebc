//! stdout and stderr of a run off a terminal, and of one at a terminal without bars.

use std::time::Duration;

use super::*;

#[test]
fn off_a_terminal_a_run_is_lines() {
    let (out, err) = show_in(Format::Text, Look::default(), false, None, &whole_run());
    insta::assert_snapshot!(err, @r#"
    12:00:00 upgrade session session-20261129-120000-0a1b2c3d  anthropic/claude-opus-4-5  judge openai/gpt-5  limits 20 iterations, 500 steps, $5.00, 2h  sandbox off
    12:00:00 upgrade notice: 3 files were changed before the start: a, b, c
    12:00:02 upgrade 1/20 anthropic 529 overloaded; trying again in 4s (attempt 2)
    12:00:13 upgrade 1/20 bash "cargo test" ok 4.2s  $0.25/5.00  ctx 42%
    12:00:13 upgrade 1/20 check tests fail (exit 101) 3.4s at the start
    12:00:14 upgrade 1/20 job-1 started "npm run dev"
    12:00:15 upgrade 1/20 web denied: not in tools.allow
    12:00:20 upgrade 1/20 check tests fail (exit 101) 3.4s
    12:00:21 upgrade 1/20 goal not met yet (1/20): check `tests` failed: exit 101
    12:00:21 upgrade 2/20 steering delivered: leave the lockfile
    12:00:25 upgrade 2/20 file-edit src/lib.rs error 35ms  $0.25/5.00  ctx 80%
    12:00:26 upgrade 2/20 job-1 killed 12s
    12:00:30 upgrade 2/20 check tests pass 3.4s
    12:04:12 upgrade 2/20 goal met: All tests pass on serde 2.
    12:04:12 upgrade 2/20 finished met (exit 0) 4m12s  $0.31/5.00  ctx 80%
    "#);
    assert_eq!(out, summary_text(&a_result(Outcome::Met)));
}

#[test]
fn quiet_keeps_what_somebody_must_know() {
    let mut records = whole_run();
    records.pop();
    let last = unfinished(Outcome::Interrupt);
    let rest = script()
        .at("12:05:00", Event::RunInterrupted { reason: "SIGINT".into() })
        .at("12:05:00", Event::RunFinished { result: Box::new(last) });
    records.extend(rest.records);
    insta::assert_snapshot!(stderr_of(Look { quiet: true, ..Look::default() }, &records), @r"
    12:00:00 upgrade notice: 3 files were changed before the start: a, b, c
    12:00:02 upgrade 1/20 anthropic 529 overloaded; trying again in 4s (attempt 2)
    12:00:15 upgrade 1/20 web denied: not in tools.allow
    12:05:00 upgrade 2/20 interrupted: SIGINT
    resume: spettro run --resume session-20261129-120000-0a1b2c3d
    ");
}

#[test]
fn verbose_adds_the_agents_words_steps_and_calls() {
    let err = stderr_of(Look { verbose: true, ..Look::default() }, &whole_run());
    let plain = stderr_of(Look::default(), &whole_run());
    let added: Vec<&str> = err.lines().filter(|line| !plain.contains(line)).collect();
    insta::assert_snapshot!(added.join("\n"), @r"
    12:00:00 upgrade 1/20 iteration started
    12:00:01 upgrade 1/20 step 1
    12:00:08 upgrade 1/20 | I run the tests first.
    12:00:09 upgrade 1/20 | Then I fix
    12:00:09 upgrade 1/20 agent call 1 anthropic/claude-opus-4-5: 12,345 in, 210 out, $0.25, 3.1s
    12:00:21 upgrade 2/20 iteration started
    12:00:22 upgrade 2/20 step 2
    12:00:25 upgrade 2/20 agent call 2 anthropic/claude-opus-4-5: 12,345 in, 210 out, $0.00, 3.1s
    12:00:33 upgrade 2/20 judge call 1 openai/gpt-5: 12,345 in, 210 out, $0.06, 3.1s
    ");
    assert!(plain.lines().all(|line| err.contains(line)));
}

#[test]
fn colours_mark_how_things_went_and_change_no_text() {
    let look = Look { colour: true, ..Look::default() };
    let coloured = stderr_of(look, &whole_run());
    assert!(coloured.contains("bash \"cargo test\" \x1b[32mok\x1b[0m 4.2s"), "{coloured}");
    assert!(coloured.contains("tests \x1b[31mfail\x1b[0m (exit 101)"), "{coloured}");
    assert!(coloured.contains("  ctx 42%\n"), "below 75 % without colour: {coloured}");
    assert!(coloured.contains("  \x1b[33mctx 80%\x1b[0m\n"), "{coloured}");
    assert!(coloured.contains("\x1b[33mgoal not met yet\x1b[0m (1/20)"), "{coloured}");
    assert_eq!(clean(&coloured), stderr_of(Look::default(), &whole_run()));

    let full = script().at("12:00:00", call(Lane::Agent, 1, 0, 0, Some(180_000)));
    let full = full.at("12:00:01", tool("bash", "ls", ToolStatus::Timeout, 600_000));
    let line = stderr_of(look, &full.records);
    assert_eq!(
        line,
        "\x1b[2m12:00:01\x1b[0m upgrade bash ls \x1b[31mtimeout\x1b[0m 10m  $0.00  \x1b[31mctx 90%\x1b[0m\n"
    );
}

#[test]
fn the_first_line_names_endpoints_recorded_replies_and_a_resume() {
    let event = Event::RunStarted {
        version: "0.1.0".into(),
        goal: "upgrade".into(),
        config_digest: "c0ffee".into(),
        workspace: "/src/app".into(),
        model: "cassette/quickstart".into(),
        judge_model: Some("cassette/quickstart".into()),
        limits: Limits { cost: None, tokens: Some(1_000_000), time_ms: None, ..limits() },
        endpoints: vec!["local http://127.0.0.1:8080".into()],
        sandbox: "off".into(),
        resumed: true,
        recorded: true,
    };
    let records = script().at("12:00:00", event).at("12:00:01", tool("bash", "", ToolStatus::Ok, 10)).records;
    insta::assert_snapshot!(stderr_of(Look::default(), &records), @r"
    12:00:00 upgrade session session-20261129-120000-0a1b2c3d resumed  cassette/quickstart (recorded model)  limits 20 iterations, 500 steps, no cost limit, 1,000,000 tokens, no time limit  endpoint local http://127.0.0.1:8080  sandbox off
    12:00:01 upgrade bash ok 10ms
    ");
}

#[test]
fn hostile_text_cannot_act_and_cannot_make_a_line() {
    let hostile = "\x1b]0;owned\x07\r::error::x\n##[group]y\u{9b}2J \u{202e}🦀";
    let long = "x".repeat(10_240);
    let records = script()
        .at("12:00:00", started())
        .at("12:00:01", Event::IterationStarted { iteration: 1, of: 20 })
        .at("12:00:01", delta("\n::add-mask::secret\r::set-output name=a::b\n"))
        .at("12:00:01", delta("\x1b[2"))
        .at("12:00:01", delta("Jsplit in the middle"))
        .at("12:00:02", tool(hostile, hostile, ToolStatus::Ok, 1))
        .at("12:00:03", tool("bash", &long, ToolStatus::Ok, 1))
        .at("12:00:04", Event::Verdict { verdict: verdict(VerdictKind::Unmet, 1, hostile), of: 20 })
        .at("12:00:05", Event::CheckFinished { iteration: 1, check: check(hostile, CheckStatus::Fail, Some(1), 1) })
        .at("12:00:06", notice(hostile))
        .at("12:00:07", Event::JobFinished { job: hostile.into(), state: hostile.into(), duration_ms: 1 })
        .at("12:00:08", Event::ToolDenied { call_id: "c".into(), tool: hostile.into(), reason: hostile.into() })
        .records;
    let err = stderr_of(Look { verbose: true, ..Look::default() }, &records);
    for line in err.lines() {
        assert!(line.starts_with("12:00:0"), "every line is ours: {line:?}");
        assert!(!line.chars().any(char::is_control) && !line.contains("##[") && !line.contains('\u{202e}'), "{line:?}");
        assert!(!line.contains("owned"), "{line:?}");
    }
    assert!(err.contains("| : :add-mask::secret\n") && err.contains("| : :set-output name=a::b\n"), "{err}");
    assert!(err.contains("| split in the middle\n"), "{err}");
    assert!(err.contains("goal not met yet (1/20): : :error::x # #[group]y 🦀\n"), "{err}");
    assert!(err.contains(&format!("bash {long} ok 1ms")), "off a terminal nothing is clipped");
}

#[test]
fn on_a_terminal_lines_are_clipped_to_its_width() {
    let look = Look { terminal: true, ..Look::default() };
    let mut records = whole_run();
    records.pop();
    let records = [
        records,
        script().at("12:00:00", tool("bash", &"🦀".repeat(60), ToolStatus::Ok, 1)).records,
        script().at("12:00:00", tool("bash", &"⚠\u{fe0f}".repeat(60), ToolStatus::Ok, 1)).records,
    ]
    .concat();
    let (_, err) = show_in(Format::Text, look, false, Some(80), &records);
    let important = |line: &&str| ["goal ", " fail"].iter().any(|word| line.contains(word));
    for line in err.lines().skip(2).filter(|line| !important(line)) {
        assert!(unicode_width::UnicodeWidthStr::width(line) <= 80, "{line}");
    }
    let whole = stderr_of(Look::default(), &records);
    assert!(err.lines().take(2).eq(whole.lines().take(2)), "the first line and a notice are never clipped: {err}");
    assert!(err.contains("12:00:00 upgrade 2/20 bash 🦀🦀"), "{err}");
    assert!(err.lines().rev().take(2).all(|line| line.ends_with('…')), "{err}");
    assert!(err.contains("12:00:13 upgrade 1/20 bash \"cargo test\" ok 4.2s  $0.25/5.00  ctx 42%\n"), "{err}");
}

#[test]
fn verdicts_failed_checks_and_the_last_line_are_whole_on_a_narrow_terminal() {
    let reason = "check `tests` does not pass (exit 101), as it did at the start of this run and in every iteration";
    let long = "a-check-with-a-name-that-alone-is-wider-than-the-terminal-it-is-shown-on-today";
    let records = script()
        .at("12:00:01", Event::Verdict { verdict: verdict(VerdictKind::Unmet, 1, reason), of: 20 })
        .at("12:00:02", Event::CheckFinished { iteration: 1, check: check(long, CheckStatus::Fail, Some(101), 1) })
        .at("12:00:02", Event::CheckFinished { iteration: 1, check: check(long, CheckStatus::Pass, Some(0), 1) })
        .at("12:00:03", Event::RunInterrupted { reason: "terminated".into() })
        .at("12:00:04", Event::RunFinished { result: Box::new(a_result(Outcome::Met)) })
        .records;
    let (_, err) = show_in(Format::Text, Look { terminal: true, ..Look::default() }, false, Some(40), &records);
    let lines: Vec<&str> = err.lines().collect();
    assert!(lines[0].ends_with(reason), "{err}");
    assert!(lines[1].contains(&format!("{long} fail (exit 101)")), "{err}");
    assert!(lines[2].ends_with('…'), "a check that passes is progress: {err}");
    assert!(lines[3].ends_with("interrupted: SIGTERM"), "{err}");
    assert!(lines[4].contains("finished met (exit 0)") && !lines[4].contains('…'), "{err}");
}

#[test]
fn a_heartbeat_comes_every_thirty_seconds_of_the_same_thing() {
    let err = Shared::default();
    let look = Look::default();
    let console = Console::with_writers(
        Box::new(Shared::default()),
        Box::new(err.clone()),
        Format::Text,
        look,
        false,
        "upgrade".into(),
    );
    let mut script = script().at("12:00:00", Event::IterationStarted { iteration: 3, of: 20 });
    let mut send = |at: u64, clock: &str, event: Event| {
        script = std::mem::replace(&mut script, self::script()).at(clock, event);
        let record = script.records.last().expect("one was added").clone();
        console.tick(Duration::from_secs(at));
        console.event(&record);
    };
    send(0, "12:00:00", Event::IterationStarted { iteration: 3, of: 20 });
    send(1, "12:00:01", Event::StepStarted { iteration: 3, step: 9 });
    for second in 2..=40 {
        console.tick(Duration::from_secs(second));
    }
    send(40, "12:00:40", tool_started("bash", "\"cargo test\""));
    for second in 41..=131 {
        console.tick(Duration::from_secs(second));
    }
    send(131, "12:02:11", tool("bash", "\"cargo test\"", ToolStatus::Ok, 91_000));
    for second in 132..=170 {
        console.tick(Duration::from_secs(second));
    }
    let wait = Event::RunWaiting { lane: Lane::Judge, reason: "rate limited".into(), wait_ms: 40_000 };
    send(170, "12:02:50", wait);
    for second in 171..=245 {
        console.tick(Duration::from_secs(second));
    }
    send(246, "12:04:06", Event::RunFinished { result: Box::new(a_result(Outcome::Saved)) });
    for second in 247..=400 {
        console.tick(Duration::from_secs(second));
    }
    insta::assert_snapshot!(err.text(), @r#"
    12:00:31 upgrade 3/20 … agent call running for 30s
    12:01:10 upgrade 3/20 … bash "cargo test" running for 30s
    12:01:40 upgrade 3/20 … bash "cargo test" running for 1m
    12:02:10 upgrade 3/20 … bash "cargo test" running for 1m30s
    12:02:11 upgrade 3/20 bash "cargo test" ok 1m31s
    12:02:41 upgrade 3/20 … checks or judge running for 30s
    12:02:50 upgrade 3/20 waiting 40s: rate limited
    12:03:20 upgrade 3/20 … waiting for 30s of 40s: rate limited
    12:03:50 upgrade 3/20 … judge call running for 20s
    12:04:06 upgrade 3/20 finished saved (exit 75) 4m12s
    "#);
}

#[test]
fn jsonl_is_one_record_a_line_and_deltas_on_demand() {
    let records = whole_run();
    for (deltas, expected) in [(false, records.len() - 2), (true, records.len())] {
        let (out, err) = show_in(Format::Jsonl, Look::default(), deltas, None, &records);
        let read: Vec<Record> = out.lines().map(|line| serde_json::from_str(line).expect("a record")).collect();
        assert_eq!(read.len(), expected);
        let kept = records.iter().filter(|record| deltas || !matches!(record.event, Event::ModelDelta { .. }));
        assert!(read.iter().eq(kept));
        assert!(matches!(read.last().map(|record| &record.event), Some(Event::RunFinished { .. })));
        assert!(err.contains("goal met: All tests pass"), "stderr is talk in every format");
    }
}

#[test]
fn json_is_the_result_object_alone_even_without_a_session() {
    let (out, _) = show_in(Format::Json, Look::default(), false, None, &whole_run());
    assert_eq!(serde_json::from_str::<RunResult>(&out).expect("a result"), a_result(Outcome::Met));

    let error = ResultError {
        message: "goal.yaml: limits.cost: `lots` is no amount\n::error::goal.yaml: goal: missing".into(),
        hint: Some("`spettro schema goal` prints the keys".into()),
    };
    let result =
        RunResult { error: Some(error), session_id: None, verdict: None, checks: vec![], ..a_result(Outcome::Usage) };
    let finish = |format| {
        let (out, err) = (Shared::default(), Shared::default());
        Console::with_writers(
            Box::new(out.clone()),
            Box::new(err.clone()),
            format,
            Look { quiet: true, ..Look::default() },
            false,
            String::new(),
        )
        .finish(&result);
        (out.text(), err.text())
    };
    let (out, err) = finish(Format::Json);
    assert_eq!(serde_json::from_str::<RunResult>(&out).expect("a result"), result);
    assert_eq!(out.lines().count(), 1);
    insta::assert_snapshot!(err, @r"
    error: goal.yaml: limits.cost: `lots` is no amount
    : :error::goal.yaml: goal: missing
    hint: `spettro schema goal` prints the keys
    ");
    assert_eq!(finish(Format::Text), (String::new(), err.clone()));
    assert_eq!(finish(Format::Jsonl), (String::new(), err));
}

#[test]
fn a_closed_stream_is_given_up_and_the_other_goes_on() {
    let run = |out: Box<dyn Write>, err: Box<dyn Write>, format| {
        let console = Console::with_writers(out, err, format, Look::default(), false, "upgrade".into());
        whole_run().iter().for_each(|record| console.event(record));
        console.finish(&unfinished(Outcome::Unmet));
    };
    let (closing, err) = (Closing::after(1), Shared::default());
    run(Box::new(closing.clone()), Box::new(err.clone()), Format::Jsonl);
    assert_eq!(*closing.tries.borrow(), 2, "after the first error nothing more is tried");
    assert!(err.text().contains("goal met") && err.text().contains("resume: spettro run"), "{}", err.text());

    let (out, closing) = (Shared::default(), Closing::after(0));
    run(Box::new(out.clone()), Box::new(closing.clone()), Format::Jsonl);
    assert_eq!(*closing.tries.borrow(), 1);
    assert_eq!(out.text().lines().count(), whole_run().len() - 2, "all but the two deltas");
}

#[test]
fn the_resume_line_is_for_a_shell_and_for_unfinished_runs_only() {
    let stderr = |result: &RunResult| {
        let err = Shared::default();
        let (out, look) = (Box::new(Shared::default()), Look::default());
        Console::with_writers(out, Box::new(err.clone()), Format::Text, look, false, String::new()).finish(result);
        err.text()
    };
    let mut result = unfinished(Outcome::Unmet);
    assert_eq!(stderr(&result), "resume: spettro run --resume session-20261129-120000-0a1b2c3d\n");
    if let Some(argv) = &mut result.commands.resume {
        argv.extend(["--session-dir".to_owned(), "/my dir/s".to_owned()]);
    }
    assert!(stderr(&result).ends_with(" --session-dir '/my dir/s'\n"));
    result.outcome = Some(Outcome::Met);
    assert_eq!(stderr(&result), "");
    assert_eq!(stderr(&a_result(Outcome::Unmet)), "");
}
