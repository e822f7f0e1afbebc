//! Whether what a tape holds fits together, beyond what reading it has proved.

use super::events::event_digest;
use super::tape::{Tape, last_outcome, last_tree};

impl Tape {
    /// What does not fit together, in words for people; nothing when all does.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.is_session() {
            self.check_session(&mut problems);
        }
        problems
    }

    fn check_session(&self, problems: &mut Vec<String>) {
        let Some(frozen) = self.frozen() else {
            problems.push("its facts do not say what the session was frozen with".to_owned());
            return;
        };
        let goal = &self.head().goal;
        if (&goal.name, &goal.text) != (&frozen.goal_name, &frozen.goal) {
            problems.push("its head names another goal than its facts".to_owned());
        }
        if let Some(reason) = self.state().broken {
            problems.push(format!("its history cannot be told: {reason}"));
        }
        // Of a file that breaks off, what is missing stood behind its last whole line.
        let ids = if self.is_cut() { Default::default() } else { self.spooled() };
        for id in ids {
            // One that is not there was not kept: the session says so to its agent as well.
            if let Err(error) = self.spool(id) {
                problems.push(format!("the output `spool:{id}` cannot be read: {error}"));
            }
        }
        let Some(end) = self.end() else { return };
        if end.outcome != last_outcome(self.facts()) {
            problems.push("its end names another outcome than its facts".to_owned());
        }
        if end.events.as_deref() != Some(event_digest(self.facts()).as_str()) {
            problems.push("the digest of its events is not that of its facts".to_owned());
        }
        if end.tree != last_tree(self.facts()) {
            problems.push("its end names another workspace than its facts".to_owned());
        }
    }
}
