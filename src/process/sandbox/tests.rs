//! What is granted to whom, and what each kernel keeps of it.

use std::fs;
use std::path::{Path, PathBuf};

use super::level::Obtained;
use super::*;

/// A home directory, a workspace and a store, below a temporary folder.
pub(super) struct Ground {
    root: tempfile::TempDir,
    tmpdir: Option<PathBuf>,
    goal_file: Option<PathBuf>,
    account_home: Option<PathBuf>,
    keys: KeyPlaces,
    /// What the workspace is a copy of.
    pub(super) project: Option<PathBuf>,
    pub(super) variables: Vec<(&'static str, PathBuf)>,
}

impl Ground {
    pub(super) fn new() -> Ground {
        let root = tempfile::tempdir().unwrap();
        let ground = Ground {
            tmpdir: None,
            goal_file: None,
            account_home: None,
            keys: KeyPlaces::default(),
            project: None,
            variables: Vec::new(),
            root,
        };
        for dir in ["home/.ssh", "home/.config/gh", "home/.config/git", "home/.cargo/bin", "home/src", "work", "own"] {
            fs::create_dir_all(ground.at(dir)).unwrap();
        }
        for file in [
            "home/.ssh/id",
            "home/.bashrc",
            "home/.netrc",
            "home/.cargo/credentials.toml",
            "home/.cargo/config.toml",
            "home/.config/git/config",
        ] {
            fs::write(ground.at(file), "x").unwrap();
        }
        fs::create_dir_all(ground.at("home/.spettro/sessions")).unwrap();
        ground
    }

    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.root.path().canonicalize().unwrap().join(path)
    }

    pub(super) fn policy(&self, wanted: &Wanted) -> Result<Policy, SandboxError> {
        self.policy_in(wanted, "work")
    }

    pub(super) fn policy_in(&self, wanted: &Wanted, workspace: &str) -> Result<Policy, SandboxError> {
        let (home, own) = (self.at("home"), self.at("own"));
        let tmpdir = self.tmpdir.clone().unwrap_or_else(|| self.at("no-such-folder"));
        Policy::new(
            wanted,
            &Places {
                workspace: &self.at(workspace),
                project: self.project.as_ref().unwrap_or(&self.at(workspace)),
                home: Some(&home),
                account_home: self.account_home.as_deref(),
                stores: vec![home.join(".spettro"), home.join(".spettro/sessions")],
                goal_file: self.goal_file.as_deref(),
                keys: &self.keys,
                temporary: &own,
                variable: &|name| {
                    let moved = self.variables.iter().find(|(moved, _)| *moved == name).map(|(_, path)| path);
                    let usual = (name == "TMPDIR").then_some(&tmpdir);
                    moved.or(usual).map(|path| path.to_string_lossy().into_owned())
                },
            },
        )
    }

    #[track_caller]
    pub(super) fn check(&self, policy: &Policy, what: &str, readable: bool, writable: bool) {
        let path = self.at(what);
        assert_eq!((policy.may_read(&path), policy.may_write(&path)), (readable, writable), "{}", path.display());
    }
}

#[test]
fn of_the_home_directory_what_stands_there_is_readable_but_not_the_places_of_keys() {
    let ground = Ground::new();
    std::os::unix::fs::symlink("/", ground.at("home/all")).unwrap();
    let policy = ground.policy(&Wanted::default()).unwrap();
    for path in ["home/.bashrc", "home/src/deep/file", "home/.config/git/config", "home/.cargo/bin/cargo"] {
        ground.check(&policy, path, true, false);
    }
    for path in [
        "home/.ssh/id",
        "home/.netrc",
        "home/.config/gh/hosts.yml",
        "home/.config/new",
        "home/.cargo/credentials.toml",
        "home/.spettro/sessions/x",
        "home/made-later",
        "home",
    ] {
        ground.check(&policy, path, false, false);
    }
    for path in ["/usr/bin/env", "/etc/hosts", "/proc/self/status"] {
        ground.check(&policy, path, true, false);
    }
    assert!(!policy.may_read(Path::new("/")), "granting it would grant what is below");
    for listed in [Path::new("/"), &ground.at("home"), &ground.at("home/.ssh")] {
        assert!(policy.may_list(listed), "{}", listed.display());
    }
}

#[test]
fn what_holds_tokens_besides_settings_is_kept_alone() {
    let ground = Ground::new();
    let kept = [
        ".config/git/credentials",
        ".vault-token",
        ".pgpass",
        ".config/containers/auth.json",
        ".terraform.d/credentials.tfrc.json",
        ".m2/settings.xml",
        ".gradle/gradle.properties",
        ".gem/credentials",
        ".codex/auth.json",
        ".claude/.credentials.json",
        ".config/google-chrome/Default/Cookies",
        ".mozilla/firefox/x/logins.json",
        ".bash_history",
        ".local/share/fish/fish_history",
    ];
    let beside = [
        ".config/git/config",
        ".config/containers/registries.conf",
        ".m2/repository/a.jar",
        ".gradle/init.gradle",
        ".codex/config.toml",
        ".claude/settings.json",
        ".local/bin/tool",
        ".local/share/applications/x",
    ];
    for name in kept.iter().chain(&beside) {
        let path = ground.at("home").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }
    let policy = ground.policy(&Wanted::default()).unwrap();
    kept.iter().for_each(|name| ground.check(&policy, &format!("home/{name}"), false, false));
    beside.iter().for_each(|name| ground.check(&policy, &format!("home/{name}"), true, false));
    for place in ["/run/secrets", "/var/run/secrets"] {
        let token = Path::new(place).join("kubernetes.io/serviceaccount/token");
        assert!(!Path::new(place).exists() || !policy.may_read(&token), "{place}");
    }
}

#[test]
fn keys_where_the_account_has_its_home_are_kept_when_home_says_something_else() {
    let mut ground = Ground::new();
    for dir in ["account/.ssh", "account/.cargo", "account/src"] {
        fs::create_dir_all(ground.at(dir)).unwrap();
    }
    fs::write(ground.at("account/.cargo/credentials.toml"), "x").unwrap();
    ground.account_home = Some(ground.at("account"));
    let policy = ground.policy(&Wanted::default()).unwrap();
    ground.check(&policy, "account/.ssh/id", false, false);
    ground.check(&policy, "account/.cargo/credentials.toml", false, false);
    ground.check(&policy, "account/src/x", true, false);
}

#[test]
fn disks_terminals_and_other_devices_cannot_be_read_whoever_may_open_them() {
    use std::os::unix::fs::FileTypeExt;
    let policy = Ground::new().policy(&Wanted::default()).unwrap();
    let harmless = ["null", "zero", "full", "random", "urandom", "tty", "ptmx"];
    for entry in fs::read_dir("/dev").unwrap().map(Result::unwrap) {
        let (kind, path) = (entry.file_type().unwrap(), entry.path());
        if kind.is_block_device() || kind.is_char_device() {
            let known = harmless.iter().any(|name| path.file_name() == Some(name.as_ref()));
            assert_eq!((policy.may_read(&path), policy.may_write(&path)), (known, known), "{}", path.display());
        }
    }
    assert!(policy.may_write(Path::new("/dev/shm/x")));
}

#[test]
fn read_adds_a_place_of_keys_and_nothing_else() {
    let ground = Ground::new();
    let wanted = Wanted { read: vec![PathBuf::from("~/.netrc"), ground.at("home/.config/gh")], ..Wanted::default() };
    let policy = ground.policy(&wanted).unwrap();
    ground.check(&policy, "home/.netrc", true, false);
    ground.check(&policy, "home/.config/gh/hosts.yml", true, false);
    ground.check(&policy, "home/.ssh/id", false, false);
    let missing = Wanted { read: vec![ground.at("home/none")], ..Wanted::default() };
    let path = ground.at("home/none");
    assert_eq!(ground.policy(&missing), Err(SandboxError::NoSuchPath { key: "sandbox.read", path }));
}

#[test]
fn the_workspace_is_writable_and_devices_that_hold_nothing() {
    let ground = Ground::new();
    let policy = ground.policy(&Wanted::default()).unwrap();
    for path in ["work", "work/src/new.rs", "own/x", "/dev/null", "/var/tmp/x", "home/.cache/x"] {
        ground.check(&policy, path, true, true);
    }
    for path in ["/etc/passwd", "/usr/local/bin/x", "/proc/self/comm"] {
        ground.check(&policy, path, true, false);
    }
    // Beside the workspace, and with a name that only begins like it.
    assert!(!policy.may_write(&ground.at("work2/x")) && !policy.may_write(&ground.at("x")));
}

#[test]
fn read_only_leaves_the_private_temporary_folder_and_what_write_adds() {
    let ground = Ground::new();
    fs::create_dir(ground.at("out")).unwrap();
    let wanted = Wanted { files: Files::ReadOnly, write: vec![ground.at("out")], ..Wanted::default() };
    let policy = ground.policy(&wanted).unwrap();
    ground.check(&policy, "own/x", true, true);
    ground.check(&policy, "out/x", true, true);
    ground.check(&policy, "/dev/null", true, true);
    ground.check(&policy, "work/x", true, false);
    ground.check(&policy, "/var/tmp/x", true, false);
    ground.check(&policy, "home/.ssh/id", false, false);
    let off = ground.policy(&Wanted { files: Files::Off, ..Wanted::default() }).unwrap();
    ground.check(&off, "home/.ssh/id", true, true);
}

#[test]
fn a_temporary_folder_that_holds_home_store_or_goal_is_not_granted_and_that_is_said() {
    let mut ground = Ground::new();
    ground.tmpdir = Some(ground.at(""));
    let policy = ground.policy(&Wanted::default()).unwrap();
    ground.check(&policy, "own/x", true, true);
    ground.check(&policy, "elsewhere", false, false);
    let shown = ground.at("").canonicalize().unwrap();
    let clause = format!("`{}` is not writable as a whole: it holds the home directory", shown.display());
    assert!(policy.narrowed.contains(&clause), "{:?}", policy.narrowed);

    fs::create_dir_all(ground.at("tmp/goals")).unwrap();
    fs::write(ground.at("tmp/goals/goal.yaml"), "").unwrap();
    ground.tmpdir = Some(ground.at("tmp"));
    let policy = ground.policy(&Wanted::default()).unwrap();
    ground.check(&policy, "tmp/goals/goal.yaml", true, true);
    ground.goal_file = Some(ground.at("tmp/goals/goal.yaml"));
    let policy = ground.policy(&Wanted::default()).unwrap();
    ground.check(&policy, "tmp/goals/goal.yaml", true, false);
    assert!(policy.narrowed.iter().any(|clause| clause.ends_with("it holds the goal file")), "{:?}", policy.narrowed);
}

#[test]
fn a_workspace_that_holds_home_or_store_is_refused_unless_files_are_off() {
    let ground = Ground::new();
    for workspace in ["", "home", "home/.spettro"] {
        let refused = ground.policy_in(&Wanted::default(), workspace).unwrap_err();
        assert!(matches!(refused, SandboxError::Holds { .. }), "{workspace}: {refused}");
        let off = Wanted { files: Files::Off, ..Wanted::default() };
        assert!(ground.policy_in(&off, workspace).is_ok());
    }
    let wanted = Wanted { write: vec![ground.at("home")], ..Wanted::default() };
    assert!(matches!(ground.policy(&wanted), Err(SandboxError::Holds { .. })));
    // A project in the home directory, and a private copy in the store, are where they should be.
    for workspace in ["home/src", "home/.spettro/workspaces/one"] {
        fs::create_dir_all(ground.at(workspace)).unwrap();
        let policy = ground.policy_in(&Wanted::default(), workspace).unwrap();
        ground.check(&policy, &format!("{workspace}/x"), true, true);
        ground.check(&policy, "home/.spettro/sessions/x", false, false);
    }
}

#[test]
fn of_a_linked_worktree_what_a_commit_needs_is_writable_when_both_sides_know_each_other() {
    let ground = Ground::new();
    let git = ground.at("repo/.git");
    for dir in ["objects", "refs", "logs", "hooks", "worktrees/work"] {
        fs::create_dir_all(git.join(dir)).unwrap();
    }
    fs::write(ground.at("work/.git"), format!("gitdir: {}\n", git.join("worktrees/work").display())).unwrap();
    fs::write(git.join("worktrees/work/commondir"), "../..\n").unwrap();
    fs::write(git.join("worktrees/work/gitdir"), format!("{}\n", ground.at("work/.git").display())).unwrap();
    let policy = ground.policy(&Wanted::default()).unwrap();
    for path in ["objects/ab/c", "refs/heads/x", "logs/HEAD", "worktrees/work/index"] {
        ground.check(&policy, &format!("repo/.git/{path}"), true, true);
    }
    for path in ["config", "hooks/pre-commit", "HEAD", "worktrees/other"] {
        ground.check(&policy, &format!("repo/.git/{path}"), true, false);
    }
    // A folder of somebody else's choice does not know this worktree.
    fs::write(git.join("worktrees/work/gitdir"), format!("{}\n", ground.at("home/src").display())).unwrap();
    let policy = ground.policy(&Wanted::default()).unwrap();
    ground.check(&policy, "repo/.git/objects/x", true, false);
}

#[test]
fn in_a_folder_of_a_repository_its_git_folder_is_writable_but_not_that_of_the_home_directory() {
    let ground = Ground::new();
    fs::create_dir_all(ground.at("repo/packages/one")).unwrap();
    fs::create_dir_all(ground.at("repo/.git")).unwrap();
    let policy = ground.policy_in(&Wanted::default(), "repo/packages/one").unwrap();
    ground.check(&policy, "repo/.git/index.lock", true, false);
    fs::write(ground.at("repo/.git/HEAD"), "ref: refs/heads/main\n").unwrap();
    let policy = ground.policy_in(&Wanted::default(), "repo/packages/one").unwrap();
    ground.check(&policy, "repo/.git/index.lock", true, true);
    ground.check(&policy, "repo/packages/one/x", true, true);
    ground.check(&policy, "repo/packages/two", true, false);
    ground.check(&policy, "repo/README", true, false);
    let policy =
        ground.policy_in(&Wanted { files: Files::ReadOnly, ..Wanted::default() }, "repo/packages/one").unwrap();
    ground.check(&policy, "repo/.git/index.lock", true, false);

    fs::create_dir_all(ground.at("home/.git")).unwrap();
    fs::write(ground.at("home/.git/HEAD"), "ref: refs/heads/main\n").unwrap();
    let policy = ground.policy_in(&Wanted::default(), "home/src").unwrap();
    ground.check(&policy, "home/.git/config", true, false);
}

#[test]
fn a_device_that_is_named_can_be_used_as_one() {
    let ground = Ground::new();
    let wanted = Wanted { write: vec!["/dev/null".into(), "/dev/shm".into()], ..Wanted::default() };
    let policy = ground.policy(&wanted).unwrap();
    let rule = |path: &str, access| policy.rules.contains(&Rule { path: path.into(), access });
    assert!(rule("/dev/null", Access::Device) && !rule("/dev/null", Access::Write));
    assert!(rule("/dev/shm", Access::Write));
}

#[test]
fn caches_are_granted_by_the_manifest_and_made_when_missing() {
    let ground = Ground::new();
    let policy = ground.policy(&Wanted::default()).unwrap();
    ground.check(&policy, "home/.cargo/registry/x", false, false);
    fs::write(ground.at("work/Cargo.toml"), "").unwrap();
    fs::write(ground.at("work/package.json"), "{}").unwrap();
    let policy = ground.policy(&Wanted::default()).unwrap();
    for path in ["home/.cargo/registry/x", "home/.cargo/git/x", "home/.cargo/.package-cache", "home/.npm/_cacache/x"] {
        ground.check(&policy, path, true, true);
    }
    assert!(ground.at("home/.cargo/registry").is_dir() && ground.at("home/.cargo/.package-cache").is_file());
    ground.check(&policy, "home/.cargo/config.toml", true, false);
    ground.check(&policy, "home/.cargo/bin/cargo", true, false);
    ground.check(&policy, "home/.cargo/credentials.toml", false, false);
}

#[test]
fn the_file_of_a_key_is_out_of_reach_and_what_prints_one_is_not_written() {
    let mut ground = Ground::new();
    for file in ["home/src/key", "home/src/tool", "home/src/other", "keys/key", "keys/tool"] {
        fs::create_dir_all(ground.at(file).parent().unwrap()).unwrap();
        fs::write(ground.at(file), "x").unwrap();
    }
    ground.keys.files = vec![ground.at("home/src/key"), ground.at("keys/key")];
    ground.keys.programs = vec![ground.at("home/src/tool"), ground.at("keys/tool")];
    ground.tmpdir = Some(ground.at("keys"));
    let policy = ground.policy(&Wanted::default()).unwrap();
    for (file, readable) in [("home/src/key", false), ("keys/key", false), ("home/src/tool", true), ("keys/tool", true)]
    {
        ground.check(&policy, file, readable, false);
    }
    ground.check(&policy, "home/src/other", true, false);
    let wanted = Wanted { write: vec![ground.at("keys")], ..Wanted::default() };
    assert!(matches!(ground.policy(&wanted), Err(SandboxError::Holds { what: "the file of a key", .. })));
    ground.keys.files.clear();
    assert!(matches!(ground.policy(&wanted), Err(SandboxError::Holds { what: "the command that prints a key", .. })));
    ground.keys.programs = vec![ground.at("work/tool")];
    assert!(matches!(ground.policy(&Wanted::default()), Err(SandboxError::Holds { .. })), "the agent would change it");
    let off = Wanted { files: Files::Off, ..Wanted::default() };
    assert!(ground.policy(&off).is_ok());
}

#[test]
fn a_cache_that_holds_the_store_is_not_granted() {
    let ground = Ground::new();
    let (home, own, work) = (ground.at("home"), ground.at("own"), ground.at("work"));
    fs::write(work.join("package.json"), "{}").unwrap();
    let store = home.join(".cache/spettro");
    fs::create_dir_all(&store).unwrap();
    let places = Places {
        workspace: &work,
        project: &work,
        home: Some(&home),
        stores: vec![store.clone()],
        account_home: None,
        goal_file: None,
        keys: &KeyPlaces::default(),
        temporary: &own,
        variable: &|name| (name == "npm_config_cache").then(|| home.to_string_lossy().into_owned()),
    };
    let policy = Policy::new(&Wanted::default(), &places).unwrap();
    assert!(!policy.may_write(&store.join("x")) && !policy.may_read(&store.join("x")));
    assert!(!policy.may_write(&home.join(".cache/pip")) && !policy.may_write(&home.join(".bashrc")));
    for (folder, what) in [(home.join(".cache"), "the session store"), (home, "the home directory")] {
        let clause = format!("`{}` is not writable as a whole: it holds {what}", folder.display());
        assert!(policy.narrowed.contains(&clause), "{clause}: {:?}", policy.narrowed);
    }
}

#[test]
fn a_path_that_is_not_there_yet_is_known_by_where_it_will_be() {
    let ground = Ground::new();
    assert_eq!(real(&ground.at("work/../none/deep/x")), ground.at("none/deep/x"));
    assert_eq!(real(&ground.at("work/none/../../out")), ground.at("out"));
}

#[test]
fn the_level_names_what_each_kernel_lacks() {
    use Missing::{AbstractSockets, DeviceControl, MovingFiles, SignalScope, Truncation};
    let policy = Policy { files: Files::WorkspaceWrite, ..Policy::off() };
    let scope = [SignalScope, AbstractSockets];
    let lacks = |policy: &Policy, abi| Level::of(policy, Obtained { abi, seccomp: true, capabilities: true }).missing;
    let cases: [(u8, &[Missing]); 7] = [
        (0, &[Missing::Files]),
        (1, &[MovingFiles, Truncation, DeviceControl]),
        (2, &[Truncation, DeviceControl]),
        (3, &[DeviceControl]),
        (4, &[DeviceControl]),
        (5, &[]),
        (6, &[]),
    ];
    for (abi, wanted) in cases {
        let wanted = if abi < 6 { [wanted, &scope].concat() } else { wanted.to_vec() };
        assert_eq!(lacks(&policy, abi), wanted, "ABI {abi}");
    }
    let ports = Policy { network: Network::Ports(vec![443]), ..policy.clone() };
    assert!(lacks(&ports, 3).contains(&Missing::Ports) && !lacks(&ports, 4).contains(&Missing::Ports));
    let none = Policy { network: Network::None, files: Files::Off, ..policy.clone() };
    assert_eq!(lacks(&none, 0), scope, "the filter of system calls keeps it on any kernel");
    let bare = Level::of(&none, Obtained { abi: 6, seccomp: false, capabilities: true });
    assert_eq!(bare.broken(), [Missing::Network]);
    let broken = |abi| Level::of(&policy, Obtained { abi, seccomp: true, capabilities: true }).broken().len();
    assert_eq!([0, 1, 2, 3, 4, 5, 6].map(broken), [1, 1, 1, 0, 0, 0, 0]);
    assert!(Level::of(&Policy::off(), Obtained::default()).missing.is_empty());
}

#[test]
fn a_level_is_one_line() {
    let policy = Policy { files: Files::ReadOnly, network: Network::Ports(vec![80, 443]), ..Policy::off() };
    let full = Obtained { abi: 6, seccomp: true, capabilities: true };
    assert_eq!(Level::of(&policy, full).to_string(), "read-only, network [80, 443]");
    assert_eq!(Level::of(&Policy::off(), full).to_string(), "off");
    let policy = Policy {
        files: Files::WorkspaceWrite,
        network: Network::All,
        narrowed: vec!["`/tmp` is narrow".to_owned()],
        pretended_abi: Some(5),
        ..policy
    };
    assert_eq!(
        Level::of(&policy, Obtained { abi: 5, ..full }).to_string(),
        "workspace-write, network all; pretending Landlock 5; missing: signals to processes outside and to threads of the \
         runner (needs Landlock 6 (Linux 6.12)), \
         abstract sockets (needs Landlock 6 (Linux 6.12)); `/tmp` is narrow"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn every_filter_is_a_program_that_the_kernel_could_take() {
    let untouchable = seccomp::Untouchable::of_this_zygote();
    for network in [Network::All, Network::None, Network::Ports(vec![443])] {
        for abi in 0..7 {
            let program = seccomp::program(&network, abi, &untouchable).unwrap();
            assert!((1..=4096).contains(&program.len()), "{network} {abi}: {}", program.len());
            let more = seccomp::program_of_leaders(abi).unwrap();
            assert_eq!(more.is_empty(), abi >= 6);
        }
    }
}
