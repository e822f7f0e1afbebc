//! A session packed for replay. In this smallest form a cassette holds replies only, as plain lines: `head`, one
//! `reply` a call, `end`.
//!
//! Invariant: nothing here talks to a provider. A cassette without its `end`, or with a byte changed, is refused.
//! Called by the verbs that make cassettes, and by a run whose model is one.

mod error;
mod file;
mod pack;
mod player;
#[cfg(test)]
mod tests;

pub use error::CassetteError;
pub use file::{FORMAT, GoalText, Head};
pub use pack::{Packed, pack};
pub use player::{Mismatch, Player};
