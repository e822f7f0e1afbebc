//! Compaction as the provider sees it: what is sent after it, what fails, what is paused, what a resume sends.

mod failures;
mod kills;
mod overflow;
mod passes;
pub mod support;
mod verbs;
