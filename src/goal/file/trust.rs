//! What a goal file that belongs to the repository may not set by itself.
//!
//! Who can change the repository can change such a file: where requests and keys go, which secrets commands see and
//! how much of a sandbox they are in is for the operator alone to say.

use std::path::{Path, PathBuf};

use super::layers::{Entry, Merged, steps};
use super::node::Step;
use super::source::{Origin, Problem};
use super::value::Value;
use crate::model::is_loopback;
use crate::workspace::repository_top;

/// The leaf paths of models.
const MODELS: [&str; 3] = ["model", "judge.model", "summarizer.model"];

/// Where a goal file lies, as far as that decides what it may set.
pub(super) struct Standing<'a> {
    /// Absolute; `None` for a goal that is in no file.
    pub file: Option<&'a Path>,
    pub workspace: &'a Path,
    pub cwd: &'a Path,
}

impl Standing<'_> {
    /// The folder that makes the goal file a part of what is worked on: the workspace, the repository around it, or the
    /// one that the command is given in (whose goal file may name another workspace).
    pub(super) fn inside(&self) -> Option<PathBuf> {
        let file = self.file?;
        // A link from outside to a file inside holds what that file holds.
        let content = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        let folders = [Some(self.workspace.to_owned()), repository_top(self.workspace), repository_top(self.cwd)];
        let folders = folders.into_iter().flatten();
        folders.map(|folder| folder.canonicalize().unwrap_or(folder)).find(|folder| {
            let within = |path: &Path| path.starts_with(folder);
            within(file) || within(&content)
        })
    }
}

/// The keys that need somebody to vouch for the file, one problem each.
pub(super) fn untrusted(merged: &Merged, standing: &Standing<'_>) -> Vec<Problem> {
    let Some(folder) = standing.inside() else { return Vec::new() };
    let mut found = Found { problems: Vec::new(), folder };
    let of_goal = |entry: &&Entry| matches!(entry.source.origin, Origin::GoalFile(_));
    for path in MODELS {
        if let Some(entry) = merged.set(path).filter(of_goal) {
            found.endpoint(entry, &steps(path));
        }
    }
    for (name, entry) in merged.named("providers") {
        if of_goal(&entry) {
            found.endpoint(entry, &[Step::Key("providers".to_owned()), Step::Key(name.to_owned())]);
        }
    }
    if let Some(entry) = merged.set("goal").filter(of_goal)
        && let Some(name) = entry.value.get("file").and_then(Value::text)
    {
        let path = entry.source.base.join(name);
        if path.canonicalize().is_ok_and(|path| !path.starts_with(&found.folder)) {
            found.add(entry, &[steps("goal"), steps("file")].concat(), "names a file outside of it");
        }
    }
    let workspace = standing.workspace.canonicalize().unwrap_or_else(|_| standing.workspace.to_owned());
    if let Some(entry) = merged.set("workspace").filter(of_goal)
        && !workspace.starts_with(&found.folder)
    {
        found.add(entry, &steps("workspace"), "lets commands write outside of it");
    }
    let lists = ["env.pass", "sandbox.write", "sandbox.read"];
    let nonempty = |value: &Value| !matches!(value, Value::List(list) if list.is_empty());
    for path in lists {
        if let Some(entry) = merged.set(path).filter(of_goal).filter(|entry| nonempty(&entry.value)) {
            found.add(entry, &steps(path), "gives commands more than they have by themselves");
        }
    }
    if let Some(entry) = merged.set("sandbox.files").filter(of_goal)
        && entry.value.text() == Some("off")
    {
        found.add(entry, &steps("sandbox.files"), "is weaker than the default");
    }
    if let Some(entry) = merged.set("tools.web_private").filter(of_goal)
        && entry.value == Value::Bool(true)
    {
        found.add(entry, &steps("tools.web_private"), "opens servers of this machine and of its network");
    }
    found.problems
}

struct Found {
    problems: Vec<Problem>,
    folder: PathBuf,
}

impl Found {
    /// Where requests go, and with which key. A server on this machine that gets no key is no risk.
    fn endpoint(&mut self, entry: &Entry, at: &[Step]) {
        let below = |name: &str| [at, &[Step::Key(name.to_owned())]].concat();
        let keys =
            ["api_key_env", "api_key_file", "api_key_command"].map(|name| (name, entry.value.get(name).is_some()));
        let keyed = keys.iter().any(|(_, given)| *given);
        if let Some(url) = entry.value.get("base_url").and_then(Value::text)
            && (keyed || !is_loopback(url))
        {
            self.add(entry, &below("base_url"), "decides where requests go");
        }
        for (name, _) in keys.iter().filter(|(_, given)| *given) {
            let why =
                if *name == "api_key_command" { "is run outside of the sandbox" } else { "decides which key is sent" };
            self.add(entry, &below(name), why);
        }
        for name in ["headers", "env_http_headers"] {
            if entry.value.get(name).is_some_and(|headers| *headers != Value::Map(Vec::new())) {
                self.add(entry, &below(name), "decides what is sent");
            }
        }
        if entry.value.get("ca_file").is_some() {
            self.add(entry, &below("ca_file"), "decides who is believed to be the provider");
        }
    }

    fn add(&mut self, entry: &Entry, at: &[Step], why: &str) {
        let folder = self.folder.display();
        let message = format!("{why}, which a goal file inside `{folder}` may not by itself");
        let mut problem = entry.source.problem(at, message);
        problem.hint = Some(
            "put it into `~/.spettro/config.yaml` or a goal file elsewhere; or vouch for this one: `--trust-goal`, or \
             `--trusted-ref REF` when it is the same at a commit that you trust"
                .to_owned(),
        );
        self.problems.push(problem);
    }
}
