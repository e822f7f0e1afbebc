//! The baseline: how the workspace and its checks stood before the agent changed anything.
//!
//! It runs beside the first model call and is awaited before the first tool that can change something.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use super::checks;
use super::config::{Config, When};
use super::effects::Witness;
use super::failure::{Cause, session};
use super::iterate::check_cause;
use super::progress;
use crate::event::{CheckResult, Outcome, TaskGraph};
use crate::session::{Fact, Progress, Session};
use crate::workspace::{BASE_FILE, Base, Git, Tree};
use crate::world::{Halt, Roots, Secrets, World};

/// The name of the listing in the session folder.
const LISTING: &str = "baseline.json";

/// What the baseline found.
#[derive(Debug, Clone, Default)]
pub struct Found {
    pub git_tree: Option<String>,
    /// relative path → content digest.
    pub files: BTreeMap<PathBuf, String>,
    /// Checks of `start` and `each_iteration`.
    pub checks: Vec<CheckResult>,
    /// The state at the start, until the loop has taken it in.
    pub progress: Option<Progress>,
    /// Set when it ends the run.
    pub cause: Option<Cause>,
}

/// What the baseline needs; it owns it, since it runs beside the loop.
pub struct Baseline {
    pub world: World,
    pub halt: Halt,
    pub session: Session,
    pub config: Rc<Config>,
    pub roots: Roots,
    pub tree: Rc<RefCell<Tree>>,
    /// Where effects are recorded.
    pub witness: Option<Witness>,
    pub git: Rc<Git>,
    /// Variables that commands do not see.
    pub removed: Rc<[String]>,
    pub secrets: Secrets,
}

impl Baseline {
    pub async fn run(self) -> Found {
        let mut found = Found::default();
        if let Err(cause) = self.take(&mut found).await {
            found.cause = Some(cause);
        }
        found
    }

    async fn take(&self, found: &mut Found) -> Result<(), Cause> {
        let environment = |error: &dyn std::fmt::Display| Cause::new(Outcome::Environment, error.to_string());
        // The private snapshot starts a process first, so the first request is on its way before files are hashed.
        found.git_tree = match self.git.snapshot(&self.world).await {
            Ok(tree) => tree,
            Err(error) => {
                let text = format!("git cannot tell what will change ({error}); files are compared instead");
                self.notice("git_unknown", text)?;
                None
            }
        };
        let digest = {
            let mut tree = self.tree.borrow_mut();
            let digest = tree.digest(&self.world).map_err(|error| environment(&error))?;
            found.files.clone_from(tree.files());
            digest
        };
        self.append(Fact::Listing { digest: Some(digest.clone()), changed: Vec::new() })?;
        self.keep_base().await?;
        let listing = if found.git_tree.is_none() {
            let by_name: BTreeMap<String, &String> =
                found.files.iter().map(|(path, digest)| (path.to_string_lossy().into_owned(), digest)).collect();
            let json = serde_json::to_vec(&by_name).map_err(|error| environment(&error))?;
            self.session.write_file(LISTING, &json).map_err(|error| session(&error))?;
            Some(LISTING.to_owned())
        } else {
            None
        };
        self.append(Fact::Baseline { git_tree: found.git_tree.clone(), listing })?;
        let spool = self.session.spool();
        for check in self.config.checks.iter().filter(|check| check.when != When::BeforeJudge) {
            if self.halt.why().is_some() {
                return Ok(());
            }
            let result = checks::run(&self.world, &self.halt, &self.roots, &spool, check, &self.removed).await;
            if let Some(witness) = &self.witness {
                witness.look();
            }
            checks::program_exists(check, &result).map_err(|error| check_cause(&error))?;
            found.checks.push(result);
        }
        self.append(Fact::Checks { iteration: 0, results: found.checks.clone() })?;
        let gating: Vec<CheckResult> = found.checks.clone();
        let head = self.git.head().unwrap_or_default();
        let fact = progress::state(0, Some(digest), head, &gating, &TaskGraph::default());
        found.progress = Some(fact.clone());
        self.append(Fact::Progress(Box::new(fact)))
    }

    /// Keeps what the workspace holds, for replays. Without it a run is a run all the same.
    async fn keep_base(&self) -> Result<(), Cause> {
        if self.tree.borrow().is_told() {
            return Ok(());
        }
        let root = self.roots.real.clone();
        let (base, file) = (Base::of(&self.tree.borrow(), &root), self.session.dir().join(BASE_FILE));
        let secrets = self.secrets.clone();
        let why = match tokio::task::spawn_blocking(move || base.keep(&root, &file, &secrets)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        self.notice("base_not_kept", format!("a replay will lack the workspace as it was found: {why}"))
    }

    fn append(&self, fact: Fact) -> Result<(), Cause> {
        self.session.append(fact).map(|_| ()).map_err(|error| session(&error))
    }

    fn notice(&self, code: &str, text: String) -> Result<(), Cause> {
        let text = self.secrets.redact_str(&text).into_owned();
        self.append(Fact::Notice { code: code.to_owned(), text })
    }
}

/// Reads back the listing of an earlier run.
pub fn listing(session: &Session, name: &str) -> std::io::Result<BTreeMap<PathBuf, String>> {
    let bytes = std::fs::read(session.dir().join(name))?;
    let by_name: BTreeMap<String, String> = serde_json::from_slice(&bytes)?;
    Ok(by_name.into_iter().map(|(name, digest)| (PathBuf::from(name), digest)).collect())
}
