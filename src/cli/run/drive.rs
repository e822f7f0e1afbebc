//! From the first await to the result: lock, session, workspace and control socket around the loop.

use std::cell::RefCell;
use std::convert::Infallible;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use super::super::args::RunArgs;
use super::super::confine::{self, Ground};
use super::super::failure::Failure;
use super::super::logging::Log;
use super::super::models::{ask_windows, read_keys};
use super::broken::{give_up, not_begun};
use super::earlier::Earlier;
use super::stuck::Known;
use crate::cassette::{Places, Recorder};
use crate::control::{Desk, Server};
use crate::event::{Outcome, Record, RunResult};
use crate::goal::{Config, Run, RunParts, WorkspaceMode, own_dirs};
use crate::model::{Endpoint, Keys};
use crate::process::{Process, SignalEvent, Signals, Watchdog};
use crate::report::{Console, summary_markdown};
use crate::session::{Fact, Listener, Session, SessionError, Store, WorkspaceLock};
use crate::world::{Halt, Roots, Secrets, World};

/// The listener that shows events.
struct Shown(Rc<Console>, Arc<Known>);

impl Listener for Shown {
    fn event(&self, record: &Record) {
        self.1.shown(record.seq);
        self.0.event(record);
    }
}

pub(super) struct Place {
    pub home: PathBuf,
    pub session_root: PathBuf,
    pub store: Store,
}

/// The session of a run, and the command that resumes it, once there is one.
pub(super) type Begun = Rc<RefCell<Option<(Session, Vec<String>)>>>;

/// A run that is about to start.
pub(super) struct Go<'a> {
    pub args: &'a RunArgs,
    pub begun: Begun,
    pub known: Arc<Known>,
    pub watchdog: Watchdog,
    pub world: World,
    /// The world's `Exec`.
    pub exec: Rc<Process>,
    pub ground: Ground,
    pub place: Place,
    pub config: Config,
    pub agent: Endpoint,
    pub judge: Option<Endpoint>,
    pub summarizer: Endpoint,
    pub keys: Keys,
    pub earlier: Option<Earlier>,
    pub notes: Vec<String>,
    pub run_id: &'a str,
    pub console: Rc<Console>,
    /// Variables that children do not see.
    pub removed: Vec<String>,
    pub secrets: Secrets,
    pub title: Option<String>,
    pub log: Log,
}

impl Go<'_> {
    pub(super) async fn drive(self, mut signals: Signals) -> Result<RunResult, Failure> {
        let Go { args, world, exec, ground, place, config, mut agent, mut judge, mut summarizer, .. } = self;
        let Go { keys, earlier, .. } = self;
        let Go { mut notes, run_id, console, removed, secrets, title, log, known, watchdog, .. } = self;
        tokio::select! {
            biased;
            signal = stopped(&mut signals) => {
                let outcome = Outcome::of_signal(signal);
                return Err(Failure::new(outcome, format!("stopped by {}", outcome.name())));
            }
            read = async {
                read_keys(&keys, [&agent, &summarizer].into_iter().chain(&judge)).await?;
                if earlier.is_none() {
                    let lanes = [&mut agent, &mut summarizer].into_iter().chain(&mut judge);
                    ask_windows(&world, lanes, &mut notes).await;
                }
                Ok::<(), Failure>(())
            } => read?,
        }
        let project = config.workspace.clone();
        let lock = match config.workspace_mode {
            WorkspaceMode::InPlace => Some(lock(&world, &place.home, &project, run_id).await?),
            WorkspaceMode::Copy => None,
        };
        let shown: Rc<dyn Listener> = Rc::new(Shown(console.clone(), known.clone()));
        let ephemeral = if args.ephemeral {
            let folder = tempfile::Builder::new()
                .prefix("spettro-session-")
                .tempdir()
                .map_err(|error| Failure::new(Outcome::Environment, format!("make a private folder: {error}")))?;
            Some(folder)
        } else {
            None
        };
        let store = match &ephemeral {
            Some(folder) => Store::new(folder.path().to_owned()),
            None => place.store,
        };
        let (session, lines) = match &earlier {
            Some(earlier) => {
                let opened = Session::open(&world, &earlier.dir, run_id, vec![shown]).await?;
                notes.extend(opened.notes);
                let lines =
                    if opened.lines.len() >= earlier.lines.len() { opened.lines } else { earlier.lines.clone() };
                (opened.session, lines)
            }
            None => {
                let id = Store::new_id(&world);
                (Session::create(&world, &store, &project, &id, run_id, vec![shown])?, Vec::new())
            }
        };
        log.keep(session.dir().join("debug.log"));
        if ephemeral.is_none() {
            // By it the next start finds what this run leaves should it be killed.
            if let Err(error) = exec.open_ledger(&session.dir()) {
                return Ok(not_begun(&world, &session, run_id, error.into(), earlier.is_none(), None).await);
            }
        }
        let copy = match config.workspace_mode {
            WorkspaceMode::InPlace => None,
            WorkspaceMode::Copy => {
                let to = place.home.join("workspaces").join(session.id());
                match copy(&world, &to, &project, earlier.is_some(), &mut notes) {
                    Ok(copy) => Some(copy),
                    Err(failure) => {
                        return Ok(not_begun(&world, &session, run_id, failure, earlier.is_none(), None).await);
                    }
                }
            }
        };
        let confined = {
            // Only now it is known where all this is.
            let workspace = copy.as_deref().unwrap_or(&project);
            let kept = ephemeral.iter().map(|folder| folder.path().to_owned());
            let ground = Ground { stores: ground.stores.iter().cloned().chain(kept).collect(), ..ground };
            let scratch = session.git_dir();
            let policy = scratch.map_err(Failure::from).and_then(|dir| ground.policy(&config, workspace, Some(&dir)));
            policy.and_then(|policy| Ok((confine::confine(&exec, &policy)?, Rc::new(policy))))
        };
        let (level, policy) = match confined {
            Ok(confined) => confined,
            Err(failure) => {
                return Ok(not_begun(&world, &session, run_id, failure, earlier.is_none(), copy.as_deref()).await);
            }
        };
        let roots = Roots::same(copy.clone().unwrap_or_else(|| project.clone()));
        let mut own = own_dirs(&place.home, &place.session_root, &roots.real);
        own.push(session.dir());
        let repository = roots.real.ancestors().find(|folder| folder.join(".git").exists()).map(Path::to_owned);
        let (session_dir, workspace) = (session.dir(), roots.real.clone());
        let places = Places { session: session_dir, workspace, repository, secrets: secrets.clone() };
        let world = World { exec: Rc::new(Recorder::new(world.exec.clone(), session.clone(), places)), ..world };
        let halt = Halt::new();
        let console_tick = console.clone();
        let session_id = session.id();
        let mut resume = vec!["spettro".to_owned(), "run".to_owned(), "--resume".to_owned(), session_id.clone()];
        if args.session_dir.is_some() {
            // Absolute: the command works from any folder.
            resume.extend(["--session-dir".to_owned(), place.session_root.to_string_lossy().into_owned()]);
        }
        if ephemeral.is_none() {
            known.began(session.dir(), resume.clone());
            self.begun.replace(Some((session.clone(), resume.clone())));
        }
        notes.extend(removed_note(&removed));
        let desk = Desk {
            world: world.clone(),
            session: session.clone(),
            halt: halt.clone(),
            steering: Rc::default(),
            secrets: secrets.clone(),
            run: run_id.to_owned(),
        };
        let steering = desk.steering.clone();
        let hidden = secrets.clone();
        let parts = RunParts {
            world: world.clone(),
            halt,
            session: session.clone(),
            lines,
            config: Rc::new(config),
            endpoint: agent,
            judge,
            summarizer,
            title,
            roots,
            run: run_id.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            copy,
            sandbox: level.to_string(),
            policy,
            own_dirs: own,
            deltas: args.deltas || args.verbose,
            resume: if ephemeral.is_some() { Vec::new() } else { resume },
            steering: steering.clone(),
            notes,
            removed,
            secrets,
            tick: Rc::new(move |since| console_tick.tick(since)),
            summarize: summary_markdown,
            pulse: watchdog.clone(),
            replayed: None,
        };
        let kept = parts.copy.clone();
        let mut signals = Some(signals);
        let mut result = match Run::prepare(parts, &mut signals).await {
            Ok(run) if ephemeral.is_some() => run.drive(signals).await,
            Ok(run) => {
                // What is asked becomes facts, and those come after the ones that begin a run.
                tokio::select! {
                    biased;
                    result = run.drive(signals) => result,
                    never = serve(desk) => match never {},
                }
            }
            Err(cause) => give_up(&world, &session, run_id, cause, earlier.is_none(), kept.as_deref()).await,
        };
        // What follows is for as long as it takes.
        watchdog.off();
        let undelivered = steering.borrow().len();
        if undelivered > 0 {
            let messages = if undelivered == 1 { "message" } else { "messages" };
            console
                .notice(&format!("{undelivered} steering {messages} did not reach the agent; a resume delivers them"));
        }
        if let Some(file) = &args.cassette {
            super::record::write(&session, file, &hidden, &console, &mut result);
        }
        drop(lock);
        Ok(result)
    }
}

/// The signal that ends what is done before there is a session.
async fn stopped(signals: &mut Signals) -> i32 {
    loop {
        if let SignalEvent::Stop(signal) = signals.next().await {
            return signal;
        }
    }
}

/// Listens for other processes. A run that cannot be talked to is still a run: it says so and goes on.
async fn serve(desk: Desk) -> Infallible {
    let session = desk.session.clone();
    let why = match Server::listen(desk) {
        Ok(server) => match session.name_socket(server.socket()) {
            Ok(()) => match server.serve().await {},
            Err(error) => error.to_string(),
        },
        Err(error) => error.to_string(),
    };
    let text = format!("`steer`, `stop` and `jobs` cannot reach this run: {why}");
    if let Err(error) = session.append(Fact::Notice { code: "no_control".to_owned(), text }) {
        // The loop meets the same error, and ends the run with it.
        tracing::error!(%error, "a notice cannot be logged");
    }
    std::future::pending().await
}

/// The private copy of a project, made at the session's first run and kept. A resume needs that one: in another the
/// agent's work would be missing, of which it takes to be there.
fn copy(world: &World, to: &Path, project: &Path, resumed: bool, notes: &mut Vec<String>) -> Result<PathBuf, Failure> {
    if !resumed {
        notes.extend(crate::workspace::copy(world, project, to)?);
    } else if !to.is_dir() {
        return Err(Failure::new(Outcome::Unusable, format!("the session's copy `{}` is gone", to.display()))
            .hint("what was done in it cannot be gone on with: start anew without `--resume`"));
    }
    Ok(to.to_owned())
}

/// The lock of the workspace. It stands in spettro's own folder, also when no session does.
async fn lock(world: &World, home: &Path, project: &Path, run_id: &str) -> Result<WorkspaceLock, Failure> {
    WorkspaceLock::take(world, home, project, run_id).await.map_err(|error| {
        let unwritable = matches!(&error, SessionError::Io { error, .. }
            if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem));
        let failure = Failure::from(error);
        match unwritable {
            true => failure
                .hint("locks stand in spettro's own folder, with `--ephemeral` too; `SPETTRO_HOME` names another one"),
            false => failure,
        }
    })
}

/// How many variables children do not see, and how to let one through.
fn removed_note(removed: &[String]) -> Option<String> {
    if removed.is_empty() {
        return None;
    }
    let (count, look, pass) = match removed.len() {
        1 => ("1 variable".to_owned(), "that looks like a secret is kept", "it"),
        count => (format!("{count} variables"), "that look like secrets are kept", "one"),
    };
    Some(format!("{count} {look} from commands (`env.pass` lets {pass} through)"))
}
