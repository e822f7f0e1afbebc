//! `spettro cassette`: recorded sessions, packed, looked at and compared. Nothing here starts a process.

mod show;

use std::io::Write;
use std::path::Path;

use super::args::{CassetteArgs, CassetteVerb};
use super::failure::Failure;
use super::live::Shelf;
use crate::cassette::{CassetteError, Difference, Finding, Pack, Parts, Tape, What, diff, lint, lint_file, pack};
use crate::event::Outcome;
use crate::model::{Endpoint, KeySource};
use crate::process::looks_secret;
use crate::report::count;
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
        CassetteVerb::Verify { file, json, allow_incomplete } => {
            let tape = tape(&shelf, file, *allow_incomplete)?;
            verify(&tape, *json, out)?;
            // What is missing from a file that breaks off was not checked.
            Ok(if tape.is_cut() { Outcome::Unverified } else { Outcome::Met })
        }
        CassetteVerb::Diff { first, second, json } => {
            let (a, b) = (tape(&shelf, first, false)?, tape(&shelf, second, false)?);
            let difference = diff(&a, &b);
            if *json {
                super::sessions::json(out, &told(difference.as_ref()))?;
                return Ok(if difference.is_none() { Outcome::Met } else { Outcome::Diverged });
            }
            match difference {
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
        CassetteVerb::Lint { file, json, allow } => {
            let tape = tape(&shelf, file, false)?;
            let secrets = secrets(&tape, &RealEnv);
            let path = Path::new(file);
            let found = if path.is_file() { lint_file(path, &secrets, allow) } else { lint(&tape, &secrets, allow) }?;
            if *json {
                let row = |finding: &Finding| serde_json::json!({"line": finding.line, "pointer": finding.pointer, "rule": finding.rule});
                let rows: Vec<serde_json::Value> = found.iter().map(row).collect();
                super::sessions::json(out, &serde_json::json!({ "findings": rows }))?;
            }
            if !found.is_empty() {
                return Err(CassetteError::Secrets(found).into());
            }
            if !json {
                writeln!(out, "nothing found")?;
            }
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
    if to.as_os_str() == "-" {
        return Err(Failure::usage("`-o -` is no file").hint("name one: `-o run.cassette.zst`"));
    }
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(Failure::usage(format!("`-o {}`: `{}` is no folder", to.display(), folder.display()))
            .hint(format!("make it first: `mkdir -p {}`", folder.display())));
    }
    let secrets = secrets(tape, &RealEnv);
    let packed = pack(tape, to, &Pack { parts, force, secrets: &secrets, allow })?;
    let counts: Vec<String> = packed.counts.iter().map(|(kind, count)| records(*count, kind)).collect();
    writeln!(out, "{}: {} bytes, {}", to.display(), packed.bytes, counts.join(", "))?;
    Ok(Outcome::Met)
}

/// `1 fact`, `5 replies`: records by their type.
fn records(n: u64, kind: &str) -> String {
    match kind {
        "reply" if n != 1 => format!("{n} replies"),
        // What is one stays so: the attempts on the wire, the tree, and the spool's pieces.
        "wire" | "base" | "spool" => format!("{n} {kind}"),
        kind => count(n, kind),
    }
}

fn verify(tape: &Tape, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let problems = tape.problems();
    let attempts: usize = tape.lanes().flat_map(|(_, calls)| calls).map(|call| call.attempts.len()).sum();
    let calls: usize = tape.lanes().map(|(_, calls)| calls.len()).sum();
    if json {
        let value = serde_json::json!({
            "whole": tape.end().is_some(),
            "cut": tape.is_cut(),
            "facts": tape.facts().len(),
            "calls": calls,
            "attempts": attempts,
            "problems": problems,
        });
        super::sessions::json(out, &value)?;
    }
    if !problems.is_empty() {
        return Err(Failure::new(Outcome::Unusable, problems.join("\n")));
    }
    if json {
        return Ok(());
    }
    let whole = if tape.end().is_some() { "whole" } else { "as far as it goes" };
    let counts = [(tape.facts().len(), "fact"), (calls, "call"), (attempts, "attempt")];
    let counts = counts.map(|(n, noun)| count(n as u64, noun));
    writeln!(out, "{whole}: {}", counts.join(", "))?;
    Ok(())
}

/// What `diff --json` prints.
fn told(difference: Option<&Difference>) -> serde_json::Value {
    let Some(Difference { lane, n, what, place, diff }) = difference else {
        return serde_json::json!({"same": true, "difference": null});
    };
    let what = match what {
        What::Request => "request",
        What::Reply => "reply",
        What::OnlyInFirst => "only_in_first",
        What::OnlyInSecond => "only_in_second",
    };
    let place = place.as_ref().map(
        |place| serde_json::json!({"message": place.message, "pointer": place.pointer, "offset_bytes": place.offset}),
    );
    let difference = serde_json::json!({"lane": lane.name(), "n": n, "what": what, "place": place, "diff": diff});
    serde_json::json!({"same": false, "difference": difference})
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
