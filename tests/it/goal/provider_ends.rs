//! Ends that the provider, the window, the key or a recording bring about.

use spettro::event::Outcome;

use super::support::{Case, content, met};
use crate::provider::{Provider, Reply, Script};

#[test]
fn a_missing_key_ends_before_anything_else() {
    let case = Case::new(Script::new().key("the-key"), "goal: x");
    case.sandbox.unset(crate::sandbox::KEY_VARIABLE);
    let ended = case.run().expect(Outcome::Auth);
    assert!(ended.error().contains(crate::sandbox::KEY_VARIABLE), "{}", ended.error());
    assert_eq!(case.sandbox.session_dirs().len(), 0);
    case.provider.finish();
}

#[test]
fn a_refused_key_is_auth_at_once() {
    let case = Case::new(Script::new().key("the-key").agent(Reply::error(401)), "goal: x");
    let ended = case.run().expect(Outcome::Auth);
    assert!(!ended.result.retryable);
    assert_eq!((case.provider.requests().len(), ended.result.total_cost_usd), (1, 0.0));
    case.provider.push(crate::provider::Lane::Agent, Reply::complete("done"));
    case.provider.push(crate::provider::Lane::Judge, met());
    case.resume(&ended, &[]).expect(Outcome::Met);
    case.provider.finish();
}

#[test]
fn an_outage_past_its_budget_is_the_providers() {
    for failure in [Reply::error(500), Reply::error(529), Reply::error(503).header("retry-after-ms", "60")] {
        let waits = failure.clone().header("retry-after-ms", "1");
        let named = waits.repeat(1);
        let case =
            Case::new(Script::new().agent(named).agent(failure.forever()), "goal: x\nrate_limit: {max_wait: 100ms}");
        let ended = case.run();
        // Used up after a named wait is `saved`, else `provider`; both may be tried again.
        assert!(ended.result.retryable);
        assert!(matches!(ended.result.outcome, Some(Outcome::Provider | Outcome::Saved)));
        assert!(!ended.facts("attempt").is_empty());
        case.provider.finish();
    }
}

#[test]
fn a_server_error_past_the_budget_is_provider() {
    let case = Case::new(Script::new().agent(Reply::error(500).forever()), "goal: x\nrate_limit: {max_wait: 100ms}");
    let ended = case.run().expect(Outcome::Provider);
    assert!(ended.result.retryable);
    assert_eq!(ended.result.total_cost_usd, 0.0, "an attempt without an answer costs nothing");
    case.provider.finish();
}

#[test]
fn a_provider_that_nobody_serves_is_provider() {
    let case = Case::new(Script::new(), "goal: x\nrate_limit: {max_wait: 100ms}");
    let dead = Provider::dead_url();
    let ended = case.with(&["--set", &format!("model={{id: test/model-1, wire: anthropic, base_url: \"{dead}\"}}")]);
    ended.expect(Outcome::Provider);
    case.provider.finish();
}

#[test]
fn a_failed_attempt_is_tried_again_and_the_wait_does_not_count() {
    let script = Script::new()
        .agent(Reply::error(529).header("retry-after-ms", "300"))
        .agent(Reply::text("ok").cut_after(40))
        .agent(Reply::complete("done"))
        .judge(met());
    let case = Case::new(script, "goal: x");
    let ended = case.run().expect(Outcome::Met);
    assert_eq!(ended.result.steps, 1, "attempts are no steps");
    assert_eq!(ended.facts("attempt").len(), 2);
    assert!(ended.result.waited_ms >= 300, "{}", ended.result.waited_ms);
    assert!(ended.result.active_ms + 250 <= ended.result.duration_ms, "{:?}", ended.result);
    let events = ended.finished.events_of("run.waiting");
    assert_eq!(events.len(), 2);
    case.provider.finish();
}

#[test]
fn an_invalid_request_is_provider_and_not_worth_a_retry() {
    let case = Case::new(Script::new().agent(Reply::error(400)), "goal: x");
    let ended = case.run().expect(Outcome::Provider);
    assert!(!ended.result.retryable);
    case.provider.finish();
}

#[test]
fn a_rate_limit_longer_than_the_budget_is_saved_and_says_when() {
    let script = Script::new()
        .agent(Reply::error(429).header("retry-after", "3600"))
        .agent(Reply::complete("done"))
        .judge(met());
    let case = Case::new(script, "goal: x\nrate_limit: {max_wait: 1m}");
    let ended = case.run().expect(Outcome::Saved);
    assert_eq!((ended.result.retry_after_s, ended.result.retryable), (Some(3_600), true));
    let why = "it asks for a wait of 1h, and `rate_limit.max_wait` is 1m";
    assert!(ended.error().contains(why), "{}", ended.error());
    let again = case.resume(&ended, &[]).expect(Outcome::Met);
    assert_eq!(again.result.iterations, 1);
    case.provider.finish();
}

#[test]
fn turns_that_fail_in_a_row_are_the_providers_and_a_good_one_between_counts_anew() {
    // Three empty replies fail a turn: two are nudged.
    let script = Script::new().agent(Reply::empty().repeat(6));
    let case = Case::new(script, "goal: x\nlimits: {consecutive_errors: 2}");
    let ended = case.run().expect(Outcome::Provider);
    assert_eq!((ended.turns(), ended.result.iterations), (vec!["failed".to_owned(), "failed".to_owned()], 2));
    assert_eq!(case.provider.judge_requests().len(), 0, "the judge is not asked about a failed turn");
    let onward = case.provider.agent_requests()[3].new_text();
    assert!(onward.contains("failed") && onward.contains("empty"), "{onward}");
    case.provider.finish();
}

#[test]
fn refusals_in_a_row_are_refused() {
    let case = Case::new(Script::new().agent(Reply::refusal("I will not").repeat(3)), "goal: x");
    let ended = case.run().expect(Outcome::Refused);
    assert_eq!(ended.turns(), ["refused", "refused", "refused"]);
    assert_eq!(case.provider.judge_requests().len(), 0);
    case.provider.finish();
}

#[test]
fn a_goal_that_can_never_fit_is_usage() {
    let case = Case::new(Script::new(), &format!("goal: \"{}\"", "word ".repeat(8_000)));
    let model = case.sandbox.model_yaml(&case.provider, "test/model-1").replace("200000", "12000");
    let model = model.trim_start_matches("model: ").trim();
    let ended = case.with(&["--set", &format!("model={model}")]).expect(Outcome::Usage);
    assert!(ended.error().contains("12000"), "{}", ended.error());
    case.provider.finish();
}

#[test]
fn an_overflow_that_the_server_reports_is_context() {
    let case = Case::new(Script::new().agent(Reply::overflow(8_192)), "goal: x");
    let ended = case.run().expect(Outcome::Context);
    assert!(!ended.result.retryable);
    case.provider.finish();
}

#[test]
fn a_recording_that_is_corrupt_or_used_up_is_unusable() {
    let case = Case::new(content(), "goal: x");
    case.run().expect(Outcome::Met);
    case.sandbox.run(["cassette", "pack", "latest", "-o", "../run.jsonl"]).expect_code(0);
    let file = case.sandbox.root().join("run.jsonl");
    let goal = |yaml: &str| case.sandbox.goal_without_model(&format!("{yaml}\nmodel: {{cassette: run.jsonl}}"));

    goal("goal: x");
    let ended = case.run().expect(Outcome::Met);
    assert!(ended.result.recorded_model);

    // A check that never passes needs more replies than there are.
    goal("goal: x\nchecks: ['false']");
    let ended = case.run().expect(Outcome::Unusable);
    assert!(ended.error().contains("cassette"), "{}", ended.error());

    let text = case.sandbox.read(&file);
    case.sandbox.write(&file, text.replacen("done", "gone", 1));
    goal("goal: x");
    let ended = case.run().expect(Outcome::Unusable);
    assert_eq!(ended.result.session_id, None);
    case.sandbox.write(&file, &text[..text.len() / 2]);
    case.run().expect(Outcome::Unusable);
    std::fs::remove_file(&file).expect("it is there");
    assert!(matches!(case.run().result.outcome, Some(Outcome::Unusable | Outcome::Usage)));
    case.provider.finish();
}
