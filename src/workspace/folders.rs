//! The folders of a workspace as they were listed, so that a later look lists only those whose names may have changed.
//!
//! No name comes or goes without a new change time of its folder, and what is ignored follows from a few files. The
//! racy-entry rule of `stamp` holds here too: a folder is known when its change time was past before it was listed.

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::CWD;

use super::repository::Repository;
use super::stamp::{Kind, Stamp, in_parallel};
use super::tree::bytes;
use crate::world::Explored;

/// The files of a folder that say what is ignored in it.
const RULES: [&str; 2] = [".gitignore", ".ignore"];

/// All folders that the last listings went through.
#[derive(Debug, Default)]
pub(super) struct Folders {
    /// The workspace itself first, then by the bytes of the paths.
    known: Arc<Vec<Folder>>,
    /// Git's own list of what is ignored.
    exclude: Option<Stamp>,
    /// What is known is enough to list only a part.
    complete: bool,
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// `None`: to be listed next time, whatever its stat data say.
    stamp: Option<Stamp>,
    /// As in [`RULES`]; `None` where there is no such file.
    rules: [Option<Stamp>; 2],
}

/// The folders that are to be listed, and those that lead to them.
pub(super) struct Stale {
    known: Arc<Vec<Folder>>,
    stale: Vec<bool>,
    entered: Vec<bool>,
}

/// How the folders stand after some were listed.
pub(super) struct Renewed {
    stale: Stale,
    /// Those of the known ones that are still there.
    there: Vec<bool>,
}

impl Folders {
    /// Looks at each folder; `newest` grows to the newest change time among them. `None`: all must be listed.
    pub fn stale(&self, folder: BorrowedFd<'_>, root: &Path, newest: &mut i128) -> Option<Stale> {
        if !self.complete || exclude(root) != self.exclude {
            return None;
        }
        let mut stale = vec![true; self.known.len()];
        for (i, now) in in_parallel(self.known.len(), |i, (): &mut ()| stamp(folder, &self.known[i].path)) {
            let Some(now) = now else { continue };
            *newest = (*newest).max(now.ctime);
            let Folder { path, stamp, rules } = &self.known[i];
            stale[i] = *stamp != Some(now);
            let same = match stale[i] {
                true => *rules == rules_of(folder, path),
                // There are no others than those that were there.
                false => {
                    rules.iter().zip(RULES).all(|(rule, name)| rule.is_none() || *rule == rule_of(folder, path, name))
                }
            };
            let nested = stale[i] && i > 0 && root.join(path).join(".git").symlink_metadata().is_ok();
            if !same || nested {
                return None;
            }
        }
        let mut entered = stale.clone();
        for (i, folder) in self.known.iter().enumerate().filter(|(i, _)| stale[*i]) {
            entered[i] = true;
            for above in folder.path.ancestors().skip(1) {
                if let Some(at) = find(&self.known, above) {
                    entered[at] = true;
                }
            }
        }
        Some(Stale { known: Arc::clone(&self.known), stale, entered })
    }

    /// What is known after everything was listed. `past`: a change time that was over before.
    pub fn listed(folder: BorrowedFd<'_>, root: &Path, explored: &Explored, past: i128) -> Folders {
        let exclude = exclude(root);
        let safe = explored.unread.is_empty() && exclude.is_none_or(|rule| settled(&rule, past));
        let mut folders = Folders { known: Arc::default(), exclude, complete: safe };
        let all = std::iter::once(PathBuf::new()).chain(explored.folders.iter().cloned());
        let listed = all.map(|path| folders.take(folder, path, past)).collect();
        folders.known = Arc::new(listed);
        folders
    }

    /// Next time all is listed.
    pub fn forget(&mut self) {
        self.complete = false;
    }

    /// What is known after some were listed; [`Stale::explored`] says which are there.
    pub fn renew(&mut self, folder: BorrowedFd<'_>, explored: &Explored, renewed: Renewed, past: i128) {
        let Renewed { stale: Stale { known, stale, .. }, there } = renewed;
        self.known = Arc::default();
        let Ok(before) = Arc::try_unwrap(known) else {
            // A lister that holds on to what it was asked.
            return self.forget();
        };
        let new = explored.folders.iter().filter(|path| find(&before, path).is_none()).cloned().collect::<Vec<_>>();
        let mut all: Vec<Folder> = new.into_iter().map(|path| self.take(folder, path, past)).collect();
        for (i, known) in before.into_iter().enumerate().filter(|(i, _)| there[*i]) {
            all.push(if stale[i] { self.take(folder, known.path, past) } else { known });
        }
        all.sort_by(|a, b| bytes(&a.path).cmp(bytes(&b.path)));
        self.known = Arc::new(all);
    }

    /// How a folder is now that it was listed.
    fn take(&mut self, folder: BorrowedFd<'_>, path: PathBuf, past: i128) -> Folder {
        let stamp = stamp(folder, &path).filter(|stamp| settled(stamp, past));
        let rules = rules_of(folder, &path);
        self.complete &= rules.iter().flatten().all(|rule| settled(rule, past));
        Folder { path, stamp, rules }
    }
}

impl Stale {
    pub fn is_empty(&self) -> bool {
        !self.stale.contains(&true)
    }

    /// Whether the listing goes into a folder: what is not known is new.
    pub fn enters(&self, path: &Path) -> bool {
        find(&self.known, path).is_none_or(|at| self.entered[at])
    }

    /// Whether the names in a folder are to be taken from the listing.
    pub fn lists(&self, path: &Path) -> bool {
        find(&self.known, path).is_none_or(|at| self.stale[at])
    }

    /// Takes what the listing came to.
    pub fn explored(self, explored: &Explored) -> Renewed {
        let mut there = vec![false; self.known.len()];
        for (i, known) in self.known.iter().enumerate() {
            // The folder above stands before it.
            let above = known.path.parent().and_then(|above| find(&self.known, above));
            there[i] = match above {
                None => true,
                Some(above) if self.entered[above] => {
                    there[above] && explored.folders.binary_search_by(|one| bytes(one).cmp(bytes(&known.path))).is_ok()
                }
                Some(above) => there[above],
            };
        }
        Renewed { stale: self, there }
    }
}

impl Renewed {
    /// Whether no name has changed anywhere.
    pub fn keeps_all(&self) -> bool {
        self.stale.is_empty()
    }

    /// Whether the names in a folder are what they were.
    pub fn keeps(&self, path: &Path) -> bool {
        find(&self.stale.known, path).is_some_and(|at| self.there[at] && !self.stale.stale[at])
    }
}

/// Whether what is listed of a workspace follows from this file of it.
pub fn is_ignore_file(path: &Path) -> bool {
    path.file_name().is_some_and(|name| RULES.iter().any(|rule| name == *rule))
}

fn find(known: &[Folder], path: &Path) -> Option<usize> {
    known.binary_search_by(|folder| bytes(&folder.path).cmp(bytes(path))).ok()
}

/// Whether whatever is read from now on shows a later change.
fn settled(stamp: &Stamp, past: i128) -> bool {
    stamp.ctime < past && stamp.kind != Kind::Symlink
}

fn stamp(folder: BorrowedFd<'_>, path: &Path) -> Option<Stamp> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    Stamp::read(folder, path).ok().flatten()
}

fn rules_of(folder: BorrowedFd<'_>, path: &Path) -> [Option<Stamp>; 2] {
    RULES.map(|name| rule_of(folder, path, name))
}

fn rule_of(folder: BorrowedFd<'_>, path: &Path, name: &str) -> Option<Stamp> {
    Stamp::read(folder, &path.join(name)).ok().flatten()
}

fn exclude(root: &Path) -> Option<Stamp> {
    let git = Repository::at(root).map_or_else(|| root.join(".git"), |repository| repository.common_dir);
    Stamp::read(CWD, &git.join("info/exclude")).ok().flatten()
}

#[cfg(test)]
#[path = "folders_tests.rs"]
mod tests;
