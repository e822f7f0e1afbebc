//! What is taken for ordinary work, and what is found and put back.

use super::super::testing::{sh, wait, world, write};
use super::*;

/// A repository whose user has a hook and an alias of their own.
fn sample() -> (tempfile::TempDir, Roots) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap().join("w");
    std::fs::create_dir(&root).unwrap();
    sh(
        &root,
        "git init -q -b main; git config alias.st status; git config user.name me; rm -f .git/hooks/*
        echo 'exit 0' > .git/hooks/pre-push; chmod +x .git/hooks/pre-push
        git commit -q --allow-empty -m start",
    );
    (dir, Roots::same(root))
}

fn wire(dir: &tempfile::TempDir, roots: &Roots) -> Tripwire {
    let git = Rc::new(Git::new(roots.clone(), dir.path().join("scratch")));
    Tripwire::new(&world(), roots, git, [roots.real.join("kept")])
}

fn settled(wire: &mut Tripwire) -> Vec<(String, Vec<String>)> {
    let found = wait(wire.settle(&world()));
    for one in &found {
        assert_eq!(one.stands, None, "{one:?}");
    }
    found.into_iter().map(|one| (one.name, one.settings)).collect()
}

/// What is found after a change, which must be undone by then.
fn after(change: &str) -> Vec<(String, Vec<String>)> {
    let (dir, roots) = sample();
    let mut wire = wire(&dir, &roots);
    assert_eq!(settled(&mut wire), []);
    sh(&roots.real, change);
    let found = settled(&mut wire);
    assert_eq!(settled(&mut wire), [], "what was put back is as it was: {change}");
    found
}

fn config(names: &[&str]) -> Vec<(String, Vec<String>)> {
    vec![(".git/config".to_owned(), names.iter().map(|name| (*name).to_owned()).collect())]
}

fn file(name: &str) -> Vec<(String, Vec<String>)> {
    vec![(name.to_owned(), Vec::new())]
}

#[test]
fn ordinary_work_is_taken_as_it_is() {
    for change in [
        "git config user.email me@example.org",
        "git config branch.main.remote origin; git config branch.main.merge refs/heads/main",
        "git remote add origin ../bare; git config core.fsmonitor false",
        "git config --unset alias.st",
        "git commit -q --allow-empty -m two; git checkout -q -b side; git tag one",
        "echo x >> .git/hooks/notes.sample; chmod -x .git/hooks/pre-push",
        "rm .git/hooks/pre-push",
        "rm -rf .git; git init -q; rm -f .git/hooks/*",
    ] {
        assert_eq!(after(change), [], "{change}");
    }
}

#[test]
fn settings_that_run_a_program_are_found_and_put_back() {
    for (setting, name) in [
        ("core.fsmonitor ./x", "core.fsmonitor"),
        ("core.hooksPath .husky", "core.hookspath"),
        ("core.sshCommand ./x", "core.sshcommand"),
        ("core.editor ./x", "core.editor"),
        ("core.pager ./x", "core.pager"),
        ("alias.co '!./x'", "alias.co"),
        ("alias.st '!./x'", "alias.st"),
        ("filter.Lfs.clean ./x", "filter.Lfs.clean"),
        ("diff.word.command ./x", "diff.word.command"),
        ("merge.mine.driver ./x", "merge.mine.driver"),
        ("credential.helper ./x", "credential.helper"),
        ("credential.https://a.b.helper ./x", "credential.https://a.b.helper"),
        ("include.path ../evil", "include.path"),
        ("includeIf.gitdir:/.path ../evil", "includeif.gitdir:/.path"),
        ("submodule.a.update '!x'", "submodule.a.update"),
        ("remote.origin.uploadpack ./x", "remote.origin.uploadpack"),
    ] {
        let change = format!("git config user.email a@b; git config {setting}");
        assert_eq!(after(&change), config(&[name]), "{setting}");
    }
    assert_eq!(after("printf '[core]fsmonitor=./x' >> .git/config"), config(&["core.fsmonitor"]));
    assert_eq!(after("echo '[broken' >> .git/config"), config(&["no configuration any more"]));
    assert_eq!(after("rm .git/config; mkfifo .git/config"), config(&["no readable file any more"]));
    let elsewhere =
        "mkdir evil; cp .git/config evil/c; printf '[core]\n\tpager = ./x\n' >> evil/c; ln -sf ../evil/c .git/config";
    assert_eq!(after(elsewhere), config(&["core.pager"]));
    let own = "git config extensions.worktreeConfig true; git config --worktree core.editor ./x";
    let both = [
        config(&["extensions.worktreeconfig"]),
        vec![(".git/config.worktree".to_owned(), vec!["core.editor".to_owned()])],
    ];
    assert_eq!(after(own), both.concat());
}

#[test]
fn new_and_changed_hooks_are_put_back() {
    assert_eq!(
        after("echo x > .git/hooks/post-commit; chmod +x .git/hooks/post-commit"),
        file(".git/hooks/post-commit")
    );
    assert_eq!(after("echo x >> .git/hooks/pre-push"), file(".git/hooks/pre-push"));
    assert_eq!(after("ln -s ../../x .git/hooks/pre-commit; echo x > x; chmod +x x"), file(".git/hooks/pre-commit"));
    let folder =
        "mkdir evil; cp .git/hooks/* evil; echo x > evil/post-merge; rm -r .git/hooks; ln -s ../evil .git/hooks";
    assert_eq!(after(folder), file(".git/hooks/post-merge"));
}

#[test]
fn spettros_own_files_are_put_back_and_nothing_is_written_through_a_link() {
    assert_eq!(after("mkdir .spettro; echo 'name: x' > .spettro/config.yaml"), file(".spettro/config.yaml"));
    let linked = "mkdir evil; echo x > evil/memory.md; ln -s evil .spettro";
    assert_eq!(after(linked), file(".spettro/memory.md"));
    let (dir, roots) = sample();
    write(&roots.real, ".spettro/config.yaml", "name: mine");
    let mut wire = wire(&dir, &roots);
    write(&roots.real, "evil/config.yaml", "name: theirs");
    sh(&roots.real, "rm -r .spettro; ln -s evil .spettro");
    assert_eq!(settled(&mut wire), file(".spettro/config.yaml"));
    let read = |name: &str| std::fs::read_to_string(roots.real.join(name)).unwrap();
    assert_eq!(read(".spettro/config.yaml"), "name: mine");
    assert_eq!(read("evil/config.yaml"), "name: theirs");
}

#[test]
fn another_repository_in_its_place_is_told_and_a_new_one_is_watched() {
    let (dir, roots) = sample();
    let mut there = wire(&dir, &roots);
    sh(&roots.real, "git init -q evil; mv .git old; echo 'gitdir: evil/.git' > .git");
    let found = wait(there.settle(&world()));
    assert_eq!((found.len(), found[0].name.as_str(), found[0].stands.is_some()), (1, ".git", true));

    let dir = tempfile::tempdir().unwrap();
    let roots = Roots::same(dir.path().canonicalize().unwrap().join("w"));
    std::fs::create_dir(&roots.real).unwrap();
    let mut none = wire(&dir, &roots);
    sh(&roots.real, "git init -q; rm -f .git/hooks/*");
    assert_eq!(settled(&mut none), []);
    sh(&roots.real, "git config core.pager ./x; echo x > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit");
    assert_eq!(settled(&mut none), [config(&["core.pager"]), file(".git/hooks/pre-commit")].concat());
}

/// A folder of a repository, which is the workspace.
fn within() -> (tempfile::TempDir, Roots, Tripwire) {
    let (dir, roots) = sample();
    let pkg = Roots::same(roots.real.join("pkg"));
    std::fs::create_dir(&pkg.real).unwrap();
    let wire = wire(&dir, &pkg);
    (dir, pkg, wire)
}

fn told(wire: &mut Tripwire) -> Vec<(String, bool)> {
    let found = wait(wire.settle(&world()));
    found.into_iter().map(|one| (one.name, one.stands.is_some())).collect()
}

#[test]
fn a_nearer_repository_is_watched_beside_the_one_around_it() {
    let (_dir, pkg, mut wire) = within();
    sh(&pkg.real, "git init -q; rm -f .git/hooks/*; git config user.name me; git commit -q --allow-empty -m one");
    assert_eq!(settled(&mut wire), [], "as such it is ordinary work");
    let plant = "git config core.fsmonitor ./x; echo x > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit";
    sh(&pkg.real, plant);
    assert_eq!(settled(&mut wire), [config(&["core.fsmonitor"]), file(".git/hooks/pre-commit")].concat());
    sh(&pkg.real, "cd ..; echo x > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit; git config core.pager ./x");
    let around: Vec<String> = told(&mut wire).into_iter().map(|(name, _)| name).collect();
    assert_eq!(around.len(), 2, "{around:?}");
    assert!(around[0].ends_with("w/.git/config") && around[1].ends_with("w/.git/hooks/pre-commit"), "{around:?}");

    let (_dir, pkg, mut wire) = within();
    sh(&pkg.real, &format!("git init -q; rm -f .git/hooks/*; {plant}"));
    let both = [config(&["core.fsmonitor"]), file(".git/hooks/pre-commit")].concat();
    assert_eq!(settled(&mut wire), both, "all in one turn");
    assert_eq!(sh(&pkg.real, "git config core.fsmonitor || true"), "");

    // In the folder of the known one, and without a `.git`.
    let (_dir, pkg, mut wire) = within();
    sh(
        &pkg.real,
        "git init -q --bare ../.git/evil; git -C ../.git/evil config core.fsmonitor ./x
        rm ../.git/evil/hooks/*; echo 'gitdir: ../.git/evil' > .git",
    );
    assert_eq!(settled(&mut wire)[0].1, ["core.fsmonitor"]);
    let (_dir, pkg, mut wire) = within();
    sh(&pkg.real, "git init -q --bare .; git config core.fsmonitor ./x; rm hooks/*");
    assert_eq!(settled(&mut wire), [("config".to_owned(), vec!["core.fsmonitor".to_owned()])]);
}

#[test]
fn a_repository_that_is_unpacked_into_its_workspace_or_gone_is_told() {
    for (change, name) in [
        ("mv .git x.git; mv x.git/* .; git config --file config core.fsmonitor ./x", ".git"),
        ("rm -rf .git", ".git"),
        ("mv .git .old", ".git"),
        ("rm .git/HEAD", ".git"),
    ] {
        let (dir, roots) = sample();
        let mut wire = wire(&dir, &roots);
        sh(&roots.real, change);
        assert!(told(&mut wire).contains(&(name.to_owned(), true)), "{change}");
    }
}

#[test]
fn a_repository_above_or_elsewhere_is_told_and_never_touched() {
    let (_dir, pkg, mut wire) = within();
    let plant = "git init -q ../../theirs; git -C ../../theirs config core.pager less";
    sh(&pkg.real, &format!("{plant}; echo 'gitdir: ../../theirs/.git' > .git"));
    assert_eq!(told(&mut wire), [(".git".to_owned(), true)]);
    assert_eq!(sh(&pkg.real, "git -C ../../theirs config core.pager"), "less\n");

    let dir = tempfile::tempdir().unwrap();
    let roots = Roots::same(dir.path().canonicalize().unwrap().join("w"));
    std::fs::create_dir(&roots.real).unwrap();
    let mut wire = super::tests::wire(&dir, &roots);
    sh(&roots.real, "git init -q ..; git -C .. config core.fsmonitor ./x");
    let found = told(&mut wire);
    assert_eq!((found.len(), found[0].1), (1, true), "{found:?}");
    assert_eq!(sh(&roots.real, "git config core.fsmonitor"), "./x\n");
}

#[test]
fn a_submodule_that_is_checked_out_in_the_workspace_is_ordinary_work() {
    let (dir, roots) = with_submodules();
    sh(&roots.real, "git submodule --quiet deinit -f --all; rm -rf .git/modules");
    let module = Roots::same(roots.real.join("libs/one"));
    let mut wire = wire(&dir, &module);
    let update = "git -c protocol.file.allow=always submodule --quiet update --init";
    sh(&roots.real, &format!("{update}; rm -f .git/modules/libs/one/hooks/*"));
    assert_eq!(settled(&mut wire), []);
    sh(&module.real, "git config user.name me");
    assert_eq!(settled(&mut wire), []);
    sh(&module.real, "git config core.editor ./x");
    assert_eq!(
        settled(&mut wire).iter().map(|(_, settings)| settings.as_slice()).collect::<Vec<_>>(),
        [["core.editor"]]
    );
    sh(&module.real, "git config user.name me; git status");
}

#[test]
fn a_worktree_of_the_known_repository_has_the_known_settings() {
    let (_dir, pkg, mut wire) = within();
    sh(&pkg.real, "git worktree add -q ../tree; mv ../tree/.git .git; git config user.name me");
    assert_eq!(settled(&mut wire), []);
    assert_eq!(sh(&pkg.real, "git config alias.st"), "status\n", "the user's own stands");
}

#[test]
fn a_linked_worktree_has_the_common_settings_and_its_own() {
    let (dir, roots) = sample();
    sh(&roots.real, "git config extensions.worktreeConfig true; git worktree add -q ../side");
    let side = Roots::same(roots.real.with_file_name("side"));
    let mut wire = wire(&dir, &side);
    assert_eq!(settled(&mut wire), []);
    sh(&side.real, "git config core.pager ./x; git config --worktree core.editor ./x");
    let found = settled(&mut wire);
    assert_eq!(
        found.iter().map(|(_, settings)| settings[0].as_str()).collect::<Vec<_>>(),
        ["core.pager", "core.editor"]
    );
    assert_eq!(sh(&side.real, "git config --get-regexp 'core.(pager|editor)' || true"), "");
}

#[test]
fn the_command_after_which_it_moved_is_known() {
    let (dir, roots) = sample();
    let mut wire = wire(&dir, &roots);
    sh(&roots.real, "echo x > kept");
    wire.look("first");
    sh(&roots.real, "git config core.pager ./x");
    wire.look("second");
    sh(&roots.real, "git config core.editor ./x");
    wire.look("third");
    assert_eq!(wire.who(&roots.real.join("kept")), Some("first"));
    let found = wait(wire.settle(&world()));
    assert_eq!(found[0].by.as_deref(), Some("second"));
    assert_eq!(found[0].settings, ["core.pager", "core.editor"]);
}

/// A repository with a submodule whose name holds a slash, which has a submodule itself.
fn with_submodules() -> (tempfile::TempDir, Roots) {
    let (dir, roots) = sample();
    let add = "git -c protocol.file.allow=always submodule --quiet add";
    sh(
        &roots.real,
        &format!(
            "for n in one two; do git init -q ../$n; git -C ../$n commit -q --allow-empty -m start; done
            (cd ../one; {add} \"$(cd ../two; pwd)\" inner; git commit -qm sub)
            {add} ../one libs/one; git -c protocol.file.allow=always submodule --quiet update --init --recursive
            git commit -qm sub; rm -f .git/modules/libs/one/hooks/* .git/modules/libs/one/modules/inner/hooks/*"
        ),
    );
    (dir, roots)
}

#[test]
fn submodules_are_watched_and_theirs_too() {
    let (dir, roots) = with_submodules();
    let mut wire = wire(&dir, &roots);
    assert_eq!(settled(&mut wire), []);
    sh(&roots.real, "git -C libs/one config user.email a@b; git -C libs/one commit -q --allow-empty -m two");
    assert_eq!(settled(&mut wire), []);
    let module = ".git/modules/libs/one";
    let inner = ".git/modules/libs/one/modules/inner";
    for (change, name, settings) in [
        ("git -C libs/one config core.fsmonitor ./x", format!("{module}/config"), vec!["core.fsmonitor"]),
        ("git -C libs/one/inner config core.pager ./x", format!("{inner}/config"), vec!["core.pager"]),
        ("git -C libs/one config core.worktree /", format!("{module}/config"), vec!["core.worktree"]),
        (
            "git config --file .git/modules/libs/one/config core.worktree ../../../../..",
            format!("{module}/config"),
            vec!["core.worktree"],
        ),
    ] {
        sh(&roots.real, change);
        let settings = settings.into_iter().map(str::to_owned).collect();
        assert_eq!(settled(&mut wire), [(name, settings)], "{change}");
    }
    for folder in [module, inner] {
        sh(&roots.real, &format!("mkdir -p {folder}/hooks; echo x > {folder}/hooks/post-checkout"));
        sh(&roots.real, &format!("chmod +x {folder}/hooks/post-checkout"));
        assert_eq!(settled(&mut wire), file(&format!("{folder}/hooks/post-checkout")));
        assert!(!roots.real.join(folder).join("hooks/post-checkout").exists());
    }
    assert_eq!(settled(&mut wire), []);
}

#[test]
fn a_submodule_that_is_added_is_ordinary_work_unless_it_runs_something() {
    let (dir, roots) = with_submodules();
    let mut wire = wire(&dir, &roots);
    sh(
        &roots.real,
        "git -c protocol.file.allow=always submodule --quiet add ../two two; rm -f .git/modules/two/hooks/*",
    );
    assert_eq!(settled(&mut wire), []);
    sh(&roots.real, "git -C two config core.editor ./x");
    assert_eq!(settled(&mut wire), [(".git/modules/two/config".to_owned(), vec!["core.editor".to_owned()])]);
    sh(
        &roots.real,
        "git -c protocol.file.allow=always submodule --quiet add ../two three; git -C three config core.pager ./x
        rm -f .git/modules/three/hooks/*; echo x > .git/modules/three/hooks/pre-push",
    );
    assert_eq!(
        settled(&mut wire),
        [
            (".git/modules/three/config".to_owned(), vec!["core.pager".to_owned()]),
            (".git/modules/three/hooks/pre-push".to_owned(), Vec::new()),
        ]
    );
}

#[test]
fn files_that_known_settings_include_are_watched() {
    let (dir, roots) = sample();
    write(&roots.real, "conf/shared", "[user]\n\tname = them\n[includeIf \"gitdir:/\"]\n\tpath = \"deep\"\n");
    sh(&roots.real, "git config include.path ../conf/shared; git config --add include.path ../conf/later");
    let mut wire = wire(&dir, &roots);
    assert_eq!(settled(&mut wire), []);
    for (change, name, setting) in [
        ("git config --file conf/shared alias.st '!./x'", "conf/shared", "alias.st"),
        ("git config --file conf/deep core.sshCommand ./x", "conf/deep", "core.sshcommand"),
        ("git config --file conf/later core.pager ./x", "conf/later", "core.pager"),
    ] {
        sh(&roots.real, change);
        assert_eq!(settled(&mut wire), [(name.to_owned(), vec![setting.to_owned()])], "{change}");
    }
    sh(&roots.real, "git config --file conf/shared user.name me; echo x > conf/other");
    assert_eq!(settled(&mut wire), []);
}

#[test]
fn settings_of_other_worktrees_are_watched_from_the_main_one() {
    let (dir, roots) = sample();
    sh(&roots.real, "git config extensions.worktreeConfig true; git worktree add -q ../side");
    let mut wire = wire(&dir, &roots);
    sh(&roots.real, "git -C ../side config --worktree core.editor ./x");
    let config = ".git/worktrees/side/config.worktree".to_owned();
    assert_eq!(settled(&mut wire), [(config, vec!["core.editor".to_owned()])]);
}

#[test]
fn a_repository_with_very_many_submodules_is_looked_at_as_fast() {
    let (dir, roots) = sample();
    sh(
        &roots.real,
        "for n in $(seq 300); do mkdir -p .git/modules/$n/hooks; cp .git/config .git/HEAD .git/modules/$n; done",
    );
    let mut wire = wire(&dir, &roots);
    assert!(wire.watched.len() > 300 && wire.extra.len() < 10);
    assert!(wire.watched.values().filter(|watched| watched.looked_at).count() <= 2 * MOST_EXTRA);
    sh(&roots.real, "git config --file .git/modules/299/config core.pager ./x");
    assert_eq!(settled(&mut wire), [(".git/modules/299/config".to_owned(), vec!["core.pager".to_owned()])]);
}
