//! A clock that jumps: when a run does nothing but wait, the next deadline is now.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use spettro::world::{Boxed, Clock};

/// Shorter sleeps are somebody's look at the clock, not a wait for anything.
const TICK: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Virtual {
    inner: Rc<Inner>,
}

#[derive(Default)]
struct Inner {
    now: Cell<Duration>,
    /// By deadline and number: whether it is longer than a tick, and whom to wake.
    sleepers: RefCell<BTreeMap<(Duration, u64), (bool, Waker)>>,
    numbers: Cell<u64>,
    /// Counts whatever but a tick.
    moves: Cell<u64>,
}

impl Virtual {
    /// Something happened that is no mere look at the clock.
    pub fn moved(&self) {
        self.inner.moves.set(self.inner.moves.get() + 1);
    }

    /// Never returns: lets time pass whenever everybody waits for it.
    pub async fn run(&self) {
        loop {
            // The disk is a thread of its own, and works in real time.
            tokio::time::sleep(Duration::from_millis(1)).await;
            loop {
                let before = self.inner.moves.get();
                let waits = self.inner.step();
                for _ in 0..6 {
                    tokio::task::yield_now().await;
                }
                if !waits || self.inner.moves.get() != before {
                    break;
                }
            }
        }
    }
}

impl Inner {
    /// To the next deadline that somebody waits for; whoever only looks at the clock is woken late, and once. False
    /// when nobody waits for anything: then it is the next look.
    fn step(&self) -> bool {
        let mut sleepers = self.sleepers.borrow_mut();
        let waited_for = sleepers.iter().find(|(_, (long, _))| *long).map(|(deadline, _)| *deadline);
        let Some(until) = waited_for.or_else(|| sleepers.keys().next().copied()) else { return false };
        self.now.set(self.now.get().max(until.0));
        let later = sleepers.split_off(&(until.0, until.1 + 1));
        let due = std::mem::replace(&mut *sleepers, later);
        drop(sleepers);
        for (_, waker) in due.into_values() {
            waker.wake();
        }
        waited_for.is_some()
    }
}

impl Clock for Virtual {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000) + self.inner.now.get()
    }

    fn elapsed(&self) -> Duration {
        self.inner.now.get()
    }

    fn sleep(&self, duration: Duration) -> Boxed<'_, ()> {
        let number = self.inner.numbers.get() + 1;
        self.inner.numbers.set(number);
        if duration > TICK {
            self.moved();
        }
        let deadline = (self.inner.now.get() + duration, number);
        Box::pin(Sleep { inner: self.inner.clone(), deadline, long: duration > TICK })
    }
}

struct Sleep {
    inner: Rc<Inner>,
    deadline: (Duration, u64),
    long: bool,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.inner.now.get() >= self.deadline.0 {
            return Poll::Ready(());
        }
        self.inner.sleepers.borrow_mut().insert(self.deadline, (self.long, context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.inner.sleepers.borrow_mut().remove(&self.deadline);
    }
}
