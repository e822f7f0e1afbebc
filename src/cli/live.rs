//! Live runs: found by session or by workspace, and asked through their control socket.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::failure::Failure;
use super::lanes::NoExec;
use super::run::current_dir;
use crate::control::{self, Answer, ControlError, Request};
use crate::event::Outcome;
use crate::session::{self, Live, Store};
use crate::world::{RealClock, RealDir, RealEnv, RealIds, World, home_dir};

/// Where sessions are looked for.
pub struct Shelf {
    world: World,
    store: Store,
    workspace: PathBuf,
}

/// A session that somebody has open.
pub struct Found {
    pub id: String,
    live: Live,
}

impl Shelf {
    /// The sessions of `SPETTRO_HOME` or of `--session-dir`, seen from the current folder.
    ///
    /// # Errors
    /// When there is no home directory or no current folder.
    pub fn open(session_dir: Option<&Path>) -> Result<Shelf, Failure> {
        let workspace = current_dir()?;
        let root = match (session_dir, home_dir(&RealEnv)) {
            (Some(dir), _) => workspace.join(dir),
            (None, Some(home)) => home.join("sessions"),
            (None, None) => {
                return Err(Failure::usage("there is no home directory that could hold sessions")
                    .hint("set `HOME` or `SPETTRO_HOME`, or name the folder with `--session-dir`"));
            }
        };
        let world = World {
            transport: Rc::new(crate::model::Http::new()),
            exec: Rc::new(NoExec),
            dir: Rc::new(RealDir),
            clock: Rc::new(RealClock::new()),
            ids: Rc::new(RealIds::random().map_err(|error| Failure::new(Outcome::Environment, error))?),
            env: Rc::new(RealEnv),
        };
        Ok(Shelf { world, store: Store::new(root), workspace })
    }

    /// The live run of a session: its id, a unique prefix, or `latest`.
    ///
    /// # Errors
    /// An unknown id, and a session that is not running.
    pub fn session(&self, id: &str) -> Result<Found, Failure> {
        let dir = self.store.find(&self.world, &self.workspace, id)?;
        let listed = Store::look(&dir)?;
        match session::live(&dir) {
            Some(live) => Ok(Found { id: listed.id, live }),
            None => Err(not_running(&listed.id, listed.outcome)),
        }
    }

    /// The only live run of this workspace; `None` when there is none.
    ///
    /// # Errors
    /// When there are several.
    pub fn only(&self) -> Result<Option<Found>, Failure> {
        // What is broken is no live run.
        let (listed, _broken) = self.store.list(&self.world, &self.workspace);
        let mut live: Vec<Found> = listed
            .into_iter()
            .filter_map(|session| Some(Found { live: session::live(&session.dir)?, id: session.id }))
            .collect();
        if live.len() > 1 {
            let ids: Vec<&str> = live.iter().map(|found| found.id.as_str()).collect();
            return Err(Failure::usage(format!("several runs of this workspace are live: {}", ids.join(", ")))
                .hint("name one with `--session ID`"));
        }
        Ok(live.pop())
    }

    pub const fn world(&self) -> &World {
        &self.world
    }

    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// The folder of a session: its id, a unique prefix, or `latest` of this workspace.
    ///
    /// # Errors
    /// An unknown id.
    pub fn find(&self, id: &str) -> Result<PathBuf, Failure> {
        Ok(self.store.find(&self.world, &self.workspace, id)?)
    }

    pub fn workspace(&self) -> &Path {
        &self.workspace
    }
}

impl Found {
    /// Asks the run.
    ///
    /// # Errors
    /// When it cannot be reached, ends meanwhile, or refuses.
    pub fn ask(&self, request: &Request) -> Result<Answer, Failure> {
        match control::ask(&self.live, request) {
            Ok(Answer::Error { message }) => Err(Failure::usage(format!("session `{}`: {message}", self.id))),
            Ok(answer) => Ok(answer),
            Err(error) => Err(failure(&self.id, &error)),
        }
    }

    /// An answer to another question than was asked.
    pub fn misunderstood(&self) -> Failure {
        Failure::new(Outcome::Internal, format!("session `{}` answered another question", self.id))
    }
}

fn failure(id: &str, error: &ControlError) -> Failure {
    match error {
        ControlError::Ended => Failure::new(Outcome::Saved, format!("session `{id}` is ending"))
            .hint(format!("when it has ended, `spettro run --resume {id}` goes on with it")),
        ControlError::Deaf => Failure::new(Outcome::Saved, format!("session `{id}` cannot be told anything yet"))
            .hint("it is just starting or ending: try again in a moment"),
        ControlError::TooLong => Failure::usage(error),
        error => Failure::new(Outcome::Environment, format!("session `{id}`: {error}")),
    }
}

fn not_running(id: &str, outcome: Option<Outcome>) -> Failure {
    let failure = Failure::usage(format!("session `{id}` is not running"));
    match outcome {
        Some(Outcome::Met) => failure.hint("its goal is met: there is nothing to go on with"),
        _ => failure.hint(format!("`spettro run --resume {id}` goes on with it")),
    }
}
