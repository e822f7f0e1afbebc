//! Files reached by a path on which no link is followed, whoever renames and links things meanwhile.
//!
//! A path is resolved and judged first, and opened afterwards. In between a command may have put a link where a
//! folder was. So what is opened here is what stands at exactly that path, or an error: `openat2` refuses every link
//! on the way, and where the kernel has none the way is walked folder by folder.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

/// Enough to reach what is in a folder, without the right to list it.
#[cfg(target_os = "linux")]
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens what stands at an absolute path. A link anywhere on it, at its end too, and `..` are errors.
pub fn open(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, ResolveFlags, openat2};
        let plain = plain_parts(path)?;
        let whole: PathBuf = [OsStr::new("/")].into_iter().chain(plain).collect();
        match openat2(CWD, &whole, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS) {
            // An old kernel, or a container whose filter does not know the call.
            Err(Errno::NOSYS | Errno::PERM) => {}
            other => return other.map_err(named),
        }
    }
    walked(path, flags)
}

/// An open file for reading; a pipe or a terminal is not waited for.
pub fn open_to_read(path: &Path) -> io::Result<File> {
    open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY).map(File::from)
}

/// The same as [`open`], one folder at a time.
fn walked(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let parts = plain_parts(path)?;
    let mut at = rustix::fs::open("/", FOLDER, Mode::empty())?;
    let Some((last, above)) = parts.split_last() else { return Ok(rustix::fs::open("/", flags, Mode::empty())?) };
    for part in above {
        at = rustix::fs::openat(&at, *part, FOLDER | OFlags::NOFOLLOW, Mode::empty()).map_err(named)?;
    }
    rustix::fs::openat(&at, *last, flags | OFlags::NOFOLLOW, Mode::empty()).map_err(named)
}

/// The names of an absolute path.
fn plain_parts(path: &Path) -> io::Result<Vec<&OsStr>> {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::RootDir => {}
            Component::Normal(name) => parts.push(name),
            _ => return Err(io::Error::other("the path is not absolute, or leads up")),
        }
    }
    Ok(parts)
}

/// A link where none was when the path was resolved has been put there since.
fn named(error: Errno) -> io::Error {
    match error {
        Errno::LOOP | Errno::MLINK => io::Error::other("a link stands on its way, which is not followed"),
        other => other.into(),
    }
}

/// The folder at an absolute path, each missing one made on the way.
pub fn make_folders(path: &Path) -> io::Result<OwnedFd> {
    let mut at = rustix::fs::open("/", FOLDER, Mode::empty())?;
    for part in plain_parts(path)? {
        let next = rustix::fs::openat(&at, part, FOLDER | OFlags::NOFOLLOW, Mode::empty());
        at = match next {
            Err(Errno::NOENT) => {
                match rustix::fs::mkdirat(&at, part, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                rustix::fs::openat(&at, part, FOLDER | OFlags::NOFOLLOW, Mode::empty()).map_err(named)?
            }
            other => other.map_err(named)?,
        };
    }
    Ok(at)
}

/// Replaces a whole file in one step: a new one beside it, renamed over what stands there, a link too. The mode and,
/// where that is permitted, the owner of a file that stands there are kept, unless `mode` says another. Missing
/// folders are made.
pub fn replace(path: &Path, content: &[u8], mode: Option<u32>) -> io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("the path names no file"));
    };
    let folder = make_folders(folder)?;
    let old = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).ok();
    let pid = rustix::process::getpid().as_raw_nonzero();
    let (temporary, new) = loop {
        let temporary = format!(".spettro-{pid}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // The mask applies to a new file's mode when it is made.
        match rustix::fs::openat(&folder, &temporary, flags, Mode::from_raw_mode(0o666)) {
            Ok(new) => break (temporary, File::from(new)),
            // Left by a process of that number that was killed.
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    };
    let put = || -> io::Result<()> {
        (&new).write_all(content)?;
        let old = old.filter(|old| rustix::fs::FileType::from_raw_mode(old.st_mode).is_file());
        if let Some(old) = &old {
            let made = rustix::fs::fstat(&new)?;
            if (made.st_uid, made.st_gid) != (old.st_uid, old.st_gid) {
                // Only root may give a file away; for others the new file is theirs, as with any editor.
                let (owner, group) = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
                if let Err(error) = rustix::fs::fchown(&new, Some(owner), Some(group)) {
                    tracing::debug!(path = %path.display(), %error, "owner not kept");
                }
            }
        }
        // After the owner: a change of owner clears the set-id bits.
        if let Some(mode) = mode.or(old.map(|old| old.st_mode)) {
            rustix::fs::fchmod(&new, Mode::from_raw_mode(mode & 0o7777))?;
        }
        rustix::fs::renameat(&folder, &temporary, &folder, name).map_err(io::Error::from)
    };
    let done = put();
    if done.is_err() {
        // What failed is told; that its remains could not be removed adds nothing.
        let _gone = rustix::fs::unlinkat(&folder, &temporary, AtFlags::empty());
    }
    done
}

/// A new file at an absolute path, for writing; a file or a link that stands there is removed first.
pub fn create(path: &Path, mode: u32) -> io::Result<File> {
    remove(path)?;
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("the path names no file"));
    };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(open(folder, FOLDER)?, name, flags, Mode::from_raw_mode(mode))?.into())
}

/// Removes the file or the link at an absolute path; that nothing stands there is as good.
pub fn remove(path: &Path) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("the path names no file"));
    };
    let removed = open(folder, FOLDER).and_then(|folder| Ok(rustix::fs::unlinkat(&folder, name, AtFlags::empty())?));
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A path without links: that of the deepest part that exists, and the rest as written. A link that leads nowhere
/// is an error, because what is written through it would land somewhere else.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut missing = Vec::new();
    let mut at = path.to_owned();
    loop {
        match at.canonicalize() {
            Ok(mut base) => {
                base.extend(missing.iter().rev());
                return Ok(base);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if at.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink()) {
                    return Err(io::Error::other("it is a symbolic link that leads nowhere"));
                }
                match at.components().next_back() {
                    Some(Component::Normal(name)) => missing.push(name.to_owned()),
                    _ => return Err(error),
                }
                at.pop();
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn place() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(path.join("in/deep")).unwrap();
        std::fs::create_dir(path.join("out")).unwrap();
        std::fs::write(path.join("in/deep/file"), "inside").unwrap();
        std::fs::write(path.join("out/file"), "outside").unwrap();
        (dir, path)
    }

    type Opens = fn(&Path) -> io::Result<OwnedFd>;
    const WAYS: [Opens; 2] = [|path| open(path, OFlags::RDONLY), |path| walked(path, OFlags::RDONLY)];

    #[test]
    fn what_stands_at_the_path_is_opened() {
        let (_dir, path) = place();
        for way in WAYS {
            let mut text = String::new();
            File::from(way(&path.join("in/deep/file")).unwrap()).read_to_string(&mut text).unwrap();
            assert_eq!(text, "inside");
            assert_eq!(way(&path.join("in/none")).unwrap_err().kind(), io::ErrorKind::NotFound);
            way(Path::new("/")).unwrap();
        }
    }

    #[test]
    fn no_link_on_the_way_and_no_way_up_is_taken() {
        let (_dir, path) = place();
        symlink(path.join("out"), path.join("in/link")).unwrap();
        symlink("../out/file", path.join("in/file")).unwrap();
        for way in WAYS {
            for led in ["in/link/file", "in/link", "in/file", "in/../out/file", "in/deep/../../out/file"] {
                let error = way(&path.join(led)).unwrap_err();
                let said = error.to_string();
                assert!(
                    said.contains("link") || said.contains("leads up") || said.contains("directory"),
                    "{led}: {said}"
                );
            }
            assert!(way(Path::new("relative")).is_err());
            assert!(way(Path::new("/proc/self/root/etc/passwd")).is_err(), "a magic link is one too");
        }
        assert!(replace(&path.join("in/link/new"), b"x", None).is_err());
        assert!(make_folders(&path.join("in/link/new")).is_err());
        assert!(remove(&path.join("in/link/file")).is_err());
        assert!(path.join("out/file").exists() && !path.join("out/new").exists());
    }

    #[test]
    fn a_file_is_replaced_whole_and_a_link_by_a_file() {
        let (_dir, path) = place();
        let file = path.join("in/deep/file");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o751)).unwrap();
        replace(&file, b"new", None).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o7777, 0o751);
        replace(&file, b"new", Some(0o640)).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o7777, 0o640);
        symlink(path.join("out/file"), path.join("in/link")).unwrap();
        replace(&path.join("in/link"), b"mine", None).unwrap();
        assert_eq!(std::fs::read(path.join("out/file")).unwrap(), b"outside");
        assert!(path.join("in/link").symlink_metadata().unwrap().is_file());
        replace(&path.join("a/b/c"), b"deep", None).unwrap();
        assert_eq!(std::fs::read(path.join("a/b/c")).unwrap(), b"deep");
        remove(&path.join("a/b/c")).unwrap();
        remove(&path.join("a/b/c")).unwrap();
        assert_eq!(
            crate::world::Dir::list(&crate::world::RealDir, &path.join("a/b")).unwrap().len(),
            0,
            "nothing temporary is left"
        );
    }
}
