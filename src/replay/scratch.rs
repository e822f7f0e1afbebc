//! The folder in which a replay works: its own session, and a workspace of which the recording knows the name.
//!
//! Invariant: a replay writes nowhere else.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::ReplayError;
use super::cursor::Cursor;
use crate::cassette::Places;
use crate::event::Record;
use crate::session::{Fact, Line, Listener, Purpose, RunStart};
use crate::world::Roots;

pub struct Scratch {
    folder: tempfile::TempDir,
    /// The repository's top, or the workspace itself.
    top: PathBuf,
    pub workspace: PathBuf,
    repository: bool,
}

impl Scratch {
    /// `parent`: where temporary folders are made.
    pub fn new(parent: &Path, start: &RunStart, repository: bool) -> Result<Scratch, ReplayError> {
        let io = |error| ReplayError::Scratch(parent.to_owned(), error);
        let folder = tempfile::Builder::new().prefix("spettro-replay-").tempdir_in(parent).map_err(io)?;
        let canonical = folder.path().canonicalize().map_err(io)?;
        if canonical.ancestors().skip(1).any(|above| above.join(".git").exists()) {
            // What is replayed would be taken for a part of it.
            return Err(ReplayError::Inside(canonical));
        }
        let top = canonical.join("workspace");
        let workspace = match &start.git_prefix {
            // A path that leads out of the folder is none that was recorded.
            Some(prefix) if Path::new(prefix).components().all(|c| matches!(c, std::path::Component::Normal(_))) => {
                top.join(prefix)
            }
            _ => top.clone(),
        };
        std::fs::create_dir_all(&workspace).map_err(io)?;
        let scratch = Scratch { folder, top, workspace, repository };
        if repository {
            std::fs::create_dir_all(scratch.top.join(".git/refs/heads")).map_err(io)?;
            scratch.head(start.git_branch.as_deref(), start.git_base.as_deref()).map_err(io)?;
        }
        Ok(scratch)
    }

    pub fn sessions(&self) -> PathBuf {
        self.folder.path().join("sessions")
    }

    pub fn roots(&self, shown: &Path) -> Roots {
        Roots { real: self.workspace.clone(), shown: shown.to_owned() }
    }

    pub fn places(&self, session: PathBuf) -> Places {
        Places { session, workspace: self.workspace.clone(), repository: self.repository.then(|| self.top.clone()) }
    }

    /// What HEAD says, in the files from which it is read.
    pub fn head(&self, branch: Option<&str>, commit: Option<&str>) -> io::Result<()> {
        let git = self.top.join(".git");
        let plain = |name: &&str| !name.split('/').any(|part| matches!(part, "" | "." | ".."));
        let Some(branch) = branch.filter(plain) else {
            return match commit {
                Some(commit) => std::fs::write(git.join("HEAD"), format!("{commit}\n")),
                None => Ok(()),
            };
        };
        std::fs::write(git.join("HEAD"), format!("ref: refs/heads/{branch}\n"))?;
        let reference = git.join("refs/heads").join(branch);
        match commit {
            Some(commit) => {
                std::fs::create_dir_all(reference.parent().unwrap_or(&git))?;
                std::fs::write(reference, format!("{commit}\n"))
            }
            None => Ok(()),
        }
    }
}

/// Whether spettro's own git was asked in a recording.
pub fn asked_git<'a>(mut facts: impl Iterator<Item = &'a Line>) -> bool {
    facts.any(|line| matches!(&line.fact, Fact::Command(run) if run.purpose == Purpose::Git))
}

/// Lets HEAD stand where the recording found it after each turn.
pub struct Heads {
    pub cursor: Rc<Cursor>,
    pub scratch: Rc<Scratch>,
    pub branch: RefCell<Option<String>>,
}

impl Listener for Heads {
    fn event(&self, _record: &Record) {}

    fn fact(&self, line: &Line) {
        if !self.scratch.repository || !matches!(line.fact, Fact::Turn { .. } | Fact::Halted { .. } | Fact::Interrupted { .. })
        {
            return;
        }
        let part = &self.cursor.part;
        let ahead = (self.cursor.frontier()..part.range.end).map(|at| part.fact(at));
        // What the result says at the end is the last word; before that what progress was measured from.
        let found = ahead.into_iter().find_map(|fact| match fact {
            Fact::Progress(progress) if progress.iteration > 0 => Some((progress.head.clone(), None)),
            Fact::End(end) => {
                let changes = end.result.changes.clone().unwrap_or_default();
                Some((changes.head, changes.branch))
            }
            _ => None,
        });
        let Some((commit, branch)) = found else { return };
        if branch.is_some() {
            self.branch.replace(branch);
        }
        if let Err(error) = self.scratch.head(self.branch.borrow().as_deref(), commit.as_deref()) {
            tracing::error!(%error, "HEAD cannot be set");
        }
    }
}
