//! Starts and ends children: the real `Exec`.

use serde::{Deserialize, Serialize};

/// `env:` of a goal file: what children see of spettro's own environment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvPolicy {
    /// Globs of variable names that pass although they look like secrets.
    pub pass: Vec<String>,
    pub set: Vec<(String, String)>,
    /// Only a strict list (PATH, HOME, LANG, …) and `pass`, `set`.
    pub clean: bool,
}

// CONTRACT stubs until the process room is merged.
#[derive(Debug, Clone, Copy)]
pub enum SignalEvent {
    Stop(i32),
    Drain,
    Status,
}
pub struct Signals;
impl Signals {
    pub async fn next(&mut self) -> SignalEvent {
        std::future::pending().await
    }
}
