//! The rules of a turn (what is run, what is refused, what the agent is told), seen in the requests that follow.

use serde_json::{Value, json};
use spettro::event::Outcome;

use super::support::{Case, content, met, unmet};
use crate::provider::{Reply, Request, Script, Wire, respond_with};
use crate::sandbox::{Sandbox, json_lines};

/// A different command each time, so that nothing repeats.
fn busy() -> crate::provider::Step {
    respond_with(|request: &Request| Reply::bash(&format!("echo {}", "x".repeat(request.lane_n)))).forever()
}

#[test]
fn of_many_calls_the_first_thirty_two_run_in_order() {
    let mut reply = Reply::text("all at once");
    for n in 1..=818 {
        reply = reply.and_call("bash", json!({"command": format!("echo {n} >> log")}));
    }
    let case = Case::new(Script::new().agent(reply).agent(Reply::complete("done")).judge(met()), "goal: x");
    case.run().expect(Outcome::Met);
    let expected: String = (1..=32).map(|n| format!("{n}\n")).collect();
    assert_eq!(case.sandbox.read("log"), expected);
    let results = case.provider.agent_requests()[1].tool_results();
    assert_eq!(results.len(), 818);
    for (index, result) in results.iter().enumerate() {
        assert_eq!(result.is_error, index >= 32, "{index}: {result:?}");
    }
    assert!(results[32].text.contains("at most 32"), "{:?}", results[32]);
    case.provider.finish();
}

#[test]
fn arguments_that_do_not_fit_are_an_error_and_never_run() {
    let reply = Reply::empty()
        .and_raw_call("bash", "{\"command\": \"touch a\"")
        .and_raw_call("bash", "")
        .and_call("bash", json!({"command": "touch b", "tiemout": 3}))
        .and_call("bash", json!({"command": ["touch", "c"]}))
        .and_call("bash", json!({}))
        .and_call("bsah", json!({"command": "touch fits-exactly-one"}))
        .and_call("launch-missiles", json!({"command": "touch d"}));
    let case = Case::new(Script::new().agent(reply).agent(Reply::complete("done")).judge(met()), "goal: x");
    case.run().expect(Outcome::Met);
    let results = case.provider.agent_requests()[1].tool_results();
    let errors: Vec<bool> = results.iter().map(|result| result.is_error).collect();
    assert_eq!(errors, [true, true, true, true, true, false, true], "{results:?}");
    for name in ["a", "b", "c", "d"] {
        assert!(!case.sandbox.exists(name), "{name}");
    }
    case.provider.finish();
}

#[test]
fn a_reply_cut_inside_a_call_runs_none_of_its_calls() {
    for wire in Wire::ALL {
        let cut = Reply::text("writing")
            .and_call("bash", json!({"command": "touch whole"}))
            .and_raw_call("file-write", "{\"path\": \"half\", \"content\": \"lorem ips")
            .stop("max_tokens");
        let script = Script::new().agent(cut).agent(Reply::complete("done")).judge(met());
        let case = Case::within(Sandbox::new().wire(wire), script, "goal: x");
        case.run().expect(Outcome::Met);
        assert!(!case.sandbox.exists("whole") && !case.sandbox.exists("half"));
        let second = &case.provider.agent_requests()[1];
        let told = second.new_text();
        assert!(told.contains("Issue the calls") && told.contains("again, smaller"), "{told}");
        assert!(second.tool_results().is_empty());
        case.provider.finish();
    }
}

#[test]
fn a_reply_cut_in_text_stands_and_is_continued_three_times() {
    let cut = || Reply::text("and so on").stop("max_tokens");
    let script = Script::new().agent(cut().repeat(3)).agent(Reply::text("the end")).judge(met());
    let case = Case::new(script, "goal: x");
    let ended = case.run().expect(Outcome::Met);
    assert_eq!((ended.result.iterations, ended.result.steps), (1, 4));
    let last = case.provider.agent_requests()[3].clone();
    assert_eq!(last.text().matches("and so on").count(), 3);
    assert!(last.new_text().contains("cut at the output cap"), "{}", last.new_text());
    case.provider.finish();

    let script = Script::new().agent(cut().repeat(4)).agent(Reply::text("the end")).judge(met());
    let case = Case::new(script, "goal: x");
    let ended = case.run().expect(Outcome::Met);
    assert_eq!(ended.turns(), ["failed", "done"]);
    case.provider.finish();
}

#[test]
fn an_empty_reply_is_nudged_twice() {
    for wire in Wire::ALL {
        let script = Script::new().agent(Reply::empty().repeat(2)).agent(Reply::text("done")).judge(met());
        let case = Case::within(Sandbox::new().wire(wire), script, "goal: x");
        let ended = case.run().expect(Outcome::Met);
        assert_eq!((ended.turns(), ended.result.steps), (vec!["done".to_owned()], 3));
        assert!(case.provider.agent_requests()[2].text().matches("reply was empty").count() == 2);
        case.provider.finish();
    }
}

#[test]
fn a_refusal_is_recorded_its_calls_never_run_and_later_requests_leave_it_out() {
    for wire in Wire::ALL {
        let refusal =
            Reply::text("that is beyond me").and_call("bash", json!({"command": "touch ran"})).stop("refusal");
        let script = Script::new().agent(refusal).agent(Reply::complete("done")).judge(met());
        let case = Case::within(Sandbox::new().wire(wire), script, "goal: x");
        let ended = case.run().expect(Outcome::Met);
        assert_eq!(ended.turns(), ["refused", "done"]);
        assert!(!case.sandbox.exists("ran"));
        let second = &case.provider.agent_requests()[1];
        assert!(!second.text().contains("beyond me"), "{}", second.text());
        assert!(second.new_text().contains("refusal"), "{}", second.new_text());
        let stored = ended.facts("message").iter().any(|fact| fact.to_string().contains("beyond me"));
        assert!(stored, "the log keeps it");
        case.provider.finish();
    }
}

#[test]
fn the_same_call_with_the_same_result_is_told_at_three_and_stuck_at_eight() {
    let script = Script::new().agent(Reply::bash("echo $RANDOM; date +%s").repeat(8)).judge(met());
    let case = Case::new(script, "goal: x");
    let ended = case.run().expect(Outcome::Met);
    assert_eq!((ended.turns(), ended.result.steps), (vec!["stuck".to_owned()], 8));
    let told: Vec<usize> = case
        .provider
        .agent_requests()
        .iter()
        .filter(|request| request.new_text().contains("three times in a row"))
        .map(|request| request.lane_n)
        .collect();
    assert_eq!(told, [4]);
    case.provider.finish();
}

#[test]
fn results_of_one_step_take_at_most_a_quarter_of_the_window() {
    let flood = |letter: &str| json!({"command": format!("printf '{letter}%.0s' $(seq 20000); echo END-{letter}")});
    let reply = Reply::empty()
        .and_call("bash", flood("a"))
        .and_call("bash", json!({"command": "echo small"}))
        .and_call("bash", flood("b"))
        .and_call("bash", flood("c"));
    let script = Script::new()
        .one_session()
        .agent(reply)
        .agent(Reply::complete("done"))
        .judge(unmet("no"))
        .agent(Reply::complete("done"))
        .judge(met());
    let case = Case::new(script, "goal: x\nlimits: {iterations: 1}");
    let model = case.sandbox.model_yaml(&case.provider, "test/model-1").replace("200000", "40000");
    let model = format!("model={}", model.trim_start_matches("model: ").trim());
    let ended = case.with(&["--set", &model]).expect(Outcome::Unmet);
    let results = case.provider.agent_requests()[1].tool_results();
    let sizes: Vec<usize> = results.iter().map(|result| result.text.chars().count()).collect();
    // A quarter of 40,000 tokens, at three characters each; none of them above an eighth.
    assert!(sizes.iter().sum::<usize>() <= 30_000, "{sizes:?}");
    assert!(sizes.iter().all(|size| *size <= 15_000), "{sizes:?}");
    assert_eq!(results[1].text.trim(), "small", "only the largest are cut");
    for (result, letter) in [(&results[0], "a"), (&results[2], "b"), (&results[3], "c")] {
        assert!(result.text.contains(&format!("END-{letter}")), "the end stays");
        assert!(result.text.contains("tool-output") && result.text.contains("spool:"), "the rest can be read");
    }
    // The log knows the second cut: the resumed request continues the last one byte for byte.
    case.resume(&ended, &["--max-iterations", "2"]).expect(Outcome::Met);
    case.provider.finish();
}

#[test]
fn ninety_percent_of_the_steps_is_said_once() {
    let case = Case::new(Script::new().agent(busy()).judge(unmet("no")), "goal: x\nlimits: {steps: 12}");
    case.run().expect(Outcome::Unmet);
    let told: Vec<usize> = case
        .provider
        .agent_requests()
        .iter()
        .filter(|request| request.new_text().contains("90 % of the steps"))
        .map(|request| request.lane_n)
        .collect();
    assert_eq!(told, [12]);
    case.provider.finish();
}

#[test]
fn ninety_percent_of_the_money_is_said_once() {
    let script = Script::new()
        .agent(Reply::bash("echo 1").usage(3_000, 9_100))
        .agent(Reply::bash("echo 2").usage(3_000, 10))
        .agent(Reply::complete("done").usage(3_000, 10))
        .judge(met().usage(1_000, 10));
    let yaml = "goal: x\nlimits: {cost: 10.00}\nprices: {\"test/model-1\": {input: 0, output: 1000}}";
    let case = Case::new(script, yaml);
    let model = case.sandbox.model_yaml(&case.provider, "test/model-1").replace("8192", "256");
    let model = format!("model={}", model.trim_start_matches("model: ").trim());
    case.with(&["--set", &model]).expect(Outcome::Met);
    let told: Vec<bool> =
        case.provider.agent_requests().iter().map(|r| r.new_text().contains("90 % of the money")).collect();
    assert_eq!(told, [false, true, false]);
    case.provider.finish();
}

fn todo(status: &str) -> Value {
    json!({"todos": [{"id": "1", "content": "do it", "status": status}], "merge": true})
}

#[test]
fn an_updated_plan_is_answered_with_a_hint_once_a_turn() {
    let script = Script::new()
        .agent(Reply::call("todo-write", todo("pending")))
        .agent(Reply::call("todo-write", todo("in_progress")))
        .agent(Reply::text("that was all"))
        .judge(unmet("no"))
        .agent(Reply::call("todo-write", todo("in_progress")).and_call("bash", json!({"command": "true"})))
        .agent(Reply::call("todo-write", todo("completed")))
        .agent(Reply::text("done"))
        .judge(met());
    let case = Case::new(script, "goal: x");
    case.run().expect(Outcome::Met);
    let hinted: Vec<usize> = case
        .provider
        .agent_requests()
        .iter()
        .filter(|request| request.tool_results().iter().any(|result| result.text.contains("Plan updated.")))
        .map(|request| request.lane_n)
        .collect();
    assert_eq!(hinted, [2, 6], "the first of each turn; a step with other calls needs none");
    case.provider.finish();
}

#[test]
fn open_tasks_that_nobody_updates_are_recalled_once_a_turn() {
    let script = Script::new()
        .agent(Reply::call("todo-write", todo("pending")))
        .agent(respond_with(|r: &Request| Reply::bash(&format!("echo {}", "x".repeat(r.lane_n)))).repeat(45))
        .agent(Reply::complete("done"))
        .judge(met());
    let case = Case::new(script, "goal: x");
    case.run().expect(Outcome::Met);
    let told: Vec<usize> = case
        .provider
        .agent_requests()
        .iter()
        .filter(|request| request.new_text().contains("not updated for 20 steps"))
        .map(|request| request.lane_n)
        .collect();
    assert_eq!(told, [22], "twenty steps after the list was written");
    case.provider.finish();
}

#[test]
fn what_happens_is_logged_before_what_depends_on_it() {
    let script = Script::new().agent(Reply::bash("echo hi")).agent(Reply::complete("done")).judge(met());
    let case = Case::new(script, "goal: x");
    let ended = case.run().expect(Outcome::Met);
    let log = json_lines(&ended.dir.as_ref().expect("a session").join("session.jsonl"));
    let at = |wanted: &dyn Fn(&Value) -> bool| log.iter().position(wanted).expect("it is in the log");
    let call = at(&|line| line["kind"] == "call");
    let reply = at(&|line| line["kind"] == "message" && line.to_string().contains("echo hi"));
    let settled = at(&|line| line["kind"] == "settled");
    let started = at(&|line| line["kind"] == "tool_started");
    let ran = at(&|line| line["kind"] == "tool");
    assert!(call < reply && reply < settled && settled < started && started < ran);
    case.provider.finish();
}

#[test]
fn nothing_runs_behind_goal_complete() {
    let reply = Reply::complete("done").and_call("bash", json!({"command": "touch late"}));
    let case = Case::new(Script::new().agent(reply).judge(met()), "goal: x");
    let ended = case.run().expect(Outcome::Met);
    assert!(!case.sandbox.exists("late"));
    assert_eq!(ended.result.result.as_deref(), Some("done"));
    case.provider.finish();
}

#[test]
fn a_paused_reply_goes_back_as_it_is() {
    let script = Script::new().agent(Reply::text("searching").stop("pause")).agent(Reply::complete("x")).judge(met());
    let case = Case::new(script, "goal: x");
    case.run().expect(Outcome::Met);
    assert_eq!(case.provider.agent_requests()[1].new_text(), "");
    case.provider.finish();
}

#[test]
fn the_end_of_a_job_is_told_at_the_next_step() {
    let script = Script::new()
        .agent(Reply::call("bash", json!({"command": "echo built", "run_in_background": true})))
        .agent(Reply::call("wait", json!({"job_id": "job-1", "timeout": 20})))
        .agent(Reply::complete("done"))
        .judge(met());
    let case = Case::new(script, "goal: x");
    let ended = case.run().expect(Outcome::Met);
    let told = case.provider.agent_requests().iter().filter(|r| r.new_text().contains("job-1 exited with 0")).count();
    assert_eq!(told, 1);
    assert!(case.provider.agent_requests()[2].text().contains("last line: built"));
    assert_eq!(ended.facts("job_exited").len(), 1);
    case.provider.finish();
}

#[test]
fn the_prefix_is_stable_across_steps_iterations_and_notes_on_either_wire() {
    // The provider holds every agent request against the one before it.
    for wire in Wire::ALL {
        let script = Script::new()
            .one_session()
            .agent(
                Reply::thinking("hm").and_text("two things").and_call("bash", json!({"command": "echo a"})).and_call(
                    "file-write",
                    json!({"path": "ü \"quoted\"\n.txt", "content": "tab\there, \u{1F600}, \u{7f}"}),
                ),
            )
            .agent(Reply::empty())
            .agent(Reply::text("cut").stop("max_tokens"))
            .agent(Reply::thinking("so").and_text("first turn ends"))
            .judge(unmet("no"))
            .agent(Reply::refusal("not that"))
            .agent(Reply::bash("echo b"))
            .agent(Reply::complete("done"))
            .judge(met());
        let case = Case::within(Sandbox::new().wire(wire), script, "goal: x");
        let ended = case.run().expect(Outcome::Met);
        assert_eq!(ended.turns(), ["done", "refused", "done"]);
        case.provider.finish();
    }
}

#[test]
fn instructions_stand_in_the_system_prompt_and_the_environment_opens_the_first_message() {
    let sandbox = Sandbox::new();
    sandbox.write("AGENTS.md", "Use tabs, never spaces.\n");
    sandbox.git_init();
    sandbox.write("dirty", "x");
    let case = Case::within(sandbox, content(), "goal: tidy up\ncriteria: [it is tidy]\nchecks: ['true']");
    case.provider.push(crate::provider::Lane::Judge, met());
    let ended = case.with(&["--set", "criteria=[]"]).expect(Outcome::Met);
    let first = &case.provider.agent_requests()[0];
    assert!(first.system().contains("Use tabs, never spaces."));
    let text = first.new_text();
    assert!(text.starts_with("<environment>"), "{text}");
    let workspace = case.sandbox.workspace().to_string_lossy().into_owned();
    for part in [workspace.as_str(), "branch main, 1 uncommitted files", "tidy up", "- true: true"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(ended.finished.stdout.contains("1 dirty at start: dirty"));
    case.provider.finish();
}

#[test]
fn only_the_tools_that_are_allowed_are_offered_and_run() {
    let script = Script::new()
        .agent(Reply::call("file-write", json!({"path": "a", "content": "b"})))
        .agent(Reply::text("done"))
        .judge(met());
    let case = Case::new(script, "goal: x\ntools: {allow: [bash, grep], deny: [grep]}");
    case.run().expect(Outcome::Met);
    let requests = case.provider.agent_requests();
    assert_eq!(requests[0].tool_names().iter().filter(|name| *name == "grep" || *name == "file-write").count(), 0);
    assert!(requests[0].tool_names().contains(&"bash".to_owned()));
    assert!(requests[1].tool_results()[0].is_error && !case.sandbox.exists("a"));
    case.provider.finish();
}

#[test]
fn a_key_reaches_neither_commands_nor_the_disk() {
    let key = "sk-test-0123456789abcdefghij";
    let script = Script::new()
        .key(key)
        .agent(Reply::bash("env; cat /proc/$PPID/environ; echo sk-test-; echo 0123456789abcdefghij"))
        .agent(Reply::complete("done"))
        .judge(met());
    let case = Case::new(script, "goal: x\nchecks: ['env']");
    let ended = case.run().expect(Outcome::Met);
    // The provider holds every request against the key by itself.
    let dir = ended.dir.expect("a session");
    let found = case.sandbox.sh(&format!("grep -rl {key} {} || true", dir.display()));
    assert_eq!(found, "");
    assert!(!ended.finished.stdout.contains(key) && !ended.finished.stderr.contains(key));
    case.provider.finish();
}
