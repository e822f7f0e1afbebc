//! `--tools live`: recorded replies, and tools that really run in a scratch copy.

use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::json;

use super::support::{Recording, Replayed, assert_left_nothing, really, refused};
use crate::provider::{Gate, Reply, Script};
use crate::resume::support::{LASTING, alive, eventually};
use crate::sandbox::{PATIENCE, Sandbox};

const LIVE: [&str; 3] = ["--tools", "live", "--trust"];

fn met() -> Reply {
    Reply::verdict("met", "yes", "")
}

fn repository() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("src/a.txt", "one\n");
    sandbox.write("src/b.txt", "two\n");
    sandbox.write(".gitignore", "ignored\n");
    sandbox.git_init();
    sandbox
}

/// Commands, checks and tools for files over two iterations; one command prints where it is.
fn busy() -> Script {
    Script::new()
        .agent(Reply::bash("pwd; echo three >> src/a.txt; rm src/b.txt; git status --short"))
        .agent(
            Reply::call("file-read", json!({"path": "src/a.txt"}))
                .and_call("file-edit", json!({"path": "src/a.txt", "old_string": "three", "new_string": "drei"}))
                .and_call("file-write", json!({"path": "new/c.txt", "content": "four\n"}))
                .and_call("grep", json!({"pattern": "drei"}))
                .and_call("glob", json!({"pattern": "**/*.txt"})),
        )
        .agent(Reply::text("One."))
        .agent(Reply::bash("mv new newer; cat newer/c.txt; exit 3"))
        .agent(Reply::complete("done"))
        .judge(Reply::verdict("unmet", "no", "more"))
        .judge(met())
}

const CHECKS: &str = "checks: [{name: counts, run: 'test -f src/a.txt; wc -l < src/a.txt'}]\n";

fn live(recording: &Recording) -> Replayed {
    let asked = recording.provider.requests().len();
    let replayed = really(&recording.sandbox.session_dir(), &LIVE);
    assert_eq!(recording.provider.requests().len(), asked, "the model is the recording");
    replayed
}

#[track_caller]
fn expect_all(replayed: &Replayed) {
    replayed.expect_same();
    assert_eq!(replayed.report["tools"], "live");
    assert!(replayed.report["processes"].as_u64() > Some(0), "something ran: {:#}", replayed.report);
    assert!(replayed.report["sandbox"].is_string(), "{:#}", replayed.report);
    for what in ["files", "trees"] {
        assert_eq!(replayed.standing(what), "identical", "{:#}", replayed.report);
    }
    assert_eq!(replayed.finished.code, Some(0), "{:#}", replayed.report);
}

#[test]
fn tools_run_in_a_copy_and_give_the_same() {
    let recording = Recording::in_place(repository(), busy(), &format!("goal: x\n{CHECKS}"));
    recording.run(0);
    // What the run did stands here; the replay begins where the run did, and touches nothing of it.
    recording.sandbox.write("src/a.txt", "mine\n");
    let before = recording.sandbox.sh("git status --short; git log --oneline; cat src/a.txt; ls -R");
    expect_all(&live(&recording));
    assert_eq!(recording.sandbox.sh("git status --short; git log --oneline; cat src/a.txt; ls -R"), before);
}

#[test]
fn a_workspace_without_git_and_files_that_were_never_looked_at() {
    let sandbox = Sandbox::new();
    sandbox.write("data/one.txt", "1\n");
    sandbox.write("data/run.sh", "cat data/one.txt; echo $1 > made.txt\n");
    let script = Script::new().agent(Reply::bash("sh data/run.sh x; ls")).agent(Reply::complete("done")).judge(met());
    let recording = Recording::in_place(sandbox, script, "goal: x\n");
    recording.run(0);
    recording.sandbox.sh("rm -r data made.txt");
    expect_all(&live(&recording));
    // A cassette holds what tools for files looked at, and that is not all of it.
    let file = super::sealed::packed(&recording);
    let said = refused(&file, &LIVE, 31);
    assert!(said.contains("data/one.txt"), "{said}");
}

#[test]
fn the_first_result_that_differs_ends_it_and_is_shown() {
    let root = Sandbox::new();
    let state = root.write("state", "before\n");
    let command = format!("cat {}; echo x > a.txt", state.display());
    let script = Script::new()
        .agent(Reply::bash("echo fine"))
        .agent(Reply::bash(&command))
        .agent(Reply::bash(&format!("echo ran >> {}", root.root().join("tmp/later").display())))
        .agent(Reply::complete("done"))
        .judge(met());
    let recording = Recording::in_place(repository(), script, "goal: x\nsandbox: {files: off}\n");
    recording.run(0);
    std::fs::remove_file(root.root().join("tmp/later")).expect("the run made it");
    std::fs::write(&state, "after\n").expect("written");
    let replayed = live(&recording);
    let first = replayed.first();
    assert_eq!((&first["what"], &first["step"]), (&json!("tools"), &json!(2)), "{:#}", replayed.report);
    assert_eq!(first["diff"], json!(["- before", "+ after"]), "{first:#}");
    assert!(first["text"].as_str().is_some_and(|text| text.contains("cat ")), "{first:#}");
    assert!(!root.root().join("tmp/later").exists(), "nothing ran behind it");
}

#[test]
fn another_ending_and_another_result_of_a_tool_for_files_are_differences() {
    let root = Sandbox::new();
    let flag = root.write("flag", "");
    let script = || Script::new().agent(Reply::bash(&format!("test -e {}", flag.display())));
    let recording = Recording::in_place(repository(), script().agent(Reply::complete("x")).judge(met()), "goal: x\n");
    recording.run(0);
    std::fs::remove_file(&flag).expect("it is there");
    let replayed = live(&recording);
    let text = replayed.first()["text"].as_str().unwrap_or_default().to_owned();
    assert!(text.contains("exits with 1 instead of exits with 0"), "{text}");

    // The command says nothing, and the file says it.
    std::fs::write(&flag, "one").expect("written");
    let script = Script::new()
        .agent(Reply::bash(&format!("cp {} copy.txt", flag.display())))
        .agent(Reply::call("file-read", json!({"path": "copy.txt"})))
        .agent(Reply::complete("x"))
        .judge(met());
    let recording = Recording::in_place(repository(), script, "goal: x\n");
    recording.run(0);
    std::fs::write(&flag, "two").expect("written");
    let replayed = live(&recording);
    let first = replayed.first();
    assert!(first["text"].as_str().is_some_and(|text| text.contains("copy.txt")), "{first:#}");
    assert!(first["diff"].to_string().contains("two"), "{first:#}");
}

#[test]
fn a_workspace_that_differs_behind_the_same_results_is_a_divergence() {
    let root = Sandbox::new();
    let flag = root.write("flag", "one");
    let script = Script::new()
        .agent(Reply::bash(&format!("cp {} copy.txt", flag.display())))
        .agent(Reply::complete("x"))
        .judge(met());
    let recording = Recording::in_place(repository(), script, "goal: x\n");
    recording.run(0);
    std::fs::write(&flag, "two").expect("written");
    let replayed = live(&recording);
    assert_eq!(replayed.standing("trees"), "diverged", "{:#}", replayed.report);
    assert_eq!(replayed.finished.code, Some(30));
}

#[test]
fn it_needs_trust_and_goes_with_few_other_flags() {
    let recording = Recording::in_place(repository(), busy(), &format!("goal: x\n{CHECKS}"));
    recording.run(0);
    let dir = recording.sandbox.session_dir();
    let said = refused(&dir, &["--tools", "live"], 2);
    assert!(said.contains("--trust"), "{said}");
    refused(&dir, &["--tools", "live", "--trust", "--perturb"], 2);
    refused(&dir, &["--trust"], 2);
    refused(&dir, &["--repo", "."], 2);
    refused(&dir, &["--tools", "live", "--trust", "--repo", "/nonexistent/repository"], 2);
}

#[test]
fn a_cassette_takes_the_rest_from_the_named_commit() {
    let recording = Recording::in_place(repository(), busy(), &format!("goal: x\n{CHECKS}"));
    recording.run(0);
    let file = super::sealed::packed(&recording);
    let repo = |folder: &Path| {
        LIVE.into_iter().map(str::to_owned).chain(["--repo".to_owned(), text(folder)]).collect::<Vec<_>>()
    };
    let really_in = |folder: &Path| really(&file, &repo(folder).iter().map(String::as_str).collect::<Vec<_>>());
    let refused_in = |folder: &Path| refused(&file, &repo(folder).iter().map(String::as_str).collect::<Vec<_>>(), 31);
    expect_all(&really(&file, &LIVE));

    // The recorded path is gone, and what is named does not hold the commit.
    let elsewhere = recording.sandbox.root().join("moved");
    std::fs::rename(recording.sandbox.workspace(), &elsewhere).expect("moved");
    let said = refused(&file, &LIVE, 31);
    assert!(said.contains("fetch-depth: 0") && said.contains("--repo"), "{said}");
    let other = repository();
    other.sh("git commit -q --allow-empty -m other");
    let said = refused_in(&other.workspace());
    assert!(said.contains("fetch-depth: 0"), "{said}");
    expect_all(&really_in(&elsewhere));
    // A shallow clone has only the newest commit.
    std::fs::create_dir(recording.sandbox.workspace()).expect("made");
    let (from, to) = (elsewhere.display(), recording.sandbox.root().join("shallow"));
    recording.sandbox.sh(&format!(
        "git -C {from} add -A; git -C {from} commit -qm later; git clone -q --depth 1 file://{from} {}",
        to.display()
    ));
    refused_in(&to);
}

fn text(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}

/// Processes with a word in their command line.
fn with(word: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).contains(word) && alive(pid) {
            found.push(pid);
        }
    }
    found
}

#[test]
fn jobs_end_with_the_replay() {
    let script = Script::new()
        .agent(Reply::call("bash", json!({"command": "exec sleep 98765.25", "run_in_background": true})))
        .agent(Reply::bash("echo beside"))
        .agent(Reply::complete("done"))
        .judge(met());
    let recording = Recording::in_place(repository(), script, "goal: x\n");
    recording.run(0);
    assert_eq!(with("sleep 98765.25"), Vec::<i32>::new());
    let replayed = live(&recording);
    replayed.expect_same();
    assert_eq!(with("sleep 98765.25"), Vec::<i32>::new());
}

#[test]
fn a_job_is_waited_for_as_long_as_it_takes() {
    let script = Script::new()
        .agent(Reply::call("bash", json!({"command": "sleep 0.3; echo made > made.txt", "run_in_background": true})))
        .agent(Reply::call("wait", json!({"job_id": "job-1", "timeout": 30})))
        .agent(Reply::bash("cat made.txt"))
        .agent(Reply::complete("done"))
        .judge(met());
    let recording = Recording::in_place(repository(), script, "goal: x\n");
    recording.run(0);
    expect_all(&live(&recording));
}

#[test]
fn a_job_that_ended_while_the_model_thought_is_waited_for() {
    let gate = Gate::new();
    let script = Script::new()
        .agent(Reply::call("bash", json!({"command": "sleep 0.4; echo made > made.txt", "run_in_background": true})))
        .agent(Reply::bash("echo beside").held(&gate))
        .agent(Reply::bash("cat made.txt"))
        .agent(Reply::complete("done"))
        .judge(met());
    let recording = Recording::in_place(repository(), script, "goal: x\n");
    let running = recording.sandbox.spawn(["run", "--goal", recording.goal.to_str().expect("UTF-8")]);
    eventually("the job is over", || recording.sandbox.exists("made.txt") && with("echo made > made.txt").is_empty());
    gate.release();
    running.wait(PATIENCE).expect_code(0);
    let lines = recording.sandbox.session_lines();
    assert!(lines.iter().any(|line| line["kind"] == "delivery"), "its end was delivered");
    expect_all(&live(&recording));
}

#[test]
fn a_run_that_was_stopped_in_a_command_and_its_resume() {
    let script = Script::new()
        .agent(Reply::bash("echo one >> a.txt"))
        .agent(Reply::bash(LASTING))
        .agent(Reply::bash("cat a.txt"))
        .agent(Reply::complete("done"))
        .judge(met());
    let recording = Recording::in_place(repository(), script, "goal: x\n");
    let running = recording.sandbox.spawn(["run", "--goal", recording.goal.to_str().expect("UTF-8")]);
    eventually("the command has begun", || recording.sandbox.exists("pids"));
    running.signal(Signal::TERM);
    running.wait(PATIENCE);
    live(&recording).expect_same();
    recording.sandbox.run(["run", "--resume", "latest"]).expect_code(0);
    let replayed = live(&recording);
    replayed.expect_same();
    assert_eq!(replayed.report["runs"], 2);
}

#[test]
fn what_a_check_says_about_time_is_no_difference_and_its_ending_is() {
    let root = Sandbox::new();
    let flag = root.write("flag", "");
    let check = format!("test -e {} && echo done in 0.$(date +%N)s", flag.display());
    let script = Script::new().agent(Reply::complete("x")).judge(met());
    let recording = Recording::in_place(repository(), script, &format!("goal: x\nchecks: ['{check}']\n"));
    recording.run(0);
    expect_all(&live(&recording));
    std::fs::remove_file(&flag).expect("it is there");
    let replayed = live(&recording);
    let first = replayed.first();
    assert!(first["text"].as_str().is_some_and(|text| text.contains("exits with 1")), "{first:#}");
}

#[test]
fn setup_runs_too_for_what_git_ignores() {
    let script = Script::new().agent(Reply::bash("cat ignored")).agent(Reply::complete("x")).judge(met());
    let goal = "goal: x\nsetup: ['echo made > ignored; date +%N']\n";
    let recording = Recording::in_place(repository(), script, goal);
    recording.run(0);
    expect_all(&live(&recording));
}

#[test]
fn a_signal_ends_what_runs_and_leaves_nothing() {
    let sandbox = repository();
    let slow: PathBuf = sandbox.root().join("slow");
    let command = format!("if test -e {}; then sleep 98765.75; fi; echo done", slow.display());
    let script = Script::new().agent(Reply::bash(&command)).agent(Reply::complete("done")).judge(met());
    let recording = Recording::in_place(sandbox, script, "goal: x\n");
    recording.run(0);
    std::fs::write(&slow, "").expect("written");
    let elsewhere = Sandbox::new();
    let dir = recording.sandbox.session_dir();
    let words = ["replay", dir.to_str().expect("UTF-8"), "--tools", "live", "--trust"];
    let running = elsewhere.spawn(words);
    eventually("the command has begun", || !with("sleep 98765.75").is_empty());
    running.signal(Signal::TERM);
    let finished = running.wait(PATIENCE);
    assert_eq!((finished.code, finished.signal), (None, Some(15)), "{finished:?}");
    assert_eq!(with("98765.75"), Vec::<i32>::new());
    assert_left_nothing(&elsewhere);
}

#[test]
fn the_sandbox_holds_in_it_too() {
    let outside = Sandbox::new();
    let victim = outside.write("precious.txt", "keep me\n");
    let command = format!("echo no > {} || echo refused", victim.display());
    let script = Script::new().agent(Reply::bash(&command)).agent(Reply::complete("done")).judge(met());
    let recording = Recording::in_place(repository(), script, "goal: x\n");
    recording.run(0);
    if read(&victim) != "keep me\n" {
        println!("skipped: this machine gives no sandbox for files");
        return;
    }
    live(&recording).expect_same();
    assert_eq!(read(&victim), "keep me\n");
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("a file")
}
