//! What in a workspace makes git or spettro act otherwise later: git's configuration and hooks, spettro's own two files.
//!
//! After each command a handful of stats says whether one of them moved, and by whom. At the end of a turn they are
//! compared by what they hold. Ordinary work in `.git/config` (`user.*`, `branch.*`, `remote.*`) is taken as it is;
//! what runs a program some day is put back. This is the one place where the room writes into the user's workspace.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::CWD;

use super::repository::Repository;
use super::settings::runs_a_program;
use super::stamp::Stamp;
use super::{Git, WorkspaceError};
use crate::world::{Roots, World, beneath, regular};

/// Larger files are none that anybody wrote by hand: they count as odd.
const MOST_BYTES: u64 = 4 << 20;
/// Of the protected files, so many are looked at after each command. At the end of a turn all are.
const MOST_EXTRA: usize = 32;

/// The two files of a workspace by which later runs of spettro go.
const OWN: [&str; 2] = [".spettro/config.yaml", ".spettro/memory.md"];

/// Watches from the moment it is made.
pub struct Tripwire {
    root: PathBuf,
    git: Rc<Git>,
    /// The repository as it was found.
    repository: Option<Repository>,
    watched: BTreeMap<PathBuf, Watched>,
    /// Folders of hooks, and protected files: looked at, and compared elsewhere or by their entries.
    extra: BTreeMap<PathBuf, Option<Stamp>>,
    /// What moved since the last comparison, and by which command it was first seen to.
    moved: BTreeMap<PathBuf, String>,
}

struct Watched {
    kind: Kind,
    /// What it held when it was last found to be in order.
    good: Holds,
    stamp: Option<Stamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Every change counts.
    Own,
    /// A configuration of git: what runs a program counts.
    Config,
    Hook,
}

/// What is read by a path, links followed as git and spettro follow them.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Holds {
    Nothing,
    File {
        content: Vec<u8>,
        mode: u32,
    },
    /// A pipe, a folder, something too large or unreadable.
    Odd,
}

/// Something that was found changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tampered {
    /// Relative to the workspace, or absolute outside of it.
    pub name: String,
    /// Which settings of a configuration; empty when it is the file as such.
    pub settings: Vec<String>,
    /// The command after which it was first seen; `None` when nobody knows (a job, or a file that is not looked at).
    pub by: Option<String>,
    /// Why it could not be put back; `None` when it was.
    pub stands: Option<String>,
}

/// `.git/config` was changed (core.fsmonitor) by `…`, and was put back: one clause.
impl fmt::Display for Tampered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` was changed", self.name)?;
        if !self.settings.is_empty() {
            write!(f, " ({})", self.settings.join(", "))?;
        }
        if let Some(by) = &self.by {
            write!(f, ", first seen after {by}")?;
        }
        match &self.stands {
            None => f.write_str(", and was put back as it was"),
            Some(why) => write!(f, ", and could not be put back: {why}"),
        }
    }
}

impl Tripwire {
    /// Remembers everything as it stands. `extra`: further files to look at after each command (see [`Tripwire::who`]).
    pub fn new(world: &World, roots: &Roots, git: Rc<Git>, extra: impl IntoIterator<Item = PathBuf>) -> Tripwire {
        let mut wire = Tripwire {
            root: roots.real.clone(),
            git,
            repository: found(&roots.real),
            watched: BTreeMap::new(),
            extra: extra.into_iter().take(MOST_EXTRA).map(|path| (path, None)).collect(),
            moved: BTreeMap::new(),
        };
        for name in OWN {
            wire.watch(wire.root.join(name), Kind::Own);
        }
        wire.watch_repository(world);
        wire.look("");
        wire.moved.clear();
        wire
    }

    fn watch(&mut self, path: PathBuf, kind: Kind) {
        let good = Holds::read(&path);
        self.watched.insert(path, Watched { kind, good, stamp: None });
    }

    fn watch_repository(&mut self, world: &World) {
        let Some(repository) = self.repository.clone() else { return };
        for path in configs(&repository) {
            self.watch(path, Kind::Config);
        }
        let hooks = repository.common_dir.join("hooks");
        for path in hooks_in(world, &hooks) {
            self.watch(path, Kind::Hook);
        }
        self.extra.insert(hooks, None);
    }

    /// A handful of stats: what moved since the last look was moved by this command.
    pub fn look(&mut self, by: &str) {
        let watched = self.watched.iter_mut().map(|(path, watched)| (path, &mut watched.stamp));
        for (path, stamp) in watched.chain(self.extra.iter_mut()) {
            let now = Stamp::read(CWD, path).ok().flatten();
            if *stamp != now {
                *stamp = now;
                self.moved.entry(path.clone()).or_insert_with(|| by.to_owned());
            }
        }
    }

    /// The command after which a file (or the folder that holds it) was first seen to have moved.
    pub fn who(&self, path: &Path) -> Option<&str> {
        let by = self.moved.get(path).or_else(|| self.moved.get(path.parent()?))?;
        (!by.is_empty()).then_some(by)
    }

    /// Compares everything with what it held, and puts back what must not stand. Gives what was found. A changed
    /// configuration that git cannot be asked about (a run that is being torn down) is put back too.
    pub async fn settle(&mut self, world: &World) -> Vec<Tampered> {
        self.look("");
        let mut found = Vec::new();
        found.extend(self.repository_moved());
        for path in self.watched.keys().cloned().collect::<Vec<_>>() {
            found.extend(self.settle_file(world, &path).await);
        }
        if let Some(repository) = &self.repository {
            for path in hooks_in(world, &repository.common_dir.join("hooks")) {
                if !self.watched.contains_key(&path) && Holds::read(&path) != Holds::Nothing {
                    let stands = self.put_back(&path, &Holds::Nothing).err().map(|error| error.to_string());
                    found.push(self.tampered(&path, Vec::new(), stands));
                }
            }
        }
        // What was put back has moved by that.
        self.look("");
        self.moved.clear();
        found
    }

    /// Another repository than the one that was found is taken up where there was none, and told where there was one:
    /// there, other settings and hooks than the known ones hold.
    fn repository_moved(&mut self) -> Option<Tampered> {
        let now = self::found(&self.root);
        match (&self.repository, now) {
            (Some(was), Some(now)) if *was != now && now.top == was.top => {
                let stands = "it leads to another repository now, and what that runs is not known".to_owned();
                Some(self.tampered(&was.top.join(".git"), Vec::new(), Some(stands)))
            }
            (None, Some(now)) if now.top.starts_with(&self.root) => {
                // Made by the agent, and so nothing in it was known before.
                let hooks = now.common_dir.join("hooks");
                for path in configs(&now) {
                    self.watched.insert(path, Watched { kind: Kind::Config, good: Holds::Nothing, stamp: None });
                }
                self.extra.insert(hooks, None);
                self.repository = Some(now);
                None
            }
            _ => None,
        }
    }

    async fn settle_file(&mut self, world: &World, path: &Path) -> Option<Tampered> {
        let watched = self.watched.get(path)?;
        let now = Holds::read(path);
        if now == watched.good {
            return None;
        }
        let kind = watched.kind;
        let settings = match kind {
            // A hook that is gone, or can no longer be run, runs nothing.
            Kind::Hook if now.is_harmless_hook() => return self.accept(path, now),
            Kind::Hook | Kind::Own => Vec::new(),
            Kind::Config => {
                let new = self.new_settings(world, &watched.good, &now).await;
                let settings = new.unwrap_or_else(|error| {
                    tracing::warn!(%error, path = %path.display(), "git cannot tell what a changed configuration holds");
                    vec!["settings that git could not be asked about".to_owned()]
                });
                if settings.is_empty() {
                    return self.accept(path, now);
                }
                settings
            }
        };
        let good = watched.good.clone();
        let stands = self.put_back(path, &good).err().map(|error| error.to_string());
        Some(self.tampered(path, settings, stands))
    }

    fn accept(&mut self, path: &Path, now: Holds) -> Option<Tampered> {
        if let Some(watched) = self.watched.get_mut(path) {
            watched.good = now;
        }
        None
    }

    /// The settings that run a program and were not there before, by name.
    async fn new_settings(&self, world: &World, good: &Holds, now: &Holds) -> Result<Vec<String>, WorkspaceError> {
        let content = match now {
            Holds::Nothing => return Ok(Vec::new()),
            Holds::Odd => return Ok(vec!["no readable file any more".to_owned()]),
            Holds::File { content, .. } => content,
        };
        let mut known = match good {
            Holds::File { content, .. } => self.git.settings(world, content).await?.unwrap_or_default(),
            _ => Vec::new(),
        };
        let Some(settings) = self.git.settings(world, content).await? else {
            return Ok(vec!["no configuration any more".to_owned()]);
        };
        let mut new: Vec<String> = Vec::new();
        for setting in settings.into_iter().filter(|(name, value)| runs_a_program(name, value)) {
            match known.iter().position(|other| *other == setting) {
                Some(index) => drop(known.remove(index)),
                None => new.push(setting.0),
            }
        }
        new.dedup();
        Ok(new)
    }

    fn tampered(&self, path: &Path, settings: Vec<String>, stands: Option<String>) -> Tampered {
        let name = path.strip_prefix(&self.root).unwrap_or(path).to_string_lossy().into_owned();
        Tampered { name, settings, by: self.who(path).map(str::to_owned), stands }
    }

    /// Makes a path hold what it held. A link on the way to it, inside the workspace, goes first: nothing is written
    /// through one.
    fn put_back(&self, path: &Path, good: &Holds) -> std::io::Result<()> {
        let base = if path.starts_with(&self.root) { self.root.as_path() } else { path.parent().unwrap_or(path) };
        let mut at = base.to_owned();
        for part in path.strip_prefix(base).unwrap_or(Path::new("")) {
            at.push(part);
            if at.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink()) {
                beneath::remove(&at)?;
            }
        }
        match good {
            Holds::File { content, mode } => {
                if path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
                    return Err(std::io::Error::other("a folder stands in its place"));
                }
                beneath::replace(path, content, Some(*mode))
            }
            Holds::Nothing | Holds::Odd => beneath::remove(path),
        }
    }
}

impl Holds {
    fn read(path: &Path) -> Holds {
        let read = || -> std::io::Result<Holds> {
            let file = regular::open(path)?;
            let mode = file.metadata()?.permissions().mode() & 0o7777;
            let mut content = Vec::new();
            file.take(MOST_BYTES + 1).read_to_end(&mut content)?;
            Ok(if content.len() as u64 > MOST_BYTES { Holds::Odd } else { Holds::File { content, mode } })
        };
        match read() {
            Ok(holds) => holds,
            Err(error) if super::stamp::is_gone(&error) => Holds::Nothing,
            Err(_) => Holds::Odd,
        }
    }

    /// git runs only what may be executed.
    const fn is_harmless_hook(&self) -> bool {
        match self {
            Holds::Nothing => true,
            Holds::File { mode, .. } => *mode & 0o111 == 0,
            Holds::Odd => false,
        }
    }
}

/// The repository around a folder, its own folders without links: a link that is changed leads elsewhere.
fn found(folder: &Path) -> Option<Repository> {
    let repository = Repository::around(folder)?;
    let plain = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    Some(Repository {
        git_dir: plain(&repository.git_dir),
        common_dir: plain(&repository.common_dir),
        top: repository.top,
    })
}

/// The files that git reads settings from, here and for this worktree.
fn configs(repository: &Repository) -> Vec<PathBuf> {
    let mut configs = vec![repository.common_dir.join("config"), repository.git_dir.join("config.worktree")];
    if repository.git_dir != repository.common_dir {
        configs.push(repository.common_dir.join("config.worktree"));
    }
    configs
}

/// What git may run as a hook. Its own examples end in `.sample`, and are never run.
fn hooks_in(world: &World, folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = world.dir.list(folder) else { return Vec::new() };
    let hook = |name: &Path| name.extension().is_none_or(|extension| extension != "sample");
    let entries = entries.into_iter().filter(|entry| !entry.is_dir && hook(Path::new(&entry.name)));
    entries.map(|entry| folder.join(entry.name)).collect()
}

#[cfg(test)]
#[path = "tripwire_tests.rs"]
mod tests;
