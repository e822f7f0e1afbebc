//! What runs that were killed have left: every verb that starts commands ends it first.

use std::time::Duration;

use crate::event::Leaked;
use crate::process::{LEDGER_NAME, sweep};
use crate::session::{Store, unused};
use crate::world::{Secrets, World};

/// Crashed sessions that are looked at, the newest first.
const MOST_SESSIONS: usize = 50;
/// Most time for all of them together, but for the one that is at hand when it is over.
const MOST_TIME: Duration = Duration::from_secs(5);
/// Most processes that are named one by one.
const MOST_NAMES: usize = 8;

/// Ends what is left of runs that nobody is running any more; returns what there is to tell.
pub fn sweep_crashed(world: &World, store: &Store, secrets: &Secrets) -> Vec<String> {
    let begun = world.clock.elapsed();
    let mut notes = Vec::new();
    let dirs = store.with_file(world, LEDGER_NAME, MOST_SESSIONS).unwrap_or_else(|error| {
        notes.push(format!("what crashed runs have left is not known: {error}"));
        Vec::new()
    });
    let mut ended: Vec<Leaked> = Vec::new();
    for dir in dirs {
        if world.clock.elapsed().saturating_sub(begun) > MOST_TIME {
            break;
        }
        // Nobody resumes the session while its old processes are ended.
        let Some(_unused) = unused(&dir) else { continue };
        match sweep(&dir) {
            Ok(killed) => ended.extend(killed),
            Err(error) => notes.push(format!("what a crashed run has left is not known: {error}")),
        }
    }
    if !ended.is_empty() {
        notes.push(secrets.redact_str(&told(&ended)).into_owned());
    }
    notes
}

fn told(ended: &[Leaked]) -> String {
    let (noun, verb) = if ended.len() == 1 { ("process", "was") } else { ("processes", "were") };
    let mut names: Vec<String> =
        ended.iter().take(MOST_NAMES).map(|one| format!("{} {}", one.pid, one.command)).collect();
    if ended.len() > MOST_NAMES {
        names.push(format!("and {} more", ended.len() - MOST_NAMES));
    }
    format!("{} {noun} left by a run that was killed {verb} ended: {}", ended.len(), names.join(", "))
}
