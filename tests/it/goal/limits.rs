//! Limits on money, tokens and time; signals.

use std::time::Duration;

use rustix::process::Signal;
use spettro::event::Outcome;

use super::support::{Case, Ended, LATE, met, unmet};
use crate::provider::{Lane, Reply, Request, Script, respond_with};
use crate::sandbox::PATIENCE;

/// Ended by the limit on time, and not much after it.
#[track_caller]
fn in_time(ended: Ended, limit: Duration) -> Ended {
    let ended = ended.expect(Outcome::TimeLimit);
    assert!(ended.finished.duration < limit + LATE, "{:?}", ended.finished.duration);
    assert_eq!(ended.result.limit_hit.as_deref(), Some("limits.time"));
    assert!(ended.error().contains("time"), "{}", ended.error());
    ended
}

const HALF: Duration = Duration::from_millis(500);

#[test]
fn the_time_limit_inside_a_command() {
    let script =
        Script::new().agent(Reply::bash("trap '' TERM; sleep 1000 & wait")).agent(Reply::complete("x")).judge(met());
    let case = Case::new(script, "goal: x\nlimits: {time: 500ms}");
    let ended = in_time(case.run(), HALF);
    // A command that was running is told to the model as interrupted, and is not run again.
    let again = case.resume(&ended, &["--max-time", "1m"]).expect(Outcome::Met);
    let results = case.provider.agent_requests()[1].tool_results();
    assert!(results.len() == 1 && results[0].text.contains("interrupted"), "{results:?}");
    assert_eq!(again.result.steps, 2);
    case.provider.finish();
}

#[test]
fn the_time_limit_inside_a_model_call() {
    let script = Script::new().agent(Reply::text("so far and no further").stall_after(250));
    let case = Case::new(script, "goal: x\nlimits: {time: 500ms}");
    let ended = in_time(case.run(), HALF);
    let calls = ended.facts("settled");
    assert_eq!(calls.len(), 1);
    case.provider.finish();
}

#[test]
fn the_time_limit_inside_the_judge_is_no_verdict() {
    let script = Script::new().agent(Reply::complete("done")).judge(met().stall()).judge(met());
    let case = Case::new(script, "goal: x\nlimits: {time: 500ms}");
    let ended = in_time(case.run(), HALF);
    assert_eq!(ended.result.verdict, None);
    let again = case.resume(&ended, &["--max-time", "1m"]).expect(Outcome::Met);
    assert_eq!(again.result.steps, 1, "the turn was over; only the judge is asked again");
    case.provider.finish();
}

#[test]
fn the_time_limit_inside_a_check() {
    let script = Script::new().agent(Reply::complete("done"));
    let yaml = "goal: x\nlimits: {time: 700ms}\nchecks: ['if test -e ../tmp/second; then sleep 1000; fi; touch ../tmp/second']";
    let case = Case::new(script, yaml);
    let ended = in_time(case.run(), Duration::from_millis(700));
    assert_eq!(ended.result.checks[0].status.name(), "not_run");
    case.provider.finish();
}

#[test]
fn the_time_limit_between_steps() {
    // The same call again and again would be stuck: each differs from the one before.
    let step = respond_with(|request: &Request| Reply::bash(&format!("echo {}", "x".repeat(request.lane_n % 50))));
    let case = Case::new(
        Script::new().agent(step.forever()),
        "goal: x\nlimits: {time: 500ms, steps: 100000, steps_per_iteration: 100000}",
    );
    in_time(case.run(), HALF);
    case.provider.finish();
}

#[test]
fn idle_is_a_limit_on_time_and_a_slow_model_is_not_idle() {
    let script = Script::new().agent(Reply::complete("done").stall_for(Duration::from_millis(600))).judge(met());
    let case = Case::new(script, "goal: x\nlimits: {idle: 300ms}");
    case.run().expect(Outcome::Met);
    case.provider.finish();
}

// One reply costs 1,000 × 3 + 100 × 15 = 4,500 micro-dollars.
fn costly(reply: Reply) -> Reply {
    reply.usage(1_000, 100)
}

#[test]
fn the_cost_that_is_crossed_on_the_last_step_of_an_iteration_ends_the_run() {
    // Reservations fit; the reply reports more than its estimate.
    let script = Script::new().agent(Reply::complete("done").usage(1_000_000, 100));
    let case = Case::new(script, "goal: x\nchecks: ['true']\nlimits: {cost: 1.00}");
    let ended = case.run().expect(Outcome::CostLimit);
    assert_eq!(ended.result.limit_hit.as_deref(), Some("limits.cost"));
    assert_eq!(ended.result.checks[0].status.name(), "not_run");
    assert!((ended.result.total_cost_usd - 3.0015).abs() < 1e-9, "{}", ended.result.total_cost_usd);
    case.provider.finish();
}

#[test]
fn a_call_that_cannot_be_paid_for_is_not_made() {
    let case = Case::new(Script::new(), "goal: x\nlimits: {cost: 0.01}");
    let ended = case.run().expect(Outcome::CostLimit);
    assert_eq!((ended.result.total_cost_usd, ended.result.limit_hit.as_deref()), (0.0, Some("limits.cost")));
    case.provider.push(Lane::Agent, Reply::complete("done"));
    case.provider.push(Lane::Judge, met());
    let again = case.resume(&ended, &["--max-cost", "+5"]).expect(Outcome::Met);
    assert_eq!(again.result.limits.expect("limits").cost, spettro::event::Micros::parse_dollars("5.01"));
    case.provider.finish();
}

#[test]
fn a_cost_exactly_at_the_limit_goes_on() {
    // The judge is free; what the agent spends is the limit to the micro-dollar.
    let script = Script::new().agent(costly(Reply::complete("done")).usage(1_000_000, 0)).judge(met());
    let case = Case::new(script, "goal: x\nlimits: {cost: 3.00}");
    let free = case.sandbox.model_yaml(&case.provider, "free/judge-1");
    let ended = case.with(&["--set", &format!("judge.{}", free.trim().replacen("model: ", "model=", 1))]);
    let ended = ended.expect(Outcome::Met);
    assert_eq!(ended.result.total_cost_usd, 3.0);
    case.provider.finish();
}

#[test]
fn tokens_are_a_limit_of_their_own() {
    let script = Script::new().agent(Reply::complete("done").usage(60_000, 10));
    let case = Case::new(script, "goal: x\nlimits: {tokens: 50000}");
    let ended = case.run().expect(Outcome::CostLimit);
    assert_eq!(ended.result.limit_hit.as_deref(), Some("limits.tokens"));
    case.provider.finish();
}

#[test]
fn the_ledger_counts_every_lane() {
    let script = Script::new()
        .agent(costly(Reply::text("a")))
        .judge(costly(unmet("no")))
        .agent(costly(Reply::text("b")))
        .judge(costly(met()));
    let case = Case::new(script, "goal: x");
    let ended = case.run().expect(Outcome::Met);
    assert!((ended.result.total_cost_usd - 0.018).abs() < 1e-9);
    assert_eq!(
        ended.result.cost_usd.values().map(|cost| (cost * 1e6).round() as u64).collect::<Vec<_>>(),
        [9_000, 9_000]
    );
    assert_eq!(ended.result.usage_by_lane["judge"].usage.input_tokens, 2_000);
    assert_eq!(ended.result.run_usage.tokens, 4_400);
    case.provider.finish();
}

#[test]
fn a_reply_without_a_usage_report_is_charged_and_listed() {
    let script = Script::new().agent(Reply::complete("done").no_usage()).judge(costly(met()));
    let case = Case::new(script, "goal: x");
    let ended = case.run().expect(Outcome::Met);
    assert_eq!(ended.result.unreported_calls.len(), 1);
    assert!(ended.result.cost_usd["agent"] > 0.0);
    case.provider.finish();
}

#[test]
fn signals_end_the_run_after_its_teardown_and_it_can_go_on() {
    for (signal, outcome) in
        [(Signal::HUP, Outcome::Hangup), (Signal::INT, Outcome::Interrupt), (Signal::TERM, Outcome::Terminated)]
    {
        let script = Script::new()
            .agent(Reply::bash("echo started > started; sleep 1000"))
            .agent(Reply::complete("done"))
            .judge(met());
        let case = Case::new(script, "goal: x");
        let started = case.start(&[]);
        started.running.wait_for_stdout("\"tool.started\"", PATIENCE);
        started.running.signal(signal);
        let ended = started.end().expect(outcome);
        assert!(ended.result.retryable);
        assert!(ended.finished.duration < Duration::from_secs(10));
        let again = case.resume(&ended, &[]).expect(Outcome::Met);
        assert!(again.finished.stdout.contains("\"resumed\":true"));
        let results = case.provider.agent_requests()[1].tool_results();
        assert!(results[0].text.contains("interrupted"), "{results:?}");
        case.provider.finish();
    }
}

#[test]
fn a_signal_while_the_model_speaks_keeps_what_it_said() {
    let whole = Reply::text(&"I was about to say something. ".repeat(100));
    let script = Script::new().agent(whole.split(50).stall_after(2_000)).agent(Reply::complete("done")).judge(met());
    let case = Case::new(script, "goal: x");
    let started = case.start(&["--deltas"]);
    started.running.wait_for_stdout("\"model.delta\"", PATIENCE);
    started.running.signal(Signal::TERM);
    let ended = started.end().expect(Outcome::Terminated);
    case.resume(&ended, &[]).expect(Outcome::Met);
    let second = case.provider.agent_requests()[1].text();
    assert!(second.contains("I was") && second.contains("You were interrupted here; go on."), "{second}");
    case.provider.finish();
}

#[test]
fn a_signal_during_the_setup_ends_it() {
    let case = Case::new(Script::new(), "goal: x\nsetup: ['echo started > started; sleep 1000']");
    let started = case.start(&[]);
    started.running.wait_for_stdout("\"run.started\"", PATIENCE);
    started.running.signal(Signal::TERM);
    let ended = started.end().expect(Outcome::Terminated);
    assert!(ended.finished.duration < Duration::from_secs(10));
    case.provider.finish();
}

#[test]
fn a_signal_during_the_baseline_ends_it() {
    let case = Case::new(Script::new().agent(Reply::bash("touch x")), "goal: x\nchecks: ['sleep 1000']");
    let started = case.start(&[]);
    started.running.wait_for_stdout("\"call.finished\"", PATIENCE);
    started.running.signal(Signal::INT);
    let ended = started.end().expect(Outcome::Interrupt);
    assert!(!case.sandbox.exists("x"));
    assert!(ended.finished.duration < Duration::from_secs(10));
    case.provider.finish();
}

#[test]
fn a_signal_while_the_provider_is_waited_for_ends_the_wait() {
    let script =
        Script::new().agent(Reply::error(429).header("retry-after", "600")).agent(Reply::complete("done")).judge(met());
    let case = Case::new(script, "goal: x");
    let started = case.start(&[]);
    started.running.wait_for_stdout("\"run.waiting\"", PATIENCE);
    started.running.signal(Signal::TERM);
    let ended = started.end().expect(Outcome::Terminated);
    assert!(ended.finished.duration < Duration::from_secs(10));
    case.resume(&ended, &[]).expect(Outcome::Met);
    case.provider.finish();
}

#[test]
fn a_signal_inside_the_judge_is_no_verdict() {
    let script = Script::new().agent(Reply::complete("done")).judge(met().stall()).judge(met());
    let case = Case::new(script, "goal: x");
    let started = case.start(&[]);
    case.provider.wait_for_lane_request(Lane::Judge, 1, PATIENCE);
    started.running.signal(Signal::INT);
    let ended = started.end().expect(Outcome::Interrupt);
    assert_eq!(ended.result.verdict, None);
    let again = case.resume(&ended, &[]).expect(Outcome::Met);
    assert_eq!(again.result.steps, 1);
    case.provider.finish();
}

#[test]
fn a_drain_lets_the_running_command_finish_and_saves() {
    let script = Script::new()
        .one_session()
        .agent(
            Reply::bash("while ! test -e go; do sleep 0.01; done; echo finished")
                .and_call("bash", serde_json::json!({"command": "touch second"})),
        )
        .agent(Reply::complete("done"))
        .judge(met());
    let case = Case::new(script, "goal: x");
    let started = case.start(&[]);
    started.running.wait_for_stdout("\"tool.started\"", PATIENCE);
    started.running.signal(Signal::USR1);
    started.running.wait_for_stdout("draining", PATIENCE);
    case.sandbox.write("go", "");
    let ended = started.end().expect(Outcome::Saved);
    assert!(!case.sandbox.exists("second"));
    case.resume(&ended, &[]).expect(Outcome::Met);
    let results = case.provider.agent_requests()[1].tool_results();
    assert_eq!(results[0].text.trim(), "finished");
    assert!(results[1].is_error && results[1].text.contains("not run"), "{results:?}");
    case.provider.finish();
}
