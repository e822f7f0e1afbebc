//! A private copy of a workspace.

use std::fs::{self, File, FileTimes, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::WorkspaceError;
use super::stamp::{Kind, is_gone};
use crate::world::World;

/// Copies a workspace to a new folder: everything, ignored files and `.git` too; symlinks as symlinks; permissions
/// and modification times kept. The result names what a person should know: what was left out (pipes, sockets,
/// devices), and what still leads back to the original.
///
/// Refused when `to` has something in it, is inside `from`, or the other way round.
pub fn copy(world: &World, from: &Path, to: &Path) -> Result<Vec<String>, WorkspaceError> {
    let source = fs::canonicalize(from).map_err(WorkspaceError::io("copy", from))?;
    let refuse = |why| WorkspaceError::io("copy to", to)(io::Error::new(io::ErrorKind::InvalidInput, why));
    // Judged before anything is made: a new folder inside the source would already be a change of it.
    let target = resolved(to).map_err(WorkspaceError::io("copy to", to))?;
    if target.starts_with(&source) {
        return Err(refuse("it is inside the folder that is copied"));
    }
    if source.starts_with(&target) {
        return Err(refuse("the folder that is copied is inside it"));
    }
    fs::create_dir_all(&target).map_err(WorkspaceError::io("create", to))?;
    if !world.dir.list(&target).map_err(WorkspaceError::io("list", to))?.is_empty() {
        return Err(refuse("it is not empty"));
    }
    let mut copier = Copier { world, source: &source, notes: Vec::new() };
    copier.folder(&source, &target)?;
    Ok(copier.notes)
}

/// Where a path that need not exist yet really leads.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    for existing in path.ancestors() {
        match fs::canonicalize(existing) {
            Ok(real) => {
                let rest = path.strip_prefix(existing).unwrap_or(Path::new(""));
                // Where `..` leads behind what does not exist yet is only known once it does.
                if rest.components().any(|part| part == std::path::Component::ParentDir) {
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, "it has `..` behind a missing folder"));
                }
                return Ok(if rest.as_os_str().is_empty() { real } else { real.join(rest) });
            }
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(path)
}

struct Copier<'a> {
    world: &'a World,
    source: &'a Path,
    notes: Vec<String>,
}

impl Copier<'_> {
    fn note(&mut self, path: &Path, what: &str) {
        let path = path.strip_prefix(self.source).unwrap_or(path);
        self.notes.push(format!("`{}` {what}", path.display()));
    }

    /// Copies what is in `from` into `to`, which exists, and then gives `to` the permissions and time of `from`.
    fn folder(&mut self, from: &Path, to: &Path) -> Result<(), WorkspaceError> {
        for entry in self.world.dir.list(from).map_err(WorkspaceError::io("list", from))? {
            let (source, target) = (from.join(&entry.name), to.join(&entry.name));
            let metadata = match fs::symlink_metadata(&source) {
                Ok(metadata) => metadata,
                Err(error) if is_gone(&error) => {
                    self.note(&source, "vanished while it was copied");
                    continue;
                }
                Err(error) => return Err(WorkspaceError::io("read", &source)(error)),
            };
            if metadata.is_dir() {
                fs::create_dir(&target).map_err(WorkspaceError::io("create", &target))?;
                self.folder(&source, &target)?;
                continue;
            }
            match Kind::of(metadata.mode()) {
                Kind::Symlink => self.link(&source, &target, &metadata)?,
                Kind::Special => self.note(&source, "is a pipe, socket or device and was left out"),
                _ => self.file(&source, &target, &metadata)?,
            }
        }
        let metadata = fs::metadata(from).map_err(WorkspaceError::io("read", from))?;
        keep(to, &metadata).map_err(WorkspaceError::io("set the permissions of", to))
    }

    fn file(&mut self, source: &Path, target: &Path, metadata: &Metadata) -> Result<(), WorkspaceError> {
        match fs::copy(source, target) {
            Ok(_) => {}
            Err(error) if is_gone(&error) => {
                self.note(source, "vanished while it was copied");
                return Ok(());
            }
            Err(error) => return Err(WorkspaceError::io("copy", source)(error)),
        }
        keep(target, metadata).map_err(WorkspaceError::io("set the permissions of", target))?;
        if source.file_name().is_some_and(|name| name == ".git") {
            self.note(source, "is a link to git data outside: commits made in the copy land there");
        }
        Ok(())
    }

    fn link(&mut self, source: &Path, target: &Path, metadata: &Metadata) -> Result<(), WorkspaceError> {
        let to = fs::read_link(source).map_err(WorkspaceError::io("read", source))?;
        symlink(&to, target).map_err(WorkspaceError::io("create", target))?;
        let time = |seconds, nanos| rustix::fs::Timespec { tv_sec: seconds, tv_nsec: nanos as _ };
        let times = rustix::fs::Timestamps {
            last_access: time(metadata.atime(), metadata.atime_nsec()),
            last_modification: time(metadata.mtime(), metadata.mtime_nsec()),
        };
        rustix::fs::utimensat(rustix::fs::CWD, target, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| WorkspaceError::io("set the time of", target)(error.into()))?;
        if to.is_absolute() && fs::canonicalize(source).unwrap_or(to).starts_with(self.source) {
            self.note(source, "is a symlink into the original: what is written through it changes that");
        }
        Ok(())
    }
}

/// Gives `path` the permissions and modification time of the original.
fn keep(path: &Path, original: &Metadata) -> io::Result<()> {
    let times = FileTimes::new().set_modified(original.modified()?);
    // The times first: a copy that its owner may not read cannot be opened any more afterwards.
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    File::open(path)?.set_times(times)?;
    fs::set_permissions(path, fs::Permissions::from_mode(original.mode() & 0o7777))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{sh, world, write};
    use super::*;

    fn listing(dir: &Path) -> String {
        sh(dir, "find . -printf '%P %y %m %s %T@ %l\\n' | LC_ALL=C sort; find . -type f -exec cat {} +")
    }

    #[test]
    fn everything_is_copied_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        write(&from, "a/b.sh", "#!/bin/sh\n");
        write(&from, ".git/HEAD", "ref: refs/heads/main\n");
        write(&from, ".gitignore", "target\n");
        write(&from, "target/x", "ignored");
        sh(
            &from,
            "chmod 750 a/b.sh; chmod 400 target/x; ln -s a/b.sh link; ln -s nowhere dangling; ln -s a folder
             mkdir empty; chmod 555 empty; touch -d 2001-02-03 a/b.sh a; touch -h -d 2002-03-04 link",
        );
        let to = dir.path().join("deep/to");
        assert_eq!(copy(&world(), &from, &to).unwrap(), Vec::<String>::new());
        assert_eq!(listing(&to), listing(&from));
    }

    #[test]
    fn what_is_left_out_or_leads_back_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        write(&from, "a", "x");
        write(&from, ".git", "gitdir: /elsewhere/.git/worktrees/w\n");
        sh(&from, "mkfifo pipe; ln -s \"$PWD/a\" back; ln -s /nonexistent/x away");
        let notes = copy(&world(), &from, &dir.path().join("to")).unwrap();
        assert_eq!(notes.len(), 3, "{notes:?}");
        assert!(notes[0].starts_with("`.git` ") && notes[1].starts_with("`back` ") && notes[2].starts_with("`pipe` "));
        assert!(!dir.path().join("to/pipe").exists());
        assert_eq!(fs::read_link(dir.path().join("to/back")).unwrap(), from.join("a"));
    }

    #[test]
    fn a_copy_into_itself_or_onto_something_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        write(&from, "a", "x");
        write(dir.path(), "full/y", "y");
        symlink(&from, dir.path().join("alias")).unwrap();
        let before = listing(dir.path());
        for to in ["from", "from/sub", "from/sub/../deeper", "alias/sub", "full", "from/..", "x/../from/y", ""] {
            let refused = copy(&world(), &from, &dir.path().join(to));
            assert!(matches!(refused, Err(WorkspaceError::Io { .. })), "{to}");
        }
        assert_eq!(listing(dir.path()), before, "nothing was made");
        assert!(copy(&world(), &dir.path().join("none"), &dir.path().join("to")).is_err());
        fs::create_dir(dir.path().join("ready")).unwrap();
        copy(&world(), &from, &dir.path().join("ready")).unwrap();
        copy(&world(), &from, &dir.path().join("fromage")).unwrap();
    }
}
