//! Git answers, and is left alone.

use super::super::testing::{sh, wait, world, world_with, write};
use super::*;
use std::fs::File;

struct Sample {
    dir: tempfile::TempDir,
}

impl Sample {
    /// A repository with one commit, and a scratch folder beside it.
    fn new() -> Sample {
        let sample = Sample { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(sample.work()).unwrap();
        sample.sh("git init -q -b main .");
        write(&sample.work(), "a.txt", "one\ntwo\nthree\n");
        write(&sample.work(), "sub/b.txt", "b\n");
        write(&sample.work(), "gone.txt", "gone\n");
        write(&sample.work(), "move me.txt", "a long enough text\nto be found again\nafter the move\n");
        write(&sample.work(), "run.sh", "#!/bin/sh\n");
        write(&sample.work(), "dos.txt", "one\r\ntwo\r\n");
        write(&sample.work(), "bin", [0u8, 159, 146, 150, 0, 1]);
        write(&sample.work(), ".gitignore", "*.log\n");
        sample.sh("git add . && git commit -qm first");
        sample
    }

    fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    fn sh(&self, script: &str) -> String {
        sh(&self.work(), script)
    }

    fn git(&self) -> Git {
        Git::new(Roots::same(self.work()), self.dir.path().join("scratch"))
    }

    /// Everything in `.git`: names, times, content.
    fn inside(&self) -> String {
        self.sh("find .git -printf '%p %y %m %s %T@ %C@\\n' | LC_ALL=C sort; find .git -type f | LC_ALL=C sort | xargs sha256sum")
    }
}

const EVERYTHING: &str = "
    printf 'one\\n2\\nthree\\n' > a.txt
    rm gone.txt
    git mv 'move me.txt' 'sub/moved to.txt'
    chmod +x run.sh
    printf 'one\\r\\n2\\r\\n' > dos.txt
    printf '\\000\\001\\002\\377' > bin
    printf 'new' > 'größe — ü.txt'
    mkdir -p new/deep && printf 'x\\n' > 'new/deep/ spaced  name'
    ln -s a.txt link
    printf noise > x.log
    rm sub/b.txt && mkdir sub/b.txt && printf 'in\\n' > sub/b.txt/in";

#[test]
fn the_state_names_head_branch_and_dirty_files() {
    let sample = Sample::new();
    let commit = sample.sh("git rev-parse HEAD").trim().to_owned();
    let state = wait(sample.git().state(&world())).unwrap().unwrap();
    assert_eq!(
        state,
        GitState { head: Some(commit.clone()), branch: Some("main".into()), dirty: vec![], prefix: None }
    );
    sample.sh(EVERYTHING);
    let state = wait(sample.git().state(&world())).unwrap().unwrap();
    let dirty = [
        "a.txt",
        "bin",
        "dos.txt",
        "gone.txt",
        "größe — ü.txt",
        "link",
        "move me.txt",
        "new/",
        "run.sh",
        "sub/b.txt",
        "sub/moved to.txt",
    ];
    assert_eq!(state.dirty, dirty);
    assert_eq!(sample.git().head().unwrap(), Some(commit));
}

#[test]
fn detached_unborn_and_absent_are_told_apart() {
    let sample = Sample::new();
    sample.sh("git checkout -q --detach");
    let state = wait(sample.git().state(&world())).unwrap().unwrap();
    assert!(state.head.is_some() && state.branch.is_none());

    let dir = tempfile::tempdir().unwrap();
    let git = Git::new(Roots::same(dir.path().to_owned()), dir.path().join("scratch"));
    assert_eq!(wait(git.state(&world())).unwrap(), None);
    assert_eq!(git.head().unwrap(), None);
    assert_eq!(wait(git.snapshot(&world())).unwrap(), None);
    assert!(wait(git.changes(&world(), "x")).is_err());

    let work = dir.path().join("work");
    fs::create_dir(&work).unwrap();
    sh(&work, "git init -q -b main . && printf x > y");
    let git = Git::new(Roots::same(work.clone()), dir.path().join("scratch2"));
    let state = wait(git.state(&world())).unwrap().unwrap();
    assert_eq!(state, GitState { head: None, branch: Some("main".into()), dirty: vec!["y".into()], prefix: None });
    let base = wait(git.snapshot(&world())).unwrap().unwrap();
    sh(&work, "printf z > y; printf 1 > two");
    let (changes, patch) = wait(git.changes(&world(), &base)).unwrap();
    assert_eq!(changes.files, ["two", "y"]);
    assert_eq!((changes.head, changes.branch), (None, Some("main".into())));
    assert!(!patch.is_empty());
}

#[test]
fn the_users_git_is_never_written() {
    let sample = Sample::new();
    // Stat data that git would like to refresh, and a half-staged file.
    sample.sh("touch a.txt; printf 'x\\n' >> sub/b.txt; git add sub/b.txt; printf 'y\\n' >> sub/b.txt");
    sample.sh("printf 'exit 1' > .git/hooks/post-index-change; chmod +x .git/hooks/post-index-change");
    let before = sample.inside();
    let git = sample.git();
    wait(git.state(&world())).unwrap();
    let base = wait(git.snapshot(&world())).unwrap().unwrap();
    assert_eq!(sample.inside(), before);
    sample.sh("printf new > new.txt; rm gone.txt; printf z >> a.txt");
    let before = sample.inside();
    wait(git.state(&world())).unwrap();
    wait(git.changes(&world(), &base)).unwrap();
    git.head().unwrap();
    assert_eq!(sample.inside(), before);
}

#[test]
fn the_patch_applies_where_the_base_is_checked_out() {
    let sample = Sample::new();
    // Dirty at the start: part of the base, not of the changes.
    sample.sh("printf 'dirty\\n' > dirty.txt; printf 'zero\\none\\ntwo\\nthree\\n' > a.txt; git add a.txt");
    let git = sample.git();
    let base = wait(git.snapshot(&world())).unwrap().unwrap();
    sample.sh("mkdir ../check && cp -a . ../check/");
    sample.sh(EVERYTHING);
    let (changes, patch) = wait(git.changes(&world(), &base)).unwrap();
    let files = [
        "a.txt",
        "bin",
        "dos.txt",
        "gone.txt",
        "größe — ü.txt",
        "link",
        "move me.txt",
        "new/deep/ spaced  name",
        "run.sh",
        "sub/b.txt",
        "sub/b.txt/in",
        "sub/moved to.txt",
    ];
    assert_eq!(changes.files, files);
    // a.txt −2+1, dos.txt −1+1, gone.txt −1, größe +1, link +1, spaced +1, in +1, b.txt −1, moved −3+3
    assert_eq!((changes.insertions, changes.deletions), (Some(9), Some(8)));
    assert_eq!((changes.base, changes.patch), (None, None));
    assert_eq!(changes.branch.as_deref(), Some("main"));

    fs::write(sample.dir.path().join("p.patch"), &patch).unwrap();
    let check = sample.dir.path().join("check");
    sh(&check, "git apply --binary ../p.patch");
    sample.sh("rm x.log; rm -rf ../one ../two; cp -a . ../one; cp -a ../check ../two; rm -rf ../one/.git ../two/.git");
    sample.sh("cd ..; diff -r one two; (cd one; find . -printf '%p %y %m %l\\n' | sort) > 1; (cd two; find . -printf '%p %y %m %l\\n' | sort) > 2; diff 1 2");
}

#[test]
fn nothing_changed_is_an_empty_patch() {
    let sample = Sample::new();
    let git = sample.git();
    let base = wait(git.snapshot(&world())).unwrap().unwrap();
    assert_eq!(base, sample.sh("git rev-parse HEAD^{tree}").trim(), "a clean workspace is HEAD's tree");
    sample.sh("touch a.txt; git commit -q --allow-empty -m second");
    let (changes, patch) = wait(git.changes(&world(), &base)).unwrap();
    assert_eq!((changes.files.len(), changes.insertions, changes.deletions), (0, Some(0), Some(0)));
    assert!(patch.is_empty());
    assert_eq!(changes.head.as_deref(), Some(sample.sh("git rev-parse HEAD").trim()));
}

#[test]
fn commits_of_the_agent_do_not_hide_changes() {
    let sample = Sample::new();
    let git = sample.git();
    let base = wait(git.snapshot(&world())).unwrap().unwrap();
    sample.sh("printf 'x\\n' > n.txt; git add -A; git commit -qm work; git checkout -q -b other");
    let (changes, _) = wait(git.changes(&world(), &base)).unwrap();
    assert_eq!(changes.files, ["n.txt"]);
    assert_eq!(changes.branch.as_deref(), Some("other"));
}

#[test]
fn a_folder_of_a_repository_sees_only_itself() {
    let sample = Sample::new();
    let sub = sample.work().join("sub");
    let git = Git::new(Roots::same(sub.clone()), sample.dir.path().join("scratch"));
    let base = wait(git.snapshot(&world())).unwrap().unwrap();
    sample.sh("cp -a . ../check; printf 'x\\n' >> a.txt; printf 'x\\n' >> sub/b.txt; printf 'n\\n' > sub/new");
    let state = wait(git.state(&world())).unwrap().unwrap();
    assert_eq!(state.dirty, ["b.txt", "new"]);
    let (changes, patch) = wait(git.changes(&world(), &base)).unwrap();
    assert_eq!(changes.files, ["b.txt", "new"]);
    fs::write(sample.dir.path().join("p.patch"), &patch).unwrap();
    sh(&sample.dir.path().join("check/sub"), "git apply ../../p.patch");
    sample.sh("diff -r sub ../check/sub");
}

#[test]
fn a_folder_that_the_repository_ignores_is_none_of_it() {
    let sample = Sample::new();
    sample.sh("mkdir -p copies/one && printf copies > .git/info/exclude && printf x > copies/one/x");
    let git = Git::new(Roots::same(sample.work().join("copies/one")), sample.dir.path().join("scratch"));
    assert_eq!(wait(git.state(&world())).unwrap(), None);
    assert_eq!(wait(git.snapshot(&world())).unwrap(), None);
}

#[test]
fn a_linked_worktree_works_the_same() {
    let sample = Sample::new();
    sample.sh("git worktree add -q -b side ../tree");
    let tree = sample.dir.path().join("tree");
    let git = Git::new(Roots::same(tree.clone()), sample.dir.path().join("scratch"));
    let state = wait(git.state(&world())).unwrap().unwrap();
    assert_eq!(state.branch.as_deref(), Some("side"));
    assert_eq!(state.head.as_deref(), Some(sample.sh("git rev-parse HEAD").trim()));
    let base = wait(git.snapshot(&world())).unwrap().unwrap();
    sh(&tree, "printf 'x\\n' > n; git pack-refs --all");
    assert_eq!(wait(git.changes(&world(), &base)).unwrap().0.files, ["n"]);
    assert_eq!(git.head().unwrap(), state.head, "from packed references");
}

#[test]
fn the_users_configuration_cannot_run_or_bend_anything() {
    let sample = Sample::new();
    sample.sh("git config diff.noprefix true; git config diff.external false; git config core.quotePath true
         git config diff.renames copies; git config color.ui always; git config core.fsmonitor 'touch ../ran; false'
         git config core.splitIndex true; git config status.relativePaths true; git config status.branch true
         git config diff.lines.textconv 'touch ../ran; cat'; printf '*.txt diff=lines\\n' > .gitattributes
         git config diff.lines.command 'touch ../ran'");
    let git = sample.git();
    let base = wait(git.snapshot(&world())).unwrap().unwrap();
    sample.sh("cp -a . ../check; printf 'x\\n' >> a.txt; printf 'ü\\n' > 'ü.txt'");
    let state = wait(git.state(&world())).unwrap().unwrap();
    assert_eq!(state.dirty, [".gitattributes", "a.txt", "ü.txt"]);
    let (changes, patch) = wait(git.changes(&world(), &base)).unwrap();
    assert_eq!(changes.files, ["a.txt", "ü.txt"]);
    assert!(!sample.dir.path().join("ran").exists(), "something of the user's ran");
    fs::write(sample.dir.path().join("p.patch"), &patch).unwrap();
    sh(&sample.dir.path().join("check"), "git apply ../p.patch");
    sample.sh("diff -r --exclude=.git . ../check");
}

#[test]
fn variables_of_a_hook_do_not_mislead() {
    let sample = Sample::new();
    let hook = world_with(&[
        ("HOME", "/nonexistent"),
        ("GIT_DIR", "/nonexistent/.git"),
        ("GIT_INDEX_FILE", "/nonexistent/index"),
        ("GIT_WORK_TREE", "/nonexistent"),
    ]);
    let git = sample.git();
    sample.sh("printf 'x\\n' >> a.txt");
    assert_eq!(wait(git.state(&hook)).unwrap().unwrap().dirty, ["a.txt"]);
    let base = wait(git.snapshot(&hook)).unwrap().unwrap();
    sample.sh("printf 'y\\n' > y");
    assert_eq!(wait(git.changes(&hook, &base)).unwrap().0.files, ["y"]);
}

#[test]
fn own_large_and_nested_things_stay_out() {
    let sample = Sample::new();
    let git = Git::new(Roots::same(sample.work()), sample.work().join("home/sessions/1/git"));
    let base = wait(git.snapshot(&world())).unwrap().unwrap();
    write(&sample.work(), ".spettro/sessions/1/x", "x");
    write(&sample.work(), "home/sessions/1/session.jsonl", "x");
    File::create(sample.work().join("big*[x]")).unwrap().set_len(LARGEST_UNTRACKED_BYTES + 1).unwrap();
    write(&sample.work(), "big1", "small");
    sample.sh("git init -q empty; git init -q inner; cd inner; printf x > y; git add y; git commit -qm inner");
    let (changes, _) = wait(git.changes(&world(), &base)).unwrap();
    assert_eq!(changes.files, ["big1", "inner"]);
    let state = wait(git.state(&world())).unwrap().unwrap();
    assert!(!state.dirty.iter().any(|path| path.contains("sessions")), "{:?}", state.dirty);
}

#[test]
fn a_repository_that_git_will_not_touch_is_unknown() {
    let sample = Sample::new();
    let doubtful =
        world_with(&[("HOME", "/nonexistent"), ("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")]);
    let Err(WorkspaceError::Git(words)) = wait(sample.git().state(&doubtful)) else { panic!("unknown") };
    assert!(words.contains("dubious ownership"), "{words}");
    assert!(wait(sample.git().snapshot(&doubtful)).is_err());

    fs::write(sample.work().join(".git/index"), "garbage").unwrap();
    assert!(wait(sample.git().state(&world())).is_err());
    assert!(wait(sample.git().snapshot(&world())).is_err());
}

#[test]
fn a_missing_git_is_unknown_only_where_it_is_needed() {
    let sample = Sample::new();
    let without = world_with(&[("PATH", "/nonexistent")]);
    let Err(WorkspaceError::Git(words)) = wait(sample.git().state(&without)) else { panic!("unknown") };
    assert!(words.contains("not installed"), "{words}");
    assert!(sample.git().head().unwrap().is_some(), "needs no process");
    let dir = tempfile::tempdir().unwrap();
    let git = Git::new(Roots::same(dir.path().to_owned()), dir.path().join("scratch"));
    assert_eq!(wait(git.state(&without)).unwrap(), None);
}

#[test]
fn an_unknown_base_is_an_error() {
    let sample = Sample::new();
    assert!(matches!(wait(sample.git().changes(&world(), &"0".repeat(40))), Err(WorkspaceError::Git(_))));
}

#[test]
fn a_path_with_a_colon_is_borrowed_from() {
    assert_eq!(alternate("/a/b"), "/a/b");
    assert_eq!(alternate("/a:b/\"c\"\\"), r#""/a:b/\"c\"\\""#);
    let sample = Sample::new();
    sample.sh("cp -a . '../co:lon \"q\"'");
    let work = sample.dir.path().join("co:lon \"q\"");
    let git = Git::new(Roots::same(work.clone()), sample.dir.path().join("scratch"));
    let base = wait(git.snapshot(&world())).unwrap().unwrap();
    assert_eq!(base, sample.sh("git rev-parse HEAD^{tree}").trim());
    sh(&work, "rm gone.txt");
    let (_, patch) = wait(git.changes(&world(), &base)).unwrap();
    assert!(String::from_utf8(patch).unwrap().contains("-gone\n"), "the old content is in the user's store");
}
