//! What stands at the beginning: the frozen bytes of a session, the facts of a run, the setup commands.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use super::super::checks::{command, text};
use super::super::failure::{Cause, cause};
use super::super::judge;
use super::super::result::{Before, Identity};
use super::{RunParts, append};
use crate::compact;
use crate::event::{Compactions, GoalRef, Outcome};
use crate::model::Endpoint;
use crate::session::{Fact, Frozen, RunStart};
use crate::tools::Tools;
use crate::turn::{self, Ended as Stopped};
use crate::workspace::GitState;
use crate::world::{CommandKind, Ending as Ended, Why};

/// An endpoint as it is stored: what headers, query parameters and additions to the body hold may be secret, and is
/// read again from the configuration when the session is resumed.
pub(super) fn endpoint_json(endpoint: &Endpoint) -> Result<serde_json::Value, Cause> {
    let stored = Endpoint {
        headers: BTreeMap::new(),
        query_params: BTreeMap::new(),
        extra_body: Vec::new(),
        ..endpoint.clone()
    };
    serde_json::to_value(stored).map_err(|error| Cause::new(Outcome::Internal, error.to_string()))
}

/// Runs the setup commands, once a session, before the baseline.
pub(super) async fn setup(parts: &RunParts) -> Result<(), Cause> {
    let limit = Duration::from_millis(parts.config.limits.command_ms);
    for step in &parts.config.setup {
        let command = command(CommandKind::Setup, step, &parts.roots, Path::new(""), limit, &[]);
        let failed = |what: String| Cause::new(Outcome::Environment, format!("setup `{}` {what}", step.shown));
        let finished = parts.halt.run(parts.world.exec.run(command)).await;
        let finished = finished.map_err(|why| {
            let cause = cause(&Stopped::Halted(why));
            Cause { message: format!("{} during the setup `{}`", cause.message, step.shown), ..cause }
        })?;
        let finished = finished.map_err(|error| failed(format!("did not start: {error}")))?;
        let output = text(&finished.output);
        match finished.ending {
            Ended::Exited(0) => {}
            Ended::Exited(code) => return Err(failed(format!("failed with exit {code}")).hint(last_lines(&output))),
            Ended::TimedOut => {
                return Err(failed("took longer than `limits.command`".to_owned()).hint(last_lines(&output)));
            }
            other => return Err(failed(format!("ended as {other:?}")).hint(last_lines(&output))),
        }
    }
    Ok(())
}

/// Halts a run whose setup alone has used up the time. Never returns. In a replay time has no limit.
pub(super) async fn time_is_up(parts: &RunParts, active_ms: u64) {
    if let (Some(limit), None) = (parts.config.limits.time_ms, &parts.replayed) {
        parts.world.clock.sleep(Duration::from_millis(limit.saturating_sub(active_ms))).await;
        parts.halt.set(Why::TimeLimit);
    }
    std::future::pending().await
}

/// The last lines of an output, for a hint.
fn last_lines(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    format!("its output ends with:\n{}", lines[lines.len().saturating_sub(10)..].join("\n"))
}

/// The exact bytes that every later run of the session sends first.
pub(super) fn freeze(
    parts: &RunParts,
    digest: String,
    system: String,
    tools: &Tools,
    around: &turn::Surroundings,
) -> Result<Frozen, Cause> {
    let mut heads = BTreeMap::new();
    let mut endpoints = BTreeMap::new();
    heads.insert("agent".to_owned(), parts.endpoint.wire.head(&system, &tools.schemas()));
    endpoints.insert("agent".to_owned(), endpoint_json(&parts.endpoint)?);
    if let Some(judge) = &parts.judge {
        heads.insert("judge".to_owned(), judge::head(judge));
        endpoints.insert("judge".to_owned(), endpoint_json(judge)?);
    }
    heads.insert("summarizer".to_owned(), compact::head(&parts.summarizer));
    endpoints.insert("summarizer".to_owned(), endpoint_json(&parts.summarizer)?);
    let config = &parts.config;
    Ok(Frozen {
        goal: config.goal.clone(),
        goal_name: config.name.clone(),
        goal_digest: digest,
        goal_file: config.goal_file.as_ref().map(|path| path.to_string_lossy().into_owned()),
        title: parts.title.clone(),
        system,
        environment: parts.secrets.redact_str(&turn::environment(around)).into_owned(),
        heads,
        config: config.yaml.clone(),
        config_digest: config.digest.clone(),
        endpoints,
    })
}

/// sha256 of a goal's text, hex.
pub fn goal_digest(goal: &str) -> String {
    use sha2::Digest;
    crate::model::hex(&sha2::Sha256::digest(goal.as_bytes()))
}

pub(super) fn start_fact(parts: &RunParts, resumed: bool, git: &GitState, frozen: &Frozen) -> Result<(), Cause> {
    let endpoints = [Some(&parts.endpoint), parts.judge.as_ref()];
    let mut foreign: Vec<String> = endpoints
        .into_iter()
        .flatten()
        .filter(|endpoint| !endpoint.own && endpoint.cassette.is_none())
        .map(|endpoint| format!("{} at {}", endpoint.provider, host(&endpoint.base_url)))
        .collect();
    foreign.dedup();
    append(
        &parts.session,
        Fact::Run(Box::new(RunStart {
            run: parts.run.clone(),
            version: parts.version.clone(),
            resumed,
            recorded: parts.world.transport.recorded(),
            config_digest: parts.config.digest.clone(),
            model: parts.endpoint.name(),
            judge_model: parts.judge.as_ref().map(Endpoint::name),
            limits: parts.config.limits.clone(),
            endpoints: foreign,
            sandbox: parts.sandbox.clone(),
            workspace: parts.roots.shown.to_string_lossy().into_owned(),
            git_base: git.head.clone(),
            git_branch: git.branch.as_deref().map(|name| parts.secrets.redact_str(name).into_owned()),
            git_prefix: git.prefix.clone(),
            removed: parts.removed.clone(),
            config: (parts.config.digest != frozen.config_digest).then(|| parts.config.yaml.clone()),
            id_seed: parts.world.ids.seed(),
            redacted: parts.secrets.names(),
        })),
    )
}

/// The host of a URL, without user, path and query.
fn host(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    authority.rsplit_once('@').map_or(authority, |(_, host)| host).to_owned()
}

pub(super) fn identity(
    parts: &RunParts,
    frozen: &Frozen,
    before: Before,
    compactions: Rc<Cell<Compactions>>,
) -> Identity {
    Identity {
        run: parts.run.clone(),
        session: parts.session.id(),
        session_dir: parts.session.dir(),
        workspace: parts.roots.shown.to_string_lossy().into_owned(),
        copy: parts.copy.as_ref().map(|path| path.to_string_lossy().into_owned()),
        goal: GoalRef {
            name: frozen.goal_name.clone(),
            file: frozen.goal_file.clone(),
            digest: frozen.goal_digest.clone(),
        },
        model: parts.endpoint.name(),
        judge_model: parts.judge.as_ref().map(Endpoint::name),
        recorded: parts.world.transport.recorded(),
        sandbox: parts.sandbox.clone(),
        limits: parts.config.limits.clone(),
        before,
        compactions,
        resume: parts.resume.clone(),
    }
}
