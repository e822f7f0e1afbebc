//! `spettro steer ID TEXT`: tells a running agent something.

use std::io::Write;

use super::args::SteerArgs;
use super::failure::Failure;
use super::live::Shelf;
use crate::control::{Answer, Request};
use crate::event::Outcome;

/// Says that the run has taken it, and when the agent will read it.
///
/// # Errors
/// An unknown session, one that is not running, and an empty text.
pub fn steer(args: &SteerArgs, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let found = Shelf::open(args.session_dir.as_deref())?.session(&args.id)?;
    match found.ask(&Request::Steer { text: args.text.clone() })? {
        Answer::Accepted { ending: false } => writeln!(out, "accepted: the agent reads it before its next model call")?,
        Answer::Accepted { ending: true } => {
            writeln!(out, "accepted: this run is ending, the agent reads it when the session is resumed")?;
        }
        _ => return Err(found.misunderstood()),
    }
    Ok(Outcome::Met)
}
