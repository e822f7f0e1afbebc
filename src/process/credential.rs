//! The command that prints a key. It is the operator's own, so it runs outside of any sandbox and sees the operator's
//! environment, but for the provider keys; nothing of what it prints is shown or kept here. Like every command it is
//! supervised: nothing that it starts is left.

use std::path::PathBuf;
use std::time::Duration;

use super::ProcessOptions;
use crate::world::{Boxed, Command, CommandKind, Ending, Env, Exec, RealEnv, user_home};

/// It may have to speak to a server, but not to a person.
const PATIENCE: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(1);
/// No key is longer.
const MOST_BYTES: usize = 64 << 10;
/// Runs its arguments; what they have to say beside the key is nobody's business here.
const QUIETLY: [&str; 4] = ["sh", "-c", "exec \"$@\" 2>/dev/null", "sh"];

/// Runs `argv` in the home directory, with a helper of its own: the run's starts nothing outside of the sandbox. When
/// the result is no longer waited for, the command is ended.
///
/// `hidden`: variables that it does not see. The error reads after the command's name.
pub fn key_command(argv: Vec<String>, hidden: Vec<String>, run_id: String) -> Boxed<'static, Result<Vec<u8>, String>> {
    Box::pin(async move {
        let mut environment = RealEnv.vars();
        environment.retain(|(name, _)| !hidden.contains(name));
        // By it the sweep of a later start finds what a crash leaves.
        environment.push(("SPETTRO_RUN_ID".to_owned(), run_id.clone()));
        let process = super::start(ProcessOptions { environment, run_id, ..ProcessOptions::default() })
            .map_err(|error| format!("cannot be started: {error}"))?;
        let command = Command {
            kind: CommandKind::Setup,
            argv: QUIETLY.iter().map(|word| (*word).to_owned()).chain(argv).collect(),
            cwd: user_home(&RealEnv).filter(|home| home.is_dir()).unwrap_or_else(|| PathBuf::from("/")),
            env: Vec::new(),
            timeout: Some(PATIENCE),
            grace: GRACE,
            keep_bytes: MOST_BYTES,
            label: "key command".to_owned(),
        };
        let finished = process.run(command).await;
        process.shutdown(Duration::ZERO).await;
        let finished = finished.map_err(|error| format!("cannot be started: {error}"))?;
        match finished.ending {
            Ending::Exited(0) if finished.output.omitted_bytes == 0 => Ok(finished.output.joined()),
            Ending::Exited(0) => Err("printed too much to be a key".to_owned()),
            Ending::Exited(127) => Err("failed: there is no such program (exit code 127)".to_owned()),
            Ending::Exited(code) => Err(format!("failed with exit code {code}")),
            Ending::Signaled(signal) => Err(format!("was ended by signal {signal}")),
            Ending::TimedOut => Err(format!("took longer than {}", humantime::format_duration(PATIENCE))),
            Ending::TooManyProcesses => Err("started too many processes".to_owned()),
            Ending::Lost | Ending::Cancelled => Err("was ended".to_owned()),
        }
    })
}
