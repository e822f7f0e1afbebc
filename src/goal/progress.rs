//! Progress and stalls: what this session has not had before.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use crate::event::{CheckResult, CheckStatus, TaskGraph, Verdict};
use crate::model::hex;
use crate::session::Progress;

/// Everything a session has had so far.
#[derive(Debug, Default)]
pub struct Seen {
    workspaces: BTreeSet<String>,
    heads: BTreeSet<String>,
    passing: BTreeSet<Vec<String>>,
    failing: BTreeSet<String>,
    tasks: BTreeSet<String>,
    criteria: BTreeSet<Vec<u64>>,
    halves: u64,
    nudged: bool,
}

/// What one iteration brought, before its verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// In halves of an iteration without progress.
    pub halves: u64,
    /// The next continuation is the nudge (and the judge is asked although a check fails).
    pub nudge_due: bool,
    /// The nudge was given, and the iteration after it brought nothing either.
    pub stalled: bool,
    /// One line of evidence for the nudge.
    pub evidence: String,
}

impl Seen {
    /// From the facts of earlier iterations and verdicts.
    pub fn fold(progress: &[Progress], verdicts: &[Verdict]) -> Seen {
        let mut seen = Seen::default();
        for fact in progress {
            seen.take(fact);
            seen.halves = fact.stall_halves;
            seen.nudged = fact.nudge;
        }
        for verdict in verdicts {
            seen.criteria.insert(met(verdict));
        }
        seen
    }

    /// An explicit resume starts counting anew.
    pub fn forgive(&mut self) {
        self.halves = 0;
        self.nudged = false;
    }

    /// Takes a state in without counting it: the baseline's.
    pub fn take(&mut self, fact: &Progress) {
        self.workspaces.extend(fact.workspace.clone());
        self.heads.extend(fact.head.clone());
        self.passing.insert(fact.passing.clone());
        self.failing.extend(fact.failing.iter().cloned());
        self.tasks.insert(fact.tasks.clone());
    }

    /// Takes the state after an iteration, fills in its stall fields, and says how things stand. `limit` is
    /// `limits.stall`; `required_failing` are the signatures (as in `failing`) of required checks; `unknown`: git
    /// could not say where HEAD is.
    pub fn iteration(
        &mut self,
        fact: &mut Progress,
        required_failing: &[String],
        unknown: bool,
        limit: u64,
    ) -> Standing {
        let new_workspace = fact.workspace.as_ref().is_some_and(|digest| !self.workspaces.contains(digest));
        let new_head = fact.head.as_ref().is_some_and(|head| !self.heads.contains(head));
        let new_passing = !self.passing.contains(&fact.passing);
        let new_failing = fact.failing.iter().any(|signature| !self.failing.contains(signature));
        let new_tasks = !self.tasks.contains(&fact.tasks);
        let fails_as_before = required_failing.iter().any(|signature| self.failing.contains(signature));
        // A component that could not be asked is unknown, never «same»: it keeps the count from growing by a whole.
        let unknown = unknown || fact.workspace.is_none();
        let other = new_head || new_passing || new_failing || new_tasks;
        let grown = if other || (new_workspace && !fails_as_before) {
            None
        } else if new_workspace || unknown {
            Some(1)
        } else {
            Some(2)
        };
        match grown {
            None => {
                self.halves = 0;
                self.nudged = false;
            }
            Some(halves) => self.halves += halves,
        }
        let over = self.halves >= limit.saturating_mul(2);
        let stalled = over && self.nudged;
        let nudge_due = over && !self.nudged;
        if nudge_due {
            self.nudged = true;
        }
        let evidence = evidence(fact, new_workspace, required_failing);
        self.take(fact);
        fact.stall_halves = self.halves;
        fact.nudge = self.nudged;
        Standing { halves: self.halves, nudge_due, stalled, evidence }
    }

    /// Criteria that were never met together before are progress too; true when they are.
    pub fn verdict(&mut self, verdict: &Verdict) -> bool {
        let set = met(verdict);
        let new = !set.is_empty() && !self.criteria.contains(&set);
        self.criteria.insert(set);
        if new {
            self.forgive();
        }
        new
    }
}

fn met(verdict: &Verdict) -> Vec<u64> {
    verdict.criteria.iter().filter(|criterion| criterion.met).map(|criterion| criterion.index).collect()
}

fn evidence(fact: &Progress, new_workspace: bool, required_failing: &[String]) -> String {
    let mut parts = Vec::new();
    if !new_workspace {
        parts.push("the workspace is as it was before".to_owned());
    }
    for signature in required_failing {
        let name = signature.rsplit_once(':').map_or(signature.as_str(), |(name, _)| name);
        parts.push(format!("check `{name}` fails the same way"));
    }
    if parts.is_empty() {
        parts.push(format!("the same {} checks pass", fact.passing.len()));
    }
    parts.join("; ")
}

/// The state after the checks, without the stall fields.
pub fn state(
    iteration: u64,
    workspace: Option<String>,
    head: Option<String>,
    checks: &[CheckResult],
    tasks: &TaskGraph,
) -> Progress {
    let mut passing: Vec<String> =
        checks.iter().filter(|check| check.status == CheckStatus::Pass).map(|check| check.name.clone()).collect();
    passing.sort();
    let failing = checks.iter().filter(|check| fails(check)).map(signature).collect();
    let mut hash = Sha256::new();
    for task in &tasks.tasks {
        for part in [task.id.as_str(), task.content.as_str(), task.status.name(), &task.dependencies.join(",")] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    Progress {
        iteration,
        workspace,
        head,
        passing,
        failing,
        tasks: hex(&hash.finalize()),
        stall_halves: 0,
        nudge: false,
        consecutive_errors: 0,
    }
}

/// `check name:signature`.
pub fn signature(check: &CheckResult) -> String {
    format!("{}:{}", check.name, check.signature)
}

/// Ran and did not pass.
pub fn fails(check: &CheckResult) -> bool {
    matches!(check.status, CheckStatus::Fail | CheckStatus::Timeout)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(workspace: &str, head: &str, passing: &[&str], failing: &[&str]) -> Progress {
        Progress {
            iteration: 1,
            workspace: Some(workspace.into()),
            head: Some(head.into()),
            passing: passing.iter().map(|s| (*s).to_owned()).collect(),
            failing: failing.iter().map(|s| (*s).to_owned()).collect(),
            tasks: String::new(),
            stall_halves: 0,
            nudge: false,
            consecutive_errors: 0,
        }
    }

    fn iterate(seen: &mut Seen, mut fact: Progress) -> Standing {
        let failing = fact.failing.clone();
        seen.iteration(&mut fact, &failing, false, 3)
    }

    #[test]
    fn nothing_new_three_times_is_the_nudge_and_once_more_is_stalled() {
        let mut seen = Seen::default();
        iterate(&mut seen, fact("w", "h", &[], &["t:1"]));
        for round in 1..=4 {
            let standing = iterate(&mut seen, fact("w", "h", &[], &["t:1"]));
            assert_eq!(standing.nudge_due, round == 3, "round {round}");
            assert_eq!(standing.stalled, round == 4, "round {round}");
        }
    }

    #[test]
    fn editing_while_the_same_check_fails_the_same_way_counts_half() {
        let mut seen = Seen::default();
        iterate(&mut seen, fact("w0", "h", &[], &["t:1"]));
        for round in 1..=7 {
            let standing = iterate(&mut seen, fact(&format!("w{round}"), "h", &[], &["t:1"]));
            assert_eq!(standing.nudge_due, round == 6, "round {round}");
            assert_eq!(standing.stalled, round == 7, "round {round}");
        }
    }

    #[test]
    fn editing_without_a_failing_check_and_committing_never_stall() {
        let mut seen = Seen::default();
        for round in 0..20 {
            assert_eq!(iterate(&mut seen, fact(&format!("w{round}"), "h", &["t"], &[])).halves, 0);
        }
        for round in 0..20 {
            assert_eq!(iterate(&mut seen, fact("w", &format!("h{round}"), &[], &["t:1"])).halves, 0);
        }
    }

    #[test]
    fn a_new_failure_or_going_back_and_forth() {
        let mut seen = Seen::default();
        iterate(&mut seen, fact("a", "h", &[], &["t:1"]));
        assert_eq!(iterate(&mut seen, fact("a", "h", &[], &["t:1"])).halves, 2);
        assert_eq!(iterate(&mut seen, fact("a", "h", &[], &["t:2"])).halves, 0);
        // Back to what was there before is nothing new.
        assert_eq!(iterate(&mut seen, fact("a", "h", &[], &["t:1"])).halves, 2);
    }
}
