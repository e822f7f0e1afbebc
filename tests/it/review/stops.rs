//! Stops at awkward moments.

use std::time::Duration;

use rustix::process::Signal;
use spettro::event::Outcome;

use crate::goal::support::{Case, met, unmet};
use crate::provider::{Lane, Reply, Script};
use crate::sandbox::PATIENCE;

#[test]
fn a_drain_ends_a_wait_for_the_provider() {
    let script =
        Script::new().agent(Reply::error(429).header("retry-after", "600")).agent(Reply::complete("done")).judge(met());
    let case = Case::new(script, "goal: x");
    let started = case.start(&[]);
    started.running.wait_for_stdout("\"run.waiting\"", PATIENCE);
    started.running.signal(Signal::USR1);
    let ended = started.end().expect(Outcome::Saved);
    assert!(ended.finished.duration < Duration::from_secs(10));
    case.resume(&ended, &[]).expect(Outcome::Met);
    case.provider.finish();
}

#[test]
fn a_drain_inside_the_judge_saves_and_only_the_judge_is_asked_again() {
    let script = Script::new().agent(Reply::complete("done")).judge(met().stall()).judge(met());
    let case = Case::new(script, "goal: x");
    let started = case.start(&[]);
    case.provider.wait_for_lane_request(Lane::Judge, 1, PATIENCE);
    started.running.signal(Signal::USR1);
    let ended = started.end().expect(Outcome::Saved);
    assert_eq!(ended.result.verdict, None);
    assert_eq!(case.resume(&ended, &[]).expect(Outcome::Met).result.steps, 1);
    case.provider.finish();
}

#[test]
fn a_signal_ends_a_drain_that_waits_for_a_command() {
    let case = Case::new(Script::new().agent(Reply::bash("touch began; sleep 1000")), "goal: x");
    let started = case.start(&[]);
    started.running.wait_for_stdout("\"tool.started\"", PATIENCE);
    started.running.signal(Signal::USR1);
    started.running.wait_for_stdout("draining", PATIENCE);
    started.running.signal(Signal::TERM);
    let ended = started.end().expect(Outcome::Terminated);
    assert!(ended.finished.duration < Duration::from_secs(15));
    case.provider.finish();
}

#[test]
fn a_judge_that_is_always_too_late_is_given_up_within_the_outage_budget() {
    let script = Script::new().agent(Reply::complete("done")).judge(met().stall().forever());
    let case = Case::new(script, "goal: x\njudge: {timeout: 1s}\nrate_limit: {max_wait: 1s}");
    let ended = case.run().expect(Outcome::Provider);
    assert!(ended.result.retryable);
    assert_eq!(ended.result.verdict, None);
    assert!(case.provider.count(Lane::Judge) <= 3);
    case.provider.finish();
}

#[test]
fn each_vote_is_paid_for_and_the_limit_stops_the_voting() {
    // Two votes fit into the limit, a third one's reservation does not.
    let vote = || unmet("no").usage(20_000, 10);
    let script = Script::new().agent(Reply::complete("done")).judge(vote()).judge(vote());
    let case = Case::new(script, "goal: x\njudge: {votes: 3}\nlimits: {cost: 0.25}");
    let ended = case.run().expect(Outcome::CostLimit);
    assert_eq!(ended.result.verdict, None, "an election that was broken off is none");
    assert_eq!(case.provider.count(Lane::Judge), 2);
    assert!(ended.result.total_cost_usd <= 0.25);
    case.provider.finish();
}
