//! The command line: one file per verb, and the only table from errors to exit codes.
//!
//! Invariant: nothing calls this room but `main`. stdout is data, stderr is talk.

pub mod args;
pub mod exit_codes;
pub mod failure;
pub mod help;
mod lanes;
mod models;
mod run;
pub mod schema;
pub mod validate;
