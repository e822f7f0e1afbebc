//! Background jobs: their names, states and output, as long as the run lasts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;

use super::ring::Ring;
use super::tree::{Gone, Reason, Status};
use crate::world::{ExecError, JobInfo, JobState};

/// So many may be alive at once.
const MOST_ALIVE: usize = 16;
const RING_BYTES: usize = 1 << 20;

pub struct Job {
    pub id: String,
    command: String,
    state: JobState,
    started: SystemTime,
    ended: Option<SystemTime>,
    output: Ring,
    /// Between TERM and KILL when it is told to end.
    pub grace: Duration,
    /// The tree that runs it, once it has one.
    pub tree: Option<u64>,
}

impl Job {
    fn alive(&self) -> bool {
        self.ended.is_none()
    }

    fn info(&self) -> JobInfo {
        JobInfo {
            id: self.id.clone(),
            command: self.command.clone(),
            state: self.state.clone(),
            started: self.started,
            ended: self.ended,
            printed_bytes: self.output.written(),
            dropped_bytes: self.output.dropped(),
            last_line: self.output.last_line(),
        }
    }
}

/// All jobs of a run in the order started.
#[derive(Default)]
pub struct Jobs {
    list: Mutex<Vec<Job>>,
    changed: Arc<Notify>,
}

impl Jobs {
    /// Takes a place for a new job. It is given back by `forget` when the job cannot be started.
    pub fn add(&self, id: &str, command: &str, grace: Duration) -> Result<(), ExecError> {
        let mut list = self.lock();
        let alive: Vec<String> =
            list.iter().filter(|job| job.alive()).map(|job| format!("{} ({})", job.id, job.command)).collect();
        if alive.len() >= MOST_ALIVE {
            return Err(ExecError::TooManyJobs(alive.join(", ")));
        }
        if list.iter().any(|job| job.id == id) {
            return Err(ExecError::Failed(command.to_owned(), format!("there is a {id} already")));
        }
        list.push(Job {
            id: id.to_owned(),
            command: command.to_owned(),
            state: JobState::Running,
            started: SystemTime::now(),
            ended: None,
            output: Ring::new(RING_BYTES),
            grace,
            tree: None,
        });
        Ok(())
    }

    pub fn forget(&self, id: &str) {
        self.lock().retain(|job| job.id != id);
    }

    pub fn set_tree(&self, id: &str, tree: u64) {
        self.change(id, |job| job.tree = Some(tree));
    }

    pub fn write(&self, id: &str, chunk: &[u8]) {
        if !chunk.is_empty() {
            self.change(id, |job| job.output.write(chunk));
        }
    }

    /// The leader has ended, or the number of those it left has changed.
    pub fn leader_ended(&self, id: &str, status: Option<Status>, still_running: usize) {
        self.change(id, |job| {
            let before = match job.state {
                JobState::LeaderExited { status, .. } => status,
                _ => 0,
            };
            let status = status.map_or(before, |status| match status {
                Status::Exited(code) => code,
                Status::Signaled(signal) => 128 + signal,
            });
            job.state = JobState::LeaderExited { status, still_running };
        });
    }

    /// The whole tree is gone.
    pub fn gone(&self, id: &str, gone: &Gone) {
        self.change(id, |job| {
            job.ended = Some(SystemTime::now());
            job.state = match (gone.reason, gone.status) {
                (Reason::Ended, Some(Status::Exited(code))) => JobState::Exited(code),
                (Reason::Ended, Some(Status::Signaled(signal))) => JobState::Signaled(signal),
                (Reason::TimedOut, _) => JobState::TimedOut,
                (Reason::Ordered | Reason::TooMany, _) => JobState::Killed,
                (Reason::Lost | Reason::Ended, _) => JobState::Lost,
            };
        });
    }

    pub fn infos(&self) -> Vec<JobInfo> {
        self.lock().iter().map(Job::info).collect()
    }

    pub fn read(&self, id: &str, offset: u64, limit: usize) -> Option<(u64, Vec<u8>)> {
        self.lock().iter().find(|job| job.id == id).map(|job| job.output.read(offset, limit))
    }

    /// The tree and grace of a job that is alive.
    pub fn living(&self, id: &str) -> Option<(Option<u64>, Duration)> {
        self.lock().iter().find(|job| job.id == id && job.alive()).map(|job| (job.tree, job.grace))
    }

    /// Resolves at the first change after the call of this function, whenever it is polled.
    pub fn changed(&self) -> impl Future<Output = ()> + use<> {
        Arc::clone(&self.changed).notified_owned()
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut Job)) {
        if let Some(job) = self.lock().iter_mut().find(|job| job.id == id) {
            change(job);
        }
        self.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Job>> {
        // Every change leaves the list whole, so a panic elsewhere does not spoil it.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
