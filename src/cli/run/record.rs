//! `--cassette FILE`: the session as one file at the end of its run, however that ended.

use std::path::Path;

use super::super::failure::Failure;
use crate::cassette::{CassetteError, Pack, Parts, Tape, pack};
use crate::event::{Outcome, ResultError, RunResult};
use crate::report::Console;
use crate::session::Session;
use crate::world::Secrets;

/// Refuses a file that could not be made, before anything is spent.
pub(super) fn check(file: &Path) -> Result<(), Failure> {
    if file.as_os_str() == "-" {
        return Err(Failure::usage("`--cassette -` is no file").hint("name one: `--cassette run.cassette.zst`"));
    }
    if file.symlink_metadata().is_ok() {
        let message = format!("`--cassette`: {} exists already", file.display());
        return Err(Failure::usage(message).hint("name another file, or remove it"));
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(Failure::usage(format!("`--cassette`: {} is no folder", folder.display())));
    }
    Ok(())
}

/// Packs the session. Who asked for the file and does not get it is told, and a run that met its goal is none then.
pub(super) fn write(session: &Session, file: &Path, secrets: &Secrets, console: &Console, result: &mut RunResult) {
    let how = Pack { parts: Parts::Everything, force: false, secrets, allow: &[] };
    match Tape::of_session(&session.dir()).and_then(|tape| pack(&tape, file, &how)) {
        // A run that never called a model has nothing to pack, and says itself why.
        Ok(_) | Err(CassetteError::Nothing(_) | CassetteError::Empty(_)) if result.outcome != Some(Outcome::Met) => {}
        Ok(_) => {}
        Err(error) => {
            let message = format!("no cassette was made: {error}");
            if result.outcome == Some(Outcome::Met) {
                result.outcome = Some(Outcome::Environment);
                result.exit_code = Some(Outcome::Environment.code());
                let hint = format!("the session is kept: `spettro cassette pack {}`", session.id());
                result.error = Some(ResultError { message, hint: Some(hint) });
            } else {
                console.notice(&message);
            }
        }
    }
}
