//! When a window is too full, in numbers. Pure; all sizes are tokens.

/// Kept free for the reply.
pub const fn output_room(window: u64) -> u64 {
    if window / 8 < 8_192 { window / 8 } else { 8_192 }
}

/// The least of it without which no request leaves.
pub const fn least_room(window: u64) -> u64 {
    output_room(window) / 2
}

/// Above this a request is not sent before the history was made smaller.
pub const fn threshold(window: u64, pct: u64) -> u64 {
    let share = window * pct / 100;
    let most = window - output_room(window) - window.div_ceil(50);
    if share < most { share } else { most }
}

/// Down to this pruning alone must bring a request, or a summary follows: otherwise the cached prefix would be broken
/// again a few steps later.
pub const fn low_water(window: u64, pct: u64) -> u64 {
    threshold(window, pct) - window / 10
}

/// What a summary must free at least.
pub const fn least_gain(window: u64) -> u64 {
    if window / 10 < 2_000 { window / 10 } else { 2_000 }
}

/// The newest part of the history, whose outputs the first half of pruning leaves alone.
pub const fn left_alone(window: u64) -> u64 {
    if window / 5 < 40_000 { window / 5 } else { 40_000 }
}

/// Whether a request of this size leaves room for a reply.
pub const fn fits(window: u64, request: u64) -> bool {
    request + window.div_ceil(50) + least_room(window) <= window
}

/// How full a window is, in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Ok,
    High,
    Critical,
}

impl Level {
    /// High from 75 %, critical from 90 % of the window.
    pub const fn of(window: u64, used: u64) -> Level {
        let pct = match (used * 100).checked_div(window) {
            Some(pct) => pct,
            None => 100,
        };
        match pct {
            90.. => Level::Critical,
            75.. => Level::High,
            _ => Level::Ok,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Level::Ok => "OK",
            Level::High => "HIGH",
            Level::Critical => "CRITICAL",
        }
    }
}

/// Of what a request is made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Attribution {
    /// System prompt and instructions.
    pub system_tokens: u64,
    pub tools_tokens: u64,
    pub first_message_tokens: u64,
    /// Everything between the first message and the tail.
    pub history_tokens: u64,
    /// What compaction keeps as it is: the last tool rounds.
    pub tail_tokens: u64,
}

impl Attribution {
    /// What no compaction can make smaller.
    pub const fn fixed_tokens(&self) -> u64 {
        self.system_tokens + self.tools_tokens + self.first_message_tokens
    }
}

impl std::fmt::Display for Attribution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Attribution { system_tokens, tools_tokens, first_message_tokens, history_tokens, tail_tokens } = self;
        write!(
            f,
            "system {system_tokens}, tools {tools_tokens}, first message {first_message_tokens}, history \
             {history_tokens}, last tool rounds {tail_tokens} tokens"
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_documented_window_has_the_documented_threshold() {
        assert_eq!(threshold(100_000, 85), 85_000);
        assert_eq!(low_water(100_000, 85), 75_000);
        // A small window keeps an eighth free for the reply.
        assert_eq!(threshold(8_192, 95), 8_192 - 1_024 - 164);
    }

    #[test]
    fn levels_begin_where_the_gauge_changes_its_colour() {
        let level = |used| Level::of(100_000, used);
        assert_eq!(
            [level(74_999), level(75_000), level(89_999), level(90_000)].map(Level::name),
            ["OK", "HIGH", "HIGH", "CRITICAL"]
        );
    }

    proptest! {
        #[test]
        fn thresholds_lie_between_half_of_what_was_asked_for_and_the_window(
            window in 8_192u64..2_000_000, pct in 50u64..=95,
        ) {
            let threshold = threshold(window, pct);
            prop_assert!(threshold < window);
            prop_assert!(2 * threshold >= window * pct / 100);
            prop_assert!(fits(window, threshold), "a request at the threshold can be sent");
            prop_assert!(low_water(window, pct) < threshold && low_water(window, pct) > window / 4);
        }
    }
}
