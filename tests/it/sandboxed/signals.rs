//! The runner and its zygote: not to be killed by their children, not to be read by them.

use std::process::Command;

use super::support::{Cell, User, assert_lines};
use crate::provider::{Lane, Reply, Script};
use crate::sandbox::{KEY_VARIABLE, PATIENCE};
use crate::supervision::support::{job, met};

/// Whoever signals everything does so in a pid namespace of its own.
const OWN_PIDS: [&str; 4] = ["unshare", "--pid", "--fork", "--mount-proc"];

fn own_pids() -> bool {
    let possible = Command::new(OWN_PIDS[0]).args(&OWN_PIDS[1..]).arg("true").output();
    let possible = possible.is_ok_and(|output| output.status.success());
    if !possible {
        println!("skipped: this machine gives no pid namespace");
    }
    possible
}

#[test]
fn a_command_that_kills_everything_leaves_the_runner_alive_and_sees_the_refusal() {
    if !own_pids() {
        return;
    }
    // With and without Landlock's own scope: the filter of system calls holds on any kernel. The shell in between
    // is the namespace's first process, so that the runner is not the one that no signal reaches.
    for user in [User::Own, User::Nobody] {
        for abi in ["0", "6"] {
            let Some(cell) = Cell::of(user) else { continue };
            let script = "kill -9 -1; echo \"all: $?\"; kill -9 $(pgrep -o -x spettro); echo \"one: $?\"
                          pkill -9 -f '[s]pettro run'; echo \"pkill: $?\"; kill -0 $(pgrep -o -x spettro) 2>&1";
            let (provider, goal) = cell.provider("", script);
            let mut command = cell.command(&[]);
            let inner: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
            let program = command.get_program().to_owned();
            command = cell.sandbox.command(OWN_PIDS[0]);
            command.args(&OWN_PIDS[1..]).args(["bash", "-c", "\"$@\"; exit $?", "bash"]).arg(program).args(inner);
            command.args(["run", "--pretend-landlock", abi, "--goal"]).arg(&goal);
            let finished = cell.sandbox.start(command).wait(PATIENCE).expect_code(0);
            assert_eq!(finished.result()["outcome"], "met", "{user:?} {abi}");
            let told = provider.wait_for_lane_request(Lane::Agent, 2, PATIENCE).tool_results()[0].text.clone();
            assert!(told.contains("all: 1\n") && told.contains("one: 1\n"), "{user:?} {abi}: {told}");
            assert!(told.matches("Operation not permitted").count() >= 3, "{user:?} {abi}: {told}");
            provider.finish();
        }
    }
}

#[test]
fn a_job_that_kills_everything_leaves_the_runner_alive() {
    if !own_pids() {
        return;
    }
    let cell = Cell::new();
    let provider = Script::new()
        .agent(job("pkill -9 -f [s]pettro; kill -9 -1; echo \"seen: $?\" > seen; exec sleep 999"))
        .agent(Reply::bash("until grep . seen; do sleep 0.01; done"))
        .agent(Reply::complete("done"))
        .judge(met())
        .start();
    let goal = cell.sandbox.goal(&provider, super::support::GOAL);
    let mut command = cell.sandbox.command(OWN_PIDS[0]);
    command.args(&OWN_PIDS[1..]).args(["bash", "-c", "\"$@\"; exit $?", "bash", env!("CARGO_BIN_EXE_spettro")]);
    command.args(["run", "--goal"]).arg(&goal);
    cell.sandbox.start(command).wait(PATIENCE).expect_code(0);
    assert_eq!(cell.sandbox.read("seen"), "seen: 1\n");
    provider.finish();
}

/// Every environment up the tree, and every one it can find.
const LOOK: &str = "p=$$; while [ \"$p\" -gt 1 ]; do
    cat /proc/$p/environ 2>/dev/null | tr '\\0' '\\n' | grep -a SANDBOX_API_KEY=
    p=$(sed 's/.*) . \\([0-9]*\\) .*/\\1/' /proc/$p/stat); done
    cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -ac '^SANDBOX_API_KEY='";

#[test]
fn the_key_is_in_no_environment_that_a_job_can_read() {
    for user in [User::Own, User::Nobody] {
        // Without Landlock it is the runner alone that hides.
        for abi in ["0", "6"] {
            let Some(cell) = Cell::of(user) else { continue };
            let provider = Script::new()
                .key("the-provider's-own-key")
                .agent(job(&format!("({LOOK}) > found 2>&1; echo end >> found; exec sleep 999")))
                .agent(Reply::bash("until grep -q end found 2>/dev/null; do sleep 0.01; done; cat found"))
                .agent(Reply::complete("done"))
                .judge(met())
                .start();
            let goal = cell.sandbox.goal(&provider, super::support::GOAL);
            cell.give_away();
            // Nobody above the runner has the key either.
            cell.sandbox.unset(KEY_VARIABLE);
            let key = cell.sandbox.write("../key", format!("{}\n", provider.key().expect("it has one")));
            let mut command = cell.command(&[]);
            let program = command.get_program().to_owned();
            let inner: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
            command = cell.sandbox.command("bash");
            command.args(["-c", "read -r SANDBOX_API_KEY < \"$1\"; export SANDBOX_API_KEY; \"${@:2}\"", "bash"]);
            command.arg(key).arg(program).args(inner);
            command.args(["run", "--pretend-landlock", abi, "--goal"]).arg(&goal);
            cell.sandbox.start(command).wait(PATIENCE).expect_code(0);
            let found = cell.sandbox.read("found");
            assert_lines(&found, &["0", "end"]);
            provider.finish();
        }
    }
}
