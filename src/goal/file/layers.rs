//! The layers of a configuration, and the one value that each key has in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;

use super::keys::{self, Key, Kind};
use super::node::{Node, Step};
use super::shape::{NOT_YET, Reader, loose};
use super::source::{Origin, Problem, Secrets, Source};
use super::suggest;
use super::value::Value;
use crate::world::Env;

/// What the command line sets, in the order given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    pub settings: Vec<Setting>,
    /// `--check`: added to the goal's own checks.
    pub checks: Vec<String>,
    /// `--untrusted`: the project's own configuration is not read, and the goal comes from elsewhere.
    pub untrusted: bool,
}

/// One flag that sets one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// As shown: `--max-cost`, `--set limits.cost`.
    pub flag: String,
    /// The key path: `limits.cost`.
    pub key: String,
    pub value: String,
}

/// The values of one source, by leaf path.
pub(super) struct Layer {
    pub source: Rc<Source>,
    pub values: Vec<(String, Value)>,
}

/// A value and who set it.
#[derive(Clone)]
pub(super) struct Entry {
    pub value: Value,
    pub source: Rc<Source>,
}

/// All layers, the lower ones overwritten.
pub(super) struct Merged {
    entries: BTreeMap<String, Entry>,
    named: BTreeMap<(String, String), Entry>,
    /// Of `named`, those that stand where a lower layer had another.
    replacing: BTreeSet<(String, String)>,
    /// What the user's configuration has, whoever sets it besides.
    users: BTreeMap<String, Entry>,
    defaults: Rc<Source>,
}

impl Merged {
    pub(super) fn new() -> Merged {
        let (entries, named, replacing) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Merged { entries, named, replacing, users: BTreeMap::new(), defaults: Rc::new(Source::defaults()) }
    }

    /// Puts a layer on top.
    pub(super) fn put(&mut self, layer: Layer, problems: &mut Vec<Problem>) {
        let setting = matches!(layer.source.origin, Origin::Env(_) | Origin::Flag(_));
        for (path, value) in layer.values {
            let source = Rc::clone(&layer.source);
            if path == "providers" || path == "prices" {
                if let Value::Map(map) = value {
                    for (name, value) in map {
                        let entry = Entry { value, source: Rc::clone(&source) };
                        let key = (path.clone(), name);
                        if self.named.insert(key.clone(), entry).is_some() {
                            self.replacing.insert(key);
                        }
                    }
                }
                continue;
            }
            if setting
                && path.starts_with("judge.")
                && let Some(off) = self.entries.get("judge").filter(|entry| entry.value == Value::Off)
            {
                let message = format!("the judge is `off` ({}), so this has no effect", off.source.origin);
                problems.push(source.whole(&path, message));
                continue;
            }
            if path == "judge" && value == Value::Off {
                self.entries.retain(|path, _| !path.starts_with("judge."));
            }
            let entry = Entry { value, source };
            if matches!(entry.source.origin, Origin::User(_)) {
                self.users.insert(path.clone(), entry.clone());
            }
            self.entries.insert(path, entry);
        }
    }

    /// What was set, by whomever.
    pub(super) fn set(&self, path: &str) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// What the user's configuration has.
    pub(super) fn of_user(&self, path: &str) -> Option<&Entry> {
        self.users.get(path)
    }

    /// Adds what the user's configuration lists under these keys to what a goal file lists there.
    pub(super) fn unite(&mut self, paths: &[&str]) {
        for path in paths {
            let users = self.users.get(*path).map(|entry| &entry.value);
            let entry = self.entries.get_mut(*path).filter(|entry| matches!(entry.source.origin, Origin::GoalFile(_)));
            if let (Some(Value::List(users)), Some(Entry { value: Value::List(list), .. })) = (users, entry) {
                let missing: Vec<Value> = users.iter().filter(|item| !list.contains(item)).cloned().collect();
                list.extend(missing);
            }
        }
    }

    /// What was set, or the key table's default; `None` when there is neither.
    pub(super) fn get(&self, path: &str) -> Option<Entry> {
        if let Some(entry) = self.entries.get(path) {
            return Some(entry.clone());
        }
        let leaves = keys::leaves();
        let (_, key) = leaves.iter().find(|(leaf, _)| leaf == path)?;
        let value = super::shape::default(key)?;
        Some(Entry { value, source: Rc::clone(&self.defaults) })
    }

    /// Whether an entry of `providers` or `prices` stands where a lower layer had another.
    pub(super) fn replaces(&self, map: &str, name: &str) -> bool {
        self.replacing.iter().any(|(of, other)| of == map && other == name)
    }

    /// The entries of `providers` or `prices`, by name.
    pub(super) fn named(&self, map: &str) -> Vec<(&str, &Entry)> {
        let entries = self.named.iter().filter(|((of, _), _)| of == map);
        entries.map(|((_, name), entry)| (name.as_str(), entry)).collect()
    }
}

/// Variables of that prefix that are no settings.
const NO_SETTINGS: [&str; 4] = ["SPETTRO_HOME", "SPETTRO_LOG", "SPETTRO_RUN_ID", "SPETTRO_JOB_ID"];

/// `limits.cost` → `SPETTRO_LIMITS_COST`.
pub(super) fn variable(path: &str) -> String {
    format!("SPETTRO_{}", path.to_ascii_uppercase().replace('.', "_"))
}

/// A setting whose key has been found: still to be read.
pub(super) struct Given {
    pub source: Source,
    pub path: String,
    pub key: &'static Key,
    pub node: Node,
}

/// The settings of the environment, in the order of their names. An empty variable sets nothing: pipelines pass
/// inputs that were left out as empty ones.
pub(super) fn from_environment(env: &dyn Env, cwd: &Path, problems: &mut Vec<Problem>) -> Vec<Given> {
    let mut variables: Vec<(String, String)> = env.vars();
    variables.retain(|(name, value)| {
        name.starts_with("SPETTRO_") && !value.is_empty() && !NO_SETTINGS.contains(&name.as_str())
    });
    variables.sort();
    let mut known: Vec<String> = keys::paths();
    known.retain(|path| !path.contains(['[', '*']) && path != "version");
    let mut given = Vec::new();
    for (name, value) in variables {
        let source = Source::setting(Origin::Env(name.clone()), cwd.to_owned());
        match known.iter().find(|path| variable(path) == name) {
            Some(path) => given.extend(find(source, path, &value, problems)),
            None => {
                let word = name.trim_start_matches("SPETTRO_").to_ascii_lowercase();
                let words: Vec<String> = known.iter().map(|path| path.replace('.', "_")).collect();
                let nearest = suggest::closest(&word, words.iter().map(String::as_str)).map(variable);
                let meant = nearest.or_else(|| suggest::key(&word, "").map(|path| variable(&path)));
                let meant = meant.filter(|meant| known.iter().any(|path| variable(path) == *meant));
                let mut problem = source.whole(
                    "",
                    match meant {
                        Some(meant) => format!("unknown setting; did you mean `{meant}`?"),
                        None => "unknown setting".to_owned(),
                    },
                );
                problem.hint = Some("every variable that begins with `SPETTRO_` sets a key of the goal file".into());
                problems.push(problem);
            }
        }
    }
    given
}

/// The settings of the command line, in the order given.
pub(super) fn from_flags(overrides: &Overrides, cwd: &Path, problems: &mut Vec<Problem>) -> Vec<Given> {
    let mut given = Vec::new();
    for setting in &overrides.settings {
        let source = Source::setting(Origin::Flag(setting.flag.clone()), cwd.to_owned());
        given.extend(find(source, &setting.key, &setting.value, problems));
    }
    given
}

/// Finds the key of a setting.
fn find(source: Source, path: &str, value: &str, problems: &mut Vec<Problem>) -> Option<Given> {
    let message = match keys::leaves().into_iter().find(|(leaf, _)| leaf == path) {
        Some((path, key)) => match loose(&key.kind, value) {
            Ok(node) => return Some(Given { source, path, key, node }),
            Err(error) => format!("is no YAML: {}", error.message),
        },
        None => refusal(path),
    };
    problems.push(source.whole("", message));
    None
}

/// Why a path cannot be set alone.
fn refusal(path: &str) -> String {
    let top = path.split(['.', '[']).next().unwrap_or(path);
    let key = keys::GOAL.iter().find(|key| key.name == top);
    if path == "version" {
        return "only a file has a version".into();
    }
    match key.map(|key| &key.kind) {
        Some(Kind::Later(_)) => NOT_YET.into(),
        Some(Kind::Map(below)) if path == top => {
            let names: Vec<String> = below.iter().map(|key| format!("`{top}.{}`", key.name)).collect();
            format!("is a group of keys; set {}", names.join(", "))
        }
        Some(kind) if path != top && !matches!(kind, Kind::Map(_) | Kind::OffOr(_)) => {
            format!("cannot be set in part; set the whole of `{top}`")
        }
        _ => {
            let (level, name) = path.rsplit_once('.').unwrap_or(("", path));
            let leaves = keys::leaves();
            let nearest = suggest::closest(path, leaves.iter().map(|(leaf, _)| leaf.as_str())).map(str::to_owned);
            match nearest.or_else(|| suggest::key(name, level)) {
                Some(meant) => format!("unknown key; did you mean `{meant}`?"),
                None => "unknown key".into(),
            }
        }
    }
}

/// Reads a setting into a layer of its own.
pub(super) fn read(given: Given, secrets: &Secrets, env: &dyn Env, problems: &mut Vec<Problem>) -> Layer {
    let source = Rc::new(given.source);
    let value = Reader::new(&source, secrets, env, problems).read(&given.key.kind, &given.node, &given.path);
    let mut values = Vec::new();
    match (value, &given.key.kind) {
        // A whole map of `judge` is its keys one by one, as in a file.
        (Some(Value::Map(map)), Kind::OffOr(_)) => {
            values.push((given.path.clone(), Value::Map(Vec::new())));
            values.extend(map.into_iter().map(|(name, value)| (format!("{}.{name}", given.path), value)));
        }
        (Some(value), _) => values.push((given.path, value)),
        (None, _) => {}
    }
    Layer { source, values }
}

/// Steps to a leaf, for [`Source::problem`].
pub(super) fn steps(path: &str) -> Vec<Step> {
    path.split('.').map(|name| Step::Key(name.to_owned())).collect()
}
