//! One recorded run, run again: the loop itself, with every port answered from the recording.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use super::answers::TapeAnswers;
use super::clock::{Backwards, FewVars, TapeClock, TapeIds};
use super::cursor::{Cursor, Stop};
use super::exec::TapeExec;
use super::ground::Ground;
use super::live::{LiveAnswers, LiveExec, Mapped, Real, Started};
use super::model::TapeModel;
use super::scratch::Scratch;
use super::{Endpoints, Options};
use crate::event::{Outcome, RunResult};
use crate::goal::{Cause, Config, Replayed, Run, RunParts, early};
use crate::model::Endpoint;
use crate::process::sandbox::{Access, Files, Policy, Rule};
use crate::process::{SignalEvent, Signals, Watchdog};
use crate::session::{self, Fact, Frozen, Line, Session};
use crate::tools::Answers;
use crate::workspace::{Listed, Listings};
use crate::world::{Clock, Exec, Halt, RealDir, Secrets, Why, World};

/// A run is taken to stand still when nothing has happened in so many rounds of its runtime.
const QUIET_ROUNDS: u32 = 24;

/// How often it is looked whether what really works has come to its end.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// What really ran is asked to end, and after this ended.
const GRACE: Duration = Duration::from_secs(5);

/// What one run is put together from.
pub struct Again<'a> {
    pub cursor: Rc<Cursor>,
    pub scratch: Rc<Scratch>,
    pub frozen: &'a Frozen,
    pub config: Config,
    pub endpoints: &'a Endpoints,
    pub options: &'a Options,
    /// The window that a resume's configuration names.
    pub named_window: Option<u64>,
    /// By path, how the files were that ever differed from the baseline.
    pub base_files: &'a BTreeMap<PathBuf, String>,
    pub ground: &'a Rc<Ground>,
}

/// What really runs beside the recording.
pub struct Live<'a> {
    pub real: &'a dyn Real,
    pub started: Started,
    pub policy: Rc<Policy>,
}

impl Again<'_> {
    /// The ports, before there is a session.
    pub fn world(&self) -> (World, Rc<TapeClock>) {
        let limit = self.config.limits.time_ms.map(Duration::from_millis);
        let clock = Rc::new(TapeClock::new(self.cursor.clone(), limit, self.options.clock_offset));
        let model = TapeModel::new(self.cursor.clone(), clock.clone(), self.options.faults, self.options.chunks);
        let world = World {
            exec: Rc::new(TapeExec::new(
                self.cursor.clone(),
                self.scratch.places(PathBuf::new()),
                Rc::new(session::Spool::new(PathBuf::new())),
            )),
            dir: if self.options.backwards { Rc::new(Backwards(RealDir)) } else { Rc::new(RealDir) },
            clock: clock.clone(),
            ids: Rc::new(TapeIds { failed: model.failed() }),
            env: Rc::new(FewVars::default()),
            transport: Rc::new(model),
        };
        (world, clock)
    }

    /// Drives the run to its end, or to where the recording says no more.
    pub async fn drive(
        self,
        session: Session,
        world: World,
        clock: &TapeClock,
        lines: Vec<Line>,
        live: Option<Live<'_>>,
    ) -> Option<Stop> {
        let cursor = self.cursor.clone();
        let start = &cursor.part.start;
        let mut beside = None;
        let places = self.scratch.places(session.dir());
        let roots = self.scratch.roots(start.workspace.as_ref());
        let tape = TapeExec::new(cursor.clone(), places, session.spool());
        let answers = TapeAnswers { cursor: cursor.clone(), ground: self.ground.clone() };
        let (exec, answers): (Rc<dyn Exec>, Rc<dyn Answers>) = match &live {
            None => (Rc::new(tape), Rc::new(answers)),
            Some(live) => {
                let real = Rc::new(Mapped::new(live.started.exec.clone(), roots.clone()));
                let clock = live.real.world().clock;
                let exec = Rc::new(LiveExec::new(cursor.clone(), self.ground.clone(), tape, real, clock.clone()));
                beside = Some(Beside { exec: exec.clone(), clock });
                let (cursor, ground) = (cursor.clone(), self.ground.clone());
                (exec.clone(), Rc::new(LiveAnswers { tape: answers, exec, cursor, ground }))
            }
        };
        let world = World { exec, ..world };
        let gate = cursor.clone();
        session.sync_instead(Rc::new(move || {
            let gate = gate.clone();
            Box::pin(async move { gate.settle().await })
        }));
        session.keep_no_wires();
        let halt = Halt::new();
        let steering: Rc<RefCell<VecDeque<String>>> = Rc::default();
        cursor.begin(session.clone(), steering.clone());
        let (told, signals) = Signals::scripted();
        // As a resume knows it: what an overflow has taught stays learnt.
        let learned = session::fold(&lines).window_tokens.unwrap_or(u64::MAX);
        let agent = &self.endpoints.agent;
        let window_tokens = self.named_window.filter(|window| *window != agent.window_tokens);
        let window_tokens = window_tokens.unwrap_or(agent.window_tokens.min(learned));
        let endpoint = Endpoint { window_tokens, ..agent.clone() };
        let parts = RunParts {
            world: world.clone(),
            halt: halt.clone(),
            session: session.clone(),
            lines,
            endpoint,
            judge: self.endpoints.judge.clone(),
            summarizer: self.endpoints.summarizer.clone(),
            title: self.frozen.title.clone(),
            roots,
            run: start.run.clone(),
            version: start.version.clone(),
            copy: None,
            sandbox: start.sandbox.clone(),
            policy: match &live {
                Some(live) => live.policy.clone(),
                // Tools for files reach the scratch copy, and nothing else of this machine.
                None => Rc::new(Policy {
                    files: Files::WorkspaceWrite,
                    rules: vec![Rule { path: self.scratch.workspace.clone(), access: Access::Write }],
                    ..Policy::off()
                }),
            },
            own_dirs: Vec::new(),
            deltas: false,
            // Some word: without one no patch is kept, and the result says so.
            resume: vec!["spettro".to_owned()],
            steering,
            removed: start.removed.clone(),
            secrets: live.as_ref().map_or_else(Secrets::default, |live| live.started.secrets.clone()),
            notes: Vec::new(),
            tick: Rc::new(|_| {}),
            pulse: Watchdog::none(),
            summarize: |_| String::new(),
            replayed: Some(Replayed {
                frozen: Box::new(self.frozen.clone()),
                answers,
                listings: listings(&cursor, self.base_files, self.ground, &world),
                guards: {
                    let cursor = cursor.clone();
                    Rc::new(move |guards| cursor.guarded(guards))
                },
            }),
            config: Rc::new(self.config),
        };
        let run = async {
            let mut signals = Some(signals);
            match Run::prepare(parts, &mut signals).await {
                Ok(run) => {
                    run.drive(signals).await;
                }
                Err(cause) => not_begun(&session, &start.run, cause),
            }
        };
        let outside = Outside { session: &session, halt: &halt, told: &told };
        let stop = tokio::select! {
            biased;
            () = run => None,
            outcome = stopped(live.as_ref()) => Some(Stop::Signal(outcome)),
            stop = stand(&cursor, clock, &outside, beside.as_ref()) => Some(stop),
        };
        if let Some(live) = &live {
            live.started.exec.shutdown(GRACE).await;
        }
        if matches!(stop, None | Some(Stop::Exhausted)) {
            self.ground.finish(&world, &cursor);
        }
        cursor.conclude();
        cursor.end();
        stop
    }
}

async fn stopped(live: Option<&Live<'_>>) -> Outcome {
    match live {
        Some(live) => live.real.stopped().await,
        None => std::future::pending().await,
    }
}

/// A run that could not begin ends as it did.
fn not_begun(session: &Session, run: &str, cause: Cause) {
    let result: RunResult = early(run, cause.outcome, cause.message, cause.hint);
    let end =
        session::End { run: run.to_owned(), outcome: cause.outcome, result: Box::new(result), leaked: Vec::new() };
    if let Err(error) = session.append(Fact::End(Box::new(end))) {
        tracing::error!(%error, "the end cannot be logged");
    }
}

/// What can come from outside.
struct Outside<'a> {
    session: &'a Session,
    halt: &'a Halt,
    told: &'a UnboundedSender<SignalEvent>,
}

/// What really works while the run stands still, and the time that it takes.
struct Beside {
    exec: Rc<LiveExec>,
    clock: Rc<dyn Clock>,
}

impl Beside {
    /// Whether somebody waits for what really works.
    fn works(&self, clock: &TapeClock) -> bool {
        self.exec.is_waited_for() || (clock.is_slept_on() && self.exec.has_jobs())
    }

    /// Time passes as it does.
    async fn passes(&self, clock: &TapeClock) {
        let before = self.clock.elapsed();
        self.clock.sleep(LOOK_AGAIN).await;
        clock.flow(self.clock.elapsed().saturating_sub(before));
    }
}

/// Whenever the run stands still: lets come what is due from outside, else time pass. Returns when nothing can happen
/// any more.
async fn stand(cursor: &Cursor, clock: &TapeClock, outside: &Outside<'_>, beside: Option<&Beside>) -> Stop {
    let mut told_at = None;
    loop {
        quiet(cursor).await;
        if let Some(stop) = cursor.stop.get() {
            return stop;
        }
        let here = cursor.frontier();
        match cursor.due() {
            Some(fact) if told_at != Some(here) => {
                told_at = Some(here);
                outside.come(fact);
                cursor.stir();
            }
            _ if cursor.is_over() => cursor.stuck(),
            _ if beside.is_some_and(|beside| beside.works(clock)) => {
                if let Some(beside) = beside {
                    beside.passes(clock).await;
                }
            }
            _ if cursor.skip() => {}
            _ if clock.pass() => {}
            _ => cursor.stuck(),
        }
    }
}

/// Resolves when nothing has happened for a while.
async fn quiet(cursor: &Cursor) {
    let mut rounds = 0;
    let mut last = cursor.activity();
    while rounds < QUIET_ROUNDS {
        tokio::task::yield_now().await;
        let now = cursor.activity();
        rounds = if now == last { rounds + 1 } else { 0 };
        last = now;
    }
}

impl Outside<'_> {
    fn come(&self, fact: &Fact) {
        match fact {
            Fact::Interrupted { reason } => {
                let signals = [Outcome::Hangup, Outcome::Interrupt, Outcome::Terminated];
                let signal = signals.into_iter().find(|outcome| outcome.name() == reason).and_then(Outcome::signal);
                // Nobody listens any more when the run is over.
                let _over = self.told.send(SignalEvent::Stop(signal.unwrap_or(15)));
            }
            Fact::Notice { .. } => {
                let _over = self.told.send(SignalEvent::Drain);
            }
            Fact::Halted { why } => {
                let halt = if *why == Why::Idle.name() { Why::Idle } else { Why::TimeLimit };
                if let Err(error) = self.session.append(Fact::Halted { why: why.clone() }) {
                    tracing::error!(%error, "the halt cannot be logged");
                }
                self.halt.set(halt);
            }
            _ => {}
        }
    }
}

/// The recorded listings: the files that count are those that ever differed from the baseline.
fn listings(cursor: &Rc<Cursor>, base: &BTreeMap<PathBuf, String>, ground: &Rc<Ground>, world: &World) -> Listings {
    let (cursor, base) = (cursor.clone(), base.clone());
    let (ground, world) = (ground.clone(), world.clone());
    Rc::new(move || {
        let Some(at) = cursor.listing() else {
            cursor.unlisted.set(true);
            ground.unlisted(&cursor.part);
            return None;
        };
        let Fact::Listing { digest, changed } = cursor.part.fact(at) else { return None };
        ground.listing(&world, &cursor, at);
        let mut files = base.clone();
        for change in changed {
            let path = PathBuf::from(&change.path);
            match &change.after {
                Some(after) => files.insert(path, after.clone()),
                None => files.remove(&path),
            };
        }
        Some(Listed { digest: digest.clone(), files })
    })
}
