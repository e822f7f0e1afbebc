//! What arrived of one response: the bytes for the wire log, and what they are charged.

use super::error::ModelError;
use super::ledger::Reservation;
use super::reply::{Partial, Reply};
use super::wire::Decoder;
use crate::event::{CostKnown, Usage};
use crate::world::TransportError;

/// What arrived of one response, also when the exchange was dropped in the middle.
#[derive(Default)]
pub(super) struct Taken {
    pub status: Option<u16>,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The offsets at which network reads began.
    pub reads: Vec<u64>,
    /// Of a 2xx response.
    pub decoder: Option<Decoder>,
    /// What had been said when the decoder was asked for the reply.
    said: Option<Partial>,
    lost: Option<&'static str>,
}

impl Taken {
    /// The connection failed.
    pub fn failed(&mut self, error: &TransportError) -> ModelError {
        self.lost = Some(match error {
            TransportError::Connect(_) | TransportError::Unsendable(_) | TransportError::Refused(_) => "connect",
            TransportError::Timeout => "timeout",
            TransportError::Reset(_) | TransportError::Miss(_) => "reset",
        });
        match error {
            TransportError::Connect(text) | TransportError::Reset(text) => ModelError::Network(text.clone()),
            TransportError::Unsendable(text) | TransportError::Refused(text) => {
                ModelError::InvalidRequest(text.clone())
            }
            TransportError::Timeout => ModelError::Timeout("the connection".to_owned()),
            TransportError::Miss(text) => ModelError::Miss(text.clone()),
        }
    }

    /// How the exchange ended, as the wire log names it.
    pub fn end(&self, error: &ModelError) -> &'static str {
        match (self.lost, error) {
            (Some(lost), _) => lost,
            (None, ModelError::Timeout(_)) => "timeout",
            (None, _) => "eof",
        }
    }

    /// The reply, or why it is none; `None` for a response that is not 2xx.
    pub fn reply(&mut self) -> Option<Result<Reply, ModelError>> {
        let decoder = self.decoder.as_mut()?;
        self.said = Some(decoder.partial());
        Some(decoder.finish())
    }

    /// What had been decoded.
    pub fn partial(&self) -> Partial {
        let now = || self.decoder.as_ref().map(Decoder::partial);
        self.said.clone().or_else(now).unwrap_or_default()
    }

    /// What a response that did not become a reported reply is charged: nothing before a 2xx stream began, else
    /// the input and the received output at their upper bound. `reported` is what a whole reply said, if anything.
    pub fn bill(
        &self,
        input_tokens: u64,
        reservation: &Reservation,
        reported: Option<&Usage>,
    ) -> Option<(Usage, CostKnown)> {
        let began = self.status.is_some_and(|status| (200..300).contains(&status));
        if !began || self.body.is_empty() {
            return None;
        }
        let partial = self.partial();
        let received = partial.output_bytes.min(reservation.max_output_tokens);
        let known = reported.or(partial.usage.as_ref()).cloned().unwrap_or_default();
        let mut usage = Usage { output_tokens: known.output_tokens.max(received), ..known };
        if usage.input_tokens == 0 {
            usage.input_tokens = input_tokens.max(reservation.tokens.saturating_sub(reservation.max_output_tokens));
        }
        Some((usage, CostKnown::UpperBound))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Micros;

    const RESERVATION: Reservation = Reservation { max_output_tokens: 100, cost: Micros(1), tokens: 1_500 };

    fn taken(status: Option<u16>, body: &[u8]) -> Taken {
        Taken { status, body: body.to_vec(), ..Taken::default() }
    }

    #[test]
    fn what_never_began_costs_nothing() {
        for taken in [taken(None, b""), taken(Some(200), b""), taken(Some(500), b"oh"), taken(Some(429), b"{}")] {
            assert_eq!(taken.bill(1_000, &RESERVATION, None), None);
        }
    }

    #[test]
    fn a_report_without_input_is_charged_its_upper_bound() {
        let nothing = Usage { output_tokens: 7, ..Usage::default() };
        let (usage, known) = taken(Some(200), b"x").bill(1_000, &RESERVATION, Some(&nothing)).expect("it began");
        assert_eq!((usage.input_tokens, usage.output_tokens, known), (1_400, 7, CostKnown::UpperBound));
    }
}
