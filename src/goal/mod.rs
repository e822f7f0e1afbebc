//! The goal loop: turns, executed checks, verdicts, until an outcome.

mod checks;
mod config;
mod outcome;
mod progress;

pub use config::{Check, Config, Judge, Run, When, WorkspaceMode};
