//! The command line: one file per verb.
//!
//! Invariant: nothing calls this room but `main`.

pub mod args;
pub mod help;
mod later;
pub mod validate;
