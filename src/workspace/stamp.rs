//! What one path holds: its stat data, and a digest of its content.
//!
//! *The racy-entry rule.* Equal stat data prove equal content only if a later write must show in them. A change
//! always sets the change time to the file system's now, so an entry is safe when its change time was already past
//! at the moment its content was read. The moment is taken from the file system itself: the newest change time seen
//! while everything was looked at, before anything was hashed. Whatever is not older than that is hashed again next
//! time. No clock is needed, coarse timestamps are no problem, and a modification time set by hand deceives nobody.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use sha2::{Digest, Sha256};

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
    pub fn of(metadata: &Metadata) -> Kind {
        let kind = metadata.file_type();
        if kind.is_symlink() {
            Kind::Symlink
        } else if kind.is_fifo() || kind.is_socket() || kind.is_block_device() || kind.is_char_device() {
            Kind::Special
        } else if metadata.mode() & 0o100 != 0 {
            Kind::Executable
        } else {
            Kind::File
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
    pub fn of(metadata: &Metadata) -> Stamp {
        let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Stamp {
            kind: Kind::of(metadata),
            size: metadata.len(),
            mtime: nanos(metadata.mtime(), metadata.mtime_nsec()),
            ctime: nanos(metadata.ctime(), metadata.ctime_nsec()),
            inode: metadata.ino(),
            device: metadata.dev(),
        }
    }

    /// `None`: nothing stands there (any more).
    pub fn read(path: &Path) -> io::Result<Option<Stamp>> {
        match std::fs::symlink_metadata(path) {
            Ok(metadata) => Ok(Some(Stamp::of(&metadata))),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
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
pub(super) fn content(path: &Path, largest: u64, buffer: &mut Vec<u8>) -> Content {
    let mut last = Content::Gone;
    for _ in 0..2 {
        let stamp = match Stamp::read(path) {
            Ok(Some(stamp)) => stamp,
            Ok(None) => return Content::Gone,
            Err(_) => return Content::Unreadable,
        };
        let hash = match stamp.kind {
            Kind::Symlink => std::fs::read_link(path).map(|to| Sha256::digest(to.as_os_str().as_bytes()).into()),
            Kind::Special | Kind::Repository => Ok(Hash::default()),
            Kind::File | Kind::Executable if stamp.size > largest => {
                Ok(Sha256::digest(format!("{} {}", stamp.size, stamp.mtime)).into())
            }
            Kind::File | Kind::Executable => hash_file(path, buffer),
        };
        last = match hash {
            Ok(hash) => Content::Read { stamp, hash },
            Err(error) if is_gone(&error) => Content::Gone,
            Err(_) => Content::Unreadable,
        };
        if matches!(Stamp::read(path), Ok(Some(after)) if after == stamp) {
            break;
        }
    }
    last
}

fn hash_file(path: &Path, buffer: &mut Vec<u8>) -> io::Result<Hash> {
    // Between the look at it and now a pipe may have taken the file's place: opening must not wait for a writer.
    let mut file = File::from(rustix::fs::open(
        path,
        rustix::fs::OFlags::RDONLY
            | rustix::fs::OFlags::CLOEXEC
            | rustix::fs::OFlags::NONBLOCK
            | rustix::fs::OFlags::NOFOLLOW,
        rustix::fs::Mode::empty(),
    )?);
    let mut hash = Sha256::new();
    buffer.resize(64 * 1024, 0);
    loop {
        match file.read(buffer) {
            Ok(0) => return Ok(hash.finalize().into()),
            Ok(read) => hash.update(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
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
        let Content::Read { stamp, .. } = content(&pipe, 1_000, &mut Vec::new()) else {
            panic!("known without opening")
        };
        assert_eq!(stamp.kind, Kind::Special);
    }
}
