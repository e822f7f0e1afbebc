//! Writing a tape as a file, which is read back before it gets its name.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::chain::Telling;
use super::error::CassetteError;
use super::events::event_digest;
use super::lint::{Finding, Linter};
use super::read::MOST_LINE_BYTES;
use super::records::{BaseRow, BlobPiece, End, Reply, SpoolPiece, encode, hex};
use super::seal;
use super::tape::{Attempt, Exchange, Tape, last_tree};
use crate::session::{Blob, Fact, WireLine, WireRequest, WireResponse};
use crate::world::Secrets;

/// Response headers that a decoder may look at.
const REPLY_HEADERS: [&str; 1] = ["content-type"];
/// Outputs and contents stand in pieces of so many bytes: escaped as JSON none comes near the longest line.
const PIECE_BYTES: usize = 4 << 20;
/// What has so many bytes is compressed without what follows, and so is the head: up to there a file that breaks off can
/// still be unpacked.
const FLUSH_BYTES: usize = 16 << 10;
/// 16 MiB: two whole bodies of a long session stand within one window, so that the second costs next to nothing.
const WINDOW_LOG: u32 = 24;
const LEVEL: i32 = 6;

/// A cassette that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    pub path: PathBuf,
    pub bytes: u64,
    /// Records by type: `fact`, `wire`, `spool`, `base`, `blob`; or `reply`.
    pub counts: BTreeMap<String, u64>,
}

/// What a file is to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    Everything,
    /// Enough to be a model.
    Replies,
}

/// How a tape is written.
#[derive(Debug, Clone, Copy)]
pub struct Pack<'a> {
    pub parts: Parts,
    /// Replace a file that exists.
    pub force: bool,
    /// What may not be in it.
    pub secrets: &'a Secrets,
    /// Rules whose findings are passed over.
    pub allow: &'a [String],
}

/// Writes a tape to `out` (0600), compressed when that ends in `.zst`. An existing name is refused without `force`;
/// what it names stays until the new file is whole and read back.
///
/// # Errors
/// `Exists`, `Nothing`, `Secrets`, and what goes wrong with the disk. No file is made then.
pub fn pack(tape: &Tape, out: &Path, how: &Pack<'_>) -> Result<Packed, CassetteError> {
    let &Pack { parts, force, secrets, allow } = how;
    if !force && out.symlink_metadata().is_ok() {
        return Err(CassetteError::Exists(out.to_owned()));
    }
    if !tape.lanes().any(|(_, calls)| calls.iter().any(|call| call.reply().is_some())) {
        return Err(CassetteError::Nothing(tape.name().to_owned()));
    }
    let runs = tape.facts().iter().filter_map(|line| match &line.fact {
        Fact::Run(run) => Some(&run.workspace),
        _ => None,
    });
    if let (Parts::Everything, Some(why)) = (parts, runs.into_iter().find_map(|name| unnameable(name))) {
        return Err(tape.unpackable(format!("its workspace {why}")));
    }
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // 0600, and gone again whenever this function ends early.
    let mut temporary =
        tempfile::Builder::new().prefix(".cassette-").tempfile_in(folder).map_err(CassetteError::io("make", out))?;
    let mut linter = Linter::new(secrets);
    let raw = Digesting { to: BufWriter::new(temporary.as_file_mut()), digest: Sha256::new() };
    let counts = match out.extension().is_some_and(|ending| ending == "zst") {
        true => compressed(tape, parts, raw, out, &mut linter)?,
        false => {
            let mut writer = Writer::new(raw, out, &mut linter);
            writer.tape(tape, parts)?;
            writer.finish(tape)?.0
        }
    };
    let found = linter.finish(allow);
    if !found.is_empty() {
        return Err(CassetteError::Secrets(found));
    }
    let bytes = temporary.as_file().metadata().map_err(CassetteError::io("read", out))?.len();
    // The next reader sees what this one sees: a session whose files contradict one another makes no file.
    let problems = Tape::of_file(temporary.path())?.problems();
    if !problems.is_empty() {
        return Err(tape.unpackable(problems.join("; ")));
    }
    temporary.as_file().sync_all().map_err(CassetteError::io("sync", out))?;
    let named = if force { temporary.persist(out) } else { temporary.persist_noclobber(out) };
    named.map_err(|failed| match failed.error.kind() {
        io::ErrorKind::AlreadyExists => CassetteError::Exists(out.to_owned()),
        _ => CassetteError::Io { what: "rename to", file: out.to_owned(), error: failed.error },
    })?;
    Ok(Packed { path: out.to_owned(), bytes, counts })
}

/// Why a recording cannot say where a workspace is, when it cannot: `path` as it stands in a session.
pub fn unnameable(path: &str) -> Option<String> {
    let shown = || path.escape_debug();
    if path.contains(char::REPLACEMENT_CHARACTER) {
        return Some(format!("`{}` has a name that is not UTF-8; a replay could not be told where it is", shown()));
    }
    if path.contains(char::is_control) {
        return Some(format!("`{}` has a control character in its name; a replay would read it otherwise", shown()));
    }
    None
}

/// What of a tape should not be in a file, as if it were packed; lines are those of that file.
///
/// # Errors
/// What goes wrong with the disk.
pub fn lint(tape: &Tape, secrets: &Secrets, allow: &[String]) -> Result<Vec<Finding>, CassetteError> {
    let mut linter = Linter::new(secrets);
    Writer::new(io::sink(), Path::new("what is packed"), &mut linter).tape(tape, Parts::Everything)?;
    Ok(linter.finish(allow))
}

fn compressed<W: Write>(
    tape: &Tape,
    parts: Parts,
    raw: Digesting<W>,
    out: &Path,
    linter: &mut Linter<'_>,
) -> Result<BTreeMap<String, u64>, CassetteError> {
    let io = || CassetteError::io("write", out);
    let mut encoder = zstd::stream::write::Encoder::new(raw, LEVEL).map_err(io())?;
    encoder.include_checksum(true).map_err(io())?;
    encoder.window_log(WINDOW_LOG).map_err(io())?;
    encoder.long_distance_matching(true).map_err(io())?;
    let mut writer = Writer::new(encoder, out, linter);
    writer.tape(tape, parts)?;
    let (counts, encoder) = writer.finish(tape)?;
    let Digesting { mut to, digest } = encoder.finish().map_err(io())?;
    to.write_all(&seal::of(digest)).and_then(|()| to.flush()).map_err(io())?;
    Ok(counts)
}

/// Passes bytes on and digests them.
struct Digesting<W> {
    to: W,
    digest: Sha256,
}

impl<W: Write> Write for Digesting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.digest.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Writes records.
struct Writer<'a, 's, W> {
    to: W,
    linter: &'a mut Linter<'s>,
    out: &'a Path,
    line: Vec<u8>,
    counts: BTreeMap<String, u64>,
    digest: Sha256,
    parts: Parts,
    /// What was written since the last flush.
    unflushed_bytes: usize,
}

impl<'a, 's, W: Write> Writer<'a, 's, W> {
    fn new(to: W, out: &'a Path, linter: &'a mut Linter<'s>) -> Writer<'a, 's, W> {
        let (line, counts, digest) = (Vec::new(), BTreeMap::new(), Sha256::new());
        Writer { to, linter, out, line, counts, digest, parts: Parts::Everything, unflushed_bytes: 0 }
    }

    fn tape(&mut self, tape: &Tape, parts: Parts) -> Result<(), CassetteError> {
        self.parts = match tape.is_session() {
            true => parts,
            false => Parts::Replies,
        };
        let mut head = tape.head().clone();
        if self.parts == Parts::Replies {
            (head.source, head.parts) = (None, vec!["replies".to_owned()]);
        }
        self.put("head", &head)?;
        if self.parts == Parts::Replies {
            return self.replies(tape);
        }
        for line in tape.facts() {
            self.record("fact", line)?;
        }
        for (_, calls) in tape.lanes() {
            let mut telling = Telling::default();
            for call in calls {
                for attempt in &call.attempts {
                    if let Some(line) = wire(call, attempt, &mut telling) {
                        self.record("wire", &line)?;
                    }
                }
            }
        }
        for id in tape.spooled() {
            let read = tape.spool(id).map_err(CassetteError::io("read an output for", self.out))?;
            // One that the session did not keep is not in the file either.
            let Some(bytes) = read else { continue };
            for (at, body) in pieces(&bytes) {
                self.record("spool", &SpoolPiece { id, at, body })?;
            }
        }
        let Some(base) = tape.base() else { return Ok(()) };
        let mut held: Vec<&str> = Vec::new();
        for file in &base.files {
            use std::os::unix::ffi::OsStrExt;
            let path = Blob(file.path.as_os_str().as_bytes().to_vec());
            let row = BaseRow { path, kind: file.kind, bytes: file.bytes, sha256: file.sha256.clone() };
            self.record("base", &row)?;
            held.push(&file.sha256);
        }
        held.sort_unstable();
        held.dedup();
        for sha256 in held {
            for (at, body) in tape.blob(sha256).iter().flat_map(|bytes| pieces(bytes)) {
                self.record("blob", &BlobPiece { sha256: sha256.to_owned(), at, body })?;
            }
        }
        Ok(())
    }

    /// Every reply that arrived whole, numbered anew: calls that failed have none.
    fn replies(&mut self, tape: &Tape) -> Result<(), CassetteError> {
        for (lane, calls) in tape.lanes() {
            let replies = calls.iter().filter_map(|call| Some((call, call.reply()?)));
            for (n, (call, attempt)) in (1..).zip(replies) {
                let Some(status) = attempt.status else { continue };
                let kept = |(name, _): &&(String, String)| REPLY_HEADERS.contains(&name.as_str());
                self.record(
                    "reply",
                    &Reply {
                        lane,
                        n,
                        sha256: call.digest.clone(),
                        status,
                        headers: attempt.headers.iter().filter(kept).cloned().collect(),
                        body: Blob(attempt.body.to_vec()),
                        reads: attempt.reads.clone(),
                    },
                )?;
            }
        }
        Ok(())
    }

    fn record<T: Serialize>(&mut self, kind: &'static str, record: &T) -> Result<(), CassetteError> {
        *self.counts.entry(kind.to_owned()).or_default() += 1;
        self.put(kind, record)
    }

    fn put<T: Serialize>(&mut self, kind: &'static str, record: &T) -> Result<(), CassetteError> {
        let encoded = encode(kind, record, &mut self.line).map_err(io::Error::from);
        encoded.map_err(CassetteError::io("encode a line of", self.out))?;
        if self.line.len() as u64 > MOST_LINE_BYTES {
            let error = io::Error::new(io::ErrorKind::FileTooLarge, format!("a `{kind}` has more than 64 MiB"));
            return Err(CassetteError::io("write", self.out)(error));
        }
        self.linter.look(&self.line);
        self.digest.update(&self.line);
        self.to.write_all(&self.line).map_err(CassetteError::io("write", self.out))?;
        self.unflushed_bytes += self.line.len();
        if kind == "head" || self.unflushed_bytes >= FLUSH_BYTES {
            self.unflushed_bytes = 0;
            self.to.flush().map_err(CassetteError::io("write", self.out))?;
        }
        Ok(())
    }

    /// Writes the end; gives back the counts and what was written to.
    fn finish(mut self, tape: &Tape) -> Result<(BTreeMap<String, u64>, W), CassetteError> {
        let whole = self.parts == Parts::Everything;
        let end = End {
            counts: self.counts.clone(),
            outcome: tape.outcome(),
            events: whole.then(|| event_digest(tape.facts())),
            tree: last_tree(tape.facts()).filter(|_| whole),
            sha256: String::new(),
        };
        let io = || CassetteError::io("write", self.out);
        encode("end", &end, &mut self.line).map_err(io::Error::from).map_err(io())?;
        // The digest stands at the very end, and is of everything before it.
        self.line.truncate(self.line.len() - b"\"}\n".len());
        self.digest.update(&self.line);
        self.line.extend_from_slice(format!("{}\"}}\n", hex(&self.digest.finalize())).as_bytes());
        self.to.write_all(&self.line).and_then(|()| self.to.flush()).map_err(io())?;
        Ok((self.counts, self.to))
    }
}

/// An attempt as a line of the wire log.
fn wire(call: &Exchange, attempt: &Attempt, telling: &mut Telling) -> Option<WireLine> {
    let request = attempt.request.as_ref()?;
    let (keep, add) = telling.next(&request.rest);
    Some(WireLine {
        lane: call.lane,
        n: call.n,
        attempt: attempt.number,
        request: WireRequest {
            method: request.method.clone(),
            url: request.url.clone(),
            headers: request.headers.clone(),
            front: Blob(request.front.to_vec()),
            keep,
            add: Blob(add.to_vec()),
            sha256: call.digest.clone(),
        },
        response: WireResponse {
            status: attempt.status,
            headers: attempt.headers.clone(),
            body: Blob(attempt.body.to_vec()),
            reads: attempt.reads.clone(),
        },
        end: attempt.end.clone(),
        ms: attempt.ms,
        redacted: attempt.redacted,
    })
}

/// A content cut into pieces with their offsets; an empty one has one piece.
fn pieces(bytes: &[u8]) -> impl Iterator<Item = (u64, Blob)> {
    let whole = bytes.is_empty().then_some((0, Blob::default()));
    let cut = bytes.chunks(PIECE_BYTES).scan(0, |at, piece| {
        let from = *at;
        *at += piece.len() as u64;
        Some((from, Blob(piece.to_vec())))
    });
    whole.into_iter().chain(cut)
}
