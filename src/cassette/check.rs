//! Whether what a tape holds fits together, beyond what reading it has proved.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::events::event_digest;
use super::gather::Pins;
use super::records::hex;
use super::tape::{Tape, last_outcome, last_tree};
use crate::session::{Fact, Frozen, Line};

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
        let lanes = &self.head().lanes;
        // Builds may differ in how much of an endpoint they name.
        let fits = |(name, lane): (&String, &Map<String, Value>)| {
            let endpoint = frozen.endpoints.get(name);
            endpoint.is_some_and(|endpoint| lane.iter().all(|(field, value)| endpoint.get(field) == Some(value)))
        };
        if lanes.len() != frozen.endpoints.len() || !lanes.iter().all(fits) {
            problems.push("its head names other endpoints than its facts".to_owned());
        }
        if !self.is_cut()
            && self.head().source.as_ref().is_some_and(|source| Pins::told(source) != Pins::of(self.facts()))
        {
            problems.push("its head names another commit, seed or other secrets than its facts".to_owned());
        }
        self.check_digests(frozen, problems);
        self.check_attempts(problems);
        if let (Some(base), Some(listed)) = (self.base(), listed_with_base(self.facts()))
            && base.digest().as_deref() != Some(listed)
        {
            problems.push("the workspace that it keeps is another one than was listed then".to_owned());
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

    /// Texts against their digests. One in which a secret was replaced has that of what stood there.
    fn check_digests(&self, frozen: &Frozen, problems: &mut Vec<String>) {
        let runs = self.facts().iter().filter_map(|line| match &line.fact {
            Fact::Run(run) => Some((run.config.as_ref().unwrap_or(&frozen.config), &run.config_digest)),
            _ => None,
        });
        let configs = std::iter::once((&frozen.config, &frozen.config_digest)).chain(runs);
        let texts = configs.chain(std::iter::once((&frozen.goal, &frozen.goal_digest)));
        let differs = |(text, digest): (&String, &String)| {
            !text.contains("«secret:") && hex(&Sha256::digest(text.as_bytes())) != *digest
        };
        if texts.into_iter().any(differs) {
            problems.push("its goal or configuration has another digest than its facts say".to_owned());
        }
    }

    /// A failed attempt is written down when it fails, and again with the end of its call.
    fn check_attempts(&self, problems: &mut Vec<String>) {
        let exchanges = self.lanes().flat_map(|(_, exchanges)| exchanges);
        let settled = exchanges.filter_map(|exchange| Some(((exchange.lane, exchange.n), exchange.settled.as_ref()?)));
        let settled: BTreeMap<_, _> = settled.collect();
        for line in self.facts() {
            let Fact::Attempt { lane, n, number, attempt } = &line.fact else { continue };
            let index = usize::try_from(number.saturating_sub(1)).unwrap_or(usize::MAX);
            if settled.get(&(*lane, *n)).is_some_and(|settled| settled.attempts.get(index) != Some(attempt)) {
                problems.push(format!("{lane} call {n}, attempt {number}: its end is told in two ways"));
            }
        }
    }
}

/// The digest of the listing beside which the workspace was kept: the last one before the baseline.
fn listed_with_base(facts: &[Line]) -> Option<&str> {
    let baseline = facts.iter().position(|line| matches!(line.fact, Fact::Baseline { .. }))?;
    facts[..baseline].iter().rev().find_map(|line| match &line.fact {
        Fact::Listing { digest, .. } => Some(digest.as_deref()),
        _ => None,
    })?
}
