//! What the agent hears of background jobs, and what the log keeps of their ends.

use std::time::Duration;

use super::Agent;
use crate::event::Lane;
use crate::session::{Fact, OpenJob, SessionError};
use crate::world::{JobInfo, JobState};

impl Agent {
    /// Whether a job is over, or its leader is, and the agent does not know. How many a leader has left changes
    /// from moment to moment, and is no news.
    pub(super) fn is_news(&self, job: &JobInfo) -> bool {
        match (&job.state, self.jobs_told.get(&job.id)) {
            (JobState::Running, _) | (JobState::LeaderExited { .. }, Some(_)) => false,
            (JobState::LeaderExited { .. }, None) => true,
            (state, told) => told != Some(state),
        }
    }

    /// The jobs that live, each with its command.
    pub fn running_jobs(&self) -> Vec<String> {
        let jobs = self.parts.world.exec.jobs();
        jobs.iter().filter(|job| job.state.alive()).map(|job| format!("{} ({})", job.id, job.command)).collect()
    }

    /// At the end of a run, when all children are gone: the jobs that ended with it and before the next boundary.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn close_jobs(&self) -> Result<(), SessionError> {
        for job in self.parts.world.exec.jobs() {
            if !job.state.alive() && self.jobs_told.get(&job.id) != Some(&job.state) {
                self.parts.session.append(job_exited(&job))?;
            }
        }
        Ok(())
    }

    /// Jobs end with their run: who started some and goes on in a later run must know.
    pub(super) fn jobs_are_gone(&mut self, jobs: &[OpenJob]) -> Result<(), SessionError> {
        if jobs.is_empty() {
            return Ok(());
        }
        let named: Vec<String> = jobs
            .iter()
            .map(|job| match &job.ended {
                Some(state) => format!("{} ({}), which {state}", job.id, job.command),
                None => format!("{} ({})", job.id, job.command),
            })
            .collect();
        let before_call = self.parts.gateway.ledger(|ledger| ledger.next_n(Lane::Agent));
        // First the message: told twice is better than never.
        self.operator(format!(
            "The background jobs of the earlier run are gone with it: {}. Start again what you still need.",
            named.join("; ")
        ))?;
        for job in jobs {
            self.parts.session.append(Fact::Delivery { what: job.id.clone(), before_call })?;
        }
        Ok(())
    }
}

/// `exited with 0`, `was killed`, …
fn job_state(state: &JobState) -> String {
    match state {
        JobState::Running => "is running".to_owned(),
        JobState::LeaderExited { status, still_running } => {
            format!("leader exited with {status}, {still_running} still running")
        }
        JobState::Exited(status) => format!("exited with {status}"),
        JobState::Signaled(signal) => format!("was ended by signal {signal}"),
        JobState::Killed => "was killed".to_owned(),
        JobState::TimedOut => "timed out".to_owned(),
        JobState::Lost => "was lost with its supervisor".to_owned(),
    }
}

/// How long a job ran; zero while it does.
fn job_took(job: &JobInfo) -> Duration {
    job.ended.and_then(|ended| ended.duration_since(job.started).ok()).unwrap_or_default()
}

pub(super) fn job_exited(job: &JobInfo) -> Fact {
    let duration_ms = job_took(job).as_millis() as u64;
    Fact::JobExited { job: job.id.clone(), state: job_state(&job.state), duration_ms }
}

/// `job-1 exited with 0 after 5m23s; last line: …`.
pub(super) fn job_line(job: &JobInfo) -> String {
    let mut text = format!("{} {}", job.id, job_state(&job.state));
    if job.ended.is_some() {
        let after = humantime::format_duration(Duration::from_secs(job_took(job).as_secs()));
        text.push_str(" after ");
        text.push_str(&after.to_string().replace(' ', ""));
    }
    if !job.last_line.is_empty() {
        text.push_str("; last line: ");
        text.push_str(&crate::tools::escape_line(job.last_line.as_bytes()));
    }
    text
}
