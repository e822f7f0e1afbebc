//! The one pass over a document: every value is read as the key table says, and every problem is collected.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::keys::{self, Key, Kind, Names};
use super::node::{Node, Step, cut};
use super::source::{Problem, Secrets, Source, is_variable};
use super::value::Value;
use super::{scalar, suggest};
use crate::world::Env;

pub(super) const NOT_YET: &str = "not in this version yet";

/// Reads one source.
pub(super) struct Reader<'a> {
    pub source: &'a Source,
    pub secrets: &'a Secrets,
    pub env: &'a dyn Env,
    pub problems: &'a mut Vec<Problem>,
    at: Vec<Step>,
}

/// Problems that are given a line and column, and a suggestion; each costs a walk through the file or the table.
const MOST_LOCATED: usize = 50;

impl<'a> Reader<'a> {
    pub(super) fn new(
        source: &'a Source,
        secrets: &'a Secrets,
        env: &'a dyn Env,
        problems: &'a mut Vec<Problem>,
    ) -> Reader<'a> {
        Reader { source, secrets, env, problems, at: Vec::new() }
    }

    /// A problem here. Always `None`, to be returned.
    fn fail(&mut self, message: impl Into<String>) -> Option<Value> {
        let problem = if self.problems.len() < MOST_LOCATED {
            self.source.problem(&self.at, message)
        } else {
            let mut problem = self.source.whole("", message);
            problem.key = super::node::path(&self.at);
            problem
        };
        self.problems.push(problem);
        None
    }

    fn fail_with(&mut self, message: impl Into<String>, hint: impl Into<String>) -> Option<Value> {
        self.fail(message);
        if let Some(problem) = self.problems.last_mut() {
            problem.hint = Some(hint.into());
        }
        None
    }

    fn expected(&mut self, what: &str, node: &Node) -> Option<Value> {
        self.fail(format!("expected {what}, found {}", node.found()))
    }

    /// A whole goal file or configuration file: its values by leaf path. `only`: the keys that it may hold.
    pub(super) fn document(&mut self, root: &Node, only: Option<&[&str]>) -> Vec<(String, Value)> {
        let mut values = Vec::new();
        let entries = match root {
            Node::Map(entries) => entries,
            Node::Null => {
                self.problems.push(self.source.whole("", "is empty"));
                return values;
            }
            other => {
                self.expected("a map of keys", other);
                return values;
            }
        };
        for (key, node) in self.known(keys::GOAL, "", entries) {
            self.at.push(Step::Key(key.name.to_owned()));
            if only.is_some_and(|only| !only.contains(&key.name)) {
                self.fail("a project's own configuration cannot set this").or_else(|| {
                    self.hint("put it into the goal file, or into the `config.yaml` of your own `.spettro`")
                });
            } else {
                self.leaves(key, node, &mut values);
            }
            self.at.pop();
        }
        values
    }

    fn hint(&mut self, hint: &str) -> Option<Value> {
        if let Some(problem) = self.problems.last_mut() {
            problem.hint = Some(hint.to_owned());
        }
        None
    }

    /// The value of a top-level key, split where its parts are layered one by one.
    fn leaves(&mut self, key: &'static Key, node: &Node, values: &mut Vec<(String, Value)>) {
        let (keys, marks_on) = match &key.kind {
            Kind::Map(keys) => (*keys, false),
            Kind::OffOr(keys) if matches!(node, Node::Map(_)) => (*keys, true),
            kind => {
                if let Some(value) = self.read(kind, node, key.name) {
                    values.push((key.name.to_owned(), value));
                }
                return;
            }
        };
        let Node::Map(entries) = node else {
            self.expected("a map", node);
            return;
        };
        if marks_on {
            // A map turns on what a lower layer may have turned off.
            values.push((key.name.to_owned(), Value::Map(Vec::new())));
        }
        for (below, node) in self.known(keys, key.name, entries) {
            self.at.push(Step::Key(below.name.to_owned()));
            let path = format!("{}.{}", key.name, below.name);
            if let Some(value) = self.read(&below.kind, node, &path) {
                values.push((path, value));
            }
            self.at.pop();
        }
    }

    /// The entries of a closed map that are known; unknown and repeated ones are problems.
    fn known<'n>(
        &mut self,
        keys: &'static [Key],
        level: &str,
        entries: &'n [(String, Node)],
    ) -> Vec<(&'static Key, &'n Node)> {
        let mut known: Vec<(&'static Key, &Node)> = Vec::new();
        let mut seen = BTreeSet::new();
        for (name, node) in entries {
            let again = !seen.insert(name);
            self.at.push(if again { Step::Again(name.clone()) } else { Step::Key(name.clone()) });
            match keys.iter().find(|key| key.name == name) {
                _ if again => drop(self.fail("given twice")),
                Some(key) => known.push((key, node)),
                None => {
                    let few = self.problems.len() < MOST_LOCATED;
                    let message = match few.then(|| suggest::key(name, level)).flatten() {
                        Some(meant) => format!("unknown key; did you mean `{meant}`?"),
                        None => "unknown key".to_owned(),
                    };
                    self.fail(message);
                }
            }
            self.at.pop();
        }
        known
    }

    /// The whole of a closed map that is one value.
    fn record(&mut self, keys: &'static [Key], level: &str, node: &Node, what: &str) -> Option<Value> {
        let Node::Map(entries) = node else {
            return self.expected(what, node);
        };
        let before = self.problems.len();
        let mut record = Vec::new();
        for (key, node) in self.known(keys, level, entries) {
            self.at.push(Step::Key(key.name.to_owned()));
            if let Some(value) = self.read(&key.kind, node, &format!("{level}.{}", key.name)) {
                record.push((key.name.to_owned(), value));
            }
            self.at.pop();
        }
        for key in keys.iter().filter(|key| key.required) {
            if !entries.iter().any(|(name, _)| name == key.name) {
                self.at.push(Step::Key(key.name.to_owned()));
                self.fail(format!("missing: {}", key.about));
                self.at.pop();
            }
        }
        let keys_of = ["api_key_env", "api_key_file", "api_key_command"];
        let given: Vec<&str> = record.iter().map(|(name, _)| name.as_str()).filter(|n| keys_of.contains(n)).collect();
        if given.len() > 1 {
            let both = given.join("` and `");
            self.fail(format!("`{both}`: the key comes from one of them"));
        }
        (self.problems.len() == before).then_some(Value::Map(record))
    }

    /// One value of a kind; `None` when a problem has been noted. `level` is its path as the key table writes it.
    pub(super) fn read(&mut self, kind: &'static Kind, node: &Node, level: &str) -> Option<Value> {
        let node = self.expand(node)?;
        let node = node.as_ref();
        match kind {
            Kind::Later(below) => {
                let mut deeper = false;
                if let Node::Map(entries) = node {
                    deeper = !below.is_empty() && !entries.is_empty();
                    for (key, _) in self.known(below, level, if below.is_empty() { &[] } else { entries }) {
                        self.at.push(Step::Key(key.name.to_owned()));
                        self.fail(NOT_YET);
                        self.at.pop();
                    }
                }
                if deeper { None } else { self.fail(NOT_YET) }
            }
            Kind::List { of, most } => self.list(of, *most, node, level),
            Kind::Map(keys) | Kind::Record(keys) => self.record(keys, level, node, "a map"),
            Kind::OffOr(keys) => match node {
                Node::Text(text) | Node::Loose(text) if text == "off" => Some(Value::Off),
                Node::Bool(false) => self.fail_with("expected `off` or a map, found `false`", "write `off`"),
                node => self.record(keys, level, node, "`off` or a map"),
            },
            Kind::Named { names, of } => self.named(*names, of, node, level),
            Kind::Goal => match node {
                Node::Text(text) | Node::Loose(text) => Some(Value::Text(text.clone())),
                node => self.goal_file(node),
            },
            Kind::Model => self.model(node, level),
            Kind::Check => match node {
                Node::Text(_) | Node::Loose(_) => {
                    self.read(&Kind::Run, node, level).map(|run| Value::Map(vec![("run".to_owned(), run)]))
                }
                Node::List(_) => self.fail_with(
                    "expected a command or a map, found a list",
                    "an argument list stands under `run`: `- run: [cargo, test]`",
                ),
                Node::Bool(_) | Node::Number(_) => {
                    self.expected("a command or a map", node);
                    self.hint("put it into quotes")
                }
                node => self.record(keys::CHECK, level, node, "a command or a map"),
            },
            Kind::Run => self.run(node),
            Kind::Network => match node {
                Node::List(_) => self.list(&keys::PORT, 100, node, level),
                node => self.read(&keys::NETWORK_WORDS, node, level),
            },
            Kind::Json => self.json(node).map(Value::Json),
            kind => match scalar::read(kind, node) {
                Ok(value) => Some(value),
                Err((message, Some(hint))) => self.fail_with(message, hint),
                Err((message, None)) => self.fail(message),
            },
        }
    }

    /// Replaces `${env:NAME}` in a text.
    fn expand<'n>(&mut self, node: &'n Node) -> Option<Cow<'n, Node>> {
        match node {
            Node::Text(text) if self.source.interpolate && text.contains("${env:") => {
                match self.secrets.interpolate(text, self.env) {
                    Ok(text) => Some(Cow::Owned(Node::Loose(text))),
                    Err(messages) => {
                        for message in messages {
                            self.fail(message);
                        }
                        None
                    }
                }
            }
            node => Some(Cow::Borrowed(node)),
        }
    }

    fn list(&mut self, of: &'static Kind, most: usize, node: &Node, level: &str) -> Option<Value> {
        let Node::List(items) = node else {
            return self.expected("a list", node);
        };
        if items.len() > most {
            return self.fail(format!("{} entries; at most {most}", items.len()));
        }
        let level = format!("{level}[]");
        let mut list = Vec::new();
        for (index, item) in items.iter().enumerate() {
            self.at.push(Step::Item(index));
            list.extend(self.read(of, item, &level));
            self.at.pop();
        }
        (list.len() == items.len()).then_some(Value::List(list))
    }

    fn named(&mut self, names: Names, of: &'static Kind, node: &Node, level: &str) -> Option<Value> {
        let Node::Map(entries) = node else {
            return self.expected("a map of names", node);
        };
        let level = format!("{level}.*");
        let mut map = Vec::new();
        let mut seen = BTreeSet::new();
        for (name, node) in entries {
            let again = !seen.insert(name);
            self.at.push(if again { Step::Again(name.clone()) } else { Step::Key(name.clone()) });
            if again {
                self.fail("given twice");
            } else if let Err(message) = check_name(names, name) {
                self.fail(message);
            } else if let Some(value) = self.read(of, node, &level) {
                map.push((name.clone(), value));
            }
            self.at.pop();
        }
        (map.len() == entries.len()).then_some(Value::Map(map))
    }

    fn goal_file(&mut self, node: &Node) -> Option<Value> {
        let Node::Map(entries) = node else {
            return self.expected("the goal's text or `{file: PATH}`", node);
        };
        let [(name, path)] = entries.as_slice() else {
            return self.fail("expected the goal's text or `{file: PATH}`");
        };
        self.at.push(Step::Key(name.clone()));
        let value = if name == "file" {
            self.read(&Kind::Path, path, "goal.file")
        } else {
            self.fail("unknown key; did you mean `file`?")
        };
        self.at.pop();
        value.map(|path| Value::Map(vec![("file".to_owned(), path)]))
    }

    fn model(&mut self, node: &Node, level: &str) -> Option<Value> {
        if !matches!(node, Node::Map(_)) {
            return match scalar::read(&Kind::ModelId, node) {
                Ok(value) => Some(value),
                Err((message, hint)) => {
                    self.fail(message);
                    hint.and_then(|hint| self.hint(&hint))
                }
            };
        }
        let model = self.record(keys::MODEL, level, node, "a model")?;
        if model.get("cassette").is_some() {
            let alone = matches!(&model, Value::Map(map) if map.len() == 1);
            return if alone { Some(model) } else { self.fail("`cassette` stands alone: its replies are the model") };
        }
        let Some(id) = model.get("id").and_then(Value::text) else {
            self.at.push(Step::Key("id".to_owned()));
            self.fail("missing: `provider/model`, or the model's name alone when `provider` is given");
            self.at.pop();
            return None;
        };
        // With an address of its own a model needs no provider.
        let placed = model.get("provider").is_some() || model.get("base_url").is_some();
        if !placed && scalar::model_id(id).is_err() {
            let message = format!("`{}` is not `provider/model`", cut(id));
            self.at.push(Step::Key("id".to_owned()));
            self.fail_with(message, "write the provider before a slash, or give it as `provider`");
            self.at.pop();
            return None;
        }
        Some(model)
    }

    fn run(&mut self, node: &Node) -> Option<Value> {
        match node {
            Node::Text(text) | Node::Loose(text) => match scalar::command(text) {
                Ok(text) => Some(Value::Text(text)),
                Err(message) => self.fail(message),
            },
            Node::List(items) if items.is_empty() => self.fail("an empty argument list runs nothing"),
            Node::List(items) => {
                let mut argv = Vec::new();
                for (index, item) in items.iter().enumerate() {
                    self.at.push(Step::Item(index));
                    let word = self.read(&Kind::Plain, item, "");
                    let empty = index == 0 && word.as_ref().and_then(Value::text).is_some_and(str::is_empty);
                    if empty {
                        self.fail("the program's name is empty");
                    } else {
                        argv.extend(word);
                    }
                    self.at.pop();
                }
                (argv.len() == items.len()).then_some(Value::List(argv))
            }
            Node::Bool(_) | Node::Number(_) => {
                self.expected("a command as text, or an argument list", node);
                self.hint("put it into quotes")
            }
            node => self.expected("a command as text, or an argument list", node),
        }
    }

    fn json(&mut self, node: &Node) -> Option<serde_json::Value> {
        use serde_json::Value as Json;
        let node = self.expand(node)?;
        match node.as_ref() {
            Node::Null => Some(Json::Null),
            Node::Bool(value) => Some(Json::Bool(*value)),
            Node::Text(text) | Node::Loose(text) => Some(Json::String(text.clone())),
            Node::Number(text) => match serde_json::from_str(text) {
                Ok(number @ Json::Number(_)) => Some(number),
                _ => {
                    self.fail(format!("`{}` is no number that JSON knows", cut(text)));
                    None
                }
            },
            Node::List(items) => {
                let mut list = Vec::new();
                for (index, item) in items.iter().enumerate() {
                    self.at.push(Step::Item(index));
                    list.extend(self.json(item));
                    self.at.pop();
                }
                (list.len() == items.len()).then_some(Json::Array(list))
            }
            Node::Map(entries) => {
                let mut map = serde_json::Map::new();
                for (name, node) in entries {
                    let again = map.contains_key(name);
                    self.at.push(if again { Step::Again(name.clone()) } else { Step::Key(name.clone()) });
                    if again {
                        self.fail("given twice");
                    } else if let Some(value) = self.json(node) {
                        map.insert(name.clone(), value);
                    }
                    self.at.pop();
                }
                (map.len() == entries.len()).then_some(Json::Object(map))
            }
            node @ Node::Tagged(_) => {
                self.expected("a value", node);
                None
            }
        }
    }
}

/// Whether a free name may stand there.
fn check_name(names: Names, name: &str) -> Result<(), String> {
    let shown = cut(name);
    let all = |allowed: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || allowed.as_bytes().contains(&b));
    match names {
        Names::Provider if name.is_empty() || !all("-_") => {
            Err(format!("`{shown}` is no provider name; use letters, digits, `-` and `_`"))
        }
        Names::ModelId => scalar::model_id(name).map(drop).map_err(|_| format!("`{shown}` is not `provider/model`")),
        Names::Variable if !is_variable(name) => Err(format!("`{shown}` is no name of a variable")),
        Names::Header if name.is_empty() || !all("!#$%&'*+-.^_`|~") => Err(format!("`{shown}` is no name of a header")),
        Names::Parameter if name.is_empty() || name.chars().any(char::is_control) => {
            Err("a parameter needs a name".into())
        }
        Names::Field if keys::OWN_FIELDS.contains(&name) => Err("spettro writes this field itself".into()),
        _ => Ok(()),
    }
}

/// Reads the text of a variable or a flag as the kind of its key wants it.
pub(super) fn loose(kind: &Kind, text: &str) -> Result<Node, super::node::Syntax> {
    let structured = text.trim_start().starts_with(['[', '{']);
    match kind {
        Kind::List { .. } | Kind::Map(_) | Kind::Record(_) | Kind::Named { .. } => super::node::parse(text),
        Kind::Model | Kind::Network | Kind::OffOr(_) if structured => super::node::parse(text),
        _ => Ok(Node::Loose(text.to_owned())),
    }
}

/// A default of the key table.
pub(super) fn default(key: &'static Key) -> Option<Value> {
    struct Nothing;
    impl Env for Nothing {
        fn var(&self, _: &str) -> Option<String> {
            None
        }
        fn vars(&self) -> Vec<(String, String)> {
            Vec::new()
        }
    }
    let node = loose(&key.kind, key.default?).ok()?;
    let (source, secrets, mut problems) = (Source::defaults(), Secrets::new([], &Nothing), Vec::new());
    Reader::new(&source, &secrets, &Nothing, &mut problems).read(&key.kind, &node, key.name)
}

/// For messages about money, tokens and times that may be lifted.
pub(super) fn unlimited_word(node: &Node) -> bool {
    matches!(node, Node::Text(text) | Node::Loose(text) if text == "unlimited")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_of_the_table_is_one() {
        let mut count = 0;
        keys::walk(keys::GOAL, "", &mut |path, key| {
            if key.default.is_some() {
                count += 1;
                assert!(default(key).is_some(), "{path}");
            }
        });
        assert!(count > 30);
        let limit = |name: &str| {
            let leaves = keys::leaves();
            let (_, key) = leaves.iter().find(|(path, _)| path == name).unwrap();
            default(key).unwrap()
        };
        assert_eq!(limit("limits.cost"), Value::Money(crate::event::Micros(5_000_000)));
        assert_eq!(limit("limits.tokens"), Value::Unlimited);
        assert_eq!(limit("limits.idle"), Value::Time(std::time::Duration::from_secs(900)));
        assert_eq!(crate::goal::file::value::time_text(std::time::Duration::from_secs(900)), "15m");
    }
}
