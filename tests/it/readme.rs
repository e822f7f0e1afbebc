//! What the README and ARCHITECTURE.md say, held against the program: what is runnable is run as written, and keys,
//! models, exit codes and rooms are those that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use regex::Regex;
use serde_json::Value;
use spettro::event::Outcome;
use spettro::goal::{GoalSource, Overrides, Problem, key_paths, load};
use spettro::world::Env;

use crate::rooms::{MAY_USE, room_of};
use crate::sandbox::{PATIENCE, Sandbox};
use crate::source;

const README: &str = include_str!("../../README.md");
const ARCHITECTURE: &str = include_str!("../../ARCHITECTURE.md");
const CATALOG: &str = include_str!("../../src/model/catalog.json");

/// A fenced block: what stands behind the fence, the text, and the line it begins at.
#[derive(Debug)]
struct Block {
    info: String,
    text: String,
    line: usize,
}

fn blocks(document: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in document.lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some(info), None) => {
                open = Some(Block { info: info.trim().to_owned(), text: String::new(), line: number + 1 });
            }
            (None, Some(block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block is not closed");
    found
}

/// The document without its fenced blocks.
fn prose(document: &str) -> String {
    let mut inside = false;
    let mut text = String::new();
    for line in document.lines() {
        if line.starts_with("```") {
            inside = !inside;
        } else if !inside {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// What stands in backticks.
fn spans(document: &str) -> Vec<String> {
    let pattern = Regex::new("`([^`]+)`").expect("the pattern is valid");
    pattern
        .captures_iter(&prose(document))
        .map(|found| found[1].split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

/// The cells of a table's rows, below the header that begins with these cells.
fn table(document: &str, header: &str) -> Vec<Vec<String>> {
    let rows: Vec<&str> = document
        .lines()
        .skip_while(|line| !line.starts_with(header))
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert!(rows.len() > 2, "no table `{header}`");
    let cells =
        |row: &str| row.trim_matches('|').split(" | ").map(|cell| cell.trim_matches([' ', '|']).to_owned()).collect();
    rows[2..].iter().map(|row| cells(row)).collect()
}

struct NoEnv;

impl Env for NoEnv {
    fn var(&self, _name: &str) -> Option<String> {
        None
    }

    fn vars(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}

fn read_goal(text: &str) -> Result<(), Vec<Problem>> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    load(&GoalSource::Stdin(text.to_owned()), &Overrides::default(), &NoEnv, None, folder.path()).map(|_| ())
}

fn said(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

// ------------------------------------------------------------------------------------------------- shell blocks

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the sandbox is writable");
    for entry in fs::read_dir(from).expect("the project is readable") {
        let path = entry.expect("the project is readable").path();
        let target = to.join(path.file_name().expect("an entry has a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).expect("the sandbox is writable");
        }
    }
}

/// Lines without what differs from run to run, sorted: the baseline runs beside the first model call.
fn comparable(output: &str) -> Vec<String> {
    let masks = [
        (r"\b\d\d:\d\d:\d\d\b", "TIME"),
        (r"session-\d{8}-\d{6}-[0-9a-f]{8}", "SESSION"),
        (r"/\S*/\.spettro/", "HOME/"),
        (r"sessions/[0-9a-f]{16}/", "sessions/HASH/"),
        (r"\b\d+(\.\d+)?(ms|s)\b", "DURATION"),
        // What this kernel lacks, and that the test's home directory is below a temporary folder.
        (r"(sandbox workspace-write, network all);.*", "$1"),
    ];
    let masks = masks.map(|(pattern, with)| (Regex::new(pattern).expect("the pattern is valid"), with));
    let mask = |line: &str| {
        masks.iter().fold(line.to_owned(), |line, (mask, with)| mask.replace_all(&line, *with).into_owned())
    };
    let mut lines: Vec<String> = output.lines().map(mask).collect();
    lines.sort();
    lines
}

#[test]
fn every_runnable_block_of_the_readme_runs_and_prints_what_it_says() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sandbox = Sandbox::new();
    for folder in ["goals", "cassettes"] {
        copy(&project.join(folder), &sandbox.workspace().join(folder));
    }
    let bin = sandbox.root().join("bin");
    fs::create_dir(&bin).expect("the sandbox is writable");
    symlink(env!("CARGO_BIN_EXE_spettro"), bin.join("spettro")).expect("the sandbox is writable");
    let path = std::env::var("PATH").unwrap_or_default();
    sandbox.set("PATH", format!("{}:{path}", bin.display()));
    let has_jq = std::env::split_paths(&path).any(|folder| folder.join("jq").is_file());

    let blocks = blocks(README);
    let mut ran = 0;
    for (index, block) in blocks.iter().enumerate().filter(|(_, block)| block.info == "sh") {
        if block.text.contains("jq ") && !has_jq {
            eprintln!("skipped: README.md:{}: jq is missing", block.line);
            continue;
        }
        eprintln!("README.md:{}", block.line);
        let mut command = sandbox.command("bash");
        command.args(["-euo", "pipefail", "-c", &block.text]);
        let ended = sandbox.start(command).wait(PATIENCE).expect_code(0);
        ran += 1;
        if let Some(output) = blocks.get(index + 1).filter(|block| block.info == "text output") {
            assert_eq!(
                comparable(&(ended.stderr + &ended.stdout)),
                comparable(&output.text),
                "README.md:{}: it prints something else",
                output.line
            );
        }
    }
    assert!(ran > 0 && (!has_jq || ran >= 4), "only {ran} blocks were run");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command("bash");
    command
        .args(["-c", "for of in goal events result facts; do \"$0\" schema $of | true; echo ${PIPESTATUS[0]}; done"]);
    command.arg(env!("CARGO_BIN_EXE_spettro"));
    let ended = sandbox.start(command).wait(PATIENCE).expect_code(0);
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("0\n0\n0\n0\n", ""));
}

#[test]
fn every_block_says_what_it_is() {
    let known =
        ["sh", "sh no-run", "text", "text output", "yaml", "yaml fragment", "yaml workflow", "json"].map(str::to_owned);
    for (name, document) in [("README.md", README), ("ARCHITECTURE.md", ARCHITECTURE)] {
        for block in blocks(document) {
            assert!(known.contains(&block.info), "{name}:{}: `{}`", block.line, block.info);
        }
    }
}

#[test]
fn the_event_of_the_readme_is_one() {
    let event = blocks(README).into_iter().find(|block| block.info == "json").expect("an event is shown");
    let record: spettro::event::Record = serde_json::from_str(&event.text).expect("it is an event");
    let again: Value = serde_json::to_value(&record).expect("an event serializes");
    assert_eq!(again, serde_json::from_str::<Value>(&event.text).expect("it is JSON"));
}

// --------------------------------------------------------------------------------------------------------- keys

#[test]
fn goal_files_of_the_readme_are_read() {
    let (mut whole, mut parts) = (0, 0);
    for block in blocks(README) {
        let text = match block.info.as_str() {
            "yaml" => {
                whole += 1;
                block.text.clone()
            }
            "yaml fragment" => {
                parts += 1;
                let model = if block.text.contains("model:") { "" } else { "model: anthropic/claude-haiku-5-5\n" };
                format!("version: 1\ngoal: a part\n{model}{}", block.text)
            }
            _ => continue,
        };
        if let Err(problems) = read_goal(&text) {
            panic!("README.md:{}:\n{}", block.line, said(&problems));
        }
    }
    assert!(whole >= 1 && parts >= 3, "{whole} whole ones, {parts} parts");
}

/// `README.md: limit.cost` for each span that looks like a key and is none.
fn unknown_keys(name: &str, document: &str) -> Vec<String> {
    let keys: BTreeSet<String> = key_paths().into_iter().collect();
    let dotted = Regex::new(r"^[a-z][a-z_]*(\[\])?(\.[a-z*][a-z0-9_]*(\[\])?)+$").expect("the pattern is valid");
    let set = Regex::new(r"^([a-z][a-z_]*(?:\.[a-z][a-z_]*)*): ").expect("the pattern is valid");
    let file = Regex::new(r"\.(jsonl?|ya?ml|md|rs|toml|patch|sh|txt|log|zst)$").expect("the pattern is valid");
    let events = ["run.started", "run.finished", "tool.finished"];
    let mut unknown = Vec::new();
    for span in spans(document) {
        let key = match set.captures(&span) {
            Some(found) => found[1].to_owned(),
            None if dotted.is_match(&span) && !file.is_match(&span) && !events.contains(&span.as_str()) => span.clone(),
            None => continue,
        };
        if !keys.contains(&key) {
            unknown.push(format!("{name}: {key}"));
        }
    }
    unknown
}

#[test]
fn no_key_is_named_that_does_not_exist() {
    let mut unknown = unknown_keys("README.md", README);
    unknown.extend(unknown_keys("ARCHITECTURE.md", ARCHITECTURE));
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
    let wrong = "`limit.cost` and `limits.cost`, `leftover: run`, `sync: strict`, `session.jsonl`, `a::b`";
    assert_eq!(unknown_keys("x", wrong), ["x: limit.cost", "x: leftover"]);
}

/// The keys that the README says are known and not in this version yet.
fn later() -> Vec<String> {
    let words = "**Known, but not in this version yet.**";
    let paragraph =
        README.split(words).nth(1).and_then(|rest| rest.split("\n\n").next()).expect("the paragraph is there");
    spans(paragraph).into_iter().filter(|span| key_paths().contains(span)).collect()
}

#[test]
fn every_key_is_named_in_its_table_or_as_one_to_come() {
    let later = later();
    let rows = [table(README, "| key | default |"), table(README, "| key | what it is |")].concat();
    let named: BTreeSet<String> = rows.iter().flat_map(|row| spans(&row[0])).collect();
    let unknown: Vec<&String> = named.iter().filter(|key| !key_paths().contains(key)).collect();
    assert!(unknown.is_empty(), "no keys: {unknown:?}");
    let mut missing = Vec::new();
    for path in key_paths() {
        let below =
            |key: &String| path.strip_prefix(key.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        // The models of judge and summarizer are the same map; maps that are only their keys need no row of their own.
        let covered = named.contains(&path)
            || later.iter().any(below)
            || path.starts_with("judge.model.")
            || path.starts_with("summarizer.model.")
            || named.iter().any(|key| key.starts_with(&format!("{path}.")));
        if !covered {
            missing.push(path);
        }
    }
    assert!(missing.is_empty(), "keys that the README does not name: {}", missing.join(", "));
}

#[test]
fn keys_to_come_are_refused_and_no_others() {
    let later = later();
    assert!(later.len() > 7, "{later:?}");
    let refused =
        |yaml: &str| match read_goal(&format!("version: 1\ngoal: g\nmodel: anthropic/claude-haiku-5-5\n{yaml}\n")) {
            Ok(()) => false,
            Err(problems) => problems.iter().any(|problem| problem.message.contains("not in this version yet")),
        };
    for key in &later {
        let yaml = match key.strip_prefix("providers.*.") {
            Some(key) => {
                format!("providers: {{p: {{wire: openai-chat, base_url: \"http://127.0.0.1/v1\", {key}: x}}}}")
            }
            None => format!("{key}: x"),
        };
        assert!(refused(&yaml), "`{key}` is not refused");
    }
    for row in table(README, "| key | default |") {
        for key in spans(&row[0])
            .into_iter()
            .filter(|key| !key.contains(['.', '[']) && key != "version" && key != "goal" && key != "model")
        {
            assert!(!refused(&format!("{key}: x")), "`{key}` is refused");
        }
    }
    for value in ["workspace_mode: worktree", "session_location: project"] {
        assert!(README.contains(value) && refused(value), "{value}");
    }
}

// ------------------------------------------------------------------------------------------------------- models

#[test]
fn the_models_of_the_readme_are_the_catalogues() {
    let catalog: Value = serde_json::from_str(CATALOG).expect("the catalogue is JSON");
    let mut providers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, provider) in catalog["providers"].as_object().expect("providers are a map") {
        let variables =
            [provider["keys"].as_array().cloned().unwrap_or_default(), vec![provider["base_url_env"].clone()]];
        let variables = variables.concat().iter().filter_map(|name| name.as_str().map(str::to_owned)).collect();
        providers.insert(name.clone(), variables);
    }
    let said: BTreeMap<String, Vec<String>> = table(README, "| provider | key |")
        .iter()
        .map(|row| (spans(&row[0]).remove(0), spans(&row[1..].join(" "))))
        .collect();
    assert_eq!(said, providers);

    let models: BTreeSet<String> = catalog["models"]
        .as_array()
        .expect("models are a list")
        .iter()
        .filter_map(|model| model["name"].as_str().map(str::to_owned))
        .collect();
    let said: BTreeSet<String> = table(README, "| provider | models |").iter().flat_map(|row| spans(&row[1])).collect();
    assert_eq!(said, models);
}

// -------------------------------------------------------------------------------------- exit codes and the rooms

#[test]
fn the_exit_codes_of_the_readme_are_the_enums() {
    let said: Vec<[String; 4]> = table(README, "| code | outcome |")
        .into_iter()
        .map(|mut row| {
            row.resize(4, String::new());
            row.try_into().expect("four cells")
        })
        .collect();
    let are: Vec<[String; 4]> = Outcome::ALL
        .iter()
        .map(|outcome| {
            let retry = if outcome.retryable() { "yes" } else { "" };
            [outcome.code().to_string(), outcome.name().to_owned(), outcome.meaning().to_owned(), retry.to_owned()]
        })
        .collect();
    assert_eq!(said, are);
}

#[test]
fn the_rooms_of_the_architecture_are_those_that_exist() {
    let exist: BTreeSet<String> =
        source::files().iter().filter_map(|file| room_of(&file.path).map(str::to_owned)).collect();
    let rows = table(ARCHITECTURE, "| room | what it is |");
    let said: BTreeSet<String> = rows.iter().map(|row| spans(&row[0]).remove(0)).collect();
    assert_eq!(said, exist);
    for row in &rows {
        let room = spans(&row[0]).remove(0);
        let may: BTreeSet<String> = spans(&row[2]).into_iter().collect();
        let (_, others) = MAY_USE.iter().find(|(name, _)| *name == room).expect("every room is in the test's table");
        let held: BTreeSet<String> =
            others.iter().map(|other| (*other).to_owned()).filter(|other| exist.contains(other)).collect();
        assert_eq!(may, held, "`{room}` may use");
        let words = match (room.as_str(), may.is_empty()) {
            ("cli", _) => "everything",
            (_, true) => "nothing",
            _ => continue,
        };
        assert_eq!(row[2], words, "`{room}` may use");
    }
}
