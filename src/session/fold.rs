//! The state that a log's facts add up to: what a resume needs. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::edit;
use super::facts::{Block, Call, End, Fact, Frozen, Line, Message, Origin, Progress, RunStart, Settled, ToolDone};
use super::log::{Chain, entry_seq};
use crate::event::{CheckResult, Lane, TaskGraph, ToolStatus, TurnEnd, Verdict};

/// Of the latest messages, compacted ones too, so many are there.
const MOST_RECENT: usize = 1_000;

/// The folded state of a session at its tip. History (messages, tasks, marks, verdicts, progress) is that of the
/// branch which ends there; runs, calls, money and time are the whole session's.
#[derive(Debug, Clone, Default)]
pub struct State {
    pub frozen: Option<Box<Frozen>>,
    /// Sealed groups, one for each agent call that was written down since the history was last pruned or
    /// compacted: the messages said since the call before it (refused ones included; encoders leave them out).
    pub sent: Vec<Vec<Message>>,
    /// Said since the last of these calls. After a prune or a compaction it is the whole history, edited: the next
    /// call seals it as one group.
    pub unsent: Vec<Message>,
    /// The seq of the entry of each message, of `sent` and then of `unsent`.
    pub entries: Vec<u64>,
    /// By the entry of a tool result: what is known of the output behind it.
    pub outputs: BTreeMap<u64, Output>,
    /// Files that tools changed, as shown paths.
    pub changed: BTreeSet<String>,
    /// The latest messages as they were said, whatever became of them in the history; at most 1,000.
    pub recent: VecDeque<Message>,
    /// Messages that opened an iteration.
    pub openings: u64,
    /// The history was edited, and no agent call since has reported its size.
    pub edited: bool,
    /// A prune or compaction names a message that is not there: the history cannot be told.
    pub broken: Option<String>,
    pub tasks: TaskGraph,
    /// What the agent has seen of files: shown path → sha256 of the content.
    pub marks: BTreeMap<String, String>,
    pub runs: Vec<RunStart>,
    pub ends: Vec<End>,
    pub calls: Vec<(Call, Option<Settled>)>,
    pub iteration: u64,
    pub last_turn: Option<(u64, TurnEnd)>,
    pub verdicts: Vec<Verdict>,
    pub checks: Vec<(u64, Vec<CheckResult>)>,
    pub progress: Vec<Progress>,
    pub active_ms: u64,
    pub waited_ms: u64,
    /// Tool calls of the last assistant message without a result, with whether they had been started.
    pub dangling: Vec<(Block, bool)>,
    pub factor_pct: Option<u64>,
    /// The window that an overflow has named.
    pub window_tokens: Option<u64>,
    /// The highest N of a `job-N` that any run of the session has had.
    pub last_job: u64,
    /// Background jobs whose end the agent was not told, in the order started.
    pub open_jobs: Vec<OpenJob>,
    /// Steering that was accepted and has not reached the agent, oldest first.
    pub steers: Vec<String>,
}

/// The output behind a tool result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    pub status: ToolStatus,
    /// Characters and lines of the whole text.
    pub chars: u64,
    pub lines: u64,
    /// Where that is kept.
    pub spool: Option<u64>,
}

impl Output {
    pub fn of(done: &ToolDone) -> Output {
        Output { status: done.status, chars: done.chars, lines: done.lines, spool: done.spool }
    }
}

/// A job that the agent takes to be running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenJob {
    /// `job-N`.
    pub id: String,
    pub command: String,
    /// How it ended (`exited with 0`), when the log knows.
    pub ended: Option<String>,
}

/// Folds the lines of a log. Unknown kinds are walked through.
pub fn fold(lines: &[Line]) -> State {
    let branch = branch(lines);
    let mut state = State::default();
    let mut since = SinceReply::default();
    let mut open_calls = BTreeMap::new();
    // Where the conversation stood when a fact was written: facts without an id belong to that entry's branch.
    let mut position = Chain::default();
    for line in lines {
        // A log that was read has been checked; of a made-up one the wrong links are ignored.
        let _ = position.follow(line);
        let here = match &position.tip {
            Some(tip) => entry_seq(tip).is_some_and(|seq| branch.contains(&seq)),
            None => true,
        };
        match &line.fact {
            Fact::Run(run) => state.runs.push((**run).clone()),
            Fact::End(end) => state.ends.push((**end).clone()),
            Fact::Call(call) => {
                open_calls.insert((call.lane, call.n), state.calls.len());
                state.calls.push((call.clone(), None));
                if here && call.lane == Lane::Agent {
                    state.sent.push(std::mem::take(&mut state.unsent));
                }
            }
            Fact::Settled(settled) => {
                if settled.lane == Lane::Agent && settled.factor_pct.is_some() {
                    state.factor_pct = settled.factor_pct;
                }
                if here && settled.lane == Lane::Agent && settled.reported().is_some_and(|usage| usage.input_tokens > 0)
                {
                    state.edited = false;
                }
                if let Some(index) = open_calls.remove(&(settled.lane, settled.n)) {
                    state.calls[index].1 = Some((**settled).clone());
                }
            }
            Fact::Elapsed { active_ms, waited_ms } => {
                (state.active_ms, state.waited_ms) = (*active_ms, *waited_ms);
            }
            Fact::JobStarted { .. } | Fact::JobExited { .. } | Fact::Delivery { .. } | Fact::Steer { .. } => {
                state.outside(&line.fact);
            }
            Fact::Attempt { lane, n, attempt, .. } => {
                // Should the call never be settled, it is charged these on top of its reservation.
                if let Some(index) = open_calls.get(&(*lane, *n)) {
                    let call = &mut state.calls[*index].0;
                    call.reserved = call.reserved.saturating_add(attempt.cost);
                    call.reserved_tokens = call.reserved_tokens.saturating_add(attempt.charged_tokens);
                }
            }
            Fact::Learned { window_tokens, factor_pct } => {
                state.window_tokens = window_tokens.or(state.window_tokens);
                state.factor_pct = factor_pct.or(state.factor_pct);
            }
            fact => {
                if let Fact::Message(Message::User { origin: Origin::Steer, text }) = fact {
                    state.steered(text);
                }
                if here {
                    state.walk(line.seq, fact, &mut since);
                }
            }
        }
    }
    state.dangling = since.dangling();
    state
}

impl State {
    /// Calls that came to no reply, by lane and number.
    pub fn lost_calls(&self) -> Vec<(Lane, u64)> {
        let replied = |settled: &Option<Settled>| settled.as_ref().is_some_and(|settled| settled.error.is_none());
        self.calls.iter().filter(|(_, settled)| !replied(settled)).map(|(call, _)| (call.lane, call.n)).collect()
    }

    /// A fact of no branch: processes and people do not go back in time with the conversation.
    fn outside(&mut self, fact: &Fact) {
        match fact {
            Fact::JobStarted { job, command } => {
                let number = job.strip_prefix("job-").and_then(|number| number.parse().ok()).unwrap_or(0);
                self.last_job = self.last_job.max(number);
                self.open_jobs.push(OpenJob { id: job.clone(), command: command.clone(), ended: None });
            }
            Fact::JobExited { job, state, .. } => {
                if let Some(open) = self.open_jobs.iter_mut().find(|open| open.id == *job) {
                    open.ended = Some(state.clone());
                }
            }
            Fact::Delivery { what, .. } => self.open_jobs.retain(|open| open.id != *what),
            Fact::Steer { text } => self.steers.push(text.clone()),
            _ => {}
        }
    }

    /// Steering has reached the agent. Texts may repeat: the oldest of them is meant.
    fn steered(&mut self, text: &str) {
        if let Some(index) = self.steers.iter().position(|waiting| waiting == text) {
            self.steers.remove(index);
        }
    }

    /// A fact of the branch.
    fn walk(&mut self, seq: u64, fact: &Fact, since: &mut SinceReply) {
        match fact {
            Fact::Frozen(frozen) => self.frozen = Some(frozen.clone()),
            Fact::Message(message) => {
                since.message(message);
                self.said(seq, message, since);
            }
            Fact::Prune(prune) => self.edited(|messages, entries| edit::prune(messages, entries, prune)),
            Fact::Compaction(compaction) => {
                self.edited(|messages, entries| edit::compact(messages, entries, seq, compaction));
            }
            Fact::Recut { call_id, text: shorter } => {
                let results = self.unsent.iter_mut().rev();
                let text = results.filter_map(|message| match message {
                    Message::Tool { call_id: id, text, .. } if id == call_id => Some(text),
                    _ => None,
                });
                if let Some(text) = { text }.next() {
                    text.clone_from(shorter);
                }
            }
            Fact::Tasks { graph } => self.tasks = graph.clone(),
            Fact::Verdict { verdict } => self.verdicts.push(verdict.clone()),
            Fact::Checks { iteration, results } => self.checks.push((*iteration, results.clone())),
            Fact::Iteration { iteration } => self.iteration = *iteration,
            Fact::ToolStarted(start) => since.started.push(start.call_id.clone()),
            Fact::Tool(done) => {
                self.marks.extend(done.marks.iter().map(|mark| (mark.path.clone(), mark.sha256.clone())));
                self.changed.extend(done.changed.iter().cloned());
                since.done = Some((done.call_id.clone(), Output::of(done)));
            }
            Fact::Turn { iteration, end, .. } => self.last_turn = Some((*iteration, *end)),
            Fact::Progress(progress) => self.progress.push((**progress).clone()),
            _ => {}
        }
    }

    fn said(&mut self, seq: u64, message: &Message, since: &mut SinceReply) {
        match message {
            Message::Tool { call_id, .. } => {
                if let Some((_, output)) = since.done.take_if(|(id, _)| id == call_id) {
                    self.outputs.insert(seq, output);
                }
            }
            Message::User { origin: Origin::Prompt | Origin::Goal, .. } => self.openings += 1,
            _ => {}
        }
        if self.recent.len() == MOST_RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(message.clone());
        self.unsent.push(message.clone());
        self.entries.push(seq);
    }

    /// The history is edited as a whole, and nothing of it is sealed any more.
    fn edited(&mut self, edit: impl FnOnce(&mut Vec<Message>, &mut Vec<u64>) -> Result<(), String>) {
        let mut messages: Vec<Message> = std::mem::take(&mut self.sent).into_iter().flatten().collect();
        messages.append(&mut self.unsent);
        if let Err(reason) = edit(&mut messages, &mut self.entries) {
            self.broken.get_or_insert(reason);
        }
        self.unsent = messages;
        self.edited = true;
    }
}

/// The entries from the first to the tip.
fn branch(lines: &[Line]) -> BTreeSet<u64> {
    let mut chain = Chain::default();
    for line in lines {
        let _ = chain.follow(line);
    }
    let parents: BTreeMap<u64, u64> = lines
        .iter()
        .filter_map(|line| Some((line.seq, line.parent.as_deref().and_then(entry_seq)?)))
        .filter(|(seq, parent)| parent < seq)
        .collect();
    std::iter::successors(chain.tip.as_deref().and_then(entry_seq), |seq| parents.get(seq).copied()).collect()
}

/// The calls of the last reply, and what has happened to them. Ids may repeat, so they pair by order.
#[derive(Default)]
struct SinceReply {
    calls: Vec<Block>,
    started: Vec<String>,
    answered: Vec<String>,
    /// The last call that ended, whose result comes next.
    done: Option<(String, Output)>,
}

impl SinceReply {
    fn message(&mut self, message: &Message) {
        match message {
            Message::Assistant { blocks, refused, .. } => {
                let calls = blocks.iter().filter(|block| refused.is_none() && matches!(block, Block::Call { .. }));
                *self = SinceReply { calls: calls.cloned().collect(), ..SinceReply::default() };
            }
            Message::Tool { call_id, .. } => self.answered.push(call_id.clone()),
            Message::User { .. } | Message::Operator { .. } => {}
        }
    }

    fn dangling(mut self) -> Vec<(Block, bool)> {
        let take = |from: &mut Vec<String>, wanted: &str| {
            let found = from.iter().position(|id| id == wanted);
            found.map(|index| from.remove(index)).is_some()
        };
        let mut dangling = Vec::new();
        for block in self.calls {
            let Block::Call { id, .. } = &block else { continue };
            let started = take(&mut self.started, id);
            if !take(&mut self.answered, id) {
                dangling.push((block, started));
            }
        }
        dangling
    }
}
