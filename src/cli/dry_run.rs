//! `spettro run --dry-run`: the baseline and what would be sent, without a call and without a session.

use std::io::Write;
use std::path::Path;

use serde_json::json;

use super::failure::Failure;
use crate::event::Outcome;
use crate::goal::{Config, Preview, PreviewParts, WorkspaceMode, own_dirs, preview};
use crate::model::Endpoint;
use crate::process::{SignalEvent, Signals};
use crate::report::Format;
use crate::session::WorkspaceLock;
use crate::world::{Halt, Roots, Secrets, Why, World};

/// What a dry run needs.
pub struct DryRun<'a> {
    pub world: World,
    pub config: &'a Config,
    pub endpoint: &'a Endpoint,
    /// Variables that commands do not see.
    pub removed: Vec<String>,
    pub secrets: Secrets,
    pub home: &'a Path,
    pub session_root: &'a Path,
    /// The private `TMPDIR` of commands.
    pub temporary: &'a Path,
    /// The level obtained.
    pub sandbox: String,
    pub run_id: &'a str,
}

impl DryRun<'_> {
    /// Takes the baseline (in a private copy, where the run would work in one) and builds the first request.
    ///
    /// # Errors
    /// What would end the run before its first request; a signal.
    pub async fn look(self, mut signals: Signals) -> Result<Preview, Failure> {
        let DryRun { world, config, endpoint, removed, secrets, home, session_root, .. } = self;
        let DryRun { temporary, sandbox, run_id, .. } = self;
        let folder = tempfile::Builder::new()
            .prefix("spettro-dry-")
            // Where commands may write: they work in a copy there, if the run would.
            .tempdir_in(temporary)
            .map_err(|error| Failure::new(Outcome::Environment, format!("make a temporary folder: {error}")))?;
        let project = &config.workspace;
        let (lock, workspace) = match config.workspace_mode {
            WorkspaceMode::InPlace => {
                (Some(WorkspaceLock::take(&world, home, project, run_id).await?), project.to_owned())
            }
            WorkspaceMode::Copy => {
                let copy = folder.path().join("workspace");
                crate::workspace::copy(&world, project, &copy)?;
                (None, copy)
            }
        };
        let halt = Halt::new();
        let own_dirs = own_dirs(home, session_root, &workspace);
        let parts = PreviewParts {
            world: world.clone(),
            halt: halt.clone(),
            config,
            endpoint,
            // The agent would see the project's own path, or that of a copy that does not exist yet.
            roots: Roots { shown: project.to_owned(), real: workspace },
            folder: folder.path().to_owned(),
            own_dirs,
            removed,
            secrets,
            sandbox,
        };
        let stop = async {
            loop {
                if let SignalEvent::Stop(signal) = signals.next().await {
                    halt.set(Why::Signal(Outcome::of_signal(signal)));
                }
            }
        };
        let seen = tokio::select! {
            biased;
            seen = preview(parts) => seen,
            () = stop => unreachable!("signals are listened to for ever"),
        };
        world.exec.shutdown(std::time::Duration::from_secs(5)).await;
        drop(lock);
        match halt.why() {
            Some(why) => Err(Failure::new(why.outcome(), format!("stopped by {}", why.name()))),
            None => Ok(seen?),
        }
    }
}

/// Writes a preview: as comments and the request's body, or all of it as one JSON object.
///
/// # Errors
/// When it cannot be written.
pub fn show(preview: &Preview, format: Format, out: &mut dyn Write) -> Result<(), Failure> {
    let internal = |error: serde_json::Error| Failure::new(Outcome::Internal, error);
    if format != Format::Text {
        let object = json!({
            "v": 1,
            "dry_run": true,
            "url": preview.url,
            "estimate_tokens": preview.estimate_tokens,
            "max_output_tokens": preview.max_output_tokens,
            "reserved_usd": preview.reserved.dollars(),
            "baseline": {"digest": preview.digest, "files": preview.files, "checks": preview.checks},
            "sandbox": preview.sandbox,
            "notes": preview.notes,
            "request": preview.request,
        });
        writeln!(out, "{}", serde_json::to_string(&object).map_err(internal)?)?;
        return Ok(out.flush()?);
    }
    let mut text = format!("# sandbox: {}\n", preview.sandbox);
    text.push_str(&format!("# baseline: {} files, content {}\n", preview.files, preview.digest));
    for check in &preview.checks {
        let exit = check.exit_code.map_or_else(String::new, |code| format!(" (exit {code})"));
        let required = if check.required { "" } else { ", not required" };
        let seconds = check.duration_ms as f64 / 1_000.0;
        let name = &check.name;
        text.push_str(&format!("# check {name}: {}{exit} {seconds:.1}s{required}\n", check.status.name()));
    }
    text.push_str(&format!(
        "# POST {}\n# about {} tokens of input and at most {} of output; {} dollars are reserved for it\n{}\n",
        preview.url,
        preview.estimate_tokens,
        preview.max_output_tokens,
        preview.reserved,
        serde_json::to_string_pretty(&preview.request).map_err(internal)?
    ));
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
