//! The folder in which a replay works: its own session, and a workspace of which the recording knows the name.
//!
//! Invariant: a replay writes nowhere else.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::ReplayError;
use super::cursor::Cursor;
use super::track::asks_about_settings;
use crate::cassette::Places;
use crate::event::Record;
use crate::session::{Fact, Line, Listener, Purpose, RunStart};
use crate::world::{Roots, Secrets};

pub struct Scratch {
    folder: tempfile::TempDir,
    /// The repository's top, or the workspace itself.
    pub top: PathBuf,
    pub workspace: PathBuf,
    pub repository: bool,
    /// HEAD is what the recording says.
    told: bool,
}

impl Scratch {
    /// `parent`: where temporary folders are made.
    ///
    /// `told`: HEAD is what the recording says; otherwise a repository is to be put there.
    pub fn new(parent: &Path, start: &RunStart, git: Asked, told: bool) -> Result<Scratch, ReplayError> {
        let io = |error| ReplayError::Scratch(parent.to_owned(), error);
        let folder = tempfile::Builder::new().prefix("spettro-replay-").tempdir_in(parent).map_err(io)?;
        let canonical = folder.path().canonicalize().map_err(io)?;
        if canonical.ancestors().skip(1).any(|above| above.join(".git").exists()) {
            // What is replayed would be taken for a part of it.
            return Err(ReplayError::Inside(canonical));
        }
        let top = canonical.join("workspace");
        let inside = start.git_prefix.as_deref().or((git == Asked::FromWithin).then_some("inside"));
        let workspace = match inside {
            // A path that leads out of the folder is none that was recorded.
            Some(prefix) if Path::new(prefix).components().all(|c| matches!(c, std::path::Component::Normal(_))) => {
                top.join(prefix)
            }
            _ => top.clone(),
        };
        let repository = git != Asked::Never;
        std::fs::create_dir_all(&workspace).map_err(io)?;
        let scratch = Scratch { folder, top, workspace, repository, told };
        if repository && told {
            std::fs::create_dir_all(scratch.top.join(".git/refs/heads")).map_err(io)?;
            scratch.head(start.git_branch.as_deref(), start.git_base.as_deref()).map_err(io)?;
        }
        Ok(scratch)
    }

    pub fn sessions(&self) -> PathBuf {
        self.folder.path().join("sessions")
    }

    /// For spettro's own git.
    pub fn git(&self) -> PathBuf {
        self.folder.path().join("git")
    }

    pub fn roots(&self, shown: &Path) -> Roots {
        Roots { real: self.workspace.clone(), shown: shown.to_owned() }
    }

    pub fn places(&self, session: PathBuf) -> Places {
        let repository = self.repository.then(|| self.top.clone());
        Places { session, workspace: self.workspace.clone(), repository, secrets: Secrets::default() }
    }

    /// What HEAD says, in the files from which it is read.
    pub fn head(&self, branch: Option<&str>, commit: Option<&str>) -> io::Result<()> {
        let git = self.top.join(".git");
        let plain = |name: &&str| !name.split('/').any(|part| matches!(part, "" | "." | ".."));
        let Some(branch) = branch.filter(plain) else {
            let head = commit.map_or("ref: refs/heads/main\n".to_owned(), |commit| format!("{commit}\n"));
            return std::fs::write(git.join("HEAD"), head);
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Never,
    AtTheTop,
    /// From a folder inside its repository.
    FromWithin,
}

impl Asked {
    pub fn of(facts: &[Line]) -> Asked {
        let asked = facts.iter().filter_map(|line| match &line.fact {
            // A repository that the tripwire asked about may have been made by the agent.
            Fact::Command(run) if run.purpose == Purpose::Git && !asks_about_settings(run) => Some(run.label.as_str()),
            _ => None,
        });
        asked.fold(Asked::Never, |asked, label| match asked {
            // Only there it may be that the repository ignores the workspace.
            _ if label == "git check-ignore" => Asked::FromWithin,
            Asked::Never => Asked::AtTheTop,
            asked => asked,
        })
    }
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
        let told = self.scratch.repository && self.scratch.told;
        if !told || !matches!(line.fact, Fact::Turn { .. } | Fact::Halted { .. } | Fact::Interrupted { .. }) {
            return;
        }
        let part = &self.cursor.part;
        let ahead = (self.cursor.frontier()..part.range.end).map(|at| part.fact(at));
        // What progress was measured from, and at the end of the run what its result says.
        let mut commit = None;
        for fact in ahead.take_while(|fact| !matches!(fact, Fact::Turn { .. })) {
            match fact {
                Fact::Progress(progress) if progress.iteration > 0 => commit.clone_from(&progress.head),
                Fact::End(end) => {
                    if let Some(changes) = &end.result.changes {
                        commit = commit.or_else(|| changes.head.clone());
                        self.branch.replace(changes.branch.clone());
                    }
                    break;
                }
                _ => {}
            }
        }
        if commit.is_none() {
            return;
        }
        if let Err(error) = self.scratch.head(self.branch.borrow().as_deref(), commit.as_deref()) {
            tracing::error!(%error, "HEAD cannot be set");
        }
    }
}
