//! A stored configuration has its secrets masked; a resumed run reads them again from where they came from.

use std::path::{Path, PathBuf};

use super::layers::Layer;
use super::node::Node;
use super::shape::Reader;
use super::show::{has_mask, masked_at};
use super::source::{Origin, Problem, Secrets};
use super::value::Value;
use super::{GoalSource, layers};
use crate::world::Env;

/// Puts the values back that are masked in a stored layer, from the goal file, the user's configuration and the
/// environment as they are today, wherever today's value masks to the same. Others are problems.
pub(super) fn unmask(
    stored: &mut Layer,
    goal_file: &Option<PathBuf>,
    env: &dyn Env,
    home: Option<&Path>,
    cwd: &Path,
    problems: &mut Vec<Problem>,
) {
    if !stored.values.iter().any(|(_, value)| has_mask(value)) {
        return;
    }
    let redact = stored.values.iter().find(|(path, _)| path == "redact");
    let redact: Vec<String> = match redact {
        Some((_, Value::List(list))) => list.iter().filter_map(Value::text).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    let today = today(goal_file, env, home, cwd);
    for (path, value) in &mut stored.values {
        if !has_mask(value) {
            continue;
        }
        let name = path.rsplit('.').next().unwrap_or(path).to_owned();
        let found = today
            .iter()
            .rev()
            .filter(|(other, _)| other == path)
            .find_map(|(_, fresh)| restore(value, fresh, &name, &redact));
        match found {
            Some(fresh) => *value = fresh,
            None => {
                let mut problem = stored
                    .source
                    .whole(path, "holds a secret that was not stored, and no longer stands where it came from");
                problem.hint = Some("give the goal file again with `--goal`".to_owned());
                problems.push(problem);
            }
        }
    }
}

/// The stored value with its masks filled from a fresh one, if the two agree in everything else that is masked.
fn restore(stored: &Value, fresh: &Value, name: &str, redact: &[String]) -> Option<Value> {
    match (stored, fresh) {
        (stored, fresh) if masked_at(name, fresh, redact) == *stored => Some(fresh.clone()),
        (stored, _) if !has_mask(stored) => Some(stored.clone()),
        (Value::List(list), Value::List(others)) => {
            let each = list.iter().map(|item| match has_mask(item) {
                true => others.iter().find_map(|other| restore(item, other, name, redact)),
                false => Some(item.clone()),
            });
            each.collect::<Option<Vec<_>>>().map(Value::List)
        }
        (Value::Map(map), other) => {
            let each = map.iter().map(|(key, value)| match has_mask(value) {
                true => restore(value, other.get(key)?, key, redact).map(|value| (key.clone(), value)),
                false => Some((key.clone(), value.clone())),
            });
            each.collect::<Option<Vec<_>>>().map(Value::Map)
        }
        _ => None,
    }
}

/// What the sources say today, the higher ones later; what is wrong with them is not asked here.
fn today(goal_file: &Option<PathBuf>, env: &dyn Env, home: Option<&Path>, cwd: &Path) -> Vec<(String, Value)> {
    let mut ignored = Vec::new();
    let mut complete = true;
    let mut trees = Vec::new();
    trees.extend(home.and_then(|home| super::open(&home.join("config.yaml"), Origin::User, &mut ignored)));
    if let Some(path) = goal_file {
        let opened = super::open_goal(&GoalSource::File(path.clone()), cwd, &mut ignored, &mut complete);
        trees.extend(opened.tree.map(|tree| (opened.source, tree)));
    }
    let settings = layers::from_environment(env, cwd, &mut ignored);
    let all: Vec<&Node> = trees.iter().map(|(_, tree)| tree).chain(settings.iter().map(|given| &given.node)).collect();
    let secrets = Secrets::new(all, env);
    let mut values = Vec::new();
    for (source, tree) in &trees {
        values.extend(Reader::new(source, &secrets, env, &mut ignored).document(tree, None));
    }
    for given in settings {
        values.extend(layers::read(given, &secrets, env, &mut ignored).values);
    }
    values
}
