//! `spettro schema events|result|facts`: JSON Schemas, generated from the types that are written.

use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};

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

fn pretty(schema: &Schema) -> String {
    format!("{:#}\n", schema.as_value())
}
