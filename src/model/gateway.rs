//! The one door to a model, for every lane: reserve → log → send and retry → settle → log.

mod attempt;
mod reserve;
mod window;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use self::attempt::{Failed, Key};
pub use self::reserve::{reservation, smaller_window};
pub use self::window::ask_window;
use super::catalog::{Endpoint, KeySource, price_of_answer};
use super::conversation::Conversation;
use super::error::ModelError;
use super::estimate::Factor;
use super::ledger::{Hit, Ledger};
use super::reply::Reply;
use super::retry::{Next, Outage};
use crate::event::{CostKnown, Event, Lane, Limits, Micros, Usage};
use crate::session::{Attempt, Block, Fact, Message, Session, SessionError, Settled, State, Sync};
use crate::world::{Halt, Secrets, Why, World};

/// Why a call gave no reply.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Not sent: even the smallest useful reservation would break a limit.
    #[error("the next call would break `{}`", .0.key())]
    Limit(Hit),
    /// Not sent: the window has no room for a useful reply.
    #[error("the request ({occupancy_tokens} tokens) leaves no room for a reply in a window of {window_tokens}")]
    NoRoom { occupancy_tokens: u64, window_tokens: u64 },
    /// The server leaves out what is more than so many tokens, without a word. The reply arrived, and is no good.
    #[error("the server silently cuts requests: it takes in about {taken_tokens} of {sent_tokens} tokens")]
    Cut { taken_tokens: u64, sent_tokens: u64 },
    /// Final at once.
    #[error(transparent)]
    Model(ModelError),
    /// The outage budget is used up. `retry_after` when the provider named a wait or limited the rate.
    #[error("gave up after {attempts} attempt{}: {error}", if *.attempts == 1 { "" } else { "s" })]
    Exhausted { error: ModelError, attempts: u64, retry_after: Option<Duration> },
    /// The run was halted; the text that had arrived.
    #[error("stopped")]
    Halted { why: Why, text: String },
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// One call.
pub struct Ask<'a> {
    pub lane: Lane,
    pub endpoint: &'a Endpoint,
    /// The one tool the model must call.
    pub force_tool: Option<&'a str>,
    /// Most time for one attempt, besides the endpoint's own timeouts.
    pub attempt_timeout: Option<Duration>,
    /// Whether the reply becomes a message of the history (agent lane).
    pub entry: bool,
    /// How often and how long failures are waited out; as far as the run's own outage budget goes when absent.
    pub patience: Option<Patience>,
}

/// A provider's cache entry of the short lifetime (5 min) is nearly gone when the next step comes after so long.
const SLOW_STEP: Duration = Duration::from_secs(240);

/// Less than the run's outage budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    pub attempts: u32,
    /// All waits together.
    pub wait: Duration,
}

/// Time that does not count, and what is going on right now.
#[derive(Default)]
pub struct Meter {
    waited: Cell<Duration>,
    waiting_since: Cell<Option<Duration>>,
    attempting: Cell<bool>,
}

impl Meter {
    /// All waits for a provider so far, the running one included. `now` is the clock's `elapsed`.
    pub fn waited(&self, now: Duration) -> Duration {
        self.waited.get() + self.waiting_since.get().map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    /// True while a request is on its way or a wait for a provider lasts.
    pub fn occupied(&self) -> bool {
        self.attempting.get() || self.waiting_since.get().is_some()
    }
}

/// What a gateway is made of.
pub struct GatewayParts<'a> {
    pub world: World,
    pub session: Session,
    pub halt: Halt,
    pub limits: &'a Limits,
    /// The session as earlier runs left it.
    pub state: &'a State,
    /// The outage budget of one call.
    pub max_wait: Duration,
    pub deltas: bool,
    /// Replaced in what providers say before it is stored or shown.
    pub secrets: Secrets,
}

pub struct Gateway {
    world: World,
    session: Session,
    halt: Halt,
    secrets: Secrets,
    ledger: RefCell<Ledger>,
    /// When the agent's last call left by the time of day, which a replay has too, and whether it came more than
    /// [`SLOW_STEP`] after the one before.
    paced: Cell<(Option<SystemTime>, bool)>,
    /// As the last call of each lane left them.
    factors: RefCell<BTreeMap<Lane, Factor>>,
    meter: Meter,
    max_wait: Duration,
    deltas: bool,
    pending_sync: RefCell<Option<Sync>>,
}

impl Gateway {
    pub fn new(parts: GatewayParts<'_>) -> Gateway {
        // Only a reply teaches.
        let settled = parts.state.calls.iter().filter_map(|(_, settled)| settled.as_ref());
        let factors = settled
            .filter(|settled| settled.error.is_none())
            .filter_map(|settled| Some((settled.lane, Factor(settled.factor_pct?))))
            .collect();
        Gateway {
            ledger: RefCell::new(Ledger::fold(parts.limits, &parts.state.calls)),
            factors: RefCell::new(factors),
            paced: Cell::new((None, false)),
            meter: Meter::default(),
            max_wait: parts.max_wait,
            deltas: parts.deltas,
            pending_sync: RefCell::new(None),
            world: parts.world,
            session: parts.session,
            halt: parts.halt,
            secrets: parts.secrets,
        }
    }

    /// What a lane's calls have taught about its estimates, for a conversation that begins anew.
    pub fn factor(&self, lane: Lane) -> Factor {
        self.learned_factor(lane).unwrap_or_default()
    }

    /// The same; `None` before its first reply.
    pub fn learned_factor(&self, lane: Lane) -> Option<Factor> {
        self.factors.borrow().get(&lane).copied()
    }

    /// Read access to the ledger.
    pub fn ledger<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        read(&self.ledger.borrow())
    }

    pub const fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Lets the disk catch up beside what follows; the next call of any lane waits for it.
    pub fn sync_beside(&self) {
        let sync = self.session.sync_start();
        *self.pending_sync.borrow_mut() = Some(sync);
    }

    /// Waits for a sync that was started.
    ///
    /// # Errors
    /// When the log could not be synced.
    pub async fn synced(&self) -> Result<(), SessionError> {
        let pending = self.pending_sync.borrow_mut().take();
        match pending {
            Some(sync) => sync.wait().await,
            None => Ok(()),
        }
    }

    /// Calls the model with everything sealed in `conversation`.
    ///
    /// # Errors
    /// See [`CallError`]; whatever the way, the call's cost is settled in the log when it returns.
    pub async fn call(&self, conversation: &mut Conversation, ask: &Ask<'_>) -> Result<Reply, CallError> {
        self.synced().await?;
        let (call, reservation) = self.reserve(conversation, ask)?;
        self.session.append(Fact::Call(call.clone()))?;
        self.ledger.borrow_mut().count(ask.lane);

        let started = self.world.clock.elapsed();
        let waited_before = self.meter.waited(started);
        let mut outage = match ask.patience {
            Some(patience) => Outage::new(self.max_wait).within(patience.attempts, patience.wait),
            None => Outage::new(self.max_wait),
        };
        let mut attempts: Vec<Attempt> = Vec::new();
        let mut billed = Usage::default();
        let mut cost = Micros::ZERO;
        let mut known = CostKnown::Free;
        let mut charged_tokens: u64 = 0;
        let mut key = Key::Known;
        if ask.lane == Lane::Agent {
            let (now, (last, _)) = (self.world.clock.now(), self.paced.get());
            let since = last.and_then(|last| now.duration_since(last).ok());
            self.paced.set((Some(now), since.is_some_and(|since| since > SLOW_STEP)));
        }
        let outcome = loop {
            let number = attempts.len() as u64 + 1;
            let sent = self.world.clock.elapsed();
            let mut tried = self.attempt(conversation, ask, &call, &reservation, number, key).await?;
            let took = self.world.clock.elapsed().saturating_sub(sent);
            if let Some((usage, how)) = tried.bill.take() {
                let answered = tried.outcome.as_ref().ok().and_then(|reply| reply.model.as_deref());
                let price = price_of_answer(ask.endpoint, answered);
                tried.record.cost = price.map_or(Micros::ZERO, |price| price.cost(&usage));
                tried.record.charged_tokens = usage.total_tokens();
                cost = cost.saturating_add(tried.record.cost);
                charged_tokens = charged_tokens.saturating_add(tried.record.charged_tokens);
                known = if known == CostKnown::UpperBound { known } else { how };
                billed.add(&usage);
            }
            let error = match tried.outcome {
                Ok(reply) => {
                    attempts.push(tried.record);
                    break Ok(reply);
                }
                Err(Failed::Halted(why, text)) => {
                    attempts.push(tried.record);
                    break Err(CallError::Halted { why, text });
                }
                Err(Failed::Model(error)) => error,
            };
            let next = match (&error, &ask.endpoint.key, key) {
                // A key that is kept elsewhere may have expired, and another one stand there by now.
                (ModelError::Auth(_), KeySource::At(_), Key::Known) if tried.record.status == Some(401) => {
                    key = Key::Anew;
                    Next::Wait(Duration::ZERO)
                }
                _ => outage.after(&error, took, &*self.world.ids),
            };
            // A further attempt costs as much again as this one was reserved for.
            let broke = self
                .ledger
                .borrow()
                .breaks(cost.saturating_add(reservation.cost), charged_tokens.saturating_add(reservation.tokens));
            let broke = broke.filter(|_| matches!(next, Next::Wait(_)));
            if let (Next::Wait(wait), None) = (&next, broke) {
                tried.record.wait_ms = Some(millis(*wait));
            }
            self.session.append(Fact::Attempt { lane: ask.lane, n: call.n, number, attempt: tried.record.clone() })?;
            attempts.push(tried.record);
            if let Some(hit) = broke {
                break Err(CallError::Limit(hit));
            }
            match next {
                Next::Wait(Duration::ZERO) => {}
                Next::Wait(wait) => {
                    if let Err(why) = self.wait(ask.lane, &error, wait).await {
                        break Err(CallError::Halted { why, text: String::new() });
                    }
                }
                Next::GiveUp if error.retryable() => {
                    let retry_after = match &error {
                        ModelError::RateLimited { wait, .. } => Some(wait.unwrap_or(self.max_wait)),
                        other => other.wait(),
                    };
                    break Err(CallError::Exhausted { error, attempts: number, retry_after });
                }
                Next::GiveUp => break Err(CallError::Model(error)),
            }
        };

        let now = self.world.clock.elapsed();
        let mut facts: Vec<Fact> = Vec::new();
        if let Ok(reply) = &outcome {
            if let Some(usage) = &reply.usage {
                conversation.replied(usage, &reply.blocks);
            }
            self.factors.borrow_mut().insert(ask.lane, conversation.factor());
            if ask.entry {
                facts.push(Fact::Message(reply.message()));
            }
        } else if let Err(CallError::Halted { text, .. }) = &outcome
            && ask.entry
            && !text.trim().is_empty()
        {
            facts.push(Fact::Message(Message::Assistant {
                blocks: vec![Block::Text { text: text.clone() }],
                interrupted: true,
                refused: None,
            }));
        }
        let total_cost = self.ledger.borrow().spent().saturating_add(cost);
        let settled = Settled {
            lane: ask.lane,
            n: call.n,
            model: match &outcome {
                Ok(Reply { model: Some(model), .. }) => format!("{}/{model}", ask.endpoint.provider),
                _ => ask.endpoint.name(),
            },
            usage: (known != CostKnown::Free).then_some(billed),
            reply_usage: match &outcome {
                Ok(reply) if known != CostKnown::Reported => reply.usage.clone(),
                _ => None,
            },
            cost,
            known,
            charged_tokens,
            attempts,
            duration_ms: millis(now.saturating_sub(started)),
            waited_ms: millis(self.meter.waited(now).saturating_sub(waited_before)),
            occupancy_tokens: (ask.lane == Lane::Agent).then(|| conversation.occupancy_tokens()),
            window_tokens: (ask.lane == Lane::Agent).then_some(ask.endpoint.window_tokens),
            total_cost,
            stop: match &outcome {
                Ok(reply) => reply.stop.name(),
                Err(CallError::Halted { why, .. }) => format!("stopped: {}", why.name()),
                Err(_) => "error".to_owned(),
            },
            error: outcome.as_ref().err().map(ToString::to_string),
            reply: match &outcome {
                Ok(reply) if !ask.entry => Some(reply.blocks.clone()),
                _ => None,
            },
            input_transformations: match &outcome {
                Ok(reply) => reply.input_transformations.clone(),
                Err(_) => None,
            },
            factor_pct: Some(conversation.factor().0),
        };
        let changed = settled.input_transformations.is_some();
        self.ledger.borrow_mut().settle(&settled);
        facts.push(Fact::Settled(Box::new(settled)));
        if changed {
            facts.push(Fact::Notice {
                code: "input_transformed".to_owned(),
                text: format!("{} reports that it changed the request before running it", ask.endpoint.provider),
            });
        }
        if let (true, Err(CallError::Model(ModelError::ContextOverflow { limit_tokens, .. }))) = (ask.entry, &outcome)
            && let Some(window) = smaller_window(*limit_tokens, ask.endpoint.window_tokens)
        {
            facts.push(Fact::Learned { window_tokens: Some(window), factor_pct: None });
        }
        self.session.append_all(facts)?;
        if let (true, true, Some(taken_tokens)) = (ask.entry, outcome.is_ok(), conversation.truncated_at()) {
            let sent_tokens = conversation.factor().apply(conversation.rest().count().tokens());
            return Err(CallError::Cut { taken_tokens, sent_tokens });
        }
        outcome
    }

    async fn wait(&self, lane: Lane, error: &ModelError, wait: Duration) -> Result<(), Why> {
        self.session.emit(Event::RunWaiting { lane, reason: error.to_string(), wait_ms: millis(wait) });
        let since = self.world.clock.elapsed();
        self.meter.waiting_since.set(Some(since));
        let ended = self.halt.run(self.world.clock.sleep(wait)).await;
        self.meter.waiting_since.set(None);
        let spent = self.world.clock.elapsed().saturating_sub(since);
        self.meter.waited.set(self.meter.waited.get() + spent);
        ended
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
