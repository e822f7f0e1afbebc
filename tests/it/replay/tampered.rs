//! Cassettes in which somebody changed one thing and sealed them anew: none is ever the same.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::sealed::{packed, rewritten};
use super::support::{Recording, Replayed, replay};
use crate::provider::{Reply, Script};
use crate::sandbox::Sandbox;

/// A run with a failed attempt, commands, tools for files, a check, and effects.
fn recorded() -> (Recording, PathBuf) {
    let script = Script::new()
        .agent(Reply::error(529).header("retry-after-ms", "20"))
        .agent(
            Reply::call("file-read", json!({"path": "notes.txt"})).and_call("bash", json!({"command": "echo hello"})),
        )
        .agent(Reply::call("file-write", json!({"path": "new.txt", "content": "new\n"})))
        .agent(Reply::text("Done."))
        .judge(Reply::verdict("met", "yes", ""));
    let sandbox = Sandbox::new();
    sandbox.write("notes.txt", "one\n");
    let goal = "goal: x\nrecord: effects\nchecks: [{name: there, run: test -f notes.txt}]\n";
    let recording = Recording::in_place(sandbox, script, goal);
    recording.run(0);
    let file = packed(&recording);
    assert_eq!(replay(&file, &[]).finished.code, Some(0), "as it is, it is the same");
    (recording, file)
}

/// Every fact of a kind.
fn all<'a>(lines: &'a mut [Value], kind: &'a str) -> impl Iterator<Item = &'a mut Value> {
    lines.iter_mut().filter(move |line| line["kind"] == kind)
}

fn last<'a>(lines: &'a mut [Value], kind: &'a str) -> &'a mut Value {
    all(lines, kind).last().expect("there is one")
}

fn place(lines: &[Value], wanted: impl Fn(&Value) -> bool) -> usize {
    lines.iter().position(wanted).expect("there is one")
}

const ZEROS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// What `spettro replay` says of a file that it does not take.
#[track_caller]
fn refused(file: &Path, reason: &str) {
    let refused = Sandbox::new().run([Path::new("replay"), file]).expect_code(31);
    assert!(refused.stderr.contains(reason) && refused.stdout.is_empty(), "{refused:?}");
}

/// The replay parted in this aspect.
#[track_caller]
fn diverged(file: &Path, what: &str) -> Replayed {
    let replayed = replay(file, &[]);
    assert_eq!(replayed.finished.code, Some(30), "{:#}", replayed.report);
    assert_eq!(replayed.standing(what), "diverged", "{:#}", replayed.report);
    replayed
}

/// Nothing differed, and this could not be compared.
#[track_caller]
fn unverified(file: &Path, what: &str, reason: &str) {
    let replayed = replay(file, &[]);
    assert_eq!(replayed.finished.code, Some(32), "{:#}", replayed.report);
    let compared = replayed.report["compared"].as_array().expect("a list");
    let one = compared.iter().find(|one| one["what"] == what).expect("compared");
    assert_eq!(one["standing"], "unverified", "{:#}", replayed.report);
    assert!(one["why"].as_str().is_some_and(|why| why.contains(reason)), "{one:#}");
}

#[test]
fn a_command_that_is_not_run_any_more_is_left_over_and_named() {
    let (_recording, file) = recorded();
    for purpose in ["tool", "check"] {
        let more = rewritten(&file, true, |lines| {
            let at = place(lines, |line| line["kind"] == "command" && line["purpose"] == purpose);
            let mut other = lines[at].clone();
            (other["sha256"], other["label"]) = (json!("ab".repeat(32)), json!("rm -rf /"));
            lines.insert(at, other);
        });
        let replayed = diverged(&more, "leftovers");
        let all = replayed.report["diverged"].as_array().expect("a list");
        assert_eq!(all.len(), 1, "{purpose}: {:#}", replayed.report);
        assert_eq!(all[0]["text"], "the recorded command `rm -rf /` is not run any more");
    }
}

#[test]
fn a_workspace_that_is_not_the_recorded_one_is_never_identical() {
    let (_recording, file) = recorded();
    refused(
        &rewritten(&file, true, |lines| {
            let digest: String = Sha256::digest("other\n").iter().map(|byte| format!("{byte:02x}")).collect();
            for line in lines.iter_mut().filter(|line| line["type"] == "base" || line["type"] == "blob") {
                line["sha256"] = json!(digest);
                if line["type"] == "blob" {
                    line["body"] = json!("other\n");
                }
            }
        }),
        "workspace",
    );
    refused(
        &rewritten(&file, true, |lines| {
            all(lines, "listing").for_each(|line| line["digest"] = json!("f".repeat(64)));
            all(lines, "progress").for_each(|line| line["workspace"] = json!("f".repeat(64)));
            lines.last_mut().expect("an end")["tree"] = json!("f".repeat(64));
        }),
        "workspace",
    );
    refused(
        &rewritten(&file, true, |lines| {
            let parts = lines[0]["parts"].as_array_mut().expect("a list");
            parts.retain(|part| part != "base");
        }),
        "`base`",
    );
    let without = rewritten(&file, true, |lines| {
        lines[0]["parts"].as_array_mut().expect("a list").retain(|part| part != "base");
        lines.retain(|line| line["type"] != "base" && line["type"] != "blob");
    });
    unverified(&without, "trees", "as it was found is not in the recording");
    diverged(&rewritten(&file, true, |lines| last(lines, "listing")["digest"] = json!("f".repeat(64))), "trees");
    let none = rewritten(&file, true, |lines| last(lines, "listing")["digest"] = Value::Null);
    unverified(&none, "trees", "failed when it was recorded");
    let fewer = rewritten(&file, true, |lines| {
        let at = lines.iter().rposition(|line| line["kind"] == "listing").expect("there is one");
        lines.remove(at);
    });
    unverified(&fewer, "trees", "once more than the recording");
    let other = rewritten(&file, true, |lines| {
        for change in all(lines, "listing").filter_map(|line| line.get_mut("changed")?.as_array_mut()).flatten() {
            change["after"] = json!("ab".repeat(32));
        }
    });
    diverged(&other, "trees");
}

#[test]
fn a_head_and_an_end_that_say_something_else_than_the_facts_are_refused() {
    let (_recording, file) = recorded();
    let end =
        |name: &str, value: Value| rewritten(&file, false, |lines| lines.last_mut().expect("an end")[name] = value);
    refused(&end("events", json!(ZEROS)), "events");
    refused(&end("outcome", json!("impossible")), "outcome");
    refused(&end("tree", json!(ZEROS)), "workspace");
    let head = |name: &str, value: Value| rewritten(&file, false, |lines| lines[0][name] = value);
    refused(&head("goal", json!({"name": "other", "text": "another goal"})), "goal");
    refused(&head("lanes", json!({})), "endpoints");
    let source = |name: &str, value: Value| rewritten(&file, false, |lines| lines[0]["source"][name] = value);
    refused(&source("id_seed", json!("00")), "seed");
    for id in ["../../x", "a/b", ".hidden", ""] {
        refused(&source("session", json!(id)), "id");
    }
    refused(
        &rewritten(&file, true, |lines| {
            let frozen = last(lines, "frozen");
            frozen["config"] = json!(format!("{}# another\n", frozen["config"].as_str().expect("YAML")));
        }),
        "digest",
    );
    refused(&rewritten(&file, true, |lines| last(lines, "attempt")["attempt"]["error"] = json!("auth")), "attempt");
}

#[test]
fn every_amount_is_compared() {
    let (_recording, file) = recorded();
    let settled = |name: &str, value: Value| {
        rewritten(&file, true, |lines| {
            let call = all(lines, "settled").next().expect("a call");
            call["attempts"][1][name] = value;
        })
    };
    diverged(&settled("cost", json!(1)), "ledger");
    diverged(&settled("charged_tokens", json!(1)), "ledger");
    let results = [
        ("/run_usage/calls", json!(99)),
        ("/run_usage/cost", json!(1)),
        ("/usage_by_model", json!({})),
        ("/compactions/pruned", json!(9)),
        ("/compactions/paused", json!(true)),
        ("/retryable", json!(true)),
        ("/checks", json!([])),
        ("/limits/steps", json!(1)),
        ("/model", json!("other/model")),
    ];
    for (pointer, value) in results {
        let other = rewritten(&file, true, |lines| {
            *last(lines, "end")["result"].pointer_mut(pointer).expect(pointer) = value.clone();
        });
        diverged(&other, "events");
    }
    let limits = rewritten(&file, true, |lines| last(lines, "run")["limits"]["cost"] = json!(7_000_001));
    assert_eq!(diverged(&limits, "events").first()["pointer"], "/limits");
}

#[test]
fn where_a_request_goes_to_is_compared_and_attempts_that_are_left_out_too() {
    let (_recording, file) = recorded();
    let wire = |change: &dyn Fn(&mut Value)| {
        rewritten(&file, true, |lines| lines.iter_mut().filter(|line| line["type"] == "wire").for_each(change))
    };
    diverged(&wire(&|line| line["request"]["url"] = json!("http://example.org/v9/other")), "requests");
    diverged(&wire(&|line| line["request"]["method"] = json!("DELETE")), "requests");
    diverged(&wire(&|line| line["request"]["headers"] = json!([["x", "y"]])), "requests");
    let skipped = |line: &mut Value| {
        if line["response"]["status"] == 529 {
            line["request"]["front"] = json!("{\"model\":\"another\",\"max_tokens\":1,");
        }
    };
    diverged(&wire(&skipped), "requests");
}

#[test]
fn a_fact_that_this_build_does_not_know_is_a_doubt() {
    let (_recording, file) = recorded();
    let more = rewritten(&file, true, |lines| {
        let at = place(lines, |line| line["kind"] == "settled");
        let t = lines[at]["t"].clone();
        lines.insert(at, json!({"type": "fact", "seq": 0, "t": t, "kind": "agent_replaced", "by": [{"x": 1}]}));
    });
    unverified(&more, "events", "`agent_replaced`");
}

#[test]
fn a_model_that_the_catalogue_does_not_know_is_changed() {
    let (_recording, file) = recorded();
    let retired = rewritten(&file, true, |lines| {
        let config = last(lines, "frozen")["config"].as_str().expect("YAML").to_owned();
        let (before, rest) = config.split_once("\nmodel:").expect("a model");
        let after = rest.lines().skip(1).skip_while(|line| line.starts_with(' ')).collect::<Vec<_>>().join("\n");
        let config = format!("{before}\nmodel: anthropic/claude-retired-9\n{after}\n");
        let digest: String = Sha256::digest(&config).iter().map(|byte| format!("{byte:02x}")).collect();
        let frozen = last(lines, "frozen");
        (frozen["config"], frozen["config_digest"]) = (json!(config), json!(digest));
        last(lines, "run")["config_digest"] = json!(digest);
    });
    let replayed = replay(&retired, &[]);
    assert_eq!(replayed.finished.code, Some(30), "{:#}", replayed.report);
    let part = &replayed.report["changed"][0];
    assert_eq!(part["source"], "config", "{part:#}");
    assert!(part["diff"].to_string().contains("claude-retired-9"), "{part:#}");
    assert_eq!(replayed.report["steps"], 0, "nothing was replayed");
}

#[test]
fn the_last_request_of_a_killed_run_is_compared() {
    let (_recording, file) = recorded();
    let killed = |digest: Option<&str>| {
        rewritten(&file, true, |lines| {
            let at = place(lines, |line| line["kind"] == "call" && line["n"] == 2);
            let end = lines.last().cloned();
            let wires = lines.iter().filter(|line| line["type"] == "wire" && line["n"] == 1 && line["lane"] == "agent");
            let base = lines.iter().filter(|line| line["type"] == "base" || line["type"] == "blob");
            let behind: Vec<Value> = wires.chain(base).cloned().chain(end).collect();
            lines.truncate(at + 1);
            if let Some(digest) = digest {
                lines[at]["digest"] = json!(digest);
            }
            lines.extend(behind);
            let tree = lines.iter().rfind(|line| line["kind"] == "progress").map(|line| line["workspace"].clone());
            let end = lines.last_mut().expect("an end");
            (end["outcome"], end["tree"]) = (Value::Null, tree.unwrap_or_default());
        })
    };
    let replayed = replay(&killed(None), &[]);
    assert_eq!(replayed.report.get("diverged"), None, "{:#}", replayed.report);
    let replayed = diverged(&killed(Some(ZEROS)), "requests");
    let first = replayed.first();
    assert_eq!((&first["lane"], &first["call"]), (&json!("agent"), &json!(2)), "{first:#}");
}
