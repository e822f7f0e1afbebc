//! Runs a recorded session again, with every port answered from its recording, and says where the two part.
//!
//! The loop, its tools' wording, cuts and spools, the checks' reading, the judge's packet, compaction and the ledger
//! run for real; what the provider, commands, jobs, clock and signals gave is the recording's. Invariant: hermetic: no
//! provider is asked, no key looked up, no process started, and nothing is written outside the scratch folder. Called
//! by the command line.

mod answers;
mod clock;
mod compare;
mod cursor;
mod diff;
mod drive;
mod exec;
mod files;
mod finding;
mod ground;
mod locate;
mod model;
mod part;
mod report;
mod scratch;
mod session;
mod track;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

pub use finding::{Aspect, Compared, Divergence, Guess, Standing};
pub use model::{Chunks, Faults};
pub use report::{ChangedPart, Report, Variant};
pub use session::replay;

use crate::goal::{Problem, Source};
use crate::model::Endpoint;

/// How a session is replayed.
#[derive(Debug, Clone)]
pub struct Options {
    pub faults: Faults,
    pub chunks: Chunks,
    /// Sources that are the recording's although this build has others.
    pub from_tape: BTreeSet<Source>,
    /// Where the scratch folder is made.
    pub temporary: PathBuf,
    /// Added to the recorded time of day.
    pub clock_offset: Duration,
    /// Folders are listed backwards.
    pub backwards: bool,
}

/// The endpoints of a session.
pub struct Endpoints {
    pub agent: Endpoint,
    pub judge: Option<Endpoint>,
    pub summarizer: Endpoint,
}

/// Why nothing could be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("`{0}` holds replies only; there is no run to replay in it")]
    RepliesOnly(String),
    #[error("the recording lacks {0}")]
    Lacks(String),
    #[error("the recorded configuration cannot be read: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Config(Vec<Problem>),
    #[error("make a scratch folder in `{}`: {}", .0.display(), .1)]
    Scratch(PathBuf, std::io::Error),
    #[error("the scratch folder `{}` would be inside a git repository", .0.display())]
    Inside(PathBuf),
    #[error("start the runtime: {0}")]
    Runtime(std::io::Error),
    #[error(transparent)]
    Session(#[from] crate::session::SessionError),
}
