//! A provider that is in trouble: it answers a script on any wire, fails at random with a fixed seed, and keeps its
//! own bill. It shares no code with what reads it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use serde_json::{Value, json};
use spettro::world::{Boxed, HttpBody, HttpRequest, HttpResponse, Transport, TransportError};

use super::clock::Virtual;
use crate::provider::{self, Lane, Reply, Request, Wire};

/// Micro-dollars a token.
pub const INPUT: u64 = 3;
pub const OUTPUT: u64 = 15;
/// Of what cannot be had at an attempt, in percent.
const FAULTS: u64 = 30;

/// What the provider does beside failing at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Met,
    SecondTry,
    Impossible,
    NeverMet,
    /// It is gone for good.
    Dead,
    /// It has no room for hours.
    Full,
    /// Nothing is paid any more.
    Quota,
    /// The model declines.
    Declines,
    /// It takes every request and says nothing.
    Silent,
    /// The agent never comes to an end.
    Endless,
}

impl Kind {
    pub const ALL: [Kind; 10] = [
        Kind::Met,
        Kind::SecondTry,
        Kind::Impossible,
        Kind::NeverMet,
        Kind::Dead,
        Kind::Full,
        Kind::Quota,
        Kind::Declines,
        Kind::Silent,
        Kind::Endless,
    ];
}

/// What an attempt cost by the provider's own books.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Billed {
    pub micros: u64,
    /// The runner was told all of it.
    pub reported: bool,
    /// What the whole reply costs. A reply whose last bytes alone are missing is whole for the runner, and it was told.
    pub whole: u64,
}

pub struct Server {
    pub wire: Wire,
    pub kind: Kind,
    pub clock: Rc<Virtual>,
    /// By lane, call and attempt.
    pub bills: RefCell<BTreeMap<(String, u64, u64), Billed>>,
    pub faults: Cell<u64>,
    pub attempts: Cell<u64>,
    chance: Cell<u64>,
}

impl Server {
    pub fn new(wire: Wire, kind: Kind, clock: Rc<Virtual>, seed: u64) -> Server {
        Server {
            wire,
            kind,
            clock,
            bills: RefCell::default(),
            faults: Cell::new(0),
            attempts: Cell::new(0),
            chance: Cell::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
        }
    }

    /// xorshift64*.
    fn below(&self, n: u64) -> u64 {
        let mut x = self.chance.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.chance.set(x);
        (x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % n
    }

    /// What the model says, were there no trouble.
    fn says(&self, lane: Lane, n: u64) -> Reply {
        let step = |n: u64| {
            Reply::thinking("so").and_text("I look.").and_call("bash", json!({"command": format!("echo {n}")}))
        };
        match (self.kind, lane) {
            (Kind::Impossible, Lane::Judge) => Reply::verdict("impossible", "it contradicts itself", ""),
            (Kind::NeverMet, Lane::Judge) => Reply::verdict("unmet", "it is not so", "more"),
            (Kind::SecondTry, Lane::Judge) if n == 1 => Reply::verdict("unmet", "half of it", "the rest"),
            (_, Lane::Judge) => Reply::verdict("met", "it is so", ""),
            (Kind::Declines, _) => Reply::refusal("not this"),
            (Kind::Endless, _) => step(n),
            _ if n.is_multiple_of(3) => Reply::complete("done"),
            _ => step(n),
        }
    }

    /// The trouble that never ends, of some kinds.
    fn fate(&self, lane: Lane, n: u64) -> Option<Reply> {
        let after = lane == Lane::Agent && n >= 2;
        match self.kind {
            Kind::Dead if after => Some(Reply::error(500)),
            Kind::Full if after => Some(Reply::error(429).header("retry-after", "7200")),
            Kind::Quota if after => Some(
                Reply::error(429)
                    .body(r#"{"error":{"code":"insufficient_quota","message":"You exceeded your current quota"}}"#),
            ),
            _ => None,
        }
    }

    fn rate_limit_inside(&self) -> String {
        let message = "Rate limit reached. Please try again in 35.9s";
        match self.wire {
            Wire::Anthropic => {
                let error = json!({"type": "error", "error": {"type": "rate_limit_error", "message": message}});
                format!("event: error\ndata: {error}\n\n")
            }
            Wire::OpenAiResponses => {
                let error = json!({"type": "response.failed", "response": {"status": "failed",
                    "error": {"code": "rate_limit_exceeded", "message": message}}});
                format!("event: response.failed\ndata: {error}\n\n")
            }
            Wire::OpenAiChat => format!("data: {}\n\n", json!({"error": {"code": 429, "message": message}})),
            Wire::Gemini => {
                let error = json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": message}});
                format!("data: {error}\r\n\r\n")
            }
        }
    }

    fn answer(&self, request: HttpRequest) -> Result<HttpResponse, TransportError> {
        self.clock.moved();
        self.attempts.set(self.attempts.get() + 1);
        let tag = request.tag;
        let path = request.url.splitn(4, '/').nth(3).unwrap_or_default();
        let body = request.body.0.concat();
        let input = tokens(&serde_json::from_slice(&body).expect("a JSON body")).div_ceil(4);
        let lane = if tag.lane == spettro::event::Lane::Judge { Lane::Judge } else { Lane::Agent };
        let asked = Request {
            n: usize::try_from(tag.n).expect("small"),
            lane_n: usize::try_from(tag.n).expect("small"),
            lane,
            wire: self.wire,
            path: format!("/{}", path.split('?').next().unwrap_or_default()),
            query: String::new(),
            headers: request.headers,
            body,
            first_byte: Instant::now(),
            received: Instant::now(),
        };
        let cost = |output: u64| input * INPUT + output * OUTPUT;
        let bill = |output: u64, of: u64| {
            let billed = Billed { micros: cost(output), reported: output == of, whole: cost(of) };
            self.bills.borrow_mut().insert((tag.lane.name().to_owned(), tag.n, tag.attempt), billed);
        };
        if self.kind == Kind::Silent && lane == Lane::Agent && tag.n >= 2 {
            return Ok(respond(200, Vec::new(), vec![], End::Hang));
        }
        if let Some(reply) = self.fate(lane, tag.n) {
            let (status, headers, pieces, _) = provider::answer(&reply, &asked);
            return Ok(respond(status, headers, pieces, End::Whole));
        }
        let reply = self.says(lane, tag.n);
        let said = provider::answer(&reply, &asked).3.map_or(1, |usage| usage.output);
        let reply = reply.usage(input, said);
        if self.below(100) >= FAULTS {
            let (status, headers, pieces, usage) = provider::answer(&reply, &asked);
            let usage = usage.expect("a whole reply reports its usage");
            bill(usage.output, usage.output);
            return Ok(respond(status, headers, pieces, End::Whole));
        }
        self.faults.set(self.faults.get() + 1);
        let refuse = |reply: Reply| {
            let (status, headers, pieces, _) = provider::answer(&reply, &asked);
            Ok(respond(status, headers, pieces, End::Whole))
        };
        match self.below(14) {
            0 => Err(TransportError::Connect("connection refused".to_owned())),
            1 => Err(TransportError::Reset("connection reset".to_owned())),
            2 => refuse(Reply::error(500)),
            3 => refuse(Reply::error(529).header("retry-after-ms", "1500")),
            4 => refuse(Reply::error(429).header("retry-after", "20")),
            5 => refuse(Reply::error(503).body(r#"{"error":{"message":"Overloaded, try again in 1m26.4s"}}"#)),
            6 => refuse(Reply::error(408)),
            7 => refuse(Reply::error(502).body("<html><title>502 Bad Gateway</title></html>")),
            8 => Ok(respond(200, Vec::new(), vec![], End::Hang)),
            9 => Ok(respond(200, Vec::new(), vec![self.rate_limit_inside().into_bytes()], End::Whole)),
            fault => {
                let (status, headers, mut pieces, usage) = provider::answer(&reply, &asked);
                // Broken off somewhere before its end; what was made until then is on the bill. A reply's first three
                // events hold nothing of it yet.
                let at = 1 + usize::try_from(self.below(pieces.len() as u64 - 1)).expect("small");
                let all = usage.expect("a whole reply reports its usage").output;
                let output = all * at.saturating_sub(3) as u64 / pieces.len() as u64;
                pieces.truncate(at);
                bill(output, all);
                let end = match fault {
                    10 => End::Whole,
                    11 => End::Reset,
                    12 => End::Hang,
                    _ => {
                        pieces.push(b"data: {\"half\":\n\n".to_vec());
                        End::Whole
                    }
                };
                Ok(respond(status, headers, pieces, end))
            }
        }
    }
}

/// Four times the tokens that a model would see: what is said, and not how the wire puts it.
fn tokens(value: &Value) -> u64 {
    let unseen = [
        "id",
        "call_id",
        "tool_use_id",
        "tool_call_id",
        "encrypted_content",
        "signature",
        "thoughtSignature",
        "type",
        "status",
    ];
    match value {
        Value::String(text) => text.len() as u64,
        Value::Array(all) => all.iter().map(tokens).sum(),
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, _)| !unseen.contains(&name.as_str()))
            .map(|(name, value)| if value.is_string() { tokens(value) } else { name.len() as u64 + tokens(value) })
            .sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

impl Transport for Server {
    fn send(&self, request: HttpRequest) -> Boxed<'_, Result<HttpResponse, TransportError>> {
        let answer = self.answer(request);
        Box::pin(async move { answer })
    }
}

enum End {
    Whole,
    Reset,
    Hang,
}

struct Pieces(VecDeque<Vec<u8>>, End);

impl HttpBody for Pieces {
    fn next(&mut self) -> Boxed<'_, Result<Option<Bytes>, TransportError>> {
        Box::pin(async move {
            match (self.0.pop_front(), &self.1) {
                (Some(piece), _) => Ok(Some(Bytes::from(piece))),
                (None, End::Whole) => Ok(None),
                (None, End::Reset) => Err(TransportError::Reset("connection reset".to_owned())),
                (None, End::Hang) => std::future::pending().await,
            }
        })
    }
}

fn respond(status: u16, headers: Vec<(String, String)>, pieces: Vec<Vec<u8>>, end: End) -> HttpResponse {
    HttpResponse { status, headers, body: Box::new(Pieces(pieces.into(), end)) }
}
