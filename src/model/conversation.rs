//! A lane's growing request with what is known of its size: the part the provider has counted, and the estimate of
//! what was appended since.

use super::estimate::{Count, Factor};
use super::reply::Reply;
use super::request::Rest;
use super::wire::Wire;
use crate::session::{Block, Message};

/// A full body stands in the wire log at least once in so many calls.
const FULL_EVERY: u64 = 50;

#[derive(Debug, Clone)]
pub struct Conversation {
    rest: Rest,
    factor: Factor,
    /// Input and output tokens as last reported, and the count of bytes that they cover.
    reported_tokens: u64,
    reported: Count,
    /// The sealed length of the body that the wire log holds for this lane, and calls since a full one.
    logged: u64,
    since_full: u64,
}

impl Conversation {
    /// `head` is the exact start of the rest (`Wire::head`, or as frozen).
    pub fn new(wire: Wire, head: &str, factor: Factor) -> Conversation {
        Conversation {
            rest: Rest::new(wire, head),
            factor,
            reported_tokens: 0,
            reported: Count::default(),
            logged: 0,
            since_full: 0,
        }
    }

    /// Encodes and seals what was said since the last request.
    pub fn seal(&mut self, messages: &[Message]) {
        self.rest.seal(messages);
    }

    /// Begins anew behind the same head: the history was edited. What was reported of the old one counts no more,
    /// and the wire log gets a whole body.
    pub fn restart(&mut self) {
        self.rest = self.rest.restart();
        (self.reported_tokens, self.reported) = (0, Count::default());
        (self.logged, self.since_full) = (0, 0);
    }

    /// What is sealed is taken to be as large as the estimate says: the factor was learnt from nearly the same text.
    pub fn trust(&mut self) {
        self.reported_tokens = self.estimate_tokens();
        self.reported = self.rest.count();
    }

    pub const fn set_factor(&mut self, factor: Factor) {
        self.factor = factor;
    }

    /// The estimate of the whole request, whatever was reported: what comparisons before and after an edit go by.
    pub fn estimate_tokens(&self) -> u64 {
        self.factor.apply(self.rest.count().tokens())
    }

    pub const fn rest(&self) -> &Rest {
        &self.rest
    }

    pub const fn factor(&self) -> Factor {
        self.factor
    }

    /// Tokens that are only estimated: what was appended since the last report.
    pub fn estimated_tokens(&self) -> u64 {
        self.factor.apply(self.rest.count().minus(self.reported).tokens())
    }

    /// Tokens in the window if the request were sent now.
    pub fn occupancy_tokens(&self) -> u64 {
        self.reported_tokens + self.estimated_tokens()
    }

    /// A whole reply came: what it reported is known from now on.
    pub fn replied(&mut self, reply: &Reply) {
        let Some(usage) = reply.usage.as_ref().filter(|usage| usage.input_tokens > 0) else { return };
        self.factor = self.factor.learn(self.rest.count().tokens(), usage.input_tokens);
        self.reported_tokens = usage.total_tokens();
        self.reported = self.rest.count().plus(said(&reply.blocks));
    }

    /// On resume: the report of the last whole reply, whose blocks are not sealed yet (`pending`) or are.
    pub fn restore(&mut self, reported_tokens: u64, pending: Option<&[Block]>, factor: Factor) {
        self.factor = factor;
        self.reported_tokens = reported_tokens;
        self.reported = self.rest.count().plus(pending.map_or(Count::default(), said));
    }

    /// How the body stands in the wire log: the first `keep` bytes of the lane's previous one, then `add`.
    pub fn next_wire(&mut self) -> (u64, Vec<u8>) {
        let keep = if self.since_full >= FULL_EVERY { 0 } else { self.logged };
        self.since_full = if keep == 0 { 1 } else { self.since_full + 1 };
        self.logged = self.rest.sealed_len();
        (keep, self.rest.bytes_from(keep))
    }
}

/// A message as it will stand in a request, near enough; additive, so that a history need not be counted again.
pub fn message_count(message: &Message) -> Count {
    // Names, quotes and braces of a wire.
    let frame = Count::of_tokens(24);
    frame.plus(match message {
        Message::User { text, .. } | Message::Operator { text } => Count::of_text(text),
        Message::Tool { call_id, text, .. } => Count::of(call_id.as_bytes()).plus(Count::of_text(text)),
        Message::Assistant { refused: Some(_), .. } => Count::default(),
        Message::Assistant { blocks, .. } => blocks.iter().fold(Count::default(), |count, block| {
            let block = match block {
                Block::Text { text } => Count::of_text(text),
                Block::Call { id, name, arguments } => Count::of_tokens(24)
                    .plus(Count::of(id.as_bytes()))
                    .plus(Count::of(name.as_bytes()))
                    .plus(Count::of(arguments.as_bytes())),
                Block::Thinking { raw: Some(raw), .. } | Block::Raw { raw } => Count::of(raw.as_bytes()),
                Block::Thinking { raw: None, .. } => Count::default(),
            };
            count.plus(block)
        }),
    })
}

/// The bytes of a reply as they will come back in the next request, near enough: its output was reported.
fn said(blocks: &[Block]) -> Count {
    blocks.iter().fold(Count::default(), |count, block| {
        count.plus(match block {
            Block::Text { text } => Count::of(text.as_bytes()),
            Block::Call { name, arguments, .. } => Count::of(name.as_bytes()).plus(Count::of(arguments.as_bytes())),
            Block::Thinking { raw: Some(raw), .. } | Block::Raw { raw } => Count::of(raw.as_bytes()),
            Block::Thinking { raw: None, .. } => Count::default(),
        })
    })
}
