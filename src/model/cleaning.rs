//! Secrets that a model repeats: found in a reply, and replaced before anybody logs, shows or sends it back.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use super::error::ModelError;
use super::reply::{Reply, Stop, blocks_text};
use crate::session::Block;
use crate::world::Secrets;

/// Whether received bytes hold a secret: as they are, or once the pieces that an event stream cuts its texts into
/// are joined.
pub fn held(secrets: &Secrets, body: &[u8]) -> bool {
    if secrets.is_empty() {
        return false;
    }
    if secrets.contains(body) {
        return true;
    }
    let mut texts = BTreeMap::new();
    let (mut whole, mut name) = (true, String::new());
    for line in body.split(|byte| matches!(byte, b'\n' | b'\r')) {
        if let Some(data) = line.strip_prefix(b"data:") {
            whole = false;
            if let Ok(value) = serde_json::from_slice::<Value>(data) {
                gather(&value, &mut name, &mut texts);
            }
        }
    }
    if whole && let Ok(value) = serde_json::from_slice::<Value>(body) {
        gather(&value, &mut name, &mut texts);
    }
    texts.values().any(|text| secrets.contains(text.as_bytes()))
}

/// Adds each text to those that came before it under the same names.
fn gather(value: &Value, name: &mut String, texts: &mut BTreeMap<String, String>) {
    match value {
        Value::String(text) => match texts.get_mut(name.as_str()) {
            Some(all) => all.push_str(text),
            None => {
                texts.insert(name.clone(), text.clone());
            }
        },
        Value::Array(list) => list.iter().for_each(|value| gather(value, name, texts)),
        Value::Object(fields) => {
            for (field, value) in fields {
                let length = name.len();
                name.push('/');
                name.push_str(field);
                gather(value, name, texts);
                name.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Replaces secrets in a reply; false when there were none. Reasoning that must go back exactly as it came is
/// dropped when it held one.
pub fn clean_reply(secrets: &Secrets, reply: &mut Reply) -> bool {
    let before = reply.clone();
    reply.blocks =
        std::mem::take(&mut reply.blocks).into_iter().filter_map(|block| clean_block(secrets, block)).collect();
    let joined = blocks_text(&reply.blocks);
    if let Cow::Owned(clean) = secrets.redact_str(&joined) {
        // It lay across blocks: they become one, where the first stood.
        let first = reply.blocks.iter().position(|block| matches!(block, Block::Text { .. })).unwrap_or(0);
        reply.blocks.retain(|block| !matches!(block, Block::Text { .. }));
        reply.blocks.insert(first.min(reply.blocks.len()), Block::Text { text: clean });
    }
    match &mut reply.stop {
        Stop::Refused(words) => *words = clean_json_or_text(secrets, words),
        Stop::Other(word) => *word = secrets.redact_str(word).into_owned(),
        _ => {}
    }
    for text in [&mut reply.model, &mut reply.input_transformations].into_iter().flatten() {
        *text = clean_json_or_text(secrets, text);
    }
    *reply != before
}

fn clean_block(secrets: &Secrets, block: Block) -> Option<Block> {
    Some(match block {
        Block::Text { text } => Block::Text { text: secrets.redact_str(&text).into_owned() },
        Block::Call { id, name, arguments } => Block::Call {
            id: secrets.redact_str(&id).into_owned(),
            name: secrets.redact_str(&name).into_owned(),
            arguments: clean_json_or_text(secrets, &arguments),
        },
        Block::Raw { raw } => Block::Raw { raw: clean_json_or_text(secrets, &raw) },
        Block::Thinking { text, raw: None } => {
            Block::Thinking { text: secrets.redact_str(&text).into_owned(), raw: None }
        }
        Block::Thinking { text, raw: Some(raw) } => {
            let clean = clean_json_or_text(secrets, &raw);
            let clean_text = secrets.redact_str(&text);
            if clean == raw && clean_text == text {
                Block::Thinking { text, raw: Some(raw) }
            } else if is_bound(&raw) {
                return None;
            } else {
                Block::Thinking { text: clean_text.into_owned(), raw: Some(clean) }
            }
        }
    })
}

/// Whether reasoning may only go back as it came. Of the plain reasoning of a chat, which nothing signs, that is not
/// so.
fn is_bound(raw: &str) -> bool {
    const PLAIN: [&str; 2] = ["reasoning", "reasoning_content"];
    match serde_json::from_str::<Value>(raw) {
        Ok(Value::Object(fields)) => !fields.keys().all(|name| PLAIN.contains(&name.as_str())),
        _ => true,
    }
}

/// As text, and where the text is JSON also as what its strings stand for, however they are escaped.
fn clean_json_or_text(secrets: &Secrets, text: &str) -> String {
    let text = secrets.redact_str(text).into_owned();
    let Ok(mut value) = serde_json::from_str::<Value>(&text) else { return text };
    if clean_value(secrets, &mut value) { value.to_string() } else { text }
}

/// True when something was replaced.
fn clean_value(secrets: &Secrets, value: &mut Value) -> bool {
    match value {
        Value::String(text) => match secrets.redact_str(text) {
            Cow::Owned(clean) => {
                *text = clean;
                true
            }
            Cow::Borrowed(_) => false,
        },
        // All of them, not only the first that held one.
        Value::Array(list) => list.iter_mut().filter_map(|value| clean_value(secrets, value).then_some(())).count() > 0,
        Value::Object(fields) => {
            let mut changed =
                fields.values_mut().filter_map(|value| clean_value(secrets, value).then_some(())).count() > 0;
            if fields.keys().any(|name| secrets.contains(name.as_bytes())) {
                changed = true;
                *fields = std::mem::take(fields)
                    .into_iter()
                    .map(|(name, value)| (secrets.redact_str(&name).into_owned(), value))
                    .collect();
            }
            changed
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The same failure without secrets in its words: providers repeat what they refuse.
pub fn clean_error(secrets: &Secrets, error: ModelError) -> ModelError {
    error.map_text(|text| secrets.redact_str(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> Secrets {
        Secrets::new([("TOKEN".to_owned(), "hunter2-hunter2".to_owned())])
    }

    fn reply(blocks: Vec<Block>) -> Reply {
        Reply { blocks, stop: Stop::End, usage: None, model: None, input_transformations: None }
    }

    fn text(text: &str) -> Block {
        Block::Text { text: text.to_owned() }
    }

    #[test]
    fn a_reply_without_secrets_stays_as_it_is() {
        let mut kept = reply(vec![text("hunter"), text("2")]);
        let before = kept.clone();
        assert!(!clean_reply(&secrets(), &mut kept));
        assert_eq!(kept, before);
    }

    #[test]
    fn texts_and_arguments_are_cleaned_however_they_are_escaped() {
        let call = |arguments: &str| Block::Call { id: "1".into(), name: "bash".into(), arguments: arguments.into() };
        let mut held = reply(vec![text("x hunter2-hunter2"), call(r#"{"command":"echo \u0068unter2-hunter2"}"#)]);
        assert!(clean_reply(&secrets(), &mut held));
        assert_eq!(held.blocks, [text("x «secret:TOKEN»"), call(r#"{"command":"echo «secret:TOKEN»"}"#)]);
        let mut broken = reply(vec![call(r#"{"command":"hunter2-hunter2"#)]);
        assert!(clean_reply(&secrets(), &mut broken));
        assert_eq!(broken.blocks, [call(r#"{"command":"«secret:TOKEN»"#)]);
    }

    #[test]
    fn a_secret_across_blocks_is_found() {
        let mut held = reply(vec![text("a hunter2-"), text("hunter2 b")]);
        assert!(clean_reply(&secrets(), &mut held));
        assert_eq!(held.blocks, [text("a «secret:TOKEN» b")]);
    }

    #[test]
    fn bound_thinking_is_dropped_and_other_thinking_is_cleaned() {
        let thinking =
            |text: &str, raw: Option<&str>| Block::Thinking { text: text.into(), raw: raw.map(str::to_owned) };
        let signed = |text: &str| format!(r#"{{"type":"thinking","thinking":"{text}","signature":"sig"}}"#);
        let fine = signed("fine");
        let mut held = reply(vec![
            thinking("fine", Some(&fine)),
            thinking("hunter2-hunter2", Some(&signed("hunter2-hunter2"))),
            thinking("hunter2-hunter2", Some(r#"{"reasoning_content":"hunter2-hunter2"}"#)),
            thinking("hunter2-hunter2", None),
        ]);
        assert!(clean_reply(&secrets(), &mut held));
        let clean = [
            thinking("fine", Some(&fine)),
            thinking("«secret:TOKEN»", Some(r#"{"reasoning_content":"«secret:TOKEN»"}"#)),
            thinking("«secret:TOKEN»", None),
        ];
        assert_eq!(held.blocks, clean);
    }

    #[test]
    fn bodies_hold_secrets_whole_or_in_pieces() {
        let secrets = secrets();
        assert!(held(&secrets, b"error: hunter2-hunter2"));
        let pieces = b"data: {\"delta\":{\"text\":\"hunter2\"}}\n\ndata: {\"delta\":{\"text\":\"-hunter2\"}}\r\n\r\n";
        assert!(held(&secrets, pieces));
        assert!(held(&secrets, br#"{"content":"\u0068unter2-hunter2"}"#));
        let other = b"data: {\"delta\":{\"text\":\"hunter2\"}}\n\ndata: {\"delta\":{\"other\":\"-hunter2\"}}\n\n";
        assert!(!held(&secrets, other));
        assert!(!held(&Secrets::default(), b"hunter2-hunter2"));
    }
}
