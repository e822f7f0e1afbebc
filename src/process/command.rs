//! `Exec` as it really is: one task a tree, which feeds its output where it belongs and hears of its end.

mod task;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::Interest;
use tokio::sync::{Notify, mpsc, oneshot};

use self::task::{Owner, Task};
use super::backend::{Backend, Tree};
use super::gate::Gate;
use super::job::Jobs;
use super::ring::Ends;
use super::sandbox::{self, Level, Obtained, Policy};
use super::shutdown::{Strangers, become_subreaper};
use super::sweep::Ledger;
use super::tree::{Confined, Request};
use super::{ProcessError, ProcessOptions, sys};
use crate::event::Leaked;
use crate::world::{Boxed, Command, CommandKind, Exec, ExecError, Finished, JobInfo};

/// What a foreground leader leaves behind may end by itself for so long: the `tee` of a process substitution still
/// has to write what it got.
const SETTLE: Duration = Duration::from_millis(150);

/// A zygote that has fallen behind is asked again after this.
const BEHIND: Duration = Duration::from_millis(1);

/// The real `Exec`. Made by [`super::start`].
pub struct Process {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub options: ProcessOptions,
    /// `NAME=value` of `options.environment`.
    environment: Vec<(String, CString)>,
    /// The same of `options.git_environment`.
    git_environment: Vec<(String, CString)>,
    pub gate: Gate,
    pub backend: Mutex<Backend>,
    trees: Mutex<Trees>,
    /// Whenever a tree is gone.
    pub ended: Notify,
    pub jobs: Jobs,
    /// Opened when there is a folder to keep it in.
    pub ledger: OnceLock<Ledger>,
    /// Children that this process had before it started any.
    pub strangers: Strangers,
    /// Commands are started confined.
    confined: AtomicBool,
}

#[derive(Default)]
struct Trees {
    last: u64,
    alive: BTreeMap<u64, Entry>,
}

/// A tree that lives.
struct Entry {
    orders: mpsc::UnboundedSender<Order>,
    /// The supervisor's pid, once known.
    supervisor: Option<i32>,
    /// What a finished command has left running, with leave.
    kept: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Order {
    Terminate(Duration),
    Kill,
}

impl Process {
    pub(super) fn new(options: ProcessOptions) -> Result<Process, ProcessError> {
        become_subreaper().map_err(ProcessError::Subreaper)?;
        sandbox::keep_to_itself().map_err(ProcessError::Sandbox)?;
        let strangers = Strangers::look();
        let backend = Backend::start(&options.executable)
            .map_err(|error| ProcessError::Zygote(options.executable.clone(), error))?;
        let variables = |of: &[(String, String)]| {
            // A variable that cannot be in an environment was not in ours.
            of.iter().filter_map(|(name, value)| Some((name.clone(), variable(name, value).ok()?))).collect()
        };
        let shared = Shared {
            environment: variables(&options.environment),
            git_environment: variables(&options.git_environment),
            options,
            gate: Gate::default(),
            backend: Mutex::new(backend),
            trees: Mutex::default(),
            ended: Notify::new(),
            jobs: Jobs::default(),
            ledger: OnceLock::new(),
            strangers,
            confined: AtomicBool::new(false),
        };
        let process = Process { shared: Arc::new(shared) };
        if let Some(dir) = process.shared.options.ledger_dir.clone() {
            process.open_ledger(&dir)?;
        }
        Ok(process)
    }

    /// Keeps the ledger of children in `dir` from now on: of those alive, and of all that are started. Only the first
    /// ledger of a process counts.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open_ledger(&self, dir: &Path) -> Result<(), ProcessError> {
        let ledger = Ledger::open(dir, &self.shared.options.run_id)?;
        let ledger = self.shared.ledger.get_or_init(|| ledger);
        let mut alive = self.shared.supervisors();
        alive.extend(self.zygote());
        ledger.record(&alive);
        Ok(())
    }

    /// Confines the commands that are started from now on, spettro's own git too, and says what of it the kernel
    /// keeps. A later policy takes the place of an earlier one.
    ///
    /// # Errors
    /// When the kernel has the means and they could not be prepared.
    pub fn confine(&self, policy: &Policy) -> Result<Level, ProcessError> {
        // `off` is kept by every kernel, without asking.
        let obtained = match policy.is_off() {
            true => Obtained::default(),
            false => lock(&self.shared.backend).confine(policy).map_err(ProcessError::Sandbox)?,
        };
        self.shared.confined.store(!policy.is_off(), Ordering::Relaxed);
        Ok(Level::of(policy, obtained))
    }

    /// How many starts the closed gate has refused.
    pub fn refused(&self) -> u64 {
        self.shared.gate.refused()
    }

    /// The pid of the present zygote.
    pub fn zygote(&self) -> Option<i32> {
        lock(&self.shared.backend).pid()
    }
}

impl Exec for Process {
    fn run(&self, command: Command) -> Boxed<'_, Result<Finished, ExecError>> {
        Box::pin(async move {
            let (done, finished) = oneshot::channel();
            let owner = Owner::Foreground { ends: Ends::new(command.keep_bytes), done };
            let tree = Arc::clone(&self.shared).launch(&command, owner).await?;
            let mut killed_when_dropped = KillWhenDropped { shared: &self.shared, tree: Some(tree) };
            // The task answers unless the runtime is going down.
            let finished = finished.await.unwrap_or(Err(ExecError::ShuttingDown));
            // What it left may live on now.
            killed_when_dropped.tree = None;
            finished
        })
    }

    fn start(&self, job: &str, command: Command) -> Boxed<'_, Result<(), ExecError>> {
        let id = job.to_owned();
        Box::pin(async move {
            self.shared.jobs.add(&id, &command.label, command.grace)?;
            let (started, answer) = oneshot::channel();
            let owner = Owner::Job { id: id.clone(), started: Some(started) };
            let result = match Arc::clone(&self.shared).launch(&command, owner).await {
                Ok(tree) => {
                    self.shared.jobs.set_tree(&id, tree);
                    answer.await.unwrap_or(Err(ExecError::ShuttingDown))
                }
                Err(error) => Err(error),
            };
            if result.is_err() {
                self.shared.jobs.forget(&id);
            }
            result
        })
    }

    fn jobs(&self) -> Vec<JobInfo> {
        self.shared.jobs.infos()
    }

    fn read(&self, job: &str, offset: u64, limit: usize) -> Option<(u64, Vec<u8>)> {
        self.shared.jobs.read(job, offset, limit)
    }

    fn kill<'a>(&'a self, job: &'a str) -> Boxed<'a, ()> {
        Box::pin(async move {
            let mut told = false;
            loop {
                let changed = self.shared.jobs.changed();
                let Some((tree, grace)) = self.shared.jobs.living(job) else { return };
                if let (Some(tree), false) = (tree, told) {
                    self.shared.order(tree, Order::Terminate(grace));
                    told = true;
                }
                changed.await;
            }
        })
    }

    fn changed(&self) -> Boxed<'_, ()> {
        Box::pin(self.shared.jobs.changed())
    }

    fn busy(&self) -> bool {
        lock(&self.shared.trees).alive.values().any(|entry| !entry.kept)
    }

    fn shutdown(&self, grace: Duration) -> Boxed<'_, Vec<Leaked>> {
        Box::pin(self.shared.shutdown(grace))
    }
}

struct KillWhenDropped<'a> {
    shared: &'a Shared,
    tree: Option<u64>,
}

impl Drop for KillWhenDropped<'_> {
    fn drop(&mut self) {
        if let Some(tree) = self.tree {
            self.shared.order(tree, Order::Kill);
        }
    }
}

impl Shared {
    /// Starts a tree and the task that looks after it; resolves when it is registered.
    async fn launch(self: Arc<Self>, command: &Command, owner: Owner) -> Result<u64, ExecError> {
        let Some(_pass) = self.gate.enter().await else { return Err(ExecError::ShuttingDown) };
        let begun = Instant::now();
        let program = command.argv.first().cloned().unwrap_or_default();
        let failed = |error: io::Error| ExecError::Failed(program.clone(), error.to_string());
        let id = {
            let mut trees = lock(&self.trees);
            trees.last += 1;
            trees.last
        };
        let name = match &owner {
            Owner::Foreground { .. } | Owner::Kept => format!("command-{id}"),
            Owner::Job { id, .. } => id.clone(),
        };
        let request = self.request(command, &name, matches!(owner, Owner::Job { .. }))?;
        let (reader, writer) = std::io::pipe().map_err(failed)?;
        let (reader, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
        rustix::io::ioctl_fionbio(&reader, true).map_err(|error| failed(error.into()))?;
        let output = sys::watch(reader, Interest::READABLE).map_err(failed)?;
        let tree = loop {
            match self.spawn(&request, &writer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !self.gate.is_closed() => {
                    tokio::time::sleep(BEHIND).await;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(ExecError::ShuttingDown),
                other => break other.map_err(failed)?,
            }
        };
        drop(writer);
        self.reap_as_init();
        let (orders, told) = mpsc::unbounded_channel();
        lock(&self.trees).alive.insert(id, Entry { orders, supervisor: None, kept: false });
        let redactor = self.options.secrets.redactor();
        let task = Task { shared: Arc::clone(&self), id, command: command.clone(), begun, owner, redactor };
        tokio::spawn(task.run(tree, output, told));
        Ok(id)
    }

    /// Asks the zygote, and a new one when it is dead.
    fn spawn(&self, request: &Request, writer: &OwnedFd) -> io::Result<Tree> {
        super::starting();
        let mut backend = lock(&self.backend);
        match backend.spawn(request, writer.as_fd()) {
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                backend.restart(&self.options.executable)?;
                if let (Some(ledger), Some(pid)) = (self.ledger.get(), backend.pid()) {
                    ledger.record(&[pid]);
                }
                backend.spawn(request, writer.as_fd())
            }
            other => other,
        }
    }

    fn request(&self, command: &Command, name: &str, job: bool) -> Result<Request, ExecError> {
        let program = command.argv.first().cloned().unwrap_or_default();
        let failed = |what: &str| ExecError::Failed(program.clone(), format!("{what} has a NUL byte"));
        let argv: Vec<CString> = command
            .argv
            .iter()
            .map(|argument| CString::new(argument.as_str()))
            .collect::<Result<_, _>>()
            .map_err(|_| failed("an argument"))?;
        if argv.is_empty() {
            return Err(ExecError::NotFound(String::new()));
        }
        let own = [("SPETTRO_JOB_ID", name), ("SPETTRO_RUN_ID", self.options.run_id.as_str())];
        let own: Vec<(&str, &str)> =
            command.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).chain(own).collect();
        let inherited = if command.kind == CommandKind::Git { &self.git_environment } else { &self.environment };
        let mut env: Vec<CString> = Vec::with_capacity(inherited.len() + own.len());
        env.extend(
            inherited
                .iter()
                .filter(|(name, _)| !own.iter().any(|(other, _)| other == name))
                .map(|(_, variable)| variable.clone()),
        );
        for (index, (name, value)) in own.iter().enumerate() {
            // Of two with one name the last counts.
            if !own[index + 1..].iter().any(|(other, _)| other == name) {
                env.push(variable(name, value).map_err(|_| failed("a variable"))?);
            }
        }
        Ok(Request {
            argv,
            env,
            cwd: CString::new(command.cwd.as_os_str().as_bytes()).map_err(|_| failed("the working directory"))?,
            timeout: command.timeout,
            grace: command.grace,
            settle: SETTLE,
            max_descendants: self.options.max_descendants,
            confined: match command.kind {
                _ if !self.confined.load(Ordering::Relaxed) => Confined::No,
                CommandKind::Git => Confined::Git,
                _ => Confined::Command,
            },
            job,
            keep: self.options.keep_leftovers && !job && command.kind != CommandKind::Git,
        })
    }

    pub(super) fn order(&self, tree: u64, order: Order) {
        if let Some(entry) = lock(&self.trees).alive.get(&tree) {
            // Without a receiver the tree has just ended.
            let _ended = entry.orders.send(order);
        }
    }

    pub(super) fn order_all(&self, order: Order) {
        for entry in lock(&self.trees).alive.values() {
            let _ended = entry.orders.send(order);
        }
    }

    pub(super) fn idle(&self) -> bool {
        lock(&self.trees).alive.is_empty()
    }

    /// The supervisors that are known to live.
    pub(super) fn supervisors(&self) -> Vec<i32> {
        lock(&self.trees).alive.values().filter_map(|entry| entry.supervisor).collect()
    }

    fn forget(&self, tree: u64) {
        lock(&self.trees).alive.remove(&tree);
    }
}

fn variable(name: &str, value: &str) -> Result<CString, std::ffi::NulError> {
    CString::new(format!("{name}={value}"))
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these hold is whole after every statement, so a panic elsewhere does not spoil it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
