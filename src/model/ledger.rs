//! The ledger: one for all lanes, folded from `call` and `settled` facts.
//!
//! A call reserves its upper bound before it leaves, and is settled with what it really cost. Invariant: no call
//! leaves whose reservation, added to what was spent, is above a limit; equal is allowed.

use std::collections::BTreeMap;

use super::catalog::Endpoint;
use crate::event::{CostKnown, Lane, Limits, Micros, UnsettledCall, Usage, UsageBy};
use crate::session::{Call, Settled};

/// The least output cap that a lowered reservation may leave, beside thinking.
pub const LEAST_OUTPUT_TOKENS: u64 = 8_192;

/// Which limit a reservation would break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hit {
    Cost,
    Tokens,
}

impl Hit {
    pub const fn key(self) -> &'static str {
        match self {
            Hit::Cost => "limits.cost",
            Hit::Tokens => "limits.tokens",
        }
    }
}

/// A reservation that fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    pub max_output_tokens: u64,
    pub cost: Micros,
    pub tokens: u64,
}

#[derive(Debug, Default)]
pub struct Ledger {
    cost_limit: Option<Micros>,
    token_limit: Option<u64>,
    spent: Micros,
    tokens: u64,
    calls: BTreeMap<Lane, u64>,
    by_lane: UsageBy,
    by_model: UsageBy,
    unreported: Vec<UnsettledCall>,
    peak_occupancy: u64,
}

impl Ledger {
    pub fn new(limits: &Limits) -> Ledger {
        Ledger { cost_limit: limits.cost, token_limit: limits.tokens, ..Ledger::default() }
    }

    /// From the calls of a session's log: settled ones at their cost, the others at their reservation.
    pub fn fold(limits: &Limits, calls: &[(Call, Option<Settled>)]) -> Ledger {
        let mut ledger = Ledger::new(limits);
        for (call, settled) in calls {
            ledger.count(call.lane);
            match settled {
                Some(settled) => ledger.settle(settled),
                None => ledger.charge_unsettled(call),
            }
        }
        ledger
    }

    /// The number of the lane's next call.
    pub fn next_n(&self, lane: Lane) -> u64 {
        self.calls.get(&lane).copied().unwrap_or(0) + 1
    }

    pub fn calls(&self, lane: Lane) -> u64 {
        self.calls.get(&lane).copied().unwrap_or(0)
    }

    pub fn all_calls(&self) -> u64 {
        self.calls.values().sum()
    }

    pub const fn spent(&self) -> Micros {
        self.spent
    }

    pub const fn tokens(&self) -> u64 {
        self.tokens
    }

    pub const fn peak_occupancy(&self) -> u64 {
        self.peak_occupancy
    }

    pub const fn by_lane(&self) -> &UsageBy {
        &self.by_lane
    }

    pub const fn by_model(&self) -> &UsageBy {
        &self.by_model
    }

    pub fn unreported(&self) -> &[UnsettledCall] {
        &self.unreported
    }

    /// The limit that what was spent is above, if any.
    pub fn over(&self) -> Option<Hit> {
        if self.cost_limit.is_some_and(|limit| self.spent > limit) {
            Some(Hit::Cost)
        } else if self.token_limit.is_some_and(|limit| self.tokens > limit) {
            Some(Hit::Tokens)
        } else {
            None
        }
    }

    /// Whether 90 % of the money or of the tokens is used.
    pub fn winding_down(&self) -> bool {
        let near = |used: u64, limit: u64| u128::from(used) * 10 >= u128::from(limit) * 9;
        self.cost_limit.is_some_and(|limit| limit.0 > 0 && near(self.spent.0, limit.0))
            || self.token_limit.is_some_and(|limit| limit > 0 && near(self.tokens, limit))
    }

    /// Reserves for a request of at most `input_tokens`, trying each output cap in turn (largest first).
    ///
    /// # Errors
    /// The limit that even the smallest cap would break.
    pub fn reserve(&self, endpoint: &Endpoint, input_tokens: u64, caps: &[u64]) -> Result<Reservation, Hit> {
        let mut hit = Hit::Cost;
        for &cap in caps {
            let cost = endpoint.price.as_ref().map_or(Micros::ZERO, |price| price.upper_bound(input_tokens, cap));
            let tokens = input_tokens.saturating_add(cap);
            match self.breaks(cost, tokens) {
                Some(broken) => hit = broken,
                None => return Ok(Reservation { max_output_tokens: cap, cost, tokens }),
            }
        }
        Err(hit)
    }

    /// The limit that so much more would break, if any. Equal is allowed.
    pub fn breaks(&self, cost: Micros, tokens: u64) -> Option<Hit> {
        if self.cost_limit.is_some_and(|limit| self.spent.saturating_add(cost) > limit) {
            Some(Hit::Cost)
        } else if self.token_limit.is_some_and(|limit| self.tokens.saturating_add(tokens) > limit) {
            Some(Hit::Tokens)
        } else {
            None
        }
    }

    /// A call was written to the log.
    pub fn count(&mut self, lane: Lane) {
        *self.calls.entry(lane).or_insert(0) += 1;
    }

    pub fn settle(&mut self, settled: &Settled) {
        self.spent = self.spent.saturating_add(settled.cost);
        self.tokens = self.tokens.saturating_add(settled.charged_tokens);
        if let Some(occupancy) = settled.occupancy_tokens {
            self.peak_occupancy = self.peak_occupancy.max(occupancy);
        }
        let usage = settled.usage.clone().unwrap_or_default();
        self.add(settled.lane, &settled.model, &usage, settled.cost);
        if settled.known == CostKnown::UpperBound {
            self.unreported.push(UnsettledCall {
                lane: settled.lane,
                n: settled.n,
                charged: unreported(settled),
                why: CostKnown::UpperBound,
            });
        }
    }

    fn charge_unsettled(&mut self, call: &Call) {
        self.spent = self.spent.saturating_add(call.reserved);
        self.tokens = self.tokens.saturating_add(call.reserved_tokens);
        self.add(call.lane, &call.model, &Usage::default(), call.reserved);
        self.unreported.push(UnsettledCall {
            lane: call.lane,
            n: call.n,
            charged: call.reserved,
            why: CostKnown::Reservation,
        });
    }

    fn add(&mut self, lane: Lane, model: &str, usage: &Usage, cost: Micros) {
        for (map, key) in [(&mut self.by_lane, lane.name()), (&mut self.by_model, model)] {
            let row = map.entry(key.to_owned()).or_default();
            row.calls += 1;
            row.usage.add(usage);
            row.cost = row.cost.saturating_add(cost);
        }
    }
}

/// What a call's attempts were charged without a report: those that failed after their reply had begun, and a reply
/// that says nothing of its size.
fn unreported(settled: &Settled) -> Micros {
    let replied = settled.reply_usage.as_ref().is_some_and(|usage| usage.input_tokens > 0);
    let attempts = settled.attempts.iter().filter(|attempt| attempt.error.is_some() || !replied);
    attempts.fold(Micros::ZERO, |sum, attempt| sum.saturating_add(attempt.cost))
}

/// The output caps to try, largest first: the model's maximum, its half, its quarter …, none above `room` (what the
/// window leaves) and none below the least that is useful. Empty when even that has no room.
pub fn caps(max_output_tokens: u64, room: u64) -> Vec<u64> {
    let least = LEAST_OUTPUT_TOKENS.min(max_output_tokens);
    let mut caps = Vec::new();
    let mut cap = max_output_tokens;
    while cap >= least && cap > 0 {
        if cap <= room {
            caps.push(cap);
        }
        cap /= 2;
    }
    if caps.is_empty() {
        // The window leaves less than the least: the largest step that fits, if it is worth a reply at all.
        while cap > room {
            cap /= 2;
        }
        if cap >= 256 {
            caps.push(cap);
        }
    }
    caps
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn caps_are_halves_within_the_room() {
        assert_eq!(caps(64_000, 200_000), [64_000, 32_000, 16_000]);
        assert_eq!(caps(64_000, 40_000), [32_000, 16_000]);
        assert_eq!(caps(8_192, 200_000), [8_192]);
        assert_eq!(caps(4_096, 200_000), [4_096]);
        assert_eq!(caps(8_192, 5_000), [4_096]);
        assert_eq!(caps(2_048, 600), [512]);
        assert_eq!(caps(8_192, 100), Vec::<u64>::new());
    }

    proptest! {
        #[test]
        fn every_cap_fits_and_is_a_halving(max in 1u64..200_000, room in 0u64..200_000) {
            for cap in caps(max, room) {
                prop_assert!(cap <= room && cap <= max);
                prop_assert!((0..18).any(|k| max >> k == cap));
            }
        }
    }
}
