//! Reads `goal.yaml` and everything that may be laid over it, strictly: all problems at once, and every value with
//! who set it.
//!
//! flag > `SPETTRO_<KEY_PATH>` > goal file > `<project>/.spettro/config.yaml` (a few keys) >
//! `<SPETTRO_HOME>/config.yaml` > default. Invariant: nothing here starts a process or opens a connection.

mod build;
mod keys;
mod layers;
mod node;
mod parts;
mod scalar;
mod schema;
mod shape;
mod show;
mod source;
mod stored;
mod suggest;
#[cfg(test)]
mod tests;
mod trust;
mod value;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use sha2::{Digest, Sha256};

use self::build::{Builder, Context};
use self::layers::{Entry, Given, Layer, Merged, steps};
use self::node::{Node, Step};
use self::parts::{is_pipe, read_pipe, read_text};
use self::shape::Reader;
use self::show::Row;
use self::source::{Secrets, Source};
use self::value::Value;
use super::Config;
use crate::world::{Env, user_home};

pub use keys::paths as key_paths;
pub use layers::{Overrides, Setting};
pub use schema::schema;
pub use source::{Origin, Problem};

/// Most bytes of a goal file or a configuration file.
const MOST_FILE_BYTES: usize = 256 * 1024;

/// Where the goal comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GoalSource {
    /// A goal file, as it was named; relative to the current directory.
    File(PathBuf),
    /// A goal file's text from standard input; its paths are relative to the current directory.
    Stdin(String),
    /// A one-off without a file: the goal's text.
    Prompt(String),
    /// The effective configuration that a session stores (`Config::yaml`), and the goal file it came from. Neither
    /// the environment's settings nor other files are laid over it, and nothing is interpolated; what was masked
    /// when it was stored is read again from where it came from.
    Stored { yaml: String, goal_file: Option<PathBuf> },
    /// The same for a replay: what was masked stays so, and no goal file is asked.
    Recorded { yaml: String },
}

/// A configuration, and who set what.
#[derive(Debug, Clone, PartialEq)]
pub struct Effective {
    pub config: Config,
    /// Key path, value on one line (secrets masked), who set it; in the key table's order.
    pub origins: Vec<(String, String, Origin)>,
    /// [`Config::yaml`] with each value's origin as a comment.
    pub annotated: String,
    /// Keys that the goal file sets although it is a part of what is worked on. Nothing may be started before somebody
    /// vouches for it.
    pub untrusted: Vec<Problem>,
    /// Where the values of [`JUDGED_ELSEWHERE`] stand, each as a problem that says nothing yet.
    places: Vec<Problem>,
}

/// Keys whose values are read here and judged by others: the catalogue, the sandbox.
const JUDGED_ELSEWHERE: [&str; 6] =
    ["model", "judge.model", "summarizer.model", "workspace", "sandbox.write", "sandbox.read"];

impl Effective {
    /// What somebody else says of the value of `key`, with where that stands: `model`, `judge.model`,
    /// `summarizer.model`, `workspace`, `sandbox.write` or `sandbox.read`.
    pub fn problem(&self, key: &str, message: String, hint: Option<String>) -> Problem {
        let index = JUDGED_ELSEWHERE.iter().position(|known| *known == key);
        match index.and_then(|index| self.places.get(index)) {
            Some(place) => Problem { message, hint, ..place.clone() },
            None => Problem { file: String::new(), line_column: None, key: key.to_owned(), message, hint },
        }
    }
}

/// Reads a goal and all that is laid over it. `home` is spettro's own folder (`SPETTRO_HOME`), `cwd` absolute.
///
/// # Errors
/// Every problem that was found, in the order: goal file, user's configuration, environment, command line, project,
/// then the rules that span several of them.
pub fn load(
    source: &GoalSource,
    overrides: &Overrides,
    env: &dyn Env,
    home: Option<&Path>,
    cwd: &Path,
) -> Result<Effective, Vec<Problem>> {
    load_with(source, overrides, env, home, cwd, &|| crate::model::usable(env))
}

/// [`load`], told where the names of usable models come from.
fn load_with(
    source: &GoalSource,
    overrides: &Overrides,
    env: &dyn Env,
    home: Option<&Path>,
    cwd: &Path,
    usable: &dyn Fn() -> Vec<String>,
) -> Result<Effective, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut complete = true;

    // 1. Texts and trees.
    let goal = open_goal(source, cwd, &mut problems, &mut complete);
    let stored = matches!(source, GoalSource::Stored { .. } | GoalSource::Recorded { .. });
    let home_of = if stored { None } else { home };
    let seeds = home_of.map(|home| seed_settings(home, &mut problems)).unwrap_or_default();
    let user = home_of.and_then(|home| open(&home.join("config.yaml"), Origin::User, &mut problems));
    let settings = if stored { Vec::new() } else { layers::from_environment(env, cwd, &mut problems) };
    let flags = layers::from_flags(overrides, cwd, &mut problems);

    // 2. Which names are secret depends on all of them, and must be known before anything is interpolated.
    let trees = goal.tree.iter().chain(user.iter().map(|(_, tree)| tree));
    let secrets = Secrets::new(trees.chain(settings.iter().chain(&flags).map(|given| &given.node)), env);
    let given = given_keys(&goal, user.as_ref(), settings.iter().chain(&flags));

    // 3. Values.
    let mut goal_layer = read_goal(&goal, &secrets, env, &mut problems, &mut complete);
    let user_layer = user.map(|(source, tree)| {
        let values = Reader::new(&source, &secrets, env, &mut problems).document(&tree, None);
        let mut layer = Layer { source, values };
        if let Some(index) = layer.values.iter().position(|(path, _)| path == "goal") {
            problems.push(layer.source.problem(&steps("goal"), "a goal stands in a goal file"));
            layer.values.remove(index);
        }
        layer
    });
    let mut read = |given: Given| layers::read(given, &secrets, env, &mut problems);
    let seed_layers: Vec<Layer> = seeds.into_iter().map(&mut read).collect();
    let setting_layers: Vec<Layer> = settings.into_iter().map(&mut read).collect();
    let flag_layers: Vec<Layer> = flags.into_iter().map(&mut read).collect();
    if matches!(source, GoalSource::Stored { .. }) {
        stored::unmask(&mut goal_layer, &goal.file, env, home, cwd, &mut problems);
    }

    // 4. The workspace, which decides whose project configuration is read.
    let by_rank = user_layer.iter().chain([&goal_layer]).chain(&setting_layers).chain(&flag_layers);
    let workspace = workspace(by_rank, &goal.source, &mut problems);
    let project_layer = match &workspace {
        Some(folder) if !stored && !overrides.untrusted => open_project(folder, &secrets, env, &mut problems),
        _ => None,
    };

    // 5. One value for each key.
    let mut merged = Merged::new();
    let ranked = seed_layers.into_iter().chain(user_layer).chain(project_layer).chain([goal_layer]);
    for layer in ranked.chain(setting_layers).chain(flag_layers) {
        merged.put(layer, &mut problems);
    }
    let context = Context {
        primary: Rc::clone(&goal.source),
        goal_file: goal.file.clone(),
        workspace,
        default_name: default_name(source),
        given,
        complete,
        checks: &overrides.checks,
        usable,
    };
    let asked = |entry: &Entry| matches!(entry.source.origin, Origin::Flag(_) | Origin::Env(_));
    let standing = context.workspace.as_deref().map(|workspace| trust::Standing {
        file: context.goal_file.as_deref().filter(|_| !stored),
        workspace,
        workspace_is_asked: merged.set("workspace").is_some_and(asked),
        cwd,
        home: user_home(env),
    });
    if let Some(folder) = standing.as_ref().filter(|_| overrides.untrusted).and_then(trust::Standing::inside) {
        let message = format!("is inside `{}`, and `--untrusted` takes only a goal from elsewhere", folder.display());
        problems.push(goal.source.whole("", message));
    }
    let untrusted = standing.as_ref().map(|standing| trust::untrusted(&merged, standing)).unwrap_or_default();
    let places = JUDGED_ELSEWHERE.map(|key| match merged.set(key) {
        Some(entry) if entry.source.root.is_empty() => entry.source.problem(&steps(key), ""),
        Some(entry) => entry.source.whole(key, ""),
        None => goal.source.whole(key, ""),
    });
    let built = Builder { merged: &merged, context: &context, problems: &mut problems }.build();
    match built {
        Some((mut config, rows)) if problems.is_empty() => {
            config.yaml = show::yaml(&as_stored(&rows), false);
            config.digest = format!("{:x}", Sha256::digest(&config.yaml));
            let origins = rows.iter().map(|row| (row.path(), show::line(&row.value), row.origin.clone())).collect();
            Ok(Effective { config, origins, annotated: show::yaml(&rows, true), untrusted, places: places.to_vec() })
        }
        _ => Err(in_order(problems)),
    }
}

/// What a resume reads. A sandbox that nobody wrote is left out: written down it would be one that somebody wrote,
/// which is kept or ends the run.
fn as_stored(rows: &[Row]) -> Vec<Row> {
    let unwritten = |row: &Row| row.group == Some("sandbox") && matches!(row.origin, Origin::Default);
    rows.iter().filter(|row| !unwritten(row)).cloned().collect()
}

/// File by file, and within a file as it is read.
fn in_order(mut problems: Vec<Problem>) -> Vec<Problem> {
    let mut files: Vec<String> = Vec::new();
    for problem in &problems {
        if !files.contains(&problem.file) {
            files.push(problem.file.clone());
        }
    }
    problems.sort_by_key(|problem| (files.iter().position(|file| *file == problem.file), problem.line_column));
    problems
}

/// The goal file, opened.
struct Opened {
    source: Rc<Source>,
    /// `None` when it could not be read, and for a prompt.
    tree: Option<Node>,
    /// The goal of `-p`.
    prompt: Option<String>,
    /// Absolute.
    file: Option<PathBuf>,
}

fn open_goal(source: &GoalSource, cwd: &Path, problems: &mut Vec<Problem>, complete: &mut bool) -> Opened {
    let (origin, file, base, text) = match source {
        GoalSource::Prompt(text) => {
            let source = Rc::new(Source::setting(Origin::Flag("--prompt".to_owned()), cwd.to_owned()));
            return Opened { source, tree: None, prompt: Some(text.clone()), file: None };
        }
        GoalSource::File(path) => {
            let label = path.display().to_string();
            let file = cwd.join(path);
            // The label already names it, as the user did.
            let unnamed = |message: String| message.replacen(&format!("`{}` ", file.display()), "", 1);
            if is_pipe(&file) {
                // As from stdin: it can be read once, and stands in no folder of a project.
                (Origin::GoalFile(label), None, cwd.to_owned(), read_pipe(&file, MOST_FILE_BYTES).map_err(unnamed))
            } else {
                let base = file.parent().unwrap_or(cwd).to_owned();
                let text = read_text(&file, MOST_FILE_BYTES).map_err(unnamed);
                (Origin::GoalFile(label), Some(file), base, text)
            }
        }
        GoalSource::Stdin(text) => {
            let text = text.strip_prefix('\u{feff}').unwrap_or(text).to_owned();
            let text = match text.len() {
                0..=MOST_FILE_BYTES => Ok(text),
                bytes => Err(format!("has {bytes} bytes; at most {MOST_FILE_BYTES}")),
            };
            (Origin::GoalFile("stdin".to_owned()), None, cwd.to_owned(), text)
        }
        GoalSource::Stored { yaml, goal_file } => {
            (Origin::Session, goal_file.clone(), cwd.to_owned(), Ok(yaml.clone()))
        }
        GoalSource::Recorded { yaml } => (Origin::Session, None, cwd.to_owned(), Ok(yaml.clone())),
    };
    let label = origin.to_string();
    let interpolate = !matches!(origin, Origin::Session);
    let plain = |text| Rc::new(Source { origin, file: label, root: String::new(), text, base, interpolate });
    let text: Rc<str> = match text {
        Ok(text) => text.into(),
        Err(message) => {
            let source = plain(None);
            problems.push(source.whole("", message));
            *complete = false;
            return Opened { source, tree: None, prompt: None, file };
        }
    };
    let source = plain(Some(Rc::clone(&text)));
    let tree = parse(&source, &text, problems);
    *complete = tree.as_ref().is_some_and(|tree| matches!(tree, Node::Map(_)));
    let file = file.map(|file| canonical_parent(&file));
    Opened { source, tree, prompt: None, file }
}

/// The file with its folder canonical, the last name as it is: a goal file may be a link, and then it is the link
/// that must not be changed.
fn canonical_parent(file: &Path) -> PathBuf {
    match (file.parent().and_then(|folder| folder.canonicalize().ok()), file.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => file.to_owned(),
    }
}

fn parse(source: &Source, text: &str, problems: &mut Vec<Problem>) -> Option<Node> {
    match node::parse(text) {
        Ok(tree) => Some(tree),
        Err(error) => {
            let mut problem = source.whole("", format!("is not valid YAML: {}", error.message));
            problem.line_column = error.at;
            problems.push(problem);
            None
        }
    }
}

fn read_goal(
    goal: &Opened,
    secrets: &Secrets,
    env: &dyn Env,
    problems: &mut Vec<Problem>,
    complete: &mut bool,
) -> Layer {
    let source = Rc::clone(&goal.source);
    if let Some(text) = &goal.prompt {
        return Layer { source, values: vec![("goal".to_owned(), Value::Text(text.clone()))] };
    }
    let mut values = Vec::new();
    if let Some(tree) = &goal.tree {
        let version = match tree {
            Node::Map(entries) => entries.iter().find(|(name, _)| name == "version").map(|(_, node)| node),
            _ => None,
        };
        if let Some(Node::Number(number)) = version
            && number != "1"
        {
            // A file of another version follows other rules: only that is said.
            *complete = false;
            let message = format!("found `{}`; this build reads 1", node::cut(number));
            problems.push(source.problem(&[Step::Key("version".to_owned())], message));
            return Layer { source, values };
        }
        if version.is_none() && matches!(tree, Node::Map(_)) {
            let mut problem = source.whole("version", "missing; this build reads 1");
            problem.hint = Some("write `version: 1`".to_owned());
            problems.push(problem);
        }
        values = Reader::new(&source, secrets, env, problems).document(tree, None);
    }
    Layer { source, values }
}

/// A configuration file; `None` when there is none.
fn open(path: &Path, origin: fn(String) -> Origin, problems: &mut Vec<Problem>) -> Option<(Rc<Source>, Node)> {
    if !path.exists() {
        return None;
    }
    let label = path.display().to_string();
    let base = path.parent().unwrap_or(Path::new("/")).to_owned();
    let origin = origin(label.clone());
    let interpolate = matches!(origin, Origin::User(_));
    let mut source = Source { origin, file: label, root: String::new(), text: None, base, interpolate };
    match read_text(path, MOST_FILE_BYTES) {
        Ok(text) => {
            source.text = Some(text.as_str().into());
            // A file of comments sets nothing.
            let tree = parse(&source, &text, problems).filter(|tree| *tree != Node::Null)?;
            Some((Rc::new(source), tree))
        }
        Err(message) => {
            problems.push(source.whole("", message));
            None
        }
    }
}

/// The settings of the user's `config.json`: three, under names of their own. `config.yaml` wins over them.
fn seed_settings(home: &Path, problems: &mut Vec<Problem>) -> Vec<Given> {
    let mut given = Vec::new();
    let Some((source, Node::Map(entries))) = open(&home.join("config.json"), Origin::User, problems) else {
        return given;
    };
    for (name, node) in entries {
        let leaf = suggest::seed_key(&name).and_then(|path| keys::leaves().into_iter().find(|(leaf, _)| leaf == path));
        let Some((path, key)) = leaf else {
            problems.push(source.problem(&[Step::Key(name)], "unknown key"));
            continue;
        };
        let (file, base) = (source.file.clone(), source.base.clone());
        let source = Source { origin: source.origin.clone(), file, root: name, text: None, base, interpolate: false };
        given.push(Given { source, path, key, node });
    }
    given
}

fn open_project(folder: &Path, secrets: &Secrets, env: &dyn Env, problems: &mut Vec<Problem>) -> Option<Layer> {
    let (source, tree) = open(&folder.join(".spettro/config.yaml"), Origin::Project, problems)?;
    let values = Reader::new(&source, secrets, env, problems).document(&tree, Some(keys::PROJECT_KEYS));
    Some(Layer { source, values })
}

/// Top-level keys that stand in a file or a setting, rightly or wrongly read.
fn given_keys<'a>(
    goal: &Opened,
    user: Option<&(Rc<Source>, Node)>,
    settings: impl Iterator<Item = &'a Given>,
) -> BTreeSet<String> {
    let mut given = BTreeSet::new();
    for tree in goal.tree.iter().chain(user.map(|(_, tree)| tree)) {
        if let Node::Map(entries) = tree {
            given.extend(entries.iter().map(|(name, _)| name.clone()));
        }
    }
    given.extend(settings.map(|setting| setting.path.split('.').next().unwrap_or_default().to_owned()));
    given
}

/// The folder that the highest of the layers names, canonical; without any, the goal file's own.
fn workspace<'a>(
    layers: impl Iterator<Item = &'a Layer>,
    goal: &Rc<Source>,
    problems: &mut Vec<Problem>,
) -> Option<PathBuf> {
    let named = layers.filter_map(|layer| {
        let (_, value) = layer.values.iter().find(|(path, _)| path == "workspace")?;
        Some(Entry { value: value.clone(), source: Rc::clone(&layer.source) })
    });
    let entry = named.last();
    let (source, name) = match &entry {
        Some(entry) => (&entry.source, entry.value.text().unwrap_or(".")),
        None => (goal, "."),
    };
    let path = source.base.join(name);
    let message = match path.canonicalize() {
        Ok(folder) if folder.is_dir() => return Some(folder),
        Ok(_) => format!("`{}` is no folder", path.display()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => format!("`{}` does not exist", path.display()),
        Err(error) => format!("`{}` cannot be entered: {error}", path.display()),
    };
    let at = steps("workspace");
    problems.push(match entry {
        Some(_) if source.root.is_empty() => source.problem(&at, message),
        _ => source.whole("workspace", message),
    });
    None
}

/// The name of a goal that has none.
fn default_name(source: &GoalSource) -> String {
    let stem = match source {
        GoalSource::Prompt(_) => return "prompt".to_owned(),
        GoalSource::Stdin(_) => return "stdin".to_owned(),
        GoalSource::File(path) => path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default(),
        GoalSource::Stored { .. } | GoalSource::Recorded { .. } => String::new(),
    };
    let slug: String =
        stem.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' }).take(64).collect();
    let slug = slug.trim_matches(['.', '_', '-']);
    if slug.is_empty() { "goal".to_owned() } else { slug.to_owned() }
}
