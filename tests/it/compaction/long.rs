//! The run that compaction is for: thousands of steps in a small window, outputs from 10 bytes to 5 MB, and a
//! summarizer that fails at random.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use spettro::event::{Compactions, Outcome};

use super::support::{GOAL, events, met, yaml};
use super::work::{FILES, failing, file, step};
use crate::goal::support::Case;
use crate::provider::{Lane, Reply, Request, Script, Wire, respond_with};
use crate::sandbox::Sandbox;

const WINDOW: u64 = 32_000;
const STEPS: usize = 600;
/// The whole run takes minutes where nothing is optimized.
const ALL_STEPS: usize = 5_000;
fn run(steps: usize, patience: Duration) {
    let without_goal = Arc::new(AtomicU64::new(0));
    let failures = Arc::new(AtomicU64::new(0));
    let (lost, failed) = (without_goal.clone(), failures.clone());
    let agent = respond_with(move |request: &Request| {
        if !crate::provider::contains(&request.body, GOAL.as_bytes()) {
            lost.fetch_add(1, Ordering::SeqCst);
        }
        let n = request.lane_n;
        if n > steps { Reply::complete("all steps are done") } else { step(n as u64) }
    });
    let summarizer = respond_with(move |request: &Request| match failing(request.lane_n as u64) {
        Some(reply) => {
            failed.fetch_add(1, Ordering::SeqCst);
            reply
        }
        None => Reply::summary(&format!("summary number {}", request.lane_n)),
    });
    let provider = Script::new()
        .agent(agent.forever())
        .summarizer(summarizer.forever())
        .judge(met())
        .forget_bodies()
        .allow_rewrite()
        .start();
    let sandbox = Sandbox::new();
    for bytes in FILES {
        sandbox.write(format!("f-{bytes}"), file(bytes));
    }
    let prices = "prices: {\"test/model-1\": {input: 1.00, output: 4.00}}";
    let yaml = yaml(Wire::Anthropic, &provider, WINDOW, prices);
    let case = Case::of(sandbox, provider, &yaml);
    let ended = case.start(&[]).end_within(patience).expect(Outcome::Met);

    let provider = &case.provider;
    assert_eq!(provider.count(Lane::Agent), steps + 1, "no step was lost, none done twice");
    assert_eq!(without_goal.load(Ordering::SeqCst), 0, "the goal stands in every request");

    // Every request repeats the one before, but for those behind a compaction, and each of these was told.
    let finished = events(&ended, "compaction.finished");
    assert_eq!(provider.rewrites(), finished.len() as u64, "broken prefixes are reported compactions");
    let of = |stage: &str| finished.iter().filter(|event| event["stage"] == stage).count() as u64;
    let count = failures.load(Ordering::SeqCst);
    assert!(of("summary") > 0 && of("prune") > 0 && count > 0, "{finished:?}");
    let Compactions { pruned, summarized, extracted, failed, .. } = ended.result.compactions;
    assert_eq!((pruned, summarized, extracted, failed), (of("prune"), of("summary"), of("extract"), count));
    assert_eq!(events(&ended, "compaction.failed").len() as u64, count);
    assert_eq!(events(&ended, "compaction.started").len(), provider.count(Lane::Summarizer));
    // Breaking it is dear: what one frees lasts a while.
    assert!(finished.len() < steps / 8, "{} compactions in {steps} steps", finished.len());

    // Money and tokens are those that the provider counted.
    let (mut cost, mut calls) = (0, 0);
    for (lane, usage) in provider.served_usage() {
        let row = &ended.result.usage_by_lane[lane.name()];
        assert_eq!((row.usage.input_tokens, row.usage.output_tokens), (usage.input, usage.output), "{lane:?}");
        assert_eq!(row.calls, provider.count(lane) as u64, "{lane:?}");
        cost += usage.input + 4 * usage.output;
        calls += row.calls;
    }
    assert_eq!((ended.result.total_cost_usd * 1e6).round() as u64, cost);
    assert_eq!(ended.result.run_usage.calls, calls);
    assert!(ended.result.unreported_calls.is_empty(), "{:?}", ended.result.unreported_calls);
    case.provider.finish();
}

#[test]
fn hundreds_of_steps_in_a_small_window_with_a_failing_summarizer_end_met() {
    run(STEPS, Duration::from_secs(120));
}

#[test]
#[ignore = "minutes long; the shorter one has the same assertions"]
fn thousands_of_steps_in_a_small_window_with_a_failing_summarizer_end_met() {
    run(ALL_STEPS, Duration::from_secs(1_200));
}
