//! Files: what can be written and read.

use std::os::unix::fs::symlink;

use super::support::{Cell, User, assert_lines, landlock};

/// Says for each attempt whether it was refused.
const TRY: &str = "try() { if (eval \"$1\") 2>/dev/null; then echo \"done: $1\"; else echo \"refused: $1\"; fi; }\n";

#[test]
fn writing_outside_the_roots_is_refused_whichever_way() {
    if !landlock(3) {
        return;
    }
    for user in [User::Own, User::Nobody] {
        let Some(cell) = Cell::of(user) else { continue };
        let outside = cell.sandbox.root().join("outside");
        std::fs::create_dir(&outside).expect("a folder");
        std::fs::write(outside.join("theirs"), "theirs\n").expect("a file");
        symlink(&outside, cell.sandbox.workspace().join("link")).expect("a link");
        let script = format!(
            "{TRY}echo mine > mine
            try 'echo x > ../outside/new'
            try 'echo x > {0}/new'
            try 'echo x >> ../outside/theirs'
            try 'truncate -s 0 ../outside/theirs'
            try 'echo x > link/new'
            try 'mv mine ../outside/'
            try 'mv ../outside/theirs .'
            try 'ln ../outside/theirs hard'
            try 'ln -s ../outside/theirs soft && echo x > soft'
            try 'rm ../outside/theirs'
            try 'mkdir ../outside/dir'
            try 'echo x > ../new'
            try 'echo x >> ../goal.yaml'
            try 'echo x > $HOME/.bashrc'",
            outside.display()
        );
        let told = cell.told("", &script);
        assert_eq!(told.lines().filter(|line| line.starts_with("refused:")).count(), 14, "{user:?}: {told}");
        assert!(!told.contains("done:"), "{user:?}: {told}");
        assert_eq!(std::fs::read_to_string(outside.join("theirs")).expect("it stands"), "theirs\n");
        assert_eq!(std::fs::read_dir(&outside).expect("it stands").count(), 1);
        assert!(!cell.sandbox.home().join(".bashrc").exists());
    }
}

#[test]
fn inside_everything_works_as_outside_of_a_sandbox() {
    for user in [User::Own, User::Nobody] {
        let Some(cell) = Cell::of(user) else { continue };
        let told = cell.told(
            "",
            "mkdir -p a/b; echo one > a/f; mv a/f a/b/g; ln a/b/g hard; ln -s a/b/g soft; cat soft
            truncate -s 0 hard; chmod +x hard; mkfifo pipe; rm -r a hard soft pipe; ls -A
            echo gone > /dev/null; echo err > /dev/stderr; cat <<< here
            head -c 4 /dev/urandom | wc -c; test -w /dev/shm && echo shared
            echo t > \"$(mktemp)\"; echo v > /var/tmp/spettro-test-$$; rm /var/tmp/spettro-test-$$; echo end",
        );
        assert_lines(&told, &["one", "err", "here", "4", "shared", "end"]);
    }
}

#[test]
fn keys_in_the_home_directory_cannot_be_read_and_the_rest_can() {
    if !landlock(1) {
        return;
    }
    for user in [User::Own, User::Nobody] {
        let Some(cell) = Cell::of(user) else { continue };
        let home = cell.sandbox.home();
        for file in [".ssh/id", ".aws/credentials", ".netrc", ".config/gh/hosts", ".cargo/credentials.toml"] {
            cell.sandbox.write(home.join(file), "the key\n");
        }
        for file in [".gitconfig", ".config/git/ignore", "notes/one", ".cargo/config.toml"] {
            cell.sandbox.write(home.join(file), "fine\n");
        }
        let script = format!(
            "{TRY}cd
            for f in .ssh/id .aws/credentials .netrc .config/gh/hosts .cargo/credentials.toml; do try \"cat $f\"; done
            for d in / ~ .ssh; do (ls $d > /dev/null && echo listed); done; try 'cp .netrc $TMPDIR/x'; try 'ln .netrc $TMPDIR/y'
            cat .gitconfig .config/git/ignore notes/one .cargo/config.toml"
        );
        let told = cell.told("", &script);
        assert_eq!(told.lines().filter(|line| line.starts_with("refused:")).count(), 7, "{user:?}: {told}");
        assert_eq!(told.lines().filter(|line| *line == "listed").count(), 3, "{user:?}: {told}");
        assert_eq!(told.lines().filter(|line| *line == "fine").count(), 4, "{user:?}: {told}");
        assert!(!told.contains("the key") && !told.contains("done:"), "{user:?}: {told}");
        let told =
            cell.told("sandbox: {read: [~/.netrc]}\n", "cat ~/.netrc; cat ~/.ssh/id 2>/dev/null || echo refused");
        assert_lines(&told, &["the key", "refused"]);
    }
}

#[test]
fn read_only_writes_nothing_but_its_own_temporary_folder() {
    if !landlock(3) {
        return;
    }
    let cell = Cell::new();
    std::fs::create_dir(cell.sandbox.root().join("out")).expect("a folder");
    let script = format!(
        "{TRY}try 'echo x > new'; try 'echo x > /var/tmp/spettro-ro'; echo x > $TMPDIR/x && cat $TMPDIR/x
        echo x > /dev/null; echo x > ../out/x && echo written"
    );
    let told = cell.told("sandbox: {files: read-only, write: [out]}\n", &script);
    assert_lines(&told, &["refused: echo x > new", "refused: echo x > /var/tmp/spettro-ro", "x", "written"]);
}

#[test]
fn off_is_off() {
    let cell = Cell::new();
    let told = cell.told(
        "sandbox: {files: off}\n",
        "echo x > ../outside; echo x > ~/x; grep -E 'NoNewPrivs|Seccomp:' /proc/self/status",
    );
    assert_lines(&told, &["NoNewPrivs:\t0", "Seccomp:\t0"]);
    assert!(cell.sandbox.root().join("outside").exists());
}

#[test]
fn a_commit_in_a_linked_worktree_works_and_the_repository_s_hooks_are_out_of_reach() {
    if !landlock(3) {
        return;
    }
    for user in [User::Own, User::Nobody] {
        let Some(cell) = Cell::of(user) else { continue };
        cell.sandbox.sh("cd ..; mkdir repo; cd repo; git init -q -b main; git config user.name T
            git config user.email t@example.org; git commit -q --allow-empty -m start; git worktree add -q -f ../work");
        let script = format!(
            "{TRY}echo x > f; git add f; git -c user.name=T -c user.email=t@example.org commit -q -m second 2> said
            echo commit: $?; rm said; git log --format=%s; git status --porcelain
            try 'echo x > ../repo/.git/hooks/pre-commit'; try 'git config --file ../repo/.git/config core.editor x'
            try 'echo x > ../repo/new'"
        );
        let told = cell.told("", &script);
        assert_lines(
            &told,
            &[
                "commit: 0",
                "second",
                "start",
                "refused: echo x > ../repo/.git/hooks/pre-commit",
                "refused: git config --file ../repo/.git/config core.editor x",
                "refused: echo x > ../repo/new",
            ],
        );
    }
}

#[test]
fn a_commit_in_a_folder_of_a_repository_works_and_what_runs_code_there_is_put_back() {
    if !landlock(3) {
        return;
    }
    for user in [User::Own, User::Nobody] {
        let Some(cell) = Cell::of(user) else { continue };
        // The folder may be somebody else's already.
        cell.sandbox.sh("export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
            mkdir -p packages/one packages/two; echo x > packages/one/f; git init -q -b main
            git config user.name T; git config user.email t@example.org; git add -A; git commit -q -m start");
        let script = format!(
            "{TRY}echo y > f; git commit -q -am second; echo \"commit: $?\"; git checkout -q -b other; echo \"branch: $?\"
            git log --format=%s; try 'echo x > ../two/new'; try 'echo x > ../../new'
            printf '#!/bin/sh\\n' > h; chmod +x h; hooks=$(git rev-parse --git-path hooks); mkdir -p $hooks
            mv h $hooks/pre-push; test -x $hooks/pre-push; echo \"hook: $?\""
        );
        let told = cell.told("workspace: work/packages/one\n", &script);
        let lines = ["commit: 0", "branch: 0", "second", "start"];
        let more = ["refused: echo x > ../two/new", "refused: echo x > ../../new", "hook: 0"];
        assert_lines(&told, &[&lines[..], &more].concat());
        assert!(!cell.sandbox.exists(".git/hooks/pre-push"), "a hook is put back");
    }
}

#[test]
fn root_works_in_a_checkout_that_belongs_to_somebody_else() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: not root");
        return;
    }
    let cell = Cell::new();
    cell.sandbox.write("src/main.c", "int main() { return 0; }\n");
    cell.sandbox.git_init();
    cell.sandbox.sh("chown -R 65534:65534 . && chmod -R go-rwx .");
    let told = cell.told(
        "",
        "echo more >> src/main.c; mkdir out; git status --porcelain; git add -A; git commit -q -m second; git log -1 --format=%s
        tar cf $TMPDIR/a.tar src; mkdir x; tar xf $TMPDIR/a.tar -C x; stat -c %u x/src/main.c
        chown 1234 out && stat -c %u out; grep CapEff /proc/self/status",
    );
    assert_lines(&told, &[" M src/main.c", "second", "65534", "1234", "CapEff:\t00000000800004db"]);
}

#[test]
fn a_private_copy_is_writable_though_it_stands_in_the_store() {
    if !landlock(3) {
        return;
    }
    let cell = Cell::new();
    cell.sandbox.write("f", "theirs\n");
    let script = format!("{TRY}echo mine > f; cat f; try 'echo x > {}/f'", cell.sandbox.workspace().display());
    let told = cell.told("workspace_mode: copy\n", &script);
    assert!(told.starts_with("mine\nrefused: "), "{told}");
    assert_eq!(cell.sandbox.read("f"), "theirs\n");
}

#[test]
fn a_session_that_is_not_kept_is_out_of_reach_too() {
    if !landlock(3) {
        return;
    }
    let cell = Cell::new();
    let script = "find / -xdev -name session.jsonl -newer . 2>/dev/null | head -3; ls -d $TMPDIR/../* | wc -l; \
                  ls $TMPDIR/../spettro-session-* 2>&1 | grep -c denied";
    let (provider, goal) = cell.provider("", script);
    let mut command = cell.command(&[]);
    command.args(["run", "--ephemeral", "--goal"]).arg(&goal);
    let finished = cell.sandbox.start(command).wait(crate::sandbox::PATIENCE).expect_code(0);
    assert!(finished.stderr.contains("it holds the session store"), "{}", finished.stderr);
    provider.finish();
}
