//! Children and secrets in whole runs, with the real binary: what is left of them afterwards, looked at in `/proc`,
//! and what of a secret is left anywhere.

mod container;
mod ends;
mod kills;
mod leftovers;
mod secrets;
mod stuck;
pub mod support;
mod terminal;
