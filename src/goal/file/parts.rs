//! The pieces of a configuration that are made of one value each: models, commands, checks, texts.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::keys;
use super::layers::Entry;
use super::node::cut;
use super::value::Value;
use crate::goal::{Check, Shell, When};
use crate::model::ModelSpec;
use crate::model::wire::Wire;
use crate::process::sandbox::Network;
use crate::world::KeyAt;

/// A text file without its byte order mark, or what is wrong with it.
pub(super) fn read_text(path: &Path, most_bytes: usize) -> Result<String, String> {
    let shown = path.display();
    let meta = std::fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("`{shown}` does not exist"),
        _ => format!("`{shown}` cannot be read: {error}"),
    })?;
    if !meta.is_file() {
        return Err(format!("`{shown}` is no file"));
    }
    if meta.len() > most_bytes as u64 {
        return Err(format!("`{shown}` has {} bytes; at most {most_bytes}", meta.len()));
    }
    let bytes = std::fs::read(path).map_err(|error| format!("`{shown}` cannot be read: {error}"))?;
    decoded(path, bytes)
}

/// Whether it is one of `<(command)`, or a named pipe.
pub(super) fn is_pipe(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo())
}

/// The same as [`read_text`], of what is written into a pipe until that is closed.
pub(super) fn read_pipe(path: &Path, most_bytes: usize) -> Result<String, String> {
    let shown = path.display();
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(most_bytes as u64 + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("`{shown}` cannot be read: {error}"))?;
    if bytes.len() > most_bytes {
        return Err(format!("`{shown}` has more than {most_bytes} bytes"));
    }
    decoded(path, bytes)
}

fn decoded(path: &Path, bytes: Vec<u8>) -> Result<String, String> {
    let shown = path.display();
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)),
        Err(error) => {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = valid.iter().filter(|b| **b == b'\n').count() + 1;
            Err(format!("`{shown}` is not UTF-8 in line {line}"))
        }
    }
}

pub(super) fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::List(list) => list.iter().filter_map(Value::text).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

pub(super) fn pairs(value: &Value) -> Vec<(String, String)> {
    match value {
        Value::Map(map) => {
            map.iter().filter_map(|(name, value)| Some((name.clone(), value.text()?.to_owned()))).collect()
        }
        _ => Vec::new(),
    }
}

pub(super) fn field(map: &Value, name: &str) -> Option<String> {
    map.get(name)?.text().map(str::to_owned)
}

pub(super) fn field_map(map: &Value, name: &str) -> BTreeMap<String, String> {
    map.get(name).map(pairs).unwrap_or_default().into_iter().collect()
}

/// `(name, JSON text)`.
pub(super) fn field_json(map: &Value, name: &str) -> Vec<(String, String)> {
    match map.get(name) {
        Some(Value::Map(fields)) => fields
            .iter()
            .filter_map(|(name, value)| match value {
                Value::Json(json) => Some((name.clone(), json.to_string())),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    }
}

pub(super) fn model_spec(value: &Value, base: &Path) -> ModelSpec {
    if let Value::Text(id) = value {
        return ModelSpec { id: id.clone(), ..ModelSpec::default() };
    }
    let whole = |name: &str| match value.get(name) {
        Some(Value::Whole(number)) => Some(*number),
        _ => None,
    };
    let time = |name: &str| match value.get(name) {
        Some(Value::Time(time)) => Some(*time),
        _ => None,
    };
    ModelSpec {
        id: field(value, "id").unwrap_or_default(),
        provider: field(value, "provider"),
        wire: value.get("wire").and_then(Value::text).and_then(Wire::from_name),
        base_url: field(value, "base_url"),
        api_key_env: field(value, "api_key_env"),
        context_window: whole("context_window"),
        max_output_tokens: whole("max_output_tokens"),
        reasoning_effort: field(value, "reasoning_effort"),
        headers: field_map(value, "headers"),
        query_params: field_map(value, "query_params"),
        extra_body: field_json(value, "extra_body"),
        like: field(value, "like"),
        idle_timeout: time("idle_timeout"),
        first_event_timeout: time("first_event_timeout"),
        cassette: field(value, "cassette").map(|path| base.join(path)),
    }
}

/// The value as it is, but a cassette's path absolute.
pub(super) fn absolute_cassette(entry: &Entry) -> Value {
    match entry.value.get("cassette").and_then(Value::text) {
        Some(path) => {
            let path = entry.source.base.join(path).display().to_string();
            Value::Map(vec![("cassette".to_owned(), Value::Text(path))])
        }
        None => entry.value.clone(),
    }
}

/// The value as it is, but an endpoint's paths absolute.
pub(super) fn absolute_provider(entry: &Entry) -> Value {
    let Value::Map(fields) = &entry.value else { return entry.value.clone() };
    let absolute = fields.iter().map(|(name, value)| match (name.as_str(), value.text()) {
        ("api_key_file" | "ca_file", Some(path)) => {
            (name.clone(), Value::Text(entry.source.base.join(path).display().to_string()))
        }
        _ => (name.clone(), value.clone()),
    });
    Value::Map(absolute.collect())
}

/// Where an endpoint's key stands, when no variable holds it.
pub(super) fn key_at(entry: &Entry) -> Option<KeyAt> {
    if let Some(path) = field(&entry.value, "api_key_file") {
        return Some(KeyAt::File(entry.source.base.join(path)));
    }
    Some(KeyAt::Command(run(entry.value.get("api_key_command")?)?.argv))
}

/// Paths as they are meant where they were written. One that begins with `~/` stays: it is the home directory's,
/// whoever runs the goal.
pub(super) fn absolute_paths(entry: &Entry) -> Vec<PathBuf> {
    let absolute = |path: &String| {
        if path == "~" || path.starts_with("~/") { PathBuf::from(path) } else { entry.source.base.join(path) }
    };
    texts(&entry.value).iter().map(absolute).collect()
}

pub(super) fn path_list(paths: &[PathBuf]) -> Value {
    Value::List(paths.iter().map(|path| Value::Text(path.display().to_string())).collect())
}

pub(super) fn network(value: &Value) -> Network {
    match value {
        Value::List(ports) => Network::Ports(ports.iter().filter_map(port).collect()),
        value if value.text() == Some("none") => Network::None,
        _ => Network::All,
    }
}

fn port(value: &Value) -> Option<u16> {
    match value {
        Value::Whole(number) => u16::try_from(*number).ok(),
        _ => None,
    }
}

/// What to run, from a text or a list.
pub(super) fn run(value: &Value) -> Option<Shell> {
    match value {
        Value::Text(text) => {
            let argv = ["bash", "-euo", "pipefail", "-c", text];
            Some(Shell { argv: argv.map(str::to_owned).to_vec(), shown: text.clone() })
        }
        Value::List(_) => {
            let argv = texts(value);
            let shown: Vec<String> = argv.iter().map(|word| shell_word(word)).collect();
            Some(Shell { shown: shown.join(" "), argv })
        }
        _ => None,
    }
}

/// A word as a shell would need it, for people.
fn shell_word(word: &str) -> String {
    let plain = !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "_-./:=,@%+".contains(c));
    if plain { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

pub(super) fn check(value: &Value) -> Option<Check> {
    let fallback = |name: &str| {
        let key = keys::CHECK.iter().find(|key| key.name == name)?;
        super::shape::default(key)
    };
    let get = |name: &str| value.get(name).cloned().or_else(|| fallback(name));
    let run = run(value.get("run")?)?;
    let name = field(value, "name").unwrap_or_else(|| cut(run.shown.lines().next().unwrap_or_default()));
    Some(Check {
        name,
        run,
        cwd: get("cwd")?.text().map(PathBuf::from)?,
        timeout: match get("timeout")? {
            Value::Time(time) => time,
            _ => return None,
        },
        expect: match get("expect")? {
            Value::Whole(code) => i32::try_from(code).ok()?,
            _ => return None,
        },
        when: match get("when")?.text()? {
            "start" => When::Start,
            "before_judge" => When::BeforeJudge,
            _ => When::EachIteration,
        },
        required: get("required")? == Value::Bool(true),
        env: value.get("env").map(pairs).unwrap_or_default(),
    })
}

/// The check as the file would say it, with nothing left to a default.
pub(super) fn check_value(check: &Check) -> Value {
    let text = |text: &str| Value::Text(text.to_owned());
    let run = match check.run.argv.as_slice() {
        [bash, flags, option, c, script]
            if (bash.as_str(), flags.as_str(), option.as_str(), c.as_str()) == ("bash", "-euo", "pipefail", "-c") =>
        {
            text(script)
        }
        argv => Value::List(argv.iter().map(|word| text(word)).collect()),
    };
    let when = match check.when {
        When::Start => "start",
        When::EachIteration => "each_iteration",
        When::BeforeJudge => "before_judge",
    };
    let env = check.env.iter().map(|(name, value)| (name.clone(), text(value))).collect();
    let fields = [
        ("name", text(&check.name)),
        ("run", run),
        ("cwd", text(&check.cwd.display().to_string())),
        ("timeout", Value::Time(check.timeout)),
        ("expect", Value::Whole(u64::try_from(check.expect).unwrap_or_default())),
        ("when", text(when)),
        ("required", Value::Bool(check.required)),
        ("env", Value::Map(env)),
    ];
    Value::Map(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}
