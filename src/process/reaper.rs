//! Killing without hitting the wrong one.

use std::collections::HashSet;

use rustix::process::{Pid, Signal, WaitOptions};

use super::proc::{self, Stat};

/// Signals the very process that was looked at, not one that has got its number since. False when that process has
/// ended or may not be signalled.
#[cfg(target_os = "linux")]
pub fn signal_verified(stat: &Stat, signal: Signal) -> bool {
    let Some(pid) = Pid::from_raw(stat.pid) else { return false };
    let Ok(handle) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) else { return false };
    // The handle holds whoever has the number now; only then is it asked who that is.
    proc::stat(stat.pid).is_some_and(|now| now.start == stat.start)
        && rustix::process::pidfd_send_signal(&handle, signal).is_ok()
}

/// Without `/proc` nobody was looked at.
#[cfg(not(target_os = "linux"))]
pub fn signal_verified(_stat: &Stat, _signal: Signal) -> bool {
    false
}

/// What a [`kill_pass`] saw.
#[derive(Debug, Default)]
pub struct Seen {
    /// Descendants that were alive.
    pub alive: Vec<Stat>,
    /// Direct children that wait to be reaped.
    pub zombies: Vec<i32>,
}

/// KILL to every descendant of this process (`me`) in sight, except for the children (and theirs) that `spared`
/// names. Children are hit the moment they are seen, since nobody else can reap them, and with their groups, which
/// fork cannot outrun; deeper ones after the look.
pub fn kill_pass(me: i32, spared: impl Fn(&Stat) -> bool) -> Seen {
    // 0 when the group began outside of our pid namespace.
    let own_group = proc::stat(me).map_or(0, |stat| stat.group);
    let (mut all, mut groups, mut seen) = (Vec::new(), HashSet::new(), Seen::default());
    proc::each(|stat| {
        if stat.parent == me {
            if spared(&stat) {
                // Left out of `all`, it hides what is below it.
                return;
            }
            if stat.group != own_group && groups.insert(stat.group) {
                kill_group(stat.group);
            }
            if stat.alive() {
                kill_child(stat.pid);
            } else {
                seen.zombies.push(stat.pid);
            }
        }
        all.push(stat);
    });
    for stat in proc::descendants(&all, me).into_iter().filter(|stat| stat.alive()) {
        if stat.parent != me {
            // Whoever is still there is seen again in the next pass.
            signal_verified(stat, Signal::KILL);
        }
        seen.alive.push(stat.clone());
    }
    seen
}

fn kill_group(group: i32) {
    // 1 and below have other meanings.
    if let Some(group) = Pid::from_raw(group).filter(|_| group > 1) {
        // It may be empty by now, or not ours to signal; its members are seen again in the next pass.
        let _seen_again = rustix::process::kill_process_group(group, Signal::KILL);
    }
}

fn kill_child(child: i32) {
    if let Some(child) = Pid::from_raw(child) {
        let _seen_again = rustix::process::kill_process(child, Signal::KILL);
    }
}

/// Takes the status of a child that has ended, if it is one.
pub fn reap(child: i32) {
    if let Some(child) = Pid::from_raw(child) {
        // Somebody else's child, or not ended yet: then there is nothing to reap.
        let _nothing = rustix::process::waitpid(Some(child), WaitOptions::NOHANG);
    }
}
