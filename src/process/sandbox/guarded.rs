//! What is never granted by itself, whatever name leads to it.

use std::path::{Path, PathBuf};

use super::reads::Kept;
use super::ways::{Doubtful, Ways};
use super::{Places, SandboxError, real};

/// What no granted folder may contain, and what it may not be part of.
pub(super) struct Guarded {
    home: Option<PathBuf>,
    holy: Vec<(&'static str, PathBuf)>,
    goal_file: Vec<PathBuf>,
    keys: Vec<PathBuf>,
}

impl Guarded {
    pub(super) fn new(places: &Places<'_>, kept: &Kept) -> Guarded {
        let home = places.home.map(real);
        let stores = places.stores.iter().map(|store| ("the session store", real(store)));
        // By its name too, which may be a link: whoever can replace the link decides what is read and run.
        let named = |what, paths: &'_ [PathBuf]| -> Vec<(&'static str, PathBuf)> {
            paths.iter().flat_map(|path| [(what, path.clone()), (what, real(path))]).collect()
        };
        let keys = named("the file of a key", &places.keys.files);
        let programs = named("the command that prints a key", &places.keys.programs);
        // By its name, which may be a link, and where that leads. One in the workspace can be written there whatever
        // stands around it.
        let goal_file = places.goal_file.into_iter().flat_map(|file| [file.to_owned(), real(file)]);
        let goal_file = goal_file.filter(|file| !file.starts_with(places.workspace)).collect();
        let of_home = home.iter().map(|home| ("the home directory", home.clone()));
        let holy = of_home.chain(stores).chain(keys).chain(programs).collect();
        Guarded { home, holy, goal_file, keys: kept.there() }
    }

    /// # Errors
    /// When the home directory or the session store is in `dir`.
    pub(super) fn is_outside(&self, dir: &Path) -> Result<(), SandboxError> {
        match self.holy.iter().find(|(_, inner)| inner.starts_with(dir)) {
            Some((what, inner)) => Err(SandboxError::Holds { outer: dir.to_owned(), what, inner: inner.clone() }),
            None => Ok(()),
        }
    }

    /// Whether no run of this user is ever granted `dir`.
    pub(super) fn holds_home(&self, dir: &Path) -> bool {
        self.home.as_ref().is_some_and(|home| home.starts_with(dir))
    }

    /// Why `dir` is not granted by itself, in words. It has no links.
    fn refusal(&self, dir: &Path) -> Option<String> {
        let shown = dir.display();
        let goal_file = self.goal_file.iter().map(|file| ("the goal file", file));
        let holy = self.holy.iter().map(|(what, path)| (*what, path));
        if let Some((what, _)) = holy.chain(goal_file).find(|(_, inner)| inner.starts_with(dir)) {
            return Some(format!("`{shown}` is not writable as a whole: it holds {what}"));
        }
        if let Some(place) = self.keys.iter().find(|place| dir.starts_with(place)) {
            return Some(format!(
                "`{shown}` is not writable: it is in `{}`, which commands do not see",
                place.display()
            ));
        }
        let place = self.keys.iter().find(|place| place.starts_with(dir))?;
        Some(format!("`{shown}` is not writable as a whole: it holds `{}`, which commands do not see", place.display()))
    }
}

/// Grants by itself what nothing speaks against, and names the rest.
pub(super) struct Granting<'a> {
    pub(super) guarded: &'a Guarded,
    pub(super) ways: &'a Ways,
    pub(super) narrowed: &'a mut Vec<String>,
}

impl Granting<'_> {
    /// The path without links, when it may be granted.
    pub(super) fn take(&mut self, path: &Path) -> Option<PathBuf> {
        let refusal = match self.ways.real(path) {
            Ok(real) => match self.guarded.refusal(&real) {
                None => return Some(real),
                Some(refusal) => refusal,
            },
            Err(Doubtful(link)) if link == path => {
                format!("`{}` is not writable: it is a link that commands could have made", path.display())
            }
            Err(Doubtful(link)) => format!(
                "`{}` is not writable: `{}` is a link that commands could have made",
                path.display(),
                link.display()
            ),
        };
        self.say(refusal);
        None
    }

    /// Names what is not granted.
    pub(super) fn say(&mut self, clause: String) {
        if !self.narrowed.contains(&clause) {
            self.narrowed.push(clause);
        }
    }
}
