//! `--cassette FILE`: the session as one file at the end of its run, however that ended.

use std::path::Path;

use super::super::failure::Failure;
use super::super::target::Target;
use super::broken::unwritten;
use crate::cassette::{self, CassetteError, Pack, Parts, Tape, pack};
use crate::event::{Outcome, RunResult};
use crate::report::Console;
use crate::session::Session;
use crate::world::Secrets;

/// Refuses a file that could not be made, before anything is spent.
pub(super) fn check(file: &Path) -> Result<Target, Failure> {
    if file.as_os_str() == "-" {
        return Err(Failure::usage("`--cassette -` is no file").hint("name one: `--cassette run.cassette.zst`"));
    }
    if file.symlink_metadata().is_ok() {
        let message = format!("`--cassette`: {} exists already", file.display());
        return Err(Failure::usage(message).hint("name another file, or remove it"));
    }
    Target::find("--cassette", file)
}

/// Refuses a workspace of which a recording could not say where it is, before anything is spent.
pub(super) fn check_workspace(workspace: &Path) -> Result<(), Failure> {
    match cassette::unnameable(&workspace.to_string_lossy()) {
        Some(why) => Err(Failure::usage(format!("`--cassette`: the workspace {why}"))
            .hint("rename its folder, or run without `--cassette`")),
        None => Ok(()),
    }
}

/// Packs the session. Who asked for the file and does not get it is told, and a run that met its goal is none then.
pub(super) fn write(session: &Session, to: &Target, secrets: &Secrets, console: &Console, result: &mut RunResult) {
    let how = Pack { parts: Parts::Everything, force: false, secrets, allow: &[] };
    let place = || {
        let unusable = |error| CassetteError::Io { what: "make", file: to.named().to_owned(), error };
        to.place().map_err(unusable)
    };
    match Tape::of_session(&session.dir()).and_then(|tape| pack(&tape, place()?, &how)) {
        // A run that never called a model has nothing to pack, and says itself why.
        Ok(_) | Err(CassetteError::Nothing(_) | CassetteError::Empty(_)) if result.outcome != Some(Outcome::Met) => {}
        Ok(_) => {}
        Err(error) => {
            let message = format!("no cassette was made: {error}");
            if result.outcome == Some(Outcome::Met) {
                // One that is not kept can be packed by nobody later.
                let kept = result.paths.is_some();
                let hint = kept.then(|| format!("the session is kept: `spettro cassette pack {}`", session.id()));
                unwritten(result, message, hint);
            } else {
                console.notice(&message);
            }
        }
    }
}
