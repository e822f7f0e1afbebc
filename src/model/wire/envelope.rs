//! A block as the provider sent it, around what is known of it: a text, or the arguments of a call.
//!
//! Two wires want their own objects back as they were, although only one field of them is of use to anybody else.
//! The object without that field goes before the block, as reasoning that cannot be read: whoever leaves reasoning
//! out or edits the block needs to know nothing of it. Invariant: put together again without an edit, the object has
//! the exact bytes in which it was received.

use serde::{Deserialize, Serialize};

use super::json;
use crate::session::Block;

/// What all envelopes begin with, and nothing else that is kept of a reply.
const MARK: &str = r#"{"envelope":"#;

/// The kind of block that follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Holds {
    Text,
    Call,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Envelope {
    /// First, so that every envelope begins with [`MARK`].
    envelope: Holds,
    before: String,
    after: String,
    /// The field's text as JSON, where it is not what spettro would write for the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inside: Option<String>,
    /// The text or the arguments that `before` stands for as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    says: Option<String>,
}

/// Keeps `object` as a whole, for as long as the text that follows is `says`.
pub(super) fn whole(object: &str, says: &str) -> Block {
    let envelope = Envelope {
        envelope: Holds::Text,
        before: object.to_owned(),
        after: String::new(),
        inside: None,
        says: Some(says.to_owned()),
    };
    Block::Thinking { text: String::new(), raw: serde_json::to_string(&envelope).ok() }
}

/// Keeps `object`, a call without arguments, as a whole for as long as it has none.
pub(super) fn without_arguments(object: &str) -> Option<Block> {
    let envelope = Envelope {
        envelope: Holds::Call,
        before: object.to_owned(),
        after: String::new(),
        inside: None,
        says: Some("{}".to_owned()),
    };
    Some(Block::Thinking { text: String::new(), raw: serde_json::to_string(&envelope).ok() })
}

/// Wraps `object` around the part of it that `inside` is; `plain` is how that part would be written from the block.
pub(super) fn around(holds: Holds, object: &str, inside: &str, plain: &str) -> Option<Block> {
    let start = (inside.as_ptr() as usize).checked_sub(object.as_ptr() as usize)?;
    let (before, rest) = object.split_at_checked(start)?;
    let after = rest.strip_prefix(inside)?;
    let envelope = Envelope {
        envelope: holds,
        before: before.to_owned(),
        after: after.to_owned(),
        inside: (inside != plain).then(|| inside.to_owned()),
        says: None,
    };
    Some(Block::Thinking { text: String::new(), raw: serde_json::to_string(&envelope).ok() })
}

/// Reads what [`around`] has made.
pub(super) fn open(raw: &str) -> Option<Envelope> {
    if is(raw) { serde_json::from_str(raw).ok() } else { None }
}

/// Whether a reasoning block is an envelope.
pub(super) fn is(raw: &str) -> bool {
    raw.starts_with(MARK)
}

impl Envelope {
    /// The object again, around a text (as a JSON string).
    pub fn with_text(&self, text: &str) -> Option<String> {
        self.with_json_of(Holds::Text, text)
    }

    /// The object again, around arguments that are sent as an object.
    pub fn with_object(&self, arguments: &str) -> Option<String> {
        if let Some(says) = &self.says {
            return (says == arguments).then(|| self.before.clone());
        }
        (self.envelope == Holds::Call).then(|| self.with(arguments))
    }

    /// The object again, around arguments that are sent as a text.
    pub fn with_string(&self, arguments: &str) -> Option<String> {
        self.with_json_of(Holds::Call, arguments)
    }

    fn with_json_of(&self, holds: Holds, text: &str) -> Option<String> {
        if self.envelope != holds {
            return None;
        }
        if let Some(says) = &self.says {
            return (says == text).then(|| self.before.clone());
        }
        let plain = json::string(text);
        let same = |inside: &&String| serde_json::from_str::<String>(inside).is_ok_and(|inside| inside == text);
        Some(self.with(self.inside.as_ref().filter(same).unwrap_or(&plain)))
    }

    fn with(&self, inside: &str) -> String {
        format!("{}{inside}{}", self.before, self.after)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    #[derive(Deserialize)]
    struct Known<'a> {
        #[serde(borrow)]
        text: &'a RawValue,
    }

    fn wrapped(object: &str) -> Envelope {
        let known: Known<'_> = serde_json::from_str(object).unwrap();
        let text: String = serde_json::from_str(known.text.get()).unwrap();
        let Some(Block::Thinking { raw: Some(raw), .. }) =
            around(Holds::Text, object, known.text.get(), &json::string(&text))
        else {
            panic!("{object}")
        };
        assert!(is(&raw));
        open(&raw).unwrap()
    }

    #[test]
    fn an_object_comes_back_byte_for_byte() {
        for (object, text) in [
            (r#"{ "id":"a",  "text":"hi \"you\"\n", "z":1.50 }"#, "hi \"you\"\n"),
            // Escaped in another way than spettro would.
            (r#"{"text":"caf\u00e9 \/ é","z":[ ]}"#, "café / é"),
            (r#"{"text":""}"#, ""),
        ] {
            assert_eq!(wrapped(object).with_text(text).as_deref(), Some(object));
        }
    }

    #[test]
    fn an_edited_text_stands_in_the_same_object() {
        let object = r#"{"id":"a","text":"caf\u00e9"}"#;
        assert_eq!(wrapped(object).with_text("tea").as_deref(), Some(r#"{"id":"a","text":"tea"}"#));
        assert_eq!(wrapped(object).with_string("{}"), None, "it holds no call");
    }

    #[test]
    fn a_call_without_arguments_is_kept_until_it_gets_some() {
        let object = r#"{"functionCall":{"name":"n"}}"#;
        let Some(Block::Thinking { raw: Some(raw), .. }) = without_arguments(object) else { panic!() };
        assert_eq!(open(&raw).unwrap().with_object("{}").as_deref(), Some(object));
        assert_eq!(open(&raw).unwrap().with_object("{\"a\":1}"), None);
    }

    #[test]
    fn an_object_of_several_texts_is_kept_while_they_stand() {
        let object = r#"[{"text":"a"}, {"text":"b"}]"#;
        let Block::Thinking { raw: Some(raw), .. } = whole(object, "ab") else { panic!() };
        let envelope = open(&raw).unwrap();
        assert_eq!(envelope.with_text("ab").as_deref(), Some(object));
        assert_eq!(envelope.with_text("ac"), None);
    }

    #[test]
    fn what_is_no_part_of_the_object_is_not_wrapped() {
        let elsewhere = "x".to_owned();
        assert_eq!(around(Holds::Text, r#"{"text":"x"}"#, &elsewhere, "x"), None);
        assert!(open(r#"{"type":"reasoning"}"#).is_none());
    }
}
