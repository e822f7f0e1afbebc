//! Children at the `Exec` port: what is left of them afterwards, looked at in `/proc`.
//!
//! Each test is a process of its own (this binary again), because a runner adopts and kills orphans and heeds
//! signals as a whole process.

#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "tests look at the real thing")]

#[path = "process/support.rs"]
pub(crate) mod support;

#[path = "process/commands.rs"]
mod commands;
#[path = "process/ends.rs"]
mod ends;
#[path = "process/jobs.rs"]
mod jobs;
#[path = "process/losses.rs"]
mod losses;
#[path = "process/speed.rs"]
mod speed;
