//! What all encoders share: messages grouped as the wires want them, safe arguments, the front's fields.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::json;
use crate::session::{Block, Message};

/// The result of one tool call.
pub(super) struct ToolResult<'a> {
    pub call_id: &'a str,
    /// The name that was called.
    pub tool: &'a str,
    pub text: &'a str,
    pub is_error: bool,
}

/// One side's say.
pub(super) enum Say<'a> {
    /// Everything between two assistant messages: results first, then texts.
    User {
        results: Vec<ToolResult<'a>>,
        texts: Vec<Cow<'a, str>>,
    },
    Assistant(&'a [Block]),
}

/// Groups messages. An assistant message that is left out (refused) still ends a group, so that a list encoded at
/// once and the same list encoded reply by reply give the same bytes.
pub(super) fn group(messages: &[Message]) -> Vec<Say<'_>> {
    let mut says = Vec::new();
    let mut user = (Vec::new(), Vec::new());
    for message in messages {
        match message {
            Message::User { text, .. } if text.trim().is_empty() => {}
            Message::User { text, .. } => user.1.push(Cow::Borrowed(text.as_str())),
            Message::Operator { text } if text.trim().is_empty() => {}
            Message::Operator { text } => user.1.push(Cow::Owned(format!("[operator] {text}"))),
            Message::Tool { call_id, tool, text, is_error } => {
                // An empty result is refused by some servers (by Anthropic's when it is an error).
                let text = if text.is_empty() { "(no output)" } else { text };
                user.0.push(ToolResult { call_id, tool, text, is_error: *is_error });
            }
            Message::Assistant { blocks, refused, .. } => {
                says.extend(user_say(std::mem::take(&mut user)));
                if refused.is_none() {
                    says.push(Say::Assistant(blocks));
                }
            }
        }
    }
    says.extend(user_say(user));
    says
}

fn user_say<'a>((results, texts): (Vec<ToolResult<'a>>, Vec<Cow<'a, str>>)) -> Option<Say<'a>> {
    (!results.is_empty() || !texts.is_empty()).then_some(Say::User { results, texts })
}

/// A call's arguments as they can be sent again: what is no JSON object goes as `{"_unparsed": text}`.
pub(super) fn sendable_arguments(arguments: &str) -> Cow<'_, str> {
    if json::is_sound_object(arguments) {
        return Cow::Borrowed(arguments);
    }
    Cow::Owned(format!("{{\"_unparsed\":{}}}", json::string(arguments)))
}

/// The `type` of an object that is kept as text.
pub(super) fn kind(raw: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Kind {
        #[serde(rename = "type")]
        kind: String,
    }
    serde_json::from_str::<Kind>(raw).ok().map(|kind| kind.kind)
}

/// Lets extra objects of these names add to the wire's own objects, field by field, instead of replacing them:
/// `own` has the merged ones then, and what is returned are the other extra fields.
pub(super) fn merged(own: &mut [(&str, String)], extra: &[(String, String)], names: &[&str]) -> Vec<(String, String)> {
    let mut left = Vec::new();
    for (name, value) in extra {
        let target = own.iter_mut().find(|(own, _)| own == name && names.contains(own));
        let both = target.and_then(|(_, own)| {
            let all: Map<String, Value> = serde_json::from_str(own).ok()?;
            let more: Map<String, Value> = serde_json::from_str(value).ok()?;
            Some((own, all, more))
        });
        match both {
            Some((own, mut all, more)) => {
                all.extend(more);
                *own = Value::Object(all).to_string();
            }
            None => left.push((name.clone(), value.clone())),
        }
    }
    left
}

/// `{` and the fields, each followed by a comma. An extra field wins over the wire's own of that name; those in
/// `rest` belong to the rest of the body and are left out.
pub(super) fn front(own: &[(&str, String)], extra: &[(String, String)], rest: &[&str]) -> Vec<u8> {
    let mut out = vec![b'{'];
    let own = own.iter().filter(|(name, _)| extra.iter().all(|(other, _)| other != name));
    let extra = extra.iter().filter(|(name, _)| !rest.contains(&name.as_str()));
    for (name, value) in
        own.map(|(name, value)| (*name, value)).chain(extra.map(|(name, value)| (name.as_str(), value)))
    {
        json::push_string(&mut out, name);
        out.push(b':');
        out.extend_from_slice(value.as_bytes());
        out.push(b',');
    }
    out
}
