//! How far a replay has come in the recording of one run: what is met, what is due, what differs.
//!
//! Everything recorded has a place. A port gives its recorded answer when all that stands before it is there, and so
//! what ran side by side falls into the recorded order; something from outside (a signal, a limit, steering) comes when
//! all before it is there. Invariant: nothing here waits for time.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use tokio::sync::Notify;

use super::ToolMode;
use super::compare::part;
use super::diff::{diff, guess};
use super::finding::{Aspect, Divergence, Guess};
use super::part::Part;
use super::track::{Track, aspect, name, track};
use crate::event::{Lane, Outcome, Record};
use crate::session::{Fact, Guard, Guarded, Line, Listener, Message, Purpose, Session};

/// Why a replayed run was not driven to its own end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A signal: nothing of it is the recording's.
    Signal(Outcome),
    /// What would follow has nothing to do with the recording any more.
    Diverged,
    /// The recording ends in the middle.
    Exhausted,
}

/// Commands by what they are, with their places and when they are due.
type Commands = BTreeMap<(Purpose, String), VecDeque<(usize, usize)>>;

pub struct Cursor {
    pub part: Part,
    pub tools: ToolMode,
    /// Counts the session's runs from 1.
    run: u64,
    done: RefCell<Vec<bool>>,
    /// The first place that is not done.
    frontier: Cell<usize>,
    next_loop: Cell<usize>,
    next_base: Cell<usize>,
    commands: RefCell<Commands>,
    listings: Cell<usize>,
    /// The last line of the replay's own log that met the recording.
    met: Cell<u64>,
    pub stop: Cell<Option<Stop>>,
    /// What was asked for and is not in the recording.
    missed: RefCell<Option<Divergence>>,
    /// The workspace was listed where the recording holds no listing: the loop may have ended for that alone.
    pub unlisted: Cell<bool>,
    /// Why nothing behind here can be compared, although nothing differs: what would come is not recorded.
    ended: RefCell<Option<String>>,
    /// The loop itself waits for it: no time that passes leads any further.
    over: Cell<bool>,
    moved: Notify,
    activity: Cell<u64>,
    iteration: Cell<u64>,
    step: Cell<u64>,
    pub counts: RefCell<BTreeMap<Aspect, u64>>,
    pub found: RefCell<Vec<Divergence>>,
    pub warnings: RefCell<Vec<String>>,
    /// The call whose request is not the recorded one; its body tells where.
    pub differs: Cell<Option<(Lane, u64)>>,
    outside: RefCell<Option<Outside>>,
}

/// Where steering goes to.
struct Outside {
    session: Session,
    steering: Rc<RefCell<VecDeque<String>>>,
}

impl Cursor {
    pub fn new(part: Part, tools: ToolMode, run: u64, iteration: u64, step: u64) -> Cursor {
        let commands = part.commands();
        let done = part.range.clone().map(|at| track(part.fact(at)) == Track::Aside).collect();
        let cursor = Cursor {
            frontier: Cell::new(part.range.start),
            part,
            tools,
            run,
            done: RefCell::new(done),
            next_loop: Cell::new(0),
            next_base: Cell::new(0),
            commands: RefCell::new(commands),
            listings: Cell::new(0),
            met: Cell::new(0),
            stop: Cell::new(None),
            missed: RefCell::new(None),
            unlisted: Cell::new(false),
            ended: RefCell::new(None),
            over: Cell::new(false),
            moved: Notify::new(),
            activity: Cell::new(0),
            iteration: Cell::new(iteration),
            step: Cell::new(step),
            counts: RefCell::default(),
            found: RefCell::default(),
            warnings: RefCell::default(),
            differs: Cell::new(None),
            outside: RefCell::new(None),
        };
        cursor.advance();
        cursor
    }

    /// Tells where what comes from outside goes to.
    pub fn begin(&self, session: Session, steering: Rc<RefCell<VecDeque<String>>>) {
        self.outside.replace(Some(Outside { session, steering }));
    }

    /// Breaks the circle of cursor and session.
    pub fn end(&self) {
        self.outside.replace(None);
    }

    pub fn activity(&self) -> u64 {
        self.activity.get()
    }

    pub fn stir(&self) {
        self.activity.set(self.activity.get() + 1);
    }

    pub const fn met(&self) -> u64 {
        self.met.get()
    }

    /// Iteration and agent calls so far.
    pub const fn stands(&self) -> (u64, u64) {
        (self.iteration.get(), self.step.get())
    }

    pub fn stop(&self, why: Stop) {
        if self.stop.get().is_none() {
            self.stop.set(Some(why));
            self.stir();
            self.moved.notify_waiters();
        }
    }

    /// Whether all of the recording is met.
    pub fn complete(&self) -> bool {
        self.frontier.get() >= self.part.range.end
    }

    /// What of the recording was not met, in words; empty when all was.
    pub fn left(&self) -> Vec<String> {
        let done = self.done.borrow();
        let open = self.part.range.clone().filter(|at| !done[at - self.part.range.start]);
        open.map(|at| match self.part.fact(at) {
            Fact::Command(run) => format!("the command `{}`", run.label),
            fact => format!("the {}", name(fact)),
        })
        .collect()
    }

    /// The next line of the recording that is not met, when the run reads its time.
    pub fn frontier_line(&self) -> Option<&Line> {
        self.part.range.contains(&self.frontier.get()).then(|| self.part.line(self.frontier.get()))
    }

    // ------------------------------------------------------------------------------------------- waiting

    /// Resolves when all before `place` is there. Pends for ever once the replay has stopped.
    pub async fn reach(&self, place: usize) {
        self.stir();
        loop {
            let moved = self.moved.notified();
            if self.stop.get().is_some() {
                return std::future::pending().await;
            }
            if self.frontier.get() >= place {
                self.stir();
                return;
            }
            moved.await;
        }
    }

    /// Resolves at once, unless something from outside is due: then when that has come.
    pub async fn settle(&self) {
        self.stir();
        loop {
            let moved = self.moved.notified();
            if self.stop.get().is_some() {
                return std::future::pending().await;
            }
            if self.due().is_none() {
                return;
            }
            moved.await;
        }
    }

    /// What is due from outside now, but steering, which comes by itself.
    pub fn due(&self) -> Option<&Fact> {
        let at = self.frontier.get();
        if !self.part.range.contains(&at) {
            return None;
        }
        let fact = self.part.fact(at);
        (track(fact) == Track::Cue).then_some(fact)
    }

    /// A place was served.
    pub fn serve(&self, place: usize) {
        self.done.borrow_mut()[place - self.part.range.start] = true;
        self.advance();
    }

    /// The run stands still before a recorded command that it never asked for: that is given up, and told.
    pub fn skip(&self) -> bool {
        let at = self.frontier.get();
        if !self.part.range.contains(&at) || track(self.part.fact(at)) != Track::Command {
            return false;
        }
        let Fact::Command(run) = self.part.fact(at) else { return false };
        let unasked = {
            let mut commands = self.commands.borrow_mut();
            let open = commands.get_mut(&(run.purpose, run.sha256.clone()));
            // One that was asked for is under way.
            open.and_then(|open| open.iter().position(|(place, _)| *place == at).and_then(|index| open.remove(index)))
        };
        if unasked.is_none() {
            return false;
        }
        let text = format!("the recorded command `{}` is not run any more", run.label);
        self.find(self.differs(Aspect::Leftovers, text));
        self.serve(at);
        true
    }

    fn advance(&self) {
        let moved = {
            let done = self.done.borrow();
            let start = self.part.range.start;
            let mut at = self.frontier.get();
            while done.get(at - start).copied().unwrap_or(false) {
                at += 1;
            }
            let moved = at != self.frontier.get();
            self.frontier.set(at);
            moved
        };
        if moved {
            self.stir();
            self.moved.notify_waiters();
        }
        self.steer();
    }

    /// Steering that is due is accepted at once.
    fn steer(&self) {
        let Some(Fact::Steer { text }) = self.due() else { return };
        let text = text.clone();
        let told = self.outside.borrow().as_ref().map(|outside| (outside.session.clone(), outside.steering.clone()));
        if let Some((session, steering)) = told {
            steering.borrow_mut().push_back(text.clone());
            // The tap hears of it, and moves on.
            if let Err(error) = session.append(Fact::Steer { text }) {
                tracing::error!(%error, "steering cannot be logged");
            }
        }
    }

    // -------------------------------------------------------------------------------------------- asking

    /// The next recorded command of this kind: its place, and the place before which it may not answer.
    pub fn command(&self, purpose: Purpose, sha256: &str) -> Option<(usize, usize)> {
        self.stir();
        self.commands.borrow_mut().get_mut(&(purpose, sha256.to_owned()))?.pop_front()
    }

    /// The recorded end of the tool call that the loop is about to make: its place.
    pub fn tool(&self, call_id: &str) -> Option<usize> {
        let from = self.next_loop.get();
        let ahead = self.part.loops[from.min(self.part.loops.len())..].iter().copied();
        ahead
            .take_while(|&at| !matches!(self.part.fact(at), Fact::Call(_)))
            .find(|&at| matches!(self.part.fact(at), Fact::Tool(done) if done.call_id == call_id))
    }

    /// The place behind the last fact that the loop has met.
    pub fn here(&self) -> usize {
        let last = self.next_loop.get().checked_sub(1).and_then(|last| self.part.loops.get(last));
        last.map_or(self.part.range.start, |&at| at + 1)
    }

    /// The place of the next recorded listing.
    pub fn listing(&self) -> Option<usize> {
        let from = self.listings.get().max(self.part.range.start);
        let at = (from..self.part.range.end).find(|&at| matches!(self.part.fact(at), Fact::Listing { .. }))?;
        self.listings.set(at + 1);
        Some(at)
    }

    /// What a guard of the workspace found where the loop stands.
    pub fn guarded(&self, guards: &[Guard]) -> Option<Guarded> {
        let to = self.part.loops.get(self.next_loop.get()).copied().unwrap_or(self.part.range.end);
        (self.here()..to).find_map(|at| match self.part.fact(at) {
            Fact::Guarded(found) if guards.contains(&found.guard) => Some(found.clone()),
            _ => None,
        })
    }

    /// The first place that is not met; the end of the run's facts when all are.
    pub fn frontier(&self) -> usize {
        self.frontier.get().min(self.part.range.end)
    }

    /// Whether the loop is about to write this.
    pub fn next_is(&self, wanted: impl Fn(&Fact) -> bool) -> bool {
        self.part.loops.get(self.next_loop.get()).is_some_and(|&at| wanted(self.part.fact(at)))
    }

    // -------------------------------------------------------------------------------------------- meeting

    fn count(&self, what: Aspect) {
        *self.counts.borrow_mut().entry(what).or_default() += 1;
    }

    /// Something differs.
    pub fn find(&self, mut divergence: Divergence) {
        divergence.run = self.run;
        (divergence.iteration, divergence.step) = self.stands();
        self.found.borrow_mut().push(divergence);
    }

    /// A divergence of an aspect, in words, here.
    pub fn differs(&self, what: Aspect, text: String) -> Divergence {
        let (iteration, step) = self.stands();
        Divergence {
            what,
            text,
            run: self.run,
            iteration,
            step,
            lane: None,
            call: None,
            message: None,
            pointer: String::new(),
            byte: None,
            diff: Vec::new(),
            guess: Guess::Unknown,
        }
    }

    /// What the run does has nothing to do with the recording any more.
    pub fn fatal(&self, divergence: Divergence) {
        self.find(divergence);
        self.stop(Stop::Diverged);
    }

    /// Something was asked for that is not in the recording. It gets no answer; when nothing else can happen any more,
    /// that is where the replay has parted from it.
    pub fn miss(&self, divergence: Divergence) {
        self.missed.borrow_mut().get_or_insert(divergence);
        self.stir();
    }

    /// As [`Cursor::miss`], and the loop itself waits for it.
    pub fn miss_for_good(&self, divergence: Divergence) {
        self.over.set(true);
        self.miss(divergence);
    }

    /// Whether the loop waits for what will not come.
    pub const fn is_over(&self) -> bool {
        self.over.get()
    }

    /// What the recorded run still wrote behind the last fact that was met, before spettro died.
    pub fn unmet(&self) -> Vec<Fact> {
        let from = self.next_loop.get().min(self.part.loops.len());
        self.part.loops[from..].iter().map(|&at| self.part.fact(at).clone()).collect()
    }

    /// The loop waits for what is not recorded, and no difference: when nothing else can happen, the replay is over.
    pub fn lacks(&self, why: String) {
        self.ended.borrow_mut().get_or_insert(why);
        self.over.set(true);
        self.stir();
    }

    /// As [`Cursor::lacks`], and nothing else is waited for.
    pub fn run_out(&self, why: String) {
        self.lacks(why);
        self.stop(Stop::Exhausted);
    }

    /// Why what is behind the place where the replay stopped was not compared, where nothing differs.
    pub fn why_ended(&self) -> Option<String> {
        self.ended.borrow().clone()
    }

    /// Why the recorded run could not go on, where nothing but its end is left of it.
    fn broken(&self) -> Option<String> {
        let broken = self.part.broken.as_ref()?;
        let from = self.next_loop.get().min(self.part.loops.len());
        self.part.loops[from..].iter().all(|&at| ends_a_run(self.part.fact(at))).then(|| broken.clone())
    }

    /// Why a replay ends before the recording, where that is because the recorded run was over before its baseline.
    fn without_baseline(&self, now: &Fact) -> Option<String> {
        let short = !self.part.ended || self.part.broken.is_some();
        if !short || !self.unlisted.get() || !ends_a_run(now) {
            return None;
        }
        let why = || "the recording ends here: it holds no listing of the workspace".to_owned();
        Some(self.part.broken.clone().unwrap_or_else(why))
    }

    /// A request that differs, and whose bytes were never laid side by side: the recording has none of them.
    pub fn conclude(&self) {
        let Some((lane, n)) = self.differs.get() else { return };
        if self.found.borrow().iter().any(|found| found.what == Aspect::Requests) {
            return;
        }
        let text = format!("{lane} request {n} differs; its recorded bytes are not there to be compared");
        let mut divergence = self.differs(Aspect::Requests, text);
        (divergence.lane, divergence.call) = (Some(lane), Some(n));
        self.find(divergence);
    }

    /// Nothing more can happen.
    pub fn stuck(&self) {
        if let Some(why) = self.broken() {
            return self.run_out(why);
        }
        match self.missed.take() {
            _ if !self.part.ended || self.ended.borrow().is_some() => self.stop(Stop::Exhausted),
            Some(missed) => self.fatal(missed),
            None => {
                let left = self.left();
                let next = left.first().map_or("its end", String::as_str);
                let text = format!("the replay waits for something that the recording does not hold, before {next}");
                self.fatal(self.differs(Aspect::Events, text));
            }
        }
    }

    fn meet(&self, line: &Line, places: &[usize], next: &Cell<usize>) {
        if self.stop.get().is_some() {
            return;
        }
        let Some(&at) = places.get(next.get()) else {
            if !self.part.ended {
                return self.stop(Stop::Exhausted);
            }
            if let Some(why) = &self.part.broken {
                // The baseline goes on beside the loop, which may have to come to the same end yet.
                if track(&line.fact) != Track::Baseline {
                    return self.run_out(why.clone());
                }
                self.ended.borrow_mut().get_or_insert(why.clone());
                return;
            }
            let text = format!("the replay goes on with the {} where the recording ends", name(&line.fact));
            return self.fatal(self.differs(aspect(&line.fact), text));
        };
        let recorded = self.part.fact(at);
        let same_kind = std::mem::discriminant(recorded) == std::mem::discriminant(&line.fact);
        if !same_kind || other_call(recorded, &line.fact) {
            if let Some(why) = self.broken().or_else(|| self.without_baseline(&line.fact)) {
                return self.run_out(why);
            }
            let text =
                format!("the replay has the {} where the recording has the {}", name(&line.fact), name(recorded));
            let what = if self.differs.get().is_some() { Aspect::Requests } else { aspect(&line.fact) };
            return self.fatal(self.differs(what, text));
        }
        next.set(next.get() + 1);
        self.met.set(line.seq);
        self.follow(&line.fact);
        self.compare(recorded, &line.fact);
        self.serve(at);
    }

    fn follow(&self, fact: &Fact) {
        match fact {
            Fact::Iteration { iteration } => self.iteration.set(*iteration),
            Fact::Call(call) if call.lane == Lane::Agent => self.step.set(self.step.get() + 1),
            _ => {}
        }
    }

    fn compare(&self, recorded: &Fact, now: &Fact) {
        let what = aspect(recorded);
        if self.is_beside(recorded) {
            return;
        }
        self.count(what);
        if let (Fact::Call(recorded), Fact::Call(now)) = (recorded, now) {
            self.count(Aspect::Requests);
            if recorded.digest != now.digest {
                // The body, which comes next, tells where; that it is longer is no further difference.
                self.differs.set(Some((now.lane, now.n)));
                return;
            }
        }
        if let Some(parting) = part(recorded, now, self.tools) {
            let mut divergence = self.differs(what, format!("the {} differs", name(recorded)));
            divergence.guess = match recorded {
                Fact::Message(Message::Tool { .. }) | Fact::Tool(_) => Guess::ToolResult,
                Fact::Call(_) | Fact::Settled(_) => Guess::Price,
                _ => guess(&parting.recorded, &parting.now).unwrap_or(Guess::Unknown),
            };
            divergence.diff = diff(&parting.recorded, &parting.now);
            divergence.pointer = parting.pointer;
            self.find(divergence);
        }
    }

    /// Whether a call is about a workspace that is not there.
    fn is_beside(&self, fact: &Fact) -> bool {
        self.tools == ToolMode::Stub && matches!(fact, Fact::Call(call) if call.lane == Lane::Judge)
    }

    fn cue(&self, line: &Line) {
        let at = self.frontier.get();
        if self.part.range.contains(&at) && track(self.part.fact(at)) == Track::Cue {
            self.met.set(line.seq);
            self.serve(at);
        }
    }
}

/// What a run still writes when it cannot go on; checks that did not run any more are written down as that.
const fn ends_a_run(fact: &Fact) -> bool {
    matches!(fact, Fact::Turn { .. } | Fact::Checks { .. } | Fact::Progress(_) | Fact::End(_))
}

/// Calls of different lanes are different things.
fn other_call(one: &Fact, other: &Fact) -> bool {
    match (one, other) {
        (Fact::Call(one), Fact::Call(other)) => (one.lane, one.n) != (other.lane, other.n),
        (Fact::Message(one), Fact::Message(other)) => std::mem::discriminant(one) != std::mem::discriminant(other),
        _ => false,
    }
}

/// Hears every fact of the replay's own log.
pub struct Tap(pub Rc<Cursor>);

impl Listener for Tap {
    fn event(&self, _record: &Record) {}

    fn fact(&self, line: &Line) {
        let cursor = &self.0;
        cursor.stir();
        match track(&line.fact) {
            Track::Loop => cursor.meet(line, &cursor.part.loops, &cursor.next_loop),
            Track::Baseline => cursor.meet(line, &cursor.part.base, &cursor.next_base),
            Track::Cue => cursor.cue(line),
            Track::Command | Track::Aside => {}
        }
    }
}
