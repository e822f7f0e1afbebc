//! What in a workspace makes git or spettro act otherwise later: git's configuration and hooks, spettro's own two files.
//!
//! After each command a handful of stats says whether one of them moved, and by whom. At the end of a turn they are
//! compared by what they hold. Ordinary work in `.git/config` (`user.*`, `branch.*`, `remote.*`) is taken as it is;
//! what runs a program some day is put back. This is the one place where the room writes into the user's workspace.

mod places;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::CWD;

use self::places::{configs, found, hooks_in, included, modules};
use super::repository::Repository;
use super::settings::runs_a_program;
use super::stamp::Stamp;
use super::{Git, WorkspaceError};
use crate::world::{Roots, World, beneath, regular};

/// Larger files are none that anybody wrote by hand: they count as odd.
const MOST_BYTES: u64 = 4 << 20;
/// Of the protected files, and of those in submodules, so many are looked at after each command. At the end of a turn
/// all are.
const MOST_EXTRA: usize = 32;

/// Files of settings that are looked through for others which they include.
const MOST_INCLUDES: usize = 64;

/// The two files of a workspace by which later runs of spettro go.
const OWN: [&str; 2] = [".spettro/config.yaml", ".spettro/memory.md"];

/// Watches from the moment it is made.
pub struct Tripwire {
    root: PathBuf,
    git: Rc<Git>,
    /// The repositories that git found from here: the one of before the run, and those that were made since.
    repositories: Vec<Repository>,
    /// The one around the first, which git finds where that one is gone.
    around: Option<Repository>,
    watched: BTreeMap<PathBuf, Watched>,
    /// The folders of its submodules that are known.
    modules: BTreeSet<PathBuf>,
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
    /// After each command, too.
    looked_at: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Every change counts.
    Own,
    /// A configuration of git: what runs a program counts.
    Config,
    /// That of a submodule, which also says where its files are.
    Module,
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
        let repository = found(&roots.real);
        let around = repository.as_ref().and_then(|repository| found(repository.top.parent()?));
        let mut wire = Tripwire {
            root: roots.real.clone(),
            git,
            repositories: repository.into_iter().collect(),
            around,
            watched: BTreeMap::new(),
            modules: BTreeSet::new(),
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
        self.keep(path, kind, good);
    }

    fn keep(&mut self, path: PathBuf, kind: Kind, good: Holds) {
        let many = self.watched.values().filter(|watched| watched.looked_at).count() >= 2 * MOST_EXTRA;
        self.watched.insert(path, Watched { kind, good, stamp: None, looked_at: !many });
    }

    fn watch_repository(&mut self, world: &World) {
        let Some(repository) = self.repositories.first().cloned() else { return };
        for path in configs(world, &repository) {
            self.watch(path, Kind::Config);
        }
        let hooks = repository.common_dir.join("hooks");
        for path in hooks_in(world, &hooks) {
            self.watch(path, Kind::Hook);
        }
        self.extra.insert(hooks, None);
        for module in modules(world, &repository) {
            self.watch(module.join("config"), Kind::Module);
            for path in hooks_in(world, &module.join("hooks")) {
                self.watch(path, Kind::Hook);
            }
            self.modules.insert(module);
        }
        self.watch_included(&repository);
    }

    /// Files that the settings of before the run include, as far as they are where commands can write.
    fn watch_included(&mut self, repository: &Repository) {
        let mut new: Vec<PathBuf> = self.of_git().map(|(path, _)| path.clone()).collect();
        for _ in 0..MOST_INCLUDES {
            let Some(path) = new.pop() else { return };
            let Some(Watched { good: Holds::File { content, .. }, .. }) = self.watched.get(&path) else { continue };
            for file in included(&path, content) {
                let near =
                    [&self.root, &repository.top, &repository.common_dir].iter().any(|top| file.starts_with(top));
                if near && !self.watched.contains_key(&file) {
                    self.watch(file.clone(), Kind::Config);
                    new.push(file);
                }
            }
        }
    }

    fn of_git(&self) -> impl Iterator<Item = (&PathBuf, &Watched)> {
        self.watched.iter().filter(|(_, watched)| matches!(watched.kind, Kind::Config | Kind::Module))
    }

    /// A handful of stats: what moved since the last look was moved by this command.
    pub fn look(&mut self, by: &str) {
        let watched = self.watched.iter_mut().filter(|(_, watched)| watched.looked_at);
        let watched = watched.map(|(path, watched)| (path, &mut watched.stamp));
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
        found.extend(self.repository_moved(world));
        for path in self.watched.keys().cloned().collect::<Vec<_>>() {
            found.extend(self.settle_file(world, &path).await);
        }
        for repository in self.repositories.clone() {
            found.extend(self.settle_new(world, &repository).await);
        }
        // What was put back has moved by that.
        self.look("");
        self.moved.clear();
        found
    }

    /// What was not there before: submodules, whose settings and hooks are all new then, and hooks.
    async fn settle_new(&mut self, world: &World, repository: &Repository) -> Vec<Tampered> {
        let mut found = Vec::new();
        for module in modules(world, repository) {
            if self.modules.insert(module.clone()) {
                let config = module.join("config");
                self.keep(config.clone(), Kind::Module, Holds::Nothing);
                found.extend(self.settle_file(world, &config).await);
            }
        }
        let folders = std::iter::once(&repository.common_dir).chain(&self.modules);
        let hooks: Vec<PathBuf> = folders.flat_map(|folder| hooks_in(world, &folder.join("hooks"))).collect();
        for path in hooks {
            let now = Holds::read(&path);
            if !self.watched.contains_key(&path) && now != Holds::Nothing {
                let stands = self.put_back(&path, &Holds::Nothing).err().map(|error| error.to_string());
                found.push(self.tampered(&path, Vec::new(), stands));
            }
        }
        found
    }

    /// Where git finds another repository than before, other settings and hooks than the known ones hold. One that was
    /// made in here, where there was none or inside of the one that was found, is taken up: nothing in it was known
    /// before. Everything else is told.
    fn repository_moved(&mut self, world: &World) -> Option<Tampered> {
        let told = |wire: &Self, top: &Path, why: &str| {
            Some(wire.tampered(&top.join(".git"), Vec::new(), Some(why.to_owned())))
        };
        let Some(now) = found(&self.root) else {
            let was = self.repositories.first()?;
            return told(self, &was.top, "git finds no repository here any more");
        };
        if self.repositories.contains(&now) || self.around.as_ref() == Some(&now) {
            return None;
        }
        if self.repositories.iter().any(|was| was.top == now.top) {
            return told(self, &now.top, "it leads to another repository now, and what that runs is not known");
        }
        let first = self.repositories.first();
        if !now.top.starts_with(first.map_or(&self.root, |was| &was.top)) {
            return told(self, &now.top, "a repository was made above the workspace, and what it runs is not known");
        }
        let known = |folder: &Path| first.is_some_and(|was| folder.starts_with(&was.common_dir));
        // What is put back here is removed: it must not be somebody else's.
        if !known(&now.common_dir) && !now.common_dir.starts_with(&now.top) {
            return told(self, &now.top, "it leads to a repository elsewhere, and what that runs is not known");
        }
        let module = first.is_some_and(|was| modules(world, was).contains(&now.common_dir));
        for path in configs(world, &now) {
            // A worktree shares the settings that are known.
            if !self.watched.contains_key(&path) {
                let own = module && path == now.common_dir.join("config");
                self.keep(path, if own { Kind::Module } else { Kind::Config }, Holds::Nothing);
            }
        }
        if module {
            self.modules.insert(now.common_dir.clone());
        }
        self.extra.insert(now.common_dir.join("hooks"), None);
        self.repositories.push(now);
        None
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
            Kind::Config | Kind::Module => {
                let new = self.new_settings(world, path, &watched.good, &now, kind).await;
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
    async fn new_settings(
        &self,
        world: &World,
        path: &Path,
        good: &Holds,
        now: &Holds,
        kind: Kind,
    ) -> Result<Vec<String>, WorkspaceError> {
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
        let own =
            |name: &str, value: &str| kind == Kind::Module && name == "core.worktree" && self.is_within(path, value);
        let counts = |name: &str, value: &str| runs_a_program(name, value) && !own(name, value);
        for setting in settings.into_iter().filter(|(name, value)| counts(name, value)) {
            match known.iter().position(|other| *other == setting) {
                Some(index) => drop(known.remove(index)),
                None => new.push(setting.0),
            }
        }
        new.dedup();
        Ok(new)
    }

    /// Whether a submodule with these settings has its files where submodules have them: in the repository's own.
    fn is_within(&self, config: &Path, worktree: &str) -> bool {
        let Some(folder) = config.parent() else { return false };
        let files = places::plain(&folder.join(worktree));
        let within =
            |repository: &Repository| files.starts_with(&repository.top) && !files.starts_with(&repository.common_dir);
        self.repositories.iter().any(within)
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
