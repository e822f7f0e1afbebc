//! What happens to protected files while checks run and leaves no mark on them.
//!
//! A folder that is moved away, replaced and moved back leaves none on the files in it, and a file that is made and
//! removed leaves none at all. So the kernel is asked to tell of both (inotify): of moves of every folder above, up to
//! `/`, and of what is made in every folder where a glob may match. Where it cannot, a folder whose change time moves
//! counts.

#[cfg(target_os = "linux")]
mod linux;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Access, CWD};

use super::globs::Globs;
use super::stamp::Stamp;

/// Of what was made, so much is named.
const MOST_NAMED: usize = 1_000;

/// Asked once, before the first command: commands of the same user could take what the kernel has of it.
pub(super) struct Meanwhile {
    root: PathBuf,
    globs: Arc<Globs>,
    #[cfg(target_os = "linux")]
    kernel: Option<linux::Kernel>,
}

/// From [`Meanwhile::watch`] on.
pub(super) struct Watching {
    /// Folders of which the kernel does not tell.
    untold: Untold,
    #[cfg(target_os = "linux")]
    told: Option<linux::Watching>,
}

/// What was seen, as absolute paths.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Folders above protected files that were moved or removed.
    pub moved: BTreeSet<PathBuf>,
    /// Files that match and were not known, and folders in which there may have been one.
    pub made: BTreeSet<PathBuf>,
}

impl Meanwhile {
    pub fn new(root: &Path, globs: Arc<Globs>) -> Meanwhile {
        Meanwhile {
            root: root.to_owned(),
            globs,
            #[cfg(target_os = "linux")]
            kernel: linux::Kernel::new()
                .inspect_err(|error| tracing::warn!(%error, "moves of folders cannot be watched"))
                .ok(),
        }
    }

    /// Takes what watching the folders above these files needs, for as long as this lives.
    pub fn keep<'a>(&self, files: impl Iterator<Item = &'a PathBuf>) {
        #[cfg(target_os = "linux")]
        if let Some(kernel) = &self.kernel {
            kernel.keep(&self.above(files));
        }
        #[cfg(not(target_os = "linux"))]
        drop(files);
    }

    /// Watches over these files, and for new ones.
    pub fn watch<'a>(&self, files: impl Iterator<Item = &'a PathBuf> + Clone) -> Watching {
        let above = self.above(files.clone());
        let mut untold = Untold { root: self.root.clone(), folders: BTreeMap::new() };
        #[cfg(target_os = "linux")]
        if let Some(kernel) = &self.kernel {
            let known = files.cloned().collect();
            match kernel.watch(&self.root, self.globs.clone(), known, above.clone(), &mut untold) {
                Ok(told) => return Watching { untold, told: Some(told) },
                Err(error) => tracing::warn!(%error, "moves of folders cannot be watched"),
            }
        }
        above.iter().for_each(|folder| untold.above(folder));
        Watching {
            untold,
            #[cfg(target_os = "linux")]
            told: None,
        }
    }

    /// Every folder above these files, and where there are globs above the workspace.
    fn above<'a>(&self, files: impl Iterator<Item = &'a PathBuf>) -> BTreeSet<PathBuf> {
        let mut above: BTreeSet<PathBuf> =
            files.flat_map(|file| file.ancestors().skip(1)).map(Path::to_owned).collect();
        if !self.globs.is_empty() {
            above.extend(self.root.ancestors().map(Path::to_owned));
        }
        above
    }
}

impl Watching {
    pub fn end(self) -> Seen {
        #[cfg(target_os = "linux")]
        let mut seen = self.told.map(linux::Watching::end).unwrap_or_default();
        #[cfg(not(target_os = "linux"))]
        let mut seen = Seen::default();
        seen.moved.extend(self.untold.moved());
        seen
    }
}

impl Seen {
    fn make(&mut self, path: PathBuf) {
        if self.made.len() < MOST_NAMED {
            self.made.insert(path);
        }
    }
}

/// Folders that are held against how they stood.
struct Untold {
    root: PathBuf,
    /// Each with whose stamp tells of it.
    folders: BTreeMap<PathBuf, (PathBuf, Option<Stamp>)>,
}

impl Untold {
    /// A folder that must not be moved. Those inside of the workspace tell by themselves. The times of the workspace and
    /// those above it move with nearly everything; who moves one of them changes the folder above it, if he may.
    fn above(&mut self, folder: &Path) {
        if folder.starts_with(&self.root) && folder != self.root {
            self.at(folder, folder);
        } else if let Some(above) = folder.parent()
            && cfg!(target_os = "linux")
            && rustix::fs::access(above, Access::WRITE_OK).is_ok()
        {
            self.at(folder, above);
        }
    }

    fn at(&mut self, folder: &Path, looked_at: &Path) {
        self.folders.insert(folder.to_owned(), (looked_at.to_owned(), stamp(looked_at)));
    }

    fn moved(self) -> impl Iterator<Item = PathBuf> {
        self.folders.into_iter().filter(|(_, (at, was))| stamp(at) != *was).map(|(folder, _)| folder)
    }
}

fn stamp(folder: &Path) -> Option<Stamp> {
    Stamp::read(CWD, folder).ok().flatten()
}
