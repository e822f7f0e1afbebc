//! The sandbox of a run: from the configuration to a policy, and from what the kernel gives to a level or an end.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::failure::Failure;
use crate::event::Outcome;
use crate::goal::{Config, Effective, Problem};
use crate::process::Process;
use crate::process::sandbox::{Access, KeyPlaces, Level, Places, Policy, Rule, SandboxError, Wanted, keeps_keys};
use crate::workspace::make_read_only_beside;
use crate::world::{Env, KeyAt, RealEnv, account_home, user_home};

/// Where spettro's own things are, of which commands see little or nothing.
#[derive(Debug, Clone)]
pub struct Ground {
    /// spettro's home, and where sessions are stored.
    pub stores: Vec<PathBuf>,
    /// Where the configuration says that keys are.
    pub keys: KeyPlaces,
    /// The private `TMPDIR` of commands.
    pub temporary: PathBuf,
    /// See [`Policy::pretended_abi`].
    pub pretended_abi: Option<u8>,
}

impl Ground {
    /// What commands of this configuration may touch, in `workspace`, and spettro's git besides in `scratch`, once
    /// there is such a folder; what it is told stands beside.
    ///
    /// # Errors
    /// A usage error when that cannot be kept apart from spettro's own things.
    pub fn policy(&self, config: &Config, workspace: &Path, scratch: Option<&Path>) -> Result<Policy, Failure> {
        let policy = self.wanted_of(&config.sandbox, config.goal_file.as_deref(), workspace, &config.workspace)?;
        let git = match scratch {
            Some(scratch) => vec![
                Rule { path: scratch.to_owned(), access: Access::Write },
                Rule { path: make_read_only_beside(scratch)?, access: Access::Read },
            ],
            None => Vec::new(),
        };
        Ok(Policy { git, ..policy })
    }

    /// The same for what is wanted, without a configuration.
    ///
    /// # Errors
    /// As [`Ground::policy`].
    pub fn wanted(&self, wanted: &Wanted, goal_file: Option<&Path>, workspace: &Path) -> Result<Policy, Failure> {
        self.wanted_of(wanted, goal_file, workspace, workspace)
    }

    /// `workspace` is `project` or a private copy of it.
    fn wanted_of(
        &self,
        wanted: &Wanted,
        goal_file: Option<&Path>,
        workspace: &Path,
        project: &Path,
    ) -> Result<Policy, Failure> {
        let env = RealEnv;
        let (home, account_home) = (user_home(&env), account_home());
        let places = Places {
            workspace,
            project,
            home: home.as_deref(),
            account_home: account_home.as_deref(),
            stores: self.stores.clone(),
            goal_file,
            keys: &self.keys,
            temporary: &self.temporary,
            variable: &|name| env.var(name),
        };
        let policy = Policy::new(wanted, &places)?;
        Ok(Policy { pretended_abi: self.pretended_abi, ..policy })
    }
}

/// What is known to keep a run's commands from being confined, before anything is made.
pub fn foreseen(effective: &Effective, home: Option<&Path>) -> Option<Problem> {
    let config = &effective.config;
    let stores = home.iter().map(|home| (*home).to_owned()).collect();
    let keys = key_places(config);
    let ground = Ground { stores, keys, temporary: std::env::temp_dir().join("spettro-0"), pretended_abi: None };
    let failure = ground.policy(config, &config.workspace, None).err()?;
    let key = ["sandbox.write", "sandbox.read"].into_iter().find(|key| failure.message.contains(key));
    Some(effective.problem(key.unwrap_or("workspace"), failure.message, failure.hint))
}

impl From<SandboxError> for Failure {
    fn from(error: SandboxError) -> Self {
        let hint = match &error {
            SandboxError::Holds { .. } => {
                "commands could change what spettro relies on; work in a folder of its own, or write `--sandbox off`"
            }
            SandboxError::NoSuchPath { .. } => "make it first, or leave it out",
            SandboxError::Link { .. } => "name the place that it leads to, if you know it to be right",
        };
        Failure::usage(&error).hint(hint)
    }
}

/// Where the keys of a configuration's endpoints are, as far as they stand in no variable.
pub fn key_places(config: &Config) -> KeyPlaces {
    let mut places = KeyPlaces::default();
    for at in config.providers.values().filter_map(|provider| provider.api_key_at.as_ref()) {
        match at {
            KeyAt::File(path) => places.files.push(path.clone()),
            KeyAt::Command(argv) => {
                let words = argv.iter().flat_map(|argument| argument.split_whitespace()).map(PathBuf::from);
                places.programs.extend(words.filter(|path| path.is_absolute() && path.is_file()));
            }
        }
    }
    places
}

/// The private `TMPDIR` of commands: where temporary folders are, unless that is inside one of `stores` or a place of
/// keys. Its path has no links.
///
/// # Errors
/// 23 when none can be made.
pub fn temporary_folder(stores: &[PathBuf]) -> Result<TempDir, Failure> {
    let homes: Vec<PathBuf> = [user_home(&RealEnv), account_home()].into_iter().flatten().collect();
    let real = |folder: &Path| folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let taken = |folder: &Path| {
        stores.iter().any(|store| folder.starts_with(store) || folder.starts_with(real(store)))
            || homes.iter().any(|home| keeps_keys(home, folder))
    };
    let usual = ["/tmp", "/var/tmp"].map(PathBuf::from);
    let named = real(&std::env::temp_dir());
    let base = std::iter::once(named.clone()).chain(usual.map(|folder| real(&folder))).find(|folder| !taken(folder));
    tempfile::Builder::new()
        .prefix("spettro-")
        .tempdir_in(base.unwrap_or(named))
        .map_err(|error| Failure::new(Outcome::Environment, format!("make a temporary folder: {error}")))
}

/// Confines the commands that `exec` starts from now on.
///
/// # Errors
/// 23 when the policy was written and this system cannot keep it.
pub fn confine(exec: &Process, policy: &Policy) -> Result<Level, Failure> {
    let level = exec.confine(policy)?;
    let broken = level.broken();
    if !policy.written || broken.is_empty() {
        return Ok(level);
    }
    let names: Vec<&str> = broken.iter().map(|missing| missing.name()).collect();
    let mut needs: Vec<&str> = broken.iter().map(|missing| missing.needs()).collect();
    needs.dedup();
    let message = format!(
        "the sandbox as written (`{}, network {}`) cannot be kept on this system: no guarantee for {}",
        policy.files.name(),
        policy.network,
        names.join(", ")
    );
    Err(Failure::new(Outcome::Environment, message).hint(format!(
        "it needs {}; without `sandbox:` and `--sandbox` a run takes what there is, and `--sandbox off` goes without",
        needs.join(", ")
    )))
}
