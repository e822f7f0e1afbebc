//! Time: what counts as active, the limits on it, and the tick that keeps reports and derived files fresh.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::event::Limits;
use crate::model::Gateway;
use crate::process::Watchdog;
use crate::session::{Fact, Session};
use crate::world::{Halt, Why, World};

/// Derived files and the stored time are brought up at most this often.
const SAVE_EVERY: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_secs(1);

/// Measures a session's time across its runs. Cheap to clone.
#[derive(Clone)]
pub struct Timer {
    world: World,
    gateway: Rc<Gateway>,
    started: Duration,
    /// Of earlier runs of the session.
    before_active: Duration,
    before_waited: Duration,
}

impl Timer {
    pub fn new(world: World, gateway: Rc<Gateway>, active_ms: u64, waited_ms: u64, started: Duration) -> Timer {
        Timer {
            world,
            gateway,
            started,
            before_active: Duration::from_millis(active_ms),
            before_waited: Duration::from_millis(waited_ms),
        }
    }

    /// Of this run, waits included.
    pub fn run(&self) -> Duration {
        self.world.clock.elapsed().saturating_sub(self.started)
    }

    /// Waits for a provider; of the session.
    pub fn waited(&self) -> Duration {
        self.before_waited + self.gateway.meter().waited(self.world.clock.elapsed())
    }

    /// What counts against `limits.time`; of the session.
    pub fn active(&self) -> Duration {
        let waited = self.gateway.meter().waited(self.world.clock.elapsed());
        self.before_active + self.run().saturating_sub(waited)
    }

    /// The fact that a resume goes on from.
    pub fn fact(&self) -> Fact {
        Fact::Elapsed { active_ms: millis(self.active()), waited_ms: millis(self.waited()) }
    }
}

/// Watches the clock beside the loop.
pub struct Watch {
    pub world: World,
    pub halt: Halt,
    pub session: Session,
    pub gateway: Rc<Gateway>,
    pub timer: Timer,
    pub limits: Limits,
    /// Ends the process when this here is not heard of any more.
    pub pulse: Watchdog,
    /// A page of the web is being fetched.
    pub fetching: Rc<Cell<bool>>,
    /// Called about once a second with the time since the run started.
    pub tick: Rc<dyn Fn(Duration)>,
}

impl Watch {
    /// Never returns; halts the run when a limit on time is over.
    pub async fn run(&self) {
        let quiet_since = Cell::new(self.world.clock.elapsed());
        let mut saved = self.world.clock.elapsed();
        loop {
            let left = self.look();
            self.pulse.turned(self.standing_still(left, quiet_since.get()));
            self.world.clock.sleep(left.unwrap_or(TICK).clamp(Duration::from_millis(5), TICK)).await;
            let now = self.world.clock.elapsed();
            if self.gateway.meter().occupied() || self.world.exec.busy() || self.fetching.get() {
                quiet_since.set(now);
            } else if self.limits.idle_ms.is_some_and(|idle| millis(now.saturating_sub(quiet_since.get())) > idle) {
                self.over(Why::Idle);
            }
            (self.tick)(self.timer.run());
            if now.saturating_sub(saved) >= SAVE_EVERY && self.halt.why().is_none() {
                saved = now;
                if let Err(error) = self.save() {
                    let cause = super::failure::session(&error);
                    tracing::error!(%error, "the log cannot be written");
                    self.halt.set(Why::Log(cause.outcome));
                }
            }
        }
    }

    /// Halts the run when its time is over; else gives what is left of it.
    pub fn look(&self) -> Option<Duration> {
        let left = self.time_left();
        if left == Some(Duration::ZERO) {
            self.over(Why::TimeLimit);
        }
        left
    }

    /// How long it would take until a limit is over, were nothing to happen from now on.
    fn standing_still(&self, left: Option<Duration>, quiet_since: Duration) -> Option<Duration> {
        let quiet = self.world.clock.elapsed().saturating_sub(quiet_since);
        let idle = self.limits.idle_ms.map(|idle| Duration::from_millis(idle).saturating_sub(quiet));
        left.into_iter().chain(idle).min()
    }

    /// In the log before it takes effect, so that a replay can let it come at the same place.
    fn over(&self, why: Why) {
        if self.halt.why().is_none() {
            self.session.aside(Fact::Halted { why: why.name().to_owned() });
        }
        self.halt.set(why);
    }

    fn save(&self) -> Result<(), crate::session::SessionError> {
        self.session.append(self.timer.fact())?;
        self.session.save_derived()
    }

    fn time_left(&self) -> Option<Duration> {
        let limit = Duration::from_millis(self.limits.time_ms?);
        // While a wait for the provider lasts, the time stands still.
        Some(limit.saturating_sub(self.timer.active()))
    }
}

/// The note to the agent when 90 % of money, tokens, time or steps is used.
pub fn pressing(gateway: &Gateway, timer: &Timer, limits: &Limits) -> Option<String> {
    let near = |used: u64, limit: u64| u128::from(used) * 10 >= u128::from(limit) * 9;
    let steps = gateway.ledger(|ledger| ledger.calls(crate::event::Lane::Agent));
    let what = if gateway.ledger(crate::model::Ledger::winding_down) {
        "money"
    } else if limits.time_ms.is_some_and(|limit| near(millis(timer.active()), limit)) {
        "time"
    } else if near(steps, limits.steps) && limits.steps >= 10 {
        "steps"
    } else {
        return None;
    };
    Some(format!(
        "More than 90 % of the {what} for this goal is used. Bring what you have into a working state now, verify it, \
         and say what is left."
    ))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
