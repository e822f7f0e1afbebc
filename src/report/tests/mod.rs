//! What people and pipelines see of whole runs: the scripted events and results that the tests share.

mod bars;
mod streams;
mod summaries;

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

use super::*;
use crate::event::*;

#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Vec<u8>>>);

impl Shared {
    fn text(&self) -> String {
        String::from_utf8(self.0.borrow().clone()).expect("output is UTF-8")
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Accepts so many writes, then is a closed pipe. Counts the tries.
#[derive(Clone)]
struct Closing {
    left: Rc<RefCell<usize>>,
    tries: Rc<RefCell<usize>>,
}

impl Closing {
    fn after(writes: usize) -> Closing {
        Closing { left: Rc::new(RefCell::new(writes)), tries: Rc::default() }
    }
}

impl Write for Closing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        *self.tries.borrow_mut() += 1;
        let mut left = self.left.borrow_mut();
        *left = left.checked_sub(1).ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A run's events with their times, as `HH:MM:SS`.
struct Script {
    seq: u64,
    records: Vec<Record>,
}

impl Script {
    fn at(mut self, clock: &str, event: Event) -> Script {
        self.seq += 1;
        self.records.push(Record {
            v: EVENT_VERSION,
            seq: self.seq,
            t: format!("2026-11-29T{clock}.512Z"),
            run: "run-1".into(),
            session: "session-20261129-120000-0a1b2c3d".into(),
            fact: None,
            event,
        });
        self
    }
}

fn script() -> Script {
    Script { seq: 0, records: Vec::new() }
}

fn limits() -> Limits {
    Limits {
        iterations: 20,
        steps: 500,
        steps_per_iteration: 200,
        cost: Some(Micros(5_000_000)),
        tokens: None,
        time_ms: Some(7_200_000),
        idle_ms: Some(900_000),
        command_ms: 600_000,
        stall: 3,
        consecutive_errors: 3,
    }
}

fn started() -> Event {
    Event::RunStarted {
        version: "0.1.0".into(),
        goal: "upgrade".into(),
        config_digest: "c0ffee".into(),
        workspace: "/src/app".into(),
        model: "anthropic/claude-opus-4-5".into(),
        judge_model: Some("openai/gpt-5".into()),
        limits: limits(),
        endpoints: vec![],
        sandbox: "off".into(),
        resumed: false,
        recorded: false,
    }
}

fn call(lane: Lane, n: u64, cost: u64, total: u64, occupancy: Option<u64>) -> Event {
    Event::CallFinished {
        lane,
        n,
        model: if lane == Lane::Judge { "openai/gpt-5".into() } else { "anthropic/claude-opus-4-5".into() },
        usage: Some(Usage { input_tokens: 12_345, output_tokens: 210, ..Usage::default() }),
        cost: Micros(cost),
        known: CostKnown::Reported,
        total_cost: Micros(total),
        occupancy_tokens: occupancy,
        window_tokens: occupancy.map(|_| 200_000),
        duration_ms: 3_100,
    }
}

fn tool_started(tool: &str, summary: &str) -> Event {
    Event::ToolStarted { call_id: "c1".into(), tool: tool.into(), summary: summary.into() }
}

fn tool(tool: &str, summary: &str, status: ToolStatus, duration_ms: u64) -> Event {
    Event::ToolFinished {
        call_id: "c1".into(),
        tool: tool.into(),
        summary: summary.into(),
        status,
        duration_ms,
        output_bytes: 10,
        spool: None,
    }
}

fn check(name: &str, status: CheckStatus, exit_code: Option<i32>, duration_ms: u64) -> CheckResult {
    CheckResult {
        name: name.into(),
        required: true,
        status,
        exit_code,
        duration_ms,
        head: String::new(),
        tail: String::new(),
        spool: None,
        signature: String::new(),
    }
}

fn verdict(kind: VerdictKind, iteration: u64, reason: &str) -> Verdict {
    Verdict { kind, by: VerdictBy::Judge, iteration, reason: reason.into(), next_step: String::new(), criteria: vec![] }
}

fn notice(text: &str) -> Event {
    Event::Notice { code: "dirty".into(), text: text.into() }
}

fn delta(text: &str) -> Event {
    Event::ModelDelta { lane: Lane::Agent, text: text.into() }
}

fn a_result(outcome: Outcome) -> RunResult {
    RunResult {
        v: 1,
        state: "finished".into(),
        outcome: Some(outcome),
        exit_code: Some(outcome.code()),
        retryable: outcome.retryable(),
        retry_after_s: None,
        error: None,
        problems: Vec::new(),
        run_id: "run-1".into(),
        session_id: Some("session-20261129-120000-0a1b2c3d".into()),
        goal: Some(GoalRef { name: "upgrade".into(), file: Some("/src/upgrade.yaml".into()), digest: "d0".into() }),
        workspace: Some("/src/app".into()),
        model: Some("anthropic/claude-opus-4-5".into()),
        judge_model: Some("openai/gpt-5".into()),
        recorded_model: false,
        verdict: Some(verdict(VerdictKind::Met, 2, "All tests pass on serde 2.")),
        checks: vec![check("tests", CheckStatus::Pass, Some(0), 3_400)],
        result: Some("I upgraded serde.".into()),
        iterations: 2,
        steps: 7,
        duration_ms: 252_000,
        active_ms: 252_000,
        waited_ms: 0,
        total_cost_usd: 0.31,
        cost_usd: [("agent".to_owned(), 0.25), ("judge".to_owned(), 0.06)].into(),
        run_usage: RunUsage { calls: 9, tokens: 45_000, cost: Micros(310_000), iterations: 2, steps: 7 },
        usage_by_lane: [
            (
                "agent".to_owned(),
                UsageRow {
                    calls: 7,
                    usage: Usage { input_tokens: 40_000, output_tokens: 2_100, ..Usage::default() },
                    cost: Micros(250_000),
                },
            ),
            (
                "judge".to_owned(),
                UsageRow {
                    calls: 2,
                    usage: Usage { input_tokens: 2_800, output_tokens: 100, ..Usage::default() },
                    cost: Micros(60_000),
                },
            ),
        ]
        .into(),
        usage_by_model: UsageBy::new(),
        unreported_calls: vec![],
        peak_occupancy_tokens: 84_000,
        compactions: Default::default(),
        limits: Some(limits()),
        limit_hit: None,
        sandbox: "off".into(),
        changes: Some(Changes {
            base: Some("1a2b3c4d5e6f".into()),
            head: Some("1a2b3c4d5e6f".into()),
            branch: Some("main".into()),
            files: vec!["Cargo.toml".into(), "src/lib.rs".into()],
            insertions: Some(12),
            deletions: Some(4),
            patch: Some("/home/u/s/changes.patch".into()),
        }),
        memory_saved: vec![],
        leaked: vec![],
        paths: Some(Paths {
            session: "/home/u/s".into(),
            result: "/home/u/s/result.json".into(),
            summary: "/home/u/s/summary.md".into(),
            events: "/home/u/s/events.jsonl".into(),
            copy: None,
        }),
        copy: None,
        commands: Commands::default(),
    }
}

fn unfinished(outcome: Outcome) -> RunResult {
    RunResult {
        commands: Commands {
            resume: Some(["spettro", "run", "--resume", "session-20261129-120000-0a1b2c3d"].map(String::from).into()),
            ..Commands::default()
        },
        ..a_result(outcome)
    }
}

/// A run that fails its check once, meets trouble on the way, and then is met.
fn whole_run() -> Vec<Record> {
    script()
        .at("12:00:00", started())
        .at("12:00:00", notice("3 files were changed before the start: a, b, c"))
        .at("12:00:00", Event::IterationStarted { iteration: 1, of: 20 })
        .at("12:00:01", Event::StepStarted { iteration: 1, step: 1 })
        .at(
            "12:00:02",
            Event::AttemptFailed {
                lane: Lane::Agent,
                n: 1,
                attempt: 1,
                error: "overloaded".into(),
                status: Some(529),
                wait_ms: Some(4_000),
            },
        )
        .at("12:00:02", Event::RunWaiting { lane: Lane::Agent, reason: "overloaded".into(), wait_ms: 4_000 })
        .at("12:00:08", delta("I run the te"))
        .at("12:00:08", delta("sts first.\nThen I fix"))
        .at("12:00:09", call(Lane::Agent, 1, 250_000, 250_000, Some(84_000)))
        .at("12:00:09", tool_started("bash", "\"cargo test\""))
        .at("12:00:13", tool("bash", "\"cargo test\"", ToolStatus::Ok, 4_200))
        .at(
            "12:00:13",
            Event::CheckFinished { iteration: 0, check: check("tests", CheckStatus::Fail, Some(101), 3_400) },
        )
        .at("12:00:14", Event::JobStarted { job: "job-1".into(), command: "npm run dev".into() })
        .at(
            "12:00:15",
            Event::ToolDenied { call_id: "c2".into(), tool: "web".into(), reason: "not in tools.allow".into() },
        )
        .at(
            "12:00:20",
            Event::CheckFinished { iteration: 1, check: check("tests", CheckStatus::Fail, Some(101), 3_400) },
        )
        .at(
            "12:00:21",
            Event::Verdict { verdict: verdict(VerdictKind::Unmet, 1, "check `tests` failed:\nexit 101"), of: 20 },
        )
        .at("12:00:21", Event::IterationStarted { iteration: 2, of: 20 })
        .at("12:00:21", Event::SteerDelivered { text: "leave the\nlockfile".into() })
        .at("12:00:22", Event::StepStarted { iteration: 2, step: 2 })
        .at("12:00:25", call(Lane::Agent, 2, 0, 250_000, Some(160_000)))
        .at("12:00:25", tool("file-edit", "src/lib.rs", ToolStatus::Error, 35))
        .at("12:00:26", Event::JobFinished { job: "job-1".into(), state: "killed".into(), duration_ms: 12_000 })
        .at("12:00:30", Event::CheckFinished { iteration: 2, check: check("tests", CheckStatus::Pass, Some(0), 3_400) })
        .at("12:00:33", call(Lane::Judge, 1, 60_000, 310_000, None))
        .at("12:04:12", Event::Verdict { verdict: verdict(VerdictKind::Met, 2, "All tests pass on serde 2."), of: 20 })
        .at("12:04:12", Event::RunFinished { result: Box::new(a_result(Outcome::Met)) })
        .records
}

fn show_in(format: Format, look: Look, deltas: bool, columns: Option<usize>, records: &[Record]) -> (String, String) {
    let (out, err) = (Shared::default(), Shared::default());
    let mut console =
        Console::with_writers(Box::new(out.clone()), Box::new(err.clone()), format, look, deltas, "upgrade".into());
    if let Some(columns) = columns {
        console.set_width(columns);
    }
    for record in records {
        console.event(record);
        if let Event::RunFinished { result } = &record.event {
            console.finish(result);
        }
    }
    (out.text(), err.text())
}

fn stderr_of(look: Look, records: &[Record]) -> String {
    show_in(Format::Text, look, false, None, records).1
}
