//! Files of a scratch workspace by paths that a recording names. A recording is not trusted: a path that is no plain
//! one below the folder is refused, and no link is followed.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::session::FileKind;

/// Writes what stands at a path, in place of whatever stands there or on its way.
pub fn place(root: &Path, path: &Path, kind: FileKind, content: &[u8]) -> io::Result<()> {
    let (folders, name) = split(path)?;
    let mut at = root.to_owned();
    for folder in folders {
        at.push(folder);
        match fs::symlink_metadata(&at) {
            Ok(there) if there.is_dir() => continue,
            Ok(_) => fs::remove_file(&at)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        fs::create_dir(&at)?;
    }
    at.push(name);
    let mode = match kind {
        FileKind::File => 0o644,
        FileKind::Executable => 0o755,
        FileKind::Symlink => {
            clear(&at)?;
            return std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(content), &at);
        }
        FileKind::Repository | FileKind::Special => {
            clear(&at)?;
            return Err(io::ErrorKind::Unsupported.into());
        }
    };
    // A file that stands there is written over: a new one each time keeps some file systems busy for long.
    let stands = fs::symlink_metadata(&at).is_ok_and(|there| there.is_file());
    if !stands {
        clear(&at)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(!stands).truncate(stands).mode(mode).open(&at)?;
    file.write_all(content)?;
    // Whatever the mask of this process is.
    file.set_permissions(Permissions::from_mode(mode))
}

/// Removes what stands at a path, and the folders that have nothing in them then; that nothing does is as good.
pub fn remove(root: &Path, path: &Path) -> io::Result<()> {
    split(path)?;
    let Some(at) = on_disk(root, path) else { return Ok(()) };
    clear(&at)?;
    for folder in path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty()) {
        match fs::remove_dir(root.join(folder)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Removes what stands at a path, or on its way and is no folder.
pub fn make_way(root: &Path, path: &Path) -> io::Result<()> {
    let (folders, name) = split(path)?;
    let mut at = root.to_owned();
    for folder in folders {
        at.push(folder);
        match fs::symlink_metadata(&at) {
            Ok(there) if there.is_dir() => {}
            Ok(_) => return fs::remove_file(&at),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    clear(&at.join(name))
}

/// Whether a folder is not there, or has nothing in it.
pub fn is_bare(folder: &Path) -> bool {
    let open = rustix::fs::open(folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
    match open {
        Ok(open) => rustix::fs::Dir::new(open).is_ok_and(|dir| {
            let mut names = dir.filter_map(Result::ok);
            !names.any(|entry| !matches!(entry.file_name().to_bytes(), b"." | b".."))
        }),
        Err(error) => error == Errno::NOENT,
    }
}

/// Kind and sha256 (hex) of a file or link; `None` when there is none.
pub fn stands(root: &Path, path: &Path) -> Option<(FileKind, String)> {
    let at = on_disk(root, path)?;
    let there = fs::symlink_metadata(&at).ok()?;
    let (kind, content) = if there.is_symlink() {
        (FileKind::Symlink, fs::read_link(&at).ok()?.into_os_string().into_vec())
    } else if there.is_file() {
        let executable = there.permissions().mode() & 0o100 != 0;
        (if executable { FileKind::Executable } else { FileKind::File }, fs::read(&at).ok()?)
    } else {
        return None;
    };
    Some((kind, sha256(&content)))
}

/// In hex.
pub fn sha256(content: &[u8]) -> String {
    format!("{:x}", Sha256::digest(content))
}

/// Whether something stands at a path, and no link leads there.
pub fn is_plain_on_disk(root: &Path, path: &Path) -> bool {
    on_disk(root, path).is_some_and(|at| fs::symlink_metadata(at).is_ok_and(|there| !there.is_symlink()))
}

/// Where a plain path stands, when all folders on its way are there and no links.
fn on_disk(root: &Path, path: &Path) -> Option<PathBuf> {
    if path.as_os_str().is_empty() {
        return Some(root.to_owned());
    }
    let (folders, name) = split(path).ok()?;
    let mut at = root.to_owned();
    for folder in folders {
        at.push(folder);
        fs::symlink_metadata(&at).ok().filter(fs::Metadata::is_dir)?;
    }
    Some(at.join(name))
}

/// The folders of a plain path, and its name.
fn split(path: &Path) -> io::Result<(Vec<&std::ffi::OsStr>, &std::ffi::OsStr)> {
    let plain = path.components().map(|part| match part {
        Component::Normal(name) if name != ".git" => Some(name),
        _ => None,
    });
    let mut names = plain.collect::<Option<Vec<_>>>().unwrap_or_default();
    let name = names.pop().ok_or_else(|| io::Error::other("it is no plain path below the workspace"))?;
    Ok((names, name))
}

fn clear(at: &Path) -> io::Result<()> {
    match fs::symlink_metadata(at) {
        Ok(there) if there.is_dir() => fs::remove_dir_all(at),
        Ok(_) => fs::remove_file(at),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_written_outside_or_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&outside).unwrap();
        for bad in ["../outside/x", "/outside/x", "", ".git/hooks/x", "a/../../outside/x", "a/.git/config"] {
            assert!(place(&root, Path::new(bad), FileKind::File, b"x").is_err(), "{bad}");
            assert!(remove(&root, Path::new(bad)).is_err(), "{bad}");
        }
        let link = outside.as_os_str().as_bytes();
        place(&root, Path::new("link"), FileKind::Symlink, link).unwrap();
        fs::write(outside.join("kept"), "x").unwrap();
        remove(&root, Path::new("link/kept")).unwrap();
        assert_eq!(stands(&root, Path::new("link/kept")), None);
        place(&root, Path::new("link/x"), FileKind::Executable, b"x").unwrap();
        assert!(root.join("link").symlink_metadata().unwrap().is_dir(), "the link gave way to a folder");
        assert!(outside.join("kept").exists() && !outside.join("x").exists(), "where it led all is as it was");
        let kind = stands(&root, Path::new("link/x")).unwrap().0;
        assert_eq!(kind, FileKind::Executable);
    }
}
