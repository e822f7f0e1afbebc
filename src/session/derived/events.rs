//! `events.jsonl`: what happened, one record a line. It may lag behind the log by a buffer and catches up on open.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::derive::{DeriveState, derive};
use crate::event::{EVENT_VERSION, Event, Record};
use crate::session::error::SessionError;
use crate::session::facts::{Fact, Line};
use crate::session::files::write_whole;
use crate::session::log::LineReader;
use crate::session::modes::with_rights;

pub(in crate::session) const EVENTS_FILE: &str = "events.jsonl";
/// More than this is never held back.
const MOST_BUFFERED_BYTES: usize = 64 * 1024;

/// The event stream of a session: numbers the records and writes them, buffered.
pub(in crate::session) struct Events {
    path: PathBuf,
    session: String,
    file: Option<File>,
    buffer: Vec<u8>,
    /// Of the last record.
    seq: u64,
    /// Set by the first failed write: the file then only lags, and is completed when the session is opened next.
    broken: bool,
}

impl Events {
    /// A new session's: the file is made with the first flush.
    pub(in crate::session) fn new(dir: &Path, session: &str) -> Events {
        let path = dir.join(EVENTS_FILE);
        Events { path, session: session.to_owned(), file: None, buffer: Vec::new(), seq: 0, broken: false }
    }

    /// Makes the record of an event. Deltas are never stored, so they have the number of the record before them.
    pub(in crate::session) fn record(&mut self, event: Event, fact: Option<u64>, t: String, run: &str) -> Record {
        if !matches!(event, Event::ModelDelta { .. }) {
            self.seq += 1;
        }
        let (run, session) = (run.to_owned(), self.session.clone());
        Record { v: EVENT_VERSION, seq: self.seq, t, run, session, fact, event }
    }

    /// Takes a record into the file's buffer.
    pub(in crate::session) fn write(&mut self, record: &Record) -> Result<(), SessionError> {
        if self.broken || matches!(record.event, Event::ModelDelta { .. }) {
            return Ok(());
        }
        let start = self.buffer.len();
        if let Err(error) = encode(record, &mut self.buffer) {
            self.buffer.truncate(start);
            return Err(SessionError::Io { what: "encode an event for", file: self.path.clone(), error });
        }
        if self.buffer.len() > MOST_BUFFERED_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes what is buffered. The error is reported once; after it the file is left alone.
    pub(in crate::session) fn flush(&mut self) -> Result<(), SessionError> {
        if self.buffer.is_empty() || self.broken {
            return Ok(());
        }
        let written = self.write_buffer();
        self.buffer.clear();
        self.broken = written.is_err();
        written.map_err(SessionError::io("write", &self.path))
    }

    fn write_buffer(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let open = || OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path);
                none.insert(with_rights(&self.path, open)?)
            }
        };
        file.write_all(&self.buffer)
    }

    /// Opens the stream of a session whose log holds `lines`: a torn end is cut, missing records are added, and a
    /// file that does not follow the log is written anew (then without the events that have no fact). Says in
    /// `notes` what was done. `run` names the records of facts before the log's first `run`, should it have none.
    pub(in crate::session) fn catch_up(
        dir: &Path,
        session: &str,
        run: &str,
        lines: &[Line],
        notes: &mut Vec<String>,
    ) -> Result<(Events, DeriveState), SessionError> {
        let mut events = Events::new(dir, session);
        let last_fact = lines.len() as u64;
        let standing = match Standing::of(&events.path, last_fact) {
            Ok(standing) => standing,
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(SessionError::Io { what: "read", file: events.path, error }),
        };
        let rebuild = standing.is_none();
        let standing = standing.unwrap_or_default();
        events.seq = standing.seq;
        let mut state = DeriveState::default();
        let mut runs = Runs::new(run);
        for (index, line) in lines.iter().enumerate() {
            let run = runs.at(&lines[index..]);
            let derived = derive(line, &mut state);
            let have = match line.seq.cmp(&standing.fact) {
                std::cmp::Ordering::Less => continue,
                std::cmp::Ordering::Equal => standing.of_fact,
                std::cmp::Ordering::Greater => 0,
            };
            for event in derived.into_iter().skip(have) {
                let record = events.record(event, Some(line.seq), line.t.clone(), run);
                encode(&record, &mut events.buffer).map_err(SessionError::io("encode an event for", &events.path))?;
            }
        }
        if rebuild {
            if !events.buffer.is_empty() {
                write_whole(&events.path, &events.buffer, false)?;
                events.buffer.clear();
                notes.push(format!("`{EVENTS_FILE}` was rebuilt from the log"));
            }
        } else {
            let cut = OpenOptions::new().write(true).open(&events.path).and_then(|file| file.set_len(standing.bytes));
            cut.map_err(SessionError::io("cut", &events.path))?;
            events.flush()?;
        }
        Ok((events, state))
    }
}

fn encode(record: &Record, out: &mut Vec<u8>) -> io::Result<()> {
    serde_json::to_writer(&mut *out, record)?;
    out.push(b'\n');
    Ok(())
}

/// Where an existing file stands.
#[derive(Default)]
struct Standing {
    /// Of its last whole record.
    seq: u64,
    /// The last fact that any of them derives from, and how many of them do.
    fact: u64,
    of_fact: usize,
    /// Of whole records.
    bytes: u64,
}

impl Standing {
    /// `None` when the file cannot be the stream of a log with so many facts.
    fn of(path: &Path, last_fact: u64) -> io::Result<Option<Standing>> {
        #[derive(Deserialize)]
        struct Numbers {
            seq: u64,
            #[serde(default)]
            fact: Option<u64>,
        }
        let mut reader = LineReader::open(path)?;
        let mut standing = Standing::default();
        while let Some(text) = reader.next_whole()? {
            let Ok(Numbers { seq, fact }) = serde_json::from_slice(text) else { return Ok(None) };
            if seq != standing.seq + 1 {
                return Ok(None);
            }
            standing.seq = seq;
            match fact {
                Some(fact) if fact < standing.fact || fact > last_fact => return Ok(None),
                Some(fact) if fact == standing.fact => standing.of_fact += 1,
                Some(fact) => (standing.fact, standing.of_fact) = (fact, 1),
                None => {}
            }
        }
        standing.bytes = reader.whole_bytes;
        Ok(Some(standing))
    }
}

/// To which run a fact belongs: the one whose `run` fact came last; after its `end`, and at the start, the next one.
struct Runs {
    current: String,
    ended: bool,
}

impl Runs {
    fn new(fallback: &str) -> Runs {
        Runs { current: fallback.to_owned(), ended: true }
    }

    /// `rest` begins with the fact in question; to be asked for each in order.
    fn at(&mut self, rest: &[Line]) -> &str {
        let next = rest.iter().take(if self.ended { rest.len() } else { 1 });
        let next = next.filter_map(|line| match &line.fact {
            Fact::Run(run) => Some(&run.run),
            _ => None,
        });
        if let Some(run) = { next }.next() {
            self.current.clone_from(run);
        }
        self.ended = matches!(rest.first(), Some(Line { fact: Fact::End(_), .. }));
        &self.current
    }
}
