//! Summarizers that fail, and what that never does: end a run, or leave a history between the old and the new one.

use rustix::process::Signal;
use spettro::event::Outcome;

use super::support::{audit, case, events, met, steps, summary};
use crate::provider::{Lane, Reply, Script, Wire};

/// What counts as no summary, whatever it says.
fn bad() -> Vec<(&'static str, Reply)> {
    vec![
        ("longer than what it replaces", Reply::summary(&"and so on, ".repeat(6_000))),
        ("cut at the cap", Reply::summary("half").stop("max_tokens")),
        ("refused", Reply::refusal("I would rather not")),
        ("empty", Reply::text(" ")),
        ("thoughts only", Reply::thinking("what shall I write")),
        ("without sections", Reply::text("All is well.")),
        ("a final error", Reply::error(400)),
    ]
}

#[test]
fn what_is_no_summary_is_discarded_and_counted_and_tried_again() {
    for (what, reply) in bad() {
        let script = Script::new().agent(steps(45, 900)).summarizer(reply).summarizer(summary()).judge(met());
        let case = case(script, 16_000, "");
        let ended = case.run().expect(Outcome::Met);
        audit(&case, &ended, 16_000);
        let failed = events(&ended, "compaction.failed");
        assert_eq!(failed.len(), 1, "{what}: {failed:?}");
        assert_eq!((failed[0]["failures"].as_u64(), failed[0]["of"].as_u64()), (Some(1), Some(3)), "{what}");
        assert!(ended.finished.stderr.contains("failure 1 of 3 before it pauses"), "{what}");
        // The next step is still over the threshold, and tries again.
        let at = |lane: Lane, n: usize| case.provider.lane_requests(lane)[n].n;
        assert_eq!(at(Lane::Summarizer, 1), at(Lane::Summarizer, 0) + 2, "{what}");
        case.provider.finish();
    }
}

#[test]
fn three_failures_in_a_row_pause_it_and_the_run_goes_on() {
    let script = Script::new().agent(steps(60, 900)).summarizer(Reply::text("no").forever()).judge(met());
    let case = case(script, 16_000, "");
    let ended = case.run().expect(Outcome::Met);
    audit(&case, &ended, 16_000);
    let paused = events(&ended, "compaction.paused");
    assert_eq!(paused.len(), 1, "said once: {paused:?}");
    let failed: Vec<_> = events(&ended, "compaction.failed").iter().map(|event| event["failures"].as_u64()).collect();
    assert_eq!(failed[..3], [Some(1), Some(2), Some(3)]);
    let said = &ended.finished.stderr;
    assert!(said.contains("compaction paused") && !said.contains("failure 4 of 3"), "{said}");
    assert!(said.contains("failure 4 in a row, while it is paused") && said.contains("cut down without a summary"));
    let counted = ended.result.compactions;
    assert!(counted.paused && counted.failed == failed.len() as u64, "{counted:?}");
    // Paused, a request over the window still gets one forced compaction, and an extract for want of a summary.
    let extracts = events(&ended, "compaction.finished");
    assert!(extracts.iter().any(|event| event["stage"] == "extract" && event["forced"] == true), "{extracts:?}");
    let last = case.provider.agent_requests().last().expect("requests").text();
    assert!(last.contains("taken from the transcript by rule"));
    case.provider.finish();
}

#[test]
fn a_summarizer_call_has_three_attempts() {
    let script = Script::new()
        .agent(steps(45, 900))
        .summarizer(Reply::error(529).header("retry-after-ms", "1").repeat(3))
        .summarizer(summary())
        .judge(met());
    let case = case(script, 16_000, "");
    let ended = case.run().expect(Outcome::Met);
    assert_eq!(events(&ended, "compaction.failed").len(), 1);
    assert_eq!(events(&ended, "attempt.failed").len(), 3);
    let settled = ended.facts("settled");
    let first = settled.iter().find(|fact| fact["lane"] == "summarizer").expect("a summarizer call");
    assert_eq!(first["attempts"].as_array().map(Vec::len), Some(3));
    case.provider.finish();
}

#[test]
fn another_summarizer_is_given_what_its_own_window_holds() {
    let script = Script::new().agent(steps(120, 900)).summarizer(summary()).judge(met());
    let provider = script.allow_rewrite().start();
    let more = format!(
        "summarizer: {{model: {{id: test/small, wire: anthropic, base_url: \"{}\", context_window: 9000}}}}\n\
         prices: {{\"test/model-1\": {{input: 0, output: 0}}, \"test/small\": {{input: 0, output: 0}}}}",
        provider.url()
    );
    let yaml = super::support::yaml(Wire::Anthropic, &provider, 24_000, &more);
    let case = crate::goal::support::Case::of(crate::sandbox::Sandbox::new(), provider, &yaml);
    let ended = case.run().expect(Outcome::Met);
    let asked = case.provider.summarizer_requests();
    assert!(!asked.is_empty());
    for request in &asked {
        let tokens = request.body.len() as u64 / 4 + request.max_tokens().expect("a limit");
        assert!(tokens <= 9_000, "{tokens}");
        assert!(request.text().contains("test/small") || request.json()["model"] == "small");
    }
    assert!(events(&ended, "compaction.failed").is_empty());
    // What its calls teach is not what the agent's teach.
    let factors = |lane: &str| {
        let settled = ended.facts("settled");
        settled.iter().filter(|fact| fact["lane"] == lane).map(|fact| fact["factor_pct"].as_u64()).next_back()
    };
    assert!(factors("summarizer").is_some() && factors("agent").is_some());
    case.provider.finish();
}

#[test]
fn a_summarizer_that_takes_in_less_than_was_known_gets_less() {
    let refused = Reply::overflow(6_000);
    let script = Script::new().agent(steps(60, 900)).summarizer(refused).summarizer(summary()).judge(met());
    let case = case(script, 16_000, "");
    let ended = case.run().expect(Outcome::Met);
    audit(&case, &ended, 16_000);
    let asked = case.provider.summarizer_requests();
    assert!(asked[0].body.len() / 4 > 6_000, "{}", asked[0].body.len());
    assert!(asked[1].body.len() as u64 / 4 + asked[1].max_tokens().expect("a limit") <= 6_000);
    assert_eq!(events(&ended, "compaction.failed").len(), 1);
    assert!(ended.facts("learned").is_empty(), "the agent's window is another one");
    case.provider.finish();
}

#[test]
fn a_signal_inside_the_summarizer_ends_the_run_as_that_and_leaves_the_history() {
    let script = Script::new().agent(steps(45, 900)).summarizer(Reply::empty().stall()).judge(met());
    let case = case(script, 16_000, "");
    let started = case.start(&[]);
    let asked = case.provider.wait_for_lane_request(Lane::Summarizer, 1, crate::sandbox::PATIENCE);
    started.running.signal(Signal::TERM);
    let ended = started.end().expect(Outcome::Terminated);
    assert!(ended.facts("compaction").is_empty() && ended.facts("compaction_failed").is_empty());
    let before = case.provider.agent_requests().last().expect("requests").clone();
    assert!(before.n < asked.n);
    case.provider.push(Lane::Summarizer, summary());
    let ended = case.resume(&ended, &[]).expect(Outcome::Met);
    assert!(!ended.facts("compaction").is_empty());
    case.provider.finish();
}

#[test]
fn a_limit_inside_the_summarizer_ends_the_run_as_that() {
    let script = Script::new().agent(steps(45, 900)).judge(met());
    let more = "summarizer: {model: {id: test/dear, wire: anthropic, base_url: \"http://127.0.0.1:9\"}}\n\
                prices: {\"test/model-1\": {input: 0, output: 0}, \"test/dear\": {input: 1000, output: 1000}}";
    let case = case(script, 16_000, more);
    let ended = case.with(&["--max-cost", "0.50"]).expect(Outcome::CostLimit);
    assert!(ended.facts("compaction_failed").is_empty(), "no failure of the summarizer");
    assert_eq!(case.provider.summarizer_requests().len(), 0);
    case.provider.finish();
}
