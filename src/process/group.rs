//! Commands as process groups, where there is neither zygote nor subreaper.
//!
//! What is promised less than on Linux: a descendant that leaves its group (`setsid`) is not found, and the death
//! of the runner ends nothing. One thread waits for each leader.

use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use tokio::sync::mpsc;

use super::sandbox::{Obtained, Policy};
use super::tree::{Gone, NotStarted, Reason, Report, Request, Status};

/// How often a group that was told to end is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// There is no zygote to talk to; the subcommand ends at once.
pub fn zygote_main() -> ! {
    super::sys::exit_now(2)
}

pub struct Backend;

impl Backend {
    pub fn start(_executable: &Path) -> io::Result<Backend> {
        Ok(Backend)
    }

    pub fn pid(&self) -> Option<i32> {
        None
    }

    pub fn restart(&mut self, _executable: &Path) -> io::Result<()> {
        Ok(())
    }

    pub fn stop(&mut self) {}

    /// Nothing can be kept here, and that is what the level says.
    pub fn confine(&mut self, _policy: &Policy) -> io::Result<Obtained> {
        Ok(Obtained { abi: 0, seccomp: false, capabilities: true })
    }

    /// Starts the group of `request`, with `output` as its output.
    pub fn spawn(&self, request: &Request, output: BorrowedFd<'_>) -> io::Result<Tree> {
        let (reports, heard) = mpsc::unbounded_channel();
        let text = |bytes: &std::ffi::CString| OsStr::from_bytes(bytes.as_bytes()).to_owned();
        let not_started = |why| {
            // The receiver is `heard`, and alive.
            let _received = reports.send(Report::NotStarted(why));
        };
        let Some(program) = request.argv.first() else {
            not_started(NotStarted::Missing);
            return Ok(Tree { group: None, reports: heard, orders: None });
        };
        if !Path::new(&text(&request.cwd)).is_dir() {
            not_started(NotStarted::Cwd);
            return Ok(Tree { group: None, reports: heard, orders: None });
        }
        let mut command = Command::new(text(program));
        command.args(request.argv[1..].iter().map(text)).current_dir(text(&request.cwd)).process_group(0).env_clear();
        for variable in &request.env {
            let bytes = variable.as_bytes();
            let (name, value) = bytes.split_at(bytes.iter().position(|&byte| byte == b'=').unwrap_or(bytes.len()));
            command.env(OsStr::from_bytes(name), OsStr::from_bytes(value.strip_prefix(b"=").unwrap_or(value)));
        }
        command.stdin(Stdio::null()).stdout(output.try_clone_to_owned()?).stderr(output.try_clone_to_owned()?);
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                not_started(match error.kind() {
                    io::ErrorKind::NotFound => NotStarted::Missing,
                    io::ErrorKind::PermissionDenied => NotStarted::Denied,
                    _ => NotStarted::Other(error.raw_os_error().unwrap_or(0)),
                });
                return Ok(Tree { group: None, reports: heard, orders: None });
            }
        };
        let group = Pid::from_child(&child);
        let (orders, told) = std::sync::mpsc::channel();
        let leader = child.id() as i32;
        // Its receiver lives until the tree is dropped, which kills the group.
        let _dropped = reports.send(Report::Started { supervisor: leader, leader });
        let watch = Watch { group, request: request.clone(), reports, told };
        std::thread::Builder::new().name(format!("command-{leader}")).spawn(move || watch.run(&mut child))?;
        Ok(Tree { group: Some(group), reports: heard, orders: Some(orders) })
    }
}

/// The runner's handle on one group. Dropping it kills the group at once.
pub struct Tree {
    group: Option<Pid>,
    reports: mpsc::UnboundedReceiver<Report>,
    orders: Option<std::sync::mpsc::Sender<Duration>>,
}

impl Tree {
    /// The next report; `None` after the last.
    pub async fn next(&mut self) -> Option<Report> {
        self.reports.recv().await
    }

    /// TERM to the group, KILL after `grace`.
    pub fn terminate(&mut self, grace: Duration) {
        if let Some(orders) = &self.orders {
            // Without a listener the group is gone.
            let _gone = orders.send(grace);
        }
    }

    /// KILL to the group.
    pub fn kill(&mut self) {
        self.terminate(Duration::ZERO);
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if let (Some(group), false) = (self.group, self.reports.is_closed()) {
            signal(group, Signal::KILL);
        }
    }
}

struct Watch {
    group: Pid,
    request: Request,
    reports: mpsc::UnboundedSender<Report>,
    told: std::sync::mpsc::Receiver<Duration>,
}

impl Watch {
    fn run(self, child: &mut std::process::Child) {
        let deadline = self.request.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let (mut status, mut reason) = (None, Reason::Ended);
        let mut kill_at: Option<Instant> = None;
        let mut settle_until: Option<Instant> = None;
        let mut kept = false;
        loop {
            if status.is_none()
                && let Ok(Some(exit)) = child.try_wait()
            {
                status = Some(to_status(exit));
                settle_until = Some(Instant::now() + self.request.settle);
            }
            let now = Instant::now();
            let empty = status.is_some()
                && rustix::process::test_kill_process_group(self.group) == Err(rustix::io::Errno::SRCH);
            if empty {
                break;
            }
            let over = !self.request.job && settle_until.is_some_and(|until| until <= now);
            if let (true, false, true, Some(status)) = (over, kept, self.request.keep, status) {
                kept = true;
                // Who is in the group cannot be told here; the run ends them by the group.
                let _dropped = self.reports.send(Report::Kept { status, leftovers: Vec::new() });
            }
            let settled = over && !kept;
            let late = status.is_none() && deadline.is_some_and(|deadline| deadline <= now);
            let order = self.told.recv_timeout(LOOK_EVERY).ok();
            if kill_at.is_none() && (settled || late || order.is_some()) {
                if status.is_none() || self.request.job {
                    reason = if late { Reason::TimedOut } else { Reason::Ordered };
                }
                signal(self.group, Signal::TERM);
                signal(self.group, Signal::CONT);
                kill_at = Some(now + order.unwrap_or(self.request.grace));
            } else if let (Some(grace), Some(at)) = (order, kill_at) {
                kill_at = Some(at.min(now + grace));
            }
            if kill_at.is_some_and(|at| at <= now) {
                signal(self.group, Signal::KILL);
            }
        }
        let gone = Gone { status, reason, leftovers: Vec::new(), survivors: Vec::new() };
        // Nobody listens when the tree was dropped.
        let _dropped = self.reports.send(Report::Gone(gone));
    }
}

fn signal(group: Pid, signal: Signal) {
    // An empty group needs none.
    let _empty = rustix::process::kill_process_group(group, signal);
}

fn to_status(exit: ExitStatus) -> Status {
    match exit.code() {
        Some(code) => Status::Exited(code),
        None => Status::Signaled(exit.signal().unwrap_or(0)),
    }
}
