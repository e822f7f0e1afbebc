//! `spettro cassette`: recorded sessions, packed, looked at and compared. Nothing here starts a process.

mod show;

use std::io::Write;
use std::path::Path;

use super::args::{CassetteArgs, CassetteVerb};
use super::failure::Failure;
use super::live::Shelf;
use crate::cassette::{CassetteError, Difference, Pack, Parts, Tape, What, diff, lint, lint_file, pack};
use crate::event::Outcome;
use crate::model::{Endpoint, KeySource};
use crate::process::looks_secret;
use crate::world::{Env, RealEnv, Secrets};

/// The name of a session's own cassette, in its folder.
const OWN_NAME: &str = "run.cassette.zst";

/// Runs one of the verbs.
///
/// # Errors
/// An unknown session, an existing file, a session or cassette that is not whole, and what `lint` finds.
pub fn cassette(args: &CassetteArgs, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let shelf = Shelf::open(args.session_dir.as_deref())?;
    match &args.what {
        CassetteVerb::Pack { session, output, force, allow } => {
            let dir = shelf.find(session)?;
            let own = dir.join(OWN_NAME);
            let tape = Tape::of_session(&dir)?;
            let to = output.as_deref().unwrap_or(&own);
            write(&tape, to, Parts::Everything, *force, allow, out)
        }
        CassetteVerb::Strip { file, output, force, allow } => {
            write(&tape(&shelf, file, false)?, output, Parts::Replies, *force, allow, out)
        }
        CassetteVerb::Show { file, json, allow_incomplete } => {
            let tape = tape(&shelf, file, *allow_incomplete)?;
            match json {
                true => show::json(&tape, out)?,
                false => show::text(&tape, out)?,
            }
            Ok(Outcome::Met)
        }
        CassetteVerb::Verify { file, allow_incomplete } => {
            let tape = tape(&shelf, file, *allow_incomplete)?;
            verify(&tape, out)?;
            // What is missing from a file that breaks off was not checked.
            Ok(if tape.is_cut() { Outcome::Unverified } else { Outcome::Met })
        }
        CassetteVerb::Diff { first, second } => {
            let (a, b) = (tape(&shelf, first, false)?, tape(&shelf, second, false)?);
            match diff(&a, &b) {
                None => {
                    writeln!(out, "the same requests and replies")?;
                    Ok(Outcome::Met)
                }
                Some(difference) => {
                    tell(&difference, out)?;
                    Ok(Outcome::Diverged)
                }
            }
        }
        CassetteVerb::Lint { file, allow } => {
            let tape = tape(&shelf, file, false)?;
            let secrets = secrets(&tape, &RealEnv);
            let path = Path::new(file);
            let found = if path.is_file() { lint_file(path, &secrets, allow) } else { lint(&tape, &secrets, allow) }?;
            if !found.is_empty() {
                return Err(CassetteError::Secrets(found).into());
            }
            writeln!(out, "nothing found")?;
            Ok(Outcome::Met)
        }
    }
}

/// A cassette by its path, or a session by its id.
fn tape(shelf: &Shelf, named: &str, allow_incomplete: bool) -> Result<Tape, Failure> {
    let path = Path::new(named);
    if path.is_dir() && path.join("session.jsonl").is_file() {
        return Ok(Tape::of_session(path)?);
    }
    // What looks like a path is none of a session, even when it is not there.
    if path.exists() || named.contains('/') || named.ends_with(".zst") || named.ends_with(".jsonl") {
        let tape = if allow_incomplete { Tape::of_incomplete_file(path) } else { Tape::of_file(path) };
        return Ok(tape?);
    }
    Ok(Tape::of_session(&shelf.find(named)?)?)
}

fn write(
    tape: &Tape,
    to: &Path,
    parts: Parts,
    force: bool,
    allow: &[String],
    out: &mut dyn Write,
) -> Result<Outcome, Failure> {
    let secrets = secrets(tape, &RealEnv);
    let packed = pack(tape, to, &Pack { parts, force, secrets: &secrets, allow })?;
    let counts: Vec<String> = packed.counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    writeln!(out, "{}: {} bytes, {}", to.display(), packed.bytes, counts.join(", "))?;
    Ok(Outcome::Met)
}

fn verify(tape: &Tape, out: &mut dyn Write) -> Result<(), Failure> {
    let problems = tape.problems();
    if !problems.is_empty() {
        return Err(Failure::new(Outcome::Unusable, problems.join("\n")));
    }
    let attempts: usize = tape.lanes().flat_map(|(_, calls)| calls).map(|call| call.attempts.len()).sum();
    let calls: usize = tape.lanes().map(|(_, calls)| calls.len()).sum();
    let whole = if tape.end().is_some() { "whole" } else { "as far as it goes" };
    writeln!(out, "{whole}: {} facts, {calls} calls, {attempts} attempts", tape.facts().len())?;
    Ok(())
}

fn tell(difference: &Difference, out: &mut dyn Write) -> std::io::Result<()> {
    let Difference { lane, n, what, place, diff } = difference;
    let what = match what {
        What::Request => "another request",
        What::Reply => "another reply to the same request",
        What::OnlyInFirst => "only in the first",
        What::OnlyInSecond => "only in the second",
    };
    writeln!(out, "{lane} call {n}: {what}")?;
    if let Some(place) = place {
        let message = place.message.map(|index| format!("message {index}, ")).unwrap_or_default();
        let pointer = if place.pointer.is_empty() { "the body" } else { &place.pointer };
        writeln!(out, "at {message}{pointer}, byte {}", place.offset)?;
    }
    write!(out, "{}", crate::report::clean(diff))
}

/// The values of today's environment that may stand in no file: what the recording run hid, the keys of its models,
/// and variables whose names say that they are secret.
pub(super) fn secrets(tape: &Tape, env: &dyn Env) -> Secrets {
    let mut names: Vec<String> = tape.head().source.iter().flat_map(|source| source.redacted.clone()).collect();
    for endpoint in tape.frozen().iter().flat_map(|frozen| frozen.endpoints.values()) {
        if let Ok(Endpoint { key: KeySource::Env(of), .. }) = serde_json::from_value(endpoint.clone()) {
            names.extend(of);
        }
    }
    Secrets::new(env.vars().into_iter().filter(|(name, _)| names.contains(name) || looks_secret(name)))
}
