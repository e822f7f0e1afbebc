//! Runs that were started at a terminal.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::support::{
    IMMUNE, MEEK, Scene, Terminal, assert_dead, eventually, job, living, met, recorded, status, within,
};
use crate::provider::{Gate, Lane, Reply, Script};
use crate::sandbox::PATIENCE;

#[test]
fn a_closed_terminal_ends_the_run_and_all_that_it_started() {
    let scene = Scene::new(
        Script::new()
            .one_session()
            .agent(job(IMMUNE))
            .agent(job(MEEK))
            .agent(Reply::bash(MEEK))
            .agent(Reply::complete("went on"))
            .judge(met()),
    );
    let mut terminal = Terminal::new();
    let running = scene.start_on(&terminal, scene.command());
    let pids = scene.pids(5);
    let begun = Instant::now();
    terminal.close();
    let finished = running.wait(PATIENCE);
    let took = begun.elapsed();
    assert_eq!((finished.code, finished.signal), (None, Some(libc::SIGHUP)));
    assert!(took < Duration::from_secs(7), "{took:?}");
    assert_dead(&pids);
    assert_eq!(finished.result()["outcome"], "hangup");
    assert_eq!(finished.result()["leaked"], serde_json::json!([]));
    let lines = scene.sandbox.session_lines();
    assert!(lines.iter().any(|line| line["kind"] == "interrupted" && line["reason"] == "hangup"));
    scene.sandbox.run(["run", "--resume", "latest"]).expect_code(0);
    let told = scene.provider.wait_for_lane_request(Lane::Agent, 4, PATIENCE).new_text();
    assert!(told.contains("job-1") && told.contains("job-2"), "{told}");
    scene.provider.finish();
}

#[test]
fn under_nohup_a_hangup_and_a_closed_terminal_are_nothing() {
    let gate = Gate::new();
    let scene = Scene::new(
        Script::new()
            .agent(job(MEEK))
            .agent(Reply::bash("echo still here").held(&gate))
            .agent(Reply::complete("all the way"))
            .judge(met()),
    );
    let mut terminal = Terminal::new();
    let mut shell = scene.sandbox.command("bash");
    shell.args(["-c", "nohup \"$@\" >out 2>err </dev/null & echo $! >> runner; wait", "bash"]);
    shell.arg(env!("CARGO_BIN_EXE_spettro")).args(scene.args());
    let running = scene.start_on(&terminal, shell);
    let job = scene.pids(1)[0];
    let runner: i32 = scene.sandbox.read("runner").trim().parse().expect("a pid");
    for pid in [runner, job] {
        let ignored = u64::from_str_radix(&status(pid, "SigIgn"), 16).expect("a mask");
        assert_eq!(ignored & 1, 1, "HUP is ignored by {pid}");
    }
    rustix::process::kill_process(rustix::process::Pid::from_raw(runner).expect("a pid"), Signal::HUP)
        .expect("the runner lives");
    terminal.close();
    assert_eq!(running.wait(PATIENCE).signal, Some(libc::SIGHUP), "the shell had no nohup");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(living(&[runner, job]), [runner, job]);
    gate.release();
    eventually("the runner has ended", || living(&[runner]).is_empty());
    let result = scene.sandbox.session_dir().join("result.json");
    let result: serde_json::Value = serde_json::from_str(&scene.sandbox.read(result)).expect("JSON");
    assert_eq!(result["outcome"], "met", "{}", scene.sandbox.read("err"));
    assert_dead(&[job]);
    scene.provider.finish();
}

#[test]
fn what_would_ask_a_person_returns_at_once() {
    let commands = ["git rebase -i HEAD~3", "sudo true", "cat </dev/tty", "vi"];
    let script = commands.iter().fold(Script::new(), |script, command| script.agent(Reply::bash(command)));
    let scene = Scene::new(script.agent(Reply::complete("nobody was asked")).judge(met()));
    scene.sandbox.git_init();
    for number in 0..4 {
        scene.sandbox.sh(&format!("echo {number} > f; git add f; git commit -qm {number}"));
    }
    let terminal = Terminal::new();
    let running = scene.start_on(&terminal, scene.command());
    for (index, command) in commands.iter().enumerate() {
        scene.provider.wait_for_answer(index + 1, PATIENCE);
        let asked = Instant::now();
        let result = scene.result(index + 2);
        // Without a terminal vim itself pauses for two seconds before it does anything at all.
        let most = Duration::from_secs(if *command == "vi" { 3 } else { 2 });
        assert!(asked.elapsed() < most, "`{command}`: {:?}\n{result}", asked.elapsed());
    }
    assert_eq!(running.wait(PATIENCE).code, Some(0));
    scene.provider.finish();
}

#[test]
fn the_second_interrupt_kills_at_once() {
    let scene = Scene::new(Script::new().agent(job(IMMUNE)).agent(Reply::bash(IMMUNE)));
    let running = scene.start();
    let pids = scene.pids(6);
    running.signal(Signal::INT);
    eventually("the interruption is stored", || {
        scene.sandbox.session_lines().iter().any(|line| line["kind"] == "interrupted")
    });
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(living(&pids), pids, "within the grace");
    let again = Instant::now();
    running.signal(Signal::INT);
    within(Duration::from_millis(1_000), "all are dead", || living(&pids).is_empty());
    let finished = running.wait(PATIENCE);
    assert!(again.elapsed() < Duration::from_secs(2), "{:?}", again.elapsed());
    assert_eq!(finished.signal, Some(libc::SIGINT));
    assert_eq!(finished.result()["leaked"], serde_json::json!([]));
    assert_eq!(recorded(&scene.sandbox.workspace()).len(), 6);
    scene.provider.finish();
}
