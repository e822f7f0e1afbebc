//! What the kernel tells (inotify). A thread takes it while checks run, so that nothing gets lost behind a build that
//! makes very many files, and so that a new folder is watched at once.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::{PipeWriter, pipe};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::{Globs, Seen, Untold};
use crate::world::{Clock, Dir, RealClock, RealDir};

/// How often the thread looks although nothing happened, so that it knows how late it is.
const BEAT: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// A folder that was gone before it could be looked into was there for less than this, unless the thread was later.
const LATE: Duration = Duration::from_millis(150);
const BUFFER_BYTES: usize = 64 << 10;

const QUIET: WatchFlags =
    WatchFlags::MOVE_SELF.union(WatchFlags::DELETE_SELF).union(WatchFlags::ONLYDIR).union(WatchFlags::DONT_FOLLOW);
const LOUD: WatchFlags = QUIET.union(WatchFlags::CREATE).union(WatchFlags::MOVED_TO).union(WatchFlags::MOVED_FROM);

/// One instance, for the whole run.
pub(super) struct Kernel(Arc<OwnedFd>);

impl Kernel {
    pub fn new() -> rustix::io::Result<Kernel> {
        Ok(Kernel(Arc::new(inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?)))
    }

    /// Whoever watches a folder already can do so again when all watches are taken.
    pub fn keep(&self, above: &BTreeSet<PathBuf>) {
        for folder in above {
            if let Err(error) = inotify::add_watch(&self.0, folder, QUIET) {
                tracing::debug!(%error, folder = %folder.display(), "a folder cannot be watched");
            }
        }
    }

    pub fn watch(
        &self,
        root: &Path,
        globs: Arc<Globs>,
        known: BTreeSet<PathBuf>,
        above: BTreeSet<PathBuf>,
        untold: &mut Untold,
    ) -> std::io::Result<Watching> {
        // What was told before is over.
        while rustix::io::read(&self.0, &mut [0; BUFFER_BYTES]).is_ok_and(|read| read > 0) {}
        let mut watch = Watch {
            root: root.to_owned(),
            globs,
            known,
            above,
            events: self.0.clone(),
            folders: BTreeMap::new(),
            gone: BTreeSet::new(),
            moving: BTreeMap::new(),
            untold: Untold { root: root.to_owned(), folders: BTreeMap::new() },
            seen: Seen::default(),
            clock: RealClock::new(),
            empty_at: Duration::ZERO,
        };
        for folder in watch.above.clone() {
            match inotify::add_watch(&watch.events, &folder, QUIET) {
                Ok(number) => drop(watch.folders.insert(number, folder)),
                // It is gone already, and so are the files in it: their own stamps tell.
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(_) => untold.above(&folder),
            }
        }
        if !watch.globs.is_empty() {
            watch.enter(root.to_owned(), true);
        }
        let (stop, stopper) = pipe()?;
        let stop = OwnedFd::from(stop);
        let thread = std::thread::Builder::new().name("protect".to_owned()).spawn(move || watch.run(&stop))?;
        Ok(Watching { thread: Some(thread), stop: Some(stopper) })
    }
}

/// A thread that watches until this ends.
pub(super) struct Watching {
    thread: Option<JoinHandle<Seen>>,
    stop: Option<PipeWriter>,
}

impl Watching {
    pub fn end(mut self) -> Seen {
        self.join().unwrap_or_default()
    }

    fn join(&mut self) -> Option<Seen> {
        self.stop = None;
        match self.thread.take()?.join() {
            Ok(seen) => Some(seen),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // Nobody asks any more, but the events are one instance's.
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

struct Watch {
    root: PathBuf,
    globs: Arc<Globs>,
    known: BTreeSet<PathBuf>,
    /// The folders that must not be moved.
    above: BTreeSet<PathBuf>,
    events: Arc<OwnedFd>,
    folders: BTreeMap<i32, PathBuf>,
    /// New folders that could not be looked into any more.
    gone: BTreeSet<PathBuf>,
    /// Of those, the ones that were moved, by the number of the move.
    moving: BTreeMap<u32, PathBuf>,
    /// Folders that cannot be watched.
    untold: Untold,
    seen: Seen,
    clock: RealClock,
    /// When everything was taken last.
    empty_at: Duration,
}

impl Watch {
    fn run(mut self, stop: &OwnedFd) -> Seen {
        let events = self.events.clone();
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
        self.empty_at = self.clock.elapsed();
        loop {
            let mut ready = [PollFd::new(&*events, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
            let waited = poll(&mut ready, Some(&BEAT));
            // Before the events are taken: what came until then is among them.
            let over = !ready[1].revents().is_empty() || waited.is_err_and(|error| error != Errno::INTR);
            self.take_all(&events, &mut buffer);
            if over {
                return self.over();
            }
        }
    }

    fn take_all(&mut self, events: &OwnedFd, buffer: &mut [MaybeUninit<u8>]) {
        let mut reader = Reader::new(events, buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| Path::new(OsStr::from_bytes(name.to_bytes())));
                    self.take(event.wd(), event.events(), event.cookie(), name);
                }
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => {
                    self.empty_at = self.clock.elapsed();
                    return;
                }
                Err(_) => return self.lost(),
            }
        }
    }

    /// Anything may have happened anywhere.
    fn lost(&mut self) {
        for base in self.globs.bases.clone() {
            self.seen.make(self.root.join(base));
        }
        self.seen.moved.append(&mut self.above.clone());
    }

    fn take(&mut self, number: i32, event: ReadFlags, cookie: u32, name: Option<&Path>) {
        if event.contains(ReadFlags::QUEUE_OVERFLOW) {
            return self.lost();
        }
        let Some(folder) = self.folders.get(&number) else { return };
        if event.intersects(ReadFlags::MOVE_SELF | ReadFlags::DELETE_SELF | ReadFlags::UNMOUNT) {
            if self.above.contains(folder) {
                self.seen.moved.insert(folder.clone());
            }
            return;
        }
        let Some(path) = name.map(|name| folder.join(name)) else { return };
        let Ok(relative) = path.strip_prefix(&self.root) else { return };
        let came = event.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
        if !event.contains(ReadFlags::ISDIR) {
            if came && self.globs.concern(relative) {
                self.seen.make(path);
            }
            return;
        }
        if event.contains(ReadFlags::MOVED_FROM) {
            // Before it tells so itself. What happens in it from now on happens elsewhere.
            if self.above.contains(&path) {
                self.seen.moved.insert(path.clone());
            }
            self.folders.retain(|_, folder| !folder.starts_with(&path));
            if self.gone.remove(&path) {
                self.moving.insert(cookie, path);
            }
        } else if came {
            self.moving.remove(&cookie);
            if self.globs.may_be_in(relative) {
                self.enter(path, false);
            }
        }
    }

    /// Watches a folder and those below it where a glob may match, and looks what is there. Those of before the checks
    /// are the `first`.
    fn enter(&mut self, folder: PathBuf, first: bool) {
        let mut left = vec![folder];
        while let Some(folder) = left.pop() {
            match inotify::add_watch(&self.events, &folder, LOUD) {
                Ok(number) => drop(self.folders.insert(number, folder.clone())),
                Err(Errno::NOENT | Errno::NOTDIR) => {
                    self.was_gone(folder, first);
                    continue;
                }
                Err(_) => self.untold.at(&folder, &folder),
            }
            let entries = match RealDir.list(&folder) {
                Ok(entries) => entries,
                Err(error) => {
                    if super::super::stamp::is_gone(&error) {
                        self.was_gone(folder, first);
                    }
                    continue;
                }
            };
            for entry in entries {
                let path = folder.join(entry.name);
                let Ok(relative) = path.strip_prefix(&self.root) else { continue };
                if entry.is_dir {
                    if self.globs.may_be_in(relative) {
                        left.push(path);
                    }
                } else if self.globs.concern(relative) && !self.known.contains(&path) {
                    self.seen.make(path);
                }
            }
        }
    }

    /// What it held is not known. Builds make and remove folders all the time: where no glob names a folder around it,
    /// it counts only when it may have been there for long.
    fn was_gone(&mut self, folder: PathBuf, first: bool) {
        let named = folder.strip_prefix(&self.root).is_ok_and(|folder| self.globs.name_a_folder_around(folder));
        if !first && (named || self.clock.elapsed() - self.empty_at > LATE) {
            self.gone.insert(folder);
        }
    }

    /// Gives the watches back, but those that are kept.
    fn over(mut self) -> Seen {
        for (number, folder) in &self.folders {
            let given = match self.above.contains(folder) {
                true => inotify::add_watch(&self.events, folder, QUIET).map(drop),
                false => inotify::remove_watch(&self.events, *number),
            };
            // A folder that was removed has none any more.
            if let Err(error) = given {
                tracing::debug!(%error, folder = %folder.display(), "a folder is not watched any more");
            }
        }
        for folder in self.gone.into_iter().chain(self.moving.into_values()).chain(self.untold.moved()) {
            self.seen.make(folder);
        }
        self.seen
    }
}
