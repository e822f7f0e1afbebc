//! Where git has settings and hooks.

use std::path::{Component, Path, PathBuf};

use super::Repository;
use crate::world::World;

/// Of the folders below `modules`, those of submodules and above them, so many are looked into.
const MOST_FOLDERS: usize = 4_000;

/// A path without `..`, as if it had no links.
pub(super) fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

/// The repository that git finds from a folder, its own folders without links: a link that is changed leads elsewhere.
pub(super) fn found(folder: &Path) -> Option<Repository> {
    let repository = folder.ancestors().find_map(|folder| Repository::at(folder).or_else(|| bare(folder)))?;
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    Some(Repository {
        git_dir: real(&repository.git_dir),
        common_dir: real(&repository.common_dir),
        top: repository.top,
    })
}

/// A folder without a `.git` is a repository itself when it has what one has.
fn bare(folder: &Path) -> Option<Repository> {
    let has = |name: &str| folder.join(name).is_dir();
    let is = folder.join("HEAD").symlink_metadata().is_ok() && has("objects") && has("refs");
    let folder = || folder.to_owned();
    is.then(|| Repository { top: folder(), git_dir: folder(), common_dir: folder() })
}

/// The files that git reads settings from, here and for each worktree.
pub(super) fn configs(world: &World, repository: &Repository) -> Vec<PathBuf> {
    let mut configs = vec![repository.common_dir.join("config"), repository.git_dir.join("config.worktree")];
    configs.push(repository.common_dir.join("config.worktree"));
    let worktrees = repository.common_dir.join("worktrees");
    configs.extend(folders_in(world, &worktrees).into_iter().map(|folder| folder.join("config.worktree")));
    configs.sort();
    configs.dedup();
    configs
}

/// The folders of submodules in a repository, and of theirs. Their names may hold slashes.
pub(super) fn modules(world: &World, repository: &Repository) -> Vec<PathBuf> {
    let (mut found, mut left) = (Vec::new(), vec![repository.common_dir.join("modules")]);
    let mut looked_into = 0;
    while let Some(folder) = left.pop() {
        looked_into += 1;
        for inner in folders_in(world, &folder) {
            if inner.join("HEAD").exists() {
                left.push(inner.join("modules"));
                found.push(inner);
            } else {
                left.push(inner);
            }
        }
        if looked_into >= MOST_FOLDERS {
            tracing::warn!(folder = %folder.display(), "more folders of submodules than are looked into");
            break;
        }
    }
    found
}

fn folders_in(world: &World, folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = world.dir.list(folder) else { return Vec::new() };
    entries.into_iter().filter(|entry| entry.is_dir).map(|entry| folder.join(entry.name)).collect()
}

/// The files that a file of settings includes, under whatever condition. Files in which somebody hides one are none
/// that stood here before the run: this reads what people and git write.
pub(super) fn included(file: &Path, content: &[u8]) -> Vec<PathBuf> {
    let text = String::from_utf8_lossy(content);
    let (mut found, mut inside) = (Vec::new(), false);
    for line in text.lines().map(str::trim) {
        let mut rest = line;
        if let Some(section) = line.strip_prefix('[') {
            inside = section.get(..7).is_some_and(|name| name.eq_ignore_ascii_case("include"));
            rest = section.rsplit_once(']').map_or("", |(_, rest)| rest).trim();
        }
        let Some((key, value)) = rest.split_once('=') else { continue };
        if inside && key.trim().eq_ignore_ascii_case("path") {
            let value = value.trim().trim_matches('"').replace("\\\\", "\\");
            // `~` is the home directory, where commands cannot write.
            let path = file.parent().unwrap_or(file).join(&value);
            if !value.is_empty() && !value.starts_with('~') {
                found.push(path.canonicalize().unwrap_or_else(|_| plain(&path)));
            }
        }
    }
    found
}

/// What git may run as a hook. Its own examples end in `.sample`, and are never run.
pub(super) fn hooks_in(world: &World, folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = world.dir.list(folder) else { return Vec::new() };
    let hook = |name: &Path| name.extension().is_none_or(|extension| extension != "sample");
    let entries = entries.into_iter().filter(|entry| !entry.is_dir && hook(Path::new(&entry.name)));
    entries.map(|entry| folder.join(entry.name)).collect()
}
