//! The one door to a model, for every lane: reserve → log → send and retry → settle → log.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use super::catalog::{Endpoint, KeySource, price_of_answer};
use super::cleaning::{clean_error, clean_reply, held};
use super::conversation::Conversation;
use super::error::ModelError;
use super::estimate::Factor;
use super::ledger::{Hit, Ledger, Reservation, caps};
use super::reply::{Delta, Reply};
use super::retry::{Next, Outage};
use super::taken::Taken;
use super::wire::Wire;
use crate::event::{CostKnown, Event, Lane, Limits, Micros, Usage};
use crate::session::{Attempt, Block, Call, Fact, Message, Session, SessionError, Settled, State, Sync, WireAttempt};
use crate::world::{Body, Halt, HttpRequest, HttpResponse, Secrets, Tag, Why, World};

/// Connecting takes no longer than this.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Response headers that are kept in the wire log; everything else may hold what nobody should store.
const KEPT_HEADERS: [&str; 7] = [
    "content-type",
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
    "request-id",
    "x-request-id",
    "content-encoding",
];

/// The most of one response that is read: replies are far below it, and what is read is kept in memory.
const MOST_REPLY_BYTES: usize = 64 << 20;

/// A smaller window than this is a number that stood in an error for another reason.
const LEAST_WINDOW_TOKENS: u64 = 256;

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
    #[error("gave up after {attempts} attempts: {error}")]
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
    /// How long failures are borne with; the run's own outage budget when absent.
    pub patience: Option<Patience>,
}

/// A smaller outage budget than the run's.
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
    /// As the last call of each lane left them.
    factors: RefCell<BTreeMap<Lane, Factor>>,
    meter: Meter,
    max_wait: Duration,
    deltas: bool,
    pending_sync: RefCell<Option<Sync>>,
}

/// How one attempt ended, with what it is known to have cost.
struct Tried {
    outcome: Result<Reply, Failed>,
    record: Attempt,
    /// Usage and whether the provider reported all of it; `None` when nothing was billed.
    bill: Option<(Usage, CostKnown)>,
}

enum Failed {
    Model(ModelError),
    Halted(Why, String),
}

impl Gateway {
    pub fn new(parts: GatewayParts<'_>) -> Gateway {
        let settled = parts.state.calls.iter().filter_map(|(_, settled)| settled.as_ref());
        let factors = settled.filter_map(|settled| Some((settled.lane, Factor(settled.factor_pct?)))).collect();
        Gateway {
            ledger: RefCell::new(Ledger::fold(parts.limits, &parts.state.calls)),
            factors: RefCell::new(factors),
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
        self.factors.borrow().get(&lane).copied().unwrap_or_default()
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
            Some(patience) => Outage::new(patience.wait.min(self.max_wait)).attempts(patience.attempts),
            None => Outage::new(self.max_wait),
        };
        let mut attempts: Vec<Attempt> = Vec::new();
        let mut billed = Usage::default();
        let mut cost = Micros::ZERO;
        let mut known = CostKnown::Free;
        let mut charged_tokens: u64 = 0;
        let outcome = loop {
            let number = attempts.len() as u64 + 1;
            let mut tried = self.attempt(conversation, ask, &call, &reservation, number).await?;
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
            let next = outage.after(&error, &*self.world.ids);
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
        if let Ok(reply) = &outcome {
            if let Some(usage) = &reply.usage {
                conversation.replied(usage, &reply.blocks);
            }
            self.factors.borrow_mut().insert(ask.lane, conversation.factor());
            if ask.entry {
                self.session.append(Fact::Message(reply.message()))?;
            }
        } else if let Err(CallError::Halted { text, .. }) = &outcome
            && ask.entry
            && !text.trim().is_empty()
        {
            self.session.append(Fact::Message(Message::Assistant {
                blocks: vec![Block::Text { text: text.clone() }],
                interrupted: true,
                refused: None,
            }))?;
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
        self.session.append(Fact::Settled(Box::new(settled)))?;
        if changed {
            self.session.append(Fact::Notice {
                code: "input_transformed".to_owned(),
                text: format!("{} reports that it changed the request before running it", ask.endpoint.provider),
            })?;
        }
        if let (true, Err(CallError::Model(ModelError::ContextOverflow { limit_tokens, .. }))) = (ask.entry, &outcome)
            && let Some(window) = smaller_window(*limit_tokens, ask.endpoint.window_tokens)
        {
            self.session.append(Fact::Learned { window_tokens: Some(window), factor_pct: None })?;
        }
        if let (true, true, Some(taken_tokens)) = (ask.entry, outcome.is_ok(), conversation.truncated_at()) {
            let sent_tokens = conversation.factor().apply(conversation.rest().count().tokens());
            return Err(CallError::Cut { taken_tokens, sent_tokens });
        }
        outcome
    }

    fn reserve(&self, conversation: &Conversation, ask: &Ask<'_>) -> Result<(Call, Reservation), CallError> {
        let endpoint = ask.endpoint;
        let ledger = self.ledger.borrow();
        let reservation = reservation(&ledger, conversation, endpoint)?;
        let call = Call {
            lane: ask.lane,
            n: ledger.next_n(ask.lane),
            model: endpoint.name(),
            digest: conversation.rest().digest(),
            rest_bytes: conversation.rest().len(),
            estimate_tokens: conversation.occupancy_tokens(),
            max_output_tokens: reservation.max_output_tokens,
            reserved: reservation.cost,
            reserved_tokens: reservation.tokens,
        };
        Ok((call, reservation))
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

    /// One HTTP try: sends, decodes, writes the wire line. Only a session error is an error of this function.
    async fn attempt(
        &self,
        conversation: &mut Conversation,
        ask: &Ask<'_>,
        call: &Call,
        reservation: &Reservation,
        number: u64,
    ) -> Result<Tried, CallError> {
        let endpoint = ask.endpoint;
        let front = endpoint.front(reservation.max_output_tokens, ask.force_tool);
        let key = self.key(endpoint);
        let mut headers = endpoint.wire.headers(key.as_deref());
        headers.extend(endpoint.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())));
        let url = url(endpoint);
        let request = HttpRequest {
            tag: Tag { lane: ask.lane, n: call.n, attempt: number },
            method: "POST",
            url: url.clone(),
            headers,
            body: Body(conversation.rest().body(&front)),
            connect_timeout: CONNECT_TIMEOUT,
        };
        let started = self.world.clock.elapsed();
        let mut taken = Taken::default();
        self.meter.attempting.set(true);
        let mut ended = self.halt.run(self.exchange(ask, request, &mut taken)).await;
        self.meter.attempting.set(false);
        let redacted = self.clean(endpoint.wire, &mut ended, &mut taken);
        let end = match &ended {
            Ok(Ok(_)) => "eof",
            Ok(Err(error)) => taken.end(error),
            Err(_) => "abort",
        };
        let (keep, add) = conversation.next_wire();
        let (wire_offset, wire_bytes) = self.session.wire(&WireAttempt {
            lane: ask.lane,
            n: call.n,
            attempt: number,
            method: "POST",
            // Without its query parameters: they may hold a key.
            url: &self.secrets.redact_str(&endpoint.wire.url(&endpoint.base_url)),
            request_headers: &[],
            front: &front,
            keep,
            add: &add,
            sha256: &call.digest,
            status: taken.status,
            response_headers: &taken.headers,
            body: &taken.body,
            reads: &taken.reads,
            end,
            ms: millis(self.world.clock.elapsed().saturating_sub(started)),
            redacted,
        })?;
        let record = |error: Option<String>| Attempt {
            status: taken.status,
            error,
            cost: Micros::ZERO,
            charged_tokens: 0,
            wait_ms: None,
            wire_offset,
            wire_bytes,
        };
        let bill = |reported: Option<&Usage>| taken.bill(call.estimate_tokens, reservation, reported);
        Ok(match ended {
            Ok(Ok(reply)) => {
                let bill = match &reply.usage {
                    // No request is without input: a server that says so does not count it.
                    Some(usage) if usage.input_tokens > 0 => Some((usage.clone(), CostKnown::Reported)),
                    usage => bill(usage.as_ref()),
                };
                Tried { outcome: Ok(reply), record: record(None), bill }
            }
            Ok(Err(error)) => {
                Tried { record: record(Some(error.to_string())), bill: bill(None), outcome: Err(Failed::Model(error)) }
            }
            Err(why) => Tried {
                record: record(Some(format!("stopped: {}", why.name()))),
                bill: bill(None),
                outcome: Err(Failed::Halted(why, self.secrets.redact_str(&taken.partial().text).into_owned())),
            },
        })
    }

    fn show(&self, lane: Lane, text: &[u8]) {
        if !text.is_empty() {
            let text = String::from_utf8_lossy(text).into_owned();
            self.session.emit(Event::ModelDelta { lane, text });
        }
    }

    /// Replaces secrets in what arrived and in what became of it. True when the bytes that arrived held one; then
    /// others stand in their place.
    fn clean(&self, wire: Wire, ended: &mut Result<Result<Reply, ModelError>, Why>, taken: &mut Taken) -> bool {
        let secrets = &self.secrets;
        if secrets.is_empty() {
            return false;
        }
        if let Ok(Err(error)) = ended {
            *error = clean_error(secrets, error.clone());
        }
        for (_, value) in &mut taken.headers {
            *value = secrets.redact_str(value).into_owned();
        }
        let held = held(secrets, &taken.body);
        let body = match ended {
            Ok(Ok(reply)) => {
                let cleaned = clean_reply(secrets, reply);
                if !cleaned && !held {
                    return false;
                }
                wire.compose(reply, true)
            }
            _ if !held => return false,
            // What had come of a stream; nothing of it but its text is of use to anybody.
            _ if taken.decoder.is_some() => {
                let mut partial = taken.partial();
                partial.text = secrets.redact_str(&partial.text).into_owned();
                wire.compose(&partial.as_reply(), false)
            }
            _ => secrets.redact(&taken.body).into_owned(),
        };
        taken.body = body;
        taken.reads = vec![0];
        true
    }

    /// Sends one request and decodes its response; leaves in `taken` what arrived, also when it is dropped.
    async fn exchange(&self, ask: &Ask<'_>, request: HttpRequest, taken: &mut Taken) -> Result<Reply, ModelError> {
        let endpoint = ask.endpoint;
        let clock = &self.world.clock;
        let mut whole = clock.sleep(ask.attempt_timeout.unwrap_or(Duration::from_secs(86_400)));
        let mut quiet = clock.sleep(endpoint.first_event_timeout);
        let mut response: HttpResponse = tokio::select! {
            biased;
            sent = self.world.transport.send(request) => sent.map_err(|error| taken.failed(&error))?,
            () = &mut quiet => return Err(timeout("no response", endpoint.first_event_timeout)),
            () = &mut whole => return Err(timeout("no reply", ask.attempt_timeout.unwrap_or_default())),
        };
        taken.status = Some(response.status);
        taken.headers =
            response.headers.iter().filter(|(name, _)| KEPT_HEADERS.contains(&name.as_str())).cloned().collect();
        let ok = (200..300).contains(&response.status);
        taken.decoder = ok.then(|| endpoint.wire.decoder());
        let mut deltas: Vec<Delta> = Vec::new();
        let mut redactor = self.secrets.redactor();
        loop {
            let chunk = tokio::select! {
                biased;
                chunk = response.body.next() => match chunk {
                    Ok(chunk) => chunk,
                    // Whatever had arrived decides: a stream may be complete although its end was rough.
                    Err(error) if ok => {
                        let failed = taken.failed(&error);
                        return taken.reply().and_then(Result::ok).ok_or(failed);
                    }
                    // The status says what went wrong, whatever became of the explanation.
                    Err(_) => None,
                },
                () = &mut quiet => {
                    if !ok {
                        break;
                    }
                    return Err(timeout("nothing new in the reply", endpoint.idle_timeout));
                }
                () = &mut whole => {
                    if !ok {
                        break;
                    }
                    return Err(timeout("no whole reply", ask.attempt_timeout.unwrap_or_default()));
                }
            };
            let Some(chunk) = chunk else { break };
            taken.reads.push(taken.body.len() as u64);
            taken.body.extend_from_slice(&chunk);
            let Some(decoder) = &mut taken.decoder else {
                if taken.body.len() > 1_000_000 {
                    break;
                }
                continue;
            };
            decoder.push(&chunk, &mut deltas)?;
            if taken.body.len() > MOST_REPLY_BYTES {
                return Err(ModelError::Malformed("the reply is longer than 64 MiB".to_owned()));
            }
            if !deltas.is_empty() {
                quiet = clock.sleep(endpoint.idle_timeout);
            }
            for delta in deltas.drain(..) {
                if let (true, Delta::Text(text)) = (self.deltas, delta) {
                    self.show(ask.lane, &redactor.push(text.as_bytes()));
                }
            }
        }
        if self.deltas {
            self.show(ask.lane, &redactor.flush());
        }
        if let Some(reply) = taken.reply() {
            return reply;
        }
        let now = self.world.clock.now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Err(endpoint.wire.error(response.status, &response.headers, &taken.body, now))
    }

    fn key(&self, endpoint: &Endpoint) -> Option<String> {
        match &endpoint.key {
            KeySource::None => None,
            // A line end that came along with the key is none of it, and no header can hold one.
            KeySource::Env(names) => names.iter().find_map(|name| {
                let value = self.world.env.var(name)?.trim().to_owned();
                (!value.is_empty()).then_some(value)
            }),
        }
    }
}

/// The window that an overflow has taught, when that is a smaller one than the known.
pub fn smaller_window(limit_tokens: Option<u64>, known_tokens: u64) -> Option<u64> {
    limit_tokens.filter(|limit| (LEAST_WINDOW_TOKENS..known_tokens).contains(limit))
}

/// What a call would reserve: the largest output cap for which the window has room and the limits leave money.
///
/// # Errors
/// `NoRoom` and `Limit`.
pub fn reservation(
    ledger: &Ledger,
    conversation: &Conversation,
    endpoint: &Endpoint,
) -> Result<Reservation, CallError> {
    let window = endpoint.window_tokens;
    let occupancy = conversation.occupancy_tokens();
    let uncertain = conversation.estimated_tokens().saturating_mul(2) / 5;
    let room = window.saturating_sub(occupancy).saturating_sub(uncertain).saturating_sub(window / 50);
    let least_room = (window / 8).min(8_192) / 2;
    let caps = caps(endpoint.max_output_tokens, room);
    if caps.is_empty() || room < least_room {
        return Err(CallError::NoRoom { occupancy_tokens: occupancy, window_tokens: window });
    }
    ledger.reserve(endpoint, occupancy.saturating_add(uncertain), &caps).map_err(CallError::Limit)
}

fn url(endpoint: &Endpoint) -> String {
    let mut url = endpoint.wire.url(&endpoint.base_url);
    for (index, (name, value)) in endpoint.query_params.iter().enumerate() {
        url.push(if index == 0 && !url.contains('?') { '?' } else { '&' });
        url.push_str(&format!("{}={}", encode(name), encode(value)));
    }
    url
}

/// Percent-encodes everything but unreserved characters (RFC 3986 §2.3).
fn encode(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
        out
    })
}

fn timeout(what: &str, after: Duration) -> ModelError {
    ModelError::Timeout(format!("{what} for {}", humantime::format_duration(after)))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
