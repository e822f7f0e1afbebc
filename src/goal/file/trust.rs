//! What a goal file that belongs to the repository may not set by itself.
//!
//! Who can change the repository can change such a file: where requests and keys go, what calls are taken to cost,
//! which secrets commands see and how much of a sandbox they are in is for the operator alone to say. Nor does the file
//! choose by its own words whether it belongs to the repository, or undo what the user's configuration keeps it from.

use std::path::{Path, PathBuf};

use super::layers::{Entry, Merged, steps};
use super::node::Step;
use super::source::{Origin, Problem};
use super::value::Value;
use super::{keys, parts, show};
use crate::model::{is_listed, is_loopback};
use crate::process::sandbox::{Files, Network};
use crate::workspace::repository_top;

/// The leaf paths of models.
const MODELS: [&str; 3] = ["model", "judge.model", "summarizer.model"];

/// Keys that give an endpoint a key.
const KEYED: [&str; 3] = ["api_key_env", "api_key_file", "api_key_command"];

/// Keys of an endpoint that need somebody to vouch for them, and what they decide.
const REFUSED: [(&str, &str); 6] = [
    ("api_key_env", "decides which key is sent"),
    ("api_key_file", "decides which key is sent"),
    ("api_key_command", "is run outside of the sandbox"),
    ("headers", "decides what is sent"),
    ("env_http_headers", "decides what is sent"),
    ("ca_file", "decides who is believed to be the provider"),
];

/// The same, unless the endpoint is a keyless one on this machine.
const REFUSED_ELSEWHERE: [(&str, &str); 3] = [
    ("query_params", "decides what is sent"),
    ("extra_body", "decides what is sent"),
    ("like", "decides what calls are taken to cost"),
];

/// What a model's map sends to the server of the provider that it names.
const SENT: [&str; 4] = ["headers", "env_http_headers", "query_params", "extra_body"];

/// Lists to which such a file adds, and from which it takes nothing that the user's configuration has there.
pub(super) const UNITED: [&str; 2] = ["redact", "protect"];

/// Where a goal file lies, as far as that decides what it may set.
pub(super) struct Standing<'a> {
    /// Absolute; `None` for a goal that is in no file.
    pub file: Option<&'a Path>,
    pub workspace: &'a Path,
    /// A flag or a variable named the workspace: neither the file, nor a setting for every goal.
    pub workspace_is_asked: bool,
    pub cwd: &'a Path,
    /// The user's home directory.
    pub home: Option<PathBuf>,
}

impl Standing<'_> {
    /// What the goal file belongs to, when it belongs to what is worked on: the repository that holds it, else its
    /// folder. By its name or by what the name links to.
    ///
    /// A file of a repository belongs to it whatever workspace it names. One of no repository belongs to its folder when
    /// that is, or holds, the workspace or the current folder (but a folder that holds the home directory too is no
    /// project); and a file in the workspace, or in the repository of either, always does.
    pub(super) fn inside(&self) -> Option<PathBuf> {
        let file = self.file?;
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let content = real(file);
        let home = self.home.as_deref().map(real);
        let worked_in = [real(self.workspace), real(self.cwd)];
        let around = worked_in.iter().filter_map(|folder| repository_top(folder)).chain([real(self.workspace)]);
        let around: Vec<PathBuf> = around.collect();
        [content.as_path(), file].into_iter().find_map(|path| {
            let folder = real(path.parent()?);
            let repository = repository_top(&folder);
            let own = repository.is_some() && !self.workspace_is_asked;
            let above = repository.is_none() && home.as_ref().is_some_and(|home| home.starts_with(&folder));
            let boundary = repository.unwrap_or(folder);
            let holds = worked_in.iter().any(|place| *place == boundary || !above && place.starts_with(&boundary));
            let lies_in = around.iter().any(|place| path.starts_with(place));
            (own || holds || lies_in).then_some(boundary)
        })
    }
}

/// The keys that need somebody to vouch for the file, one problem each.
pub(super) fn untrusted(merged: &Merged, standing: &Standing<'_>) -> Vec<Problem> {
    let Some(folder) = standing.inside() else { return Vec::new() };
    let mut found = Found { merged, problems: Vec::new(), folder };
    for path in MODELS {
        match merged.set(path) {
            Some(entry) if of_goal(entry) => found.endpoint(entry, &steps(path)),
            Some(entry) => found.sent_elsewhere(path, entry),
            None => {}
        }
    }
    for (name, entry) in merged.named("providers").into_iter().filter(|(_, entry)| of_goal(entry)) {
        let at = named("providers", name);
        if is_listed(name) || merged.replaces("providers", name) {
            found.add(entry, &at, "takes the place of another provider");
        }
        found.endpoint(entry, &at);
    }
    for (name, entry) in merged.named("prices").into_iter().filter(|(_, entry)| of_goal(entry)) {
        if !found.prices_nothing_dear(name) {
            found.add(entry, &named("prices", name), "decides what calls are taken to cost");
        }
    }
    if let Some(entry) = merged.set("goal").filter(|entry| of_goal(entry))
        && let Some(name) = entry.value.get("file").and_then(Value::text)
    {
        let path = entry.source.base.join(name);
        if path.canonicalize().is_ok_and(|path| !path.starts_with(&found.folder)) {
            found.add(entry, &[steps("goal"), steps("file")].concat(), "names a file outside of it");
        }
    }
    let workspace = standing.workspace.canonicalize().unwrap_or_else(|_| standing.workspace.to_owned());
    if let Some(entry) = merged.set("workspace").filter(|entry| of_goal(entry))
        && !workspace.starts_with(&found.folder)
    {
        found.add(entry, &steps("workspace"), "lets commands write outside of it");
    }
    let lists = ["env.pass", "sandbox.write", "sandbox.read"];
    let nonempty = |value: &Value| !matches!(value, Value::List(list) if list.is_empty());
    for path in lists {
        if let Some(entry) = merged.set(path).filter(|entry| of_goal(entry)).filter(|entry| nonempty(&entry.value)) {
            found.add(entry, &steps(path), "gives commands more than they have by themselves");
        }
    }
    if let Some(entry) = merged.set("sandbox.files").filter(|entry| of_goal(entry))
        && entry.value.text() == Some("off")
    {
        found.add(entry, &steps("sandbox.files"), "is weaker than the default");
    }
    if let Some(entry) = merged.set("tools.web_private").filter(|entry| of_goal(entry))
        && entry.value == Value::Bool(true)
    {
        found.add(entry, &steps("tools.web_private"), "opens servers of this machine and of its network");
    }
    found.undone();
    found.problems
}

/// Whether a value of this key holds commands or the run less than `other` does.
fn is_weaker(path: &str, value: &Value, other: &Value) -> bool {
    let lacks = |value: &Value, other: &Value| match (value, other) {
        (Value::List(value), Value::List(other)) => other.iter().any(|item| !value.contains(item)),
        _ => false,
    };
    match path {
        "sandbox.files" => {
            let rank = |value: &Value| match value.text().and_then(Files::from_name).unwrap_or_default() {
                Files::ReadOnly => 0,
                Files::WorkspaceWrite => 1,
                Files::Off => 2,
            };
            rank(value) > rank(other)
        }
        "sandbox.network" => match (parts::network(value), parts::network(other)) {
            (_, Network::All) | (Network::None, _) => false,
            (Network::Ports(ports), Network::Ports(others)) => ports.iter().any(|port| !others.contains(port)),
            (Network::Ports(ports), Network::None) => !ports.is_empty(),
            (Network::All, _) => true,
        },
        "env.clean" => (value, other) == (&Value::Bool(false), &Value::Bool(true)),
        "workspace_mode" => other.text() == Some("copy") && value != other,
        "tools.allow" => lacks(other, value),
        "tools.deny" => lacks(value, other),
        "rate_limit.max_wait" | "spool_max" => bound(value) > bound(other),
        path => path.starts_with("limits.") && bound(value) > bound(other),
    }
}

/// How much a limit allows.
fn bound(value: &Value) -> Option<u128> {
    match value {
        Value::Whole(number) | Value::Size(number) => Some(u128::from(*number)),
        Value::Time(time) => Some(time.as_millis()),
        Value::Money(money) => Some(u128::from(money.0)),
        Value::Unlimited => Some(u128::MAX),
        _ => None,
    }
}

fn of_goal(entry: &Entry) -> bool {
    matches!(entry.source.origin, Origin::GoalFile(_))
}

fn named(map: &str, name: &str) -> Vec<Step> {
    vec![Step::Key(map.to_owned()), Step::Key(name.to_owned())]
}

/// The text of a model's entry that names it, and the provider beside it.
fn id(model: &Value) -> Option<&str> {
    model.text().or_else(|| model.get("id")?.text())
}

fn provider(model: &Value) -> Option<&str> {
    let beside = model.get("provider").and_then(Value::text);
    beside.or_else(|| Some(id(model)?.split_once('/')?.0))
}

fn is_keyed(endpoint: &Value) -> bool {
    KEYED.iter().any(|key| endpoint.get(key).is_some())
}

/// Whether a map has a key that is not an empty map itself.
fn has(endpoint: &Value, key: &str) -> bool {
    endpoint.get(key).is_some_and(|value| *value != Value::Map(Vec::new()))
}

fn base_url(endpoint: &Value) -> Option<&str> {
    endpoint.get("base_url").and_then(Value::text)
}

struct Found<'a> {
    merged: &'a Merged,
    problems: Vec<Problem>,
    folder: PathBuf,
}

impl Found<'_> {
    /// Where requests go, with which key, and what is told of their price. A server on this machine that gets no key
    /// is no risk.
    fn endpoint(&mut self, entry: &Entry, at: &[Step]) {
        let below = |name: &str| [at, &[Step::Key(name.to_owned())]].concat();
        if let Some(url) = base_url(&entry.value)
            && (is_keyed(&entry.value) || !is_loopback(url))
        {
            self.add(entry, &below("base_url"), "decides where requests go");
        }
        let elsewhere: &[(&str, &str)] = if self.is_keyless_here(&entry.value) { &[] } else { &REFUSED_ELSEWHERE };
        for (key, why) in REFUSED.iter().chain(elsewhere) {
            if has(&entry.value, key) {
                self.add(entry, &below(key), why);
            }
        }
    }

    /// Values that hold commands or the run less than those of the user's configuration do.
    fn undone(&mut self) {
        for (path, _) in keys::leaves() {
            let Some(users) = self.merged.of_user(&path) else { continue };
            let Some(entry) = self.merged.set(&path).filter(|entry| of_goal(entry)) else { continue };
            // Without a sandbox of files: told as that.
            let off = path == "sandbox.files" && entry.value.text() == Some(Files::Off.name());
            if !off && is_weaker(&path, &entry.value, &users.value) {
                let why = format!("is weaker than the `{}` of {}", show::line(&users.value), users.source.origin);
                self.add(entry, &steps(&path), &why);
            }
        }
    }

    /// A model of somebody else's, with a key or headers, whose provider is the goal file's: what that model sends
    /// would go where the file says.
    fn sent_elsewhere(&mut self, path: &str, model: &Entry) {
        let carries = is_keyed(&model.value) || SENT.iter().any(|key| has(&model.value, key));
        if !carries || base_url(&model.value).is_some() {
            return;
        }
        let Some(name) = provider(&model.value) else { return };
        if let Some(entry) = self.provider(name).filter(|entry| of_goal(entry)).cloned() {
            let at = [named("providers", name), steps("base_url")].concat();
            let why = format!("decides where what `{path}` sends goes ({})", model.source.origin);
            self.add(&entry, &at, &why);
        }
    }

    /// The entry of `providers` of that name, whoever wrote it.
    fn provider(&self, name: &str) -> Option<&Entry> {
        self.merged.named("providers").into_iter().find(|(other, _)| *other == name).map(|(_, entry)| entry)
    }

    /// Whether calls of a model, or of a provider's models, stay on this machine, carry no key and cost nothing.
    fn is_keyless_here(&self, endpoint: &Value) -> bool {
        if endpoint.get("cassette").is_some() {
            return true;
        }
        let keyless = !is_keyed(endpoint);
        match base_url(endpoint) {
            Some(url) => keyless && is_loopback(url),
            None => {
                let named = provider(endpoint).and_then(|name| self.provider(name));
                let there = named.and_then(|entry| Some((base_url(&entry.value)?, &entry.value)));
                keyless && there.is_some_and(|(url, provider)| is_loopback(url) && !is_keyed(provider))
            }
        }
    }

    /// Whether a price is that of keyless models on this machine alone.
    fn prices_nothing_dear(&self, name: &str) -> bool {
        let lanes = MODELS.iter().filter_map(|path| self.merged.set(path)).map(|entry| &entry.value);
        let mut priced = lanes.filter(|model| names(model).iter().any(|other| other == name)).peekable();
        if priced.peek().is_some() {
            return priced.all(|model| self.is_keyless_here(model));
        }
        let provider = name.split_once('/').and_then(|(provider, _)| self.provider(provider));
        provider.is_some_and(|entry| self.is_keyless_here(&entry.value))
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

/// What a model may be called where its price is looked up.
fn names(model: &Value) -> Vec<String> {
    let Some(id) = id(model) else { return Vec::new() };
    let mut names = vec![id.to_owned(), format!("own/{id}")];
    names.extend(provider(model).map(|provider| format!("{provider}/{id}")));
    let other = |name: &String| name.strip_prefix("google/").map(|rest| format!("gemini/{rest}"));
    let others: Vec<String> = names.iter().filter_map(other).collect();
    names.extend(others);
    names
}
