//! What the first request of a session is made from: tools, instruction files, what stands around the run, the
//! opening message. Read once and frozen; `--dry-run` shows the same.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use super::config::{Config, When};
use super::failure::Cause;
use crate::compact;
use crate::event::Outcome;
use crate::model::Endpoint;
use crate::process::sandbox::Policy;
use crate::session::Message;
use crate::tools::{ToolOptions, Tools, Web};
use crate::turn::{self, Surroundings};
use crate::workspace::{Git, GitState};
use crate::world::{Roots, Secrets, World, beneath};

/// Most bytes of all instruction files together.
const INSTRUCTION_BYTES: usize = 32 * 1024;

/// The tools that a goal offers. `removed`: variables that commands do not see. `policy`: what file tools may touch.
pub fn tools(
    config: &Config,
    own_dirs: &[PathBuf],
    removed: &[String],
    secrets: &Secrets,
    policy: Rc<Policy>,
) -> Tools {
    Tools::new(ToolOptions {
        allow: config.tools_allow.clone(),
        deny: config.tools_deny.clone(),
        command_limit: Duration::from_millis(config.limits.command_ms),
        own_dirs: own_dirs.to_vec(),
        policy,
        web: Web { network: config.sandbox.network.clone(), private: config.web_private },
        jobs: true,
        removed: removed.to_vec(),
        secrets: secrets.clone(),
    })
}

/// The environment block's facts, the repository's state, and what git could not tell.
pub async fn surroundings(world: &World, roots: &Roots, git: &Git) -> (Surroundings, GitState, Option<String>) {
    let (state, unknown) = match git.state(world).await {
        Ok(state) => (state, None),
        Err(error) => (None, Some(format!("git cannot answer: {error}"))),
    };
    let branch = state.as_ref().map(|state| {
        let name = state.branch.clone().unwrap_or_else(|| "(detached)".to_owned());
        (name, state.dirty.len())
    });
    let date = crate::world::rfc3339(world.clock.now());
    let around = Surroundings {
        workspace: roots.shown.to_string_lossy().into_owned(),
        os: std::env::consts::OS.to_owned(),
        date: date.chars().take(10).collect(),
        git: branch,
    };
    (around, state.unwrap_or_default(), unknown)
}

/// The system prompt with the instruction files of the workspace root, 32 KiB together, and what was cut.
///
/// # Errors
/// When a file that is there cannot be read.
pub fn system(config: &Config, roots: &Roots, secrets: &Secrets) -> Result<(String, Vec<String>), Cause> {
    let mut left = INSTRUCTION_BYTES;
    let (mut found, mut cut) = (Vec::new(), Vec::new());
    for name in &config.instructions {
        let bytes = match read_within(&roots.real, name) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => {
                cut.push(format!("`{name}` is not read: it is no file of the workspace"));
                continue;
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => {
                let place = roots.shown.display();
                let cause =
                    Cause::new(Outcome::Environment, format!("read `{name}` of the workspace `{place}`: {error}"));
                return Err(match error.kind() {
                    io::ErrorKind::PermissionDenied => cause.hint("the workspace must be readable for who runs this"),
                    _ => cause,
                });
            }
        };
        let mut text = secrets.redact_str(&String::from_utf8_lossy(&bytes)).into_owned();
        if text.len() > left {
            text.truncate(text.floor_char_boundary(left));
            cut.push(format!("`{name}` is cut: instructions take at most 32 KiB"));
        }
        left -= text.len();
        if !text.trim().is_empty() {
            found.push((name.clone(), text));
        }
    }
    Ok((turn::system(&found), cut))
}

/// The content of a file of the workspace, links within it followed; more than is ever taken is not read. `None`: it
/// leads out of the workspace, or is no file.
fn read_within(workspace: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
    let real = beneath::resolve(&workspace.join(name))?;
    if !real.starts_with(beneath::resolve(workspace)?) {
        return Ok(None);
    }
    let file = beneath::open_to_read(&real)?;
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(4 * INSTRUCTION_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// The message that opens a session.
pub fn opening(config: &Config, environment: &str) -> String {
    let checks: Vec<(String, String)> = config
        .checks
        .iter()
        .filter(|check| check.when != When::Start)
        .map(|check| (check.name.clone(), check.run.shown.clone()))
        .collect();
    turn::first_message(environment, &config.goal, &config.criteria, &checks)
}

/// What is said in every request must leave room for work. `head` is the agent's, `system` its prompt, `first` the
/// first message.
///
/// # Errors
/// `usage`, with what is how large.
pub fn room_to_begin(
    endpoint: &Endpoint,
    threshold_pct: u64,
    head: &str,
    system: &str,
    first: &Message,
) -> Result<(), Cause> {
    let Some(made_of) = compact::too_large(endpoint, threshold_pct, head, system, first) else { return Ok(()) };
    let window = endpoint.window_tokens;
    let message = format!(
        "what every request must hold is too large for a window of {window} tokens, of which {} may be used: system \
         prompt and instructions {}, tools {}, first message {} tokens",
        compact::threshold(window, threshold_pct),
        made_of.system_tokens,
        made_of.tools_tokens,
        made_of.first_message_tokens,
    );
    Err(Cause::new(Outcome::Usage, message)
        .hint("shorten the goal or the `instructions`, or use a model with a larger window (`model.context_window`)"))
}
