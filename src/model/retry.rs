//! When a failed attempt is tried again: exponential waits with jitter, the provider's own words first.

use std::time::Duration;

use super::error::ModelError;
use crate::world::Ids;

/// So many failures in a row may name a wait of their own, however short; after them it is no shorter than a step of
/// the backoff. A server that always says «at once» would otherwise be asked for ever, as often as it can answer.
const TRUSTED_WAITS: u32 = 3;

/// The outage budget of one call chain: waits and failed attempts together. A server that takes a request and says
/// nothing is as much out as one that refuses it, and a run without a limit on time must come to an end there too.
#[derive(Debug, Clone)]
pub struct Outage {
    /// For waits and failed attempts together.
    max_total: Duration,
    /// For the waits alone.
    max_wait: Duration,
    waited: Duration,
    failing: Duration,
    failures: u32,
    most_attempts: u32,
    /// What sets `max_wait`.
    set_by: &'static str,
}

/// What follows a failed attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Wait that long, then try again.
    Wait(Duration),
    /// The error is final, or the budget is used up.
    GiveUp,
}

impl Outage {
    pub const fn new(max_wait: Duration) -> Outage {
        Outage {
            max_total: max_wait,
            max_wait,
            waited: Duration::ZERO,
            failing: Duration::ZERO,
            failures: 0,
            most_attempts: u32::MAX,
            set_by: "`rate_limit.max_wait`",
        }
    }

    /// No more than so many attempts, and no more than so much waiting.
    pub fn within(self, most_attempts: u32, wait: Duration) -> Outage {
        let set_by = if wait < self.max_wait { "the most that is waited here" } else { self.set_by };
        Outage { most_attempts, max_wait: self.max_wait.min(wait), set_by, ..self }
    }

    /// After `after` gave up: both numbers, when the wait that the provider asked for is longer than what is left.
    pub fn beyond(&self, error: &ModelError) -> Option<String> {
        let wait = error.wait()?;
        if self.waited.saturating_add(wait) <= self.max_wait {
            return None;
        }
        let shown = |time: Duration| humantime::format_duration(Duration::from_millis(millis(time)));
        let before = match self.waited {
            Duration::ZERO => String::new(),
            waited => format!(", and {} were waited before", shown(waited)),
        };
        let (asked, most, what) = (shown(wait), shown(self.max_wait), self.set_by);
        Some(format!("it asks for a wait of {asked}, and {what} is {most}{before}"))
    }

    /// Decides after one more failed attempt, which took so long.
    pub fn after(&mut self, error: &ModelError, took: Duration, ids: &dyn Ids) -> Next {
        self.failing = self.failing.saturating_add(took);
        if !error.retryable() {
            return Next::GiveUp;
        }
        self.failures += 1;
        if self.failures >= self.most_attempts {
            return Next::GiveUp;
        }
        let wait = match (error.wait(), self.failures.checked_sub(TRUSTED_WAITS)) {
            (Some(wait), None | Some(0)) => wait,
            (Some(wait), Some(further)) => wait.max(backoff(further, ids)),
            (None, _) => backoff(self.failures, ids),
        };
        let waited = self.waited.saturating_add(wait);
        if waited > self.max_wait || waited.saturating_add(self.failing) > self.max_total {
            return Next::GiveUp;
        }
        self.waited = waited;
        Next::Wait(wait)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The n-th step (from 1) of 1 s to 60 s: between half and the whole of it, so that many runs do not come back at
/// once.
fn backoff(n: u32, ids: &dyn Ids) -> Duration {
    let step = Duration::from_secs(1 << n.saturating_sub(1).min(6)).min(Duration::from_secs(60));
    let half = step / 2;
    half + half.mul_f64(ids.draw("retry jitter") as f64 / u64::MAX as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::RealIds;

    fn overloaded(wait: Option<u64>) -> ModelError {
        ModelError::Overloaded { message: "busy".into(), wait: wait.map(Duration::from_secs) }
    }

    #[test]
    fn waits_double_up_to_a_minute_within_the_budget() {
        let ids = RealIds::from_seed(b"x");
        let mut outage = Outage::new(Duration::from_secs(600));
        let mut waits = Vec::new();
        while let Next::Wait(wait) = outage.after(&overloaded(None), Duration::ZERO, &ids) {
            waits.push(wait.as_secs_f64());
        }
        for (i, wait) in waits.iter().enumerate() {
            let step = f64::from(1u32 << i.min(6)).min(60.0);
            assert!(*wait >= step / 2.0 && *wait <= step, "{i}: {wait}");
        }
        assert!(waits.iter().sum::<f64>() <= 600.0);
        assert!(waits.len() >= 12, "{waits:?}");
    }

    #[test]
    fn the_providers_wait_wins_and_a_longer_one_than_the_budget_gives_up() {
        let ids = RealIds::from_seed(b"x");
        let mut outage = Outage::new(Duration::from_secs(30));
        assert_eq!(outage.after(&overloaded(Some(7)), Duration::ZERO, &ids), Next::Wait(Duration::from_secs(7)));
        assert_eq!(outage.after(&overloaded(Some(24)), Duration::ZERO, &ids), Next::GiveUp);
        assert_eq!(outage.after(&ModelError::Auth("no".into()), Duration::ZERO, &ids), Next::GiveUp);
    }

    #[test]
    fn attempts_that_hang_use_the_budget_up_too() {
        let ids = RealIds::from_seed(b"x");
        let hung = ModelError::Timeout("no response for 5m".into());
        let mut outage = Outage::new(Duration::from_secs(1_800));
        let mut attempts = 0;
        loop {
            attempts += 1;
            if outage.after(&hung, Duration::from_secs(300), &ids) == Next::GiveUp {
                break;
            }
        }
        // Five of them and the waits between fit into half an hour, the sixth ends it.
        assert_eq!(attempts, 6);
        let mut short = Outage::new(Duration::from_secs(1_800)).within(3, Duration::from_secs(60));
        assert!(
            matches!(short.after(&hung, Duration::from_secs(300), &ids), Next::Wait(_)),
            "its waits alone are short"
        );
        assert!(matches!(short.after(&hung, Duration::from_secs(300), &ids), Next::Wait(_)));
        assert_eq!(short.after(&hung, Duration::from_secs(300), &ids), Next::GiveUp);
    }

    #[test]
    fn a_server_that_always_says_at_once_is_given_up_too() {
        let ids = RealIds::from_seed(b"x");
        let mut outage = Outage::new(Duration::from_secs(600));
        let mut waits = Vec::new();
        while let Next::Wait(wait) = outage.after(&overloaded(Some(0)), Duration::ZERO, &ids) {
            waits.push(wait);
            assert!(waits.len() < 100, "it is asked for ever");
        }
        assert_eq!(waits[..3], [Duration::ZERO; 3]);
        assert!(waits[3..].iter().all(|wait| *wait >= Duration::from_millis(500)), "{waits:?}");
        // The longest wait that a header can name.
        assert_eq!(outage.after(&overloaded(Some(u64::MAX)), Duration::ZERO, &ids), Next::GiveUp);
    }
}
