//! What an agent does to protected files and to git by way of the checks, or beside them.

use serde_json::json;
use spettro::event::Outcome;

use crate::goal::support::{Case, met};
use crate::provider::{Reply, Script};
use crate::sandbox::Sandbox;

const SUITE: &str = "sh tests/run.sh";

#[test]
fn a_protected_file_that_the_check_itself_changes_ends_the_run() {
    let sandbox = Sandbox::new();
    sandbox.write("tests/t.sh", "exit 1\n");
    sandbox.write("run.sh", "sh tests/t.sh\n");
    let script = Script::new()
        .agent(Reply::bash("echo 'echo exit 0 > tests/t.sh; sh tests/t.sh' > run.sh"))
        .agent(Reply::complete("all pass"))
        .judge(met());
    let case = Case::within(sandbox, script, "goal: x\nprotect: ['tests/**']\nchecks: ['sh run.sh']");
    let ended = case.run().expect(Outcome::Policy);
    assert!(ended.error().contains("touched while the checks ran: tests/t.sh"), "{}", ended.error());
    assert_eq!(case.provider.judge_requests().len(), 0);
    assert_eq!(ended.facts("guarded")[0]["guard"], "meanwhile");
    case.provider.finish();
}

/// A check that lets a job beside it act in its middle, once there is one.
fn slow_suite(sandbox: &Sandbox) {
    sandbox.write("tests/lib.sh", "code=1\n");
    sandbox.write(
        "tests/run.sh",
        "if [ -e job ]; then touch started; until [ -e swapped ]; do sleep 0.02; done; fi
. tests/lib.sh
if [ -e job ]; then touch done; until [ -e restored ]; do sleep 0.02; done; fi
exit $code
",
    );
}

#[test]
fn a_protected_file_that_a_job_swaps_and_restores_while_the_checks_run_ends_the_run() {
    let swaps = [
        ("cp -p tests/lib.sh kept; echo code=0 > tests/lib.sh", "cat kept > tests/lib.sh; touch -r kept tests/lib.sh"),
        ("mv tests kept; mkdir tests; echo code=0 > tests/lib.sh", "rm -r tests; mv kept tests"),
    ];
    for (swap, restore) in swaps {
        let sandbox = Sandbox::new();
        slow_suite(&sandbox);
        let job = format!(
            "touch job; until [ -e started ]; do sleep 0.02; done; {swap}; touch swapped
            until [ -e done ]; do sleep 0.02; done; {restore}; touch restored; sleep 600"
        );
        let script = Script::new()
            .agent(Reply::call("bash", json!({"command": job, "run_in_background": true})))
            .agent(Reply::bash("until [ -e job ]; do sleep 0.02; done"))
            .agent(Reply::complete("all pass"))
            .judge(met());
        let yaml = format!("goal: x\nprotect: ['tests/**']\nchecks: ['{SUITE}']");
        let case = Case::within(sandbox, script, &yaml);
        let ended = case.run().expect(Outcome::Policy);
        assert!(ended.error().contains("tests/lib.sh"), "{swap}: {}", ended.error());
        assert_eq!(case.sandbox.read("tests/lib.sh"), "code=1\n", "it was restored");
        assert_eq!(case.provider.judge_requests().len(), 0);
        case.provider.finish();
    }
}

#[test]
fn a_job_and_a_check_that_leave_protected_files_alone_end_nothing() {
    let sandbox = Sandbox::new();
    sandbox.write("tests/t.sh", "mkdir -p tests/cache out; echo x > tests/cache/x; echo x > out/x\n");
    let job = "while :; do cat tests/*.sh > copy; cp -r tests copies; rm -r copies; sleep 0.02; done";
    let script = Script::new()
        .agent(Reply::call("bash", json!({"command": job, "run_in_background": true})))
        .agent(Reply::complete("all pass"))
        .judge(met());
    let case = Case::within(sandbox, script, "goal: x\nprotect: ['tests/*.sh']\nchecks: ['sh tests/t.sh']");
    case.run().expect(Outcome::Met);
    case.provider.finish();
}

#[test]
fn a_protected_file_that_is_changed_after_the_verdict_was_asked_for_ends_the_run() {
    let sandbox = Sandbox::new();
    sandbox.write("tests/t.sh", "exit 0\n");
    // It does so when it is told to end, which is when everything else is over.
    let job = "trap 'echo exit 1 > tests/t.sh; exit' TERM; touch job; while :; do sleep 0.02 || :; done";
    let script = Script::new()
        .agent(Reply::call("bash", json!({"command": job, "run_in_background": true})))
        .agent(Reply::bash("until [ -e job ]; do sleep 0.02; done"))
        .agent(Reply::complete("all pass"))
        .judge(met());
    let case = Case::within(sandbox, script, "goal: x\nprotect: ['tests/**']\nchecks: ['sh tests/t.sh']");
    let ended = case.run().expect(Outcome::Policy);
    assert!(ended.error().contains("tests/t.sh"), "{}", ended.error());
    assert_eq!(ended.reason(), "it is so", "the verdict itself is told as it was");
    case.provider.finish();
}

#[test]
fn a_repository_that_a_check_replaced_is_no_success() {
    let sandbox = Sandbox::new();
    sandbox.write("README", "a project");
    sandbox.write("run.sh", "true\n");
    sandbox.git_init();
    let evil = "cat > run.sh <<'E'
[ -d .git ] || exit 0; mv .git evilgit; git config --file evilgit/config core.fsmonitor ./x
echo 'gitdir: evilgit' > .git
E";
    let script = Script::new().agent(Reply::bash(evil)).agent(Reply::complete("all pass")).judge(met());
    let case = Case::within(sandbox, script, "goal: x\nchecks: ['sh run.sh']");
    let ended = case.run().expect(Outcome::Policy);
    assert!(ended.error().contains("could not be put back"), "{}", ended.error());
    case.provider.finish();
}

#[test]
fn ordinary_settings_that_a_check_makes_are_nothing() {
    let sandbox = Sandbox::new();
    sandbox.write("README", "a project");
    sandbox.git_init();
    let script =
        Script::new().agent(Reply::bash("git config core.pager ./x")).agent(Reply::complete("all pass")).judge(met());
    let checks = "checks: ['git config user.email $RANDOM@example.org']";
    let case = Case::within(sandbox, script, &format!("goal: x\n{checks}"));
    let ended = case.run().expect(Outcome::Met);
    assert_eq!(ended.facts("guarded").len(), 1, "that of the turn");
    assert!(case.sandbox.read(".git/config").contains("@example.org"));
    case.provider.finish();
}

#[test]
fn settings_that_are_planted_again_at_the_very_end_are_no_success() {
    let sandbox = Sandbox::new();
    sandbox.write("README", "a project");
    sandbox.write("run.sh", "true\n");
    sandbox.git_init();
    let plant = "git config url.https://evil.example/.insteadOf https://example.org/";
    let script = Script::new()
        .agent(Reply::bash(&format!("{plant}; echo '{plant}' > run.sh")))
        .agent(Reply::complete("all pass"))
        .judge(met());
    let case = Case::within(sandbox, script, "goal: x\nchecks: ['sh run.sh']");
    let ended = case.run().expect(Outcome::Policy);
    assert!(ended.error().contains("insteadof"), "{}", ended.error());
    assert!(!case.sandbox.read(".git/config").contains("evil.example"));
    case.provider.finish();
}
