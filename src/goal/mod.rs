//! The goal loop: turns, executed checks, verdicts, until an outcome.

mod config;
mod file;

pub use config::{Check, Config, Judge, Run, When, WorkspaceMode};
pub use file::{Effective, GoalSource, Origin, Overrides, Problem, Setting, key_paths, load, schema};
