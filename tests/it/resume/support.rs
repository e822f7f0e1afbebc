//! Goals that take several iterations, a provider that answers each request from that request alone (so that it
//! does not matter how often a runner died), and the session's log held against the provider's own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::provider::{Provider, Reply, Request, Script, Served, Step, Usage, Wire, respond_with};
use crate::sandbox::{Finished, PATIENCE, Sandbox};

/// What a continuation begins with: the agent's requests hold one for each iteration after the first.
const CONTINUATION: &str = "The goal is not met yet";

/// The iteration an agent request belongs to.
pub fn iteration_of(request: &Request) -> u64 {
    request.text().matches(CONTINUATION).count() as u64 + 1
}

/// The iteration a judge request is about.
pub fn judged_iteration(request: &Request) -> u64 {
    let text = request.text();
    let number = text.split("# Iteration\\n").nth(1).expect("a packet names its iteration");
    number.split(' ').next().and_then(|n| n.parse().ok()).expect("a number")
}

/// An agent that calls `bash` once an iteration (`command` gets the iteration), and says so when it has the result.
pub fn worker(command: impl Fn(u64) -> String + Send + Sync + 'static) -> Step {
    respond_with(move |request| {
        let n = iteration_of(request);
        if request.tool_results().is_empty() {
            Reply::thinking("next")
                .and_text(&format!("Writing line {n}."))
                .and_call("bash", serde_json::json!({"command": command(n)}))
        } else {
            Reply::text(&format!("Iteration {n} has its line."))
        }
    })
    .forever()
}

/// A judge that is content at a certain iteration.
pub fn judge(met_at: u64) -> Step {
    respond_with(move |request| {
        let n = judged_iteration(request);
        if n >= met_at {
            Reply::verdict("met", "all lines are there", "")
        } else {
            Reply::verdict("unmet", &format!("{n} lines are not enough"), "Write another line.")
        }
    })
    .forever()
}

/// Appends a line an iteration.
pub fn append(n: u64) -> String {
    format!("echo line-{n} >> lines.txt")
}

/// A provider under which a goal takes so many iterations.
pub fn script(iterations: u64) -> Script {
    Script::new().one_session().agent(worker(append)).judge(judge(iterations))
}

/// A goal of many iterations.
pub const GOAL: &str = "goal: Write one line after another.\nlimits: {iterations: 30, stall: 12}\n";

/// A sandbox with a goal, and its provider.
pub struct Scene {
    pub sandbox: Sandbox,
    pub provider: Provider,
    pub goal: PathBuf,
}

impl Scene {
    pub fn new(script: Script, goal: &str) -> Scene {
        Scene::on(Wire::Anthropic, script, goal)
    }

    pub fn on(wire: Wire, script: Script, goal: &str) -> Scene {
        let (sandbox, provider) = (Sandbox::new().wire(wire), script.start());
        let goal = sandbox.goal(&provider, goal);
        Scene { sandbox, provider, goal }
    }

    /// A goal that takes so many iterations.
    pub fn of(iterations: u64) -> Scene {
        Scene::new(script(iterations), GOAL)
    }

    pub fn start(&self) -> crate::sandbox::Running {
        self.sandbox.spawn([Path::new("run"), Path::new("--goal"), &self.goal])
    }

    #[track_caller]
    pub fn run(&self) -> Finished {
        self.start().wait(PATIENCE)
    }

    #[track_caller]
    pub fn resume(&self, more: &[&str]) -> Finished {
        self.sandbox.run([&["run", "--resume", "latest"], more].concat())
    }

    /// The whole lines of the log so far; empty before there is one.
    pub fn lines(&self) -> Vec<Value> {
        if self.sandbox.session_dirs().is_empty() { Vec::new() } else { self.sandbox.session_lines() }
    }

    /// Waits until the log holds what is asked for.
    #[track_caller]
    pub fn wait_for_log(&self, what: &str, right: impl Fn(&[Value]) -> bool) {
        eventually(what, || right(&self.lines()));
    }

    /// The id of the only session.
    #[track_caller]
    pub fn id(&self) -> String {
        let dirs = self.sandbox.session_dirs();
        assert_eq!(dirs.len(), 1, "one session: {dirs:?}");
        dirs[0].file_name().expect("a name").to_string_lossy().into_owned()
    }

    /// The facts of a kind, in order.
    pub fn facts(&self, kind: &str) -> Vec<Value> {
        facts(&self.lines(), kind)
    }
}

/// Waits for a condition by looking again and again. Panics when it does not come.
#[track_caller]
pub fn eventually(what: &str, mut right: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !right() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub fn facts(lines: &[Value], kind: &str) -> Vec<Value> {
    lines.iter().filter(|line| line["kind"] == kind).cloned().collect()
}

/// In `/proc` and not a zombie.
pub fn alive(pid: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    !matches!(state, Some('Z' | 'X'))
}

/// The whole lines of a file as pids.
pub fn pids(path: &Path) -> Vec<i32> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| line.trim().parse().expect("a pid")).collect()
}

/// A command that writes its pids into `pids` and then lasts until somebody ends it: the shell, and one in a
/// session of its own.
pub const LASTING: &str = "echo $$ >> pids; setsid bash -c 'echo $$ >> pids; exec sleep 1000' & wait";

/// Waits until `LASTING` has written so many pids.
#[track_caller]
pub fn wait_for_pids(scene: &Scene, count: usize) -> Vec<i32> {
    let path = scene.sandbox.workspace().join("pids");
    eventually("the command has started", || pids(&path).len() >= count);
    pids(&path)
}

#[track_caller]
pub fn assert_dead(pids: &[i32]) {
    assert!(!pids.is_empty(), "nothing was recorded");
    eventually("the command is gone", || pids.iter().all(|&pid| !alive(pid)));
}

/// What the log says of money, against the provider's own.
#[derive(Debug)]
pub struct Money {
    /// Calls without a settlement, as (lane, n, reservation).
    pub unsettled: BTreeSet<(String, u64, u64)>,
}

/// Holds a finished session against what the provider saw and served. `iterations` is how many the goal took.
#[track_caller]
pub fn audit(scene: &Scene, finished: &Finished, iterations: u64) -> Money {
    let lines = scene.lines();
    no_fact_is_doubled(&lines, iterations);
    every_request_continues_the_one_before(&scene.provider);

    let agents = scene.provider.agent_requests();
    let last = agents.last().expect("agent requests");
    assert_eq!(iteration_of(last), iterations, "iterations as the provider saw them");
    let judged: BTreeSet<u64> = scene.provider.judge_requests().iter().map(|r| judged_iteration(r)).collect();
    assert_eq!(judged, (1..=iterations).collect(), "judged iterations as the provider saw them");
    let result = finished.result();
    assert_eq!(result["outcome"], "met", "{result}");
    assert_eq!(result["iterations"], iterations);
    assert_eq!(result["steps"].as_u64(), Some(steps(&lines)), "steps are the agent's calls");
    money(scene, &lines, &result)
}

fn steps(lines: &[Value]) -> u64 {
    facts(lines, "call").iter().filter(|call| call["lane"] == "agent").count() as u64
}

#[track_caller]
pub fn every_request_continues_the_one_before(provider: &Provider) {
    for pair in provider.agent_requests().windows(2) {
        let before = pair[0].rest().strip_suffix(b"]}").expect("a rest ends with its closing brackets");
        assert!(
            pair[1].rest().starts_with(before),
            "request {} does not continue request {}:\n{}\n{}",
            pair[1].n,
            pair[0].n,
            pair[0].text(),
            pair[1].text()
        );
    }
}

#[track_caller]
pub fn no_fact_is_doubled(lines: &[Value], iterations: u64) {
    let all: Vec<u64> = (1..=iterations).collect();
    let numbers = |kind: &str, number: &dyn Fn(&Value) -> Option<u64>| -> Vec<u64> {
        facts(lines, kind).iter().map(|fact| number(fact).expect("a number")).collect()
    };
    assert_eq!(numbers("iteration", &|fact| fact["iteration"].as_u64()), all, "each iteration begins once");
    assert_eq!(numbers("turn", &|fact| fact["iteration"].as_u64()), all, "each turn ends once");
    assert_eq!(numbers("verdict", &|fact| fact["verdict"]["iteration"].as_u64()), all, "each verdict stands once");
    assert_eq!(facts(lines, "frozen").len(), 1);

    let messages = facts(lines, "message");
    let of = |role: &str, origin: &str| {
        let mine = messages.iter().filter(|m| m["role"] == role && (origin.is_empty() || m["origin"] == origin));
        mine.count() as u64
    };
    assert_eq!((of("user", "prompt"), of("user", "goal")), (1, iterations - 1), "each iteration is opened once");
    let mut calls = Vec::new();
    for message in messages.iter().filter(|message| message["role"] == "assistant") {
        let blocks = message["blocks"].as_array().into_iter().flatten().filter(|block| block["type"] == "call");
        calls.extend(blocks.map(|block| block["id"].as_str().expect("an id").to_owned()));
    }
    let results: Vec<String> = messages
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["call_id"].as_str().expect("an id").to_owned())
        .collect();
    assert_eq!(calls, results, "each call has one result, in order");
    assert_eq!(calls.iter().collect::<BTreeSet<_>>().len(), calls.len(), "no call stands twice: {calls:?}");
    let started: Vec<&str> = lines
        .iter()
        .filter(|line| line["kind"] == "tool_started")
        .map(|line| line["call_id"].as_str().expect("an id"))
        .collect();
    assert_eq!(started.iter().collect::<BTreeSet<_>>().len(), started.len(), "no call is started twice");
    for (index, line) in lines[1..].iter().enumerate() {
        assert_eq!(line["seq"].as_u64(), Some(index as u64 + 1), "no gap");
    }
}

/// Micro-dollars at 3 and 15 dollars a million tokens, the sandbox's prices.
fn price(usage: Usage) -> u64 {
    assert_eq!((usage.cache_read, usage.cache_write), (0, 0));
    3 * usage.input + 15 * usage.output
}

#[track_caller]
pub fn money(scene: &Scene, lines: &[Value], result: &Value) -> Money {
    let (requests, served) = (scene.provider.requests(), scene.provider.served());
    // By digest of the request's rest and lane: what was answered whole, and what it cost.
    let mut whole: BTreeMap<(String, String), Vec<Usage>> = BTreeMap::new();
    for Served { n, lane, usage, .. } in served.iter().filter(|served| served.whole) {
        let digest = Sha256::digest(requests[n - 1].rest());
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        whole.entry((lane.name().to_owned(), digest)).or_default().push(usage.expect("a whole answer reports usage"));
    }
    let key = |fact: &Value| (fact["lane"].as_str().expect("a lane").to_owned(), fact["n"].as_u64().expect("a number"));
    let calls: BTreeMap<_, Value> = facts(lines, "call").into_iter().map(|call| (key(&call), call)).collect();
    assert_eq!(calls.len(), facts(lines, "call").len(), "each call has a number of its own");
    let settled: BTreeMap<_, Value> = facts(lines, "settled").into_iter().map(|fact| (key(&fact), fact)).collect();
    assert_eq!(settled.len(), facts(lines, "settled").len(), "no call is settled twice");

    let (mut cost, mut tokens) = (0, 0);
    for (key, settled) in &settled {
        let call = &calls[key];
        assert_eq!(settled["known"], "reported", "{settled}");
        let digest = (key.0.clone(), call["digest"].as_str().expect("a digest").to_owned());
        let usage = whole.get_mut(&digest).and_then(Vec::pop).unwrap_or_else(|| panic!("{key:?} was never answered"));
        assert_eq!(settled["usage"]["input_tokens"], usage.input, "{settled}");
        assert_eq!(settled["usage"]["output_tokens"], usage.output, "{settled}");
        assert_eq!(settled["cost"], price(usage), "{settled}");
        cost += price(usage);
        tokens += usage.input + usage.output;
    }
    let unsettled: BTreeSet<(String, u64, u64)> = calls
        .iter()
        .filter(|(key, _)| !settled.contains_key(key))
        .map(|((lane, n), call)| (lane.clone(), *n, call["reserved"].as_u64().expect("a reservation")))
        .collect();
    let reserved: u64 = unsettled.iter().map(|(_, _, reserved)| reserved).sum();
    let listed: BTreeSet<(String, u64, u64)> = result["unreported_calls"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|call| {
            assert_eq!(call["why"], "reservation", "{call}");
            let (lane, n) = key(call);
            (lane, n, call["charged"].as_u64().expect("an amount"))
        })
        .collect();
    assert_eq!(listed, unsettled, "calls that were never settled are listed with their reservation");
    let dollars = result["total_cost_usd"].as_f64().expect("an amount");
    assert_eq!((dollars * 1e6).round() as u64, cost + reserved, "the total is what was reported and what was reserved");
    let by_lane = result["usage_by_lane"].as_object().expect("lanes");
    let sum = |field: &str| by_lane.values().map(|row| row["usage"][field].as_u64().unwrap_or(0)).sum::<u64>();
    assert_eq!(sum("input_tokens") + sum("output_tokens"), tokens, "tokens as the provider reported them");
    Money { unsettled }
}
