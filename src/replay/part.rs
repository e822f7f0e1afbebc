//! The facts of one run of a recorded session, each with what it is to a replay.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use super::track::{Track, track};
use crate::cassette::Tape;
use crate::event::{Lane, Outcome};
use crate::session::{Fact, Line, Purpose, RunStart};

/// One run of a tape. Facts are named by their index in the tape.
pub struct Part {
    pub tape: Rc<Tape>,
    pub range: Range<usize>,
    pub start: RunStart,
    /// The facts that the loop writes, and those of the baseline, in order.
    pub loops: Vec<usize>,
    pub base: Vec<usize>,
    /// Whether the run came to its end; otherwise spettro died, and the tape stops in the middle.
    pub ended: bool,
    /// Why it could not go on, where that was its host's doing, or a reply was missing.
    pub broken: Option<String>,
    /// Behind its end stand facts that are no run's: of a verb that edits a session.
    pub edited: bool,
    calls: BTreeMap<(Lane, u64), usize>,
}

impl Part {
    /// The runs of a tape.
    pub fn all(tape: &Rc<Tape>) -> Vec<Part> {
        let facts = tape.facts();
        let starts: Vec<usize> = (0..facts.len()).filter(|&at| matches!(facts[at].fact, Fact::Run(_))).collect();
        let parts = starts.iter().enumerate().map(|(index, &at)| {
            let from = if index == 0 { 0 } else { at };
            let to = starts.get(index + 1).copied().unwrap_or(facts.len());
            let end = (from..to).find(|&at| matches!(facts[at].fact, Fact::End(_)));
            let last = end.map_or(to, |end| end + 1);
            let edited = facts[last..to].iter().any(|line| track(&line.fact) == Track::Loop);
            let part = Part::new(tape, from..last, at, end.is_some());
            Part { edited, broken: part.why_broken(), ..part }
        });
        parts.collect()
    }

    fn new(tape: &Rc<Tape>, range: Range<usize>, at: usize, ended: bool) -> Part {
        let facts = tape.facts();
        let of = |wanted: Track| range.clone().filter(|&at| track(&facts[at].fact) == wanted).collect::<Vec<_>>();
        let calls = range.clone().filter_map(|at| match &facts[at].fact {
            Fact::Call(call) => Some(((call.lane, call.n), at)),
            _ => None,
        });
        let Fact::Run(start) = &facts[at].fact else { unreachable!("a part begins with its run") };
        Part {
            start: (**start).clone(),
            loops: of(Track::Loop),
            base: of(Track::Baseline),
            ended,
            broken: None,
            edited: false,
            calls: calls.collect(),
            tape: Rc::clone(tape),
            range,
        }
    }

    /// Whether the workspace was kept beside this run: with its baseline.
    pub fn keeps_base(&self) -> bool {
        self.base.iter().any(|&at| matches!(self.fact(at), Fact::Baseline { .. }))
    }

    /// Such a run ends where another one, on another machine, would go on.
    fn why_broken(&self) -> Option<String> {
        let end = self.loops.last().filter(|_| self.ended)?;
        let Fact::End(end) = self.fact(*end) else { return None };
        if matches!(end.outcome, Outcome::Environment | Outcome::Unusable) {
            return Some(format!("the recording ends here: its run ended as `{}`", end.outcome.name()));
        }
        let (&(lane, n), _) = self.calls.iter().max_by_key(|(_, at)| **at)?;
        let exchange = self.tape.exchanges(lane).iter().find(|exchange| exchange.n == n)?;
        let nothing = exchange.settled.is_none() && exchange.attempts.is_empty();
        nothing.then(|| format!("the recording ends here: {lane} call {n} was never sent"))
    }

    pub fn line(&self, at: usize) -> &Line {
        &self.tape.facts()[at]
    }

    pub fn fact(&self, at: usize) -> &Fact {
        &self.line(at).fact
    }

    /// The commands by what they are, each with where it stands. What was asked before the run had begun stands
    /// directly behind its first fact, and is due at once.
    pub fn commands(&self) -> BTreeMap<(Purpose, String), VecDeque<(usize, usize)>> {
        let mut commands: BTreeMap<(Purpose, String), VecDeque<(usize, usize)>> = BTreeMap::new();
        let mut begins = true;
        for at in self.range.clone() {
            match self.fact(at) {
                Fact::Command(run) => {
                    let due = if begins { self.range.start } else { at };
                    commands.entry((run.purpose, run.sha256.clone())).or_default().push_back((at, due));
                }
                Fact::Frozen(_) | Fact::Run(_) => {}
                _ => begins = false,
            }
        }
        commands
    }

    /// Where the fact of a call stands.
    pub fn call(&self, lane: Lane, n: u64) -> Option<usize> {
        self.calls.get(&(lane, n)).copied()
    }

    /// The first place behind another at which the loop wrote something, or heard something from outside.
    pub fn next_of_run(&self, behind: usize) -> Option<usize> {
        (behind + 1..self.range.end).find(|&at| matches!(track(self.fact(at)), Track::Loop | Track::Cue))
    }
}
