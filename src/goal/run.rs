//! One run of one goal: everything is put together, driven, and brought to its end in order.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use super::baseline::{Baseline, Found, listing};
use super::checks::{command, text};
use super::config::Config;
use super::failure::{Cause, cause, session as session_cause};
use super::iterate::{Bench, CHANGES_WITHIN, Loop, Stage, State, first_message, start_baseline};
use super::judge;
use super::progress::Seen;
use super::result::{Before, Ending, Identity, result};
use super::sources;
use super::watch::{Timer, Watch, pressing};
use crate::compact::{self, Budget, Compactor, History};
use crate::event::{Event, GoalRef, Lane, Outcome, RunResult};
use crate::model::{Conversation, Endpoint, Gateway, GatewayParts};
use crate::process::SignalEvent;
use crate::session::{self, Fact, Frozen, Line, RunStart, Session, SessionError};
use crate::tools::Tools;
use crate::turn::{self, Agent, AgentParts, Ended as Stopped};
use crate::workspace::{Git, GitState, Protected, Tree};
use crate::world::{CommandKind, Ending as Ended, Halt, Roots, Secrets, Why, World};

/// TERM to KILL in the teardown.
const GRACE: Duration = Duration::from_secs(5);

/// The longest that the end of a run waits for outputs that are not on the disk yet.
const SPOOL_WITHIN: Duration = Duration::from_secs(3);

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
}

/// A run that can be driven.
pub struct Run {
    goal: Loop,
    watch: Watch,
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

/// An endpoint as it is stored: what headers, query parameters and additions to the body hold may be secret, and is
/// read again from the configuration when the session is resumed.
fn endpoint_json(endpoint: &Endpoint) -> Result<serde_json::Value, Cause> {
    let stored = Endpoint {
        headers: BTreeMap::new(),
        query_params: BTreeMap::new(),
        extra_body: Vec::new(),
        ..endpoint.clone()
    };
    serde_json::to_value(stored).map_err(|error| Cause::new(Outcome::Internal, error.to_string()))
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
        let resumed = state.frozen.is_some();
        let git = Rc::new(Git::new(parts.roots.clone(), parts.session.dir().join("git")));
        let tools = sources::tools(&parts.config, &parts.own_dirs, &parts.removed, &parts.secrets);
        let removed: Rc<[String]> = parts.removed.clone().into();
        let (around, git_state, unknown) = sources::surroundings(&parts.world, &parts.roots, &git).await;
        let frozen = match &state.frozen {
            Some(frozen) => (**frozen).clone(),
            None => {
                let (system, cut) = sources::system(&parts.config, &parts.roots, &parts.secrets)?;
                parts.notes.extend(cut);
                let frozen = freeze(&parts, digest, system, &tools, &around)?;
                room_to_begin(&parts, &frozen)?;
                append(&parts.session, Fact::Frozen(Box::new(frozen.clone())))?;
                frozen
            }
        };
        start_fact(&parts, resumed, &git_state)?;
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

        if !resumed {
            tokio::select! {
                biased;
                done = setup(&parts) => done?,
                () = interrupts(signals, &parts.session, &parts.halt, &Heard { stopping: &|_| {}, status: &String::new }) => {}
            }
        }
        let started = parts.world.clock.elapsed();
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
        let tree = Rc::new(RefCell::new(Tree::new(parts.roots.clone(), parts.own_dirs.clone())));
        // A session needs no goal file any more: what it said is stored.
        let goal_file = parts.config.goal_file.as_deref().filter(|file| !resumed || file.exists());
        let protected = Protected::new(&parts.world, &parts.roots, &parts.config.protect, goal_file)
            .map_err(|error| Cause::new(Outcome::Environment, error.to_string()))?;
        let found = Rc::new(RefCell::new(earlier_baseline(&parts.session, &parts.lines)?));
        let (gate, baseline) = if found.borrow().is_some() {
            (None, None)
        } else {
            let baseline = Baseline {
                world: parts.world.clone(),
                halt: parts.halt.clone(),
                session: parts.session.clone(),
                config: parts.config.clone(),
                roots: parts.roots.clone(),
                tree: tree.clone(),
                git: git.clone(),
                removed: removed.clone(),
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
        let pressing_gateway = gateway.clone();
        let (pressing_timer, pressing_limits) = (timer.clone(), parts.config.limits.clone());
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
            pressing: Rc::new(move || pressing(&pressing_gateway, &pressing_timer, &pressing_limits)),
        });
        let opens = standing.stage == Stage::Turn && opening_missing(&state);
        if resumed {
            let in_turn = standing.stage == Stage::Turn && !opens;
            agent.resume(&state, in_turn, &mut standing.last_text).map_err(|error| session_cause(&error))?;
        }
        let before = Before::now(&gateway, standing.iteration);
        let identity = identity(&parts, &frozen, before);
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
            git,
            protected: Rc::new(RefCell::new(protected)),
            found,
            seen,
            brief: Rc::new(RefCell::new(standing.clone())),
            standing,
            environment: frozen.environment.clone(),
            removed,
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
            tick: parts.tick.clone(),
        };
        let run =
            Run { goal, watch, timer, identity, summarize: parts.summarize, baseline, secrets: parts.secrets.clone() };
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
            watch.look();
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
                    format!("iteration {iteration}, {steps} steps, ${cost}, {active} at work")
                },
            };
            tokio::select! {
                biased;
                outcome = self.goal.run() => outcome,
                () = watch.run() => Outcome::Internal,
                () = interrupts(&mut signals, &session, &halt, &heard) => Outcome::Internal,
            }
        };
        self.finish(outcome).await
    }

    async fn finish(self, outcome: Outcome) -> RunResult {
        if let Some(baseline) = &self.baseline {
            baseline.abort();
        }
        let cause = self.goal.standing.cause(outcome).cloned();
        let session = &self.goal.session;
        let signal = outcome.signal().is_some();
        let mut changes = if signal { None } else { self.changes().await };
        let leaked = self.goal.world.exec.shutdown(GRACE).await;
        session.spool().flush(SPOOL_WITHIN);
        if signal {
            changes = self.changes().await;
        }
        let ending = Ending { outcome, cause: cause.as_ref(), changes, leaked: leaked.clone() };
        let result = self.result(Some(ending));
        let end = session::End { run: self.identity.run.clone(), outcome, result: Box::new(result.clone()), leaked };
        let written = async {
            self.goal.gateway.synced().await?;
            if let Some(text) = differing(self.goal.world.transport.differing()) {
                session.append(Fact::Notice { code: "recorded_differs".to_owned(), text })?;
            }
            session.tell_spool()?;
            session.append(self.timer.fact())?;
            self.goal.agent.close_jobs()?;
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

/// What a signal needs to know of the run.
struct Heard<'a> {
    /// Writes the result as things stand, before anything is ended.
    stopping: &'a dyn Fn(Outcome),
    /// One line about how far the run is.
    status: &'a dyn Fn() -> String,
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

/// Listens for as long as it is awaited.
async fn interrupts(signals: &mut Option<crate::process::Signals>, session: &Session, halt: &Halt, heard: &Heard<'_>) {
    match signals {
        Some(signals) => listen(signals, session, halt, heard).await,
        None => std::future::pending().await,
    }
}

/// Takes signals as they come. A hangup, interrupt or termination is in the log before the run is halted.
async fn listen(signals: &mut crate::process::Signals, session: &Session, halt: &Halt, heard: &Heard<'_>) {
    loop {
        match signals.next().await {
            SignalEvent::Stop(signal) => {
                let outcome = Outcome::of_signal(signal);
                let reason = outcome.name().to_owned();
                if let Err(error) = session.append(Fact::Interrupted { reason }) {
                    tracing::error!(%error, "the interruption cannot be logged");
                }
                if let Err(error) = session.sync_now().await {
                    tracing::error!(%error, "the log cannot be synced");
                }
                (heard.stopping)(outcome);
                halt.set(Why::Signal(outcome));
            }
            // `process::force` tells the teardown; there is nothing to write down.
            SignalEvent::Force(_) => {}
            SignalEvent::Drain => {
                let fact =
                    Fact::Notice { code: "drain".to_owned(), text: "draining: saving after this call".to_owned() };
                if let Err(error) = session.append(fact) {
                    tracing::error!(%error, "the drain cannot be logged");
                }
                halt.set(Why::Drain);
            }
            SignalEvent::Status => {
                session.emit(Event::Notice { code: "status".to_owned(), text: (heard.status)() });
                if let Err(error) = session.save_derived() {
                    tracing::error!(%error, "status.json cannot be written");
                }
            }
        }
    }
}

fn append(session: &Session, fact: Fact) -> Result<(), Cause> {
    session.append(fact).map(|_| ()).map_err(|error| session_cause(&error))
}

/// Runs the setup commands, once a session, before the baseline.
async fn setup(parts: &RunParts) -> Result<(), Cause> {
    let limit = Duration::from_millis(parts.config.limits.command_ms);
    for step in &parts.config.setup {
        let command = command(CommandKind::Setup, step, &parts.roots, Path::new(""), limit, &[]);
        let failed = |what: String| Cause::new(Outcome::Environment, format!("setup `{}` {what}", step.shown));
        let finished = parts.halt.run(parts.world.exec.run(command)).await;
        let finished = finished.map_err(|why| cause(&Stopped::Halted(why)))?;
        let finished = finished.map_err(|error| failed(format!("did not start: {error}")))?;
        let output = text(&finished.output);
        match finished.ending {
            Ended::Exited(0) => {}
            Ended::Exited(code) => return Err(failed(format!("failed with exit {code}")).hint(last_lines(&output))),
            Ended::TimedOut => {
                return Err(failed("took longer than `limits.command`".to_owned()).hint(last_lines(&output)));
            }
            other => return Err(failed(format!("ended as {other:?}")).hint(last_lines(&output))),
        }
    }
    Ok(())
}

/// The last lines of an output, for a hint.
fn last_lines(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    format!("its output ends with:\n{}", lines[lines.len().saturating_sub(10)..].join("\n"))
}

/// The exact bytes that every later run of the session sends first.
fn freeze(
    parts: &RunParts,
    digest: String,
    system: String,
    tools: &Tools,
    around: &turn::Surroundings,
) -> Result<Frozen, Cause> {
    let mut heads = BTreeMap::new();
    let mut endpoints = BTreeMap::new();
    heads.insert("agent".to_owned(), parts.endpoint.wire.head(&system, &tools.schemas()));
    endpoints.insert("agent".to_owned(), endpoint_json(&parts.endpoint)?);
    if let Some(judge) = &parts.judge {
        heads.insert("judge".to_owned(), judge::head(judge));
        endpoints.insert("judge".to_owned(), endpoint_json(judge)?);
    }
    heads.insert("summarizer".to_owned(), compact::head(&parts.summarizer));
    endpoints.insert("summarizer".to_owned(), endpoint_json(&parts.summarizer)?);
    let config = &parts.config;
    Ok(Frozen {
        goal: config.goal.clone(),
        goal_name: config.name.clone(),
        goal_digest: digest,
        goal_file: config.goal_file.as_ref().map(|path| path.to_string_lossy().into_owned()),
        title: parts.title.clone(),
        system,
        environment: parts.secrets.redact_str(&turn::environment(around)).into_owned(),
        heads,
        config: config.yaml.clone(),
        config_digest: config.digest.clone(),
        endpoints,
    })
}

/// What is said in every request must leave room for work.
fn room_to_begin(parts: &RunParts, frozen: &Frozen) -> Result<(), Cause> {
    let first = first_message(&parts.config, &frozen.environment);
    let pct = parts.config.compaction.threshold_pct;
    let head = frozen.heads.get("agent").map_or("", String::as_str);
    let Some(made_of) = compact::too_large(&parts.endpoint, pct, head, &frozen.system, &first) else {
        return Ok(());
    };
    let window = parts.endpoint.window_tokens;
    let message = format!(
        "what every request must hold is too large for a window of {window} tokens, of which {} may be used: system \
         prompt and instructions {}, tools {}, first message {} tokens",
        compact::threshold(window, pct),
        made_of.system_tokens,
        made_of.tools_tokens,
        made_of.first_message_tokens,
    );
    Err(Cause::new(Outcome::Usage, message)
        .hint("shorten the goal or the `instructions`, or use a model with a larger window (`model.context_window`)"))
}

/// sha256 of a goal's text, hex.
pub fn goal_digest(goal: &str) -> String {
    use sha2::Digest;
    crate::model::hex(&sha2::Sha256::digest(goal.as_bytes()))
}

fn start_fact(parts: &RunParts, resumed: bool, git: &GitState) -> Result<(), Cause> {
    let endpoints = [Some(&parts.endpoint), parts.judge.as_ref()];
    let mut foreign: Vec<String> = endpoints
        .into_iter()
        .flatten()
        .filter(|endpoint| !endpoint.own && endpoint.cassette.is_none())
        .map(|endpoint| format!("{} at {}", endpoint.provider, host(&endpoint.base_url)))
        .collect();
    foreign.dedup();
    append(
        &parts.session,
        Fact::Run(Box::new(RunStart {
            run: parts.run.clone(),
            version: parts.version.clone(),
            resumed,
            recorded: parts.world.transport.recorded(),
            config_digest: parts.config.digest.clone(),
            model: parts.endpoint.name(),
            judge_model: parts.judge.as_ref().map(Endpoint::name),
            limits: parts.config.limits.clone(),
            endpoints: foreign,
            sandbox: parts.sandbox.clone(),
            workspace: parts.roots.shown.to_string_lossy().into_owned(),
            git_base: git.head.clone(),
            git_branch: git.branch.clone(),
        })),
    )
}

/// The host of a URL, without user, path and query.
fn host(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    authority.rsplit_once('@').map_or(authority, |(_, host)| host).to_owned()
}

fn identity(parts: &RunParts, frozen: &Frozen, before: Before) -> Identity {
    Identity {
        run: parts.run.clone(),
        session: parts.session.id(),
        session_dir: parts.session.dir(),
        workspace: parts.roots.shown.to_string_lossy().into_owned(),
        copy: parts.copy.as_ref().map(|path| path.to_string_lossy().into_owned()),
        goal: GoalRef {
            name: frozen.goal_name.clone(),
            file: frozen.goal_file.clone(),
            digest: frozen.goal_digest.clone(),
        },
        model: parts.endpoint.name(),
        judge_model: parts.judge.as_ref().map(Endpoint::name),
        recorded: parts.world.transport.recorded(),
        sandbox: parts.sandbox.clone(),
        limits: parts.config.limits.clone(),
        before,
        resume: parts.resume.clone(),
    }
}

/// What an earlier run of the session found, when its baseline was complete.
fn earlier_baseline(session: &Session, lines: &[Line]) -> Result<Option<Found>, Cause> {
    let mut found: Option<Found> = None;
    for line in lines {
        match &line.fact {
            Fact::Baseline { git_tree, listing: name } => {
                let files = match name {
                    Some(name) => listing(session, name)
                        .map_err(|error| Cause::new(Outcome::Unusable, format!("read the baseline: {error}")))?,
                    None => BTreeMap::new(),
                };
                found =
                    Some(Found { git_tree: git_tree.clone(), files, checks: Vec::new(), progress: None, cause: None });
            }
            Fact::Checks { iteration: 0, results } => {
                if let Some(found) = &mut found {
                    found.checks.clone_from(results);
                    return Ok(Some(found.clone()));
                }
            }
            _ => {}
        }
    }
    // Without its checks the baseline was not complete; nothing had been changed then, so it is taken again.
    Ok(None)
}

/// The agent's request as the last run left it, and where the loop stands.
fn restore(parts: &RunParts, state: &session::State, head: &str) -> Result<(Conversation, State), Cause> {
    let conversation = History::conversation(parts.endpoint.wire, head, state);
    let last = state.calls.iter().rev().find(|(call, _)| call.lane == crate::event::Lane::Agent);
    if let Some((call, _)) = last
        && !state.sent.is_empty()
        && call.digest != conversation.rest().digest()
    {
        notice(
            &parts.session,
            "history_differs",
            format!("the history as this build encodes it differs from call {} of the last run", call.n),
        )?;
    }
    let mut standing = State {
        iteration: state.iteration,
        verdict: state.verdicts.last().cloned(),
        checks: state.checks.last().map(|(_, results)| results.clone()).unwrap_or_default(),
        steps_taken: steps_of_iteration(&parts.lines),
        ..State::default()
    };
    let ended = state.last_turn.filter(|(iteration, _)| *iteration == state.iteration && *iteration > 0);
    let judged = state.verdicts.last().is_some_and(|verdict| verdict.iteration == state.iteration);
    let checked = parts
        .lines
        .iter()
        .any(|line| matches!(&line.fact, Fact::Progress(progress) if progress.iteration == state.iteration));
    standing.turn = ended.map(|(_, end)| (end, turn_reason(&parts.lines)));
    standing.stage = match ended {
        None if state.iteration > 0 => Stage::Turn,
        // A failed or refused turn has no verdict; its checks and progress were its end.
        Some((_, crate::event::TurnEnd::Failed | crate::event::TurnEnd::Refused)) if checked => Stage::Begin,
        Some(_) if !judged => Stage::After,
        _ => Stage::Begin,
    };
    standing.undecided = judged && undecided(&parts.lines);
    Ok((conversation, standing))
}

/// Whether the last verdict is younger than the last end of a run.
fn undecided(lines: &[Line]) -> bool {
    let last = lines.iter().rev().find(|line| matches!(line.fact, Fact::Verdict { .. } | Fact::End(_)));
    last.is_some_and(|line| matches!(line.fact, Fact::Verdict { .. }))
}

fn turn_reason(lines: &[Line]) -> Option<String> {
    lines.iter().rev().find_map(|line| match &line.fact {
        Fact::Turn { why, .. } => Some(why.clone()),
        _ => None,
    })?
}

/// Agent calls since the last iteration began.
fn steps_of_iteration(lines: &[Line]) -> u64 {
    let mut steps = 0;
    for line in lines {
        match &line.fact {
            Fact::Iteration { .. } => steps = 0,
            Fact::Call(call) if call.lane == crate::event::Lane::Agent => steps += 1,
            _ => {}
        }
    }
    steps
}

/// Whether the current iteration began without its opening message (the runner died between the two lines).
fn opening_missing(state: &session::State) -> bool {
    state.openings < state.iteration
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
