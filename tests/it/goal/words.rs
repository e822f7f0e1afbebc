//! The command line: usage errors, outputs, and the verbs that ask no model.

use serde_json::Value;
use spettro::event::Outcome;

use super::support::{Case, content, met, unmet};
use crate::provider::{Reply, Script};
use crate::sandbox::{Finished, Sandbox};

/// Runs with `--json` and `-o`, and holds the two against each other.
#[track_caller]
fn refused(sandbox: &Sandbox, args: &[&str]) -> (Finished, Value) {
    let file = sandbox.root().join("usage.json");
    let _ = std::fs::remove_file(&file);
    let shown = file.to_str().expect("a path").to_owned();
    let mut all = vec!["run"];
    all.extend(args);
    all.extend(["--json", "-o", &shown]);
    let finished = sandbox.run(&all).expect_code(2);
    let result: Value = serde_json::from_str(&finished.stdout).expect("one JSON object on stdout");
    let typed: spettro::event::RunResult = serde_json::from_value(result.clone()).expect("the result object");
    assert_eq!((typed.outcome, typed.exit_code), (Some(Outcome::Usage), Some(2)));
    assert!(typed.error.is_some() && typed.session_id.is_none());
    let written: Value = serde_json::from_str(&sandbox.read(&file)).expect("JSON in the file");
    assert_eq!(written, result);
    assert_eq!(sandbox.session_dirs().len(), 0);
    (finished, result)
}

fn message(result: &Value) -> String {
    format!("{} {} {}", result["error"]["message"], result["error"]["hint"], result["problems"])
}

#[test]
fn what_is_wrong_with_the_command_line_is_a_result_too() {
    let sandbox = Sandbox::new();
    let (finished, result) = refused(&sandbox, &["--frobnicate"]);
    assert!(message(&result).contains("--frobnicate") && finished.stderr.contains("--frobnicate"));
    let (_, result) = refused(&sandbox, &[]);
    assert!(message(&result).contains("no goal was given"), "{result}");
    let (_, result) = refused(&sandbox, &["--goal", "nowhere.yaml"]);
    assert!(message(&result).contains("nowhere.yaml"), "{result}");
    let (_, result) = refused(&sandbox, &["-p", "x", "--set", "limits.iterations=0"]);
    assert!(message(&result).contains("limits.iterations"), "{result}");
    let (_, result) = refused(&sandbox, &["-p", "x", "--fork", "--model", "anthropic/claude-sonnet-4-5"]);
    assert!(message(&result).contains("not in this version yet"), "{result}");
}

#[test]
fn a_wrong_flag_ends_a_stream_of_events_too() {
    let sandbox = Sandbox::new();
    for args in [["run", "--frobnicate"], ["run", "missing.yaml"]] {
        let finished = sandbox.run(args.iter().chain(&["--output-format=jsonl"])).expect_code(2);
        assert_eq!(finished.result()["outcome"], "usage");
        let text = sandbox.run(args).expect_code(2);
        assert_eq!(text.stdout, "");
        assert!(text.stderr.starts_with("error: "), "{}", text.stderr);
    }
}

#[test]
fn every_problem_of_a_goal_file_is_named_at_once() {
    let sandbox = Sandbox::new();
    let yaml = "version: 1\ngaol: x\ngoal: ''\nmodel: a/b\nlimits: {time: 5, cost: 0, itterations: 3}\njudge: off\n";
    sandbox.write("goal.yaml", yaml);
    let (_, result) = refused(&sandbox, &["goal.yaml"]);
    let text = message(&result);
    for part in ["gaol", "limits.time", "limits.cost", "itterations", "did you mean", "judge"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let said = sandbox.run(["validate", "goal.yaml"]).expect_code(2);
    assert!(said.stderr.lines().filter(|line| line.starts_with("error: goal.yaml:")).count() >= 5, "{}", said.stderr);
    assert_eq!(said.stdout, "");
}

#[test]
fn a_goal_without_a_model_is_told_what_is_usable() {
    let sandbox = Sandbox::new();
    sandbox.set("ANTHROPIC_API_KEY", "k");
    sandbox.write("goal.yaml", "version: 1\ngoal: x\n");
    let (_, result) = refused(&sandbox, &["goal.yaml"]);
    assert!(message(&result).contains("anthropic/"), "{result}");
}

#[test]
fn an_unpriced_model_elsewhere_is_refused_with_what_to_write() {
    let sandbox = Sandbox::new();
    let far = "{id: far/away, wire: openai-chat, base_url: \"https://models.example.org/v1\"}";
    sandbox.write("agent.yaml", format!("version: 1\ngoal: x\nmodel: {far}\n"));
    let near = "{id: near/by, wire: openai-chat, base_url: \"http://127.0.0.1:9/v1\"}";
    sandbox.write("judge.yaml", format!("version: 1\ngoal: x\nmodel: {near}\njudge: {{model: {far}}}\n"));
    for file in ["agent.yaml", "judge.yaml"] {
        let (_, result) = refused(&sandbox, &[file, "--trust-goal"]);
        let text = message(&result);
        for part in ["prices:", "like: provider/model", "limits.cost: unlimited"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

#[test]
fn an_unpriced_local_model_is_free_and_says_so() {
    let case = Case::new(content(), "goal: x\nprices: {}");
    let ended = case.run().expect(Outcome::Met);
    assert_eq!(ended.result.total_cost_usd, 0.0);
    assert!(ended.finished.stdout.contains("\"unpriced\""));
    case.provider.finish();
}

#[test]
fn a_run_inside_a_run_needs_to_be_meant() {
    let case = Case::new(content(), "goal: x");
    case.sandbox.set("SPETTRO_RUN_ID", "run-1");
    let ended = case.run().expect(Outcome::Usage);
    assert!(ended.error().contains("--nested"), "{}", ended.error());
    case.with(&["--nested"]).expect(Outcome::Met);
    case.provider.finish();
}

#[test]
fn an_agent_that_starts_spettro_is_refused() {
    let inner = format!("{} run -p x; echo code $?", env!("CARGO_BIN_EXE_spettro"));
    let script = Script::new().agent(Reply::bash(&inner)).agent(Reply::complete("x")).judge(met());
    let case = Case::new(script, "goal: x");
    case.run().expect(Outcome::Met);
    let results = case.provider.agent_requests()[1].tool_results();
    assert!(results[0].text.contains("--nested") && results[0].text.contains("code 2"), "{results:?}");
    case.provider.finish();
}

#[test]
fn settings_of_the_environment_are_read_and_unknown_ones_refused() {
    let case = Case::new(content(), "goal: x");
    case.sandbox.set("SPETTRO_LIMITS_ITERATIONS", "7");
    let ended = case.run().expect(Outcome::Met);
    assert_eq!(ended.result.limits.expect("limits").iterations, 7);
    case.sandbox.set("SPETTRO_LIMITS_ITERATION", "7");
    let ended = case.run().expect(Outcome::Usage);
    assert!(ended.error().contains("SPETTRO_LIMITS_ITERATION"), "{}", ended.error());
    case.provider.finish();
}

#[test]
fn text_is_a_summary_on_stdout_and_talk_on_stderr() {
    let script = Script::new()
        .agent(Reply::bash("echo hi"))
        .agent(Reply::text("done"))
        .judge(unmet("the door is open"))
        .agent(Reply::text("done"))
        .judge(unmet("still open"));
    let case = Case::new(script, "goal: x\nlimits: {iterations: 1}");
    let goal = case.goal.to_str().expect("a path");
    let finished = case.sandbox.run(["run", goal]).expect_code(10);
    assert!(finished.stdout.starts_with("unmet (limits.iterations) after 1 iteration, 2 steps"), "{}", finished.stdout);
    assert!(finished.stdout.contains("the door is open") && finished.stdout.contains("do the rest"));
    let id = finished.result()["session_id"].as_str().expect("an id").to_owned();
    for part in
        [id.as_str(), "bash", "goal not met yet (1/1): the door is open", &format!("resume: spettro run --resume {id}")]
    {
        assert!(finished.stderr.contains(part), "{part}: {}", finished.stderr);
    }
    assert!(!finished.stdout.contains('\u{1b}') && !finished.stderr.contains('\u{1b}'));

    let quiet = case.sandbox.run(["run", goal, "-q"]).expect_code(10);
    assert!(!quiet.stderr.contains("step") && !quiet.stderr.contains("goal not met"), "{}", quiet.stderr);
    assert!(quiet.stdout.starts_with("unmet"), "{}", quiet.stdout);
    case.provider.finish();
}

#[test]
fn json_is_one_object_that_the_schema_describes() {
    let case = Case::new(content(), "goal: x\ncriteria: []\nchecks: ['true']");
    let goal = case.goal.to_str().expect("a path");
    let finished = case.sandbox.run(["run", goal, "--json"]).expect_code(0);
    assert_eq!(finished.stdout.lines().count(), 1);
    let result = finished.result();
    let stored = case.sandbox.session_dir().join("result.json");
    assert_eq!(serde_json::from_str::<Value>(&case.sandbox.read(stored)).expect("JSON"), result);
    let schema = case.sandbox.run(["schema", "result"]).expect_code(0);
    let schema: Value = serde_json::from_str(&schema.stdout).expect("a schema");
    for name in schema["required"].as_array().expect("required fields") {
        assert!(result.get(name.as_str().expect("a name")).is_some(), "{name}");
    }
    for name in result.as_object().expect("an object").keys() {
        assert!(schema["properties"].get(name).is_some(), "{name}");
    }
    case.provider.finish();
}

#[test]
fn a_dry_run_shows_the_first_request_and_runs_nothing_but_the_checks_of_the_baseline() {
    let case =
        Case::new(Script::new(), "goal: the text of the goal\nsetup: ['touch set-up']\nchecks: ['touch checked']");
    let goal = case.goal.to_str().expect("a path");
    let finished = case.sandbox.run(["run", goal, "--dry-run"]).expect_code(0);
    assert!(finished.stdout.contains("the text of the goal") && finished.stdout.contains("\"max_tokens\""));
    assert_eq!(case.provider.requests().len(), 0);
    assert_eq!(case.sandbox.session_dirs().len(), 0);
    assert!(!case.sandbox.exists("set-up") && case.sandbox.exists("checked"));
    case.provider.finish();
}

#[test]
fn a_goal_comes_from_a_prompt_or_from_stdin() {
    let case = Case::new(content(), "goal: x");
    let model = case.sandbox.model_yaml(&case.provider, "test/model-1");
    let set = format!("model={}", model.trim_start_matches("model: ").trim());
    let finished = case.sandbox.run(["run", "-p", "from the prompt", "--set", &set, "--check", "true", "--json"]);
    let result = finished.expect_code(0).result();
    assert_eq!((result["goal"]["name"].as_str(), result["checks"][0]["name"].as_str()), (Some("prompt"), Some("true")));
    assert!(case.provider.agent_requests()[0].new_text().contains("from the prompt"));

    let mut command = case.sandbox.command(env!("CARGO_BIN_EXE_spettro"));
    command.args(["run", "--goal", "-"]).stdin(std::fs::File::open(&case.goal).expect("the goal file"));
    case.sandbox.start(command).wait(crate::sandbox::PATIENCE).expect_code(0);
    case.provider.finish();
}

#[test]
fn an_output_file_that_cannot_be_written_is_said_before_anything_is_spent() {
    let case = Case::new(Script::new(), "goal: x");
    let goal = case.goal.to_str().expect("a path");
    let finished = case.sandbox.run(["run", goal, "-o", "no/such/folder/out.json"]).expect_code(2);
    assert!(finished.stderr.contains("no/such/folder/out.json"), "{}", finished.stderr);
    assert_eq!(case.provider.requests().len(), 0);
    case.provider.finish();
}

#[test]
fn checks_run_without_a_model() {
    let sandbox = Sandbox::new();
    let yaml = |checks: &str| {
        sandbox
            .write("goal.yaml", format!("version: 1\ngoal: x\nmodel: anthropic/claude-sonnet-4-5\nchecks: {checks}\n"))
    };
    yaml("[{name: good, run: 'true'}, {name: bad but optional, run: 'false', required: false}]");
    let finished = sandbox.run(["checks", "goal.yaml"]).expect_code(0);
    assert!(finished.stdout.contains("good pass") && finished.stdout.contains("bad but optional fail"));
    yaml("[{name: bad, run: 'echo the reason; exit 4'}]");
    let finished = sandbox.run(["checks", "goal.yaml"]).expect_code(10);
    assert!(finished.stdout.contains("bad fail (exit 4)") && finished.stdout.contains("the reason"));
    yaml("[{name: lint, run: [no-such-linter]}]");
    let finished = sandbox.run(["checks", "goal.yaml"]).expect_code(23);
    assert!(finished.stderr.contains("no-such-linter"), "{}", finished.stderr);
    sandbox.run(["checks", "missing.yaml"]).expect_code(2);
    assert_eq!(sandbox.session_dirs().len(), 0);
}

#[test]
fn validate_shows_what_is_in_force_and_who_set_it() {
    let sandbox = Sandbox::new();
    sandbox.write("goal.yaml", "version: 1\ngoal: x\nmodel: anthropic/claude-sonnet-5-5\nlimits: {cost: 1.50}\n");
    sandbox.set("SPETTRO_LIMITS_TIME", "30m");
    let finished = sandbox.run(["validate", "goal.yaml", "--set", "limits.stall=9"]).expect_code(0);
    let line = |key: &str| {
        finished.stdout.lines().find(|line| line.trim_start().starts_with(key)).unwrap_or_default().to_owned()
    };
    assert!(line("cost:").contains("1.5") && line("cost:").contains("goal.yaml"), "{}", finished.stdout);
    assert!(line("time:").contains("30m") && line("time:").contains("SPETTRO_LIMITS_TIME"), "{}", finished.stdout);
    assert!(line("stall:").contains('9') && line("stall:").contains("--set"), "{}", finished.stdout);
}

#[test]
fn schemas_and_exit_codes_are_printed() {
    let sandbox = Sandbox::new();
    for of in ["goal", "events", "result", "facts", "cassette"] {
        let schema = sandbox.run(["schema", of]).expect_code(0);
        let schema: Value = serde_json::from_str(&schema.stdout).unwrap_or_else(|error| panic!("{of}: {error}"));
        assert!(schema.is_object(), "{of}");
    }
    let codes = sandbox.run(["help", "exit-codes"]).expect_code(0).stdout;
    for outcome in Outcome::ALL {
        let row = codes.lines().find(|line| line.split_whitespace().nth(1) == Some(outcome.name()));
        let code = row.and_then(|row| row.split_whitespace().next()).and_then(|code| code.parse().ok());
        assert_eq!(code, Some(outcome.code()), "{}", outcome.name());
    }
    assert!(sandbox.run(["--version"]).expect_code(0).stdout.starts_with("spettro "));
    sandbox.run(["run", "--help"]).expect_code(0);
    sandbox.run::<&str>([]).expect_code(2);
}
