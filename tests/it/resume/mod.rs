//! Crash safety and resuming, with the real binary: whatever ends a runner, the session goes on where it stood.

mod begins;
mod choose;
mod counters;
mod kills;
mod locks;
mod signals;
pub mod support;
mod windows;
