//! The integration tests: the built binary against the scripted provider, and rules about the source.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "tests stand outside the ports: they start processes and look at the real clock"
)]

mod cassettes;
mod compaction;
mod control;
mod goal;
mod jobs;
mod library;
mod process;
mod provider;
mod provider_tests;
mod providers;
mod readme;
mod replay;
mod resume;
mod review;
mod rooms;
mod sandbox;
mod sandbox_tests;
#[cfg(target_os = "linux")]
mod sandboxed;
mod source;
mod source_rules;
mod spool;
mod streams;
#[cfg(target_os = "linux")]
mod supervision;
mod trust;
mod wires;
