//! One HTTP try: sent, decoded, cleaned of secrets, and written to the wire log.

use std::time::{Duration, UNIX_EPOCH};

use super::super::catalog::{Endpoint, KeySource};
use super::super::cleaning::{clean_error, clean_reply, held};
use super::super::conversation::Conversation;
use super::super::error::ModelError;
use super::super::ledger::Reservation;
use super::super::reply::{Delta, Reply};
use super::super::taken::Taken;
use super::super::wire::Wire;
use super::{Ask, CallError, Gateway, millis};
use crate::event::{CostKnown, Event, Lane, Micros, Usage};
use crate::session::{Attempt, Call, WireAttempt};
use crate::world::{Body, HttpRequest, HttpResponse, Tag, Why, World};

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

/// Which key an attempt is sent with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Known,
    /// Read anew first: the known one was refused.
    Anew,
}

/// How one attempt ended, with what it is known to have cost.
pub(super) struct Tried {
    pub outcome: Result<Reply, Failed>,
    pub record: Attempt,
    /// Usage and whether the provider reported all of it; `None` when nothing was billed.
    pub bill: Option<(Usage, CostKnown)>,
}

pub(super) enum Failed {
    Model(ModelError),
    Halted(Why, String),
}

impl Gateway {
    /// One HTTP try: sends, decodes, writes the wire line. Only a session error is an error of this function.
    pub(super) async fn attempt(
        &self,
        conversation: &mut Conversation,
        ask: &Ask<'_>,
        call: &Call,
        reservation: &Reservation,
        number: u64,
        key: Key,
    ) -> Result<Tried, CallError> {
        let endpoint = ask.endpoint;
        let slow = ask.lane == Lane::Agent && self.paced.get().1;
        let front = endpoint.front(reservation.max_output_tokens, ask.force_tool, slow);
        let body = Body(conversation.rest().body(&front));
        let tag = Tag { lane: ask.lane, n: call.n, attempt: number };
        let started = self.world.clock.elapsed();
        let mut taken = Taken::default();
        let sent = async {
            let headers = headers(&self.world, endpoint, key).await.map_err(ModelError::Auth)?;
            let request = HttpRequest {
                tag,
                method: "POST",
                url: with_query(endpoint, endpoint.url()),
                headers,
                body,
                connect_timeout: CONNECT_TIMEOUT,
                ca_file: endpoint.ca_file.clone(),
            };
            self.exchange(ask, request, &mut taken).await
        };
        self.meter.attempting.set(true);
        let mut ended = self.halt.run(sent).await;
        self.meter.attempting.set(false);
        if let Ok(Err(ModelError::Refused(details))) = ended {
            // However it is put, the turn is declined: a reply of its own, not a failure to be tried again.
            ended = Ok(Ok(Reply::refused(details)));
        }
        let redacted = self.clean(endpoint.wire, &mut ended, &mut taken);
        let end = match &ended {
            Ok(Ok(_)) => "eof",
            Ok(Err(error)) => taken.end(error),
            Err(_) => "abort",
        };
        let (keep, parts) = conversation.next_wire();
        let add: Vec<&[u8]> = parts.iter().map(AsRef::as_ref).collect();
        let (wire_offset, wire_bytes) = self.session.wire(&WireAttempt {
            lane: ask.lane,
            n: call.n,
            attempt: number,
            method: "POST",
            // Without its query parameters: they may hold a key.
            url: &self.secrets.redact_str(&endpoint.url()),
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
        let mut begun = false;
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
                    return Err(match begun {
                        true => timeout("nothing new in the reply", endpoint.idle_timeout),
                        false => timeout("nothing but keep-alives", endpoint.first_event_timeout),
                    });
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
                begun = true;
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
}

/// The headers of a request, with the key and with what stands in variables.
///
/// # Errors
/// What is wrong with a key that stands in a file or comes from a command.
pub(in crate::model) async fn headers(
    world: &World,
    endpoint: &Endpoint,
    key: Key,
) -> Result<Vec<(String, String)>, String> {
    // A line end that came along with a value is none of it, and no header can hold one.
    let var = |name: &String| {
        let value = world.env.var(name)?.trim().to_owned();
        (!value.is_empty()).then_some(value)
    };
    let key = match &endpoint.key {
        KeySource::None => None,
        KeySource::Env(names) => names.iter().find_map(var),
        KeySource::At(at) => world.transport.key(at, key == Key::Anew).await?,
    };
    let mut headers = endpoint.wire.headers(key.as_deref());
    headers.extend(endpoint.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())));
    headers.extend(endpoint.env_headers.iter().filter_map(|(name, variable)| Some((name.clone(), var(variable)?))));
    Ok(headers)
}

/// A URL of the endpoint with its query parameters.
pub(in crate::model) fn with_query(endpoint: &Endpoint, mut url: String) -> String {
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
