//! The thread that writes the files of a spool, oldest first, and keeps them under their cap.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::super::modes::with_rights;
use super::{DROPPED_FILE, MOST_KEPT_BYTES, News, UNFINISHED};

/// What the loop and the thread share.
#[derive(Default)]
pub(super) struct State {
    /// Bodies that wait for their file; the first one is being written.
    pub queue: VecDeque<u64>,
    /// Those, and the ones whose file could not be written.
    pub memory: BTreeMap<u64, Bytes>,
    /// Bytes of the latter.
    kept_bytes: u64,
    /// Bodies that are nowhere, and why.
    pub lost: BTreeMap<u64, String>,
    /// The files there are, with their sizes.
    pub files: BTreeMap<u64, u64>,
    total_bytes: u64,
    max_bytes: Option<u64>,
    /// What earlier runs left is more than that.
    trim: bool,
    /// The highest id that was removed to make room.
    pub dropped_to: u64,
    pub waiters: Vec<(u64, oneshot::Sender<bool>)>,
    pub news: Vec<News>,
    said: Said,
    started: bool,
    closed: bool,
}

/// What was said, once each.
#[derive(Default)]
struct Said {
    failed: bool,
    dropped: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Something is to be done, or was.
    moved: Condvar,
}

pub(super) struct Writer {
    dir: PathBuf,
    shared: Arc<Shared>,
}

impl Writer {
    pub(super) fn new(dir: PathBuf) -> Writer {
        Writer { dir, shared: Arc::default() }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    pub(super) fn limit(&self, max_bytes: u64) {
        let mut state = self.state();
        state.max_bytes = Some(max_bytes);
        state.trim = state.total_bytes > max_bytes;
        if state.trim {
            self.wake(state);
        }
    }

    pub(super) fn put(&self, id: u64, body: Bytes) {
        let mut state = self.state();
        state.memory.insert(id, body);
        state.queue.push_back(id);
        self.wake(state);
    }

    /// There is work; the thread is started with the first of it.
    fn wake(&self, mut state: MutexGuard<'_, State>) {
        if !state.started {
            let (dir, shared) = (self.dir.clone(), Arc::clone(&self.shared));
            let thread = std::thread::Builder::new().name("spettro-spool".to_owned());
            if let Err(error) = thread.spawn(move || work(&dir, &shared)) {
                let failed = Err(error);
                while let Some(id) = state.queue.front().copied() {
                    state.settle(id, &failed);
                }
                return;
            }
            state.started = true;
        }
        drop(state);
        self.shared.moved.notify_all();
    }

    /// Nothing more will come: the thread ends with what it has.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.shared.moved.notify_all();
    }

    /// Waits until nothing is to be written; how much is, when that takes too long.
    pub(super) fn flush(&self, within: Duration) -> usize {
        let waited = self.shared.moved.wait_timeout_while(self.state(), within, |state| !state.queue.is_empty());
        waited.unwrap_or_else(PoisonError::into_inner).0.queue.len()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock; and if it did, the state would still be readable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A file is there.
    pub(super) fn written(&mut self, id: u64, size: u64) {
        self.files.insert(id, size);
        self.total_bytes += size;
    }

    /// The oldest files, as many as must go before `more` bytes fit under the cap.
    fn too_many(&self, more: u64) -> Vec<u64> {
        let Some(max) = self.max_bytes else { return Vec::new() };
        let mut total = self.total_bytes.saturating_add(more);
        let mut victims = Vec::new();
        for (id, size) in &self.files {
            if total <= max {
                break;
            }
            total -= size;
            victims.push(*id);
        }
        victims
    }

    /// The first of the queue is written, or cannot be.
    fn settle(&mut self, id: u64, result: &io::Result<()>) {
        self.queue.retain(|waiting| *waiting != id);
        let size = self.memory.get(&id).map_or(0, |body| body.len() as u64);
        match result {
            Ok(()) => {
                self.memory.remove(&id);
                self.written(id, size);
            }
            Err(error) => {
                let kept = self.kept_bytes + size <= MOST_KEPT_BYTES;
                if kept {
                    self.kept_bytes += size;
                } else {
                    self.memory.remove(&id);
                    self.lost.insert(id, format!("it could not be written: {error}"));
                }
                if !std::mem::replace(&mut self.said.failed, true) {
                    let text = format!(
                        "tool output `spool/{id}` cannot be written: {error}; up to {} MB of such outputs are kept in \
                         memory until the run ends, further ones are lost",
                        MOST_KEPT_BYTES / 1_000_000
                    );
                    self.news.push(("spool_not_written", text));
                }
            }
        }
        let (now, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiters).into_iter().partition(|(waiting, _)| *waiting == id);
        self.waiters = later;
        for (_, told) in now {
            // Who waited may be gone.
            let _ = told.send(result.is_ok());
        }
    }
}

fn work(dir: &Path, shared: &Shared) {
    let mut state = shared.lock();
    loop {
        if let Some(id) = state.queue.front().copied() {
            let body = state.memory.get(&id).cloned().unwrap_or_default();
            drop(state);
            let written = keep(dir, shared, id, &body);
            // Its copy goes before anybody hears that it is written.
            drop(body);
            state = shared.lock();
            state.settle(id, &written);
            shared.moved.notify_all();
        } else if std::mem::take(&mut state.trim) {
            drop(state);
            if let Err(error) = make_room(dir, shared, 0) {
                tracing::warn!(%error, "old outputs cannot be removed");
            }
            state = shared.lock();
        } else if state.closed {
            return;
        } else {
            state = shared.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Writes a body whole, with room made for it before.
fn keep(dir: &Path, shared: &Shared, id: u64, body: &[u8]) -> io::Result<()> {
    let size = body.len() as u64;
    let max = shared.lock().max_bytes;
    if let Some(max) = max.filter(|max| size > *max) {
        return Err(io::Error::new(
            io::ErrorKind::QuotaExceeded,
            format!("its {size} bytes are more than `spool_max` allows ({max})"),
        ));
    }
    make_room(dir, shared, size)?;
    write_whole(dir, &id.to_string(), body)
}

/// Removes the oldest files until `more` bytes fit under the cap. That they are gone is written down first.
fn make_room(dir: &Path, shared: &Shared, more: u64) -> io::Result<()> {
    let (victims, max) = {
        let state = shared.lock();
        (state.too_many(more), state.max_bytes.unwrap_or(u64::MAX))
    };
    let Some(newest) = victims.last().copied() else { return Ok(()) };
    if let Err(error) = write_whole(dir, DROPPED_FILE, newest.to_string().as_bytes()) {
        // On a full disk room is what is wanted: then only this run knows where they went.
        tracing::warn!(%error, "that old outputs go cannot be written down");
    }
    shared.lock().dropped_to = newest;
    for id in victims {
        match std::fs::remove_file(dir.join(id.to_string())) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let mut state = shared.lock();
        let size = state.files.remove(&id).unwrap_or(0);
        state.total_bytes -= size;
        if !std::mem::replace(&mut state.said.dropped, true) {
            let text = format!("the oldest tool outputs are removed: all together may take {max} bytes (`spool_max`)");
            state.news.push(("spool_dropped", text));
        }
    }
    Ok(())
}

/// A file that has its name only when it is whole; 0600. After an error nothing is left of it.
fn write_whole(dir: &Path, name: &str, body: &[u8]) -> io::Result<()> {
    let temporary = dir.join(format!("{name}{UNFINISHED}"));
    let open = || OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary);
    let mut file = match with_rights(&temporary, open) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            open()?
        }
        opened => opened?,
    };
    let written = file.write_all(body).and_then(|()| std::fs::rename(&temporary, dir.join(name)));
    if written.is_err() {
        // The error at hand is the one to tell; what is left is removed when the session is opened next.
        let _ = std::fs::remove_file(&temporary);
    }
    written
}
