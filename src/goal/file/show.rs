//! The effective configuration as YAML: every key, in the key table's order, without secrets, readable by `load`.

use super::node::segment;
use super::source::{Origin, looks_secret};
use super::value::{Value, dollars_text, size_text, time_text};

/// What stands for a value that may be a secret.
pub(super) const MASK: &str = "«masked»";

/// One effective value. A path has one or two names: `model`, `limits.cost`, `providers.local`.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub group: Option<&'static str>,
    pub name: String,
    pub value: Value,
    pub origin: Origin,
}

impl Row {
    pub(super) fn path(&self) -> String {
        match self.group {
            Some(group) => format!("{group}.{}", segment(&self.name)),
            None => self.name.clone(),
        }
    }
}

/// The whole configuration; with `origins` each value is followed by a comment that says who set it.
pub(super) fn yaml(rows: &[Row], origins: bool) -> String {
    let mut out = String::new();
    let mut open = None;
    for row in rows {
        let mut indent = 0;
        if let Some(group) = row.group {
            if open != row.group {
                out.push_str(group);
                out.push_str(":\n");
            }
            indent = 2;
        }
        open = row.group;
        let comment = if origins { format!("  # {}", row.origin) } else { String::new() };
        out.push_str(&" ".repeat(indent));
        out.push_str(&scalar(&row.name, indent));
        out.push(':');
        block(&mut out, &row.value, indent, &comment);
    }
    out
}

/// The value on one line, for lists of values.
pub(super) fn line(value: &Value) -> String {
    match value {
        Value::List(list) => format!("[{}]", list.iter().map(line).collect::<Vec<_>>().join(", ")),
        Value::Map(map) => {
            let entries = map.iter().map(|(name, value)| format!("{}: {}", quoted(name), line(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
        Value::Text(text) => quoted(text),
        value => flat(value, 0),
    }
}

/// A text as JSON would write it, unless it is a plain word.
fn quoted(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    if plain { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

/// What follows a key's colon, up to and with the end of the line.
fn block(out: &mut String, value: &Value, indent: usize, comment: &str) {
    match value {
        Value::List(list) if !list.is_empty() => {
            out.push_str(comment);
            out.push('\n');
            for item in list {
                out.push_str(&" ".repeat(indent + 2));
                out.push('-');
                match item {
                    Value::Map(map) if !map.is_empty() => {
                        // The first entry stands on the dash's line, the others below it.
                        out.push(' ');
                        entries(out, map, indent + 4, true);
                    }
                    Value::List(_) => out.push_str(&format!(" {}\n", line(item))),
                    item => block(out, item, indent + 2, ""),
                }
            }
        }
        Value::Map(map) if !map.is_empty() => {
            out.push_str(comment);
            out.push('\n');
            entries(out, map, indent + 2, false);
        }
        Value::List(_) => out.push_str(&format!(" []{comment}\n")),
        Value::Map(_) => out.push_str(&format!(" {{}}{comment}\n")),
        value => {
            let text = flat(value, indent);
            // A comment on a block scalar stands after its header.
            match text.split_once('\n') {
                Some((header, rest)) => out.push_str(&format!(" {header}{comment}\n{rest}\n")),
                None => out.push_str(&format!(" {text}{comment}\n")),
            }
        }
    }
}

fn entries(out: &mut String, map: &[(String, Value)], indent: usize, first_inline: bool) {
    for (index, (name, value)) in map.iter().enumerate() {
        if index > 0 || !first_inline {
            out.push_str(&" ".repeat(indent));
        }
        out.push_str(&scalar(name, indent));
        out.push(':');
        block(out, value, indent, "");
    }
}

/// A value that is no list and no map.
fn flat(value: &Value, indent: usize) -> String {
    match value {
        Value::Bool(value) => value.to_string(),
        Value::Whole(number) => number.to_string(),
        Value::Time(time) => time_text(*time),
        Value::Size(bytes) => size_text(*bytes),
        Value::Money(micros) => dollars_text(micros.0),
        Value::Price(micros) => dollars_text(*micros),
        Value::Text(text) => scalar(text, indent),
        Value::Json(json) => json.to_string(),
        Value::Off => "off".into(),
        Value::Unlimited => "unlimited".into(),
        Value::List(_) | Value::Map(_) => line(value),
    }
}

/// A text as a YAML scalar: plain, quoted, or a block whose further lines are indented to stand below `indent`.
fn scalar(text: &str, indent: usize) -> String {
    // Lines that begin or end with white space and other oddities go into double quotes, which JSON knows as well.
    let block = text.contains('\n')
        && text.lines().all(|line| line.chars().all(|c| !c.is_control()) && line.trim_end() == line)
        && !text.starts_with(['\n', ' '])
        && !text.ends_with('\n')
        && !text.contains(['\r', '\u{85}', '\u{2028}', '\u{2029}', '\u{feff}']);
    if block {
        let pad = " ".repeat(indent + 2);
        let lines = text.split('\n').map(|line| if line.is_empty() { String::new() } else { format!("{pad}{line}") });
        return format!("|-\n{}", lines.collect::<Vec<_>>().join("\n"));
    }
    if text.chars().any(|c| c.is_control() || "\u{85}\u{2028}\u{2029}\u{feff}".contains(c)) {
        return escaped(text);
    }
    match serde_yaml::to_string(text) {
        Ok(yaml) if yaml.trim_end().lines().count() == 1 => yaml.trim_end().to_owned(),
        _ => escaped(text),
    }
}

/// Double quotes with everything but plain characters escaped.
fn escaped(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() || "\u{2028}\u{2029}\u{feff}".contains(c) => {
                out.push_str(&format!("\\u{:04X}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The value with everything that may be a secret replaced: values of headers and query parameters, and whatever
/// has a name like a secret's or one of the goal's own `redact`.
///
/// `name`: the key that the value stands under.
pub(super) fn masked_at(name: &str, value: &Value, redact: &[String]) -> Value {
    mask(value, name, redact)
}

fn mask(value: &Value, name: &str, redact: &[String]) -> Value {
    let secret = |name: &str| looks_secret(name) || redact.iter().any(|secret| secret == name);
    match value {
        Value::Map(map) if name == "headers" || name == "query_params" => {
            Value::Map(map.iter().map(|(name, _)| (name.clone(), Value::Text(MASK.into()))).collect())
        }
        // Names of variables, not values.
        Value::Map(_) if name == "env_http_headers" => value.clone(),
        Value::Map(map) => {
            let each = map.iter().map(|(name, value)| (name.clone(), mask(value, name, redact)));
            Value::Map(each.collect())
        }
        Value::List(list) => Value::List(list.iter().map(|item| mask(item, name, redact)).collect()),
        Value::Json(json) => Value::Json(mask_json(json, name, &secret)),
        Value::Text(_) if secret(name) => Value::Text(MASK.into()),
        other => other.clone(),
    }
}

fn mask_json(json: &serde_json::Value, name: &str, secret: &dyn Fn(&str) -> bool) -> serde_json::Value {
    use serde_json::Value as Json;
    match json {
        Json::String(_) if secret(name) => Json::String(MASK.into()),
        Json::Array(list) => Json::Array(list.iter().map(|item| mask_json(item, name, secret)).collect()),
        Json::Object(map) => {
            Json::Object(map.iter().map(|(name, value)| (name.clone(), mask_json(value, name, secret))).collect())
        }
        other => other.clone(),
    }
}

/// Whether a value has something masked in it.
pub(super) fn has_mask(value: &Value) -> bool {
    match value {
        Value::Text(text) => text == MASK,
        Value::List(list) => list.iter().any(has_mask),
        Value::Map(map) => map.iter().any(|(_, value)| has_mask(value)),
        Value::Json(json) => json.to_string().contains(MASK),
        _ => false,
    }
}
