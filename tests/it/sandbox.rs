//! A place of its own for one test: HOME, workspace, environment, and the built binary run in it.
//!
//! The binary sees nothing of the machine but PATH: a cleared environment, an empty HOME, default signal
//! dispositions, no terminal, and an empty stdin.
#![allow(dead_code, reason = "a harness: not every test file uses every part")]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;

use crate::provider::{Provider, Wire};

/// The longest a run may take unless the test says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The variable in which a goal finds a provider's key.
pub const KEY_VARIABLE: &str = "SANDBOX_API_KEY";

pub struct Sandbox {
    /// Holds `home`, `work`, `tmp`, `run` and what else the test puts there; removed at the end.
    root: tempfile::TempDir,
    env: RefCell<BTreeMap<String, String>>,
    wire: Cell<Wire>,
}

impl Sandbox {
    pub fn new() -> Sandbox {
        Sandbox::within(tempfile::Builder::new().prefix("spettro-test-").tempdir().expect("a temporary folder"))
    }

    /// At `/tmp/NAME`, for what is recorded to be kept: it names no machine. One at a time.
    pub fn named(name: &str) -> Sandbox {
        let mut builder = tempfile::Builder::new();
        Sandbox::within(builder.prefix(name).rand_bytes(0).tempdir_in("/tmp").expect("a folder that nobody has"))
    }

    fn within(root: tempfile::TempDir) -> Sandbox {
        let path = root.path().canonicalize().expect("the temporary folder exists");
        for name in ["home", "work", "tmp", "run"] {
            fs::create_dir(path.join(name)).expect("the sandbox is writable");
        }
        let text = |path: PathBuf| path.into_os_string().into_string().expect("a UTF-8 path");
        let env = [
            ("PATH", std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".to_owned())),
            ("HOME", text(path.join("home"))),
            ("TMPDIR", text(path.join("tmp"))),
            ("XDG_RUNTIME_DIR", text(path.join("run"))),
        ];
        let env = env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Sandbox { root, env: RefCell::new(env), wire: Cell::new(Wire::Anthropic) }
    }

    /// Goals speak this wire to a provider.
    pub fn wire(self, wire: Wire) -> Sandbox {
        self.wire.set(wire);
        self
    }

    // ------------------------------------------------------------------------------------------- places

    /// The canonical root of everything here.
    pub fn root(&self) -> PathBuf {
        self.root.path().canonicalize().expect("the sandbox exists")
    }

    pub fn home(&self) -> PathBuf {
        self.root().join("home")
    }

    pub fn workspace(&self) -> PathBuf {
        self.root().join("work")
    }

    /// Writes a file of the workspace (or at an absolute path), with its folders.
    pub fn write(&self, path: impl AsRef<Path>, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.workspace().join(path);
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("the sandbox is writable");
        fs::write(&path, text).unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
        path
    }

    /// Reads a file of the workspace (or at an absolute path).
    #[track_caller]
    pub fn read(&self, path: impl AsRef<Path>) -> String {
        let path = self.workspace().join(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("read {}: {error}", path.display()))
    }

    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.workspace().join(path).symlink_metadata().is_ok()
    }

    /// Runs a command of the test's own in the workspace and gives its stdout. Panics when it fails.
    #[track_caller]
    pub fn sh(&self, command: &str) -> String {
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", command])
            .current_dir(self.workspace())
            .env("HOME", self.home())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .stdin(Stdio::null())
            .output()
            .expect("bash runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "`{command}`: {}\n{}", output.status, text(&output.stderr));
        text(&output.stdout)
    }

    /// Makes the workspace a repository with one commit of what is there.
    #[track_caller]
    pub fn git_init(&self) {
        self.sh("git init -q -b main
            git config user.name Test; git config user.email test@example.org; git config commit.gpgsign false
            git add -A; git commit -q --allow-empty -m start");
    }

    // -------------------------------------------------------------------------------------- environment

    /// Sets a variable for all later runs.
    pub fn set(&self, name: &str, value: impl Into<String>) -> &Sandbox {
        self.env.borrow_mut().insert(name.to_owned(), value.into());
        self
    }

    pub fn unset(&self, name: &str) -> &Sandbox {
        self.env.borrow_mut().remove(name);
        self
    }

    // --------------------------------------------------------------------------------------------- goal

    /// Writes `goal.yaml` beside the workspace. What the text does not say itself is added: `version`,
    /// `workspace`, and for the provider `model` and `prices` (3 and 15 dollars per million tokens); a keyed
    /// provider's key goes into the environment.
    pub fn goal(&self, provider: &Provider, yaml: &str) -> PathBuf {
        let model = self.model_yaml(provider, "test/model-1");
        let prices = "prices: {\"test/model-1\": {input: 3.00, output: 15.00}}\n";
        self.goal_with(yaml, &[("model", &model), ("prices", prices)])
    }

    /// The same without a provider.
    pub fn goal_without_model(&self, yaml: &str) -> PathBuf {
        self.goal_with(yaml, &[])
    }

    /// A `model:` line for a provider, for goals that write their own.
    pub fn model_yaml(&self, provider: &Provider, id: &str) -> String {
        let mut key = String::new();
        if let Some(value) = provider.key() {
            self.set(KEY_VARIABLE, value);
            key = format!(", api_key_env: {KEY_VARIABLE}");
        }
        format!(
            "model: {{id: {id}, wire: {}, base_url: \"{}\", context_window: 200000, max_output_tokens: 8192{key}}}\n",
            self.wire.get().name(),
            provider.url(),
        )
    }

    fn goal_with(&self, yaml: &str, more: &[(&str, &str)]) -> PathBuf {
        let workspace = format!("workspace: {}\n", Value::from(self.workspace().to_string_lossy()));
        let mut defaults = vec![("version", "version: 1\n"), ("workspace", &workspace)];
        defaults.extend(more);
        // Text that is no map is the test's own business: it is written as it is.
        let given: Result<BTreeMap<String, serde_yaml::Value>, _> = serde_yaml::from_str(yaml);
        let mut text = yaml.to_owned();
        if let Ok(given) = given {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            for (key, line) in defaults {
                if !given.contains_key(key) {
                    text.push_str(line);
                }
            }
        }
        self.write(self.root().join("goal.yaml"), text)
    }

    // --------------------------------------------------------------------------------------------- runs

    /// Runs the binary to its end. Kills it and panics when that takes longer than [`PATIENCE`].
    #[track_caller]
    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Finished {
        self.spawn(args).wait(PATIENCE)
    }

    /// Starts the binary.
    #[track_caller]
    pub fn spawn<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Running {
        let mut command = self.command(env!("CARGO_BIN_EXE_spettro"));
        command.args(args);
        self.start(command)
    }

    /// A command in the sandbox, for tests that set something up themselves (`stdin`, a file as stdout, …). The
    /// current folder is the workspace.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(&*self.env.borrow()).current_dir(self.workspace());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        detach(&mut command);
        command
    }

    /// Starts a command made by [`Sandbox::command`].
    #[track_caller]
    pub fn start(&self, mut command: Command) -> Running {
        let started = Instant::now();
        let mut child = command.spawn().unwrap_or_else(|error| panic!("start {command:?}: {error}"));
        let stdout = Output::read(child.stdout.take());
        let stderr = Output::read(child.stderr.take());
        Running { child: Some(child), stdout, stderr, started, spettro_home: self.spettro_home() }
    }

    // ----------------------------------------------------------------------------------------- sessions

    /// `SPETTRO_HOME`, or `.spettro` in HOME.
    pub fn spettro_home(&self) -> PathBuf {
        self.env.borrow().get("SPETTRO_HOME").map_or_else(|| self.home().join(".spettro"), PathBuf::from)
    }

    /// The folders of all sessions, the one written last at the end.
    pub fn session_dirs(&self) -> Vec<PathBuf> {
        session_dirs(&self.spettro_home())
    }

    /// The folder of the session written last.
    #[track_caller]
    pub fn session_dir(&self) -> PathBuf {
        self.session_dirs().pop().expect("there is a session")
    }

    /// The whole lines of `session.jsonl` of the session written last.
    #[track_caller]
    pub fn session_lines(&self) -> Vec<Value> {
        json_lines(&self.session_dir().join("session.jsonl"))
    }
}

fn session_dirs(spettro_home: &Path) -> Vec<PathBuf> {
    let list = |dir: PathBuf| {
        let entries = fs::read_dir(dir).into_iter().flatten();
        entries.map(|entry| entry.expect("a readable entry").path()).collect::<Vec<_>>()
    };
    let mut found: Vec<_> = list(spettro_home.join("sessions"))
        .into_iter()
        .flat_map(list)
        .filter_map(|dir| Some((dir.join("session.jsonl").metadata().ok()?.modified().ok()?, dir)))
        .collect();
    found.sort();
    found.into_iter().map(|(_, dir)| dir).collect()
}

/// The lines of a file as JSON; a last one without its line end is left out.
#[track_caller]
pub fn json_lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("read {}: {error}", path.display()));
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    parse_lines(whole, &path.display().to_string())
}

#[track_caller]
fn parse_lines(text: &str, what: &str) -> Vec<Value> {
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{what}: {error}: {line}"))).collect()
}

/// Collects a pipe on a thread of its own.
struct Output(Arc<(Mutex<Collected>, Condvar)>);

#[derive(Default)]
struct Collected {
    bytes: Vec<u8>,
    ended: bool,
}

impl Output {
    fn read(pipe: Option<impl Read + Send + 'static>) -> Output {
        let shared = Arc::new((Mutex::new(Collected { bytes: Vec::new(), ended: pipe.is_none() }), Condvar::new()));
        let for_thread = Arc::clone(&shared);
        if let Some(mut pipe) = pipe {
            std::thread::spawn(move || {
                let mut buffer = vec![0; 64 << 10];
                loop {
                    let read = pipe.read(&mut buffer).unwrap_or(0);
                    let mut collected = for_thread.0.lock().unwrap_or_else(PoisonError::into_inner);
                    collected.bytes.extend_from_slice(&buffer[..read]);
                    collected.ended = read == 0;
                    for_thread.1.notify_all();
                    if read == 0 {
                        return;
                    }
                }
            });
        }
        Output(shared)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.0.lock().unwrap_or_else(PoisonError::into_inner).bytes).into_owned()
    }

    /// Waits until the collected bytes are as asked for; false after the timeout, or when the pipe ended before.
    fn wait(&self, timeout: Duration, right: impl Fn(&Collected) -> bool) -> bool {
        let collected = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.1.wait_timeout_while(collected, timeout, |collected| !right(collected) && !collected.ended);
        right(&waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}

/// A session of its own, so no terminal, and default signal dispositions, whatever the tests were started with:
/// `nohup` and a script's `&` leave signals ignored.
pub fn detach(command: &mut Command) {
    // SAFETY: `setsid`, `signal` and `sigprocmask` are async-signal-safe, and the closure does nothing else.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGPIPE] {
                libc::signal(signal, libc::SIG_DFL);
            }
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
            Ok(())
        });
    }
}

/// A started binary. Killed when it is dropped before its end.
pub struct Running {
    /// Absent after the end.
    child: Option<Child>,
    stdout: Output,
    stderr: Output,
    started: Instant,
    spettro_home: PathBuf,
}

impl Running {
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.as_ref().expect("it is running").id()).expect("a pid fits")
    }

    /// Sends a signal to the binary alone.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid()).expect("a pid is not zero");
        kill_process(pid, signal).expect("the process exists until it is waited for");
    }

    /// `kill -9`, then its end.
    #[track_caller]
    pub fn kill(self) -> Finished {
        self.signal(Signal::KILL);
        self.wait(PATIENCE)
    }

    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// What to write to, when the test gave it a pipe as stdin.
    pub fn stdin(&mut self) -> impl Write {
        self.child.as_mut().and_then(|child| child.stdin.take()).expect("stdin is a pipe")
    }

    /// Waits until stderr holds a text. Panics after `timeout`, or when stderr ended without it.
    #[track_caller]
    pub fn wait_for_stderr(&self, text: &str, timeout: Duration) {
        let found = self.stderr.wait(timeout, |collected| String::from_utf8_lossy(&collected.bytes).contains(text));
        assert!(found, "stderr never said {text:?}:\n{}", self.stderr());
    }

    /// Waits until stdout holds a text. Panics after `timeout`, or when stdout ended without it.
    #[track_caller]
    pub fn wait_for_stdout(&self, text: &str, timeout: Duration) {
        let found = self.stdout.wait(timeout, |collected| String::from_utf8_lossy(&collected.bytes).contains(text));
        assert!(found, "stdout never said {text:?}:\n{}", self.stdout());
    }

    /// Waits for the end. Kills it and panics after `timeout`, and when its output is still held open by somebody
    /// five seconds after its end.
    #[track_caller]
    pub fn wait(mut self, timeout: Duration) -> Finished {
        if !self.ends_within(timeout) {
            let (stdout, stderr) = (self.stdout(), self.stderr());
            drop(self);
            panic!("still running after {timeout:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}");
        }
        let duration = self.started.elapsed();
        let mut child = self.child.take().expect("it is waited for once");
        let status = child.wait().expect("a child can be waited for");
        let a_moment = Duration::from_secs(5);
        for (name, output) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            let ended = output.wait(a_moment, |collected| collected.ended);
            assert!(ended, "it has ended, but another process holds its {name} open");
        }
        Finished {
            code: status.code(),
            signal: status.signal(),
            stdout: self.stdout(),
            stderr: self.stderr(),
            duration,
            spettro_home: self.spettro_home.clone(),
        }
    }

    fn ends_within(&self, timeout: Duration) -> bool {
        let pid = Pid::from_raw(self.pid()).expect("a pid is not zero");
        let handle = pidfd_open(pid, PidfdFlags::empty()).expect("the process exists until it is waited for");
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).expect("a timeout of a test is small");
            match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&left)) {
                Ok(ready) => return ready > 0,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("poll: {error}"),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A binary that has ended.
#[derive(Debug)]
pub struct Finished {
    /// Absent when a signal ended it.
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub duration: Duration,
    spettro_home: PathBuf,
}

impl Finished {
    /// Panics with all that was said unless it exited with this code.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Finished {
        assert!(
            self.code == Some(code),
            "exit code {:?} (signal {:?}) instead of {code}\n--- stdout\n{}\n--- stderr\n{}",
            self.code,
            self.signal,
            self.stdout,
            self.stderr
        );
        self
    }

    /// The result object: stdout with `--output-format json`, that of the last `run.finished` with `jsonl`, else
    /// `result.json` of the session written last.
    #[track_caller]
    pub fn result(&self) -> Value {
        if let Ok(one) = serde_json::from_str::<Value>(&self.stdout)
            && one.get("outcome").is_some()
        {
            return one;
        }
        if self.stdout.starts_with('{') {
            let last = self.events().pop().expect("a line");
            assert_eq!(last["type"], "run.finished", "the last line of its run");
            return last["result"].clone();
        }
        let path = self.session_dir().join("result.json");
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("read {}: {error}", path.display()));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The events: stdout with `--output-format jsonl`, else `events.jsonl` of the session written last (all its
    /// runs).
    #[track_caller]
    pub fn events(&self) -> Vec<Value> {
        let first = self.stdout.lines().next().and_then(|line| serde_json::from_str::<Value>(line).ok());
        if first.is_some_and(|first| first.get("type").is_some()) {
            return parse_lines(&self.stdout, "stdout");
        }
        json_lines(&self.session_dir().join("events.jsonl"))
    }

    /// The events of one type.
    #[track_caller]
    pub fn events_of(&self, kind: &str) -> Vec<Value> {
        self.events().into_iter().filter(|event| event["type"] == kind).collect()
    }

    #[track_caller]
    fn session_dir(&self) -> PathBuf {
        let said = || format!("no session\n--- stdout\n{}\n--- stderr\n{}", self.stdout, self.stderr);
        session_dirs(&self.spettro_home).pop().unwrap_or_else(|| panic!("{}", said()))
    }
}

/// The one table of what differs between two runs of the same thing, for `insta` snapshots.
pub fn filters() -> Vec<(&'static str, &'static str)> {
    vec![
        (r#"(/[^\s"'`:]+)?/spettro-test-[A-Za-z0-9]+"#, "[ROOT]"),
        (r"session-\d{8}-\d{6}-[0-9a-f]{8}", "[SESSION]"),
        (r"run-[0-9a-f]+(-[0-9a-f]+)*", "[RUN]"),
        (r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})", "[TIME]"),
        (r"\d{4}-\d{2}-\d{2}", "[DATE]"),
        (r"\b\d{2}:\d{2}:\d{2}\b", "[CLOCK]"),
        (r"127\.0\.0\.1:\d+", "127.0.0.1:[PORT]"),
        (r"\b[0-9a-f]{64}\b", "[SHA256]"),
        (r#"(_ms"?: *)\d+"#, "$1[MS]"),
        (r#"("?\bpid"?[: ] *)\d+"#, "$1[PID]"),
        (r"\b(\d+h)?(\d+m)?\d+(\.\d+)?(ms|s)\b", "[DURATION]"),
        (r#"(spettro |"version": *")\d+\.\d+\.\d+"#, "$1[VERSION]"),
    ]
}
