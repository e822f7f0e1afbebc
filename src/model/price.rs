//! Prices: dollars per million tokens become integer micro-dollars per call.

use serde::{Deserialize, Serialize};

use crate::event::{Micros, Usage};

/// Prices of a model in micro-dollars per million tokens (so 3.00 dollars per million is 3,000,000).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    pub input: u64,
    pub output: u64,
    /// Absent: as input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<u64>,
    /// Absent: as input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<u64>,
    /// Absent: as `cache_write`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_1h: Option<u64>,
    /// Prices for requests whose whole input is above so many tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<Box<Tier>>,
}

/// A long-context tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tier {
    pub input_tokens: u64,
    pub price: Price,
}

impl Price {
    pub const FREE: Price =
        Price { input: 0, output: 0, cache_read: None, cache_write: None, cache_write_1h: None, above: None };

    /// The cost of reported usage, rounded up to the next micro-dollar.
    pub fn cost(&self, usage: &Usage) -> Micros {
        if let Some(tier) = &self.above
            && usage.input_tokens > tier.input_tokens
        {
            return tier.price.cost(usage);
        }
        // Saturating: the numbers are whatever a server reported.
        let cached = usage
            .cache_read_tokens
            .saturating_add(usage.cache_write_tokens)
            .saturating_add(usage.cache_write_1h_tokens);
        let plain = usage.input_tokens.saturating_sub(cached);
        let read = self.cache_read.unwrap_or(self.input);
        let write = self.cache_write.unwrap_or(self.input);
        let write_1h = self.cache_write_1h.unwrap_or(write);
        let total: u128 = [
            (plain, self.input),
            (usage.cache_read_tokens, read),
            (usage.cache_write_tokens, write),
            (usage.cache_write_1h_tokens, write_1h),
            (usage.output_tokens, self.output),
        ]
        .into_iter()
        .map(|(tokens, price)| u128::from(tokens) * u128::from(price))
        .fold(0, u128::saturating_add);
        Micros(u64::try_from(total.div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }

    /// The most that so many input and output tokens can cost: input at its dearest rate, in the dearest tier
    /// that the input may reach.
    pub fn upper_bound(&self, input_tokens: u64, output_tokens: u64) -> Micros {
        if let Some(tier) = &self.above
            && input_tokens > tier.input_tokens
        {
            return tier.price.upper_bound(input_tokens, output_tokens);
        }
        let write = self.cache_write.unwrap_or(self.input).max(self.cache_write_1h.unwrap_or(0));
        let dearest = self.input.max(write).max(self.cache_read.unwrap_or(0));
        let input = u128::from(input_tokens) * u128::from(dearest);
        let total = input.saturating_add(u128::from(output_tokens) * u128::from(self.output));
        Micros(u64::try_from(total.div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sonnet() -> Price {
        Price {
            input: 3_000_000,
            output: 15_000_000,
            cache_read: Some(300_000),
            cache_write: Some(3_750_000),
            cache_write_1h: Some(6_000_000),
            above: None,
        }
    }

    #[test]
    fn each_kind_of_token_has_its_price() {
        let usage = Usage {
            input_tokens: 10_000,
            output_tokens: 1_000,
            cache_read_tokens: 6_000,
            cache_write_tokens: 1_000,
            cache_write_1h_tokens: 1_000,
            reasoning_tokens: 500,
        };
        // 2,000 plain × 3 + 6,000 × 0.30 + 1,000 × 3.75 + 1,000 × 6 + 1,000 × 15 dollars per million
        assert_eq!(sonnet().cost(&usage), Micros(6_000 + 1_800 + 3_750 + 6_000 + 15_000));
    }

    #[test]
    fn the_upper_bound_takes_the_dearest_rate_of_the_tier() {
        // 1,000 × 6.00 (the one-hour write) + 100 × 15.00 dollars per million
        assert_eq!(sonnet().upper_bound(1_000, 100), Micros(6_000 + 1_500));
        let long = Price { input: 6_000_000, output: 22_500_000, ..Price::FREE };
        let price = Price { above: Some(Box::new(Tier { input_tokens: 1_000, price: long })), ..sonnet() };
        assert_eq!(price.upper_bound(1_001, 0), Micros(6_006));
        assert_eq!(Price::FREE.upper_bound(u64::MAX, u64::MAX), Micros(0));
    }

    #[test]
    fn absurd_usage_saturates() {
        let all = u64::MAX;
        let usage = Usage {
            input_tokens: all,
            output_tokens: all,
            cache_read_tokens: all,
            cache_write_tokens: all,
            cache_write_1h_tokens: all,
            reasoning_tokens: all,
        };
        assert_eq!(sonnet().cost(&usage), Micros(u64::MAX));
        assert_eq!(sonnet().upper_bound(all, all), Micros(u64::MAX));
    }

    #[test]
    fn a_fraction_of_a_micro_dollar_is_rounded_up() {
        let price = Price { input: 1, ..Price::FREE };
        assert_eq!(price.cost(&Usage { input_tokens: 1, ..Usage::default() }), Micros(1));
        assert_eq!(price.cost(&Usage::default()), Micros(0));
    }

    #[test]
    fn a_long_request_pays_the_tier_for_all_of_it() {
        let long = Price { input: 6_000_000, output: 22_500_000, ..Price::FREE };
        let price = Price { above: Some(Box::new(Tier { input_tokens: 200_000, price: long })), ..sonnet() };
        let at = Usage { input_tokens: 200_000, ..Usage::default() };
        let over = Usage { input_tokens: 200_001, ..Usage::default() };
        assert_eq!(price.cost(&at), Micros(600_000));
        assert_eq!(price.cost(&over), Micros(1_200_006));
    }
}
