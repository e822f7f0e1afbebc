//! The port traits and their plain data.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::event::{Lane, Leaked};

/// A future on the loop's one thread.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// All ports of one run. Replay and tests swap single members.
#[derive(Clone)]
pub struct World {
    pub transport: Rc<dyn Transport>,
    pub exec: Rc<dyn Exec>,
    pub dir: Rc<dyn Dir>,
    pub clock: Rc<dyn Clock>,
    pub ids: Rc<dyn Ids>,
    pub env: Rc<dyn Env>,
}

// ---------------------------------------------------------------------------------------------- Transport

/// Which attempt of which call a request is. A player of recorded replies serves them in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    pub lane: Lane,
    /// Counts the calls of the lane in the session from 1.
    pub n: u64,
    /// Counts the attempts of the call from 1.
    pub attempt: u64,
}

/// A request body as the segments it is made of; their concatenation is what goes over the wire.
#[derive(Debug, Clone, Default)]
pub struct Body(pub Vec<Bytes>);

impl Body {
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[derive(Debug, Clone)]
pub struct HttpRequest {
    pub tag: Tag,
    pub method: &'static str,
    pub url: String,
    /// Names in lower case. Values may hold keys: a transport never logs them.
    pub headers: Vec<(String, String)>,
    pub body: Body,
    pub connect_timeout: Duration,
    /// Certificates (PEM) to trust beside the machine's own.
    pub ca_file: Option<PathBuf>,
}

/// Where a key stands that no variable holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyAt {
    /// Absolute.
    File(PathBuf),
    /// What it prints is the key.
    Command(Vec<String>),
}

impl fmt::Display for KeyAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyAt::File(path) => write!(f, "the key file `{}`", path.display()),
            KeyAt::Command(argv) => {
                write!(f, "the key command `{}`", argv.first().map_or("", String::as_str))
            }
        }
    }
}

/// A page of the web that the agent wants to read. Nothing of spettro's or of a provider's goes with it: no key, no
/// cookie, no proxy.
#[derive(Debug, Clone)]
pub struct PageRequest {
    /// http or https, without a user in it.
    pub url: String,
    /// Addresses of this machine and of private networks are open, too.
    pub private: bool,
    pub connect_timeout: Duration,
}

pub struct HttpResponse {
    pub status: u16,
    /// Names in lower case, in the order received.
    pub headers: Vec<(String, String)>,
    pub body: Box<dyn HttpBody>,
}

/// The bytes of a response, as the network delivers them. `None` is the end of the body.
pub trait HttpBody {
    fn next(&mut self) -> Boxed<'_, Result<Option<Bytes>, TransportError>>;
}

/// Why no (further) bytes came. All are retryable but `Unsendable`, `Refused` and a player's miss.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TransportError {
    #[error("connect: {0}")]
    Connect(String),
    #[error("connection lost: {0}")]
    Reset(String),
    #[error("no answer within the time allowed")]
    Timeout,
    /// The request cannot be sent as it is (a header that is none): trying again is of no use.
    #[error("the request cannot be sent: {0}")]
    Unsendable(String),
    /// The address is one that pages are not fetched from; nothing was sent.
    #[error("{0}")]
    Refused(String),
    /// The recorded replies have no (matching) answer: fatal, never retried or repaired.
    #[error("no recorded reply: {0}")]
    Miss(String),
}

/// Provider bytes, and pages for the agent.
pub trait Transport {
    /// Sends one request and resolves when the response's head has arrived. Dropping the future or the body
    /// aborts the exchange.
    fn send(&self, request: HttpRequest) -> Boxed<'_, Result<HttpResponse, TransportError>>;

    /// Asks for one page, and resolves when the response's head has arrived. Redirects are not followed. The address
    /// is checked when the connection is made, whatever name it has. What plays recorded replies fetches nothing.
    fn fetch(&self, request: PageRequest) -> Boxed<'_, Result<HttpResponse, TransportError>> {
        Box::pin(async move { Err(TransportError::Miss(format!("the page `{}`", request.url))) })
    }

    /// The key that stands at `at`, as it was read last; `again` reads it anew. `None` where no key is needed
    /// (recorded replies). The error says what is wrong with it, and never holds the key.
    fn key<'a>(&'a self, _at: &'a KeyAt, _again: bool) -> Boxed<'a, Result<Option<String>, String>> {
        Box::pin(async { Ok(None) })
    }

    /// True when replies are recorded ones.
    fn recorded(&self) -> bool {
        false
    }

    /// How many requests so far were not the ones that the replies were recorded for.
    fn differing(&self) -> u64 {
        0
    }
}

// --------------------------------------------------------------------------------------------------- Exec

/// What a process is started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandKind {
    /// The agent's foreground command.
    Tool,
    /// The agent's background command.
    Job,
    Check,
    Setup,
    /// spettro's own git.
    Git,
}

/// One process to start. stdin is `/dev/null`; stdout and stderr share one order-keeping pipe.
#[derive(Debug, Clone)]
pub struct Command {
    pub kind: CommandKind,
    /// Program and arguments; never a shell unless the first element is one.
    pub argv: Vec<String>,
    /// Absolute.
    pub cwd: PathBuf,
    /// Set on top of the child environment.
    pub env: Vec<(String, String)>,
    pub timeout: Option<Duration>,
    /// Between TERM and KILL when it must end.
    pub grace: Duration,
    /// Most bytes kept from the start and from the end of the output.
    pub keep_bytes: usize,
    /// For people and for the note about leftovers.
    pub label: String,
}

/// Output as captured: secrets replaced, otherwise raw bytes. Everything when `omitted_bytes` is 0, else the
/// first and last `keep_bytes`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    pub head: Vec<u8>,
    pub omitted_bytes: u64,
    pub tail: Vec<u8>,
}

impl Captured {
    pub fn total_bytes(&self) -> u64 {
        self.head.len() as u64 + self.omitted_bytes + self.tail.len() as u64
    }

    /// Start and end in one, between them a line that says how much is missing.
    pub fn joined(&self) -> Vec<u8> {
        let mut joined = self.head.clone();
        if self.omitted_bytes > 0 {
            joined.extend_from_slice(format!("\n[{} bytes omitted]\n", self.omitted_bytes).as_bytes());
        }
        joined.extend_from_slice(&self.tail);
        joined
    }

    /// An output of which so much was kept, read back from a text that begins with it: its start, where something is
    /// missing one line that says so, its end. `None` when the text is too short for that.
    pub fn within(text: &[u8], head_bytes: usize, omitted_bytes: u64, tail_bytes: usize) -> Option<Captured> {
        let (head, mut rest) = text.split_at_checked(head_bytes)?;
        if omitted_bytes > 0 {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            rest = &rest[rest.iter().position(|byte| *byte == b'\n')? + 1..];
        }
        Some(Captured { head: head.to_vec(), omitted_bytes, tail: rest.get(..tail_bytes)?.to_vec() })
    }
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Exited(i32),
    Signaled(i32),
    /// Its tree was ended when the timeout was over.
    TimedOut,
    /// Its supervisor disappeared; its tree is gone.
    Lost,
    /// Ended by the teardown of the run.
    Cancelled,
    /// More than the allowed number of descendants.
    TooManyProcesses,
}

/// A process that a foreground command left running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    pub pid: i32,
    pub name: String,
}

#[derive(Debug, Clone)]
pub struct Finished {
    pub ending: Ending,
    pub output: Captured,
    pub duration: Duration,
    pub leftovers: Vec<Leftover>,
    /// Its leftovers live on until the run ends; otherwise they were stopped.
    pub kept: bool,
}

/// Why a command was not started.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ExecError {
    #[error("`{0}`: command not found")]
    NotFound(String),
    #[error("`{0}`: permission denied, or not a program")]
    NotExecutable(String),
    #[error("working directory `{0}` cannot be entered")]
    BadCwd(String),
    #[error("spettro is shutting down; command not started")]
    ShuttingDown,
    #[error("16 background jobs are alive already: {0}")]
    TooManyJobs(String),
    #[error("start `{0}`: {1}")]
    Failed(String, String),
    /// The recorded run has no such command next.
    #[error("no recorded command: {0}")]
    Miss(String),
}

/// The state of a background job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    Running,
    /// The leader has exited with that status, and so many descendants live.
    LeaderExited {
        status: i32,
        still_running: usize,
    },
    Exited(i32),
    Signaled(i32),
    Killed,
    TimedOut,
    Lost,
}

impl JobState {
    /// Whether any process of it lives.
    pub const fn alive(&self) -> bool {
        matches!(self, JobState::Running | JobState::LeaderExited { .. })
    }
}

/// `running`, `exited 0`, `leader exited (2 still running)`, …
impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobState::Running => f.write_str("running"),
            JobState::LeaderExited { still_running, .. } => write!(f, "leader exited ({still_running} still running)"),
            JobState::Exited(status) => write!(f, "exited {status}"),
            JobState::Signaled(signal) => write!(f, "killed by signal {signal}"),
            JobState::Killed => f.write_str("killed"),
            JobState::TimedOut => f.write_str("timed out"),
            JobState::Lost => f.write_str("lost"),
        }
    }
}

/// What is known of a background job.
#[derive(Debug, Clone)]
pub struct JobInfo {
    /// `job-N`, N counted from 1 in the session.
    pub id: String,
    pub command: String,
    pub state: JobState,
    pub started: SystemTime,
    pub ended: Option<SystemTime>,
    /// Bytes printed so far; those before `dropped_bytes` are no longer in the ring.
    pub printed_bytes: u64,
    pub dropped_bytes: u64,
    pub last_line: String,
}

/// Commands, checks, jobs and spettro's own git.
pub trait Exec {
    /// Runs a command to its end: its leader's exit, its timeout or the teardown. What it left running is ended
    /// and named, or kept and named where the run says so. Dropping the future kills the whole tree at once.
    fn run(&self, command: Command) -> Boxed<'_, Result<Finished, ExecError>>;

    /// Starts a background job named `job` (`job-N`).
    fn start(&self, job: &str, command: Command) -> Boxed<'_, Result<(), ExecError>>;

    /// All jobs of this run in the order started.
    fn jobs(&self) -> Vec<JobInfo>;

    /// Up to `limit` bytes of a job's output from absolute `offset` on, with the offset they really start at.
    /// `None` for an unknown job.
    fn read(&self, job: &str, offset: u64, limit: usize) -> Option<(u64, Vec<u8>)>;

    /// Ends a job's whole tree (TERM, then KILL after the grace); resolves when it is gone.
    fn kill<'a>(&'a self, job: &'a str) -> Boxed<'a, ()>;

    /// Resolves when any job has printed or changed state since the call.
    fn changed(&self) -> Boxed<'_, ()>;

    /// True while a command, a check or a job has a living process; what a finished command was allowed to leave is
    /// none.
    fn busy(&self) -> bool;

    /// Refuses every further start, ends all trees in parallel (TERM, KILL after `grace`), and resolves with what
    /// is still alive. `grace` zero kills at once. May be called again.
    fn shutdown(&self, grace: Duration) -> Boxed<'_, Vec<Leaked>>;
}

// ---------------------------------------------------------------------------------------------------- Dir

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    pub name: std::ffi::OsString,
    pub is_dir: bool,
    pub is_symlink: bool,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct WalkOptions {
    /// Honour `.gitignore`, `.ignore` and git's exclude files.
    pub gitignore: bool,
    /// Descend into nested git repositories (directories below the root that hold a `.git`).
    pub nested_repositories: bool,
}

/// Whether a folder, relative to where the listing began, is gone into.
pub type Enter = Arc<dyn Fn(&Path) -> bool + Send + Sync>;

/// What a listing found, as paths relative to where it began, sorted by bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Explored {
    /// Everything that is no folder, in the folders that were gone into.
    pub files: Vec<PathBuf>,
    /// Folders, those included that were not gone into; not where it began.
    pub folders: Vec<PathBuf>,
    /// What could not be read, in words.
    pub unread: Vec<String>,
}

/// The only lister of directories. Everything comes sorted by bytes.
pub trait Dir {
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>>;

    /// Every file and symlink below `root` (never `.git` itself), as paths relative to it, sorted by bytes, and
    /// what could not be read. Symlinks are listed and not followed.
    fn walk(&self, root: &Path, options: WalkOptions) -> (Vec<PathBuf>, Vec<String>) {
        let explored = self.explore(root, options, Arc::new(|_| true));
        (explored.files, explored.unread)
    }

    /// As `walk`, but only into the folders that are named, with all folders that it came to.
    fn explore(&self, root: &Path, options: WalkOptions, enter: Enter) -> Explored;
}

// ------------------------------------------------------------------------------------- Clock, Ids, Env

pub trait Clock {
    /// Wall time, for what is stored or shown.
    fn now(&self) -> SystemTime;

    /// Monotonic time since some fixed point, for durations and limits.
    fn elapsed(&self) -> Duration;

    fn sleep(&self, duration: Duration) -> Boxed<'_, ()>;
}

/// Chance, per purpose, so that one more draw for one purpose does not move the others.
pub trait Ids {
    fn draw(&self, purpose: &'static str) -> u64;

    /// What every draw follows from, as hex, so that a replay can draw the same; `None` when nothing can be told.
    fn seed(&self) -> Option<String> {
        None
    }
}

/// spettro's own environment.
pub trait Env {
    /// `None` when unset or not UTF-8.
    fn var(&self, name: &str) -> Option<String>;

    fn vars(&self) -> Vec<(String, String)>;
}

impl fmt::Debug for HttpResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpResponse").field("status", &self.status).finish_non_exhaustive()
    }
}
