//! How a run ends: one enum, from which exit codes, JSON, help and reports derive.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a run ended. `code()` is the process's exit code; see [`Outcome::ALL`] for the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Met,
    Internal,
    Usage,
    Unmet,
    Impossible,
    Stalled,
    CostLimit,
    TimeLimit,
    JudgeFailed,
    Policy,
    Auth,
    Provider,
    Context,
    Environment,
    Refused,
    Diverged,
    Unusable,
    Unverified,
    Inconclusive,
    Saved,
    Hangup,
    Interrupt,
    Terminated,
}

impl Outcome {
    /// Every outcome, by ascending exit code.
    pub const ALL: [Outcome; 23] = [
        Outcome::Met,
        Outcome::Internal,
        Outcome::Usage,
        Outcome::Unmet,
        Outcome::Impossible,
        Outcome::Stalled,
        Outcome::CostLimit,
        Outcome::TimeLimit,
        Outcome::JudgeFailed,
        Outcome::Policy,
        Outcome::Auth,
        Outcome::Provider,
        Outcome::Context,
        Outcome::Environment,
        Outcome::Refused,
        Outcome::Diverged,
        Outcome::Unusable,
        Outcome::Unverified,
        Outcome::Inconclusive,
        Outcome::Saved,
        Outcome::Hangup,
        Outcome::Interrupt,
        Outcome::Terminated,
    ];

    pub const fn code(self) -> u8 {
        match self {
            Outcome::Met => 0,
            Outcome::Internal => 1,
            Outcome::Usage => 2,
            Outcome::Unmet => 10,
            Outcome::Impossible => 11,
            Outcome::Stalled => 12,
            Outcome::CostLimit => 13,
            Outcome::TimeLimit => 14,
            Outcome::JudgeFailed => 15,
            Outcome::Policy => 16,
            Outcome::Auth => 20,
            Outcome::Provider => 21,
            Outcome::Context => 22,
            Outcome::Environment => 23,
            Outcome::Refused => 24,
            Outcome::Diverged => 30,
            Outcome::Unusable => 31,
            Outcome::Unverified => 32,
            Outcome::Inconclusive => 33,
            Outcome::Saved => 75,
            Outcome::Hangup => 129,
            Outcome::Interrupt => 130,
            Outcome::Terminated => 143,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Met => "met",
            Outcome::Internal => "internal",
            Outcome::Usage => "usage",
            Outcome::Unmet => "unmet",
            Outcome::Impossible => "impossible",
            Outcome::Stalled => "stalled",
            Outcome::CostLimit => "cost_limit",
            Outcome::TimeLimit => "time_limit",
            Outcome::JudgeFailed => "judge_failed",
            Outcome::Policy => "policy",
            Outcome::Auth => "auth",
            Outcome::Provider => "provider",
            Outcome::Context => "context",
            Outcome::Environment => "environment",
            Outcome::Refused => "refused",
            Outcome::Diverged => "diverged",
            Outcome::Unusable => "unusable",
            Outcome::Unverified => "unverified",
            Outcome::Inconclusive => "inconclusive",
            Outcome::Saved => "saved",
            Outcome::Hangup => "hangup",
            Outcome::Interrupt => "interrupt",
            Outcome::Terminated => "terminated",
        }
    }

    /// One line for `spettro help exit-codes` and the README's table.
    pub const fn meaning(self) -> &'static str {
        match self {
            Outcome::Met => "required checks pass and the judge says met",
            Outcome::Internal => "a bug of spettro, a panic too",
            Outcome::Usage => "wrong flag, invalid goal file, missing input, or fixed context too large",
            Outcome::Unmet => "iteration or step limit; the last verdict and next step are in the result",
            Outcome::Impossible => "the judge says so, confirmed by a second call",
            Outcome::Stalled => "no progress for `limits.stall` iterations, nor in the one after the nudge",
            Outcome::CostLimit => "the money or token limit",
            Outcome::TimeLimit => "`limits.time` (without waits for the provider) or `limits.idle`",
            Outcome::JudgeFailed => "no usable verdict after its retries",
            Outcome::Policy => "a protected path changed, or spettro's own files were touched",
            Outcome::Auth => "credentials missing or refused",
            Outcome::Provider => "provider unavailable past the outage budget, or too many failed turns in a row",
            Outcome::Context => "a request cannot fit into the context window, or the server silently truncates",
            Outcome::Environment => "the sandbox as written, a required tool, a check's program, or disk is missing",
            Outcome::Refused => "the model refused `limits.consecutive_errors` turns in a row",
            Outcome::Diverged => "replay: not the same run",
            Outcome::Unusable => "a session or cassette is missing, corrupt, incomplete, or not this run's",
            Outcome::Unverified => "replay: nothing differed, but some checks could not be made",
            Outcome::Inconclusive => "bisect: no answer to trust",
            Outcome::Saved => "state saved, run again with `--resume`",
            Outcome::Hangup => "hangup, after a clean teardown",
            Outcome::Interrupt => "interrupt, after a clean teardown",
            Outcome::Terminated => "terminated, after a clean teardown",
        }
    }

    /// Whether running the same thing again (with `--resume` where a session exists) may end differently by itself.
    pub const fn retryable(self) -> bool {
        matches!(
            self,
            Outcome::JudgeFailed
                | Outcome::Provider
                | Outcome::Saved
                | Outcome::Hangup
                | Outcome::Interrupt
                | Outcome::Terminated
        )
    }

    /// What a run that is ended by a signal comes to.
    pub const fn of_signal(signal: i32) -> Outcome {
        match signal {
            1 => Outcome::Hangup,
            2 => Outcome::Interrupt,
            _ => Outcome::Terminated,
        }
    }

    /// The signal by which the process dies after its teardown, for the three outcomes that are signals.
    pub const fn signal(self) -> Option<i32> {
        match self {
            Outcome::Hangup => Some(1),
            Outcome::Interrupt => Some(2),
            Outcome::Terminated => Some(15),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_complete_ascending_and_avoids_reserved_codes() {
        let codes: Vec<u8> = Outcome::ALL.iter().map(|o| o.code()).collect();
        assert!(codes.windows(2).all(|pair| pair[0] < pair[1]), "{codes:?}");
        assert!(!codes.iter().any(|c| (124..=127).contains(c) || *c == 137), "{codes:?}");
        for outcome in Outcome::ALL {
            let json = serde_json::to_string(&outcome).expect("an outcome serializes");
            assert_eq!(json, format!("\"{}\"", outcome.name()));
            if let Some(signal) = outcome.signal() {
                assert_eq!(i32::from(outcome.code()), 128 + signal);
            }
        }
    }
}
