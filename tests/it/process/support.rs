//! A runner in a process of its own, and a look at what it leaves.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use spettro::process::{Process, ProcessOptions};
use spettro::world::{Captured, Command, CommandKind, Ending, Exec, Finished};

/// Names the test that this process is to run itself.
const INSIDE: &str = "SPETTRO_TEST_INSIDE";

/// Runs `body` in a fresh process: this binary with only the test `name`.
pub fn isolated<F: Future<Output = ()>>(name: &str, body: impl FnOnce(Runner) -> F) {
    if std::env::var(INSIDE).is_ok_and(|inside| inside == name) {
        let runner = Runner::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(body(runner));
    }
    let output = again(name).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{text}\n{errors}", output.status);
    assert!(text.contains("1 passed"), "no test is named {name}:\n{text}");
}

/// This binary, to run the test `name` inside itself.
pub fn again(name: &str) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1", "--include-ignored"]).env(INSIDE, name);
    crate::sandbox::detach(&mut command);
    command
}

/// A runner with a directory of its own.
pub struct Runner {
    pub process: Rc<Process>,
    pub dir: tempfile::TempDir,
}

impl Runner {
    pub fn new() -> Runner {
        Runner::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut ProcessOptions)) -> Runner {
        let dir = tempfile::tempdir().unwrap();
        let mut options = ProcessOptions {
            executable: PathBuf::from(env!("CARGO_BIN_EXE_spettro")),
            environment: vec![
                ("PATH".to_owned(), std::env::var("PATH").unwrap()),
                ("HOME".to_owned(), dir.path().display().to_string()),
            ],
            run_id: format!("run-{}", std::process::id()),
            ledger_dir: Some(dir.path().to_owned()),
            ..ProcessOptions::default()
        };
        change(&mut options);
        Runner { process: spettro::process::start(options).unwrap(), dir }
    }

    pub fn shell(&self, script: &str) -> Command {
        self.argv(&["bash", "-c", script])
    }

    pub fn argv(&self, argv: &[&str]) -> Command {
        Command {
            kind: CommandKind::Tool,
            argv: argv.iter().map(|&argument| argument.to_owned()).collect(),
            cwd: self.dir.path().to_owned(),
            env: Vec::new(),
            timeout: Some(Duration::from_secs(60)),
            grace: Duration::from_secs(2),
            keep_bytes: 2 << 20,
            label: argv.join(" "),
        }
    }

    pub async fn run(&self, script: &str) -> Finished {
        self.process.run(self.shell(script)).await.unwrap()
    }

    /// The pids that scripts have written into `pids`, one a line, once there are `count`.
    pub async fn pids(&self, count: usize) -> Vec<i32> {
        let mut pids = Vec::new();
        eventually(&format!("{count} pids are recorded"), || {
            pids = recorded(self.dir.path());
            pids.len() >= count
        })
        .await;
        pids
    }
}

/// The whole lines of the file `pids` in `dir`.
pub fn recorded(dir: &Path) -> Vec<i32> {
    let text = std::fs::read_to_string(dir.join("pids")).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| line.trim().parse().unwrap()).collect()
}

/// In `/proc` and not a zombie.
pub fn alive(pid: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit_once(')').unwrap().1.trim_start().chars().next().unwrap();
    !matches!(state, 'Z' | 'X')
}

pub fn living(pids: &[i32]) -> Vec<i32> {
    pids.iter().copied().filter(|&pid| alive(pid)).collect()
}

#[track_caller]
pub fn assert_dead(pids: &[i32]) {
    assert!(!pids.is_empty(), "nothing was recorded");
    assert_eq!(living(pids), Vec::<i32>::new(), "of {pids:?}");
}

pub fn parent(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Every child of `pid`, zombies included.
pub fn children(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(child) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        if parent == Some(pid) {
            found.push(child);
        }
    }
    found
}

/// Ends one process that the test knows.
pub fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// Waits for a condition, at most 20 s.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub fn text(output: &Captured) -> String {
    assert_eq!(output.omitted_bytes, 0);
    String::from_utf8([&output.head[..], &output.tail[..]].concat()).unwrap()
}

#[track_caller]
pub fn assert_exited(finished: &Finished, code: i32) {
    assert_eq!(finished.ending, Ending::Exited(code), "{}", String::from_utf8_lossy(&finished.output.head));
}

/// Defines tests that run in a process of their own.
macro_rules! isolated_tests {
    ($($(#[$meta:meta])* async fn $name:ident($runner:ident) $body:block)*) => {$(
        #[test]
        $(#[$meta])*
        fn $name() {
            let path = concat!(module_path!(), "::", stringify!($name));
            let path = path.split_once("::").unwrap().1;
            super::support::isolated(path, |$runner| async move { $body });
        }
    )*};
}
pub(crate) use isolated_tests;

/// Scripts that leave something behind, and how many pids each records.
pub const ESCAPES: &[(usize, &str)] = &[
    (1, "setsid sleep 999 & echo $! >> pids"),
    (1, "set -m; sleep 999 & echo $! >> pids; disown"),
    (1, "nohup sleep 999 >/dev/null 2>&1 & echo $! >> pids"),
    (1, "env -i setsid sleep 999 & echo $! >> pids"),
    (1, "( ( setsid sh -c 'echo $$ >> pids; exec sleep 999' & ) & ) ; until [ -s pids ]; do :; done"),
    (
        1,
        "python3 -c 'import os,time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.closerange(0, 256)
open(\"pids\", \"a\").write(\"%d\\n\" % os.getpid())
time.sleep(999)'; until [ -s pids ]; do :; done",
    ),
];
