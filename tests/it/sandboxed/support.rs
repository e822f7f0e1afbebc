//! A command in a run, and what it said; as root and as somebody else.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::provider::{Lane, Provider, Reply, Script};
use crate::sandbox::{Finished, PATIENCE, Sandbox};
use crate::supervision::support::met;

pub const GOAL: &str = "goal: try the walls\nlimits: {cost: 1.00, time: 10m}\n";
pub const NOBODY: &str = "65534";
/// Where a cell has a toolchain that its user can read.
const TOOLCHAIN: &str = "toolchain";

/// Who runs spettro.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// Whoever runs the tests.
    Own,
    /// The user 65534, which takes root to become.
    Nobody,
    /// Root without any capability.
    Powerless,
}

impl User {
    pub const ALL: [User; 3] = [User::Own, User::Nobody, User::Powerless];

    /// The command behind which somebody is that user.
    const fn becoming(self) -> &'static [&'static str] {
        match self {
            User::Own => &[],
            User::Nobody => &["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"],
            User::Powerless => &["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--ambient-caps", "-all"],
        }
    }
}

/// The longest that a run of a toolchain may take.
const SLOW: Duration = Duration::from_secs(3 * PATIENCE.as_secs());

/// What a program needs of the test's own environment to reach a registry of packages.
const WAY_OUT: [&str; 8] = [
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "REQUESTS_CA_BUNDLE",
    "HTTPS_PROXY",
    "https_proxy",
    "NO_PROXY",
];

/// A place in which runs are made of one command each.
pub struct Cell {
    pub sandbox: Sandbox,
    user: User,
    program: PathBuf,
}

impl Cell {
    pub fn new() -> Cell {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_spettro"));
        Cell { sandbox: Sandbox::new(), user: User::Own, program }
    }

    /// `None` when this machine does not let the tests be that user; it is said.
    pub fn of(user: User) -> Option<Cell> {
        let mut cell = Cell::new();
        if let [program, arguments @ ..] = user.becoming() {
            let possible = Command::new(program).args(arguments).arg("true").output();
            if !possible.is_ok_and(|output| output.status.success()) || !rustix::process::geteuid().is_root() {
                println!("skipped: the tests cannot become {user:?} here");
                return None;
            }
            cell.user = user;
        }
        if user == User::Nobody {
            // A copy of its own: the build may stand where only its owner can go.
            let program = cell.sandbox.root().join("spettro");
            std::fs::copy(&cell.program, &program).expect("the program can be copied");
            cell.program = program;
            cell.give_away();
        }
        Some(cell)
    }

    /// Makes everything here the user's.
    pub fn give_away(&self) {
        if self.user == User::Nobody {
            let root = self.sandbox.root();
            std::fs::set_permissions(&root, PermissionsExt::from_mode(0o755)).expect("the folder is ours");
            let owner = format!("{NOBODY}:{NOBODY}");
            let done = Command::new("chown").args(["-R", &owner]).arg(&root).status().expect("chown runs");
            assert!(done.success());
        }
    }

    /// spettro, as this cell's user, behind `wrapper`.
    pub fn command(&self, wrapper: &[&str]) -> Command {
        self.as_user(wrapper, self.program.to_str().expect("a UTF-8 path"))
    }

    fn as_user(&self, wrapper: &[&str], program: &str) -> Command {
        let words: Vec<&str> = wrapper.iter().chain(self.user.becoming()).copied().chain([program]).collect();
        let mut command = self.sandbox.command(words[0]);
        command.args(&words[1..]);
        if self.user == User::Nobody {
            // What belongs to root alone is of no use there.
            let own = self.sandbox.root().join(TOOLCHAIN).join("bin");
            command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", own.display()));
        }
        command
    }

    /// Runs a script as this cell's user, in the workspace, without any sandbox of spettro's and with the network, to
    /// fill caches. False, and said, when it fails: a registry of packages cannot be reached everywhere.
    pub fn warm(&self, wrapper: &[&str], script: &str) -> bool {
        self.give_away();
        let mut command = self.as_user(wrapper, "bash");
        let way_out = WAY_OUT.iter().filter_map(|name| Some((name, std::env::var(name).ok()?)));
        command.args(["-euo", "pipefail", "-c", script]).envs(way_out);
        let output = command.output().expect("bash runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            println!("skipped: `{script}` did not succeed as {:?}: {said}", self.user);
        }
        output.status.success()
    }

    /// The command behind which this machine's Rust toolchain is in the user's `PATH`. `None`, and said, when there is
    /// no way.
    pub fn rust(&self) -> Option<Vec<String>> {
        let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().ok();
        let sysroot = sysroot.filter(|output| output.status.success());
        let Some(sysroot) = sysroot.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()) else {
            println!("skipped: there is no Rust toolchain");
            return None;
        };
        if self.user != User::Nobody {
            let path = std::env::var("PATH").unwrap_or_default();
            self.sandbox.set("PATH", format!("{sysroot}/bin:{path}"));
            return Some(Vec::new());
        }
        // It may stand where only its owner can go.
        let mount = ["unshare", "--mount", "bash", "-c", "mount --bind \"$1\" \"$2\" && exec \"${@:3}\"", "bash"];
        let place = self.sandbox.root().join(TOOLCHAIN);
        std::fs::create_dir_all(&place).expect("a folder");
        let place = place.to_str().expect("a UTF-8 path").to_owned();
        let words: Vec<String> = mount.into_iter().map(str::to_owned).chain([sysroot, place]).collect();
        let possible = Command::new(&words[0]).args(&words[1..]).arg("true").output();
        if !possible.is_ok_and(|output| output.status.success()) {
            println!("skipped: nothing can be mounted here");
            return None;
        }
        Some(words)
    }

    /// What the agent was told of `script`, run by bash, in a run with these lines in its goal.
    #[track_caller]
    pub fn told(&self, goal: &str, script: &str) -> String {
        self.told_behind(&[], goal, script)
    }

    #[track_caller]
    pub fn told_behind(&self, wrapper: &[&str], goal: &str, script: &str) -> String {
        let (provider, goal) = self.provider(goal, script);
        let mut command = self.command(wrapper);
        command.args([Path::new("run"), Path::new("--goal"), &goal]);
        let finished = self.sandbox.start(command).wait(SLOW);
        let finished = finished.expect_code(0);
        assert_eq!(finished.result()["outcome"], "met");
        let request = provider.wait_for_lane_request(Lane::Agent, 2, PATIENCE);
        provider.finish();
        request.tool_results().into_iter().map(|result| result.text).collect::<Vec<_>>().join("\n")
    }

    /// A provider whose agent runs `script` and is done, and the goal that uses it.
    #[track_caller]
    pub fn provider(&self, goal: &str, script: &str) -> (Provider, PathBuf) {
        let script = Script::new().agent(Reply::bash(script)).agent(Reply::complete("done")).judge(met());
        self.scripted(script, goal)
    }

    /// A provider with this script, and the goal that uses it.
    #[track_caller]
    pub fn scripted(&self, script: Script, goal: &str) -> (Provider, PathBuf) {
        let provider = script.start();
        let goal = self.sandbox.goal(&provider, &format!("{GOAL}{goal}"));
        self.give_away();
        (provider, goal)
    }

    /// A run of that goal to its end.
    #[track_caller]
    pub fn finish(&self, goal: &Path) -> Finished {
        let mut command = self.command(&[]);
        command.args([Path::new("run"), Path::new("--output-format"), Path::new("jsonl"), Path::new("--goal"), goal]);
        self.sandbox.start(command).wait(PATIENCE)
    }

    /// A run to its end with these flags.
    #[track_caller]
    pub fn run(&self, goal: &str, flags: &[&str]) -> (Finished, Provider) {
        let (provider, goal) = self.provider(goal, "true");
        let mut command = self.command(&[]);
        command.args([Path::new("run"), Path::new("--goal"), &goal]).args(flags);
        (self.sandbox.start(command).wait(PATIENCE), provider)
    }
}

/// Whether the kernel has Landlock of at least `abi` switched on. Says «skipped» when not.
pub fn landlock(abi: i64) -> bool {
    // SAFETY: with a null attribute and the flag for it, the call only answers with a version.
    let found = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, 1) };
    if found < abi {
        println!("skipped: this kernel has no Landlock {abi}");
    }
    found >= abi
}

/// Whether a program is here. Says «skipped» when not.
pub fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: there is no working `{program}`");
    }
    found
}

/// Asserts that the shell printed exactly these lines, and that nothing failed.
#[track_caller]
pub fn assert_lines(told: &str, lines: &[&str]) {
    let found: Vec<&str> = told.lines().collect();
    assert_eq!(found, lines, "{told}");
}
