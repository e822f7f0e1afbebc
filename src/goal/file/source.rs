//! Where values come from, what is wrong with them, and which variables may be read into them.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;

use super::node::{self, Node, Step};
use crate::event::ResultProblem;
use crate::world::Env;

/// One thing that is wrong, with where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file as it was named, `environment`, or `command line`.
    pub file: String,
    /// Line and column, counted from 1.
    pub line_column: Option<(usize, usize)>,
    /// The key path, the variable or the flag; empty when it is about the whole.
    pub key: String,
    pub message: String,
    pub hint: Option<String>,
}

/// `goal.yaml:7:1: limits.cost: message`, and the hint on a line of its own.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line())?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {}", hint.replace('\n', "\n  ")),
            None => Ok(()),
        }
    }
}

impl Problem {
    /// Where and what, without the hint.
    pub fn line(&self) -> String {
        ResultProblem::from(self).line()
    }
}

impl From<&Problem> for ResultProblem {
    fn from(problem: &Problem) -> ResultProblem {
        let Problem { file, line_column, key, message, hint } = problem;
        ResultProblem {
            file: file.clone(),
            line: line_column.map(|(line, _)| line as u64),
            column: line_column.map(|(_, column)| column as u64),
            key: key.clone(),
            message: message.clone(),
            hint: hint.clone(),
        }
    }
}

/// Who set a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// As typed: `--max-cost`, `--set limits.cost`.
    Flag(String),
    /// The variable's name.
    Env(String),
    /// The goal file as it was named.
    GoalFile(String),
    /// The stored configuration of the session that is resumed.
    Session,
    /// `<project>/.spettro/config.yaml`.
    Project(String),
    /// `<SPETTRO_HOME>/config.yaml`.
    User(String),
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Flag(name) | Origin::Env(name) => f.write_str(name),
            Origin::GoalFile(name) | Origin::Project(name) | Origin::User(name) => f.write_str(name),
            Origin::Session => f.write_str("session"),
            Origin::Default => f.write_str("default"),
        }
    }
}

/// A file, a variable or a flag: what its values need to be blamed on it.
#[derive(Debug)]
pub(super) struct Source {
    pub origin: Origin,
    /// For [`Problem::file`].
    pub file: String,
    /// What stands for the root of key paths: empty for files, else the variable or the flag.
    pub root: String,
    /// The file's text, to find lines and columns in.
    pub text: Option<Rc<str>>,
    /// Relative paths start here.
    pub base: PathBuf,
    /// Whether `${env:NAME}` is replaced.
    pub interpolate: bool,
}

impl Source {
    /// A variable or a flag.
    pub(super) fn setting(origin: Origin, base: PathBuf) -> Source {
        let (file, root) = match &origin {
            Origin::Env(name) => ("environment", name.clone()),
            Origin::Flag(name) => ("command line", name.clone()),
            _ => ("settings", String::new()),
        };
        Source { file: file.to_owned(), root, origin, text: None, base, interpolate: false }
    }

    pub(super) fn defaults() -> Source {
        Source::setting(Origin::Default, PathBuf::new())
    }

    /// A problem at a place of this source.
    pub(super) fn problem(&self, at: &[Step], message: impl Into<String>) -> Problem {
        let mut key = node::path(at);
        if !self.root.is_empty() {
            let dot = if key.is_empty() || key.starts_with('[') { "" } else { "." };
            key = format!("{}{dot}{key}", self.root);
        }
        let line_column = self.text.as_deref().and_then(|text| node::locate(text, at));
        Problem { file: self.file.clone(), line_column, key, message: message.into(), hint: None }
    }

    /// A problem of the whole: a file that cannot be read, a key that is nowhere.
    pub(super) fn whole(&self, key: &str, message: impl Into<String>) -> Problem {
        let key = if self.root.is_empty() { key.to_owned() } else { self.root.clone() };
        Problem { file: self.file.clone(), line_column: None, key, message: message.into(), hint: None }
    }
}

/// The variables whose values are secrets, by name and by value.
pub(super) struct Secrets {
    names: BTreeSet<String>,
    values: BTreeSet<String>,
}

const PROVIDER_KEYS: [&str; 4] = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"];

/// Shorter values are too common to be compared with.
const SHORTEST_SECRET_BYTES: usize = 8;

/// Whether a name says that what it names is a secret.
pub(super) fn looks_secret(name: &str) -> bool {
    crate::process::looks_secret(name) || PROVIDER_KEYS.contains(&name)
}

impl Secrets {
    /// `documents`: all files, for the names that they give as `api_key_env` and under `redact`.
    pub(super) fn new<'a>(documents: impl IntoIterator<Item = &'a Node>, env: &dyn Env) -> Secrets {
        let mut names: BTreeSet<String> = PROVIDER_KEYS.iter().map(|name| (*name).to_owned()).collect();
        for document in documents {
            collect(document, false, &mut names);
        }
        let secret = |name: &str| names.contains(name) || looks_secret(name);
        let values = env.vars().into_iter().filter(|(name, _)| secret(name)).map(|(_, value)| value);
        let values = values.filter(|value| value.len() >= SHORTEST_SECRET_BYTES).collect();
        Secrets { names, values }
    }

    pub(super) fn is_name(&self, name: &str) -> bool {
        self.names.contains(name) || looks_secret(name)
    }

    /// Replaces each `${env:NAME}`. Everything else that looks like a variable is left to the shell it is for.
    pub(super) fn interpolate(&self, text: &str, env: &dyn Env) -> Result<String, Vec<String>> {
        let (mut out, mut problems, mut rest) = (String::new(), Vec::new(), text);
        while let Some(start) = rest.find("${env:") {
            out.push_str(&rest[..start]);
            let inside = &rest[start + "${env:".len()..];
            let Some(end) = inside.find('}') else {
                problems.push("`${env:` has no closing `}`".to_owned());
                break;
            };
            let name = &inside[..end];
            rest = &inside[end + 1..];
            if !is_variable(name) {
                problems.push(format!("`${{env:{}}}` names no variable", node::cut(name)));
            } else if self.is_name(name) {
                problems.push(format!("`${{env:{name}}}` is a secret, and secrets are never interpolated"));
            } else {
                match env.var(name) {
                    Some(value) if self.values.iter().any(|secret| value.contains(secret)) => {
                        problems.push(format!("`${{env:{name}}}` has the value of a secret, and is not interpolated"));
                    }
                    Some(value) => out.push_str(&value),
                    None => problems.push(format!("`${{env:{name}}}` is not set")),
                }
            }
        }
        out.push_str(rest);
        if problems.is_empty() { Ok(out) } else { Err(problems) }
    }
}

/// The texts under every `api_key_env` and `redact`, wherever they stand.
fn collect(node: &Node, named: bool, names: &mut BTreeSet<String>) {
    match node {
        Node::Text(name) if named => drop(names.insert(name.clone())),
        Node::List(list) => list.iter().for_each(|item| collect(item, named, names)),
        Node::Map(map) => {
            for (key, value) in map {
                collect(value, key == "api_key_env" || key == "redact", names);
            }
        }
        _ => {}
    }
}

/// Whether a text can be the name of an environment variable.
pub(super) fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}
