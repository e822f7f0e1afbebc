//! The goal loop through the built binary: every outcome, every rule of a turn, every word of the command line.

mod limits;
mod outcomes;
mod progress;
mod provider_ends;
mod resume;
pub mod support;
mod turns;
mod wires;
mod words;
