//! What may be written: the workspace, temporary folders, devices that hold nothing, caches.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Access, Files, Places, Rule, SandboxError, Wanted, real, toolchains};

/// Devices that every program takes to be there.
const DEVICES: [&str; 8] = ["null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts"];

/// What no granted folder may contain.
pub(super) struct Guarded {
    holy: Vec<(&'static str, PathBuf)>,
    goal_file: Vec<PathBuf>,
}

impl Guarded {
    pub(super) fn new(places: &Places<'_>) -> Guarded {
        let home = places.home.map(|home| ("the home directory", real(home)));
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
        Guarded { holy: home.into_iter().chain(stores).chain(keys).chain(programs).collect(), goal_file }
    }

    /// # Errors
    /// When the home directory or the session store is in `dir`.
    pub(super) fn is_outside(&self, dir: &Path) -> Result<(), SandboxError> {
        match self.holy.iter().find(|(_, inner)| inner.starts_with(dir)) {
            Some((what, inner)) => Err(SandboxError::Holds { outer: dir.to_owned(), what, inner: inner.clone() }),
            None => Ok(()),
        }
    }

    /// What of all that is in `dir`, in words.
    fn held_by(&self, dir: &Path) -> Option<&'static str> {
        let goal_file = self.goal_file.iter().map(|file| ("the goal file", file));
        let holy = self.holy.iter().map(|(what, path)| (*what, path));
        holy.chain(goal_file).find(|(_, inner)| inner.starts_with(dir)).map(|(what, _)| what)
    }

    /// The folders that hold none of it; the others are named in `narrowed`.
    fn without_what_it_holds(
        &self,
        folders: impl Iterator<Item = PathBuf>,
        narrowed: &mut Vec<String>,
    ) -> impl Iterator<Item = PathBuf> {
        let mut free = Vec::new();
        for folder in folders.map(|folder| real(&folder)) {
            match self.held_by(&folder) {
                None => free.push(folder),
                Some(what) => {
                    let clause = format!("`{}` is not writable as a whole: it holds {what}", folder.display());
                    if !narrowed.contains(&clause) {
                        narrowed.push(clause);
                    }
                }
            }
        }
        free.into_iter()
    }

    fn is_in_a_store(&self, dir: &Path) -> bool {
        self.holy.iter().any(|(what, store)| *what == "the session store" && dir.starts_with(store))
    }
}

pub(super) fn rules(
    wanted: &Wanted,
    places: &Places<'_>,
    guarded: &Guarded,
    narrowed: &mut Vec<String>,
) -> Result<Vec<Rule>, SandboxError> {
    let mut rules = vec![rule(places.temporary, Access::Write)];
    rules.extend(DEVICES.iter().map(|name| rule(&Path::new("/dev").join(name), Access::Device)));
    rules.push(rule(Path::new("/dev/shm"), Access::Write));
    let workspace = if wanted.files == Files::WorkspaceWrite { Access::Write } else { Access::Read };
    rules.push(rule(places.workspace, workspace));
    if wanted.files == Files::WorkspaceWrite {
        rules.extend(repository(places.workspace, guarded).iter().map(|path| rule(path, Access::Write)));
        let shared = temporary_folders(places, guarded).into_iter().chain(toolchains::caches(places));
        rules.extend(guarded.without_what_it_holds(shared, narrowed).map(|path| rule(&path, Access::Write)));
    }
    for (key, paths, access) in
        [("sandbox.write", &wanted.write, Access::Write), ("sandbox.read", &wanted.read, Access::Read)]
    {
        for path in paths {
            let path = places.at_home(path);
            let found = path.canonicalize().map_err(|_| SandboxError::NoSuchPath { key, path: path.clone() })?;
            if access == Access::Write {
                guarded.is_outside(&found)?;
            }
            // A device that is named is meant to be used as one.
            let device = access == Access::Write && found.starts_with("/dev") && !found.starts_with("/dev/shm");
            rules.push(Rule { path: found, access: if device { Access::Device } else { access } });
        }
    }
    rules.retain(|rule| rule.path.exists());
    Ok(rules)
}

fn rule(path: &Path, access: Access) -> Rule {
    Rule { path: real(path), access }
}

/// `/tmp`, `/var/tmp` and `TMPDIR`.
fn temporary_folders(places: &Places<'_>, guarded: &Guarded) -> Vec<PathBuf> {
    let named = (places.variable)("TMPDIR").filter(|dir| dir.starts_with('/')).map(PathBuf::from);
    let usual = ["/tmp", "/var/tmp"].map(PathBuf::from);
    let mut folders: Vec<PathBuf> = usual.into_iter().chain(named).map(|folder| real(&folder)).collect();
    folders.dedup();
    folders.retain(|folder| !guarded.is_in_a_store(folder));
    folders
}

/// What a commit writes outside the workspace. In a folder of a repository that is its whole `.git`, as it is where
/// the workspace is the repository itself: git makes files right in it, and a right to that holds for all below. What
/// runs code there is watched in either case.
fn repository(workspace: &Path, guarded: &Guarded) -> Vec<PathBuf> {
    let git = |dir: &&Path| dir.join(".git").symlink_metadata().is_ok();
    let Some(top) = workspace.ancestors().find(git) else { return Vec::new() };
    let dot_git = top.join(".git");
    let is_dir = dot_git.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
    if !is_dir {
        return linked_worktree(top);
    }
    // A repository of somebody's whole home directory is not this project's.
    let own = top != workspace && dot_git.join("HEAD").exists() && guarded.is_outside(top).is_ok();
    if own { vec![dot_git] } else { Vec::new() }
}

/// What a commit writes outside a linked worktree of git. Empty unless the repository knows this very worktree: its
/// side of the link stands where commands cannot write.
fn linked_worktree(workspace: &Path) -> Vec<PathBuf> {
    let own = || -> Option<(PathBuf, PathBuf)> {
        let link = workspace.join(".git");
        let text = fs::read_to_string(&link).ok()?;
        let git_dir = workspace.join(text.strip_prefix("gitdir:")?.trim()).canonicalize().ok()?;
        let common = fs::read_to_string(git_dir.join("commondir")).ok()?;
        let common = git_dir.join(common.trim()).canonicalize().ok()?;
        let back = fs::read_to_string(git_dir.join("gitdir")).ok()?;
        let back = git_dir.join(back.trim()).canonicalize().ok()?;
        let mutual = git_dir.parent()? == common.join("worktrees") && back == link.canonicalize().ok()?;
        mutual.then_some((git_dir, common))
    };
    match own() {
        Some((git_dir, common)) if !common.starts_with(workspace) => {
            ["objects", "refs", "logs"].iter().map(|name| common.join(name)).chain([git_dir]).collect()
        }
        _ => Vec::new(),
    }
}
