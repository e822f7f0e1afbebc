//! Foreground commands.

use std::time::{Duration, Instant};

use spettro::world::{Ending, Exec, ExecError, Secrets};

use super::support::{Runner, alive, assert_dead, assert_exited, eventually, isolated_tests, living, parent, text};

isolated_tests! {
    async fn output_and_exit_code_are_exact(runner) {
        let finished = runner.run("echo out; echo err >&2; exit 3").await;
        assert_eq!(text(&finished.output), "out\nerr\n");
        assert_exited(&finished, 3);
        assert!(finished.leftovers.is_empty());
        let finished = runner.run("kill -SEGV $$").await;
        assert_eq!(finished.ending, Ending::Signaled(11));
    }

    async fn a_program_that_cannot_start_is_told_exactly(runner) {
        let missing = runner.process.run(runner.argv(&["no-such-program-here"])).await;
        assert!(matches!(missing, Err(ExecError::NotFound(name)) if name == "no-such-program-here"));
        let missing = runner.process.run(runner.argv(&["/no/such/program"])).await;
        assert!(matches!(missing, Err(ExecError::NotFound(_))));
        let empty = runner.process.run(runner.argv(&[""])).await;
        assert!(matches!(empty, Err(ExecError::NotFound(_))));
        let nothing = runner.process.run(runner.argv(&[])).await;
        assert!(matches!(nothing, Err(ExecError::NotFound(_))));
        std::fs::write(runner.dir.path().join("data"), "just data").unwrap();
        let denied = runner.process.run(runner.argv(&["./data"])).await;
        assert!(matches!(denied, Err(ExecError::NotExecutable(_))), "{denied:?}");
        std::fs::write(runner.dir.path().join("garbage"), [0x7f, 1, 2, 3]).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(runner.dir.path().join("garbage"), mode).unwrap();
        let garbage = runner.process.run(runner.argv(&["./garbage"])).await;
        assert!(matches!(garbage, Err(ExecError::NotExecutable(_))), "{garbage:?}");
        let mut elsewhere = runner.shell("true");
        elsewhere.cwd = "/no/such/directory".into();
        assert!(matches!(runner.process.run(elsewhere).await, Err(ExecError::BadCwd(_))));
        let nul = runner.process.run(runner.argv(&["echo", "a\0b"])).await;
        assert!(matches!(nul, Err(ExecError::Failed(..))));
        // A program that exits with these numbers itself is no error.
        assert_exited(&runner.run("exit 127").await, 127);
        assert_exited(&runner.run("exit 126").await, 126);
        assert!(!runner.process.busy());
    }

    async fn arguments_far_beyond_a_socket_buffer_arrive_whole(runner) {
        let words: Vec<String> = (0..20).map(|index| format!("{index}").repeat(50_000)).collect();
        let mut argv = vec!["bash", "-c", "printf %s \"$@\" | wc -c", "bash"];
        argv.extend(words.iter().map(String::as_str));
        let finished = runner.process.run(runner.argv(&argv)).await.unwrap();
        // Ten words of one digit, ten of two.
        assert_eq!(text(&finished.output).trim(), (10 * 50_000 + 10 * 100_000).to_string());
        let monster = "x".repeat(3 << 20);
        let too_long = runner.process.run(runner.argv(&["echo", &monster])).await;
        assert!(matches!(too_long, Err(ExecError::Failed(..))), "E2BIG is an error of the start");
    }

    async fn the_environment_is_what_was_given_and_nothing_else(runner) {
        let mut command = runner.argv(&["env"]);
        command.env = vec![("HOME".to_owned(), "/elsewhere".to_owned()), ("A".to_owned(), "1 2".to_owned())];
        let finished = runner.process.run(command).await.unwrap();
        let output = text(&finished.output);
        let mut names: Vec<&str> = output.lines().map(|line| line.split_once('=').unwrap().0).collect();
        names.sort_unstable();
        assert_eq!(names, ["A", "HOME", "PATH", "SPETTRO_JOB_ID", "SPETTRO_RUN_ID"]);
        assert!(output.contains("HOME=/elsewhere\n") && output.contains("A=1 2\n"));
    }

    async fn a_leader_starts_clean(runner) {
        let finished = runner.run("grep -E '^(SigBlk|SigIgn)' /proc/self/status; ls -l /proc/self/fd | wc -l; cat").await;
        let output = text(&finished.output);
        let mut lines = output.lines();
        assert_eq!(super::ends::ignored_bits(lines.next().unwrap()), 0, "blocked");
        assert_eq!(super::ends::ignored_bits(lines.next().unwrap()), 0, "ignored");
        // The total, 0, 1, 2 and the directory being listed.
        assert_eq!(lines.next(), Some("5"));
        assert_eq!(lines.next(), None, "stdin is empty");
        assert_exited(&finished, 0);
    }

    async fn there_is_no_terminal_to_wait_for(runner) {
        for script in ["cat </dev/tty", "read line; exit 1", "vi -e -s /dev/null </dev/tty"] {
            let finished = runner.run(script).await;
            assert!(finished.duration < Duration::from_secs(2), "{script}");
            assert!(matches!(finished.ending, Ending::Exited(code) if code != 0), "{script}: {:?}", finished.ending);
        }
    }

    async fn memory_pressure_ends_commands_first(runner) {
        let own: i32 = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim().parse().unwrap();
        let raised = own + (1000 - own) / 2;
        // It is said once the command runs, which may already have started something by then.
        let wait = format!("until [ $(cat /proc/$$/oom_score_adj) = {raised} ]; do :; done");
        let finished = runner.run(&format!("{wait}; cat /proc/self/oom_score_adj /proc/$PPID/oom_score_adj")).await;
        assert_eq!(text(&finished.output), format!("{raised}\n{own}\n"), "the supervisor stays as it was");
    }

    async fn a_background_process_does_not_hold_the_result(runner) {
        let begun = Instant::now();
        let finished = runner.run("sleep 60 & echo $! > pids; echo hi").await;
        assert!(begun.elapsed() <= Duration::from_secs(1), "{:?}", begun.elapsed());
        assert_eq!(text(&finished.output), "hi\n");
        assert_exited(&finished, 0);
        let pids = runner.pids(1).await;
        let named: Vec<(i32, &str)> = finished.leftovers.iter().map(|left| (left.pid, left.name.as_str())).collect();
        assert_eq!(named, [(pids[0], "sleep")]);
        assert_dead(&pids);
    }

    async fn a_process_substitution_finishes_its_work(runner) {
        let finished = runner.run("exec > >(tee -a f) 2>&1 && echo $! > pids && echo ok").await;
        assert!(finished.duration <= Duration::from_secs(1), "{:?}", finished.duration);
        assert_exited(&finished, 0);
        assert_eq!(text(&finished.output), "ok\n");
        assert_eq!(std::fs::read_to_string(runner.dir.path().join("f")).unwrap(), "ok\n");
        assert_eq!(finished.leftovers, [], "it ended by itself");
        assert_dead(&runner.pids(1).await);
    }

    async fn nothing_escapes_at_the_end_of_a_command(runner) {
        for (count, script) in super::support::ESCAPES {
            let finished = runner.run(script).await;
            assert!(finished.duration < Duration::from_secs(2), "{script}: {:?}", finished.duration);
            let pids = runner.pids(*count).await;
            assert_dead(&pids);
            let mut named: Vec<i32> = finished.leftovers.iter().map(|left| left.pid).collect();
            named.sort_unstable();
            let mut expected = pids.clone();
            expected.sort_unstable();
            assert_eq!(named, expected, "{script}");
            std::fs::remove_file(runner.dir.path().join("pids")).unwrap();
        }
        assert!(!runner.process.busy());
    }

    async fn a_tree_that_ignores_term_dies_after_timeout_and_grace(runner) {
        let mut command = runner.shell(
            "trap '' TERM; echo $$ >> pids; (trap '' TERM; sh -c 'echo $PPID' >> pids; while :; do sleep 1; done) & wait",
        );
        command.timeout = Some(Duration::from_secs(1));
        command.grace = Duration::from_secs(1);
        let finished = runner.process.run(command).await.unwrap();
        assert_eq!(finished.ending, Ending::TimedOut);
        assert!(finished.duration >= Duration::from_secs(2), "{:?}", finished.duration);
        assert!(finished.duration <= Duration::from_millis(2500), "{:?}", finished.duration);
        assert_dead(&runner.pids(2).await);
    }

    async fn cleanup_runs_when_term_is_enough(runner) {
        let mut command = runner.shell("trap 'sleep 0.3; echo cleaned > cleaned' EXIT; echo $$ >> pids; sleep 60");
        command.timeout = Some(Duration::from_millis(300));
        let finished = runner.process.run(command).await.unwrap();
        assert_eq!(finished.ending, Ending::TimedOut);
        assert!(finished.duration < Duration::from_secs(2), "{:?}", finished.duration);
        assert_eq!(std::fs::read_to_string(runner.dir.path().join("cleaned")).unwrap(), "cleaned\n");
        assert_dead(&runner.pids(1).await);
    }

    async fn a_child_that_cleans_up_longer_than_its_shell_lives_may_finish(runner) {
        let child = "import os,signal,sys,time\n\
            def end(*_):\n    time.sleep(0.4); open('cleaned','w').write('yes'); sys.exit(0)\n\
            signal.signal(signal.SIGTERM, end)\n\
            print(os.getpid(), file=open('pids','a'))\nwhile True: signal.pause()";
        let mut command = runner.argv(&["bash", "-c", "python3 -c \"$1\" & wait", "bash", child]);
        command.timeout = Some(Duration::from_millis(700));
        let (finished, pids) = tokio::join!(runner.process.run(command), runner.pids(1));
        let finished = finished.unwrap();
        assert_eq!(finished.ending, Ending::TimedOut);
        assert_eq!(std::fs::read_to_string(runner.dir.path().join("cleaned")).unwrap(), "yes");
        assert!(finished.duration >= Duration::from_millis(1100), "{:?}", finished.duration);
        assert_dead(&pids);
    }

    async fn a_stopped_process_hears_term_too(runner) {
        let mut command = runner.shell("trap 'echo bye; exit 0' TERM; kill -STOP $$; sleep 60");
        command.timeout = Some(Duration::from_millis(300));
        let finished = runner.process.run(command).await.unwrap();
        assert_eq!(finished.ending, Ending::TimedOut);
        assert_eq!(text(&finished.output), "bye\n");
    }

    async fn a_flood_is_bounded_and_keeps_both_ends(runner) {
        let mut command = runner.shell("echo first; yes | head -c 1G; echo last");
        command.keep_bytes = 1000;
        let before = resident_kib();
        let finished = runner.process.run(command).await.unwrap();
        assert_exited(&finished, 0);
        let output = &finished.output;
        assert!(output.head.starts_with(b"first\ny\n") && output.tail.ends_with(b"y\nlast\n"));
        assert_eq!((output.head.len(), output.tail.len()), (1000, 1000));
        assert_eq!(output.total_bytes(), (1 << 30) + 11);
        assert!(resident_kib() < before + 8 * 1024, "memory grew with the output");
    }

    async fn a_bounded_fork_bomb_is_ended_with_its_command(runner) {
        let bomb = "f() { [ $1 -gt 0 ] && { f $(($1-1)) & f $(($1-1)) & }; sleep 60; }; f 6 & echo started";
        let finished = runner.run(bomb).await;
        assert_exited(&finished, 0);
        assert_eq!(text(&finished.output), "started\n");
        assert!(finished.leftovers.len() > 1);
        assert_eq!(descendants_named("sleep"), 0);
        assert_exited(&runner.run("exit 7").await, 7);
    }

    async fn a_chain_that_forks_and_exits_is_caught(runner) {
        for setsid in ["", "os.setsid();"] {
            let chain = format!(
                "import os,signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
                 if os.fork(): os._exit(0)\n\
                 while True:\n    if os.fork(): os._exit(0)\n    {setsid}open('beat','w').write(str(os.getpid()))\n"
            );
            let mut command = runner.argv(&["python3", "-c", &chain]);
            command.grace = Duration::from_millis(200);
            let finished = runner.process.run(command).await.unwrap();
            assert_exited(&finished, 0);
            assert!(finished.duration < Duration::from_secs(3), "{setsid:?} {:?}", finished.duration);
            assert_eq!(descendants_named("python3"), 0);
            // The last link may have died between opening and writing.
            let beat = std::fs::read_to_string(runner.dir.path().join("beat")).unwrap();
            assert!(beat.is_empty() || !alive(beat.parse().unwrap()), "{beat:?}");
        }
        assert_exited(&runner.run("exit 7").await, 7);
    }

    async fn dropping_the_future_ends_the_tree(runner) {
        let command = runner.shell("trap '' TERM; echo $$ >> pids; setsid sleep 999 & echo $! >> pids; wait");
        let pids = {
            let running = runner.process.run(command);
            tokio::select! {
                finished = running => panic!("{finished:?}"),
                pids = runner.pids(2) => pids,
            }
        };
        eventually("the tree is dead", || living(&pids).is_empty()).await;
        eventually("the run is idle", || !runner.process.busy()).await;
    }

    async fn exit_codes_stay_exact_while_orphans_are_adopted(runner) {
        for index in 0..1000 {
            let code = index % 256;
            let script = if index % 10 == 0 {
                format!("(sleep 0.01 & exec true) & wait; exit {code}")
            } else {
                format!("exit {code}")
            };
            assert_exited(&runner.process.run(runner.argv(&["sh", "-c", &script])).await.unwrap(), code);
        }
        let zygote = runner.process.zygote().unwrap();
        eventually("only the supervisor ahead is left", || super::support::children(zygote).len() == 1).await;
        assert_eq!(super::support::children(std::process::id() as i32), [zygote]);
    }

    async fn many_commands_run_at_once(runner) {
        let runs = (0..60).map(|index| {
            let process = runner.process.clone();
            let command = runner.shell(&format!("sleep 0.0{}; echo {index}; exit {index}", index % 10));
            async move { process.run(command).await.unwrap() }
        });
        let runs: Vec<_> = runs.map(Box::pin).collect();
        for (index, finished) in join_all(runs).await.into_iter().enumerate() {
            assert_exited(&finished, index as i32);
            assert_eq!(text(&finished.output), format!("{index}\n"));
        }
    }

    async fn the_supervisor_is_neither_in_the_group_nor_in_the_session_of_the_runner(runner) {
        let finished = runner.run("echo $$ $PPID; ps -o pgid=,sid= -p $$ -p $PPID").await;
        let output = text(&finished.output);
        let numbers: Vec<i32> = output.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let [leader, supervisor, ..] = numbers[..] else { panic!("{output}") };
        let mut seen: Vec<(i32, i32)> = numbers[2..].chunks(2).map(|row| (row[0], row[1])).collect();
        let mut expected = vec![(leader, supervisor), (supervisor, supervisor)];
        seen.sort_unstable();
        expected.sort_unstable();
        assert_eq!(seen, expected, "group and session of each");
        assert_eq!(parent(runner.process.zygote().unwrap()), std::process::id() as i32);
    }
}

#[test]
fn secrets_are_replaced_at_capture() {
    super::support::isolated("process::commands::secrets_are_replaced_at_capture", |_| async {
        let value = "correct-horse/battery+staple";
        let secrets = Secrets::new([("MY_TOKEN".to_owned(), value.to_owned())]);
        let runner = Runner::with(|options| options.secrets = secrets);
        let mut command = runner.shell(
            "printf %s \"$V\" | head -c 9; sleep 0.1; printf '%s\\n' \"$V\" | tail -c +10; printf %s \"x$V\" | base64",
        );
        command.env = vec![("V".to_owned(), value.to_owned())];
        let finished = runner.process.run(command).await.unwrap();
        let output = text(&finished.output);
        assert!(output.starts_with("«secret:MY_TOKEN»\n"), "{output}");
        assert_eq!(output.matches("«secret:MY_TOKEN»").count(), 2, "{output}");
    });
}

#[test]
fn too_many_processes_end_the_command() {
    super::support::isolated("process::commands::too_many_processes_end_the_command", |_| async {
        let runner = Runner::with(|options| options.max_descendants = 40);
        let finished = runner.run("for i in $(seq 60); do sleep 60 & done; wait").await;
        assert_eq!(finished.ending, Ending::TooManyProcesses);
        assert!(finished.duration < Duration::from_secs(5));
        assert_eq!(descendants_named("sleep"), 0);
        assert_exited(&runner.run("for i in $(seq 30); do sleep 0.3 & done; wait").await, 0);
    });
}

/// Descendants of this process with that name, zombies included.
fn descendants_named(name: &str) -> usize {
    let mut open = vec![std::process::id() as i32];
    let mut count = 0;
    while let Some(pid) = open.pop() {
        for child in super::support::children(pid) {
            let comm = std::fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
            count += usize::from(comm.trim() == name);
            open.push(child);
        }
    }
    count
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

async fn join_all<F: Future + Unpin>(mut futures: Vec<F>) -> Vec<F::Output> {
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(move |context| {
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let std::task::Poll::Ready(value) = std::pin::Pin::new(future).poll(context)
            {
                *output = Some(value);
            }
        }
        if outputs.iter().all(Option::is_some) {
            std::task::Poll::Ready(outputs.drain(..).flatten().collect())
        } else {
            std::task::Poll::Pending
        }
    })
    .await
}
