//! One command's supervisor: starts the leader, and knows for certain when the whole tree is gone.
//!
//! It is a child subreaper, so every descendant whose parent dies becomes its own child, whatever the descendant
//! did to get away (`setsid`, double fork, `nohup`, an empty environment). When the kernel answers a wait with
//! `ECHILD`, the tree is empty: no list of pids could prove that.

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, Signal, WaitOptions};

use super::super::proc::{self, Stat};
use super::super::reaper::{kill_pass, signal_verified};
use super::super::sandbox::{Confinements, Network};
use super::super::sys::{self, Leader, Stage};
use super::super::tree::{Confined, Gone, NotStarted, Reason, Report, Request, Status};
use super::wire;
use crate::world::Leftover;

/// How long killed processes may take to disappear before they are reported as survivors.
const KILL_BUDGET: Duration = Duration::from_secs(5);
const COUNT_EVERY: Duration = Duration::from_millis(200);
/// A look at every process of the machine is not cheap; without a sign of growth it is taken only so often.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

enum Phase {
    Running,
    /// A foreground leader has ended; what it left may still end by itself.
    Settling {
        until: Instant,
    },
    /// A foreground leader has ended, and what it left may live on.
    Kept,
    Terminating {
        until: Instant,
    },
    Killing {
        since: Instant,
    },
}

/// The last count of descendants.
struct Look {
    at: Instant,
    alive: usize,
    /// Threads of the whole machine then.
    threads: usize,
    /// A descendant has ended since.
    stale: bool,
}

enum Children {
    Some,
    None,
}

struct Supervisor {
    control: OwnedFd,
    signals: OwnedFd,
    incoming: Vec<u8>,
    /// False when the runner's stream has ended.
    heard: bool,
    request: Request,
    me: i32,
    zygote: Option<Pid>,
    leader: Pid,
    status: Option<Status>,
    reason: Reason,
    phase: Phase,
    deadline: Option<Instant>,
    leftovers: Vec<Leftover>,
    next_count: Instant,
    last_look: Look,
    /// The number of living descendants last reported after a job's leader had ended.
    reported: Option<usize>,
}

/// What all supervisors have from their zygote.
pub struct Common {
    pub zygote: Pid,
    /// `/dev/null`.
    pub null: OwnedFd,
    oom_score_adj: String,
    /// What confined leaders take upon themselves.
    pub confinements: Option<Confinements>,
    /// The network for which zygote and supervisors, and so all leaders, have a filter of system calls.
    pub filtered: Option<Network>,
}

impl Common {
    /// To be made in the zygote.
    pub fn new(null: OwnedFd) -> Common {
        Common {
            zygote: rustix::process::getpid(),
            null,
            oom_score_adj: raised_oom_score(),
            confinements: None,
            filtered: None,
        }
    }
}

/// Half way from ours to the most, so that memory pressure ends commands before spettro.
fn raised_oom_score() -> String {
    let ours = std::fs::read_to_string("/proc/self/oom_score_adj").ok();
    let ours: i32 = ours.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    (ours + (1000 - ours) / 2).to_string()
}

/// What a supervisor is before it has a command.
pub struct Ready {
    me: Pid,
    signals: OwnedFd,
}

impl Ready {
    /// To be made in a process just forked from the zygote, with which it dies until it supervises.
    pub fn make(common: &Common) -> std::io::Result<Ready> {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        if rustix::process::getppid() != Some(common.zygote) {
            // It died before the kernel was asked to tell.
            sys::exit_now(0);
        }
        rustix::process::setsid()?;
        let me = rustix::process::getpid();
        rustix::process::set_child_subreaper(Some(me))?;
        sys::set_default(libc::SIGCHLD)?;
        Ok(Ready { me, signals: sys::signal_fd(&[libc::SIGCHLD, libc::SIGUSR1])? })
    }
}

/// The life of a supervisor that has a command. Never returns into the zygote.
pub fn supervise(ready: std::io::Result<Ready>, control: OwnedFd, output: OwnedFd, common: &Common) -> ! {
    // Errors end this process. The runner then sees its control socket close and takes care of what is left.
    let _reported_by_the_closing_socket = ready.and_then(|ready| run(ready, control, output, common));
    sys::exit_now(0)
}

fn run(ready: Ready, control: OwnedFd, output: OwnedFd, common: &Common) -> std::io::Result<()> {
    // From here on the zygote's death arrives as a signal, which is read from `signals` like the children's.
    rustix::process::set_parent_process_death_signal(Some(Signal::USR1))?;
    let Ready { me, signals } = ready;
    let mut incoming = Vec::new();
    let Some(request) = receive_request(&control, &mut incoming)? else { return Ok(()) };
    if ordered_already(&control, &incoming) {
        send(
            &control,
            &Report::Gone(Gone { status: None, reason: Reason::Ordered, leftovers: Vec::new(), survivors: Vec::new() }),
        );
        return Ok(());
    }
    let deadline = request.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let started = start_leader(&request, &output, common);
    // From here on only the tree holds the output pipe.
    drop(output);
    let leader = match started {
        Ok(leader) => leader,
        Err(why) => {
            send(&control, &Report::NotStarted(why));
            return Ok(());
        }
    };
    let me = me.as_raw_nonzero().get();
    send(&control, &Report::Started { supervisor: me, leader: leader.as_raw_nonzero().get() });
    let mut supervisor = Supervisor {
        control,
        signals,
        incoming,
        heard: true,
        request,
        me,
        zygote: Some(common.zygote),
        leader,
        status: None,
        reason: Reason::Ended,
        phase: Phase::Running,
        deadline,
        leftovers: Vec::new(),
        next_count: Instant::now() + COUNT_EVERY,
        last_look: Look { at: Instant::now(), alive: 1, threads: 0, stale: false },
        reported: None,
    };
    let survivors = supervisor.watch();
    let Supervisor { control, status, reason, leftovers, .. } = supervisor;
    send(&control, &Report::Gone(Gone { status, reason, leftovers, survivors }));
    Ok(())
}

/// `None` when the runner is gone before the request is complete.
fn receive_request(control: &OwnedFd, incoming: &mut Vec<u8>) -> std::io::Result<Option<Request>> {
    // On the stack, and no larger than a request usually is: each new page costs the command a fault.
    let mut buffer = [0; 4 << 10];
    loop {
        match wire::take_message(incoming) {
            Ok(Some(message)) => return Ok(wire::decode_request(&message)),
            Ok(None) => {}
            Err(wire::BadMessage) => return Ok(None),
        }
        match rustix::net::recv(control, buffer.as_mut_slice(), RecvFlags::empty()) {
            Ok((0, _)) => return Ok(None),
            Ok((length, _)) => incoming.extend_from_slice(&buffer[..length]),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// True when the tree is to end before it has begun.
fn ordered_already(control: &OwnedFd, incoming: &[u8]) -> bool {
    let mut byte = [0];
    let waiting = rustix::net::recv(control, byte.as_mut_slice(), RecvFlags::DONTWAIT | RecvFlags::PEEK);
    !incoming.is_empty() || waiting.is_ok()
}

fn start_leader(request: &Request, output: &OwnedFd, common: &Common) -> Result<Pid, NotStarted> {
    let program = request.argv.first().ok_or(NotStarted::Missing)?;
    let path = request.env.iter().find_map(|var| var.as_bytes().strip_prefix(b"PATH="));
    let confinement = match (request.confined, &common.confinements) {
        (Confined::No, _) => None,
        (Confined::Command, Some(all)) => Some(&all.commands),
        (Confined::Git, Some(all)) => Some(&all.git),
        (_, None) => return Err(NotStarted::Other(libc::EPERM)),
    };
    let programs = candidates(program, path.unwrap_or(DEFAULT_PATH));
    let leader = Leader {
        programs: &programs,
        argv: &request.argv,
        env: &request.env,
        cwd: &request.cwd,
        stdin: common.null.as_fd(),
        output: output.as_fd(),
        confinement,
    };
    let leader =
        sys::spawn_leader(&leader).map_err(|(stage, error)| match (stage, error.raw_os_error().unwrap_or(0)) {
            (Stage::Cwd, _) => NotStarted::Cwd,
            (Stage::Exec, libc::ENOENT | libc::ENOTDIR) => NotStarted::Missing,
            (Stage::Exec, libc::EACCES | libc::ENOEXEC) => NotStarted::Denied,
            (_, errno) => NotStarted::Other(errno),
        })?;
    // Commands go before spettro when memory is short. Said from here: until it executes, the leader shares this
    // process's memory, of which the kernel lets nobody say anything. What it starts before this line stays as it was.
    // Not being allowed to is no reason to fail.
    let _only_an_order_of_death =
        std::fs::write(format!("/proc/{}/oom_score_adj", leader.as_raw_nonzero()), &common.oom_score_adj);
    Ok(leader)
}

/// Where `program` may be, in the order to try.
fn candidates(program: &CString, path: &[u8]) -> Vec<CString> {
    let name = program.as_bytes();
    if name.is_empty() {
        return Vec::new();
    }
    if name.contains(&b'/') {
        return vec![program.clone()];
    }
    path.split(|&byte| byte == b':')
        .filter_map(|dir| {
            // An empty element is the working directory.
            let dir = if dir.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(dir)) };
            CString::new(dir.join(OsStr::from_bytes(name)).into_os_string().into_encoded_bytes()).ok()
        })
        .collect()
}

/// Reports are small and few. One that cannot be delivered has no reader any more.
fn send(control: &OwnedFd, report: &Report) {
    let message = wire::encode_report(report);
    let mut rest = message.as_slice();
    while !rest.is_empty() {
        match rustix::net::send(control, rest, SendFlags::NOSIGNAL) {
            Ok(sent) => rest = &rest[sent..],
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

impl Supervisor {
    /// Returns when the tree is empty, or with what refuses to die.
    fn watch(&mut self) -> Vec<Leftover> {
        loop {
            if let Children::None = self.reap() {
                return Vec::new();
            }
            self.check_zygote();
            if let Some(survivors) = self.advance() {
                return survivors;
            }
            self.wait();
        }
    }

    /// Takes the status of every child that has ended.
    fn reap(&mut self) -> Children {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.leader => {
                    let exited = status.exit_status().map(Status::Exited);
                    self.status = exited.or(status.terminating_signal().map(Status::Signaled));
                }
                Ok(Some(_)) => {
                    // One less: a job's count is to be told soon.
                    if self.reported.is_some() {
                        self.next_count = Instant::now();
                        self.last_look.stale = true;
                    }
                }
                Ok(None) => return Children::Some,
                Err(Errno::INTR) => {}
                Err(_) => return Children::None,
            }
        }
    }

    fn check_zygote(&mut self) {
        if self.zygote.is_some() && rustix::process::getppid() != self.zygote {
            self.zygote = None;
            self.kill(Reason::Lost);
        }
    }

    /// Does what is due. `Some` ends the watch.
    fn advance(&mut self) -> Option<Vec<Leftover>> {
        let now = Instant::now();
        match self.phase {
            Phase::Running => {
                if self.status.is_some() && !self.request.job {
                    self.phase = Phase::Settling { until: now + self.request.settle };
                } else if self.deadline.is_some_and(|deadline| deadline <= now) {
                    self.terminate(Reason::TimedOut, self.request.grace);
                } else if let (Some(status), None) = (self.status, self.reported) {
                    let alive = self.living().len();
                    self.reported = Some(alive);
                    send(&self.control, &Report::LeaderEnded { status, alive });
                }
            }
            Phase::Settling { until } if until <= now => match self.status {
                Some(status) if self.request.keep => {
                    self.phase = Phase::Kept;
                    let leftovers = self.living().iter().map(leftover).collect();
                    send(&self.control, &Report::Kept { status, leftovers });
                }
                _ => self.terminate(Reason::Ended, self.request.grace),
            },
            Phase::Terminating { until } if until <= now => self.phase = Phase::Killing { since: now },
            Phase::Settling { .. } | Phase::Kept | Phase::Terminating { .. } | Phase::Killing { .. } => {}
        }
        if let Phase::Killing { since } = self.phase {
            kill_pass(self.me, |_| false);
            if now.duration_since(since) > KILL_BUDGET {
                return Some(self.living().iter().map(leftover).collect());
            }
        } else if self.next_count <= now {
            self.count(now);
        }
        None
    }

    fn living(&self) -> Vec<Stat> {
        let all = proc::all();
        proc::descendants(&all, self.me).into_iter().filter(|stat| stat.alive()).cloned().collect()
    }

    fn count(&mut self, now: Instant) {
        self.next_count = now + COUNT_EVERY;
        let threads = proc::threads();
        if !self.worth_a_look(now, threads) {
            return;
        }
        let alive = self.living().len();
        // A machine with very many processes is not looked at all the time.
        self.next_count = now + COUNT_EVERY.max(20 * now.elapsed());
        self.last_look = Look { at: now, alive, threads: threads.unwrap_or(0), stale: false };
        if alive > self.request.max_descendants {
            self.kill(Reason::TooMany);
        } else if self.reported.is_some_and(|reported| reported != alive) {
            self.reported = Some(alive);
            send(&self.control, &Report::Alive(alive));
        }
    }

    /// True when descendants could have become too many, or a job's count could have changed.
    fn worth_a_look(&self, now: Instant, threads: Option<usize>) -> bool {
        let most = self.request.max_descendants;
        let due = now.duration_since(self.last_look.at) >= LOOK_EVERY;
        let Some(threads) = threads else { return due };
        let grown = threads.saturating_sub(self.last_look.threads) > most.saturating_sub(self.last_look.alive) / 2;
        (threads > most && (grown || due)) || (self.reported.is_some() && (due || self.last_look.stale))
    }

    /// TERM and CONT to every descendant once: a handler that cleans up may start processes of its own, and those
    /// are left in peace until the grace is over.
    fn terminate(&mut self, reason: Reason, grace: Duration) {
        if let Phase::Killing { .. } = self.phase {
            return;
        }
        let until = Instant::now() + grace;
        if let Phase::Terminating { until: before } = self.phase {
            self.phase = Phase::Terminating { until: before.min(until) };
            return;
        }
        if self.status.is_none() || self.request.job {
            self.reason = reason;
        }
        let living = self.living();
        if let Phase::Settling { .. } = self.phase {
            self.leftovers = living.iter().map(leftover).collect();
        }
        self.phase = Phase::Terminating { until };
        for signal in [Signal::TERM, Signal::CONT] {
            for stat in &living {
                signal_verified(stat, signal);
            }
        }
    }

    fn kill(&mut self, reason: Reason) {
        if let Phase::Killing { .. } = self.phase {
            return;
        }
        if let (Phase::Running, Reason::Ended) = (&self.phase, self.reason) {
            self.reason = reason;
        }
        self.phase = Phase::Killing { since: Instant::now() };
        kill_pass(self.me, |_| false);
    }

    /// Sleeps until something happens or is due.
    fn wait(&mut self) {
        let now = Instant::now();
        let due = match self.phase {
            Phase::Running => self.deadline.map_or(self.next_count, |deadline| deadline.min(self.next_count)),
            Phase::Settling { until } | Phase::Terminating { until } => until.min(self.next_count),
            Phase::Kept => self.next_count,
            // Quick passes first: whoever forks must be outrun. Later only for what the kernel holds back.
            Phase::Killing { since } if now.duration_since(since) < Duration::from_millis(500) => {
                now + Duration::from_millis(1)
            }
            Phase::Killing { .. } => now + Duration::from_millis(20),
        };
        let timeout = Timespec::try_from(due.saturating_duration_since(now)).ok();
        let (heard, told) = {
            let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
            if self.heard {
                fds.push(PollFd::new(&self.control, PollFlags::IN));
            }
            // An interrupted poll is one that found nothing.
            let _found = rustix::event::poll(&mut fds, timeout.as_ref());
            (!fds[0].revents().is_empty(), fds.get(1).is_some_and(|fd| !fd.revents().is_empty()))
        };
        if heard {
            let mut sink = [0; 1024];
            while rustix::io::read(&self.signals, &mut sink).is_ok() {}
        }
        if told {
            self.hear();
        }
    }

    fn hear(&mut self) {
        let mut buffer = [0; 256];
        match rustix::net::recv(&self.control, buffer.as_mut_slice(), RecvFlags::DONTWAIT) {
            Ok((0, _)) => {
                self.heard = false;
                self.kill(Reason::Ordered);
            }
            Ok((length, _)) => self.incoming.extend_from_slice(&buffer[..length]),
            Err(Errno::INTR | Errno::AGAIN) => return,
            Err(_) => {
                self.heard = false;
                self.kill(Reason::Ordered);
            }
        }
        while let Ok(Some(message)) = wire::take_message(&mut self.incoming) {
            if let Some(order) = wire::decode_terminate(&message) {
                self.terminate(Reason::Ordered, Duration::from_millis(order.grace_ms));
            }
        }
    }
}

fn leftover(stat: &Stat) -> Leftover {
    Leftover { pid: stat.pid, name: stat.name.clone() }
}
