//! The shell: runs a pass over the history when a window is too full, and writes down what came of it.

use std::cell::Cell;
use std::rc::Rc;

use super::cut::{Cut, TAIL_CALLS, TAIL_CALLS_FORCED, cut, is_paired, tail_start, withheld};
use super::failure_budget::Budget;
use super::history::History;
use super::pressure::{self, Attribution};
use super::prune::{Plan, Reach, at_most, plan};
use super::summarize::{extract, message};
use crate::event::{Compactions, Lane};
use crate::model::wire::AfterEdit;
use crate::model::{CallError, Conversation, Count, Endpoint, Factor, Gateway, message_count, smaller_window};
use crate::session::{Compaction, Fact, Message, Origin, Prune, Session, SessionError, SummaryBy, entry_name};

/// Of a history that begins anew at least so many messages are encoded together.
const SEALED_AT_ONCE: usize = 64;
/// An extract that must be shorter is not worth it.
const LEAST_EXTRACT_CHARS: usize = 500;

/// `compaction:` of the goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    pub auto: bool,
    pub threshold_pct: u64,
    pub max_failures: u64,
}

/// Why a request did not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// By spettro's own account.
    NoRoom,
    /// The provider says so, and perhaps how much would fit.
    Refused { limit_tokens: Option<u64> },
}

/// What a person may ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    pub focus: String,
    pub prune_only: bool,
}

/// What a pass did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compacted {
    /// The history is as it was.
    No,
    Pruned,
    Summarized,
}

/// What a pass works on.
pub struct Place<'a> {
    pub gateway: &'a Gateway,
    pub session: &'a Session,
    /// The agent's.
    pub endpoint: &'a mut Endpoint,
    pub history: &'a mut History,
    pub conversation: &'a mut Conversation,
}

pub struct Compactor {
    settings: Settings,
    pub(super) summarizer: Endpoint,
    /// The frozen head of a summarizer request.
    pub(super) head: String,
    system_tokens: Count,
    budget: Budget,
    /// What the budget counts, for whoever reports it.
    tally: Rc<Cell<Compactions>>,
}

/// Why a pass runs.
#[derive(Clone, Copy)]
enum Mode<'a> {
    Auto,
    Forced,
    Asked(&'a Wish),
}

impl Mode<'_> {
    const fn forced(self) -> bool {
        !matches!(self, Mode::Auto)
    }
}

impl Compactor {
    /// `system` is the agent's system prompt; `head` the summarizer's frozen head.
    pub fn new(settings: Settings, summarizer: Endpoint, head: String, system: &str, budget: Budget) -> Compactor {
        let system_tokens = Count::of_text(system);
        let tally = Rc::new(Cell::new(budget.tally()));
        Compactor { settings, summarizer, head, system_tokens, budget, tally }
    }

    /// What was done in the session so far; goes on counting.
    pub fn tally(&self) -> Rc<Cell<Compactions>> {
        self.tally.clone()
    }

    /// Writes a fact down, and takes it in.
    fn log(&mut self, session: &Session, fact: Fact) -> Result<u64, SessionError> {
        self.budget.see(&fact);
        self.tally.set(self.budget.tally());
        session.append(fact)
    }

    pub const fn budget(&self) -> Budget {
        self.budget
    }

    /// Of what the request is made, by the estimator.
    pub fn attribution(&self, history: &History, conversation: &Conversation) -> Attribution {
        let messages = history.messages();
        let factor = conversation.factor();
        let tokens = |count: Count| factor.apply(count.tokens());
        let tail = tail_start(messages, TAIL_CALLS).unwrap_or(messages.len().min(1));
        let all = history.count(0..messages.len());
        let head = conversation.rest().count().minus(all);
        Attribution {
            system_tokens: tokens(self.system_tokens),
            tools_tokens: tokens(head.minus(self.system_tokens)),
            first_message_tokens: tokens(history.count(0..messages.len().min(1))),
            history_tokens: tokens(history.count(messages.len().min(1)..tail)),
            tail_tokens: tokens(history.count(tail..messages.len())),
        }
    }

    /// Before an agent call whose request is sealed: compacts when it is above the threshold.
    ///
    /// # Errors
    /// What ended the run inside the summarizer call, or the log's failure. The history is then as it was.
    pub async fn before_call(&mut self, place: &mut Place<'_>) -> Result<Compacted, CallError> {
        let threshold = pressure::threshold(place.endpoint.window_tokens, self.settings.threshold_pct);
        if !self.settings.auto || place.conversation.occupancy_tokens() <= threshold {
            return Ok(Compacted::No);
        }
        self.pass(place, Mode::Auto).await
    }

    /// A request did not fit: learns what there is to learn, and compacts once, whatever the budget says.
    ///
    /// # Errors
    /// As for [`Compactor::before_call`].
    pub async fn overflowed(&mut self, place: &mut Place<'_>, overflow: Overflow) -> Result<Compacted, CallError> {
        if let Overflow::Refused { limit_tokens } = overflow {
            learn(place, limit_tokens)?;
        }
        self.pass(place, Mode::Forced).await
    }

    /// Somebody asked for it.
    ///
    /// # Errors
    /// As for [`Compactor::before_call`].
    pub async fn asked(&mut self, place: &mut Place<'_>, wish: &Wish) -> Result<Compacted, CallError> {
        self.pass(place, Mode::Asked(wish)).await
    }

    async fn pass(&mut self, place: &mut Place<'_>, mode: Mode<'_>) -> Result<Compacted, CallError> {
        let window = place.endpoint.window_tokens;
        let calls = if mode.forced() { TAIL_CALLS_FORCED } else { TAIL_CALLS };
        let Some(tail) = tail_start(place.history.messages(), calls) else { return Ok(Compacted::No) };
        // Nobody is sent to a copy that is gone; what was said before stays as it was sent.
        let spool = place.session.spool();
        place.history.forget_copies(|id| spool.is_gone(id));
        let used = place.conversation.occupancy_tokens().max(place.conversation.estimate_tokens());
        let low = pressure::low_water(window, self.settings.threshold_pct);
        let factor = place.conversation.factor();

        // Stage 1: spooled outputs of older steps, then every large one.
        let wanted = used.saturating_sub(low);
        // A look at each message tells whether a plan can be worth it: what is full for long is looked at every step.
        let hopeless = matches!(mode, Mode::Auto) && factor.apply(at_most(place.history, tail).tokens()) < window / 10;
        let stubs = if hopeless { Plan::default() } else { stubs(place.history, tail, wanted, window, factor) };
        let freed = factor.apply(stubs.freed.tokens());
        let worth_it = !stubs.edits.is_empty()
            && match mode {
                Mode::Auto | Mode::Asked(_) => freed >= window / 10,
                Mode::Forced => freed >= window / 10 || pressure::fits(window, used.saturating_sub(freed)),
            };
        match mode {
            Mode::Asked(wish) if wish.prune_only => {
                return if stubs.edits.is_empty() { Ok(Compacted::No) } else { self.prune(place, stubs) };
            }
            Mode::Auto | Mode::Forced if worth_it && used.saturating_sub(freed) <= low => {
                return self.prune(place, stubs);
            }
            _ => {}
        }

        // Stage 2: one summary, unless that is paused or would gain nothing.
        let cut = match mode {
            Mode::Auto if self.budget.paused => None,
            _ => self.cut(place, mode, calls),
        };
        let done = match cut {
            None => Compacted::No,
            Some(cut) => match (self.summarize(place, mode, cut, &stubs).await?, mode) {
                // Whoever asked for it is told why there is none.
                (Compacted::No, Mode::Asked(_)) => return Ok(Compacted::No),
                (done, _) => done,
            },
        };
        if done == Compacted::No && worth_it { self.prune(place, stubs) } else { Ok(done) }
    }

    /// What a summary would replace; `None` where it could not gain enough, whatever it says. What earlier summaries
    /// take is no gain: the new one says it again.
    fn cut(&self, place: &Place<'_>, mode: Mode<'_>, calls: usize) -> Option<Cut> {
        let window = place.endpoint.window_tokens;
        let factor = place.conversation.factor();
        let tokens = |count: Count| factor.apply(count.tokens());
        let half = self.half_threshold(window);
        let first = tokens(place.history.count(0..1));
        let cut = cut(place.history, calls, half.saturating_sub(first).max(half / 4), factor)?;
        let notes = (1..cut.tail)
            .filter(|index| matches!(place.history.messages()[*index], Message::User { origin: Origin::Summary, .. }))
            .fold(Count::default(), |sum, index| sum.plus(place.history.counts()[index]));
        let gain = tokens(cut.freed.minus(notes));
        let least = pressure::least_gain(window);
        let can_gain = match mode {
            Mode::Auto => gain >= least * 3 / 2,
            Mode::Asked(_) => gain > least,
            Mode::Forced => {
                let after = place.conversation.estimate_tokens().saturating_sub(tokens(cut.freed));
                pressure::fits(window, after)
            }
        };
        can_gain.then_some(cut)
    }

    const fn half_threshold(&self, window: u64) -> u64 {
        pressure::threshold(window, self.settings.threshold_pct) / 2
    }

    async fn summarize(
        &mut self,
        place: &mut Place<'_>,
        mode: Mode<'_>,
        cut: Cut,
        stubs: &Plan,
    ) -> Result<Compacted, CallError> {
        let window = place.endpoint.window_tokens;
        let factor = place.conversation.factor();
        let tokens = |count: Count| factor.apply(count.tokens());
        let least = pressure::least_gain(window);
        let used = place.conversation.estimate_tokens();
        let accepted = |text: &str| -> Result<u64, String> {
            let summary = Message::User { origin: Origin::Summary, text: text.to_owned() };
            let gain = tokens(cut.freed).saturating_sub(tokens(message_count(&summary)));
            let after = used.saturating_sub(gain);
            match mode {
                Mode::Forced if gain > 0 && pressure::fits(window, after) => Ok(after),
                Mode::Forced => Err("with its summary the request still would not fit".to_owned()),
                _ if gain >= least => Ok(after),
                _ => Err(format!("the summary would free {gain} tokens, less than {least}")),
            }
        };
        let focus = match mode {
            Mode::Asked(wish) => wish.focus.as_str(),
            _ => "",
        };
        // Of the files that were changed so many tokens of names.
        let names = window / 20;
        let summary = match self.ask(place, 1..cut.tail, focus).await? {
            Ok(text) => {
                let text = message(&text, place.history.changed_files(), names, factor);
                accepted(&text).map(|after| (text, SummaryBy::Model, after))
            }
            Err(reason) => Err(reason),
        };
        let (text, by, after) = match summary {
            Ok(summary) => summary,
            Err(reason) => {
                self.failed(place.session, reason)?;
                if !matches!(mode, Mode::Forced) {
                    return Ok(Compacted::No);
                }
                let mut chars = usize::try_from(self.half_threshold(window)).unwrap_or(usize::MAX);
                loop {
                    let text = extract(place.history, 1..cut.tail, chars);
                    let text = message(&text, place.history.changed_files(), names, factor);
                    match accepted(&text) {
                        Ok(after) => break (text, SummaryBy::Extract, after),
                        Err(_) if chars >= LEAST_EXTRACT_CHARS => chars /= 2,
                        Err(_) => return Ok(Compacted::No),
                    }
                }
            }
        };
        let entries = place.history.entries();
        let fact = Compaction {
            from: entry_name(entries[1]),
            to: entry_name(entries[cut.tail - 1]),
            summary: text,
            by,
            kept: cut.kept.iter().map(|index| entry_name(entries[*index])).collect(),
            withheld: withheld(place.history, place.endpoint.wire.after_edit(), cut.tail, &cut.edits),
            edits: cut.edits,
            before_tokens: used,
            after_tokens: after,
            pruned_tokens: tokens(stubs.freed),
            forced: mode.forced(),
            before_call: place.gateway.ledger(|ledger| ledger.next_n(Lane::Agent)),
        };
        // Everything before it is on the disk, then the fact is, then the history is another one.
        place.session.sync_now().await?;
        let own = self.log(place.session, Fact::Compaction(Box::new(fact.clone())))?;
        place.session.sync_now().await?;
        place.history.compact(own, &fact).map_err(|reason| lost(place.session, reason))?;
        debug_assert!(is_paired(place.history.messages()), "a compaction parts no call from its result");
        rebuild(place);
        if self.budget.thrashes() && self.settings.auto {
            let made_of = self.attribution(place.history, place.conversation);
            self.pause(place.session, format!("the window fills again right after each summary: {made_of}"))?;
        }
        Ok(Compacted::Summarized)
    }

    fn prune(&mut self, place: &mut Place<'_>, plan: Plan) -> Result<Compacted, CallError> {
        let before_tokens = place.conversation.estimate_tokens();
        let rule = place.endpoint.wire.after_edit();
        let from = if rule == AfterEdit::DropBefore { 1 } else { plan.first + 1 };
        let withheld = withheld(place.history, rule, from, &plan.edits);
        let mut fact = Prune {
            edits: plan.edits,
            withheld,
            before_tokens,
            after_tokens: 0,
            before_call: place.gateway.ledger(|ledger| ledger.next_n(Lane::Agent)),
        };
        place.history.prune(plan.first, &fact).map_err(|reason| lost(place.session, reason))?;
        rebuild(place);
        fact.after_tokens = place.conversation.estimate_tokens();
        self.log(place.session, Fact::Prune(Box::new(fact)))?;
        Ok(Compacted::Pruned)
    }

    fn failed(&mut self, session: &Session, reason: String) -> Result<(), SessionError> {
        let of = self.settings.max_failures;
        let failures = self.budget.failures + 1;
        self.log(session, Fact::CompactionFailed { reason, failures, of })?;
        if self.settings.auto && failures >= of && !self.budget.paused {
            self.pause(session, format!("{failures} failures in a row; the run goes on without summaries"))?;
        }
        Ok(())
    }

    fn pause(&mut self, session: &Session, reason: String) -> Result<(), SessionError> {
        self.log(session, Fact::CompactionPaused { reason }).map(|_| ())
    }
}

/// What stage 1 would do: spooled outputs of older steps when that frees `wanted` tokens, else every large one.
fn stubs(history: &History, tail: usize, wanted: u64, window: u64, factor: Factor) -> Plan {
    let tokens = |count: Count| factor.apply(count.tokens());
    let spooled = plan(history, left_alone(history, tail, window, factor), Reach::Spooled);
    if !spooled.edits.is_empty() && tokens(spooled.freed) >= wanted {
        return spooled;
    }
    drop(spooled);
    plan(history, tail, Reach::Everything)
}

/// The newest part of the history, which the first half of pruning leaves alone, begins here.
fn left_alone(history: &History, tail: usize, window: u64, factor: Factor) -> usize {
    let most = pressure::left_alone(window);
    let mut count = Count::default();
    for (index, one) in history.counts().iter().enumerate().rev() {
        count = count.plus(*one);
        if factor.apply(count.tokens()) > most {
            return tail.min(index + 1);
        }
    }
    tail.min(1)
}

/// The provider refused a request as too large: its window is smaller than known, or the estimate was too low. The
/// window stands in the log already: the refused call wrote it there.
fn learn(place: &mut Place<'_>, limit_tokens: Option<u64>) -> Result<(), SessionError> {
    let known = place.endpoint.window_tokens;
    let window = smaller_window(limit_tokens, known).unwrap_or(known);
    place.endpoint.window_tokens = window;
    let estimate = place.conversation.estimate_tokens();
    let factor = place.conversation.factor();
    let raised = if estimate < window && estimate > 0 {
        Factor((factor.0 * window).div_ceil(estimate).min(300))
    } else {
        factor
    };
    if raised != factor {
        place.conversation.set_factor(raised);
        place.session.append(Fact::Learned { window_tokens: None, factor_pct: Some(raised.0) })?;
    }
    Ok(())
}

/// The request begins anew with the history as it is now.
fn rebuild(place: &mut Place<'_>) {
    place.conversation.restart();
    let mut messages = place.history.take_unsealed();
    // In parts, so that no second copy of the whole is made. A part ends before a reply: that gives the same bytes.
    let begins = |message: &Message| matches!(message, Message::Assistant { .. });
    while let Some(end) = messages.iter().skip(SEALED_AT_ONCE).position(begins) {
        let (part, rest) = messages.split_at(end + SEALED_AT_ONCE);
        place.conversation.seal(part);
        messages = rest;
    }
    place.conversation.seal(messages);
    place.conversation.trust();
}

/// Cannot be: a plan names entries of the very history that it was made from.
fn lost(session: &Session, reason: String) -> SessionError {
    SessionError::Corrupt { file: session.dir().join("session.jsonl"), line: 0, reason }
}

/// The fixed part of a request, before anything was said: what it holds, when that alone is above the threshold.
///
/// `head` is the agent's, `first` the first message.
pub fn too_large(
    endpoint: &Endpoint,
    threshold_pct: u64,
    head: &str,
    system: &str,
    first: &Message,
) -> Option<Attribution> {
    let (head, system) = (Count::of(head.as_bytes()), Count::of_text(system));
    let made_of = Attribution {
        system_tokens: system.tokens(),
        tools_tokens: head.minus(system).tokens(),
        first_message_tokens: message_count(first).tokens(),
        ..Attribution::default()
    };
    let threshold = pressure::threshold(endpoint.window_tokens, threshold_pct);
    (made_of.fixed_tokens() > threshold).then_some(made_of)
}
