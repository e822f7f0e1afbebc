//! The end: everything is told to go, what does not go is killed, what cannot be killed is named.
//!
//! The runner is a child subreaper like each supervisor: when a supervisor is killed, its orphans become the
//! runner's children. They are found here, killed and reaped by pid, never by a wait for anybody.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::command::{Order, Shared, lock};
use super::proc::{self, Stat};
use super::reaper;
use super::signals;
use crate::event::Leaked;

/// The teardown as a whole takes at most half a second more.
const MOST_GRACE: Duration = Duration::from_secs(6);
/// Of the whole teardown. What was killed is waited for that long: on a starved machine it takes its time to go, and
/// is no leak.
const MOST_TEARDOWN: Duration = Duration::from_millis(6_500);
/// For supervisors to kill and report, after the grace.
const REPORT_BUDGET: Duration = Duration::from_millis(300);
/// When a tree is lost in the middle of a run there is more time.
const LOST_BUDGET: Duration = Duration::from_secs(2);
/// For the death of a supervisor that had not told its pid.
const UNKNOWN_BUDGET: Duration = Duration::from_millis(20);
const REAP_EVERY: Duration = Duration::from_millis(200);

/// Children that somebody started in this process before it became spettro (`server & exec spettro …`). They are
/// not ours to end.
pub struct Strangers {
    before: Vec<Stat>,
    /// What is in the session of this process is no descendant of a supervisor: those begin sessions of their own,
    /// and nobody can enter a session from outside.
    session: i32,
}

impl Strangers {
    pub fn look() -> Strangers {
        let me = me();
        let session = proc::stat(me).map_or(0, |stat| stat.session);
        Strangers { before: proc::all().into_iter().filter(|stat| stat.parent == me).collect(), session }
    }

    fn contains(&self, stat: &Stat) -> bool {
        stat.session == self.session
            || self.before.iter().any(|stranger| (stranger.pid, stranger.start) == (stat.pid, stat.start))
    }
}

fn me() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Orphans of this process's descendants become its children.
pub fn become_subreaper() -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

impl Shared {
    /// See [`crate::world::Exec::shutdown`].
    pub async fn shutdown(&self, grace: Duration) -> Vec<Leaked> {
        let grace = grace.min(MOST_GRACE);
        let last = Instant::now() + MOST_TEARDOWN;
        let mut deadline = Instant::now() + grace + REPORT_BUDGET;
        self.gate.close().await;
        let mut killing = grace.is_zero() || signals::force();
        self.order_all(if killing { Order::Kill } else { Order::Terminate(grace) });
        loop {
            let ended = self.ended.notified();
            let forced = signals::forced();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if self.idle() || deadline <= Instant::now() {
                break;
            }
            tokio::select! {
                () = ended => {}
                () = forced, if !killing => {
                    killing = true;
                    deadline = deadline.min(Instant::now() + REPORT_BUDGET);
                    self.order_all(Order::Kill);
                }
                () = tokio::time::sleep_until(deadline.into()) => {}
            }
        }
        // Without the zygote what is left of the supervisors (stopped, starved, or not even begun) falls to us, and
        // with them their trees.
        lock(&self.backend).stop();
        self.kill_orphans_until(last, false).await;
        // Their tasks still have to notice.
        while !self.idle() && Instant::now() < last {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let leaked = self.leaked();
        if let (true, Some(ledger)) = (leaked.is_empty(), self.ledger.get()) {
            ledger.close();
        }
        leaked
    }

    /// Kills what a dead supervisor or zygote has left to this process; resolves when it is gone, or has had enough
    /// time to be. `supervisor` is the dead one, as far as it is known.
    pub async fn end_orphans(&self, supervisor: Option<i32>) {
        // Its socket closes before its children become ours.
        let begun = Instant::now();
        let dying = || match supervisor {
            Some(pid) => proc::stat(pid).is_some_and(|stat| stat.alive()),
            None => begun.elapsed() < UNKNOWN_BUDGET,
        };
        while dying() && begun.elapsed() < LOST_BUDGET {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.kill_orphans_until(Instant::now() + LOST_BUDGET, true).await;
    }

    async fn kill_orphans_until(&self, deadline: Instant, spare_supervisors: bool) {
        // Who dies while it is looked around, and is reaped by another task, has left us children that were looked at
        // before they were ours. So only two empty looks in a row are a proof.
        let mut empty = 0;
        loop {
            let supervisors = if spare_supervisors { self.supervisors() } else { Vec::new() };
            // The zygote is in our session.
            let spared = |stat: &Stat| supervisors.contains(&stat.pid) || self.strangers.contains(stat);
            let seen = reaper::kill_pass(me(), spared);
            seen.zombies.iter().copied().for_each(reaper::reap);
            empty = if seen.alive.is_empty() && seen.zombies.is_empty() { empty + 1 } else { 0 };
            if empty == 2 || deadline <= Instant::now() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    fn leaked(&self) -> Vec<Leaked> {
        let me = me();
        // A stranger that is left out hides what is below it.
        let mut all = proc::all();
        all.retain(|stat| stat.parent != me || !self.strangers.contains(stat));
        let survivors = proc::descendants(&all, me).into_iter().filter(|stat| stat.alive());
        survivors
            .filter_map(|stat| {
                let command = proc::command_line(stat.pid).unwrap_or_else(|| stat.name.clone());
                let leaked = Leaked {
                    pid: stat.pid,
                    uid: proc::uid(stat.pid).unwrap_or_default(),
                    command: self.options.secrets.redact_str(&command).into_owned(),
                };
                // It may have gone while it was looked at, and its number with it.
                let there = proc::stat(stat.pid).is_some_and(|now| now.start == stat.start && now.alive());
                there.then_some(leaked)
            })
            .collect()
    }

    /// As the first process of a container spettro inherits strangers' orphans too, and reaps them from time to time.
    pub fn reap_as_init(self: &Arc<Self>) {
        static BEGUN: AtomicBool = AtomicBool::new(false);
        if me() != 1 || BEGUN.swap(true, Ordering::Relaxed) {
            return;
        }
        let shared = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(shared) = shared.upgrade() {
                let zygote = lock(&shared.backend).pid();
                proc::each(|stat| {
                    if stat.parent == 1 && !stat.alive() && Some(stat.pid) != zygote {
                        reaper::reap(stat.pid);
                    }
                });
                drop(shared);
                tokio::time::sleep(REAP_EVERY).await;
            }
        });
    }
}
