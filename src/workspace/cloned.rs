//! A commit of a repository with its history in a folder of its own, to work in without touching the repository.

use std::path::Path;

use super::WorkspaceError;
use super::git::{Git, utf8};
use crate::world::World;

impl Git {
    /// Whether the repository around the folder holds a commit. `false` too where it is no repository.
    ///
    /// # Errors
    /// When git cannot be asked, and for what is no commit's id.
    pub async fn holds(&self, world: &World, commit: &str) -> Result<bool, WorkspaceError> {
        let object = format!("{}^{{commit}}", id(commit)?);
        if !self.folder().is_dir() {
            return Ok(false);
        }
        let answer = self.answer_or(world, &["cat-file", "-e", &object], &[], &[0], &[1, 128]).await?;
        Ok(answer.is_some())
    }

    /// Makes a repository without a commit at `to`, which may exist and be empty.
    ///
    /// # Errors
    /// When git fails.
    pub async fn init_at(&self, world: &World, branch: Option<&str>, to: &Path) -> Result<(), WorkspaceError> {
        let (branch, to) = (format!("--initial-branch={}", branch.unwrap_or("main")), utf8(to)?);
        self.run(world, &["init", "--quiet", "--template=", &branch, "--", &to], &[]).await.map(drop)
    }

    /// Clones the repository to `to`, which may exist and be empty, as it was at the commit: on `branch` where one is
    /// named, with nothing that leads back.
    ///
    /// # Errors
    /// When git fails.
    pub async fn clone_at(
        &self,
        world: &World,
        commit: &str,
        branch: Option<&str>,
        to: &Path,
    ) -> Result<(), WorkspaceError> {
        let (from, to, commit) = (utf8(self.folder())?, utf8(to)?, id(commit)?);
        let top = self.run(world, &["rev-parse", "--show-toplevel"], &[]).await?;
        let top = String::from_utf8(top).map_or(from, |top| top.trim_end_matches('\n').to_owned());
        let clone = ["clone", "--quiet", "--local", "--no-hardlinks", "--no-checkout", "--template=", "--", &top, &to];
        self.run(world, &clone, &[]).await?;
        self.run(world, &["-C", &to, "remote", "remove", "origin"], &[]).await?;
        // A name that git would take for something else is none that it gave.
        match branch.filter(|name| !name.starts_with('-')) {
            Some(branch) => self.run(world, &["-C", &to, "checkout", "--quiet", "-B", branch, commit], &[]).await?,
            None => self.run(world, &["-C", &to, "checkout", "--quiet", "--detach", commit], &[]).await?,
        };
        Ok(())
    }
}

/// Anything else might be an option, or another name for something.
fn id(commit: &str) -> Result<&str, WorkspaceError> {
    if matches!(commit.len(), 40 | 64) && commit.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Ok(commit)
    } else {
        Err(WorkspaceError::Git(format!("`{commit}` is no id of a commit")))
    }
}
