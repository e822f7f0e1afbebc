//! Remembers: one append-only log of facts per session, its raw wire bytes, its spool, and what derives from them.
//!
//! Invariant: `session.jsonl` (with `wire.jsonl` and `spool/` that it names) is the only truth; every other file
//! carries the seq it stands at and is rebuilt when it lags. A fact is written before what depends on it happens.

mod facts;

pub use facts::*;
mod contract;
pub use contract::*;
