//! How everything that is known decides about the run: one pure function.

use crate::event::Outcome;

/// The order in which reasons decide. The first that holds wins; a verdict that arrived whole before a limit fired
/// stands before the limit (see [`decide`]).
pub const ORDER: [Outcome; 18] = [
    Outcome::Hangup,
    Outcome::Interrupt,
    Outcome::Terminated,
    Outcome::Internal,
    Outcome::Environment,
    Outcome::Unusable,
    Outcome::Policy,
    Outcome::Auth,
    Outcome::Context,
    Outcome::Saved,
    Outcome::Provider,
    Outcome::Refused,
    Outcome::TimeLimit,
    Outcome::CostLimit,
    Outcome::JudgeFailed,
    Outcome::Met,
    Outcome::Impossible,
    Outcome::Stalled,
];

/// What follows an iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    End(Outcome),
    Continue,
}

/// Decides from the reasons that hold, in any order, and whether no further iteration is allowed.
///
/// `Met` and `Impossible` hold only when the verdict's reply arrived whole (a verdict is never given after a limit),
/// so they stand before `TimeLimit` and `CostLimit`.
pub fn decide(holds: &[Outcome], last_allowed: bool) -> Decision {
    let first = ORDER.into_iter().find(|outcome| holds.contains(outcome));
    let verdict = [Outcome::Met, Outcome::Impossible].into_iter().find(|outcome| holds.contains(outcome));
    match (first, verdict) {
        (Some(Outcome::TimeLimit | Outcome::CostLimit), Some(verdict)) => Decision::End(verdict),
        (Some(outcome), _) => Decision::End(outcome),
        (None, _) if last_allowed => Decision::End(Outcome::Unmet),
        (None, _) => Decision::Continue,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Outcome::*;

    #[test]
    fn nothing_holds_means_another_iteration_while_one_is_allowed() {
        assert_eq!(decide(&[], false), Decision::Continue);
        assert_eq!(decide(&[], true), Decision::End(Unmet));
    }

    #[test]
    fn each_reason_alone_is_the_outcome() {
        for outcome in ORDER {
            assert_eq!(decide(&[outcome], false), Decision::End(outcome));
            assert_eq!(decide(&[outcome], true), Decision::End(outcome));
        }
    }

    #[test]
    fn of_two_reasons_the_earlier_in_the_order_decides() {
        // signal, internal, environment, policy, auth, context, saved, provider, refused, time_limit, cost_limit,
        // judge_failed, met, impossible, stalled
        let table = [
            (Terminated, Internal),
            (Internal, Environment),
            (Environment, Policy),
            (Policy, Auth),
            (Auth, Context),
            (Context, Saved),
            (Saved, Provider),
            (Provider, Refused),
            (Refused, TimeLimit),
            (TimeLimit, CostLimit),
            (CostLimit, JudgeFailed),
            (Met, Impossible),
            (Impossible, Stalled),
            (Policy, Met),
            (Environment, Met),
            (Hangup, Met),
        ];
        for (first, second) in table {
            assert_eq!(decide(&[second, first], false), Decision::End(first), "{first:?} before {second:?}");
        }
    }

    #[test]
    fn a_verdict_that_arrived_whole_stands_before_the_limits() {
        for limit in [TimeLimit, CostLimit] {
            for verdict in [Met, Impossible] {
                assert_eq!(decide(&[limit, verdict], true), Decision::End(verdict));
            }
        }
    }
}
