//! The loop: turn, workspace, checks, progress, verdict, decision; until an outcome.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use super::baseline::{Baseline, Found};
use super::checks::{self, CheckError};
use super::config::{Check, Config, When};
use super::failure::{Cause, cause};
use super::judge::{Court, Judged};
use super::message::{Onward, continuation};
use super::outcome::{Decision, decide};
use super::packet::{Evidence, packet};
use super::progress::{self, Seen, Standing};
use crate::event::{Changes, CheckResult, CheckStatus, Lane, Outcome, TurnEnd, Verdict, VerdictBy, VerdictKind};
use crate::model::{Endpoint, Gateway, Hit};
use crate::session::{Fact, Message, Origin, Session, SessionError};
use crate::turn::{Agent, Ended, TurnDone};
use crate::workspace::{Git, Protected, Tree, changed_files};
use crate::world::{Halt, Roots, World};

/// What the loop works with.
pub struct Loop {
    pub world: World,
    pub halt: Halt,
    pub session: Session,
    pub config: Rc<Config>,
    pub gateway: Rc<Gateway>,
    pub agent: Agent,
    pub judge: Option<Bench>,
    pub roots: Roots,
    pub tree: Rc<RefCell<Tree>>,
    pub git: Rc<Git>,
    pub protected: Rc<RefCell<Protected>>,
    /// Filled when the baseline has ended.
    pub found: Rc<RefCell<Option<Found>>>,
    pub seen: Seen,
    pub standing: State,
    /// `standing` as it was when the iteration began, for whoever must say how things are while the loop works.
    pub brief: Rc<RefCell<State>>,
    /// The environment block of the first message.
    pub environment: String,
    /// Variables that commands do not see.
    pub removed: Rc<[String]>,
}

/// The judge's endpoint and frozen head.
pub struct Bench {
    pub endpoint: Endpoint,
    pub head: String,
}

/// Where the session stands.
#[derive(Debug, Default, Clone)]
pub struct State {
    pub iteration: u64,
    /// Agent calls of the iteration before a resume.
    pub steps_taken: u64,
    pub stage: Stage,
    pub verdict: Option<Verdict>,
    pub checks: Vec<CheckResult>,
    pub last_text: String,
    pub errors: u64,
    pub turn: Option<(TurnEnd, Option<String>)>,
    /// The verdict was given, but the run ended before anything came of it (on resume).
    pub undecided: bool,
    /// The evidence, when the next continuation is the nudge.
    pub nudge: Option<String>,
    pub limit_hit: Option<String>,
    /// Everything that spoke for an end, in the order it came up.
    pub causes: Vec<Cause>,
}

impl State {
    /// What led to this outcome, where more than the verdict did.
    pub fn cause(&self, outcome: Outcome) -> Option<&Cause> {
        self.causes.iter().find(|cause| cause.outcome == outcome)
    }
}

/// What comes next.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// A new iteration begins with a message.
    #[default]
    Begin,
    /// The iteration's message was said; the turn goes on.
    Turn,
    /// The turn has ended; checks and verdict are next.
    After,
}

impl Loop {
    /// Runs to an outcome. What led to it stays in `standing`.
    pub async fn run(&mut self) -> Outcome {
        match self.until_outcome().await {
            Ok(outcome) => outcome,
            Err(error) => self.fail(cause(&Ended::Session(error))),
        }
    }

    fn fail(&mut self, cause: Cause) -> Outcome {
        let outcome = cause.outcome;
        if self.standing.limit_hit.is_none() {
            self.standing.limit_hit.clone_from(&cause.limit);
        }
        self.standing.causes.push(cause);
        outcome
    }

    /// What holds although nothing failed: the run was halted, or more was spent than allowed.
    fn bounds(&mut self) -> Vec<Outcome> {
        let mut holds = Vec::new();
        if let Some(why) = self.halt.why() {
            holds.push(self.fail(cause(&Ended::Halted(why))));
        }
        if let Some(hit) = self.gateway.ledger(crate::model::Ledger::over) {
            let limits = &self.config.limits;
            let used = match hit {
                Hit::Cost => {
                    let spent = self.gateway.ledger(crate::model::Ledger::spent);
                    format!("{spent} dollars of {}", limits.cost.unwrap_or_default())
                }
                Hit::Tokens => {
                    let tokens = self.gateway.ledger(crate::model::Ledger::tokens);
                    format!("{tokens} tokens of {}", limits.tokens.unwrap_or_default())
                }
            };
            let message = format!("`{}` is used up: {used}", hit.key());
            holds.push(self.fail(Cause::new(Outcome::CostLimit, message).limit(hit.key())));
        }
        holds
    }

    /// The limit that allows no further iteration: on a resume nothing may be left of it.
    fn used_up(&self) -> Option<&'static str> {
        if self.standing.iteration >= self.config.limits.iterations {
            Some("limits.iterations")
        } else if self.gateway.ledger(|ledger| ledger.calls(Lane::Agent)) >= self.config.limits.steps {
            Some("limits.steps")
        } else {
            None
        }
    }

    async fn until_outcome(&mut self) -> Result<Outcome, SessionError> {
        if let Some(outcome) = self.decided_before() {
            return Ok(outcome);
        }
        if self.config.skip_if_met
            && self.standing.iteration == 0
            && self.standing.stage == Stage::Begin
            && let Some(outcome) = self.met_already().await?
        {
            return Ok(outcome);
        }
        loop {
            if self.standing.stage == Stage::Begin {
                if let Some(key) = self.used_up() {
                    self.standing.limit_hit = Some(key.to_owned());
                    return Ok(Outcome::Unmet);
                }
                self.begin()?;
            }
            let turn = if self.standing.stage == Stage::Turn {
                let turn = self.agent.turn(self.standing.iteration, self.standing.steps_taken).await;
                self.standing.steps_taken = 0;
                turn
            } else {
                let (end, why) = self.standing.turn.clone().unwrap_or((TurnEnd::Done, None));
                Ok(TurnDone { end, last_text: self.standing.last_text.clone(), complete: None, why })
            };
            if let Some(outcome) = self.after(turn).await? {
                return Ok(outcome);
            }
            self.standing.stage = Stage::Begin;
        }
    }

    /// A verdict that ends the run and that an earlier run of the session did not live to act on.
    fn decided_before(&self) -> Option<Outcome> {
        let verdict = self.standing.verdict.as_ref().filter(|_| self.standing.undecided)?;
        match verdict.kind {
            VerdictKind::Met => Some(Outcome::Met),
            VerdictKind::Impossible => Some(Outcome::Impossible),
            VerdictKind::Unmet => None,
        }
    }

    /// Starts the next iteration with its message.
    fn begin(&mut self) -> Result<(), SessionError> {
        self.standing.iteration += 1;
        self.session.append(Fact::Iteration { iteration: self.standing.iteration })?;
        self.open_iteration()
    }

    /// Says the message that opens the current iteration.
    pub fn open_iteration(&mut self) -> Result<(), SessionError> {
        let message = if self.standing.iteration == 1 {
            first_message(&self.config, &self.environment)
        } else {
            let (end, why) = self.standing.turn.clone().unwrap_or((TurnEnd::Done, None));
            let text = continuation(&Onward {
                goal: &self.config.goal,
                verdict: self.standing.verdict.as_ref(),
                turn: (end, why.as_deref()),
                checks: &self.standing.checks,
                nudge: self.standing.nudge.as_deref(),
                jobs: &self.agent.running_jobs(),
            });
            Message::User { origin: Origin::Goal, text }
        };
        self.standing.nudge = None;
        self.standing.stage = Stage::Turn;
        self.brief.replace(self.standing.clone());
        self.agent.say(message)
    }

    /// With `skip_if_met`: the baseline decides whether a turn is needed at all.
    async fn met_already(&mut self) -> Result<Option<Outcome>, SessionError> {
        if !self.agent.baseline().await {
            return Ok(Some(self.baseline_failed()));
        }
        if let Some(why) = self.halt.why() {
            return Ok(Some(self.fail(cause(&Ended::Halted(why)))));
        }
        let mut results = self.found.borrow().as_ref().map(|found| found.checks.clone()).unwrap_or_default();
        if !self.required_pass(&results) {
            return Ok(None);
        }
        if let Err(cause) = self.before_judge(&mut results).await {
            return Ok(Some(self.fail(cause)));
        }
        self.standing.checks.clone_from(&results);
        if !self.required_pass(&results) {
            return Ok(None);
        }
        let verdict = match self.verdict(&results, false, None).await {
            Ok(Some(verdict)) => verdict,
            Ok(None) => return Ok(None),
            Err(cause) => return Ok(Some(self.fail(cause))),
        };
        self.session.append(Fact::Verdict { verdict: verdict.clone() })?;
        self.session.sync_now().await?;
        let met = verdict.kind == VerdictKind::Met;
        if met {
            self.standing.verdict = Some(verdict);
        }
        Ok(met.then_some(Outcome::Met))
    }

    fn baseline_failed(&mut self) -> Outcome {
        let cause = self.found.borrow().as_ref().and_then(|found| found.cause.clone());
        self.fail(cause.unwrap_or_else(|| Cause::new(Outcome::Internal, "the baseline ended without a result")))
    }

    /// Everything after a turn; `Some` ends the run.
    async fn after(&mut self, turn: Result<TurnDone, Ended>) -> Result<Option<Outcome>, SessionError> {
        let mut holds: Vec<Outcome> = Vec::new();
        let mut turn_end = TurnEnd::Failed;
        match turn {
            Ok(done) => {
                turn_end = done.end;
                if !done.last_text.trim().is_empty() {
                    self.standing.last_text = done.last_text;
                }
                if self.standing.stage == Stage::Turn {
                    self.session.append(Fact::Turn {
                        iteration: self.standing.iteration,
                        end: done.end,
                        summary: done.complete,
                        why: done.why.clone(),
                    })?;
                }
                self.standing.turn = Some((done.end, done.why));
            }
            Err(Ended::Baseline) => holds.push(self.baseline_failed()),
            Err(ended) => holds.push(self.fail(cause(&ended))),
        }
        holds.extend(self.bounds());
        if holds.is_empty() && !self.agent.baseline().await {
            holds.push(self.baseline_failed());
        }
        // What was there before the first turn is nothing new.
        let at_start = self.found.borrow_mut().as_mut().and_then(|found| found.progress.take());
        if let Some(fact) = &at_start {
            self.seen.take(fact);
        }
        if let Some(outcome) = self.protected() {
            holds.push(outcome);
        }
        let digest = if holds.is_empty() { self.digest() } else { None };
        let results = match self.checks(!holds.is_empty()).await {
            Ok(results) => results,
            Err(cause) => {
                holds.push(self.fail(cause));
                Vec::new()
            }
        };
        if let Some(why) = self.halt.why() {
            holds.push(self.fail(cause(&Ended::Halted(why))));
        }
        self.session.append(Fact::Checks { iteration: self.standing.iteration, results: results.clone() })?;
        self.standing.checks.clone_from(&results);
        let last_allowed = self.used_up().is_some();
        if !holds.is_empty() {
            return Ok(match decide(&holds, last_allowed) {
                Decision::End(outcome) => Some(outcome),
                Decision::Continue => None,
            });
        }

        let errored = matches!(turn_end, TurnEnd::Refused | TurnEnd::Failed);
        self.standing.errors = if errored { self.standing.errors + 1 } else { 0 };
        let standing = self.progress(digest, &results)?;
        let mut criteria_progress = false;
        if errored {
            self.standing.verdict = None;
            if self.standing.errors >= self.config.limits.consecutive_errors {
                let why = self.standing.turn.as_ref().and_then(|(_, why)| why.clone()).unwrap_or_default();
                let count = self.standing.errors;
                let (outcome, ended) = match turn_end {
                    TurnEnd::Refused => (Outcome::Refused, "were refused"),
                    _ => (Outcome::Provider, "failed"),
                };
                holds.push(self.fail(Cause::new(outcome, format!("{count} turns in a row {ended}: {why}"))));
            }
        } else {
            let ask_anyway = standing.nudge_due || last_allowed;
            match self.verdict(&results, ask_anyway, Some(turn_end)).await {
                Ok(Some(verdict)) => {
                    self.session.append(Fact::Verdict { verdict: verdict.clone() })?;
                    self.session.sync_now().await?;
                    criteria_progress = self.seen.verdict(&verdict);
                    match verdict.kind {
                        VerdictKind::Met => holds.push(Outcome::Met),
                        VerdictKind::Impossible => holds.push(Outcome::Impossible),
                        VerdictKind::Unmet => {}
                    }
                    self.standing.verdict = Some(verdict);
                }
                Ok(None) => {}
                Err(cause) => holds.push(self.fail(cause)),
            }
        }
        holds.extend(self.bounds());
        if standing.stalled && !criteria_progress {
            holds.push(Outcome::Stalled);
        }
        if standing.nudge_due && !criteria_progress {
            self.standing.nudge = Some(standing.evidence.clone());
        }
        Ok(match decide(&holds, last_allowed) {
            Decision::End(outcome) => {
                if outcome == Outcome::Unmet {
                    self.standing.limit_hit = self.used_up().map(str::to_owned);
                }
                Some(outcome)
            }
            Decision::Continue => None,
        })
    }

    /// Protected files that were changed end the run.
    fn protected(&mut self) -> Option<Outcome> {
        let violations = self.protected.borrow_mut().violations(&self.world);
        match violations {
            Ok(changed) if changed.is_empty() => None,
            Ok(changed) => Some(self.fail(Cause::new(
                Outcome::Policy,
                format!(
                    "protected {} changed: {}",
                    if changed.len() == 1 { "file was" } else { "files were" },
                    changed.join(", ")
                ),
            ))),
            Err(error) => Some(self.fail(Cause::new(Outcome::Environment, error.to_string()))),
        }
    }

    fn digest(&self) -> Option<String> {
        match self.tree.borrow_mut().digest(&self.world) {
            Ok(digest) => Some(digest),
            Err(error) => {
                tracing::warn!(%error, "the workspace has no digest");
                None
            }
        }
    }

    /// Runs the checks of an iteration; with `skip` they are all `not_run`.
    async fn checks(&mut self, skip: bool) -> Result<Vec<CheckResult>, Cause> {
        let config = self.config.clone();
        let mut results = Vec::new();
        for check in config.checks.iter().filter(|check| check.when == When::EachIteration) {
            results.push(self.check(check, skip).await);
        }
        if skip {
            let later = config.checks.iter().filter(|check| check.when == When::BeforeJudge);
            results.extend(later.map(checks::not_run));
        } else {
            self.before_judge(&mut results).await?;
        }
        Ok(results)
    }

    async fn check(&self, check: &Check, skip: bool) -> CheckResult {
        if skip || self.halt.why().is_some() {
            return checks::not_run(check);
        }
        let spool = self.session.spool();
        checks::run(&self.world, &self.halt, &self.roots, &spool, check, &self.removed).await
    }

    /// The checks that wait until all required ones pass.
    async fn before_judge(&self, results: &mut Vec<CheckResult>) -> Result<(), Cause> {
        let pass = self.required_pass(results);
        for check in self.config.checks.iter().filter(|check| check.when == When::BeforeJudge) {
            results.push(self.check(check, !pass).await);
        }
        Ok(())
    }

    /// Whether all required checks that have a result pass (those that wait for it may still be missing).
    fn required_pass(&self, results: &[CheckResult]) -> bool {
        results.iter().filter(|result| result.required).all(|result| result.status == CheckStatus::Pass)
    }

    fn progress(&mut self, digest: Option<String>, results: &[CheckResult]) -> Result<Standing, SessionError> {
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

    /// The verdict on what stands; `None` when there is nobody to give one.
    async fn verdict(
        &mut self,
        results: &[CheckResult],
        ask_anyway: bool,
        turn_end: Option<TurnEnd>,
    ) -> Result<Option<Verdict>, Cause> {
        let iteration = self.standing.iteration;
        let failing = results.iter().find(|result| result.required && result.status != CheckStatus::Pass);
        let by_checks = |kind, reason: String, next_step: String| Verdict {
            kind,
            by: VerdictBy::Checks,
            iteration,
            reason,
            next_step,
            criteria: Vec::new(),
        };
        let failed = failing.map(|result| {
            let exit = result.exit_code.map_or(result.status.name().to_owned(), |code| format!("exit {code}"));
            let others = results.iter().filter(|r| r.required && r.status != CheckStatus::Pass).count() - 1;
            let more = if others > 0 { format!(", and {others} more") } else { String::new() };
            format!("check `{}` does not pass ({exit}){more}", result.name)
        });
        let (Some(bench), Some(judge)) = (&self.judge, &self.config.judge) else {
            return Ok(Some(match failed {
                Some(reason) => by_checks(VerdictKind::Unmet, reason, String::new()),
                None => by_checks(VerdictKind::Met, "all required checks pass".to_owned(), String::new()),
            }));
        };
        if let (Some(reason), false) = (&failed, ask_anyway) {
            return Ok(Some(by_checks(VerdictKind::Unmet, reason.clone(), String::new())));
        }
        let changes = self.halt.run(self.changes()).await;
        let (changes, patch) = changes.map_err(|why| cause(&Ended::Halted(why)))?;
        let messages: Vec<Message> = self.agent.recent().cloned().collect();
        let jobs: Vec<String> =
            self.world.exec.jobs().iter().map(|job| format!("{} {:?} {}", job.id, job.state, job.command)).collect();
        let spent = self.gateway.ledger(crate::model::Ledger::spent);
        let steps = self.gateway.ledger(|ledger| ledger.calls(Lane::Agent));
        let limits = format!("{steps} of {} steps and {spent} dollars are used.", self.config.limits.steps);
        let note = match turn_end {
            Some(TurnEnd::Stuck) => Some("it repeated the same call with the same result and was stopped"),
            Some(TurnEnd::Budget) => Some("its steps were used up"),
            _ => None,
        };
        let text = packet(
            &Evidence {
                goal: &self.config.goal,
                criteria: &self.config.criteria,
                iteration,
                of: self.config.limits.iterations,
                checks: results,
                changes: &changes,
                patch: &String::from_utf8_lossy(&patch),
                tasks: self.agent.tools().tasks(),
                jobs: &jobs,
                messages: &messages,
                final_text: &self.standing.last_text,
                last_verdict: self.standing.verdict.as_ref(),
                turn_note: note,
                limits: &limits,
            },
            bench.endpoint.window_tokens,
            self.gateway.factor(Lane::Judge),
        );
        let court = Court {
            gateway: &self.gateway,
            endpoint: &bench.endpoint,
            head: &bench.head,
            timeout: judge.timeout,
            retries: judge.retries,
            votes: judge.votes,
            criteria: self.config.criteria.len() as u64,
            iteration,
        };
        let judged = court.judge(&text).await.map_err(|error| {
            let ended = match error {
                crate::model::CallError::Halted { why, .. } => Ended::Halted(why),
                crate::model::CallError::Session(error) => Ended::Session(error),
                other => Ended::Call(other),
            };
            cause(&ended)
        })?;
        match judged {
            Judged::Verdict(verdict) => Ok(Some(match failed {
                // A failed check is settled: the judge may give it up, it may not wave it through.
                Some(reason) if verdict.kind == VerdictKind::Met => Verdict {
                    kind: VerdictKind::Unmet,
                    reason: format!("{reason}. The judge adds: {}", verdict.reason),
                    ..verdict
                },
                _ => verdict,
            })),
            Judged::Failed(why) => {
                Err(Cause::new(Outcome::JudgeFailed, format!("the judge gave no usable verdict: {why}")))
            }
        }
    }

    /// What changed since the session's start, and the patch. What cannot be told is left out and said in the log.
    pub async fn changes(&self) -> (Changes, Vec<u8>) {
        let (tree, files) = match self.found.borrow().as_ref() {
            Some(found) => (found.git_tree.clone(), found.files.clone()),
            None => return (Changes::default(), Vec::new()),
        };
        if let Some(tree) = tree {
            match self.git.changes(&self.world, &tree).await {
                Ok(changes) => return changes,
                Err(error) => tracing::warn!(%error, "git cannot tell what changed"),
            }
        }
        let mut changes = Changes::default();
        let listed: BTreeMap<PathBuf, String> = {
            let mut tree = self.tree.borrow_mut();
            match tree.digest(&self.world) {
                Ok(_) => tree.files().clone(),
                Err(error) => {
                    tracing::warn!(%error, "the workspace cannot be listed");
                    return (changes, Vec::new());
                }
            }
        };
        changes.files = changed_files(&files, &listed);
        (changes, Vec::new())
    }
}

/// The message that opens the first iteration.
pub fn first_message(config: &Config, environment: &str) -> Message {
    let text = super::sources::opening(config, environment);
    Message::User { origin: Origin::Prompt, text }
}

/// Starts the baseline on the loop's thread and gives the gate that waits for it.
/// Aborted at the run's end: nothing of it may be said after the end was.
pub fn start_baseline(
    baseline: Baseline,
    found: Rc<RefCell<Option<Found>>>,
) -> (crate::turn::Gate, tokio::task::AbortHandle) {
    let task = tokio::task::spawn_local(async move {
        let result = baseline.run().await;
        let good = result.cause.is_none();
        *found.borrow_mut() = Some(result);
        good
    });
    let abort = task.abort_handle();
    (Box::pin(async move { task.await.unwrap_or(false) }), abort)
}

pub fn check_cause(error: &CheckError) -> Cause {
    match error {
        CheckError::Missing { .. } => Cause::new(Outcome::Environment, error.to_string())
            .hint("install it, or correct the check's `run`; `spettro checks FILE` runs the checks alone"),
    }
}

/// Most time for `git` and listings at the end of a run.
pub const CHANGES_WITHIN: Duration = Duration::from_secs(20);
