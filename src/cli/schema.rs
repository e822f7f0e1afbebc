//! `spettro schema events|result|facts|cassette`: JSON Schemas, generated from the types that are written.

use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};

use crate::cassette::CassetteLine;
use crate::event::{Record, RunResult};
use crate::session::{Header, Line};

/// One line of `session.jsonl`: the first is the header, every other one a fact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum SessionLine {
    Header(Header),
    Fact(Box<Line>),
}

/// One line of `events.jsonl` and of `--output-format jsonl`, as pretty JSON with a newline at its end.
pub fn events() -> String {
    pretty(&schema_for!(Record))
}

/// `result.json` and the object that `--output-format json` prints.
pub fn result() -> String {
    pretty(&schema_for!(RunResult))
}

/// One line of `session.jsonl`.
pub fn facts() -> String {
    pretty(&schema_for!(SessionLine))
}

/// One line of a cassette.
pub fn cassette() -> String {
    pretty(&schema_for!(CassetteLine))
}

fn pretty(schema: &Schema) -> String {
    format!("{:#}\n", schema.as_value())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    /// Every constant that a schema demands somewhere.
    fn constants(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(constant)) = fields.get("const") {
                    found.insert(constant.clone());
                }
                fields.values().for_each(|value| constants(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| constants(value, found)),
            _ => {}
        }
    }

    fn schema(text: &str) -> (Value, BTreeSet<String>) {
        let value: Value = serde_json::from_str(text).expect("a schema is JSON");
        let mut found = BTreeSet::new();
        constants(&value, &mut found);
        (value, found)
    }

    fn required(value: &Value) -> Vec<&str> {
        value["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    }

    #[test]
    fn the_events_schema_knows_every_type_and_the_envelope() {
        let (value, found) = schema(&events());
        for kind in [
            "run.started",
            "run.waiting",
            "iteration.started",
            "step.started",
            "call.finished",
            "attempt.failed",
            "tool.started",
            "tool.finished",
            "tool.denied",
            "job.started",
            "job.finished",
            "task.changed",
            "steer.delivered",
            "check.finished",
            "verdict",
            "checkpoint",
            "notice",
            "run.interrupted",
            "run.finished",
            "model.delta",
        ] {
            assert!(found.contains(kind), "{kind} is missing: {found:?}");
        }
        let required = required(&value);
        for field in ["v", "seq", "t", "run", "session"] {
            assert!(required.contains(&field), "{field} is not required: {required:?}");
        }
    }

    #[test]
    fn the_facts_schema_knows_every_kind_and_the_header() {
        let (value, found) = schema(&facts());
        for kind in [
            "frozen",
            "message",
            "tasks",
            "verdict",
            "checks",
            "iteration",
            "run",
            "call",
            "settled",
            "tool_started",
            "tool",
            "turn",
            "progress",
            "job_started",
            "job_exited",
            "delivery",
            "learned",
            "elapsed",
            "notice",
            "interrupted",
            "tip",
            "end",
        ] {
            assert!(found.contains(kind), "{kind} is missing: {found:?}");
        }
        assert!(value["$defs"]["Header"]["properties"]["workspace"].is_object());
    }

    #[test]
    fn the_cassette_schema_knows_every_record() {
        let (value, found) = schema(&cassette());
        for kind in ["head", "fact", "wire", "reply", "spool", "base", "blob", "end"] {
            assert!(found.contains(kind), "{kind} is missing: {found:?}");
        }
        assert!(required(&value["$defs"]["End"]).contains(&"outcome"), "null is written too");
        assert!(required(&value["$defs"]["Head"]).contains(&"format"));
    }

    #[test]
    fn the_result_schema_demands_what_every_result_has() {
        let (value, _) = schema(&result());
        let required = required(&value);
        for field in ["v", "state", "run_id", "iterations", "steps", "total_cost_usd", "commands"] {
            assert!(required.contains(&field), "{field} is not required: {required:?}");
        }
        assert!(!required.contains(&"error"), "{required:?}");
    }
}
