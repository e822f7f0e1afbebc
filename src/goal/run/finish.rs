//! The end of a run, in order: changes, children, facts, files.

use std::time::Duration;

use super::super::failure::session as session_cause;
use super::super::outcome::{Decision, decide};
use super::super::result::Ending;
use super::Run;
use crate::event::{Outcome, RunResult};
use crate::session::{self, Fact};

/// TERM to KILL in the teardown.
const GRACE: Duration = Duration::from_secs(5);
/// Most time for outputs that are not on the disk yet.
const SPOOL_WITHIN: Duration = Duration::from_secs(3);
/// Most time for `git` and listings.
const CHANGES_WITHIN: Duration = Duration::from_secs(20);

impl Run {
    pub(super) async fn finish(mut self, outcome: Outcome) -> RunResult {
        if let Some(baseline) = &self.baseline {
            baseline.abort();
        }
        self.pulse.ending(outcome);
        self.goal.session.mend();
        let signal = outcome.signal().is_some();
        let mut holds = vec![outcome];
        if outcome == Outcome::Met {
            // What the checks did, while git can still be asked.
            self.settle(&mut holds).await;
        }
        let mut changes = if signal { None } else { self.changes().await };
        let leaked = self.goal.world.exec.shutdown(GRACE).await;
        // What ran to the end may have changed something since: what is met has to be met as things stand.
        self.settle(&mut holds).await;
        if holds.contains(&Outcome::Met) {
            holds.extend(self.goal.protected());
        }
        let outcome = match (holds.len(), decide(&holds, true)) {
            (2.., Decision::End(first)) => first,
            _ => outcome,
        };
        let cause = self.goal.standing.cause(outcome).cloned();
        self.pulse.ending(outcome);
        self.goal.session.spool().flush(SPOOL_WITHIN);
        if signal {
            changes = self.changes().await;
        }
        self.goal.stood();
        let session = &self.goal.session;
        let ending = Ending { outcome, cause: cause.as_ref(), changes, leaked: leaked.clone() };
        let result = self.result(Some(ending));
        let end = session::End { run: self.identity.run.clone(), outcome, result: Box::new(result.clone()), leaked };
        let written = async {
            self.goal.gateway.synced().await?;
            if let Some(text) = differing(self.goal.world.transport.differing()) {
                session.append(Fact::Notice { code: "recorded_differs".to_owned(), text })?;
            }
            session.append(self.timer.fact())?;
            self.goal.agent.close_jobs()?;
            session.tell_spool()?;
            self.store(&result);
            session.append(Fact::End(Box::new(end)))?;
            session.save_derived()?;
            session.sync_now().await
        };
        match written.await {
            Ok(()) => result,
            Err(error) => {
                // The log cannot take the end: the caller still gets a result, and the files are tried once more.
                let cause = session_cause(&error);
                let outcome = if signal { outcome } else { cause.outcome };
                let ending = Ending { outcome, cause: Some(&cause), changes: result.changes, leaked: result.leaked };
                let result = self.result(Some(ending));
                self.store(&result);
                result
            }
        }
    }

    /// Puts back what must not stand, and says what that makes of the run.
    async fn settle(&mut self, holds: &mut Vec<Outcome>) {
        match self.goal.tripwire().await {
            Ok(found) => holds.extend(found),
            Err(error) => tracing::error!(%error, "what was put back cannot be logged"),
        }
    }

    fn store(&self, result: &RunResult) {
        let summary = (self.summarize)(result);
        if let Err(error) = self.goal.session.write_result(result, &summary) {
            tracing::error!(%error, "result.json cannot be written");
        }
    }

    /// What changed, and the patch beside the result; within a bound, since a run must end.
    async fn changes(&self) -> Option<crate::event::Changes> {
        let within = self.goal.world.clock.sleep(CHANGES_WITHIN);
        let (mut changes, patch) = tokio::select! {
            changes = self.goal.changes() => changes,
            () = within => {
                tracing::warn!("what changed could not be told in time");
                return None;
            }
        };
        self.goal.found.borrow().as_ref()?;
        let patch = self.secrets.redact(&patch);
        if !patch.is_empty() && !self.identity.resume.is_empty() {
            match self.goal.session.write_file("changes.patch", &patch) {
                Ok(path) => changes.patch = Some(path.to_string_lossy().into_owned()),
                Err(error) => tracing::error!(%error, "changes.patch cannot be written"),
            }
        }
        Some(changes)
    }
}

/// What is said at the end about recorded replies to other requests than were sent.
fn differing(count: u64) -> Option<String> {
    match count {
        0 => None,
        1 => Some(
            "1 request differs from the one whose recorded reply it got; that is reported, not enforced".to_owned(),
        ),
        count => Some(format!(
            "{count} requests differ from those whose recorded replies they got; that is reported, not enforced"
        )),
    }
}
