//! The end of a run whose loop stands still.
//!
//! The loop is one thread, and it alone knows limits and signals. Should it ever wait for something that does not come
//! (a reader that takes nothing, a file system that does not answer), a thread that needs nothing of it ends the
//! process. Children end with it: their supervisors see its sockets close.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{ProcessError, signals, sys};
use crate::event::Outcome;

/// After a limit on time; a listing of a large workspace may stand in the way until then.
const LATE: Duration = Duration::from_secs(20);
/// After a signal that the loop has not taken.
const UNHEARD: Duration = Duration::from_secs(10);
/// For a teardown, whose parts have bounds of their own.
const TEARDOWN: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Writes down how the run ended, on the watchdog's thread; the process ends when it returns.
pub type LastWords = Box<dyn FnOnce(Outcome) + Send>;

/// What the loop tells the watchdog. Cheap to clone.
#[derive(Clone)]
pub struct Watchdog(Option<Arc<Mutex<State>>>);

struct State {
    /// Without a further word of the loop it is over then.
    due: Option<Instant>,
    /// And that is how.
    ends: Outcome,
    /// A teardown takes no further signal.
    ending: bool,
    off: bool,
    /// Since when a signal has not been taken.
    unheard: Option<(i32, Instant)>,
}

impl Watchdog {
    /// One that does nothing.
    pub fn none() -> Watchdog {
        Watchdog(None)
    }

    /// Watches from now on. `limit`: on the time of the run.
    ///
    /// # Errors
    /// When there is no further thread.
    pub fn start(limit: Option<Duration>, last_words: LastWords) -> Result<Watchdog, ProcessError> {
        let state = Arc::new(Mutex::new(State::new(limit, Instant::now())));
        let shared = Arc::clone(&state);
        let watch = move || {
            let outcome = loop {
                std::thread::sleep(LOOK_EVERY);
                let mut state = lock(&shared);
                if state.off {
                    return;
                }
                if let Some(outcome) = state.over(signals::untaken(), Instant::now()) {
                    // Held from here on: should the loop turn after all, it waits for the end.
                    break (state, outcome);
                }
            };
            last_words(outcome.1);
            match outcome.1.signal() {
                Some(signal) => signals::reraise(signal),
                None => sys::exit_now(outcome.1.code().into()),
            }
        };
        std::thread::Builder::new().name("watchdog".to_owned()).spawn(watch).map_err(ProcessError::Watchdog)?;
        Ok(Watchdog(Some(state)))
    }

    /// The loop turns, and one of its limits on time is over when this has passed.
    pub fn turned(&self, left: Option<Duration>) {
        self.tell(|state, now| state.due = due(left, now));
    }

    /// The teardown begins, or goes on: the run has ended like this.
    pub fn ending(&self, outcome: Outcome) {
        self.tell(|state, now| {
            state.ending = true;
            // A teardown that does not come to its end is no success.
            state.ends = if outcome == Outcome::Met { Outcome::TimeLimit } else { outcome };
            state.due = now.checked_add(TEARDOWN);
        });
    }

    /// There is nothing to watch any more.
    pub fn off(&self) {
        self.tell(|state, _| state.off = true);
    }

    fn tell(&self, change: impl FnOnce(&mut State, Instant)) {
        if let Some(state) = &self.0 {
            change(&mut lock(state), Instant::now());
        }
    }
}

impl State {
    fn new(limit: Option<Duration>, now: Instant) -> State {
        State { due: due(limit, now), ends: Outcome::TimeLimit, ending: false, off: false, unheard: None }
    }

    /// How the run is over, if it is. `untaken`: the signal that the loop has not taken.
    fn over(&mut self, untaken: Option<i32>, now: Instant) -> Option<Outcome> {
        self.unheard = untaken.map(|signal| self.unheard.unwrap_or((signal, now)));
        if let Some((signal, since)) = self.unheard
            && !self.ending
            && now.saturating_duration_since(since) >= UNHEARD
        {
            return Some(Outcome::of_signal(signal));
        }
        self.due.is_some_and(|due| now >= due).then_some(self.ends)
    }
}

fn due(left: Option<Duration>, now: Instant) -> Option<Instant> {
    now.checked_add(left?.checked_add(LATE)?)
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Every change is one assignment after another, and none panics.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: i32 = signal_hook::consts::SIGTERM;

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn a_loop_that_stands_still_is_ended_behind_its_limit() {
        let start = Instant::now();
        let mut state = State::new(Some(Duration::from_secs(60)), start);
        assert_eq!(state.over(None, at(start, 79)), None);
        assert_eq!(state.over(None, at(start, 80)), Some(Outcome::TimeLimit));
        state.due = due(Some(Duration::from_secs(5)), at(start, 100));
        assert_eq!(state.over(None, at(start, 124)), None);
        assert_eq!(state.over(None, at(start, 125)), Some(Outcome::TimeLimit));
        let mut unlimited = State::new(None, start);
        assert_eq!(unlimited.over(None, at(start, 1 << 30)), None);
    }

    #[test]
    fn a_signal_that_nobody_takes_ends_it_and_one_that_is_taken_does_not() {
        let start = Instant::now();
        let mut state = State::new(None, start);
        assert_eq!(state.over(Some(TERM), at(start, 100)), None);
        assert_eq!(state.over(Some(TERM), at(start, 109)), None);
        assert_eq!(state.over(Some(TERM), at(start, 110)), Some(Outcome::Terminated));
        let mut state = State::new(None, start);
        assert_eq!(state.over(Some(TERM), at(start, 100)), None);
        assert_eq!(state.over(None, at(start, 105)), None, "it was taken");
        assert_eq!(state.over(Some(TERM), at(start, 112)), None, "another one, for which time begins anew");
        let mut ending = State { ending: true, ..State::new(None, start) };
        assert_eq!(ending.over(Some(TERM), start), None);
        assert_eq!(ending.over(Some(TERM), at(start, 100)), None, "the teardown has a bound of its own");
    }

    #[test]
    fn a_teardown_that_does_not_end_is_no_success() {
        for (outcome, ends) in [(Outcome::Met, Outcome::TimeLimit), (Outcome::Stalled, Outcome::Stalled)] {
            let state = Arc::new(Mutex::new(State::new(None, Instant::now())));
            let watchdog = Watchdog(Some(Arc::clone(&state)));
            watchdog.ending(outcome);
            let later = Instant::now() + TEARDOWN;
            assert_eq!(lock(&state).over(None, later), Some(ends));
        }
    }
}
