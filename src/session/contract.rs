//! CONTRACT (session helper): replace by log.rs, store.rs, spool.rs, derive.rs, wirelog.rs, lock.rs …
#![allow(unused_variables, dead_code)]
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::Bytes;

use super::facts::*;
use crate::event::{Event, Lane, Record, RunResult};
use crate::world::{Boxed, World};

/// Why a session could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("`{0}` is no session id")]
    BadId(String),
    #[error("no session `{id}`")]
    Unknown { id: String },
    #[error("no saved sessions for `{workspace}`")]
    NoneSaved { workspace: String },
    #[error("`{prefix}` fits several sessions: {}", .ids.join(", "))]
    Ambiguous { prefix: String, ids: Vec<String> },
    /// Another process holds the lock.
    #[error("{what} is in use by {holder}")]
    Busy { what: String, holder: String },
    /// A bad line that is not the torn last one.
    #[error("{}: line {line}: {reason}", .file.display())]
    Corrupt { file: PathBuf, line: u64, reason: String },
    #[error("{} was written by a newer spettro (version {version}; this build reads {LOG_VERSION})", .file.display())]
    Newer { file: PathBuf, version: u32 },
    /// Somebody else wrote into the log while it was open.
    #[error("{} was changed by another process", .file.display())]
    Foreign { file: PathBuf },
    #[error("{what} {}: {error}", .file.display())]
    Io {
        what: &'static str,
        file: PathBuf,
        #[source]
        error: std::io::Error,
    },
}

/// The folders of all sessions: `<root>/<workspace hash>/<id>/`.
pub struct Store {
    root: PathBuf,
}

/// One line of a list, from metadata alone.
#[derive(Debug, Clone)]
pub struct Listed {
    pub id: String,
    pub dir: PathBuf,
    pub workspace: String,
    pub title: String,
    pub updated: String,
    pub goal_name: String,
    pub goal_digest: String,
    pub outcome: Option<crate::event::Outcome>,
    pub running: bool,
}

impl Store {
    /// `root` is `<SPETTRO_HOME>/sessions` or `--session-dir`.
    pub fn new(root: PathBuf) -> Store {
        todo!()
    }
    /// `session-YYYYMMDD-HHMMSS-<8 hex>` (UTC), not in use.
    pub fn new_id(world: &World) -> String {
        todo!()
    }
    /// Sessions of a workspace, newest first; broken ones are skipped with a note.
    pub fn list(&self, world: &World, workspace: &Path) -> (Vec<Listed>, Vec<String>) {
        todo!()
    }
    /// An id, a unique prefix (any workspace), or `latest` (of this workspace) → its folder.
    pub fn find(&self, world: &World, workspace: &Path, id: &str) -> Result<PathBuf, SessionError> {
        todo!()
    }
    pub fn dir_of(&self, workspace: &Path, id: &str) -> PathBuf {
        todo!()
    }
}

/// Everybody who watches a run: the console, the stdout stream.
pub trait Listener {
    fn event(&self, record: &Record);
}

/// One session, open for writing under its lock. Cheap to clone (one shared inside).
#[derive(Clone)]
pub struct Session {
    /* Rc<RefCell<Inner>> */ inner: Rc<()>,
}

/// A started fdatasync of session.jsonl and wire.jsonl on the writer thread.
pub struct Sync {}
impl Sync {
    pub fn wait(self) -> Boxed<'static, Result<(), SessionError>> {
        todo!()
    }
}

/// What stands in the log of an opened session.
pub struct Opened {
    pub session: Session,
    pub header: Header,
    pub lines: Vec<Line>,
    /// for the operator
    pub notes: Vec<String>,
}

impl Session {
    /// Makes the folder (0700), the lock, the header line; nothing else.
    pub fn create(
        world: &World,
        store: &Store,
        workspace: &Path,
        id: &str,
        run: &str,
        listeners: Vec<Rc<dyn Listener>>,
    ) -> Result<Session, SessionError> {
        todo!()
    }
    /// Takes the lock (waits ≤ 5 s, then Busy), sets a torn tail aside, cuts unnamed wire bytes, rebuilds derived files that lag.
    pub async fn open(
        world: &World,
        dir: &Path,
        run: &str,
        listeners: Vec<Rc<dyn Listener>>,
    ) -> Result<Opened, SessionError> {
        todo!()
    }
    /// Reads a session's facts without a lock and without repairing anything.
    pub fn read(dir: &Path) -> Result<(Header, Vec<Line>), SessionError> {
        todo!()
    }
    pub fn id(&self) -> String {
        todo!()
    }
    pub fn dir(&self) -> PathBuf {
        todo!()
    }
    /// One `write` of one whole line; then the events that derive from it go to events.jsonl and the listeners.
    /// Returns the line's seq. After an error nothing more is written.
    pub fn append(&self, fact: Fact) -> Result<u64, SessionError> {
        todo!()
    }
    /// An event without a fact (step.started, run.waiting, model.delta): listeners, and events.jsonl except deltas.
    pub fn emit(&self, event: Event) {
        todo!()
    }
    pub fn sync_start(&self) -> Sync {
        todo!()
    }
    /// Waits for the disk: first line, verdict, interrupted, end.
    pub fn sync_now(&self) -> Boxed<'static, Result<(), SessionError>> {
        todo!()
    }
    /// Appends one attempt to wire.jsonl; returns (offset, bytes) for the settled fact.
    pub fn wire(&self, attempt: &WireAttempt<'_>) -> Result<(u64, u64), SessionError> {
        todo!()
    }
    pub fn spool(&self) -> Rc<Spool> {
        todo!()
    }
    /// result.json and summary.md, each temp + rename.
    pub fn write_result(&self, result: &RunResult, summary: &str) -> Result<(), SessionError> {
        todo!()
    }
    /// Any other whole file of the session folder (`changes.patch`), temp + rename.
    pub fn write_file(&self, name: &str, content: &[u8]) -> Result<PathBuf, SessionError> {
        todo!()
    }
    /// metadata.json, tasks.json, status.json brought up to the log; called at most every 2 s by the loop and at ends.
    pub fn save_derived(&self) -> Result<(), SessionError> {
        todo!()
    }
    /// Removes the folder of a session that was never used (no call, no check).
    pub fn discard(self) -> Result<(), SessionError> {
        todo!()
    }
}

/// One HTTP attempt for wire.jsonl.
pub struct WireAttempt<'a> {
    pub lane: Lane,
    pub n: u64,
    pub attempt: u64,
    pub method: &'a str,
    pub url: &'a str,
    /// Allow-listed only.
    pub request_headers: &'a [(String, String)],
    pub front: &'a [u8],
    /// The first `keep` bytes of the rest of the lane's previous body, then `add`.
    pub keep: u64,
    pub add: &'a [u8],
    /// sha256 of the whole rest.
    pub sha256: &'a str,
    pub status: Option<u16>,
    pub response_headers: &'a [(String, String)],
    /// The body as received, with the offsets at which network reads began.
    pub body: &'a [u8],
    pub reads: &'a [u64],
    /// `eof`, `reset`, `timeout`, `abort`, `connect`.
    pub end: &'a str,
    pub ms: u64,
    /// The kept frames are re-encoded from a cleaned reply, because the raw ones held a secret.
    pub redacted: bool,
}

/// Full tool outputs, `spool/N`, as long as the session lives.
pub struct Spool {
    dir: PathBuf,
    last: std::cell::Cell<u64>,
}
impl Spool {
    /// The spool of a session's folder; made when missing. Ids go on after the highest that is there.
    pub fn in_dir(dir: PathBuf) -> std::io::Result<Spool> {
        std::fs::create_dir_all(&dir)?;
        let mut last = 0;
        while dir.join((last + 1).to_string()).exists() {
            last += 1;
        }
        Ok(Spool { dir, last: std::cell::Cell::new(last) })
    }
    /// Writes one body; its id (counted from 1 in the session).
    pub fn put(&self, bytes: &[u8]) -> std::io::Result<u64> {
        let id = self.last.get() + 1;
        std::fs::write(self.path(id), bytes)?;
        self.last.set(id);
        Ok(id)
    }
    pub fn path(&self, id: u64) -> PathBuf {
        self.dir.join(id.to_string())
    }
    /// Up to `limit` bytes from `offset`, and the whole size. `None` for an unknown id.
    pub fn read(&self, id: u64, offset: u64, limit: usize) -> std::io::Result<Option<(Bytes, u64)>> {
        let bytes = match std::fs::read(self.path(id)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let end = start.saturating_add(limit).min(bytes.len());
        Ok(Some((Bytes::copy_from_slice(&bytes[start..end]), bytes.len() as u64)))
    }
}

/// An exclusive lock on a workspace under `<SPETTRO_HOME>/locks`; released when dropped.
pub struct WorkspaceLock {}
impl WorkspaceLock {
    /// Waits ≤ 5 s, then `Busy` naming host, pid, session and since when.
    pub async fn take(world: &World, home: &Path, workspace: &Path, run: &str) -> Result<WorkspaceLock, SessionError> {
        todo!()
    }
}

/// The folded state of a session: what a resume needs.
#[derive(Debug, Clone, Default)]
pub struct State {
    pub frozen: Option<Box<Frozen>>,
    /// Sealed groups: the messages sent with each agent call that ever left, in order (refused ones included;
    /// encoders leave them out), then what was said since.
    pub sent: Vec<Vec<Message>>,
    pub unsent: Vec<Message>,
    pub tasks: crate::event::TaskGraph,
    pub marks: std::collections::BTreeMap<String, String>,
    pub runs: Vec<RunStart>,
    pub ends: Vec<End>,
    pub calls: Vec<(Call, Option<Settled>)>,
    pub iteration: u64,
    pub last_turn: Option<(u64, crate::event::TurnEnd)>,
    pub verdicts: Vec<crate::event::Verdict>,
    pub checks: Vec<(u64, Vec<crate::event::CheckResult>)>,
    pub progress: Vec<Progress>,
    pub active_ms: u64,
    pub waited_ms: u64,
    /// Tool calls of the last assistant message without a result, with whether they had been started.
    pub dangling: Vec<(Block, bool)>,
    pub factor_pct: Option<u64>,
}
/// Folds the lines of a log (pure).
pub fn fold(lines: &[Line]) -> State {
    todo!()
}
/// The events that one fact gives (pure but for `state`, which carries totals).
#[derive(Default)]
pub struct DeriveState {}
pub fn derive(line: &Line, state: &mut DeriveState) -> Vec<Event> {
    todo!()
}
