//! What makes git or spettro act otherwise later is put back and told; the second time ends the run.

use serde_json::json;
use spettro::event::Outcome;

use crate::goal::support::{Case, Ended, met, unmet};
use crate::provider::{Reply, Script};
use crate::sandbox::Sandbox;

/// A repository as the workspace.
fn repository() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("README", "a project");
    sandbox.write(".gitignore", "/bare.git\n");
    sandbox.git_init();
    sandbox
}

/// An agent that does these things, one turn each; the judge is content after the last.
fn turns(all: &[Reply]) -> Script {
    let mut script = Script::new();
    for (index, reply) in all.iter().enumerate() {
        script = script.agent(reply.clone()).agent(Reply::complete("done"));
        script = script.judge(if index + 1 == all.len() { met() } else { unmet("not yet") });
    }
    script
}

fn put_back(ended: &Ended) -> Vec<String> {
    let notices = ended.facts("notice");
    let ours = notices.iter().filter(|fact| fact["code"] == "put_back");
    ours.map(|fact| fact["text"].as_str().expect("a text").to_owned()).collect()
}

#[test]
fn ordinary_work_with_git_is_no_policy() {
    let sandbox = repository();
    sandbox.sh("git init -q --bare bare.git; git remote add origin ./bare.git");
    let work = "git push -q -u origin main && git checkout -q -b side && git push -q -u origin side \
                && git checkout -q -b again --track origin/main && git config user.email me@example.org \
                && git remote add other ./bare.git && git commit -q --allow-empty -m more && echo all-done";
    let case = Case::within(sandbox, turns(&[Reply::bash(work)]), "goal: x");
    let ended = case.run().expect(Outcome::Met);
    assert!(case.provider.agent_requests()[1].text().contains("all-done"), "{}", ended.finished.stdout);
    assert_eq!(put_back(&ended), Vec::<String>::new());
    let settings = case.sandbox.sh("git config user.email; git config branch.side.remote; git config remote.other.url");
    assert_eq!(settings, "me@example.org\norigin\n./bare.git\n");
    case.provider.finish();
}

#[test]
fn an_installed_hook_manager_is_put_back_and_told_and_no_policy() {
    let sandbox = repository();
    sandbox.write("prepare.sh", "mkdir -p .husky/_ && printf '#!/bin/sh\\nexit 0\\n' > .husky/_/pre-commit && chmod +x .husky/_/pre-commit && git config core.hooksPath .husky/_\n");
    let script = Script::new()
        .agent(Reply::bash("sh prepare.sh"))
        .agent(Reply::complete("installed"))
        .judge(unmet("not yet"))
        .agent(Reply::complete("done"))
        .judge(met());
    let case = Case::within(sandbox, script, "goal: x");
    let ended = case.run().expect(Outcome::Met);
    let told = put_back(&ended);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("`.git/config`") && told[0].contains("core.hookspath"), "{told:?}");
    assert!(told[0].contains("bash `\"sh prepare.sh\"`"), "by whom: {told:?}");
    assert_eq!(case.sandbox.sh("git config core.hooksPath || echo unset"), "unset\n");
    assert!(case.sandbox.exists(".husky/_/pre-commit"), "the project's own files stay");
    let next = case.provider.agent_requests()[2].text();
    assert!(next.contains("core.hookspath") && next.contains("ends the run"), "the model is told: {next}");
    case.provider.finish();
}

#[test]
fn the_second_time_ends_the_run() {
    let sandbox = repository();
    let marker = sandbox.workspace().join("ran");
    sandbox.write("x", format!("#!/bin/sh\ntouch {}\n", marker.display()));
    sandbox.sh("chmod +x x");
    let hook = "cp x .git/hooks/post-commit";
    let case = Case::within(
        sandbox,
        turns(&[Reply::bash("git config core.fsmonitor ./x"), Reply::bash(hook)]),
        "goal: x\nlimits: {stall: 9}",
    );
    let ended = case.run().expect(Outcome::Policy);
    assert!(ended.error().contains("`.git/hooks/post-commit`"), "{}", ended.error());
    assert!(ended.error().contains(hook), "{}", ended.error());
    assert_eq!(put_back(&ended).len(), 2);
    assert!(!case.sandbox.exists(".git/hooks/post-commit"));
    assert_eq!(case.sandbox.sh("git config core.fsmonitor || echo unset"), "unset\n");
    assert!(!marker.exists(), "no git of spettro's own has run it");
}

#[test]
fn file_tools_and_jobs_count_as_well() {
    let sandbox = repository();
    let path = ".git/hooks/pre-commit";
    let case = Case::within(
        sandbox,
        turns(&[
            Reply::call("file-write", json!({"path": path, "content": "#!/bin/sh\n"}))
                .and_call("bash", json!({"command": format!("chmod +x {path}")})),
            Reply::call("file-write", json!({"path": ".spettro/config.yaml", "content": "name: theirs\n"})),
        ]),
        "goal: x\nlimits: {stall: 9}",
    );
    let ended = case.run().expect(Outcome::Policy);
    let told = put_back(&ended);
    assert!(told[0].contains(path) && told[1].contains("`.spettro/config.yaml`"), "{told:?}");
    assert!(!case.sandbox.exists(path) && !case.sandbox.exists(".spettro/config.yaml"));
}

#[test]
fn a_run_that_ends_at_a_limit_leaves_nothing_behind() {
    let sandbox = repository();
    let script = Script::new().agent(Reply::bash("git config alias.x '!id'")).agent(Reply::text("…").stall());
    let case = Case::within(sandbox, script, "goal: x\nlimits: {time: 2s}");
    let ended = case.run().expect(Outcome::TimeLimit);
    assert_eq!(put_back(&ended).len(), 1);
    assert_eq!(case.sandbox.sh("git config alias.x || echo unset"), "unset\n");
}

#[test]
fn a_protected_file_names_the_command_that_moved_it() {
    let sandbox = repository();
    sandbox.write("tests/a", "1");
    let case = Case::within(
        sandbox,
        turns(&[Reply::bash("true").and_call("bash", json!({"command": "echo 2 > tests/a"}))]),
        "goal: x\nprotect: [tests]",
    );
    let ended = case.run().expect(Outcome::Policy);
    assert!(ended.error().contains("tests/a (first seen after bash `\"echo 2 > tests/a\"`)"), "{}", ended.error());
}

#[test]
fn filters_of_the_repository_run_in_the_sandbox_only() {
    let sandbox = repository();
    let outside = sandbox.root().join("outside");
    sandbox.write("clean.sh", format!("#!/bin/sh\necho escaped > {}\ncat\n", outside.display()));
    sandbox.write(".gitattributes", "*.txt filter=mine\n");
    sandbox.write("a.txt", "one\n");
    sandbox.sh("chmod +x clean.sh; git config filter.mine.clean ./clean.sh");
    let case = Case::within(sandbox, turns(&[Reply::bash("echo two > a.txt; touch b.txt")]), "goal: x");
    let ended = case.run().expect(Outcome::Met);
    let changed = ended.result.changes.as_ref().map(|changes| changes.files.clone()).unwrap_or_default();
    assert!(changed.contains(&"a.txt".to_owned()), "{changed:?}");
    assert!(!outside.exists(), "a filter is a program of the workspace's");
}

#[test]
fn what_a_filter_puts_into_gits_folder_leads_nowhere() {
    let sandbox = repository();
    let mine = sandbox.write(sandbox.home().join(".bashrc"), "# mine\n");
    let plant = "d=${GIT_INDEX_FILE%/*}\nfor n in settings git-errors; do ln -sfn MINE \"$d/$n\"; done\nls -l \"$d\" >planted\ncat\n";
    sandbox.write("clean.sh", format!("#!/bin/sh\n{}", plant.replace("MINE", &mine.display().to_string())));
    sandbox.write(".gitattributes", "*.txt filter=mine\n");
    sandbox.write("a.txt", "one\n");
    sandbox.sh("chmod +x clean.sh; git config filter.mine.clean ./clean.sh");
    // What git's settings are is asked after the turn in which they moved.
    let case = Case::within(sandbox, turns(&[Reply::bash("git config alias.x '!id'; echo two > a.txt")]), "goal: x");
    let ended = case.run().expect(Outcome::Met);
    assert!(case.sandbox.read("planted").contains("settings -> "), "the filter has run");
    assert_eq!(case.sandbox.read(&mine), "# mine\n");
    let told = put_back(&ended);
    assert!(told.len() == 1 && told[0].contains("alias.x"), "{told:?}");
    case.provider.finish();
}
