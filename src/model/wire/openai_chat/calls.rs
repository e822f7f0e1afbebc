//! Tool calls out of deltas, from servers that agree on little: all calls on index 0, no index, no id, the same id
//! again, a new id with each piece, arguments before the name, a whole call at once.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::super::error::ModelError;
use super::super::json::{self, Str};
use crate::session::Block;

/// A piece of a call.
#[derive(Deserialize)]
pub(super) struct CallDelta<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    id: Option<Str<'a>>,
    #[serde(borrow)]
    function: Option<Function<'a>>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow)]
    name: Option<Str<'a>>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

#[derive(Default)]
struct Open {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    nesting: Nesting,
}

/// The calls of a reply, in the order begun.
#[derive(Default)]
pub(super) struct Calls(Vec<Open>);

impl Calls {
    /// Takes a piece; returns how many bytes of a call it brought.
    pub fn push(&mut self, delta: &CallDelta<'_>) -> usize {
        let id = delta.id.as_deref().unwrap_or_default();
        let (mut name, mut arguments) = ("", Cow::default());
        if let Some(function) = &delta.function {
            name = function.name.as_deref().unwrap_or_default();
            // Text as the API says; an object where a server sends it parsed.
            arguments = match function.arguments {
                Some(raw) => json::as_string(raw).unwrap_or(Cow::Borrowed(raw.get())),
                None => Cow::default(),
            };
        }
        let at = self.target(delta.index, id, name, &arguments).unwrap_or_else(|| {
            self.0.push(Open { index: delta.index, ..Open::default() });
            self.0.len() - 1
        });
        let call = &mut self.0[at];
        if call.id.is_empty() {
            call.id.push_str(id);
        }
        // A name comes whole, again with each piece, or (before any arguments) in pieces.
        if call.name != name && (call.name.is_empty() || call.arguments.is_empty()) {
            call.name.push_str(name);
        }
        call.nesting.feed(&arguments);
        call.arguments.push_str(&arguments);
        name.len() + arguments.len()
    }

    /// The call that a piece continues; `None` when it begins one.
    fn target(&self, index: Option<u64>, id: &str, name: &str, arguments: &str) -> Option<usize> {
        let at = match index {
            Some(_) => match self.0.iter().rposition(|call| call.index == index) {
                None if name.is_empty() && !id.is_empty() => self.0.iter().rposition(|call| call.id == id)?,
                found => found?,
            },
            None if !id.is_empty() => self.0.iter().rposition(|call| call.id == id)?,
            None => {
                let last = self.0.len().checked_sub(1)?;
                let unfinished = !self.0[last].arguments.is_empty() && !self.0[last].nesting.closed;
                if !name.is_empty() && !self.0[last].name.is_empty() && !unfinished {
                    return None;
                }
                last
            }
        };
        (!self.0[at].is_followed(id, name, arguments)).then_some(at)
    }

    /// The finished blocks.
    pub fn finish(self) -> Result<Vec<Block>, ModelError> {
        self.0
            .into_iter()
            .map(|call| {
                if call.name.is_empty() {
                    return Err(ModelError::Malformed("a tool call without a name".into()));
                }
                Ok(Block::Call { id: call.id, name: call.name, arguments: call.arguments })
            })
            .collect()
    }
}

impl Open {
    /// Whether a piece for the same place is not this call's but the next one's.
    fn is_followed(&self, id: &str, name: &str, arguments: &str) -> bool {
        let whole_and_more = self.nesting.closed && !arguments.trim().is_empty();
        if !id.is_empty() && !self.id.is_empty() && id != self.id {
            // Some servers give each piece a new id; those pieces have no name.
            return !name.is_empty() || whole_and_more;
        }
        let renamed = !name.is_empty() && !self.name.is_empty();
        renamed && (whole_and_more || (name != self.name && !self.arguments.is_empty()))
    }
}

/// Where in a JSON value its text stands, without parsing it again with each piece.
#[derive(Default)]
struct Nesting {
    depth: u64,
    string: bool,
    escaped: bool,
    /// The outermost object or list has ended.
    closed: bool,
}

impl Nesting {
    fn feed(&mut self, text: &str) {
        for byte in text.bytes() {
            if self.escaped {
                self.escaped = false;
            } else if self.string {
                match byte {
                    b'\\' => self.escaped = true,
                    b'"' => self.string = false,
                    _ => {}
                }
            } else {
                match byte {
                    b'"' => self.string = true,
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' => {
                        self.depth = self.depth.saturating_sub(1);
                        self.closed = self.depth == 0;
                    }
                    _ => {}
                }
            }
        }
    }
}
