//! Whole cassettes with every digest in order, made to do harm: refused with a reason, or replayed in their folder.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use spettro::goal::goal_digest;

use super::sealed::{edited, forged, packed};
use super::support::{Recording, replay};
use crate::provider::{Reply, Script};
use crate::sandbox::Sandbox;

/// A run with a base, effects, and a tool that writes where a link may lead elsewhere.
fn recorded() -> (Recording, PathBuf) {
    let script = Script::new()
        .agent(Reply::bash("mkdir out; echo one > out/a.txt"))
        .agent(Reply::call("file-write", json!({"path": "out/b.txt", "content": "two\n"})))
        .agent(Reply::complete("done"))
        .judge(Reply::verdict("met", "yes", ""));
    let sandbox = Sandbox::new();
    sandbox.write("found.txt", "found\n");
    let recording = Recording::in_place(sandbox, script, "goal: x\nrecord: effects\n");
    recording.run(0);
    let file = packed(&recording);
    (recording, file)
}

/// Refused with 31 and this reason by a replay, in text and as JSON; nothing is begun.
#[track_caller]
fn refused(file: &Path, reason: &str) {
    let elsewhere = Sandbox::new();
    let begun = Instant::now();
    let said = elsewhere.run([Path::new("replay"), file]).expect_code(31);
    assert!(begun.elapsed() < Duration::from_secs(60), "in bounded time");
    assert!(said.stderr.contains(reason) && said.stdout.is_empty(), "{reason}: {}", said.stderr);
    elsewhere.run([Path::new("replay"), file, Path::new("--output-format"), Path::new("json")]).expect_code(31);
    let left = std::fs::read_dir(elsewhere.root().join("tmp")).expect("there").count();
    assert_eq!((left, elsewhere.spettro_home().exists()), (0, false), "nothing was begun");
}

/// The first effect of the recording, as something else.
fn effect(line: &mut Value, path: &Value) {
    if line["kind"] == "effects" && line["files"][0]["path"] == "out/a.txt" {
        line["files"][0]["path"] = path.clone();
    }
}

#[test]
fn no_path_of_an_effect_or_of_the_base_leads_out_of_the_workspace() {
    let (_recording, file) = recorded();
    let outside = tempfile::tempdir().expect("made");
    let absolute = outside.path().join("x");
    let absolute = absolute.to_str().expect("UTF-8");
    for path in ["../x", absolute, "out/../../x", "", ".", ".git/hooks/pre-commit", "out/.git/config", "./x", "a//b"] {
        let copy = forged(&file, |line| effect(line, &json!(path)));
        refused(&copy, "is no path inside a workspace");
        let copy = forged(&file, |line| {
            if line["type"] == "base" && line["path"] == "found.txt" {
                line["path"] = json!(path);
            }
        });
        refused(&copy, "is no path inside a workspace");
    }
    let copy = forged(&file, |line| effect(line, &json!({"base64": "Li4v/w=="})));
    refused(&copy, "is no path inside a workspace");
    assert_eq!(std::fs::read_dir(outside.path()).expect("there").count(), 0);
}

#[test]
fn a_link_that_leads_outside_is_never_followed() {
    let (_recording, file) = recorded();
    let outside = tempfile::tempdir().expect("made");
    std::fs::write(outside.path().join("a.txt"), "mine").expect("written");
    let target = outside.path().to_str().expect("UTF-8");
    let sha256 = hex(target.as_bytes());
    // `out` is a link before the effect and the tool write into it.
    let copy = edited(&file, |line| {
        if line["kind"] == "effects" && line["files"][0]["path"] == "out/a.txt" {
            let link = json!({"path": "out", "after": {"kind": "symlink", "sha256": sha256, "content": target}});
            line["files"].as_array_mut().expect("a list").insert(0, link);
        }
    });
    // The effect itself puts a folder in the place of the link, as it was.
    assert_eq!(replay(&copy, &[]).finished.code, Some(0));
    // The link alone, so that only the tool comes to it.
    let copy = edited(&file, |line| {
        if line["kind"] == "effects" && line["files"][0]["path"] == "out/a.txt" {
            let link = json!({"path": "out", "after": {"kind": "symlink", "sha256": sha256, "content": target}});
            line["files"] = json!([link]);
        }
    });
    let replayed = replay(&copy, &[]);
    assert!(matches!(replayed.finished.code, Some(30 | 32)), "{:#}", replayed.report);
    let names: Vec<_> =
        std::fs::read_dir(outside.path()).expect("there").map(|entry| entry.expect("read").path()).collect();
    assert_eq!(names, [outside.path().join("a.txt")], "nothing came to it");
    assert_eq!(std::fs::read_to_string(&names[0]).expect("read"), "mine");
}

fn hex(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_session_that_is_called_like_a_path_is_none() {
    let (_recording, file) = recorded();
    for id in ["../../evil", "/tmp/evil", "", "a/b", ".."] {
        let copy = forged(&file, |line| {
            if line["type"] == "head" {
                line["source"]["session"] = json!(id);
            }
        });
        refused(&copy, "session id");
    }
}

#[test]
fn counts_and_sizes_that_cannot_be_are_refused_or_diverge() {
    let (_recording, file) = recorded();
    let copy = forged(&file, |line| {
        if line["type"] == "end" {
            line["counts"]["fact"] = json!(u64::MAX);
        }
    });
    refused(&copy, "counts");
    let copy = forged(&file, |line| {
        if line["type"] == "wire" && line["n"] == 2 {
            line["request"]["keep"] = json!(u64::MAX);
        }
    });
    refused(&copy, "keeps");
    let copy = forged(&file, |line| {
        if line["type"] == "wire" && line["n"] == 2 {
            line["response"]["reads"] = json!([0, u64::MAX]);
        }
    });
    refused(&copy, "reads");
    // A number that is only told meets what this build makes of it.
    for (kind, pointer) in [
        ("command", "/output/omitted_bytes"),
        ("command", "/output/head_bytes"),
        ("command", "/duration_ms"),
        ("tool", "/output_bytes"),
        ("tool", "/spool"),
        ("iteration", "/iteration"),
        ("settled", "/attempts/0/usage/input"),
        ("run", "/limits/steps"),
        ("elapsed", "/active_ms"),
    ] {
        let copy = edited_where_there(&file, kind, pointer);
        let Some(copy) = copy else { continue };
        let elsewhere = Sandbox::new();
        let finished = elsewhere.run([Path::new("replay"), &copy]);
        assert!(matches!(finished.code, Some(0 | 30..=32)), "{kind} {pointer}: {finished:?}");
    }
}

/// The file with the largest number at a place of each fact of a kind; absent where there is no such place.
fn edited_where_there(file: &Path, kind: &str, pointer: &str) -> Option<PathBuf> {
    let there =
        crate::sandbox::json_lines(file).iter().any(|line| line["kind"] == kind && line.pointer(pointer).is_some());
    there.then(|| {
        forged(file, |line| {
            if line["kind"] == kind
                && let Some(place) = line.pointer_mut(pointer)
            {
                *place = json!(u64::MAX);
            }
        })
    })
}

#[test]
fn a_configuration_that_unfolds_without_end_is_refused() {
    let (_recording, file) = recorded();
    let mut yaml = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    let mut last = 'a';
    for name in 'b'..='k' {
        yaml += &format!("{name}: &{name} [{}]\n", vec![format!("*{last}"); 10].join(", "));
        last = name;
    }
    let copy = forged(&file, |line| {
        if line["kind"] == "frozen" {
            line["config"] = json!(yaml);
        }
        if line["kind"] == "frozen" || line["kind"] == "run" {
            line["config_digest"] = json!(goal_digest(&yaml));
        }
    });
    refused(&copy, "configuration cannot be read");
    let deep = format!("goal: {}{}\n", "[".repeat(20_000), "]".repeat(20_000));
    let copy = forged(&file, |line| {
        if line["kind"] == "frozen" {
            line["config"] = json!(deep);
        }
        if line["kind"] == "frozen" || line["kind"] == "run" {
            line["config_digest"] = json!(goal_digest(&deep));
        }
    });
    refused(&copy, "configuration cannot be read");
}

#[test]
fn lines_that_unpack_to_much_or_nest_deep_are_refused() {
    let (_recording, file) = recorded();
    let text = std::fs::read_to_string(&file).expect("text");
    let head = text.lines().next().expect("a head");
    let elsewhere = Sandbox::new();
    let bomb = |line: &[u8], times: usize| {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("an encoder");
        encoder.write_all(format!("{head}\n").as_bytes()).expect("written");
        for _ in 0..times {
            encoder.write_all(line).expect("written");
        }
        encoder.finish().expect("packed")
    };
    let long = elsewhere.write("long.zst", bomb(&vec![b' '; 1 << 20], 70));
    refused(&long, "longer than 64 MiB");
    let deep = format!(
        "{{\"type\":\"fact\",\"seq\":1,\"t\":\"t\",\"kind\":\"x\",\"a\":{}{}}}\n",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let deep = elsewhere.write("deep.zst", bomb(deep.as_bytes(), 1));
    refused(&deep, "recursion limit");
}
