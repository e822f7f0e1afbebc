//! The tools through their one door, with a scripted `Exec` and real folders.

mod commands;
mod filing;
mod naming;
mod searching;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::*;
use crate::event::{Leaked, ToolStatus};
use crate::process::sandbox::Policy;
use crate::session::Spool;
use crate::world::*;

/// Says what it was told to say, and remembers what it was asked.
#[derive(Default)]
struct Script {
    finished: RefCell<VecDeque<Result<Finished, ExecError>>>,
    asked: RefCell<Vec<(Option<String>, Command)>>,
    jobs: RefCell<Vec<JobInfo>>,
    /// What is in a job's ring: the absolute offset of its first byte, and the bytes.
    rings: RefCell<BTreeMap<String, (u64, Vec<u8>)>>,
    notify: tokio::sync::Notify,
    /// Whether time passes: sleeping ends at once, or never.
    time_passes: Cell<bool>,
    slept: RefCell<Vec<Duration>>,
}

impl Script {
    fn job(&self, id: &str, state: JobState, printed: &[u8]) {
        self.jobs.borrow_mut().push(JobInfo {
            id: id.into(),
            command: "serve".into(),
            state,
            started: SystemTime::UNIX_EPOCH,
            ended: None,
            printed_bytes: printed.len() as u64,
            dropped_bytes: 0,
            last_line: String::from_utf8_lossy(
                printed.split(|b| *b == b'\n').rev().find(|l| !l.is_empty()).unwrap_or(b""),
            )
            .into_owned(),
        });
        self.rings.borrow_mut().insert(id.into(), (0, printed.to_owned()));
    }

    fn print(&self, id: &str, bytes: &[u8]) {
        if let Some((_, ring)) = self.rings.borrow_mut().get_mut(id) {
            ring.extend_from_slice(bytes);
        }
        for job in self.jobs.borrow_mut().iter_mut().filter(|job| job.id == id) {
            job.printed_bytes += bytes.len() as u64;
        }
        self.notify.notify_waiters();
    }

    fn drop_first(&self, id: &str, n: usize) {
        if let Some((start, ring)) = self.rings.borrow_mut().get_mut(id) {
            ring.drain(..n);
            *start += n as u64;
        }
    }

    fn end(&self, id: &str, state: JobState, after: Duration) {
        for job in self.jobs.borrow_mut().iter_mut().filter(|job| job.id == id) {
            job.state = state.clone();
            job.ended = Some(SystemTime::UNIX_EPOCH + after);
        }
        self.notify.notify_waiters();
    }
}

impl Exec for Script {
    fn run(&self, command: Command) -> Boxed<'_, Result<Finished, ExecError>> {
        self.asked.borrow_mut().push((None, command));
        let answer = self.finished.borrow_mut().pop_front().expect("a scripted answer");
        Box::pin(async { answer })
    }

    fn start(&self, job: &str, command: Command) -> Boxed<'_, Result<(), ExecError>> {
        self.asked.borrow_mut().push((Some(job.into()), command));
        self.job(job, JobState::Running, b"");
        Box::pin(async { Ok(()) })
    }

    fn jobs(&self) -> Vec<JobInfo> {
        self.jobs.borrow().clone()
    }

    fn read(&self, job: &str, offset: u64, limit: usize) -> Option<(u64, Vec<u8>)> {
        let rings = self.rings.borrow();
        let (start, ring) = rings.get(job)?;
        let from = offset.max(*start);
        let at = ((from - start) as usize).min(ring.len());
        Some((from, ring[at..ring.len().min(at + limit)].to_owned()))
    }

    fn kill<'a>(&'a self, job: &'a str) -> Boxed<'a, ()> {
        Box::pin(async move { self.end(job, JobState::Killed, Duration::from_secs(1)) })
    }

    fn changed(&self) -> Boxed<'_, ()> {
        Box::pin(self.notify.notified())
    }

    fn busy(&self) -> bool {
        false
    }

    fn shutdown(&self, _: Duration) -> Boxed<'_, Vec<Leaked>> {
        Box::pin(async { Vec::new() })
    }
}

struct ScriptClock(Rc<Script>);

impl Clock for ScriptClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }

    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, duration: Duration) -> Boxed<'_, ()> {
        self.0.slept.borrow_mut().push(duration);
        if self.0.time_passes.get() { Box::pin(async {}) } else { Box::pin(std::future::pending()) }
    }
}

struct NoTransport;

impl Transport for NoTransport {
    fn send(&self, _: HttpRequest) -> Boxed<'_, Result<HttpResponse, TransportError>> {
        Box::pin(async { Err(TransportError::Timeout) })
    }
}

/// A workspace, a home of spettro's own beside it, and all tools.
struct Rig {
    dir: tempfile::TempDir,
    exec: Rc<Script>,
    world: World,
    roots: Roots,
    spool: Spool,
    tools: Tools,
}

fn options(own: PathBuf) -> ToolOptions {
    ToolOptions {
        allow: None,
        deny: Vec::new(),
        command_limit: Duration::from_secs(600),
        own_dirs: vec![own],
        policy: Rc::new(Policy::off()),
        jobs: true,
        removed: Vec::new(),
        secrets: Secrets::default(),
    }
}

impl Rig {
    fn new() -> Rig {
        Rig::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut ToolOptions)) -> Rig {
        let dir = tempfile::tempdir().expect("a folder");
        let base = dir.path().canonicalize().expect("a path");
        std::fs::create_dir_all(base.join("ws")).expect("a workspace");
        std::fs::create_dir_all(base.join("home/sessions")).expect("a home");
        let exec = Rc::new(Script::default());
        let mut options = options(base.join("home"));
        change(&mut options);
        let world = World {
            transport: Rc::new(NoTransport),
            exec: exec.clone(),
            dir: Rc::new(RealDir),
            clock: Rc::new(ScriptClock(exec.clone())),
            ids: Rc::new(RealIds::from_seed(b"tools")),
            env: Rc::new(RealEnv),
        };
        // Shown under another name than it has, as in a replay: what the model sees must never hold the real one.
        let roots = Roots { real: base.join("ws"), shown: "/shown/project".into() };
        let spool = Spool::new(base.join("spool"));
        Rig { dir, exec, world, roots, spool, tools: Tools::new(options) }
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.roots.real.join(relative)
    }

    fn put(&self, relative: &str, content: impl AsRef<[u8]>) {
        let path = self.path(relative);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        std::fs::write(path, content).expect("a file");
    }

    fn get(&self, relative: &str) -> String {
        std::fs::read_to_string(self.path(relative)).expect(relative)
    }

    async fn call(&mut self, name: &str, arguments: Value) -> Ran {
        self.within(name, &arguments.to_string(), usize::MAX).await
    }

    async fn within(&mut self, name: &str, arguments: &str, budget_chars: usize) -> Ran {
        let call = ToolCall { id: "c1".into(), name: name.into(), arguments: arguments.into() };
        let ran = self.tools.run(&self.world, &self.roots, &self.spool, &call, budget_chars).await;
        let real = self.dir.path().to_string_lossy().into_owned();
        assert!(!ran.full.text().contains(&real), "a real path is shown: {}", ran.full.text());
        assert!(ran.summary.chars().count() <= 120 && !ran.summary.contains(char::is_control), "{}", ran.summary);
        assert!(!ran.text.is_empty());
        ran
    }

    async fn ok(&mut self, name: &str, arguments: Value) -> String {
        let ran = self.call(name, arguments).await;
        assert_eq!(ran.status, ToolStatus::Ok, "{name}: {}", ran.text);
        ran.text
    }

    /// The text of a call that ran and failed.
    async fn fails(&mut self, name: &str, arguments: Value) -> String {
        let ran = self.call(name, arguments).await;
        assert_eq!(ran.status, ToolStatus::Error, "{name}: {}", ran.text);
        ran.text
    }

    /// The text of a call that was never run.
    async fn refused(&mut self, name: &str, arguments: Value) -> String {
        let ran = self.call(name, arguments).await;
        assert_eq!(ran.status, ToolStatus::Refused, "{name}: {}", ran.text);
        assert!(ran.text.starts_with("error: "), "{}", ran.text);
        ran.text
    }
}
