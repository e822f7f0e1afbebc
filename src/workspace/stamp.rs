//! What one path holds: its stat data, and a digest of its content.
//!
//! *The racy-entry rule.* Equal stat data prove equal content only if a later write must show in them. A change
//! always sets the change time to the file system's now, so an entry is safe when its change time was already past
//! at the moment its content was read. The moment is taken from the file system itself: the newest change time seen
//! while everything was looked at, before anything was hashed. Whatever is not older than that is hashed again next
//! time. No clock is needed, coarse timestamps are no problem, and a modification time set by hand deceives nobody.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use sha2::{Digest, Sha256};

use crate::session::FileKind;

/// A sha256.
pub(super) type Hash = [u8; 32];

/// What an entry is; part of every digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Executable,
    Symlink,
    /// A nested repository: its commit stands for its content.
    Repository,
    /// A pipe, socket or device: never opened.
    Special,
}

impl Kind {
    /// From the mode bits of something that is no folder.
    pub const fn of(mode: u32) -> Kind {
        match FileType::from_raw_mode(mode) {
            FileType::Symlink => Kind::Symlink,
            FileType::RegularFile if mode & 0o100 != 0 => Kind::Executable,
            FileType::RegularFile | FileType::Directory => Kind::File,
            _ => Kind::Special,
        }
    }

    pub const fn tag(self) -> u8 {
        match self {
            Kind::File => b'f',
            Kind::Executable => b'x',
            Kind::Symlink => b'l',
            Kind::Repository => b'r',
            Kind::Special => b's',
        }
    }
}

impl From<Kind> for FileKind {
    fn from(kind: Kind) -> FileKind {
        match kind {
            Kind::File => FileKind::File,
            Kind::Executable => FileKind::Executable,
            Kind::Symlink => FileKind::Symlink,
            Kind::Repository => FileKind::Repository,
            Kind::Special => FileKind::Special,
        }
    }
}

impl From<FileKind> for Kind {
    fn from(kind: FileKind) -> Kind {
        match kind {
            FileKind::File => Kind::File,
            FileKind::Executable => Kind::Executable,
            FileKind::Symlink => Kind::Symlink,
            FileKind::Repository => Kind::Repository,
            FileKind::Special => Kind::Special,
        }
    }
}

/// Stat data of an entry. Times are nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub kind: Kind,
    pub size: u64,
    pub mtime: i128,
    pub ctime: i128,
    inode: u64,
    device: u64,
}

impl Stamp {
    fn of(stat: &Stat) -> Stamp {
        Stamp {
            kind: Kind::of(stat.st_mode),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime: i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec),
            ctime: i128::from(stat.st_ctime) * 1_000_000_000 + i128::from(stat.st_ctime_nsec),
            inode: stat.st_ino,
            device: stat.st_dev,
        }
    }

    /// Of what stands at a path below an open folder (`CWD` for an absolute one), symlinks not followed. `None`:
    /// nothing stands there (any more).
    pub fn read(folder: BorrowedFd<'_>, path: &Path) -> io::Result<Option<Stamp>> {
        match rustix::fs::statat(folder, path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Stamp::of(&stat))),
            Err(error) if is_gone(&error.into()) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The content of one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Read {
        stamp: Stamp,
        hash: Hash,
    },
    /// It could not be read; that itself is what is known of it.
    Unreadable,
    Gone,
}

/// Lower-case hexadecimal.
pub(super) fn hex(hash: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
    hash.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Reads and hashes one entry, a symlink's target text included. Files over `largest` bytes are told by size and
/// modification time. A file that changes while it is read is read once more, and what was read then counts: its
/// change time is recent, so the racy-entry rule reads it again next time.
pub(super) fn content(folder: BorrowedFd<'_>, path: &Path, largest: u64, buffer: &mut Vec<u8>) -> Content {
    let first = match Stamp::read(folder, path) {
        Ok(Some(stamp)) => stamp,
        Ok(None) => return Content::Gone,
        Err(_) => return Content::Unreadable,
    };
    let read = match first.kind {
        Kind::Symlink => rustix::fs::readlinkat(folder, path, Vec::new())
            .map(|target| (first, Sha256::digest(target.to_bytes()).into()))
            .map_err(io::Error::from),
        Kind::Special | Kind::Repository => Ok((first, Hash::default())),
        Kind::File | Kind::Executable => read_file(folder, path, largest, buffer),
    };
    match read {
        Ok((stamp, hash)) => Content::Read { stamp, hash },
        Err(error) if is_gone(&error) => Content::Gone,
        Err(_) => Content::Unreadable,
    }
}

fn read_file(folder: BorrowedFd<'_>, path: &Path, largest: u64, buffer: &mut Vec<u8>) -> io::Result<(Stamp, Hash)> {
    // Since the look at it a pipe may have taken the file's place: opening must not wait for a writer.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let mut second = false;
    loop {
        let mut file = File::from(rustix::fs::openat(folder, path, flags, Mode::empty())?);
        let stamp = Stamp::of(&rustix::fs::fstat(&file)?);
        let hash = match stamp.kind {
            Kind::File | Kind::Executable if stamp.size <= largest => hash_file(&mut file, stamp.size, buffer)?,
            Kind::File | Kind::Executable => Sha256::digest(format!("{} {}", stamp.size, stamp.mtime)).into(),
            _ => Hash::default(),
        };
        if second || Stamp::of(&rustix::fs::fstat(&file)?) == stamp {
            return Ok((stamp, hash));
        }
        second = true;
    }
}

/// Hashes up to `size` bytes. A file that has grown by then has a new change time.
fn hash_file(file: &mut File, size: u64, buffer: &mut Vec<u8>) -> io::Result<Hash> {
    buffer.resize(128 * 1024, 0);
    let mut hash = Sha256::new();
    let mut left = size;
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        match file.read(&mut buffer[..most]) {
            Ok(0) => break,
            Ok(read) => {
                hash.update(&buffer[..read]);
                left -= read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(hash.finalize().into())
}

/// Runs `work` on every index below `count`, on two threads when that pays, each with its own state. The results
/// come back in no particular order.
pub(super) fn in_parallel<S: Default, T: Send>(
    count: usize,
    work: impl Fn(usize, &mut S) -> T + Sync,
) -> Vec<(usize, T)> {
    const WORTH_A_THREAD: usize = 128;
    let next = std::sync::atomic::AtomicUsize::new(0);
    let step = if count < WORTH_A_THREAD { count.max(1) } else { 32 };
    let run = || {
        let mut state = S::default();
        let mut done = Vec::new();
        loop {
            let start = next.fetch_add(step, std::sync::atomic::Ordering::Relaxed);
            if start >= count {
                return done;
            }
            done.extend((start..count.min(start + step)).map(|i| (i, work(i, &mut state))));
        }
    };
    if count < WORTH_A_THREAD {
        return run();
    }
    std::thread::scope(|scope| {
        let helper = scope.spawn(run);
        let mut done = run();
        match helper.join() {
            Ok(others) => done.extend(others),
            Err(panic) => std::panic::resume_unwind(panic),
        }
        done
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_is_worked_on_once() {
        for count in [0, 1, 127, 128, 1_000] {
            let mut seen: Vec<usize> = in_parallel(count, |i, (): &mut ()| i).into_iter().map(|(_, i)| i).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_pipe_is_never_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let Content::Read { stamp, .. } = content(rustix::fs::CWD, &pipe, 1_000, &mut Vec::new()) else {
            panic!("known without opening")
        };
        assert_eq!(stamp.kind, Kind::Special);
    }
}
