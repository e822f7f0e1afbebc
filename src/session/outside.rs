//! Facts about what came from outside besides a provider's bytes: what commands gave, how jobs stood, what the
//! workspace held. A replay takes them from here, and starts no process.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wirelog::Blob;
use crate::world::{Captured, CommandKind, Ending, ExecError, Finished, JobInfo, JobState, Leftover};

/// Outputs of tools and checks up to this stand in the fact itself, longer ones in the spool, where they are anyway.
pub const INLINE_BYTES: u64 = 4_096;

/// The same for what nobody else spools: spettro's own git, setup steps. Such an output in the spool takes a number
/// there that the agent's outputs then leave out.
pub const INLINE_OWN_BYTES: u64 = 1 << 20;

/// A guard of the workspace found something at the end of a turn: what a replay takes instead of looking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Guarded {
    pub guard: Guard,
    /// The words about it.
    pub text: String,
    /// It could not be put back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stands: bool,
}

/// What looks after a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Guard {
    /// The files of `protect:` and the goal file were changed.
    Protected,
    /// It could not be told whether they were.
    Unreadable,
    /// Such files were touched while the checks ran.
    Meanwhile,
    /// What makes git or spettro act otherwise later.
    Tripwire,
}

/// What a command was started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    Tool,
    Job,
    Check,
    Setup,
    /// spettro's own git.
    Git,
}

impl From<CommandKind> for Purpose {
    fn from(kind: CommandKind) -> Purpose {
        match kind {
            CommandKind::Tool => Purpose::Tool,
            CommandKind::Job => Purpose::Job,
            CommandKind::Check => Purpose::Check,
            CommandKind::Setup => Purpose::Setup,
            CommandKind::Git => Purpose::Git,
        }
    }
}

/// A command was over, or a job was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandRun {
    pub purpose: Purpose,
    /// For people.
    pub label: String,
    /// sha256 of what was started where. Paths of the session's folder and of the workspace are in it by their roles.
    pub sha256: String,
    pub end: CommandEnd,
    pub duration_ms: u64,
    #[serde(default, skip_serializing_if = "Printed::is_nothing")]
    pub output: Printed,
    /// What it left running, as `(pid, name)`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leftovers: Vec<(i32, String)>,
    /// What it left runs on until the run ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CommandEnd {
    Exited(i32),
    Signaled(i32),
    TimedOut,
    Lost,
    Cancelled,
    TooManyProcesses,
    /// Nobody waited for its end any more.
    Dropped,
    /// A job runs.
    Started,
    /// It was not started: which way, and the words about it.
    Refused {
        error: Refusal,
        words: Vec<String>,
    },
}

/// Why a command was not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    NotFound,
    NotExecutable,
    BadCwd,
    ShuttingDown,
    TooManyJobs,
    Failed,
}

/// What a command printed, as captured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Printed {
    /// Start and end, one after the other; absent when they are in the spool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Blob>,
    /// The id of a text in the spool that begins with it: a tool's or check's own, where it was one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spool: Option<u64>,
    /// How much of it is the start.
    pub head_bytes: u64,
    /// What was not kept between start and end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted_bytes: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tail_bytes: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Printed {
    fn is_nothing(&self) -> bool {
        *self == Printed::default()
    }

    /// The output as it was captured, from what the spool has under its id. `None` when that holds something else.
    pub fn captured(&self, spooled: &[u8]) -> Option<Captured> {
        let (head, tail) = (usize::try_from(self.head_bytes).ok()?, usize::try_from(self.tail_bytes).ok()?);
        match &self.bytes {
            Some(bytes) => Some(Captured {
                head: bytes.0.get(..head)?.to_vec(),
                omitted_bytes: self.omitted_bytes,
                tail: bytes.0.get(head..)?.to_vec(),
            }),
            None => Captured::within(spooled, head, self.omitted_bytes, tail),
        }
    }
}

impl CommandEnd {
    pub fn of(ending: Ending) -> CommandEnd {
        match ending {
            Ending::Exited(status) => CommandEnd::Exited(status),
            Ending::Signaled(signal) => CommandEnd::Signaled(signal),
            Ending::TimedOut => CommandEnd::TimedOut,
            Ending::Lost => CommandEnd::Lost,
            Ending::Cancelled => CommandEnd::Cancelled,
            Ending::TooManyProcesses => CommandEnd::TooManyProcesses,
        }
    }

    pub fn of_error(error: &ExecError) -> CommandEnd {
        let (error, words) = match error {
            ExecError::NotFound(name) => (Refusal::NotFound, vec![name.clone()]),
            ExecError::NotExecutable(name) => (Refusal::NotExecutable, vec![name.clone()]),
            ExecError::BadCwd(path) => (Refusal::BadCwd, vec![path.clone()]),
            ExecError::ShuttingDown => (Refusal::ShuttingDown, Vec::new()),
            ExecError::TooManyJobs(alive) => (Refusal::TooManyJobs, vec![alive.clone()]),
            ExecError::Failed(name, why) => (Refusal::Failed, vec![name.clone(), why.clone()]),
            ExecError::Miss(what) => (Refusal::Failed, vec![what.clone(), "no recorded command".to_owned()]),
        };
        CommandEnd::Refused { error, words }
    }
}

impl CommandRun {
    /// What the command gave, with its output as it was captured. `None` when nobody ever heard of its end.
    pub fn finished(&self, output: Captured, duration: std::time::Duration) -> Option<Result<Finished, ExecError>> {
        let ending = match &self.end {
            CommandEnd::Exited(status) => Ending::Exited(*status),
            CommandEnd::Signaled(signal) => Ending::Signaled(*signal),
            CommandEnd::TimedOut => Ending::TimedOut,
            CommandEnd::Lost => Ending::Lost,
            CommandEnd::Cancelled => Ending::Cancelled,
            CommandEnd::TooManyProcesses => Ending::TooManyProcesses,
            CommandEnd::Dropped | CommandEnd::Started => return None,
            CommandEnd::Refused { error, words } => return Some(Err(refused(*error, words))),
        };
        let leftovers = self.leftovers.iter().map(|(pid, name)| Leftover { pid: *pid, name: name.clone() }).collect();
        Some(Ok(Finished { ending, output, duration, leftovers, kept: self.kept }))
    }

    /// Whether a job was started.
    ///
    /// # Errors
    /// Why it was not.
    pub fn started(&self) -> Result<(), ExecError> {
        match &self.end {
            CommandEnd::Refused { error, words } => Err(refused(*error, words)),
            _ => Ok(()),
        }
    }
}

fn refused(error: Refusal, words: &[String]) -> ExecError {
    let word = |index: usize| words.get(index).cloned().unwrap_or_default();
    match error {
        Refusal::NotFound => ExecError::NotFound(word(0)),
        Refusal::NotExecutable => ExecError::NotExecutable(word(0)),
        Refusal::BadCwd => ExecError::BadCwd(word(0)),
        Refusal::ShuttingDown => ExecError::ShuttingDown,
        Refusal::TooManyJobs => ExecError::TooManyJobs(word(0)),
        Refusal::Failed => ExecError::Failed(word(0), word(1)),
    }
}

/// A background job as the loop saw it, when that was news.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobSeen {
    pub job: String,
    pub command: String,
    pub state: JobStands,
    /// From its start to its end, where that has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    pub printed_bytes: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped_bytes: u64,
    pub last_line: String,
}

/// See [`JobState`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobStands {
    Running,
    LeaderExited { status: i32, still_running: usize },
    Exited(i32),
    Signaled(i32),
    Killed,
    TimedOut,
    Lost,
}

impl From<&JobState> for JobStands {
    fn from(state: &JobState) -> JobStands {
        match state {
            JobState::Running => JobStands::Running,
            JobState::LeaderExited { status, still_running } => {
                JobStands::LeaderExited { status: *status, still_running: *still_running }
            }
            JobState::Exited(status) => JobStands::Exited(*status),
            JobState::Signaled(signal) => JobStands::Signaled(*signal),
            JobState::Killed => JobStands::Killed,
            JobState::TimedOut => JobStands::TimedOut,
            JobState::Lost => JobStands::Lost,
        }
    }
}

impl From<&JobStands> for JobState {
    fn from(state: &JobStands) -> JobState {
        match state {
            JobStands::Running => JobState::Running,
            JobStands::LeaderExited { status, still_running } => {
                JobState::LeaderExited { status: *status, still_running: *still_running }
            }
            JobStands::Exited(status) => JobState::Exited(*status),
            JobStands::Signaled(signal) => JobState::Signaled(*signal),
            JobStands::Killed => JobState::Killed,
            JobStands::TimedOut => JobState::TimedOut,
            JobStands::Lost => JobState::Lost,
        }
    }
}

impl JobSeen {
    pub fn of(job: &JobInfo) -> JobSeen {
        let took = job.ended.and_then(|ended| ended.duration_since(job.started).ok());
        JobSeen {
            job: job.id.clone(),
            command: job.command.clone(),
            state: (&job.state).into(),
            duration_ms: took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
            printed_bytes: job.printed_bytes,
            dropped_bytes: job.dropped_bytes,
            last_line: job.last_line.clone(),
        }
    }
}

/// A path of the workspace that differs from the baseline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListedChange {
    /// Relative to the workspace.
    pub path: String,
    /// Digests of its content; absent where it did not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}
