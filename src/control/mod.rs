//! The control socket of a run: what another process of the same user may ask of it.
//!
//! A run listens on a Unix socket that its session's lock names. One connection carries one request and one answer,
//! each one line of JSON. Invariants: whatever the run itself has started is refused; «accepted» is said only of
//! what stands in the log; nobody who connects can hold up the loop or make it fail. Called by `cli` alone: `run`
//! serves beside its loop, the verbs ask. The loop knows nothing of this room: it sees a queue, a halt and jobs.

mod client;
mod kin;
mod place;
mod server;

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use client::ask;
pub use server::{Desk, Server};

/// The longest line either side sends or reads, in bytes.
const MOST_BYTES: usize = 64 * 1024;

/// What may be asked. On the wire: `{"ask":"steer","text":"…"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Request {
    /// Tell the agent something at the next step boundary.
    Steer { text: String },
    /// Finish the running tool call, save, end.
    Stop,
    /// The run's background jobs.
    Jobs,
    /// End jobs: `job-N`, or `all`.
    Kill { ids: Vec<String> },
    /// How the run stands.
    Status,
}

/// What is answered. On the wire: `{"answer":"stopping"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// The steering is in the log. With `ending` the run delivers nothing any more; the next one of the session does.
    Accepted {
        ending: bool,
    },
    Stopping,
    /// All jobs in the order started.
    Jobs {
        jobs: Vec<Job>,
    },
    /// The jobs that were told to end, as they ended.
    Killed {
        jobs: Vec<Job>,
    },
    Status {
        run: String,
        session: String,
        ending: Option<String>,
        jobs_alive: usize,
        undelivered: usize,
    },
    /// It was not done; why.
    Error {
        message: String,
    },
}

/// A background job, for a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// `job-N`.
    pub id: String,
    /// `running`, `exited 0`, `leader exited (2 still running)`, …
    pub state: String,
    pub alive: bool,
    pub command: String,
    pub started_ms_ago: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("the folder for control sockets, `{}`, {why}", .folder.display())]
    Folder { folder: PathBuf, why: String },
    #[error("listen on `{}`: {error}", .socket.display())]
    Listen { socket: PathBuf, error: io::Error },
    #[error("reach the run at `{}`: {error}", .socket.display())]
    Reach { socket: PathBuf, error: io::Error },
    /// The run has not begun to listen, or could not.
    #[error("the run does not listen")]
    Deaf,
    #[error("`{}` is answered by process {found}, not by the run's process {wanted}", .socket.display())]
    Impostor { socket: PathBuf, wanted: u32, found: i32 },
    #[error("the request is longer than {MOST_BYTES} bytes")]
    TooLong,
    #[error("the run ended before it answered")]
    Ended,
    #[error("the answer is not understood: {0}")]
    Garbled(String),
}
