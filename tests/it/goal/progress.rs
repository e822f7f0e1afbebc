//! What counts as progress, and when a run without any is nudged and ended.

use serde_json::json;
use spettro::event::Outcome;

use super::support::{Case, unmet};
use crate::provider::{Reply, Request, Script, respond_with};
use crate::sandbox::Sandbox;

/// Turns of two steps: a command that is another one each time, then the end.
fn turns_of(command: impl Fn(usize) -> String + Send + Sync + 'static) -> crate::provider::Step {
    respond_with(move |request: &Request| match request.lane_n % 2 {
        1 => Reply::bash(&command(request.lane_n / 2)),
        _ => Reply::text("that was it"),
    })
    .forever()
}

fn nudged(case: &Case) -> Vec<usize> {
    let requests = case.provider.agent_requests();
    requests.iter().filter(|r| r.new_text().contains("no progress")).map(|r| r.lane_n).collect()
}

#[test]
fn editing_a_dirty_file_is_progress_while_no_check_fails() {
    let sandbox = Sandbox::new();
    sandbox.write("notes", "dirty from the start\n");
    let script = Script::new().agent(turns_of(|n| format!("echo line {n} >> notes"))).judge(unmet("more").forever());
    let case = Case::within(sandbox, script, "goal: x\nlimits: {iterations: 6, stall: 1}");
    let ended = case.run().expect(Outcome::Unmet);
    assert_eq!((ended.result.iterations, nudged(&case)), (6, vec![]));
    case.provider.finish();
}

#[test]
fn editing_while_the_same_check_fails_the_same_way_is_nudged_after_six() {
    let script = Script::new().agent(turns_of(|n| format!("echo line {n} >> notes"))).judge(unmet("still failing"));
    let case = Case::new(script, "goal: x\nchecks: [{name: t, run: 'echo took 3.$RANDOM s; exit 1'}]");
    let ended = case.run().expect(Outcome::Stalled);
    // The nudge opens the seventh, which brings nothing either.
    assert_eq!((ended.result.iterations, nudged(&case)), (7, vec![13]));
    assert_eq!(case.provider.judge_requests().len(), 1, "asked only when the nudge was due");
    let nudge = case.provider.agent_requests()[12].new_text();
    assert!(nudge.contains("check `t` fails the same way"), "{nudge}");
    case.provider.finish();
}

#[test]
fn a_failure_of_another_kind_is_progress() {
    let script = Script::new().agent(turns_of(|n| format!("echo {} > why", "e".repeat(n + 1)))).judge(unmet("no"));
    let yaml = "goal: x\nchecks: ['cat why; exit 1']\nlimits: {iterations: 5, stall: 1}";
    let sandbox = Sandbox::new();
    sandbox.write("why", "start\n");
    let case = Case::within(sandbox, script, yaml);
    let ended = case.run().expect(Outcome::Unmet);
    assert_eq!((ended.result.iterations, nudged(&case)), (5, vec![]));
    case.provider.finish();
}

#[test]
fn a_commit_each_iteration_is_progress() {
    let sandbox = Sandbox::new();
    sandbox.git_init();
    let script =
        Script::new().agent(turns_of(|n| format!("git commit -q --allow-empty -m 'step {n}'"))).judge(unmet("no"));
    let case = Case::within(sandbox, script, "goal: x\nchecks: ['false']\nlimits: {iterations: 5, stall: 1}");
    let ended = case.run().expect(Outcome::Unmet);
    assert_eq!((ended.result.iterations, nudged(&case)), (5, vec![]));
    let changes = ended.result.changes.expect("changes");
    assert_ne!(changes.base, changes.head);
    case.provider.finish();
}

#[test]
fn a_changed_task_list_is_progress_and_going_back_is_none() {
    let list = |n: usize| json!({"todos": [{"id": "1", "content": format!("part {}", ["a", "b", "c", "a", "a"][n % 5]), "status": "pending"}], "merge": false});
    let step = respond_with(move |request: &Request| match request.lane_n % 2 {
        1 => Reply::call("todo-write", list(request.lane_n / 2)),
        _ => Reply::text("that was it"),
    });
    let script = Script::new().agent(step.forever()).judge(unmet("no").forever());
    let case = Case::new(script, "goal: x\nlimits: {stall: 1}");
    let ended = case.run().expect(Outcome::Stalled);
    // Three new lists, then the first one again: the nudge; and again: the end.
    assert_eq!((ended.result.iterations, nudged(&case)), (5, vec![9]));
    case.provider.finish();
}

#[test]
fn criteria_that_were_never_met_together_are_progress() {
    let verdict = |met: [bool; 2]| {
        Reply::verdict_with(json!({"verdict": "unmet", "reason": "not all", "next_step": "", "criteria": [
            {"index": 1, "met": met[0], "evidence": "e"}, {"index": 2, "met": met[1], "evidence": "e"}]}))
    };
    let script = Script::new()
        .agent(Reply::text("words").forever())
        .judge(verdict([true, false]))
        .judge(verdict([false, true]))
        .judge(verdict([true, false]).forever());
    let case = Case::new(script, "goal: x\ncriteria: [a, b]\nlimits: {stall: 1}");
    let ended = case.run().expect(Outcome::Stalled);
    // 1 and 2 are new; 3 is not: the nudge opens 4, which brings nothing.
    assert_eq!((ended.result.iterations, nudged(&case)), (4, vec![4]));
    case.provider.finish();
}

#[test]
fn a_resume_starts_the_stall_count_anew() {
    let script = Script::new().agent(Reply::text("words").forever()).judge(unmet("no").forever());
    let case = Case::new(script, "goal: x\nlimits: {stall: 1}");
    let ended = case.run().expect(Outcome::Stalled);
    assert_eq!(ended.result.iterations, 2);
    let again = case.resume(&ended, &[]).expect(Outcome::Stalled);
    assert_eq!(again.result.iterations, 4);
    case.provider.finish();
}
