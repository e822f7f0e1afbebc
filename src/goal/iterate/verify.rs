//! What stands after a turn: protected files, digest, checks, progress, and what changed.

use std::path::Path;
use std::rc::Rc;

use super::super::checks;
use super::super::config::{Check, When};
use super::super::failure::Cause;
use super::super::progress::{self, Standing};
use super::Loop;
use crate::event::{Changes, CheckResult, CheckStatus, Outcome};
use crate::session::{Fact, Guard, Guarded, ListedChange, Message, SessionError};
use crate::workspace::{WorkspaceError, changed_files};

/// The code of the notice that something was put back.
pub const PUT_BACK: &str = "put_back";

/// Gives what the guards named found where the loop stands, as it was recorded.
pub type Guards = Rc<dyn Fn(&[Guard]) -> Option<Guarded>>;

impl Loop {
    /// Protected files that were changed end the run.
    pub(crate) fn protected(&mut self) -> Option<Outcome> {
        let found = match &self.guards {
            Some(told) => told(&[Guard::Protected, Guard::Unreadable]),
            None => {
                let changed = self.protected.borrow_mut().violations(&self.world);
                self.violations(Guard::Protected, changed)
            }
        };
        self.broken(found)
    }

    /// So do those that were touched while the checks ran, however they stand now: what the checks say is then said
    /// about something else.
    pub(super) fn touched(&mut self) -> Option<Outcome> {
        let found = match &self.guards {
            Some(told) => told(&[Guard::Meanwhile]),
            None => {
                let touched = self.protected.borrow_mut().touched(&self.world);
                self.violations(Guard::Meanwhile, touched)
            }
        };
        self.broken(found)
    }

    fn broken(&mut self, found: Option<Guarded>) -> Option<Outcome> {
        let found = found?;
        self.session.aside(Fact::Guarded(found.clone()));
        let outcome = if found.guard == Guard::Unreadable { Outcome::Environment } else { Outcome::Policy };
        Some(self.fail(Cause::new(outcome, found.text)))
    }

    fn violations(&self, guard: Guard, changed: Result<Vec<String>, WorkspaceError>) -> Option<Guarded> {
        let changed = match changed {
            Ok(changed) if changed.is_empty() => return None,
            Ok(changed) => changed,
            // The workspace was there before the checks, and is not any more.
            Err(error) if guard == Guard::Meanwhile => {
                return Some(Guarded { guard, text: format!("while the checks ran: {error}"), stands: true });
            }
            Err(error) => return Some(Guarded { guard: Guard::Unreadable, text: error.to_string(), stands: true }),
        };
        let hidden = |name: &String| self.secrets.redact_path(Path::new(name)).to_string_lossy().into_owned();
        let names: Vec<String> = changed.iter().map(hidden).collect();
        let files = if changed.len() == 1 { "file was" } else { "files were" };
        let how = if guard == Guard::Meanwhile { "touched while the checks ran" } else { "changed" };
        let mut text = format!("protected {files} {how}: {}", names.join(", "));
        if let Some(by) = self.changed_by(&changed) {
            text.push_str(&format!(" (first seen after {by})"));
        }
        Some(Guarded { guard, text, stands: true })
    }

    /// The command after which the first of these files was seen to have moved.
    fn changed_by(&self, names: &[String]) -> Option<String> {
        let tripwire = self.tripwire.borrow();
        let wire = tripwire.as_ref()?;
        names.iter().find_map(|name| wire.who(&self.roots.real.join(name))).map(str::to_owned)
    }

    /// What makes git or spettro act otherwise later is put back, and told to the agent and the operator. A second time
    /// ends the run, and so does what cannot be put back.
    pub(crate) async fn tripwire(&mut self) -> Result<Option<Outcome>, SessionError> {
        let found = match &self.guards {
            Some(told) => told(&[Guard::Tripwire]),
            None => self.settled().await,
        };
        let Some(found) = found else { return Ok(None) };
        self.session.aside(Fact::Guarded(found.clone()));
        let again = self.put_back > 0 || found.stands;
        self.put_back += 1;
        let told = found.text;
        self.session.append(Fact::Notice { code: PUT_BACK.to_owned(), text: told.clone() })?;
        if again {
            return Ok(Some(
                self.fail(Cause::new(Outcome::Policy, format!("{told}; such files are not to be changed"))),
            ));
        }
        self.agent.say(Message::Operator {
            text: format!(
                "{told}. Settings and hooks that make git run programs later, and spettro's own files, are not to be \
                 changed; other settings that were made there in this turn are gone with them. The next such change \
                 ends the run."
            ),
        })?;
        Ok(None)
    }

    /// Puts back what must not stand.
    async fn settled(&self) -> Option<Guarded> {
        let mut wire = self.tripwire.borrow_mut().take()?;
        let found = wire.settle(&self.world).await;
        *self.tripwire.borrow_mut() = Some(wire);
        let text = found.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let text = self.secrets.redact_str(&text).into_owned();
        let stands = found.iter().any(|one| one.stands.is_some());
        (!found.is_empty()).then_some(Guarded { guard: Guard::Tripwire, text, stands })
    }

    pub(super) fn digest(&self) -> Option<String> {
        self.witness();
        let listed = self.tree.borrow_mut().digest(&self.world);
        let digest = match listed {
            Ok(digest) => Some(digest),
            Err(error) => {
                tracing::warn!(%error, "the workspace has no digest");
                None
            }
        };
        self.listed(digest.clone(), Vec::new());
        digest
    }

    /// Writes down what a listing gave, for a replay.
    fn listed(&self, digest: Option<String>, changed: Vec<ListedChange>) {
        self.session.aside(Fact::Listing { digest, changed });
    }

    /// Runs the checks of an iteration; with `skip` they are all `not_run`.
    pub(super) async fn checks(&mut self, skip: bool) -> Vec<CheckResult> {
        let config = self.config.clone();
        let mut results = Vec::new();
        if !skip && self.guards.is_none() {
            self.protected.borrow_mut().hold();
        }
        for check in config.checks.iter().filter(|check| check.when == When::EachIteration) {
            results.push(self.check(check, skip).await);
        }
        if skip {
            let later = config.checks.iter().filter(|check| check.when == When::BeforeJudge);
            results.extend(later.map(checks::not_run));
        } else {
            self.before_judge(&mut results).await;
        }
        results
    }

    async fn check(&self, check: &Check, skip: bool) -> CheckResult {
        if skip || self.halt.why().is_some() {
            return checks::not_run(check);
        }
        let spool = self.session.spool();
        let result = checks::run(&self.world, &self.halt, &self.roots, &spool, check, &self.removed).await;
        self.witness();
        result
    }

    /// The run is over: how the workspace stands, where effects are recorded, for a replay to compare with.
    pub(crate) fn stood(&self) {
        // A replay has no witness, and holds the recorded listing against its own copy.
        if self.witness.is_some() || self.config.record_effects && self.tree.borrow().is_told() {
            self.digest();
        }
    }

    /// What happened to the files since the last look, where that is recorded.
    fn witness(&self) {
        if let Some(witness) = &self.witness {
            witness.look();
        }
    }

    /// The checks that wait until all required ones pass.
    pub(super) async fn before_judge(&self, results: &mut Vec<CheckResult>) {
        let pass = self.required_pass(results);
        for check in self.config.checks.iter().filter(|check| check.when == When::BeforeJudge) {
            results.push(self.check(check, !pass).await);
        }
    }

    /// Whether all required checks that have a result pass (those that wait for it may still be missing).
    pub(super) fn required_pass(&self, results: &[CheckResult]) -> bool {
        results.iter().filter(|result| result.required).all(|result| result.status == CheckStatus::Pass)
    }

    pub(super) fn progress(
        &mut self,
        digest: Option<String>,
        results: &[CheckResult],
    ) -> Result<Standing, SessionError> {
        let (head, unknown) = match self.git.head() {
            Ok(head) => (head, false),
            Err(error) => {
                tracing::warn!(%error, "git HEAD is unknown");
                (None, true)
            }
        };
        let mut fact = progress::state(self.standing.iteration, digest, head, results, self.agent.tools().tasks());
        fact.consecutive_errors = self.standing.errors;
        let failing: Vec<String> = results
            .iter()
            .filter(|result| result.required && progress::fails(result))
            .map(progress::signature)
            .collect();
        let standing = self.seen.iteration(&mut fact, &failing, unknown, self.config.limits.stall);
        self.session.append(Fact::Progress(Box::new(fact)))?;
        Ok(standing)
    }

    /// What changed since the session's start, and the patch. What cannot be told is left out and said in the log.
    pub async fn changes(&self) -> (Changes, Vec<u8>) {
        let (tree, files) = match self.found.borrow().as_ref() {
            Some(found) => (found.git_tree.clone(), found.files.clone()),
            None => return (Changes::default(), Vec::new()),
        };
        self.witness();
        if let Some(tree) = tree {
            match self.git.changes(&self.world, &tree).await {
                Ok((mut changes, patch)) => {
                    changes.branch = changes.branch.map(|name| self.secrets.redact_str(&name).into_owned());
                    return (changes, patch);
                }
                Err(error) => tracing::warn!(%error, "git cannot tell what changed"),
            }
        }
        let mut changes = Changes::default();
        let listed = {
            let mut tree = self.tree.borrow_mut();
            tree.digest(&self.world).map(|digest| (digest, tree.files().clone()))
        };
        let (digest, listed) = match listed {
            Ok(listed) => listed,
            Err(error) => {
                tracing::warn!(%error, "the workspace cannot be listed");
                self.listed(None, Vec::new());
                return (changes, Vec::new());
            }
        };
        changes.files = changed_files(&files, &listed);
        let change = |path: &String| ListedChange {
            path: path.clone(),
            before: files.get(Path::new(path)).cloned(),
            after: listed.get(Path::new(path)).cloned(),
        };
        self.listed(Some(digest), changes.files.iter().map(change).collect());
        (changes, Vec::new())
    }
}
