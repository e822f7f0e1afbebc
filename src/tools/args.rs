//! Arguments of a call: parsed, checked against the tool's schema, and read by name.
//!
//! Invariant: nothing is guessed. Two leniencies do no harm: `null` for a field that is not required counts as
//! absent, and a whole number may be written with a zero fraction (`5.0`).

use serde_json::{Map, Value};

use super::error::ToolError;

/// Arguments longer than this are refused unread.
const MAX_BYTES: usize = 8 << 20;

/// An object that fits the tool's schema.
#[derive(Debug)]
pub(super) struct Args(pub Map<String, Value>);

impl Args {
    /// Parses and checks the text as the model wrote it.
    pub(super) fn parse(text: &str, schema: &Value) -> Result<Args, ToolError> {
        if text.len() > MAX_BYTES {
            return Err(ToolError::NotAnObject(format!("they are longer than {} MiB", MAX_BYTES >> 20)));
        }
        let mut value: Value = match serde_json::from_str(text) {
            Ok(value) => value,
            Err(_) if text.trim().is_empty() => return Err(ToolError::NotAnObject("they are empty, write {}".into())),
            Err(error) => return Err(ToolError::NotAnObject(error.to_string())),
        };
        if !value.is_object() {
            return Err(ToolError::NotAnObject(format!("got {}", kind_of(&value))));
        }
        if let Some(placeholder) = secret(&value) {
            return Err(ToolError::Secret(placeholder));
        }
        check(&mut value, schema, "")?;
        match value {
            Value::Object(map) => Ok(Args(map)),
            other => Err(ToolError::NotAnObject(format!("got {}", kind_of(&other)))),
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name).and_then(Value::as_u64)
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(super) fn list(&self, name: &str) -> Option<&[Value]> {
        self.0.get(name).and_then(Value::as_array).map(Vec::as_slice)
    }

    /// A required text; the schema has checked that it is there.
    pub(super) fn required(&self, name: &'static str) -> Result<&str, ToolError> {
        self.text(name).ok_or_else(|| ToolError::argument(name, "is missing"))
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(n) if n.is_f64() => "a number with a fraction",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn wanted(kind: &str) -> &'static str {
    match kind {
        "string" => "a string",
        "integer" => "a whole number",
        "boolean" => "true or false",
        "array" => "a list",
        _ => "an object",
    }
}

/// The first placeholder of a secret in any string or field name.
fn secret(value: &Value) -> Option<String> {
    let of_text = |text: &str| {
        let start = text.find("«secret:")?;
        let end = text[start..].find('»')?;
        Some(text[start..start + end + '»'.len_utf8()].to_owned())
    };
    match value {
        Value::String(text) => of_text(text),
        Value::Array(items) => items.iter().find_map(secret),
        Value::Object(map) => map.iter().find_map(|(name, value)| of_text(name).or_else(|| secret(value))),
        _ => None,
    }
}

/// Checks a value against the subset of JSON Schema that the tools use: type (one or several), properties, required,
/// additionalProperties (always false), items, enum, minimum, maximum, minLength, minItems. Removes nulls of fields
/// that are not required and writes whole numbers as such.
fn check(value: &mut Value, schema: &Value, path: &str) -> Result<(), ToolError> {
    let kinds: Vec<&str> = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        kind => kind.as_str().into_iter().collect(),
    };
    if let Value::Number(number) = value
        && let Some(float) = number.as_f64()
        && number.is_f64()
        && float.fract() == 0.0
        && (0.0..9e15).contains(&float)
    {
        *value = Value::from(float as u64);
    }
    let fits = kinds.iter().any(|kind| match *kind {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        _ => value.is_object(),
    });
    if !fits {
        let names: Vec<&str> = kinds.iter().map(|kind| wanted(kind)).collect();
        let mut problem = format!("must be {}, got {}", names.join(" or "), kind_of(value));
        if let Value::String(text) = &*value {
            let bare = text.trim();
            let number = kinds.contains(&"integer") && bare.parse::<u64>().is_ok();
            let boolean = kinds.contains(&"boolean") && matches!(bare, "true" | "false");
            if number || boolean {
                problem.push_str(&format!(": write {bare} without quotes"));
            }
        }
        return Err(ToolError::argument(path, problem));
    }
    if let Some(choices) = schema["enum"].as_array()
        && !choices.contains(value)
    {
        let names: Vec<String> = choices.iter().map(Value::to_string).collect();
        return Err(ToolError::argument(path, format!("must be one of {}", names.join(", "))));
    }
    match value {
        Value::String(text) => {
            if text.is_empty() && schema["minLength"].as_u64().is_some_and(|least| least > 0) {
                return Err(ToolError::argument(path, "must not be empty"));
            }
        }
        Value::Number(number) => {
            let number = number.as_i64().unwrap_or(i64::MAX);
            if let Some(least) = schema["minimum"].as_i64().filter(|least| number < *least) {
                return Err(ToolError::argument(path, format!("must be at least {least}")));
            }
            if let Some(most) = schema["maximum"].as_i64().filter(|most| number > *most) {
                return Err(ToolError::argument(path, format!("must be at most {most}")));
            }
        }
        Value::Array(items) => {
            if items.is_empty() && schema["minItems"].as_u64().is_some_and(|least| least > 0) {
                return Err(ToolError::argument(path, "must not be empty"));
            }
            for (i, item) in items.iter_mut().enumerate() {
                check(item, &schema["items"], &format!("{path}[{i}]"))?;
            }
        }
        Value::Object(map) => check_fields(map, schema, path)?,
        Value::Null | Value::Bool(_) => {}
    }
    Ok(())
}

fn check_fields(map: &mut Map<String, Value>, schema: &Value, path: &str) -> Result<(), ToolError> {
    let dot = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    let none = Map::new();
    let known = schema["properties"].as_object().unwrap_or(&none);
    let required: Vec<&str> =
        schema["required"].as_array().map(|names| names.iter().filter_map(Value::as_str).collect()).unwrap_or_default();
    if let Some(name) = map.keys().find(|name| !known.contains_key(*name)) {
        let names: Vec<&str> = known.keys().map(String::as_str).collect();
        let expected = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let name = super::output::one_line(name, 80);
        return Err(ToolError::argument(dot(&name), format!("is no known field (expected: {expected})")));
    }
    map.retain(|name, value| !value.is_null() || required.contains(&name.as_str()));
    if let Some(name) = required.iter().find(|name| !map.contains_key(**name)) {
        let kind = known.get(*name).and_then(|field| field["type"].as_str()).unwrap_or("string");
        return Err(ToolError::argument(dot(name), format!("is missing; expected {}", wanted(kind))));
    }
    for (name, value) in map.iter_mut() {
        check(value, &known[name], &dot(name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({"type":"object","properties":{
            "path":{"type":"string","minLength":1},
            "limit":{"type":"integer","minimum":1,"maximum":9},
            "id":{"type":["string","integer"]},
            "all":{"type":"boolean"},
            "mode":{"type":"string","enum":["a","b"]},
            "edits":{"type":"array","minItems":1,"items":{"type":"object","properties":{"old":{"type":"string"}},"required":["old"]}}
        },"required":["path"]})
    }

    fn problem(text: &str) -> String {
        Args::parse(text, &schema()).expect_err(text).to_string()
    }

    #[test]
    fn what_fits_is_read() {
        let args = Args::parse(r#"{"path":"x","limit":5.0,"all":true,"id":7,"mode":null}"#, &schema()).expect("fits");
        assert_eq!((args.text("path"), args.number("limit"), args.flag("all")), (Some("x"), Some(5), true));
        assert!(!args.has("mode") && args.number("id") == Some(7));
    }

    #[test]
    fn every_misfit_names_the_field_and_what_was_expected() {
        for (text, parts) in [
            ("", vec!["one JSON object", "empty"]),
            ("[1]", vec!["one JSON object", "got a list"]),
            ("{\"path\":\"x\"", vec!["one JSON object"]),
            ("{\"path\":\"x\"} {}", vec!["one JSON object"]),
            ("{}", vec!["`path`", "missing", "a string"]),
            (r#"{"path":null}"#, vec!["`path`", "a string", "null"]),
            (r#"{"path":""}"#, vec!["`path`", "empty"]),
            (r#"{"path":"x","file":1}"#, vec!["`file`", "path, limit, id, all, mode, edits"]),
            (r#"{"path":"x","limit":"5"}"#, vec!["`limit`", "whole number", "write 5 without quotes"]),
            (r#"{"path":"x","limit":1.5}"#, vec!["`limit`", "whole number", "fraction"]),
            (r#"{"path":"x","limit":0}"#, vec!["`limit`", "at least 1"]),
            (r#"{"path":"x","limit":-3}"#, vec!["`limit`", "at least 1"]),
            (r#"{"path":"x","limit":18446744073709551615}"#, vec!["`limit`", "at most 9"]),
            (r#"{"path":"x","all":"true"}"#, vec!["`all`", "write true without quotes"]),
            (r#"{"path":"x","mode":"c"}"#, vec!["`mode`", "\"a\", \"b\""]),
            (r#"{"path":"x","id":[]}"#, vec!["`id`", "a string or a whole number", "a list"]),
            (r#"{"path":"x","edits":[]}"#, vec!["`edits`", "empty"]),
            (r#"{"path":"x","edits":[{"old":"a"},{"old":2}]}"#, vec!["`edits[1].old`", "a string", "a number"]),
            (r#"{"path":"x","edits":[{"old":"a","x":2}]}"#, vec!["`edits[0].x`", "expected: old"]),
        ] {
            let problem = problem(text);
            for part in parts {
                assert!(problem.contains(part), "{text}: {problem}");
            }
            assert!(problem.ends_with("the tool was not run"), "{problem}");
        }
    }

    #[test]
    fn a_secret_placeholder_is_refused_with_the_reason() {
        let problem = problem(r#"{"path":"a «secret:API_KEY» b"}"#);
        assert!(problem.contains("«secret:API_KEY»") && problem.contains("environment variable"), "{problem}");
        assert!(Args::parse(r#"{"path":"«secret:"}"#, &schema()).is_ok());
    }
}
