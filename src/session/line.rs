//! How a line of the log is written and read.
//!
//! A line is flat: `seq`, `t`, for entries `id` and `parent`, then `kind`, then the fact's own fields. Because the
//! envelope comes first, a line is read in one pass, straight into the fact's type.

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{DeserializeSeed, Error, IntoDeserializer, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::facts::{Fact, Line, Message};

/// A fact of a kind that this build does not know. Its fields are not read: as text they take no more room than in the
/// log, whatever they are.
#[derive(Debug, Clone)]
pub struct UnknownFact {
    pub kind: String,
    fields: Vec<(String, Box<RawValue>)>,
}

impl UnknownFact {
    /// Bytes of the fields' values.
    pub fn bytes(&self) -> u64 {
        self.fields.iter().map(|(name, value)| (name.len() + value.get().len()) as u64).sum()
    }
}

impl PartialEq for UnknownFact {
    fn eq(&self, other: &UnknownFact) -> bool {
        let fields = |fact: &UnknownFact| -> Vec<(String, String)> {
            fact.fields.iter().map(|(name, value)| (name.clone(), value.get().to_owned())).collect()
        };
        self.kind == other.kind && fields(self) == fields(other)
    }
}

impl Serialize for UnknownFact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.fields.len() + 1))?;
        map.serialize_entry("kind", &self.kind)?;
        for (name, value) in &self.fields {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[derive(Serialize)]
struct Flat<'a, F: Serialize> {
    seq: u64,
    t: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<&'a str>,
    #[serde(flatten)]
    fact: &'a F,
}

impl Serialize for Line {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Line { seq, t, id, parent, fact } = self;
        let (seq, t, id, parent) = (*seq, t.as_str(), id.as_deref(), parent.as_deref());
        match fact {
            Fact::Unknown(fields) => Flat { seq, t, id, parent, fact: fields }.serialize(serializer),
            fact => Flat { seq, t, id, parent, fact }.serialize(serializer),
        }
    }
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Envelope {
    Seq,
    T,
    Id,
    Parent,
    Kind,
}

impl<'de> Deserialize<'de> for Line {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Line, D::Error> {
        deserializer.deserialize_map(LineVisitor)
    }
}

struct LineVisitor;

impl<'de> Visitor<'de> for LineVisitor {
    type Value = Line;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a line of a session's log")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Line, A::Error> {
        let (mut seq, mut t, mut id, mut parent) = (None, None, None, None);
        while let Some(field) = map.next_key::<Envelope>()? {
            match field {
                Envelope::Seq => seq = Some(map.next_value()?),
                Envelope::T => t = Some(map.next_value()?),
                Envelope::Id => id = map.next_value()?,
                Envelope::Parent => parent = map.next_value()?,
                Envelope::Kind => {
                    let seq = seq.ok_or_else(|| A::Error::missing_field("seq"))?;
                    let t = t.ok_or_else(|| A::Error::missing_field("t"))?;
                    let kind: String = map.next_value()?;
                    return Ok(Line { seq, t, id, parent, fact: fact(&kind, map)? });
                }
            }
        }
        Err(A::Error::missing_field("kind"))
    }
}

fn fact<'de, A: MapAccess<'de>>(kind: &str, rest: A) -> Result<Fact, A::Error> {
    if kind == "message" {
        // The bulk of a log: read without the detour through the tag.
        return Message::deserialize(MapAccessDeserializer::new(rest)).map(Fact::Message);
    }
    if Fact::KINDS.contains(&kind) {
        return Fact::deserialize(MapAccessDeserializer::new(Tagged { kind: Some(kind), rest }));
    }
    let (mut rest, mut fields) = (rest, Vec::new());
    while let Some(field) = rest.next_entry()? {
        fields.push(field);
    }
    Ok(Fact::Unknown(UnknownFact { kind: kind.to_owned(), fields }))
}

/// The rest of a line with its kind put in front again, as the tagged enum wants it.
struct Tagged<'a, A> {
    kind: Option<&'a str>,
    rest: A,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Tagged<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        if self.kind.is_some() {
            let tag: StrDeserializer<'_, A::Error> = "kind".into_deserializer();
            return seed.deserialize(tag).map(Some);
        }
        self.rest.next_key_seed(seed)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        match self.kind.take() {
            Some(kind) => {
                let kind: StrDeserializer<'_, A::Error> = kind.into_deserializer();
                seed.deserialize(kind)
            }
            None => self.rest.next_value_seed(seed),
        }
    }
}
