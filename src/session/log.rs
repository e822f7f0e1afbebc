//! Reading `session.jsonl`: header, then one fact a line; and setting a torn last line aside.
//!
//! A line is whole when it ends with a newline: what stands behind the last one was being written when spettro or
//! the machine died. Anything else that does not read is corruption, and is named.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::error::SessionError;
use super::facts::{Fact, Header, LOG_VERSION, Line};
use crate::world::regular;

/// The name of the log in a session's folder.
pub(super) const LOG_FILE: &str = "session.jsonl";
/// `Header::kind`.
pub(super) const LOG_KIND: &str = "spettro session";

/// What stands in a log.
pub(super) struct Log {
    pub header: Header,
    pub lines: Vec<Line>,
    /// Its entries, and where the next one hangs.
    pub chain: Chain,
    /// Bytes of whole lines.
    pub whole_bytes: u64,
    /// Bytes behind the last newline.
    pub torn_bytes: u64,
}

/// Reads a log from start to end without changing anything.
pub(super) fn read_log(path: &Path) -> Result<Log, SessionError> {
    let io = |error| SessionError::Io { what: "read", file: path.to_owned(), error };
    let mut reader = LineReader::open(path).map_err(io)?;
    let header = read_header(path, &mut reader)?;
    let mut chain = Chain::default();
    let mut lines = Vec::new();
    while let Some(text) = reader.next_whole().map_err(io)? {
        let seq = lines.len() as u64 + 1;
        let corrupt = |reason| SessionError::Corrupt { file: path.to_owned(), line: seq + 1, reason };
        let line: Line = serde_json::from_slice(text).map_err(|error| corrupt(reason(&error)))?;
        if line.seq != seq {
            return Err(corrupt(format!("seq {} where {seq} is due", line.seq)));
        }
        chain.follow(&line).map_err(corrupt)?;
        lines.push(line);
    }
    Ok(Log { header, lines, chain, whole_bytes: reader.whole_bytes, torn_bytes: reader.torn_bytes })
}

/// The header and the first lines up to the one that `wanted` likes, for lists: nothing behind it is looked at.
pub(super) fn read_start(path: &Path, wanted: impl Fn(&Fact) -> bool) -> Result<(Header, Option<Line>), SessionError> {
    /// The facts that open a session are few; a list never reads a long log.
    const MOST_LINES: usize = 16;
    let io = |error| SessionError::Io { what: "read", file: path.to_owned(), error };
    let mut reader = LineReader::open(path).map_err(io)?;
    let header = read_header(path, &mut reader)?;
    for number in 0..MOST_LINES {
        let Some(text) = reader.next_whole().map_err(io)? else { break };
        let line: Line = serde_json::from_slice(text).map_err(|error| SessionError::Corrupt {
            file: path.to_owned(),
            line: number as u64 + 2,
            reason: reason(&error),
        })?;
        if wanted(&line.fact) {
            return Ok((header, Some(line)));
        }
    }
    Ok((header, None))
}

fn read_header(path: &Path, reader: &mut LineReader) -> Result<Header, SessionError> {
    #[derive(Deserialize)]
    struct Version {
        kind: String,
        v: u32,
    }
    let corrupt = |reason: String| SessionError::Corrupt { file: path.to_owned(), line: 1, reason };
    let Some(line) = reader.next_whole().map_err(SessionError::io("read", path))? else {
        let what = if reader.torn_bytes == 0 { "the file is empty" } else { "the first line is torn" };
        return Err(corrupt(format!("{what}: nothing was recorded")));
    };
    let version: Version = serde_json::from_slice(line).map_err(|error| corrupt(reason(&error)))?;
    if version.kind != LOG_KIND {
        return Err(corrupt(format!("`{}` where `{LOG_KIND}` is due", version.kind)));
    }
    if version.v > LOG_VERSION {
        return Err(SessionError::Newer { file: path.to_owned(), version: version.v });
    }
    serde_json::from_slice(line).map_err(|error| corrupt(reason(&error)))
}

/// A parse error without its own «line 1», which would contradict the line we name.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(at) => format!("{} at column {}", &text[..at], error.column()),
        None => text,
    }
}

/// Which entries there are, and the tip: the last one that carries history, or what a `tip` fact names.
#[derive(Default)]
pub(super) struct Chain {
    pub tip: Option<String>,
    entries: Vec<u64>,
}

impl Chain {
    /// Takes the next line; an error says what is wrong with its place in the tree.
    pub(super) fn follow(&mut self, line: &Line) -> Result<(), String> {
        if let Some(id) = &line.id {
            if *id != entry_id(line.seq) {
                return Err(format!("entry `{id}` where `{}` is due", entry_id(line.seq)));
            }
            if let Some(parent) = &line.parent
                && !self.has(parent)
            {
                return Err(format!("its parent `{parent}` is no entry before it"));
            }
            self.entries.push(line.seq);
            if !is_bookmark(&line.fact) {
                self.tip = Some(id.clone());
            }
        } else if line.fact.is_entry() {
            return Err("an entry without an id".to_owned());
        }
        if let Fact::Tip { entry } = &line.fact {
            if !self.has(entry) {
                return Err(format!("the tip `{entry}` is no entry before it"));
            }
            self.tip = Some(entry.clone());
        }
        Ok(())
    }

    pub(super) fn has(&self, id: &str) -> bool {
        entry_seq(id).is_some_and(|seq| self.entries.binary_search(&seq).is_ok())
    }
}

/// Whether facts hang together as in a log that was read: seqs without gaps, entries that name earlier ones.
///
/// # Errors
/// The seq that is due where they do not, and why.
pub fn chained(lines: &[Line]) -> Result<(), (u64, String)> {
    let mut chain = Chain::default();
    for (line, due) in lines.iter().zip(1..) {
        if line.seq != due {
            return Err((due, format!("seq {} where {due} is due", line.seq)));
        }
        chain.follow(line).map_err(|reason| (due, reason))?;
    }
    Ok(())
}

pub(super) fn entry_id(seq: u64) -> String {
    format!("e{seq}")
}

pub(super) fn entry_seq(id: &str) -> Option<u64> {
    id.strip_prefix('e')?.parse().ok()
}

/// A `label` of a later version: an entry that never moves the tip.
fn is_bookmark(fact: &Fact) -> bool {
    matches!(fact, Fact::Unknown(fact) if fact.kind == "label")
}

/// Whole lines of a file, one after another, with what they add up to.
pub(super) struct LineReader {
    reader: BufReader<File>,
    line: Vec<u8>,
    pub whole_bytes: u64,
    pub torn_bytes: u64,
}

impl LineReader {
    pub(super) fn open(path: &Path) -> io::Result<LineReader> {
        let reader = BufReader::with_capacity(256 * 1024, regular::open(path)?);
        Ok(LineReader { reader, line: Vec::new(), whole_bytes: 0, torn_bytes: 0 })
    }

    /// The next whole line without its newline; `None` at the end or before a torn rest.
    pub(super) fn next_whole(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        let read = self.reader.read_until(b'\n', &mut self.line)? as u64;
        if self.line.pop_if(|last| *last == b'\n').is_some() {
            self.whole_bytes += read;
            return Ok(Some(&self.line));
        }
        self.torn_bytes = read;
        Ok(None)
    }
}

/// Moves what stands behind the last whole line to `session.jsonl.torn` (numbered when taken) and cuts the log.
pub(super) fn set_aside(path: &Path, log: &Log) -> Result<PathBuf, SessionError> {
    let size = usize::try_from(log.torn_bytes)
        .map_err(|error| SessionError::io("read", path)(io::Error::new(io::ErrorKind::OutOfMemory, error)))?;
    let mut torn = vec![0; size];
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(SessionError::io("open", path))?;
    file.read_exact_at(&mut torn, log.whole_bytes).map_err(SessionError::io("read", path))?;
    let (aside, mut copy) = new_numbered(&path.with_extension("jsonl.torn"))?;
    let copied = copy.write_all(&torn).and_then(|()| copy.sync_data());
    copied.map_err(SessionError::io("write", &aside))?;
    file.set_len(log.whole_bytes).map_err(SessionError::io("cut", path))?;
    Ok(aside)
}

fn new_numbered(path: &Path) -> Result<(PathBuf, File), SessionError> {
    let mut number = 0u32;
    loop {
        let mut name = path.as_os_str().to_owned();
        if number > 0 {
            name.push(format!(".{number}"));
        }
        let candidate = PathBuf::from(name);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&candidate) {
            Ok(file) => return Ok((candidate, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(SessionError::Io { what: "make", file: candidate, error }),
        }
    }
}
