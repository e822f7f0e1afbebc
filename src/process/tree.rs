//! The words in which a command's process tree is asked for and reported.

use std::ffi::CString;
use std::time::Duration;

use crate::world::Leftover;

/// One tree to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// At least one element.
    pub argv: Vec<CString>,
    /// `NAME=value` each; the whole environment.
    pub env: Vec<CString>,
    pub cwd: CString,
    pub timeout: Option<Duration>,
    /// Between TERM and KILL.
    pub grace: Duration,
    /// How long what a foreground leader leaves behind may take to end by itself.
    pub settle: Duration,
    pub max_descendants: usize,
    /// What the zygote was told to confine the leader to; without such an order it is not started.
    pub confined: Confined,
    /// A job's tree lives on without its leader.
    pub job: bool,
    /// What a foreground leader leaves behind is reported and lives on.
    pub keep: bool,
}

/// What a leader takes upon itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confined {
    No = 0,
    /// The sandbox of commands.
    Command = 1,
    /// The same, with the folders of spettro's own git.
    Git = 2,
}

/// How a leader ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Exited(i32),
    Signaled(i32),
}

/// Why a tree was not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotStarted {
    Cwd,
    Missing,
    Denied,
    /// A number of the system.
    Other(i32),
}

/// Why a tree is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Its leader ended by itself.
    Ended = 0,
    TimedOut = 1,
    /// The runner wanted it.
    Ordered = 2,
    TooMany = 3,
    /// What supervised it died.
    Lost = 4,
}

/// The last that is heard of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    pub status: Option<Status>,
    pub reason: Reason,
    /// What a foreground leader left running, and was stopped.
    pub leftovers: Vec<Leftover>,
    /// What could not be killed.
    pub survivors: Vec<Leftover>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    Started {
        supervisor: i32,
        leader: i32,
    },
    NotStarted(NotStarted),
    /// The leader of a job ended, and so many descendants live.
    LeaderEnded {
        status: Status,
        alive: usize,
    },
    /// After that: so many live now.
    Alive(usize),
    /// The leader of a foreground command ended, and what it left is kept.
    Kept {
        status: Status,
        leftovers: Vec<Leftover>,
    },
    Gone(Gone),
}
