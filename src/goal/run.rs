//! One run of one goal: everything is put together, driven, and brought to its end in order.

mod begin;
mod finish;
mod listen;
mod restore;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

pub use self::begin::goal_digest;
use self::begin::{freeze, identity, setup, start_fact, time_is_up};
use self::listen::{Heard, interrupts};
use self::restore::{earlier_baseline, opening_missing, restore};
use super::baseline::Baseline;
use super::config::Config;
use super::effects::Witness;
use super::failure::{Cause, cause, session as session_cause};
use super::iterate::{Bench, Guards, Loop, PUT_BACK, Stage, first_message, start_baseline};
use super::progress::Seen;
use super::result::{Before, Ending, Identity, result};
use super::watch::{Timer, Watch, pressing};
use super::{judge, sources};
use crate::compact::{self, Budget, Compactor, History};
use crate::event::{Lane, Outcome, RunResult};
use crate::model::{Endpoint, Gateway, GatewayParts};
use crate::process::Watchdog;
use crate::process::sandbox::Policy;
use crate::session::{self, Fact, Frozen, Line, Session, SessionError};
use crate::tools::Answers;
use crate::turn::{Agent, AgentParts, Ended as Stopped};
use crate::workspace::{Git, Listings, Protected, Tree, Tripwire};
use crate::world::{Halt, Roots, Secrets, Why, World};

/// What a run is started with.
pub struct RunParts {
    pub world: World,
    pub halt: Halt,
    pub session: Session,
    /// The facts of earlier runs of the session.
    pub lines: Vec<Line>,
    pub config: Rc<Config>,
    pub endpoint: Endpoint,
    pub judge: Option<Endpoint>,
    pub summarizer: Endpoint,
    /// What a new session is called, when not by its goal.
    pub title: Option<String>,
    pub roots: Roots,
    pub run: String,
    pub version: String,
    /// The private copy, with `workspace_mode: copy`.
    pub copy: Option<PathBuf>,
    /// The level obtained.
    pub sandbox: String,
    /// What commands and file tools may touch.
    pub policy: Rc<Policy>,
    /// spettro's own folders, which no file tool touches and no digest counts.
    pub own_dirs: Vec<PathBuf>,
    pub deltas: bool,
    /// The command that resumes this session; empty when it is not kept.
    pub resume: Vec<String>,
    pub steering: Rc<RefCell<VecDeque<String>>>,
    /// Names of variables that commands do not see.
    pub removed: Vec<String>,
    /// Replaced wherever something enters the session.
    pub secrets: Secrets,
    /// For the operator, said when the run has started.
    pub notes: Vec<String>,
    /// Called about once a second.
    pub tick: Rc<dyn Fn(Duration)>,
    pub summarize: fn(&RunResult) -> String,
    /// Ends the process when the loop stands still.
    pub pulse: Watchdog,
    /// What was recorded, when the run is one that was.
    pub replayed: Option<Replayed>,
}

/// What a replay takes from its recording besides what comes through the ports. Time has no limit in it: what time
/// did stands in the recording.
pub struct Replayed {
    /// The session's exact first bytes.
    pub frozen: Box<Frozen>,
    /// What the tools gave that look at the workspace or wait for jobs.
    pub answers: Rc<dyn Answers>,
    /// How the workspace was listed.
    pub listings: Listings,
    /// What the guards of the workspace found.
    pub guards: Guards,
}

/// A run that can be driven.
pub struct Run {
    goal: Loop,
    /// Absent in a replay.
    watch: Option<Watch>,
    pulse: Watchdog,
    timer: Timer,
    identity: Identity,
    summarize: fn(&RunResult) -> String,
    /// Ends the baseline, where one was started.
    baseline: Option<tokio::task::AbortHandle>,
    secrets: Secrets,
}

fn notice(session: &Session, code: &str, text: String) -> Result<(), Cause> {
    session.append(Fact::Notice { code: code.to_owned(), text }).map(|_| ()).map_err(|error| session_cause(&error))
}

impl Run {
    /// Puts a run together: a new session's sources are frozen, an old one's are taken from its log.
    ///
    /// Signals are listened to while the setup runs.
    ///
    /// # Errors
    /// What ends the run before it began.
    pub async fn prepare(mut parts: RunParts, signals: &mut Option<crate::process::Signals>) -> Result<Run, Cause> {
        let digest = goal_digest(&parts.config.goal);
        parts.config = Rc::new(parts.config.without(&parts.secrets));
        let state = session::fold(&parts.lines);
        parts.session.spool().limit(parts.config.spool_max_bytes);
        if let Some(reason) = &state.broken {
            return Err(Cause::new(Outcome::Unusable, format!("the session's history cannot be told: {reason}")));
        }
        let resumed = !state.runs.is_empty();
        let git = Rc::new(Git::new(parts.roots.clone(), parts.session.dir().join("git")));
        let mut tools =
            sources::tools(&parts.config, &parts.own_dirs, &parts.removed, &parts.secrets, parts.policy.clone());
        if let Some(replayed) = &parts.replayed {
            tools.answered_by(replayed.answers.clone());
        }
        let removed: Rc<[String]> = parts.removed.clone().into();
        let (around, git_state, unknown) = sources::surroundings(&parts.world, &parts.roots, &git).await;
        let frozen = match &state.frozen {
            Some(frozen) => (**frozen).clone(),
            None if let Some(replayed) = &parts.replayed => {
                append(&parts.session, Fact::Frozen(replayed.frozen.clone()))?;
                (*replayed.frozen).clone()
            }
            None => {
                let (system, cut) = sources::system(&parts.config, &parts.roots, &parts.secrets)?;
                parts.notes.extend(cut);
                let frozen = freeze(&parts, digest, system, &tools, &around)?;
                let first = first_message(&parts.config, &frozen.environment);
                let head = frozen.heads.get("agent").map_or("", String::as_str);
                let pct = parts.config.compaction.threshold_pct;
                sources::room_to_begin(&parts.endpoint, pct, head, &frozen.system, &first)?;
                append(&parts.session, Fact::Frozen(Box::new(frozen.clone())))?;
                frozen
            }
        };
        start_fact(&parts, resumed, &git_state, &frozen)?;
        if let Some(unknown) = unknown {
            notice(&parts.session, "git_unknown", unknown)?;
        }
        for note in &parts.notes {
            notice(&parts.session, "note", note.clone())?;
        }
        if !resumed && !git_state.dirty.is_empty() {
            let names = git_state.dirty.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
            let more = git_state.dirty.len().saturating_sub(8);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let count = git_state.dirty.len();
            notice(&parts.session, "dirty", format!("{count} dirty at start: {names}{more}"))?;
        }
        if parts.endpoint.free_because_local {
            let name = parts.endpoint.name();
            notice(&parts.session, "unpriced", format!("{name} has no price and is local: it counts as free"))?;
        }

        let started = parts.world.clock.elapsed();
        // A run that died before its first iteration may have died in its setup.
        if state.iteration == 0 {
            tokio::select! {
                biased;
                done = setup(&parts) => done?,
                () = interrupts(signals, &parts.session, &parts.halt, &Heard { stopping: &|_| {}, status: &String::new }) => {}
                () = time_is_up(&parts, state.active_ms) => {}
            }
        }
        let gateway = Rc::new(Gateway::new(GatewayParts {
            world: parts.world.clone(),
            session: parts.session.clone(),
            halt: parts.halt.clone(),
            limits: &parts.config.limits,
            state: &state,
            max_wait: parts.config.rate_limit_max_wait,
            deltas: parts.deltas,
            secrets: parts.secrets.clone(),
        }));
        let timer = Timer::new(parts.world.clone(), gateway.clone(), state.active_ms, state.waited_ms, started);
        let tree = match &parts.replayed {
            Some(replayed) => Tree::told(replayed.listings.clone()),
            None => Tree::new(parts.roots.clone(), parts.own_dirs.clone()).without(parts.secrets.clone()),
        };
        let tree = Rc::new(RefCell::new(tree));
        let witness = (parts.config.record_effects && parts.replayed.is_none()).then(|| Witness {
            world: parts.world.clone(),
            session: parts.session.clone(),
            tree: tree.clone(),
            secrets: parts.secrets.clone(),
        });
        // A session needs no goal file any more: what it said is stored.
        let goal_file = parts.config.goal_file.as_deref().filter(|file| !resumed || file.exists());
        let protected = Protected::new(&parts.world, &parts.roots, &parts.config.protect, goal_file)
            .map_err(|error| Cause::new(Outcome::Environment, error.to_string()))?;
        let tripwire = Tripwire::new(&parts.world, &parts.roots, git.clone(), protected.files().cloned());
        let tripwire = Rc::new(RefCell::new(parts.replayed.is_none().then_some(tripwire)));
        let put_back =
            parts.lines.iter().filter(|line| matches!(&line.fact, Fact::Notice { code, .. } if code == PUT_BACK));
        let put_back = put_back.count() as u64;
        let found = Rc::new(RefCell::new(earlier_baseline(&parts.session, &parts.lines)?));
        let (gate, baseline) = if found.borrow().is_some() {
            if witness.is_some()
                && let Err(error) = tree.borrow_mut().digest(&parts.world)
            {
                tracing::warn!(%error, "the workspace has no digest");
            }
            (None, None)
        } else {
            let baseline = Baseline {
                world: parts.world.clone(),
                halt: parts.halt.clone(),
                session: parts.session.clone(),
                config: parts.config.clone(),
                roots: parts.roots.clone(),
                tree: tree.clone(),
                witness: witness.clone(),
                git: git.clone(),
                removed: removed.clone(),
                secrets: parts.secrets.clone(),
            };
            let (gate, abort) = start_baseline(baseline, found.clone());
            (Some(gate), Some(abort))
        };
        let head = frozen.heads.get("agent").cloned().unwrap_or_default();
        let (conversation, mut standing) = restore(&parts, &state, &head)?;
        let compactor = Compactor::new(
            parts.config.compaction,
            parts.summarizer.clone(),
            frozen.heads.get("summarizer").cloned().unwrap_or_else(|| compact::head(&parts.summarizer)),
            &frozen.system,
            Budget::fold(parts.lines.iter().map(|line| &line.fact)),
        );
        let compactions = compactor.tally();
        let pressing_gateway = gateway.clone();
        let (pressing_timer, pressing_limits) = (timer.clone(), parts.config.limits.clone());
        let (looked, seeing, modes) = (tripwire.clone(), witness.clone(), parts.session.clone());
        let fetching = tools.fetching();
        // Where no command runs nobody changes modes.
        let mends = parts.replayed.as_ref().is_none_or(|replayed| replayed.answers.in_earnest());
        let mut agent = Agent::new(AgentParts {
            world: parts.world.clone(),
            session: parts.session.clone(),
            gateway: gateway.clone(),
            halt: parts.halt.clone(),
            roots: parts.roots.clone(),
            endpoint: parts.endpoint.clone(),
            tools,
            conversation,
            history: History::of(&state),
            compactor,
            edited: state.edited && state.sent.is_empty(),
            step_limit: parts.config.limits.steps,
            steps_per_iteration: parts.config.limits.steps_per_iteration,
            sync_strict: parts.config.sync_strict,
            gate,
            steering: parts.steering.clone(),
            recent: parts.config.judge.as_ref().map_or(1, |judge| judge.messages as usize),
            changed: Rc::new(move |call_id, ran| {
                if mends {
                    modes.mend();
                }
                if let Some(wire) = looked.borrow_mut().as_mut() {
                    wire.look(&format!("{} `{}`", ran.tool, ran.summary));
                }
                if let Some(witness) = &seeing {
                    witness.call(call_id, ran);
                }
            }),
            pressing: Rc::new(move || pressing(&pressing_gateway, &pressing_timer, &pressing_limits)),
        });
        let opens = standing.stage == Stage::Turn && opening_missing(&state);
        if resumed {
            let in_turn = standing.stage == Stage::Turn && !opens;
            agent.resume(&state, in_turn, &mut standing.last_text).map_err(|error| session_cause(&error))?;
        }
        let before = Before::now(&gateway, standing.iteration);
        let identity = identity(&parts, &frozen, before, compactions);
        let judge = parts.judge.as_ref().map(|endpoint| Bench {
            endpoint: endpoint.clone(),
            head: frozen.heads.get("judge").cloned().unwrap_or_else(|| judge::head(endpoint)),
        });
        let mut seen = Seen::fold(&state.progress, &state.verdicts);
        if resumed {
            seen.forgive();
        }
        let mut goal = Loop {
            world: parts.world.clone(),
            halt: parts.halt.clone(),
            session: parts.session.clone(),
            config: parts.config.clone(),
            gateway: gateway.clone(),
            agent,
            judge,
            roots: parts.roots.clone(),
            tree,
            witness,
            git,
            protected: Rc::new(RefCell::new(protected)),
            tripwire,
            put_back,
            guards: parts.replayed.as_ref().map(|replayed| replayed.guards.clone()),
            found,
            seen,
            brief: Rc::new(RefCell::new(standing.clone())),
            standing,
            environment: frozen.environment.clone(),
            removed,
            secrets: parts.secrets.clone(),
        };
        if opens {
            goal.open_iteration().map_err(|error| session_cause(&error))?;
        }
        let watch = Watch {
            world: parts.world.clone(),
            halt: parts.halt.clone(),
            session: parts.session.clone(),
            gateway,
            timer: timer.clone(),
            limits: parts.config.limits.clone(),
            pulse: parts.pulse.clone(),
            fetching,
            tick: parts.tick.clone(),
        };
        let watch = parts.replayed.is_none().then_some(watch);
        let run = Run {
            goal,
            watch,
            pulse: parts.pulse.clone(),
            timer,
            identity,
            summarize: parts.summarize,
            baseline,
            secrets: parts.secrets.clone(),
        };
        let running = run.result(None);
        run.goal.session.write_result(&running, &(run.summarize)(&running)).map_err(|error| session_cause(&error))?;
        Ok(run)
    }

    fn result(&self, ending: Option<Ending<'_>>) -> RunResult {
        result(&self.identity, &self.goal.gateway, &self.timer, &self.goal.standing, ending)
    }

    /// Drives the run to its outcome, then ends it in order: changes, children, facts, files. Gives the result.
    pub async fn drive(mut self, mut signals: Option<crate::process::Signals>) -> RunResult {
        let session = self.goal.session.clone();
        let halt = self.goal.halt.clone();
        let outcome = {
            let watch = &self.watch;
            if let Some(watch) = watch {
                watch.look();
            }
            let (identity, timer, gateway) = (&self.identity, &self.timer, self.goal.gateway.clone());
            let (brief, summarize) = (self.goal.brief.clone(), self.summarize);
            let heard = Heard {
                stopping: &|outcome| {
                    let cause = cause(&Stopped::Halted(Why::Signal(outcome)));
                    let ending = Ending { outcome, cause: Some(&cause), changes: None, leaked: Vec::new() };
                    let early = result(identity, &gateway, timer, &brief.borrow(), Some(ending));
                    if let Err(error) = session.write_result(&early, &summarize(&early)) {
                        tracing::error!(%error, "result.json cannot be written");
                    }
                },
                status: &|| {
                    let (steps, cost) = gateway.ledger(|ledger| (ledger.calls(Lane::Agent), ledger.spent()));
                    let active = humantime::format_duration(Duration::from_secs(timer.active().as_secs()));
                    let iteration = brief.borrow().iteration;
                    let plural = if steps == 1 { "" } else { "s" };
                    format!("iteration {iteration}, {steps} step{plural}, ${cost}, {active} at work")
                },
            };
            tokio::select! {
                biased;
                outcome = self.goal.run() => outcome,
                () = watched(watch.as_ref()) => Outcome::Internal,
                () = interrupts(&mut signals, &session, &halt, &heard) => Outcome::Internal,
            }
        };
        self.finish(outcome).await
    }
}

async fn watched(watch: Option<&Watch>) {
    match watch {
        Some(watch) => watch.run().await,
        None => std::future::pending().await,
    }
}

fn append(session: &Session, fact: Fact) -> Result<(), Cause> {
    session.append(fact).map(|_| ()).map_err(|error| session_cause(&error))
}

/// What is spettro's own: no file tool touches it, no digest counts it.
pub fn own_dirs(home: &Path, session_root: &Path, workspace: &Path) -> Vec<PathBuf> {
    let names = ["config.yaml", "config.json", "memory.md", "memory-inbox.json", "checkpoints", "locks", "sessions"];
    let mut own: Vec<PathBuf> = names.iter().map(|name| home.join(name)).collect();
    own.push(session_root.to_owned());
    own.push(workspace.join(".spettro").join("sessions"));
    own
}

impl From<SessionError> for Cause {
    fn from(error: SessionError) -> Self {
        session_cause(&error)
    }
}
