//! Full tool outputs, `spool/N`, as long as the session lives.
//!
//! A body has its id at once and its file a moment later: a plain thread writes the files in the order of their ids,
//! beside the work of the loop. Until a file is there, and when it cannot be written, the body is read from memory.
//!
//! Invariant: what is served is whole. A file is written under another name and renamed, so a kill leaves no file where
//! it might have left half of one. The files are not synced one by one, and a machine that dies may keep a name without
//! its content: so the `tool` fact says how long the body is, and a file of another length is lost when the session is
//! opened next.

mod writer;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::modes::with_rights;
use crate::world::{Captured, Dir};
use writer::Writer;

/// Bytes of outputs that could not be written which a session keeps in memory.
const MOST_KEPT_BYTES: u64 = 32_000_000;
/// Holds the highest id that was removed to make room.
const DROPPED_FILE: &str = "dropped";
/// Ends the name of a file that is being written.
const UNFINISHED: &str = ".tmp";
/// The longest that an abandoned spool waits for its thread.
const PATIENCE: Duration = Duration::from_secs(2);

/// What `tool-output` finds under an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A part of the body, and how long the whole is.
    Body { bytes: Bytes, size: u64 },
    /// No output of this session has that id.
    Unknown,
    /// It was removed to make room for newer ones.
    Dropped,
    /// It could not be kept; why.
    Lost(String),
}

/// Something about the spool that the operator must hear once: a notice's code and text.
pub type News = (&'static str, String);

/// Full tool outputs, `spool/N`. The folder is made with the first one.
pub struct Spool {
    /// The highest id in use.
    last: Cell<u64>,
    /// A captured output that has a number already, and whose text comes next.
    offered: RefCell<Option<(u64, Captured)>>,
    /// The thread was waited for in vain.
    gave_up: Cell<bool>,
    writer: Writer,
}

impl Spool {
    /// A spool without any output yet, and without a cap.
    pub fn new(dir: PathBuf) -> Spool {
        Spool { last: Cell::new(0), offered: RefCell::default(), gave_up: Cell::new(false), writer: Writer::new(dir) }
    }

    /// Goes on after the outputs that are there, and after those that the log names, some with their lengths. What was
    /// being written when an earlier run died is removed.
    pub(super) fn open(dir: PathBuf, lister: &dyn Dir, named: &BTreeMap<u64, Option<u64>>) -> io::Result<Spool> {
        let entries = match lister.list(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let writer = Writer::new(dir.clone());
        let dropped_to = read_dropped(&dir)?;
        let mut last = named.keys().next_back().copied().unwrap_or(0).max(dropped_to);
        {
            let mut state = writer.state();
            state.dropped_to = dropped_to;
            for entry in entries.iter().filter_map(|entry| entry.name.to_str()) {
                if entry.ends_with(UNFINISHED) {
                    std::fs::remove_file(dir.join(entry))?;
                } else if let Ok(id) = entry.parse::<u64>() {
                    let size = std::fs::metadata(dir.join(entry))?.len();
                    state.written(id, size);
                    last = last.max(id);
                    if let Some(whole) = named.get(&id).copied().flatten().filter(|whole| *whole != size) {
                        state.lost.insert(id, format!("of its {whole} bytes the disk has {size}"));
                    }
                }
            }
        }
        Ok(Spool { last: Cell::new(last), offered: RefCell::default(), gave_up: Cell::new(false), writer })
    }

    /// `spool_max`: the most that all files may take together. The oldest go first; what earlier runs left counts.
    pub fn limit(&self, max_bytes: u64) {
        self.writer.limit(max_bytes);
    }

    /// Takes one body; its id (counted from 1 in the session). Never waits for the disk. A text that begins with the
    /// output offered last takes the number of that: both are there once.
    pub fn put(&self, body: Bytes) -> u64 {
        if let Some((id, offered)) = self.offered.take() {
            let (head, tail) = (offered.head.len(), offered.tail.len());
            let same = Captured::within(&body, head, offered.omitted_bytes, tail).as_ref() == Some(&offered);
            self.writer.put(id, if same { body.clone() } else { offered.joined().into() });
            if same {
                return id;
            }
        }
        let id = self.number();
        self.writer.put(id, body);
        id
    }

    /// The id under which a captured output will be: as part of the text that is put next, else by itself.
    pub fn offer(&self, output: Captured) -> u64 {
        self.settle();
        let id = self.number();
        self.offered.replace(Some((id, output)));
        id
    }

    /// Nobody made a text of the output offered last.
    fn settle(&self) {
        if let Some((id, offered)) = self.offered.take() {
            self.writer.put(id, offered.joined().into());
        }
    }

    fn number(&self) -> u64 {
        let id = self.last.get() + 1;
        self.last.set(id);
        id
    }

    /// Resolves when the file of a body was written (true), or could not be.
    pub fn written(&self, id: u64) -> impl Future<Output = bool> + use<> {
        let mut state = self.writer.state();
        let (told, waits) = oneshot::channel();
        let done = if state.queue.contains(&id) {
            state.waiters.push((id, told));
            None
        } else {
            Some(state.files.contains_key(&id))
        };
        drop(state);
        async move {
            match done {
                Some(done) => done,
                // Without an answer the thread is gone.
                None => waits.await.unwrap_or(false),
            }
        }
    }

    /// Where the file of a body is, or would be.
    pub fn path(&self, id: u64) -> PathBuf {
        self.writer.dir().join(id.to_string())
    }

    /// Up to `limit` bytes from `offset`, from memory or from the file.
    ///
    /// # Errors
    /// When a file that is there cannot be read.
    pub fn read(&self, id: u64, offset: u64, limit: usize) -> io::Result<Found> {
        let (memory, lost) = {
            let state = self.writer.state();
            (state.memory.get(&id).cloned(), state.lost.get(&id).cloned())
        };
        if let Some(body) = memory {
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(body.len());
            let to = from.saturating_add(limit).min(body.len());
            return Ok(Found::Body { bytes: body.slice(from..to), size: body.len() as u64 });
        }
        if let Some(why) = lost {
            return Ok(Found::Lost(why));
        }
        let path = self.path(id);
        let file = match with_rights(&path, || File::open(&path)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(self.missing(id)),
            Err(error) => return Err(error),
        };
        let size = file.metadata()?.len();
        let wanted = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX).min(limit);
        let mut bytes = vec![0; wanted];
        if wanted > 0 {
            file.read_exact_at(&mut bytes, offset)?;
        }
        Ok(Found::Body { bytes: Bytes::from(bytes), size })
    }

    fn missing(&self, id: u64) -> Found {
        let state = self.writer.state();
        if id == 0 || id > self.last.get() {
            Found::Unknown
        } else if id <= state.dropped_to {
            Found::Dropped
        } else if state.files.contains_key(&id) {
            Found::Lost("its file was removed".to_owned())
        } else {
            Found::Lost("the run that gave it ended before it was written".to_owned())
        }
    }

    /// Whether nothing can be read under this id any more, as far as is known without looking at the disk.
    pub fn is_gone(&self, id: u64) -> bool {
        let state = self.writer.state();
        !state.memory.contains_key(&id) && (!state.files.contains_key(&id) || state.lost.contains_key(&id))
    }

    /// What there is to say since the last time.
    pub fn news(&self) -> Vec<News> {
        std::mem::take(&mut self.writer.state().news)
    }

    /// Waits until everything is written or could not be; how many bodies were not even tried in that time, which is
    /// news too.
    pub fn flush(&self, within: Duration) -> usize {
        self.settle();
        let left = self.writer.flush(within);
        if left > 0 {
            self.gave_up.set(true);
            let text = format!("the disk was too slow for {left} tool outputs: they are lost with the end of the run");
            self.writer.state().news.push(("spool_not_written", text));
        }
        left
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.settle();
        self.writer.close();
        let left = self.writer.flush(if self.gave_up.get() { Duration::ZERO } else { PATIENCE });
        if left > 0 {
            tracing::warn!(left, "outputs were not written");
        }
    }
}

fn read_dropped(dir: &Path) -> io::Result<u64> {
    match std::fs::read_to_string(dir.join(DROPPED_FILE)) {
        Ok(text) => Ok(text.trim().parse().unwrap_or_else(|error| {
            // The machine died while it was new: then what it would have said is lost instead.
            tracing::warn!(%error, "`{DROPPED_FILE}` of the spool holds no number");
            0
        })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}
