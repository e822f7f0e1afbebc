//! What children may touch: which files they may read and write, which part of the network they may reach.
//!
//! A [`Policy`] is computed once, from what was asked for ([`Wanted`]) and where things stand ([`Places`]). It is a
//! plain list of granted paths: the kernel gets it for commands (`landlock`, `seccomp`, both prepared once in the
//! zygote), and tools that run inside spettro ask [`Policy::may_read`] and [`Policy::may_write`]. What the kernel
//! could not promise is named in the [`Level`].
//!
//! Invariants: a policy grants and never takes away, so of two rules for a path the wider one counts; the home
//! directory, the session store and the directories above them are never granted for writing as a whole; nothing is
//! granted behind a link that commands or a commit could have made, and no place of keys unless it is named.

#[cfg(target_os = "linux")]
mod capabilities;
mod guarded;
#[cfg(target_os = "linux")]
mod landlock;
mod level;
#[cfg(target_os = "linux")]
mod prepare;
mod reads;
mod repository;
mod roots;
#[cfg(target_os = "linux")]
mod seccomp;
mod toolchains;
mod ways;

use std::fmt;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

pub(super) use level::Obtained;
pub use level::{Level, Missing};
#[cfg(target_os = "linux")]
pub(super) use prepare::{Confinement, Confinements, Order, prepare};

/// `sandbox.files`: which files commands may write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Files {
    /// The workspace, temporary folders, caches.
    #[default]
    WorkspaceWrite,
    /// A private temporary folder alone.
    ReadOnly,
    /// Whatever their user may.
    Off,
}

impl Files {
    pub const fn name(self) -> &'static str {
        match self {
            Files::WorkspaceWrite => "workspace-write",
            Files::ReadOnly => "read-only",
            Files::Off => "off",
        }
    }

    pub fn from_name(name: &str) -> Option<Files> {
        [Files::WorkspaceWrite, Files::ReadOnly, Files::Off].into_iter().find(|files| files.name() == name)
    }
}

/// `sandbox.network`: what commands may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    #[default]
    All,
    /// Sockets between local processes only; not even loopback.
    None,
    /// TCP to and on these ports, and nothing else.
    Ports(Vec<u16>),
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Network::All => f.write_str("all"),
            Network::None => f.write_str("none"),
            Network::Ports(ports) => {
                let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
                write!(f, "[{}]", ports.join(", "))
            }
        }
    }
}

/// `sandbox:` of a goal file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    pub files: Files,
    pub network: Network,
    /// To be written besides. Absolute, or in the home directory (`~/…`).
    pub write: Vec<PathBuf>,
    /// To be read besides; likewise.
    pub read: Vec<PathBuf>,
    /// Somebody wrote any of it: what cannot be kept then ends the run.
    pub written: bool,
}

/// Where keys are kept that stand in no variable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyPlaces {
    /// Neither read nor written by commands.
    pub files: Vec<PathBuf>,
    /// Of commands that print one: run outside of the sandbox, and so not written by what is in it.
    pub programs: Vec<PathBuf>,
}

/// Where the things stand that a policy is about.
pub struct Places<'a> {
    /// That the agent works in; canonical.
    pub workspace: &'a Path,
    /// What the workspace is a private copy of, or the workspace itself; canonical.
    pub project: &'a Path,
    /// The user's home directory.
    pub home: Option<&'a Path>,
    /// What the account database calls so, where HOME says something else: ssh and others look there.
    pub account_home: Option<&'a Path>,
    /// Folders of spettro's own: its home, and where sessions are stored.
    pub stores: Vec<PathBuf>,
    pub goal_file: Option<&'a Path>,
    pub keys: &'a KeyPlaces,
    /// The private `TMPDIR` of children; canonical.
    pub temporary: &'a Path,
    /// The value of a variable of spettro's own environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Places<'_> {
    /// `~` and `~/…` in the home directory; other paths as they are.
    fn at_home(&self, path: &Path) -> PathBuf {
        match (path.strip_prefix("~"), self.home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => path.to_owned(),
        }
    }
}

/// What a path is granted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Access {
    /// Seeing the names of what is below, and nothing of what it holds.
    List,
    /// Reading, listing, executing, of everything below.
    Read,
    /// Reading and writing of what is there already, and talking to it as a device.
    Device,
    /// Everything.
    Write,
}

/// One granted path, with all that is below it. Canonical.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    pub path: PathBuf,
    pub access: Access,
}

/// What children and tools may touch. Fixed from a run's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub files: Files,
    pub network: Network,
    /// See [`Wanted::written`].
    pub written: bool,
    pub rules: Vec<Rule>,
    /// What spettro's own git is granted besides, which runs in the same sandbox: what a repository configures (a
    /// filter, say) runs with it.
    pub git: Vec<Rule>,
    /// Folders that are granted less than is usual, and why; one clause each.
    pub narrowed: Vec<String>,
    /// Tests pretend that the kernel knows no newer Landlock than this. It can only take away, and is reported.
    pub pretended_abi: Option<u8>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SandboxError {
    #[error("`{}` contains {what} `{}`", .outer.display(), .inner.display())]
    Holds { outer: PathBuf, what: &'static str, inner: PathBuf },
    #[error("`{key}` names `{}`, which does not exist", .path.display())]
    NoSuchPath { key: &'static str, path: PathBuf },
    #[error("`{key}` names `{}`, which is reached by `{}`, a link that commands could have made", .path.display(), .link.display())]
    Link { key: &'static str, path: PathBuf, link: PathBuf },
}

impl Policy {
    /// No sandbox at all.
    pub fn off() -> Policy {
        Policy {
            files: Files::Off,
            network: Network::All,
            written: false,
            rules: Vec::new(),
            git: Vec::new(),
            narrowed: Vec::new(),
            pretended_abi: None,
        }
    }

    /// Computes what is granted, and creates missing cache folders, which cannot be granted otherwise.
    ///
    /// # Errors
    /// When the workspace or a path of `write` holds the home directory or the session store, and when a named path
    /// does not exist or is reached by a link that commands could have made.
    pub fn new(wanted: &Wanted, places: &Places<'_>) -> Result<Policy, SandboxError> {
        let mut policy =
            Policy { files: wanted.files, network: wanted.network.clone(), written: wanted.written, ..Policy::off() };
        if wanted.files == Files::Off {
            return Ok(policy);
        }
        let kept = reads::Kept::of(places);
        let guarded = guarded::Guarded::new(places, &kept);
        guarded.is_outside(places.workspace)?;
        let mut rules = reads::rules(places, &kept, &mut policy.narrowed);
        rules.extend(roots::rules(wanted, places, &guarded, &mut policy.narrowed)?);
        rules.sort();
        rules.dedup();
        policy.rules = rules;
        Ok(policy)
    }

    /// True when nothing is restricted.
    pub fn is_off(&self) -> bool {
        self.files == Files::Off && self.network == Network::All
    }

    /// Whether a tool may write here. `real` is canonical; of a file that is still to be made, its folder is.
    pub fn may_write(&self, real: &Path) -> bool {
        self.files == Files::Off || self.granted(real, Access::Device)
    }

    /// Whether a tool may read here. `real` is canonical.
    pub fn may_read(&self, real: &Path) -> bool {
        self.files == Files::Off || self.granted(real, Access::Read)
    }

    /// Whether a tool may name what is in this folder. `real` is canonical.
    pub fn may_list(&self, real: &Path) -> bool {
        self.files == Files::Off || self.granted(real, Access::List)
    }

    fn granted(&self, real: &Path, least: Access) -> bool {
        self.rules.iter().any(|rule| rule.access >= least && real.starts_with(&rule.path))
    }
}

/// Whether a folder is, or lies in, a place of keys of a home directory.
pub fn keeps_keys(home: &Path, folder: &Path) -> bool {
    reads::keeps_keys(home, folder)
}

/// Keeps this process's memory, and with it its environment, from other processes of the same user.
///
/// # Errors
/// The system's.
pub(super) fn keep_to_itself() -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// The path without links and `..`, as far as it exists.
fn real(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    match (path.parent(), path.components().next_back()) {
        (Some(parent), Some(Component::Normal(name))) => real(parent).join(name),
        (Some(parent), Some(Component::ParentDir)) => {
            let mut above = real(parent);
            above.pop();
            above
        }
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod places_tests;
#[cfg(test)]
mod tests;
