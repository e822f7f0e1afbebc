//! `spettro schema cassette`, held against what a run packs. The validator knows the words that our schemas use, and
//! refuses every other one: a rule that nobody checks would be none.

use serde_json::{Value, json};

use super::{packed, recorded};
use crate::compaction::support::{steps, summary};
use crate::goal::support::{Case, met};
use crate::provider::{Reply, Script};
use crate::sandbox::json_lines;
use spettro::event::Outcome;

/// Words that say nothing about a value.
const SILENT: [&str; 7] = ["$schema", "$defs", "title", "description", "default", "format", "examples"];

struct Checker {
    schema: Value,
}

impl Checker {
    fn of(lines: &crate::sandbox::Sandbox) -> Checker {
        let said = lines.run(["schema", "cassette"]).expect_code(0).stdout;
        Checker { schema: serde_json::from_str(&said).expect("a schema is JSON") }
    }

    /// What is wrong with a line; `None` when it is one that the schema describes.
    fn wrong(&self, line: &Value) -> Option<String> {
        self.check(&self.schema, line, "").err()
    }

    fn check(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        let fields = match schema {
            Value::Bool(true) => return Ok(()),
            Value::Object(fields) => fields,
            _ => return Err(format!("{at}: nothing fits")),
        };
        for (word, rule) in fields {
            match word.as_str() {
                word if SILENT.contains(&word) => {}
                "$ref" => {
                    let name = rule.as_str().and_then(|name| name.strip_prefix('#')).expect("a local reference");
                    let target = self.schema.pointer(name).unwrap_or_else(|| panic!("{name} is not there"));
                    self.check(target, value, at)?;
                }
                "type" => {
                    let one = |name: &Value| is(name.as_str().expect("a name"), value);
                    let fits = rule.as_array().map_or_else(|| one(rule), |names| names.iter().any(one));
                    if !fits {
                        return Err(format!("{at}: {value} is no {rule}"));
                    }
                }
                "const" if rule != value => return Err(format!("{at}: {value} is not {rule}")),
                "const" => {}
                "enum" if !rule.as_array().expect("a list").contains(value) => {
                    return Err(format!("{at}: {value} is none of {rule}"));
                }
                "enum" => {}
                "minimum" | "maximum" | "minItems" | "maxItems" => self.bound(word, rule, value, at)?,
                "required" => {
                    for name in rule.as_array().expect("a list").iter().filter_map(Value::as_str) {
                        if value.is_object() && value.get(name).is_none() {
                            return Err(format!("{at}: `{name}` is missing"));
                        }
                    }
                }
                "properties" => {
                    for (name, rule) in rule.as_object().expect("a map") {
                        if let Some(value) = value.get(name) {
                            self.check(rule, value, &format!("{at}/{name}"))?;
                        }
                    }
                }
                "additionalProperties" => {
                    let known = fields.get("properties").and_then(Value::as_object);
                    for (name, value) in value.as_object().into_iter().flatten() {
                        if known.is_none_or(|known| !known.contains_key(name)) {
                            self.check(rule, value, &format!("{at}/{name}"))?;
                        }
                    }
                }
                "items" => {
                    let skipped = fields.get("prefixItems").and_then(Value::as_array).map_or(0, Vec::len);
                    for (index, value) in value.as_array().into_iter().flatten().enumerate().skip(skipped) {
                        self.check(rule, value, &format!("{at}/{index}"))?;
                    }
                }
                "prefixItems" => {
                    let rules = rule.as_array().expect("a list");
                    for (index, value) in value.as_array().into_iter().flatten().enumerate().take(rules.len()) {
                        self.check(&rules[index], value, &format!("{at}/{index}"))?;
                    }
                }
                "allOf" => rule.as_array().expect("a list").iter().try_for_each(|rule| self.check(rule, value, at))?,
                "anyOf" | "oneOf" => {
                    let tried: Vec<_> =
                        rule.as_array().expect("a list").iter().map(|rule| self.check(rule, value, at)).collect();
                    let fitting = tried.iter().filter(|tried| tried.is_ok()).count();
                    if fitting == 0 || (word == "oneOf" && fitting > 1) {
                        let why: Vec<String> = tried.into_iter().filter_map(Result::err).collect();
                        return Err(format!("{at}: {fitting} of {word} fit: {}", why.join(" | ")));
                    }
                }
                word => panic!("{at}: a schema says `{word}`, which this test does not know"),
            }
        }
        Ok(())
    }

    fn bound(&self, word: &str, rule: &Value, value: &Value, at: &str) -> Result<(), String> {
        let size = match word {
            "minItems" | "maxItems" => value.as_array().map(|items| items.len() as f64),
            _ => value.as_f64(),
        };
        let (Some(size), Some(bound)) = (size, rule.as_f64()) else { return Ok(()) };
        let fits = if word.starts_with("min") { size >= bound } else { size <= bound };
        if fits { Ok(()) } else { Err(format!("{at}: {value} is beyond {word} {rule}")) }
    }
}

fn is(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        name => panic!("{name} is no type"),
    }
}

#[track_caller]
fn expect_described(checker: &Checker, lines: &[Value], kinds: &[&str]) {
    for (index, line) in lines.iter().enumerate() {
        if let Some(wrong) = checker.wrong(line) {
            panic!("line {}: {wrong}\n{line:#}", index + 1);
        }
    }
    for kind in kinds {
        assert!(lines.iter().any(|line| line["type"] == *kind), "no {kind} was packed");
    }
}

#[test]
fn every_record_of_a_packed_session_is_described() {
    let case = recorded();
    case.run().expect(Outcome::Met);
    let checker = Checker::of(&case.sandbox);
    let file = packed(&case, "run.jsonl");
    let lines = json_lines(&file);
    expect_described(&checker, &lines, &["head", "fact", "wire", "spool", "base", "blob", "end"]);

    let small = case.sandbox.root().join("small.jsonl");
    let (file, small) = (file.to_str().expect("a path"), small.to_str().expect("a path"));
    case.sandbox.run(["cassette", "strip", file, "-o", small]).expect_code(0);
    expect_described(&checker, &json_lines(small.as_ref()), &["head", "reply", "end"]);
    case.provider.finish();
}

#[test]
fn jobs_effects_lists_and_compactions_are_described_too() {
    let script = Script::new()
        .allow_rewrite()
        .agent(
            Reply::call("bash", json!({"command": "sleep 100", "run_in_background": true}))
                .and_call("todo-write", json!({"todos": [{"content": "go on", "status": "pending"}]}))
                .and_call("file-write", json!({"path": "a.txt", "content": "a\n"})),
        )
        .agent(steps(45, 900))
        .summarizer(summary())
        .judge(met());
    let case = Case::new(script, "goal: x");
    let model =
        case.sandbox.model_yaml(&case.provider, "test/model-1").replace("200000", "16000").replace("8192", "1024");
    let more = "record: effects\nlimits: {steps: 600, steps_per_iteration: 600, cost: unlimited}\n";
    case.sandbox.goal(&case.provider, &format!("goal: Count.\n{more}{model}"));
    case.run().expect(Outcome::Met);
    let lines = json_lines(&packed(&case, "run.jsonl"));
    expect_described(&Checker::of(&case.sandbox), &lines, &["fact"]);
    for kind in ["effects", "jobs", "job_started", "tasks", "command", "compaction"] {
        assert!(lines.iter().any(|line| line["kind"] == kind), "no {kind} was recorded");
    }
}

#[test]
fn what_is_no_record_is_not_described() {
    let case = recorded();
    case.run().expect(Outcome::Met);
    let checker = Checker::of(&case.sandbox);
    let lines = json_lines(&packed(&case, "run.jsonl"));
    let first = |kind: &str| lines.iter().find(|line| line["type"] == kind).cloned().expect(kind);
    let without = |kind: &str, field: &str| {
        let mut line = first(kind);
        line.as_object_mut().expect("an object").shift_remove(field);
        line
    };
    let with = |kind: &str, field: &str, value: Value| {
        let mut line = first(kind);
        line[field] = value;
        line
    };
    let bad = [
        json!({}),
        json!({"type": "nothing"}),
        with("head", "type", json!("end")),
        without("head", "format"),
        without("end", "outcome"),
        without("end", "sha256"),
        without("fact", "seq"),
        without("wire", "request"),
        with("wire", "lane", json!("nobody")),
        with("base", "kind", json!("folder")),
        with("base", "bytes", json!(-1)),
        with("fact", "kind", json!(7)),
    ];
    for line in bad {
        assert!(checker.wrong(&line).is_some(), "{line:#}");
    }
    case.provider.finish();
}
