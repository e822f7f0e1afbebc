//! Locks: one writer a session, one run a workspace. The kernel releases them with the process, however it dies.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::SessionError;
use super::files::make_dirs;
use super::store::{LOCK_FILE, workspace_hash};
use crate::world::{World, rfc3339};

/// How long a second one waits.
const WAIT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(50);

/// Who holds a lock: the content of its file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Holder {
    host: String,
    pid: u32,
    run: String,
    /// RFC 3339.
    since: String,
    session: Option<String>,
    /// The control socket of a run, once it listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    socket: Option<PathBuf>,
}

/// Who has a session open right now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    pub pid: u32,
    pub run: String,
    /// Absent while a run begins, and for verbs that write.
    pub socket: Option<PathBuf>,
}

/// Who has the session in `dir` open; `None` when nobody has.
pub fn live(dir: &Path) -> Option<Live> {
    let path = dir.join(LOCK_FILE);
    if !is_held(&path) {
        return None;
    }
    // Held and not yet written is a matter of microseconds: there is nobody to talk to yet.
    let holder = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Holder>(&text).ok())?;
    Some(Live { pid: holder.pid, run: holder.run, socket: holder.socket })
}

impl Holder {
    pub(super) fn me(world: &World, run: &str, session: Option<&str>) -> Holder {
        // Only Linux has this file; elsewhere the variable must do.
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let host = host.or_else(|| world.env.var("HOSTNAME")).unwrap_or_default();
        Holder {
            host: host.trim().to_owned(),
            pid: std::process::id(),
            run: run.to_owned(),
            since: rfc3339(world.clock.now()),
            session: session.map(str::to_owned),
            socket: None,
        }
    }

    fn describe(&self) -> String {
        let session = self.session.as_ref().map_or_else(String::new, |id| format!(", session {id}"));
        format!("process {} on {} since {} (run {}{session})", self.pid, self.host, self.since, self.run)
    }
}

/// A held lock file; released when dropped.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        release(&self.file);
    }
}

/// Gives a lock back now. To close the file is not enough: a child that another thread has forked and that has not
/// come to its `exec` holds a copy of the descriptor, and with it the lock.
fn release(file: &File) {
    if let Err(error) = file.unlock() {
        // Then it is released where the last copy is closed.
        tracing::warn!(%error, "a lock is not given back at once");
    }
}

impl Lock {
    /// Writes the holder's socket into the held lock. The new content is longer than the old and goes in one write,
    /// so that a reader never finds a part of it.
    pub(super) fn name_socket(&self, path: &Path, me: &Holder, socket: &Path) -> Result<(), SessionError> {
        let me = Holder { socket: Some(socket.to_owned()), ..me.clone() };
        let written = serde_json::to_vec(&me).map_err(io::Error::from).and_then(|mut content| {
            let shortfall = self.file.metadata()?.len().saturating_sub(content.len() as u64);
            content.resize(content.len() + shortfall as usize, b' ');
            self.file.write_all_at(&content, 0)
        });
        written.map_err(SessionError::io("write", path))
    }

    /// One try, without waiting: for a folder that nobody else can know yet.
    pub(super) fn take_now(path: &Path, what: &str, me: &Holder) -> Result<Lock, SessionError> {
        Lock::attempt(path, me)?.ok_or_else(|| busy(path, what))
    }

    /// Tries for five seconds, then `Busy` with the holder.
    pub(super) async fn take(world: &World, path: &Path, what: &str, me: &Holder) -> Result<Lock, SessionError> {
        let start = world.clock.elapsed();
        loop {
            if let Some(lock) = Lock::attempt(path, me)? {
                return Ok(lock);
            }
            if world.clock.elapsed().saturating_sub(start) >= WAIT {
                return Err(busy(path, what));
            }
            world.clock.sleep(POLL).await;
        }
    }

    fn attempt(path: &Path, me: &Holder) -> Result<Option<Lock>, SessionError> {
        // The standard library opens it close-on-exec: no program that is started keeps it.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(SessionError::io("open", path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => {
                return Err(SessionError::Io { what: "lock", file: path.to_owned(), error });
            }
        }
        let lock = Lock { file };
        let mut file = &lock.file;
        let mine = file.metadata().map_err(SessionError::io("lock", path))?;
        match std::fs::metadata(path) {
            Ok(named) if (named.dev(), named.ino()) == (mine.dev(), mine.ino()) => {}
            // Its last holder removed it between our open and our lock: what we hold is a lock on nothing.
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(SessionError::Io { what: "lock", file: path.to_owned(), error }),
        }
        let written = serde_json::to_vec(me).map_err(io::Error::from).and_then(|content| {
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(&content)
        });
        written.map_err(SessionError::io("write", path))?;
        Ok(Some(lock))
    }
}

fn busy(path: &Path, what: &str) -> SessionError {
    let mut text = String::new();
    let read = File::open(path).and_then(|mut file| file.read_to_string(&mut text));
    let holder = read.ok().and_then(|_| serde_json::from_str::<Holder>(&text).ok());
    let holder = holder.map_or_else(|| "an unnamed process".to_owned(), |holder| holder.describe());
    SessionError::Busy { what: what.to_owned(), holder }
}

/// A session folder that nobody has open, nor can open while this lives.
#[derive(Debug)]
pub struct Unused {
    shared: Option<File>,
}

impl Drop for Unused {
    fn drop(&mut self) {
        self.shared.iter().for_each(release);
    }
}

/// Keeps the session in `dir` from being opened, unless somebody has it open: then `None`. Who wants to open it
/// meanwhile waits.
pub fn unused(dir: &Path) -> Option<Unused> {
    match File::open(dir.join(LOCK_FILE)) {
        Ok(file) => file.try_lock_shared().is_ok().then_some(Unused { shared: Some(file) }),
        // Without a lock nobody has ever got to open it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Unused { shared: None }),
        Err(_) => None,
    }
}

/// Whether anybody holds the lock now. A missing or unreadable file is held by nobody.
pub(super) fn is_held(path: &Path) -> bool {
    // A shared lock, so that two lists at once do not see each other.
    File::open(path).is_ok_and(|file| match file.try_lock_shared() {
        Ok(()) => {
            release(&file);
            false
        }
        Err(error) => matches!(error, TryLockError::WouldBlock),
    })
}

/// An exclusive lock on a workspace under `<SPETTRO_HOME>/locks`; released when dropped.
#[derive(Debug)]
pub struct WorkspaceLock {
    _lock: Lock,
}

impl WorkspaceLock {
    /// Waits ≤ 5 s, then `Busy` naming host, pid, run and since when.
    pub async fn take(world: &World, home: &Path, workspace: &Path, run: &str) -> Result<WorkspaceLock, SessionError> {
        let folder = home.join("locks");
        make_dirs(&folder)?;
        let path = folder.join(workspace_hash(workspace));
        let what = format!("workspace `{}`", workspace.display());
        let lock = Lock::take(world, &path, &what, &Holder::me(world, run, None)).await?;
        Ok(WorkspaceLock { _lock: lock })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::Lab;

    #[test]
    fn a_copy_of_the_descriptor_keeps_no_lock() {
        let lab = Lab::new();
        let path = lab.temp.path().join("lock");
        let me = Holder::me(&lab.world, "run-1", None);
        let lock = Lock::take_now(&path, "it", &me).expect("free");
        // What a child has between `fork` and `exec`.
        let copy = lock.file.try_clone().expect("a copy");
        assert!(is_held(&path));
        drop(lock);
        assert!(!is_held(&path));
        let again = Lock::take_now(&path, "it", &me).expect("given back at once");
        assert!(is_held(&path), "the copy is none of its own");
        drop(copy);
        assert!(is_held(&path), "and takes nothing with it");
        drop(again);

        let shared = unused(lab.temp.path()).expect("nobody has it");
        let copy = shared.shared.as_ref().map(File::try_clone).expect("a lock").expect("a copy");
        drop(shared);
        assert!(Lock::attempt(&path, &me).expect("no failure").is_some());
        drop(copy);
    }
}
