//! `spettro run --dry-run`: what would be sent, without a call and without a session.

use std::io::Write;

use super::failure::Failure;
use crate::event::Outcome;
use crate::goal::{Config, When};
use crate::model::{Conversation, Endpoint, Factor, Front};
use crate::session::{Message, Origin};
use crate::tools::{ToolOptions, Tools};
use crate::world::Secrets;

/// Shows the endpoint, the system prompt and the first request as JSON on stdout.
///
/// # Errors
/// When the request cannot be shown.
pub fn show(config: &Config, endpoint: &Endpoint) -> Result<(), Failure> {
    let tools = Tools::new(ToolOptions {
        allow: config.tools_allow.clone(),
        deny: config.tools_deny.clone(),
        command_limit: std::time::Duration::from_millis(config.limits.command_ms),
        own_dirs: Vec::new(),
        jobs: true,
        removed: Vec::new(),
        secrets: Secrets::default(),
    });
    let mut instructions = Vec::new();
    for name in &config.instructions {
        if let Ok(bytes) = std::fs::read(config.workspace.join(name)) {
            instructions.push((name.clone(), String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    let checks: Vec<(String, String)> = config
        .checks
        .iter()
        .filter(|check| check.when != When::Start)
        .map(|check| (check.name.clone(), check.run.shown.clone()))
        .collect();
    let environment = format!("<environment>\nworkspace: {}\n…\n</environment>", config.workspace.display());
    let text = crate::turn::first_message(&environment, &config.goal, &config.criteria, &checks);
    let head = endpoint.wire.head(&crate::turn::system(&instructions), &tools.schemas());
    let mut conversation = Conversation::new(endpoint.wire, &head, Factor::default());
    conversation.seal(&[Message::User { origin: Origin::Prompt, text }]);
    let front = endpoint.wire.front(&Front {
        model: &endpoint.model,
        max_output_tokens: endpoint.max_output_tokens,
        force_tool: None,
        reasoning_effort: endpoint.reasoning_effort.as_deref(),
        extra_body: &endpoint.extra_body,
        native: endpoint.provider == "openai" && endpoint.own,
        slow_steps: false,
    });
    let body: Vec<u8> = conversation.rest().body(&front).iter().flat_map(|segment| segment.to_vec()).collect();
    let json: serde_json::Value =
        serde_json::from_slice(&body).map_err(|error| Failure::new(Outcome::Internal, error))?;
    let pretty = serde_json::to_string_pretty(&json).map_err(|error| Failure::new(Outcome::Internal, error))?;
    let out = std::io::stdout();
    let mut out = out.lock();
    let url = endpoint.wire.url(&endpoint.base_url);
    // A reader that went away has seen enough.
    let _ = writeln!(out, "# POST {url}\n# about {} tokens of input\n{pretty}", conversation.occupancy_tokens());
    Ok(())
}
