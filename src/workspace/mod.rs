//! CONTRACT (workspace helper): what stands in the workspace, and what changed.
#![allow(unused_variables, dead_code)]
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::event::Changes;
use crate::world::{Roots, World};

#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error("{what} `{path}`: {error}")]
    Io {
        what: &'static str,
        path: String,
        #[source]
        error: std::io::Error,
    },
    #[error("`{0}` is not a valid glob: {1}")]
    Glob(String, String),
    #[error("git: {0}")]
    Git(String),
}

/// Digests of a workspace, cheap when little changed (stat cache with the racy-entry rule).
pub struct Tree {}
impl Tree {
    /// `excluded`: absolute paths never counted (spettro's own).
    pub fn new(roots: Roots, excluded: Vec<PathBuf>) -> Tree {
        todo!()
    }
    /// The content digest now (sha256 hex); gitignore honoured, files over 20 MB by size and mtime only, nested repositories opaque.
    pub fn digest(&mut self, world: &World) -> Result<String, WorkspaceError> {
        todo!()
    }
    /// relative path → sha256, as of the last `digest`.
    pub fn files(&self) -> &BTreeMap<PathBuf, String> {
        todo!()
    }
}

/// Files that must not change: the goal file and what `protect:` matches, by content.
pub struct Protected {}
impl Protected {
    pub fn new(
        world: &World,
        roots: &Roots,
        globs: &[String],
        goal_file: Option<&Path>,
    ) -> Result<Protected, WorkspaceError> {
        todo!()
    }
    /// Names (shown) of protected files that were changed, added or removed since `new`.
    pub fn violations(&mut self, world: &World) -> Result<Vec<String>, WorkspaceError> {
        todo!()
    }
}

/// The workspace's git, through `Exec`, with hooks and fsmonitor off. All answers are `None` where it is no repository.
pub struct Git {}
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GitState {
    pub head: Option<String>,
    pub branch: Option<String>,
    pub dirty: Vec<String>,
}
impl Git {
    /// `scratch`: a private folder (in the session) for snapshots; the user's `.git` is never written.
    pub fn new(roots: Roots, scratch: PathBuf) -> Git {
        todo!()
    }
    /// `Ok(None)`: not a repository. `Err`: git cannot answer («unknown»).
    pub async fn state(&self, world: &World) -> Result<Option<GitState>, WorkspaceError> {
        todo!()
    }
    /// HEAD alone, read from the files of `.git` without starting a process (`None`: no repository or no commit).
    pub fn head(&self) -> Result<Option<String>, WorkspaceError> {
        todo!()
    }
    /// Writes the tree of everything (tracked, dirty, untracked, not ignored) into a private object store; its id.
    pub async fn snapshot(&self, world: &World) -> Result<Option<String>, WorkspaceError> {
        todo!()
    }
    /// From a snapshot to now: the change list and the binary-safe patch.
    pub async fn changes(&self, world: &World, base_tree: &str) -> Result<(Changes, Vec<u8>), WorkspaceError> {
        todo!()
    }
}
/// The list of changed files between two listings, where there is no git.
pub fn changed_files(before: &BTreeMap<PathBuf, String>, after: &BTreeMap<PathBuf, String>) -> Vec<String> {
    todo!()
}
/// Copies a workspace (everything, `.git` too, symlinks as symlinks, modes kept) to a new folder.
pub fn copy(world: &World, from: &Path, to: &Path) -> Result<(), WorkspaceError> {
    todo!()
}
