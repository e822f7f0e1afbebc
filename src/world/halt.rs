//! The one way in which a run is told to stop from outside its own logic: a signal, a time limit, a drain.
//!
//! Whoever waits for something long (a model, a command, a check) waits through [`Halt::run`]; what it waited for
//! is dropped when the run is halted, and the waiter then writes down what it knows.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use tokio::sync::Notify;

use crate::event::Outcome;

/// Why a run was halted. The first reason stays, unless a signal comes on top of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Hangup, interrupt or terminated.
    Signal(Outcome),
    TimeLimit,
    /// `limits.idle`.
    Idle,
    /// Finish the running tool call, save, end as `saved`.
    Drain,
    /// The log can no longer be written, or was changed by somebody else.
    Log(Outcome),
}

impl Why {
    pub const fn outcome(self) -> Outcome {
        match self {
            Why::Signal(outcome) | Why::Log(outcome) => outcome,
            Why::TimeLimit | Why::Idle => Outcome::TimeLimit,
            Why::Drain => Outcome::Saved,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Why::Signal(outcome) | Why::Log(outcome) => outcome.name(),
            Why::TimeLimit => "time limit",
            Why::Idle => "idle limit",
            Why::Drain => "drain",
        }
    }
}

/// Shared by everybody in a run; cheap to clone.
#[derive(Clone, Default)]
pub struct Halt {
    inner: Rc<Inner>,
}

#[derive(Default)]
struct Inner {
    why: Cell<Option<Why>>,
    changed: Notify,
}

impl Halt {
    pub fn new() -> Halt {
        Halt::default()
    }

    pub fn set(&self, why: Why) {
        let replaces = match self.inner.why.get() {
            None => true,
            Some(Why::Signal(_)) => false,
            // Who drains for a minute is still ended by a signal.
            Some(_) => matches!(why, Why::Signal(_)),
        };
        if replaces {
            self.inner.why.set(Some(why));
            self.inner.changed.notify_waiters();
        }
    }

    pub fn why(&self) -> Option<Why> {
        self.inner.why.get()
    }

    /// Resolves when the run is halted.
    pub async fn wait(&self) -> Why {
        loop {
            let changed = self.inner.changed.notified();
            if let Some(why) = self.why() {
                return why;
            }
            changed.await;
        }
    }

    /// Resolves when a signal ends the run.
    pub async fn signalled(&self) -> Why {
        loop {
            let changed = self.inner.changed.notified();
            if let Some(why @ Why::Signal(_)) = self.why() {
                return why;
            }
            changed.await;
        }
    }

    /// Runs `future` until it ends or the run is halted, whichever is first; halted, it is dropped.
    pub async fn run<T>(&self, future: impl Future<Output = T>) -> Result<T, Why> {
        tokio::select! {
            biased;
            why = self.wait() => Err(why),
            value = future => Ok(value),
        }
    }
}
