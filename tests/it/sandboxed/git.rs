//! What of a repository is ordinary work and what runs code some day; and where file tools end. As every user.

use serde_json::json;

use super::support::{Cell, User, landlock};
use crate::goal::support::unmet;
use crate::provider::{Reply, Script};
use crate::sandbox::Finished;
use crate::supervision::support::met;

fn put_back(finished: &Finished) -> Vec<String> {
    let notices = finished.events_of("notice").into_iter().filter(|event| event["code"] == "put_back");
    notices.map(|event| event["text"].as_str().expect("a text").to_owned()).collect()
}

fn repository(cell: &Cell) {
    cell.sandbox.sh("export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
        git init -q -b main; git config user.name T; git config user.email t@example.org
        printf '/bare.git\\n' > .gitignore; git add -A; git commit -q -m start
        git init -q --bare bare.git; git remote add origin ./bare.git");
}

#[test]
fn pushing_tracking_and_user_settings_are_no_policy() {
    for user in User::ALL {
        let Some(cell) = Cell::of(user) else { continue };
        repository(&cell);
        let told = cell.told(
            "",
            "git push -q -u origin main && git checkout -q -b side --track origin/main && git config user.email me@example.org \
             && git config branch.side.remote && git config user.email && echo all-done",
        );
        assert!(told.trim_end().ends_with("origin\nme@example.org\nall-done"), "{user:?}: {told}");
    }
}

#[test]
fn a_hook_manager_is_put_back_and_told_and_the_second_time_ends_the_run() {
    for user in User::ALL {
        let Some(cell) = Cell::of(user) else { continue };
        repository(&cell);
        // What `husky` does when it is installed.
        let husky =
            "mkdir -p .husky/_ && printf 'exit 0\\n' > .husky/_/pre-commit && git config core.hooksPath .husky/_";
        let script = Script::new().agent(Reply::bash(husky)).agent(Reply::complete("a")).judge(unmet("no"));
        let script = script.agent(Reply::complete("b")).judge(met());
        let (provider, goal) = cell.scripted(script, "");
        let finished = cell.finish(&goal).expect_code(0);
        let told = put_back(&finished);
        assert!(told.len() == 1 && told[0].contains("core.hookspath"), "{user:?}: {told:?}");
        assert!(provider.agent_requests()[2].text().contains("core.hookspath"), "the model is told");
        provider.finish();

        let hook = "printf '#!/bin/sh\\n' > .git/hooks/post-commit; chmod +x .git/hooks/post-commit";
        let script = Script::new()
            .agent(Reply::bash("git config core.fsmonitor ./x"))
            .agent(Reply::complete("a"))
            .judge(unmet("no"))
            .agent(Reply::bash(hook))
            .agent(Reply::complete("b"));
        let (_provider, goal) = cell.scripted(script, "");
        let finished = cell.finish(&goal).expect_code(16);
        let told = put_back(&finished);
        assert!(told[0].contains("core.fsmonitor") && told[1].contains(".git/hooks/post-commit"), "{user:?}: {told:?}");
        assert!(!cell.sandbox.exists(".git/hooks/post-commit"));
    }
}

#[test]
fn file_tools_end_where_commands_do() {
    if !landlock(3) {
        return;
    }
    for user in User::ALL {
        let Some(cell) = Cell::of(user) else { continue };
        let outside = cell.sandbox.root().join("outside");
        std::fs::create_dir(&outside).expect("a folder");
        std::fs::write(outside.join("theirs"), "theirs\n").expect("a file");
        cell.sandbox.sh("mkdir a; ln -s ../outside link; ln -s ../outside/theirs file");
        cell.sandbox.write(cell.sandbox.home().join(".ssh/id"), "the key\n");
        let absolute = outside.join("new").display().to_string();
        let key = cell.sandbox.home().join(".ssh/id").display().to_string();
        let calls = [
            ("file-write", json!({"path": "../outside/new", "content": "x"})),
            ("file-write", json!({"path": absolute, "content": "x"})),
            ("file-write", json!({"path": "link/new", "content": "x"})),
            ("file-write", json!({"path": "a/../../outside/new", "content": "x"})),
            ("file-edit", json!({"path": "../outside/theirs", "old_string": "theirs", "new_string": "x"})),
            ("file-edit", json!({"path": "file", "old_string": "theirs", "new_string": "x"})),
            ("file-write", json!({"path": "../goal.yaml", "content": "x"})),
            ("file-read", json!({"path": key})),
        ];
        let script =
            calls.iter().fold(Script::new(), |script, (tool, call)| script.agent(Reply::call(tool, call.clone())));
        let (provider, goal) = cell.scripted(script.agent(Reply::complete("done")).judge(met()), "");
        let finished = cell.finish(&goal).expect_code(0);
        assert_eq!(finished.events_of("tool.denied").len(), calls.len(), "{user:?}: {}", finished.stdout);
        let told: String = provider.agent_requests().iter().map(|request| request.text()).collect();
        assert!(!told.contains("the key\n"), "{user:?}");
        assert_eq!(std::fs::read_to_string(outside.join("theirs")).expect("it stands"), "theirs\n");
        assert_eq!(std::fs::read_dir(&outside).expect("it stands").count(), 1);
        provider.finish();
    }
}
