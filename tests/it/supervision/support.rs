//! A run with children, a terminal for it, and a look at its processes.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

pub use crate::process::support::{alive, assert_dead, children, kill, living, parent, recorded};
use crate::provider::{Lane, Provider, Reply, Script};
use crate::sandbox::{PATIENCE, Running, Sandbox};

pub const GOAL: &str = "goal: look after children\nlimits: {cost: 1.00, time: 10m}\n";

/// Records the pid of its shell and then stays, in three sessions, whatever TERM says.
pub const IMMUNE: &str = "trap '' TERM; echo $$ >> pids; setsid bash -c 'echo $$ >> pids; sleep 999' & \
                          env -i setsid bash -c 'echo $$ >> pids; sleep 999' & wait";

/// The same in one process that TERM ends.
pub const MEEK: &str = "echo $$ >> pids; exec sleep 999";

pub struct Scene {
    pub sandbox: Sandbox,
    pub provider: Provider,
    pub goal: PathBuf,
}

impl Scene {
    #[track_caller]
    pub fn new(script: Script) -> Scene {
        Scene::with(script, GOAL)
    }

    #[track_caller]
    pub fn with(script: Script, goal: &str) -> Scene {
        let (sandbox, provider) = (Sandbox::new(), script.start());
        let goal = sandbox.goal(&provider, goal);
        Scene { sandbox, provider, goal }
    }

    pub fn args(&self) -> [&Path; 3] {
        [Path::new("run"), Path::new("--goal"), &self.goal]
    }

    #[track_caller]
    pub fn start(&self) -> Running {
        self.sandbox.spawn(self.args())
    }

    /// The pids that children have recorded, once there are `count`.
    #[track_caller]
    pub fn pids(&self, count: usize) -> Vec<i32> {
        eventually(&format!("{count} pids are recorded"), || recorded(&self.sandbox.workspace()).len() >= count);
        recorded(&self.sandbox.workspace())
    }

    /// The tool results that the agent's n-th request brought, joined.
    #[track_caller]
    pub fn result(&self, n: usize) -> String {
        let request = self.provider.wait_for_lane_request(Lane::Agent, n, PATIENCE);
        request.tool_results().into_iter().map(|result| result.text).collect::<Vec<_>>().join("\n")
    }

    /// Starts the binary with a terminal of its own, which is also its output.
    #[track_caller]
    pub fn start_on(&self, terminal: &Terminal, mut command: Command) -> Running {
        let user = terminal.user.as_ref().expect("the terminal is open");
        let side = |_| Stdio::from(user.try_clone().expect("a descriptor"));
        command.stdin(side(0)).stdout(side(1)).stderr(side(2));
        // SAFETY: `ioctl` is async-signal-safe, and the closure does nothing else.
        unsafe {
            command.pre_exec(|| match libc::ioctl(0, libc::TIOCSCTTY, 0) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        self.sandbox.start(command)
    }

    pub fn command(&self) -> Command {
        let mut command = self.sandbox.command(env!("CARGO_BIN_EXE_spettro"));
        command.args(self.args());
        command
    }
}

pub fn job(command: &str) -> Reply {
    Reply::call("bash", json!({"command": command, "run_in_background": true}))
}

pub fn met() -> Reply {
    Reply::verdict("met", "it is so", "")
}

/// A pseudo-terminal.
pub struct Terminal {
    keeper: Option<OwnedFd>,
    user: Option<OwnedFd>,
    open: Arc<AtomicBool>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Terminal {
    pub fn new() -> Terminal {
        let (mut keeper, mut user) = (-1, -1);
        let null = std::ptr::null_mut();
        // SAFETY: both pointers are valid for a write, the others may be null.
        let opened = unsafe { libc::openpty(&mut keeper, &mut user, null, null.cast(), null.cast()) };
        assert_eq!(opened, 0, "openpty: {}", std::io::Error::last_os_error());
        // SAFETY: both were just opened and belong to nobody else.
        let (keeper, user) = unsafe { (OwnedFd::from_raw_fd(keeper), OwnedFd::from_raw_fd(user)) };
        for fd in [&keeper, &user] {
            // SAFETY: setting a flag of a descriptor that is open.
            assert_eq!(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) }, 0);
        }
        // Somebody has to read what is printed, or printing stops; by a number alone, which keeps nothing open.
        let open = Arc::new(AtomicBool::new(true));
        let (still_open, number) = (Arc::clone(&open), keeper.as_raw_fd());
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while still_open.load(Ordering::SeqCst) {
                let mut fds = [libc::pollfd { fd: number, events: libc::POLLIN, revents: 0 }];
                // SAFETY: one valid element; the descriptor is open until this thread has ended.
                if unsafe { libc::poll(fds.as_mut_ptr(), 1, 10) } > 0 {
                    // SAFETY: the buffer is valid for so many bytes.
                    unsafe { libc::read(number, buffer.as_mut_ptr().cast(), buffer.len()) };
                }
            }
        });
        Terminal { keeper: Some(keeper), user: Some(user), open, reader: Some(reader) }
    }
}

impl Terminal {
    /// Where others find it.
    pub fn path(&self) -> std::path::PathBuf {
        let user = self.user.as_ref().expect("it is open").as_raw_fd();
        std::fs::read_link(format!("/proc/self/fd/{user}")).expect("an open terminal has a name")
    }

    /// Somebody types.
    pub fn types(&self, text: &str) {
        let keeper = self.keeper.as_ref().expect("it is open").as_raw_fd();
        // SAFETY: the buffer is valid for so many bytes, and the descriptor is open.
        let written = unsafe { libc::write(keeper, text.as_ptr().cast(), text.len()) };
        assert_eq!(usize::try_from(written), Ok(text.len()));
    }

    /// Nobody is at the terminal any more.
    pub fn close(&mut self) {
        self.open.store(false, Ordering::SeqCst);
        if let Some(reader) = self.reader.take() {
            reader.join().expect("it only reads");
        }
        self.user = None;
        self.keeper = None;
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.close();
    }
}

/// Waits for a condition. Panics when it does not come.
#[track_caller]
pub fn eventually(what: &str, mut right: impl FnMut() -> bool) {
    within(PATIENCE, what, &mut right);
}

/// The same, and how long it took.
#[track_caller]
pub fn within(most: Duration, what: &str, mut right: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !right() {
        assert!(begun.elapsed() < most, "waited {most:?} in vain until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
    begun.elapsed()
}

/// The zygote of a runner, and the supervisors that have a command.
#[track_caller]
pub fn helpers(runner: i32) -> (i32, Vec<i32>) {
    let zygotes: Vec<i32> = children(runner).into_iter().filter(|&pid| alive(pid)).collect();
    assert_eq!(zygotes.len(), 1, "a runner has its zygote and no other child");
    // The supervisor ahead has no command, and so no child.
    let supervises = |pid: &i32| alive(*pid) && !children(*pid).is_empty();
    (zygotes[0], children(zygotes[0]).into_iter().filter(supervises).collect())
}

/// A field of `/proc/<pid>/status`.
#[track_caller]
pub fn status(pid: i32, field: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.expect("a field of every process").trim().to_owned()
}

/// Living processes that carry the run's id in their environment.
pub fn of_run(run: &str) -> Vec<i32> {
    let wanted = format!("SPETTRO_RUN_ID={run}").into_bytes();
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&pid| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            alive(pid) && environment.split(|&byte| byte == 0).any(|variable| variable == wanted)
        })
        .collect()
}
