//! The rules of the `gemini` wire.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::request::Request;
use super::{Checker, Found, blank, contains, named};

/// Fields that the API knows; others are refused.
const FIELDS: [&str; 7] =
    ["contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings", "cachedContent"];

/// Keys that a schema may have; others are refused.
const SCHEMA: [&str; 21] = [
    "type",
    "format",
    "title",
    "description",
    "nullable",
    "enum",
    "items",
    "properties",
    "required",
    "anyOf",
    "default",
    "example",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "propertyOrdering",
    "minProperties",
];

const TYPES: [&str; 6] = ["STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT"];

impl Checker {
    pub(super) fn gemini(&self, request: &Request, body: &Value, found: &mut Found) {
        found.unless(request.query.split('&').any(|part| part == "alt=sse"), "events are not asked for");
        for field in body.as_object().into_iter().flatten().map(|(name, _)| name) {
            found.unless(FIELDS.contains(&field.as_str()), format!("a field {field:?} that the API does not know"));
        }
        if let Some(system) = body.get("systemInstruction") {
            let filled = system["parts"][0]["text"].as_str().is_some_and(|text| !blank(text));
            found.unless(filled, "`systemInstruction` is empty");
        }
        for tool in body["tools"][0]["functionDeclarations"].as_array().into_iter().flatten() {
            if let Some(schema) = tool.get("parameters") {
                subset(&tool["name"].to_string(), schema, found);
            }
        }
        let contents = body["contents"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut calls: Vec<&Value> = Vec::new();
        let mut previous = "";
        for (index, content) in contents.iter().enumerate() {
            let at = format!("contents[{index}]");
            let role = content["role"].as_str().unwrap_or_default();
            let parts = content["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
            found.unless(!parts.is_empty(), format!("{at} has no parts"));
            for part in parts {
                let kinds = ["text", "functionCall", "functionResponse"];
                let one = kinds.iter().filter(|kind| part.get(**kind).is_some()).count() == 1;
                found.unless(one || self.rules.foreign_history, format!("{at}: a part that is not one thing"));
                let empty = part["text"].as_str().is_some_and(blank) && part.get("thoughtSignature").is_none();
                found.unless(!empty, format!("{at} has an empty text"));
            }
            match role {
                "user" => {
                    results(&at, &calls, parts, found);
                    calls.clear();
                }
                "model" => {
                    found.unless(index > 0, "the first content is not the user's");
                    found.unless(previous != "model", format!("{at}: two contents of the model in a row"));
                    calls = parts.iter().filter_map(|part| part.get("functionCall")).collect();
                    for call in &calls {
                        found.unless(named(&call["name"]), format!("{at}: a call has no name"));
                        found.unless(call["args"].is_object(), format!("{at}: the arguments of a call are no object"));
                    }
                    self.parts(request, &at, parts, found);
                }
                other => found.say(format!("{at}: role {other:?} does not exist on this wire")),
            }
            previous = role;
        }
        found.unless(calls.is_empty(), "the last calls have no results");
        found.unless(previous != "model", "the last content is the model's");
    }

    /// Signatures come back with the very part that they came with, whatever else was edited.
    fn parts(&self, request: &Request, at: &str, parts: &[Value], found: &mut Found) {
        if self.rules.foreign_history {
            return;
        }
        let is_call = |part: &Value| part.get("functionCall").is_some();
        let same = |a: &Value, b: &Value| {
            is_call(a) && is_call(b) && a["functionCall"]["id"] == b["functionCall"]["id"]
                || !is_call(a) && !is_call(b) && a["text"] == b["text"]
        };
        // Arguments may have been made shorter; of a reply that was cut the calls are gone.
        let shape = |parts: &[Value], calls: bool| -> Vec<(bool, Value, Value)> {
            let kept = parts.iter().filter(|part| calls || !is_call(part));
            kept.map(|part| (is_call(part), part["functionCall"]["id"].clone(), part["thoughtSignature"].clone()))
                .collect()
        };
        let whole = |sent: &[Value]| [true, false].iter().any(|&calls| shape(parts, true) == shape(sent, calls));
        // A runner that died asks again, and may get the same calls in another reply.
        let alike = || self.parts.iter().filter(|sent| sent.iter().any(|a| parts.iter().any(|b| same(a, b))));
        let Some(sent) = alike().find(|sent| whole(sent)).or_else(|| alike().next()) else {
            let signed = parts.iter().any(|part| part.get("thoughtSignature").is_some());
            return found.unless(!signed, format!("{at}: a signature that was never sent"));
        };
        if !whole(sent) {
            return found.say(format!("{at}: the parts of the reply or their signatures are not as they were sent"));
        }
        let edited = self.rewritten > 0;
        for part in parts.iter().filter(|part| part.get("thoughtSignature").is_some()) {
            // Equal as JSON; the text that was sent is the sent value's own.
            let own = sent.iter().find(|sent| *sent == part);
            let known = own.is_some_and(|own| contains(&request.body, own.to_string().as_bytes()));
            found.unless(known || edited, format!("{at}: a signed part was changed or serialized anew"));
        }
    }
}

/// The responses of a content: one for each call right before it, by id or in their order, before anything else.
fn results(at: &str, calls: &[&Value], parts: &[Value], found: &mut Found) {
    let responses: Vec<&Value> = parts.iter().filter_map(|part| part.get("functionResponse")).collect();
    let first = parts.iter().take_while(|part| part.get("functionResponse").is_some()).count();
    found.unless(first == responses.len(), format!("{at}: a response stands behind other parts"));
    if responses.len() != calls.len() {
        return found.say(format!("{at}: {} responses for {} calls before it", responses.len(), calls.len()));
    }
    let mut seen = BTreeSet::new();
    for (response, call) in responses.iter().zip(calls) {
        found.unless(response["response"].is_object(), format!("{at}: a response is no object"));
        found.unless(response["name"] == call["name"], format!("{at}: a response bears another name than its call"));
        found.unless(response.get("id") == call.get("id"), format!("{at}: a response bears another id than its call"));
        if let Some(id) = response["id"].as_str() {
            found.unless(seen.insert(id.to_owned()), format!("{at}: two responses for the call {id}"));
        }
    }
}

fn subset(at: &str, schema: &Value, found: &mut Found) {
    let Some(fields) = schema.as_object() else { return found.say(format!("{at}: a schema is no object")) };
    for (name, _) in fields.iter().filter(|(name, _)| !SCHEMA.contains(&name.as_str())) {
        found.say(format!("{at}: the API refuses the key {name:?} in a schema"));
    }
    match schema["type"].as_str() {
        Some(kind) => found.unless(TYPES.contains(&kind), format!("{at}: {kind:?} is no type of a schema")),
        None => found.unless(fields.contains_key("anyOf"), format!("{at}: a schema without a type")),
    }
    if schema["type"] == "OBJECT" {
        let properties = schema["properties"].as_object();
        found.unless(properties.is_some_and(|all| !all.is_empty()), format!("{at}: an object without properties"));
        for (name, schema) in properties.into_iter().flatten() {
            subset(&format!("{at}.{name}"), schema, found);
        }
    }
    if schema["type"] == "ARRAY" {
        subset(&format!("{at}[]"), &schema["items"], found);
    }
    for schema in schema["anyOf"].as_array().into_iter().flatten() {
        subset(at, schema, found);
    }
}
