//! The records of a cassette file, one a line: `{"type":"head",…}` first, `{"type":"end",…}` last.
//!
//! In between, in this order: `fact`, `wire`, `spool`, `base`, `blob`; or `reply` alone. A record of a type that this
//! build does not know is only borne by a newer build: what it means cannot be left out.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::event::{Lane, Outcome};
use crate::session::{Blob, Line, WireLine};
use crate::workspace::BaseKind;

/// The format that this build writes; it reads every minor of this major that uses no other record types.
pub const FORMAT: &str = "1.0";
pub(super) const MAJOR: u64 = 1;

/// The first line: what is recorded, and where it comes from. The frozen sources and the configuration stand in the
/// session's own `frozen` fact, which follows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Head {
    /// `1.0`.
    pub format: String,
    /// The version of spettro that packed it.
    pub spettro: String,
    pub goal: GoalText,
    /// By lane (`agent`, `judge`, …): what an endpoint is made from (`provider`, `model`, `wire`, `window_tokens`,
    /// `max_output_tokens`, `reasoning_effort`, `price`); never a URL, a header or a key.
    pub lanes: BTreeMap<String, Map<String, Value>>,
    /// What it holds: `replies`; or `facts`, `wire`, and where there are any `spool`, `base`.
    pub parts: Vec<String>,
    /// In words, for people: from which session, against what kind of server.
    pub provenance: String,
    /// The session it comes from. Absent in a cassette of replies only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

/// The goal that the replies were given for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GoalText {
    pub name: String,
    pub text: String,
}

/// What a replay pins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Source {
    /// The session's id.
    pub session: String,
    /// Canonical path of the project, as shown.
    pub workspace: String,
    /// The wall clock when the session was made, RFC 3339.
    pub clock_start: String,
    /// Hex of the seed from which the first run drew its ids, where that was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_seed: Option<String>,
    /// Names of the variables whose values were replaced by `«secret:NAME»`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redacted: Vec<String>,
    /// HEAD when the session began, where the workspace is a git repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_commit: Option<String>,
}

/// One call's reply, in the bytes that came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reply {
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

/// A piece of a spooled output. Pieces of one output follow one another, from offset 0 on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpoolPiece {
    pub id: u64,
    pub at: u64,
    pub body: Blob,
}

/// One path of the base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BaseRow {
    pub path: Blob,
    pub kind: BaseKind,
    pub bytes: u64,
    pub sha256: String,
}

/// A piece of a content of the base. Pieces of one content follow one another, from offset 0 on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlobPiece {
    pub sha256: String,
    pub at: u64,
    pub body: Blob,
}

/// The last line. Its `sha256` stands at its very end and is of every byte of the file before it, those of this line
/// included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct End {
    /// Records by type.
    pub counts: BTreeMap<String, u64>,
    /// Of the session's last run; null when that had not ended.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schemars(required)]
    pub outcome: Option<Outcome>,
    /// Digest of what happened, without what may differ between two runs of the same thing. Absent with replies only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<String>,
    /// Digest of the workspace after the last iteration that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    pub sha256: String,
}

/// One line.
#[derive(Debug)]
pub(super) enum Record {
    Head(Box<Head>),
    Fact(Box<Line>),
    Wire(Box<WireLine>),
    Reply(Reply),
    Spool(SpoolPiece),
    Base(BaseRow),
    Blob(BlobPiece),
    End(End),
}

impl Record {
    /// The types that this build reads, in the order in which they stand.
    pub const TYPES: [&str; 8] = ["head", "fact", "wire", "reply", "spool", "base", "blob", "end"];

    pub const fn name(&self) -> &'static str {
        match self {
            Record::Head(_) => "head",
            Record::Fact(_) => "fact",
            Record::Wire(_) => "wire",
            Record::Reply(_) => "reply",
            Record::Spool(_) => "spool",
            Record::Base(_) => "base",
            Record::Blob(_) => "blob",
            Record::End(_) => "end",
        }
    }
}

/// One line of a cassette in plain lines: `head` first, `end` last, and between them `fact`, `wire`, `spool`, `base`
/// and `blob` in this order, or `reply` alone.
///
/// For its schema alone: what is read is a `Record`.
#[derive(JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum CassetteLine {
    Head(Head),
    Fact(Line),
    Wire(WireLine),
    Reply(Reply),
    Spool(SpoolPiece),
    Base(BaseRow),
    Blob(BlobPiece),
    End(End),
}

/// Writes one record as a line.
pub(super) fn encode<T: Serialize>(kind: &'static str, record: &T, out: &mut Vec<u8>) -> serde_json::Result<()> {
    #[derive(Serialize)]
    struct Tagged<'a, T> {
        #[serde(rename = "type")]
        kind: &'static str,
        #[serde(flatten)]
        record: &'a T,
    }
    out.clear();
    serde_json::to_writer(&mut *out, &Tagged { kind, record })?;
    out.push(b'\n');
    Ok(())
}

/// The type comes first, so a line is read in one pass, straight into its record.
impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Record, D::Error> {
        struct Typed;

        impl<'de> Visitor<'de> for Typed {
            type Value = Record;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a record of a cassette")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Record, A::Error> {
                if map.next_key::<String>()?.as_deref() != Some("type") {
                    return Err(A::Error::missing_field("type"));
                }
                let kind: String = map.next_value()?;
                let rest = MapAccessDeserializer::new(map);
                Ok(match kind.as_str() {
                    "head" => Record::Head(Deserialize::deserialize(rest)?),
                    "fact" => Record::Fact(Deserialize::deserialize(rest)?),
                    "wire" => Record::Wire(Deserialize::deserialize(rest)?),
                    "reply" => Record::Reply(Deserialize::deserialize(rest)?),
                    "spool" => Record::Spool(Deserialize::deserialize(rest)?),
                    "base" => Record::Base(Deserialize::deserialize(rest)?),
                    "blob" => Record::Blob(Deserialize::deserialize(rest)?),
                    "end" => Record::End(Deserialize::deserialize(rest)?),
                    _ => return Err(A::Error::unknown_variant(&kind, &Record::TYPES)),
                })
            }
        }

        deserializer.deserialize_map(Typed)
    }
}

pub(super) fn version(format: &str) -> Option<(u64, u64)> {
    let (major, minor) = format.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
