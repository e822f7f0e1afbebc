//! How often the summarizer may fail, and how soon a window may fill again; folded from the facts.

use crate::event::Compactions;
use crate::session::{Fact, SummaryBy};

/// A window that is full again so few calls after a summary was refilled at once.
const REFILLED_WITHIN: u64 = 3;
/// So many times in a row.
const MOST_REFILLS: u64 = 3;

/// Where the budget stands, across iterations and runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Budget {
    /// In a row.
    pub failures: u64,
    pub paused: bool,
    pruned: u64,
    summarized: u64,
    extracted: u64,
    failed: u64,
    refills: u64,
    /// The agent call before which the last summary was made.
    last: Option<u64>,
}

impl Budget {
    pub fn fold<'a>(facts: impl IntoIterator<Item = &'a Fact>) -> Budget {
        let mut budget = Budget::default();
        facts.into_iter().for_each(|fact| budget.see(fact));
        budget
    }

    /// Takes in a fact of the log; all others are nothing to it.
    pub fn see(&mut self, fact: &Fact) {
        match fact {
            Fact::Prune(_) => self.pruned += 1,
            Fact::Compaction(compaction) => {
                match compaction.by {
                    SummaryBy::Model => {
                        (self.failures, self.paused) = (0, false);
                        self.summarized += 1;
                    }
                    SummaryBy::Extract => self.extracted += 1,
                }
                let soon = self.last.is_some_and(|last| compaction.before_call <= last + REFILLED_WITHIN);
                self.refills = if soon { self.refills + 1 } else { 0 };
                self.last = Some(compaction.before_call);
            }
            Fact::CompactionFailed { failures, .. } => {
                self.failures = *failures;
                self.failed += 1;
            }
            Fact::CompactionPaused { .. } => (self.paused, self.refills) = (true, 0),
            _ => {}
        }
    }

    /// What was done so far, and what was not.
    pub const fn tally(&self) -> Compactions {
        let Budget { pruned, summarized, extracted, failed, paused, .. } = *self;
        Compactions { pruned, summarized, extracted, failed, paused }
    }

    /// Whether summaries do not help: the window fills again at once.
    pub const fn thrashes(&self) -> bool {
        self.refills >= MOST_REFILLS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compact::tests::compaction;

    fn failed(failures: u64) -> Fact {
        Fact::CompactionFailed { reason: "x".into(), failures, of: 3 }
    }

    fn made(before_call: u64, by: SummaryBy) -> Fact {
        let mut made = compaction();
        (made.before_call, made.by) = (before_call, by);
        Fact::Compaction(Box::new(made))
    }

    #[test]
    fn a_summary_resets_and_an_extract_does_not() {
        let paused = Fact::CompactionPaused { reason: "x".into() };
        let mut facts = vec![failed(1), failed(2), failed(3), paused, made(9, SummaryBy::Extract)];
        let budget = Budget::fold(&facts);
        assert_eq!((budget.failures, budget.paused), (3, true));
        facts.push(made(30, SummaryBy::Model));
        let budget = Budget::fold(&facts);
        assert_eq!((budget.failures, budget.paused), (0, false));
        let counted = Compactions { pruned: 0, summarized: 1, extracted: 1, failed: 3, paused: false };
        assert_eq!(budget.tally(), counted);
    }

    #[test]
    fn three_refills_in_a_row_are_thrashing() {
        let at = |calls: &[u64]| Budget::fold(&calls.iter().map(|n| made(*n, SummaryBy::Model)).collect::<Vec<_>>());
        assert!(!at(&[10, 13, 16]).thrashes());
        assert!(at(&[10, 13, 16, 19]).thrashes());
        assert!(!at(&[10, 13, 16, 20]).thrashes(), "four calls are not soon");
        assert!(!at(&[10, 13, 17, 20, 23]).thrashes(), "not in a row");
    }
}
