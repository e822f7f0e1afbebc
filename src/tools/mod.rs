//! What the agent can do: every tool, its schema, its limits, and the words of its results.
//!
//! A call goes through one door, [`Tools::run`]: name, arguments, guard, tool, escaping, spool, cut. Invariant: it
//! never fails and never panics on what a model writes; every problem is an error result that says what was
//! expected, and what did not fit its schema was not run. Directories are listed through the `Dir` port alone and
//! processes started through `Exec` alone. Called by the turn.

mod args;
mod bash;
mod dispatch;
mod error;
mod escape;
mod files;
mod jobs;
mod names;
mod output;
mod page;
mod schema;
mod search;
mod tasks;

#[cfg(test)]
mod tests;

pub use dispatch::{Answer, Answers, Ran, ToolCall, ToolOptions, Tools};
pub use escape::escape_line;
pub use output::{Whole, cut};
pub use tasks::PLAN_UPDATED;
