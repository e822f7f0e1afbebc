//! The wire log: one line of `wire.jsonl` an attempt, with the exact bytes of request and reply.
//!
//! A request body is stored as what is new in it: its front whole, then «the first `keep` bytes of the rest of the
//! lane's previous body, then `add`». So the file grows with what was said, not with its square.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use super::error::SessionError;
use super::facts::{Fact, Line};
use super::files::AppendFile;
use crate::event::Lane;
use crate::world::regular;

/// The name of the file in a session's folder.
pub(super) const WIRE_FILE: &str = "wire.jsonl";

/// One HTTP attempt, as given to [`Session::wire`](super::Session::wire).
pub struct WireAttempt<'a> {
    pub lane: Lane,
    pub n: u64,
    pub attempt: u64,
    pub method: &'a str,
    pub url: &'a str,
    /// Allow-listed only.
    pub request_headers: &'a [(String, String)],
    pub front: &'a [u8],
    /// The first `keep` bytes of the rest of the lane's previous body, then the parts of `add` one behind the other.
    pub keep: u64,
    pub add: &'a [&'a [u8]],
    /// sha256 of the whole rest.
    pub sha256: &'a str,
    pub status: Option<u16>,
    pub response_headers: &'a [(String, String)],
    /// The body as received, with the offsets at which network reads began.
    pub body: &'a [u8],
    pub reads: &'a [u64],
    /// `eof`, `reset`, `timeout`, `abort`, `connect`.
    pub end: &'a str,
    pub ms: u64,
    /// The kept frames are re-encoded from a cleaned reply, because the raw ones held a secret.
    pub redacted: bool,
}

/// One HTTP attempt, as read back. Fields as in [`WireAttempt`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct WireLine {
    pub lane: Lane,
    pub n: u64,
    pub attempt: u64,
    pub request: WireRequest,
    pub response: WireResponse,
    pub end: String,
    pub ms: u64,
    #[serde(default)]
    pub redacted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct WireRequest {
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub front: Blob,
    pub keep: u64,
    pub add: Blob,
    pub sha256: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct WireResponse {
    pub status: Option<u16>,
    pub headers: Vec<(String, String)>,
    pub body: Blob,
    pub reads: Vec<u64>,
}

/// Bytes in JSON, exactly: a string when they are UTF-8, else `{"base64":"…"}`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blob(pub Vec<u8>);

#[derive(Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
enum Stored<T> {
    Text(T),
    Base64 { base64: String },
}

fn stored(bytes: &[u8]) -> Stored<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Stored::Text(text),
        Err(_) => Stored::Base64 { base64: BASE64.encode(bytes) },
    }
}

/// Bytes in parts, as [`Blob`] writes the whole. A body is long after an edit of the history, and is not put together
/// for this.
struct Parts<'a>(&'a [&'a [u8]]);

impl Serialize for Parts<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Text<'a>(Vec<&'a str>);
        impl std::fmt::Display for Text<'_> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.iter().try_for_each(|part| f.write_str(part))
            }
        }
        let parts: Result<Vec<&str>, _> = self.0.iter().map(|part| std::str::from_utf8(part)).collect();
        match parts {
            Ok(parts) => serializer.collect_str(&Text(parts)),
            // A character may be cut between two parts; then the whole decides.
            Err(_) => stored(&self.0.concat()).serialize(serializer),
        }
    }
}

impl Blob {
    /// How many bytes it takes in JSON.
    pub fn encoded_bytes(&self) -> u64 {
        match stored(&self.0) {
            Stored::Text(text) => {
                let takes = |byte: u8| match byte {
                    b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
                    0..0x20 => 6,
                    _ => 1,
                };
                text.bytes().map(takes).sum::<u64>() + 2
            }
            Stored::Base64 { base64 } => base64.len() as u64 + r#"{"base64":""}"#.len() as u64,
        }
    }
}

impl schemars::JsonSchema for Blob {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Blob".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Stored::<String>::json_schema(generator)
    }
}

impl Serialize for Blob {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        stored(&self.0).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Blob, D::Error> {
        match Stored::<String>::deserialize(deserializer)? {
            Stored::Text(text) => Ok(Blob(text.into_bytes())),
            Stored::Base64 { base64 } => BASE64.decode(base64).map(Blob).map_err(serde::de::Error::custom),
        }
    }
}

/// Encodes an attempt as one line (with its newline) into `out`, which is emptied first.
pub(super) fn encode(attempt: &WireAttempt<'_>, out: &mut Vec<u8>) -> serde_json::Result<()> {
    #[derive(Serialize)]
    struct Out<'a> {
        lane: Lane,
        n: u64,
        attempt: u64,
        request: OutRequest<'a>,
        response: OutResponse<'a>,
        end: &'a str,
        ms: u64,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        redacted: bool,
    }
    #[derive(Serialize)]
    struct OutRequest<'a> {
        method: &'a str,
        url: &'a str,
        headers: &'a [(String, String)],
        front: Stored<&'a str>,
        keep: u64,
        add: Parts<'a>,
        sha256: &'a str,
    }
    #[derive(Serialize)]
    struct OutResponse<'a> {
        status: Option<u16>,
        headers: &'a [(String, String)],
        body: Stored<&'a str>,
        reads: &'a [u64],
    }
    let line = Out {
        lane: attempt.lane,
        n: attempt.n,
        attempt: attempt.attempt,
        request: OutRequest {
            method: attempt.method,
            url: attempt.url,
            headers: attempt.request_headers,
            front: stored(attempt.front),
            keep: attempt.keep,
            add: Parts(attempt.add),
            sha256: attempt.sha256,
        },
        response: OutResponse {
            status: attempt.status,
            headers: attempt.response_headers,
            body: stored(attempt.body),
            reads: attempt.reads,
        },
        end: attempt.end,
        ms: attempt.ms,
        redacted: attempt.redacted,
    };
    out.clear();
    serde_json::to_writer(&mut *out, &line)?;
    out.push(b'\n');
    Ok(())
}

/// Reads the wire log's lines in order and gives each to `each`, up to the last byte that a fact names: what stands
/// behind it was never settled. Without a lock and without repairing anything; `dir` is the session's folder.
///
/// # Errors
/// `Corrupt` when what the facts name is not there as they name it. The inner error is that of `each`.
pub fn read_wires<E>(
    dir: &Path,
    lines: &[Line],
    mut each: impl FnMut(WireLine) -> Result<(), E>,
) -> Result<Result<(), E>, SessionError> {
    let path = dir.join(WIRE_FILE);
    let mut named = places(lines);
    let end = end(&named);
    if end == 0 {
        return Ok(Ok(()));
    }
    let file = regular::open(&path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory => {
            SessionError::Corrupt { file: path.clone(), line: 1, reason: error.to_string() }
        }
        _ => SessionError::io("open", &path)(error),
    })?;
    let mut reader = BufReader::with_capacity(256 << 10, file);
    let (mut at, mut number, mut text) = (0u64, 0u64, Vec::new());
    while at < end {
        number += 1;
        let corrupt = |reason: String| SessionError::Corrupt { file: path.clone(), line: number, reason };
        text.clear();
        let read = reader.read_until(b'\n', &mut text).map_err(SessionError::io("read", &path))? as u64;
        if text.last() != Some(&b'\n') {
            return Err(corrupt(format!("it ends at byte {}, but the log names {end}", at + read)));
        }
        if named.remove(&at).is_some_and(|bytes| bytes != read) {
            return Err(corrupt("the log names another length".to_owned()));
        }
        at += read;
        let line = serde_json::from_slice(&text).map_err(|error| corrupt(error.to_string()))?;
        if let Err(error) = each(line) {
            return Ok(Err(error));
        }
    }
    match named.first_key_value() {
        None => Ok(Ok(())),
        Some((offset, _)) => {
            let reason = format!("the log names a line at byte {offset}, where none begins");
            Err(SessionError::Corrupt { file: path, line: number, reason })
        }
    }
}

/// Reads the attempt whose line stands at `offset` and is `bytes` long, as a fact names it.
#[cfg(test)]
pub(super) fn read_wire(dir: &Path, offset: u64, bytes: u64) -> Result<WireLine, SessionError> {
    let path = dir.join(WIRE_FILE);
    let content = std::fs::read(&path).map_err(SessionError::io("read", &path))?;
    let text = offset.checked_add(bytes).and_then(|end| content.get(offset as usize..end as usize));
    let line = text.filter(|text| text.last() == Some(&b'\n')).and_then(|text| serde_json::from_slice(text).ok());
    let reason = format!("bytes {offset} to {}", offset.saturating_add(bytes));
    line.ok_or(SessionError::Corrupt { file: path, line: 0, reason })
}

/// Where the lines of attempts stand, as facts name them: offset and length. What a fact says to be lost is left out.
fn places(lines: &[Line]) -> BTreeMap<u64, u64> {
    let mut places = BTreeMap::new();
    for line in lines {
        let attempts = match &line.fact {
            Fact::Settled(settled) => settled.attempts.as_slice(),
            Fact::Attempt { attempt, .. } => std::slice::from_ref(attempt),
            Fact::WireCut { bytes: left } => {
                places.retain(|offset: &u64, bytes: &mut u64| offset.saturating_add(*bytes) <= *left);
                continue;
            }
            _ => continue,
        };
        places.extend(attempts.iter().map(|attempt| (attempt.wire_offset, attempt.wire_bytes)));
    }
    places
}

/// Behind the last byte that is named.
fn end(places: &BTreeMap<u64, u64>) -> u64 {
    places.iter().map(|(offset, bytes)| offset.saturating_add(*bytes)).max().unwrap_or(0)
}

/// A wire log to be gone on with.
pub(super) struct Wire {
    /// `None` when there is no file yet.
    pub file: Option<AppendFile>,
    /// So many bytes are left where facts name more: the log is to say so.
    pub cut: Option<u64>,
}

/// Opens an existing wire log for appending. Bytes at its end that no fact names are cut: their attempt was
/// never settled.
pub(super) fn open(dir: &Path, lines: &[Line], notes: &mut Vec<String>) -> Result<Wire, SessionError> {
    let path = dir.join(WIRE_FILE);
    let named = end(&places(lines));
    let size = match std::fs::metadata(&path) {
        Ok(meta) => meta.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if named > 0 {
                notes.push(format!("`{WIRE_FILE}` is missing: the calls so far cannot be packed or replayed"));
            }
            return Ok(Wire { file: None, cut: (named > 0).then_some(0) });
        }
        Err(error) => return Err(SessionError::Io { what: "read", file: path, error }),
    };
    let mut keep = named;
    if size < named {
        // The machine died before the disk had all of it. What was said stands in the log; only a replay lacks it.
        notes.push(format!("`{WIRE_FILE}` lacks its last {} bytes: those calls cannot be replayed", named - size));
        keep = size;
        let content = std::fs::read(&path).map_err(SessionError::io("read", &path))?;
        if let Some(torn) = content.iter().rev().position(|&byte| byte == b'\n') {
            keep -= torn as u64;
        } else {
            keep = 0;
        }
    }
    if size > keep {
        let cut = OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(keep));
        cut.map_err(SessionError::io("cut", &path))?;
    }
    Ok(Wire { file: Some(AppendFile::open(path)?), cut: (keep < named).then_some(keep) })
}
