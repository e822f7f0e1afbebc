//! The goal loop: turns, executed checks, verdicts, until an outcome.

mod baseline;
mod checks;
mod config;
mod failure;
mod iterate;
mod judge;
mod message;
mod outcome;
mod packet;
mod progress;

pub use config::{Check, Config, Judge, Run, When, WorkspaceMode};
