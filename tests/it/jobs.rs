//! Background jobs in a whole run: started, waited for, told about, listed and ended from outside, gone at the end.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::provider::{Lane, Provider, Reply, Script};
use crate::sandbox::{Finished, PATIENCE, Running, Sandbox};

const GOAL: &str = "goal: work with jobs\nlimits: {cost: 1.00, time: 10m}\n";

fn start(sandbox: &Sandbox, provider: &Provider) -> Running {
    let goal = sandbox.goal(provider, GOAL);
    sandbox.spawn(["run", "--goal", goal.to_str().expect("a UTF-8 path")])
}

fn job(command: &str) -> Reply {
    Reply::call("bash", json!({"command": command, "run_in_background": true}))
}

fn wait(arguments: Value) -> Reply {
    Reply::call("wait", arguments)
}

fn verdict() -> Reply {
    Reply::verdict("met", "it is done", "")
}

/// The only tool result that the lane's n-th request brought.
#[track_caller]
fn result(provider: &Provider, n: usize) -> String {
    let request = provider.wait_for_lane_request(Lane::Agent, n, PATIENCE);
    let mut results = request.tool_results();
    assert_eq!(results.len(), 1, "request {n}: {results:?}");
    results.remove(0).text
}

fn met(running: Running) -> Finished {
    let finished = running.wait(PATIENCE).expect_code(0);
    assert_eq!(finished.result()["outcome"], "met");
    finished
}

/// A pid that a command wrote; waits for it.
#[track_caller]
fn pid(sandbox: &Sandbox, file: &str) -> i32 {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if sandbox.exists(file)
            && let Ok(pid) = sandbox.read(file).trim().parse()
        {
            return pid;
        }
        assert!(Instant::now() < deadline, "{file} was never written");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A zombie counts as dead.
fn alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[test]
fn a_job_that_prints_while_the_agent_waits_costs_no_calls() {
    let sandbox = Sandbox::new();
    let provider = Script::new()
        .agent(job("for i in $(seq 60); do echo line $i; sleep 0.05; done"))
        .agent(wait(json!({"timeout": 60})))
        .agent(Reply::complete("waited"))
        .judge(verdict())
        .start();
    met(start(&sandbox, &provider));
    assert_eq!(provider.count(Lane::Agent), 3, "start, wait, done");
    let told = result(&provider, 3);
    let (before, after) = told.split_once(" after ").expect(&told);
    assert_eq!(before, "job-1 exited 0");
    assert!(after.ends_with("s; last line: line 60"), "{told}");
    provider.finish();
}

#[test]
fn the_end_of_a_job_is_told_once_at_the_next_step_boundary() {
    let sandbox = Sandbox::new();
    let provider = Script::new()
        .agent(job("echo $$ > pid; printf 'almost\\nthe \\033[31mend\\n'; exit 3"))
        .agent(Reply::bash("while kill -0 $(cat pid) 2>/dev/null; do sleep 0.05; done; sleep 0.3"))
        .agent(Reply::bash("true"))
        .agent(Reply::complete("told"))
        .judge(verdict())
        .start();
    let finished = met(start(&sandbox, &provider));
    let texts: Vec<String> = (2..=4)
        .map(|n| provider.wait_for_lane_request(Lane::Agent, n, PATIENCE).new_text())
        .filter(|text| !text.is_empty())
        .collect();
    assert_eq!(texts, ["job-1 exited with 3 after 0s; last line: the \\x1b[31mend"]);
    let events = finished.events_of("job.finished");
    assert_eq!(events.len(), 1);
    assert_eq!((events[0]["job"].as_str(), events[0]["state"].as_str()), (Some("job-1"), Some("exited with 3")));
    let lines = sandbox.session_lines();
    let kinds: Vec<&str> = lines.iter().filter_map(|line| line["kind"].as_str()).collect();
    let at = kinds.iter().position(|kind| *kind == "job_exited").expect("it is a fact");
    assert_eq!(kinds[at..at + 3], ["job_exited", "delivery", "message"]);
    assert_eq!((lines[at + 1]["what"].as_str(), lines[at + 2]["origin"].as_str()), (Some("job-1"), Some("job")));
    provider.finish();
}

#[test]
fn output_is_read_by_offset_and_a_job_is_ended_by_the_agent() {
    let sandbox = Sandbox::new();
    let provider = Script::new()
        .agent(job("echo $$ > pid; echo one; echo two; exec sleep 1000"))
        .agent(wait(json!({"job_id": "job-1", "pattern": "^two$", "timeout": 30})))
        .agent(Reply::call("job-output", json!({"job_id": "job-1"})))
        .agent(Reply::call("bash", json!({"job_id": "job-1", "offset": 4})))
        .agent(Reply::call("job-output", json!({"job_id": "job-1", "offset": 99})))
        .agent(Reply::call("job-kill", json!({"job_id": "job-1"})))
        .agent(Reply::complete("read"))
        .judge(verdict())
        .start();
    met(start(&sandbox, &provider));
    assert_eq!(result(&provider, 3), "job-1 printed: two\n[next_offset=8]");
    assert_eq!(result(&provider, 4), "job-1 [running] offset=0 next_offset=8 (end so far)\none\ntwo\n");
    assert_eq!(result(&provider, 5), "job-1 [running] offset=4 next_offset=8 (end so far)\ntwo\n");
    assert_eq!(result(&provider, 6), "error: job-1 has printed only 8 bytes so far");
    assert_eq!(result(&provider, 7), "job-1 [killed]; last line: two");
    assert!(!alive(pid(&sandbox, "pid")));
    provider.finish();
}

#[test]
fn the_seventeenth_job_is_refused_with_the_list() {
    let sandbox = Sandbox::new();
    let mut seventeen = job("exec sleep 1001");
    for n in 2..=17 {
        let arguments = json!({"command": format!("exec sleep {}", 1000 + n), "run_in_background": true});
        seventeen = seventeen.and_call("bash", arguments);
    }
    let provider = Script::new().agent(seventeen).agent(Reply::complete("enough")).judge(verdict()).start();
    let finished = met(start(&sandbox, &provider));
    let results = provider.wait_for_lane_request(Lane::Agent, 2, PATIENCE).tool_results();
    assert_eq!(results.len(), 17);
    assert_eq!(results[15].text, "job-16 started; read its output with job-output, wait for it with wait");
    let last = &results[16];
    assert!(last.is_error && last.text.starts_with("error: 16 background jobs are alive already: job-1 ("), "{last:?}");
    for n in 1..=16 {
        assert!(last.text.contains(&format!("job-{n} (exec sleep {})", 1000 + n)), "{}", last.text);
    }
    // They ended with the run, and the log says so.
    let ended = finished.events_of("job.finished");
    assert_eq!(ended.len(), 16);
    assert!(ended.iter().all(|event| event["state"] == "was killed"), "{ended:?}");
    provider.finish();
}

#[test]
fn jobs_are_listed_and_ended_from_another_process() {
    let sandbox = Sandbox::new();
    let provider = Script::new()
        .agent(job("echo $$ > one; exec sleep 1000"))
        .agent(job("(trap '' TERM; echo $BASHPID > two; exec sleep 1000) & sleep 0.2"))
        .agent(job("exit 4"))
        .agent(wait(json!({"job_id": "job-3", "timeout": 30})))
        .agent(wait(json!({"job_id": "job-1", "timeout": 60})))
        .agent(wait(json!({"job_id": "job-2", "timeout": 60})))
        .agent(Reply::complete("both are gone"))
        .judge(verdict())
        .start();
    let running = start(&sandbox, &provider);
    provider.wait_for_lane_request(Lane::Agent, 5, PATIENCE);
    let (one, two) = (pid(&sandbox, "one"), pid(&sandbox, "two"));
    std::thread::sleep(Duration::from_millis(500));

    let listed = sandbox.run(["jobs"]).expect_code(0).stdout;
    let ages = regex::Regex::new(r"\(started \d+s ago\)").expect("a pattern");
    assert_eq!(
        ages.replace_all(&listed, "(started AGE ago)"),
        "background jobs:\n\
         - job-1 [running] echo $$ > one; exec sleep 1000 (started AGE ago)\n\
         - job-2 [leader exited (1 still running)] (trap '' TERM; echo $BASHPID > two; exec sleep 1000) & sleep 0.2 \
         (started AGE ago)\n\
         - job-3 [exited 4] exit 4 (started AGE ago)\n\
         \n\
         kill with spettro jobs kill <id> or all\n"
    );
    assert_eq!(sandbox.run(["jobs", "list"]).expect_code(0).stdout.lines().count(), 6);

    let unknown = sandbox.run(["jobs", "kill", "job-1", "job-9"]).expect_code(2);
    assert!(unknown.stderr.contains("no background job job-9; known: job-1, job-2, job-3"), "{}", unknown.stderr);
    assert!(alive(one), "an unknown id ends nothing");
    assert_eq!(sandbox.run(["jobs", "kill", "job-1"]).expect_code(0).stdout, "job-1 killed\n");
    assert!(!alive(one) && alive(two));
    assert_eq!(sandbox.run(["jobs", "kill", "all"]).expect_code(0).stdout, "job-2 killed\n");
    assert!(!alive(two), "it ignores TERM, and KILL follows");
    met(running);
    let told = provider.wait_for_lane_request(Lane::Agent, 6, PATIENCE);
    assert!(told.tool_results()[0].text.starts_with("job-1 killed after "), "{:?}", told.tool_results());

    let nothing = sandbox.run(["jobs"]).expect_code(0).stdout;
    assert_eq!(nothing, format!("no background jobs: no run of `{}` is live\n", sandbox.workspace().display()));
    let nothing = sandbox.run(["jobs", "kill", "all"]).expect_code(2).stderr;
    assert!(nothing.contains("is live"), "{nothing}");
    provider.finish();
}

#[test]
fn a_turn_that_ends_with_jobs_running_is_told_and_they_end_with_the_run() {
    let sandbox = Sandbox::new();
    let provider = Script::new()
        .agent(job("echo $$ > pid; exec sleep 1000"))
        .agent(Reply::text("I think it is done"))
        .agent(Reply::complete("now it is"))
        .judge(Reply::verdict("unmet", "not yet", "look again"))
        .judge(verdict())
        .start();
    let running = start(&sandbox, &provider);
    let onward = provider.wait_for_lane_request(Lane::Agent, 3, PATIENCE).new_text();
    let note = "Still running in the background: job-1 (echo $$ > pid; exec sleep 1000).";
    assert!(onward.contains(note), "{onward}");
    met(running);
    assert!(!alive(pid(&sandbox, "pid")));
    provider.finish();
}

#[test]
fn after_a_resume_the_agent_knows_that_its_jobs_are_gone_and_numbers_go_on() {
    let sandbox = Sandbox::new();
    let provider = Script::new()
        .one_session()
        .agent(job("echo $$ > pid; exec sleep 1000"))
        .agent(Reply::text("never sent").stall())
        .agent(job("true"))
        .agent(Reply::bash("sleep 0.5"))
        .agent(Reply::complete("started again"))
        .judge(verdict())
        .start();
    let running = start(&sandbox, &provider);
    provider.wait_for_lane_request(Lane::Agent, 2, PATIENCE);
    let pid = pid(&sandbox, "pid");
    running.kill();
    let deadline = Instant::now() + PATIENCE;
    while alive(pid) {
        assert!(Instant::now() < deadline, "the job outlived the runner");
        std::thread::sleep(Duration::from_millis(10));
    }
    let finished = sandbox.run(["run", "--resume", "latest"]).expect_code(0);
    assert_eq!(finished.result()["outcome"], "met");
    let told = provider.wait_for_lane_request(Lane::Agent, 3, PATIENCE).text();
    let note = "The background jobs of the earlier run are gone with it: job-1 (echo $$ > pid; exec sleep 1000). \
                Start again what you still need.";
    assert!(told.contains(note), "{told}");
    assert!(result(&provider, 4).starts_with("job-2 started"));
    provider.finish();
}

#[test]
fn idle_does_not_count_while_the_agent_waits_for_a_job() {
    let sandbox = Sandbox::new();
    let provider = Script::new()
        .agent(job("sleep 3"))
        .agent(wait(json!({"timeout": 30})))
        .agent(Reply::complete("waited"))
        .judge(verdict())
        .start();
    let goal = sandbox.goal(&provider, "goal: wait\nlimits: {cost: 1.00, idle: 1s}\n");
    let finished = sandbox.run(["run", "--goal", goal.to_str().expect("a UTF-8 path")]).expect_code(0);
    assert_eq!(finished.result()["outcome"], "met");
    provider.finish();
}

#[test]
fn a_drain_ends_a_parked_wait_at_once() {
    let sandbox = Sandbox::new();
    let provider = Script::new()
        .one_session()
        .agent(job("exec sleep 1000"))
        .agent(wait(json!({"timeout": 600})))
        .agent(Reply::complete("enough waited"))
        .judge(verdict())
        .start();
    let running = start(&sandbox, &provider);
    provider.wait_for_answer(2, PATIENCE);
    std::thread::sleep(Duration::from_millis(300));
    let asked = Instant::now();
    running.signal(Signal::USR1);
    let finished = running.wait(PATIENCE).expect_code(75);
    assert!(asked.elapsed() < Duration::from_secs(8), "{:?}", asked.elapsed());
    assert_eq!(finished.result()["outcome"], "saved");
    sandbox.run(["run", "--resume", "latest"]).expect_code(0);
    let told = provider.wait_for_lane_request(Lane::Agent, 3, PATIENCE);
    assert_eq!(told.tool_results()[0].text, "[interrupted: the run was stopped during this wait]");
    assert!(told.text().contains("job-1 (exec sleep 1000), which was killed"), "{}", told.new_text());
    provider.finish();
}
