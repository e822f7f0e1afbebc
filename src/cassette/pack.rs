//! Packing a session: its whole replies, in order, into one file that is read back before it gets its name.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::error::CassetteError;
use super::file::{self, End, Entry, FORMAT, GoalText, Head, Reply, hex};
use crate::event::{Lane, Outcome};
use crate::session::{Fact, Frozen, Line, Session, Settled, State, WireLine, fold, read_wire};

/// What an endpoint is made from; anything else of it (URL, headers, keys) stays out of the file.
const ENDPOINT_FIELDS: [&str; 8] =
    ["provider", "model", "wire", "local", "window_tokens", "max_output_tokens", "reasoning_effort", "price"];
/// Response headers that a decoder may look at.
const REPLY_HEADERS: [&str; 1] = ["content-type"];

/// A cassette that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    pub path: PathBuf,
    pub bytes: u64,
    /// Replies by lane.
    pub replies: BTreeMap<String, u64>,
}

/// Packs the replies of the session in `dir` into `out` (0600). An existing name is refused without `force`; what
/// it names stays until the new file is whole and read back.
pub fn pack(dir: &Path, out: &Path, force: bool) -> Result<Packed, CassetteError> {
    if !force && out.symlink_metadata().is_ok() {
        return Err(CassetteError::Exists(out.to_owned()));
    }
    let (header, lines) = Session::read(dir)?;
    let state = fold(&lines);
    let replies = replies(dir, &header.id, &lines)?;
    let Some(frozen) = state.frozen.as_deref().filter(|_| !replies.is_empty()) else {
        return Err(CassetteError::Nothing(header.id));
    };
    let head = head(&header.id, frozen);
    write(out, force, head, replies, &state)
}

fn write(out: &Path, force: bool, head: Head, replies: Vec<Reply>, state: &State) -> Result<Packed, CassetteError> {
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // 0600, and gone again whenever this function ends early.
    let mut temporary =
        tempfile::Builder::new().prefix(".cassette-").tempfile_in(folder).map_err(CassetteError::io("make", out))?;
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for reply in &replies {
        *counts.entry(reply.lane.name().to_owned()).or_default() += 1;
    }
    let outcome = state.ends.last().map(|end| end.outcome);
    let entries = std::iter::once(Entry::Head(head)).chain(replies.into_iter().map(Entry::Reply));
    put_all(BufWriter::new(temporary.as_file_mut()), entries, &counts, outcome)
        .map_err(CassetteError::io("write", out))?;
    let bytes = temporary.as_file().metadata().map_err(CassetteError::io("read", out))?.len();
    file::read(temporary.path())?;
    temporary.as_file().sync_all().map_err(CassetteError::io("sync", out))?;
    let named = if force { temporary.persist(out) } else { temporary.persist_noclobber(out) };
    named.map_err(|failed| match failed.error.kind() {
        io::ErrorKind::AlreadyExists => CassetteError::Exists(out.to_owned()),
        _ => CassetteError::Io { what: "rename to", file: out.to_owned(), error: failed.error },
    })?;
    Ok(Packed { path: out.to_owned(), bytes, replies: counts })
}

fn put_all(
    mut writer: impl Write,
    entries: impl Iterator<Item = Entry>,
    counts: &BTreeMap<String, u64>,
    outcome: Option<Outcome>,
) -> io::Result<()> {
    let mut digest = Sha256::new();
    for entry in entries {
        let mut line = serde_json::to_vec(&entry)?;
        line.push(b'\n');
        digest.update(&line);
        writer.write_all(&line)?;
    }
    let end = End { counts: counts.clone(), outcome, sha256: hex(&digest.finalize()) };
    serde_json::to_writer(&mut writer, &Entry::End(end))?;
    writer.write_all(b"\n")?;
    writer.flush()
}

/// Every reply of agent and judge that arrived whole, numbered anew: calls that failed have none.
fn replies(dir: &Path, session: &str, lines: &[Line]) -> Result<Vec<Reply>, CassetteError> {
    let mut counts: BTreeMap<Lane, u64> = BTreeMap::new();
    let mut replies = Vec::new();
    for line in lines {
        let Fact::Settled(settled) = &line.fact else { continue };
        if settled.error.is_some() || !matches!(settled.lane, Lane::Agent | Lane::Judge) {
            continue;
        }
        let wire = whole_reply(dir, settled).map_err(|reason| CassetteError::Unpackable {
            session: session.to_owned(),
            lane: settled.lane.name().to_owned(),
            n: settled.n,
            reason,
        })?;
        let (Some(status), WireLine { request, response, .. }) = (wire.response.status, wire) else { continue };
        let n = counts.entry(settled.lane).or_default();
        *n += 1;
        let kept = |(name, _): &(String, String)| REPLY_HEADERS.contains(&name.as_str());
        replies.push(Reply {
            lane: settled.lane,
            n: *n,
            sha256: request.sha256,
            status,
            headers: response.headers.into_iter().filter(kept).collect(),
            body: response.body,
            reads: response.reads,
        });
    }
    Ok(replies)
}

/// The attempt that brought a settled call's reply.
fn whole_reply(dir: &Path, settled: &Settled) -> Result<WireLine, String> {
    let attempt = settled.attempts.last().ok_or("it has no attempt")?;
    let wire = read_wire(dir, attempt.wire_offset, attempt.wire_bytes).map_err(|error| error.to_string())?;
    if (wire.lane, wire.n) != (settled.lane, settled.n) {
        return Err(format!("the wire log has {} call {} in its place", wire.lane, wire.n));
    }
    if wire.response.status.is_none() {
        return Err("its last attempt has no response".to_owned());
    }
    if wire.redacted && wire.response.body.0.is_empty() {
        return Err("its reply repeated a secret, and was not kept".to_owned());
    }
    Ok(wire)
}

fn head(session: &str, frozen: &Frozen) -> Head {
    let lane = |endpoint: &Value| -> Map<String, Value> {
        let field = |name: &&str| Some(((*name).to_owned(), endpoint.get(*name)?.clone()));
        ENDPOINT_FIELDS.iter().filter_map(field).collect()
    };
    let wanted = |name: &str| [Lane::Agent.name(), Lane::Judge.name()].contains(&name);
    let endpoints = frozen.endpoints.iter().filter(|(name, _)| wanted(name));
    let lanes: BTreeMap<_, _> = endpoints.map(|(name, endpoint)| (name.clone(), lane(endpoint))).collect();
    let server = frozen.endpoints.get(Lane::Agent.name()).map_or("an unknown server", server_kind);
    Head {
        format: FORMAT.to_owned(),
        spettro: env!("CARGO_PKG_VERSION").to_owned(),
        goal: GoalText { name: frozen.goal_name.clone(), text: frozen.goal.clone() },
        lanes,
        parts: vec!["replies".to_owned()],
        provenance: format!("recorded from {session} against {server}"),
    }
}

/// What kind of server gave the replies, without its address.
fn server_kind(endpoint: &Value) -> &'static str {
    let is = |name: &str| endpoint.get(name).and_then(Value::as_bool).unwrap_or(false);
    match (endpoint.get("cassette").is_some_and(|cassette| !cassette.is_null()), is("local"), is("own")) {
        (true, ..) => "another cassette",
        (_, true, _) => "a local server",
        (_, _, true) => "the provider's own server",
        _ => "a server other than the provider's own",
    }
}
