//! The sandbox's own tests, with `bash` in the binary's place.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::provider::{Reply, Script, Wire};
use crate::sandbox::{KEY_VARIABLE, PATIENCE, Running, Sandbox, filters};

fn bash(sandbox: &Sandbox, script: &str) -> Running {
    let mut command = sandbox.command("bash");
    command.args(["-c", script]);
    sandbox.start(command)
}

#[test]
fn the_environment_holds_what_the_test_set_and_nothing_else() {
    let sandbox = Sandbox::new();
    sandbox.set("OPENAI_API_KEY", "k").set("GONE", "x").unset("GONE");
    let finished = bash(&sandbox, "env -0 | tr '\\0' '\\n' | cut -d= -f1; pwd").wait(PATIENCE).expect_code(0);
    let mut names: Vec<&str> = finished.stdout.lines().collect();
    assert_eq!(names.pop(), sandbox.workspace().to_str());
    names.retain(|name| !matches!(*name, "PWD" | "SHLVL" | "_"));
    names.sort_unstable();
    assert_eq!(names, ["HOME", "OPENAI_API_KEY", "PATH", "TMPDIR", "XDG_RUNTIME_DIR"]);
}

#[test]
fn children_start_with_default_signals_no_terminal_and_an_empty_stdin() {
    // SAFETY: ignoring a signal for the whole test process is what a `nohup` around it does; nothing else here
    // depends on SIGHUP.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
    let sandbox = Sandbox::new();
    let script = "grep -E '^Sig(Blk|Ign)' /proc/self/status; cat; (: </dev/tty) 2>/dev/null || echo no terminal";
    let finished = bash(&sandbox, script).wait(PATIENCE).expect_code(0);
    // SAFETY: as above.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
    let words: Vec<&str> = finished.stdout.split_whitespace().collect();
    assert_eq!(words[..2], ["SigBlk:", "0000000000000000"]);
    let ignored = u64::from_str_radix(words[3], 16).expect("a mask");
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGPIPE] {
        assert_eq!(ignored & (1 << (signal - 1)), 0, "signal {signal} is ignored");
    }
    assert_eq!(words[4..], ["no", "terminal"]);
}

#[test]
fn a_death_by_signal_is_told_from_an_exit() {
    let sandbox = Sandbox::new();
    let running = bash(&sandbox, "echo ready; exec sleep 1000");
    running.wait_for_stdout("ready", PATIENCE);
    running.signal(Signal::TERM);
    let finished = running.wait(PATIENCE);
    assert_eq!((finished.code, finished.signal), (None, Some(libc::SIGTERM)));
    let finished = bash(&sandbox, "echo out; echo err >&2; exit 7").wait(PATIENCE);
    assert_eq!((finished.code, finished.signal), (Some(7), None));
    assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("out\n", "err\n"));
}

#[test]
fn who_takes_too_long_is_killed_and_fails_the_test() {
    let sandbox = Sandbox::new();
    let running = bash(&sandbox, "echo so far; exec sleep 1000");
    running.wait_for_stdout("so far", PATIENCE);
    let pid = running.pid();
    let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| running.wait(Duration::from_millis(50))));
    let message = *waited.expect_err("it must fail").downcast::<String>().expect("a message");
    assert!(message.contains("still running") && message.contains("so far"), "{message}");
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "it is gone, and no zombie");
}

#[test]
fn a_goal_is_filled_in_where_the_text_is_silent() {
    let sandbox = Sandbox::new().wire(Wire::OpenAiChat);
    let provider = Script::new().agent(Reply::text("unused")).key("the-key").start();
    let goal = sandbox.goal(&provider, "goal: x\nprices: {}");
    assert_eq!(goal, sandbox.root().join("goal.yaml"));
    let text = fs::read_to_string(goal).expect("it was written");
    let yaml: Value = serde_yaml::from_str(&text).expect("it is YAML");
    assert_eq!(yaml["version"], 1);
    assert_eq!(yaml["workspace"].as_str(), sandbox.workspace().to_str());
    assert_eq!(yaml["model"]["wire"], "openai-chat");
    assert_eq!(yaml["model"]["base_url"], provider.url());
    assert_eq!(yaml["model"]["api_key_env"], KEY_VARIABLE);
    assert_eq!(yaml["prices"], serde_json::json!({}), "the test's own");
    assert_eq!(bash(&sandbox, "echo $SANDBOX_API_KEY").wait(PATIENCE).stdout, "the-key\n");
    let broken = sandbox.goal(&provider, "goal: [");
    assert_eq!(fs::read_to_string(broken).expect("it was written"), "goal: [", "left as it is");
    provider.finish();
}

#[test]
fn results_and_events_are_found_wherever_they_are() {
    let sandbox = Sandbox::new();
    let dir = sandbox.home().join(".spettro/sessions/w/session-20260101-000000-00000000");
    sandbox.write(dir.join("session.jsonl"), "{\"kind\":\"spettro session\"}\n{\"seq\":1}\n{\"torn");
    sandbox.write(dir.join("result.json"), r#"{"outcome":"met"}"#);
    sandbox.write(dir.join("events.jsonl"), "{\"type\":\"verdict\"}\n{\"type\":\"notice\"}\n");
    assert_eq!(sandbox.session_dir(), dir);
    assert_eq!(sandbox.session_lines().len(), 2, "the torn line is none");
    let plain = bash(&sandbox, "echo words").wait(PATIENCE);
    assert_eq!(plain.result()["outcome"], "met");
    assert_eq!(plain.events_of("verdict").len(), 1);
    let json = bash(&sandbox, r#"echo '{"outcome":"unmet"}'"#).wait(PATIENCE);
    assert_eq!(json.result()["outcome"], "unmet");
    let lines = r#"echo '{"type":"a"}'; echo '{"type":"run.finished","result":{"outcome":"auth"}}'"#;
    let jsonl = bash(&sandbox, lines).wait(PATIENCE);
    assert_eq!((jsonl.result()["outcome"].as_str(), jsonl.events().len()), (Some("auth"), 2));
}

#[test]
fn a_repository_has_one_commit() {
    let sandbox = Sandbox::new();
    sandbox.write("src/a.txt", "a\n");
    sandbox.git_init();
    assert_eq!(sandbox.sh("git rev-list --count HEAD; git status --porcelain"), "1\n");
    assert_eq!(sandbox.read("src/a.txt"), "a\n");
    assert!(!sandbox.exists("src/b.txt"));
}

#[test]
fn filters_leave_the_words_and_take_the_rest() {
    let mut text = format!(
        "12:03:41 run {}/work \"cargo test\" ok 4.2s 1m05s spettro 0.1.0 session-20261129-200102-0a1b2c3d \
         2026-11-29T20:01:02.123Z {} http://127.0.0.1:40123/v1 \"duration_ms\":17 pid 4711",
        Sandbox::new().root().display(),
        "a".repeat(64)
    );
    for (pattern, replacement) in filters() {
        text = regex::Regex::new(pattern).expect("a valid pattern").replace_all(&text, replacement).into_owned();
    }
    let expected = "[CLOCK] run [ROOT]/work \"cargo test\" ok [DURATION] [DURATION] spettro [VERSION] [SESSION] \
                    [TIME] [SHA256] http://127.0.0.1:[PORT]/v1 \"duration_ms\":[MS] pid [PID]";
    assert_eq!(text, expected);
}
