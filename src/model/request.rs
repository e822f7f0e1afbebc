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

/// Segments are joined up to this length, so that no step has to copy much.
const JOIN_MOST_BYTES: usize = 64 << 10;

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
    /// Sealed: its bytes never change again. The first segment is the head.
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
        self.join();
    }

    /// Joins short segments at the end, as a binary counter carries: a long session keeps few of them (each costs a
    /// part of a system call with every request), and no byte is copied more often than the logarithm of their number.
    fn join(&mut self) {
        while let [_head, .., before, last] = self.sealed.as_slice()
            && before.len() <= last.len()
            && before.len() + last.len() <= JOIN_MOST_BYTES
        {
            let joined = Bytes::from([before.as_ref(), last].concat());
            self.sealed.truncate(self.sealed.len() - 2);
            self.sealed.push(joined);
        }
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

    /// The bytes of the rest from `offset` on, for the wire log; nothing is copied.
    pub fn parts_from(&self, offset: u64) -> Vec<Bytes> {
        let mut parts = Vec::new();
        let mut at = 0u64;
        for segment in &self.sealed {
            let end = at + segment.len() as u64;
            if end > offset {
                parts.push(segment.slice(offset.saturating_sub(at) as usize..));
            }
            at = end;
        }
        parts.push(Bytes::from_static(self.wire.close().as_bytes()));
        parts
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Origin;

    #[test]
    fn a_long_body_keeps_few_segments_and_every_byte() {
        let said = |n: usize| Message::User { origin: Origin::Goal, text: format!("step {n} {}", "x".repeat(n % 700)) };
        let mut rest = Rest::new(Wire::Anthropic, "HEAD[");
        let mut expected = b"HEAD[".to_vec();
        for n in 0..2_000 {
            let before = expected.len() as u64;
            Wire::Anthropic.messages(&[said(n)], n > 0, &mut expected);
            rest.seal(&[said(n)]);
            assert_eq!(rest.sealed_len(), expected.len() as u64);
            let mut news = expected[before as usize..].to_vec();
            news.extend_from_slice(b"]}");
            assert_eq!(rest.parts_from(before).concat(), news, "step {n}");
        }
        expected.extend_from_slice(b"]}");
        let body = rest.body(b"FRONT");
        assert_eq!(body[1], "HEAD[", "the head stays a segment of its own");
        assert_eq!(body[1..].concat(), expected);
        assert_eq!(rest.digest(), hex(&Sha256::digest(&expected)));
        let most = expected.len() / (JOIN_MOST_BYTES / 2) + 20;
        assert!(body.len() <= most, "{} segments of {} bytes", body.len(), expected.len());
    }
}
