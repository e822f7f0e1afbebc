//! Requests that the provider refuses as too large.

use spettro::event::Outcome;

use super::support::{GOAL, case, events, met, summary};
use crate::provider::{Lane, Reply, Request, Script, respond_with};

/// An agent that overflows at its n-th request.
fn overflowing(at: &'static [usize], window: u64) -> crate::provider::Step {
    respond_with(move |request: &Request| {
        let n = request.lane_n;
        if at.contains(&n) {
            Reply::overflow(window)
        } else if n > 40 {
            Reply::complete("done")
        } else {
            Reply::bash(&format!("echo {n}; head -c 900 /dev/zero | tr '\\0' 'x' | fold -w 60"))
        }
    })
    .forever()
}

#[test]
fn the_window_is_learned_the_history_compacted_and_the_request_sent_once_more() {
    let script = Script::new().agent(overflowing(&[30], 16_000)).summarizer(summary()).judge(met());
    let case = case(script, 100_000, "");
    let ended = case.run().expect(Outcome::Met);
    assert_eq!(ended.facts("learned")[0]["window_tokens"], 16_000);
    let finished = events(&ended, "compaction.finished");
    assert_eq!(finished[0]["forced"], true, "{finished:?}");
    let agents = case.provider.agent_requests();
    assert!(agents[30].body.len() < agents[29].body.len() && agents[30].text().contains(GOAL));
    for request in &agents[30..] {
        assert!(request.body.len().div_ceil(4) <= 16_000, "the learned window holds");
    }
    case.provider.finish();
}

#[test]
fn what_overflows_again_ends_with_22_and_a_resume_knows_the_window() {
    let script = Script::new().agent(overflowing(&[30, 31], 16_000)).summarizer(summary()).judge(met());
    let case = case(script, 100_000, "");
    let ended = case.run().expect(Outcome::Context);
    assert_eq!(case.provider.count(Lane::Agent), 31);
    assert_eq!(ended.facts("compaction").len(), 1);
    let ended = case.resume(&ended, &[]).expect(Outcome::Met);
    let agents = case.provider.agent_requests();
    assert_eq!(agents[31].rest(), agents[30].rest(), "the compacted history is what a resume goes on with");
    let windows: Vec<_> = events(&ended, "call.finished")
        .iter()
        .filter(|event| event["lane"] == "agent")
        .map(|event| event["window_tokens"].as_u64())
        .collect();
    assert_eq!(windows.last(), Some(&Some(16_000)));
    case.provider.finish();
}

#[test]
fn a_failing_summarizer_is_replaced_by_an_extract_when_a_request_must_fit() {
    let script = Script::new().agent(overflowing(&[30], 16_000)).summarizer(Reply::error(400).forever()).judge(met());
    let case = case(script, 100_000, "");
    let ended = case.run().expect(Outcome::Met);
    let compaction = &ended.facts("compaction")[0];
    assert_eq!((&compaction["by"], &compaction["forced"]), (&"extract".into(), &true.into()));
    assert_eq!(events(&ended, "compaction.failed")[0]["failures"], 1);
    case.provider.finish();
}

#[test]
fn a_reply_that_ends_because_the_window_is_full_is_an_overflow() {
    let agent = respond_with(|request: &Request| match request.lane_n {
        20 => Reply::text("and so").stop("context_exceeded"),
        n if n > 25 => Reply::complete("done"),
        n => Reply::bash(&format!("echo {n}; head -c 900 /dev/zero | tr '\\0' 'x' | fold -w 60")),
    });
    let script = Script::new().agent(agent.forever()).summarizer(summary()).judge(met());
    let case = case(script, 100_000, "");
    let ended = case.run().expect(Outcome::Met);
    assert_eq!(ended.facts("compaction").len(), 1);
    assert!(case.provider.agent_requests()[20].text().contains("Room is made"));
    case.provider.finish();
}
