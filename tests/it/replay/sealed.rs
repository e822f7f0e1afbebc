//! Cassettes that were edited and sealed anew: what somebody else's build would have recorded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use spettro::cassette::{Tape, event_digest};

use super::support::Recording;
use crate::sandbox::json_lines;

/// The newest session, packed as plain lines.
pub fn packed(recording: &Recording) -> PathBuf {
    let file = recording.sandbox.root().join("run.jsonl");
    recording.sandbox.run(["cassette", "pack", "latest", "-o", file.to_str().expect("UTF-8")]).expect_code(0);
    file
}

/// A copy whose lines were changed; its end is made anew.
#[track_caller]
pub fn edited(file: &Path, change: impl Fn(&mut Value)) -> PathBuf {
    let mut lines = json_lines(file);
    let before = lines.clone();
    lines.iter_mut().for_each(change);
    assert_ne!(lines, before, "the edit found its place");
    let copy = file.with_extension("edited.jsonl");
    seal(&copy, &mut lines);
    // The digest of the events follows from the facts.
    let tape = Tape::of_file(&copy).unwrap_or_else(|error| panic!("{error}"));
    lines.last_mut().expect("an end")["events"] = json!(event_digest(tape.facts()));
    seal(&copy, &mut lines);
    copy
}

/// A copy whose lines were changed and whose end is true of them, whatever they say.
#[track_caller]
pub fn forged(file: &Path, change: impl Fn(&mut Value)) -> PathBuf {
    let mut lines = json_lines(file);
    let before = lines.clone();
    lines.iter_mut().for_each(change);
    assert_ne!(lines, before, "the edit found its place");
    let copy = file.with_extension("forged.jsonl");
    seal(&copy, &mut lines);
    copy
}

/// A copy whose lines were changed, left out or added. Facts and records are counted anew, and the end fits them; with
/// `events`, its digest of the events too.
#[track_caller]
pub fn rewritten(file: &Path, events: bool, change: impl FnOnce(&mut Vec<Value>)) -> PathBuf {
    let mut lines = json_lines(file);
    let before = lines.clone();
    change(&mut lines);
    assert_ne!(lines, before, "the edit found its place");
    number(&mut lines);
    let mut counts = BTreeMap::new();
    for line in &lines[1..lines.len() - 1] {
        *counts.entry(line["type"].as_str().expect("a type").to_owned()).or_insert(0) += 1;
    }
    lines.last_mut().expect("an end")["counts"] = json!(counts);
    let copy = file.with_extension("rewritten.jsonl");
    seal(&copy, &mut lines);
    if let (true, Ok(tape)) = (events, Tape::of_file(&copy)) {
        lines.last_mut().expect("an end")["events"] = json!(event_digest(tape.facts()));
        seal(&copy, &mut lines);
    }
    copy
}

/// Numbers facts without gaps; a parent follows.
fn number(lines: &mut [Value]) {
    let mut names = BTreeMap::new();
    for (seq, line) in (1..).zip(lines.iter_mut().filter(|line| line["type"] == "fact")) {
        line["seq"] = json!(seq);
        if let Some(id) = line.get("id").and_then(Value::as_str) {
            names.entry(id.to_owned()).or_insert(format!("e{seq}"));
            line["id"] = json!(format!("e{seq}"));
        }
    }
    let mut last = None;
    for line in lines.iter_mut().filter(|line| line["type"] == "fact") {
        if let Some(parent) = line.get("parent").and_then(Value::as_str) {
            // One that was left out leaves its place to the entry before it.
            line["parent"] = json!(names.get(parent).or(last.as_ref()));
        }
        last = line.get("id").and_then(Value::as_str).map(str::to_owned).or(last);
    }
}

fn seal(file: &Path, lines: &mut [Value]) {
    let (end, before) = lines.split_last_mut().expect("an end");
    let mut text: String = before.iter().map(|line| format!("{line}\n")).collect();
    end.as_object_mut().expect("an object").shift_remove("sha256");
    let open = end.to_string();
    text.push_str(open.strip_suffix('}').expect("an object"));
    text.push_str(",\"sha256\":\"");
    let digest: String = Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    end["sha256"] = json!(digest);
    std::fs::write(file, format!("{text}{digest}\"}}\n")).expect("written");
}
