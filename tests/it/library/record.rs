//! Records the runs of `cassettes/` anew: `cargo test --test it library::record -- --ignored`, on one thread, with
//! nothing at `/tmp/demo`. What a recording says of its machine is that it is Linux.

use std::fmt::Write;

use serde_json::json;

use super::folder;
use crate::compaction::support::steps;
use crate::provider::{Reply, Script};
use crate::sandbox::Sandbox;

/// A run to be recorded.
struct Run {
    name: &'static str,
    script: Script,
    goal: &'static str,
    /// What each of its runs ends with; all but the first are resumes, with these flags.
    runs: &'static [(i32, &'static [&'static str])],
    /// What its replay ends with, and why that is not 0.
    replay: (i32, &'static str),
}

const EFFECTS: (i32, &str) = (32, "what commands did to files was not recorded (`record: effects`)");

fn runs() -> Vec<Run> {
    vec![met_at_once(), three_iterations(), compaction(), jobs(), verdicts(), resumed(), edits()]
}

fn met(reason: &str) -> Reply {
    Reply::verdict("met", reason, "")
}

fn unmet(reason: &str, next: &str) -> Reply {
    Reply::verdict("unmet", reason, next)
}

fn met_at_once() -> Run {
    let script = Script::new()
        .agent(Reply::text("I look whether it is there.").and_call("file-read", json!({"path": "notes.txt"})))
        .agent(Reply::complete("notes.txt lists the three harbours."))
        .judge(met("The three harbours are listed."));
    let goal =
        "goal: notes.txt lists three harbours.\nchecks: [{name: listed, run: 'test $(wc -l < notes.txt) -eq 3'}]\n";
    Run { name: "met-at-once", script, goal, runs: &[(0, &[])], replay: (0, "") }
}

fn three_iterations() -> Run {
    let todo = json!({"todos": [
        {"content": "read the list", "status": "completed"}, {"content": "count the letters", "status": "in_progress"}]});
    let script = Script::new()
        .agent(Reply::error(529).header("retry-after-ms", "20"))
        .agent(Reply::thinking("First the list.").and_call("file-read", json!({"path": "notes.txt"})))
        .agent(Reply::complete("The longest name is Marseille."))
        .judge(unmet("Nothing was counted.", "Count the letters of each name."))
        .agent(
            Reply::call("todo-write", todo)
                .and_call("bash", json!({"command": "awk '{ print length($0), $0 }' notes.txt"})),
        )
        .agent(Reply::call("grep", json!({"pattern": "M"})).and_call("bash", json!({"command": "seq 1 3000"})))
        .agent(Reply::call("tool-output", json!({"id": 1})))
        .agent(Reply::complete("Marseille has nine letters."))
        .judge(unmet("Only one was counted.", "Name the other two as well."))
        .agent(Reply::call("glob", json!({"pattern": "**/*.txt"})).and_call("bash", json!({"command": "exit 3"})))
        .agent(Reply::complete("Marseille 9, Hamburg 7, Porto 5."))
        .judge(Reply::verdict_with(json!({
            "verdict": "met", "reason": "All three were counted.", "next_step": "",
            "criteria": [{"index": 1, "met": true, "evidence": "three names with their numbers"}]})));
    let goal = "goal: Say which harbour of notes.txt has the longest name, and how many letters each one has.\n\
                criteria: [Every name was counted]\n\
                checks: [{name: unchanged, run: 'sha256sum notes.txt; seq 1 400'}]\n";
    Run { name: "three-iterations", script, goal, runs: &[(0, &[])], replay: (0, "") }
}

fn compaction() -> Run {
    let script = Script::new()
        .allow_rewrite()
        .agent(steps(40, 900))
        .summarizer(Reply::text("I would rather not.").forever())
        .judge(met("It was counted to the end."));
    let goal = "goal: Count to forty.\n\
                limits: {steps: 100, steps_per_iteration: 100, cost: 50.00}\n\
                compaction: {max_failures: 2}\n\
                window: 16000\n";
    Run { name: "compaction-fails", script, goal, runs: &[(0, &[])], replay: (0, "") }
}

fn jobs() -> Run {
    let lines = "for i in 1 2 3; do echo line $i; sleep 0.1; done";
    let script = Script::new()
        .agent(Reply::call("bash", json!({"command": lines, "run_in_background": true})))
        .agent(Reply::bash("sleep 0.2; echo beside it"))
        .agent(Reply::call("wait", json!({"job_id": "job-1", "timeout": 20})))
        .agent(
            Reply::call("job-output", json!({"job_id": "job-1"}))
                .and_call("bash", json!({"command": "sleep 100", "run_in_background": true})),
        )
        .agent(Reply::call("job-kill", json!({"job_id": "job-2"})))
        .agent(Reply::bash("echo and so on").forever())
        .judge(unmet("It never ends.", "End it.").forever());
    let goal = "goal: Watch a job to its end, then another.\nlimits: {steps: 8, iterations: 2}\n";
    Run { name: "jobs-and-a-limit", script, goal, runs: &[(10, &[])], replay: (0, "") }
}

fn verdicts() -> Run {
    let script = Script::new()
        .agent(Reply::refusal("I cannot help with that."))
        .agent(Reply::text("The list has three lines.").and_call("bash", json!({"command": "wc -l notes.txt"})))
        .agent(Reply::complete("Three."))
        .judge(Reply::text("I think so."))
        .judge(Reply::verdict("perhaps", "Who knows.", ""))
        .judge(met("Three lines were counted."));
    let goal = "goal: Count the lines of notes.txt.\n";
    Run { name: "refusal-and-repair", script, goal, runs: &[(0, &[])], replay: (0, "") }
}

fn resumed() -> Run {
    let script = Script::new()
        .agent(Reply::bash("head -n 1 notes.txt"))
        .agent(Reply::bash("tail -n 1 notes.txt"))
        .agent(Reply::complete("From Hamburg to Porto."))
        .judge(unmet("The middle is missing.", "Read on."))
        .judge(met("First and last were named."));
    let goal = "goal: Name the first and the last harbour.\nlimits: {steps: 1}\n";
    let runs: &[(i32, &[&str])] = &[(10, &[]), (0, &["--max-steps", "9"])];
    Run { name: "resumed", script, goal, runs, replay: (0, "") }
}

fn edits() -> Run {
    let script = Script::new()
        .agent(Reply::call("file-read", json!({"path": "notes.txt"})))
        .agent(
            Reply::call("file-edit", json!({"path": "notes.txt", "old_string": "Porto", "new_string": "Lisboa"}))
                .and_call("file-write", json!({"path": "new/list.md", "content": "# Harbours\n"})),
        )
        .agent(Reply::bash("cat notes.txt >> new/list.md; ls -1 new"))
        .agent(Reply::complete("The list has Lisboa."))
        .judge(met("It has."));
    let goal = "goal: Put Lisboa in the place of Porto, and make a list of them.\n\
                checks: [{name: replaced, run: grep -q Lisboa new/list.md}]\n";
    Run { name: "edits", script, goal, runs: &[(0, &[])], replay: EFFECTS }
}

#[test]
#[ignore = "writes the recorded runs of cassettes/ anew"]
fn the_library() {
    let mut table = "# file\texit code of its replay\twhy it is not 0\n".to_owned();
    for Run { name, script, goal, runs, replay: (code, why) } in runs() {
        let sandbox = Sandbox::named("demo");
        sandbox.write("notes.txt", "Hamburg\nMarseille\nPorto\n");
        let provider = script.start();
        let window = if goal.contains("window: 16000\n") { "16000" } else { "200000" };
        let model = sandbox.model_yaml(&provider, "scripted/replies").replace("200000", window).replace("8192", "1024");
        let prices = "prices: {\"scripted/replies\": {input: 3.00, output: 15.00}}\n";
        let text = goal.replace("window: 16000\n", "");
        let goal = sandbox.goal(&provider, &format!("name: {name}\n{text}{model}{prices}"));
        let goal = goal.to_str().expect("UTF-8");
        for (index, (code, flags)) in runs.iter().enumerate() {
            let mut words = vec!["run", "--goal", goal];
            if index > 0 {
                words = vec!["run", "--resume", "latest"];
            }
            words.extend(*flags);
            sandbox.run(words).expect_code(*code);
        }
        let file = format!("{name}.cassette.zst");
        let path = folder().join(&file);
        sandbox.run(["cassette", "pack", "latest", "--force", "-o", path.to_str().expect("UTF-8")]).expect_code(0);
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = host.trim();
        assert!(host.is_empty() || !super::plain(&path).contains(host), "{name} names this machine");
        let _ = writeln!(table, "{file}\t{code}\t{why}");
    }
    // What other servers said is recorded by `ci/peers`.
    for row in super::table().into_iter().filter(|row| runs().iter().all(|run| !row.file.starts_with(run.name))) {
        let _ = writeln!(table, "{}\t{}\t{}", row.file, row.code, row.why);
    }
    std::fs::write(folder().join("replays.tsv"), table).expect("written");
}
