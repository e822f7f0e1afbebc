//! The part of decoding that all wires share: telling events from a whole JSON body, the end of the stream, and
//! that nothing is read after an error.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::error::ModelError;
use super::super::reply::{Delta, Partial, Reply, Stop};
use super::json::{self, Str};
use super::sse::{Event, Parser, TooLong};
use crate::event::Usage;
use crate::session::Block;

/// Most bytes of a body that is not streamed.
const MAX_BODY_BYTES: usize = 64 << 20;

/// Most blocks of a reply that is streamed: what a delta means is looked for among them.
const MAX_BLOCKS: usize = 4_096;

/// What is particular to a wire.
pub(super) trait Reader: Default {
    /// Takes one event.
    fn event(&mut self, event: Event<'_>, deltas: &mut Vec<Delta>) -> Result<(), ModelError>;

    /// How many blocks, calls and whatever else deltas are looked up among have begun.
    fn blocks(&self) -> usize;

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
        self.parser.push(chunk, |event| {
            reader.event(event, deltas)?;
            if reader.blocks() > MAX_BLOCKS {
                return Err(ModelError::Malformed(format!("a reply of more than {MAX_BLOCKS} blocks")));
            }
            Ok(())
        })
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
fn malformed(error: &serde_json::Error, data: &[u8]) -> ModelError {
    let start = String::from_utf8_lossy(&data[..data.len().min(160)]);
    let start: String = start.chars().filter(|c| !c.is_control()).take(80).collect();
    ModelError::Malformed(format!("{error}, in `{start}`"))
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

/// Reads a whole body, which may also have been cut off.
pub(super) fn whole<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ModelError> {
    serde_json::from_slice(body).map_err(|error| match error.is_eof() {
        true => ModelError::Truncated,
        false => malformed(&error, body),
    })
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

/// What a provider tells of a reply beside its blocks.
#[derive(Default)]
pub(super) struct Told {
    pub usage: Option<Usage>,
    model: Option<String>,
    input_transformations: Option<String>,
    /// Of text, thinking and arguments.
    pub output_bytes: u64,
}

impl Told {
    /// The last name counts; many servers repeat it with each event.
    pub fn named(&mut self, model: Option<&str>) {
        if let Some(model) = model.filter(|model| !model.is_empty() && self.model.as_deref() != Some(model)) {
            self.model = Some(model.to_owned());
        }
    }

    pub fn transformed(&mut self, what: Option<&RawValue>) {
        if let Some(what) = what.filter(|what| !json::is_hollow(what)) {
            self.input_transformations = Some(what.get().to_owned());
        }
    }

    /// The reply, by the last rules that all wires share: a refused one has no calls, each call has its own id, and
    /// one that has calls asks for tools whatever the server says.
    pub fn reply(&mut self, mut blocks: Vec<Block>, mut stop: Stop) -> Reply {
        if matches!(stop, Stop::Refused(_)) {
            blocks.retain(|block| !matches!(block, Block::Call { .. }));
        }
        let calls = own_ids(&mut blocks);
        if calls > 0 && stop == Stop::End {
            stop = Stop::ToolUse;
        }
        Reply {
            blocks,
            stop,
            usage: self.usage.take(),
            model: self.model.take(),
            input_transformations: self.input_transformations.take(),
        }
    }

    pub fn partial(&self, text: String) -> Partial {
        Partial { text, usage: self.usage.clone(), output_bytes: self.output_bytes }
    }
}

/// Gives an id to each call that has none or another's; returns how many calls there are.
fn own_ids(blocks: &mut [Block]) -> u64 {
    let mut used = BTreeSet::new();
    let mut n = 0u64;
    for block in blocks {
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
    n
}

/// Whether [`own_ids`] gave a call its id, because the server had given none.
pub(super) fn is_made_up(id: &str) -> bool {
    id.strip_prefix("call_").is_some_and(|n| !n.is_empty() && n.len() <= 6 && n.bytes().all(|b| b.is_ascii_digit()))
}
