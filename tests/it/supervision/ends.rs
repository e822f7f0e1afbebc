//! The end of runs that have many children, and of runs on a machine that has none to spare.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use super::support::{MEEK, Scene, assert_dead, eventually, helpers, job, living, met, of_run, status};
use crate::provider::{Gate, Reply, Script};
use crate::sandbox::{PATIENCE, json_lines};

/// TERM to KILL at the end of a run.
const GRACE: Duration = Duration::from_secs(5);

#[test]
fn sixteen_jobs_with_a_hundred_processes_end_with_the_grace() {
    let mut script = Script::new();
    for number in 0..16 {
        let trap = if number % 2 == 0 { "trap '' TERM;" } else { "" };
        let inner = format!("{trap} echo \\$\\$ >> pids; while :; do sleep 1; done");
        let each = if number < 4 { "1 2 3 4 5 6 7" } else { "1 2 3 4 5 6" };
        script = script.agent(job(&format!("{trap} for i in {each}; do setsid bash -c \"{inner}\" & done; wait")));
    }
    let scene = Scene::new(script.agent(Reply::text("never").stall()));
    let running = scene.start();
    let pids = scene.pids(100);
    let (_, supervisors) = helpers(running.pid());
    assert_eq!(supervisors.len(), 16);
    let begun = Instant::now();
    running.signal(Signal::TERM);
    let gone = super::support::within(PATIENCE, "everything is gone", || {
        living(&pids).is_empty() && living(&supervisors).is_empty()
    });
    let finished = running.wait(PATIENCE);
    let took = begun.elapsed();
    assert_dead(&pids);
    assert!(gone < GRACE + Duration::from_millis(500), "{gone:?}");
    assert!(took < Duration::from_millis(7_000), "{took:?}");
    assert_eq!(finished.signal, Some(libc::SIGTERM));
    assert_eq!(finished.result()["leaked"], json!([]));
    scene.provider.finish();
}

#[test]
fn a_bounded_fork_bomb_in_a_job_ends_with_the_run() {
    let bomb = "f() { if [ $1 -gt 0 ]; then f $(($1 - 1)) & f $(($1 - 1)) & fi; sleep 999 & wait; }; \
                echo $$ >> pids; f 6";
    let gate = Gate::new();
    let scene = Scene::new(Script::new().agent(job(bomb)).agent(Reply::complete("let it be").held(&gate)).judge(met()));
    let running = scene.start();
    gate.wait_until_held(PATIENCE);
    let run =
        json_lines(&scene.sandbox.session_dir().join("children.jsonl"))[0]["run"].as_str().expect("a run").to_owned();
    eventually("it has spread", || of_run(&run).len() > 200);
    gate.release();
    let finished = running.wait(PATIENCE).expect_code(0);
    assert_eq!(of_run(&run), Vec::<i32>::new());
    assert_eq!(finished.result()["leaked"], json!([]));
    scene.provider.finish();
}

/// A signal at a parent's death comes when the *thread* ends that forked. So nobody between the runner and a job may
/// have more than one thread: then that is the process's own death, and an idle job lives as long as it wants.
#[test]
fn an_idle_job_depends_on_no_thread() {
    let gate = Gate::new();
    let scene = Scene::new(Script::new().agent(job(MEEK)).agent(Reply::complete("waited").held(&gate)).judge(met()));
    let running = scene.start();
    let job = scene.pids(1)[0];
    let (zygote, supervisors) = helpers(running.pid());
    for helper in supervisors.into_iter().chain([zygote]) {
        assert_eq!(status(helper, "Threads"), "1", "of {helper}");
    }
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(living(&[job]), [job]);
    gate.release();
    running.wait(PATIENCE).expect_code(0);
    assert_dead(&[job]);
    scene.provider.finish();
}

/// Keeps the processors busy.
struct Load(Vec<Child>);

impl Load {
    fn new(count: usize) -> Load {
        let busy = || Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn();
        Load((0..count).map(|_| busy().expect("a shell runs")).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn on_a_starved_machine_no_leak_is_told_that_is_none() {
    let _load = Load::new(16);
    for _ in 0..4 {
        let scene = Scene::new(
            Script::new()
                .agent(job("trap '' TERM; echo $$ >> pids; while :; do sleep 0.1; done"))
                .agent(job(MEEK))
                .agent(Reply::bash(MEEK)),
        );
        let running = scene.start();
        let pids = scene.pids(3);
        running.signal(Signal::INT);
        std::thread::sleep(Duration::from_millis(200));
        running.signal(Signal::INT);
        let finished = running.wait(PATIENCE);
        assert_eq!(finished.result()["leaked"], json!([]));
        assert_dead(&pids);
        scene.provider.finish();
    }
}
