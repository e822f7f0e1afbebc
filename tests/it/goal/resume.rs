//! Going on with a session: after a kill, after an end, beside another run.

use std::process::Stdio;
use std::time::Duration;

use spettro::event::{CostKnown, Outcome};

use super::support::{Case, content, met, unmet};
use crate::provider::{Gate, Lane, Reply, Script};
use crate::sandbox::{PATIENCE, Sandbox};

#[test]
fn a_kill_in_the_second_iteration_loses_nothing() {
    let gate = Gate::new();
    let script = Script::new()
        .one_session()
        .agent(Reply::text("first turn").usage(1_000, 100))
        .judge(unmet("not yet").usage(1_000, 100))
        .agent(Reply::bash("echo once >> log").usage(1_000, 100))
        .agent(Reply::text("never arrives").held(&gate))
        .agent(Reply::complete("done").usage(1_000, 100))
        .judge(met().usage(1_000, 100));
    let sandbox = Sandbox::new();
    sandbox.write("AGENTS.md", "The old rules.\n");
    let case = Case::within(sandbox, script, "goal: x");
    let started = case.start(&[]);
    gate.wait_until_held(PATIENCE);
    assert_eq!(started.running.kill().signal, Some(libc::SIGKILL));
    // What the agent or somebody else changed meanwhile does not reach the frozen prompt.
    case.sandbox.write("AGENTS.md", "The new rules.\n");

    let finished = case.sandbox.run(["run", "--resume", "latest", "--json"]).expect_code(0);
    let result: spettro::event::RunResult = serde_json::from_value(finished.result()).expect("a result");
    assert_eq!((result.iterations, result.steps), (2, 4));
    assert_eq!((result.run_usage.steps, result.run_usage.iterations), (1, 0));
    assert_eq!(case.sandbox.read("log"), "once\n");
    // Five calls were reported; the one that was under way is charged its reservation.
    assert_eq!(result.unreported_calls.len(), 1);
    assert_eq!(result.unreported_calls[0].why, CostKnown::Reservation);
    let reserved = result.unreported_calls[0].charged.dollars();
    assert!(reserved > 0.0 && (result.total_cost_usd - (0.0225 + reserved)).abs() < 1e-9, "{result:?}");
    let requests = case.provider.agent_requests();
    assert!(requests.iter().all(|request| request.system().contains("The old rules.")));
    gate.release();
    case.provider.finish();
}

#[test]
fn a_command_that_ran_when_spettro_was_killed_is_told_and_not_run_again() {
    let script = Script::new()
        .one_session()
        .agent(Reply::bash("echo once >> log; sleep 1000"))
        .agent(Reply::complete("x"))
        .judge(met());
    let case = Case::new(script, "goal: x");
    let started = case.start(&[]);
    started.running.wait_for_stdout("\"tool.started\"", PATIENCE);
    // The line is there before the command is.
    let deadline = std::time::Instant::now() + PATIENCE;
    while !case.sandbox.exists("log") {
        assert!(std::time::Instant::now() < deadline, "the command never ran");
        std::thread::yield_now();
    }
    started.running.kill();
    case.sandbox.run(["run", "--resume", "latest"]).expect_code(0);
    assert_eq!(case.sandbox.read("log"), "once\n");
    let results = case.provider.agent_requests()[1].tool_results();
    assert!(results[0].is_error && results[0].text.contains("effects are unknown"), "{results:?}");
    case.provider.finish();
}

#[test]
fn a_met_session_an_unknown_one_and_another_goal_are_usage_errors() {
    let case = Case::new(content(), "goal: x");
    let ended = case.run().expect(Outcome::Met);
    let id = ended.result.session_id.expect("a session");
    for args in [vec!["--resume", &id], vec!["--resume", "session-20200101-000000-00000000"], vec!["--resume", "../x"]]
    {
        let finished = case.sandbox.run(["run"].iter().chain(&args)).expect_code(2);
        assert!(finished.stderr.contains("error: "), "{}", finished.stderr);
    }
    case.provider.finish();
}

#[test]
fn another_goal_text_needs_to_be_allowed_and_does_not_change_the_session() {
    let script = Script::new().agent(Reply::text("a")).judge(unmet("no")).agent(Reply::text("b")).judge(met());
    let case = Case::new(script, "goal: the first text\nlimits: {iterations: 1}");
    let ended = case.run().expect(Outcome::Unmet);
    let id = ended.result.session_id.clone().expect("a session");
    case.sandbox.goal(&case.provider, "goal: another text");
    let refused = case.with(&["--resume", &id]).expect(Outcome::Usage);
    assert!(refused.error().contains("--resume-changed"), "{}", refused.error());
    case.with(&["--resume", &id, "--resume-changed"]).expect(Outcome::Met);
    let onward = case.provider.agent_requests()[1].new_text();
    assert!(onward.contains("the first text") && !onward.contains("another text"), "{onward}");
    case.provider.finish();
}

#[test]
fn auto_goes_on_with_this_goals_unfinished_session_or_starts_anew() {
    let script = Script::new()
        .agent(Reply::text("a"))
        .judge(unmet("no"))
        .agent(Reply::text("b"))
        .judge(met())
        .agent(Reply::text("c"))
        .judge(met());
    let case = Case::new(script, "goal: x\nlimits: {iterations: 1}");
    let first = case.with(&["--resume", "auto"]).expect(Outcome::Unmet);
    let second = case.with(&["--resume", "auto", "--max-iterations", "2"]).expect(Outcome::Met);
    assert_eq!((second.result.session_id.clone(), second.result.iterations), (first.result.session_id.clone(), 2));
    let third = case.with(&["--resume", "auto"]).expect(Outcome::Met);
    assert_ne!(third.result.session_id, first.result.session_id);
    case.provider.finish();
}

#[test]
fn a_fresh_run_names_an_unfinished_session() {
    let script = Script::new().agent(Reply::text("a").forever()).judge(unmet("no").forever());
    let case = Case::new(script, "goal: x\nlimits: {iterations: 1}");
    let first = case.run().expect(Outcome::Unmet);
    let second = case.run().expect(Outcome::Unmet);
    let id = first.result.session_id.expect("a session");
    assert!(second.finished.stderr.contains(&id), "{}", second.finished.stderr);
    assert_ne!(second.result.session_id.as_deref(), Some(id.as_str()));
    case.provider.finish();
}

#[test]
fn a_second_run_on_a_workspace_or_a_session_is_told_who_holds_it() {
    let gate = Gate::new();
    let held = || Script::new().agent(Reply::complete("done").held(&gate)).judge(met());
    let place = Case::new(held(), "goal: x");
    let session = Case::new(held(), "goal: x\nworkspace_mode: copy");
    let (first, third) = (place.start(&[]), session.start(&[]));
    place.provider.wait_for_request(1, PATIENCE);
    session.provider.wait_for_request(1, PATIENCE);
    let second = place.start(&[]);
    let fourth = session.start(&["--resume", "latest"]);
    for (other, holder) in [(second, first.running.pid()), (fourth, third.running.pid())] {
        let ended = other.end().expect(Outcome::Saved);
        assert!(ended.result.retryable);
        assert!(ended.error().contains(&format!("process {holder}")), "{}", ended.error());
        assert!(ended.error().contains("since"), "{}", ended.error());
        assert!(ended.finished.duration < Duration::from_secs(8), "{:?}", ended.finished.duration);
    }
    gate.release();
    first.end().expect(Outcome::Met);
    third.end().expect(Outcome::Met);
    place.provider.finish();
    session.provider.finish();
}

#[test]
fn a_private_copy_leaves_the_project_alone() {
    let script = Script::new().agent(Reply::bash("echo changed > file")).agent(Reply::complete("x")).judge(met());
    let sandbox = Sandbox::new();
    sandbox.write("file", "original\n");
    let case = Case::within(sandbox, script, "goal: x\nworkspace_mode: copy\nchecks: ['grep changed file']");
    let ended = case.run().expect(Outcome::Met);
    assert_eq!(case.sandbox.read("file"), "original\n");
    let copy = ended.result.paths.expect("paths").copy.expect("the copy is named");
    assert_eq!(case.sandbox.read(format!("{copy}/file")), "changed\n");
    case.provider.finish();
}

#[test]
fn an_ephemeral_run_leaves_no_session_and_names_none() {
    let case = Case::new(Script::new().agent(Reply::text("a")).judge(unmet("no")), "goal: x\nlimits: {iterations: 1}");
    let goal = case.goal.to_str().expect("a path");
    let finished = case.sandbox.run(["run", goal, "--ephemeral", "--output-format", "jsonl"]).expect_code(10);
    let result = finished.result();
    assert!(result["paths"].is_null() && result["commands"]["resume"].is_null(), "{result}");
    assert!(!finished.stderr.contains("resume:"), "{}", finished.stderr);
    assert_eq!(case.sandbox.session_dirs().len(), 0);
    assert_eq!(std::fs::read_dir(case.sandbox.root().join("tmp")).expect("the folder").count(), 0);
    case.provider.finish();
}

#[test]
fn the_copy_that_an_ephemeral_run_leaves_is_named() {
    let script = Script::new().agent(Reply::bash("echo made > made")).agent(Reply::complete("a")).judge(met());
    let case = Case::new(script, "goal: x\nworkspace_mode: copy");
    let goal = case.goal.to_str().expect("a path");
    let finished = case.sandbox.run(["run", goal, "--ephemeral", "--json"]).expect_code(0);
    let result = finished.result();
    let copy = result["copy"].as_str().expect("it is named");
    assert_eq!(std::fs::read_to_string(std::path::Path::new(copy).join("made")).expect("it is kept"), "made\n");
    assert!(result["paths"].is_null(), "{result}");
    case.provider.finish();

    let script = Script::new().agent(Reply::complete("a")).judge(met());
    let case = Case::new(script, "goal: x\nworkspace_mode: copy");
    let goal = case.goal.to_str().expect("a path");
    let finished = case.sandbox.run(["run", goal, "--ephemeral"]).expect_code(0);
    let copy = finished.stdout.lines().find_map(|line| line.strip_prefix("copy ")).expect("the summary names it");
    assert!(std::path::Path::new(copy.trim()).is_dir(), "{copy}");

    // One that was made for nothing is named, too.
    let case = Case::new(Script::new(), "goal: x\nworkspace_mode: copy\nsetup: ['exit 3']");
    let goal = case.goal.to_str().expect("a path");
    let result = case.sandbox.run(["run", goal, "--json"]).expect_code(23).result();
    assert!(std::path::Path::new(result["copy"].as_str().expect("it is named")).is_dir(), "{result}");
}

#[test]
fn another_folder_for_sessions_is_named_in_the_command_that_resumes() {
    let script = Script::new().agent(Reply::text("a")).judge(unmet("no")).agent(Reply::text("b")).judge(met());
    let case = Case::new(script, "goal: x\nlimits: {iterations: 1}");
    let (goal, dir) = (case.goal.to_str().expect("a path"), case.sandbox.root().join("elsewhere"));
    let dir = dir.to_str().expect("a path");
    let finished = case.sandbox.run(["run", goal, "--session-dir", dir, "--json"]).expect_code(10);
    let resume = finished.result()["commands"]["resume"].clone();
    let resume: Vec<String> = serde_json::from_value(resume).expect("an argument list");
    assert_eq!(resume[0], "spettro");
    let args = resume[1..].iter().map(String::as_str).chain(["--max-iterations", "2"]);
    case.sandbox.run(args).expect_code(0);
    case.provider.finish();
}

#[test]
fn a_silent_stdin_is_not_read_and_a_closed_stdout_is_no_end() {
    let script = Script::new()
        .agent(Reply::bash("cat; echo from-stdin"))
        .agent(Reply::bash("touch late"))
        .agent(Reply::complete("x"))
        .judge(met());
    let case = Case::new(script, "goal: x");
    let mut command = case.sandbox.command(env!("CARGO_BIN_EXE_spettro"));
    command.args(["run", "--goal"]).arg(&case.goal).args(["--output-format", "jsonl"]);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    command.stdin(Stdio::piped()).stdout(writer);
    let running = case.sandbox.start(command);
    drop(reader);
    let finished = running.wait(PATIENCE).expect_code(0);
    assert!(!finished.stderr.contains("panic"), "{}", finished.stderr);
    assert!(case.sandbox.exists("late"));
    case.provider.finish();
}

#[test]
fn the_session_ends_where_the_last_run_of_it_ended() {
    let script = Script::new().agent(Reply::error(401)).agent(Reply::complete("done")).judge(met());
    let case = Case::new(script, "goal: x");
    let ended = case.run().expect(Outcome::Auth);
    let again = case.resume(&ended, &[]).expect(Outcome::Met);
    assert_eq!(again.facts("end").len(), 2);
    assert_eq!(case.provider.count(Lane::Agent), 2);
    case.provider.finish();
}
