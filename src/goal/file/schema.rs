//! The JSON Schema of a goal file, made from the key table.

use serde_json::{Map, Value as Json, json};

use super::keys::{self, Key, Kind, Names};
use super::shape::NOT_YET;

/// JSON Schema (draft 2020-12) of `goal.yaml`, version 1. Keys to come are in it, and accept nothing.
pub fn schema() -> Json {
    let mut schema = Map::new();
    schema.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
    schema.insert("title".into(), json!("spettro goal file, version 1"));
    if let Json::Object(map) = object(keys::GOAL) {
        schema.extend(map);
    }
    let definitions = json!({
        "model": either(vec![
            json!({"type": "string", "pattern": MODEL_ID}),
            object(keys::MODEL),
        ]),
        "check": either(vec![json!({"type": "string", "minLength": 1}), object(keys::CHECK)]),
    });
    schema.insert("$defs".into(), definitions);
    Json::Object(schema)
}

const MODEL_ID: &str = "^[^/\\s]+/\\S+$";
const VARIABLE: &str = "^[A-Za-z_][A-Za-z0-9_]*$";
const MONEY: &str = "^[0-9]+(\\.[0-9]{1,6})?$";

fn either(schemas: Vec<Json>) -> Json {
    json!({ "anyOf": schemas })
}

fn object(keys: &[Key]) -> Json {
    let mut properties = Map::new();
    for key in keys {
        let mut schema = kind(&key.kind);
        if let Json::Object(map) = &mut schema {
            let later = if matches!(key.kind, Kind::Later(_)) { format!(" ({NOT_YET})") } else { String::new() };
            map.insert("description".into(), json!(format!("{}{later}", key.about)));
            if let Some(default) = key.default.and_then(|text| serde_yaml::from_str::<Json>(text).ok()) {
                map.insert("default".into(), default);
            }
        }
        properties.insert(key.name.into(), schema);
    }
    let required: Vec<&str> = keys.iter().filter(|key| key.required).map(|key| key.name).collect();
    let mut object = Map::new();
    object.insert("type".into(), json!("object"));
    object.insert("properties".into(), Json::Object(properties));
    if !required.is_empty() {
        object.insert("required".into(), json!(required));
    }
    object.insert("additionalProperties".into(), json!(false));
    Json::Object(object)
}

fn kind(of: &Kind) -> Json {
    let pattern = |pattern: &str| json!({"type": "string", "pattern": pattern});
    let text = || json!({"type": "string", "minLength": 1});
    let unlimited = || json!({"const": "unlimited"});
    match of {
        Kind::Version => json!({"const": 1}),
        Kind::Bool => json!({"type": "boolean"}),
        Kind::Whole { min, max, odd: false } => json!({"type": "integer", "minimum": min, "maximum": max}),
        Kind::Whole { min, max, odd: true } => {
            let odd: Vec<u64> = (*min..=*max).filter(|number| number % 2 == 1).collect();
            json!({ "enum": odd })
        }
        Kind::Tokens => either(vec![json!({"type": "integer", "minimum": 1}), unlimited()]),
        Kind::Time { unlimited: true, .. } => either(vec![time(), unlimited()]),
        Kind::Time { unlimited: false, .. } => time(),
        Kind::Size => pattern("^[0-9]+ ?(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)$"),
        Kind::Money => either(vec![json!({"type": "number", "exclusiveMinimum": 0}), pattern(MONEY), unlimited()]),
        Kind::Price => either(vec![json!({"type": "number", "minimum": 0}), pattern(MONEY)]),
        Kind::Word { now, .. } => json!({ "enum": now }),
        Kind::Slug => pattern("^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"),
        Kind::Goal => {
            let file = json!({
                "type": "object",
                "properties": {"file": {"type": "string", "minLength": 1, "description": "the file that holds the text"}},
                "required": ["file"],
                "additionalProperties": false,
            });
            either(vec![text(), file])
        }
        Kind::Line | Kind::Path | Kind::Inside | Kind::Glob => text(),
        Kind::Variable => pattern(VARIABLE),
        Kind::VariableGlob => pattern("^[A-Za-z0-9_*?]+$"),
        Kind::Tool { later: false } => json!({ "enum": keys::TOOLS }),
        Kind::Tool { later: true } => {
            let all = [keys::TOOLS, keys::LATER_TOOLS].concat();
            json!({ "enum": all })
        }
        Kind::Url => pattern("^https?://[^/?#@\\s][^?#\\s]*$"),
        Kind::ModelId => pattern(MODEL_ID),
        Kind::Model => json!({"$ref": "#/$defs/model"}),
        Kind::Check => json!({"$ref": "#/$defs/check"}),
        Kind::Network => {
            let ports = json!({"type": "array", "items": kind(&keys::PORT), "maxItems": 100});
            either(vec![kind(&keys::NETWORK_WORDS), ports])
        }
        Kind::Run => either(vec![text(), json!({"type": "array", "items": kind(&Kind::Plain), "minItems": 1})]),
        Kind::List { of, most } => json!({"type": "array", "items": kind(of), "maxItems": most}),
        Kind::Map(keys) | Kind::Record(keys) => object(keys),
        Kind::OffOr(keys) => either(vec![json!({"const": "off"}), object(keys)]),
        Kind::Named { names, of } => {
            let mut map = Map::new();
            map.insert("type".into(), json!("object"));
            let name = match names {
                Names::Provider => Some("^[A-Za-z0-9_-]+$"),
                Names::ModelId => Some(MODEL_ID),
                Names::Variable => Some(VARIABLE),
                Names::Header => Some("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"),
                Names::Parameter | Names::Field => None,
            };
            if let Some(name) = name {
                map.insert("propertyNames".into(), json!({ "pattern": name }));
            }
            map.insert("additionalProperties".into(), kind(of));
            Json::Object(map)
        }
        Kind::Plain => json!({"type": ["string", "number"]}),
        Kind::Json => json!({}),
        Kind::Later(_) => json!({"not": {}}),
    }
}

fn time() -> Json {
    json!({"type": "string", "pattern": "^\\s*([0-9]+\\s*[a-z]+\\s*)+$"})
}
