//! The goal loop: turns, executed checks, verdicts, until an outcome.

mod baseline;
pub mod checks;
mod config;
mod effects;
mod failure;
mod file;
mod iterate;
mod judge;
mod message;
mod outcome;
mod packet;
mod preview;
mod progress;
mod recorded;
mod result;
mod run;
mod sources;
mod watch;

pub use config::{Check, Config, Judge, Shell, When, WorkspaceMode};
pub use failure::Cause;
pub use file::{Effective, GoalSource, Origin, Overrides, Problem, Setting, key_paths, load, schema};
pub use outcome::{Decision, decide};
pub use preview::{Preview, PreviewParts, preview};
pub use recorded::{Changed, Lanes, Source, changed};
pub use result::{early, refused};
pub use run::{Replayed, Run, RunParts, goal_digest, own_dirs};
