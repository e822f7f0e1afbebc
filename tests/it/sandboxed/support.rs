//! A command in a run, and what it said; as root and as somebody else.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::provider::{Lane, Provider, Reply, Script};
use crate::sandbox::{Finished, PATIENCE, Sandbox};
use crate::supervision::support::met;

pub const GOAL: &str = "goal: try the walls\nlimits: {cost: 1.00, time: 10m}\n";
pub const NOBODY: &str = "65534";

/// Who runs spettro.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// Whoever runs the tests.
    Own,
    /// The user 65534, which takes root to become.
    Nobody,
}

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
        if user == User::Nobody {
            let possible = Command::new("setpriv").args(["--reuid", NOBODY, "--clear-groups", "true"]).output();
            if !possible.is_ok_and(|output| output.status.success()) {
                println!("skipped: the tests cannot become another user here");
                return None;
            }
            // A copy of its own: the build may stand where only its owner can go.
            let program = cell.sandbox.root().join("spettro");
            std::fs::copy(&cell.program, &program).expect("the program can be copied");
            cell.program = program;
            cell.user = user;
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
        let become_nobody = ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"];
        let become_user = if self.user == User::Nobody { &become_nobody[..] } else { &[] };
        let program = self.program.to_str().expect("a UTF-8 path");
        let words: Vec<&str> = wrapper.iter().chain(become_user).copied().chain([program]).collect();
        let mut command = self.sandbox.command(words[0]);
        command.args(&words[1..]);
        if self.user == User::Nobody {
            // What belongs to root alone is of no use there.
            command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        }
        command
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
        let finished = self.sandbox.start(command).wait(PATIENCE);
        let finished = finished.expect_code(0);
        assert_eq!(finished.result()["outcome"], "met");
        let request = provider.wait_for_lane_request(Lane::Agent, 2, PATIENCE);
        provider.finish();
        request.tool_results().into_iter().map(|result| result.text).collect::<Vec<_>>().join("\n")
    }

    /// A provider whose agent runs `script` and is done, and the goal that uses it.
    #[track_caller]
    pub fn provider(&self, goal: &str, script: &str) -> (Provider, PathBuf) {
        let provider = Script::new().agent(Reply::bash(script)).agent(Reply::complete("done")).judge(met()).start();
        let goal = self.sandbox.goal(&provider, &format!("{GOAL}{goal}"));
        self.give_away();
        (provider, goal)
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
