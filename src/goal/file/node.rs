//! YAML text → a tree that keeps what a strict reader needs and serde's own value type loses: the digits of a number
//! as they were written (money must stay exact), keys that are given twice, and where in the text something stands.

use std::cell::Cell;
use std::fmt;

use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, IgnoredAny, MapAccess, SeqAccess, VariantAccess, Visitor,
};

/// Most values in one file, aliases expanded: what bounds memory when a file repeats its anchors.
const MOST_VALUES: usize = 20_000;

/// Most brackets and braces open at once. The parser goes through all of them at each further one.
const MOST_OPEN: usize = 1_000;

/// One value as it was written.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    Null,
    Bool(bool),
    /// The number's text, unread.
    Number(String),
    Text(String),
    /// Text from the environment or the command line, or with a `${env:…}` in it: it has no YAML type, so the key
    /// decides how it is read.
    Loose(String),
    List(Vec<Node>),
    /// In the order written, repeated keys included.
    Map(Vec<(String, Node)>),
    /// `!name value`; nothing here uses tags.
    Tagged(String),
}

impl Node {
    /// «found …» of a message.
    pub(super) fn found(&self) -> String {
        match self {
            Node::Null => "nothing".into(),
            Node::Bool(value) => format!("`{value}`"),
            Node::Number(text) => format!("the number `{}`", cut(text)),
            Node::Text(_) => "text".into(),
            Node::Loose(text) => format!("`{}`", cut(text)),
            Node::List(_) => "a list".into(),
            Node::Map(_) => "a map".into(),
            Node::Tagged(tag) => format!("the tag `!{}`", cut(tag)),
        }
    }
}

/// At most 60 characters of a text, for messages.
pub(super) fn cut(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(61).collect();
    match line.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Line and column, both counted from 1.
pub(super) type Position = (usize, usize);

/// Why a text is not YAML that spettro reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Syntax {
    pub message: String,
    pub at: Option<Position>,
}

impl From<serde_yaml::Error> for Syntax {
    fn from(error: serde_yaml::Error) -> Syntax {
        let at = error.location().map(|location| (location.line(), location.column()));
        let mut message = error.to_string();
        if let Some((line, column)) = at {
            message = message.replacen(&format!(" at line {line} column {column}"), "", 1);
        }
        Syntax { message, at }
    }
}

/// Reads one YAML document. An empty one is [`Node::Null`].
pub(super) fn parse(text: &str) -> Result<Node, Syntax> {
    check_brackets(text)?;
    let count = Cell::new(0);
    let mut node = Build { count: &count }.deserialize(serde_yaml::Deserializer::from_str(text))?;
    // A second pass over the same events, led by the first one's result, asks for the text of each number.
    Fill(&mut node).deserialize(serde_yaml::Deserializer::from_str(text))?;
    Ok(node)
}

/// Counts brackets wherever they stand, in texts too: nobody has a thousand more open than closed ones there.
fn check_brackets(text: &str) -> Result<(), Syntax> {
    let mut open = 0usize;
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        if open > MOST_OPEN {
            let before = &text[..index];
            let line_start = before.rfind('\n').map_or(0, |end| end + 1);
            let at = (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1);
            let message = format!("more than {MOST_OPEN} brackets are open at once");
            return Err(Syntax { message, at: Some(at) });
        }
    }
    Ok(())
}

struct Build<'a> {
    count: &'a Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for Build<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        self.count.set(self.count.get() + 1);
        if self.count.get() > MOST_VALUES {
            return Err(D::Error::custom(format!("more than {MOST_VALUES} values")));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Build<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
        Ok(Node::Number(String::new()))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
        Ok(Node::Number(String::new()))
    }

    fn visit_i128<E>(self, _: i128) -> Result<Node, E> {
        Ok(Node::Number(String::new()))
    }

    fn visit_u128<E>(self, _: u128) -> Result<Node, E> {
        Ok(Node::Number(String::new()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(Node::Number(String::new()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Build { count: self.count })? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        while let Some(name) = entries.next_key::<String>()? {
            map.push((name, entries.next_value_seed(Build { count: self.count })?));
        }
        Ok(Node::Map(map))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<Node, A::Error> {
        let (tag, variant) = data.variant::<String>()?;
        variant.newtype_variant::<IgnoredAny>()?;
        Ok(Node::Tagged(tag))
    }
}

/// Puts the source text of each number into a tree that was built from the same document.
struct Fill<'a>(&'a mut Node);

impl<'de> DeserializeSeed<'de> for Fill<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.0 {
            Node::Number(text) => *text = String::deserialize(deserializer)?,
            Node::List(_) | Node::Map(_) => deserializer.deserialize_any(self)?,
            _ => drop(IgnoredAny::deserialize(deserializer)?),
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for Fill<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what was there a moment ago")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        if let Node::List(list) = self.0 {
            for item in list {
                items.next_element_seed(Fill(item))?;
            }
        }
        // The end has to be read, or the parser believes that something was left over.
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        if let Node::Map(map) = self.0 {
            for (_, value) in map {
                entries.next_key::<IgnoredAny>()?;
                entries.next_value_seed(Fill(value))?;
            }
        }
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

/// One step down a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// The first value of that name.
    Key(String),
    /// The second value of that name.
    Again(String),
    Item(usize),
}

/// `limits.cost`, `checks[0].run`, `prices."openai/gpt-4.1".input`.
pub(super) fn path(steps: &[Step]) -> String {
    let mut path = String::new();
    for step in steps {
        match step {
            Step::Key(name) | Step::Again(name) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(&segment(name));
            }
            Step::Item(index) => path.push_str(&format!("[{index}]")),
        }
    }
    path
}

/// A name inside a key path: quoted when it has a dot or anything else that would blur the path.
pub(super) fn segment(name: &str) -> String {
    let plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-/:@".contains(c));
    if plain { name.to_owned() } else { format!("\"{}\"", cut(name)) }
}

/// Where the end of `steps` stands: its key when it has one, else its value.
pub(super) fn locate(text: &str, steps: &[Step]) -> Option<Position> {
    let error = Find(steps).deserialize(serde_yaml::Deserializer::from_str(text)).err()?;
    error.location().map(|location| (location.line(), location.column()))
}

/// Walks down to a place and fails there: the parser adds line and column to errors, and to nothing else.
struct Find<'a>(&'a [Step]);

impl<'de> DeserializeSeed<'de> for Find<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Find<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("something else")
    }

    // Scalars: `Visitor`'s own methods fail, which is the aim.

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        if let Some((Step::Item(index), rest)) = self.0.split_first() {
            for _ in 0..*index {
                items.next_element::<IgnoredAny>()?;
            }
            items.next_element_seed(Find(rest))?;
        }
        Err(A::Error::custom("here"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let (name, mut skip, rest) = match self.0.split_first() {
            Some((Step::Key(name), rest)) => (name, 0, rest),
            Some((Step::Again(name), rest)) => (name, 1, rest),
            _ => return Err(A::Error::custom("here")),
        };
        while let Some(found) = entries.next_key_seed(FindKey { name, fail: rest.is_empty() && skip == 0 })? {
            if found && skip == 0 {
                entries.next_value_seed(Find(rest))?;
                break;
            }
            skip -= usize::from(found);
            entries.next_value::<IgnoredAny>()?;
        }
        Err(A::Error::custom("here"))
    }
}

/// Reads a key and says whether it is the one looked for, or fails at it.
struct FindKey<'a> {
    name: &'a str,
    fail: bool,
}

impl<'de> DeserializeSeed<'de> for FindKey<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for FindKey<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<bool, E> {
        let found = name == self.name;
        if found && self.fail { Err(E::custom("here")) } else { Ok(found) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Step {
        Step::Key(name.to_owned())
    }

    fn number(text: &str) -> Node {
        Node::Number(text.to_owned())
    }

    #[test]
    fn numbers_keep_their_digits_wherever_they_stand() {
        let node = parse("a: 5.00\nb: [0.10, {c: 1e3}, &x 007.50, *x]\nd: 123456789012345678901234567890\n").unwrap();
        let Node::Map(map) = node else { panic!("{node:?}") };
        assert_eq!(map[0], ("a".into(), number("5.00")));
        let list =
            vec![number("0.10"), Node::Map(vec![("c".into(), number("1e3"))]), number("007.50"), number("007.50")];
        assert_eq!(map[1], ("b".into(), Node::List(list)));
        assert_eq!(map[2], ("d".into(), number("123456789012345678901234567890")));
    }

    #[test]
    fn keys_given_twice_stay_visible() {
        let node = parse("a: 1\na: 2\n").unwrap();
        assert_eq!(node, Node::Map(vec![("a".into(), number("1")), ("a".into(), number("2"))]));
    }

    #[test]
    fn places_are_found() {
        let text = "version: 1\nchecks:\n  - cargo test\n  - name: x\n    when: never\nname: a\nname: b\n";
        assert_eq!(locate(text, &[key("version")]), Some((1, 1)));
        assert_eq!(locate(text, &[key("checks"), Step::Item(0)]), Some((3, 5)));
        assert_eq!(locate(text, &[key("checks"), Step::Item(1), key("when")]), Some((5, 5)));
        assert_eq!(locate(text, &[key("name")]), Some((6, 1)));
        assert_eq!(locate(text, &[Step::Again("name".into())]), Some((7, 1)));
    }

    #[test]
    fn a_file_that_repeats_its_anchors_ends_early() {
        let mut text = format!("a: &a [{}]\nb:\n", vec!["x"; 1_000].join(","));
        for _ in 0..1_000 {
            text.push_str("- *a\n");
        }
        let error = parse(&text).unwrap_err();
        assert!(error.message.contains("more than 20000 values"), "{error:?}");
    }

    #[test]
    fn tags_and_nothing_are_seen_as_such() {
        assert_eq!(parse("").unwrap(), Node::Null);
        assert_eq!(parse("!secret x").unwrap(), Node::Tagged("secret".into()));
        assert!(parse("a: 1\n---\nb: 2\n").is_err());
    }

    #[test]
    fn a_syntax_error_names_line_and_column() {
        let error = parse("a: 1\nb: [1, 2\nc: 3\n").unwrap_err();
        // Where the parser notices: at the colon.
        assert_eq!(error.at, Some((3, 2)), "{error:?}");
        assert!(!error.message.contains("at line 3"), "{error:?}");
    }
}
