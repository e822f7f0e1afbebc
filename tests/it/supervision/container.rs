//! spettro as the first process of a container.

use super::support::{Scene, children, met};
use crate::provider::{Gate, Reply, Script};
use crate::sandbox::PATIENCE;

#[test]
fn as_the_first_process_it_reaps_what_it_adopts_and_codes_stay_exact() {
    let possible = std::process::Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", "true"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !possible {
        println!("skipped: this machine gives no pid namespace");
        return;
    }
    let gate = Gate::new();
    let orphans =
        "for i in $(seq 100); do (setsid sh -c 'sleep 0.05' &) ; (sleep 0.02 & exec true) & done; wait; exit 42";
    let scene =
        Scene::new(Script::new().agent(Reply::bash(orphans)).agent(Reply::complete("reaped").held(&gate)).judge(met()));
    let mut command = scene.sandbox.command("unshare");
    command.args(["--pid", "--fork", "--mount-proc", env!("CARGO_BIN_EXE_spettro")]).args(scene.args());
    let running = scene.sandbox.start(command);
    assert!(scene.result(2).ends_with("[exit status 42]"), "{}", scene.result(2));
    gate.wait_until_held(PATIENCE);
    let first = children(running.pid())[0];
    // Its only child, dead or alive, is the zygote, whose only one is the supervisor ahead.
    super::support::eventually("no zombie is left", || {
        let zygote = children(first);
        zygote.len() == 1 && children(zygote[0]).len() == 1
    });
    gate.release();
    let finished = running.wait(PATIENCE).expect_code(0);
    assert_eq!(finished.result()["outcome"], "met");
    scene.provider.finish();
}
