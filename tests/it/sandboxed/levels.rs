//! What a kernel keeps of a policy, and what a run does when it does not.

use super::support::{Cell, landlock};

/// What only Landlock 6 gives.
const SCOPE: &str = "signals to processes outside and to threads of the runner";

#[test]
fn without_a_policy_a_run_takes_what_there_is_and_says_what_is_missing() {
    if !landlock(6) {
        return;
    }
    let cell = Cell::new();
    let lacks: [(&str, &[&str]); 7] = [
        ("0", &["files", SCOPE, "abstract sockets"]),
        ("1", &["moving files between folders", "truncation", "device control", SCOPE, "abstract sockets"]),
        ("2", &["truncation", "device control", SCOPE, "abstract sockets"]),
        ("4", &["device control", SCOPE, "abstract sockets"]),
        ("5", &[SCOPE, "abstract sockets"]),
        ("6", &[]),
        ("7", &[]),
    ];
    for (abi, names) in lacks {
        let (finished, provider) = cell.run("", &["--pretend-landlock", abi]);
        let finished = finished.expect_code(0);
        let level = finished.result()["sandbox"].as_str().expect("a level").to_owned();
        assert!(level.starts_with(&format!("workspace-write, network all; pretending Landlock {abi}")), "{level}");
        let missing = level.split_once("; missing:").map_or("", |(_, missing)| missing);
        let missing = missing.split("; ").next().unwrap_or_default();
        let found: Vec<&str> = missing
            .split(',')
            .filter(|part| !part.is_empty())
            .map(|part| part.split(" (needs").next().unwrap().trim())
            .collect();
        assert_eq!(found, names, "{level}");
        assert_eq!(finished.events_of("run.started").pop().expect("an event")["sandbox"], level.as_str());
        let summary = std::fs::read_to_string(cell.sandbox.session_dir().join("summary.md")).expect("a summary");
        assert!(summary.contains("pretending Landlock"), "{summary}");
        let told = finished.stderr.lines().filter(|line| line.contains(&level)).count();
        assert_eq!(told, 1, "{}", finished.stderr);
        provider.finish();
    }
}

#[test]
fn a_written_policy_that_cannot_be_kept_ends_the_run_before_anything_starts() {
    let cell = Cell::new();
    let cases: [(&str, &[&str], &str, &str); 6] = [
        ("sandbox: {files: workspace-write}\n", &[], "0", "files"),
        ("", &["--sandbox", "workspace-write"], "0", "files"),
        ("", &["--sandbox", "read-only"], "2", "truncation"),
        ("", &["--set", "sandbox.write=[.]"], "1", "truncation"),
        ("sandbox: {network: [443], files: off}\n", &[], "3", "ports"),
        ("sandbox: {network: none}\n", &[], "0", "files"),
    ];
    for (goal, flags, abi, names) in cases {
        let mut all = vec!["--pretend-landlock", abi];
        all.extend(flags);
        let (finished, provider) = cell.run(goal, &all);
        let finished = finished.expect_code(23);
        assert!(finished.stderr.contains(names) && finished.stderr.contains("needs Landlock"), "{}", finished.stderr);
        assert!(finished.stderr.contains("`--sandbox off`"), "{}", finished.stderr);
        assert!(provider.requests().is_empty());
        assert!(cell.sandbox.session_dirs().is_empty(), "no session was begun");
    }
}

#[test]
fn a_written_policy_that_can_be_kept_is_kept() {
    let cell = Cell::new();
    // Nothing of these needs more than filters of system calls.
    for (goal, level) in
        [("sandbox: {files: off, network: none}\n", "off, network none"), ("sandbox: {files: off}\n", "off")]
    {
        let (finished, provider) = cell.run(goal, &[]);
        let finished = finished.expect_code(0);
        assert_eq!(finished.result()["sandbox"], level);
        provider.finish();
    }
    if landlock(3) {
        let (finished, provider) = cell.run("", &["--sandbox", "workspace-write", "--pretend-landlock", "3"]);
        finished.expect_code(0);
        provider.finish();
    }
}

#[test]
fn a_workspace_that_holds_the_home_directory_or_the_store_is_refused() {
    let cell = Cell::new();
    let root = cell.sandbox.root();
    let workspace = format!("workspace: {}\n", root.display());
    let (finished, provider) = cell.run(&workspace, &[]);
    let finished = finished.expect_code(2);
    assert!(finished.stderr.contains("contains the home directory"), "{}", finished.stderr);
    assert!(finished.stderr.contains("--sandbox off"), "{}", finished.stderr);
    assert!(provider.requests().is_empty());
    let (finished, provider) = cell.run("", &["--session-dir", "sessions"]);
    let finished = finished.expect_code(2);
    assert!(finished.stderr.contains("contains the session store"), "{}", finished.stderr);
    assert!(provider.requests().is_empty());
    let (finished, provider) = cell.run(&workspace, &["--sandbox", "off"]);
    finished.expect_code(0);
    provider.finish();
}

#[test]
fn a_resume_keeps_the_sandbox_that_was_written_and_only_that() {
    if !landlock(3) {
        return;
    }
    let cell = Cell::new();
    for (goal, code) in
        [("limits: {iterations: 1}\n", 10), ("limits: {iterations: 1}\nsandbox: {files: read-only}\n", 10)]
    {
        let goal = format!("goal: x\n{goal}");
        let script = crate::provider::Script::new()
            .agent(crate::provider::Reply::complete("done"))
            .judge(crate::provider::Reply::verdict("unmet", "no", "go on"))
            .agent(crate::provider::Reply::complete("done"))
            .judge(crate::supervision::support::met());
        let provider = script.start();
        let goal_file = cell.sandbox.goal(&provider, &goal);
        cell.sandbox.run(["run", "--goal", goal_file.to_str().expect("UTF-8")]).expect_code(code);
        let resumed = ["run", "--resume", "latest", "--max-iterations", "5", "--pretend-landlock", "0"];
        let finished = cell.sandbox.run(resumed);
        let written = goal.contains("sandbox");
        let finished = finished.expect_code(if written { 23 } else { 0 });
        if written {
            assert!(finished.stderr.contains("read-only"), "{}", finished.stderr);
        } else {
            provider.finish();
        }
    }
}

#[test]
fn a_dry_run_says_the_level_and_checks_run_in_the_sandbox() {
    if !landlock(3) {
        return;
    }
    let cell = Cell::new();
    let (finished, provider) = cell.run("checks: [{name: out, run: 'echo x > ../out'}]\n", &["--dry-run"]);
    let finished = finished.expect_code(0);
    assert!(finished.stdout.contains("# sandbox: workspace-write, network all"), "{}", finished.stdout);
    assert!(finished.stdout.contains("# check out: fail"), "{}", finished.stdout);
    assert!(provider.requests().is_empty());
    let goal = cell.sandbox.root().join("goal.yaml");
    let finished = cell.sandbox.run(["checks", goal.to_str().expect("UTF-8")]).expect_code(10);
    assert!(finished.stdout.contains("denied"), "{}", finished.stdout);
    let (finished, provider) = cell.run(
        "setup: ['echo x > ../out || echo refused > setup']\nchecks: [{name: setup, run: grep refused setup}]\n",
        &[],
    );
    finished.expect_code(0);
    provider.finish();
    assert!(!cell.sandbox.root().join("out").exists());
}
