//! The verbs, on what a run recorded.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use spettro::cassette::Tape;
use spettro::event::{Lane, Outcome};

use super::{packed, recorded};
use crate::compaction::support::{steps, summary};
use crate::goal::support::{Case, content, met};
use crate::provider::{Reply, Script};
use crate::sandbox::{PATIENCE, json_lines};

#[test]
fn a_session_is_packed_shown_and_verified() {
    let case = recorded();
    case.run().expect(Outcome::Met);
    let sent = case.provider.requests().len();
    let dir = case.sandbox.session_dir();
    let finished = case.sandbox.run(["cassette", "pack", "latest"]).expect_code(0);
    let own = dir.join("run.cassette.zst");
    assert!(finished.stdout.starts_with(own.to_str().expect("a path")), "{}", finished.stdout);
    assert_eq!(own.metadata().expect("made").permissions().mode() & 0o777, 0o600);
    assert!(std::fs::read(&own).expect("read").starts_with(&[0x28, 0xb5, 0x2f, 0xfd]));
    let again = case.sandbox.run(["cassette", "pack", "latest"]).expect_code(2);
    assert!(again.stderr.contains("exists already") && again.stderr.contains("--force"), "{}", again.stderr);
    case.sandbox.run(["cassette", "pack", "latest", "--force"]).expect_code(0);

    let own = own.to_str().expect("a path");
    for named in [own, "latest"] {
        let said = case.sandbox.run(["cassette", "verify", named]).expect_code(0).stdout;
        assert!(said.contains("4 calls, 5 attempts"), "{said}");
    }
    let said = case.sandbox.run(["cassette", "show", own]).expect_code(0).stdout;
    for wanted in
        ["change the notes", "agent: test/model-1, 3 calls, 4 attempts, 3 replies", "outcome: met", "iteration 1"]
    {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert!(
        said.contains("step 1 (2 attempts), $") && said.contains(": First I look.") && said.contains("file-read ok"),
        "{said}"
    );
    let said = case.sandbox.run(["cassette", "show", own, "--json"]).expect_code(0).stdout;
    let shown: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(shown["head"]["format"], "1.0");
    assert_eq!(shown["head"]["parts"], serde_json::json!(["facts", "wire", "spool", "base"]));
    assert_eq!((&shown["lanes"]["judge"]["calls"], &shown["complete"]), (&Value::from(1), &Value::from(true)));
    assert_eq!(shown["head"]["source"]["id_seed"].as_str().map(str::len), Some(64));
    case.sandbox.run(["cassette", "lint", own]).expect_code(0);

    let tape = Tape::of_file(own.as_ref()).expect("read");
    let base = tape.base().expect("a base");
    let file = |name: &str| base.files.iter().find(|file| file.path.as_os_str() == name).expect("listed");
    assert_eq!(tape.blob(&file("notes.txt").sha256).as_deref(), Some(&b"as it was\n"[..]), "it was read");
    assert_eq!(tape.blob(&file("other.txt").sha256), None, "nobody looked at it");
    assert_eq!(tape.exchanges(Lane::Agent)[0].attempts[0].status, Some(529));
    assert!(
        tape.spooled().len() == 1 && tape.spool(1).expect("read").is_some_and(|output| output.ends_with(b"30000\n"))
    );
    assert_eq!(case.provider.requests().len(), sent, "nothing asks a model");
    case.provider.finish();
}

#[test]
fn what_it_cost_and_its_compactions_and_jobs_are_shown() {
    let script = Script::new()
        .allow_rewrite()
        .agent(Reply::call("bash", json!({"command": "echo out; exit 4", "run_in_background": true})))
        .agent(Reply::call("wait", json!({"job_id": "job-1", "timeout": 20})))
        .agent(steps(45, 900))
        .summarizer(summary())
        .judge(met());
    let case = Case::new(script, "goal: x");
    let model =
        case.sandbox.model_yaml(&case.provider, "test/model-1").replace("200000", "16000").replace("8192", "1024");
    let more = "limits: {steps: 600, steps_per_iteration: 600, cost: unlimited}\n";
    case.sandbox.goal(&case.provider, &format!("goal: Count.\n{more}{model}"));
    let ended = case.run().expect(Outcome::Met);
    let file = packed(&case, "run.jsonl");
    let named = file.to_str().expect("a path");

    let said = case.sandbox.run(["cassette", "show", named, "--json"]).expect_code(0).stdout;
    let totals = serde_json::from_str::<Value>(&said).expect("JSON")["totals"].clone();
    assert_eq!(totals["total_cost_usd"].as_f64(), Some(ended.result.total_cost_usd), "{totals:#}");
    let by_lane = &totals["cost_usd"];
    for lane in ["agent", "judge", "summarizer"] {
        assert_eq!(by_lane[lane].as_f64(), ended.result.cost_usd.get(lane).copied(), "{lane}: {totals:#}");
    }
    let compactions = &ended.result.compactions;
    assert!(compactions.summarized > 0, "the history was compacted");
    assert_eq!(totals["compactions"], serde_json::to_value(compactions).expect("JSON"));
    let jobs = totals["jobs"].as_array().expect("a list");
    assert_eq!((jobs.len(), &jobs[0]["job"], &jobs[0]["command"]), (1, &json!("job-1"), &json!("echo out; exit 4")));
    assert!(jobs[0]["state"].as_str().is_some_and(|state| state.contains('4')), "{jobs:?}");

    let said = case.sandbox.run(["cassette", "show", named]).expect_code(0).stdout;
    let has = |wanted: &str| said.lines().any(|line| line.contains(wanted));
    for wanted in ["cost: $", "agent $", "jobs: 1", "job-1 started: echo out; exit 4", "step 1, $", "  summarized: "] {
        assert!(has(wanted), "{wanted}: {said}");
    }
    assert!(has(&format!("{} summarized", compactions.summarized)), "{said}");
    case.provider.finish();
}

#[test]
fn a_stripped_copy_has_replies_only_and_is_a_model() {
    let case = recorded();
    case.run().expect(Outcome::Met);
    let full = packed(&case, "full.cassette.zst");
    let small = case.sandbox.root().join("small.jsonl");
    let (full, small) = (full.to_str().expect("a path"), small.to_str().expect("a path"));
    case.sandbox.run(["cassette", "strip", full, "-o", small]).expect_code(0);
    let text = case.sandbox.read(small);
    for gone in ["as it was", "\"fact\"", "127.0.0.1", case.sandbox.root().to_str().expect("a path")] {
        assert!(!text.contains(gone), "{gone}");
    }
    for file in ["full.cassette.zst", "small.jsonl"] {
        case.sandbox.write("notes.txt", "as it was\n");
        case.sandbox.goal_without_model(&format!("goal: change the notes\nmodel: {{cassette: {file}}}"));
        let ended = case.run().expect(Outcome::Met);
        assert!(ended.result.recorded_model);
        assert_eq!(case.sandbox.read("notes.txt"), "changed");
    }
    case.provider.finish();
}

#[test]
fn two_runs_part_where_they_differ() {
    let script = |second: &str| {
        Script::new()
            .agent(Reply::bash("echo one"))
            .agent(Reply::bash(second))
            .agent(Reply::complete("done"))
            .judge(met())
    };
    let case = Case::new(script("echo two"), "goal: x");
    case.run().expect(Outcome::Met);
    let one = packed(&case, "one.cassette.zst");
    let one = one.to_str().expect("a path");
    let same = case.sandbox.run(["cassette", "diff", one, "latest"]).expect_code(0);
    assert_eq!(same.stdout, "the same requests and replies\n");

    let provider = script("echo three").start();
    case.sandbox.goal(&provider, "goal: x");
    case.run().expect(Outcome::Met);
    let parted = case.sandbox.run(["cassette", "diff", one, "latest"]).expect_code(30).stdout;
    assert!(parted.starts_with("agent call 2: another reply to the same request\n"), "{parted}");
    assert!(parted.contains("echo two") && parted.contains("echo three"), "{parted}");
    provider.finish();
    case.provider.finish();
}

#[test]
fn what_looks_like_a_key_is_not_packed() {
    let key = format!("ghp_{}", "a1B2".repeat(9));
    let script = Script::new().agent(Reply::bash(&format!("echo {key}"))).agent(Reply::complete("done")).judge(met());
    let case = Case::new(script, "goal: x");
    case.run().expect(Outcome::Met);
    let refused = case.sandbox.run(["cassette", "pack", "latest", "-o", "../x.jsonl"]).expect_code(31);
    assert!(refused.stderr.contains(": github-token") && !refused.stderr.contains(&key), "{}", refused.stderr);
    assert!(!case.sandbox.root().join("x.jsonl").exists());
    let allow = ["cassette", "pack", "latest", "-o", "../x.jsonl", "--allow", "github-token"];
    case.sandbox.run(allow).expect_code(0);
    let found = case.sandbox.run(["cassette", "lint", "../x.jsonl"]).expect_code(31);
    assert!(found.stderr.contains("line ") && !found.stderr.contains(&key), "{}", found.stderr);
    // A value that is known is never let through.
    case.sandbox.set("LATER_TOKEN", key);
    case.sandbox.run(["cassette", "lint", "../x.jsonl", "--allow", "github-token", "--allow", "value"]).expect_code(31);
    case.provider.finish();
}

#[test]
fn a_run_packs_itself_at_its_end() {
    let case = Case::new(content(), "goal: x");
    let file = case.sandbox.root().join("run.cassette.zst");
    let named = file.to_str().expect("a path");
    case.with(&["--cassette", named]).expect(Outcome::Met);
    case.sandbox.run(["cassette", "verify", named]).expect_code(0);
    let sent = case.provider.requests().len();
    let refused = case.with(&["--cassette", named]).expect(Outcome::Usage);
    assert!(refused.error().contains("exists already"), "{}", refused.error());
    let refused = case.with(&["--cassette", "no/such/folder/x.zst"]).expect(Outcome::Usage);
    assert!(refused.error().contains("the folder of `--cassette"), "{}", refused.error());
    assert_eq!(case.provider.requests().len(), sent, "refused before anything is spent");
    let other = case.sandbox.root().join("other.jsonl");
    let goal = case.goal.to_str().expect("a path");
    let args = ["run", goal, "--ephemeral", "--cassette", other.to_str().expect("a path")];
    case.sandbox.run(args).expect_code(0);
    case.sandbox.run(["cassette", "verify", other.to_str().expect("a path")]).expect_code(0);
    case.provider.finish();
}

#[test]
fn a_run_packs_itself_on_a_signal_too() {
    let script = Script::new().agent(Reply::bash("echo begun; sleep 600"));
    let case = Case::new(script, "goal: x");
    let file = case.sandbox.root().join("run.cassette.zst");
    let started = case.start(&["--cassette", file.to_str().expect("a path")]);
    started.running.wait_for_stdout("tool.started", PATIENCE);
    started.running.signal(rustix::process::Signal::TERM);
    started.end().expect(Outcome::Terminated);
    let tape = Tape::of_file(&file).expect("whole");
    assert_eq!(tape.outcome(), Some(Outcome::Terminated));
    case.provider.finish();
}

#[test]
fn a_run_that_is_met_and_cannot_be_packed_says_so_everywhere() {
    let key = format!("ghp_{}", "a1B2".repeat(9));
    let script = Script::new().agent(Reply::bash(&format!("echo {key}"))).agent(Reply::complete("done")).judge(met());
    let case = Case::new(script, "goal: x");
    let file = case.sandbox.root().join("x.jsonl");
    let name = file.to_str().expect("a path");
    let goal = case.goal.to_str().expect("a path");
    let args = ["run", goal, "--cassette", name, "-o", "../own.json", "--output-format", "jsonl"];
    let finished = case.sandbox.run(args).expect_code(23);
    assert!(finished.stderr.contains("no cassette was made"), "{}", finished.stderr);
    assert!(!file.exists());
    let said = finished.events().pop().expect("events");
    assert_eq!(said["type"], "run.finished");
    let dir = case.sandbox.session_dir();
    assert_eq!(json_lines(&dir.join("events.jsonl")).pop().as_ref(), Some(&said));
    for text in [case.sandbox.read(dir.join("result.json")), case.sandbox.read("../own.json")] {
        let result: serde_json::Value = serde_json::from_str(&text).expect("a result");
        assert_eq!(result, said["result"]);
        assert_eq!((&result["outcome"], &result["exit_code"]), (&"environment".into(), &23.into()), "{result}");
        let error = &result["error"];
        assert!(error["message"].as_str().is_some_and(|message| message.contains("github-token")), "{error}");
        assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("spettro cassette pack")), "{error}");
    }
    assert!(case.sandbox.read(dir.join("summary.md")).starts_with("# environment"));
    // The session itself is met, and can be packed once nothing speaks against it.
    case.sandbox.run(["cassette", "pack", "latest", "-o", name, "--allow", "github-token"]).expect_code(0);
    assert_eq!(Tape::of_file(&file).expect("whole").outcome(), Some(Outcome::Met));
    case.provider.finish();
}

#[test]
fn a_workspace_whose_path_is_no_plain_text_is_refused_before_anything_is_spent() {
    use std::os::unix::ffi::OsStrExt;
    let case = Case::new(content(), "goal: x");
    for (name, why) in [(&b"new\nline"[..], "control character"), (b"not\xffutf8", "not UTF-8")] {
        let folder = case.sandbox.root().join(std::ffi::OsStr::from_bytes(name));
        std::fs::create_dir(&folder).expect("made");
        let sent = case.provider.requests().len();
        let mut command = case.sandbox.command(env!("CARGO_BIN_EXE_spettro"));
        let words = case.sandbox.model_yaml(&case.provider, "test/model-1");
        std::fs::write(folder.join("goal.yaml"), format!("version: 1\ngoal: x\n{words}\n")).expect("written");
        command.current_dir(&folder).args(["run", "goal.yaml", "--cassette", "../x.jsonl"]);
        let refused = case.sandbox.start(command).wait(PATIENCE).expect_code(2);
        assert!(refused.stderr.contains(why) && refused.stderr.contains("--cassette"), "{}", refused.stderr);
        assert_eq!(case.provider.requests().len(), sent);
    }
}
