//! What a wire's encoder is given, and the growing body of a lane's requests.
//!
//! A body is a *front* (model, limits, cache hints: may differ from call to call) and a *rest* (system, tools,
//! messages, closing brackets), which only grows by appending. Invariant: a sealed segment is never encoded,
//! hashed or counted again.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::estimate::Count;
use super::wire::Wire;
use crate::session::Message;

/// A tool as offered to the model.
#[derive(Debug, Clone, Serialize)]
pub struct ToolSchema {
    pub name: &'static str,
    pub description: String,
    /// A JSON Schema object, as the text that is sent.
    pub parameters: Box<RawValue>,
}

/// What may differ from call to call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Front<'a> {
    /// The model's id as the provider knows it.
    pub model: &'a str,
    pub max_output_tokens: u64,
    /// The one tool the model must call.
    pub force_tool: Option<&'a str>,
    pub reasoning_effort: Option<&'a str>,
    /// Top-level fields that the goal file adds, as `(name, JSON text)`. One wins over the wire's own field of that
    /// name; fields of the rest (`messages`, `tools`, on anthropic `system`) are left out.
    pub extra_body: &'a [(String, String)],
    /// The endpoint is the vendor's own, not a server that copies its API.
    pub native: bool,
    /// Steps take so long (> 4 min) that a cache entry of the short lifetime would be gone.
    pub slow_steps: bool,
}

/// The growing rest of a lane's request body.
#[derive(Debug, Clone)]
pub struct Rest {
    wire: Wire,
    /// Sealed: sent before, never touched again. The first segment is the head.
    sealed: Vec<Bytes>,
    sealed_bytes: u64,
    count: Count,
    hash: Sha256,
    /// Wire messages encoded so far.
    messages: u64,
}

impl Rest {
    /// Starts with the head's exact bytes (from `Wire::head`, or frozen in a session).
    pub fn new(wire: Wire, head: &str) -> Rest {
        let mut rest = Rest {
            wire,
            sealed: Vec::new(),
            sealed_bytes: 0,
            count: Count::default(),
            hash: Sha256::new(),
            messages: 0,
        };
        rest.push(Bytes::copy_from_slice(head.as_bytes()));
        rest
    }

    /// A new rest behind the same head.
    pub fn restart(&self) -> Rest {
        let mut rest = Rest::new(self.wire, "");
        rest.sealed.clear();
        // The head is the first segment there ever is.
        rest.push(self.sealed.first().cloned().unwrap_or_default());
        rest
    }

    fn push(&mut self, segment: Bytes) {
        self.hash.update(&segment);
        self.count = self.count.plus(Count::of(&segment));
        self.sealed_bytes += segment.len() as u64;
        self.sealed.push(segment);
    }

    /// Encodes what was said since the last request and seals it: it is part of every request from now on.
    pub fn seal(&mut self, messages: &[Message]) {
        let mut out = Vec::new();
        let added = self.wire.messages(messages, self.messages > 0, &mut out);
        self.messages += added;
        if !out.is_empty() {
            self.push(Bytes::from(out));
        }
    }

    /// sha256 (hex) of the rest as it would be sent now, closing brackets included.
    pub fn digest(&self) -> String {
        let mut hash = self.hash.clone();
        hash.update(self.wire.close().as_bytes());
        hex(&hash.finalize())
    }

    /// The estimator's count of what is sealed.
    pub const fn count(&self) -> Count {
        self.count
    }

    /// Bytes of the rest as it would be sent now.
    pub fn len(&self) -> u64 {
        self.sealed_bytes + self.wire.close().len() as u64
    }

    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Bytes up to the end of the last sealed message: what the next request will begin with.
    pub const fn sealed_len(&self) -> u64 {
        self.sealed_bytes
    }

    /// The whole body behind a front.
    pub fn body(&self, front: &[u8]) -> Vec<Bytes> {
        let mut segments = Vec::with_capacity(self.sealed.len() + 2);
        segments.push(Bytes::copy_from_slice(front));
        segments.extend(self.sealed.iter().cloned());
        segments.push(Bytes::from_static(self.wire.close().as_bytes()));
        segments
    }

    /// The bytes of the rest from `offset` on, for the wire log.
    pub fn bytes_from(&self, offset: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let mut at = 0u64;
        for segment in &self.sealed {
            let end = at + segment.len() as u64;
            if end > offset {
                let skip = offset.saturating_sub(at) as usize;
                out.extend_from_slice(&segment[skip..]);
            }
            at = end;
        }
        out.extend_from_slice(self.wire.close().as_bytes());
        out
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}
