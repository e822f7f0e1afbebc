//! The provider of a replay: each request must be its lane's next and the recorded one, and gets the recorded reply.
//!
//! Invariant: no connection is made. A request that is not the recorded one gets no reply.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::ToolMode;
use super::clock::{Failure, LastFailure, TapeClock};
use super::cursor::Cursor;
use super::diff::{diff, guess};
use super::finding::{Aspect, Guess};
use super::locate::{first_difference, locate, value};
use crate::cassette::{Attempt, Exchange, Request};
use crate::event::Lane;
use crate::session::{Fact, Message};
use crate::world::{Boxed, HttpBody, HttpRequest, HttpResponse, Transport, TransportError};

/// What becomes of recorded attempts that failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Faults {
    /// Those that cost nothing are left out, where a reply followed.
    #[default]
    Skip,
    Replay,
}

/// In which pieces a reply comes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Chunks {
    /// As it was received.
    #[default]
    Tape,
    Whole,
    Bytes,
    /// Pieces of 1 to 64 bytes, drawn from a seed.
    Random(u64),
}

/// Fields of a front that only hint: a difference is a warning.
const HINTS: [&str; 4] = ["cache_control", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"];

pub struct TapeModel {
    cursor: Rc<Cursor>,
    clock: Rc<TapeClock>,
    faults: Faults,
    chunks: Chunks,
    /// The recorded failure that was just given; see `TapeIds`.
    failed: LastFailure,
    recorded: bool,
}

impl TapeModel {
    pub fn new(cursor: Rc<Cursor>, clock: Rc<TapeClock>, faults: Faults, chunks: Chunks) -> TapeModel {
        let recorded = cursor.part.start.recorded;
        TapeModel { cursor, clock, faults, chunks, failed: Rc::default(), recorded }
    }

    pub fn failed(&self) -> LastFailure {
        Rc::clone(&self.failed)
    }

    async fn answer(&self, request: HttpRequest) -> Result<HttpResponse, TransportError> {
        self.cursor.stir();
        let (lane, n) = (request.tag.lane, request.tag.n);
        let exchanges = self.cursor.part.tape.exchanges(lane);
        // Calls are counted without gaps; a log that was cut may lack some.
        let place = usize::try_from(n).unwrap_or(usize::MAX).saturating_sub(1);
        let there = exchanges.get(place).filter(|exchange| exchange.n == n);
        let exchange = there.or_else(|| exchanges.iter().find(|exchange| exchange.n == n));
        let Some(exchange) = exchange.filter(|_| self.made(lane, n)) else { return self.miss(lane, n).await };
        let served = self.served(exchange);
        let index = usize::try_from(request.tag.attempt - 1).unwrap_or(usize::MAX);
        let Some(attempt) = served.get(index) else {
            if exchange.lacks_attempts() {
                self.cursor.lacks(format!("the recording ends here: the reply to {lane} call {n} is not in it"));
                return std::future::pending().await;
            }
            // Where the recorded call was stopped before its next attempt, a halt comes first.
            let text = format!("{lane} call {n} is tried once more than recorded");
            self.cursor.miss_for_good(self.cursor.differs(Aspect::Requests, text));
            return std::future::pending().await;
        };
        if !self.same(exchange, attempt, &request) {
            return std::future::pending().await;
        }
        let settled = exchange.settled.as_ref();
        let recorded = settled.and_then(|settled| settled.attempts.get(attempt.number as usize - 1));
        let wait_ms = recorded.and_then(|recorded| recorded.wait_ms);
        self.failed.set(Some(Failure { number: request.tag.attempt, wait_ms }));
        let error = recorded.and_then(|recorded| recorded.error.clone()).unwrap_or_default();
        if attempt.end != "abort" {
            self.arrive(lane, n).await;
        }
        if recorded.is_some_and(|recorded| recorded.error.is_some()) && !matches!(&*attempt.end, "abort" | "timeout") {
            // What a failed attempt took counts toward the outage budget. One that hung takes its time here too.
            self.clock.took(Duration::from_millis(attempt.ms));
        }
        if error == "timeout: the connection" && attempt.status.is_none() {
            return Err(TransportError::Timeout);
        }
        if let Some(missing) = missing_reply(&error) {
            return Err(TransportError::Miss(missing.to_owned()));
        }
        let Some(status) = attempt.status else {
            return match attempt.end.as_str() {
                "connect" => Err(TransportError::Connect(without_prefix(&error))),
                "reset" => Err(TransportError::Reset(without_prefix(&error))),
                _ => std::future::pending().await,
            };
        };
        let body = TapeBody {
            cursor: Rc::clone(&self.cursor),
            chunks: self.chunks.of(attempt),
            end: attempt.end.clone(),
            error: without_prefix(&error),
        };
        Ok(HttpResponse { status, headers: attempt.headers.clone(), body: Box::new(body) })
    }

    /// Whether this run of the session made the call.
    fn made(&self, lane: Lane, n: u64) -> bool {
        self.cursor.part.call(lane, n).is_some()
    }

    async fn miss(&self, lane: Lane, n: u64) -> Result<HttpResponse, TransportError> {
        let text = format!("the replay asks the {lane} a {n}. time; the recording does not");
        let mut divergence = self.cursor.differs(Aspect::Requests, text);
        (divergence.lane, divergence.call) = (Some(lane), Some(n));
        self.cursor.miss_for_good(divergence);
        std::future::pending().await
    }

    /// The attempts that are given again. Those of a call that failed as a whole made it fail.
    fn served<'a>(&self, exchange: &'a Exchange) -> Vec<&'a Attempt> {
        let succeeded = exchange.settled.as_ref().filter(|settled| settled.error.is_none());
        let all = exchange.attempts.iter();
        match (self.faults, succeeded) {
            (Faults::Skip, Some(settled)) => all
                .filter(|attempt| {
                    let recorded = settled.attempts.get(attempt.number as usize - 1);
                    recorded.is_none_or(crate::session::Attempt::is_served)
                })
                .collect(),
            _ => all.collect(),
        }
    }

    /// A reply comes when everything is there that was written down before it came.
    async fn arrive(&self, lane: Lane, n: u64) {
        // What came from outside meanwhile came after it, or stopped it.
        if let Some(next) = self.cursor.part.call(lane, n).and_then(|at| self.cursor.part.next_of_run(at)) {
            self.cursor.reach(next).await;
        }
    }

    // ------------------------------------------------------------------------------------------ comparing

    fn same(&self, exchange: &Exchange, attempt: &Attempt, request: &HttpRequest) -> bool {
        let Some(recorded) = &attempt.request else { return true };
        let (lane, n) = (exchange.lane, exchange.n);
        let body = &request.body;
        if self.cursor.tools == ToolMode::Stub && lane == Lane::Judge {
            // It is about a workspace that is not there.
            return true;
        }
        if self.cursor.differs.get() == Some((lane, n)) {
            self.rest_differs(lane, n, &recorded.rest.to_vec(), &body.0[1..].concat());
            return false;
        }
        // Those of attempts that are left out as well: a call sends the same each time.
        let all = exchange.attempts.iter().filter_map(|attempt| attempt.request.as_ref());
        if let Some((name, recorded, now)) = all.clone().find_map(|recorded| self.address(recorded, request)) {
            self.hard_differs((lane, n), name, (&recorded, &now), Guess::Unknown);
            return false;
        }
        let now = body.0.first().map_or(&[][..], |front| front);
        if recorded.front != now && !self.front_differs(lane, n, &recorded.front, now) {
            return false;
        }
        match all.into_iter().find(|other| other.front != recorded.front) {
            Some(other) => self.front_differs(lane, n, &other.front, now),
            None => true,
        }
    }

    /// Where a request goes, and how, if that is another way than was recorded: its name, and both.
    fn address(&self, recorded: &Request, now: &HttpRequest) -> Option<(&'static str, String, String)> {
        if recorded.method != now.method {
            return Some(("method", recorded.method.clone(), now.method.to_owned()));
        }
        let missing = recorded.headers.iter().find(|header| !now.headers.contains(header));
        if let Some((name, value)) = missing {
            return Some(("header", format!("{name}: {value}"), "(absent)".to_owned()));
        }
        // The query was left out of the recording, and a secret replaced; of a resume with another configuration it
        // is not recorded where it went to.
        let rest = now.url.strip_prefix(&recorded.url);
        let same = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['?', '&']));
        let unknown = recorded.url.contains("«secret:") || self.cursor.part.start.config.is_some();
        (!same && !unknown).then(|| ("url", recorded.url.clone(), now.url.clone()))
    }

    fn rest_differs(&self, lane: Lane, n: u64, recorded: &[u8], now: &[u8]) {
        let byte = first_difference(recorded, now).unwrap_or(0);
        // Of two texts the one that goes on here says where it is.
        let longer = if recorded.len() > byte { recorded } else { now };
        let place = locate(longer, byte);
        let (before, after) = (value(recorded, &place.pointer), value(now, &place.pointer));
        let what = match place.message {
            Some(message) => format!("message {message} of {lane} request {n} differs"),
            None => format!("{lane} request {n} differs"),
        };
        let mut divergence = self.cursor.differs(Aspect::Requests, what);
        (divergence.lane, divergence.call) = (Some(lane), Some(n));
        divergence.guess = self.guess(lane, &place.pointer, &before, &after);
        divergence.diff = diff(&before, &after);
        divergence.message = place.message;
        divergence.pointer = place.pointer;
        divergence.byte = Some(byte as u64);
        self.cursor.fatal(divergence);
    }

    fn guess(&self, lane: Lane, pointer: &str, recorded: &str, now: &str) -> Guess {
        let tool = self.cursor.found.borrow().iter().any(|found| found.guess == Guess::ToolResult);
        match pointer {
            _ if tool && lane == Lane::Agent => Guess::ToolResult,
            _ if pointer.starts_with("/tools") => Guess::ToolSchema,
            _ if pointer.starts_with("/system") || pointer.starts_with("/instructions") => Guess::Prompt,
            _ => guess(recorded, now).unwrap_or_else(|| self.spoken(lane, recorded, now)),
        }
    }

    /// Whether a text is the result of a tool, by what the recording says.
    fn spoken(&self, lane: Lane, recorded: &str, now: &str) -> Guess {
        let part = &self.cursor.part;
        let result = part.loops.iter().any(|&at| match part.fact(at) {
            Fact::Message(Message::Tool { text, .. }) => text == recorded || text == now,
            _ => false,
        });
        if lane == Lane::Agent && result { Guess::ToolResult } else { Guess::Unknown }
    }

    /// Whether the fronts differ in nothing but hints.
    fn front_differs(&self, lane: Lane, n: u64, recorded: &[u8], now: &[u8]) -> bool {
        let (one, other) = (fields(recorded), fields(now));
        let mut names: Vec<&String> = one.keys().chain(other.keys().filter(|name| !one.contains_key(*name))).collect();
        names.retain(|name| one.get(*name) != other.get(*name));
        let (hints, hard): (Vec<&String>, Vec<&String>) =
            names.into_iter().partition(|name| HINTS.contains(&name.as_str()));
        if !hints.is_empty() {
            let names: Vec<&str> = hints.iter().map(|name| name.as_str()).collect();
            let text = format!("{lane} request {n}: the hint `{}` is another one", names.join("`, `"));
            self.cursor.warnings.borrow_mut().push(text);
        }
        let Some(name) = hard.first() else { return true };
        let shown = |fields: &Map<String, Value>| fields.get(*name).map_or("(absent)".to_owned(), Value::to_string);
        self.hard_differs((lane, n), name, (&shown(&one), &shown(&other)), Guess::Price);
        false
    }

    fn hard_differs(&self, (lane, n): (Lane, u64), name: &str, (recorded, now): (&str, &str), guess: Guess) {
        let mut divergence = self.cursor.differs(Aspect::Requests, format!("`{name}` of {lane} request {n} differs"));
        (divergence.lane, divergence.call) = (Some(lane), Some(n));
        divergence.pointer = format!("/{name}");
        divergence.guess = guess;
        divergence.diff = diff(recorded, now);
        self.cursor.fatal(divergence);
    }
}

/// The fields of a body's front, which ends inside its object.
fn fields(front: &[u8]) -> Map<String, Value> {
    let mut text = front.to_vec();
    while text.last().is_some_and(|last| matches!(last, b',' | b' ')) {
        text.pop();
    }
    text.push(b'}');
    match serde_json::from_slice(&text) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::from_iter([("(front)".to_owned(), Value::from(String::from_utf8_lossy(front).into_owned()))]),
    }
}

/// What a model that is a recording itself had no reply to, in its words.
fn missing_reply(error: &str) -> Option<&str> {
    error.strip_prefix("no recorded reply: ")
}

/// The words of a transport's error, as the gateway had wrapped them.
fn without_prefix(error: &str) -> String {
    error.strip_prefix("network: ").unwrap_or(error).to_owned()
}

impl Chunks {
    fn of(self, attempt: &Attempt) -> VecDeque<Bytes> {
        let body = &attempt.body;
        let pieces = |mut size: Box<dyn FnMut() -> usize>| {
            let mut pieces = VecDeque::new();
            let mut at = 0;
            while at < body.len() {
                let end = (at + size().max(1)).min(body.len());
                pieces.push_back(body.slice(at..end));
                at = end;
            }
            pieces
        };
        match self {
            Chunks::Tape => attempt.chunks().into(),
            Chunks::Whole => pieces(Box::new(|| usize::MAX / 2)),
            Chunks::Bytes => pieces(Box::new(|| 1)),
            Chunks::Random(seed) => {
                let mut state = seed | 1;
                pieces(Box::new(move || {
                    // xorshift: any spread will do.
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    (state % 64) as usize + 1
                }))
            }
        }
    }
}

struct TapeBody {
    cursor: Rc<Cursor>,
    chunks: VecDeque<Bytes>,
    end: String,
    error: String,
}

impl HttpBody for TapeBody {
    fn next(&mut self) -> Boxed<'_, Result<Option<Bytes>, TransportError>> {
        self.cursor.stir();
        Box::pin(async move {
            if let Some(chunk) = self.chunks.pop_front() {
                return Ok(Some(chunk));
            }
            match self.end.as_str() {
                "eof" => Ok(None),
                "reset" | "connect" => Err(TransportError::Reset(self.error.clone())),
                // The time that is waited for more, or a halt, ends it.
                _ => std::future::pending().await,
            }
        })
    }
}

impl Transport for TapeModel {
    fn send(&self, request: HttpRequest) -> Boxed<'_, Result<HttpResponse, TransportError>> {
        Box::pin(self.answer(request))
    }

    fn recorded(&self) -> bool {
        self.recorded
    }
}
