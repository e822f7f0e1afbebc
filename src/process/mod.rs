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
