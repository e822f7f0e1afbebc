//! Commands, background jobs and waiting.

use serde_json::json;

use super::*;

fn ended(ending: Ending, head: &[u8]) -> Result<Finished, ExecError> {
    Ok(Finished {
        ending,
        output: Captured { head: head.to_owned(), omitted_bytes: 0, tail: Vec::new() },
        duration: Duration::from_secs(1),
        leftovers: Vec::new(),
        kept: false,
    })
}

async fn bash(rig: &mut Rig, answer: Result<Finished, ExecError>) -> Ran {
    rig.exec.finished.borrow_mut().push_back(answer);
    rig.call("bash", json!({"command": "make"})).await
}

#[tokio::test(flavor = "current_thread")]
async fn a_command_is_given_to_bash_with_the_limits_of_the_run() {
    let mut rig = Rig::new();
    rig.put("sub/x", "");
    for _ in 0..3 {
        rig.exec.finished.borrow_mut().push_back(ended(Ending::Exited(0), b"hi\n"));
    }
    let ran = rig.call("bash", json!({"command": "cargo\n test"})).await;
    assert_eq!((ran.text.as_str(), ran.status, ran.summary.as_str()), ("hi\n", ToolStatus::Ok, "\"cargo test\""));
    assert_eq!((ran.output_bytes, ran.spool), (3, None));
    rig.call("bash", json!({"command": "x", "timeout": 5, "cwd": "sub"})).await;
    rig.call("shell-exec", json!({"command": "x", "timeout": 9_999, "cwd": "/shown/project/sub"})).await;
    let asked = rig.exec.asked.borrow();
    let (_, first) = &asked[0];
    assert_eq!(first.argv, ["bash", "-c", "cargo\n test"]);
    assert_eq!((&first.cwd, first.kind, first.label.as_str()), (&rig.roots.real, CommandKind::Tool, "cargo test"));
    assert_eq!((first.timeout, first.grace), (Some(Duration::from_secs(600)), Duration::from_secs(2)));
    assert_eq!(first.keep_bytes, 2 << 20);
    assert_eq!((asked[1].1.timeout, &asked[1].1.cwd), (Some(Duration::from_secs(5)), &rig.path("sub")));
    assert_eq!((asked[2].1.timeout, &asked[2].1.cwd), (Some(Duration::from_secs(600)), &rig.path("sub")));
}

#[tokio::test(flavor = "current_thread")]
async fn every_way_to_end_is_told_after_the_output() {
    let mut rig = Rig::new();
    for (ending, head, text, status) in [
        (Ending::Exited(0), &b""[..], "[no output]", ToolStatus::Ok),
        (Ending::Exited(2), b"oops", "oops\n[exit status 2]", ToolStatus::Error),
        (Ending::Exited(1), b"", "[exit status 1]", ToolStatus::Error),
        (Ending::Signaled(11), b"a\n", "a\n[killed by signal 11]", ToolStatus::Error),
        (
            Ending::TimedOut,
            b"a\n",
            "a\n[timed out after 600s; the command and everything it started were ended]",
            ToolStatus::Timeout,
        ),
        (Ending::Cancelled, b"", "[ended because spettro is shutting down]", ToolStatus::Interrupted),
    ] {
        let ran = bash(&mut rig, ended(ending, head)).await;
        assert_eq!((ran.text.as_str(), ran.status), (text, status));
    }
    let ran = bash(&mut rig, ended(Ending::Lost, b"")).await;
    assert!(ran.status == ToolStatus::Error && ran.text.starts_with("[lost: "));
    let ran = bash(&mut rig, ended(Ending::TooManyProcesses, b"")).await;
    assert!(ran.status == ToolStatus::Error && ran.text.contains("1,024 processes"));
}

#[tokio::test(flavor = "current_thread")]
async fn what_it_left_running_is_named() {
    let mut rig = Rig::new();
    let left = |names: &[(i32, &str)]| -> Vec<Leftover> {
        names.iter().map(|(pid, name)| Leftover { pid: *pid, name: (*name).into() }).collect()
    };
    let two = left(&[(4711, "python3"), (4712, "sleep")]);
    let ran = bash(&mut rig, ended(Ending::Exited(0), b"hi").map(|f| Finished { leftovers: two, ..f })).await;
    assert_eq!(
        ran.text,
        "hi\n[2 background processes left by this command were stopped: 4711 python3, 4712 sleep. Use run_in_background to keep a process.]"
    );
    assert_eq!(ran.status, ToolStatus::Ok);
    let many = (1..=25).map(|pid| Leftover { pid, name: "x".into() }).collect();
    let ran = bash(&mut rig, ended(Ending::Exited(0), b"").map(|f| Finished { leftovers: many, ..f })).await;
    assert!(
        ran.text.starts_with("[25 background processes") && ran.text.contains(", 20 x, and 5 more. Use"),
        "{}",
        ran.text
    );
    let mut rig = Rig::with(|options| options.jobs = false);
    let one = left(&[(7, "a\nb")]);
    let ran = bash(&mut rig, ended(Ending::Exited(3), b"").map(|f| Finished { leftovers: one, ..f })).await;
    assert_eq!(ran.text, "[1 background process left by this command was stopped: 7 a\\x0ab.]\n[exit status 3]");
    let kept = |names| ended(Ending::Exited(0), b"").map(|f| Finished { leftovers: left(names), kept: true, ..f });
    let ran = bash(&mut rig, kept(&[(7, "daemon")])).await;
    assert_eq!(ran.text, "[1 background process left by this command runs on until the run ends: 7 daemon.]");
    let ran = bash(&mut rig, kept(&[(7, "daemon"), (8, "other")])).await;
    assert_eq!(ran.text, "[2 background processes left by this command run on until the run ends: 7 daemon, 8 other.]");
}

#[tokio::test(flavor = "current_thread")]
async fn a_failure_that_names_a_removed_variable_gets_a_hint() {
    let mut rig = Rig::with(|options| options.removed = vec!["NPM_TOKEN".into()]);
    let said = b"sh: NPM_TOKEN: unbound variable";
    let ran = bash(&mut rig, ended(Ending::Exited(1), said)).await;
    let (before, hint) = ran.text.split_once("\n[hint: ").expect("a hint");
    assert_eq!(before, "sh: NPM_TOKEN: unbound variable\n[exit status 1]");
    assert!(hint.contains("env: {pass: [NPM_TOKEN]}"), "{hint}");
    let ran = bash(&mut rig, ended(Ending::Exited(0), said)).await;
    assert_eq!(ran.text, "sh: NPM_TOKEN: unbound variable", "what works needs no hint");
    let ran = bash(&mut rig, ended(Ending::Exited(1), b"NPM_TOKENS")).await;
    assert_eq!(ran.text, "NPM_TOKENS\n[exit status 1]");
}

#[tokio::test(flavor = "current_thread")]
async fn secrets_are_in_no_result() {
    let secret = "hunter2-hunter2";
    let secrets = Secrets::new([("TOKEN".to_owned(), secret.to_owned())]);
    let mut rig = Rig::with(|options| options.secrets = secrets);
    // Where a long line is clipped, half of it would be left.
    let long = format!("{}{secret}", "x".repeat(1_990));
    std::fs::write(rig.roots.real.join("f"), format!("a {secret} b\n{long}\n")).expect("a file");
    let read = rig.call("file-read", serde_json::json!({"path": "f"})).await;
    assert!(read.text.contains("a «secret:TOKEN» b") && !read.text.contains("hunter2"), "{}", read.text);
    assert!(!read.full.text().contains("hunter2"));
    let grep = rig.call("grep", serde_json::json!({"pattern": "a .* b"})).await;
    assert!(grep.text.contains("«secret:TOKEN»") && !grep.text.contains("hunter2"), "{}", grep.text);
    let missing = rig.call("file-read", serde_json::json!({"path": secret})).await;
    assert!(missing.text.contains("«secret:TOKEN»") && !missing.text.contains(secret), "{}", missing.text);
}

#[tokio::test(flavor = "current_thread")]
async fn why_it_was_not_started_is_told() {
    let mut rig = Rig::new();
    for (error, text) in [
        (ExecError::ShuttingDown, "error: spettro is shutting down; command not started"),
        (ExecError::NotFound("bash".into()), "error: `bash`: command not found"),
    ] {
        let ran = bash(&mut rig, Err(error)).await;
        assert_eq!((ran.text.as_str(), ran.status), (text, ToolStatus::Error));
    }
    let real = rig.path("gone").to_string_lossy().into_owned();
    rig.exec.finished.borrow_mut().push_back(Err(ExecError::BadCwd(real)));
    let text = rig.fails("bash", json!({"command": "x", "cwd": "gone"})).await;
    assert_eq!(text, "error: working directory `gone` cannot be entered; the command was not started");
}

#[tokio::test(flavor = "current_thread")]
async fn a_flood_keeps_both_ends_and_a_long_output_is_cut_and_spooled() {
    let mut rig = Rig::new();
    let flood = Captured { head: b"first\n\xc3".to_vec(), omitted_bytes: 12_345, tail: b"\xa4 last\r\n".to_vec() };
    let ran = bash(&mut rig, ended(Ending::Exited(0), b"").map(|f| Finished { output: flood, ..f })).await;
    assert_eq!(
        ran.text,
        "first\n\\xc3\n[12,345 bytes of output were not kept: only the first and last 2 MiB are]\n\\xa4 last\n"
    );
    assert_eq!(ran.output_bytes, 7 + 12_345 + 8);

    let long: String = (0..10_000).map(|n| format!("line {n}\n")).collect();
    let ran = bash(&mut rig, ended(Ending::Exited(1), long.as_bytes())).await;
    assert_eq!(ran.spool, Some(1));
    assert_eq!(ran.full.text(), format!("{long}[exit status 1]"));
    assert!(ran.text.chars().count() <= 30_000 + 180);
    assert!(ran.text.contains("\n[exit status 1]\n[truncated: "), "{}", &ran.text[ran.text.len() - 300..]);
    assert!(ran.text.contains("use tool-output {\"id\":\"spool:1\",\"offset\":"));
    assert_eq!(ran.text, cut("bash", &ran.full, usize::MAX, Some(1)));
    assert!(ran.text.ends_with("[whole output: spool/1 in the session's folder]"), "a cut command names its file");
    assert_eq!(std::fs::read(rig.spool.path(1)).expect("and that is there"), ran.full.text().as_bytes());
}

#[tokio::test(flavor = "current_thread")]
async fn results_over_two_thousand_bytes_are_spooled_and_so_is_what_a_budget_cuts() {
    let mut rig = Rig::new();
    assert_eq!(bash(&mut rig, ended(Ending::Exited(0), &[b'x'; 2_000])).await.spool, None);
    let ran = bash(&mut rig, ended(Ending::Exited(0), &[b'x'; 2_001])).await;
    assert_eq!((ran.spool, ran.text.len()), (Some(1), 2_001));
    rig.exec.finished.borrow_mut().push_back(ended(Ending::Exited(0), &b"0123456\n".repeat(100)));
    let ran = rig.within("bash", r#"{"command":"x"}"#, 400).await;
    assert_eq!(ran.spool, Some(2));
    let at = ran.text.find("[truncated: ").expect("a footer");
    assert!(at <= 400 && ran.text[..at].contains("[...]"), "{}", ran.text);
}

#[tokio::test(flavor = "current_thread")]
async fn the_arguments_of_bash_must_make_sense_together() {
    let mut rig = Rig::new();
    for (arguments, part) in [
        (json!({}), "`command` is missing"),
        (json!({"command": ""}), "`command` must not be empty"),
        (json!({"command": "x", "job_id": "job-1"}), "`job_id` does not go with `command`"),
        (json!({"command": "x", "offset": 1}), "`offset` goes only with `job_id`"),
        (json!({"job_id": "job-1", "timeout": 3}), "`timeout` does not go with `job_id`"),
        (json!({"command": "x", "timeout": 0}), "`timeout` must be at least 1"),
        (json!({"command": "x", "timeout": "5"}), "write 5 without quotes"),
        (json!({"command": "x", "run_in_background": true, "timeout": 3}), "`timeout` does not go with"),
        (json!({"command": "a\u{0}b"}), "NUL"),
        (json!({"cmd": "x"}), "`cmd` is no known field"),
        (json!({"command": "echo «secret:API_KEY»"}), "«secret:API_KEY»"),
    ] {
        let text = rig.refused("bash", arguments.clone()).await;
        assert!(text.contains(part), "{arguments}: {text}");
    }
    assert!(rig.exec.asked.borrow().is_empty());
}

#[tokio::test(flavor = "current_thread")]
async fn without_jobs_there_is_no_way_to_start_or_read_one() {
    let mut rig = Rig::with(|options| options.jobs = false);
    let names: Vec<&str> = rig.tools.schemas().iter().map(|schema| schema.name).collect();
    assert!(!names.iter().any(|name| ["job-output", "job-kill", "wait"].contains(name)), "{names:?}");
    assert!(!rig.tools.schemas()[0].parameters.get().contains("run_in_background"));
    assert!(rig.refused("bash", json!({"command": "x", "run_in_background": true})).await.contains("no known field"));
    assert!(rig.refused("bash-output", json!({"job_id": "job-1"})).await.contains("not available"));
    assert!(rig.refused("wait", json!({"timeout": 1})).await.contains("not available"));
}

#[tokio::test(flavor = "current_thread")]
async fn jobs_are_numbered_through_the_session_and_have_no_timeout() {
    let mut rig = Rig::new();
    let ran = rig.call("bash", json!({"command": "serve", "run_in_background": true})).await;
    assert_eq!((ran.job.as_deref(), ran.status), (Some("job-1"), ToolStatus::Ok));
    assert!(ran.text.starts_with("job-1 started"));
    rig.call("bash", json!({"command": "serve", "run_in_background": true})).await;
    {
        let asked = rig.exec.asked.borrow();
        let (name, command) = &asked[1];
        assert_eq!(name.as_deref(), Some("job-2"));
        assert_eq!((command.kind, command.timeout, command.grace), (CommandKind::Job, None, Duration::from_secs(5)));
    }
    let mut rig = Rig::new();
    rig.tools.restore_jobs(41);
    let ran = rig.call("bash", json!({"command": "serve", "run_in_background": true})).await;
    assert_eq!(ran.job.as_deref(), Some("job-42"));
}

#[tokio::test(flavor = "current_thread")]
async fn a_jobs_output_is_read_by_absolute_offsets() {
    let mut rig = Rig::new();
    rig.exec.job("job-1", JobState::Running, "one\ntwö".as_bytes());
    assert_eq!(
        rig.ok("job-output", json!({"job_id": "job-1"})).await,
        "job-1 [running] offset=0 next_offset=8 (end so far)\none\ntwö"
    );
    rig.exec.drop_first("job-1", 2);
    assert_eq!(
        rig.ok("bash", json!({"job_id": "job-1", "offset": 0})).await,
        "job-1 [running] offset=2 next_offset=8 (end so far)\n[2 bytes before this are no longer kept]\ne\ntwö"
    );
    // A character in the making is left for the next call.
    rig.exec.print("job-1", b"\xe2\x98");
    let text = rig.ok("bash-output", json!({"job_id": "job-1", "offset": 8})).await;
    assert_eq!(text, "job-1 [running] offset=8 next_offset=8 (end so far)\n");
    rig.exec.end("job-1", JobState::Exited(3), Duration::from_secs(5));
    let text = rig.ok("job-output", json!({"job_id": "job-1", "offset": 8})).await;
    assert_eq!(text, "job-1 [exited 3] offset=8 next_offset=10 (end of output)\n\\xe2\\x98");
    assert!(rig.fails("job-output", json!({"job_id": "job-1", "offset": 11})).await.contains("only 10 bytes"));
    let text = rig.fails("job-output", json!({"job_id": "job-9"})).await;
    assert_eq!(text, "error: no background job `job-9` in this run; known: job-1 [exited 3]");
    rig.exec.job("job-2", JobState::LeaderExited { status: 0, still_running: 2 }, &b"x\n".repeat(20_000));
    let text = rig.ok("job-output", json!({"job_id": "job-2"})).await;
    assert!(
        text.starts_with("job-2 [leader exited (2 still running)] offset=0 next_offset=24000 (more available)\nx\n")
    );
}

#[tokio::test(flavor = "current_thread")]
async fn a_job_is_ended() {
    let mut rig = Rig::new();
    rig.exec.job("job-1", JobState::Running, b"up\n");
    assert_eq!(rig.ok("job-kill", json!({"job_id": "job-1"})).await, "job-1 [killed]; last line: up");
    assert_eq!(rig.ok("job-kill", json!({"job_id": "job-1"})).await, "job-1 had ended already: killed");
    assert!(rig.fails("job-kill", json!({"job_id": "x"})).await.contains("no background job `x`"));
}

#[tokio::test(flavor = "current_thread")]
async fn waiting_ends_with_an_exit() {
    let mut rig = Rig::new();
    rig.exec.job("job-1", JobState::Running, b"");
    rig.exec.job("job-2", JobState::Running, b"bye\n");
    let exec = rig.exec.clone();
    let (text, ()) = tokio::join!(rig.ok("wait", json!({"timeout": 60})), async {
        tokio::task::yield_now().await;
        exec.print("job-1", b"still at it\n");
        tokio::task::yield_now().await;
        exec.end("job-2", JobState::Exited(0), Duration::from_secs(323));
    });
    assert_eq!(text, "job-2 exited 0 after 5m23s; last line: bye");
    // Over already: told at once.
    let text = rig.ok("wait", json!({"timeout": 60, "job_id": "job-2", "pattern": "never"})).await;
    assert_eq!(text, "job-2 exited 0 after 5m23s; last line: bye\n[no further line matched the pattern]");
}

#[tokio::test(flavor = "current_thread")]
async fn waiting_ends_with_a_matching_line_printed_before_or_after() {
    let mut rig = Rig::new();
    rig.exec.job("job-1", JobState::Running, b"boot\r\nready on 80\n");
    let wait = json!({"timeout": 60, "job_id": "job-1", "pattern": "^ready on \\d+$"});
    assert_eq!(rig.ok("wait", wait.clone()).await, "job-1 printed: ready on 80\n[next_offset=18]");
    let exec = rig.exec.clone();
    let (text, ()) = tokio::join!(rig.ok("wait", wait.clone()), async {
        tokio::task::yield_now().await;
        exec.print("job-1", b"rea");
        tokio::task::yield_now().await;
        exec.print("job-1", b"dy on 81\n");
    });
    assert_eq!(text, "job-1 printed: ready on 81\n[next_offset=30]");
    // Another pattern sees everything; a line without an end counts too.
    rig.exec.print("job-1", b"login: ");
    assert_eq!(rig.ok("wait", json!({"timeout": 9, "pattern": "boot"})).await, "job-1 printed: boot\n[next_offset=6]");
    assert!(rig.ok("wait", json!({"timeout": 9, "pattern": "login: $"})).await.contains("printed: login: "));
    rig.exec.print("job-1", b"LOUD\n");
    assert!(rig.ok("wait", json!({"timeout": 9, "pattern": "(?i)loud"})).await.contains("LOUD"));
    // Far behind much output without line ends.
    rig.exec.print("job-1", &[b'.'; 300_000]);
    rig.exec.print("job-1", b" end\n");
    assert!(rig.ok("wait", json!({"timeout": 9, "pattern": "end$"})).await.contains("[next_offset=300047]"));
}

#[tokio::test(flavor = "current_thread")]
async fn waiting_ends_when_time_is_up_and_needs_something_to_wait_for() {
    let mut rig = Rig::new();
    assert!(rig.fails("wait", json!({"timeout": 60})).await.contains("nothing to wait for"));
    rig.exec.job("job-1", JobState::LeaderExited { status: 0, still_running: 1 }, b"x\n");
    rig.exec.time_passes.set(true);
    assert_eq!(
        rig.ok("wait", json!({"timeout": 7_200})).await,
        "time is up after 30m0s\njob-1 [leader exited (1 still running)]; last line: x"
    );
    assert_eq!(rig.exec.slept.borrow().last(), Some(&Duration::from_secs(1_800)));
    assert!(rig.refused("wait", json!({})).await.contains("`timeout` is missing; expected a whole number"));
    assert!(rig.refused("wait", json!({"timeout": 1, "pattern": "("})).await.contains("no regular expression"));
    assert!(rig.fails("wait", json!({"timeout": 1, "job_id": "job-7"})).await.contains("known: job-1"));
}
