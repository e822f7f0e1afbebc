//! One thing of a cassette is another one: the report names exactly that.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::sealed::{edited, packed, rewritten};
use super::support::{Recording, Replayed, replay};
use crate::provider::{Reply, Script};

fn recorded() -> (Recording, PathBuf) {
    let script = Script::new()
        .agent(Reply::call("bash", json!({"command": "echo hello"})).and_call("bash", json!({"command": "echo other"})))
        .agent(Reply::text("Done."))
        .judge(Reply::verdict("met", "yes", ""));
    let recording = Recording::new(script, "goal: x\n");
    recording.run(0);
    let file = packed(&recording);
    (recording, file)
}

fn diverged(replayed: &Replayed) -> Vec<&Value> {
    assert_eq!(replayed.finished.code, Some(30), "{:#}", replayed.report);
    assert_eq!(replayed.report.get("changed"), None, "{:#}", replayed.report);
    replayed.report["diverged"].as_array().expect("a list").iter().collect()
}

/// What is changed: one part, and nothing diverged.
#[track_caller]
fn changed(replayed: &Replayed) -> &Value {
    assert_eq!(replayed.finished.code, Some(30), "{:#}", replayed.report);
    assert_eq!(replayed.report.get("diverged"), None, "{:#}", replayed.report);
    let changed = replayed.report["changed"].as_array().expect("a list");
    assert_eq!(changed.len(), 1, "{:#}", replayed.report);
    &changed[0]
}

fn replace(line: &mut Value, pointer: &str, from: &str, to: &str) {
    if let Some(value) = line.pointer_mut(pointer) {
        *value = json!(value.as_str().expect("a text").replacen(from, to, 1));
    }
}

#[test]
fn nothing_changed_is_the_same_when_it_was_sealed_anew() {
    let (_recording, file) = recorded();
    let copy = edited(&file, |line| {
        if line["type"] == "head" {
            line["provenance"] = json!("sealed anew");
        }
    });
    replay(&copy, &[]).expect_same();
}

#[test]
fn one_word_of_the_system_prompt() {
    let (_recording, file) = recorded();
    let copy = edited(&file, |line| {
        replace(line, "/system", "works alone", "works hard");
        replace(line, "/heads/agent", "works alone", "works hard");
    });
    let replayed = replay(&copy, &[]);
    let part = changed(&replayed);
    assert_eq!((&part["source"], &part["from_tape"]), (&json!("prompt"), &json!(false)));
    let diff = part["diff"].to_string();
    assert!(diff.contains("works hard") && diff.contains("works alone"), "{diff}");
}

#[test]
fn one_tool_description() {
    let (_recording, file) = recorded();
    let heads = crate::sandbox::json_lines(&file);
    let head = heads.iter().find_map(|line| line.pointer("/heads/agent")?.as_str()).expect("a head").to_owned();
    let at = head.find("\"description\":\"").expect("a description") + 15;
    let word: String = head[at..].chars().take_while(|c| c.is_alphabetic()).collect();
    let copy = edited(&file, |line| {
        replace(line, "/heads/agent", &format!("\"description\":\"{word}"), "\"description\":\"Otherwise");
    });
    let replayed = replay(&copy, &[]);
    let part = changed(&replayed);
    assert_eq!(part["source"], "tools", "{part:#}");
    assert!(part["diff"].to_string().contains("Otherwise"), "{part:#}");
}

/// A recording of a build whose tools were described otherwise, true in itself.
#[test]
fn another_description_of_a_tool_is_taken_from_the_tape() {
    let (_recording, file) = recorded();
    let other = rewritten(&file, true, |lines| {
        let head = lines.iter().find_map(|line| line.pointer("/heads/agent")?.as_str()).expect("a head").to_owned();
        let at = head.find("\"description\":\"").expect("a description");
        // As long as it was: it is estimated alike.
        let from = head[at..at + 16].to_owned();
        let to = format!("{}X", &from[..15]);
        let (mut rest, mut digests) = (String::new(), BTreeMap::new());
        for line in lines.iter_mut() {
            replace(line, "/heads/agent", &from, &to);
            if line["type"] != "wire" || line["lane"] != "agent" {
                continue;
            }
            replace(line, "/request/add", &from, &to);
            let kept = usize::try_from(line["request"]["keep"].as_u64().expect("a number")).expect("small");
            rest.truncate(kept);
            rest.push_str(line["request"]["add"].as_str().expect("text"));
            let digest: String = Sha256::digest(&rest).iter().map(|byte| format!("{byte:02x}")).collect();
            line["request"]["sha256"] = json!(digest);
            digests.insert(line["n"].as_u64(), digest);
        }
        for line in lines.iter_mut().filter(|line| line["kind"] == "call" && line["lane"] == "agent") {
            line["digest"] = json!(digests[&line["n"].as_u64()]);
        }
    });
    assert_eq!(changed(&replay(&other, &[]))["source"], "tools");
    let replayed = replay(&other, &["--from-tape", "tools"]);
    replayed.expect_same();
    let parts = replayed.report["changed"].as_array().expect("a list");
    assert_eq!((parts.len(), &parts[0]["source"], &parts[0]["from_tape"]), (1, &json!("tools"), &json!(true)));
}

#[test]
fn a_hint_for_the_cache_is_a_warning() {
    let (_recording, file) = recorded();
    let copy = edited(&file, |line| {
        replace(line, "/request/front", "{\"type\":\"ephemeral\"}", "{\"type\":\"ephemeral\",\"ttl\":\"1h\"}");
    });
    let replayed = replay(&copy, &[]);
    replayed.expect_same();
    let warnings = replayed.report["warnings"].as_array().expect("a list");
    assert_eq!(warnings.len(), 3, "one a request: {warnings:?}");
    assert!(warnings.iter().all(|said| said.as_str().is_some_and(|said| said.contains("`cache_control`"))));
    let limit = edited(&file, |line| replace(line, "/request/front", "\"max_tokens\":", "\"max_tokens\":1"));
    assert_eq!(diverged(&replay(&limit, &[]))[0]["pointer"], "/max_tokens");
}

#[test]
fn another_date_in_the_prompt_is_said_to_be_the_clock() {
    let (_recording, file) = recorded();
    let today = |line: &Value| {
        let text = line["text"].as_str().filter(|_| line["kind"] == "message")?;
        let at = text.find("date at start: ")? + 15;
        Some(text[at..at + 10].to_owned())
    };
    let date = crate::sandbox::json_lines(&file).iter().find_map(today).expect("the first message has a date");
    let copy = edited(&file, |line| {
        if line["kind"] == "message" {
            replace(line, "/text", &date, "2001-02-03");
        }
    });
    let replayed = replay(&copy, &[]);
    let first = diverged(&replayed)[0].clone();
    assert_eq!((&first["guess"], &first["pointer"]), (&json!("clock"), &json!("/text")), "{first:#}");
    let diff = first["diff"].to_string();
    assert!(diff.contains("2001-02-03") && diff.contains(&date), "{diff}");
}

#[test]
fn one_price() {
    let (_recording, file) = recorded();
    let copy = edited(&file, |line| {
        for place in ["/endpoints/agent/price/output", "/lanes/agent/price/output"] {
            if let Some(price) = line.pointer_mut(place) {
                *price = json!(15_000_001);
            }
        }
    });
    let replayed = replay(&copy, &[]);
    let part = changed(&replayed);
    assert_eq!(part["source"], "config");
    assert!(part["which"].as_str().is_some_and(|which| which.contains("model-1")), "{part:#}");
    assert!(part["diff"].to_string().contains("15000001"), "{part:#}");
}

#[test]
fn the_order_of_two_calls() {
    let (_recording, file) = recorded();
    let copy = edited(&file, |line| {
        if let Some(blocks) = line.pointer_mut("/blocks").and_then(Value::as_array_mut)
            && blocks.len() == 2
        {
            blocks.swap(0, 1);
        }
    });
    let replayed = replay(&copy, &[]);
    let all = diverged(&replayed);
    let first = all[0];
    assert_eq!(
        (&first["what"], &first["iteration"], &first["step"]),
        (&json!("events"), &json!(1), &json!(1)),
        "{first:#}"
    );
    assert_eq!((&first["guess"], &first["pointer"]), (&json!("ordering"), &json!("/blocks")), "{first:#}");
}

#[test]
fn one_byte_of_a_result() {
    let (_recording, file) = recorded();
    let copy = edited(&file, |line| {
        if line["kind"] == "command" && line["label"] == "echo hello" {
            line["output"]["bytes"] = json!("hallo\n");
        }
    });
    let replayed = replay(&copy, &[]);
    let all = diverged(&replayed);
    let request = all.iter().find(|one| one["what"] == "requests").expect("a request differs");
    assert_eq!((&request["lane"], &request["call"], &request["message"]), (&json!("agent"), &json!(2), &json!(2)));
    assert_eq!(request["pointer"], "/messages/2/content/0/content", "{request:#}");
    assert_eq!((&request["diff"], &request["guess"]), (&json!(["- hello", "+ hallo"]), &json!("tool_result")));
}
