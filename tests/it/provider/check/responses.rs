//! The rules of the `openai-responses` wire.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::super::request::Request;
use super::{Checker, Found, blank, call_id, contains, named};

/// Items of one side that stand together.
fn is_models(item: &Value) -> bool {
    match item["type"].as_str() {
        Some("message") | None => item["role"] == "assistant",
        Some("function_call_output") => false,
        Some(_) => true,
    }
}

impl Checker {
    pub(super) fn responses(&self, request: &Request, body: &Value, found: &mut Found) {
        found.unless(body["store"] == false, "`store` is not false");
        found.unless(
            body["include"] == json!(["reasoning.encrypted_content"]),
            "the encrypted reasoning is not asked for",
        );
        found.unless(body.get("previous_response_id").is_none(), "nothing is stored that could be continued");
        found.unless(!body["instructions"].as_str().is_some_and(blank), "`instructions` is empty");
        for tool in body["tools"].as_array().into_iter().flatten() {
            found.unless(tool["type"] == "function", "a tool is no function");
            found.unless(tool["strict"] == false, "a tool leaves `strict` to the API, which takes it for true");
        }
        let items = body["input"].as_array().map(Vec::as_slice).unwrap_or_default();
        let (mut open, mut answered, mut ids) = (Vec::<String>::new(), BTreeSet::new(), BTreeSet::new());
        for (index, item) in items.iter().enumerate() {
            let at = format!("input[{index}]");
            match item["type"].as_str().unwrap_or("message") {
                "message" => {
                    let role = item["role"].as_str().unwrap_or_default();
                    found.unless(
                        matches!(role, "user" | "assistant" | "system" | "developer"),
                        format!("{at}: role {role:?} does not exist on this wire"),
                    );
                    let parts = item["content"].as_array().map(Vec::as_slice).unwrap_or_default();
                    let kind = if role == "assistant" { "output_text" } else { "input_text" };
                    found.unless(!parts.is_empty(), format!("{at} has no content"));
                    for part in parts {
                        let empty = part["text"].as_str().is_none_or(blank) && role != "assistant";
                        found.unless(!empty, format!("{at} has an empty text"));
                        found.unless(part["type"] == kind, format!("{at}: a part of the {role}'s is no {kind}"));
                    }
                }
                "function_call" => {
                    let id = item["call_id"].as_str().unwrap_or_default();
                    call_id(&at, id, &mut ids, found);
                    found.unless(named(&item["name"]), format!("{at}: the call {id} has no name"));
                    let arguments = item["arguments"].as_str().unwrap_or_default();
                    let object = serde_json::from_str::<Map<String, Value>>(arguments).is_ok();
                    found.unless(object, format!("{at}: the arguments of call {id} are no text of an object"));
                    open.push(id.to_owned());
                }
                "function_call_output" => {
                    let id = item["call_id"].as_str().unwrap_or_default();
                    if let Some(place) = open.iter().position(|call| call == id) {
                        open.remove(place);
                        answered.insert(id.to_owned());
                    } else if answered.contains(id) {
                        found.say(format!("{at}: two results for the call {id}"));
                    } else {
                        found.say(format!("{at}: the result of {id} has no call before it"));
                    }
                    found.unless(item["output"].is_string(), format!("{at}: the result of {id} has no output"));
                }
                "reasoning" => {
                    let next = items.get(index + 1).is_some_and(is_models);
                    found.unless(next, format!("{at}: nothing follows the reasoning"));
                    let sealed = item["encrypted_content"].as_str().is_some_and(|sealed| !blank(sealed));
                    found.unless(sealed, format!("{at}: reasoning that is not stored needs its encrypted content"));
                }
                other => found.unless(self.rules.foreign_history, format!("{at}: an item of type {other:?}")),
            }
            if !is_models(item) && item["type"] != "function_call_output" {
                for id in open.drain(..) {
                    found.say(format!("{at}: the call {id} before it has no result"));
                }
            }
        }
        for id in open {
            found.say(format!("the call {id} has no result"));
        }
        found.unless(items.first().is_none_or(|item| !is_models(item)), "the first item is not the user's");
        found.unless(items.last().is_none_or(|item| !is_models(item)), "the last item is the model's");
        let mut index = 0;
        for run in items.chunk_by(|a, b| is_models(a) == is_models(b)) {
            if is_models(&run[0]) {
                self.run(request, &format!("input[{index}]"), run, found);
            }
            index += run.len();
        }
    }

    /// One reply's items come back as they were sent, in their order; of a reply that was cut, without its calls.
    /// Once the history was edited, reasoning may be missing: then nothing of that reply bears its own id.
    fn run(&self, request: &Request, at: &str, run: &[Value], found: &mut Found) {
        if self.rules.foreign_history {
            return;
        }
        let text = |item: &Value| item["content"][0]["text"].as_str().unwrap_or_default().to_owned();
        let same = |a: &Value, b: &Value| match a["type"].as_str() {
            Some("function_call") => a["call_id"] == b["call_id"],
            Some("message") => b["type"] == "message" && text(a) == text(b),
            _ => false,
        };
        let sent = self.items.iter().find(|sent| sent.iter().any(|a| run.iter().any(|b| same(a, b))));
        let Some(sent) = sent else {
            let own = run.iter().any(|item| item.get("id").is_some() || item["type"] == "reasoning");
            return found.unless(!own, format!("{at}: items that were never sent"));
        };
        let bears = run.iter().any(|item| item.get("id").is_some());
        if self.rewritten > 0 && !bears {
            return;
        }
        let mut cut: Vec<Value> = sent.iter().filter(|item| item["type"] != "function_call").cloned().collect();
        while cut.last().is_some_and(|item| item["type"] == "reasoning") {
            cut.pop();
        }
        if self.rewritten > 0 {
            let thought = |items: &[Value]| items.iter().filter(|item| item["type"] == "reasoning").count();
            return found.unless(
                thought(run) >= thought(&cut).min(thought(sent)),
                format!("{at}: an item bears its id without its reasoning"),
            );
        }
        // Equal as JSON; the text that was sent is the sent value's own.
        let anew = |item: &&Value| !contains(&request.body, item.to_string().as_bytes());
        if run != sent.as_slice() && run != cut.as_slice() {
            found.say(format!("{at}: the items of the reply are changed, missing or not in their place"));
        } else if let Some(item) = sent.iter().filter(|item| run.contains(item)).find(anew) {
            found.say(format!("{at}: the {} was serialized anew", item["type"].as_str().unwrap_or("item")));
        }
    }
}
