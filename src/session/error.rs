//! Why a session could not be opened, read or written.

use std::io;
use std::path::{Path, PathBuf};

use super::facts::LOG_VERSION;

/// Why a session could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("`{}` is no session id", .0.escape_debug())]
    BadId(String),
    #[error("no session `{id}`")]
    Unknown { id: String },
    #[error("no saved sessions for `{workspace}`")]
    NoneSaved { workspace: String },
    #[error("`{prefix}` fits several sessions: {}", listed(.ids))]
    Ambiguous { prefix: String, ids: Vec<String> },
    /// Another process (or another open file of this one) holds the lock.
    #[error("{what} is in use by {holder}")]
    Busy {
        what: String,
        holder: String,
        /// The holder's session.
        session: Option<String>,
    },
    /// A bad line that is not the torn last one. Lines count from 1.
    #[error("{}: line {line}: {reason}", .file.display())]
    Corrupt { file: PathBuf, line: u64, reason: String },
    #[error("{} was written by a newer spettro (version {version}; this build reads {LOG_VERSION})", .file.display())]
    Newer { file: PathBuf, version: u32 },
    /// Somebody else wrote into the log while it was open.
    #[error("{} was changed by another process", .file.display())]
    Foreign { file: PathBuf },
    #[error("{what} {}: {error}", .file.display())]
    Io {
        what: &'static str,
        file: PathBuf,
        #[source]
        error: io::Error,
    },
}

/// So many ids are listed in a message.
const MOST_LISTED: usize = 5;

fn listed(ids: &[String]) -> String {
    let shown = ids.iter().take(MOST_LISTED).map(String::as_str).collect::<Vec<_>>().join(", ");
    if ids.len() > MOST_LISTED { format!("{shown} and {} more", ids.len() - MOST_LISTED) } else { shown }
}

impl SessionError {
    /// For `map_err`: what was being done (`write`, `open`, …) to which file.
    pub(super) fn io(what: &'static str, file: &Path) -> impl FnOnce(io::Error) -> SessionError {
        move |error| SessionError::Io { what, file: file.to_owned(), error }
    }
}
