//! The goal loop: turns, executed checks, verdicts, until an outcome.

mod config;

pub use config::{Check, Config, Judge, Run, When, WorkspaceMode};
