//! The listener, its connections, and what tests ask of a running provider.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use super::answer::{After, Answer, plain};
use super::check::Checker;
use super::http::{Arrived, NoRequest, read_request};
use super::reply::{Gate, Reply, Served, Step, Usage, What};
use super::request::{Asked, Lane, Request, Wire};
use super::script::{LaneOf, Script};
use super::stream;

/// Runs once, when a certain request has arrived.
pub(super) struct Hook {
    /// Absent: counts the requests of all lanes.
    pub lane: Option<Lane>,
    pub n: usize,
    pub run: Box<dyn FnOnce(&Request) + Send>,
}

/// A running scripted provider. Its end (`finish`, or the drop) panics when a request was not well formed or the
/// script was exhausted.
pub struct Provider {
    shared: Arc<Shared>,
    address: SocketAddr,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    closing: AtomicBool,
    lane_of: Option<LaneOf>,
    light: bool,
    keep_bodies: bool,
}

struct State {
    agent: VecDeque<Step>,
    judge: VecDeque<Step>,
    summarizer: VecDeque<Step>,
    checker: Checker,
    requests: Vec<Arc<Request>>,
    /// Requests for anything but a model's reply, as `METHOD path`.
    others: Vec<String>,
    served: Vec<Served>,
    refused: usize,
    problems: Vec<String>,
    hooks: Vec<Hook>,
    hold: Option<Gate>,
    connections: Vec<Weak<TcpStream>>,
    /// Connections with a thread.
    active: usize,
    /// Answers under way.
    answering: usize,
    /// Answers and complaints that `wait_for_news` has told.
    told: (usize, usize),
}

impl Provider {
    pub(super) fn start(script: Script, port: u16) -> std::io::Result<Provider> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                agent: script.agent,
                judge: script.judge,
                summarizer: script.summarizer,
                checker: Checker::new(script.rules),
                requests: Vec::new(),
                others: Vec::new(),
                served: Vec::new(),
                refused: 0,
                problems: Vec::new(),
                hooks: script.hooks,
                hold: None,
                connections: Vec::new(),
                active: 0,
                answering: 0,
                told: (0, 0),
            }),
            changed: Condvar::new(),
            closing: AtomicBool::new(false),
            lane_of: script.lane_of,
            light: script.light,
            keep_bodies: script.keep_bodies && !script.light,
        });
        let for_thread = Arc::clone(&shared);
        let acceptor = std::thread::spawn(move || accept(&for_thread, &listener));
        Ok(Provider { shared, address, acceptor: Some(acceptor) })
    }

    /// `http://127.0.0.1:PORT`: the base URL for every wire.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// A base URL on loopback where nobody listens.
    pub fn dead_url() -> String {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
        format!("http://{}", listener.local_addr().expect("a bound listener has an address"))
    }

    /// The key that requests must carry.
    pub fn key(&self) -> Option<String> {
        self.shared.lock().checker.rules.key.clone()
    }

    /// All requests so far, in the order they arrived.
    pub fn requests(&self) -> Vec<Arc<Request>> {
        self.shared.lock().requests.clone()
    }

    pub fn lane_requests(&self, lane: Lane) -> Vec<Arc<Request>> {
        self.shared.lock().requests.iter().filter(|request| request.lane == lane).cloned().collect()
    }

    pub fn agent_requests(&self) -> Vec<Arc<Request>> {
        self.lane_requests(Lane::Agent)
    }

    pub fn judge_requests(&self) -> Vec<Arc<Request>> {
        self.lane_requests(Lane::Judge)
    }

    pub fn summarizer_requests(&self) -> Vec<Arc<Request>> {
        self.lane_requests(Lane::Summarizer)
    }

    /// Agent requests so far that did not continue the one before.
    pub fn rewrites(&self) -> u64 {
        self.shared.lock().checker.rewritten
    }

    /// Requests of the lane so far.
    pub fn count(&self, lane: Lane) -> usize {
        self.shared.lock().requests.iter().filter(|request| request.lane == lane).count()
    }

    /// Requests for anything but a model's reply, as `METHOD path`; they are answered with 404.
    pub fn others(&self) -> Vec<String> {
        self.shared.lock().others.clone()
    }

    /// Connections that were reset before a request (`Reply::refuse_connection`).
    pub fn refused(&self) -> usize {
        self.shared.lock().refused
    }

    /// What became of each answer that has ended, in the order of the requests. Waits a moment for answers under way: a client may
    /// be through with one before its last write has returned here.
    pub fn served(&self) -> Vec<Served> {
        let a_moment = Duration::from_secs(1);
        let state = self.shared.lock();
        let waited = self.shared.changed.wait_timeout_while(state, a_moment, |state| state.answering > 0);
        let mut served = waited.unwrap_or_else(PoisonError::into_inner).0.served.clone();
        served.sort_by_key(|served| served.n);
        served
    }

    /// What the whole streams reported, by lane.
    pub fn served_usage(&self) -> BTreeMap<Lane, Usage> {
        let mut by_lane = BTreeMap::new();
        for served in self.served().iter().filter(|served| served.whole) {
            let sum: &mut Usage = by_lane.entry(served.lane).or_default();
            sum.add(served.usage.unwrap_or_default());
        }
        by_lane
    }

    /// Replies that the lane's script still holds; absent with one that repeats forever.
    pub fn remaining(&self, lane: Lane) -> Option<u64> {
        let mut state = self.shared.lock();
        state.queue(lane).iter().map(|step| step.times).sum()
    }

    /// Waits until `n` requests have arrived and gives the n-th (from 1). Panics after `timeout`.
    #[track_caller]
    pub fn wait_for_request(&self, n: usize, timeout: Duration) -> Arc<Request> {
        self.wait(timeout, &format!("request {n}"), |state| state.requests.get(n - 1).cloned())
    }

    /// Waits until the lane's n-th request (from 1) has arrived. Panics after `timeout`.
    #[track_caller]
    pub fn wait_for_lane_request(&self, lane: Lane, n: usize, timeout: Duration) -> Arc<Request> {
        let what = format!("{} request {n}", lane.name());
        self.wait(timeout, &what, |state| state.requests.iter().find(|r| r.lane == lane && r.lane_n == n).cloned())
    }

    /// Waits until the answer to the n-th request (from 1) has ended. Panics after `timeout`.
    #[track_caller]
    pub fn wait_for_answer(&self, n: usize, timeout: Duration) -> Served {
        let what = format!("the end of answer {n}");
        self.wait(timeout, &what, |state| state.served.iter().find(|served| served.n == n).cloned())
    }

    /// Waits for answers and complaints not told yet; one line each, none after `timeout`.
    pub fn wait_for_news(&self, timeout: Duration) -> Vec<String> {
        let quiet = |state: &mut State| state.told == (state.served.len(), state.problems.len());
        let state = self.shared.lock();
        let waited = self.shared.changed.wait_timeout_while(state, timeout, quiet);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let answers = state.served[state.told.0..].iter().map(|served| {
            let status = served.status.map_or("no answer".to_owned(), |status| status.to_string());
            let end = if served.whole { "" } else { ", not whole" };
            format!("{} {}: {status}, {} bytes{end}", served.lane.name(), served.lane_n, served.body_bytes)
        });
        let complaints = state.problems[state.told.1..].iter().map(|problem| format!("complaint: {problem}"));
        let lines = answers.chain(complaints).collect();
        state.told = (state.served.len(), state.problems.len());
        lines
    }

    #[track_caller]
    fn wait<T>(&self, timeout: Duration, what: &str, look: impl Fn(&State) -> Option<T>) -> T {
        let deadline = Instant::now() + timeout;
        let mut state = self.shared.lock();
        loop {
            if let Some(found) = look(&state) {
                return found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let (count, problems) = (state.requests.len(), state.problems.join("\n"));
            assert!(!left.is_zero(), "{what} did not come within {timeout:?}; {count} requests so far\n{problems}");
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Adds a reply behind those that the lane's script still holds.
    pub fn push(&self, lane: Lane, step: impl Into<Step>) {
        self.shared.lock().queue(lane).push_back(step.into());
    }

    /// Holds the replies to all requests that arrive from now on, until the gate is released.
    pub fn hold(&self) -> Gate {
        let gate = Gate::new();
        self.shared.lock().hold = Some(gate.clone());
        gate
    }

    /// From now on, agent requests need not continue earlier ones.
    pub fn allow_rewrite(&self) {
        self.shared.lock().checker.rules.rewrites = u64::MAX;
    }

    /// No later request may contain this text.
    pub fn secret(&self, secret: &str) {
        self.shared.lock().checker.rules.secrets.push(secret.to_owned());
    }

    /// What was wrong so far.
    pub fn problems(&self) -> Vec<String> {
        self.shared.lock().problems.clone()
    }

    /// Takes what was wrong so far, so that the end does not report it: for tests of the rules themselves.
    pub fn take_problems(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.lock().problems)
    }

    /// Ends the provider. Panics when a request was not well formed or the script was exhausted.
    #[track_caller]
    pub fn finish(mut self) {
        self.close();
        let problems = self.take_problems();
        assert!(problems.is_empty(), "{}", report(&problems));
    }

    /// Ends all connections and threads; waiting answers end at once.
    fn close(&mut self) {
        let Some(acceptor) = self.acceptor.take() else { return };
        self.shared.closing.store(true, Ordering::SeqCst);
        // Wakes the acceptor, which then sees that it is over.
        let woken = TcpStream::connect(self.address);
        if woken.is_ok() {
            let _ = acceptor.join();
        }
        let mut state = self.shared.lock();
        for stream in state.connections.drain(..).filter_map(|weak| weak.upgrade()) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Threads end by themselves now; one that runs a test's own closure may take a moment.
        let enough = Duration::from_secs(2);
        let waited = self.shared.changed.wait_timeout_while(state, enough, |state| state.active > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.close();
        let problems = self.take_problems();
        if problems.is_empty() {
            return;
        }
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "{}", report(&problems));
        } else {
            panic!("{}", report(&problems));
        }
    }
}

fn report(problems: &[String]) -> String {
    format!("the scripted provider has {} complaints:\n  {}", problems.len(), problems.join("\n  "))
}

impl State {
    fn queue(&mut self, lane: Lane) -> &mut VecDeque<Step> {
        match lane {
            Lane::Agent => &mut self.agent,
            Lane::Judge => &mut self.judge,
            Lane::Summarizer => &mut self.summarizer,
        }
    }

    /// Takes the lane's next step, one of its times.
    fn next(&mut self, lane: Lane) -> Option<What> {
        let queue = self.queue(lane);
        let step = queue.front_mut()?;
        let what = step.what.clone();
        if let Some(times) = &mut step.times {
            *times = times.saturating_sub(1);
            if *times == 0 {
                queue.pop_front();
            }
        }
        Some(what)
    }

    /// Whether the next connection is to be reset, for whichever lane.
    fn refusal_due(&mut self) -> Option<Lane> {
        Lane::ALL.into_iter().find(|lane| self.queue(*lane).front().is_some_and(Step::refuses_connection))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn complain(&self, problem: String) {
        self.lock().problems.push(problem);
        self.changed.notify_all();
    }
}

fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    for stream in listener.incoming() {
        if shared.closing.load(Ordering::SeqCst) {
            return;
        }
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                shared.complain(format!("accepting a connection: {error}"));
                continue;
            }
        };
        let mut state = shared.lock();
        if let Some(lane) = state.refusal_due() {
            state.next(lane);
            state.refused += 1;
            drop(state);
            shared.changed.notify_all();
            reset(&stream);
            continue;
        }
        let stream = Arc::new(stream);
        state.connections.retain(|weak| weak.strong_count() > 0);
        state.connections.push(Arc::downgrade(&stream));
        state.active += 1;
        drop(state);
        let shared = Arc::clone(shared);
        std::thread::spawn(move || {
            match catch_unwind(AssertUnwindSafe(|| converse(&shared, &stream))) {
                Ok(After::Reset) => reset(&stream),
                Ok(_) => {}
                Err(panic) => {
                    let text = panic.downcast_ref::<String>().map(String::as_str);
                    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("(no message)");
                    shared.complain(format!("a closure of the test panicked: {text}"));
                }
            }
            drop(stream);
            shared.lock().active -= 1;
            shared.changed.notify_all();
        });
    }
}

/// Lets the close that follows send RST instead of FIN.
fn reset(stream: &TcpStream) {
    let _ = sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}

/// Serves one connection to its end.
fn converse(shared: &Shared, stream: &TcpStream) -> After {
    let _ = stream.set_nodelay(true);
    let mut reader = BufReader::with_capacity(64 << 10, stream);
    loop {
        let arrived = match read_request(&mut reader, stream) {
            Ok(arrived) => arrived,
            Err(NoRequest::Gone) => return After::Close,
            Err(NoRequest::Malformed(what)) => {
                shared.complain(format!("a request is no HTTP: {what}"));
                return After::Close;
            }
        };
        let wants_close = arrived.wants_close();
        match exchange(shared, stream, arrived) {
            After::KeepAlive if !wants_close => {}
            After::Reset => return After::Reset,
            _ => return After::Close,
        }
    }
}

/// Records, checks and answers one request.
fn exchange(shared: &Shared, stream: &TcpStream, arrived: Arrived) -> After {
    let (path, query) = arrived.target.split_once('?').unwrap_or((&arrived.target, ""));
    let Some(wire) = Wire::of_path(path).filter(|_| arrived.method == "POST") else {
        let other = format!("{} {path}", arrived.method);
        let mut state = shared.lock();
        if arrived.method != "GET" {
            state.problems.push(format!("a request for something that does not exist: {other}"));
        }
        state.others.push(other);
        drop(state);
        shared.changed.notify_all();
        return plain(stream, 404, r#"{"error":{"type":"not_found_error","message":"no such path"}}"#);
    };
    let asked = Asked::of(wire, path, &arrived.body);
    let told = shared.lane_of.as_ref().and_then(|lane_of| lane_of(&serde_json::from_slice(&arrived.body).ok()?));
    let lane = told.unwrap_or(match (asked.judges, asked.summarizes) {
        (true, _) => Lane::Judge,
        (false, true) => Lane::Summarizer,
        (false, false) => Lane::Agent,
    });

    let mut state = shared.lock();
    let mut request = Request {
        n: state.requests.len() + 1,
        lane_n: state.requests.iter().rev().find(|r| r.lane == lane).map_or(0, |r| r.lane_n) + 1,
        lane,
        wire,
        path: path.to_owned(),
        query: query.to_owned(),
        headers: arrived.headers,
        body: arrived.body,
        first_byte: arrived.first_byte,
        received: arrived.received,
    };
    let name = format!("request {} ({} {})", request.n, lane.name(), request.lane_n);
    if !shared.light {
        let found = state.checker.check(&request);
        state.problems.extend(found.into_iter().map(|problem| format!("{name}: {problem}")));
    }
    if shared.light {
        request.body = Vec::new();
    }
    let request = Arc::new(request);
    let kept = if shared.keep_bodies { Arc::clone(&request) } else { Arc::new(request.without_body()) };
    state.requests.push(kept);
    state.answering += 1;
    let mut guard = Answering { shared, served: None };
    let what = state.next(lane);
    if what.is_none() {
        state.problems.push(format!("{name}: script exhausted"));
    }
    let mine = |hook: &mut Hook| match hook.lane {
        None => hook.n == request.n,
        Some(lane) => lane == request.lane && hook.n == request.lane_n,
    };
    let hooks: Vec<Hook> = state.hooks.extract_if(.., mine).collect();
    let hold = state.hold.clone();
    drop(state);
    shared.changed.notify_all();

    for hook in hooks {
        (hook.run)(&request);
    }
    let mut reply = match what {
        Some(What::Fixed(reply)) => *reply,
        Some(What::Computed(respond)) => respond(&request),
        // So that the run ends instead of trying again and again.
        None => Reply::error(500).header("x-should-retry", "false").body(r#"{"error":"script exhausted"}"#),
    };
    stream::with_ids(&mut reply, request.n);
    let response = stream::response(&reply, &request, &asked);
    let mut state = shared.lock();
    if lane == Lane::Agent && reply.status == 200 {
        state.checker.sent(&reply, request.n);
    }
    // The connection that is to be refused has to be a new one.
    let close = state.refusal_due().is_some();
    drop(state);

    let mut answer = Answer::new(stream, &shared.closing, close);
    let after = answer.send(&reply, &response, hold.as_ref());
    guard.served = Some(Served {
        n: request.n,
        lane,
        lane_n: request.lane_n,
        status: answer.status,
        usage: response.usage.filter(|_| answer.whole),
        whole: answer.whole,
        body_bytes: answer.body_bytes,
        finished: Instant::now(),
    });
    after.unwrap_or(After::Close)
}

/// Counts an answer as under way until it is dropped, also by a panic of the test's closure.
struct Answering<'a> {
    shared: &'a Shared,
    served: Option<Served>,
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.answering -= 1;
        state.served.extend(self.served.take());
        drop(state);
        self.shared.changed.notify_all();
    }
}
