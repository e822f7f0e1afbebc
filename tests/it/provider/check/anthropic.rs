//! The anthropic wire: roles, pairs of calls and results, and thinking that comes back as it was sent.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::request::Request;
use super::{Checker, Found, blank, call_id, contains, is_opaque, named, sorted, source_key};

impl Checker {
    /// `before[i]` is the digest of the messages before the i-th.
    pub(super) fn anthropic(
        &mut self,
        request: &Request,
        system: &Value,
        messages: &[Value],
        before: &[u64],
        found: &mut Found,
    ) {
        match system {
            Value::Null => {}
            Value::String(text) => found.unless(!blank(text), "`system` is empty"),
            Value::Array(blocks) => {
                found.unless(!blocks.is_empty(), "`system` is an empty list");
                let texts = blocks.iter().all(|b| b["type"] == "text" && !blank(b["text"].as_str().unwrap_or("")));
                found.unless(texts, "`system` has a block that is not a text, or an empty one");
            }
            _ => found.say("`system` is neither a text nor a list"),
        }
        let mut open: Vec<String> = Vec::new();
        let mut ids = BTreeSet::new();
        let mut previous = "";
        for (index, message) in messages.iter().enumerate() {
            let at = format!("messages[{index}]");
            let role = message["role"].as_str().unwrap_or_default();
            let blocks = match &message["content"] {
                Value::String(text) => vec![json!({"type": "text", "text": text})],
                Value::Array(blocks) => blocks.clone(),
                _ => Vec::new(),
            };
            found.unless(!blocks.is_empty(), format!("{at} has no content"));
            if blocks.iter().any(|b| b["type"] == "text" && blank(b["text"].as_str().unwrap_or(""))) {
                found.say(format!("{at} has an empty text"));
            }
            match role {
                "user" => {
                    self.anthropic_user(&at, &blocks, &mut open, found);
                }
                "assistant" => {
                    found.unless(index > 0, "the first message is not the user's");
                    if previous == "assistant" && !self.paused {
                        found.say(format!("{at}: two assistant messages in a row"));
                    }
                    for id in open.drain(..) {
                        found.say(format!("{at}: the call {id} before it has no result"));
                    }
                    for block in blocks.iter().filter(|block| block["type"] == "tool_use") {
                        let id = block["id"].as_str().unwrap_or_default();
                        call_id(&at, id, &mut ids, found);
                        let valid = id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
                        found.unless(valid, format!("{at}: the call id {id:?} has other characters than a-zA-Z0-9_-"));
                        found.unless(block["input"].is_object(), format!("{at}: the input of call {id} is no object"));
                        found.unless(named(&block["name"]), format!("{at}: the call {id} has no name"));
                        open.push(id.to_owned());
                    }
                    let last = !messages[index + 1..].iter().any(|message| message["role"] == "assistant");
                    let answered = messages.get(index + 1).is_some_and(|next| {
                        next["content"].as_array().is_some_and(|blocks| blocks[0]["type"] == "tool_result")
                    });
                    let standing = Standing { same: before.get(index).copied(), open: last && answered };
                    self.thinking(&at, request, &blocks, standing, found);
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

    fn anthropic_user(&self, at: &str, blocks: &[Value], open: &mut Vec<String>, found: &mut Found) {
        let mut answered = BTreeSet::new();
        let mut other_seen = false;
        for block in blocks {
            if block["type"] != "tool_result" {
                other_seen = true;
                continue;
            }
            let id = block["tool_use_id"].as_str().unwrap_or_default();
            found.unless(!other_seen, format!("{at}: the result of {id} stands behind other content"));
            if !answered.insert(id.to_owned()) {
                found.say(format!("{at}: two results for the call {id}"));
            } else if let Some(place) = open.iter().position(|call| call == id) {
                open.remove(place);
            } else {
                found.say(format!("{at}: the result of {id} has no call in the message before"));
            }
            let parts = block["content"].as_array().map(Vec::as_slice).unwrap_or_default();
            if parts.iter().any(|part| part["type"] == "text" && blank(part["text"].as_str().unwrap_or(""))) {
                found.say(format!("{at}: the result of {id} has an empty text"));
            }
        }
        for id in open.drain(..) {
            found.say(format!("{at}: the call {id} before it has no result"));
        }
    }

    /// Thinking (and any block that only the provider understands) comes back as it was sent, in its place: the
    /// same blocks in the same order between the same calls. It holds for the history that it was thought about:
    /// behind an edit it does not come back, but for the round that was open then.
    fn thinking(&mut self, at: &str, request: &Request, blocks: &[Value], standing: Standing, found: &mut Found) {
        if self.rules.foreign_history {
            return;
        }
        for block in blocks.iter().filter(|block| is_opaque(block)) {
            let kind = block["type"].as_str().unwrap_or("?");
            // Equal as JSON; the text that was sent is the sent value's own.
            match self.opaque.get(&sorted(block)) {
                None => found.say(format!("{at}: the {kind} block is not one that was sent, byte for byte")),
                Some(sent) if kind != "thinking" && !contains(&request.body, sent.to_string().as_bytes()) => {
                    found.say(format!("{at}: the {kind} block was serialized anew"));
                }
                Some(_) => {}
            }
        }
        let key = source_key(blocks);
        let Some(sources) = self.sent.get(&key) else { return };
        let bound = standing.same.is_some_and(|digest| self.bound[&key].contains(&digest));
        if !bound && blocks.iter().any(is_opaque) {
            if standing.open {
                self.open_at_edit.insert(key.clone());
            } else if !self.open_at_edit.contains(&key) {
                found.say(format!("{at}: its thinking is about another history than the one before it"));
            }
        }
        if !bound && !standing.open && !blocks.iter().any(is_opaque) {
            return;
        }
        let ids: Vec<&Value> = blocks.iter().filter(|b| b["type"] == "tool_use").map(|b| &b["id"]).collect();
        let shape = |blocks: &[Value]| -> Vec<Value> {
            let kept = blocks.iter().filter(|b| is_opaque(b) || ids.contains(&&b["id"]));
            kept.map(|b| if is_opaque(b) { b.clone() } else { b["id"].clone() }).collect()
        };
        if !sources.iter().any(|sent| shape(sent) == shape(blocks)) {
            found.say(format!("{at}: its thinking is missing or not in its place"));
        }
    }
}

/// How an assistant message stands in a request.
struct Standing {
    /// The digest of the messages before it.
    same: Option<u64>,
    /// The last one, and its results follow.
    open: bool,
}

/// For each message of a body, and behind the last, the digest of the messages before it, byte for byte.
pub(super) fn digests(body: &[u8]) -> Vec<u64> {
    #[derive(Deserialize)]
    struct Raw<'a> {
        #[serde(borrow)]
        messages: Vec<&'a RawValue>,
    }
    let mut hasher = DefaultHasher::new();
    let mut digests = vec![hasher.finish()];
    let raw: Option<Raw<'_>> = serde_json::from_slice(body).ok();
    for message in raw.into_iter().flat_map(|raw| raw.messages) {
        message.get().hash(&mut hasher);
        digests.push(hasher.finish());
    }
    digests
}
