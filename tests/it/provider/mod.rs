//! A scripted provider on loopback: every wire, byte-exact, able to cut, stall and split anywhere.
//!
//! Every request is recorded and held against the rules of its wire (`check`), so any test fails whose runner
//! sends an orphan. Invariant: it shares no code with spettro, so that neither can hide the other's mistake.
//! Used by the integration tests, and by hand through the example `provider`.
#![allow(dead_code, unused_imports, reason = "the tests and the example use different parts")]

mod answer;
mod check;
mod http;
mod reply;
mod request;
mod script;
mod server;
mod stream;

pub use check::contains;
pub use reply::{Block, Gate, Reply, Served, Step, Usage, respond_with};
pub use request::{Lane, Request, ToolResult, Wire, rest_start};
pub use script::Script;
pub use server::Provider;

/// Status, headers, the pieces of a body, and the usage it reports.
pub type Answer = (u16, Vec<(String, String)>, Vec<Vec<u8>>, Option<Usage>);

/// A reply as a wire sends it, without a server: status, headers, the pieces of its body, and the usage it reports.
pub fn answer(reply: &Reply, request: &Request) -> Answer {
    let mut reply = reply.clone();
    stream::with_ids(&mut reply, request.n);
    let asked = request::Asked::of(request.wire, &request.path, &request.body);
    let response = stream::response(&reply, request, &asked);
    (response.status, response.headers, response.pieces, response.usage)
}
