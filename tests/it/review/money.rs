//! Money, tokens and windows, whatever a provider reports.

use serde_json::json;
use spettro::event::{CostKnown, Outcome};

use crate::goal::support::{Case, met};
use crate::provider::{Lane, Reply, Script};

#[test]
fn a_retry_that_the_limit_cannot_pay_for_is_not_made() {
    // The first attempt is billed 20,000 × 3 = 60,000 micro-dollars and breaks off; its reservation (8,192 × 15 and
    // the input) does not fit a second time.
    let cut = Reply::text(&"word ".repeat(200)).usage(20_000, 100).cut_after(600);
    let case = Case::new(Script::new().agent(cut.forever()), "goal: x\nlimits: {cost: 0.19}");
    let ended = case.run().expect(Outcome::CostLimit);
    assert_eq!(ended.result.limit_hit.as_deref(), Some("limits.cost"));
    assert_eq!(case.provider.count(Lane::Agent), 1);
    assert!(ended.result.total_cost_usd >= 0.06 && ended.result.total_cost_usd <= 0.19, "{:?}", ended.result);
    assert_eq!(ended.result.unreported_calls.len(), 1);
    case.provider.finish();
}

#[test]
fn a_report_without_input_is_charged_and_listed() {
    let script = Script::new().agent(Reply::complete("done").usage(0, 10)).judge(met());
    let case = Case::new(script, "goal: x");
    let ended = case.run().expect(Outcome::Met);
    let unreported = &ended.result.unreported_calls;
    assert_eq!((unreported.len(), unreported[0].why), (1, CostKnown::UpperBound));
    // Its prompt alone is more than a thousand tokens.
    assert!(ended.result.cost_usd["agent"] > 0.003, "{:?}", ended.result.cost_usd);
    case.provider.finish();
}

#[test]
fn an_absurd_report_is_charged_and_breaks_nothing() {
    let script = Script::new().agent(Reply::complete("done").usage(u64::MAX / 2, u64::MAX / 2));
    let case = Case::new(script, "goal: x\nlimits: {cost: unlimited, tokens: 1000000}");
    let ended = case.run().expect(Outcome::CostLimit);
    assert_eq!(ended.result.limit_hit.as_deref(), Some("limits.tokens"));
    case.provider.finish();
}

#[test]
fn a_server_that_always_says_at_once_is_not_asked_for_ever() {
    let busy = Reply::error(429).header("retry-after", "0");
    let case = Case::new(Script::new().agent(busy.forever()), "goal: x\nrate_limit: {max_wait: 1s}");
    case.run().expect(Outcome::Saved);
    assert!(case.provider.count(Lane::Agent) <= 6, "{}", case.provider.count(Lane::Agent));
    case.provider.finish();
}

#[test]
fn a_refusal_whose_explanation_breaks_off_is_a_refusal_all_the_same() {
    let refused = Reply::error(401).body("{\"error\":{\"message\":\"no such key\"}}").cut_after(20).reset();
    let case = Case::new(Script::new().key("the-key-123").agent(refused), "goal: x");
    case.run().expect(Outcome::Auth);
    assert_eq!(case.provider.count(Lane::Agent), 1);
    case.provider.finish();
}

#[test]
fn a_server_that_silently_cuts_requests_is_context() {
    // Each result is about 2,000 tokens more; the server goes on taking in 3,000.
    let more = |n: u32| Reply::bash(&format!("printf {n}%8000s x | tr ' ' x")).usage(3_000, 10);
    let script = Script::new().agent(more(1)).agent(more(2)).agent(more(3));
    let case = Case::new(script, "goal: x");
    let ended = case.run().expect(Outcome::Context);
    assert!(ended.error().contains("silently cuts") && ended.error().contains("3000"), "{}", ended.error());
    assert!(!ended.result.retryable);
    assert_eq!(case.provider.count(Lane::Agent), 3);
    case.provider.finish();
}

#[test]
fn a_window_that_an_overflow_names_is_remembered() {
    // The forced compaction finds nothing to make smaller; the one request that follows does not fit either.
    let script = Script::new()
        .agent(Reply::overflow(16_384))
        .agent(Reply::overflow(16_384))
        .agent(Reply::complete("done"))
        .judge(met());
    let case = Case::new(script, "goal: x");
    let ended = case.run().expect(Outcome::Context);
    assert_eq!(ended.facts("learned")[0]["window_tokens"], 16_384);
    let again = case.resume(&ended, &[]).expect(Outcome::Met);
    let settled = again.facts("settled");
    let agent: Vec<_> = settled.iter().filter(|fact| fact["lane"] == "agent").collect();
    assert_eq!((agent[0]["window_tokens"].clone(), agent[2]["window_tokens"].clone()), (json!(200_000), json!(16_384)));
    case.provider.finish();
}

#[test]
fn a_resume_takes_the_window_to_be_as_full_as_the_run_before_did() {
    // Two attempts of 100,000 tokens each are billed; what stands in the window is one of them.
    let script = Script::new()
        .agent(Reply::bash("true").usage(100_000, 10).cut_after(600))
        .agent(Reply::bash("true").usage(100_000, 10))
        .agent(Reply::complete("never").stall())
        .agent(Reply::complete("done"))
        .judge(met());
    let case = Case::new(script, "goal: x");
    let started = case.start(&[]);
    case.provider.wait_for_lane_request(Lane::Agent, 3, crate::sandbox::PATIENCE);
    started.running.signal(rustix::process::Signal::TERM);
    let ended = started.end().expect(Outcome::Terminated);
    let again = case.resume(&ended, &[]).expect(Outcome::Met);
    let calls = again.facts("call");
    let estimates: Vec<u64> = calls
        .iter()
        .filter(|call| call["lane"] == "agent")
        .map(|call| call["estimate_tokens"].as_u64().expect("a number"))
        .collect();
    assert_eq!(estimates.len(), 3);
    assert!(estimates[1].abs_diff(estimates[2]) < 200, "{estimates:?}");
    case.provider.finish();
}

#[test]
fn what_the_judge_reported_teaches_its_next_estimate() {
    // The judge counts twice as many tokens as are estimated at first.
    let script = Script::new()
        .agent(Reply::text("a"))
        .judge(Reply::verdict("unmet", "no", "").usage(3_000, 10))
        .agent(Reply::text("b"))
        .judge(met());
    let case = Case::new(script, "goal: x");
    let ended = case.run().expect(Outcome::Met);
    let calls = ended.facts("call");
    let judge: Vec<u64> = calls
        .iter()
        .filter(|call| call["lane"] == "judge")
        .map(|call| call["estimate_tokens"].as_u64().expect("a number"))
        .collect();
    assert!(judge[1] > judge[0] * 3 / 2, "{judge:?}");
    case.provider.finish();
}

#[test]
fn a_call_that_died_with_its_run_is_charged_its_reservation_and_what_its_attempts_had_cost() {
    let script = Script::new()
        .agent(Reply::text(&"word ".repeat(200)).usage(20_000, 100).cut_after(600))
        .agent(Reply::complete("never").stall())
        .agent(Reply::complete("done"))
        .judge(met());
    let case = Case::new(script, "goal: x");
    let started = case.start(&[]);
    case.provider.wait_for_lane_request(Lane::Agent, 2, crate::sandbox::PATIENCE);
    started.running.kill();
    let finished = case.sandbox.run(["run", "--resume", "latest", "--json"]).expect_code(0);
    let lines = case.sandbox.session_lines();
    let first = |kind: &str| lines.iter().find(|line| line["kind"] == kind).expect("a fact");
    let reserved = first("call")["reserved"].as_u64().expect("money");
    let attempt = first("attempt")["attempt"]["cost"].as_u64().expect("money");
    assert!(attempt >= 60_000, "{attempt}");
    let result = finished.result();
    assert_eq!(result["unreported_calls"][0]["charged"], reserved + attempt);
    assert_eq!(result["unreported_calls"][0]["why"], "reservation");
    case.provider.finish();
}
