//! Time and chance of a replay: both stand in the recording.
//!
//! Invariant: nothing waits. A sleep ends when nothing else can happen, the one that would end first first.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, SystemTime};

use super::cursor::Cursor;
use crate::session::{Fact, Message};
use crate::world::{Boxed, Clock, Dir, DirEntry, Enter, Env, Explored, Ids, RealDir, WalkOptions};

/// The recorded time of day, and a time that passes only when somebody sleeps.
pub struct TapeClock {
    cursor: Rc<Cursor>,
    elapsed: Cell<Duration>,
    sleeps: RefCell<BTreeMap<(Duration, u64), Option<Waker>>>,
    last: Cell<u64>,
    /// Added to the time of day.
    offset: Duration,
    /// `limits.time`, to which the note about it belongs.
    limit: Option<Duration>,
}

impl TapeClock {
    pub fn new(cursor: Rc<Cursor>, limit: Option<Duration>, offset: Duration) -> TapeClock {
        TapeClock {
            cursor,
            elapsed: Cell::new(Duration::ZERO),
            sleeps: RefCell::default(),
            last: Cell::new(0),
            offset,
            limit,
        }
    }

    /// Something took so long, and nobody slept.
    pub fn took(&self, duration: Duration) {
        self.elapsed.set(self.elapsed.get().saturating_add(duration));
    }

    /// Ends the sleep that would end first; false when nobody sleeps.
    pub fn pass(&self) -> bool {
        let Some(((until, _), waker)) = self.sleeps.borrow_mut().pop_first() else { return false };
        self.elapsed.set(self.elapsed.get().max(until));
        self.cursor.stir();
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }
}

impl TapeClock {
    /// Whether somebody sleeps.
    pub fn is_slept_on(&self) -> bool {
        !self.sleeps.borrow().is_empty()
    }

    /// So much time has really passed: sleeps that end in it end.
    pub fn flow(&self, passed: Duration) {
        let now = self.elapsed.get() + passed;
        while self.sleeps.borrow().first_key_value().is_some_and(|((until, _), _)| *until <= now) {
            self.pass();
        }
        self.elapsed.set(now);
    }
}

/// The note that little time is left.
fn says_time(fact: &Fact) -> bool {
    matches!(fact, Fact::Message(Message::Operator { text }) if text.starts_with("More than 90 % of the time "))
}

impl Clock for TapeClock {
    fn now(&self) -> SystemTime {
        let recorded = self.cursor.frontier_line().and_then(|line| humantime::parse_rfc3339(&line.t).ok());
        recorded.unwrap_or(SystemTime::UNIX_EPOCH) + self.offset
    }

    fn elapsed(&self) -> Duration {
        if let Some(limit) = self.limit
            && self.elapsed.get() < limit
            && self.cursor.next_is(says_time)
        {
            self.elapsed.set(limit);
        }
        self.elapsed.get()
    }

    fn sleep(&self, duration: Duration) -> Boxed<'_, ()> {
        let id = self.last.get() + 1;
        self.last.set(id);
        let until = self.elapsed.get().saturating_add(duration);
        let sleep = Sleep { clock: self, key: (until, id) };
        self.sleeps.borrow_mut().insert(sleep.key, None);
        Box::pin(async move {
            let sleep = sleep;
            poll_fn(|context| match sleep.clock.sleeps.borrow_mut().get_mut(&sleep.key) {
                Some(waker) => {
                    *waker = Some(context.waker().clone());
                    Poll::Pending
                }
                None => Poll::Ready(()),
            })
            .await;
        })
    }
}

/// Forgotten when nobody waits for it any more.
struct Sleep<'a> {
    clock: &'a TapeClock,
    key: (Duration, u64),
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        self.clock.sleeps.borrow_mut().remove(&self.key);
    }
}

/// A failed attempt that was just given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// Counts the attempts of the call from 1.
    pub number: u64,
    /// The wait that followed it.
    pub wait_ms: Option<u64>,
}

/// The latest one: the model sets it, chance reads it.
pub type LastFailure = Rc<Cell<Option<Failure>>>;

/// Gives the waits between attempts that were recorded.
pub struct TapeIds {
    pub failed: LastFailure,
}

impl Ids for TapeIds {
    fn draw(&self, purpose: &'static str) -> u64 {
        if purpose != "retry jitter" {
            return 0;
        }
        // The n-th wait lies between half and the whole of its step. One that was not waited for was too long.
        match self.failed.get() {
            Some(Failure { number, wait_ms: Some(wait_ms) }) => {
                let step = (1_000u64 << number.saturating_sub(1).min(6)).min(60_000);
                let half = step as f64 / 2.0;
                let share = ((wait_ms as f64 + 0.5 - half) / half).clamp(0.0, 1.0);
                (share * u64::MAX as f64) as u64
            }
            Some(Failure { wait_ms: None, .. }) => u64::MAX,
            None => 0,
        }
    }
}

/// Only the given variables: a replay needs no key, and finds none.
#[derive(Default)]
pub struct FewVars(pub Vec<(String, String)>);

impl Env for FewVars {
    fn var(&self, name: &str) -> Option<String> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    fn vars(&self) -> Vec<(String, String)> {
        self.0.clone()
    }
}

/// Lists everything backwards: what a replay makes of a folder must not depend on it.
pub struct Backwards(pub RealDir);

impl Dir for Backwards {
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = self.0.list(path)?;
        entries.reverse();
        Ok(entries)
    }

    fn explore(&self, root: &Path, options: WalkOptions, enter: Enter) -> Explored {
        let mut explored = self.0.explore(root, options, enter);
        explored.files.reverse();
        explored.folders.reverse();
        explored
    }
}
