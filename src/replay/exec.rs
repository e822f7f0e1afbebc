//! Commands and jobs from the recording. Invariant: no process starts.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::cursor::Cursor;
use super::finding::Aspect;
use crate::cassette::Places;
use crate::event::Leaked;
use crate::session::{CommandRun, Fact, JobSeen, JobStands, Spool};
use crate::world::{Boxed, Captured, Command, CommandKind, Exec, ExecError, Finished, JobInfo};

pub struct TapeExec {
    cursor: Rc<Cursor>,
    places: Places,
    /// The replay's own, which counts as the recorded one did.
    spool: Rc<Spool>,
    /// Up to where job facts were taken, and the last one of each job.
    jobs: RefCell<(usize, Vec<JobSeen>)>,
}

/// A recorded command that was asked for. It is met when it is given, and when nobody waits for it any more.
pub struct Turn<'a> {
    cursor: &'a Cursor,
    place: usize,
}

impl Turn<'_> {
    pub const fn place(&self) -> usize {
        self.place
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.cursor.serve(self.place);
    }
}

impl TapeExec {
    pub fn new(cursor: Rc<Cursor>, places: Places, spool: Rc<Spool>) -> TapeExec {
        TapeExec { cursor, places, spool, jobs: RefCell::default() }
    }

    /// The recorded command, when its turn has come. Pends where there is none.
    pub async fn recorded(&self, command: &Command) -> (Turn<'_>, &CommandRun) {
        let purpose = command.kind.into();
        let Some((place, due)) = self.cursor.command(purpose, &self.places.digest(command)) else {
            self.miss(command);
            return std::future::pending().await;
        };
        let turn = Turn { cursor: &self.cursor, place };
        self.cursor.reach(due).await;
        match self.cursor.part.fact(place) {
            Fact::Command(run) => (turn, run),
            _ => std::future::pending().await,
        }
    }

    fn miss(&self, command: &Command) {
        let what = match command.kind {
            CommandKind::Tool | CommandKind::Job => Aspect::Tools,
            _ => Aspect::Events,
        };
        let text = format!("the recording holds no (further) run of the command `{}`", command.label);
        self.cursor.miss(self.cursor.differs(what, text));
    }

    /// The output as it was captured. Nothing, and the replay ends, where it is not in the recording.
    pub fn output(&self, kind: CommandKind, run: &CommandRun) -> Captured {
        let lacks = |why: &str| {
            let text = format!("the output of `{}` {why}", run.label);
            self.cursor.fatal(self.cursor.differs(Aspect::Tools, text));
            Captured::default()
        };
        let missing = || {
            self.cursor.run_out(format!("the output of `{}` is not in the recording", run.label));
            Captured::default()
        };
        let spooled = match run.output.spool.map(|id| self.cursor.part.tape.spool(id)) {
            Some(Ok(Some(bytes))) => bytes,
            Some(Ok(None)) => return missing(),
            Some(Err(error)) => return lacks(&format!("cannot be read: {error}")),
            None => Bytes::new(),
        };
        let Some(output) = run.output.captured(&spooled) else { return lacks("is another one in the recording") };
        // Later outputs keep their numbers.
        match kind {
            _ if run.output.spool.is_none() => {}
            CommandKind::Tool | CommandKind::Check => drop(self.spool.offer(output.clone())),
            _ => drop(self.spool.put(output.joined().into())),
        }
        output
    }

    /// The jobs as the recorded loop had last seen them here.
    pub fn stand(&self) -> Vec<JobInfo> {
        let mut known = self.jobs.borrow_mut();
        let (from, jobs) = &mut *known;
        let end = self.cursor.frontier();
        for at in (*from).max(self.cursor.part.range.start)..end {
            let Fact::Jobs { jobs: news } = self.cursor.part.fact(at) else { continue };
            for job in news {
                match jobs.iter_mut().find(|other| other.job == job.job) {
                    Some(known) => known.clone_from(job),
                    None => jobs.push(job.clone()),
                }
            }
        }
        *from = end.max(*from);
        jobs.iter().map(info).collect()
    }
}

fn info(job: &JobSeen) -> JobInfo {
    let over = !matches!(job.state, JobStands::Running | JobStands::LeaderExited { .. });
    let started = SystemTime::UNIX_EPOCH;
    JobInfo {
        id: job.job.clone(),
        command: job.command.clone(),
        state: (&job.state).into(),
        started,
        ended: over.then(|| started + Duration::from_millis(job.duration_ms.unwrap_or(0))),
        printed_bytes: job.printed_bytes,
        dropped_bytes: job.dropped_bytes,
        last_line: job.last_line.clone(),
    }
}

impl Exec for TapeExec {
    fn run(&self, command: Command) -> Boxed<'_, Result<Finished, ExecError>> {
        Box::pin(async move {
            let (turn, run) = self.recorded(&command).await;
            let output = self.output(command.kind, run);
            drop(turn);
            match run.finished(output, Duration::from_millis(run.duration_ms)) {
                Some(finished) => finished,
                // Nobody ever heard of its end.
                None => std::future::pending().await,
            }
        })
    }

    fn start(&self, _job: &str, command: Command) -> Boxed<'_, Result<(), ExecError>> {
        Box::pin(async move {
            let (turn, run) = self.recorded(&command).await;
            drop(turn);
            run.started()
        })
    }

    fn jobs(&self) -> Vec<JobInfo> {
        self.cursor.stir();
        self.stand()
    }

    fn read(&self, _job: &str, _offset: u64, _limit: usize) -> Option<(u64, Vec<u8>)> {
        // The tools that read are answered from the recording themselves.
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
        let leaked = self.cursor.part.loops.iter().rev().find_map(|&at| match self.cursor.part.fact(at) {
            Fact::End(end) => Some(end.leaked.clone()),
            _ => None,
        });
        Box::pin(std::future::ready(leaked.unwrap_or_default()))
    }
}
