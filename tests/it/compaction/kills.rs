//! Deaths around a compaction: the history is the old one or the new one, byte for byte.

use spettro::event::Outcome;

use super::support::{GOAL, case, met, next_step, steps_by_history, summary};
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
    cut_and_resumed(120, 900, 16_000, |lines| {
        let second = lines.iter().enumerate().filter(|(_, line)| line["kind"] == "compaction").nth(1);
        let (second, _) = second.expect("two compactions");
        // Some steps later, behind a request and behind a result.
        let rest = lines.iter().enumerate().skip(second + 30);
        let told = rest.filter(|(_, line)| line["kind"] == "call" || line["role"] == "tool");
        told.map(|(index, _)| index + 1).take(3).collect()
    });
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

/// A run of `count` steps whose log was cut to its first lines, as a runner that died there leaves it, goes on: its
/// requests are those of the run that nothing happened to.
fn cut_and_resumed(count: usize, bytes: usize, window: u64, cuts: impl Fn(&[serde_json::Value]) -> Vec<usize>) {
    let script =
        || Script::new().agent(steps_by_history(count, bytes)).summarizer(summary_by_history()).judge(met().forever());
    let whole = case(script(), window, "");
    let ended = whole.run().expect(Outcome::Met);
    let expected: Vec<Vec<u8>> =
        whole.provider.agent_requests().iter().map(|request| normal(request.rest(), &whole)).collect();
    let log = ended.dir.as_ref().expect("a session").join("session.jsonl");
    let lines = json_lines(&log);
    let places = cuts(&lines);
    assert!(places.len() >= 2, "{places:?}");
    let text = whole.sandbox.read(&log);
    for place in places {
        let kept: String = text.split_inclusive('\n').take(place).collect();
        whole.sandbox.write(&log, &kept);
        forget_later_outputs(log.parent().expect("a folder"), &lines[..place]);
        let before = whole.provider.count(Lane::Agent);
        let answered =
            lines[..place].iter().filter(|line| line["kind"] == "settled" && line["lane"] == "agent").count();
        let finished = whole.sandbox.run(["run", "--resume", "latest"]);
        assert_eq!(finished.code, Some(0), "behind line {place}: {}", finished.stderr);
        assert!(!finished.stderr.contains("differs"), "{}", finished.stderr);
        let agents = whole.provider.agent_requests();
        let now: Vec<Vec<u8>> = agents[before..].iter().map(|request| normal(request.rest(), &whole)).collect();
        let wanted = &expected[answered..];
        assert_eq!(now.len(), wanted.len(), "behind line {place}: {:?}", lines[place - 1]["kind"]);
        for (n, (now, wanted)) in now.iter().zip(wanted).enumerate() {
            assert!(
                now == wanted,
                "behind line {place} request {n} differs:\n{}\n{}",
                String::from_utf8_lossy(now),
                String::from_utf8_lossy(wanted)
            );
        }
    }
    whole.provider.finish();
}

/// Takes away the outputs that the runner had not written yet.
fn forget_later_outputs(session: &std::path::Path, lines: &[serde_json::Value]) {
    let last = lines.iter().filter_map(|line| line["spool"].as_u64()).max().unwrap_or(0);
    for entry in std::fs::read_dir(session.join("spool")).into_iter().flatten() {
        let path = entry.expect("a readable entry").path();
        let id = path.file_name().and_then(|name| name.to_str()?.parse::<u64>().ok());
        if id.is_some_and(|id| id > last) {
            std::fs::remove_file(path).expect("it is the test's own");
        }
    }
}

/// Line counts of a log that end right before and right behind each fact of a kind, the first few of them.
fn around<'a>(kind: &'a str, most: usize) -> impl Fn(&[serde_json::Value]) -> Vec<usize> + 'a {
    move |lines| {
        let facts = lines.iter().enumerate().filter(|(_, line)| line["kind"] == kind).take(most);
        facts.flat_map(|(index, _)| [index, index + 1]).collect()
    }
}

#[test]
fn killed_between_the_plan_of_stubs_and_its_fact_or_right_behind_it_a_resume_sends_the_same() {
    cut_and_resumed(60, 5_000, 40_000, around("prune", 2));
}

#[test]
fn killed_right_before_or_behind_a_summary_a_resume_sends_the_same() {
    cut_and_resumed(100, 900, 16_000, around("compaction", 2));
}

#[test]
fn killed_with_a_call_of_the_summarizer_open_or_settled_a_resume_sends_the_same() {
    cut_and_resumed(60, 900, 16_000, |lines| {
        let mine = |kind: &str| {
            let found = |line: &serde_json::Value| line["kind"] == kind && line["lane"] == "summarizer";
            lines.iter().position(found).map(|index| index + 1)
        };
        [mine("call"), mine("settled")].into_iter().flatten().collect()
    });
}

/// A summary that names the step before which it is made: asked again, the summarizer says the same.
fn summary_by_history() -> crate::provider::Step {
    crate::provider::respond_with(|request| {
        let text = request.text();
        let last = text.rsplit("step ").find_map(|rest| rest.split(['\\', ';', '"']).next()?.parse::<usize>().ok());
        Reply::summary(&format!("all up to step {}", last.expect("a step")))
    })
    .forever()
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
