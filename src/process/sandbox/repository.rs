//! What of a repository is written outside the workspace.

use std::io;
use std::path::{Path, PathBuf};

use super::guarded::Granting;
use crate::world::regular;

/// The files that make a linked worktree hold one path each.
const MOST_BYTES: u64 = 64 << 10;

/// What a commit writes outside the workspace. In a folder of a repository that is its whole `.git`, as it is where
/// the workspace is the repository itself: git makes files right in it, and a right to that holds for all below. What
/// runs code there is watched in either case. What stands in one of `writable` is not this worktree's repository, or
/// needs no grant.
pub(super) fn grants(workspace: &Path, writable: &[PathBuf], granting: &mut Granting<'_>) -> Vec<PathBuf> {
    let Some(top) = tops(workspace).next() else { return Vec::new() };
    let dot_git = top.join(".git");
    let Ok(kind) = dot_git.symlink_metadata() else { return Vec::new() };
    if kind.is_dir() {
        // A repository of somebody's whole home directory is not this project's.
        let own = top != workspace && dot_git.join("HEAD").exists() && granting.guarded.is_outside(top).is_ok();
        return own.then(|| granting.take(&dot_git)).flatten().into_iter().collect();
    }
    // A link to such a file would be that of another worktree.
    if kind.is_file() { linked_worktree(&dot_git, writable, granting).unwrap_or_default() } else { Vec::new() }
}

/// The folder itself and those above it that are a worktree of git, from the nearest on.
pub(super) fn tops(workspace: &Path) -> impl Iterator<Item = &Path> {
    workspace.ancestors().filter(|dir| dir.join(".git").symlink_metadata().is_ok())
}

/// What a commit writes outside a linked worktree of git. `None` unless the repository knows this very worktree: its
/// side of the link stands where commands cannot write.
fn linked_worktree(link: &Path, writable: &[PathBuf], granting: &mut Granting<'_>) -> Option<Vec<PathBuf>> {
    let path_in = |file: &Path, before: &str| -> Option<PathBuf> {
        let text = String::from_utf8(regular::read(file, MOST_BYTES).ok()?).ok()?;
        let path = text.strip_prefix(before)?.trim();
        file.parent()?.join(path).canonicalize().ok()
    };
    let git_dir = path_in(link, "gitdir:")?;
    let common = path_in(&git_dir.join("commondir"), "")?;
    let back = path_in(&git_dir.join("gitdir"), "")?;
    let mutual = git_dir.parent()? == common.join("worktrees") && back == link;
    if !mutual || writable.iter().any(|root| common.starts_with(root)) {
        return None;
    }
    let mut wanted = Vec::new();
    for folder in ["objects", "refs", "logs"].map(|name| common.join(name)).into_iter().chain([git_dir]) {
        match folder.symlink_metadata() {
            Ok(kind) if kind.is_dir() => wanted.push(folder),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            _ => {
                let clause =
                    format!("nothing in `{}` is writable: `{}` is no folder", common.display(), folder.display());
                granting.say(clause);
                return None;
            }
        }
    }
    Some(wanted.iter().filter_map(|folder| granting.take(folder)).collect())
}
