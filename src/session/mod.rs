//! Remembers: one append-only log of facts per session, its raw wire bytes, its spool, and what derives from them.
//!
//! Invariant: `session.jsonl` (with `wire.jsonl` and `spool/` that it names) is the only truth; every other file
//! carries the seq it stands at and is rebuilt when it lags. A fact is written before what depends on it happens.

mod derived;
mod edit;
mod effects;
mod error;
mod facts;
mod files;
mod fold;
mod handle;
mod line;
mod lock;
mod log;
mod modes;
mod outside;
mod result;
mod spool;
mod spooled;
mod store;
mod sync;
#[cfg(test)]
pub(crate) mod tests;
mod wirelog;

pub use derived::{DeriveState, GoalState, Metadata, SessionUsage, derive, title};
pub use edit::{compact, entry_name, prune};
pub use effects::{Effects, FileEffect, FileKind, FileState};
pub use error::SessionError;
pub use facts::*;
pub use fold::{OpenJob, Output, State, fold};
pub use handle::{Instead, Listener, Opened, Session};
pub use line::UnknownFact;
pub use lock::{Live, Unused, WorkspaceLock, live, unused};
pub use log::chained;
pub use outside::*;
pub use result::{amend_result, ended_outside, write_result};
pub use spool::{Found, News, Spool};
pub use store::{Listed, Store, check_id};
pub use sync::Sync;
pub use wirelog::{Blob, WireAttempt, WireLine, WireRequest, WireResponse, read_wires};
