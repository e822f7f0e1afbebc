//! The part of decoding that all wires share: telling events from a whole JSON body, the end of the stream, and
//! that nothing is read after an error.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::error::ModelError;
use super::super::reply::{Delta, Partial, Reply, Stop};
use super::json::Str;
use super::sse::{Event, Parser, TooLong};
use crate::session::Block;

/// Most bytes of a body that is not streamed.
const MAX_BODY_BYTES: usize = 64 << 20;

/// What is particular to a wire.
pub(super) trait Reader: Default {
    /// Takes one event.
    fn event(&mut self, event: Event<'_>, deltas: &mut Vec<Delta>) -> Result<(), ModelError>;

    /// Takes a whole JSON body, from a server that does not stream.
    fn whole(&mut self, body: &[u8]) -> Result<(), ModelError>;

    /// The signal that ends a reply was seen.
    fn terminal(&self) -> bool;

    fn reply(&mut self) -> Result<Reply, ModelError>;

    fn partial(&self) -> Partial;
}

#[derive(Default, PartialEq)]
enum Mode {
    #[default]
    Unknown,
    Events,
    Whole,
}

/// Decodes one response of a wire.
#[derive(Default)]
pub(super) struct Stream<R> {
    mode: Mode,
    parser: Parser,
    /// Bytes before the mode is known, then those of a whole body.
    body: Vec<u8>,
    reader: R,
    failed: Option<ModelError>,
}

impl<R: Reader> Stream<R> {
    pub fn push(&mut self, chunk: &[u8], deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = self.take(chunk, deltas);
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }

    fn take(&mut self, chunk: &[u8], deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        match self.mode {
            Mode::Events => self.events(chunk, deltas),
            Mode::Whole => self.grow(chunk, deltas),
            Mode::Unknown => {
                // White space and a byte order mark may stand before either.
                match chunk.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0xEF | 0xBB | 0xBF)) {
                    None => self.grow(chunk, &mut Vec::new()),
                    Some(b'{') => {
                        self.mode = Mode::Whole;
                        self.grow(chunk, deltas)
                    }
                    Some(b'<') => Err(ModelError::Malformed("a page of HTML instead of a reply".into())),
                    Some(_) => {
                        self.mode = Mode::Events;
                        let before = std::mem::take(&mut self.body);
                        self.events(&before, deltas)?;
                        self.events(chunk, deltas)
                    }
                }
            }
        }
    }

    fn events(&mut self, chunk: &[u8], deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let reader = &mut self.reader;
        self.parser.push(chunk, |event| reader.event(event, deltas))
    }

    fn grow(&mut self, chunk: &[u8], deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        if self.body.len() + chunk.len() > MAX_BODY_BYTES {
            return Err(TooLong.into());
        }
        self.body.extend_from_slice(chunk);
        if chunk.iter().any(|byte| !byte.is_ascii_whitespace()) {
            deltas.push(Delta::Other);
        }
        Ok(())
    }

    pub fn finish(&mut self) -> Result<Reply, ModelError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = self.end();
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }

    fn end(&mut self) -> Result<Reply, ModelError> {
        match self.mode {
            Mode::Unknown => return Err(ModelError::Truncated),
            Mode::Whole => {
                let body = std::mem::take(&mut self.body);
                self.reader.whole(body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&body))?;
            }
            Mode::Events => {
                if let Some(event) = self.parser.leftover() {
                    match self.reader.event(event, &mut Vec::new()) {
                        // The rest of the last event is missing.
                        Err(ModelError::Malformed(_)) | Ok(()) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        if self.reader.terminal() { self.reader.reply() } else { Err(ModelError::Truncated) }
    }

    pub fn partial(&self) -> Partial {
        let mut partial = self.reader.partial();
        if self.mode == Mode::Whole {
            partial.output_bytes += self.body.len() as u64;
        }
        partial
    }
}

impl From<TooLong> for ModelError {
    fn from(_: TooLong) -> ModelError {
        ModelError::Malformed("one event is longer than 64 MiB".into())
    }
}

/// A frame that is not JSON, or lacks the shape that is needed.
pub(super) fn malformed(error: &serde_json::Error, data: &[u8]) -> ModelError {
    let start = String::from_utf8_lossy(&data[..data.len().min(160)]);
    let start: String = start.chars().filter(|c| !c.is_control()).take(80).collect();
    ModelError::Malformed(format!("{error}, in `{start}`"))
}

/// The same for a whole body, which may also have been cut off.
pub(super) fn malformed_body(error: &serde_json::Error, body: &[u8]) -> ModelError {
    if error.is_eof() { ModelError::Truncated } else { malformed(error, body) }
}

/// Reads the data of one event.
pub(super) fn frame<'a, T: Deserialize<'a>>(data: &'a [u8]) -> Result<T, ModelError> {
    // One look at the encoding costs less than one for each string.
    let frame = match std::str::from_utf8(data) {
        Ok(text) => serde_json::from_str(text),
        // It may stand where nobody reads.
        Err(_) => serde_json::from_slice(data),
    };
    frame.map_err(|error| malformed(&error, data))
}

/// Reads a part of a frame.
pub(super) fn read<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Result<T, ModelError> {
    serde_json::from_str(raw.get()).map_err(|error| malformed(&error, raw.get().as_bytes()))
}

/// The same for a string.
pub(super) fn text(raw: &RawValue) -> Result<Cow<'_, str>, ModelError> {
    read::<Str<'_>>(raw).map(|text| text.0)
}

/// A field that the frame must have.
pub(super) fn need<'a>(raw: Option<&'a RawValue>, name: &str, data: &[u8]) -> Result<&'a RawValue, ModelError> {
    raw.ok_or_else(|| {
        let start = String::from_utf8_lossy(&data[..data.len().min(80)]);
        ModelError::Malformed(format!("`{name}` is missing, in `{start}`"))
    })
}

/// The last rules that all wires share: a refused reply has no calls, each call has its own id, and a reply that
/// has calls asks for tools whatever the server says.
pub(super) fn settle(mut blocks: Vec<Block>, mut stop: Stop) -> (Vec<Block>, Stop) {
    if matches!(stop, Stop::Refused(_)) {
        blocks.retain(|block| !matches!(block, Block::Call { .. }));
    }
    let mut used = BTreeSet::new();
    let mut n = 0u64;
    for block in &mut blocks {
        let Block::Call { id, .. } = block else { continue };
        n += 1;
        if id.is_empty() || used.contains(id) {
            let mut free = n;
            *id = format!("call_{free}");
            while used.contains(id) {
                free += 1;
                *id = format!("call_{free}");
            }
        }
        used.insert(id.clone());
    }
    if n > 0 && stop == Stop::End {
        stop = Stop::ToolUse;
    }
    (blocks, stop)
}

/// Whether [`settle`] gave a call its id, because the server had given none.
pub(super) fn is_made_up(id: &str) -> bool {
    id.strip_prefix("call_").is_some_and(|n| !n.is_empty() && n.len() <= 6 && n.bytes().all(|b| b.is_ascii_digit()))
}
