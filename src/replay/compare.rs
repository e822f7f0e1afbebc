//! Two facts, the recorded one and the one of now: equal but for what may differ, or where they part.
//!
//! Everything is compared that is not named here.

use serde_json::{Map, Value};

use super::ToolMode;
use crate::session::{Edit, Fact, Settled};

/// Of a run's result, what is this machine's, this moment's or this program's: names of fields at its top.
const VOLATILE: [&str; 8] =
    ["duration_ms", "active_ms", "waited_ms", "retry_after_s", "sandbox", "paths", "commands", "session_id"];

/// Where two values part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parting {
    /// JSON pointer into the fact.
    pub pointer: String,
    pub recorded: String,
    pub now: String,
}

/// `None` when the facts say the same.
pub fn part(recorded: &Fact, now: &Fact, tools: ToolMode) -> Option<Parting> {
    if let (Fact::Message(recorded), Fact::Message(now)) = (recorded, now)
        && recorded == now
    {
        return None;
    }
    differ("", &reduced(recorded, tools), &reduced(now, tools))
}

/// A fact without what two runs of the same thing need not share.
fn reduced(fact: &Fact, tools: ToolMode) -> Value {
    let mut value = match fact {
        Fact::Prune(prune) => {
            let mut prune = (**prune).clone();
            prune.edits.iter_mut().for_each(unnamed);
            prune.withheld = None;
            serde_json::to_value(Fact::Prune(Box::new(prune)))
        }
        Fact::Compaction(compaction) => {
            let mut compaction = (**compaction).clone();
            compaction.edits.iter_mut().for_each(unnamed);
            compaction.withheld = None;
            (compaction.from, compaction.to) = (String::new(), String::new());
            compaction.kept.iter_mut().for_each(String::clear);
            serde_json::to_value(Fact::Compaction(Box::new(compaction)))
        }
        Fact::Settled(settled) => {
            let mut settled = (**settled).clone();
            only_served(&mut settled);
            serde_json::to_value(Fact::Settled(Box::new(settled)))
        }
        fact => serde_json::to_value(fact),
    }
    .unwrap_or_default();
    if let Value::Object(fields) = &mut value {
        strip(fact, fields);
        if tools == ToolMode::Live {
            without_commits(fact, fields);
        }
    }
    value
}

/// A commit that is really made has the time of now in its id.
fn without_commits(fact: &Fact, fields: &mut Map<String, Value>) {
    match fact {
        Fact::Progress(_) => drop_all(fields, &["head"]),
        Fact::End(_) => {
            if let Some(Value::Object(changes)) = fields.get_mut("result").and_then(|result| result.get_mut("changes"))
            {
                drop_all(changes, &["head"]);
            }
        }
        _ => {}
    }
}

/// An edit without the entry that it names: entries are numbered by their lines, and those differ.
fn unnamed(edit: &mut Edit) {
    match edit {
        Edit::Text { entry, .. } | Edit::Arguments { entry, .. } => entry.clear(),
    }
}

/// A call without the attempts that a replay may leave out: those that failed and cost nothing, where a reply followed.
fn only_served(settled: &mut Settled) {
    let replied = settled.error.is_none();
    settled.attempts.retain(|attempt| !replied || attempt.is_served());
    for attempt in &mut settled.attempts {
        (attempt.wait_ms, attempt.wire_offset, attempt.wire_bytes) = (None, 0, 0);
    }
}

fn strip(fact: &Fact, fields: &mut Map<String, Value>) {
    match fact {
        // Where it works and what bounds it are the recording's: see `session.rs` for the limits.
        Fact::Run(_) => keep(fields, &["kind", "resumed", "model", "judge_model"]),
        Fact::Settled(_) => drop_all(fields, &["duration_ms", "waited_ms"]),
        Fact::Tool(_) | Fact::JobExited { .. } => drop_all(fields, &["duration_ms"]),
        Fact::Checks { .. } => without_durations(fields.get_mut("results")),
        Fact::End(_) => {
            if let Some(Value::Object(result)) = fields.get_mut("result") {
                drop_all(result, &VOLATILE);
                without_durations(result.get_mut("checks"));
                // Paths of this machine, and commands of this program.
                for (part, name) in [("changes", "patch"), ("goal", "file"), ("error", "hint")] {
                    if let Some(Value::Object(part)) = result.get_mut(part) {
                        drop_all(part, &[name]);
                    }
                }
            }
        }
        _ => {}
    }
}

fn without_durations(results: Option<&mut Value>) {
    for result in results.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::Object(result) = result {
            drop_all(result, &["duration_ms"]);
        }
    }
}

fn keep(fields: &mut Map<String, Value>, names: &[&str]) {
    fields.retain(|name, _| names.contains(&name.as_str()));
}

fn drop_all(fields: &mut Map<String, Value>, names: &[&str]) {
    fields.retain(|name, _| !names.contains(&name.as_str()));
}

fn differ(pointer: &str, recorded: &Value, now: &Value) -> Option<Parting> {
    if recorded == now {
        return None;
    }
    match (recorded, now) {
        (Value::Object(one), Value::Object(other)) => {
            for (name, value) in one {
                let inner = format!("{pointer}/{}", escaped(name));
                match other.get(name) {
                    Some(now) => {
                        if let Some(parting) = differ(&inner, value, now) {
                            return Some(parting);
                        }
                    }
                    None => return Some(parting(&inner, Some(value), None)),
                }
            }
            let (name, value) = other.iter().find(|(name, _)| !one.contains_key(*name))?;
            Some(parting(&format!("{pointer}/{}", escaped(name)), None, Some(value)))
        }
        (Value::Array(one), Value::Array(other)) => {
            if reordered(one, other) {
                return Some(Parting { pointer: pointer.to_owned(), recorded: listed(one), now: listed(other) });
            }
            for index in 0..one.len().max(other.len()) {
                let inner = format!("{pointer}/{index}");
                match (one.get(index), other.get(index)) {
                    (Some(recorded), Some(now)) => {
                        if let Some(parting) = differ(&inner, recorded, now) {
                            return Some(parting);
                        }
                    }
                    (recorded, now) => return Some(parting(&inner, recorded, now)),
                }
            }
            None
        }
        _ => Some(parting(pointer, Some(recorded), Some(now))),
    }
}

/// Whether two lists hold the same in another order.
fn reordered(one: &[Value], other: &[Value]) -> bool {
    one.len() == other.len() && one != other && one.iter().all(|value| other.contains(value)) && {
        let (mut one, mut other) = (listed_lines(one), listed_lines(other));
        one.sort_unstable();
        other.sort_unstable();
        one == other
    }
}

fn listed_lines(values: &[Value]) -> Vec<String> {
    values.iter().map(Value::to_string).collect()
}

/// A list, one value a line.
fn listed(values: &[Value]) -> String {
    listed_lines(values).join("\n")
}

fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn parting(pointer: &str, recorded: Option<&Value>, now: Option<&Value>) -> Parting {
    Parting { pointer: pointer.to_owned(), recorded: shown(recorded), now: shown(now) }
}

/// A text as it is, anything else as JSON, nothing as «absent».
fn shown(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => "(absent)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Message, Origin};

    fn said(text: &str) -> Fact {
        Fact::Message(Message::User { origin: Origin::Steer, text: text.to_owned() })
    }

    #[test]
    fn the_first_difference_is_named() {
        assert_eq!(part(&said("a"), &said("a"), ToolMode::Recorded), None);
        let parting = part(&said("a"), &said("b"), ToolMode::Recorded).expect("they differ");
        assert_eq!((&*parting.pointer, &*parting.recorded, &*parting.now), ("/text", "a", "b"));
    }

    #[test]
    fn durations_do_not_count_and_names_with_slashes_are_escaped() {
        let exit = |duration_ms| Fact::JobExited { job: "job-1".into(), state: "exited with 0".into(), duration_ms };
        assert_eq!(part(&exit(1), &exit(2), ToolMode::Recorded), None);
        let (one, two) = (serde_json::json!({"a": [{"x": 1}, 2]}), serde_json::json!({"a": [2, {"x": 1}]}));
        let parting = differ("", &one, &two).expect("they differ");
        assert_eq!((&*parting.pointer, &*parting.recorded, &*parting.now), ("/a", "{\"x\":1}\n2", "2\n{\"x\":1}"));
        let one = serde_json::json!({"a/b": {"c": [1, 2]}});
        let two = serde_json::json!({"a/b": {"c": [1]}});
        let parting = differ("", &one, &two).expect("they differ");
        assert_eq!((&*parting.pointer, &*parting.recorded, &*parting.now), ("/a~1b/c/1", "2", "(absent)"));
    }
}
