//! The wire log: one line of `wire.jsonl` an attempt, with the exact bytes of request and reply.
//!
//! A request body is stored as what is new in it: its front whole, then «the first `keep` bytes of the rest of the
//! lane's previous body, then `add`». So the file grows with what was said, not with its square.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use super::error::SessionError;
use super::facts::{Fact, Line};
use super::files::AppendFile;
use crate::event::Lane;

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
    /// The first `keep` bytes of the rest of the lane's previous body, then `add`.
    pub keep: u64,
    pub add: &'a [u8],
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireRequest {
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub front: Blob,
    pub keep: u64,
    pub add: Blob,
    pub sha256: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireResponse {
    pub status: Option<u16>,
    pub headers: Vec<(String, String)>,
    pub body: Blob,
    pub reads: Vec<u64>,
}

/// Bytes in JSON, exactly: a string when they are UTF-8, else `{"base64":"…"}`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blob(pub Vec<u8>);

#[derive(Serialize, Deserialize)]
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
        add: Stored<&'a str>,
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
            add: stored(attempt.add),
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

/// Reads the attempt whose line stands at `offset` and is `bytes` long, as a `settled` fact names it. `dir` is the
/// session's folder. `Corrupt` (its line number is unknown, 0) when no whole line stands there.
pub fn read_wire(dir: &Path, offset: u64, bytes: u64) -> Result<WireLine, SessionError> {
    let path = dir.join(WIRE_FILE);
    let corrupt = |reason: String| SessionError::Corrupt {
        file: path.clone(),
        line: line_at(&path, offset),
        reason: format!("bytes {offset} to {}: {reason}", offset.saturating_add(bytes)),
    };
    let file = File::open(&path).map_err(SessionError::io("open", &path))?;
    let size = file.metadata().map_err(SessionError::io("read", &path))?.len();
    if offset.checked_add(bytes).is_none_or(|end| end > size) {
        return Err(corrupt(format!("the file ends at {size}")));
    }
    let mut line = vec![0; usize::try_from(bytes).map_err(|_| corrupt("too long to read".to_owned()))?];
    file.read_exact_at(&mut line, offset).map_err(SessionError::io("read", &path))?;
    if line.last() != Some(&b'\n') {
        return Err(corrupt("no whole line".to_owned()));
    }
    serde_json::from_slice(&line).map_err(|error| corrupt(error.to_string()))
}

/// The number of the line in which a byte stands, counted from 1; for messages only.
fn line_at(path: &Path, offset: u64) -> u64 {
    let content = std::fs::read(path).unwrap_or_default();
    let before = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
    1 + content[..before].iter().filter(|&&byte| byte == b'\n').count() as u64
}

/// Opens an existing wire log for appending. Bytes at its end that no fact names are cut: their attempt was
/// never settled. `None` when there is no file yet.
pub(super) fn open(dir: &Path, lines: &[Line], notes: &mut Vec<String>) -> Result<Option<AppendFile>, SessionError> {
    let path = dir.join(WIRE_FILE);
    let named = lines.iter().filter_map(|line| match &line.fact {
        Fact::Settled(settled) => {
            settled.attempts.iter().map(|attempt| attempt.wire_offset.saturating_add(attempt.wire_bytes)).max()
        }
        Fact::Attempt { attempt, .. } => Some(attempt.wire_offset.saturating_add(attempt.wire_bytes)),
        _ => None,
    });
    let named = named.max().unwrap_or(0);
    let size = match std::fs::metadata(&path) {
        Ok(meta) => meta.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if named > 0 {
                notes.push(format!("`{WIRE_FILE}` is missing: the calls so far cannot be packed or replayed"));
            }
            return Ok(None);
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
    AppendFile::open(path).map(Some)
}
