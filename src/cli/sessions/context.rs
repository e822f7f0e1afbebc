//! `spettro sessions context`: how full the window is, and with what.

use std::io::Write;
use std::path::Path;

use crate::cli::failure::Failure;
use crate::compact::{Attribution, Budget, Compactor, History, Level, threshold};
use crate::event::Outcome;
use crate::model::Endpoint;

/// Shows window, threshold, fill and failure budget, then what fills it.
///
/// # Errors
/// A session that cannot be read, or that has not begun.
pub fn context(dir: &Path, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let (_, lines, state) = super::read(dir)?;
    let frozen = super::frozen(&state, dir)?;
    let settings = super::config(frozen)?.compaction;
    let endpoint = endpoint(frozen, "agent")?;
    let window = state.window_tokens.unwrap_or(endpoint.window_tokens);
    let head = frozen.heads.get("agent").map_or("", String::as_str);
    let budget = Budget::fold(lines.iter().map(|line| &line.fact));
    let mut conversation = History::conversation(endpoint.wire, head, &state);
    let mut history = History::of(&state);
    conversation.seal(history.take_unsealed());
    let compactor = Compactor::new(settings, endpoint, String::new(), &frozen.system, budget);
    let made_of: Attribution = compactor.attribution(&history, &conversation);
    let used = conversation.occupancy_tokens();
    let limit = threshold(window, settings.threshold_pct);
    let level = Level::of(window, used);
    let pct = used.saturating_mul(100).checked_div(window).unwrap_or(100);
    if json {
        let value = serde_json::json!({
            "window_tokens": window,
            "threshold_tokens": limit,
            "threshold_pct": settings.threshold_pct,
            "used_tokens": used,
            "used_pct": pct,
            "status": level.name(),
            "auto": settings.auto,
            "paused": budget.paused,
            "failures": budget.failures,
            "max_failures": settings.max_failures,
            "attribution": made_of,
        });
        return super::json(out, &value);
    }
    writeln!(out, "context window:  {window} tokens")?;
    writeln!(out, "threshold:       {limit} tokens ({} %)", settings.threshold_pct)?;
    writeln!(out, "currently used:  {used} tokens")?;
    let paused = if budget.paused { ", PAUSED" } else { "" };
    writeln!(out, "status:          {} ({pct}%){paused}", level.name())?;
    writeln!(out, "\nauto-compact:    {}", if settings.auto { "on" } else { "off" })?;
    writeln!(out, "failures:        {} / {}", budget.failures, settings.max_failures)?;
    writeln!(out, "\nsystem prompt:   {} tokens", made_of.system_tokens)?;
    writeln!(out, "tools:           {} tokens", made_of.tools_tokens)?;
    writeln!(out, "first message:   {} tokens", made_of.first_message_tokens)?;
    writeln!(out, "history:         {} tokens", made_of.history_tokens)?;
    writeln!(out, "last rounds:     {} tokens", made_of.tail_tokens)?;
    Ok(())
}

/// An endpoint as the session froze it.
pub(super) fn endpoint(frozen: &crate::session::Frozen, lane: &str) -> Result<Endpoint, Failure> {
    let value = frozen.endpoints.get(lane).cloned().unwrap_or_default();
    serde_json::from_value(value)
        .map_err(|error| Failure::new(Outcome::Unusable, format!("the session's endpoint: {error}")))
}
