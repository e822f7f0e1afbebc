//! The one door to a model: `gateway` reserves, logs, sends and retries, settles and logs, for every lane.
//!
//! Invariant: nothing else in spettro sends a byte to a provider, and no call leaves before its reservation is in
//! the log. Called by the turn (agent), the goal loop (judge) and compaction (summarizer).

mod catalog;
mod cleaning;
mod conversation;
mod error;
mod estimate;
mod gateway;
mod http;
mod keys;
mod ledger;
mod pages;
mod price;
mod reply;
mod request;
mod retry;
mod taken;
pub mod wire;

pub use catalog::{
    Endpoint, EndpointError, KeySource, Listed, ModelSpec, ProviderSpec, describe, is_listed, is_loopback,
    key_variables, listed, resolve, usable,
};
pub use conversation::{Conversation, message_count};
pub use error::ModelError;
pub use estimate::{Count, Factor};
pub use gateway::{Ask, CallError, Gateway, GatewayParts, Meter, Patience, ask_window, reservation, smaller_window};
pub use http::Http;
pub use keys::{Keys, RunKeyCommand};
pub use ledger::{Hit, Ledger, Reservation};
pub use price::Price;
pub use reply::{Delta, Partial, Reply, Stop, blocks_text};
pub(crate) use request::hex;
pub use request::{Front, Rest, ToolSchema};
