//! `--dry-run`: the baseline is taken and the first request is built as a run would, and nothing is sent or stored.

use std::path::PathBuf;

use super::checks;
use super::config::{Config, When};
use super::failure::{Cause, call};
use super::iterate::check_cause;
use super::sources;
use crate::event::{CheckResult, Micros, Outcome};
use crate::model::{Conversation, Endpoint, Factor, Ledger, reservation};
use crate::process::sandbox::Policy;
use crate::session::{Message, Origin, Spool};
use crate::turn;
use crate::workspace::{Git, Tree};
use crate::world::{Halt, Roots, Secrets, World};

/// What a preview is made from.
pub struct PreviewParts<'a> {
    pub world: World,
    pub halt: Halt,
    pub config: &'a Config,
    pub endpoint: &'a Endpoint,
    pub roots: Roots,
    /// A private folder that is removed afterwards.
    pub folder: PathBuf,
    pub own_dirs: Vec<PathBuf>,
    /// Variables that commands do not see.
    pub removed: Vec<String>,
    pub secrets: Secrets,
    /// The level obtained.
    pub sandbox: String,
}

/// What a run would begin with.
#[derive(Debug)]
pub struct Preview {
    pub url: String,
    /// Of the request's input.
    pub estimate_tokens: u64,
    pub max_output_tokens: u64,
    pub reserved: Micros,
    /// The body.
    pub request: serde_json::Value,
    /// Of the workspace's content, and how many files that is.
    pub digest: String,
    pub files: usize,
    pub checks: Vec<CheckResult>,
    pub sandbox: String,
    pub notes: Vec<String>,
}

/// Takes the baseline and builds the first request.
///
/// # Errors
/// What would end a run before its first request.
pub async fn preview(parts: PreviewParts<'_>) -> Result<Preview, Cause> {
    let PreviewParts { world, halt, config, endpoint, roots, folder, own_dirs, removed, secrets, sandbox } = parts;
    let config = &config.without(&secrets);
    let environment = |error: &dyn std::fmt::Display| Cause::new(Outcome::Environment, error.to_string());
    let git = Git::new(roots.clone(), folder.join("git"));
    let (around, _, unknown) = sources::surroundings(&world, &roots, &git).await;
    let (system, cut) = sources::system(config, &roots, &secrets)?;
    let mut notes: Vec<String> = unknown.into_iter().chain(cut).collect();
    if !config.setup.is_empty() {
        notes.push("`setup` is not run by --dry-run: checks that need it do not pass".to_owned());
    }

    // Only what is offered is shown; nothing of it runs.
    let head = endpoint.wire.head(
        &system,
        &sources::tools(config, &own_dirs, &removed, &secrets, std::rc::Rc::new(Policy::off())).schemas(),
    );
    let mut conversation = Conversation::new(endpoint.wire, &head, Factor::default());
    let environment_block = secrets.redact_str(&turn::environment(&around)).into_owned();
    let text = sources::opening(config, &environment_block);
    let first = Message::User { origin: Origin::Prompt, text };
    sources::room_to_begin(endpoint, config.compaction.threshold_pct, &head, &system, &first)?;
    conversation.seal(&[first]);
    let reserved = reservation(&Ledger::new(&config.limits), &conversation, endpoint).map_err(|error| call(&error))?;
    let front = endpoint.front(reserved.max_output_tokens, None, false);
    let body: Vec<u8> = conversation.rest().body(&front).concat();
    let request = serde_json::from_slice(&body)
        .map_err(|error| Cause::new(Outcome::Internal, format!("the request: {error}")))?;

    let mut tree = Tree::new(roots.clone(), own_dirs);
    let digest = tree.digest(&world).map_err(|error| environment(&error))?;
    let spool = Spool::new(folder.join("spool"));
    let mut results = Vec::new();
    for check in config.checks.iter().filter(|check| check.when != When::BeforeJudge) {
        let result = checks::run(&world, &halt, &roots, &spool, check, &removed).await;
        checks::program_exists(check, &result).map_err(|error| check_cause(&error))?;
        results.push(result);
    }
    Ok(Preview {
        url: endpoint.url(),
        estimate_tokens: conversation.occupancy_tokens(),
        max_output_tokens: reserved.max_output_tokens,
        reserved: reserved.cost,
        request,
        digest,
        files: tree.files().len(),
        checks: results,
        sandbox,
        notes,
    })
}
