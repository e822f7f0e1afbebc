//! Who may use whom: the table of the house, held against the `crate::` paths of the source.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{self, code_only, without_tests};

/// What each room may use besides itself. Only rooms that exist are held to it; one that is not here is an error.
pub const MAY_USE: &[(&str, &[&str])] = &[
    ("batch", &["event", "world", "goal", "report", "session", "workspace", "process"]),
    ("bisect", &["event", "world", "cassette", "session", "workspace", "process"]),
    ("cassette", &["event", "world", "session", "workspace"]),
    // Everything; see `may_use`.
    ("cli", &[]),
    ("compact", &["event", "world", "model", "session"]),
    ("control", &["event", "world", "session", "process"]),
    ("event", &[]),
    // The loop builds the tools that its turns use: it knows the job handles, the keys' names and the limits.
    ("goal", &["event", "world", "compact", "turn", "tools", "model", "workspace", "session", "process"]),
    ("memory", &["event", "world", "model", "session"]),
    ("model", &["event", "world", "session"]),
    ("process", &["event", "world"]),
    ("replay", &["event", "world", "cassette", "goal", "model", "process", "session", "tools", "workspace"]),
    ("report", &["event"]),
    ("session", &["event", "world"]),
    ("tools", &["event", "world", "process", "session", "memory", "workspace"]),
    ("turn", &["event", "world", "compact", "tools", "model", "session", "memory", "workspace"]),
    ("workspace", &["event", "world", "session"]),
    ("world", &["event"]),
];

/// Single names that a room may use although the table does not give it the other room, and why.
const DEVIATIONS: &[(&str, &str, &str)] =
    &[("tools", "model::ToolSchema", "the shape in which a tool is offered is the encoders' own")];

fn may_use(room: &str, other: &str) -> bool {
    room == other || room == "cli" || MAY_USE.iter().any(|(name, others)| *name == room && others.contains(&other))
}

/// `model/wire/sse.rs` and `event.rs` → their rooms; `None` for `lib.rs` and `main.rs`, which stand outside.
pub fn room_of(path: &str) -> Option<&str> {
    let first = path.split('/').next().unwrap_or(path);
    let room = first.strip_suffix(".rs").unwrap_or(first);
    (!matches!(room, "lib" | "main")).then_some(room)
}

/// How many modules deep a file's own module is: `model/mod.rs` and `event.rs` 1, `model/price.rs` 2.
fn depth_of(path: &str) -> usize {
    let names: Vec<&str> = path.split('/').collect();
    names.len() - usize::from(names.last() == Some(&"mod.rs"))
}

/// The paths below the crate's root that a file names: `event::Lane`, `model::wire::Wire`, … from `crate::…` and
/// from `super::…` chains that reach the root.
fn paths(code: &str, depth: usize) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let words = words(code);
    let mut at = 0;
    while at < words.len() {
        let mut supers = 0;
        let mut next = at;
        while words[next..].starts_with(&["super", "::"]) {
            (supers, next) = (supers + 1, next + 2);
        }
        if words[next..].starts_with(&["crate", "::"]) {
            tree(&words, next + 2, "", &mut found);
            at = next + 2;
        } else if supers >= depth && supers > 0 {
            tree(&words, next, "", &mut found);
            at = next;
        } else {
            at = next.max(at + 1);
        }
    }
    found
}

/// Reads what follows `crate::`: a path, or a tree of paths in braces. Returns behind it.
fn tree(words: &[&str], mut at: usize, before: &str, found: &mut BTreeSet<String>) -> usize {
    if words.get(at) == Some(&"{") {
        at += 1;
        while at < words.len() && words[at] != "}" {
            let next = tree(words, at, before, found);
            at = if words.get(next) == Some(&",") { next + 1 } else { next.max(at + 1) };
        }
        return at + 1;
    }
    let mut path = before.to_owned();
    loop {
        match words.get(at) {
            Some(&"{") => return tree(words, at, &path, found),
            Some(word) if word.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '*') => {
                path = if path.is_empty() { (*word).to_owned() } else { format!("{path}::{word}") };
                at += 1;
            }
            _ => break,
        }
        if words.get(at) == Some(&"::") {
            at += 1;
        } else {
            if words.get(at) == Some(&"as") {
                at += 2;
            }
            break;
        }
    }
    if !path.is_empty() {
        found.insert(path);
    }
    at
}

/// Splits code into names, `::` and single signs.
fn words(code: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let named = |c: char| c.is_alphanumeric() || c == '_';
        let length = if named(first) {
            rest.find(|c| !named(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        if !first.is_whitespace() {
            words.push(&rest[..length]);
        }
        rest = &rest[length..];
    }
    words
}

/// What of a file's paths the table does not allow, and which deviations they need.
fn judge(path: &str, code: &str) -> (Vec<String>, BTreeSet<&'static str>) {
    let mut wrong = Vec::new();
    let mut used = BTreeSet::new();
    let Some(room) = room_of(path) else { return (wrong, used) };
    if !MAY_USE.iter().any(|(name, _)| *name == room) {
        wrong.push(format!("{path}: the room `{room}` is not in the table"));
    }
    for named in paths(code, depth_of(path)) {
        let other = named.split("::").next().unwrap_or_default();
        if may_use(room, other) {
            continue;
        }
        match DEVIATIONS.iter().find(|(name, item, _)| *name == room && *item == named) {
            Some((_, item, _)) => {
                used.insert(*item);
            }
            None => wrong.push(format!("{path}: `{room}` may not use `{named}`")),
        }
    }
    (wrong, used)
}

/// A file that holds only tests may use what it likes.
fn is_tests(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.ends_with("_tests.rs") || path.contains("/tests/")
}

#[test]
fn rooms_use_only_whom_they_may() {
    let mut wrong = Vec::new();
    let mut used = BTreeSet::new();
    for file in source::files().iter().filter(|file| !is_tests(&file.path)) {
        let (more, deviations) = judge(&file.path, without_tests(&file.code()));
        wrong.extend(more);
        used.extend(deviations);
    }
    assert!(wrong.is_empty(), "change the code, or the table here and in ARCHITECTURE.md:\n{}", wrong.join("\n"));
    for (room, item, why) in DEVIATIONS {
        assert!(used.contains(item), "`{room}` no longer uses `{item}` ({why}): delete the deviation");
    }
}

#[test]
fn wires_know_no_runtime_and_no_network() {
    let mut wrong = Vec::new();
    for file in source::files().iter().filter(|file| file.path.starts_with("model/wire/")) {
        let code = file.code();
        let words = words(&code);
        for outside in ["tokio", "reqwest"] {
            if words.contains(&outside) {
                wrong.push(format!("{}: {outside}", file.path));
            }
        }
    }
    assert!(wrong.is_empty(), "a wire is pure, bytes in and out:\n{}", wrong.join("\n"));
}

#[test]
fn the_table_keeps_the_standing_prohibitions() {
    let allowed: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    for (room, others) in &allowed {
        assert!(!others.contains(&"cli"), "{room} → cli");
        assert!(others.iter().all(|other| allowed.contains_key(other)), "{room} uses a room that is not in the table");
    }
    assert!(!may_use("model", "cassette") && !may_use("process", "tools") && may_use("cli", "bisect"));
}

#[test]
fn paths_are_found_in_every_form() {
    let code = code_only(
        "use crate::{event::{Lane, Micros as M}, model::{self, wire::Wire}};\n\
         pub(crate) use crate::tools;\n\
         fn f() -> crate::goal::Check { crate::report::clean(x) } // crate::cli\n\
         use super::super::process::Job;\nuse super::price;",
    );
    let found: Vec<String> = paths(&code, 2).into_iter().collect();
    let expected = [
        "event::Lane",
        "event::Micros",
        "goal::Check",
        "model::self",
        "model::wire::Wire",
        "process::Job",
        "report::clean",
        "tools",
    ];
    assert_eq!(found, expected);
    assert_eq!(depth_of("model/mod.rs"), 1);
    assert_eq!(depth_of("event.rs"), 1);
    assert_eq!(depth_of("model/wire/sse.rs"), 3);
    assert!(paths("use super::*; use super::super::error::E;", 3).is_empty(), "both stay within the room");
}

#[test]
fn a_forbidden_use_is_found() {
    let (wrong, _) = judge("report/console.rs", "use crate::session::Fact;");
    assert_eq!(wrong, ["report/console.rs: `report` may not use `session::Fact`"]);
    assert_eq!(judge("goal/mod.rs", "use super::report::Console;").0.len(), 1, "through the crate's root");
    assert_eq!(judge("attic/mod.rs", "").0, ["attic/mod.rs: the room `attic` is not in the table"]);
    assert!(judge("cli/run.rs", "use crate::bisect::Search;").0.is_empty());
    assert!(judge("lib.rs", "pub use crate::cli;").0.is_empty());
}
