//! Where sessions are kept, when that place is missing or cannot be written.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::{assert_met, goal, shell, skipped};
use crate::provider::Script;
use crate::sandbox::{Finished, Sandbox};

/// Runs the binary as a user without rights; `None` when this machine cannot.
fn as_user(sandbox: &Sandbox, uid: u32, args: &str) -> Option<Finished> {
    if !rustix::process::geteuid().is_root() {
        skipped("only root can become another user");
        return None;
    }
    // That user may not look into the folder of the real one.
    let copy: PathBuf = sandbox.root().join("spettro");
    std::fs::copy(env!("CARGO_BIN_EXE_spettro"), &copy).expect("the sandbox is writable");
    for (path, mode) in [(sandbox.root(), 0o755), (sandbox.workspace(), 0o777), (sandbox.root().join("tmp"), 0o777)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    }
    let become_user = format!("setpriv --reuid {uid} --regid {uid} --clear-groups");
    if shell(sandbox, &format!("{become_user} true")).code != Some(0) {
        skipped("there is no `setpriv` that works");
        return None;
    }
    Some(shell(sandbox, &format!("exec {become_user} {} {args}", copy.display())))
}

#[test]
fn without_home_and_account_there_is_no_place_for_sessions() {
    let sandbox = Sandbox::new();
    let provider = Script::new().start();
    sandbox.goal(&provider, "goal: Wait.\n");
    sandbox.unset("HOME");
    let Some(finished) = as_user(&sandbox, 54_321, "run --goal ../goal.yaml --json") else { return };
    let finished = finished.expect_code(2);
    assert!(finished.stderr.contains("set `HOME` or `SPETTRO_HOME`"), "{}", finished.stderr);
    assert_eq!(finished.result()["outcome"], "usage", "one result object, on this path too");
    provider.finish();
}

#[test]
fn without_home_and_account_its_own_variable_is_enough() {
    let sandbox = Sandbox::new();
    let provider = goal(&sandbox);
    let own = sandbox.root().join("tmp/own");
    sandbox.unset("HOME").set("SPETTRO_HOME", own.to_str().expect("UTF-8"));
    let Some(finished) = as_user(&sandbox, 54_321, "run --goal ../goal.yaml") else {
        let _ = provider.take_problems();
        return;
    };
    finished.expect_code(0);
    assert_met(&sandbox);
    provider.finish();
}

#[test]
fn without_home_the_accounts_own_is_taken() {
    let sandbox = Sandbox::new();
    let provider = Script::new().start();
    sandbox.goal(&provider, "goal: Wait.\n");
    sandbox.unset("HOME");
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let nobody = accounts.lines().find(|line| line.split(':').nth(2) == Some("65534"));
    let Some(home) = nobody.and_then(|line| line.split(':').nth(5)).filter(|home| !PathBuf::from(home).exists()) else {
        return skipped("there is no account whose home does not exist");
    };
    let Some(finished) = as_user(&sandbox, 65_534, "run --goal ../goal.yaml") else { return };
    let finished = finished.expect_code(23);
    assert!(finished.stderr.contains(&format!("{home}/.spettro")), "{}", finished.stderr);
    provider.finish();
}

#[test]
fn a_session_folder_that_cannot_be_written_ends_before_any_request() {
    let sandbox = Sandbox::new();
    let provider = Script::new().start();
    sandbox.goal(&provider, "goal: Wait.\n");
    let own = sandbox.root().join("own");
    std::fs::create_dir(&own).expect("the sandbox is writable");
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o555)).expect("it is ours");
    sandbox.set("SPETTRO_HOME", sandbox.root().join("tmp/home").to_str().expect("UTF-8"));
    let Some(finished) = as_user(&sandbox, 54_321, "run --goal ../goal.yaml --session-dir ../own") else { return };
    let finished = finished.expect_code(23);
    assert!(finished.stderr.contains("Permission denied"), "{}", finished.stderr);
    assert!(finished.stderr.contains("/own"), "{}", finished.stderr);
    assert!(!finished.stderr.contains("free some space"), "that would not help: {}", finished.stderr);
    assert_eq!(std::fs::read_dir(&own).expect("it is there").count(), 0);
    provider.finish();
}

#[test]
fn a_home_below_a_file_is_named() {
    let sandbox = Sandbox::new();
    let provider = Script::new().start();
    sandbox.goal(&provider, "goal: Wait.\n");
    let file = sandbox.write(sandbox.root().join("a-file"), "x");
    sandbox.set("HOME", file.join("home").to_str().expect("UTF-8"));
    let finished = sandbox.run(["run", "--goal", "../goal.yaml"]).expect_code(23);
    assert!(finished.stderr.contains("a-file/home/.spettro"), "{}", finished.stderr);
    assert!(!finished.stderr.contains("panicked"), "{}", finished.stderr);
    provider.finish();
}

#[test]
fn a_session_folder_of_ones_own_is_made() {
    let sandbox = Sandbox::new();
    let provider = goal(&sandbox);
    sandbox.run(["run", "--goal", "../goal.yaml", "--session-dir", "../deep/er/sessions"]).expect_code(0);
    let found = sandbox.sh("find ../deep/er/sessions -name result.json | wc -l");
    assert_eq!(found.trim(), "1");
    assert!(!sandbox.spettro_home().join("sessions").exists(), "and no other");
    let modes = sandbox.sh("find ../deep/er/sessions -mindepth 1 -type d -printf '%m\\n' | sort -u");
    assert_eq!(modes, "700\n");
    let modes = sandbox.sh("find ../deep/er/sessions -type f -printf '%m\\n' | sort -u");
    assert_eq!(modes, "600\n");
    provider.finish();
}

#[test]
fn a_command_that_takes_away_the_modes_of_the_store_ends_no_run() {
    use crate::provider::Reply;
    let sandbox = Sandbox::new();
    let own = sandbox.root().join("tmp/own");
    let take = format!(
        "chmod 000 {0}/sessions/*/*/spool {0}/sessions/*/* {0}/sessions/* {0}/sessions {0} || true; echo taken",
        own.display()
    );
    let provider = Script::new()
        .agent(Reply::bash("seq 1 2000"))
        .agent(Reply::bash(&take))
        .agent(Reply::bash("seq 1 3000"))
        .agent(Reply::complete("done"))
        .judge(Reply::verdict("met", "yes", ""))
        .start();
    sandbox.goal(&provider, "goal: Take.\n");
    sandbox.unset("HOME").set("SPETTRO_HOME", own.to_str().expect("UTF-8"));
    let Some(finished) = as_user(&sandbox, 54_321, "run --goal ../goal.yaml") else {
        let _ = provider.take_problems();
        return;
    };
    finished.expect_code(0);
    let said = &provider.agent_requests()[2].tool_results()[0].text;
    assert!(said.contains("taken") && !said.contains("ermission denied"), "{said}");
    let dir = sandbox.session_dir();
    let modes = sandbox.sh(&format!("stat -c %a {0} {0}/spool {0}/.. {0}/../..", dir.display()));
    assert_eq!(modes, "700\n700\n700\n700\n");
    let result: serde_json::Value = serde_json::from_str(&sandbox.read(dir.join("result.json"))).expect("a result");
    assert_eq!(result["outcome"], "met");
    assert!(dir.join("spool/2").exists(), "what came behind it was spooled");
    provider.finish();
}
