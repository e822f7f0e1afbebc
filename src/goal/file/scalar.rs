//! The kinds that are one scalar: what each accepts, and what it says to anything else.

use super::keys::{self, Kind};
use super::node::{Node, cut};
use super::shape::{NOT_YET, unlimited_word};
use super::source::is_variable;
use super::suggest;
use super::value::{self, Value};
use crate::event::Micros;

/// A message, and what to do about it.
type Refusal = (String, Option<String>);

fn no<T>(message: impl Into<String>) -> Result<T, Refusal> {
    Err((message.into(), None))
}

fn no_hint<T>(message: impl Into<String>, hint: &str) -> Result<T, Refusal> {
    Err((message.into(), Some(hint.to_owned())))
}

/// Reads a scalar. Kinds that are no scalars are not this function's, and are refused.
pub(super) fn read(kind: &Kind, node: &Node) -> Result<Value, Refusal> {
    match kind {
        Kind::Version => match node {
            Node::Number(text) | Node::Loose(text) if text == "1" => Ok(Value::Whole(1)),
            Node::Text(text) if text == "1" => {
                no_hint("found the text `1`; this build reads the number", "write it without quotes")
            }
            Node::Number(text) | Node::Text(text) | Node::Loose(text) => {
                no(format!("found `{}`; this build reads 1", cut(text)))
            }
            node => no(format!("expected `1`, found {}; this build reads 1", node.found())),
        },
        Kind::Bool => match node {
            Node::Bool(value) => Ok(Value::Bool(*value)),
            Node::Loose(text) if text == "true" || text == "false" => Ok(Value::Bool(text == "true")),
            Node::Text(text) | Node::Loose(text) => no(format!("expected `true` or `false`, found `{}`", cut(text))),
            node => no(format!("expected `true` or `false`, found {}", node.found())),
        },
        Kind::Whole { min, max, odd } => whole(node, *min, *max, *odd),
        Kind::Tokens if unlimited_word(node) => Ok(Value::Unlimited),
        Kind::Tokens => match whole(node, 0, u64::MAX, false)? {
            Value::Whole(0) => no_hint("`0` would allow nothing", "write `unlimited` to lift the limit"),
            tokens => Ok(tokens),
        },
        Kind::Time { unlimited: true, .. } | Kind::Money if unlimited_word(node) => Ok(Value::Unlimited),
        Kind::Time { unlimited, zero } => time(node, *unlimited, *zero),
        Kind::Size => match node {
            Node::Text(text) | Node::Loose(text) | Node::Number(text) => {
                value::size(text).map(Value::Size).map_err(|text| (text, None))
            }
            node => no(format!("expected a size such as `500MB` or `1GiB`, found {}", node.found())),
        },
        Kind::Money => match dollars(node)? {
            0 => no_hint("`0` would allow nothing", "write `unlimited` to lift the limit"),
            micros => Ok(Value::Money(Micros(micros))),
        },
        Kind::Price => dollars(node).map(Value::Price),
        Kind::Word { now, later } => word(node, now, later),
        Kind::Plain => match node {
            Node::Text(text) | Node::Loose(text) | Node::Number(text) => plain(text),
            Node::Bool(value) => no_hint(format!("expected text, found `{value}`"), "put it into quotes"),
            node => no(format!("expected text, found {}", node.found())),
        },
        kind => text(kind, node),
    }
}

fn whole(node: &Node, min: u64, max: u64, odd: bool) -> Result<Value, Refusal> {
    let text = match node {
        Node::Number(text) | Node::Loose(text) => text.trim(),
        node => return no(format!("expected a whole number, found {}", node.found())),
    };
    if value::is_non_finite(text) {
        return no(format!("`{}` is no finite number", cut(text)));
    }
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = if digits { text.parse::<u64>().ok() } else { None };
    let Some(number) = number else {
        return if digits {
            no(format!("`{}` is too large", cut(text)))
        } else if text.starts_with('-') {
            no(format!("`{}` is below zero", cut(text)))
        } else if text == "unlimited" {
            no("this limit cannot be lifted; write a number")
        } else {
            no(format!("expected a whole number, found `{}`", cut(text)))
        };
    };
    if number < min || number > max {
        let zero = if number == 0 && min > 0 { "; `0` never means unlimited" } else { "" };
        return no(format!("`{number}` is not between {min} and {max}{zero}"));
    }
    if odd && number % 2 == 0 {
        return no(format!("`{number}` is even; an odd number of votes always has a majority"));
    }
    Ok(Value::Whole(number))
}

fn time(node: &Node, unlimited: bool, zero: bool) -> Result<Value, Refusal> {
    let text = match node {
        Node::Text(text) | Node::Loose(text) | Node::Number(text) => text.trim(),
        node => return no(format!("expected a duration such as `90s` or `2h`, found {}", node.found())),
    };
    if value::is_non_finite(text) {
        return no(format!("`{}` is no finite number", cut(text)));
    }
    if text == "unlimited" {
        return no("this limit cannot be lifted; write a duration such as `90s` or `2h`");
    }
    match value::time(text, zero) {
        Ok(time) => Ok(Value::Time(time)),
        Err(message) if unlimited && text.trim_start_matches('0').starts_with(|c: char| !c.is_ascii_digit()) => {
            // `0s`, `0m`: somebody may mean «no limit».
            no_hint(message, "write `unlimited` to lift the limit")
        }
        Err(message) if unlimited && text == "0" => no_hint(message, "write `unlimited` to lift the limit"),
        Err(message) => no(message),
    }
}

fn dollars(node: &Node) -> Result<u64, Refusal> {
    match node {
        Node::Text(text) | Node::Loose(text) | Node::Number(text) => value::dollars(text).map_err(|text| (text, None)),
        node => no(format!("expected dollars as a decimal such as `5.00`, found {}", node.found())),
    }
}

fn word(node: &Node, now: &[&str], later: &[&str]) -> Result<Value, Refusal> {
    let list = now.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    let (Node::Text(text) | Node::Loose(text)) = node else {
        return no(format!("expected one of {list}, found {}", node.found()));
    };
    if now.contains(&text.as_str()) {
        return Ok(Value::Text(text.clone()));
    }
    if later.contains(&text.as_str()) {
        return no(format!("`{text}` is {NOT_YET}; there is {list}"));
    }
    let known = now.iter().chain(later).copied();
    match suggest::closest(&text.replace('-', "_"), known.clone()).or_else(|| suggest::closest(text, known)) {
        Some(meant) => no(format!("`{}` is not one of {list}; did you mean `{meant}`?", cut(text))),
        None => no(format!("`{}` is not one of {list}", cut(text))),
    }
}

/// Any text that can be passed on: no NUL.
fn plain(text: &str) -> Result<Value, Refusal> {
    if text.contains('\0') { no("has a NUL character") } else { Ok(Value::Text(text.to_owned())) }
}

/// A shell command, trimmed.
pub(super) fn command(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("an empty command runs nothing".into()),
        text if text.contains('\0') => Err("has a NUL character".into()),
        text => Ok(text.to_owned()),
    }
}

/// `provider/model`, both parts there and without white space.
pub(super) fn model_id(text: &str) -> Result<&str, ()> {
    match text.split_once('/') {
        Some((provider, model)) if !provider.is_empty() && !model.is_empty() => {
            if text.chars().any(|c| c.is_whitespace() || c.is_control()) { Err(()) } else { Ok(text) }
        }
        _ => Err(()),
    }
}

/// The kinds that are text of some form.
fn text(kind: &Kind, node: &Node) -> Result<Value, Refusal> {
    let text = match node {
        Node::Text(text) | Node::Loose(text) => text,
        Node::Number(_) | Node::Bool(_) => {
            return no_hint(format!("expected text, found {}", node.found()), "put it into quotes");
        }
        node => return no(format!("expected {}, found {}", wanted(kind), node.found())),
    };
    let shown = cut(text);
    if text.contains('\0') {
        return no("has a NUL character");
    }
    if text.trim().is_empty() {
        return no("is empty");
    }
    let all = |allowed: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || allowed.as_bytes().contains(&b));
    match kind {
        Kind::Slug if text.len() > 64 => no("is longer than 64 characters"),
        Kind::Slug if !all("._-") || !text.starts_with(|c: char| c.is_ascii_alphanumeric()) => no(format!(
            "`{shown}` is no name; it starts with a letter or digit and has only letters, digits, `.`, `_` and `-`"
        )),
        Kind::Line if text.trim().contains(['\n', '\r']) => no("has more than one line"),
        Kind::Line => Ok(Value::Text(text.trim().to_owned())),
        Kind::Inside | Kind::Glob if text.starts_with('/') || text.split('/').any(|part| part == "..") => {
            no(format!("`{shown}` is not below the workspace; write it relative to the workspace"))
        }
        Kind::Glob => match globset::Glob::new(text) {
            Ok(_) => Ok(Value::Text(text.clone())),
            Err(error) => no(format!("`{shown}` is no glob: {}", error.kind())),
        },
        Kind::Variable if !is_variable(text) => no(format!("`{shown}` is no name of a variable")),
        Kind::VariableGlob if !all("_*?") => no(format!("`{shown}` is no glob of variable names")),
        Kind::Tool { later } => tool(text, *later),
        Kind::Url => url(text),
        Kind::ModelId if model_id(text).is_err() => no(format!("`{shown}` is not `provider/model`")),
        _ => Ok(Value::Text(text.clone())),
    }
}

fn wanted(kind: &Kind) -> &'static str {
    match kind {
        Kind::Model | Kind::ModelId => "`provider/model`",
        Kind::Path | Kind::Inside => "a path",
        _ => "text",
    }
}

fn tool(text: &str, later: bool) -> Result<Value, Refusal> {
    if keys::TOOLS.contains(&text) || (later && keys::LATER_TOOLS.contains(&text)) {
        return Ok(Value::Text(text.to_owned()));
    }
    if keys::LATER_TOOLS.contains(&text) {
        return no(format!("`{text}` is {NOT_YET}"));
    }
    match suggest::closest(&text.to_ascii_lowercase().replace('_', "-"), keys::TOOLS.iter().copied()) {
        Some(meant) => no(format!("`{}` is no tool; did you mean `{meant}`?", cut(text))),
        None => no_hint(format!("`{}` is no tool", cut(text)), &format!("the tools are {}", keys::TOOLS.join(", "))),
    }
}

fn url(text: &str) -> Result<Value, Refusal> {
    let shown = cut(text);
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let Some(rest) = rest.filter(|rest| !rest.is_empty() && !rest.starts_with('/')) else {
        return no(format!("`{shown}` is no http or https URL"));
    };
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return no(format!("`{shown}` has white space"));
    }
    if rest.split('/').next().is_some_and(|host| host.contains('@')) {
        return no_hint("a URL must not hold credentials", "name the variable that holds the key as `api_key_env`");
    }
    if rest.contains(['?', '#']) {
        return no_hint(format!("`{shown}` has a query"), "put it under `query_params`");
    }
    Ok(Value::Text(text.to_owned()))
}
