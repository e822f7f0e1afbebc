//! The effective configuration of one goal: what the loop obeys, whoever set it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::compact::Settings as Compaction;
use crate::event::Limits;
use crate::model::{ModelSpec, Price, ProviderSpec};
use crate::process::EnvPolicy;
use crate::process::sandbox::Wanted;
use crate::world::Secrets;

/// Everything a run needs, after flag > environment > goal file > user's config > default.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub name: String,
    /// Trimmed, 1 byte to 64 KiB.
    pub goal: String,
    /// The goal file, absolute; absent with `-p` or `--goal -`.
    pub goal_file: Option<PathBuf>,
    pub criteria: Vec<String>,
    /// Canonical.
    pub workspace: PathBuf,
    pub workspace_mode: WorkspaceMode,
    pub setup: Vec<Shell>,
    pub model: ModelSpec,
    /// `None` when `judge: off`.
    pub judge: Option<Judge>,
    pub checks: Vec<Check>,
    pub skip_if_met: bool,
    pub protect: Vec<String>,
    pub limits: Limits,
    pub compaction: Compaction,
    /// Most that the kept outputs of a session may take on disk.
    pub spool_max_bytes: u64,
    /// `None`: the agent's model.
    pub summarizer: Option<ModelSpec>,
    pub rate_limit_max_wait: Duration,
    pub instructions: Vec<String>,
    /// Names of tools; `None` allows all.
    pub tools_allow: Option<Vec<String>>,
    pub tools_deny: Vec<String>,
    pub env: EnvPolicy,
    pub sandbox: Wanted,
    /// What a command leaves running is kept until the run ends, instead of being stopped with the command.
    pub leftovers_run: bool,
    pub providers: BTreeMap<String, ProviderSpec>,
    pub prices: BTreeMap<String, Price>,
    /// Names of variables whose values are secrets.
    pub redact: Vec<String>,
    /// Write down what each step did to the files of the workspace.
    pub record_effects: bool,
    /// Wait for the disk before each command.
    pub sync_strict: bool,
    /// The whole effective configuration as YAML, in the key table's order, without secrets.
    pub yaml: String,
    /// sha256 of `yaml`.
    pub digest: String,
}

impl Config {
    /// The same with secrets replaced in all that a model or the session's log gets to see. What is run stays as it
    /// is.
    pub fn without(&self, secrets: &Secrets) -> Config {
        let clean = |text: &String| secrets.redact_str(text).into_owned();
        let mut config = self.clone();
        config.goal = clean(&self.goal);
        config.criteria = self.criteria.iter().map(clean).collect();
        config.yaml = clean(&self.yaml);
        for shell in config.setup.iter_mut().chain(config.checks.iter_mut().map(|check| &mut check.run)) {
            shell.shown = clean(&shell.shown);
        }
        config
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceMode {
    InPlace,
    /// A private copy, kept, named in the result.
    Copy,
}

/// What to run: a text is given to `bash -euo pipefail -c`, a list is the argument list itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shell {
    pub argv: Vec<String>,
    /// As written, for people.
    pub shown: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Judge {
    /// `None`: the agent's model.
    pub model: Option<ModelSpec>,
    /// The last N messages in the packet.
    pub messages: u64,
    pub timeout: Duration,
    pub retries: u64,
    /// Odd.
    pub votes: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    pub name: String,
    pub run: Shell,
    /// Relative to the workspace.
    pub cwd: PathBuf,
    pub timeout: Duration,
    pub expect: i32,
    pub when: When,
    pub required: bool,
    pub env: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// At the baseline only; facts, never gating.
    Start,
    EachIteration,
    /// After all required ones pass.
    BeforeJudge,
}
