//! Events, metadata, tasks, status: live and rebuilt alike.

use super::*;

const FILES: [&str; 4] = ["events.jsonl", "metadata.json", "tasks.json", "status.json"];

fn records(path: &Path) -> Vec<Record> {
    read_text(path).lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn names(records: &[Record]) -> Vec<String> {
    let name = |record: &Record| serde_json::to_value(record).expect("json")["type"].as_str().map(str::to_owned);
    records.iter().filter_map(name).collect()
}

/// A session of two runs, the first of which died; its folder's derived files as they were live.
fn lived(lab: &Lab) -> BTreeMap<&'static str, String> {
    let session = lab.create("s");
    let mut facts = samples();
    facts.truncate(facts.len() - 1);
    for fact in facts {
        lab.clock.advance(Duration::from_millis(5));
        session.append(fact).expect("appended");
    }
    drop(session);
    let session = lab.open("s").expect("opened").session;
    for fact in [run("run-2"), Fact::Iteration { iteration: 2 }, tasks("second"), end("run-2", Outcome::Met)] {
        lab.clock.advance(Duration::from_millis(5));
        session.append(fact).expect("appended");
    }
    session.save_derived().expect("saved");
    drop(session);
    FILES.map(|name| (name, read_text(&lab.dir("s").join(name)))).into()
}

#[test]
fn every_fact_that_has_an_event_gives_it_live() {
    let lab = Lab::new();
    let heard = Rc::new(Heard::default());
    let session = lab.create_for("s", vec![Rc::<Heard>::clone(&heard)]);
    for fact in samples() {
        session.append(fact).expect("appended");
    }
    let records = heard.0.borrow();
    let expected = [
        (2, "run.started"),
        (3, "iteration.started"),
        (6, "attempt.failed"),
        (7, "call.finished"),
        (9, "tool.started"),
        (10, "tool.finished"),
        (13, "tool.denied"),
        (15, "compaction.finished"),
        (16, "compaction.finished"),
        (17, "compaction.failed"),
        (18, "compaction.paused"),
        (19, "task.changed"),
        (22, "job.started"),
        (23, "job.finished"),
        (25, "steer.delivered"),
        (29, "check.finished"),
        (29, "check.finished"),
        (32, "call.finished"),
        (33, "verdict"),
        (35, "notice"),
        (36, "run.interrupted"),
        (38, "run.finished"),
    ];
    let facts: Vec<u64> = records.iter().filter_map(|record| record.fact).collect();
    let got: Vec<_> = facts.iter().copied().zip(names(&records)).collect();
    assert_eq!(got, expected.map(|(fact, name)| (fact, name.to_owned())));
    for (seq, record) in (1..).zip(records.iter()) {
        assert_eq!((record.v, record.seq, record.run.as_str(), record.session.as_str()), (1, seq, "run-1", "s"));
    }
    let find = |name: &str| {
        let index = expected.iter().position(|(_, expected)| *expected == name).expect("it is there");
        records[index].event.clone()
    };
    assert!(matches!(find("run.started"), Event::RunStarted { goal, resumed: false, .. } if goal == "demo"));
    assert_eq!(find("iteration.started"), Event::IterationStarted { iteration: 1, of: 20 });
    assert!(matches!(find("verdict"), Event::Verdict { of: 20, .. }));
    assert!(matches!(
        find("attempt.failed"),
        Event::AttemptFailed { attempt: 1, status: Some(429), wait_ms: Some(2000), .. }
    ));
    let denied =
        Event::ToolDenied { call_id: "c2".into(), tool: "bash".into(), reason: "too many calls in one reply".into() };
    assert_eq!(find("tool.denied"), denied);
    assert_eq!(super::derived::records(&lab.dir("s").join("events.jsonl")), *records, "stored as heard");
}

#[test]
fn a_record_reads_as_it_was_written() {
    let lab = Lab::new();
    let files = lived(&lab);
    for line in files["events.jsonl"].lines() {
        let record: Record = serde_json::from_str(line).expect(line);
        assert_eq!(serde_json::to_string(&record).expect("json"), line);
        assert!(line.starts_with("{\"v\":1,\"seq\":"), "{line}");
    }
}

#[test]
fn deleted_derived_files_come_back_as_they_were() {
    let lab = Lab::new();
    let files = lived(&lab);
    let run_ids: Vec<_> = records(&lab.dir("s").join("events.jsonl")).into_iter().map(|record| record.run).collect();
    assert!(run_ids.iter().any(|run| run == "run-1") && run_ids.last().is_some_and(|run| run == "run-2"));
    for name in FILES {
        std::fs::remove_file(lab.dir("s").join(name)).expect("removed");
        lab.open_for("s", "run-3", Vec::new()).expect("opened");
        for (name, content) in &files {
            assert_eq!(read_text(&lab.dir("s").join(name)), *content, "{name}");
        }
    }
    for name in ["metadata.json", "tasks.json", "status.json", "events.jsonl"] {
        for stale in ["{\"seq\":3}\n", "", "nonsense", "{\"seq\":1,\"fact\":900,\"type\":\"notice\"}\n"] {
            std::fs::write(lab.dir("s").join(name), stale).expect("written");
            lab.open_for("s", "run-3", Vec::new()).expect("opened");
            assert_eq!(read_text(&lab.dir("s").join(name)), files[name], "{name} from {stale:?}");
        }
    }
}

#[test]
fn an_event_stream_that_lags_anywhere_or_is_torn_catches_up() {
    let lab = Lab::new();
    let files = lived(&lab);
    let path = lab.dir("s").join("events.jsonl");
    let whole = &files["events.jsonl"];
    let newlines = whole.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(index, _)| index);
    let cuts: Vec<usize> = newlines.flat_map(|at| [at.saturating_sub(3), at, at + 1]).chain([0, 1]).collect();
    for cut in cuts {
        std::fs::write(&path, &whole.as_bytes()[..cut]).expect("written");
        lab.open_for("s", "run-3", Vec::new()).expect("opened");
        assert_eq!(read_text(&path), *whole, "cut at {cut}");
    }
}

#[test]
fn catching_up_keeps_the_events_that_have_no_fact_and_numbers_on() {
    let lab = Lab::new();
    let session = lab.create("s");
    session.append(frozen()).expect("appended");
    session.append(run("run-1")).expect("appended");
    session.emit(Event::StepStarted { iteration: 1, step: 1 });
    session.emit(Event::ModelDelta { lane: Lane::Agent, text: "never stored".into() });
    session.append(Fact::Iteration { iteration: 1 }).expect("appended");
    session.save_derived().expect("saved");
    // Still in the buffer when the process dies.
    session.append(Fact::Iteration { iteration: 2 }).expect("appended");
    drop(session);
    let path = lab.dir("s").join("events.jsonl");
    assert_eq!(names(&records(&path)), ["run.started", "step.started", "iteration.started"]);
    let opened = lab.open("s").expect("opened");
    opened.session.append(run("run-2")).expect("appended");
    opened.session.save_derived().expect("saved");
    let records = records(&path);
    let expected = ["run.started", "step.started", "iteration.started", "iteration.started", "run.started"];
    assert_eq!(names(&records), expected);
    assert_eq!(records.iter().map(|record| record.seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!(
        records.iter().map(|record| record.fact).collect::<Vec<_>>(),
        [Some(2), None, Some(3), Some(4), Some(5)]
    );
    let runs: Vec<_> = records.iter().map(|record| record.run.as_str()).collect();
    assert_eq!(runs, ["run-1", "run-1", "run-1", "run-1", "run-2"]);
}

#[test]
fn listeners_hear_deltas_and_may_call_back() {
    struct Calls(RefCell<Option<Session>>, Heard);
    impl Listener for Calls {
        fn event(&self, record: &Record) {
            self.1.event(record);
            if let (Event::StepStarted { .. }, Some(session)) = (&record.event, self.0.borrow().as_ref()) {
                session.append(Fact::Notice { code: "c".into(), text: "t".into() }).expect("appended");
            }
        }
    }
    let lab = Lab::new();
    let listener = Rc::new(Calls(RefCell::default(), Heard::default()));
    let session = lab.create_for("s", vec![Rc::<Calls>::clone(&listener)]);
    *listener.0.borrow_mut() = Some(session.clone());
    session.emit(Event::StepStarted { iteration: 1, step: 1 });
    session.emit(Event::ModelDelta { lane: Lane::Agent, text: "x".into() });
    assert_eq!(names(&listener.1.0.borrow()), ["step.started", "notice", "model.delta"]);
    *listener.0.borrow_mut() = None;
}

#[test]
fn run_finished_is_on_disk_at_once_and_the_last_event_of_its_run() {
    let lab = Lab::new();
    let heard = Rc::new(Heard::default());
    let session = lab.create_for("s", vec![Rc::<Heard>::clone(&heard)]);
    session.append(run("run-1")).expect("appended");
    session.append(end("run-1", Outcome::Met)).expect("appended");
    session.emit(Event::RunWaiting { lane: Lane::Agent, reason: "late".into(), wait_ms: 1 });
    let path = lab.dir("s").join("events.jsonl");
    assert_eq!(names(&records(&path)), ["run.started", "run.finished"]);
    session.save_derived().expect("saved");
    assert_eq!(names(&records(&path)), ["run.started", "run.finished"]);
    assert_eq!(names(&heard.0.borrow()), ["run.started", "run.finished"]);
    drop(session);
    let opened = lab.open("s").expect("opened");
    opened.session.append(run("run-2")).expect("appended");
    opened.session.emit(Event::StepStarted { iteration: 1, step: 1 });
    opened.session.save_derived().expect("saved");
    assert_eq!(names(&records(&path)), ["run.started", "run.finished", "run.started", "step.started"]);
}

#[test]
fn events_that_cannot_be_written_are_said_once_and_end_nothing() {
    let lab = Lab::new();
    let heard = Rc::new(Heard::default());
    let session = lab.create_for("s", vec![Rc::<Heard>::clone(&heard)]);
    std::fs::create_dir(lab.dir("s").join("events.jsonl")).expect("something in its place");
    session.append(run("run-1")).expect("appended");
    session.save_derived().expect("saved all the same");
    session.append(Fact::Iteration { iteration: 1 }).expect("appended");
    session.save_derived().expect("saved all the same");
    assert_eq!(names(&heard.0.borrow()), ["run.started", "notice", "iteration.started"]);
    session.append(end("run-1", Outcome::Met)).expect("appended");
    assert_eq!(names(&heard.0.borrow()).last().map(String::as_str), Some("run.finished"));
}

#[test]
fn metadata_tasks_and_status_say_where_the_session_stands() {
    let lab = Lab::new();
    let session = lab.create("s");
    for fact in samples().into_iter().filter(|fact| !matches!(fact, Fact::End(_))) {
        session.append(fact).expect("appended");
    }
    session.append(call(Lane::Agent, 2)).expect("appended");
    session.append(tool_started("c9")).expect("appended");
    session.save_derived().expect("saved");
    let json =
        |name: &str| -> serde_json::Value { serde_json::from_str(&read_text(&lab.dir("s").join(name))).expect(name) };
    let metadata: Metadata = serde_json::from_value(json("metadata.json")).expect("metadata");
    assert_eq!((metadata.seq, metadata.message_count), (39, 6));
    assert_eq!(metadata.title, "Make the check pass");
    assert_eq!((metadata.created_at.as_str(), metadata.origin.as_str()), ("2026-11-18T11:06:40.123Z", "run"));
    let goal = &metadata.goal;
    assert_eq!((goal.name.as_str(), goal.state.as_str()), ("demo", "running"));
    assert_eq!(goal.digest, "928eda3f192d79b7855e2ab76dbcbc67f950cf4f2c9cca79bfc364d17bf2dca8");
    assert_eq!((goal.iteration, goal.no_progress_halves, goal.active_ms, goal.waited_ms), (1, 2, 1000, 20));
    assert_eq!(goal.limits, Some(limits()));
    assert_eq!(goal.last_verdict.as_ref().map(|verdict| verdict.kind), Some(VerdictKind::Unmet));
    // One settled call in each of two lanes, 120 micro-dollars each; the open one is not charged while it may settle.
    let usage = &metadata.usage;
    assert_eq!((usage.calls, usage.cost, usage.priced), (2, Micros(240), true));
    assert_eq!((usage.input_tokens, usage.cache_read_tokens, usage.output_tokens), (80, 60, 10));
    assert_eq!(usage.last_prompt_tokens, 40);
    assert_eq!(usage.by_lane["agent"].cost, Micros(120));
    assert_eq!(usage.by_model["local/m"].calls, 2);
    assert_eq!(metadata.outcome, None);
    let tasks = json("tasks.json");
    assert_eq!(
        (&tasks["seq"], &tasks["tasks"][0]["id"], &tasks["highest_id"]),
        (&39.into(), &"task-1".into(), &1.into())
    );
    let status = json("status.json");
    assert_eq!((&status["seq"], &status["state"], &status["run"]), (&39.into(), &"running".into(), &"run-1".into()));
    assert_eq!((&status["steps"], &status["iterations"]), (&2.into(), &20.into()));
    assert_eq!((&status["occupancy_tokens"], &status["window_tokens"]), (&45.into(), &1000.into()));
    assert_eq!(status["tool"], "bash \"ls\"");

    session.append(end("run-1", Outcome::Stalled)).expect("appended");
    session.save_derived().expect("saved");
    let metadata: Metadata = serde_json::from_value(json("metadata.json")).expect("metadata");
    assert_eq!((metadata.outcome, metadata.goal.state.as_str()), (Some(Outcome::Stalled), "stalled"));
    // It will never settle now: its reservation is charged.
    assert_eq!((metadata.usage.calls, metadata.usage.cost), (3, Micros(240 + 700)));
    assert_eq!(json("status.json")["tool"], serde_json::Value::Null);
}

#[test]
fn a_title_is_one_folded_line_of_at_most_sixty_characters() {
    let sixty = "x".repeat(60);
    let crabs = "🦀".repeat(61);
    let cases = [
        ("Fix it", "Fix it".to_owned()),
        ("\n \n\t Fix\t\tthe   parser \r\nand more", "Fix the parser".to_owned()),
        ("", String::new()),
        (&sixty, sixty.clone()),
        (&format!("{sixty}y"), format!("{}…", "x".repeat(59))),
        (&crabs, format!("{}…", "🦀".repeat(59))),
        (&format!("{} {}", "x".repeat(58), "y".repeat(9)), format!("{}…", "x".repeat(58))),
    ];
    for (goal, expected) in cases {
        assert_eq!(title(goal), expected, "{goal:?}");
        assert!(title(goal).chars().count() <= 60);
    }
}
