//! The openai-chat wire: roles, pairs of calls and results, and reasoning, which always comes back.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::super::request::content_text;
use super::{Checker, Found, blank, call_id, named, thoughts};

impl Checker {
    pub(super) fn chat(&self, messages: &[Value], found: &mut Found) {
        let mut open: Vec<String> = Vec::new();
        let mut answered = BTreeSet::new();
        let mut ids = BTreeSet::new();
        let mut previous = "";
        for (index, message) in messages.iter().enumerate() {
            let at = format!("messages[{index}]");
            let role = message["role"].as_str().unwrap_or_default();
            if index == 0 && !matches!(role, "system" | "developer") {
                found.say(format!("the first message is the {role}'s, not the system's"));
            }
            if role != "tool" {
                for id in open.drain(..) {
                    found.say(format!("{at}: the call {id} before it has no result"));
                }
            }
            let filled = match &message["content"] {
                Value::String(text) => !blank(text),
                Value::Array(parts) => !parts.is_empty() && !blank(&content_text(&message["content"])),
                _ => false,
            };
            match role {
                "system" | "developer" | "user" => found.unless(filled, format!("{at} has no content")),
                "assistant" => {
                    if previous == "assistant" && !self.paused {
                        found.say(format!("{at}: two assistant messages in a row"));
                    }
                    let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
                    found.unless(filled || !calls.is_empty(), format!("{at} has neither text nor calls"));
                    let listed =
                        message.get("tool_calls").is_none_or(|calls| !calls.as_array().is_some_and(Vec::is_empty));
                    found.unless(listed, format!("{at}: `tool_calls` is an empty list"));
                    for call in calls {
                        let id = call["id"].as_str().unwrap_or_default();
                        call_id(&at, id, &mut ids, found);
                        let function = &call["function"];
                        found.unless(call["type"] == "function", format!("{at}: the call {id} is no function"));
                        found.unless(named(&function["name"]), format!("{at}: the call {id} has no name"));
                        // Servers that render a template parse them and refuse anything else.
                        let arguments = function["arguments"].as_str().unwrap_or_default();
                        let object = serde_json::from_str::<Map<String, Value>>(arguments).is_ok();
                        found.unless(object, format!("{at}: the arguments of call {id} are no text of an object"));
                        open.push(id.to_owned());
                    }
                    let thought = message["reasoning_content"].as_str().unwrap_or_default();
                    let known = thought.is_empty() || self.reasoning.contains(thought);
                    found.unless(
                        known || self.rules.foreign_history,
                        format!("{at}: the reasoning is not one that was sent"),
                    );
                    // No server of this wire holds it against the history: it always comes back.
                    let key = match calls.first() {
                        Some(call) => format!("call {}", call["id"]),
                        None => format!("text {}", content_text(&message["content"])),
                    };
                    if let Some(sources) = self.sent.get(&key)
                        && !self.rules.foreign_history
                    {
                        let same = sources.iter().any(|sent| thoughts(sent) == thought);
                        found.unless(same || !known, format!("{at}: its reasoning is missing"));
                    }
                }
                "tool" => {
                    let id = message["tool_call_id"].as_str().unwrap_or_default();
                    if let Some(place) = open.iter().position(|call| call == id) {
                        open.remove(place);
                        answered.insert(id.to_owned());
                    } else if answered.contains(id) {
                        found.say(format!("{at}: two results for the call {id}"));
                    } else {
                        found.say(format!("{at}: the result of {id} has no call in the message before"));
                    }
                    let text = message["content"].is_string() || message["content"].is_array();
                    found.unless(text, format!("{at}: the result of {id} has no content"));
                }
                other => found.say(format!("{at}: role {other:?} does not exist on this wire")),
            }
            previous = role;
        }
        for id in open {
            found.say(format!("the call {id} has no result"));
        }
        if previous == "assistant" && !self.paused {
            found.say("the last message is the assistant's");
        }
    }
}
