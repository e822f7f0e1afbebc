//! One call of the summarizer: within its window, its attempts and its waits.

use std::ops::Range;
use std::time::Duration;

use super::compactor::{Compactor, Place};
use super::summarize::{SYSTEM, read, request};
use crate::event::Lane;
use crate::model::{Ask, CallError, Conversation, Endpoint, Factor, ModelError, Patience, smaller_window};
use crate::session::{Message, Origin};

/// Attempts and waits of one summarizer call.
const PATIENCE: Patience = Patience { attempts: 3, wait: Duration::from_secs(60) };
/// A summary is no longer than this.
const MOST_SUMMARY_TOKENS: u64 = 8_192;

/// The head of every summarizer request.
pub fn head(endpoint: &Endpoint) -> String {
    endpoint.wire.head(SYSTEM, &[])
}

impl Compactor {
    /// The endpoint that is asked, and what is known of how its model counts: what its own calls have taught, else,
    /// where the agent has the same model, what the agent's have.
    fn asked_endpoint(&self, place: &Place<'_>) -> (Endpoint, Factor) {
        let mut endpoint = self.summarizer.clone();
        let same = (endpoint.provider.as_str(), endpoint.model.as_str())
            == (place.endpoint.provider.as_str(), place.endpoint.model.as_str());
        if same {
            endpoint.window_tokens = endpoint.window_tokens.min(place.endpoint.window_tokens);
        }
        let factor = match place.gateway.learned_factor(Lane::Summarizer) {
            Some(factor) => factor,
            None if same => place.conversation.factor(),
            None => Factor::default(),
        };
        (endpoint, factor)
    }

    /// Asks the summarizer about a span: its summary, or why there is none.
    pub(super) async fn ask(
        &mut self,
        place: &Place<'_>,
        span: Range<usize>,
        focus: &str,
    ) -> Result<Result<String, String>, CallError> {
        let (mut endpoint, factor) = self.asked_endpoint(place);
        let window = endpoint.window_tokens;
        let output = MOST_SUMMARY_TOKENS.min(endpoint.max_output_tokens).min(window / 4);
        endpoint.max_output_tokens = output;
        // What is only estimated has a margin of two fifths.
        let room = (window - window.div_ceil(50)).saturating_sub(output) * 5 / 7;
        let mut conversation = Conversation::new(endpoint.wire, &self.head, factor);
        let budget = (room * 19 / 20).saturating_sub(conversation.estimate_tokens());
        let text = request(place.history, span, budget, factor, focus);
        conversation.seal(&[Message::User { origin: Origin::Prompt, text }]);
        let ask = Ask {
            lane: Lane::Summarizer,
            endpoint: &endpoint,
            force_tool: None,
            attempt_timeout: None,
            entry: false,
            patience: Some(PATIENCE),
        };
        match place.gateway.call(&mut conversation, &ask).await {
            Ok(reply) => Ok(read(&reply)),
            // A limit, a signal, a cancel or a miss of the tape is no failure of the summarizer.
            Err(
                error @ (CallError::Limit(_)
                | CallError::Halted { .. }
                | CallError::Session(_)
                | CallError::Model(ModelError::Miss(_))),
            ) => Err(error),
            Err(error) => {
                // The next try is made to fit what this one has taught.
                if let CallError::Model(ModelError::ContextOverflow { limit_tokens, .. }) = &error {
                    self.summarizer.window_tokens = smaller_window(*limit_tokens, window).unwrap_or(window / 2);
                }
                Ok(Err(error.to_string()))
            }
        }
    }
}
