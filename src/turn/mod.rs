//! A turn: the agent working from one goal message until it stops asking for tools.
//!
//! It asks the model through the gateway and uses tools through dispatch; it writes every message and tool result
//! to the log before anything depends on it. Invariant: it never decides whether the goal is met. Called by the
//! goal loop.

mod agent;
mod nudge;
mod prompt;
mod results;

pub use agent::{Agent, AgentParts, Ended, Gate, TurnDone};
pub use nudge::mask;
pub use prompt::{Surroundings, environment, first_message, system};
