//! Links that lead a grant astray, and those that may.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::tests::Ground;
use super::*;

#[track_caller]
fn told(policy: &Policy, text: &str) {
    assert!(policy.narrowed.iter().any(|clause| clause.contains(text)), "{text}: {:?}", policy.narrowed);
}

/// Clauses about folders of this ground, but for the home directory's own.
fn about(policy: &Policy, ground: &Ground) -> Vec<String> {
    let ours = ground.at("").display().to_string();
    let clauses = policy.narrowed.iter().filter(|clause| clause.contains(ours.trim_end_matches('/')));
    clauses.cloned().collect()
}

#[test]
fn a_link_that_commands_made_in_a_cache_grants_nothing() {
    let ground = Ground::new();
    fs::write(ground.at("work/requirements.txt"), "").unwrap();
    fs::create_dir_all(ground.at("home/.cache")).unwrap();
    for target in ["home/.ssh", "home/src", "home/none"] {
        symlink(ground.at(target), ground.at("home/.cache/pip")).unwrap();
        let policy = ground.policy(&Wanted::default()).unwrap();
        assert!(!policy.may_write(&ground.at(target).join("x")), "{target}");
        assert!(!policy.may_read(&ground.at("home/.ssh/id")), "{target}");
        told(&policy, "/.cache/pip` is not writable: it is a link that commands could have made");
        ground.check(&policy, "home/.cache/other", true, true);
        assert!(!ground.at("home/none").exists(), "nothing is made where the link leads");
        fs::remove_file(ground.at("home/.cache/pip")).unwrap();
    }
    let policy = ground.policy(&Wanted::default()).unwrap();
    ground.check(&policy, "home/.cache/pip/x", true, true);
    assert_eq!(about(&policy, &ground), [""; 0]);
}

#[test]
fn variables_that_name_folders_of_the_project_grant_no_links_that_stand_in_it() {
    let manifests = ["Cargo.toml", "package.json", "setup.py", "go.mod", "build.gradle"];
    for (variable, link) in [
        ("CARGO_HOME", "x"),
        ("CARGO_HOME", "x/registry"),
        ("CARGO_HOME", "x/.package-cache"),
        ("npm_config_cache", "x"),
        ("PIP_CACHE_DIR", "x"),
        ("GOPATH", "x"),
        ("GOPATH", "x/pkg"),
        ("GRADLE_USER_HOME", "x/caches"),
        ("TMPDIR", "x"),
    ] {
        // The workspace itself; the repository that it is a folder of; what it is a private copy of.
        for (project, workspace, copied) in
            [("work", "work", false), ("repo", "repo/deep/one", false), ("work", "home/.spettro/workspaces/one", true)]
        {
            let mut ground = Ground::new();
            for dir in ["repo/.git", workspace, "home/bin/pkg", "home/.ssh/pkg"] {
                fs::create_dir_all(ground.at(dir)).unwrap();
            }
            manifests.iter().for_each(|name| fs::write(ground.at(workspace).join(name), "").unwrap());
            ground.project = copied.then(|| ground.at(project));
            ground.variables = vec![(variable, ground.at(project).join("x"))];
            let targets =
                if link.ends_with("-cache") { ["home/.ssh/id", "home/bin/new"] } else { ["home/bin", "home/.ssh"] };
            for target in targets {
                let link = ground.at(project).join(link);
                fs::create_dir_all(link.parent().unwrap()).unwrap();
                symlink(ground.at(target), &link).unwrap();
                let policy = ground.policy_in(&Wanted::default(), workspace).unwrap();
                let case = format!("{variable} {} {workspace} {target}", link.display());
                for path in ["home/bin/x", "home/bin/pkg/x", "home/.ssh/id", "home/.ssh/pkg/x", "home/.ssh/registry"] {
                    assert!(!policy.may_write(&ground.at(path)), "{case}: {path}");
                }
                assert!(!policy.may_read(&ground.at("home/.ssh/id")), "{case}");
                told(&policy, "a link that commands could have made");
                assert_eq!(fs::read_dir(ground.at("home/.ssh")).unwrap().count(), 2, "{case}: nothing is made there");
                assert_eq!(fs::read_dir(ground.at("home/bin")).unwrap().count(), 1, "{case}: nothing is made there");
                fs::remove_file(link).unwrap();
            }
        }
    }
}

#[test]
fn caches_behind_the_operator_s_own_links_are_granted() {
    let mut ground = Ground::new();
    for dir in ["disk/cache", "disk/cargo/bin", "disk/npm", "work/gradle"] {
        fs::create_dir_all(ground.at(dir)).unwrap();
    }
    fs::remove_dir_all(ground.at("home/.cargo")).unwrap();
    symlink(ground.at("disk/cargo"), ground.at("home/.cargo")).unwrap();
    symlink("../disk/cache", ground.at("home/.cache")).unwrap();
    symlink(ground.at("disk"), ground.at("moved")).unwrap();
    for manifest in ["Cargo.toml", "package.json", "setup.py", "build.gradle"] {
        fs::write(ground.at("work").join(manifest), "").unwrap();
    }
    ground.variables =
        vec![("npm_config_cache", ground.at("moved/npm")), ("GRADLE_USER_HOME", ground.at("work/gradle"))];
    let policy = ground.policy(&Wanted::default()).unwrap();
    for path in ["disk/cache/pip/x", "disk/cargo/registry/x", "disk/cargo/.package-cache", "disk/npm/_cacache/x"] {
        ground.check(&policy, path, true, true);
    }
    ground.check(&policy, "disk/cargo/bin/cargo", true, false);
    ground.check(&policy, "work/gradle/caches/x", true, true);
    assert!(ground.at("disk/cargo/registry").is_dir() && ground.at("disk/cargo/.package-cache").is_file());
    assert_eq!(about(&policy, &ground), [""; 0]);
}

#[test]
fn a_cache_that_is_in_a_place_of_keys_or_holds_one_is_granted_only_by_name() {
    let mut ground = Ground::new();
    fs::write(ground.at("work/package.json"), "{}").unwrap();
    for (folder, clause) in [
        ("home/.ssh", "/home/.ssh` is not writable: it is in `"),
        ("home/.config/gh/npm", "/npm` is not writable: it is in `"),
        ("home/.config", "/home/.config` is not writable as a whole: it holds `"),
        ("home/.spettro/npm", "/npm` is not writable: it is in `"),
    ] {
        ground.variables = vec![("npm_config_cache", ground.at(folder))];
        let policy = ground.policy(&Wanted::default()).unwrap();
        assert!(!policy.may_write(&ground.at(folder).join("x")), "{folder}");
        told(&policy, clause);
        assert!(folder != "home/.config/gh/npm" || !ground.at(folder).exists(), "it is not made");
    }
    let wanted = Wanted { write: vec![ground.at("home/.ssh")], ..Wanted::default() };
    ground.check(&ground.policy(&wanted).unwrap(), "home/.ssh/id", true, true);

    // What a link of the operator's leads to is judged too.
    symlink(ground.at("home/.ssh"), ground.at("home/.npm")).unwrap();
    ground.variables.clear();
    let policy = ground.policy(&Wanted::default()).unwrap();
    ground.check(&policy, "home/.ssh/id", false, false);
    told(&policy, "/home/.ssh` is not writable: it is in `");
}

#[test]
fn the_home_of_cargo_in_a_cache_takes_that_away_only_when_it_holds_tokens() {
    let mut ground = Ground::new();
    fs::write(ground.at("work/Cargo.toml"), "").unwrap();
    ground.variables = vec![("CARGO_HOME", ground.at("home/.cache/cargo"))];
    let policy = ground.policy(&Wanted::default()).unwrap();
    ground.check(&policy, "home/.cache/pip/x", true, true);
    ground.check(&policy, "home/.cache/cargo/registry/x", true, true);
    assert_eq!(about(&policy, &ground), [""; 0]);
    fs::write(ground.at("home/.cache/cargo/credentials.toml"), "x").unwrap();
    let policy = ground.policy(&Wanted::default()).unwrap();
    ground.check(&policy, "home/.cache/cargo/credentials.toml", false, false);
    ground.check(&policy, "home/.cache/cargo/registry/x", true, true);
    ground.check(&policy, "home/.cargo/credentials.toml", false, false);
    told(&policy, "/home/.cache` is not writable as a whole: it holds `");
}

#[test]
fn a_path_that_is_named_must_not_be_reached_by_a_link_of_somebody_else() {
    let ground = Ground::new();
    symlink(ground.at("home/.ssh"), ground.at("work/out")).unwrap();
    symlink(ground.at("home/src"), ground.at("home/short")).unwrap();
    let (path, link) = (ground.at("work/out/deep"), ground.at("work/out"));
    let wanted = Wanted { write: vec![path.clone()], ..Wanted::default() };
    let refused = SandboxError::Link { key: "sandbox.write", path: path.clone(), link: link.clone() };
    assert_eq!(ground.policy(&wanted), Err(refused));
    let wanted = Wanted { read: vec![link.clone()], files: Files::ReadOnly, ..Wanted::default() };
    assert_eq!(ground.policy(&wanted), Err(SandboxError::Link { key: "sandbox.read", path: link.clone(), link }));
    let wanted = Wanted { write: vec![PathBuf::from("~/short")], ..Wanted::default() };
    ground.check(&ground.policy(&wanted).unwrap(), "home/src/x", true, true);
}

/// A repository's side of a linked worktree.
fn repository(ground: &Ground, git: &str, worktree: &str) {
    for dir in ["objects", "refs", "logs", "worktrees/x"] {
        fs::create_dir_all(ground.at(git).join(dir)).unwrap();
    }
    let back = ground.at(worktree).join(".git");
    fs::write(ground.at(git).join("worktrees/x/commondir"), "../..\n").unwrap();
    fs::write(ground.at(git).join("worktrees/x/gitdir"), back.display().to_string()).unwrap();
    fs::write(back, format!("gitdir: {}\n", ground.at(git).join("worktrees/x").display())).unwrap();
}

#[test]
fn a_repository_that_commands_made_up_for_a_linked_worktree_grants_nothing() {
    for git in ["home/.cache/evil", "home/.npm/evil", "tmp/evil", "work/evil", "home/other/.git"] {
        let mut ground = Ground::new();
        fs::create_dir_all(ground.at("tmp")).unwrap();
        ground.variables = vec![("TMPDIR", ground.at("tmp"))];
        repository(&ground, git, "work");
        if git == "home/.npm/evil" {
            let policy = ground.policy(&Wanted::default()).unwrap();
            ground.check(&policy, "home/.npm/evil/objects/x", true, false);
        }
        for (name, target) in [("objects", "home/.ssh"), ("logs", "home/.bashrc"), ("refs", "home/src")] {
            let link = ground.at(git).join(name);
            fs::remove_dir(&link).unwrap();
            symlink(ground.at(target), &link).unwrap();
            let policy = ground.policy(&Wanted::default()).unwrap();
            ground.check(&policy, "home/.ssh/id", false, false);
            ground.check(&policy, "home/.bashrc", true, false);
            ground.check(&policy, "home/src/x", true, false);
            if git == "home/other/.git" {
                told(&policy, &format!("/{name}` is no folder"));
                ground.check(&policy, "home/other/.git/worktrees/x/index", true, false);
            }
            fs::remove_file(&link).unwrap();
            fs::create_dir(&link).unwrap();
        }
    }
}

#[test]
fn a_link_to_another_worktree_s_file_grants_nothing_of_its_repository() {
    let ground = Ground::new();
    fs::create_dir(ground.at("other")).unwrap();
    repository(&ground, "repo/.git", "other");
    symlink(ground.at("other/.git"), ground.at("work/.git")).unwrap();
    let policy = ground.policy(&Wanted::default()).unwrap();
    ground.check(&policy, "repo/.git/objects/x", true, false);
    ground.check(&ground.policy_in(&Wanted::default(), "other").unwrap(), "repo/.git/objects/x", true, true);
}

#[test]
fn a_pipe_where_a_worktree_s_files_were_is_not_waited_for() {
    let ground = Ground::new();
    repository(&ground, "repo/.git", "work");
    let file = ground.at("repo/.git/worktrees/x/gitdir");
    fs::remove_file(&file).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    ground.check(&ground.policy(&Wanted::default()).unwrap(), "repo/.git/objects/x", true, false);
}

#[test]
fn a_worktree_inside_its_own_repository_can_be_committed_in() {
    let ground = Ground::new();
    fs::create_dir_all(ground.at("repo/trees/one")).unwrap();
    repository(&ground, "repo/.git", "repo/trees/one");
    let policy = ground.policy_in(&Wanted::default(), "repo/trees/one").unwrap();
    ground.check(&policy, "repo/.git/objects/x", true, true);
    ground.check(&policy, "repo/.git/worktrees/x/index", true, true);
    ground.check(&policy, "repo/.git/config", true, false);
    ground.check(&policy, "repo/file", true, false);
    assert_eq!(about(&policy, &ground), [""; 0]);
}

#[test]
fn terminals_are_closed_when_one_is_there_and_open_when_they_are_named() {
    let terminals = Path::new("/dev/pts");
    let folder = tempfile::tempdir().unwrap();
    assert!(!roots::has_terminals(folder.path()));
    fs::write(folder.path().join("ptmx"), "").unwrap();
    assert!(!roots::has_terminals(folder.path()), "that makes them");
    fs::write(folder.path().join("7"), "").unwrap();
    assert!(roots::has_terminals(folder.path()));
    let named = Wanted { write: vec![terminals.to_owned()], ..Wanted::default() };
    if terminals.is_dir() {
        let policy = Ground::new().policy(&named).unwrap();
        assert!(policy.may_write(&terminals.join("7")));
        assert!(!policy.narrowed.iter().any(|clause| clause.contains("/dev/pts")));
    }
}
