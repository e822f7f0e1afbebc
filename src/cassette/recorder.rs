//! An `Exec` that writes down what commands gave and how jobs stood, so that a replay needs none.
//!
//! Invariant: what is written down is what the caller got, and it stands in the log before the caller's own facts.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::records::hex;
use crate::event::Leaked;
use crate::session::{Blob, CommandEnd, CommandRun, Fact, INLINE_BYTES, INLINE_OWN_BYTES, JobSeen, Printed, Session};
use crate::world::{Boxed, Captured, Command, CommandKind, Exec, ExecError, Finished, JobInfo, JobState, Secrets};

/// The places that a command may name, and that are others in a replay.
#[derive(Debug, Clone)]
pub struct Places {
    pub session: PathBuf,
    pub workspace: PathBuf,
    /// The top of the repository that the workspace is in.
    pub repository: Option<PathBuf>,
    /// What a recording has other words for.
    pub secrets: Secrets,
}

impl Places {
    /// sha256 of what a command starts and where, with the places by their roles.
    pub fn digest(&self, command: &Command) -> String {
        let mut hash = Sha256::new();
        let mut put = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        put(&format!("{:?}", command.kind));
        put(&self.by_role(&command.cwd.to_string_lossy()));
        if command.kind == CommandKind::Git {
            // What stands before it leads git past the user's own variables; what is left out of an answer depends on
            // where spettro's own files are.
            let asked = command.argv.iter().skip_while(|arg| *arg != "git").filter(|arg| !arg.starts_with(":("));
            asked.for_each(|arg| put(&self.by_role(arg)));
        } else {
            command.argv.iter().for_each(|arg| put(&self.secrets.redact_str(arg)));
        }
        // Of git's the values are places; others may be masked where a configuration is stored.
        command.env.iter().for_each(|(name, _)| put(name));
        hex(&hash.finalize())
    }

    fn by_role(&self, text: &str) -> String {
        let mut roles: Vec<(&Path, &str)> = vec![(&self.session, "«session»"), (&self.workspace, "«workspace»")];
        roles.extend(self.repository.as_deref().map(|path| (path, "«repository»")));
        // Of places within each other the inner one is meant.
        roles.sort_by_key(|(path, _)| std::cmp::Reverse(path.as_os_str().len()));
        roles.iter().fold(text.to_owned(), |text, (path, role)| text.replace(&*path.to_string_lossy(), role))
    }
}

/// The `Exec` of a run that is recorded.
pub struct Recorder {
    inner: Rc<dyn Exec>,
    session: Session,
    places: Places,
    /// As they were written down last.
    told: RefCell<BTreeMap<String, JobState>>,
}

impl Recorder {
    pub fn new(inner: Rc<dyn Exec>, session: Session, places: Places) -> Recorder {
        Recorder { inner, session, places, told: RefCell::default() }
    }

    fn fact(&self, command: &Noted, end: CommandEnd, duration: Duration) -> CommandRun {
        CommandRun {
            purpose: command.kind.into(),
            label: command.label.clone(),
            sha256: command.sha256.clone(),
            end,
            duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
            output: Printed::default(),
            leftovers: Vec::new(),
            kept: false,
        }
    }

    fn noted(&self, command: &Command) -> Noted {
        Noted { kind: command.kind, label: command.label.clone(), sha256: self.places.digest(command) }
    }

    fn write(&self, fact: CommandRun) {
        self.session.aside(Fact::Command(Box::new(fact)));
    }

    fn printed(&self, kind: CommandKind, output: &Captured) -> Printed {
        let (head_bytes, tail_bytes) = (output.head.len() as u64, output.tail.len() as u64);
        let printed = Printed { head_bytes, tail_bytes, omitted_bytes: output.omitted_bytes, ..Printed::default() };
        let kept = head_bytes + tail_bytes;
        match kind {
            // Whoever asked for it spools what it makes of it.
            CommandKind::Tool | CommandKind::Check if kept > INLINE_BYTES => {
                Printed { spool: Some(self.session.spool().offer(output.clone())), ..printed }
            }
            _ if kept > INLINE_OWN_BYTES => {
                Printed { spool: Some(self.session.spool().put(output.joined().into())), ..printed }
            }
            _ if kept > 0 => Printed { bytes: Some(Blob([&output.head[..], &output.tail].concat())), ..printed },
            _ => printed,
        }
    }
}

/// What of a command is written down.
struct Noted {
    kind: CommandKind,
    label: String,
    sha256: String,
}

/// Writes down that nobody waited for a command's end.
struct Waiting<'a> {
    recorder: &'a Recorder,
    command: Option<Noted>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(command) = self.command.take()
            && !std::thread::panicking()
        {
            self.recorder.write(self.recorder.fact(&command, CommandEnd::Dropped, Duration::ZERO));
        }
    }
}

impl Exec for Recorder {
    fn run(&self, command: Command) -> Boxed<'_, Result<Finished, ExecError>> {
        Box::pin(async move {
            let mut waiting = Waiting { recorder: self, command: Some(self.noted(&command)) };
            let finished = self.inner.run(command).await;
            if let Some(command) = waiting.command.take() {
                let fact = match &finished {
                    Ok(finished) => CommandRun {
                        output: self.printed(command.kind, &finished.output),
                        leftovers: finished
                            .leftovers
                            .iter()
                            .map(|left| (left.pid, self.places.secrets.redact_str(&left.name).into_owned()))
                            .collect(),
                        kept: finished.kept,
                        ..self.fact(&command, CommandEnd::of(finished.ending), finished.duration)
                    },
                    Err(error) => self.fact(&command, CommandEnd::of_error(error), Duration::ZERO),
                };
                self.write(fact);
            }
            finished
        })
    }

    fn start(&self, job: &str, command: Command) -> Boxed<'_, Result<(), ExecError>> {
        let job = job.to_owned();
        Box::pin(async move {
            let noted = self.noted(&command);
            let started = self.inner.start(&job, command).await;
            let end = started.as_ref().map_or_else(CommandEnd::of_error, |()| CommandEnd::Started);
            self.write(self.fact(&noted, end, Duration::ZERO));
            started
        })
    }

    fn jobs(&self) -> Vec<JobInfo> {
        let jobs = self.inner.jobs();
        let mut told = self.told.borrow_mut();
        let news: Vec<JobSeen> =
            jobs.iter().filter(|job| told.get(&job.id) != Some(&job.state)).map(JobSeen::of).collect();
        if !news.is_empty() {
            told.extend(jobs.iter().map(|job| (job.id.clone(), job.state.clone())));
            drop(told);
            self.session.aside(Fact::Jobs { jobs: news });
        }
        jobs
    }

    fn read(&self, job: &str, offset: u64, limit: usize) -> Option<(u64, Vec<u8>)> {
        self.inner.read(job, offset, limit)
    }

    fn kill<'a>(&'a self, job: &'a str) -> Boxed<'a, ()> {
        self.inner.kill(job)
    }

    fn changed(&self) -> Boxed<'_, ()> {
        self.inner.changed()
    }

    fn busy(&self) -> bool {
        self.inner.busy()
    }

    fn shutdown(&self, grace: Duration) -> Boxed<'_, Vec<Leaked>> {
        self.inner.shutdown(grace)
    }
}
