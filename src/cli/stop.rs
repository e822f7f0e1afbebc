//! `spettro stop ID`: ends a run in good order, so that it can be resumed.

use std::io::Write;

use super::args::StopArgs;
use super::failure::Failure;
use super::live::Shelf;
use crate::control::{Answer, Request};
use crate::event::Outcome;

/// Tells the run to save and end; does not wait for its end.
///
/// # Errors
/// An unknown session, and one that is not running.
pub fn stop(args: &StopArgs, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let found = Shelf::open(args.session_dir.as_deref())?.session(&args.id)?;
    match found.ask(&Request::Stop)? {
        Answer::Stopping => writeln!(out, "stopping {}", found.id)?,
        _ => return Err(found.misunderstood()),
    }
    Ok(Outcome::Met)
}
