//! The loop: turn, workspace, checks, progress, verdict, decision; until an outcome.

mod verdict;
mod verify;

pub use self::verify::{Guards, PUT_BACK};

use std::cell::RefCell;
use std::rc::Rc;

use super::baseline::{Baseline, Found};
use super::checks::CheckError;
use super::config::Config;
use super::effects::Witness;
use super::failure::{Cause, cause};
use super::message::{Onward, continuation};
use super::outcome::{Decision, decide};
use super::progress::Seen;
use crate::event::{CheckResult, Lane, Outcome, TurnEnd, Verdict, VerdictKind};
use crate::model::{Endpoint, Gateway, Hit};
use crate::session::{Fact, Message, Origin, Session, SessionError};
use crate::turn::{Agent, Ended, TurnDone};
use crate::workspace::{Git, Protected, Tree, Tripwire};
use crate::world::{Halt, Roots, Secrets, World};

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
    /// Where effects are recorded.
    pub witness: Option<Witness>,
    pub git: Rc<Git>,
    pub protected: Rc<RefCell<Protected>>,
    /// Absent while it compares.
    pub tripwire: Rc<RefCell<Option<Tripwire>>>,
    /// How often something had to be put back in this session.
    pub put_back: u64,
    /// What the guards found, where that is told by a recording.
    pub guards: Option<Guards>,
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
    /// Replaced in the names of files, wherever they are told.
    pub secrets: Secrets,
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
    /// What the agent said is done, when its last turn ended so.
    pub summary: Option<String>,
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
        // It may name files.
        let cause = Cause { message: self.secrets.redact_str(&cause.message).into_owned(), ..cause };
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
        self.before_judge(&mut results).await;
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
                self.standing.summary.clone_from(&done.complete);
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
        holds.extend(self.protected());
        holds.extend(self.tripwire().await?);
        let digest = if holds.is_empty() { self.digest() } else { None };
        let skip = !holds.is_empty();
        let results = self.checks(skip).await;
        if !skip {
            holds.extend(self.touched());
        }
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
