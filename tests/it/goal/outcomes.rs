//! One run for each verdict, and for what stands in a verdict's way.

use spettro::event::Outcome;

use super::support::{Case, content, impossible, met, unmet};
use crate::provider::{Reply, Script, Wire};
use crate::sandbox::Sandbox;

#[test]
fn met_on_the_first_verdict_on_either_wire() {
    for wire in Wire::ALL {
        let script = Script::new().agent(Reply::bash("echo hi > made")).agent(Reply::complete("made")).judge(met());
        let case = Case::within(Sandbox::new().wire(wire), script, "goal: make it");
        let ended = case.run().expect(Outcome::Met);
        assert_eq!((ended.result.iterations, ended.result.steps), (1, 2));
        assert_eq!(ended.reason(), "it is so");
        assert_eq!(ended.result.result.as_deref(), Some("made"));
        assert_eq!(case.sandbox.read("made"), "hi\n");
        assert_eq!(ended.result.changes.as_ref().map(|changes| changes.files.clone()), Some(vec!["made".to_owned()]));
        case.provider.finish();
    }
}

#[test]
fn unmet_then_met_is_two_turns_and_two_verdicts() {
    let script = Script::new()
        .agent(Reply::text("first try"))
        .judge(unmet("half of it is missing"))
        .agent(Reply::text("second try"))
        .judge(met());
    let case = Case::new(script, "goal: make it so");
    let ended = case.run().expect(Outcome::Met);
    assert_eq!((ended.result.iterations, ended.result.steps), (2, 2));
    assert_eq!(case.provider.judge_requests().len(), 2);
    let onward = case.provider.agent_requests()[1].new_text();
    for part in ["half of it is missing", "make it so", "do the rest"] {
        assert!(onward.contains(part), "{onward}");
    }
    assert_eq!(ended.facts("verdict").len(), 2);
    case.provider.finish();
}

#[test]
fn one_iteration_that_is_never_met_is_unmet_with_the_last_reason() {
    let script = Script::new().agent(Reply::text("done").forever()).judge(unmet("the door is open").forever());
    let case = Case::new(script, "goal: close the door\nlimits: {iterations: 1}");
    let ended = case.run().expect(Outcome::Unmet);
    assert_eq!(ended.reason(), "the door is open");
    assert_eq!(ended.result.verdict.as_ref().map(|verdict| verdict.next_step.as_str()), Some("do the rest"));
    assert_eq!(ended.result.limit_hit.as_deref(), Some("limits.iterations"));
    // The resume line works: with no more iterations it ends at once as before, with one more it goes on.
    let again = case.resume(&ended, &["--max-iterations", "2"]).expect(Outcome::Unmet);
    assert_eq!((again.result.iterations, again.result.run_usage.iterations), (2, 1));
    case.provider.finish();
}

#[test]
fn a_resume_without_more_iterations_spends_nothing() {
    let script = Script::new().agent(Reply::text("done")).judge(unmet("no"));
    let case = Case::new(script, "goal: close the door\nlimits: {iterations: 1}");
    let ended = case.run().expect(Outcome::Unmet);
    let again = case.resume(&ended, &[]).expect(Outcome::Unmet);
    assert_eq!((again.result.iterations, again.result.run_usage.calls), (1, 0));
    case.provider.finish();
}

#[test]
fn the_step_limit_ends_unmet_but_a_goal_met_by_its_last_step_is_met() {
    let script = || Script::new().agent(Reply::bash("echo 1 >> log").forever());
    let yaml = "goal: three lines\nchecks: ['test $(wc -l < log) -ge 3']\nlimits: {steps: 3}";
    let case = Case::new(script().judge(met()), yaml);
    let ended = case.run().expect(Outcome::Met);
    assert_eq!((ended.result.steps, ended.turns()), (3, vec!["budget".to_owned()]));
    case.provider.finish();

    let case = Case::new(script().judge(unmet("not enough")), "goal: more lines\nlimits: {steps: 3}");
    let ended = case.run().expect(Outcome::Unmet);
    assert_eq!((ended.result.steps, ended.result.limit_hit.as_deref()), (3, Some("limits.steps")));
    assert_eq!(ended.reason(), "not enough");
    case.provider.finish();
}

#[test]
fn a_turn_ends_at_its_own_step_limit_and_the_next_one_goes_on() {
    let script = Script::new().agent(Reply::bash("echo 1 >> log").forever()).judge(unmet("more")).judge(met());
    let case = Case::new(script, "goal: lines\nlimits: {steps_per_iteration: 2}");
    let ended = case.run().expect(Outcome::Met);
    assert_eq!((ended.result.iterations, ended.result.steps), (2, 4));
    assert_eq!(ended.turns(), ["budget", "budget"]);
    case.provider.finish();
}

#[test]
fn impossible_is_impossible_when_it_is_said_twice() {
    let script = Script::new().agent(Reply::text("it cannot be")).judge(impossible().repeat(2));
    let case = Case::new(script, "goal: a round square");
    let ended = case.run().expect(Outcome::Impossible);
    assert_eq!(ended.reason(), "it contradicts itself");
    // The second opinion is a fresh one: it sees the same, and nothing of the first.
    let asked = case.provider.judge_requests();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0].messages(), asked[1].messages());
    case.provider.finish();
}

#[test]
fn impossible_said_once_goes_on() {
    let script = Script::new()
        .agent(Reply::text("it cannot be"))
        .judge(impossible())
        .judge(unmet("it can be"))
        .agent(Reply::text("so it is"))
        .judge(met());
    let case = Case::new(script, "goal: a rounded square");
    let ended = case.run().expect(Outcome::Met);
    assert_eq!(ended.result.iterations, 2);
    let onward = case.provider.agent_requests()[1].new_text();
    assert!(onward.contains("it contradicts itself") && onward.contains("it can be"), "{onward}");
    case.provider.finish();
}

#[test]
fn a_claim_of_success_is_nothing_against_a_check() {
    let script = Script::new()
        .agent(Reply::complete("all tests pass"))
        .agent(Reply::bash("touch done").and_text("now really"))
        .agent(Reply::complete("all tests pass"))
        .judge(met());
    let yaml = "goal: x\nchecks: [{name: tests, run: 'test -e done || { echo the file is missing; exit 1; }'}]";
    let case = Case::new(script, yaml);
    let ended = case.run().expect(Outcome::Met);
    // The first claim was refuted without a judge, and the model saw why.
    assert_eq!((ended.result.iterations, case.provider.judge_requests().len()), (2, 1));
    let onward = case.provider.agent_requests()[1].new_text();
    assert!(onward.contains("the file is missing") && onward.contains("`tests`"), "{onward}");
    let verdict = &ended.facts("verdict")[0]["verdict"];
    assert_eq!((verdict["kind"].as_str(), verdict["by"].as_str()), (Some("unmet"), Some("checks")));
    case.provider.finish();
}

#[test]
fn nothing_but_words_is_a_nudge_and_then_stalled() {
    let script = Script::new().agent(Reply::text("thinking about it").forever()).judge(unmet("nothing done").forever());
    let case = Case::new(script, "goal: x\nlimits: {stall: 2}");
    let ended = case.run().expect(Outcome::Stalled);
    // Two without progress, the nudge, and one more that brings nothing.
    assert_eq!(ended.result.iterations, 3);
    let told: Vec<bool> = case.provider.agent_requests().iter().map(|r| r.new_text().contains("no progress")).collect();
    assert_eq!(told, [false, false, true]);
    case.provider.finish();
}

#[test]
fn without_a_judge_the_checks_alone_decide() {
    let script = Script::new().agent(Reply::text("done")).agent(Reply::bash("touch done")).agent(Reply::text("done"));
    let case = Case::new(script, "goal: x\njudge: off\nchecks: ['test -e done']");
    let ended = case.run().expect(Outcome::Met);
    assert_eq!((ended.result.iterations, ended.result.judge_model.as_deref()), (2, None));
    case.provider.finish();
}

#[test]
fn what_is_met_already_costs_no_turn() {
    let yaml =
        "goal: x\nskip_if_met: true\nchecks: ['true', {run: 'test -e late', when: before_judge, required: false}]";
    let case = Case::new(Script::new().judge(met()), yaml);
    let ended = case.run().expect(Outcome::Met);
    assert_eq!((ended.result.iterations, ended.result.steps, ended.result.checks.len()), (0, 0, 2));
    case.provider.finish();

    let case = Case::new(Script::new(), "goal: x\nskip_if_met: true\njudge: off\nchecks: ['true']");
    let ended = case.run().expect(Outcome::Met);
    assert_eq!((ended.result.iterations, ended.result.total_cost_usd), (0, 0.0));
    case.provider.finish();
}

#[test]
fn what_is_not_met_already_is_worked_on() {
    let script = Script::new().judge(unmet("no")).agent(Reply::text("done")).judge(met());
    let case = Case::new(script, "goal: x\nskip_if_met: true\nchecks: ['true']");
    let ended = case.run().expect(Outcome::Met);
    assert_eq!((ended.result.iterations, ended.result.steps), (1, 1));
    case.provider.finish();
}

#[test]
fn a_judge_without_a_verdict_keeps_the_goal_for_a_resume() {
    for useless in
        [Reply::text("I think so"), Reply::empty(), Reply::verdict("maybe", "who knows", ""), Reply::refusal("no")]
    {
        let script = Script::new().agent(Reply::text("done")).judge(useless.repeat(3)).judge(met());
        let case = Case::new(script, "goal: x");
        let ended = case.run().expect(Outcome::JudgeFailed);
        assert!(ended.result.retryable);
        assert_eq!(case.provider.judge_requests().len(), 3, "once, and two repairs");
        // The resume asks the judge again, about the same turn.
        let again = case.resume(&ended, &[]).expect(Outcome::Met);
        assert_eq!((again.result.iterations, again.result.steps), (1, 1));
        case.provider.finish();
    }
}

#[test]
fn a_repaired_verdict_counts_and_the_repair_quotes_the_error() {
    let script = Script::new().agent(Reply::text("done")).judge(Reply::verdict("perhaps", "x", "")).judge(met());
    let case = Case::new(script, "goal: x");
    case.run().expect(Outcome::Met);
    let repair = case.provider.judge_requests()[1].text();
    assert!(repair.contains("`perhaps` is no verdict"), "{repair}");
    case.provider.finish();
}

#[test]
fn verdicts_in_prose_are_read_right() {
    for (text, outcome) in [
        ("Since {x} holds in the set {1, 2}: {\"verdict\": \"met\", \"reason\": \"ok\"}", Outcome::Met),
        ("{\"verdict\":\"met\",\"reason\":\"a\"} or rather {\"verdict\":\"unmet\",\"reason\":\"b\"}", Outcome::Unmet),
        ("```json\n{\"verdict\": \"met\", \"reason\": \"ok\"}\n```", Outcome::Met),
        ("{\"verdict\": \" MET \", \"reason\": \"ok\"}", Outcome::Met),
    ] {
        let script = Script::new().agent(Reply::text("done")).judge(Reply::text(text));
        let case = Case::new(script, "goal: x\nlimits: {iterations: 1}");
        case.run().expect(outcome);
        case.provider.finish();
    }
}

#[test]
fn a_judge_that_cannot_be_forced_is_asked_without() {
    for wire in Wire::ALL {
        let script = Script::new()
            .agent(Reply::text("done"))
            .judge(Reply::error(400))
            .judge(Reply::text("{\"verdict\": \"met\", \"reason\": \"ok\"}"));
        let case = Case::within(Sandbox::new().wire(wire), script, "goal: x");
        case.run().expect(Outcome::Met);
        let asked = case.provider.judge_requests();
        assert_eq!(asked[0].forced().as_deref(), Some("verdict"));
        assert_eq!(asked[1].forced(), None);
        case.provider.finish();
    }
}

#[test]
fn met_while_a_criterion_is_not_is_unmet() {
    let verdict = serde_json::json!({"verdict": "met", "reason": "mostly", "next_step": "", "criteria": [
        {"index": 1, "met": true, "evidence": "seen"}, {"index": 2, "met": false, "evidence": "no docs"}]});
    let script = Script::new().agent(Reply::text("done")).judge(Reply::verdict_with(verdict));
    let case = Case::new(script, "goal: x\ncriteria: [code, docs]\nlimits: {iterations: 1}");
    let ended = case.run().expect(Outcome::Unmet);
    assert!(ended.reason().contains("no docs"), "{}", ended.reason());
    let verdict = ended.result.verdict.expect("a verdict");
    assert_eq!(verdict.criteria.iter().map(|c| (c.index, c.met)).collect::<Vec<_>>(), [(1, true), (2, false)]);
    case.provider.finish();
}

#[test]
fn votes_need_a_majority_and_an_unusable_reply_is_none() {
    let vote = |replies: Vec<Reply>| {
        let mut script = Script::new().agent(Reply::text("done"));
        for reply in replies {
            script = script.judge(reply);
        }
        let case = Case::new(script, "goal: x\njudge: {votes: 3}\nlimits: {iterations: 1}");
        let ended = case.run();
        case.provider.finish();
        ended
    };
    vote(vec![met(), unmet("no"), met()]).expect(Outcome::Met);
    vote(vec![impossible(), unmet("no"), impossible()]).expect(Outcome::Impossible);
    let split = vote(vec![met(), unmet("no"), Reply::text("hm")]).expect(Outcome::Unmet);
    assert!(split.reason().contains("it is so") && split.reason().contains("no"), "{}", split.reason());
    vote(vec![Reply::text("hm"), Reply::text("hm"), Reply::text("hm")]).expect(Outcome::JudgeFailed);
}

#[test]
fn a_check_that_can_never_pass_brings_the_judge_in_when_the_nudge_is_due() {
    let script = Script::new().agent(Reply::text("done").forever()).judge(impossible().repeat(2));
    let case = Case::new(script, "goal: x\nchecks: [{name: never, run: 'false'}]\nlimits: {stall: 2}");
    let ended = case.run().expect(Outcome::Impossible);
    assert_eq!(ended.result.iterations, 2);
    let packet = case.provider.judge_requests()[0].text();
    assert!(packet.contains("never"), "{packet}");
    case.provider.finish();
}

#[test]
fn a_judge_who_is_asked_beside_a_failed_check_cannot_say_met() {
    let script = Script::new().agent(Reply::text("done")).judge(met());
    let case = Case::new(script, "goal: x\nchecks: [{name: never, run: 'false'}]\nlimits: {iterations: 1}");
    let ended = case.run().expect(Outcome::Unmet);
    assert!(ended.reason().contains("never"), "{}", ended.reason());
    case.provider.finish();
}

#[test]
fn the_judge_sees_the_end_of_a_long_last_message() {
    let long = format!("{}THE RESULT IS 42", "filler ".repeat(700));
    assert!(long.len() > 4_900);
    let script = Script::new().agent(Reply::text(&long)).judge(met());
    let case = Case::new(script, "goal: x");
    case.run().expect(Outcome::Met);
    assert!(case.provider.judge_requests()[0].text().contains("THE RESULT IS 42"));
    case.provider.finish();
}

#[test]
fn a_protected_file_that_a_command_edits_ends_the_run() {
    let sandbox = Sandbox::new();
    sandbox.write("tests/suite.sh", "exit 1\n");
    let edit = Reply::bash("echo exit 0 > tests/suite.sh");
    let script = Script::new().agent(edit).agent(Reply::complete("all pass")).judge(met());
    let case = Case::within(sandbox, script, "goal: x\nprotect: ['tests/**']\nchecks: ['sh tests/suite.sh']");
    let ended = case.run().expect(Outcome::Policy);
    assert!(ended.error().contains("tests/suite.sh"), "{}", ended.error());
    assert_eq!(case.provider.judge_requests().len(), 0);
    // Who resumes has seen it: what stands now is what is protected from now on.
    case.resume(&ended, &[]).expect(Outcome::Met);
    case.provider.finish();
}

#[test]
fn the_goal_file_is_always_protected_and_its_text_was_frozen() {
    let edit = "sed -i 's/hard/easy/' ../goal.yaml";
    let script = Script::new().agent(Reply::bash(edit)).agent(Reply::complete("done"));
    // In the sandbox it cannot even be tried.
    let case = Case::new(script, "goal: something hard\nsandbox: {files: off}");
    let ended = case.run().expect(Outcome::Policy);
    assert!(ended.error().contains("goal.yaml"), "{}", ended.error());
    assert_eq!(ended.facts("frozen")[0]["goal"], "something hard");
    case.provider.finish();
}

#[test]
fn a_missing_program_of_a_check_ends_before_anything_is_changed() {
    let script = Script::new().agent(Reply::bash("touch changed").forever());
    let case = Case::new(script, "goal: x\nchecks: [{name: lint, run: no-such-linter --all}]");
    let ended = case.run().expect(Outcome::Environment);
    assert!(ended.error().contains("no-such-linter") && ended.error().contains("lint"), "{}", ended.error());
    assert!(!case.sandbox.exists("changed"));
    case.provider.finish();
}

#[test]
fn a_missing_path_of_the_workspace_is_what_the_agent_is_to_make() {
    let script = Script::new()
        .agent(Reply::bash("printf '#!/bin/sh\\nexit 0\\n' > run.sh; chmod +x run.sh"))
        .agent(Reply::complete("done"))
        .judge(met());
    let case = Case::new(script, "goal: x\nchecks: ['./run.sh']");
    case.run().expect(Outcome::Met);
    case.provider.finish();
}

#[test]
fn a_setup_that_fails_ends_with_its_output_and_no_model_is_asked() {
    let case = Case::new(Script::new(), "goal: x\nsetup: ['echo no compiler here; exit 3']");
    let ended = case.run().expect(Outcome::Environment);
    assert!(ended.error().contains("exit 3") && ended.error().contains("no compiler here"), "{}", ended.error());
    assert_eq!(case.sandbox.session_dirs().len(), 0, "an unused session leaves nothing");
    case.provider.finish();

    let case = Case::new(content(), "goal: x\nsetup: ['echo ready > ready']\nchecks: ['test -e ready']");
    case.run().expect(Outcome::Met);
    case.provider.finish();
}

#[test]
fn a_judge_that_takes_too_long_is_asked_again() {
    let script = Script::new().agent(Reply::complete("done")).judge(met().stall()).judge(met());
    let case = Case::new(script, "goal: x\njudge: {timeout: 200ms}");
    let ended = case.run().expect(Outcome::Met);
    assert_eq!(ended.facts("attempt").len(), 1);
    case.provider.finish();
}

#[test]
fn a_check_before_the_judge_waits_for_the_others_and_gates_like_them() {
    let script = Script::new()
        .agent(Reply::text("a"))
        .agent(Reply::bash("touch quick"))
        .agent(Reply::text("b"))
        .agent(Reply::bash("touch slow"))
        .agent(Reply::text("c"))
        .judge(met());
    let yaml = "goal: x\nchecks: ['test -e quick', {name: slow, run: 'echo . >> ../tmp/runs; test -e slow', when: before_judge}]";
    let case = Case::new(script, yaml);
    let ended = case.run().expect(Outcome::Met);
    assert_eq!(ended.result.iterations, 3);
    assert_eq!(case.sandbox.read("../tmp/runs"), ".\n.\n", "not at the baseline, nor beside a failed one");
    case.provider.finish();
}

#[test]
fn a_check_has_its_own_folder_environment_timeout_and_expected_exit() {
    let sandbox = Sandbox::new();
    sandbox.write("sub/file", "");
    let yaml = "goal: x\nchecks:\n- {name: exit, run: 'test -e file && exit $CODE', cwd: sub, expect: 3, env: {CODE: 3}}\n\
                - {name: argv, run: [test, -e, sub/file]}\n- {name: slow, run: sleep 1000, timeout: 200ms, required: false}\n\
                - {name: stdin, run: 'cat; echo out of it'}\n";
    let case = Case::within(sandbox, content(), yaml);
    let ended = case.run().expect(Outcome::Met);
    let status: Vec<_> = ended.result.checks.iter().map(|check| (check.name.as_str(), check.status.name())).collect();
    assert_eq!(status, [("exit", "pass"), ("argv", "pass"), ("slow", "timeout"), ("stdin", "pass")]);
    case.provider.finish();
}
