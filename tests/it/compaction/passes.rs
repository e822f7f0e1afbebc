//! What a pass does when nothing fails.

use spettro::event::Outcome;

use super::support::{GOAL, audit, case, events, met, steps, summary, unmet};
use crate::provider::{Reply, Request, Script, respond_with};

#[test]
fn a_run_of_one_prompt_and_three_hundred_steps_stays_in_its_window() {
    let script = Script::new().agent(steps(300, 900)).summarizer(summary()).judge(met());
    let case = case(script, 24_000, "");
    let ended = case.run().expect(Outcome::Met);
    audit(&case, &ended, 24_000);
    assert!(ended.facts("compaction").len() >= 3, "{}", ended.facts("compaction").len());
    assert_eq!(case.provider.agent_requests().len(), 301);
    let said = &ended.finished.stderr;
    assert!(said.contains("compacted 2") && said.contains("k tokens ("), "{said}");
    case.provider.finish();
}

#[test]
fn where_pruning_alone_suffices_the_summarizer_is_never_asked() {
    let script = Script::new().agent(steps(60, 6_000)).judge(met());
    let case = case(script, 60_000, "");
    let ended = case.run().expect(Outcome::Met);
    audit(&case, &ended, 60_000);
    let finished = events(&ended, "compaction.finished");
    assert!(!finished.is_empty() && finished.iter().all(|event| event["stage"] == "prune"), "{finished:?}");
    let last = case.provider.agent_requests().last().expect("requests").text();
    assert!(last.contains("chars, spool:1 — re-read with tool-output"), "a stub");
    case.provider.finish();
}

#[test]
fn a_second_compaction_merges_the_first_and_gets_its_notes() {
    let script = Script::new().agent(steps(200, 900)).summarizer(summary()).judge(met());
    let case = case(script, 16_000, "");
    let ended = case.run().expect(Outcome::Met);
    audit(&case, &ended, 16_000);
    let asked = case.provider.summarizer_requests();
    assert!(asked.len() >= 2);
    assert!(asked[0].text().contains(GOAL) && asked[0].tool_names().is_empty());
    assert!(!asked[0].text().contains("thought 1"), "thinking is not for the summarizer");
    assert!(asked[1].text().contains("summary number 1"));
    let last = case.provider.agent_requests().last().expect("requests").text();
    assert!(!last.contains("summary number 1\\n"), "merged, not kept beside");
    assert!(last.contains(&format!("summary number {}\\n", asked.len())));
    case.provider.finish();
}

#[test]
fn every_window_keeps_its_requests_inside() {
    for (window, bytes) in [(8_192, 1_500), (24_000, 1_800), (26_002, 2_500), (32_000, 9_000), (100_000, 40_000)] {
        let script = Script::new().agent(steps(60, bytes)).summarizer(summary()).judge(met());
        let case = case(script, window, "");
        let ended = case.run().expect(Outcome::Met);
        audit(&case, &ended, window);
        assert!(!events(&ended, "compaction.finished").is_empty(), "{window} was filled");
        case.provider.finish();
    }
}

#[test]
fn a_window_of_a_million_keeps_its_requests_inside() {
    // Each step reads eight pages of some 12,000 tokens.
    let agent = respond_with(|request: &Request| {
        let n = request.lane_n;
        if n > 14 {
            return Reply::complete("all is read");
        }
        let pages = (0..8).map(|page| serde_json::json!({"path": "book", "offset": n * 8 + page, "limit": 1_999}));
        pages.fold(Reply::empty(), |reply, page| reply.and_call("file-read", page))
    });
    let script = Script::new().agent(agent.forever()).summarizer(summary()).judge(met());
    let case = case(script, 1_000_000, "");
    case.sandbox.write("book", "and so it went on and on\n".repeat(3_000));
    let ended = case.run().expect(Outcome::Met);
    audit(&case, &ended, 1_000_000);
    let largest = case.provider.agent_requests().iter().map(|request| request.body.len() / 4).max();
    assert!(largest > Some(600_000), "{largest:?}");
    assert!(!events(&ended, "compaction.finished").is_empty());
    case.provider.finish();
}

#[test]
fn a_window_that_fills_again_right_after_each_summary_pauses_with_what_fills_it() {
    // Words of the agent itself, which no stub can stand for.
    let agent = respond_with(|request: &Request| {
        let n = request.lane_n;
        if n > 40 {
            return Reply::complete("done");
        }
        Reply::text(&format!("{n} {}", "I think about it once more. ".repeat(1_100)))
            .and_call("bash", serde_json::json!({"command": format!("echo {n}")}))
    });
    let script = Script::new().agent(agent.forever()).summarizer(summary()).judge(met());
    let case = case(script, 32_000, "");
    let ended = case.run().expect(Outcome::Met);
    audit(&case, &ended, 32_000);
    let paused = events(&ended, "compaction.paused");
    let reason = paused[0]["reason"].as_str().expect("a reason");
    assert!(reason.starts_with("the window fills again right after each summary: system "), "{reason}");
    for part in [", tools ", ", first message ", ", history ", ", last tool rounds "] {
        assert!(reason.contains(part), "{reason}");
    }
    // Four summaries, each within three steps of the one before; then only what is forced.
    let facts = ended.facts("compaction");
    let at: Vec<u64> = facts.iter().map(|fact| fact["before_call"].as_u64().expect("a number")).collect();
    assert!(at[..4].windows(2).all(|pair| pair[1] - pair[0] <= 3), "{at:?}");
    assert!(facts[..4].iter().all(|fact| fact["forced"] == false) && facts[4]["forced"] == true, "{at:?}");
    assert!(ended.finished.stderr.contains("compaction paused: the window fills again"));
    case.provider.finish();
}

#[test]
fn an_instruction_given_while_it_works_stays_over_iterations() {
    let agent = respond_with(|request: &Request| {
        let n = request.lane_n;
        if n.is_multiple_of(40) {
            return Reply::text(&format!("I think part {n} is done."));
        }
        Reply::bash(&format!("echo {n}; head -c 1200 /dev/zero | tr '\\0' 'y' | fold -w 60"))
    });
    let script = Script::new()
        .agent(agent.forever())
        .summarizer(summary())
        .judge(unmet("one is missing"))
        .judge(unmet("two are missing"))
        .judge(met());
    let case = case(script, 16_000, "");
    let ended = case.run().expect(Outcome::Met);
    audit(&case, &ended, 16_000);
    let last = case.provider.agent_requests().last().expect("requests").text();
    assert!(last.contains("two are missing"), "the latest continuation is whole");
    assert_eq!(ended.result.iterations, 3);
    case.provider.finish();
}

#[test]
fn off_means_that_only_an_overflow_compacts() {
    let script = Script::new().agent(steps(60, 1_000)).summarizer(summary()).judge(met());
    let case = case(script, 16_000, "");
    let ended = case.with(&["--auto-compact", "off"]).expect(Outcome::Met);
    audit(&case, &ended, 16_000);
    assert!(
        events(&ended, "compaction.finished").iter().all(|event| event["forced"] == true || event["stage"] == "prune")
    );
    case.provider.finish();
}

#[test]
fn what_can_never_fit_is_said_before_anything_is_spent() {
    let more = format!("criteria: [\"{}\"]", "a long criterion, ".repeat(1_500));
    let case = case(Script::new(), 8_192, &more);
    let ended = case.run().expect(Outcome::Usage);
    let error = ended.error();
    for part in ["window of 8192 tokens", "system prompt", "tools", "first message", "larger window"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(case.provider.requests().is_empty());
    // A look ahead says the same, and no later.
    let goal = case.goal.to_str().expect("UTF-8");
    let seen = case.sandbox.run(["run", "--goal", goal, "--dry-run"]).expect_code(2);
    for part in ["window of 8192 tokens", "system prompt", "tools", "first message", "hint"] {
        assert!(seen.stderr.contains(part), "{part}: {}", seen.stderr);
    }
    case.provider.finish();
}
