//! What a call may cost at most: reserved before it leaves.

use super::super::catalog::Endpoint;
use super::super::conversation::Conversation;
use super::super::ledger::{Ledger, Reservation, caps};
use super::{Ask, CallError, Gateway};
use crate::session::Call;

/// A smaller window than this is a number that stood in an error for another reason.
const LEAST_WINDOW_TOKENS: u64 = 256;

/// A reply counts for a few more tokens when it is sent back than were reported for it: its calls get names and ids.
const REPLY_TOKENS: u64 = 64;

impl Gateway {
    pub(super) fn reserve(&self, conversation: &Conversation, ask: &Ask<'_>) -> Result<(Call, Reservation), CallError> {
        let endpoint = ask.endpoint;
        let ledger = self.ledger.borrow();
        let reservation = reservation(&ledger, conversation, endpoint)?;
        let call = Call {
            lane: ask.lane,
            n: ledger.next_n(ask.lane),
            model: endpoint.name(),
            digest: conversation.rest().digest(),
            rest_bytes: conversation.rest().len(),
            estimate_tokens: conversation.occupancy_tokens(),
            max_output_tokens: reservation.max_output_tokens,
            reserved: reservation.cost,
            reserved_tokens: reservation.tokens,
        };
        Ok((call, reservation))
    }
}

/// The window that an overflow has taught, when that is a smaller one than the known.
pub fn smaller_window(limit_tokens: Option<u64>, known_tokens: u64) -> Option<u64> {
    limit_tokens.filter(|limit| (LEAST_WINDOW_TOKENS..known_tokens).contains(limit))
}

/// What a call would reserve: the largest output cap for which the window has room and the limits leave money.
///
/// # Errors
/// `NoRoom` and `Limit`.
pub fn reservation(
    ledger: &Ledger,
    conversation: &Conversation,
    endpoint: &Endpoint,
) -> Result<Reservation, CallError> {
    let window = endpoint.window_tokens;
    let occupancy = conversation.occupancy_tokens();
    let uncertain = conversation.estimated_tokens().saturating_mul(2) / 5;
    let room = window.saturating_sub(occupancy).saturating_sub(uncertain).saturating_sub(window / 50);
    let least_room = (window / 8).min(8_192) / 2;
    let caps = caps(endpoint.max_output_tokens, room);
    if caps.is_empty() || room < least_room {
        return Err(CallError::NoRoom { occupancy_tokens: occupancy, window_tokens: window });
    }
    let most = occupancy.saturating_add(uncertain).saturating_add(REPLY_TOKENS);
    ledger.reserve(endpoint, most, &caps).map_err(CallError::Limit)
}
