//! Background jobs.

use std::time::Duration;

use spettro::world::{Exec, ExecError, JobInfo, JobState};

use super::support::{ESCAPES, Runner, alive, assert_dead, eventually, isolated_tests};

fn job(runner: &Runner, id: &str) -> JobInfo {
    runner.process.jobs().into_iter().find(|job| job.id == id).unwrap()
}

async fn ended(runner: &Runner, id: &str) -> JobInfo {
    eventually(&format!("{id} has ended"), || job(runner, id).ended.is_some()).await;
    job(runner, id)
}

async fn start(runner: &Runner, id: &str, script: &str) {
    let mut command = runner.shell(script);
    command.timeout = None;
    runner.process.start(id, command).await.unwrap();
}

isolated_tests! {
    async fn a_job_is_read_by_offset_while_it_runs(runner) {
        start(&runner, "job-1", "echo one; until [ -e go ]; do sleep 0.01; done; echo two; exit 5").await;
        eventually("the first line is there", || job(&runner, "job-1").printed_bytes == 4).await;
        let info = job(&runner, "job-1");
        assert_eq!((info.state, info.last_line.as_str(), info.dropped_bytes), (JobState::Running, "one", 0));
        assert!(runner.process.busy());
        assert_eq!(runner.process.read("job-1", 1, 2), Some((1, b"ne".to_vec())));
        assert_eq!(runner.process.read("job-1", 4, 100), Some((4, Vec::new())));
        assert_eq!(runner.process.read("job-2", 0, 100), None);
        let changed = runner.process.changed();
        std::fs::write(runner.dir.path().join("go"), "").unwrap();
        changed.await;
        let info = ended(&runner, "job-1").await;
        assert_eq!(info.state, JobState::Exited(5));
        assert_eq!(runner.process.read("job-1", 0, 100), Some((0, b"one\ntwo\n".to_vec())));
        assert!(!runner.process.busy());
    }

    async fn a_change_between_the_call_and_the_wait_is_not_missed(runner) {
        let changed = runner.process.changed();
        start(&runner, "job-1", "exit 0").await;
        ended(&runner, "job-1").await;
        tokio::time::timeout(Duration::from_secs(5), changed).await.unwrap();
    }

    async fn a_job_that_cannot_start_is_none(runner) {
        let missing = runner.process.start("job-1", runner.argv(&["no-such-program-here"])).await;
        assert!(matches!(missing, Err(ExecError::NotFound(_))));
        assert!(runner.process.jobs().is_empty());
        start(&runner, "job-1", "exit 0").await;
        let again = runner.process.start("job-1", runner.shell("exit 0")).await;
        assert!(matches!(again, Err(ExecError::Failed(..))), "names are unique");
    }

    async fn a_seventeenth_job_is_an_error_that_lists_the_others(runner) {
        for number in 1..=16 {
            start(&runner, &format!("job-{number}"), "sleep 999").await;
        }
        let error = runner.process.start("job-17", runner.shell("true")).await.unwrap_err();
        let ExecError::TooManyJobs(list) = error else { panic!("{error:?}") };
        assert_eq!(list.matches("job-").count(), 16);
        assert!(list.contains("job-1 (bash -c sleep 999)"), "{list}");
        runner.process.kill("job-3").await;
        start(&runner, "job-17", "exit 0").await;
    }

    async fn a_job_lives_on_without_its_leader_and_says_so(runner) {
        let script = "sleep 999 & echo $! >> pids; setsid sleep 998 & echo $! >> pids; exit 7";
        start(&runner, "job-1", script).await;
        let expected = JobState::LeaderExited { status: 7, still_running: 2 };
        eventually("two are left", || job(&runner, "job-1").state == expected).await;
        let pids = runner.pids(2).await;
        super::support::kill(pids[0]);
        let expected = JobState::LeaderExited { status: 7, still_running: 1 };
        eventually("one is left", || job(&runner, "job-1").state == expected).await;
        assert!(alive(pids[1]) && job(&runner, "job-1").ended.is_none() && runner.process.busy());
        super::support::kill(pids[1]);
        assert_eq!(ended(&runner, "job-1").await.state, JobState::Exited(7));
    }

    async fn nothing_escapes_a_kill(runner) {
        for (number, (count, script)) in ESCAPES.iter().enumerate() {
            let id = format!("job-{number}");
            start(&runner, &id, script).await;
            let pids = runner.pids(*count).await;
            assert!(pids.iter().all(|&pid| alive(pid)), "{script}");
            runner.process.kill(&id).await;
            assert_dead(&pids);
            assert_eq!(job(&runner, &id).state, JobState::Killed);
            std::fs::remove_file(runner.dir.path().join("pids")).unwrap();
        }
        runner.process.kill("job-99").await;
    }

    async fn a_job_that_ignores_term_is_killed_after_its_grace(runner) {
        let mut command = runner.shell("trap '' TERM; echo $$ >> pids; while :; do sleep 0.1; done");
        command.grace = Duration::from_millis(300);
        command.timeout = None;
        runner.process.start("job-1", command).await.unwrap();
        let pids = runner.pids(1).await;
        let begun = std::time::Instant::now();
        runner.process.kill("job-1").await;
        assert!((Duration::from_millis(300)..Duration::from_millis(900)).contains(&begun.elapsed()));
        assert_dead(&pids);
        assert_eq!(job(&runner, "job-1").state, JobState::Killed);
    }

    async fn only_the_last_mebibyte_is_kept_and_offsets_stay(runner) {
        start(&runner, "job-1", "head -c 3145728 /dev/zero | tr '\\0' a; printf 0123456789").await;
        let info = ended(&runner, "job-1").await;
        assert_eq!((info.printed_bytes, info.dropped_bytes), ((3 << 20) + 10, (2 << 20) + 10));
        let (from, bytes) = runner.process.read("job-1", 5, 3).unwrap();
        assert_eq!((from, bytes), ((2 << 20) + 10, b"aaa".to_vec()));
        assert_eq!(runner.process.read("job-1", 3 << 20, 4), Some((3 << 20, b"0123".to_vec())));
    }

    async fn a_timeout_ends_a_job(runner) {
        let mut command = runner.shell("echo $$ >> pids; sleep 999");
        command.timeout = Some(Duration::from_millis(300));
        runner.process.start("job-1", command).await.unwrap();
        assert_eq!(ended(&runner, "job-1").await.state, JobState::TimedOut);
        assert_dead(&runner.pids(1).await);
    }

    async fn an_idle_job_outlives_threads(runner) {
        start(&runner, "job-1", "echo $$ >> pids; sleep 999").await;
        let pids = runner.pids(1).await;
        for _ in 0..20 {
            std::thread::spawn(|| ()).join().unwrap();
            runner.run("true").await;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(alive(pids[0]));
        assert_eq!(job(&runner, "job-1").state, JobState::Running);
    }

    async fn a_job_prints_at_once_although_secrets_are_looked_for(_runner) {
        let secrets = spettro::world::Secrets::new([("A_TOKEN".to_owned(), "listening-is-a-secret".to_owned())]);
        let runner = Runner::with(|options| options.secrets = secrets);
        start(&runner, "job-1", "printf 'port 8080'; sleep 999").await;
        eventually("it is there", || runner.process.read("job-1", 0, 99) == Some((0, b"port 8080".to_vec()))).await;
    }
}
