//! spettro: a headless batch and CI runner for unattended goal loops of a coding agent.
//!
//! The map of rooms; `ARCHITECTURE.md` says how they work together.

pub mod cassette;
pub mod cli;
pub mod compact;
pub mod control;
pub mod event;
pub mod goal;
pub mod model;
pub mod process;
pub mod replay;
pub mod report;
pub mod session;
pub mod tools;
pub mod turn;
pub mod workspace;
pub mod world;
