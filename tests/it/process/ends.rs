//! The end of a run: teardown, signals, the gate.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use spettro::process::{Dispositions, SignalEvent, Signals, force, reraise};
use spettro::world::{Ending, Exec, ExecError, JobState};

use super::support::{Runner, again, assert_dead, eventually, isolated_tests, living, text};

const IMMUNE: &str = "trap '' TERM; echo $$ >> pids; while :; do sleep 0.2; done";

fn raise(signal: Signal) {
    rustix::process::kill_process(rustix::process::getpid(), signal).unwrap();
}

isolated_tests! {
    async fn sixteen_jobs_with_a_hundred_processes_are_gone_in_time(runner) {
        for number in 0..16 {
            let trap = if number % 2 == 0 { "trap '' TERM;" } else { "" };
            let script = format!(
                "{trap} for i in 1 2 3 4 5 6; do setsid bash -c \"{trap} echo \\$\\$ >> pids; while :; do sleep 1; done\" & \
                 done; wait"
            );
            let mut command = runner.shell(&script);
            command.timeout = None;
            runner.process.start(&format!("job-{number}"), command).await.unwrap();
        }
        let pids = runner.pids(96).await;
        let begun = Instant::now();
        let leaked = runner.process.shutdown(Duration::from_secs(1)).await;
        let took = begun.elapsed();
        assert_eq!(leaked, []);
        assert_dead(&pids);
        assert!((Duration::from_secs(1)..=Duration::from_millis(1500)).contains(&took), "{took:?}");
        assert!(runner.process.jobs().iter().all(|job| job.state == JobState::Killed));
        assert_eq!(super::support::children(std::process::id() as i32), Vec::<i32>::new(), "the zygote is gone too");
        assert!(!runner.process.busy());
    }

    async fn teardown_cancels_the_running_command_and_refuses_others(runner) {
        let running = runner.process.run(runner.shell("echo here; echo $$ >> pids; sleep 999"));
        let ending = async {
            runner.pids(1).await;
            let leaked = runner.process.shutdown(Duration::from_secs(5)).await;
            assert_eq!(leaked, []);
        };
        let begun = Instant::now();
        let (finished, ()) = tokio::join!(running, ending);
        let finished = finished.unwrap();
        assert_eq!(finished.ending, Ending::Cancelled);
        assert_eq!(text(&finished.output), "here\n");
        assert!(begun.elapsed() < Duration::from_secs(3), "TERM was enough");
        let refused = runner.process.run(runner.shell("touch started")).await.unwrap_err();
        assert!(matches!(refused, ExecError::ShuttingDown));
        assert_eq!(refused.to_string(), "spettro is shutting down; command not started");
        let refused = runner.process.start("job-1", runner.shell("touch started")).await;
        assert!(matches!(refused, Err(ExecError::ShuttingDown)));
        assert_eq!(runner.process.refused(), 2);
        assert!(!runner.dir.path().join("started").exists());
        assert_eq!(runner.process.shutdown(Duration::ZERO).await, []);
    }

    async fn no_grace_means_kill(runner) {
        let running = runner.process.run(runner.shell(IMMUNE));
        let ending = async {
            let pids = runner.pids(1).await;
            let begun = Instant::now();
            assert_eq!(runner.process.shutdown(Duration::ZERO).await, []);
            assert!(begun.elapsed() < Duration::from_millis(500));
            assert_dead(&pids);
        };
        let (finished, ()) = tokio::join!(running, ending);
        assert_eq!(finished.unwrap().ending, Ending::Cancelled);
    }

    async fn a_hundred_starts_race_the_teardown(runner) {
        let mut answers = Vec::new();
        for number in 0..100 {
            let process = runner.process.clone();
            let script = "echo $$ >> pids; setsid sleep 999 & echo $! >> pids; wait";
            let command = runner.shell(script);
            answers.push(async move {
                for _ in 0..number % 10 {
                    tokio::task::yield_now().await;
                }
                process.run(command).await
            });
        }
        let local = tokio::task::LocalSet::new();
        let starts: Vec<_> = answers.into_iter().map(|start| local.spawn_local(start)).collect();
        let (started, refused) = local
            .run_until(async {
                tokio::time::sleep(Duration::from_millis(5)).await;
                assert_eq!(runner.process.shutdown(Duration::from_secs(1)).await, []);
                let (mut started, mut refused) = (0, 0);
                for start in starts {
                    match start.await.unwrap() {
                        Ok(finished) => {
                            assert_eq!(finished.ending, Ending::Cancelled);
                            started += 1;
                        }
                        Err(ExecError::ShuttingDown) => refused += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
                (started, refused)
            })
            .await;
        assert_eq!(started + refused, 100);
        assert_eq!(runner.process.refused(), refused);
        assert_eq!(living(&super::support::recorded(runner.dir.path())), Vec::<i32>::new());
        // One that had just been started hears of the end a moment after the answer that it was refused.
        let begun = Instant::now();
        while !super::support::children(std::process::id() as i32).is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(5), "a child stays");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn a_second_signal_within_the_grace_kills_now(runner) {
        let mut signals = Signals::install(&Dispositions::read()).unwrap();
        runner.process.start("job-1", runner.shell(IMMUNE)).await.unwrap();
        let pids = runner.pids(1).await;
        raise(Signal::INT);
        assert_eq!(signals.next().await, SignalEvent::Stop(2));
        assert!(!force());
        let begun = Instant::now();
        let (leaked, ()) = tokio::join!(runner.process.shutdown(Duration::from_secs(5)), async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            raise(Signal::INT);
            assert_eq!(signals.next().await, SignalEvent::Force(2));
        });
        assert_eq!(leaked, []);
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        assert!(force());
        assert_dead(&pids);
    }

    async fn drain_and_status_are_no_stops(_runner) {
        let mut signals = Signals::install(&Dispositions::read()).unwrap();
        raise(Signal::USR2);
        assert_eq!(signals.next().await, SignalEvent::Status);
        raise(Signal::USR1);
        assert_eq!(signals.next().await, SignalEvent::Drain);
        raise(Signal::TERM);
        assert_eq!(signals.next().await, SignalEvent::Stop(15));
        raise(Signal::PIPE);
        raise(Signal::XFSZ);
    }

    #[ignore = "a part of `a_third_signal_ends_the_process`"]
    async fn inner_three_signals(_runner) {
        let mut signals = Signals::install(&Dispositions::read()).unwrap();
        for signal in [Signal::TERM, Signal::TERM] {
            raise(signal);
            signals.next().await;
        }
        raise(Signal::TERM);
        std::future::pending::<()>().await;
    }

    #[ignore = "a part of `the_process_dies_of_its_signal`"]
    async fn inner_reraise(_runner) {
        let _signals = Signals::install(&Dispositions::read()).unwrap();
        reraise(15);
    }

    #[ignore = "a part of `what_was_inherited_as_ignored_stays_so`"]
    async fn inner_ignored(runner) {
        let inherited = Dispositions::read();
        assert!(inherited.ignored(1) && inherited.ignored(2) && !inherited.ignored(15));
        let mut signals = Signals::install(&inherited).unwrap();
        raise(Signal::HUP);
        raise(Signal::INT);
        raise(Signal::TERM);
        assert_eq!(signals.next().await, SignalEvent::Stop(15), "HUP and INT were not heard");
        let finished = runner.run("grep SigIgn /proc/self/status").await;
        assert_eq!(ignored_bits(&text(&finished.output)), 0b11, "HUP and INT, not PIPE or XFSZ");
        assert_eq!(runner.process.shutdown(Duration::from_secs(1)).await, []);
    }

    #[ignore = "a part of `strangers_are_left_in_peace`"]
    async fn inner_strangers(runner) {
        let stranger: i32 = std::env::var("STRANGER").unwrap().parse().unwrap();
        assert!(super::support::children(std::process::id() as i32).contains(&stranger));
        runner.process.start("job-1", runner.shell("setsid sleep 999 & echo $! >> pids; wait")).await.unwrap();
        let pids = runner.pids(1).await;
        super::support::kill(super::support::parent(super::support::parent(pids[0])));
        eventually("the job is lost", || runner.process.jobs()[0].state == JobState::Lost).await;
        assert_dead(&pids);
        assert_eq!(runner.process.shutdown(Duration::from_secs(1)).await, []);
        assert!(super::support::alive(stranger));
        super::support::kill(stranger);
    }
}

/// The set `SigIgn`, without the two signals that glibc's `posix_spawn` always ignores in children (32 and 33).
pub fn ignored_bits(line: &str) -> u64 {
    u64::from_str_radix(line.split_whitespace().last().unwrap(), 16).unwrap() & !0x1_8000_0000
}

#[test]
fn a_third_signal_ends_the_process() {
    let status = again("process::ends::inner_three_signals").output().unwrap().status;
    assert_eq!(status.code(), Some(143));
}

#[test]
fn the_process_dies_of_its_signal() {
    let status = again("process::ends::inner_reraise").output().unwrap().status;
    assert_eq!(status.signal(), Some(15));
}

#[test]
fn what_was_inherited_as_ignored_stays_so() {
    wrapped("process::ends::inner_ignored", "trap '' HUP INT; exec \"$0\" \"$@\"");
}

#[test]
fn strangers_are_left_in_peace() {
    wrapped(
        "process::ends::inner_strangers",
        "setsid sleep 60 >/dev/null 2>&1 & export STRANGER=$!; until [ \"$(cat /proc/$STRANGER/comm)\" = sleep ]; do :; done; exec \"$0\" \"$@\"",
    );
}

/// Runs an inner test below a shell script that executes its arguments.
fn wrapped(name: &str, script: &str) {
    let inner = again(name);
    let mut command = std::process::Command::new("bash");
    command.args(["-c", script]).arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    crate::sandbox::detach(&mut command);
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{}\n{out}\n{err}", output.status);
}

#[test]
fn a_dropped_runtime_ends_everything() {
    let runner = Runner::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let pids = runtime.block_on(async {
        runner.process.start("job-1", runner.shell(IMMUNE)).await.unwrap();
        runner.pids(1).await
    });
    drop(runtime);
    let begun = Instant::now();
    while !living(&pids).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(2));
    }
}
