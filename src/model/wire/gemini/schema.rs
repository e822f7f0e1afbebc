//! JSON Schema as much of it as the Gemini API takes: a subset of OpenAPI's, which refuses every other key.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Keys that mean the same there.
const KEPT: [&str; 14] = [
    "title",
    "description",
    "default",
    "example",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "propertyOrdering",
];

/// References are followed so deep: a schema that contains itself has no end.
const MOST_DEPTH: usize = 16;

/// The parameters of a function; `None` for an object without properties, which is refused.
pub fn parameters(text: &str) -> Option<String> {
    let schema: Value = serde_json::from_str(text).ok()?;
    let mut named = BTreeMap::new();
    for key in ["$defs", "definitions"] {
        for (name, value) in schema.get(key).and_then(Value::as_object).into_iter().flatten() {
            named.insert(format!("#/{key}/{name}"), value.clone());
        }
    }
    let known = convert(&schema, &named, 0);
    let empty = known.get("type") == Some(&json!("OBJECT")) && !known.contains_key("properties");
    (!empty).then(|| Value::Object(known).to_string())
}

fn convert(schema: &Value, named: &BTreeMap<String, Value>, depth: usize) -> Map<String, Value> {
    let mut out = Map::new();
    let Some(schema) = schema.as_object().filter(|_| depth < MOST_DEPTH) else {
        // Anything goes, or too much of it.
        out.insert("type".into(), json!("STRING"));
        return out;
    };
    if let Some(target) = schema.get("$ref").and_then(Value::as_str).and_then(|name| named.get(name)) {
        let mut out = convert(target, named, depth + 1);
        out.extend(schema.get("description").map(|text| ("description".to_owned(), text.clone())));
        return out;
    }
    for (key, value) in schema.iter().filter(|(key, _)| KEPT.contains(&key.as_str())) {
        out.insert(key.clone(), value.clone());
    }
    if schema.get("nullable") == Some(&json!(true)) {
        out.insert("nullable".into(), json!(true));
    }
    // All of them hold: their keys together.
    for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        merge(&mut out, convert(part, named, depth + 1));
    }
    let mut any: Vec<Map<String, Value>> = Vec::new();
    let choices = ["anyOf", "oneOf"].iter().filter_map(|key| schema.get(*key)?.as_array()).flatten();
    for choice in choices {
        if choice.get("type") == Some(&json!("null")) {
            out.insert("nullable".into(), json!(true));
        } else {
            any.push(convert(choice, named, depth + 1));
        }
    }
    match types(schema).as_slice() {
        [] => {}
        [one] => typed(schema, one, named, depth, &mut out),
        several => {
            for one in several.iter().filter(|one| **one != "null") {
                let mut choice = Map::new();
                typed(schema, one, named, depth, &mut choice);
                any.push(choice);
            }
            if several.contains(&"null") {
                out.insert("nullable".into(), json!(true));
            }
        }
    }
    match any.len() {
        0 => {}
        1 => merge(&mut out, any.remove(0)),
        _ => {
            // Beside a choice only words are taken: what else is said of the value goes into each.
            let (words, rules): (Map<_, _>, Map<_, _>) =
                out.into_iter().partition(|(key, _)| matches!(key.as_str(), "title" | "description" | "nullable"));
            out = words;
            for choice in &mut any {
                let kind = choice.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
                let fits = |key: &str| match key {
                    "minLength" | "maxLength" | "pattern" => kind == "STRING",
                    "minimum" | "maximum" => kind == "INTEGER" || kind == "NUMBER",
                    "minItems" | "maxItems" => kind == "ARRAY",
                    "minProperties" | "maxProperties" | "propertyOrdering" => kind == "OBJECT",
                    _ => true,
                };
                choice.extend(rules.iter().filter(|(key, _)| fits(key)).map(|(k, v)| (k.clone(), v.clone())));
            }
            out.insert("anyOf".into(), any.into_iter().map(Value::Object).collect());
        }
    }
    if !out.contains_key("type") && !out.contains_key("anyOf") {
        out.insert("type".into(), json!(if schema.contains_key("properties") { "OBJECT" } else { "STRING" }));
    }
    out
}

/// The types that a schema names, or shows by its keys.
fn types(schema: &Map<String, Value>) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ if schema.contains_key("properties") => vec!["object"],
        _ if schema.contains_key("items") => vec!["array"],
        _ if schema.contains_key("enum") || schema.contains_key("const") => vec!["string"],
        _ => Vec::new(),
    }
}

/// What belongs to a type.
fn typed(
    schema: &Map<String, Value>,
    kind: &str,
    named: &BTreeMap<String, Value>,
    depth: usize,
    out: &mut Map<String, Value>,
) {
    out.insert("type".into(), json!(kind.to_ascii_uppercase()));
    let format = schema.get("format").and_then(Value::as_str).filter(|format| {
        matches!(
            (kind, *format),
            ("integer", "int32" | "int64") | ("number", "float" | "double") | ("string", "date-time" | "enum")
        )
    });
    out.extend(format.map(|format| ("format".to_owned(), json!(format))));
    match kind {
        "string" => {
            let one = schema.get("const").map(|one| vec![one.clone()]);
            let words = one.or_else(|| schema.get("enum").and_then(Value::as_array).cloned()).unwrap_or_default();
            if !words.is_empty() && words.iter().all(Value::is_string) {
                out.insert("enum".into(), Value::Array(words));
            }
        }
        "array" => {
            let items = schema
                .get("items")
                .map_or_else(|| json!({"type": "STRING"}), |items| Value::Object(convert(items, named, depth + 1)));
            out.insert("items".into(), items);
        }
        "object" => {
            let properties = schema.get("properties").and_then(Value::as_object).filter(|all| !all.is_empty());
            let Some(properties) = properties else { return };
            let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
            // A name that is no property is refused.
            let required: Vec<Value> = required
                .filter(|name| name.as_str().is_some_and(|name| properties.contains_key(name)))
                .cloned()
                .collect();
            let properties: Map<String, Value> = properties
                .iter()
                .map(|(name, value)| (name.clone(), Value::Object(convert(value, named, depth + 1))))
                .collect();
            out.insert("properties".into(), Value::Object(properties));
            if !required.is_empty() {
                out.insert("required".into(), Value::Array(required));
            }
        }
        _ => {}
    }
}

/// Adds what a part says; properties and required names come together.
fn merge(out: &mut Map<String, Value>, part: Map<String, Value>) {
    for (key, value) in part {
        match (out.get_mut(&key), value) {
            (Some(Value::Object(all)), Value::Object(more)) => all.extend(more),
            (Some(Value::Array(all)), Value::Array(more)) if key == "required" => all.extend(more),
            (Some(_), _) => {}
            (None, value) => {
                out.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(schema: Value) -> Value {
        serde_json::from_str(&parameters(&schema.to_string()).expect("properties")).expect("JSON")
    }

    fn property(schema: Value) -> Value {
        converted(json!({"type": "object", "properties": {"p": schema}}))["properties"]["p"].clone()
    }

    #[test]
    fn keys_that_are_refused_are_left_out_at_every_depth() {
        assert_eq!(
            converted(json!({
                "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
                "properties": {
                    "a": {"type": "array", "uniqueItems": true, "minItems": 1, "items": {
                        "type": "object", "properties": {"b": {"type": "integer", "exclusiveMinimum": 0}},
                        "required": ["b"], "additionalProperties": false}},
                    "c": {"type": "string", "format": "uri", "minLength": 1}},
                "required": ["a", "gone"], "additionalProperties": false,
            })),
            json!({
                "type": "OBJECT",
                "properties": {
                    "a": {"minItems": 1, "type": "ARRAY", "items": {
                        "type": "OBJECT", "properties": {"b": {"type": "INTEGER"}}, "required": ["b"]}},
                    "c": {"minLength": 1, "type": "STRING"}},
                "required": ["a"],
            })
        );
    }

    #[test]
    fn a_property_that_is_named_like_a_key_stays() {
        let schema = json!({"type": "object", "properties": {"additionalProperties": {"type": "string"}}});
        assert_eq!(converted(schema)["properties"]["additionalProperties"], json!({"type": "STRING"}));
    }

    #[test]
    fn choices_and_nulls_have_their_own_words() {
        assert_eq!(property(json!({"type": ["string", "null"]})), json!({"type": "STRING", "nullable": true}));
        assert_eq!(
            property(json!({"type": ["string", "integer"], "minLength": 1, "description": "d"})),
            json!({"description": "d", "anyOf": [{"type": "STRING", "minLength": 1}, {"type": "INTEGER"}]})
        );
        assert_eq!(
            property(json!({"oneOf": [{"type": "null"}, {"type": "number", "format": "float"}]})),
            json!({"nullable": true, "type": "NUMBER", "format": "float"})
        );
    }

    #[test]
    fn only_words_are_enumerated() {
        assert_eq!(property(json!({"enum": ["a", "b"]})), json!({"type": "STRING", "enum": ["a", "b"]}));
        assert_eq!(property(json!({"const": "a"})), json!({"type": "STRING", "enum": ["a"]}));
        assert_eq!(property(json!({"type": "integer", "enum": [1, 2]})), json!({"type": "INTEGER"}));
    }

    #[test]
    fn references_are_followed_and_circles_end() {
        let schema = json!({
            "type": "object", "properties": {"p": {"$ref": "#/$defs/n", "description": "d"}},
            "$defs": {"n": {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}}}});
        let converted = converted(schema);
        assert_eq!(converted["properties"]["p"]["description"], "d");
        assert!(!converted.to_string().contains('$'));
    }

    #[test]
    fn parts_that_all_hold_come_together() {
        assert_eq!(
            property(json!({"allOf": [
                {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
                {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]}]})),
            json!({"type": "OBJECT", "properties": {"a": {"type": "STRING"}, "b": {"type": "STRING"}},
                "required": ["a", "b"]})
        );
    }

    #[test]
    fn a_function_without_parameters_names_none() {
        assert_eq!(parameters(r#"{"type":"object","properties":{}}"#), None);
        assert_eq!(parameters(r#"{"type":"object"}"#), None);
    }
}
