//! This machine for a replay in which tools really run: the same helper, environment and sandbox as in a run.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use tempfile::TempDir;
use tokio::sync::Mutex;

use super::super::args::ReplayArgs;
use super::super::confine::{self, Ground};
use super::super::failure::Failure;
use super::super::lanes::NoExec;
use super::super::models::Models;
use super::super::run::{current_dir, key_names, secrets};
use crate::cassette::Tape;
use crate::event::Outcome;
use crate::goal::{Cause, Config};
use crate::model::{Endpoint, Keys};
use crate::process::sandbox::Policy;
use crate::process::{self, Dispositions, ProcessOptions, SignalEvent, Signals};
use crate::replay::{Real, Started};
use crate::world::{Boxed, Env, Ids, RealClock, RealDir, RealEnv, RealIds, World, home_dir};

pub struct Machine {
    world: World,
    /// `--repo`.
    repo: Option<PathBuf>,
    cwd: PathBuf,
    /// Where spettro's own things are.
    stores: Vec<PathBuf>,
    temporary: TempDir,
    endpoints: Vec<Endpoint>,
    /// Those that no variable holds.
    keys: Option<Keys>,
    run_id: String,
    signals: Mutex<Option<Signals>>,
}

impl Machine {
    /// Listens to signals from here on.
    ///
    /// # Errors
    /// A `--repo` that is no folder, and a system without a place for temporary files, chance, or signals.
    pub fn new(args: &ReplayArgs, tape: &Tape, dispositions: &Dispositions) -> Result<Machine, Failure> {
        let cwd = current_dir()?;
        let repo = args.repo.as_ref().map(|folder| cwd.join(folder));
        if let Some(folder) = repo.as_ref().filter(|folder| !folder.is_dir()) {
            return Err(Failure::usage(format!("`--repo`: `{}` is no folder", folder.display())));
        }
        let home = home_dir(&RealEnv);
        let sessions = args.session_dir.as_ref().map(|dir| cwd.join(dir));
        let stores: Vec<PathBuf> = home.into_iter().chain(sessions).collect();
        let temporary = confine::temporary_folder(&stores)?;
        let ids = RealIds::random().map_err(|error| Failure::new(Outcome::Environment, error))?;
        let run_id = format!("replay-{:016x}", ids.draw("run id"));
        let signals = Signals::install(dispositions)?;
        let world = World {
            transport: Rc::new(crate::model::Http::new()),
            exec: Rc::new(NoExec),
            dir: Rc::new(RealDir),
            clock: Rc::new(RealClock::new()),
            ids: Rc::new(ids),
            env: Rc::new(RealEnv),
        };
        let (endpoints, signals) = (super::endpoints(tape), Mutex::new(Some(signals)));
        Ok(Machine { world, repo, cwd, stores, temporary, endpoints, keys: None, run_id, signals })
    }

    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Other models than the recorded ones are asked: their keys are secrets too.
    pub fn ask(&mut self, models: &Models) {
        let lanes = [Some(&models.agent), models.judge.as_ref(), Some(&models.summarizer)];
        self.endpoints.extend(lanes.into_iter().flatten().cloned());
        self.keys = Some(models.keys.clone());
    }
}

impl Real for Machine {
    fn world(&self) -> World {
        self.world.clone()
    }

    fn repositories(&self, recorded: &Path) -> Vec<PathBuf> {
        match &self.repo {
            Some(repo) => vec![repo.clone()],
            None => vec![self.cwd.clone(), recorded.to_owned()],
        }
    }

    fn start(&self, config: &Config, workspace: &Path) -> Result<Started, Cause> {
        let endpoints = || self.endpoints.iter().map(Some);
        let secrets = secrets(config, endpoints(), &RealEnv);
        if let Some(keys) = &self.keys {
            keys.hide_in(&secrets);
        }
        let child = process::child_environment(
            &RealEnv.vars(),
            &config.env,
            &key_names(endpoints()),
            &secrets,
            workspace,
            &self.run_id,
            self.temporary.path(),
        );
        let options = ProcessOptions {
            environment: child.vars,
            git_environment: child.git,
            secrets: secrets.clone(),
            run_id: self.run_id.clone(),
            keep_leftovers: config.leftovers_run,
            ..ProcessOptions::default()
        };
        let exec = process::start(options).map_err(Failure::from)?;
        Ok(Started { exec, removed: child.removed, secrets })
    }

    fn confine(
        &self,
        started: &Started,
        config: &Config,
        workspace: &Path,
        sessions: &Path,
        git: &Path,
    ) -> Result<(Rc<Policy>, String), Cause> {
        let stores = self.stores.iter().cloned().chain([sessions.to_owned()]).collect();
        let keys = confine::key_places(config);
        let ground = Ground { stores, keys, temporary: self.temporary.path().to_owned(), pretended_abi: None };
        let policy = ground.policy(config, workspace, Some(git))?;
        let level = confine::confine(&started.exec, &policy)?;
        Ok((Rc::new(policy), level.to_string()))
    }

    fn stopped(&self) -> Boxed<'_, Outcome> {
        Box::pin(async {
            let mut signals = self.signals.lock().await;
            let Some(signals) = signals.as_mut() else { return std::future::pending().await };
            loop {
                if let SignalEvent::Stop(signal) = signals.next().await {
                    return Outcome::of_signal(signal);
                }
            }
        })
    }

    fn signals(&self) -> Option<Signals> {
        self.signals.try_lock().ok()?.take()
    }
}

impl From<Failure> for Cause {
    fn from(failure: Failure) -> Cause {
        let cause = Cause::new(failure.outcome, failure.message);
        Cause { hint: failure.hint, ..cause }
    }
}
