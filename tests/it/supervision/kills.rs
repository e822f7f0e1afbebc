//! Runners, zygotes and supervisors that are killed, and what the next start finds.

use std::io::Write;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::support::{
    IMMUNE, MEEK, Scene, assert_dead, children, eventually, helpers, job, kill, living, met, of_run, parent, within,
};
use crate::provider::{Gate, Lane, Reply, Script};
use crate::sandbox::{PATIENCE, json_lines};

#[test]
fn a_killed_runner_leaves_nothing_and_its_session_goes_on() {
    let scene = Scene::new(
        Script::new()
            .one_session()
            .agent(job(IMMUNE))
            .agent(Reply::bash(IMMUNE))
            .agent(Reply::complete("went on"))
            .judge(met()),
    );
    let running = scene.start();
    let mut pids = scene.pids(6);
    let (zygote, supervisors) = helpers(running.pid());
    assert_eq!(supervisors.len(), 2);
    pids.push(zygote);
    pids.extend(supervisors);
    running.signal(Signal::KILL);
    within(Duration::from_millis(500), "nothing is alive", || living(&pids).is_empty());
    running.wait(PATIENCE);
    let ledger = scene.sandbox.session_dir().join("children.jsonl");
    let known: Vec<i64> = json_lines(&ledger).iter().filter_map(|line| line["pid"].as_i64()).collect();
    assert!(known.contains(&i64::from(zygote)) && known.len() >= 5, "{known:?}");
    let finished = scene.sandbox.run(["run", "--resume", "latest"]).expect_code(0);
    assert!(!finished.stderr.contains("left by a run"), "there was nothing to end: {}", finished.stderr);
    assert!(!ledger.exists(), "a run that leaves nothing leaves no ledger");
    scene.provider.finish();
}

#[test]
fn a_killed_zygote_loses_its_job_and_the_run_goes_on() {
    let gate = Gate::new();
    let scene = Scene::new(
        Script::new()
            .agent(job(IMMUNE))
            .agent(Reply::bash("echo new").held(&gate))
            .agent(Reply::complete("went on"))
            .judge(met()),
    );
    let running = scene.start();
    let pids = scene.pids(3);
    gate.wait_until_held(PATIENCE);
    let (zygote, _) = helpers(running.pid());
    kill(zygote);
    within(Duration::from_secs(1), "its trees are dead", || living(&pids).is_empty());
    eventually("the runner knows", || scene.sandbox.run(["jobs"]).stdout.contains("job-1 [lost]"));
    gate.release();
    let told = scene.provider.wait_for_lane_request(Lane::Agent, 3, PATIENCE);
    assert!(told.text().contains("job-1 was lost with its supervisor"), "{}", told.text());
    assert!(told.tool_results()[0].text.contains("new"));
    let finished = running.wait(PATIENCE).expect_code(0);
    assert_eq!(finished.result()["leaked"], json!([]));
    scene.provider.finish();
}

#[test]
fn a_killed_supervisor_loses_its_job_and_no_other() {
    let gate = Gate::new();
    let scene = Scene::new(
        Script::new()
            .agent(job(IMMUNE))
            .agent(job("echo $$ > meek; exec sleep 999"))
            .agent(Reply::bash("echo new").held(&gate))
            .agent(Reply::complete("went on"))
            .judge(met()),
    );
    let running = scene.start();
    let lost = scene.pids(3);
    gate.wait_until_held(PATIENCE);
    eventually("the other job runs", || scene.sandbox.exists("meek") && scene.sandbox.read("meek").ends_with('\n'));
    let meek: i32 = scene.sandbox.read("meek").trim().parse().expect("a pid");
    // The leader is the child of its supervisor; the others may be, once their parents are gone.
    let supervisor = lost.iter().map(|&pid| parent(pid)).find(|&pid| parent(pid) == helpers(running.pid()).0);
    kill(supervisor.expect("the leader's parent is the zygote's child"));
    within(Duration::from_secs(1), "its tree is dead", || living(&lost).is_empty());
    assert_eq!(living(&[meek]), [meek]);
    eventually("the runner knows", || scene.sandbox.run(["jobs"]).stdout.contains("job-1 [lost]"));
    gate.release();
    let told = scene.provider.wait_for_lane_request(Lane::Agent, 4, PATIENCE).text();
    assert!(told.contains("job-1 was lost with its supervisor") && !told.contains("job-2 was lost"), "{told}");
    running.wait(PATIENCE).expect_code(0);
    assert_dead(&[meek]);
    scene.provider.finish();
}

#[test]
fn what_nobody_could_end_is_ended_by_the_next_start_and_strangers_are_not() {
    let scene = Scene::new(
        Script::new()
            .one_session()
            .agent(job(
                "trap '' TERM; setsid bash -c 'trap \"\" HUP; echo $$ >> pids; sleep 999' & echo $$ >> pids; wait",
            ))
            .agent(Reply::bash("sleep 999"))
            .agent(Reply::complete("went on"))
            .judge(met()),
    );
    let running = scene.start();
    let pids = scene.pids(2);
    eventually("the command runs", || helpers(running.pid()).1.len() == 2);
    let session = scene.sandbox.session_dir();
    let ledger = session.join("children.jsonl");
    let run = json_lines(&ledger)[0]["run"].as_str().expect("a run").to_owned();
    // Stopped first, so that none of them can act on the death of another.
    let (zygote, supervisors) = helpers(running.pid());
    let all: Vec<i32> = supervisors.into_iter().chain([zygote, running.pid()]).collect();
    for signal in [Signal::STOP, Signal::KILL] {
        for &pid in &all {
            kill_process(Pid::from_raw(pid).expect("a pid"), signal).expect("it lives");
        }
    }
    running.wait(PATIENCE);
    // Leaders die with their supervisors; what they started lives, and nobody looks after it.
    eventually("the helpers are dead", || living(&all).is_empty());
    let left: Vec<i32> = living(&pids);
    assert!(!left.is_empty(), "something is left to find: {pids:?}");

    // A stranger that has got a number of the ledger: same pid, boot and namespace, another start.
    let mut stranger = std::process::Command::new("sleep").arg("60").spawn().expect("sleep runs");
    let mut line = json_lines(&ledger)[0].clone();
    line["pid"] = stranger.id().into();
    let mut file = std::fs::OpenOptions::new().append(true).open(&ledger).expect("the ledger");
    writeln!(file, "{line}").expect("the ledger is writable");
    drop(file);

    // Any start finds them, not only that of the same session.
    let begun = Instant::now();
    let finished = scene.sandbox.run(["run", "--resume", "latest", "--output-format", "jsonl"]).expect_code(0);
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_dead(&left);
    assert_eq!(of_run(&run), Vec::<i32>::new());
    assert!(stranger.try_wait().expect("a child").is_none(), "the stranger was not touched");
    stranger.kill().expect("it lives");
    stranger.wait().expect("a child");
    let notices: Vec<String> = finished
        .events_of("notice")
        .iter()
        .filter_map(|event| event["text"].as_str().map(str::to_owned))
        .filter(|text| text.contains("left by a run that was killed"))
        .collect();
    assert_eq!(notices.len(), 1, "{notices:?}");
    // One that was seen alive may have died of its supervisor's death before it could be swept.
    assert!(left.iter().any(|pid| notices[0].contains(&pid.to_string())), "{notices:?}");
    assert!(!ledger.exists());
    scene.provider.finish();
}

#[test]
fn looking_for_crashed_runs_costs_next_to_nothing_when_there_are_none() {
    let scene = Scene::new(Script::new().agent(Reply::complete("done").forever()).judge(met().forever()));
    scene.start().wait(PATIENCE).expect_code(0);
    let session = scene.sandbox.session_dir();
    for number in 0..2_000 {
        let other = session.with_file_name(format!("session-20200101-000000-{number:08x}"));
        std::fs::create_dir(&other).expect("the store is writable");
    }
    let checks = "goal: none\nchecks: [{name: yes, run: 'true'}]\n";
    let goal = scene.sandbox.goal_without_model(checks);
    let begun = Instant::now();
    scene.sandbox.run([std::path::Path::new("checks"), &goal]);
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(1_000), "{took:?}");
    scene.provider.finish();
}

#[test]
fn a_killed_runner_has_no_children_left_to_anybody() {
    let scene = Scene::new(Script::new().agent(job(MEEK)).agent(Reply::text("never").stall()));
    let running = scene.start();
    let pids = scene.pids(1);
    let runner = running.pid();
    assert_eq!(children(runner).len(), 1, "the zygote alone");
    running.kill();
    within(Duration::from_millis(500), "the job is dead", || living(&pids).is_empty());
    scene.provider.finish();
}
