//! `spettro sessions`: stored sessions, looked at and made smaller. Nothing here runs a goal.

mod compact;
mod context;
mod list;
mod show;
mod usage;

use std::io::Write;
use std::path::Path;

use super::args::{SessionsArgs, SessionsVerb};
use super::failure::Failure;
use super::live::Shelf;
use crate::event::Outcome;
use crate::goal::{Config, GoalSource, Overrides, load};
use crate::report::clean_line;
use crate::session::{self, Frozen, State};
use crate::world::{RealEnv, home_dir};

/// Runs one of the verbs.
///
/// # Errors
/// An unknown session, one that cannot be read, one that is running where it must not be.
pub fn sessions(args: &SessionsArgs, out: &mut dyn Write, err: &mut dyn Write) -> Result<Outcome, Failure> {
    let shelf = Shelf::open(args.session_dir.as_deref())?;
    match &args.what {
        SessionsVerb::List { all, json } => list::list(&shelf, *all, *json, out, err)?,
        SessionsVerb::Show { id, json } => show::show(&shelf.find(id)?, *json, out)?,
        SessionsVerb::Usage { id, json } => usage::usage(&shelf.find(id)?, *json, out)?,
        SessionsVerb::Context { id, json } => context::context(&shelf.find(id)?, *json, out)?,
        SessionsVerb::Compact { id, focus, prune_only, json } => {
            let wish = crate::compact::Wish { focus: focus.clone().unwrap_or_default(), prune_only: *prune_only };
            compact::compact(&shelf, id, &wish, *json, out)?;
        }
    }
    Ok(Outcome::Met)
}

/// The frozen part of a session that has begun.
fn frozen<'a>(state: &'a State, dir: &Path) -> Result<&'a Frozen, Failure> {
    if let Some(reason) = &state.broken {
        return Err(Failure::new(Outcome::Unusable, format!("the session's history cannot be told: {reason}")));
    }
    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    state.frozen.as_deref().ok_or_else(|| Failure::new(Outcome::Unusable, format!("session `{name}` has not begun")))
}

/// The configuration that the session was started with.
fn config(frozen: &Frozen) -> Result<Config, Failure> {
    let goal_file = frozen.goal_file.as_ref().map(Into::into);
    let source = GoalSource::Stored { yaml: frozen.config.clone(), goal_file };
    let cwd = super::run::current_dir()?;
    match load(&source, &Overrides::default(), &RealEnv, home_dir(&RealEnv).as_deref(), &cwd) {
        Ok(loaded) => Ok(loaded.config),
        Err(problems) => {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            Err(Failure::new(Outcome::Unusable, format!("the session's configuration: {}", lines.join("\n"))))
        }
    }
}

/// A session as its log tells it, without its lock.
fn read(dir: &Path) -> Result<(session::Header, Vec<session::Line>, State), Failure> {
    let (header, lines) = session::Session::read(dir)?;
    let state = session::fold(&lines);
    Ok((header, lines, state))
}

/// One line without control characters.
pub(super) fn plain(text: &str, most: usize) -> String {
    let mut out: String = clean_line(text).chars().take(most + 1).collect();
    if out.chars().count() > most {
        out = out.chars().take(most.saturating_sub(1)).collect::<String>() + "…";
    }
    out
}

pub(super) fn json(out: &mut dyn Write, value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::new(Outcome::Internal, error))?;
    writeln!(out, "{text}")?;
    Ok(())
}
