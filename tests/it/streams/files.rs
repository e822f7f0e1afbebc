//! A session's files: torn, corrupt, missing, or on a disk that is full.

use super::super::resume::support::{Scene, append, audit, judge, worker};
use super::{goal, shell, skipped};
use crate::provider::{Reply, Script};
use crate::sandbox::{PATIENCE, Sandbox, json_lines};

/// A session that was killed while its second request was in flight.
fn killed() -> Scene {
    let script = Script::new()
        .one_session()
        .agent(Reply::bash(&append(1)))
        .agent(Reply::text("never").stall())
        .agent(worker(append))
        .judge(judge(1));
    let scene = Scene::new(script, "goal: Write.\n");
    let running = scene.start();
    scene.provider.wait_for_request(2, PATIENCE);
    running.kill();
    scene
}

#[test]
fn a_torn_last_line_is_set_aside() {
    let scene = killed();
    let path = scene.sandbox.session_dir().join("session.jsonl");
    let whole = scene.sandbox.read(&path);
    let torn = "{\"seq\":99,\"t\":\"2026-01-01T00:00:00.000Z\",\"kind\":\"mess";
    scene.sandbox.write(&path, format!("{whole}{torn}"));
    let finished = scene.resume(&[]).expect_code(0);
    assert!(finished.stderr.contains("torn"), "{}", finished.stderr);
    audit(&scene, &finished, 1);
    assert!(scene.sandbox.read(&path).starts_with(&whole), "everything before it is kept");
    let aside: Vec<_> = std::fs::read_dir(scene.sandbox.session_dir())
        .expect("it is there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "torn"))
        .collect();
    assert_eq!(aside.len(), 1);
    assert_eq!(scene.sandbox.read(&aside[0]), torn);
    scene.provider.finish();
}

#[test]
fn a_bad_line_in_the_middle_is_named_and_nothing_is_touched() {
    let scene = killed();
    let path = scene.sandbox.session_dir().join("session.jsonl");
    let whole = scene.sandbox.read(&path);
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let swap = |n: usize, with: &str| {
        let mut lines = lines.clone();
        lines[n - 1] = with;
        lines.concat()
    };
    let gap: String = lines[..3].iter().chain(&lines[4..]).copied().collect();
    for (text, line) in [(swap(5, "{\"seq\":4,\n"), 5), (swap(4, "\n"), 4), (swap(1, "{}\n"), 1), (gap, 4)] {
        scene.sandbox.write(&path, &text);
        let refused = scene.resume(&[]).expect_code(31);
        let named = format!("session.jsonl: line {line}: ");
        assert!(refused.stderr.contains(&named), "{named}: {}", refused.stderr);
        assert_eq!(scene.sandbox.read(&path), text, "left as it is");
    }
    scene.sandbox.write(&path, &whole);
    scene.resume(&[]).expect_code(0);
    scene.provider.finish();
}

#[test]
fn an_empty_log_is_unusable_and_a_newer_one_is_refused() {
    let scene = killed();
    let path = scene.sandbox.session_dir().join("session.jsonl");
    let whole = scene.sandbox.read(&path);
    let id = scene.id();
    for text in ["".to_owned(), whole.replacen("\"v\":1", "\"v\":2", 1)] {
        scene.sandbox.write(&path, &text);
        let refused = scene.sandbox.run(["run", "--resume", &id]).expect_code(31);
        assert!(!refused.stderr.contains("panicked"), "{}", refused.stderr);
        assert_eq!(scene.sandbox.read(&path), text);
    }
    let newer = scene.sandbox.run(["run", "--resume", &id]);
    assert!(newer.stderr.contains("newer"), "{}", newer.stderr);
    scene.provider.finish();
}

#[test]
fn derived_files_that_are_gone_are_made_again() {
    let scene = killed();
    let dir = scene.sandbox.session_dir();
    let events = json_lines(&dir.join("events.jsonl"));
    for file in ["events.jsonl", "metadata.json", "status.json", "tasks.json", "result.json", "summary.md"] {
        let _ = std::fs::remove_file(dir.join(file));
    }
    let finished = scene.resume(&[]).expect_code(0);
    audit(&scene, &finished, 1);
    let kinds = |events: &[serde_json::Value]| -> Vec<String> {
        // What only happened and was never a fact is not made again.
        let kept = events.iter().map(|event| event["type"].as_str().expect("a type").to_owned());
        kept.filter(|kind| kind != "step.started" && kind != "run.waiting").collect()
    };
    let (before, now) = (kinds(&events), kinds(&json_lines(&dir.join("events.jsonl"))));
    assert_eq!(now[..before.len()], before, "the events of the killed run");
    assert_eq!(now.last().map(String::as_str), Some("run.finished"));
    for file in ["metadata.json", "status.json", "tasks.json", "result.json", "summary.md"] {
        assert!(dir.join(file).is_file(), "{file}");
    }
    scene.provider.finish();
}

#[test]
fn an_ephemeral_run_leaves_nothing() {
    let sandbox = Sandbox::new();
    let provider = goal(&sandbox);
    let finished = sandbox.run(["run", "--ephemeral", "--json", "--goal", "../goal.yaml"]).expect_code(0);
    assert_eq!(sandbox.read("made.txt"), "made\n");
    let result = finished.result();
    assert_eq!((&result["outcome"], &result["paths"]), (&"met".into(), &serde_json::Value::Null));
    assert_eq!(result["commands"]["resume"], serde_json::Value::Null);
    let left = sandbox.sh("find ../home ../tmp ../run -type f -not -path '*/locks/*'; find ../tmp ../run -mindepth 1");
    assert_eq!(left, "");
    provider.finish();
}

#[test]
fn an_ephemeral_run_that_is_interrupted_leaves_nothing() {
    let sandbox = Sandbox::new();
    let provider = Script::new().agent(Reply::text("never").stall()).start();
    sandbox.goal(&provider, "goal: Wait.\n");
    let running = sandbox.spawn(["run", "--ephemeral", "--goal", "../goal.yaml"]);
    provider.wait_for_request(1, PATIENCE);
    running.signal(rustix::process::Signal::TERM);
    assert_eq!(running.wait(PATIENCE).signal, Some(libc::SIGTERM));
    let left = sandbox.sh("find ../home ../tmp ../run -type f -not -path '*/locks/*'; find ../tmp ../run -mindepth 1");
    assert_eq!(left, "");
    provider.finish();
}

/// Every line of a log parses, and the file ends with one.
#[track_caller]
fn assert_whole(path: &std::path::Path) {
    let text = std::fs::read_to_string(path).expect("the log");
    assert!(text.is_empty() || text.ends_with('\n'), "it ends with a whole line: …{:?}", text.get(text.len() - 80..));
    for line in text.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}

#[test]
fn a_limit_on_file_sizes_is_an_error_and_no_death() {
    // In blocks of 1024 bytes: at once, in the log, in the record of the bytes.
    for blocks in [2, 20, 40] {
        let script = Script::new().agent(worker(|n| format!("echo {n}; head -c 3000 /dev/zero | tr '\\0' x")));
        let provider = script.judge(judge(50)).start();
        let sandbox = Sandbox::new();
        sandbox.goal(&provider, "goal: Write.\nlimits: {iterations: 60, stall: 60}\n");
        let script = format!("ulimit -f {blocks}; \"$SPETTRO\" run --goal ../goal.yaml; echo $? >&2; exit");
        let finished = shell(&sandbox, &script);
        assert!(finished.stderr.ends_with("\n23\n"), "{blocks}: {}", finished.stderr);
        assert!(finished.stderr.contains("File too large"), "{blocks}: {}", finished.stderr);
        for dir in sandbox.session_dirs() {
            assert_whole(&dir.join("session.jsonl"));
        }
    }
}

#[test]
fn a_full_disk_ends_the_run_with_a_whole_log() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.root().join("small")).expect("the sandbox is writable");
    let can = "unshare -m bash -c 'mount -t tmpfs -o size=64k none ../small'";
    if shell(&sandbox, can).code != Some(0) {
        return skipped("no small disk can be mounted here");
    }
    let script = Script::new().agent(worker(|n| format!("echo {n}; head -c 3000 /dev/zero | tr '\\0' x")));
    let provider = script.judge(judge(50)).start();
    sandbox.goal(&provider, "goal: Write.\nlimits: {iterations: 60, stall: 60}\n");
    // The mount is the shell's own and goes with it, so what is to be looked at is copied out.
    let inside = "mount -t tmpfs -o size=64k none ../small
        SPETTRO_HOME=../small/home \"$SPETTRO\" run --goal ../goal.yaml; code=$?
        cp -r ../small/home ../copied; exit $code";
    std::fs::write(sandbox.root().join("inside"), inside).expect("the sandbox is writable");
    let finished = shell(&sandbox, "exec unshare -m bash ../inside").expect_code(23);
    assert!(finished.stderr.contains("No space left on device"), "{}", finished.stderr);
    assert!(finished.stderr.contains("hint: free some space"), "{}", finished.stderr);
    let logs = sandbox.sh("find ../copied/sessions -name session.jsonl");
    let log = sandbox.workspace().join(logs.trim());
    assert_whole(&log);
    let lines = json_lines(&log);
    assert!(lines.len() > 6, "it ran for a while: {}", lines.len());

    // With room again it goes on.
    sandbox.set("SPETTRO_HOME", sandbox.root().join("copied").to_str().expect("UTF-8"));
    provider.allow_rewrite();
    let again = sandbox.run(["run", "--resume", "latest", "--max-iterations", "1", "--json"]);
    assert!(matches!(again.code, Some(0 | 10)), "{:?}: {}", again.code, again.stderr);
    let _ = provider.take_problems();
}

#[test]
fn an_old_result_does_not_survive_a_run_that_is_killed() {
    let sandbox = Sandbox::new();
    let provider = Script::new().agent(Reply::text("never").stall()).start();
    sandbox.goal(&provider, "goal: Wait.\n");
    sandbox.write("../own.json", "{\"state\": \"finished\", \"outcome\": \"met\"}\n");
    let running = sandbox.spawn(["run", "--goal", "../goal.yaml", "-o", "../own.json"]);
    provider.wait_for_request(1, PATIENCE);
    running.kill();
    let own: serde_json::Value = serde_json::from_str(&sandbox.read("../own.json")).expect("a result");
    assert_eq!((&own["state"], &own["outcome"]), (&"running".into(), &serde_json::Value::Null), "{own}");
    provider.finish();
}
