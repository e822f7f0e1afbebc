//! What a crash leaves: the ledger of children, and the sweep by the next start.
//!
//! Supervisors end their trees when the runner dies. Only when runner, zygote and supervisors are killed together
//! can something remain, and it is found by what the ledger says. Invariant: a process is killed only when pid,
//! start time, boot and pid namespace are those of the ledger, or when it carries the dead run's id and is ours.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::ProcessError;
use super::proc::{self, Stat};
use super::reaper::signal_verified;
use crate::event::Leaked;

pub const LEDGER_NAME: &str = "children.jsonl";
const SWEEP_BUDGET: Duration = Duration::from_secs(2);

/// One line of `children.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Child {
    v: u32,
    pid: i32,
    /// Clock ticks after boot.
    start: u64,
    #[serde(flatten)]
    place: Place,
    run: String,
}

/// Where a pid has its meaning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    boot: String,
    pid_namespace: String,
}

impl Place {
    fn here() -> Place {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        Place { boot: boot.trim().to_owned(), pid_namespace: namespace.to_string_lossy().into_owned() }
    }
}

/// The children of this run, written down as they are started.
pub struct Ledger {
    file: File,
    path: PathBuf,
    place: Place,
    run: String,
}

impl Ledger {
    pub fn open(dir: &Path, run: &str) -> Result<Ledger, ProcessError> {
        let path = dir.join(LEDGER_NAME);
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| ProcessError::Ledger(path.clone(), error))?;
        Ok(Ledger { file, path, place: Place::here(), run: run.to_owned() })
    }

    /// Nothing of it is alive: the next start has nothing to look for.
    pub fn close(&self) {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %self.path.display(), %error, "the ledger of children cannot be removed");
            }
            _ => {}
        }
    }

    /// Adds those of `pids` that live.
    pub fn record(&self, pids: &[i32]) {
        let mut lines = Vec::new();
        for stat in pids.iter().filter_map(|&pid| proc::stat(pid)).filter(Stat::alive) {
            let child =
                Child { v: 1, pid: stat.pid, start: stat.start, place: self.place.clone(), run: self.run.clone() };
            if serde_json::to_writer(&mut lines, &child).is_ok() {
                lines.push(b'\n');
            }
        }
        if let Err(error) = (&self.file).write_all(&lines) {
            // The run is worth more than its ledger: it only serves after a crash, and environments carry the id too.
            tracing::warn!(path = %self.path.display(), %error, "the ledger of children is incomplete");
        }
    }
}

/// Ends what a dead run has left, by the ledger in `dir`; returns what was killed. The caller knows that the run is
/// dead: its lock is free. Blocks for at most two seconds. The ledger is removed when nothing of it is alive.
pub fn sweep(dir: &Path) -> Result<Vec<Leaked>, ProcessError> {
    let path = dir.join(LEDGER_NAME);
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(ProcessError::Ledger(path, error)),
    };
    let here = Place::here();
    // A line cut by the crash, or none of ours, names nobody. Pids of another boot or namespace are other processes.
    let children: Vec<Child> = text
        .split(|&byte| byte == b'\n')
        .filter_map(|line| serde_json::from_slice::<Child>(line).ok())
        .filter(|child| child.place == here && child.pid > 1)
        .collect();
    let mut runs: Vec<&str> = children.iter().map(|child| child.run.as_str()).filter(|run| !run.is_empty()).collect();
    runs.sort_unstable();
    runs.dedup();
    let spared = ourselves();
    let deadline = Instant::now() + SWEEP_BUDGET;
    let mut killed: Vec<Leaked> = Vec::new();
    loop {
        let all = proc::all();
        let left: Vec<&Stat> = all
            .iter()
            .filter(|stat| stat.alive() && !spared.contains(&stat.pid))
            .filter(|stat| {
                children.iter().any(|child| (child.pid, child.start) == (stat.pid, stat.start))
                    || carries(stat.pid, &runs)
            })
            .collect();
        if left.is_empty() {
            return match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(ProcessError::Ledger(path, error)),
                _ => Ok(killed),
            };
        }
        if deadline <= Instant::now() {
            return Ok(killed);
        }
        for stat in left {
            let command = proc::command_line(stat.pid).unwrap_or_else(|| stat.name.clone());
            let uid = proc::uid(stat.pid).unwrap_or_default();
            if signal_verified(stat, Signal::KILL) && !killed.iter().any(|known| known.pid == stat.pid) {
                killed.push(Leaked { pid: stat.pid, uid, command });
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// True when a process of our own user has the id of one of `runs` in its environment.
fn carries(pid: i32, runs: &[&str]) -> bool {
    if runs.is_empty() || proc::uid(pid) != Some(rustix::process::getuid().as_raw()) {
        return false;
    }
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment
        .split(|&byte| byte == 0)
        .filter_map(|variable| variable.strip_prefix(b"SPETTRO_RUN_ID="))
        .any(|id| runs.iter().any(|run| run.as_bytes() == id))
}

/// This process and its ancestors. A spettro that was started by a command of the dead run carries its id too.
fn ourselves() -> Vec<i32> {
    let mut line = vec![rustix::process::getpid().as_raw_nonzero().get()];
    while let Some(stat) = line.last().and_then(|&pid| proc::stat(pid)) {
        if stat.parent <= 0 || line.contains(&stat.parent) {
            break;
        }
        line.push(stat.parent);
    }
    line
}
