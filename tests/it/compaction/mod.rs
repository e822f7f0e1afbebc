//! Compaction as the provider sees it: what is sent after it, what fails, what is paused, what a resume sends.

mod failures;
mod kills;
mod long;
mod overflow;
mod passes;
pub mod support;
mod verbs;
mod wires;
mod work;

use crate::provider as scripted;
