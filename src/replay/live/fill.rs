//! The workspace of a replay in which tools really run: what the recording holds of it, and the rest from the commit
//! that it was found at.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::super::scratch::Scratch;
use super::super::{ReplayError, files};
use super::Real;
use crate::cassette::Tape;
use crate::goal::Config;
use crate::session::{FileKind, RunStart};
use crate::workspace::{BaseFile, Git, Tree};
use crate::world::{Roots, World};

/// Files over this are told by size and time, and their content by nothing.
const LARGEST_DIGESTED_BYTES: u64 = 20 << 20;
/// Most paths that are named.
const MOST_NAMES: usize = 5;

/// Fills the scratch folder with the workspace as it was found.
///
/// # Errors
/// Where the commit or a content is nowhere to be found, and when git or the disk fails.
pub async fn fill(
    real: &dyn Real,
    config: &Config,
    tape: &Tape,
    start: &RunStart,
    scratch: &Scratch,
) -> Result<(), ReplayError> {
    let base = tape.base().ok_or_else(|| ReplayError::Lacks("the workspace as it was found".to_owned()))?;
    let commit = tape.head().source.as_ref().and_then(|source| source.git_commit.clone());
    let started = real.start(config, &scratch.workspace).map_err(ReplayError::Real)?;
    let world = World { exec: started.exec.clone(), ..real.world() };
    let filled = async {
        // Whatever is found there counts only with the recorded digest.
        let mut from = vec![PathBuf::from(&start.workspace)];
        if let Some(commit) = &commit {
            let repository = check_out(real, &world, commit, start, scratch).await?;
            from.extend(start.git_prefix.as_deref().map(|inside| repository.join(inside)));
            from.push(repository);
        } else if scratch.repository {
            // One without a commit yet.
            let git = Git::new(Roots::same(scratch.top.clone()), scratch.git());
            git.init_at(&world, start.git_branch.as_deref(), &scratch.top).await?;
        }
        complete(&world, tape, &base.files, &from, scratch)
    };
    let filled = tokio::select! {
        biased;
        filled = filled => filled,
        outcome = real.stopped() => Err(ReplayError::Stopped(outcome)),
    };
    world.exec.shutdown(std::time::Duration::from_secs(1)).await;
    filled
}

/// Puts the commit there, with its history, from the first repository that holds it; gives that.
async fn check_out(
    real: &dyn Real,
    world: &World,
    commit: &str,
    start: &RunStart,
    scratch: &Scratch,
) -> Result<PathBuf, ReplayError> {
    let mut looked = Vec::new();
    for folder in real.repositories(Path::new(&start.workspace)) {
        let git = Git::new(Roots::same(folder.clone()), scratch.git());
        match git.holds(world, commit).await {
            Ok(true) => {
                git.clone_at(world, commit, start.git_branch.as_deref(), &scratch.top).await?;
                let workspace = &scratch.workspace;
                let made = std::fs::create_dir_all(workspace).and_then(|()| workspace.canonicalize());
                if made.map_err(|error| ReplayError::Scratch(workspace.clone(), error))? != *workspace {
                    // The commit has a link there, and tools would run where that leads.
                    return Err(ReplayError::NoContent("the recorded folder is a link in the commit".to_owned()));
                }
                return Ok(folder);
            }
            Ok(false) => looked.push(format!("`{}` does not hold it", folder.display())),
            Err(error) => looked.push(format!("`{}`: {error}", folder.display())),
        }
    }
    looked.dedup();
    Err(ReplayError::NoCommit { commit: commit.to_owned(), looked: looked.join("; ") })
}

/// Lets every listed file stand as it stood, and no other one.
fn complete(
    world: &World,
    tape: &Tape,
    listed: &[BaseFile],
    from: &[PathBuf],
    scratch: &Scratch,
) -> Result<(), ReplayError> {
    let root = &scratch.workspace;
    let io = |error| ReplayError::Scratch(root.clone(), error);
    let mut missing: Vec<String> = Vec::new();
    for file in listed {
        if matches!(file.kind, FileKind::Repository | FileKind::Special) || stands(root, file) {
            continue;
        }
        let content = tape.blob(&file.sha256).map(|content| content.to_vec());
        let elsewhere = || from.iter().find_map(|folder| found(folder, file));
        match content.or_else(elsewhere) {
            Some(content) => files::place(root, &file.path, file.kind, &content).map_err(io)?,
            None => missing.push(file.path.display().to_string()),
        }
    }
    if !missing.is_empty() {
        let more = missing.len().saturating_sub(MOST_NAMES);
        missing.truncate(MOST_NAMES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        return Err(ReplayError::NoContent(format!(
            "the content of {}{more} is neither in the recording nor where it was found",
            missing.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        )));
    }
    let known: BTreeSet<&Path> = listed.iter().map(|file| file.path.as_path()).collect();
    let mut tree = Tree::new(Roots::same(root.clone()), Vec::new());
    tree.digest(world)?;
    let others: Vec<PathBuf> = tree.files().keys().filter(|path| !known.contains(path.as_path())).cloned().collect();
    for other in others {
        files::remove(root, &other).map_err(io)?;
    }
    Ok(())
}

fn stands(root: &Path, file: &BaseFile) -> bool {
    if file.bytes > LARGEST_DIGESTED_BYTES {
        return root.join(&file.path).symlink_metadata().is_ok_and(|there| there.len() == file.bytes);
    }
    files::stands(root, &file.path) == Some((file.kind, file.sha256.clone()))
}

/// The listed content, where a folder has it at the same place.
fn found(folder: &Path, file: &BaseFile) -> Option<Vec<u8>> {
    if files::stands(folder, &file.path)? != (file.kind, file.sha256.clone()) {
        return None;
    }
    let path = folder.join(&file.path);
    match file.kind {
        FileKind::Symlink => {
            use std::os::unix::ffi::OsStringExt;
            Some(std::fs::read_link(path).ok()?.into_os_string().into_vec())
        }
        _ => std::fs::read(path).ok(),
    }
}
