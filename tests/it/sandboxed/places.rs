//! Links that would make the next run grant what nobody asked for, and terminals of the user.

use std::os::unix::fs::symlink;

use super::support::{Cell, User, assert_lines, landlock};
use crate::goal::support::unmet;
use crate::provider::{Lane, Provider, Reply, Script};
use crate::sandbox::{Finished, PATIENCE};
use crate::supervision::support::{Terminal, met};

/// Says for each attempt whether it was refused.
const TRY: &str = "try() { if (eval \"$1\") 2>/dev/null; then echo \"done: $1\"; else echo \"refused: $1\"; fi; }\n";
const PLANTED: &str = "is a link that commands could have made";
/// What an earlier run's agent does, under the default sandbox.
const PLANT: &str = "rm -rf ~/.cache/pip; ln -s ~/.ssh ~/.cache/pip; touch requirements.txt; echo planted";

/// A cell with a private key in its home directory.
fn with_a_key(user: User) -> Option<Cell> {
    let cell = Cell::of(user)?;
    cell.sandbox.write(cell.sandbox.home().join(".ssh/id"), "the key\n");
    cell.sandbox.write(cell.sandbox.home().join(".bashrc"), "# mine\n");
    Some(cell)
}

/// Tries for the key, by each of these names of its folder.
fn thief(names: &[&str]) -> String {
    let tries = names.iter().map(|name| format!("try 'cat {name}/id'; try 'echo x >> {name}/authorized_keys'\n"));
    format!("{TRY}{}echo end", tries.collect::<String>())
}

/// The level of a run that was met, and what its agent was told last.
#[track_caller]
fn ended(finished: Finished, provider: &Provider, requests: usize) -> (String, String) {
    let finished = finished.expect_code(0);
    let level = finished.events_of("run.started").pop().expect("an event")["sandbox"].as_str().expect("one").to_owned();
    let request = provider.wait_for_lane_request(Lane::Agent, requests, PATIENCE);
    (level, request.tool_results().pop().expect("a result").text)
}

/// The same of one run of one command.
#[track_caller]
fn run(cell: &Cell, goal: &str, script: &str) -> (String, String) {
    let (provider, goal) = cell.provider(goal, script);
    let ended = ended(cell.finish(&goal), &provider, 2);
    provider.finish();
    ended
}

#[track_caller]
fn kept_the_key(cell: &Cell, told: &str, tries: usize) {
    assert_eq!(told.lines().filter(|line| line.starts_with("refused: ")).count(), tries, "{told}");
    assert!(told.trim_end().ends_with("end") && !told.contains("done:") && !told.contains("the key"), "{told}");
    let names: Vec<_> = std::fs::read_dir(cell.sandbox.home().join(".ssh")).expect("it stands").collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert_eq!(cell.sandbox.read(cell.sandbox.home().join(".bashrc")), "# mine\n");
}

#[test]
fn a_cache_that_an_earlier_run_made_a_link_of_grants_nothing_and_that_is_told() {
    if !landlock(3) {
        return;
    }
    for user in User::ALL {
        let Some(cell) = with_a_key(user) else { continue };
        assert_eq!(cell.told("", PLANT).trim_end(), "planted");
        let (level, told) = run(&cell, "", &thief(&["~/.ssh", "~/.cache/pip"]));
        kept_the_key(&cell, &told, 4);
        assert!(level.contains(&format!("/home/.cache/pip` is not writable: it {PLANTED}")), "{level}");
        let doctor = cell.sandbox.start({
            let mut command = cell.command(&[]);
            command.arg("doctor");
            command
        });
        let doctor = doctor.wait(PATIENCE);
        assert!(doctor.stdout.contains(PLANTED), "{user:?}: {}", doctor.stdout);
    }
}

#[test]
fn a_resume_grants_nothing_behind_what_its_own_session_planted() {
    if !landlock(3) {
        return;
    }
    let cell = with_a_key(User::Own).expect("the tests' own user");
    let script = Script::new()
        .agent(Reply::bash(PLANT))
        .agent(Reply::complete("a"))
        .judge(unmet("no"))
        .agent(Reply::bash(&thief(&["~/.ssh", "~/.cache/pip"])))
        .agent(Reply::complete("b"))
        .judge(met());
    let provider = script.start();
    let goal = cell.sandbox.goal(&provider, "goal: x\nlimits: {iterations: 1}\n");
    cell.sandbox.run(["run", "--goal", goal.to_str().expect("UTF-8")]).expect_code(10);
    let resume = ["run", "--resume", "latest", "--max-iterations", "5", "--output-format", "jsonl"];
    let (level, told) = ended(cell.sandbox.run(resume), &provider, 4);
    kept_the_key(&cell, &told, 4);
    assert!(level.contains(PLANTED), "{level}");
    provider.finish();
}

#[test]
fn caches_in_a_hostile_repository_grant_nothing_in_place_and_in_a_copy() {
    if !landlock(3) {
        return;
    }
    for user in User::ALL {
        let Some(cell) = with_a_key(user) else { continue };
        let bin = cell.sandbox.home().join("bin");
        cell.sandbox.write(bin.join("tool"), "theirs\n");
        for manifest in ["Cargo.toml", "package.json", "setup.py", "go.mod", "build.gradle"] {
            cell.sandbox.write(manifest, "");
        }
        cell.sandbox.sh("mkdir -p .c/gradle; for f in cargo npm pip go tmp gradle/caches; do ln -s ~/.ssh .c/$f; done
            rm .c/npm; ln -s ~/bin .c/npm
            export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
            git init -q -b main; git config user.name T; git config user.email t@example.org
            git add -A; git commit -q -m start");
        for (variable, folder) in [
            ("CARGO_HOME", "cargo"),
            ("npm_config_cache", "npm"),
            ("PIP_CACHE_DIR", "pip"),
            ("GOPATH", "go"),
            ("GRADLE_USER_HOME", "gradle"),
            ("TMPDIR", "tmp"),
        ] {
            cell.sandbox.set(variable, cell.sandbox.workspace().join(".c").join(folder).display().to_string());
        }
        let thief = format!("{}\necho x > ~/bin/tool", thief(&["~/.ssh", "$PIP_CACHE_DIR", ".c/go"]));
        for mode in ["", "workspace_mode: copy\n"] {
            let (level, told) = run(&cell, mode, &thief);
            let told = told.split("\nend").next().expect("a text").to_owned() + "\nend";
            kept_the_key(&cell, &told, 6);
            assert_eq!(cell.sandbox.read(bin.join("tool")), "theirs\n");
            for name in ["cargo", "npm", "pip", "go", "tmp", "gradle/caches"] {
                assert!(
                    level.contains(&format!("/.c/{name}` {PLANTED}"))
                        || level.contains(&format!("/.c/{name}` is not writable: it {PLANTED}")),
                    "{name}: {level}"
                );
            }
        }
    }
}

#[test]
fn a_repository_of_links_that_an_earlier_run_made_up_grants_nothing() {
    if !landlock(3) {
        return;
    }
    for (user, place) in User::ALL.into_iter().flat_map(|user| [(user, "home/.cache/evil"), (user, "other/.git")]) {
        let Some(cell) = with_a_key(user) else { continue };
        let git = cell.sandbox.root().join(place);
        cell.sandbox.sh(&format!(
            "mkdir -p {git}/worktrees/x {git}/refs; cd {git}; echo ../.. > worktrees/x/commondir
            echo 'ref: refs/heads/main' | tee HEAD > worktrees/x/HEAD; echo {work}/.git > worktrees/x/gitdir
            ln -s ~/.ssh objects; ln -s ~/.bashrc logs; echo 'gitdir: {git}/worktrees/x' > {work}/.git",
            git = git.display(),
            work = cell.sandbox.workspace().display()
        ));
        let script = format!("{TRY}try 'echo x >> ~/.bashrc'; {}", thief(&["~/.ssh"]));
        let (level, told) = run(&cell, "", &script);
        kept_the_key(&cell, &told, 3);
        assert!(place.starts_with("home") || level.contains("/other/.git/objects` is no folder"), "{level}");
    }
}

#[test]
fn the_operator_s_own_links_to_caches_work() {
    if !landlock(3) {
        return;
    }
    for user in User::ALL {
        let Some(cell) = with_a_key(user) else { continue };
        cell.sandbox.write("Cargo.toml", "");
        cell.sandbox.sh("mkdir -p ../disk/cache ../disk/cargo/bin; ln -s ../disk/cache ~/.cache
            ln -s \"$(realpath ../disk/cargo)\" ~/.cargo; echo warm > ../disk/cache/warm; echo fine > ../disk/cargo/bin/x");
        let script = format!(
            "{TRY}cat ~/.cache/warm ~/.cargo/bin/x; mkdir ~/.cache/pip && echo one > ~/.cache/pip/x && cat ~/.cache/pip/x
            echo two > ~/.cargo/registry/x && cat ~/.cargo/registry/x; try 'echo x > ~/.cargo/bin/x'"
        );
        let (level, told) = run(&cell, "", &script);
        assert_lines(told.trim_end(), &["warm", "fine", "one", "two", "refused: echo x > ~/.cargo/bin/x"]);
        assert!(!level.contains("is a link") && !level.contains("disk"), "{level}");
    }
}

#[test]
fn a_commit_in_a_worktree_inside_its_own_repository_works() {
    if !landlock(3) {
        return;
    }
    let cell = with_a_key(User::Own).expect("the tests' own user");
    cell.sandbox.sh("git init -q -b main; git config user.name T; git config user.email t@example.org
        git commit -q --allow-empty -m start; git worktree add -q trees/one");
    let script = "echo x > f; git add f; git commit -q -m second 2> /dev/null; echo commit: $?; git log --format=%s";
    let (_, told) = run(&cell, "workspace: work/trees/one\n", script);
    assert_lines(told.trim_end(), &["commit: 0", "second", "start"]);
}

#[test]
fn a_named_path_behind_a_link_of_the_workspace_ends_the_run_before_anything_starts() {
    let cell = with_a_key(User::Own).expect("the tests' own user");
    symlink(cell.sandbox.home().join(".ssh"), cell.sandbox.workspace().join("out")).expect("a link");
    for goal in ["sandbox: {write: [work/out]}\n", "sandbox: {read: [work/out]}\n"] {
        let (finished, provider) = cell.run(goal, &[]);
        let finished = finished.expect_code(2);
        assert!(finished.stderr.contains("a link that commands could have made"), "{}", finished.stderr);
        assert!(provider.requests().is_empty());
    }
    // Named for what it is, it is open.
    let told = cell.told("sandbox: {read: [~/.ssh]}\n", "cat ~/.ssh/id");
    assert_eq!(told.trim_end(), "the key");
}

#[test]
fn what_is_typed_into_a_terminal_of_the_user_is_not_read_and_nothing_is_shown_there() {
    if !landlock(3) {
        return;
    }
    for (user, goal) in
        [User::Own, User::Powerless].into_iter().flat_map(|user| [(user, ""), (user, "sandbox: {files: read-only}\n")])
    {
        let Some(cell) = Cell::of(user) else { continue };
        let terminal = Terminal::new();
        let name = terminal.path().display().to_string();
        terminal.types("my-password\n");
        let script = format!(
            "{TRY}try 'timeout 5 head -n1 {name}'; try 'echo fake > {name}'; try 'setsid -w bash -c \"exec < {name}\"'
            try 'timeout 5 head -n1 < /proc/self/root{name}'; echo end"
        );
        let (level, told) = run(&cell, goal, &script);
        assert_eq!(told.lines().filter(|line| line.starts_with("refused: ")).count(), 4, "{user:?}: {told}");
        assert!(!told.contains("my-password") && told.trim_end().ends_with("end"), "{told}");
        assert!(level.contains("`/dev/pts` is closed"), "{level}");
        // Who names it has it.
        let told = cell.told("sandbox: {write: [/dev/pts]}\n", &format!("timeout 5 head -n1 {name}"));
        assert_eq!(told.trim_end(), "my-password");
    }
}

#[test]
fn where_no_terminal_is_programs_make_one_of_their_own() {
    if !landlock(3) {
        return;
    }
    let own = "mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts /dev/pts && exec \"$@\"";
    let wrapper = ["unshare", "--mount", "bash", "-c", own, "bash"];
    let possible = std::process::Command::new(wrapper[0]).args(&wrapper[1..]).arg("true").output();
    if !possible.is_ok_and(|output| output.status.success()) || !super::support::has("python3") {
        println!("skipped: nothing can be mounted here");
        return;
    }
    for user in User::ALL {
        let Some(cell) = Cell::of(user) else { continue };
        let told = cell.told_behind(
            &wrapper,
            "",
            "python3 -c \"import pty; pty.spawn(['bash', '-c', 'test -t 1 && echo made'])\"",
        );
        assert_eq!(told.trim_end(), "made", "{user:?}");
    }
}
