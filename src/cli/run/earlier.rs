//! The session that a run goes on with: which one, and what of it stays in force.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_yaml::Value;

use super::super::failure::Failure;
use crate::event::{Limits, Outcome, RunResult};
use crate::goal::{Config, Effective, GoalSource, goal_digest};
use crate::session::{self, Fact, Frozen, Line, Session, Store};
use crate::world::World;

/// An earlier session that this run goes on with.
pub(super) struct Earlier {
    pub dir: PathBuf,
    /// That it was started in.
    pub workspace: String,
    pub lines: Vec<Line>,
    pub frozen: Box<Frozen>,
}

/// The session to go on with; `None` for `auto` when there is none.
pub(super) fn earlier(
    world: &World,
    store: &Store,
    workspace: &Path,
    wanted: &str,
    loaded: Option<&Effective>,
    changed_allowed: bool,
    notes: &mut Vec<String>,
) -> Result<Option<Earlier>, Failure> {
    let dir = if wanted == "auto" {
        let Some(loaded) = loaded else {
            return Err(Failure::usage("`--resume auto` needs a goal").hint("name the goal file too"));
        };
        let digest = goal_digest(&loaded.config.goal);
        let (listed, broken) = store.list(world, workspace);
        notes.extend(broken);
        let fits = listed.into_iter().find(|session| {
            session.goal_name == loaded.config.name
                && session.goal_digest == digest
                && session.outcome != Some(Outcome::Met)
        });
        match fits {
            Some(session) => session.dir,
            None => return Ok(None),
        }
    } else {
        store.find(world, workspace, wanted)?
    };
    let (header, lines) = Session::read(&dir)?;
    if let Some(ended) = session::ended_outside(&dir, &lines) {
        notes.push(format!("the run before has no end in the log: it ended as {}", said(&ended)));
    }
    let state = session::fold(&lines);
    if state.ends.last().is_some_and(|end| end.outcome == Outcome::Met) {
        return Err(Failure::usage(format!("session `{}` is met already", header.id))
            .hint("start a new run without `--resume`"));
    }
    let Some(frozen) = state.frozen else {
        return Err(Failure::new(
            Outcome::Unusable,
            format!("session `{}` ended before it began; nothing to resume", header.id),
        ));
    };
    if let Some(loaded) = loaded
        && goal_digest(&loaded.config.goal) != frozen.goal_digest
        && !changed_allowed
    {
        return Err(Failure::usage(format!("the goal's text differs from that of session `{}`", header.id))
            .hint("`--resume-changed` goes on with the session's own text, or start anew without `--resume`"));
    }
    if let Some(loaded) = loaded
        && loaded.config.digest != frozen.config_digest
    {
        let differ = differing(&frozen.config, &loaded.config.yaml);
        let which = if differ.is_empty() { String::new() } else { format!(": {}", differ.join(", ")) };
        notes.push(format!("the configuration differs from the one the session was started with{which}"));
    }
    Ok(Some(Earlier { dir, workspace: header.workspace, lines, frozen }))
}

/// How a run ended that could not log it: the outcome, and why.
pub(crate) fn said(ended: &RunResult) -> String {
    let outcome = ended.outcome.map_or("unknown", Outcome::name);
    match &ended.error {
        Some(error) => format!("`{outcome}` ({})", error.message),
        None => format!("`{outcome}`"),
    }
}

/// The keys by which two configurations differ, as YAML texts; with the values for limits, which are no secrets. The goal
/// is compared apart.
fn differing(before: &str, now: &str) -> Vec<String> {
    fn collect(path: &str, before: Option<&Value>, now: Option<&Value>, out: &mut Vec<String>) {
        match (before, now) {
            (before, now) if before == now || path == "goal" => {}
            (Some(Value::Mapping(before)), Some(Value::Mapping(now))) => {
                let keys: BTreeSet<&str> = before.keys().chain(now.keys()).filter_map(Value::as_str).collect();
                for key in keys {
                    let path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
                    collect(&path, before.get(key), now.get(key), out);
                }
            }
            (before, now) => match (before.and_then(plain), now.and_then(plain)) {
                (Some(before), Some(now)) if path.starts_with("limits.") => {
                    out.push(format!("`{path}` {before} → {now}"))
                }
                _ => out.push(format!("`{path}`")),
            },
        }
    }
    let parsed = |text: &str| serde_yaml::from_str::<Value>(text).ok();
    let mut out = Vec::new();
    if let (Some(before), Some(now)) = (parsed(before), parsed(now)) {
        collect("", Some(&before), Some(&now), &mut out);
    }
    out
}

/// A value that fits into a line.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(on) => Some(on.to_string()),
        Value::String(text) if text.len() <= 40 && !text.contains('\n') => Some(text.clone()),
        _ => None,
    }
}

impl Earlier {
    /// The configuration that the session was started with.
    pub(super) fn source(&self) -> GoalSource {
        let goal_file = self.frozen.goal_file.as_ref().map(PathBuf::from);
        GoalSource::Stored { yaml: self.frozen.config.clone(), goal_file }
    }
}

/// The limits of a resume without a goal file: those that were `asked` for now, else those of the `last` run.
/// `stored` are the ones that the session was started with.
pub(super) fn kept_limits(asked: &Limits, stored: &Limits, last: &Limits) -> Limits {
    fn kept<T: PartialEq + Copy>(asked: T, stored: T, last: T) -> T {
        if asked == stored { last } else { asked }
    }
    Limits {
        iterations: kept(asked.iterations, stored.iterations, last.iterations),
        steps: kept(asked.steps, stored.steps, last.steps),
        steps_per_iteration: kept(asked.steps_per_iteration, stored.steps_per_iteration, last.steps_per_iteration),
        cost: kept(asked.cost, stored.cost, last.cost),
        tokens: kept(asked.tokens, stored.tokens, last.tokens),
        time_ms: kept(asked.time_ms, stored.time_ms, last.time_ms),
        idle_ms: kept(asked.idle_ms, stored.idle_ms, last.idle_ms),
        command_ms: kept(asked.command_ms, stored.command_ms, last.command_ms),
        stall: kept(asked.stall, stored.stall, last.stall),
        consecutive_errors: kept(asked.consecutive_errors, stored.consecutive_errors, last.consecutive_errors),
    }
}

/// The limits of a session's last run.
pub(in crate::cli) fn last_limits(lines: &[Line]) -> Option<&Limits> {
    lines.iter().rev().find_map(|line| match &line.fact {
        Fact::Run(run) => Some(&run.limits),
        _ => None,
    })
}

/// One line about an unfinished session of the same goal.
pub(super) fn unfinished(world: &World, store: &Store, config: &Config, notes: &mut Vec<String>) {
    let (listed, _) = store.list(world, &config.workspace);
    let digest = goal_digest(&config.goal);
    let found = listed.into_iter().find(|session| {
        session.goal_name == config.name
            && session.goal_digest == digest
            && !session.running
            && session.outcome != Some(Outcome::Met)
    });
    if let Some(session) = found {
        notes.push(format!("an unfinished session of this goal: {} (`--resume auto` goes on with it)", session.id));
    }
}

#[cfg(test)]
mod tests {
    use super::differing;

    #[test]
    fn what_differs_is_named_with_its_values() {
        let before = "limits:\n  tokens: 18000\n  cost: 1\nchecks:\n- a\nname: x\n";
        let now = "limits:\n  tokens: unlimited\n  cost: 1\nchecks:\n- b\n";
        assert_eq!(differing(before, now), ["`checks`", "`limits.tokens` 18000 → unlimited", "`name`"]);
        assert!(differing(before, before).is_empty());
    }
}
