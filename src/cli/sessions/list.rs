//! `spettro sessions list`, from metadata alone.

use std::io::Write;

use super::plain;
use crate::cli::failure::Failure;
use crate::cli::live::Shelf;
use crate::report::clean_line;
use crate::session::Listed;

/// Lists sessions, the newest first; broken ones are notes on `err`.
///
/// # Errors
/// When nothing can be written.
pub fn list(shelf: &Shelf, all: bool, json: bool, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), Failure> {
    let (sessions, notes) =
        if all { shelf.store().list_all(shelf.world()) } else { shelf.store().list(shelf.world(), shelf.workspace()) };
    for note in notes {
        writeln!(err, "notice: {}", clean_line(&note))?;
    }
    if json {
        let rows: Vec<serde_json::Value> = sessions.iter().map(row).collect();
        return super::json(out, &rows);
    }
    if sessions.is_empty() {
        writeln!(out, "no sessions{}", if all { "" } else { " of this workspace" })?;
        return Ok(());
    }
    for session in &sessions {
        let updated: String = session.updated.chars().take(16).map(|c| if c == 'T' { ' ' } else { c }).collect();
        let place = if all { format!("  {}", plain(&session.workspace, 60)) } else { String::new() };
        let (id, state, title) = (&session.id, state(session), plain(&session.title, 60));
        writeln!(out, "{id}  {updated}  {state:<10}  {title}{place}")?;
    }
    Ok(())
}

fn state(session: &Listed) -> &'static str {
    match session.outcome {
        _ if session.running => "running",
        Some(outcome) => outcome.name(),
        None => "died",
    }
}

fn row(session: &Listed) -> serde_json::Value {
    serde_json::json!({
        "id": session.id,
        "title": session.title,
        "workspace": session.workspace,
        "goal": session.goal_name,
        "updated_at": session.updated,
        "state": state(session),
        "dir": session.dir,
    })
}
