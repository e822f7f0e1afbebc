//! Commands and jobs that really run, each beside its recording. spettro's own git is answered from the recording.
//!
//! Invariant: what the recording does not hold is not started.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::super::cursor::Cursor;
use super::super::diff::{diff, guess};
use super::super::exec::TapeExec;
use super::super::finding::{Aspect, Divergence, Guess};
use super::super::ground::Ground;
use crate::event::Leaked;
use crate::session::{CommandEnd, CommandRun, Fact};
use crate::world::{Boxed, Captured, Clock, Command, CommandKind, Exec, ExecError, Finished, JobInfo, JobState};

pub struct LiveExec {
    cursor: Rc<Cursor>,
    ground: Rc<Ground>,
    tape: TapeExec,
    real: Rc<dyn Exec>,
    clock: Rc<dyn Clock>,
    /// Commands whose end is waited for.
    running: Cell<u64>,
}

/// A job that had ended by now when it was recorded is waited for so long: no reply takes its time any more.
const LATER: Duration = Duration::from_secs(60);

/// A command that is waited for.
struct Waiting<'a>(&'a LiveExec);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.running.set(self.0.running.get() - 1);
        self.0.cursor.stir();
    }
}

impl LiveExec {
    pub fn new(
        cursor: Rc<Cursor>,
        ground: Rc<Ground>,
        tape: TapeExec,
        real: Rc<dyn Exec>,
        clock: Rc<dyn Clock>,
    ) -> LiveExec {
        LiveExec { cursor, ground, tape, real, clock, running: Cell::new(0) }
    }

    /// Whether a command is waited for.
    pub fn is_waited_for(&self) -> bool {
        self.running.get() > 0
    }

    /// Whether a job lives.
    pub fn has_jobs(&self) -> bool {
        self.real.jobs().iter().any(|job| job.state.alive())
    }

    /// Waits for the jobs whose end the recorded loop heard of behind a place, before its next request.
    pub async fn ended_behind(&self, place: usize) {
        let part = &self.cursor.part;
        let boundary = (place..part.range.end).map(|at| part.fact(at));
        let boundary = boundary.take_while(|fact| {
            !matches!(fact, Fact::Call(_) | Fact::Turn { .. } | Fact::Halted { .. } | Fact::Interrupted { .. })
        });
        let ended: Vec<&String> = boundary
            .filter_map(|fact| match fact {
                Fact::JobExited { job, .. } => Some(job),
                _ => None,
            })
            .collect();
        if ended.is_empty() {
            return;
        }
        let _waiting = self.waiting();
        let mut too_late = self.clock.sleep(LATER);
        loop {
            let changed = self.real.changed();
            if !self.real.jobs().iter().any(|job| ended.contains(&&job.id) && job.state.alive()) {
                return;
            }
            tokio::select! {
                () = changed => {}
                () = &mut too_late => return,
            }
        }
    }

    fn waiting(&self) -> Waiting<'_> {
        self.running.set(self.running.get() + 1);
        Waiting(self)
    }

    /// The end of the replay, with both sides.
    fn part(&self, command: &Command, text: String, recorded: &str, now: &str) {
        let what = match command.kind {
            CommandKind::Tool | CommandKind::Job => Aspect::Tools,
            _ => Aspect::Events,
        };
        let divergence = self.cursor.differs(what, text);
        let guess = guess(recorded, now).unwrap_or(Guess::ToolResult);
        self.cursor.fatal(Divergence { diff: diff(recorded, now), guess, ..divergence });
    }

    /// Whether a command came to what was recorded; where it did not, the replay ends.
    fn same(&self, command: &Command, told: &Recorded<'_>, now: &Result<Finished, ExecError>) -> bool {
        let (end, output) = match now {
            Ok(finished) => (CommandEnd::of(finished.ending), &finished.output),
            Err(error) => (CommandEnd::of_error(error), &Captured::default()),
        };
        let texts = || (text(&told.output), text(output));
        if end != told.run.end {
            let label = &command.label;
            let (recorded, now) = texts();
            let words = format!("`{label}` {} instead of {}", words(&end), words(&told.run.end));
            self.part(command, words, &recorded, &now);
            return false;
        }
        if *output != told.output && command.kind != CommandKind::Setup {
            let (recorded, now) = texts();
            if command.kind == CommandKind::Check && guess(&recorded, &now) == Some(Guess::Clock) {
                // How long something took is told by many checks, and decides nothing.
                return true;
            }
            self.part(command, format!("`{}` gives something else", command.label), &recorded, &now);
            return false;
        }
        let mut left: Vec<&str> = now.iter().flat_map(|done| &done.leftovers).map(|one| one.name.as_str()).collect();
        let mut had: Vec<&str> = told.run.leftovers.iter().map(|(_, name)| name.as_str()).collect();
        left.sort_unstable();
        had.sort_unstable();
        if left != had {
            let words = format!("`{}` leaves other processes behind", command.label);
            self.part(command, words, &had.join("\n"), &left.join("\n"));
            return false;
        }
        true
    }

    async fn beside(&self, command: Command) -> Result<Finished, ExecError> {
        let (turn, run) = self.tape.recorded(&command).await;
        let finished = {
            let _waiting = self.waiting();
            self.real.run(command.clone()).await
        };
        if self.cursor.stop.get().is_some() {
            return std::future::pending().await;
        }
        let told = Recorded { run, output: self.tape.output(command.kind, run) };
        match told.run.end {
            // Where it stopped is chance; it is not said to have come further.
            CommandEnd::Cancelled | CommandEnd::Dropped | CommandEnd::TimedOut | CommandEnd::Lost => {
                self.ground.doubt("a command was stopped while it ran");
            }
            _ if !self.same(&command, &told, &finished) => return std::future::pending().await,
            _ => {}
        }
        let place = turn.place();
        drop(turn);
        if command.kind == CommandKind::Tool {
            self.ended_behind(place).await;
        }
        match run.finished(told.output, Duration::from_millis(run.duration_ms)) {
            Some(finished) => finished,
            None => std::future::pending().await,
        }
    }

    async fn start_beside(&self, job: &str, command: Command) -> Result<(), ExecError> {
        let (turn, run) = self.tape.recorded(&command).await;
        let started = {
            let _waiting = self.waiting();
            self.real.start(job, command.clone()).await
        };
        self.ground.doubt("a job was running");
        let end = started.as_ref().map_or_else(CommandEnd::of_error, |()| CommandEnd::Started);
        if end != run.end {
            let words = format!("`{}` {} instead of {}", command.label, words(&end), words(&run.end));
            self.part(&command, words, "", "");
            return std::future::pending().await;
        }
        let place = turn.place();
        drop(turn);
        self.ended_behind(place).await;
        started
    }
}

/// What is recorded of a command.
struct Recorded<'a> {
    run: &'a CommandRun,
    output: Captured,
}

fn text(output: &Captured) -> String {
    String::from_utf8_lossy(&output.joined()).into_owned()
}

fn words(end: &CommandEnd) -> String {
    match end {
        CommandEnd::Exited(status) => format!("exits with {status}"),
        CommandEnd::Signaled(signal) => format!("ends by signal {signal}"),
        CommandEnd::TimedOut => "takes too long".to_owned(),
        CommandEnd::Lost => "is lost".to_owned(),
        CommandEnd::Cancelled | CommandEnd::Dropped => "is stopped".to_owned(),
        CommandEnd::TooManyProcesses => "has too many processes".to_owned(),
        CommandEnd::Started => "starts".to_owned(),
        CommandEnd::Refused { words, .. } => format!("is not started ({})", words.join(": ")),
    }
}

impl Exec for LiveExec {
    fn run(&self, command: Command) -> Boxed<'_, Result<Finished, ExecError>> {
        match command.kind {
            CommandKind::Git => self.tape.run(command),
            _ => Box::pin(self.beside(command)),
        }
    }

    fn start(&self, job: &str, command: Command) -> Boxed<'_, Result<(), ExecError>> {
        let job = job.to_owned();
        Box::pin(async move { self.start_beside(&job, command).await })
    }

    /// A job whose end the recorded loop had not seen here yet runs on, whatever it does: deliveries stand on the
    /// logical clock. One that ended as recorded took as long.
    fn jobs(&self) -> Vec<JobInfo> {
        self.cursor.stir();
        let told = self.tape.stand();
        let mut jobs = self.real.jobs();
        for job in &mut jobs {
            if job.state.alive() {
                continue;
            }
            match told.iter().find(|other| other.id == job.id && !other.state.alive()) {
                None => (job.state, job.ended) = (JobState::Running, None),
                Some(told) if told.state == job.state => (job.started, job.ended) = (told.started, told.ended),
                Some(_) => {}
            }
        }
        jobs
    }

    fn read(&self, job: &str, offset: u64, limit: usize) -> Option<(u64, Vec<u8>)> {
        self.real.read(job, offset, limit)
    }

    fn kill<'a>(&'a self, job: &'a str) -> Boxed<'a, ()> {
        Box::pin(async move {
            let _waiting = self.waiting();
            self.real.kill(job).await;
        })
    }

    fn changed(&self) -> Boxed<'_, ()> {
        self.real.changed()
    }

    fn busy(&self) -> bool {
        self.real.busy()
    }

    fn shutdown(&self, grace: Duration) -> Boxed<'_, Vec<Leaked>> {
        Box::pin(async move {
            let _waiting = self.waiting();
            self.real.shutdown(grace).await
        })
    }
}
