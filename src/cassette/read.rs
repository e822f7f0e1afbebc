//! Reading a cassette file, compressed or plain, with everything checked.
//!
//! Invariant: nothing is taken on trust. Lines, depth, window and total are bounded, so that a hostile file costs
//! bounded memory; whatever is not as it was written is refused.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::error::CassetteError;
use super::lint::{Finding, Linter};
use super::records::{BaseRow, End, Head, MAJOR, Record, hex, version};
use super::seal;
use super::tape::{Assembly, Outputs, Tape, inside};
use crate::session::{Fact, Line, chained, check_id};
use crate::workspace::{Base, BaseFile};
use crate::world::{Secrets, regular};

/// The most that one line may have.
pub(super) const MOST_LINE_BYTES: u64 = 64 << 20;
/// The most that all lines may have together, uncompressed: a tape is held in memory.
pub(super) const MOST_BYTES: u64 = 1 << 30;
/// The most values that one line may have, and all lines together: as text `[]` takes three bytes, in memory many times
/// that. A list counts two, an object eight, everything in them one.
const MOST_LINE_VALUES: u64 = 1 << 20;
const MOST_VALUES: u64 = 16 << 20;
/// Lists and objects within one another; what is read as values is held to it by their reader as well.
const MOST_DEPTH: u64 = 128;
/// Facts of kinds that this build does not know are kept up to this, together.
const MOST_UNKNOWN_BYTES: u64 = 64 << 20;
/// The largest window that a compressed file may ask for, as a power of two: 32 MiB.
const MOST_WINDOW_LOG: u32 = 25;

/// Reads a cassette; one that breaks off is a tape without its end.
pub(super) fn read(path: &Path) -> Result<Tape, CassetteError> {
    take(open(path)?)
}

/// What of a file should not be in it. The file is taken as it is: check it with `read` first.
///
/// # Errors
/// When it cannot be read, or breaks the limits.
pub fn lint_file(path: &Path, secrets: &Secrets, allow: &[String]) -> Result<Vec<Finding>, CassetteError> {
    let mut lines = open(path)?;
    let mut linter = Linter::new(secrets);
    while lines.next()? {
        linter.look(&lines.text);
    }
    Ok(linter.finish(allow))
}

fn open(path: &Path) -> Result<Lines, CassetteError> {
    let mut file = regular::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory => {
            CassetteError::NotOne { file: path.to_owned(), reason: "it is no file".to_owned() }
        }
        _ => CassetteError::io("open", path)(error),
    })?;
    let seal = seal::look(&mut file).map_err(CassetteError::io("read", path))?;
    file.seek(SeekFrom::Start(0)).map_err(CassetteError::io("read", path))?;
    Ok(match seal {
        seal::Found::Plain => Lines::new(path, Box::new(BufReader::new(file)), true),
        seal::Found::Broken => {
            let reason = "the file was changed: its seal differs".to_owned();
            return Err(CassetteError::Corrupt { file: path.to_owned(), line: 0, reason });
        }
        seal::Found::Followed => {
            let reason = "something follows its end".to_owned();
            return Err(CassetteError::Corrupt { file: path.to_owned(), line: 0, reason });
        }
        seal::Found::Whole(bytes) => Lines::new(path, decoder(path, file.take(bytes))?, true),
        seal::Found::Missing => Lines::new(path, decoder(path, file.take(u64::MAX))?, false),
    })
}

fn decoder(path: &Path, raw: io::Take<File>) -> Result<Box<dyn BufRead>, CassetteError> {
    let decoder = zstd::stream::read::Decoder::new(raw).and_then(|mut decoder| {
        decoder.window_log_max(MOST_WINDOW_LOG)?;
        Ok(decoder.single_frame())
    });
    Ok(Box::new(BufReader::with_capacity(256 << 10, decoder.map_err(CassetteError::io("read", path))?)))
}

/// Whole lines, with the digest of all so far.
struct Lines {
    path: PathBuf,
    reader: Box<dyn BufRead>,
    /// What frames the lines was proved whole, so that they may break off nowhere.
    sealed: bool,
    digest: Sha256,
    text: Vec<u8>,
    number: u64,
    total: u64,
    values: u64,
}

impl Lines {
    fn new(path: &Path, reader: Box<dyn BufRead>, sealed: bool) -> Lines {
        let (digest, text) = (Sha256::new(), Vec::new());
        Lines { path: path.to_owned(), reader, sealed, digest, text, number: 0, total: 0, values: 0 }
    }

    fn corrupt(&self, reason: impl Into<String>) -> CassetteError {
        CassetteError::Corrupt { file: self.path.clone(), line: self.number, reason: reason.into() }
    }

    /// Reads the next line into `text`. False where the file breaks off.
    fn next(&mut self) -> Result<bool, CassetteError> {
        self.text.clear();
        self.number += 1;
        let read = (&mut self.reader).take(MOST_LINE_BYTES + 1).read_until(b'\n', &mut self.text);
        let read = match read {
            Ok(read) => read as u64,
            // Compressed data that ends early, or is none.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) if matches!(error.kind(), io::ErrorKind::Other | io::ErrorKind::InvalidData) => {
                return Err(self.corrupt(format!("it cannot be unpacked: {error}")));
            }
            Err(error) => return Err(CassetteError::io("read", &self.path)(error)),
        };
        if read > MOST_LINE_BYTES {
            return Err(self.corrupt("longer than 64 MiB"));
        }
        self.total += read;
        if self.total > MOST_BYTES {
            return Err(self.corrupt("all lines together have more than 1 GiB"));
        }
        let (values, depth) = weight(&self.text);
        self.values += values;
        if depth > MOST_DEPTH {
            return Err(self.corrupt("nested beyond the recursion limit"));
        }
        if values > MOST_LINE_VALUES || self.values > MOST_VALUES {
            return Err(self.corrupt("more values than any recording has"));
        }
        Ok(self.text.last() == Some(&b'\n'))
    }

    fn parse(&self, head: Option<&Head>) -> Result<Record, CassetteError> {
        #[derive(Deserialize)]
        struct Kind {
            #[serde(rename = "type")]
            kind: String,
            #[serde(default)]
            format: String,
        }
        if let Some(head) = head
            && version(&head.format).is_some_and(|(_, minor)| minor == 0)
        {
            return serde_json::from_slice(&self.text).map_err(|error| self.corrupt(error.to_string()));
        }
        let kind: Result<Kind, _> = serde_json::from_slice(&self.text);
        let format = match (&kind, head) {
            (_, Some(head)) => head.format.clone(),
            (Ok(kind), None) if kind.kind == "head" => kind.format.clone(),
            _ => {
                let reason = "it does not begin with a `head`".to_owned();
                return Err(CassetteError::NotOne { file: self.path.clone(), reason });
            }
        };
        let (major, minor) =
            version(&format).ok_or_else(|| self.corrupt(format!("`{format}` is no format version")))?;
        let newer = || CassetteError::Newer { file: self.path.clone(), format: format.clone() };
        if major > MAJOR {
            return Err(newer());
        }
        let kind = kind.map_err(|error| self.corrupt(error.to_string()))?;
        if minor > 0 && !Record::TYPES.contains(&kind.kind.as_str()) {
            return Err(newer());
        }
        serde_json::from_slice(&self.text).map_err(|error| self.corrupt(error.to_string()))
    }

    /// Checks the last line: its digest stands at its very end and is of everything before.
    fn close(&mut self, end: &End) -> Result<(), CassetteError> {
        let tail = format!("{}\"}}\n", end.sha256);
        let Some(before) = self.text.len().checked_sub(tail.len()).filter(|&at| self.text[at..] == *tail.as_bytes())
        else {
            return Err(self.corrupt("its digest does not stand at its end"));
        };
        self.digest.update(&self.text[..before]);
        if hex(&std::mem::take(&mut self.digest).finalize()) != end.sha256 {
            return Err(self.corrupt("the file was changed: its digest differs"));
        }
        match self.reader.fill_buf() {
            Ok([]) => Ok(()),
            Ok(_) => Err(self.corrupt("something follows the end")),
            // What frames the lines breaks off right behind them.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && !self.sealed => Ok(()),
            Err(error) => Err(CassetteError::io("read", &self.path)(error)),
        }
    }
}

/// What a line of JSON weighs in memory, and how deep it nests, told from its brackets and commas. What is in strings is
/// text.
fn weight(line: &[u8]) -> (u64, u64) {
    let (mut values, mut depth, mut deepest) = (0, 0u64, 0);
    let mut plain = |text: &[u8]| {
        for byte in text {
            match byte {
                b'{' | b'[' => {
                    values += if *byte == b'{' { 8 } else { 2 };
                    depth += 1;
                    deepest = deepest.max(depth);
                }
                b'}' | b']' => depth = depth.saturating_sub(1),
                b',' | b':' => values += 1,
                _ => {}
            }
        }
    };
    let mut rest = line;
    while let Some(quote) = memchr::memchr(b'"', rest) {
        plain(&rest[..quote]);
        rest = &rest[quote + 1..];
        // The string's end: a quote behind an even number of backslashes.
        while let Some(quote) = memchr::memchr(b'"', rest) {
            let escapes = rest[..quote].iter().rev().take_while(|byte| **byte == b'\\').count();
            rest = &rest[quote + 1..];
            if escapes % 2 == 0 {
                break;
            }
        }
    }
    plain(rest);
    (values, deepest)
}

/// What was read so far.
#[derive(Default)]
struct Taken {
    facts: Vec<Line>,
    assembly: Assembly,
    spool: Pieces<u64>,
    base: Vec<BaseFile>,
    blobs: Pieces<String>,
    counts: BTreeMap<String, u64>,
    unknown_bytes: u64,
    /// The place of the last record's type among all types: they stand in that order.
    stage: usize,
}

fn take(mut lines: Lines) -> Result<Tape, CassetteError> {
    let mut head: Option<Head> = None;
    let mut taken = Taken::default();
    while lines.next()? {
        let record = lines.parse(head.as_ref())?;
        let name = record.name();
        match (record, &head) {
            (Record::Head(first), None) => {
                // It names a folder wherever the recording is run again.
                if let Some(source) = &first.source {
                    check_id(&source.session).map_err(|error| lines.corrupt(error.to_string()))?;
                }
                head = Some(*first);
            }
            (Record::End(end), Some(_)) => {
                lines.close(&end)?;
                if end.counts != taken.counts {
                    return Err(lines.corrupt("its counts are not what it holds"));
                }
                // Without its frame proved the file is not whole, whatever stands in it.
                let end = lines.sealed.then_some(end);
                return finish(&lines, head, taken, end);
            }
            (record, Some(head)) if !matches!(record, Record::Head(_)) => {
                taken.record(record, head).map_err(|reason| lines.corrupt(reason))?;
                *taken.counts.entry(name.to_owned()).or_default() += 1;
            }
            _ => return Err(lines.corrupt("a head is due in the first line, and there only")),
        }
        lines.digest.update(&lines.text);
    }
    finish(&lines, head, taken, None)
}

impl Taken {
    fn record(&mut self, record: Record, head: &Head) -> Result<(), String> {
        let name = record.name();
        if head.source.is_some() == matches!(record, Record::Reply(_)) {
            return Err(format!("a `{name}` does not belong in a cassette of this kind"));
        }
        let stage = Record::TYPES.iter().position(|known| *known == name).unwrap_or_default();
        if stage < self.stage {
            return Err(format!("a `{name}` after a `{}`", Record::TYPES[self.stage]));
        }
        self.stage = stage;
        match record {
            Record::Head(_) | Record::End(_) => Err(format!("a `{name}` where none is due")),
            Record::Fact(line) => {
                if let Fact::Unknown(fact) = &line.fact {
                    self.unknown_bytes += fact.bytes();
                    if self.unknown_bytes > MOST_UNKNOWN_BYTES {
                        return Err(format!("its facts of unknown kinds (`{}`) have more than 64 MiB", fact.kind));
                    }
                }
                self.assembly.fact(&line.fact)?;
                self.facts.push(*line);
                Ok(())
            }
            Record::Wire(line) => self.assembly.wire(*line),
            Record::Reply(reply) => self.assembly.reply(reply),
            Record::Spool(piece) => self.spool.take(piece.id, piece.at, piece.body.0),
            Record::Base(row) => {
                self.base.push(base_file(row)?);
                Ok(())
            }
            Record::Blob(piece) => self.blobs.take(piece.sha256, piece.at, piece.body.0),
        }
    }
}

fn base_file(row: BaseRow) -> Result<BaseFile, String> {
    use std::os::unix::ffi::OsStringExt;
    let path = PathBuf::from(std::ffi::OsString::from_vec(row.path.0));
    inside(&path)?;
    Ok(BaseFile { path, kind: row.kind, bytes: row.bytes, sha256: row.sha256 })
}

fn finish(lines: &Lines, head: Option<Head>, taken: Taken, end: Option<End>) -> Result<Tape, CassetteError> {
    let Some(head) = head else {
        if !lines.sealed {
            let reason = "too little of it is left to unpack its first line".to_owned();
            return Err(CassetteError::NotOne { file: lines.path.clone(), reason });
        }
        let reason = "it has no whole first line".to_owned();
        return Err(CassetteError::NotOne { file: lines.path.clone(), reason });
    };
    // The session's own line numbers: its header stands before them.
    if let Err((seq, reason)) = chained(&taken.facts) {
        let (file, line) = (lines.path.clone(), seq + 1);
        return Err(CassetteError::Corrupt { file, line, reason });
    }
    let whole = end.is_some();
    let (spool, blobs) = (taken.spool.finish(whole), taken.blobs.finish(whole));
    if let Some((sha256, _)) = blobs.iter().find(|(sha256, bytes)| hex(&Sha256::digest(bytes)) != **sha256) {
        return Err(lines.corrupt(format!("the content `{sha256}` has another digest")));
    }
    let lanes = match whole {
        true => taken.assembly.finish().map_err(|reason| lines.corrupt(reason))?,
        false => taken.assembly.finish_incomplete(),
    };
    let has_base = head.parts.iter().any(|part| part == "base");
    if whole && !has_base && !taken.base.is_empty() {
        return Err(lines.corrupt("it holds a `base` that its head does not name"));
    }
    let git_commit = head.source.as_ref().and_then(|source| source.git_commit.clone());
    let base = (whole && has_base).then_some(Base { git_commit, files: taken.base, ..Base::default() });
    Ok(Tape { head, facts: taken.facts, lanes, spool: Outputs::Held(spool), base, blobs, end })
}

/// Contents in pieces.
struct Pieces<K> {
    whole: BTreeMap<K, Bytes>,
    open: Option<(K, Vec<u8>)>,
}

impl<K> Default for Pieces<K> {
    fn default() -> Self {
        Pieces { whole: BTreeMap::new(), open: None }
    }
}

impl<K: Ord + std::fmt::Display> Pieces<K> {
    fn take(&mut self, key: K, at: u64, body: Vec<u8>) -> Result<(), String> {
        if let Some((open, bytes)) = &mut self.open
            && *open == key
        {
            if at != bytes.len() as u64 {
                return Err(format!("a piece of `{key}` at {at}, where {} is due", bytes.len()));
            }
            bytes.extend_from_slice(&body);
            return Ok(());
        }
        self.shut();
        if at != 0 || self.whole.contains_key(&key) {
            return Err(format!("a piece of `{key}` at {at}, apart from the others"));
        }
        self.open = Some((key, body));
        Ok(())
    }

    fn shut(&mut self) {
        if let Some((key, bytes)) = self.open.take() {
            self.whole.insert(key, Bytes::from(bytes));
        }
    }

    /// All contents; of a file that breaks off the last may lack its end, and is left out.
    fn finish(mut self, whole: bool) -> BTreeMap<K, Bytes> {
        if whole {
            self.shut();
        }
        self.whole
    }
}
