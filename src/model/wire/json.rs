//! Small JSON tools that keep bytes: objects as ordered raw fields, and blocks assembled from deltas.
//!
//! Invariant: a field that no delta touched keeps the exact bytes in which it was received.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Appends `text` as a JSON string.
pub(super) fn push_string(out: &mut Vec<u8>, text: &str) {
    // A string is always serializable, and writing into a vector cannot fail.
    serde_json::to_writer(&mut *out, text).expect("a string into memory");
}

/// `text` as a JSON string.
pub(super) fn string(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    push_string(&mut out, text);
    // The serializer writes UTF-8.
    String::from_utf8(out).expect("JSON is UTF-8")
}

/// The string that a raw value is, if it is one.
pub(super) fn as_string(raw: &RawValue) -> Option<Cow<'_, str>> {
    serde_json::from_str::<Str<'_>>(raw.get()).ok().map(|text| text.0)
}

/// A string that is read in place as long as it has no escapes (serde borrows no `Option<Cow<str>>`).
#[derive(Debug)]
pub(super) struct Str<'a>(pub Cow<'a, str>);

impl Deref for Str<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Str<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Cow<'de, str>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Cow<'de, str>, E> {
                Ok(Cow::Borrowed(text))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Cow<'de, str>, E> {
                Ok(Cow::Owned(text.to_owned()))
            }
        }
        deserializer.deserialize_str(Text).map(Str)
    }
}

/// True for `[]`, `{}`, `""` and `null`.
pub(super) fn is_hollow(raw: &RawValue) -> bool {
    let inner = raw.get().trim();
    inner == "null" || inner == "\"\"" || (inner.starts_with(['[', '{']) && inner[1..inner.len() - 1].trim().is_empty())
}

/// A JSON object as its fields in order, each value as its own bytes.
#[derive(Debug)]
pub(super) struct Fields<'a>(pub Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Fields<'a> {
    pub fn parse(raw: &'a RawValue) -> Result<Fields<'a>, serde_json::Error> {
        serde_json::from_str(raw.get())
    }

    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(field, _)| field == name).map(|(_, value)| *value)
    }
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some((name, value)) = map.next_entry::<Str<'de>, _>()? {
                    fields.push((name.0, value));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// What deltas did to one field.
#[derive(Debug)]
enum Edit {
    /// Text that follows the string of the start.
    Append(String),
    /// Elements that follow those of the start's array.
    Push(Vec<Box<RawValue>>),
    Set(Box<RawValue>),
    /// JSON text that arrived in pieces.
    Pieces(String),
}

/// A block: its first form, and what deltas added.
#[derive(Debug)]
pub(super) struct Assembled {
    start: Box<RawValue>,
    edits: Vec<(String, Edit)>,
}

impl Assembled {
    pub fn new(start: &RawValue) -> Assembled {
        Assembled { start: start.to_owned(), edits: Vec::new() }
    }

    pub fn append(&mut self, field: &str, text: &str) {
        match self.edit(field) {
            Some(Edit::Append(all)) => all.push_str(text),
            Some(other) => *other = Edit::Append(text.to_owned()),
            None => self.edits.push((field.to_owned(), Edit::Append(text.to_owned()))),
        }
    }

    pub fn push(&mut self, field: &str, element: &RawValue) {
        match self.edit(field) {
            Some(Edit::Push(all)) => all.push(element.to_owned()),
            Some(other) => *other = Edit::Push(vec![element.to_owned()]),
            None => self.edits.push((field.to_owned(), Edit::Push(vec![element.to_owned()]))),
        }
    }

    pub fn pieces(&mut self, field: &str, text: &str) {
        match self.edit(field) {
            Some(Edit::Pieces(all)) => all.push_str(text),
            Some(other) => *other = Edit::Pieces(text.to_owned()),
            None => self.edits.push((field.to_owned(), Edit::Pieces(text.to_owned()))),
        }
    }

    pub fn set(&mut self, field: &str, value: &RawValue) {
        let value = Edit::Set(value.to_owned());
        match self.edit(field) {
            Some(edit) => *edit = value,
            None => self.edits.push((field.to_owned(), value)),
        }
    }

    fn edit(&mut self, field: &str) -> Option<&mut Edit> {
        self.edits.iter_mut().find(|(name, _)| name == field).map(|(_, edit)| edit)
    }

    /// The block's JSON text. Without deltas it is the start's, byte for byte.
    pub fn finish(self) -> Result<String, serde_json::Error> {
        if self.edits.is_empty() {
            return Ok(self.start.get().to_owned());
        }
        let mut fields: Vec<(String, String)> = Fields::parse(&self.start)?
            .0
            .into_iter()
            .map(|(name, value)| (name.into_owned(), value.get().to_owned()))
            .collect();
        for (name, edit) in self.edits {
            let old = fields.iter().position(|(field, _)| *field == name);
            let value = edit.onto(old.map(|at| fields[at].1.as_str()));
            match (value, old) {
                (None, _) => {}
                (Some(value), Some(at)) => fields[at].1 = value,
                (Some(value), None) => fields.push((name, value)),
            }
        }
        let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{}:{value}", string(name))).collect();
        Ok(format!("{{{}}}", fields.join(",")))
    }
}

impl Edit {
    /// The field's new JSON text, or `None` when it stays as it was.
    fn onto(self, old: Option<&str>) -> Option<String> {
        match self {
            Edit::Append(text) => {
                let start: String = old.and_then(|old| serde_json::from_str(old).ok()).unwrap_or_default();
                Some(string(&(start + &text)))
            }
            Edit::Push(elements) => {
                let mut all: Vec<Box<RawValue>> =
                    old.and_then(|old| serde_json::from_str(old).ok()).unwrap_or_default();
                all.extend(elements);
                let all: Vec<&str> = all.iter().map(|element| element.get()).collect();
                Some(format!("[{}]", all.join(",")))
            }
            Edit::Set(value) => Some(value.get().to_owned()),
            Edit::Pieces(text) if text.trim().is_empty() => None,
            // What never became JSON is kept as text: the block must stay sendable.
            Edit::Pieces(text) => match serde_json::from_str::<&RawValue>(&text) {
                Ok(_) => Some(text),
                Err(_) => Some(format!("{{\"_unparsed\":{}}}", string(&text))),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn an_untouched_block_keeps_its_bytes() {
        let text = r#"{ "type":"new",  "n":1.50, "é":"\u00e9" }"#;
        assert_eq!(Assembled::new(&raw(text)).finish().unwrap(), text);
    }

    #[test]
    fn deltas_change_their_field_and_no_other_byte() {
        let mut block = Assembled::new(&raw(r#"{"n":1.50,"t":"a","l":[ 1 ],"i":{},"s":null}"#));
        block.append("t", "b\"");
        block.append("t", "c");
        block.push("l", &raw("{\"x\": 2}"));
        block.pieces("i", "{\"q\":");
        block.pieces("i", " 1e2}");
        block.set("s", &raw("true"));
        block.append("new", "z");
        assert_eq!(
            block.finish().unwrap(),
            r#"{"n":1.50,"t":"ab\"c","l":[1,{"x": 2}],"i":{"q": 1e2},"s":true,"new":"z"}"#
        );
    }

    #[test]
    fn pieces_that_are_no_json_stay_sendable() {
        let mut block = Assembled::new(&raw(r#"{"i":{}}"#));
        block.pieces("i", "{\"q\":");
        assert_eq!(block.finish().unwrap(), r#"{"i":{"_unparsed":"{\"q\":"}}"#);
    }

    #[test]
    fn hollow_values_are_told_apart() {
        for hollow in ["[]", "{ }", "null", "\"\"", "[\n]"] {
            assert!(is_hollow(&raw(hollow)), "{hollow}");
        }
        for full in ["[0]", "{\"a\":1}", "0", "false", "\"x\""] {
            assert!(!is_hollow(&raw(full)), "{full}");
        }
    }
}
