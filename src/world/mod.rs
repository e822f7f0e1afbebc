//! Time, chance and the outside: the ports through which everything enters that may differ between two runs of
//! the same thing, and their real implementations.
//!
//! Invariant: port traits live here and nowhere else; no other room reads a clock, an environment variable, a
//! directory listing or a random number by itself. Every room may use this one.

pub mod beneath;
mod halt;
mod ignored;
mod paths;
mod ports;
mod real;
pub mod regular;
mod secrets;

pub use halt::{Halt, Why};
pub use paths::{Roots, account_home, home_dir, user_home};
pub use ports::{
    Body, Boxed, Captured, Clock, Command, CommandKind, Dir, DirEntry, Ending, Enter, Env, Exec, ExecError, Explored,
    Finished, HttpBody, HttpRequest, HttpResponse, Ids, JobInfo, JobState, KeyAt, Leftover, PageRequest, Tag,
    Transport, TransportError, WalkOptions, World,
};
pub use real::{RealClock, RealDir, RealEnv, RealIds, rfc3339};
pub use secrets::{Redactor, Secrets};
