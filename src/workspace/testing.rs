//! A world for the tests of this room: real files and commands, nothing else.
#![allow(clippy::disallowed_methods, reason = "the tests start git by themselves")]

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::world::{
    Boxed, Captured, Command, Ending, Env, Exec, ExecError, Finished, HttpRequest, HttpResponse, JobInfo, RealClock,
    RealDir, RealIds, Transport, TransportError, World,
};

struct NoTransport;

impl Transport for NoTransport {
    fn send(&self, _: HttpRequest) -> Boxed<'_, Result<HttpResponse, TransportError>> {
        Box::pin(async { Err(TransportError::Miss("no provider in this test".into())) })
    }
}

/// Runs commands at once; output unlimited, in one stream as the real one has it.
struct TestExec {
    env: Vec<(String, String)>,
}

impl Exec for TestExec {
    fn run(&self, command: Command) -> Boxed<'_, Result<Finished, ExecError>> {
        let mut child = std::process::Command::new(&command.argv[0]);
        child
            .args(&command.argv[1..])
            .current_dir(&command.cwd)
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap_or_default())
            .envs(self.env.iter().cloned())
            .envs(command.env)
            .stdin(std::process::Stdio::null());
        Box::pin(async move {
            let output = match child.output() {
                Ok(output) => output,
                Err(_) => return Err(ExecError::NotFound(command.argv[0].clone())),
            };
            let mut head = output.stdout;
            head.extend(output.stderr);
            Ok(Finished {
                kept: false,
                ending: Ending::Exited(output.status.code().unwrap_or(-1)),
                output: Captured { head, ..Captured::default() },
                duration: Duration::ZERO,
                leftovers: Vec::new(),
            })
        })
    }

    fn start(&self, _: &str, _: Command) -> Boxed<'_, Result<(), ExecError>> {
        unimplemented!()
    }
    fn jobs(&self) -> Vec<JobInfo> {
        Vec::new()
    }
    fn read(&self, _: &str, _: u64, _: usize) -> Option<(u64, Vec<u8>)> {
        None
    }
    fn kill<'a>(&'a self, _: &'a str) -> Boxed<'a, ()> {
        unimplemented!()
    }
    fn changed(&self) -> Boxed<'_, ()> {
        unimplemented!()
    }
    fn busy(&self) -> bool {
        false
    }
    fn shutdown(&self, _: Duration) -> Boxed<'_, Vec<crate::event::Leaked>> {
        unimplemented!()
    }
}

struct TestEnv(Vec<(String, String)>);

impl Env for TestEnv {
    fn var(&self, name: &str) -> Option<String> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }
    fn vars(&self) -> Vec<(String, String)> {
        self.0.clone()
    }
}

/// A world whose commands and whose own environment have these variables.
pub fn world_with(env: &[(&str, &str)]) -> World {
    let env: Vec<(String, String)> = env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    World {
        transport: Rc::new(NoTransport),
        exec: Rc::new(TestExec { env: env.clone() }),
        dir: Rc::new(RealDir),
        clock: Rc::new(RealClock::new()),
        ids: Rc::new(RealIds::from_seed(b"workspace tests")),
        env: Rc::new(TestEnv(env)),
    }
}

/// No configuration of the person who runs the tests is read.
pub fn world() -> World {
    world_with(&[("HOME", "/nonexistent"), ("GIT_CONFIG_NOSYSTEM", "1")])
}

/// Writes a file and the folders above it.
pub fn write(root: &Path, name: &str, content: impl AsRef<[u8]>) {
    let path = root.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

/// Runs a command that must succeed; its output.
pub fn sh(dir: &Path, script: &str) -> String {
    let output = std::process::Command::new("sh")
        .args(["-euc", script])
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var("PATH").unwrap_or_default())
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .envs([
            ("GIT_AUTHOR_NAME", "a"),
            ("GIT_AUTHOR_EMAIL", "a@example.com"),
            ("GIT_AUTHOR_DATE", "1700000000 +0000"),
        ])
        .envs([("GIT_COMMITTER_NAME", "c"), ("GIT_COMMITTER_EMAIL", "c@example.com")])
        .env("GIT_COMMITTER_DATE", "1700000000 +0000")
        .output()
        .unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a future of the core to its end.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}
