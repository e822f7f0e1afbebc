//! The recorded runs of `cassettes/`: each replays as its table says, and they can be recorded anew.

mod record;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use spettro::cassette::Tape;

use crate::replay::support::replay;
use crate::sandbox::Sandbox;

/// The largest that a recorded run may be.
const MOST_BYTES: u64 = 100_000;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cassettes")
}

/// A line of `cassettes/replays.tsv`: a file, the exit code of its replay, and why it is not 0.
struct Row {
    file: String,
    code: i32,
    why: String,
}

fn table() -> Vec<Row> {
    let text = std::fs::read_to_string(folder().join("replays.tsv")).expect("the table is there");
    let rows = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(|line| {
        let [file, code, why] = line.splitn(3, '\t').collect::<Vec<_>>()[..] else { panic!("three columns: {line}") };
        Row { file: file.to_owned(), code: code.parse().expect("an exit code"), why: why.to_owned() }
    });
    rows.collect()
}

#[test]
fn each_replays_as_the_table_says_whatever_is_perturbed() {
    for row in table() {
        let replayed = replay(&folder().join(&row.file), &["--perturb"]);
        let report = &replayed.report;
        assert_eq!(replayed.finished.code, Some(row.code), "{}: {report:#}", row.file);
        replayed.expect_same();
        let compared = report["compared"].as_array().expect("a list");
        let open: Vec<&str> = compared.iter().filter_map(|one| one["why"].as_str()).collect();
        assert_eq!(open.join("; "), row.why, "{}", row.file);
        let variants = report["variants"].as_array().expect("a list");
        assert!(variants.len() >= 8 && variants.iter().all(|one| one["agrees"] == true), "{}: {variants:?}", row.file);
    }
}

#[test]
fn table_folder_and_readme_name_the_same_files() {
    let replies_only = ["quickstart.jsonl"];
    let listed: BTreeSet<String> = table().into_iter().map(|row| row.file).collect();
    let entries = std::fs::read_dir(folder()).expect("it is there");
    let there: BTreeSet<String> = entries
        .map(|entry| entry.expect("readable").file_name().into_string().expect("UTF-8"))
        .filter(|name| name != "README.md" && name != "replays.tsv" && !replies_only.contains(&name.as_str()))
        .collect();
    assert_eq!(there, listed);
    assert!(listed.len() >= 7, "{listed:?}");
    let readme = std::fs::read_to_string(folder().join("README.md")).expect("readable");
    for file in &listed {
        assert!(readme.contains(&format!("| `{file}` |")), "{file} has a line in cassettes/README.md");
    }
}

#[test]
fn none_is_large_or_says_where_it_was_made() {
    for row in table() {
        let path = folder().join(&row.file);
        assert!(path.metadata().expect("there").len() <= MOST_BYTES, "{} is too large", row.file);
        let tape = Tape::of_file(&path).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(tape.problems(), Vec::<String>::new(), "{}", row.file);
        assert!(tape.head().provenance.starts_with("recorded from session-"), "{}", tape.head().provenance);
        let text = plain(&path);
        for place in text.match_indices("/tmp/").map(|(at, _)| at) {
            assert!(text[place..].starts_with("/tmp/demo/"), "{}: {:.60}", row.file, &text[place..]);
        }
        let text = text.replace("/tmp/demo/", "");
        for foreign in ["/home/", "/root/", "/Users/", "/work/wt", "/runner/"] {
            assert!(!text.contains(foreign), "{}: {foreign}", row.file);
        }
        Sandbox::new().run([Path::new("cassette"), Path::new("lint"), &path]).expect_code(0);
    }
}

/// The lines of a cassette.
fn plain(path: &Path) -> String {
    let bytes = std::fs::read(path).expect("readable");
    let lines = if path.extension().is_some_and(|ending| ending == "zst") {
        let mut text = Vec::new();
        let mut decoder = zstd::stream::read::Decoder::new(&bytes[..]).expect("zstd").single_frame();
        std::io::Read::read_to_end(&mut decoder, &mut text).expect("whole");
        text
    } else {
        bytes
    };
    String::from_utf8(lines).expect("UTF-8")
}

/// The workflow that users copy, as far as it is a script: run by bash on this folder.
#[test]
fn the_workflow_for_pull_requests_tells_good_from_bad() {
    let text = std::fs::read_to_string(folder().join("../ci/templates/replay.yml")).expect("readable");
    let workflow: serde_json::Value = serde_yaml::from_str(&text).expect("YAML");
    let steps = workflow["jobs"]["replay"]["steps"].as_array().expect("steps");
    let script = steps.iter().find_map(|step| step["run"].as_str()).expect("a script");
    let sandbox = Sandbox::new();
    let program = Path::new(env!("CARGO_BIN_EXE_spettro")).parent().expect("a folder");
    let run = || {
        let mut command = sandbox.command("bash");
        let path = std::env::var("PATH").unwrap_or_default();
        command.args(["-eo", "pipefail", "-c", script]).env("PATH", format!("{}:{path}", program.display()));
        sandbox.start(command).wait(crate::sandbox::PATIENCE)
    };
    let none = run().expect_code(1);
    assert!(none.stdout.contains("::error::no runs/*.cassette.zst"), "{}", none.stdout);
    for name in ["met-at-once", "edits"] {
        let file = format!("{name}.cassette.zst");
        sandbox.write(format!("runs/{file}"), std::fs::read(folder().join(&file)).expect("readable"));
    }
    let good = run().expect_code(0);
    assert!(good.stdout.contains("::notice file=runs/edits"), "{}", good.stdout);
    sandbox.write("runs/torn.cassette.zst", "no cassette");
    let bad = run().expect_code(1);
    assert!(
        bad.stdout.contains("::error file=runs/torn.cassette.zst::cannot be replayed (exit code 31)"),
        "{}",
        bad.stdout
    );
}

/// What a result names can be typed.
#[test]
fn a_result_names_commands_that_work() {
    let script = crate::provider::Script::new()
        .agent(crate::provider::Reply::complete("done").forever())
        .judge(crate::provider::Reply::verdict("met", "yes", "").forever());
    let sandbox = Sandbox::new();
    let provider = script.start();
    let goal = sandbox.goal(&provider, "goal: x\n");
    let store = sandbox.root().join("store");
    for place in [&[][..], &["--session-dir", store.to_str().expect("UTF-8")]] {
        let mut words = vec!["run", "--goal", goal.to_str().expect("UTF-8"), "--json"];
        words.extend(place);
        let result = sandbox.run(words).result();
        for name in ["export", "replay"] {
            let argv = result["commands"][name].as_array().unwrap_or_else(|| panic!("{result:#}"));
            let argv: Vec<&str> = argv.iter().map(|word| word.as_str().expect("a word")).collect();
            assert_eq!(argv[0], "spettro");
            sandbox.run(&argv[1..]).expect_code(0);
        }
        assert_eq!(result["commands"]["resume"], serde_json::Value::Null);
    }
}
