//! `spettro cassette pack`: a session's recorded replies as one file.

use std::io::Write;

use super::args::{CassetteArgs, CassetteVerb};
use super::failure::Failure;
use super::lanes::NoExec;
use super::run::current_dir;
use crate::cassette::{Parts, Tape};
use crate::event::Outcome;
use crate::session::Store;
use crate::world::{RealClock, RealDir, RealEnv, RealIds, World, home_dir};

/// Packs a session.
///
/// # Errors
/// An unknown session, an existing file, a session that cannot be read.
pub fn cassette(args: &CassetteArgs, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let CassetteVerb::Pack { session, output, force } = &args.what;
    let env = RealEnv;
    let home = home_dir(&env).ok_or_else(|| {
        Failure::usage("there is no home directory to look for sessions in").hint("set `HOME` or `SPETTRO_HOME`")
    })?;
    let world = World {
        transport: std::rc::Rc::new(crate::model::Http::new()),
        exec: std::rc::Rc::new(NoExec),
        dir: std::rc::Rc::new(RealDir),
        clock: std::rc::Rc::new(RealClock::new()),
        ids: std::rc::Rc::new(RealIds::random()?),
        env: std::rc::Rc::new(RealEnv),
    };
    let dir = Store::new(home.join("sessions")).find(&world, &current_dir()?, session)?;
    let tape = Tape::of_session(&dir)?;
    let packed = crate::cassette::pack(&tape, output, Parts::Everything, *force)?;
    writeln!(out, "{} ({} bytes)", output.display(), packed.bytes)?;
    Ok(Outcome::Met)
}
