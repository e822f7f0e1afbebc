//! One session, open for writing under its lock.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::SystemTime;

use super::derived::{DeriveState, EVENTS_FILE, Events, METADATA_FILE, Overview, STATUS_FILE, TASKS_FILE, derive};
use super::error::SessionError;
use super::facts::{Fact, Header, LOG_VERSION, Line};
use super::files::{AppendFile, make_dirs, make_new_dir, write_whole};
use super::lock::{Holder, Lock};
use super::log::{Chain, LOG_FILE, LOG_KIND, read_log, set_aside};
use super::modes::{Modes, restore_rights};
use super::spool::Spool;
use super::spooled::spooled;
use super::store::{LOCK_FILE, Store, check_id};
use super::sync::{Sync, Syncer};
use super::wirelog::{self, WIRE_FILE, WireAttempt};
use crate::event::{Event, Record, RunResult};
use crate::world::{Boxed, Clock, World, rfc3339};

/// Everybody who watches a run: the console, the stdout stream.
pub trait Listener {
    fn event(&self, record: &Record);

    /// A fact stands in the log. It may append others.
    fn fact(&self, _line: &Line) {}
}

/// What is waited for in place of the disk.
pub type Instead = Rc<dyn Fn() -> Boxed<'static, ()>>;

/// What stands in the log of an opened session.
pub struct Opened {
    pub session: Session,
    pub header: Header,
    pub lines: Vec<Line>,
    /// For the operator: what had to be repaired.
    pub notes: Vec<String>,
}

/// One session, open for writing under its lock. Cheap to clone (one shared inside).
#[derive(Clone)]
pub struct Session {
    inner: Rc<Inner>,
}

struct Inner {
    id: String,
    dir: PathBuf,
    run: String,
    clock: Rc<dyn Clock>,
    listeners: Vec<Rc<dyn Listener>>,
    spool: Rc<Spool>,
    syncer: Syncer,
    instead: RefCell<Option<Instead>>,
    writing: RefCell<Writing>,
    me: Holder,
    lock: Lock,
    modes: Modes,
}

struct Writing {
    log: AppendFile,
    /// Made with the first attempt.
    wire: Option<AppendFile>,
    seq: u64,
    chain: Chain,
    /// Reused for every line.
    buffer: Vec<u8>,
    events: Events,
    derive: DeriveState,
    overview: Overview,
    /// The seq at which the derived files were saved.
    saved: Option<u64>,
    /// Folders with names that the disk may not have yet.
    new_names: Vec<PathBuf>,
    /// `run.finished` was emitted: it is the last event until the next run.
    finished: bool,
    /// A run has begun since the session was opened.
    begun: bool,
    /// Written with the next facts, once it has.
    asides: Vec<Fact>,
    /// Attempts are not kept.
    wireless: bool,
}

impl Session {
    /// Makes the folder (0700), the lock, the header line; nothing else. An id in use is an `Io` error
    /// (`AlreadyExists`). `sync_now` brings the first line to the disk.
    pub fn create(
        world: &World,
        store: &Store,
        workspace: &Path,
        id: &str,
        run: &str,
        listeners: Vec<Rc<dyn Listener>>,
    ) -> Result<Session, SessionError> {
        check_id(id)?;
        let dir = store.dir_of(workspace, id);
        let above = dir.parent().unwrap_or(&dir).to_owned();
        make_dirs(&above)?;
        make_new_dir(&dir)?;
        let me = Holder::me(world, run, Some(id));
        let lock = Lock::take_now(&dir.join(LOCK_FILE), &format!("session `{id}`"), &me)?;
        let header = Header {
            kind: LOG_KIND.to_owned(),
            v: LOG_VERSION,
            id: id.to_owned(),
            workspace: workspace.display().to_string(),
            created: rfc3339(world.clock.now()),
        };
        let mut log = AppendFile::create(dir.join(LOG_FILE))?;
        let mut buffer = Vec::with_capacity(4096);
        encode_line(&header, &dir, &mut buffer)?;
        log.append(&buffer)?;
        let writing = Writing {
            log,
            wire: None,
            seq: 0,
            chain: Chain::default(),
            buffer,
            events: Events::new(&dir, id),
            derive: DeriveState::default(),
            overview: Overview::new(&header),
            saved: None,
            new_names: vec![dir.clone(), above],
            finished: false,
            begun: false,
            asides: Vec::new(),
            wireless: false,
        };
        let spool = Spool::new(dir.join("spool"));
        Session::new(world, dir, header.id, listeners, spool, (me, run, lock), writing)
    }

    /// Takes the lock (waits ≤ 5 s, then `Busy`), sets a torn tail aside, cuts unnamed wire bytes, rebuilds derived
    /// files that lag. A corrupt or newer log is left as it is.
    pub async fn open(
        world: &World,
        dir: &Path,
        run: &str,
        listeners: Vec<Rc<dyn Listener>>,
    ) -> Result<Opened, SessionError> {
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let path = dir.join(LOG_FILE);
        if !path.is_file() {
            return Err(SessionError::Unknown { id: name });
        }
        let me = Holder::me(world, run, Some(&name));
        let lock = Lock::take(world, &dir.join(LOCK_FILE), &format!("session `{name}`"), &me).await?;
        let log = read_log(&path)?;
        let mut notes = Vec::new();
        if log.torn_bytes > 0 {
            let aside = set_aside(&path, &log)?;
            notes.push(format!(
                "the last line of `{LOG_FILE}` was torn: its {} bytes were set aside in `{}`",
                log.torn_bytes,
                aside.display()
            ));
        }
        let wire = wirelog::open(dir, &log.lines, &mut notes)?;
        let (events, derive) = Events::catch_up(dir, &log.header.id, run, &log.lines, &mut notes)?;
        let mut overview = Overview::new(&log.header);
        for line in &log.lines {
            overview.observe(line);
        }
        if !overview.is_saved(dir)? {
            overview.save(dir, false)?;
        }
        let seq = log.lines.len() as u64;
        let spool_dir = dir.join("spool");
        let spool = Spool::open(spool_dir.clone(), world.dir.as_ref(), &spooled(&log.lines))
            .map_err(SessionError::io("open", &spool_dir))?;
        let writing = Writing {
            log: AppendFile::open(path)?,
            wire: wire.file,
            seq,
            chain: log.chain,
            buffer: Vec::with_capacity(4096),
            events,
            derive,
            finished: overview.is_ended(),
            begun: false,
            asides: Vec::new(),
            wireless: false,
            overview,
            saved: Some(seq),
            new_names: Vec::new(),
        };
        let id = log.header.id.clone();
        let session = Session::new(world, dir.to_owned(), id, listeners, spool, (me, run, lock), writing)?;
        if let Some(bytes) = wire.cut {
            session.append(Fact::WireCut { bytes })?;
        }
        Ok(Opened { session, header: log.header, lines: log.lines, notes })
    }

    fn new(
        world: &World,
        dir: PathBuf,
        id: String,
        listeners: Vec<Rc<dyn Listener>>,
        spool: Spool,
        (me, run, lock): (Holder, &str, Lock),
        writing: Writing,
    ) -> Result<Session, SessionError> {
        let inner = Inner {
            syncer: Syncer::start().map_err(SessionError::io("start the sync thread for", &dir))?,
            instead: RefCell::default(),
            modes: Modes::read(&dir),
            id,
            dir,
            run: run.to_owned(),
            clock: Rc::clone(&world.clock),
            listeners,
            spool: Rc::new(spool),
            writing: RefCell::new(writing),
            me,
            lock,
        };
        Ok(Session { inner: Rc::new(inner) })
    }

    /// Reads a session's facts without a lock and without repairing anything; a torn last line is left out.
    pub fn read(dir: &Path) -> Result<(Header, Vec<Line>), SessionError> {
        let path = dir.join(LOG_FILE);
        if !path.is_file() {
            return Err(SessionError::Unknown {
                id: dir.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            });
        }
        let log = read_log(&path)?;
        Ok((log.header, log.lines))
    }

    pub fn id(&self) -> String {
        self.inner.id.clone()
    }

    pub fn dir(&self) -> PathBuf {
        self.inner.dir.clone()
    }

    /// Gives the session's folders, and those above them that are spettro's, their modes back; see `modes`.
    pub fn mend(&self) {
        self.inner.modes.restore();
        for folder in ["git", "spool"] {
            restore_rights(&self.inner.dir.join(folder));
        }
    }

    /// The private folder of spettro's own git, made when missing.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn git_dir(&self) -> Result<PathBuf, SessionError> {
        let dir = self.dir().join("git");
        make_dirs(&dir)?;
        Ok(dir)
    }

    /// The seq of the last entry; 0 before there is one.
    pub fn last_entry(&self) -> u64 {
        let writing = self.inner.writing.borrow();
        writing.chain.tip.as_deref().and_then(super::log::entry_seq).unwrap_or(0)
    }

    /// Names the run's control socket in the lock, where other processes look for it.
    ///
    /// # Errors
    /// When the lock's file cannot be written.
    pub fn name_socket(&self, socket: &Path) -> Result<(), SessionError> {
        self.inner.lock.name_socket(&self.inner.dir.join(LOCK_FILE), &self.inner.me, socket)
    }

    /// One `write` of one whole line; then the events that derive from it go to events.jsonl and the listeners.
    /// Returns the line's seq. After an error nothing more is written, and every further append gives that kind of
    /// error. (A fact that cannot be encoded, or a tip that is no entry, is refused without such an end.)
    ///
    /// A session begins with `frozen`, then `run`; a resumed one with `run`: its event is the first of the run, and
    /// names the goal.
    pub fn append(&self, fact: Fact) -> Result<u64, SessionError> {
        self.append_all([fact])
    }

    /// Facts that belong together, as lines one after another in one `write`; then their events, in order. Returns
    /// the seq of the last line: the others have the numbers before it. One that is refused refuses all of them.
    ///
    /// For who dies meanwhile nothing is different from appending one by one: whole lines stand, from the first on,
    /// and perhaps a torn one behind them.
    pub fn append_all(&self, facts: impl IntoIterator<Item = Fact>) -> Result<u64, SessionError> {
        let now = self.now();
        let mut records = Vec::new();
        let (lines, last) = {
            let mut writing = self.inner.writing.borrow_mut();
            let asides = if writing.begun { std::mem::take(&mut writing.asides) } else { Vec::new() };
            let lines = writing.append(&self.inner, asides.into_iter().chain(facts), now, &mut records)?;
            (lines, writing.seq)
        };
        self.tell(&records);
        for line in &lines {
            for listener in &self.inner.listeners {
                listener.fact(line);
            }
        }
        Ok(last)
    }

    /// A fact that stands beside the loop's own: it is written with the next that is, behind the one that begins the
    /// run, and never behind the one that ends it.
    pub fn aside(&self, fact: Fact) {
        let mut writing = self.inner.writing.borrow_mut();
        if !writing.finished || !writing.begun {
            writing.asides.push(fact);
        }
    }

    /// From here on no sync touches the disk; `instead` is waited for. For a copy that lives as long as the process.
    pub fn sync_instead(&self, instead: Instead) {
        self.inner.instead.replace(Some(instead));
    }

    /// Whether it is to outlive the machine.
    fn syncs(&self) -> bool {
        self.inner.instead.borrow().is_none()
    }

    /// An event without a fact (step.started, run.waiting, model.delta): listeners, and events.jsonl except deltas.
    /// After `run.finished` only what a further run appends is heard: it is the last event of its run.
    pub fn emit(&self, event: Event) {
        let now = self.now();
        let mut records = Vec::new();
        {
            let mut writing = self.inner.writing.borrow_mut();
            if writing.finished {
                return;
            }
            writing.finished = matches!(event, Event::RunFinished { .. });
            writing.event(&self.inner, event, None, now, &mut records);
            if writing.finished {
                writing.flush_events(&self.inner, &mut records);
            }
        }
        self.tell(&records);
    }

    /// From here on attempts are not kept: they stand elsewhere already.
    pub fn keep_no_wires(&self) {
        self.inner.writing.borrow_mut().wireless = true;
    }

    /// Starts bringing everything written so far to the disk; `Sync::wait` waits for it.
    pub fn sync_start(&self) -> Sync {
        if let Some(instead) = &*self.inner.instead.borrow() {
            return Sync::instead(instead());
        }
        let mut records = Vec::new();
        let sync = {
            let mut writing = self.inner.writing.borrow_mut();
            writing.flush_events(&self.inner, &mut records);
            let names = std::mem::take(&mut writing.new_names);
            let files = writing.wire.iter().chain(std::iter::once(&writing.log)).map(AppendFile::handle).collect();
            self.inner.syncer.start_sync(names, files)
        };
        self.tell(&records);
        sync.for_session(self.clone())
    }

    /// Waits for the disk: first line, verdict, interrupted, end.
    pub fn sync_now(&self) -> Boxed<'static, Result<(), SessionError>> {
        self.sync_start().wait()
    }

    /// A sync failed, so what is on the disk is unknown: nothing more is written.
    pub(super) fn poison(&self, error: &std::io::Error) {
        let mut writing = self.inner.writing.borrow_mut();
        writing.log.poison("sync", error);
        if let Some(wire) = &mut writing.wire {
            wire.poison("sync", error);
        }
    }

    /// Appends one attempt to wire.jsonl; returns (offset, bytes) for the settled fact. After an error every
    /// further call gives that kind of error; the log itself goes on.
    pub fn wire(&self, attempt: &WireAttempt<'_>) -> Result<(u64, u64), SessionError> {
        let writing = &mut *self.inner.writing.borrow_mut();
        if writing.wireless {
            return Ok((0, 0));
        }
        let path = self.inner.dir.join(WIRE_FILE);
        wirelog::encode(attempt, &mut writing.buffer)
            .map_err(|error| SessionError::io("encode an attempt for", &path)(error.into()))?;
        let wire = match &mut writing.wire {
            Some(wire) => wire,
            none => {
                writing.new_names.push(self.inner.dir.clone());
                none.insert(AppendFile::create(path)?)
            }
        };
        let offset = wire.append(&writing.buffer)?;
        let bytes = writing.buffer.len() as u64;
        writing.trim_buffer();
        Ok((offset, bytes))
    }

    pub fn spool(&self) -> Rc<Spool> {
        Rc::clone(&self.inner.spool)
    }

    /// Logs what there is to say about the spool; called at each step and at the end.
    pub fn tell_spool(&self) -> Result<(), SessionError> {
        for (code, text) in self.inner.spool.news() {
            self.append(Fact::Notice { code: code.to_owned(), text })?;
        }
        Ok(())
    }

    /// result.json and summary.md, each temp + rename; a finished result is on the disk when this returns.
    pub fn write_result(&self, result: &RunResult, summary: &str) -> Result<(), SessionError> {
        let sync = result.outcome.is_some() && self.syncs();
        super::result::write(&self.inner.dir, result, summary, sync)
    }

    /// Any other whole file of the session folder (`changes.patch`), temp + rename; its path.
    pub fn write_file(&self, name: &str, content: &[u8]) -> Result<PathBuf, SessionError> {
        const OWN: [&str; 7] = [LOG_FILE, WIRE_FILE, LOCK_FILE, EVENTS_FILE, METADATA_FILE, TASKS_FILE, STATUS_FILE];
        let path = self.inner.dir.join(name);
        if check_id(name).is_err() || OWN.contains(&name) {
            let error = std::io::Error::from(std::io::ErrorKind::InvalidFilename);
            return Err(SessionError::Io { what: "write", file: path, error });
        }
        write_whole(&path, content, self.syncs())?;
        Ok(path)
    }

    /// metadata.json, tasks.json, status.json brought up to the log; called at most every 2 s by the loop and at ends.
    pub fn save_derived(&self) -> Result<(), SessionError> {
        let mut records = Vec::new();
        let saved = {
            let mut writing = self.inner.writing.borrow_mut();
            writing.flush_events(&self.inner, &mut records);
            writing.save_derived(&self.inner.dir, self.syncs())
        };
        self.tell(&records);
        saved
    }

    /// Removes the folder of a session that was never used (no call, no check); one that was is refused
    /// (`Io`, `DirectoryNotEmpty`).
    pub fn discard(self) -> Result<(), SessionError> {
        let dir = &self.inner.dir;
        if self.inner.writing.borrow().overview.is_used() {
            let error = std::io::Error::new(std::io::ErrorKind::DirectoryNotEmpty, "it holds calls or checks");
            return Err(SessionError::Io { what: "discard", file: dir.clone(), error });
        }
        std::fs::remove_dir_all(dir).map_err(SessionError::io("remove", dir))?;
        if let Some(above) = dir.parent() {
            // Other sessions of the workspace keep it.
            let _ = std::fs::remove_dir(above);
        }
        Ok(())
    }

    fn now(&self) -> SystemTime {
        self.inner.clock.now()
    }

    /// Not while anything is borrowed: a listener may call back.
    fn tell(&self, records: &[Record]) {
        for record in records {
            for listener in &self.inner.listeners {
                listener.event(record);
            }
        }
    }
}

impl Writing {
    fn append(
        &mut self,
        inner: &Inner,
        facts: impl IntoIterator<Item = Fact>,
        now: SystemTime,
        records: &mut Vec<Record>,
    ) -> Result<Vec<Line>, SessionError> {
        let lines = self.lines(inner, facts, now)?;
        self.buffer.clear();
        for line in &lines {
            encode_line(line, &inner.dir, &mut self.buffer)?;
        }
        if !lines.is_empty() {
            self.log.append(&self.buffer)?;
        }
        self.trim_buffer();
        // Only now, when the lines are written, does anything in memory move.
        for line in &lines {
            self.seq = line.seq;
            if let Err(reason) = self.chain.follow(line) {
                let file = inner.dir.join(LOG_FILE);
                return Err(SessionError::Corrupt { file, line: line.seq + 1, reason });
            }
            self.overview.observe(line);
            match &line.fact {
                Fact::Run(_) => (self.finished, self.begun) = (false, true),
                Fact::End(_) => self.finished = true,
                _ => {}
            }
            for event in derive(line, &mut self.derive) {
                self.event(inner, event, Some(line.seq), now, records);
            }
            if self.finished {
                self.flush_events(inner, records);
            }
        }
        Ok(lines)
    }

    /// The facts with their places in the log. Nothing is changed by it.
    fn lines(
        &self,
        inner: &Inner,
        facts: impl IntoIterator<Item = Fact>,
        now: SystemTime,
    ) -> Result<Vec<Line>, SessionError> {
        let mut tip = self.chain.tip.clone();
        let mut lines: Vec<Line> = Vec::new();
        for fact in facts {
            let seq = self.seq + 1 + lines.len() as u64;
            if let Fact::Tip { entry } = &fact {
                if !self.chain.has(entry) && !lines.iter().any(|line| line.id.as_ref() == Some(entry)) {
                    let error = std::io::Error::new(std::io::ErrorKind::InvalidInput, format!("no entry `{entry}`"));
                    return Err(SessionError::Io { what: "set the tip of", file: inner.dir.clone(), error });
                }
                tip = Some(entry.clone());
            }
            let (id, parent) = if fact.is_entry() {
                let id = super::log::entry_id(seq);
                (Some(id.clone()), tip.replace(id))
            } else {
                (None, None)
            };
            lines.push(Line { seq, t: rfc3339(now), id, parent, fact });
        }
        Ok(lines)
    }

    fn event(&mut self, inner: &Inner, event: Event, fact: Option<u64>, now: SystemTime, records: &mut Vec<Record>) {
        let record = self.events.record(event, fact, rfc3339(now), &inner.run);
        let written = self.events.write(&record);
        records.push(record);
        self.report(inner, written, now, records);
    }

    fn flush_events(&mut self, inner: &Inner, records: &mut Vec<Record>) {
        let written = self.events.flush();
        self.report(inner, written, inner.clock.now(), records);
    }

    /// A derived file that cannot be written ends no run: whoever watches is told, once.
    fn report(&mut self, inner: &Inner, written: Result<(), SessionError>, now: SystemTime, records: &mut Vec<Record>) {
        if let Err(error) = written {
            let text = format!("`{EVENTS_FILE}` lags until the session is opened next: {error}");
            let notice = Event::Notice { code: "events_not_written".to_owned(), text };
            let before_last = records.len().saturating_sub(usize::from(self.finished));
            records.insert(before_last, self.events.record(notice, None, rfc3339(now), &inner.run));
        }
    }

    fn save_derived(&mut self, dir: &Path, syncs: bool) -> Result<(), SessionError> {
        if self.saved == Some(self.seq) {
            return Ok(());
        }
        self.overview.save(dir, syncs && self.overview.is_ended())?;
        self.saved = Some(self.seq);
        Ok(())
    }

    /// One huge line must not stay in memory for the rest of the run.
    fn trim_buffer(&mut self) {
        const MOST_KEPT_BYTES: usize = 1 << 20;
        if self.buffer.capacity() > MOST_KEPT_BYTES {
            self.buffer = Vec::with_capacity(4096);
        }
    }
}

/// Adds a line to `out`.
fn encode_line<T: serde::Serialize>(value: &T, dir: &Path, out: &mut Vec<u8>) -> Result<(), SessionError> {
    serde_json::to_writer(&mut *out, value)
        .map_err(|error| SessionError::io("encode a line for", &dir.join(LOG_FILE))(error.into()))?;
    out.push(b'\n');
    Ok(())
}
