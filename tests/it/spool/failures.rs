//! A disk without room, and a kill at the wrong moment.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use spettro::event::Outcome;

use super::support::{all_on_disk, last_result, notices, parts, read_page, results, session_in, spooled};
use crate::goal::support::{Case, met, unmet};
use crate::provider::{Gate, Lane, Reply, Script};
use crate::sandbox::{PATIENCE, Sandbox};

fn print(bytes: usize) -> Reply {
    Reply::bash(&format!("head -c {bytes} /dev/zero | tr '\\0' x"))
}

/// The spool on a disk of its own, which is taken away at the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one of 64 KiB; why not, where that is impossible.
    fn mount(at: PathBuf) -> Result<SmallDisk, String> {
        fs::create_dir_all(&at).map_err(|error| error.to_string())?;
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k,mode=700", "none"]).arg(&at).output();
        match mount {
            Ok(output) if output.status.success() => Ok(SmallDisk(at)),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: whoever still has a file open there keeps nothing else from being removed.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_ends_no_run_and_loses_nothing_while_it_runs() {
    let sandbox = Sandbox::new();
    let home = sandbox.home();
    let disk = Arc::new(Mutex::new(Err("not asked for".to_owned())));
    let for_script = Arc::clone(&disk);
    let script = Script::new()
        .on_lane_request(Lane::Agent, 1, move |_| {
            *for_script.lock().expect("a lock") = SmallDisk::mount(session_in(&home).join("spool"));
        })
        .agent(print(100_000))
        .agent(read_page("spool:1", 99_990, 100))
        .agent(print(101_000))
        .agent(print(3_000))
        .agent(Reply::complete("done"))
        .judge(met());
    let case = Case::within(sandbox, script, "goal: x\n");
    let ended = case.run().expect(Outcome::Met);
    if let Err(why) = &*disk.lock().expect("a lock") {
        eprintln!("skipped: no small disk can be mounted here: {why}");
        return;
    }
    let requests = case.provider.agent_requests();
    let cut = last_result(&requests[1]);
    assert!(cut.contains("use tool-output {\"id\":\"spool:1\"") && !cut.contains("whole output:"), "no file is named");
    let page = last_result(&requests[2]);
    assert_eq!(parts(&page), (100_000, 100_000, false, "x".repeat(10).as_str()));
    let told = notices(&ended, "spool_not_written");
    assert!(told.len() == 1 && told[0].contains("No space left on device"), "{told:?}");
    let there: Vec<(u64, Option<usize>)> =
        spooled(&ended).into_iter().map(|(id, body)| (id, body.map(|body| body.len()))).collect();
    assert_eq!(there, [(1, None), (2, None), (3, Some(3_000))], "what fits is written, and nothing by half");
    case.provider.finish();
}

#[test]
fn a_limit_on_file_sizes_is_told_once_and_a_resume_says_what_is_lost() {
    // The command's output is larger than any file may be; the logs are not.
    let script = Script::new()
        .one_session()
        .agent(print(1_500_000))
        .agent(read_page("1", 1_499_999, 1))
        .agent(Reply::error(401))
        .agent(read_page("1", 0, 1))
        .agent(Reply::complete("done"))
        .judge(met());
    let case = Case::new(script, "goal: x\n");
    let goal = case.goal.to_str().expect("a UTF-8 path");
    let mut command = case.sandbox.command("bash");
    command.env("SPETTRO", env!("CARGO_BIN_EXE_spettro")).env("GOAL", goal);
    command.args(["-c", "trap '' XFSZ; ulimit -f 1024; exec \"$SPETTRO\" run --goal \"$GOAL\""]);
    let finished = case.sandbox.start(command).wait(PATIENCE).expect_code(20);
    assert!(finished.stderr.contains("cannot be written"), "{}", finished.stderr);
    let page = last_result(&case.provider.agent_requests()[2]);
    assert_eq!(parts(&page), (1_500_000, 1_500_000, false, "x"));

    let finished = case.sandbox.run(["run", "--resume", "latest"]).expect_code(0);
    let lost = last_result(&case.provider.agent_requests()[4]);
    assert!(
        lost.contains("`spool:1` is lost: the run that gave it ended before it was written"),
        "{lost}\n{}",
        finished.stderr
    );
    case.provider.finish();
}

#[test]
fn after_a_kill_what_was_being_written_is_lost_and_its_number_is_not_used_again() {
    let gate = Gate::new();
    let script = Script::new()
        .agent(print(20_000))
        .agent(Reply::complete("never heard").held(&gate))
        .agent(read_page("spool:1", 0, 100))
        .agent(print(20_000))
        .agent(Reply::complete("done"))
        .judge(met());
    let case = Case::new(script, "goal: x\n");
    let started = case.start(&[]);
    gate.wait_until_held(PATIENCE);
    assert_eq!(started.running.kill().signal, Some(9));
    gate.release();
    // The kill came in the middle of the write: half of it stands under the other name.
    let spool = case.sandbox.session_dir().join("spool");
    let whole = fs::read(spool.join("1")).expect("it was written meanwhile");
    fs::write(spool.join("1.tmp"), &whole[..7_000]).expect("half of it");
    fs::remove_file(spool.join("1")).expect("removed");

    case.sandbox.run(["run", "--resume", "latest"]).expect_code(0);
    let results = results(&case.provider);
    let lost = &results[results.len() - 2].text;
    assert!(lost.contains("`spool:1` is lost: the run that gave it ended before it was written"), "{lost}");
    assert!(!spool.join("1.tmp").exists());
    assert_eq!(fs::read(spool.join("2")).expect("the next number"), vec![b'x'; 20_000]);
}

#[test]
fn a_signal_waits_for_what_is_being_written() {
    let gate = Gate::new();
    let sandbox = Sandbox::new();
    sandbox.write("long.txt", "some words\n".repeat(4_000));
    let reads = (0..8).fold(Reply::empty(), |reply, n| {
        reply.and_call("file-read", serde_json::json!({"path": "long.txt", "offset": 1 + n, "limit": 1_500}))
    });
    let script = Script::new().agent(reads).agent(Reply::complete("never heard").held(&gate));
    let case = Case::within(sandbox, script, "goal: x\n");
    let started = case.start(&[]);
    gate.wait_until_held(PATIENCE);
    started.running.signal(Signal::TERM);
    let ended = started.end().expect(Outcome::Terminated);
    gate.release();
    all_on_disk(&ended);
    assert_eq!(spooled(&ended).len(), 8);
}

#[test]
fn a_disk_that_stands_still_is_waited_for_in_vain_and_the_run_ends_in_order() {
    let sandbox = Sandbox::new();
    sandbox.write("long.txt", "some words\n".repeat(4_000));
    let home = sandbox.home();
    let read = serde_json::json!({"path": "long.txt", "limit": 1_500});
    let script = Script::new()
        // Whoever opens a FIFO without a reader waits for one, as for a disk that does not answer.
        .on_lane_request(Lane::Agent, 1, move |_| {
            let spool = session_in(&home).join("spool");
            fs::create_dir_all(&spool).expect("a folder");
            rustix::fs::mkfifoat(rustix::fs::CWD, spool.join("1.tmp"), rustix::fs::Mode::RWXU).expect("a FIFO");
        })
        .agent(Reply::call("file-read", read.clone()).and_call("file-read", read))
        .agent(read_page("spool:1", 0, 10))
        .agent(Reply::complete("done"))
        .judge(unmet("no"))
        .agent(read_page("spool:2", 0, 10))
        .agent(Reply::complete("done"))
        .judge(met());
    let case = Case::within(sandbox, script, "goal: x\nlimits: {iterations: 1}\n");
    let ended = case.run().expect(Outcome::Unmet);
    assert_eq!(parts(&last_result(&case.provider.agent_requests()[2])).3, "     1\tsom", "it is read from memory");
    let told = notices(&ended, "spool_not_written");
    assert!(told.len() == 1 && told[0].contains("the disk was too slow for 2 tool outputs"), "{told:?}");
    assert_eq!(ended.facts("end").len(), 1, "the log has its end");
    let took = std::time::Duration::from_millis(ended.result.duration_ms);
    assert!(took >= std::time::Duration::from_secs(3), "{took:?}");

    // The next run finds the disk well, and says what is gone.
    let ended = case.resume(&ended, &["--max-iterations", "2"]).expect(Outcome::Met);
    let lost = last_result(&case.provider.agent_requests()[4]);
    assert!(lost.contains("`spool:2` is lost: the run that gave it ended before it was written"), "{lost}");
    assert!(!ended.dir.as_ref().expect("a session").join("spool/1.tmp").exists());
    case.provider.finish();
}
