//! The command that prints a key. It is the operator's own, so it runs outside of any sandbox and sees the operator's
//! environment, but for the provider keys; nothing of what it prints is shown or kept here.

use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::world::Boxed;

/// It may have to speak to a server, but not to a person.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(5);
/// No key is longer.
const MOST_BYTES: u64 = 64 << 10;

/// Runs `argv` on a thread of its own. When the result is no longer waited for, the command is killed.
///
/// `hidden`: variables that it does not see. The error reads after the command's name.
pub fn key_command(argv: Vec<String>, hidden: Vec<String>, run_id: String) -> Boxed<'static, Result<Vec<u8>, String>> {
    Box::pin(async move {
        let given_up = GivenUp(Arc::default());
        let flag = given_up.0.clone();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let thread = std::thread::Builder::new().name("key".to_owned()).spawn(move || {
            // Whoever waited may be gone by now.
            let _ = sender.send(run(&argv, &hidden, &run_id, &flag));
        });
        let thread = thread.map_err(|error| format!("was not started: {error}"))?;
        let result = receiver.await.unwrap_or_else(|_| Err("was not started".to_owned()));
        drop(thread);
        result
    })
}

/// Set when it is dropped.
struct GivenUp(Arc<AtomicBool>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn run(argv: &[String], hidden: &[String], run_id: &str, given_up: &AtomicBool) -> Result<Vec<u8>, String> {
    let [program, arguments @ ..] = argv else { return Err("is empty".to_owned()) };
    // A file and no pipe: what it leaves running must not keep its output open.
    let mut output = tempfile::tempfile().map_err(|error| format!("has no place for its output: {error}"))?;
    let stdout = output.try_clone().map_err(|error| format!("has no place for its output: {error}"))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(stdout).stderr(Stdio::null()).process_group(0);
    for name in hidden {
        command.env_remove(name);
    }
    // By it the sweep of a later start finds what a crash leaves.
    command.env("SPETTRO_RUN_ID", run_id);
    let mut child = command.spawn().map_err(|error| format!("cannot be started: {error}"))?;
    let ended = wait(&mut child, given_up);
    end_group(&child);
    let status = match ended {
        Ok(Some(status)) => status,
        other => {
            if let Err(error) = child.wait() {
                tracing::warn!(%error, "the key command cannot be waited for");
            }
            return Err(match other {
                Err(error) => format!("cannot be waited for: {error}"),
                _ => format!("took longer than {}", humantime::format_duration(PATIENCE)),
            });
        }
    };
    if !status.success() {
        return Err(format!("failed ({status})"));
    }
    let mut bytes = Vec::new();
    let read = output.seek(SeekFrom::Start(0)).and_then(|_| output.take(MOST_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|error| format!("printed what cannot be read: {error}"))?;
    if bytes.len() as u64 > MOST_BYTES { Err("printed too much to be a key".to_owned()) } else { Ok(bytes) }
}

/// `None` when it took too long or nobody waits any more.
fn wait(child: &mut Child, given_up: &AtomicBool) -> std::io::Result<Option<std::process::ExitStatus>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline || given_up.load(Ordering::Acquire) {
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

/// Ends it with all that it has started, and what it left running.
fn end_group(child: &Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(Err(error)) = group.map(|group| kill_process_group(group, Signal::KILL)) {
        // Usually there is nothing left of it.
        tracing::debug!(%error, "the key command's group");
    }
}
