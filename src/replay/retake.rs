//! A retake: goal, steering and configuration of a recorded session against other replies, in a scratch workspace, and
//! what came of it beside what had come of the session.
//!
//! Invariant: it is a run like any other, with its limits, its sandbox and its teardown; of the recording it has the
//! workspace, the goal and what was said to the agent.

mod report;
mod steers;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

pub use self::report::{Against, Done, RetakeReport};
use self::report::{Side, report};
use self::steers::Steers;
use super::live::{Mapped, Real, fill};
use super::scratch::{Asked, Scratch};
use super::{Endpoints, ReplayError};
use crate::cassette::Tape;
use crate::event::RunResult;
use crate::goal::{Config, Run, RunParts, early};
use crate::session::{Fact, Listener, RunStart, Session, Store};
use crate::world::{Halt, Transport, World};

/// How long what is left running has to end.
const GRACE: Duration = Duration::from_secs(5);

/// What a session is run against, and with what.
pub struct Retake<'a> {
    pub against: Against,
    /// The session's; goal and limits are its, the models may be others.
    pub config: Config,
    pub endpoints: Endpoints,
    pub transport: Rc<dyn Transport>,
    pub real: &'a dyn Real,
    /// Where the scratch folder is made.
    pub temporary: PathBuf,
    /// Hears what happens.
    pub listener: Rc<dyn Listener>,
    /// Called about once a second.
    pub tick: Rc<dyn Fn(Duration)>,
}

/// Runs a session's goal again.
///
/// # Errors
/// When there is no session in the recording, its workspace cannot be put together, or no run could begin.
pub fn retake(tape: &Rc<Tape>, retake: Retake<'_>) -> Result<RetakeReport, ReplayError> {
    if !tape.is_session() {
        return Err(ReplayError::RepliesOnly(tape.head().provenance.clone()));
    }
    let start = first_run(tape)?;
    let scratch = Scratch::new(&retake.temporary, &start, Asked::of(tape.facts()), false)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ReplayError::Runtime)?;
    let local = tokio::task::LocalSet::new();
    let against = retake.against.clone();
    let (now, result) = local.block_on(&runtime, again(tape, retake, &start, &scratch))?;
    Ok(report(tape, against, now, &result))
}

fn first_run(tape: &Tape) -> Result<RunStart, ReplayError> {
    let run = tape.facts().iter().find_map(|line| match &line.fact {
        Fact::Run(start) => Some((**start).clone()),
        _ => None,
    });
    run.ok_or_else(|| ReplayError::Lacks("a run".to_owned()))
}

async fn again(
    tape: &Tape,
    retake: Retake<'_>,
    start: &RunStart,
    scratch: &Scratch,
) -> Result<(Side, RunResult), ReplayError> {
    let Retake { mut config, endpoints, transport, real, listener, tick, .. } = retake;
    fill(real, &config, tape, start, scratch).await?;
    // It stands outside of what is worked on.
    config.goal_file = None;
    config.workspace.clone_from(&scratch.workspace);
    let started = real.start(&config, &scratch.workspace).map_err(ReplayError::Real)?;
    let roots = scratch.roots(Path::new(&start.workspace));
    let exec = Rc::new(Mapped::new(started.exec.clone(), roots.clone()));
    let world = World { exec, transport, ..real.world() };
    let steers = Rc::new(Steers::of(tape.facts()));
    let store = Store::new(scratch.sessions());
    let id = Store::new_id(&world);
    let listeners = vec![listener, steers.clone()];
    let session = Session::create(&world, &store, &roots.shown, &id, &start.run, listeners)?;
    let git = session.git_dir()?;
    let confined = real.confine(&started, &config, &scratch.workspace, &scratch.sessions(), &git);
    let (policy, level) = confined.map_err(ReplayError::Real)?;
    let steering = Rc::new(RefCell::default());
    steers.begin(session.clone(), Rc::clone(&steering));
    let parts = RunParts {
        world: world.clone(),
        halt: Halt::new(),
        session: session.clone(),
        lines: Vec::new(),
        config: Rc::new(config),
        endpoint: endpoints.agent,
        judge: endpoints.judge,
        summarizer: endpoints.summarizer,
        title: None,
        roots,
        run: start.run.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        copy: None,
        sandbox: level,
        policy,
        own_dirs: vec![scratch.sessions()],
        deltas: false,
        // Nothing of it is kept.
        resume: Vec::new(),
        steering,
        removed: started.removed,
        secrets: started.secrets,
        notes: Vec::new(),
        tick,
        summarize: |_| String::new(),
        pulse: crate::process::Watchdog::none(),
        replayed: None,
    };
    let mut signals = real.signals();
    let result = match Run::prepare(parts, &mut signals).await {
        Ok(run) => run.drive(signals).await,
        Err(cause) => {
            world.exec.shutdown(GRACE).await;
            early(&start.run, cause.outcome, cause.message, cause.hint)
        }
    };
    steers.end();
    let (_, lines) = Session::read(&session.dir())?;
    let mut side = Side::of(&lines);
    side.unsaid = steers.left();
    side.other_requests = world.transport.differing();
    Ok((side, result))
}
