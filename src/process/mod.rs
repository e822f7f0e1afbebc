//! Starts and ends children: the real `Exec`.
//!
//! On Linux a *zygote* forks a *supervisor* for each command, which starts the *leader* and proves that the whole
//! tree is gone when the command is over. The runner holds a control socket to each supervisor; whoever dies, the
//! others notice. Elsewhere commands are process groups (`group`), which a descendant can leave.
//!
//! Invariants: a child never outlives its run; `unsafe` is in `sys` alone; nobody waits for «any child» here; what
//! a child prints is free of secrets before anything keeps it. Called by `tools`, `goal`, `workspace` through the
//! port, and by `cli`, which makes it.

#![allow(clippy::disallowed_methods, reason = "this room is where processes, clocks and sleeps are real")]

mod command;
mod credential;
mod environment;
mod gate;
mod itself;
mod job;
mod proc;
mod reaper;
mod ring;
pub mod sandbox;
mod shutdown;
mod signals;
mod sweep;
mod sys;
mod tree;
mod watchdog;

#[cfg(not(target_os = "linux"))]
#[path = "group.rs"]
mod backend;
#[cfg(target_os = "linux")]
#[path = "zygote/mod.rs"]
mod backend;

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::world::Secrets;

pub use backend::zygote_main;
pub use command::Process;
pub use credential::key_command;
pub use environment::{ChildEnvironment, child_environment, hint, looks_secret};
pub use itself::itself;
pub use proc::{Stat, filters, is_helper, stat};
pub use signals::{Dispositions, SignalEvent, Signals, force, reraise};
pub use sweep::{LEDGER_NAME, sweep};
pub use watchdog::{LastWords, Watchdog};

/// Processes that this one has started, helpers included.
static STARTED: AtomicU64 = AtomicU64::new(0);

/// How many processes this one has started so far, or asked its helper for.
pub fn started() -> u64 {
    STARTED.load(Ordering::Relaxed)
}

/// One more is about to be started.
fn starting() {
    STARTED.fetch_add(1, Ordering::Relaxed);
}

/// `env:` of a goal file: what children see of spettro's own environment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvPolicy {
    /// Globs of variable names that pass although they look like secrets.
    pub pass: Vec<String>,
    pub set: Vec<(String, String)>,
    /// Only a strict list (PATH, HOME, LANG, …) and `pass`, `set`.
    pub clean: bool,
}

/// What all children of a run have in common.
#[derive(Debug, Clone)]
pub struct ProcessOptions {
    /// The program that has the hidden subcommand `__zygote`: spettro itself.
    pub executable: PathBuf,
    /// The whole environment of each child (see [`child_environment`]); a command's own `env` comes on top.
    pub environment: Vec<(String, String)>,
    /// The same for spettro's own git.
    pub git_environment: Vec<(String, String)>,
    /// Replaced in all output at capture.
    pub secrets: Secrets,
    /// Goes to children as `SPETTRO_RUN_ID` and into the ledger.
    pub run_id: String,
    /// The directory of `children.jsonl`, the ledger by which the next start finds what a crash left. Without it
    /// none is kept until [`Process::open_ledger`] names one.
    pub ledger_dir: Option<PathBuf>,
    /// What a foreground command leaves running is kept until the run ends, instead of being ended with the command.
    pub keep_leftovers: bool,
    /// A command with more descendants is ended.
    pub max_descendants: usize,
}

impl Default for ProcessOptions {
    fn default() -> Self {
        ProcessOptions {
            executable: PathBuf::from("/proc/self/exe"),
            environment: Vec::new(),
            git_environment: Vec::new(),
            secrets: Secrets::default(),
            run_id: String::new(),
            ledger_dir: None,
            keep_leftovers: false,
            max_descendants: 1024,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("start the helper `{0}` that starts commands: {1}")]
    Zygote(PathBuf, std::io::Error),
    #[error("become the parent of orphaned children: {0}")]
    Subreaper(std::io::Error),
    #[error("handle signals: {0}")]
    Signals(std::io::Error),
    #[error("start the thread that ends a run which stands still: {0}")]
    Watchdog(std::io::Error),
    #[error("prepare the sandbox: {0}")]
    Sandbox(std::io::Error),
    #[error("use the ledger of children `{0}`: {1}")]
    Ledger(PathBuf, std::io::Error),
}

/// Makes the process ready to start commands. To be called before threads, runtime and TLS; the methods of the
/// result belong into a tokio runtime.
pub fn start(options: ProcessOptions) -> Result<Rc<Process>, ProcessError> {
    Ok(Rc::new(Process::new(options)?))
}
