//! Hours of trouble on a clock that jumps: 200 goals over four wires, three attempts in ten of which fail in every
//! way that a provider has. Each goal must end as it would without the trouble, and its money must be right to the
//! micro-dollar.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;
use spettro::event::{Leaked, Outcome, RunResult};
use spettro::goal::{GoalSource, Overrides, Run, RunParts, load};
use spettro::model::resolve;
use spettro::process::sandbox::Policy;
use spettro::session::{Session, Store};
use spettro::world::{
    Boxed, Captured, Command, CommandKind, Ending, Env, Exec, ExecError, Finished, Halt, JobInfo, RealDir, RealIds,
    Roots, Secrets, World,
};

use super::clock::Virtual;
use super::server::{Kind, Server};
use crate::provider::Wire;
use crate::sandbox::json_lines;

const GOALS: u64 = 200;

/// Every command ends at once and well; there is no repository.
struct Obedient;

impl Exec for Obedient {
    fn run(&self, command: Command) -> Boxed<'_, Result<Finished, ExecError>> {
        let code = if command.kind == CommandKind::Git { 128 } else { 0 };
        let head = command.argv.last().map_or(Vec::new(), |last| last.clone().into_bytes());
        Box::pin(async move {
            Ok(Finished {
                ending: Ending::Exited(code),
                output: Captured { head, ..Captured::default() },
                duration: Duration::ZERO,
                leftovers: Vec::new(),
                kept: false,
            })
        })
    }

    fn start(&self, _: &str, _: Command) -> Boxed<'_, Result<(), ExecError>> {
        Box::pin(async { Err(ExecError::ShuttingDown) })
    }

    fn jobs(&self) -> Vec<JobInfo> {
        Vec::new()
    }

    fn read(&self, _: &str, _: u64, _: usize) -> Option<(u64, Vec<u8>)> {
        None
    }

    fn kill<'a>(&'a self, _: &'a str) -> Boxed<'a, ()> {
        Box::pin(async {})
    }

    fn changed(&self) -> Boxed<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn busy(&self) -> bool {
        false
    }

    fn shutdown(&self, _: Duration) -> Boxed<'_, Vec<Leaked>> {
        Box::pin(async { Vec::new() })
    }
}

struct Bare;

impl Env for Bare {
    fn var(&self, _: &str) -> Option<String> {
        None
    }

    fn vars(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}

fn yaml(wire: Wire, kind: Kind, workspace: &str) -> String {
    let max_wait = if kind == Kind::Silent || kind == Kind::Dead || kind == Kind::Full { "10m" } else { "12h" };
    let cost = if kind == Kind::Endless { "0.40" } else { "50.00" };
    let iterations = if kind == Kind::NeverMet { 2 } else { 20 };
    format!(
        "version: 1\ngoal: make it so\nworkspace: {workspace}\nchecks: ['true']\n\
         model: {{id: test/m, wire: {}, base_url: \"http://127.0.0.1:9/v1\", context_window: 200000, \
         max_output_tokens: 1024, first_event_timeout: 30s, idle_timeout: 20s}}\nprices: {{\"test/m\": {{input: 3.00, output: 15.00}}}}\n\
         limits: {{time: unlimited, idle: unlimited, cost: {cost}, iterations: {iterations}}}\n\
         rate_limit: {{max_wait: {max_wait}}}\n",
        wire.name()
    )
}

fn expected(kind: Kind) -> Outcome {
    match kind {
        Kind::Met | Kind::SecondTry => Outcome::Met,
        Kind::Impossible => Outcome::Impossible,
        Kind::NeverMet => Outcome::Unmet,
        Kind::Dead | Kind::Silent => Outcome::Provider,
        Kind::Full => Outcome::Saved,
        Kind::Quota => Outcome::Auth,
        Kind::Declines => Outcome::Refused,
        Kind::Endless => Outcome::CostLimit,
    }
}

/// Drives one goal to its end; the result, and how long it took by its own clock.
async fn drive(server: &Rc<Server>, root: &std::path::Path, seed: u64) -> (RunResult, Duration) {
    let workspace = root.join("work");
    std::fs::create_dir_all(&workspace).expect("a folder");
    let text = yaml(server.wire, server.kind, &workspace.to_string_lossy());
    let config = load(&GoalSource::Stdin(text), &Overrides::default(), &Bare, None, root);
    let config = config.unwrap_or_else(|problems| panic!("{problems:?}")).config;
    let endpoint = resolve(&config.model, &config.providers, &config.prices, &Bare).expect("an endpoint");
    let world = World {
        transport: server.clone(),
        exec: Rc::new(Obedient),
        dir: Rc::new(RealDir),
        clock: server.clock.clone(),
        ids: Rc::new(RealIds::from_seed(&seed.to_le_bytes())),
        env: Rc::new(Bare),
    };
    let store = Store::new(root.join("sessions"));
    let id = Store::new_id(&world);
    let session = Session::create(&world, &store, &workspace, &id, "run", Vec::new()).expect("a session");
    let parts = RunParts {
        world: world.clone(),
        halt: Halt::new(),
        session,
        lines: Vec::new(),
        config: Rc::new(config),
        endpoint: endpoint.clone(),
        judge: Some(endpoint.clone()),
        summarizer: endpoint,
        title: None,
        roots: Roots::same(workspace),
        run: "run".to_owned(),
        version: "0".to_owned(),
        copy: None,
        sandbox: "none".to_owned(),
        policy: Rc::new(Policy::off()),
        own_dirs: Vec::new(),
        deltas: false,
        resume: vec!["spettro".to_owned()],
        steering: Rc::default(),
        removed: Vec::new(),
        secrets: Secrets::default(),
        notes: Vec::new(),
        tick: Rc::new(|_| {}),
        summarize: |_| String::new(),
        pulse: spettro::process::Watchdog::none(),
        replayed: None,
    };
    let run = Run::prepare(parts, &mut None).await.unwrap_or_else(|cause| panic!("{cause:?}"));
    (run.drive(None).await, world.clock.elapsed())
}

/// Holds a goal's money against the provider's books. Gives the charged and the billed micro-dollars.
fn audit(server: &Server, result: &RunResult, name: &str) -> (u64, u64) {
    let session = std::path::PathBuf::from(&result.paths.as_ref().expect("a session").session);
    let facts: Vec<Value> = json_lines(&session.join("session.jsonl"));
    let mut bills = server.bills.borrow().clone();
    let billed: u64 = bills.values().map(|bill| bill.micros).sum();
    let mut charged = 0;
    let mut unreported: BTreeMap<(String, u64), u64> = BTreeMap::new();
    for settled in facts.iter().filter(|fact| fact["kind"] == "settled") {
        let lane = settled["lane"].as_str().expect("a lane").to_owned();
        let n = settled["n"].as_u64().expect("a number");
        let mut sum = 0;
        for (index, attempt) in settled["attempts"].as_array().expect("attempts").iter().enumerate() {
            let cost = attempt["cost"].as_u64().unwrap_or(0);
            let bill = bills.remove(&(lane.clone(), n, index as u64 + 1));
            match bill {
                Some(bill) if bill.reported => assert_eq!(cost, bill.micros, "{name}: {lane} {n}: as reported"),
                // Only its last bytes were missing.
                Some(bill) if attempt["error"].is_null() && cost == bill.whole => {}
                Some(bill) => {
                    assert!(cost >= bill.micros, "{name}: {lane} {n}: {cost} < {}: {attempt}", bill.micros);
                    *unreported.entry((lane.clone(), n)).or_default() += cost;
                }
                // What began and was no reply counts too, whatever the provider makes of it.
                None if cost > 0 => *unreported.entry((lane.clone(), n)).or_default() += cost,
                None => {}
            }
            sum += cost;
        }
        assert_eq!(settled["cost"].as_u64(), Some(sum), "{name}: {lane} {n}");
        charged += sum;
    }
    assert!(bills.is_empty(), "{name}: billed and not charged: {bills:?}");
    let listed: BTreeMap<(String, u64), u64> =
        result.unreported_calls.iter().map(|call| ((call.lane.name().to_owned(), call.n), call.charged.0)).collect();
    assert_eq!(listed, unreported, "{name}: what was not reported, with what was charged for it");
    assert_eq!((result.total_cost_usd * 1e6).round() as u64, charged, "{name}: the total");
    (charged, billed)
}

/// One goal in trouble: how long it took by its own clock, its attempts, and how many of them failed at random.
fn goal(seed: u64, root: &std::path::Path) -> (Duration, u64, u64) {
    let wire = Wire::ALL[(seed % 4) as usize];
    let kind = Kind::ALL[(seed / 4 % 10) as usize];
    let name = format!("goal {seed}, {kind:?} on {}", wire.name());
    let clock = Rc::new(Virtual::default());
    let server = Rc::new(Server::new(wire, kind, clock.clone(), seed + 1));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let local = tokio::task::LocalSet::new();
    let folder = root.join(seed.to_string());
    let (result, took) = local.block_on(&runtime, async {
        tokio::select! {
            ended = drive(&server, &folder, seed) => ended,
            () = clock.run() => unreachable!("time does not end"),
        }
    });
    let why = result.error.as_ref().map(|error| error.message.clone());
    assert_eq!(result.outcome, Some(expected(kind)), "{name}: {why:?}");
    let (charged, billed) = audit(&server, &result, &name);
    assert!(charged >= billed, "{name}: {charged} below the provider's bill of {billed}");
    if kind == Kind::Silent {
        assert!(took < Duration::from_secs(2_400), "{name}: a silent provider was waited for {took:?}");
    }
    (took, server.attempts.get(), server.faults.get())
}

#[test]
fn two_hundred_goals_end_right_and_cost_what_was_reported() {
    // In memory where there is such a place: thousands of syncs are not what this is about.
    let memory = std::path::Path::new("/dev/shm");
    let root = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.expect("a folder");
    // Each wire on a thread of its own: a run waits for its writers more than it works.
    let (root, wires) = (root.path(), Wire::ALL.len());
    let trouble: Vec<(Duration, u64, u64)> = std::thread::scope(|scope| {
        let wire = |first: usize| {
            scope.spawn(move || (first as u64..GOALS).step_by(wires).map(|seed| goal(seed, root)).collect::<Vec<_>>())
        };
        let all: Vec<_> = (0..wires).map(wire).collect();
        all.into_iter().flat_map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    assert_eq!(trouble.len() as u64, GOALS);
    let hours: Duration = trouble.iter().map(|(took, _, _)| *took).sum();
    let (attempts, faults) =
        trouble.iter().fold((0, 0), |sum, (_, attempts, faults)| (sum.0 + attempts, sum.1 + faults));
    assert!(hours > Duration::from_secs(3_600), "{hours:?}");
    assert!(faults * 10 > attempts, "{faults} of {attempts} attempts failed at random");
}
