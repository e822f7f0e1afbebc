//! Commands as process groups, where there is nothing better.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::time::{Duration, Instant};

use super::ProcessOptions;
use crate::event::Leaked;
use crate::world::{Boxed, Captured, Command, Ending, Exec, ExecError, Finished, JobInfo};

pub struct Process {
    options: ProcessOptions,
}

impl Process {
    pub(super) fn new(options: ProcessOptions) -> Process {
        Process { options }
    }
}

impl Exec for Process {
    fn run(&self, command: Command) -> Boxed<'_, Result<Finished, ExecError>> {
        Box::pin(async move {
            let begun = Instant::now();
            let name = command.argv.first().cloned().unwrap_or_default();
            let failed = |error: std::io::Error| match error.kind() {
                std::io::ErrorKind::NotFound => ExecError::NotFound(name.clone()),
                std::io::ErrorKind::PermissionDenied => ExecError::NotExecutable(name.clone()),
                _ => ExecError::Failed(name.clone(), error.to_string()),
            };
            if !command.cwd.is_dir() {
                return Err(ExecError::BadCwd(command.cwd.display().to_string()));
            }
            let (mut reader, writer) = std::io::pipe().map_err(failed)?;
            let mut child = {
                let mut spawn = std::process::Command::new(&name);
                spawn.args(&command.argv[1..]).current_dir(&command.cwd).process_group(0);
                spawn.env_clear().envs(self.options.environment.iter().cloned()).envs(command.env.iter().cloned());
                spawn.stdin(std::process::Stdio::null());
                spawn.stdout(writer.try_clone().map_err(failed)?).stderr(writer);
                spawn.spawn().map_err(failed)?
            };
            let pid = rustix::process::Pid::from_child(&child);
            let (done, mut ended) = tokio::sync::oneshot::channel();
            let reading = std::thread::spawn(move || {
                let mut output = Vec::new();
                let read = reader.read_to_end(&mut output);
                read.map(|_| output).unwrap_or_default()
            });
            std::thread::spawn(move || {
                let status = child.wait();
                let _receiver_gone = done.send(status);
            });
            let timeout = command.timeout.unwrap_or(Duration::from_secs(86_400));
            let (status, timed_out) = match tokio::time::timeout(timeout, &mut ended).await {
                Ok(status) => (status, false),
                Err(_) => {
                    let _already_gone = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
                    (ended.await, true)
                }
            };
            let _already_gone = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
            let ending = match status {
                _ if timed_out => Ending::TimedOut,
                Ok(Ok(status)) => match status.code() {
                    Some(code) => Ending::Exited(code),
                    None => Ending::Signaled(status.signal().unwrap_or(0)),
                },
                Ok(Err(_)) | Err(_) => Ending::Lost,
            };
            let output = self.options.secrets.redact(&reading.join().unwrap_or_default()).into_owned();
            let mut captured = Captured::default();
            if output.len() > 2 * command.keep_bytes {
                captured.head = output[..command.keep_bytes].to_vec();
                captured.tail = output[output.len() - command.keep_bytes..].to_vec();
                captured.omitted_bytes = (output.len() - 2 * command.keep_bytes) as u64;
            } else {
                captured.head = output;
            }
            Ok(Finished { ending, output: captured, duration: begun.elapsed(), leftovers: Vec::new() })
        })
    }

    fn start(&self, _job: &str, command: Command) -> Boxed<'_, Result<(), ExecError>> {
        Box::pin(async move { Err(ExecError::Failed(command.label, "background jobs are not there yet".to_owned())) })
    }

    fn jobs(&self) -> Vec<JobInfo> {
        Vec::new()
    }

    fn read(&self, _job: &str, _offset: u64, _limit: usize) -> Option<(u64, Vec<u8>)> {
        None
    }

    fn kill<'a>(&'a self, _job: &'a str) -> Boxed<'a, ()> {
        Box::pin(async {})
    }

    fn changed(&self) -> Boxed<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn busy(&self) -> bool {
        false
    }

    fn shutdown(&self, _grace: Duration) -> Boxed<'_, Vec<Leaked>> {
        Box::pin(async { Vec::new() })
    }
}
