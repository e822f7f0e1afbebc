//! The task graph: every change that `todo-write` can make, and the list it answers with.
//!
//! Invariant: a stored graph has unique ids, no dependency on an unknown task, and no cycle. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::{Value, json};

use super::args::Args;
use super::error::ToolError;
use super::names::Form;
use crate::event::{Task, TaskGraph, TaskStatus};

/// The line that the first step of a turn gets whose calls are all successful `todo-write` calls.
pub const PLAN_UPDATED: &str = "Plan updated. Continue with the next concrete action in the same response next time.";

const MAX_TASKS: usize = 500;
const MAX_ID_CHARS: usize = 64;
const MAX_CONTENT_CHARS: usize = 2_000;
/// Numbers of `task-N` above this are ids like any other and do not move the count of new ids.
const MAX_NUMBER: u64 = 1 << 40;

/// One task as the model wrote it; what is absent is kept (merge) or default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub id: Option<String>,
    pub content: Option<String>,
    pub status: Option<TaskStatus>,
    pub dependencies: Option<Vec<String>>,
}

/// What one call asks for. Deletions come first, then the entries, then the clearing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub entries: Option<Vec<Entry>>,
    /// Insert or update by id instead of replacing the list.
    pub merge: bool,
    pub delete: Vec<String>,
    pub clear_completed: bool,
    /// Every id named must be there already (`task-update`, `task-get`).
    pub known_only: bool,
    /// No id named may be there already (`task-create`).
    pub new_only: bool,
    /// Only looked up (`task-get`).
    pub look_up: Option<String>,
}

/// A status by its name or alias.
pub(super) fn status_of(name: &str) -> Option<TaskStatus> {
    Some(match name {
        "pending" | "todo" => TaskStatus::Pending,
        "in_progress" | "active" | "running" => TaskStatus::InProgress,
        "completed" | "done" => TaskStatus::Completed,
        "blocked" => TaskStatus::Blocked,
        "cancelled" | "canceled" => TaskStatus::Cancelled,
        _ => return None,
    })
}

/// Reads a call's (checked) arguments.
pub(super) fn change_of(args: &Args, form: Form) -> Result<Change, ToolError> {
    let one = |change: Change| -> Result<Change, ToolError> {
        Ok(Change { entries: Some(vec![entry_of(&args.0, "")?]), merge: true, ..change })
    };
    match form {
        Form::TaskCreate => one(Change { new_only: true, ..Change::default() }),
        Form::TaskUpdate => one(Change { known_only: true, ..Change::default() }),
        Form::TaskGet => Ok(Change { look_up: args.text("id").map(str::to_owned), ..Change::default() }),
        Form::TaskDelete => {
            Ok(Change { delete: args.text("id").map(str::to_owned).into_iter().collect(), ..Change::default() })
        }
        Form::TaskList => Ok(Change::default()),
        Form::Own | Form::Ls => {
            let entries = match args.list("todos") {
                None => None,
                Some(todos) => {
                    let mut entries = Vec::with_capacity(todos.len());
                    for (i, todo) in todos.iter().enumerate() {
                        if let Value::Object(map) = todo {
                            entries.push(entry_of(map, &format!("todos[{i}]."))?);
                        }
                    }
                    Some(entries)
                }
            };
            let delete = texts(args.list("delete").unwrap_or_default());
            let (merge, clear_completed) = (args.flag("merge"), args.flag("clear_completed"));
            if merge && entries.is_none() {
                return Err(ToolError::argument("todos", "is missing; `merge` says how to take it"));
            }
            Ok(Change { entries, merge, delete, clear_completed, ..Change::default() })
        }
    }
}

fn texts(values: &[Value]) -> Vec<String> {
    values.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn entry_of(map: &serde_json::Map<String, Value>, at: &str) -> Result<Entry, ToolError> {
    let text = |name: &str| map.get(name).and_then(Value::as_str);
    let status = match text("status") {
        None => None,
        Some(name) => Some(status_of(name).ok_or_else(|| {
            ToolError::argument(
                format!("{at}status"),
                "must be one of pending, in_progress, completed, blocked, cancelled",
            )
        })?),
    };
    if let Some(id) = text("id") {
        let plain = !id.trim().is_empty() && id.trim() == id && !id.contains(char::is_control);
        if !plain || id.chars().count() > MAX_ID_CHARS {
            let problem = format!("must be 1 to {MAX_ID_CHARS} printable characters without spaces around them");
            return Err(ToolError::argument(format!("{at}id"), problem));
        }
    }
    if let Some(content) = text("content")
        && (content.trim().is_empty() || content.chars().count() > MAX_CONTENT_CHARS)
    {
        let problem = format!("must be 1 to {MAX_CONTENT_CHARS} characters");
        return Err(ToolError::argument(format!("{at}content"), problem));
    }
    Ok(Entry {
        id: text("id").map(str::to_owned),
        content: text("content").map(str::to_owned),
        status,
        dependencies: map.get("dependencies").and_then(Value::as_array).map(|list| texts(list)),
    })
}

/// The graph after a change, and notes about what was dropped. The graph is untouched on an error.
pub(super) fn apply(graph: &TaskGraph, change: &Change) -> Result<(TaskGraph, Vec<String>), ToolError> {
    let failed = |text: String| Err(ToolError::Failed(format!("{text}; the list was not changed")));
    let mut notes = Vec::new();
    let mut next = graph.clone();
    let known = |id: &str| graph.tasks.iter().any(|task| task.id == id);

    if let Some(id) = change.look_up.as_deref().filter(|id| !known(id)) {
        return failed(format!("no task `{}`", shown(id)));
    }
    for id in &change.delete {
        if !known(id) {
            notes.push(format!("nothing to delete: no task `{}`", shown(id)));
        }
    }
    remove(&mut next, |task| change.delete.contains(&task.id));

    if let Some(entries) = &change.entries {
        let mut seen = BTreeSet::new();
        for id in entries.iter().filter_map(|entry| entry.id.as_deref()) {
            if !seen.insert(id) {
                return failed(format!("the id `{id}` stands twice in `todos`"));
            }
            if change.delete.iter().any(|gone| gone == id) {
                return failed(format!("`{id}` stands in both `todos` and `delete`"));
            }
            if change.known_only && !known(id) {
                return failed(format!("no task `{id}`"));
            }
            if change.new_only && known(id) {
                return failed(format!("a task `{id}` is there already"));
            }
            next.highest_id = next.highest_id.max(number_of(id));
        }
        if !change.merge {
            next.tasks.clear();
        }
        let before: BTreeMap<&str, TaskStatus> = if change.merge {
            graph.tasks.iter().map(|t| (t.id.as_str(), t.status)).collect()
        } else {
            BTreeMap::new()
        };
        let mut moved = Vec::new();
        for (i, entry) in entries.iter().enumerate() {
            let id = put(&mut next, entry).map_err(|()| {
                ToolError::Failed(format!(
                    "`todos[{i}].content` is missing: a new task needs one; the list was not changed"
                ))
            })?;
            let gated = |status| matches!(status, TaskStatus::InProgress | TaskStatus::Completed);
            if change.merge && entry.status.is_some_and(|to| gated(to) && before.get(id.as_str()) != Some(&to)) {
                moved.push(id);
            }
        }
        if next.tasks.len() > MAX_TASKS {
            return failed(format!("more than {MAX_TASKS} tasks"));
        }
        drop_unknown(&mut next, &mut notes);
        if let Some(path) = cycle(&next) {
            return failed(match path.as_slice() {
                [one, two] if one == two => format!("task `{one}` depends on itself"),
                path => format!("the dependencies form a cycle: {}", path.join(" → ")),
            });
        }
        for task in next.tasks.iter().filter(|task| moved.contains(&task.id)) {
            let open = blocked_by(&next, task);
            if !open.is_empty() {
                let (id, to) = (&task.id, task.status.name());
                return failed(format!("task `{id}` cannot be {to} while it waits for {}", open.join(", ")));
            }
        }
    }
    if change.clear_completed {
        remove(&mut next, |task| task.status.is_closed());
    }
    Ok((next, notes))
}

/// Inserts or updates one task; its id. `Err` when a new one has no content.
fn put(graph: &mut TaskGraph, entry: &Entry) -> Result<String, ()> {
    let found = entry.id.as_ref().and_then(|id| graph.tasks.iter_mut().find(|task| task.id == *id));
    if let Some(task) = found {
        if let Some(content) = &entry.content {
            task.content.clone_from(content);
        }
        task.status = entry.status.unwrap_or(task.status);
        if let Some(dependencies) = &entry.dependencies {
            task.dependencies = without_repeats(dependencies);
        }
        return Ok(task.id.clone());
    }
    let content = entry.content.clone().ok_or(())?;
    let id = entry.id.clone().unwrap_or_else(|| {
        graph.highest_id += 1;
        format!("task-{}", graph.highest_id)
    });
    graph.tasks.push(Task {
        id: id.clone(),
        content,
        status: entry.status.unwrap_or(TaskStatus::Pending),
        dependencies: without_repeats(entry.dependencies.as_deref().unwrap_or_default()),
    });
    Ok(id)
}

fn without_repeats(ids: &[String]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    ids.iter().filter(|id| seen.insert(id.as_str())).cloned().collect()
}

/// N of `task-N`, else 0.
fn number_of(id: &str) -> u64 {
    let digits = id.strip_prefix("task-").unwrap_or_default();
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return 0;
    }
    digits.parse().ok().filter(|n| *n <= MAX_NUMBER).unwrap_or(0)
}

/// Removes tasks and every reference to them.
fn remove(graph: &mut TaskGraph, gone: impl Fn(&Task) -> bool) {
    let ids: BTreeSet<String> = graph.tasks.iter().filter(|task| gone(task)).map(|task| task.id.clone()).collect();
    graph.tasks.retain(|task| !ids.contains(&task.id));
    for task in &mut graph.tasks {
        task.dependencies.retain(|id| !ids.contains(id));
    }
}

fn drop_unknown(graph: &mut TaskGraph, notes: &mut Vec<String>) {
    let ids: BTreeSet<String> = graph.tasks.iter().map(|task| task.id.clone()).collect();
    for task in &mut graph.tasks {
        for id in task.dependencies.iter().filter(|id| !ids.contains(*id)) {
            notes.push(format!("dropped the dependency of `{}` on the unknown task `{}`", task.id, shown(id)));
        }
        task.dependencies.retain(|id| ids.contains(id));
    }
}

fn shown(id: &str) -> String {
    super::output::one_line(id, MAX_ID_CHARS)
}

/// A cycle as the path from a task back to itself (a self-reference is a path of two).
fn cycle(graph: &TaskGraph) -> Option<Vec<String>> {
    let (_, stuck) = order(graph);
    // From a stuck task, always on to its first stuck dependency: each has one, so a task must come up again.
    let mut path: Vec<&Task> = vec![*stuck.first()?];
    loop {
        let last = path.last()?;
        let next = stuck.iter().find(|task| last.dependencies.contains(&task.id))?;
        if let Some(start) = path.iter().position(|task| task.id == next.id) {
            let round = path[start..].iter().map(|task| task.id.clone());
            return Some(round.chain([next.id.clone()]).collect());
        }
        path.push(next);
    }
}

/// The tasks with every dependency before what needs it, otherwise as written; and those that a cycle holds back.
fn order(graph: &TaskGraph) -> (Vec<&Task>, Vec<&Task>) {
    let mut placed: BTreeSet<&str> = BTreeSet::new();
    let mut sorted = Vec::with_capacity(graph.tasks.len());
    let mut rest: Vec<&Task> = graph.tasks.iter().collect();
    while let Some(at) = rest.iter().position(|t| t.dependencies.iter().all(|id| placed.contains(id.as_str()))) {
        let task = rest.remove(at);
        placed.insert(&task.id);
        sorted.push(task);
    }
    (sorted, rest)
}

/// The dependencies that are neither completed nor cancelled.
fn blocked_by<'a>(graph: &'a TaskGraph, task: &Task) -> Vec<&'a str> {
    let open = |id: &&Task| task.dependencies.contains(&id.id) && !id.status.is_closed();
    graph.tasks.iter().filter(open).map(|task| task.id.as_str()).collect()
}

/// What every call answers: one task a line, in dependency order, and the notes.
pub(super) fn render(graph: &TaskGraph, notes: &[String]) -> String {
    let open = graph.open_count();
    let mut out = match graph.tasks.len() {
        0 => "no tasks".to_owned(),
        1 => format!("1 task, {open} open"),
        n => format!("{n} tasks, {open} open"),
    };
    for task in order(graph).0 {
        let waits_for = blocked_by(graph, task);
        let ready = task.status == TaskStatus::Pending && waits_for.is_empty();
        let line = json!({
            "id": task.id,
            "content": task.content,
            "status": task.status.name(),
            "dependencies": task.dependencies,
            "blocked_by": waits_for,
            "ready": ready,
        });
        // Writing to a String cannot fail.
        let _ = write!(out, "\n{line}");
    }
    for note in notes {
        let _ = write!(out, "\n[{note}]");
    }
    out
}

/// For the call's one-line summary.
pub(super) fn summary(change: &Change) -> String {
    let mut parts = Vec::new();
    if let Some(entries) = &change.entries {
        let verb = if change.merge { "merge" } else { "write" };
        parts.push(format!("{verb} {}", entries.len()));
    }
    if !change.delete.is_empty() {
        parts.push(format!("delete {}", change.delete.len()));
    }
    if change.clear_completed {
        parts.push("clear completed".into());
    }
    if parts.is_empty() { "list".into() } else { parts.join(", ") }
}

#[cfg(test)]
#[path = "tests/tasks.rs"]
mod tests;
