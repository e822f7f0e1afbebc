//! Deaths around a compaction: the history is the old one or the new one, byte for byte.

use spettro::event::Outcome;

use super::support::{GOAL, case, met, next_step, steps, steps_by_history, summary, unmet};
use crate::provider::{Lane, Reply, Script};
use crate::sandbox::{PATIENCE, json_lines};

/// The rests of the agent's requests of a run that nothing happened to, without those of repeated requests.
fn undisturbed(count: usize, window: u64) -> Vec<Vec<u8>> {
    let script = Script::new().agent(steps_by_history(count, 900)).summarizer(summary()).judge(met());
    let case = case(script, window, "");
    case.run().expect(Outcome::Met);
    let rests = case.provider.agent_requests().iter().map(|request| normal(request.rest(), &case)).collect();
    case.provider.finish();
    rests
}

/// What differs from sandbox to sandbox is the workspace's path and made-up ids.
fn normal(rest: &[u8], case: &crate::goal::support::Case) -> Vec<u8> {
    let text = String::from_utf8_lossy(rest).replace(&*case.sandbox.workspace().to_string_lossy(), "WORKSPACE");
    text.into_bytes()
}

#[test]
fn a_resume_after_two_compactions_sends_what_the_live_run_would_have_sent() {
    let script = Script::new().agent(steps(120, 900)).summarizer(summary()).judge(unmet("not yet")).judge(met());
    let case = case(script, 16_000, "");
    let ended = case.with(&["--max-steps", "100"]).expect(Outcome::Unmet);
    assert!(ended.facts("compaction").len() >= 2);
    let before = case.provider.agent_requests();
    let ended = case.resume(&ended, &["--max-steps", "6000"]).expect(Outcome::Met);
    assert!(!ended.finished.stderr.contains("history as this build encodes it differs"), "{}", ended.finished.stderr);
    let after = case.provider.agent_requests();
    let last = before.last().expect("requests").rest().strip_suffix(b"]}").expect("closed").to_vec();
    assert!(after[before.len()].rest().starts_with(&last), "the resumed run goes on where the other ended");
    case.provider.finish();
}

#[test]
fn killed_inside_the_summarizer_a_resume_compacts_as_the_run_would_have() {
    let expected = undisturbed(60, 16_000);
    let script = Script::new().agent(steps_by_history(60, 900)).summarizer(Reply::empty().stall()).judge(met());
    let case = case(script, 16_000, "");
    let started = case.start(&[]);
    case.provider.wait_for_lane_request(Lane::Summarizer, 1, PATIENCE);
    started.running.kill();
    let lines = json_lines(&case.sandbox.session_dirs()[0].join("session.jsonl"));
    assert!(lines.iter().all(|line| line["kind"] != "compaction"));
    case.provider.push(Lane::Summarizer, Reply::summary("summary number 1"));
    case.provider.push(Lane::Summarizer, summary_from(2));
    let finished = case.sandbox.run(["run", "--resume", "latest"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    same(&case, &expected);
}

#[test]
fn killed_right_after_the_compaction_fact_a_resume_sends_the_compacted_history() {
    let expected = undisturbed(60, 16_000);
    // The first request behind the fact is never answered; its run dies while it waits.
    let script = Script::new().agent(stalling_once()).summarizer(summary()).judge(met());
    let case = case(script, 16_000, "");
    let started = case.start(&[]);
    let compacted = |provider: &crate::provider::Provider| {
        provider.agent_requests().iter().any(|request| request.text().contains("summary number 1"))
    };
    crate::resume::support::eventually("a request behind the compaction", || compacted(&case.provider));
    started.running.kill();
    let kinds = json_lines(&case.sandbox.session_dirs()[0].join("session.jsonl"));
    let kinds: Vec<&str> = kinds.iter().filter_map(|line| line["kind"].as_str()).collect();
    assert_eq!(kinds[kinds.len() - 2..], ["compaction", "call"]);
    let finished = case.sandbox.run(["run", "--resume", "latest"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(!finished.stderr.contains("differs"), "{}", finished.stderr);
    let agents = case.provider.agent_requests();
    assert!(agents.iter().all(|request| request.text().contains(GOAL)));
    same(&case, &expected);
}

/// The first request that holds a summary gets no answer, all others what `steps_by_history` gives.
fn stalling_once() -> crate::provider::Step {
    let stalled = std::sync::atomic::AtomicBool::new(false);
    crate::provider::respond_with(move |request| {
        let first =
            request.text().contains("summary number 1") && !stalled.swap(true, std::sync::atomic::Ordering::SeqCst);
        if first { Reply::empty().stall() } else { next_step(request, 60, 900) }
    })
    .forever()
}

fn summary_from(first: usize) -> crate::provider::Step {
    crate::provider::respond_with(move |request| {
        Reply::summary(&format!("summary number {}", request.lane_n.max(first + 1) - 1))
    })
    .forever()
}

/// The requests are those of the undisturbed run, but that some were sent twice.
#[track_caller]
fn same(case: &crate::goal::support::Case, expected: &[Vec<u8>]) {
    let mut rests: Vec<Vec<u8>> =
        case.provider.agent_requests().iter().map(|request| normal(request.rest(), case)).collect();
    rests.dedup();
    let mut expected = expected.to_vec();
    expected.dedup();
    for (n, (got, wanted)) in rests.iter().zip(&expected).enumerate() {
        assert!(
            got == wanted,
            "request {} differs:\n{}\n{}",
            n + 1,
            String::from_utf8_lossy(got),
            String::from_utf8_lossy(wanted)
        );
    }
    assert_eq!(rests.len(), expected.len());
}
