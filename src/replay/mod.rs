//! Runs a recorded session again, with every port answered from its recording, and says where the two part.
//!
//! The loop, its tools' wording, cuts and spools, the checks' reading, the judge's packet, compaction and the ledger
//! run for real; what the provider, commands, jobs, clock and signals gave is the recording's. Invariant: hermetic: no
//! provider is asked, no key looked up, no process started, and nothing is written outside the scratch folder; with
//! [`ToolMode::Live`] processes start, under the sandbox of a run. A [`retake()`] alone asks somebody else. Called by the
//! command line.

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
mod held;
mod live;
mod locate;
mod model;
mod part;
mod report;
mod retake;
mod scratch;
mod session;
mod track;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

pub use finding::{Aspect, Compared, Divergence, Guess, Standing};
pub use live::{Real, Started};
pub use model::{Chunks, Faults};
pub use report::{ChangedPart, Report, Variant};
pub use retake::{Against, Done, Retake, RetakeReport, retake};
pub use session::replay;

use crate::event::Outcome;
use crate::goal::{Cause, Config, Problem, Source};
use crate::model::Endpoint;
use crate::world::Secrets;

/// Where the answers of tools come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ToolMode {
    /// From the recording; tools for files run beside it in a scratch copy.
    #[default]
    Recorded,
    /// All of them really run in the scratch copy, and the first result that differs ends the replay.
    Live,
    /// From the recording, and there is no workspace.
    Stub,
}

impl ToolMode {
    pub const fn name(self) -> &'static str {
        match self {
            ToolMode::Recorded => "recorded",
            ToolMode::Live => "live",
            ToolMode::Stub => "stub",
        }
    }
}

/// A goal file as it is today, to be held against the recorded one.
#[derive(Debug, Clone)]
pub struct Today {
    pub config: Config,
    /// What is hidden where a configuration is stored.
    pub secrets: Secrets,
}

/// How a session is replayed.
#[derive(Clone)]
pub struct Options {
    pub tools: ToolMode,
    /// What really runs, with [`ToolMode::Live`].
    pub real: Option<Rc<dyn Real>>,
    /// Goal, configuration and instructions are these; absent, the recording's.
    pub today: Option<Today>,
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
    #[error("the recording is of the goal `{recorded}`, and `{now}` is another one")]
    OtherGoal { recorded: String, now: String },
    #[error("commit {commit} of the recorded workspace is in no repository at hand: {looked}")]
    NoCommit { commit: String, looked: String },
    #[error("the workspace as it was found cannot be put together: {0}")]
    NoContent(String),
    #[error("stopped by a signal ({})", .0.name())]
    Stopped(Outcome),
    #[error("{}", .0.message)]
    Real(Cause),
    #[error(transparent)]
    Workspace(#[from] crate::workspace::WorkspaceError),
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
