//! A lane's growing request with what is known of its size: the part the provider has counted, and the estimate of
//! what was appended since.

use bytes::Bytes;

use super::estimate::{Count, Factor};
use super::request::Rest;
use super::wire::Wire;
use crate::event::Usage;
use crate::session::{Block, Message};

/// A full body stands in the wire log at least once in so many calls.
const FULL_EVERY: u64 = 50;

/// A request must have grown by so many estimated tokens before its report says anything about truncation.
const GROWN_TOKENS: u64 = 1_000;
/// So many reports in a row that did not grow with the request mean that the server cuts it.
const CUT_REPORTS: u32 = 2;

#[derive(Debug, Clone)]
pub struct Conversation {
    rest: Rest,
    factor: Factor,
    /// Input and output tokens as last reported, and the count of bytes that they cover.
    reported_tokens: u64,
    reported: Count,
    /// The last request that was reported on: its count, and the input reported for it.
    last: Option<(Count, u64)>,
    /// Reports in a row that did not grow as the request did.
    unmoved: u32,
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
            last: None,
            unmoved: 0,
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
        (self.last, self.unmoved) = (None, 0);
        (self.logged, self.since_full) = (0, 0);
    }

    /// What is sealed is taken to be as large as the estimate says: the factor was learnt from nearly the same text.
    pub fn trust(&mut self) {
        self.reported_tokens = self.estimate_tokens();
        self.reported = self.rest.count();
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

    /// As a log says that it stood, or an overflow has taught.
    pub const fn set_factor(&mut self, factor: Factor) {
        self.factor = factor;
    }

    /// Tokens that are only estimated: what was appended since the last report.
    pub fn estimated_tokens(&self) -> u64 {
        self.factor.apply(self.rest.count().minus(self.reported).tokens())
    }

    /// Tokens in the window if the request were sent now.
    pub fn occupancy_tokens(&self) -> u64 {
        self.reported_tokens.saturating_add(self.estimated_tokens())
    }

    /// What the provider reported for everything sealed so far, with a whole reply of these `blocks`. Live and on
    /// resume, for each call in order.
    pub fn replied(&mut self, usage: &Usage, blocks: &[Block]) {
        if usage.input_tokens == 0 {
            // No request is that short: this server does not count.
            return;
        }
        let count = self.rest.count();
        self.look_for_cuts(count, usage.input_tokens);
        self.factor = self.factor.learn(count.tokens(), usage.input_tokens);
        self.reported_tokens = usage.total_tokens();
        self.reported = count.plus(said(blocks));
    }

    /// A server that cuts what does not fit goes on reporting the same input however much the request grows.
    fn look_for_cuts(&mut self, count: Count, input_tokens: u64) {
        if let Some((last, reported)) = self.last.replace((count, input_tokens)) {
            let grown = self.factor.apply(count.minus(last).tokens());
            if grown >= GROWN_TOKENS {
                let moved = input_tokens.saturating_sub(reported).saturating_mul(4) >= grown;
                self.unmoved = if moved { 0 } else { self.unmoved + 1 };
            }
        }
    }

    /// The input that the server still takes in, when it silently leaves out what is more than that.
    pub fn truncated_at(&self) -> Option<u64> {
        self.last.filter(|_| self.unmoved >= CUT_REPORTS).map(|(_, reported)| reported)
    }

    /// How the body stands in the wire log: the first `keep` bytes of the lane's previous one, then these parts.
    pub fn next_wire(&mut self) -> (u64, Vec<Bytes>) {
        let keep = if self.since_full >= FULL_EVERY { 0 } else { self.logged };
        self.since_full = if keep == 0 { 1 } else { self.since_full + 1 };
        self.logged = self.rest.sealed_len();
        (keep, self.rest.parts_from(keep))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Origin;

    /// A conversation to which requests of so many bytes more are added, each reported with that input.
    fn reports(steps: &[(usize, u64)]) -> Conversation {
        let mut conversation = Conversation::new(Wire::Anthropic, "{", Factor::default());
        for (more, input_tokens) in steps {
            conversation.seal(&[Message::User { origin: Origin::Goal, text: "x".repeat(*more) }]);
            conversation.replied(&Usage { input_tokens: *input_tokens, ..Usage::default() }, &[]);
        }
        conversation
    }

    // An «x» is a quarter of a token.
    #[test]
    fn a_report_that_stands_still_twice_while_the_request_grows_is_a_cut() {
        assert_eq!(reports(&[(8_000, 2_000), (8_000, 2_000)]).truncated_at(), None);
        assert_eq!(reports(&[(8_000, 2_000), (8_000, 2_000), (8_000, 2_000)]).truncated_at(), Some(2_000));
        // A quarter of the growth is enough.
        assert_eq!(reports(&[(8_000, 2_000), (8_000, 2_600), (8_000, 3_200)]).truncated_at(), None);
        // One that moved between them counts anew.
        assert_eq!(reports(&[(8_000, 2_000), (8_000, 2_000), (8_000, 4_000), (8_000, 4_000)]).truncated_at(), None);
        // Little growth says nothing, neither way.
        let little = [(8_000, 2_000), (400, 2_000), (400, 2_000), (400, 2_000)];
        assert_eq!(reports(&little).truncated_at(), None);
        assert!(reports(&[(8_000, 2_000), (8_000, 2_000), (400, 2_000), (8_000, 2_000)]).truncated_at().is_some());
    }

    #[test]
    fn a_server_that_reports_nothing_leaves_the_estimate() {
        let silent = reports(&[(8_000, 0), (8_000, 0), (8_000, 0)]);
        assert_eq!(silent.truncated_at(), None);
        assert!((6_000..6_200).contains(&silent.occupancy_tokens()), "{}", silent.occupancy_tokens());
        assert_eq!(silent.estimated_tokens(), silent.occupancy_tokens());
    }

    #[test]
    fn an_absurd_report_overflows_nothing() {
        let absurd = reports(&[(8_000, u64::MAX), (8_000, u64::MAX)]);
        assert_eq!(absurd.occupancy_tokens(), u64::MAX);
        assert_eq!(absurd.factor(), Factor::default());
    }
}
