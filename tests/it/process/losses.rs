//! Supervisors, zygotes and runners that are killed.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use spettro::process::sandbox::{Places, Policy, Wanted};
use spettro::process::{LEDGER_NAME, sweep};
use spettro::world::{Ending, Exec, JobState};

use super::support::{
    Runner, again, alive, assert_dead, assert_exited, children, eventually, isolated_tests, kill, living, parent,
    recorded, text,
};

/// Three processes in three sessions, all ignoring TERM.
const TREE: &str = "trap '' TERM; echo $$ >> pids; \
    setsid bash -c 'echo $$ >> pids; sleep 999' & env -i setsid bash -c 'echo $$ >> pids; sleep 999' & wait";

/// Where an inner test works.
const DIR: &str = "SPETTRO_TEST_DIR";

async fn start(runner: &Runner, id: &str) -> Vec<i32> {
    let before = recorded(runner.dir.path()).len();
    let mut command = runner.shell(TREE);
    command.timeout = None;
    runner.process.start(id, command).await.unwrap();
    runner.pids(before + 3).await[before..].to_vec()
}

fn state(runner: &Runner, id: &str) -> JobState {
    runner.process.jobs().into_iter().find(|job| job.id == id).unwrap().state
}

isolated_tests! {
    async fn a_killed_supervisor_loses_its_tree_and_no_other(runner) {
        let (lost, kept) = (start(&runner, "job-1").await, start(&runner, "job-2").await);
        // The leader is the one whose parent is the supervisor.
        let begun = Instant::now();
        kill(parent(lost[0]));
        eventually("the job is lost", || state(&runner, "job-1") == JobState::Lost).await;
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        assert_dead(&lost);
        assert_eq!(living(&kept), kept);
        assert_exited(&runner.run("exit 4").await, 4);
        assert_eq!(children(std::process::id() as i32), [runner.process.zygote().unwrap()], "no zombie is left");
    }

    async fn a_killed_supervisor_of_a_command_is_lost_and_the_run_goes_on(runner) {
        let running = runner.process.run(runner.shell(TREE));
        let killing = async {
            let pids = runner.pids(3).await;
            kill(parent(pids[0]));
            pids
        };
        let (finished, pids) = tokio::join!(running, killing);
        assert_eq!(finished.unwrap().ending, Ending::Lost);
        assert_dead(&pids);
        assert!(!runner.process.busy());
    }

    async fn a_killed_zygote_loses_its_trees_and_is_replaced(runner) {
        let (one, two) = (start(&runner, "job-1").await, start(&runner, "job-2").await);
        let zygote = runner.process.zygote().unwrap();
        let begun = Instant::now();
        kill(zygote);
        eventually("the jobs are lost", || {
            state(&runner, "job-1") == JobState::Lost && state(&runner, "job-2") == JobState::Lost
        })
        .await;
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        assert_dead(&one);
        assert_dead(&two);
        assert_exited(&runner.run("exit 4").await, 4);
        assert_ne!(runner.process.zygote(), Some(zygote));
        eventually("only the new zygote is left", || {
            children(std::process::id() as i32) == [runner.process.zygote().unwrap()]
        })
        .await;
        let again = start(&runner, "job-3").await;
        assert_eq!(living(&again), again);
        assert_eq!(runner.process.shutdown(Duration::ZERO).await, []);
        assert_dead(&again);
    }

    async fn the_supervisor_ahead_is_replaced_when_killed_and_dies_with_its_zygote(runner) {
        let zygote = runner.process.zygote().unwrap();
        eventually("one waits", || children(zygote).len() == 1).await;
        let first = children(zygote)[0];
        kill(first);
        eventually("another one waits", || matches!(children(zygote)[..], [other] if other != first)).await;
        let second = children(zygote)[0];
        assert_eq!(text(&runner.run("echo $PPID").await.output), format!("{second}\n"), "it takes the next command");
        eventually("a third waits", || matches!(children(zygote)[..], [other] if other != second)).await;
        let third = children(zygote)[0];
        kill(zygote);
        eventually("it is dead", || !alive(third)).await;
        assert_exited(&runner.run("exit 4").await, 4);
    }

    async fn an_order_of_confinement_survives_the_supervisor_that_waits_ahead(runner) {
        let zygote = runner.process.zygote().unwrap();
        let (killed, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let killing = {
            let (killed, over) = (killed.clone(), over.clone());
            // A thread of its own: while the runner waits for an answer, its one thread can do nothing.
            std::thread::spawn(move || {
                let begun = Instant::now();
                while !over.load(Ordering::Relaxed) {
                    if begun.elapsed() > Duration::from_secs(60) {
                        eprintln!("an order is not answered");
                        std::process::abort();
                    }
                    // The kernel's own list is read in no time; without one every process is looked at.
                    let listed = std::fs::read_to_string(format!("/proc/{zygote}/task/{zygote}/children"));
                    let listed = listed.map(|pids| pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect());
                    let ahead: Vec<i32> = listed.unwrap_or_else(|_| children(zygote));
                    for ahead in ahead.into_iter().filter_map(rustix::process::Pid::from_raw) {
                        let dead = rustix::process::kill_process(ahead, rustix::process::Signal::KILL);
                        killed.fetch_add(usize::from(dead.is_ok()), Ordering::Relaxed);
                    }
                }
            })
        };
        let dir = runner.dir.path().canonicalize().unwrap();
        let policy = Policy::new(
            &Wanted::default(),
            &Places {
                workspace: &dir,
                project: &dir,
                home: None,
                account_home: None,
                stores: Vec::new(),
                goal_file: None,
                keys: &spettro::process::sandbox::KeyPlaces::default(),
                temporary: &dir,
                variable: &|_| None,
            },
        )
        .unwrap();
        while killed.load(Ordering::Relaxed) < 100 {
            runner.process.confine(&policy).unwrap();
        }
        over.store(true, Ordering::Relaxed);
        killing.join().unwrap();
        assert_eq!(runner.process.zygote(), Some(zygote));
        assert_exited(&runner.run("exit 4").await, 4);
    }

    #[ignore = "a part of other tests"]
    async fn inner_runner(_runner) {
        let dir = std::path::PathBuf::from(std::env::var(DIR).unwrap());
        let runner = Runner::with(|options| {
            options.ledger_dir = Some(dir.clone());
            options.run_id = "a-run-that-dies".to_owned();
        });
        let mut command = runner.shell(TREE);
        command.cwd = dir.clone();
        command.timeout = None;
        runner.process.start("job-1", command.clone()).await.unwrap();
        std::fs::write(dir.join("zygote"), runner.process.zygote().unwrap().to_string()).unwrap();
        runner.process.run(command).await.unwrap();
    }

    #[ignore = "a part of `the_first_process_of_a_container_leaves_no_zombies`"]
    async fn inner_init(runner) {
        assert_eq!(std::process::id(), 1);
        for _ in 0..100 {
            runner.run("(sleep 0.01 & exec true) & setsid true & exit 0").await;
        }
        assert_exited(&runner.run("exit 42").await, 42);
        // An orphan of somebody who came from outside: its parent is not of our tree.
        eventually("no zombie is left", || {
            children(1) == [runner.process.zygote().unwrap()] && children(runner.process.zygote().unwrap()).len() == 1
        })
        .await;
        assert_eq!(runner.process.shutdown(Duration::from_secs(1)).await, []);
    }
}

/// A runner with a job and a command in a process of its own; the pids of both trees and of the zygote.
fn started_runner(dir: &Path) -> (std::process::Child, Vec<i32>, i32) {
    let mut command = again("process::losses::inner_runner");
    let mut runner = command.env(DIR, dir).stdout(std::process::Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while recorded(dir).len() < 6 {
        assert!(begun.elapsed() < Duration::from_secs(20) && runner.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(2));
    }
    let zygote = std::fs::read_to_string(dir.join("zygote")).unwrap().parse().unwrap();
    (runner, recorded(dir), zygote)
}

#[test]
fn a_killed_runner_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (mut runner, mut pids, zygote) = started_runner(dir.path());
    let begun = Instant::now();
    while children(zygote).len() != 3 {
        assert!(begun.elapsed() < Duration::from_secs(20), "two supervisors and the one ahead");
        std::thread::sleep(Duration::from_millis(1));
    }
    pids.extend(children(zygote));
    pids.push(zygote);
    assert_eq!(pids.len(), 10, "two trees of three, their supervisors, the one ahead, the zygote");
    let begun = Instant::now();
    runner.kill().unwrap();
    while !living(&pids).is_empty() {
        assert!(begun.elapsed() < Duration::from_millis(500), "alive after it: {:?}", living(&pids));
        std::thread::sleep(Duration::from_millis(1));
    }
    runner.wait().unwrap();
}

#[test]
fn the_next_start_sweeps_what_no_supervisor_could() {
    let dir = tempfile::tempdir().unwrap();
    let (mut runner, pids, zygote) = started_runner(dir.path());
    let supervisors = children(zygote);
    // Nobody is left to look after the trees: first all are stopped, so that none can react to another's death.
    let all: Vec<i32> = supervisors.iter().copied().chain([zygote, runner.id() as i32]).collect();
    for signal in [rustix::process::Signal::STOP, rustix::process::Signal::KILL] {
        for &pid in &all {
            rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
        }
    }
    runner.wait().unwrap();
    // Of each tree one carries the run's id; leaders die with their supervisors, `env -i` hides the third.
    let hidden =
        |pid: &i32| std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|env| !find(&env, "a-run-that-dies"));
    let begun = Instant::now();
    while living(&pids).len() > 4 {
        assert!(begun.elapsed() < Duration::from_secs(5), "the leaders live: {:?}", living(&pids));
        std::thread::sleep(Duration::from_millis(2));
    }
    let out_of_reach: Vec<i32> = living(&pids).into_iter().filter(hidden).collect();
    // A stranger that has got a number of the ledger: same pid, boot, namespace and run, another start.
    let mut stranger = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let ledger = dir.path().join(LEDGER_NAME);
    let text = std::fs::read_to_string(&ledger).unwrap();
    let mut line: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(line["run"], "a-run-that-dies");
    line["pid"] = stranger.id().into();
    let mut file = std::fs::OpenOptions::new().append(true).open(&ledger).unwrap();
    writeln!(file, "{line}").unwrap();
    file.write_all(b"{\"v\":1,\"pid\":").unwrap();
    let mut of_another_run =
        std::process::Command::new("sleep").arg("60").env("SPETTRO_RUN_ID", "other").spawn().unwrap();

    let killed = sweep(dir.path()).unwrap();
    assert_eq!(living(&pids), out_of_reach);
    assert!(!killed.is_empty() && killed.iter().all(|one| pids.contains(&one.pid) || one.command.starts_with("sleep")));
    assert!(alive(stranger.id() as i32) && alive(of_another_run.id() as i32));
    assert!(!ledger.exists());
    assert!(sweep(dir.path()).unwrap().is_empty());
    for pid in out_of_reach {
        for child in children(pid) {
            kill(child);
        }
        kill(pid);
    }
    for child in [&mut stranger, &mut of_another_run] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

fn find(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn the_first_process_of_a_container_leaves_no_zombies() {
    let works = std::process::Command::new("unshare").args(["-Urpf", "--mount-proc", "true"]).output();
    if !works.is_ok_and(|output| output.status.success()) {
        println!("skipped: pid namespaces cannot be made here");
        return;
    }
    let inner = again("process::losses::inner_init");
    let mut command = std::process::Command::new("unshare");
    command.args(["-Urpf", "--mount-proc"]).arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{}\n{out}\n{err}", output.status);
}
