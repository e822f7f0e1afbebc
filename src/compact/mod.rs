//! Keeps the agent's history within its window: old outputs become stubs, then a span becomes one summary.
//!
//! A pure core decides (`pressure`, `prune`, `cut`, `summarize`, `failure_budget`); [`Compactor`] asks the summarizer
//! through the gateway and writes the facts. The run loop, `sessions compact` and resume share both. Invariant: the
//! history is either the old one or the one that a fact in the log describes; the first message is never touched; no
//! call is parted from its result.

mod asking;
mod compactor;
mod cut;
mod failure_budget;
mod history;
mod pressure;
mod prune;
mod summarize;
#[cfg(test)]
mod tests;
mod text;

pub use asking::head;
pub use compactor::{Compacted, Compactor, Overflow, Place, Settings, Wish, too_large};
pub use failure_budget::Budget;
pub use history::History;
pub use pressure::{Attribution, Level, threshold};
