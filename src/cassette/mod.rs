//! A session packed for replay: [`Tape`] is a recorded session in memory, from a session's folder or from a file.
//!
//! Invariant: nothing here talks to a provider. A cassette without its `end`, or with a byte changed, is refused.
//! Called by the verbs that make cassettes and look into them, and by a run whose model is one.

mod chain;
mod check;
mod compare;
mod error;
mod events;
mod gather;
mod lint;
mod pack;
mod player;
mod read;
mod recorder;
mod records;
mod seal;
mod tape;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

pub use chain::Rest;
pub use compare::{Difference, Place, What, bodies, diff, text_diff};
pub use error::CassetteError;
pub use events::{EventDigest, event_digest, events};
pub use lint::Finding;
pub use pack::{Pack, Packed, Parts, lint, pack, unnameable};
pub use player::{Mismatch, Player};
pub use read::lint_file;
pub use recorder::{Places, Recorder};
pub use records::{CassetteLine, End, FORMAT, GoalText, Head, Source};
pub use tape::{Attempt, Exchange, Request, Tape};

use crate::session::{Fact, Line};

/// The spooled outputs that facts name.
fn spool_ids(facts: &[Line]) -> BTreeSet<u64> {
    let mut ids = BTreeSet::new();
    for line in facts {
        match &line.fact {
            Fact::Tool(done) => ids.extend(done.spool),
            Fact::Command(run) => ids.extend(run.output.spool),
            Fact::Checks { results, .. } => ids.extend(results.iter().filter_map(|result| result.spool)),
            _ => {}
        }
    }
    ids
}
