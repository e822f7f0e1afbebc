//! Tests of the room, and what they share: a world of its own clock, and sample facts.

mod derived;
mod disk;
mod fold;
mod line;
mod lock;
mod log;
mod spool;
mod store;
mod wire;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use super::wirelog::read_wire;
use super::*;
use crate::event::*;
use crate::world::*;

/// A folder for a store, a workspace, and a world whose clock only moves when it is slept on or told to.
pub(crate) struct Lab {
    pub(crate) temp: tempfile::TempDir,
    pub(crate) world: World,
    pub(crate) clock: Rc<FakeClock>,
    pub(crate) store: Store,
    pub(crate) workspace: PathBuf,
}

impl Lab {
    pub(crate) fn new() -> Lab {
        let temp = tempfile::tempdir().expect("a temporary folder");
        let workspace = temp.path().join("workspace");
        std::fs::create_dir(&workspace).expect("a workspace");
        let clock = Rc::new(FakeClock { now: Cell::new(Duration::from_millis(1_795_000_000_123)) });
        let world = World {
            transport: Rc::new(Nothing),
            exec: Rc::new(Nothing),
            dir: Rc::new(RealDir),
            clock: Rc::<FakeClock>::clone(&clock),
            ids: Rc::new(RealIds::from_seed(b"test")),
            env: Rc::new(Nothing),
        };
        let store = Store::new(temp.path().join("sessions"));
        Lab { world, clock, store, workspace, temp }
    }

    pub(crate) fn create(&self, id: &str) -> Session {
        self.create_for(id, Vec::new())
    }

    pub(crate) fn create_for(&self, id: &str, listeners: Vec<Rc<dyn Listener>>) -> Session {
        Session::create(&self.world, &self.store, &self.workspace, id, "run-1", listeners).expect("a new session")
    }

    pub(crate) fn dir(&self, id: &str) -> PathBuf {
        self.store.dir_of(&self.workspace, id)
    }

    pub(crate) fn open(&self, id: &str) -> Result<Opened, SessionError> {
        self.open_for(id, "run-2", Vec::new())
    }

    pub(crate) fn open_for(
        &self,
        id: &str,
        run: &str,
        listeners: Vec<Rc<dyn Listener>>,
    ) -> Result<Opened, SessionError> {
        block_on(Session::open(&self.world, &self.dir(id), run, listeners))
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(future)
}

pub(crate) struct FakeClock {
    now: Cell<Duration>,
}

impl FakeClock {
    pub(crate) fn advance(&self, by: Duration) {
        self.now.set(self.now.get() + by);
    }
}

impl Clock for FakeClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.now.get()
    }

    fn elapsed(&self) -> Duration {
        self.now.get()
    }

    fn sleep(&self, duration: Duration) -> Boxed<'_, ()> {
        Box::pin(async move {
            self.advance(duration);
            tokio::task::yield_now().await;
        })
    }
}

/// Ports that the session never uses.
struct Nothing;

impl Transport for Nothing {
    fn send(&self, _: HttpRequest) -> Boxed<'_, Result<HttpResponse, TransportError>> {
        unreachable!("a session sends nothing")
    }
}

impl Exec for Nothing {
    fn run(&self, _: Command) -> Boxed<'_, Result<Finished, ExecError>> {
        unreachable!("a session runs nothing")
    }
    fn start(&self, _: &str, _: Command) -> Boxed<'_, Result<(), ExecError>> {
        unreachable!("a session starts nothing")
    }
    fn jobs(&self) -> Vec<JobInfo> {
        Vec::new()
    }
    fn read(&self, _: &str, _: u64, _: usize) -> Option<(u64, Vec<u8>)> {
        None
    }
    fn kill<'a>(&'a self, _: &'a str) -> Boxed<'a, ()> {
        unreachable!("a session kills nothing")
    }
    fn changed(&self) -> Boxed<'_, ()> {
        unreachable!("a session has no jobs")
    }
    fn busy(&self) -> bool {
        false
    }
    fn shutdown(&self, _: Duration) -> Boxed<'_, Vec<Leaked>> {
        unreachable!("a session shuts nothing down")
    }
}

impl Env for Nothing {
    fn var(&self, _: &str) -> Option<String> {
        None
    }
    fn vars(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}

/// Keeps what it hears.
#[derive(Default)]
pub(crate) struct Heard(pub(crate) RefCell<Vec<Record>>);

impl Listener for Heard {
    fn event(&self, record: &Record) {
        self.0.borrow_mut().push(record.clone());
    }
}

pub(crate) fn read_text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

// ------------------------------------------------------------------------------------------- sample facts

/// Text that is hard on JSON, on lines and on terminals.
pub(crate) const HARD: &str = "a \"quote\", a \\ , a\nline, \r\n\t, nul \0, bell \u{7}, \u{2028}, é, 🦀, «»";

pub(crate) fn user(text: &str) -> Fact {
    Fact::Message(Message::User { origin: Origin::Prompt, text: text.to_owned() })
}

pub(crate) fn assistant(text: &str, calls: &[&str]) -> Fact {
    let text = Block::Text { text: text.to_owned() };
    let calls = calls.iter().map(|id| call_block(id));
    let blocks = std::iter::once(text).chain(calls).collect();
    Fact::Message(Message::Assistant { blocks, interrupted: false, refused: None })
}

pub(crate) fn call_block(id: &str) -> Block {
    Block::Call { id: id.to_owned(), name: "bash".into(), arguments: r#"{"command":"ls"}"#.into() }
}

pub(crate) fn result(call_id: &str, text: &str) -> Fact {
    Fact::Message(Message::Tool {
        call_id: call_id.to_owned(),
        tool: "bash".into(),
        text: text.to_owned(),
        is_error: false,
    })
}

pub(crate) fn call(lane: Lane, n: u64) -> Fact {
    Fact::Call(Call {
        lane,
        n,
        model: "local/m".into(),
        digest: "d1".into(),
        rest_bytes: 10,
        estimate_tokens: 4,
        max_output_tokens: 100,
        reserved: Micros(700),
        reserved_tokens: 104,
    })
}

pub(crate) fn settled(lane: Lane, n: u64, attempts: Vec<Attempt>) -> Fact {
    Fact::Settled(Box::new(Settled {
        lane,
        n,
        model: "local/m".into(),
        usage: Some(Usage { input_tokens: 40, output_tokens: 5, cache_read_tokens: 30, ..Usage::default() }),
        reply_usage: None,
        cost: Micros(120),
        known: CostKnown::Reported,
        charged_tokens: 45,
        attempts,
        duration_ms: 900,
        waited_ms: 0,
        occupancy_tokens: Some(45),
        window_tokens: Some(1000),
        total_cost: Micros(120 * n),
        stop: "tool_use".into(),
        error: None,
        reply: None,
        input_transformations: None,
        factor_pct: Some(100),
    }))
}

pub(crate) fn attempt((wire_offset, wire_bytes): (u64, u64)) -> Attempt {
    let (cost, charged_tokens) = (Micros::ZERO, 0);
    Attempt { status: Some(200), error: None, cost, charged_tokens, wait_ms: None, wire_offset, wire_bytes }
}

pub(crate) fn failed_attempt() -> Attempt {
    let at = attempt((0, 0));
    Attempt { status: Some(429), error: Some("rate limited: slow down".into()), wait_ms: Some(2000), ..at }
}

pub(crate) fn tool_started(call_id: &str) -> Fact {
    Fact::ToolStarted(ToolStart { call_id: call_id.to_owned(), tool: "bash".into(), summary: "\"ls\"".into() })
}

pub(crate) fn tool(call_id: &str, status: ToolStatus) -> Fact {
    Fact::Tool(Box::new(ToolDone {
        call_id: call_id.to_owned(),
        tool: "bash".into(),
        summary: "\"ls\"".into(),
        status,
        duration_ms: 12,
        output_bytes: 34,
        chars: 34,
        lines: 2,
        spool: None,
        spool_bytes: None,
        marks: vec![ReadMark { path: "src/a.rs".into(), sha256: format!("of {call_id}") }],
        changed: vec!["src/a.rs".into()],
    }))
}

pub(crate) fn prune() -> Prune {
    Prune {
        edits: vec![
            Edit::Text { entry: "e9".into(), text: HARD.into() },
            Edit::Arguments { entry: "e8".into(), block: 1, arguments: "{}".into() },
        ],
        withheld: Some(Withheld { from: "e8".into(), until: None }),
        before_tokens: 42_000,
        after_tokens: 11_000,
        before_call: 7,
    }
}

pub(crate) fn compaction() -> Compaction {
    Compaction {
        from: "e5".into(),
        to: "e9".into(),
        summary: HARD.into(),
        by: SummaryBy::Model,
        kept: vec!["e6".into()],
        edits: vec![Edit::Text { entry: "e6".into(), text: "short".into() }],
        withheld: Some(Withheld { from: "e10".into(), until: Some("e12".into()) }),
        before_tokens: 42_000,
        after_tokens: 6_000,
        pruned_tokens: 31_000,
        forced: false,
        before_call: 8,
    }
}

fn sha256(text: &str) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn frozen() -> Fact {
    let endpoint = serde_json::json!({
        "provider": "local", "model": "m", "wire": "openai-chat", "base_url": "http://127.0.0.1:9/v1?key=hidden",
        "local": true, "own": false, "window_tokens": 1000, "max_output_tokens": 100, "price": {"input": 1, "output": 2},
        "headers": {"x-secret": "hidden"},
    });
    Fact::Frozen(Box::new(Frozen {
        goal: "\n  \tMake   the check\tpass\nand nothing else".into(),
        goal_name: "demo".into(),
        goal_digest: sha256("\n  \tMake   the check\tpass\nand nothing else"),
        goal_file: None,
        title: None,
        system: HARD.into(),
        environment: "env".into(),
        heads: BTreeMap::from([("agent".to_owned(), "{\"system\":".to_owned())]),
        config: "version: 1\n".into(),
        config_digest: sha256("version: 1\n"),
        endpoints: BTreeMap::from([("agent".to_owned(), endpoint.clone()), ("judge".to_owned(), endpoint)]),
    }))
}

pub(crate) fn limits() -> Limits {
    Limits {
        iterations: 20,
        steps: 500,
        steps_per_iteration: 200,
        cost: Some(Micros(5_000_000)),
        tokens: None,
        time_ms: Some(7_200_000),
        idle_ms: None,
        command_ms: 600_000,
        stall: 3,
        consecutive_errors: 3,
    }
}

pub(crate) fn run(run: &str) -> Fact {
    Fact::Run(Box::new(RunStart {
        run: run.to_owned(),
        version: "0.1.0".into(),
        resumed: run != "run-1",
        recorded: false,
        config_digest: sha256("version: 1\n"),
        model: "local/m".into(),
        judge_model: None,
        limits: limits(),
        endpoints: Vec::new(),
        sandbox: "off".into(),
        workspace: "/w".into(),
        git_base: None,
        git_branch: None,
        git_prefix: None,
        removed: Vec::new(),
        config: None,
        id_seed: None,
        redacted: Vec::new(),
    }))
}

pub(crate) fn tasks(content: &str) -> Fact {
    let task = Task { id: "task-1".into(), content: content.into(), status: TaskStatus::Pending, dependencies: vec![] };
    Fact::Tasks { graph: TaskGraph { tasks: vec![task], highest_id: 1 } }
}

pub(crate) fn check(name: &str) -> CheckResult {
    CheckResult {
        name: name.to_owned(),
        required: true,
        status: CheckStatus::Fail,
        exit_code: Some(1),
        duration_ms: 5,
        head: HARD.into(),
        tail: String::new(),
        spool: None,
        signature: "sig".into(),
    }
}

pub(crate) fn verdict(kind: VerdictKind) -> Fact {
    Fact::Verdict {
        verdict: Verdict {
            kind,
            by: VerdictBy::Judge,
            iteration: 1,
            reason: HARD.into(),
            next_step: String::new(),
            criteria: Vec::new(),
        },
    }
}

pub(crate) fn progress(stall_halves: u64) -> Fact {
    Fact::Progress(Box::new(Progress {
        iteration: 1,
        workspace: Some("w1".into()),
        head: None,
        passing: vec!["test".into()],
        failing: Vec::new(),
        tasks: "t1".into(),
        stall_halves,
        nudge: false,
        consecutive_errors: 0,
    }))
}

pub(crate) fn end(run: &str, outcome: Outcome) -> Fact {
    let result = RunResult {
        v: 1,
        state: "finished".into(),
        outcome: Some(outcome),
        exit_code: Some(outcome.code()),
        retryable: false,
        retry_after_s: None,
        error: None,
        problems: Vec::new(),
        run_id: run.to_owned(),
        session_id: None,
        goal: None,
        workspace: None,
        model: None,
        judge_model: None,
        recorded_model: false,
        verdict: None,
        checks: Vec::new(),
        result: Some(HARD.into()),
        iterations: 1,
        steps: 1,
        duration_ms: 1,
        active_ms: 1,
        waited_ms: 0,
        total_cost_usd: 0.1 + 0.2,
        cost_usd: BTreeMap::new(),
        run_usage: RunUsage::default(),
        usage_by_lane: BTreeMap::new(),
        usage_by_model: BTreeMap::new(),
        unreported_calls: Vec::new(),
        peak_occupancy_tokens: 45,
        compactions: Default::default(),
        limits: None,
        limit_hit: None,
        sandbox: "off".into(),
        changes: None,
        memory_saved: Vec::new(),
        leaked: Vec::new(),
        paths: None,
        copy: None,
        commands: Commands::default(),
    };
    Fact::End(Box::new(End { run: run.to_owned(), outcome, result: Box::new(result), leaked: Vec::new() }))
}

/// One of every kind that stands beside the loop's own: for a replay.
pub(crate) fn asides() -> Vec<Fact> {
    vec![
        Fact::Halted { why: "idle".into() },
        Fact::Command(Box::new(CommandRun {
            purpose: Purpose::Check,
            label: HARD.into(),
            sha256: "ab".into(),
            end: CommandEnd::Exited(1),
            duration_ms: 3,
            output: Printed { bytes: Some(Blob(vec![b'x', 0xff])), head_bytes: 2, ..Printed::default() },
            leftovers: vec![(7, "sleep".into())],
            kept: true,
        })),
        Fact::Jobs {
            jobs: vec![JobSeen {
                job: "job-1".into(),
                command: HARD.into(),
                state: JobStands::LeaderExited { status: 0, still_running: 2 },
                duration_ms: Some(5),
                printed_bytes: 9,
                dropped_bytes: 0,
                last_line: HARD.into(),
            }],
        },
        Fact::Listing {
            digest: Some("cd".into()),
            changed: vec![ListedChange { path: HARD.into(), before: None, after: Some("ef".into()) }],
        },
        Fact::Effects(Effects {
            by: Some("call-1".into()),
            files: vec![FileEffect {
                path: Blob(b"a\xff".to_vec()),
                after: Some(FileState {
                    kind: FileKind::Symlink,
                    sha256: "ab".into(),
                    content: Some(Blob(b"b".to_vec())),
                }),
            }],
            partial: true,
        }),
        Fact::WireCut { bytes: 7 },
        Fact::Guarded(Guarded { guard: Guard::Tripwire, text: HARD.into(), stands: true }),
    ]
}

/// One of every kind, in an order that a run could write them in; `tip` names the entry `e1`, so the first of them
/// must be the first line.
pub(crate) fn samples() -> Vec<Fact> {
    vec![
        frozen(),
        run("run-1"),
        Fact::Iteration { iteration: 1 },
        user(HARD),
        call(Lane::Agent, 1),
        Fact::Attempt { lane: Lane::Agent, n: 1, number: 1, attempt: failed_attempt() },
        settled(Lane::Agent, 1, vec![failed_attempt(), attempt((0, 0))]),
        assistant(HARD, &["c1", "c2"]),
        tool_started("c1"),
        tool("c1", ToolStatus::Ok),
        result("c1", HARD),
        tool("c2", ToolStatus::Refused),
        result("c2", "too many calls in one reply\nissue fewer"),
        Fact::Recut { call_id: "c1".into(), text: HARD.into() },
        Fact::Prune(Box::new(prune())),
        Fact::Compaction(Box::new(compaction())),
        Fact::CompactionFailed { reason: HARD.into(), failures: 1, of: 3 },
        Fact::CompactionPaused { reason: HARD.into() },
        tasks(HARD),
        Fact::Baseline { git_tree: Some(HARD.into()), listing: None },
        Fact::Steer { text: HARD.into() },
        Fact::JobStarted { job: "job-1".into(), command: HARD.into() },
        Fact::JobExited { job: "job-1".into(), state: "exited 0".into(), duration_ms: 3 },
        Fact::Delivery { what: "job-1".into(), before_call: 2 },
        Fact::Message(Message::User { origin: Origin::Steer, text: HARD.into() }),
        Fact::Message(Message::Operator { text: HARD.into() }),
        Fact::Learned { window_tokens: None, factor_pct: Some(120) },
        Fact::Turn { iteration: 1, end: TurnEnd::Done, summary: Some(HARD.into()), why: None },
        Fact::Checks { iteration: 1, results: vec![check("test"), check("lint")] },
        progress(2),
        call(Lane::Judge, 1),
        settled(Lane::Judge, 1, vec![attempt((0, 0))]),
        verdict(VerdictKind::Unmet),
        Fact::Elapsed { active_ms: 1000, waited_ms: 20 },
        Fact::Notice { code: "dirty".into(), text: HARD.into() },
        Fact::Interrupted { reason: "terminated".into() },
        Fact::Tip { entry: "e1".into() },
        end("run-1", Outcome::Unmet),
    ]
}
