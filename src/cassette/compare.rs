//! Where two recorded runs part, told so that a person can see it. Pure.

use serde_json::Value;
use similar::TextDiff;

use super::tape::{Exchange, Tape};
use crate::event::Lane;
use crate::session::Fact;

/// Lines shown before and after a difference.
const CONTEXT_LINES: usize = 3;
/// Lines looked at behind the first differing one.
const MOST_LINES: usize = 60;
/// Longer lines are cut to what stands around the difference.
const MOST_COLUMNS: usize = 300;

/// The first exchange in which two runs differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub lane: Lane,
    /// Counts the lane's exchanges from 1.
    pub n: u64,
    pub what: What,
    /// Where in the body, when both have one.
    pub place: Option<Place>,
    /// A unified diff of what stands there; empty when nothing can be shown.
    pub diff: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Request,
    /// The requests are the same, what came is not.
    Reply,
    OnlyInFirst,
    OnlyInSecond,
}

/// A place in a request or reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The message that it lies in, counted from 0.
    pub message: Option<usize>,
    /// RFC 6901, into the whole body.
    pub pointer: String,
    /// Bytes that are the same: of a request's rest, or of a reply.
    pub offset: u64,
}

/// The first difference of two tapes, in the order in which the first one called. `None`: the same requests left, and
/// the same replies came. What may differ between two runs of the same thing (fronts, headers, times) is not compared.
pub fn diff(first: &Tape, second: &Tape) -> Option<Difference> {
    let mut counts = std::collections::BTreeMap::new();
    for lane in order(first) {
        let index = counts.entry(lane).or_insert(0usize);
        let a = first.exchanges(lane).get(*index)?;
        *index += 1;
        let n = *index as u64;
        match second.exchanges(lane).get(*index - 1) {
            None => return Some(alone(lane, n, What::OnlyInFirst, a)),
            Some(b) => {
                let found = exchange(a, b).map(|(what, place, diff)| Difference { lane, n, what, place, diff });
                if found.is_some() {
                    return found;
                }
            }
        }
    }
    second.lanes().find_map(|(lane, calls)| {
        let there = first.exchanges(lane).len();
        calls.get(there).map(|call| alone(lane, there as u64 + 1, What::OnlyInSecond, call))
    })
}

/// The lanes of a tape's exchanges in the order in which they were called.
fn order(tape: &Tape) -> Vec<Lane> {
    if !tape.is_session() {
        return tape.lanes().flat_map(|(lane, calls)| std::iter::repeat_n(lane, calls.len())).collect();
    }
    let calls = tape.facts().iter().filter_map(|line| match &line.fact {
        Fact::Call(call) => Some(call.lane),
        _ => None,
    });
    calls.collect()
}

fn alone(lane: Lane, n: u64, what: What, call: &Exchange) -> Difference {
    let said = call.said.as_ref().and_then(|blocks| serde_json::to_value(blocks).ok());
    let text = said.map_or_else(String::new, |said| pretty(&said));
    let diff = match what {
        What::OnlyInSecond => text_diff("", &text),
        _ => text_diff(&text, ""),
    };
    Difference { lane, n, what, place: None, diff }
}

fn exchange(a: &Exchange, b: &Exchange) -> Option<(What, Option<Place>, String)> {
    if a.digest != b.digest {
        let requests = |call: &Exchange| call.attempts.first().and_then(|attempt| attempt.request.clone());
        let (Some(a), Some(b)) = (requests(a), requests(b)) else { return Some((What::Request, None, String::new())) };
        let (place, diff) = bodies(&a.front, &a.rest.to_vec(), &b.rest.to_vec())?;
        return Some((What::Request, Some(place), diff));
    }
    let (place, diff) = match (&a.said, &b.said) {
        (Some(a), Some(b)) => values(&serde_json::to_value(a).ok()?, &serde_json::to_value(b).ok()?)?,
        _ => {
            let body = |call: &Exchange| call.reply().map(|reply| reply.body.clone()).unwrap_or_default();
            bodies(b"", &body(a), &body(b))?
        }
    };
    Some((What::Reply, Some(place), diff))
}

/// The first difference of two bodies, `None` when there is none. `front` stands before both: the part of a request
/// that is not compared.
pub fn bodies(front: &[u8], a: &[u8], b: &[u8]) -> Option<(Place, String)> {
    let offset = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    if offset == a.len() && offset == b.len() {
        return None;
    }
    let parsed = |rest: &[u8]| serde_json::from_slice::<Value>(&[front, rest].concat()).ok();
    let (mut place, diff) = match (parsed(a), parsed(b)) {
        // The same meaning in other bytes has no place in the values.
        (Some(a), Some(b)) if a != b => values(&a, &b)?,
        _ => {
            let place = Place { message: None, pointer: String::new(), offset: 0 };
            (place, text_diff(&String::from_utf8_lossy(a), &String::from_utf8_lossy(b)))
        }
    };
    place.offset = offset as u64;
    Some((place, diff))
}

fn values(a: &Value, b: &Value) -> Option<(Place, String)> {
    let mut pointer = String::new();
    let (a, b) = first_difference(a, b, &mut pointer)?;
    let text = |value: Option<&Value>| value.map_or_else(String::new, pretty);
    let (a, b) = (text(a), text(b));
    let offset = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count() as u64;
    // `messages`, `input` and `contents` are what the wires call them.
    let mut parts = pointer.split('/').skip(1);
    let message = match (parts.next(), parts.next()) {
        (Some("messages" | "input" | "contents"), Some(index)) => index.parse().ok(),
        _ => None,
    };
    Some((Place { message, pointer, offset }, text_diff(&a, &b)))
}

/// The first place at which two values differ, in the order in which the first one is written.
fn first_difference<'a>(
    a: &'a Value,
    b: &'a Value,
    pointer: &mut String,
) -> Option<(Option<&'a Value>, Option<&'a Value>)> {
    let keys: Vec<(String, Option<&Value>, Option<&Value>)> = match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let ours = a.iter().map(|(key, value)| (key, Some(value), b.get(key)));
            let theirs = b.iter().filter(|(key, _)| !a.contains_key(*key)).map(|(key, value)| (key, None, Some(value)));
            let escaped = |key: &String| key.replace('~', "~0").replace('/', "~1");
            ours.chain(theirs).map(|(key, a, b)| (escaped(key), a, b)).collect()
        }
        (Value::Array(a), Value::Array(b)) => {
            (0..a.len().max(b.len())).map(|index| (index.to_string(), a.get(index), b.get(index))).collect()
        }
        _ => return (a != b).then_some((Some(a), Some(b))),
    };
    for (key, a, b) in keys {
        let length = pointer.len();
        pointer.push('/');
        pointer.push_str(&key);
        let found = match (a, b) {
            (Some(a), Some(b)) => first_difference(a, b, pointer),
            only => Some(only),
        };
        if found.is_some() {
            return found;
        }
        pointer.truncate(length);
    }
    None
}

fn pretty(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => format!("{value:#}"),
    }
}

/// A unified diff of what stands around the first difference of two texts.
pub fn text_diff(a: &str, b: &str) -> String {
    let same = a.lines().zip(b.lines()).take_while(|(a, b)| a == b).count();
    let first = same.saturating_sub(CONTEXT_LINES);
    let column = match (a.lines().nth(same), b.lines().nth(same)) {
        (Some(a), Some(b)) => a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count(),
        _ => 0,
    };
    let window = |text: &str| -> String {
        let lines = text.lines().skip(first).take(same - first + MOST_LINES);
        lines.map(|line| clipped(line, column) + "\n").collect()
    };
    let (a, b) = (window(a), window(b));
    let diff = TextDiff::from_lines(&a, &b);
    let unified = diff.unified_diff().context_radius(CONTEXT_LINES).to_string();
    // The line numbers of a window say nothing.
    unified.lines().filter(|line| !line.starts_with("@@")).map(|line| format!("{line}\n")).collect()
}

/// A line cut to what stands around a column, when it is long.
fn clipped(line: &str, column: usize) -> String {
    if line.chars().count() <= MOST_COLUMNS {
        return line.to_owned();
    }
    let from = column.saturating_sub(MOST_COLUMNS / 3);
    let cut: String = line.chars().skip(from).take(MOST_COLUMNS).collect();
    let (before, after) = (if from > 0 { "…" } else { "" }, "…");
    format!("{before}{cut}{after}")
}
