//! The file: its records, and reading one with everything checked.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::error::CassetteError;
use crate::event::{Lane, Outcome};
use crate::session::Blob;

/// The format that this build writes; it reads every minor of this major that uses no other record types.
pub const FORMAT: &str = "1.0";
const MAJOR: u64 = 1;
/// The most that one line may have.
const MOST_LINE_BYTES: u64 = 64 << 20;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Entry {
    Head(Head),
    Reply(Reply),
    End(End),
}

/// The first line: what the replies are and where they come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// `1.0`.
    pub format: String,
    /// The version of spettro that packed it.
    pub spettro: String,
    pub goal: GoalText,
    /// By lane (`agent`, `judge`): what an endpoint is made from (`provider`, `model`, `wire`, `window_tokens`,
    /// `max_output_tokens`, `reasoning_effort`, `price`); never a URL, a header or a key.
    pub lanes: BTreeMap<String, Map<String, Value>>,
    /// What it holds: `replies`.
    pub parts: Vec<String>,
    /// In words, for people: from which session, against what kind of server.
    pub provenance: String,
}

/// The goal that the replies were given for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoalText {
    pub name: String,
    pub text: String,
}

/// One call's reply, in the bytes that came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reply {
    pub lane: Lane,
    /// Counts the lane's replies from 1 without gaps.
    pub n: u64,
    /// sha256 of the rest of the request that it answered.
    pub sha256: String,
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Blob,
    /// The offsets at which network reads began.
    pub reads: Vec<u64>,
}

/// The last line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    /// Replies by lane.
    pub counts: BTreeMap<String, u64>,
    /// Of the session's last run. (Read so that it may be null but not missing: no digest covers this line.)
    #[serde(deserialize_with = "Option::deserialize")]
    pub outcome: Option<Outcome>,
    /// Of every byte before this line.
    pub sha256: String,
}

/// What a cassette holds.
#[derive(Debug)]
pub(super) struct Tape {
    pub head: Head,
    pub replies: BTreeMap<Lane, Vec<Reply>>,
}

/// Reads a cassette whole and checks it: order, counts, digest, end.
pub(super) fn read(path: &Path) -> Result<Tape, CassetteError> {
    let mut reader = BufReader::new(File::open(path).map_err(CassetteError::io("open", path))?);
    if reader.fill_buf().map_err(CassetteError::io("read", path))?.starts_with(&ZSTD_MAGIC) {
        return Err(CassetteError::Compressed(path.to_owned()));
    }
    let mut digest = Sha256::new();
    let mut text = Vec::new();
    let mut number = 0;
    let mut head = None;
    let mut replies: BTreeMap<Lane, Vec<Reply>> = BTreeMap::new();
    loop {
        text.clear();
        number += 1;
        let corrupt = |reason: String| CassetteError::Corrupt { file: path.to_owned(), line: number, reason };
        let read = (&mut reader).take(MOST_LINE_BYTES + 1).read_until(b'\n', &mut text);
        if read.map_err(CassetteError::io("read", path))? as u64 > MOST_LINE_BYTES {
            return Err(corrupt("longer than 64 MiB".to_owned()));
        }
        if text.last() != Some(&b'\n') {
            return Err(match &head {
                None => CassetteError::NotOne { file: path.to_owned(), reason: "no whole first line".to_owned() },
                Some(_) => CassetteError::Incomplete(path.to_owned()),
            });
        }
        match (parse(path, number, &text, head.as_ref())?, head.take()) {
            (Entry::Head(first), None) => head = Some(first),
            (Entry::Reply(reply), first @ Some(_)) => {
                head = first;
                let lane = replies.entry(reply.lane).or_default();
                if reply.n != lane.len() as u64 + 1 {
                    return Err(corrupt(format!("{} reply {} out of order", reply.lane, reply.n)));
                }
                if !well_cut(&reply) {
                    return Err(corrupt("its reads do not lie in its body".to_owned()));
                }
                lane.push(reply);
            }
            (Entry::End(end), Some(head)) => {
                if end.sha256 != hex(&digest.finalize()) {
                    return Err(corrupt("the file was changed: its digest differs".to_owned()));
                }
                let counts = replies.iter().map(|(lane, replies)| (lane.name().to_owned(), replies.len() as u64));
                if end.counts != counts.collect() {
                    return Err(corrupt("its counts are not what it holds".to_owned()));
                }
                if !reader.fill_buf().map_err(CassetteError::io("read", path))?.is_empty() {
                    return Err(corrupt("something follows the end".to_owned()));
                }
                return Ok(Tape { head, replies });
            }
            _ => return Err(corrupt("a head is due in the first line, and there only".to_owned())),
        }
        digest.update(&text);
    }
}

fn parse(path: &Path, number: u64, text: &[u8], head: Option<&Head>) -> Result<Entry, CassetteError> {
    #[derive(Deserialize)]
    struct Kind {
        #[serde(rename = "type")]
        kind: String,
        #[serde(default)]
        format: String,
    }
    let corrupt = |reason: String| CassetteError::Corrupt { file: path.to_owned(), line: number, reason };
    let kind: Result<Kind, _> = serde_json::from_slice(text);
    let format = match (&kind, head) {
        (_, Some(head)) => head.format.clone(),
        (Ok(kind), None) if kind.kind == "head" => kind.format.clone(),
        _ => {
            let reason = "it does not begin with a `head`".to_owned();
            return Err(CassetteError::NotOne { file: path.to_owned(), reason });
        }
    };
    let newer = || CassetteError::Newer { file: path.to_owned(), format: format.clone() };
    let (major, minor) = version(&format).ok_or_else(|| corrupt(format!("`{format}` is no format version")))?;
    if major > MAJOR {
        return Err(newer());
    }
    let kind = kind.map_err(|error| corrupt(error.to_string()))?;
    if minor > 0 && !["head", "reply", "end"].contains(&kind.kind.as_str()) {
        return Err(newer());
    }
    serde_json::from_slice(text).map_err(|error| corrupt(error.to_string()))
}

fn version(format: &str) -> Option<(u64, u64)> {
    let (major, minor) = format.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn well_cut(reply: &Reply) -> bool {
    let ascending = reply.reads.windows(2).all(|pair| pair[0] < pair[1]);
    ascending && reply.reads.last().is_none_or(|&last| last < reply.body.0.len().max(1) as u64)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
