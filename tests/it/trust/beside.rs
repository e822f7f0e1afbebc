//! What an agent does beside the protected files while checks run, and beside the repository; and what anybody may do.

use serde_json::json;
use spettro::event::Outcome;

use crate::goal::support::{Case, Ended, met};
use crate::provider::{Reply, Script};
use crate::sandbox::Sandbox;
use crate::sandboxed::support::has;

/// A job that acts in the middle of a check, which waits for it, and undoes it before the check is over.
fn acting(act: &str, undo: &str) -> Script {
    let job = format!(
        "d=$PWD; touch job; until [ -e started ]; do sleep 0.02; done; {act}; touch $d/acted
        until [ -e $d/done ]; do sleep 0.02; done; {undo}; touch $d/undone; sleep 600"
    );
    Script::new()
        .agent(Reply::call("bash", json!({"command": job, "run_in_background": true})))
        .agent(Reply::bash("until [ -e job ]; do sleep 0.02; done"))
        .agent(Reply::complete("all pass"))
        .judge(met())
}

/// A suite that reads a file once the job has acted.
fn suite(read: &str) -> String {
    format!(
        "code=1
if [ -e job ]; then touch started; until [ -e acted ]; do sleep 0.02; done; fi
{read}
if [ -e job ]; then touch done; until [ -e undone ]; do sleep 0.02; done; fi
exit $code
"
    )
}

fn policy(case: &Case, named: &str) -> Ended {
    let ended = case.run().expect(Outcome::Policy);
    let error = ended.error();
    assert!(error.contains("touched while the checks ran") && error.contains(named), "{error}");
    assert_eq!(ended.facts("guarded")[0]["guard"], "meanwhile");
    assert_eq!(case.provider.judge_requests().len(), 0);
    ended
}

#[test]
fn a_new_file_that_the_suite_reads_and_that_is_gone_afterwards_ends_the_run() {
    for (globs, file, act, undo) in [
        ("tests/**", "tests/local.sh", "echo code=0 > tests/local.sh", "rm tests/local.sh"),
        ("**/*.sh", "tests/local.sh", "echo code=0 > x; mv x tests/local.sh", "mv tests/local.sh x"),
        ("tests/**/*.sh", "tests/new/local.sh", "mkdir tests/new; echo code=0 > tests/new/local.sh", "rm -r tests/new"),
    ] {
        let sandbox = Sandbox::new();
        sandbox.write("tests/run.sh", suite(&format!("[ ! -e {file} ] || . {file}")));
        let yaml = format!("goal: x\nprotect: ['{globs}']\nchecks: ['sh tests/run.sh']");
        let case = Case::within(sandbox, acting(act, undo), &yaml);
        policy(&case, file);
        assert!(!case.sandbox.exists(file), "it was removed");
        case.provider.finish();
    }
}

#[test]
fn a_folder_above_the_workspace_that_is_swapped_while_the_checks_run_ends_the_run() {
    let sandbox = Sandbox::new();
    // Temporary folders are where commands may write.
    let root = sandbox.root().join("tmp/q/repo");
    sandbox.write(root.join("tests/lib.sh"), "code=1\n");
    // What the suite and the job say to each other stands where neither copy does.
    let talk = sandbox.root().join("tmp").display().to_string();
    let above = format!("{talk}/q");
    sandbox.write(
        root.join("tests/run.sh"),
        format!(
            "[ ! -e {talk}/job ] || {{ touch {talk}/started; until [ -e {talk}/acted ]; do sleep 0.02; done; }}
. {above}/repo/tests/lib.sh
[ ! -e {talk}/job ] || {{ touch {talk}/done; until [ -e {talk}/undone ]; do sleep 0.02; done; }}
exit $code
"
        ),
    );
    let job = format!(
        "cp -r {above} {talk}/fake; echo code=0 > {talk}/fake/repo/tests/lib.sh; cd {talk}; touch job
        until [ -e started ]; do sleep 0.02; done; mv q q.orig; mv fake q; touch acted
        until [ -e done ]; do sleep 0.02; done; mv q fake; mv q.orig q; touch undone; sleep 600"
    );
    let script = Script::new()
        .agent(Reply::call("bash", json!({"command": job, "run_in_background": true})))
        .agent(Reply::bash(&format!("until [ -e {talk}/job ]; do sleep 0.02; done")))
        .agent(Reply::complete("all pass"))
        .judge(met());
    let yaml = "goal: x\nworkspace: tmp/q/repo\nprotect: ['tests/**']\nchecks: ['sh tests/run.sh']";
    let case = Case::within(sandbox, script, yaml);
    let ended = policy(&case, "tests/lib.sh");
    let checks = ended.facts("checks").pop().expect("those of the turn");
    assert_eq!(checks["results"][0]["status"], "pass", "the attack itself works: {checks:?}");
    assert_eq!(case.sandbox.read(root.join("tests/lib.sh")), "code=1\n");
    case.provider.finish();
}

#[test]
fn a_suite_may_keep_caches_and_temporary_files_beside_what_is_protected() {
    let sandbox = Sandbox::new();
    let mut suite = "for n in 1 2 3; do echo x > tests/$n.tmp; mkdir -p tests/out$n; echo x > tests/out$n/log; done
rm -r tests/*.tmp tests/out*; echo x > new.tmp; mv new.tmp Makefile.bak
git add -A; git commit -qm checked; git status > /dev/null\n"
        .to_owned();
    if has("python3") {
        suite.push_str(
            "python3 -c 'import sys; sys.path.insert(0, \"tests\"); import test_a'; [ -d tests/__pycache__ ]\n",
        );
    }
    if has("pytest") {
        suite.push_str("pytest -q tests; [ -d .pytest_cache ]\n");
    }
    sandbox.write("tests/test_a.py", "def test_a():\n    assert True\n");
    sandbox.write("suite.sh", format!("set -e\n{suite}"));
    sandbox.git_init();
    // Folders that come and go in a named one are not among it: those cannot always be looked into.
    let script = Script::new().agent(Reply::complete("all pass")).judge(met());
    let yaml = "goal: x\nprotect: ['tests/*.py', Cargo.lock, '**/conftest.py']\nchecks: ['sh suite.sh']";
    let case = Case::within(sandbox, script, yaml);
    case.run().expect(Outcome::Met);
    case.provider.finish();
}

#[test]
fn a_nearer_repository_runs_nothing_for_whoever_comes_later() {
    let sandbox = Sandbox::new();
    sandbox.write("README", "a project");
    sandbox.write("pkg/x", "#!/bin/sh\ntouch ran\n");
    sandbox.git_init();
    let plant = "chmod +x x; git init -q .; git config core.fsmonitor ./x
        printf '#!/bin/sh\\n./x' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit";
    let script = Script::new().agent(Reply::bash(plant)).agent(Reply::complete("all pass")).judge(met());
    let case = Case::within(sandbox, script, "goal: x\nworkspace: work/pkg");
    let ended = case.run().expect(Outcome::Met);
    let text = ended.facts("guarded")[0]["text"].as_str().expect("a text").to_owned();
    assert!(text.contains("core.fsmonitor") && text.contains(".git/hooks/pre-commit"), "{text}");
    case.sandbox.sh("cd pkg; git status; git -c user.name=me -c user.email=a@b commit -q --allow-empty -m mine");
    assert!(!case.sandbox.exists("pkg/ran"), "nothing that was planted ran");
    case.provider.finish();
}

#[test]
fn a_repository_that_is_unpacked_into_its_workspace_or_removed_is_no_success() {
    for (change, said) in [
        (
            "mv .git x.git; mv x.git/* .; git config --file config core.bare false
            git config --file config core.worktree .; git config --file config core.fsmonitor ./x",
            "another repository",
        ),
        ("rm -rf .git", "no repository here any more"),
    ] {
        let sandbox = Sandbox::new();
        sandbox.write("README", "a project");
        sandbox.git_init();
        let script = Script::new().agent(Reply::bash(change)).agent(Reply::complete("all pass")).judge(met());
        let case = Case::within(sandbox, script, "goal: x");
        let ended = case.run().expect(Outcome::Policy);
        assert!(ended.error().contains(said), "{}", ended.error());
        case.provider.finish();
    }
}

#[test]
fn a_repository_that_the_agent_makes_is_ordinary_work() {
    let work = "git init -q .; git config user.name me; git config user.email a@b; echo x > a; git add a
        git commit -qm one; git checkout -q -b side; git clone -q . copy";
    for (within, workspace) in [(true, "work/pkg"), (false, "work")] {
        let sandbox = Sandbox::new();
        sandbox.write("pkg/README", "a project");
        if within {
            sandbox.git_init();
        }
        let script = Script::new().agent(Reply::bash(work)).agent(Reply::complete("all pass")).judge(met());
        let yaml = format!("goal: x\nworkspace: {workspace}\nprotect: ['README']\nchecks: ['git log -1']");
        let case = Case::within(sandbox, script, &yaml);
        let ended = case.run().expect(Outcome::Met);
        assert_eq!(ended.facts("guarded").len(), 0);
        case.provider.finish();
    }
}
