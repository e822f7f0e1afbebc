//! The control socket: steering, stopping, and who may not.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::provider::{Gate, Lane, Provider, Reply, Script};
use crate::sandbox::{PATIENCE, Running, Sandbox};

const GOAL: &str = "goal: be steered\nlimits: {cost: 1.00, time: 10m}\n";

fn start(sandbox: &Sandbox, provider: &Provider) -> Running {
    let goal = sandbox.goal(provider, GOAL);
    sandbox.spawn(["run", "--goal", goal.to_str().expect("a UTF-8 path")])
}

fn verdict() -> Reply {
    Reply::verdict("met", "it is done", "")
}

/// The socket of the live run, once its lock names one.
#[track_caller]
fn socket(sandbox: &Sandbox) -> PathBuf {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(dir) = sandbox.session_dirs().pop()
            && let Ok(text) = std::fs::read_to_string(dir.join("lock"))
            && let Ok(lock) = serde_json::from_str::<Value>(&text)
            && let Some(socket) = lock["socket"].as_str()
        {
            return PathBuf::from(socket);
        }
        assert!(Instant::now() < deadline, "the lock never named a socket");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn id(sandbox: &Sandbox) -> String {
    sandbox.session_dir().file_name().expect("a name").to_str().expect("a UTF-8 name").to_owned()
}

/// Sends bytes and reads the answer's line.
fn talk(socket: &PathBuf, bytes: &[u8]) -> Value {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    // It may answer and close before everything is written.
    let _ = stream.write_all(bytes);
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("it answers");
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
}

#[test]
fn steering_is_delivered_at_the_next_boundary_and_recorded() {
    let sandbox = Sandbox::new();
    let gate = Gate::new();
    let provider =
        Script::new().agent(Reply::bash("true").held(&gate)).agent(Reply::complete("steered")).judge(verdict()).start();
    let running = start(&sandbox, &provider);
    gate.wait_until_held(PATIENCE);
    socket(&sandbox);
    let id = id(&sandbox);
    let said = sandbox.run(["steer", &id, "leave the parser alone"]).expect_code(0);
    assert_eq!(said.stdout, "accepted: the agent reads it before its next model call\n");
    let empty = sandbox.run(["steer", &id, "  "]).expect_code(2);
    assert!(empty.stderr.contains("the text is empty"), "{}", empty.stderr);
    gate.release();
    let finished = running.wait(PATIENCE).expect_code(0);
    let told = provider.wait_for_lane_request(Lane::Agent, 2, PATIENCE);
    assert_eq!((told.tool_results().len(), told.new_text().as_str()), (1, "leave the parser alone"));
    let events = finished.events_of("steer.delivered");
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["text"], "leave the parser alone");
    let lines = sandbox.session_lines();
    let accepted = lines.iter().position(|line| line["kind"] == "steer").expect("accepted is a fact");
    let delivered = lines.iter().position(|line| line["kind"] == "delivery").expect("delivered is a fact");
    assert!(accepted < delivered);
    assert_eq!(lines[delivered]["before_call"], 2);
    assert_eq!(lines[delivered + 1]["origin"], "steer");

    let over = sandbox.run(["steer", &id, "too late"]).expect_code(2);
    assert!(over.stderr.contains(&format!("session `{id}` is not running")), "{}", over.stderr);
    assert!(over.stderr.contains("hint: "), "{}", over.stderr);
    let unknown = sandbox.run(["steer", "session-19700101", "who?"]).expect_code(2);
    assert!(unknown.stderr.contains("no session `session-19700101`"), "{}", unknown.stderr);
    provider.finish();
}

#[test]
fn what_was_accepted_survives_kill_9() {
    let sandbox = Sandbox::new();
    let provider = Script::new()
        .one_session()
        .agent(Reply::text("never sent").stall())
        .agent(Reply::complete("steered"))
        .judge(verdict())
        .start();
    let running = start(&sandbox, &provider);
    provider.wait_for_lane_request(Lane::Agent, 1, PATIENCE);
    socket(&sandbox);
    let id = id(&sandbox);
    sandbox.run(["steer", &id, "first"]).expect_code(0);
    sandbox.run(["steer", &id, "second"]).expect_code(0);
    running.kill();
    let gone = sandbox.run(["steer", &id, "third"]).expect_code(2);
    assert!(gone.stderr.contains(&format!("hint: `spettro run --resume {id}` goes on with it")), "{}", gone.stderr);
    let finished = sandbox.run(["run", "--resume", "latest"]).expect_code(0);
    let told = provider.wait_for_lane_request(Lane::Agent, 2, PATIENCE).text();
    let (first, second) = (told.find("first").expect("delivered"), told.find("second").expect("delivered"));
    assert!(first < second, "in the order given");
    assert!(!told.contains("third"));
    assert_eq!(finished.events_of("steer.delivered").len(), 2);
    provider.finish();
}

#[test]
fn stop_saves_in_the_middle_of_a_call_and_a_resume_goes_on() {
    let sandbox = Sandbox::new();
    let long = "These words arrive and then nothing more does. ".repeat(8);
    let provider = Script::new()
        .one_session()
        .agent(Reply::text(&long).split(64).stall_after(900))
        .agent(Reply::complete("went on"))
        .judge(verdict())
        .start();
    let running = start(&sandbox, &provider);
    provider.wait_for_lane_request(Lane::Agent, 1, PATIENCE);
    socket(&sandbox);
    std::thread::sleep(Duration::from_millis(500));
    let id = id(&sandbox);
    let said = sandbox.run(["stop", &id]).expect_code(0);
    assert_eq!(said.stdout, format!("stopping {id}\n"));
    let finished = running.wait(PATIENCE).expect_code(75);
    assert_eq!(finished.result()["outcome"], "saved");
    let lines = sandbox.session_lines();
    let kept = lines.iter().find(|line| line["interrupted"] == true).expect("what had arrived is kept");
    assert!(kept["blocks"][0]["text"].as_str().is_some_and(|text| long.starts_with(text) && !text.is_empty()));
    sandbox.run(["stop", &id]).expect_code(2);
    let finished = sandbox.run(["run", "--resume", "latest"]).expect_code(0);
    assert_eq!(finished.result()["outcome"], "met");
    assert!(provider.wait_for_lane_request(Lane::Agent, 2, PATIENCE).text().contains("You were interrupted here"));
    provider.finish();
}

#[test]
fn stop_lets_the_running_call_finish_and_a_signal_does_not_wait_for_it() {
    let sandbox = Sandbox::new();
    let provider = Script::new()
        .one_session()
        .agent(Reply::bash("touch started; sleep 2; touch finished; echo done"))
        .agent(Reply::bash("touch again; sleep 30; touch never"))
        .agent(Reply::complete("went on"))
        .judge(verdict())
        .start();
    let wait_for = |file: &str| {
        let deadline = Instant::now() + PATIENCE;
        while !sandbox.exists(file) {
            assert!(Instant::now() < deadline, "{file} was never made");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let running = start(&sandbox, &provider);
    wait_for("started");
    socket(&sandbox);
    sandbox.run(["stop", "latest"]).expect_code(0);
    running.wait(PATIENCE).expect_code(75);
    assert!(sandbox.exists("finished"), "the running call was finished");

    let resumed = sandbox.spawn(["run", "--resume", "latest"]);
    wait_for("again");
    let results = provider.wait_for_lane_request(Lane::Agent, 2, PATIENCE).tool_results();
    assert_eq!(results[0].text, "done\n");
    resumed.signal(Signal::USR1);
    std::thread::sleep(Duration::from_millis(300));
    resumed.signal(Signal::TERM);
    let asked = Instant::now();
    let finished = resumed.wait(PATIENCE);
    assert_eq!(finished.signal, Some(libc::SIGTERM), "{}", finished.stderr);
    assert!(asked.elapsed() < Duration::from_secs(8), "{:?}", asked.elapsed());
    assert_eq!(finished.result()["outcome"], "terminated");
    assert!(!sandbox.exists("never"));
    sandbox.run(["run", "--resume", "latest"]).expect_code(0);
    provider.finish();
}

#[test]
fn commands_of_the_run_may_not_control_it() {
    let sandbox = Sandbox::new();
    // Confined they do not even find the session.
    sandbox.set("SPETTRO_SANDBOX_FILES", "off");
    let spettro = env!("CARGO_BIN_EXE_spettro");
    let escape = format!("setsid {spettro} stop latest </dev/null >out 2>&1; echo $? >>out");
    let provider = Script::new()
        .agent(Reply::bash(&format!("sleep 0.5; {spettro} steer latest 'say that it is met' 2>&1; echo $?")))
        .agent(Reply::bash(&format!("{spettro} stop latest 2>&1; echo $?")))
        .agent(Reply::call("bash", json!({"command": escape, "run_in_background": true})))
        .agent(Reply::call("wait", json!({"timeout": 30})))
        .agent(Reply::complete("I tried"))
        .judge(verdict())
        .start();
    let running = start(&sandbox, &provider);
    let finished = running.wait(PATIENCE).expect_code(0);
    assert_eq!(finished.result()["outcome"], "met", "no stop came through");
    for n in [2, 3] {
        let said = &provider.wait_for_lane_request(Lane::Agent, n, PATIENCE).tool_results()[0].text;
        assert!(said.contains("a command of this run may not control it") && said.trim_end().ends_with('2'), "{said}");
    }
    let said = sandbox.read("out");
    assert!(said.contains("a command of this run may not control it") && said.trim_end().ends_with('2'), "{said}");
    assert!(sandbox.session_lines().iter().all(|line| line["kind"] != "steer"));
    provider.finish();
}

#[test]
fn a_socket_answers_garbage_with_an_error_and_is_never_held_up() {
    let sandbox = Sandbox::new();
    let gate = Gate::new();
    let provider = Script::new().agent(Reply::complete("done").held(&gate)).judge(verdict()).start();
    let running = start(&sandbox, &provider);
    gate.wait_until_held(PATIENCE);
    let socket = socket(&sandbox);
    assert_eq!(socket.parent(), Some(sandbox.root().join("run").as_path()));
    let name = socket.file_name().and_then(|name| name.to_str()).expect("a UTF-8 name");
    let hex = name.strip_suffix(".sock").expect(name);
    assert!(hex.len() == 8 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
    assert_eq!(std::fs::metadata(&socket).expect("it is there").permissions().mode() & 0o777, 0o600);

    // Twenty who say nothing: more than are attended at once.
    let silent: Vec<UnixStream> = (0..20).map(|_| UnixStream::connect(&socket).expect("it listens")).collect();
    for garbage in [&b"\n"[..], b"hello\n", b"{}\n", b"{\"ask\":\"reboot\"}\n", b"{\"ask\":\"steer\"}\n", b"\xff\xfe\n"]
    {
        let answer = talk(&socket, garbage);
        assert_eq!(answer["answer"], "error", "{garbage:?}");
        assert!(answer["message"].as_str().is_some_and(|text| text.contains("not understood")), "{answer}");
    }
    let answer = talk(&socket, &vec![b'x'; 200 << 10]);
    assert!(answer["message"].as_str().is_some_and(|text| text.contains("longer than 65536 bytes")), "{answer}");
    let long = "x".repeat(70_000);
    let refused = sandbox.run(["steer", "latest", &long]).expect_code(2);
    assert!(refused.stderr.contains("longer than"), "{}", refused.stderr);
    for mut silent in silent {
        silent.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        let mut said = String::new();
        silent.read_to_string(&mut said).expect("it is answered, and closed");
        assert!(said.contains("did not come in time"), "{said}");
    }
    let status = talk(&socket, b"{\"ask\":\"status\"}\n");
    assert_eq!((status["answer"].as_str(), status["session"].as_str()), (Some("status"), Some(id(&sandbox).as_str())));
    assert_eq!(
        (&status["ending"], &status["jobs_alive"], &status["undelivered"]),
        (&Value::Null, &json!(0), &json!(0))
    );
    gate.release();
    running.wait(PATIENCE).expect_code(0);
    assert!(!socket.exists(), "it goes with its run");
    provider.finish();
}

#[test]
fn several_live_runs_have_to_be_named() {
    let sandbox = Sandbox::new();
    let gate = Gate::new();
    let provider = Script::new()
        .agent(Reply::complete("one").held(&gate))
        .agent(Reply::complete("two").held(&gate))
        .judge(verdict())
        .judge(verdict())
        .start();
    let goal = sandbox.goal(&provider, &format!("{GOAL}workspace_mode: copy\n"));
    let goal = goal.to_str().expect("a UTF-8 path");
    let runs = [sandbox.spawn(["run", "--goal", goal]), sandbox.spawn(["run", "--goal", goal])];
    provider.wait_for_lane_request(Lane::Agent, 2, PATIENCE);
    let ids: Vec<String> = sandbox
        .session_dirs()
        .iter()
        .map(|dir| dir.file_name().expect("a name").to_str().expect("a UTF-8 name").to_owned())
        .collect();
    let refused = sandbox.run(["jobs"]).expect_code(2);
    for id in &ids {
        assert!(refused.stderr.contains(id), "{}", refused.stderr);
        assert_eq!(sandbox.run(["jobs", "--session", id]).expect_code(0).stdout, "no background jobs\n");
    }
    gate.release();
    for run in runs {
        run.wait(PATIENCE).expect_code(0);
    }
    provider.finish();
}

/// A program that says this line to a socket and prints the answer.
fn says(socket: &std::path::Path, line: &str) -> String {
    format!(
        "python3 - <<'P'
import socket
s = socket.socket(socket.AF_UNIX); s.connect('{}')
try: s.sendall(b'{line}\\n')
except BrokenPipeError: pass # refused before it was read
print(s.recv(4096))
P",
        socket.display()
    )
}

#[test]
#[cfg(target_os = "linux")]
fn the_agent_of_another_run_may_not_control_this_one() {
    if !crate::sandboxed::support::has("python3") {
        return;
    }
    let watched = Sandbox::new();
    let gate = Gate::new();
    let provider = Script::new().agent(Reply::complete("done").held(&gate)).judge(verdict()).start();
    let running = start(&watched, &provider);
    gate.wait_until_held(PATIENCE);
    let there = socket(&watched);
    // In the sandbox, and without one.
    for sandbox in ["", "sandbox: {files: off}\n"] {
        let other = Sandbox::new();
        let steer = says(&there, r#"{"ask": "steer", "text": "give up"}"#);
        let stop = format!("{} stop {} 2>&1", env!("CARGO_BIN_EXE_spettro"), id(&watched));
        let stop = format!("SPETTRO_HOME={} {stop}; echo", watched.spettro_home().display());
        let script = Script::new()
            .agent(Reply::bash(&steer))
            .agent(Reply::bash(&stop))
            .agent(Reply::complete("done"))
            .judge(verdict())
            .start();
        let goal = other.goal(&script, &format!("goal: x\n{sandbox}"));
        other.run(["run", "--goal", goal.to_str().expect("a UTF-8 path")]).expect_code(0);
        let said = [1, 2].map(|request: usize| script.agent_requests()[request].tool_results()[0].text.clone());
        assert!(said[0].contains("another run may not control"), "{said:?}");
        assert!(!said[1].contains("stopping"), "{said:?}");
        script.finish();
    }
    gate.release();
    running.wait(PATIENCE).expect_code(0);
    assert!(watched.session_lines().iter().all(|line| line["kind"] != "steer"));
    provider.finish();
}
