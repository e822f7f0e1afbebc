//! Tools that really run in a replay: the scratch copy of the workspace, the commands in it, and what they gave beside
//! what was recorded.
//!
//! Invariant: what starts here starts under the sandbox that a run would have, and nothing of it outlives the replay.

mod answers;
mod exec;
mod fill;
mod mapped;

use std::path::{Path, PathBuf};
use std::rc::Rc;

pub use answers::LiveAnswers;
pub use exec::LiveExec;
pub use fill::fill;
pub use mapped::Mapped;

use crate::event::Outcome;
use crate::goal::{Cause, Config};
use crate::process::sandbox::Policy;
use crate::process::{Process, Signals};
use crate::world::{Boxed, Secrets, World};

/// What starts commands, before they are confined.
pub struct Started {
    pub exec: Rc<Process>,
    /// Variables that commands do not see.
    pub removed: Vec<String>,
    pub secrets: Secrets,
}

/// The machine that a replay runs on, where tools really run.
pub trait Real {
    /// The real ports, and an `Exec` that starts nothing.
    fn world(&self) -> World;

    /// Folders whose repositories may hold the recorded commit, the likeliest first. `recorded`: where it was found.
    fn repositories(&self, recorded: &Path) -> Vec<PathBuf>;

    /// Makes ready to start commands.
    ///
    /// # Errors
    /// When nothing can be started.
    fn start(&self, config: &Config, workspace: &Path) -> Result<Started, Cause>;

    /// Confines to a workspace what is started from now on: the policy, and the level obtained. `sessions` is kept from
    /// it; `git` is the folder that spettro's own git writes to.
    ///
    /// # Errors
    /// When the sandbox as written cannot be kept.
    fn confine(
        &self,
        started: &Started,
        config: &Config,
        workspace: &Path,
        sessions: &Path,
        git: &Path,
    ) -> Result<(Rc<Policy>, String), Cause>;

    /// Resolves when a signal says that all is to end.
    fn stopped(&self) -> Boxed<'_, Outcome>;

    /// The signals themselves, for a run that hears them; nothing else does from then on.
    fn signals(&self) -> Option<Signals>;
}
