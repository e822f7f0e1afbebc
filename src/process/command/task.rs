//! What looks after one tree until it is gone: its output, its reports, the orders to it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot};

use super::super::backend::Tree;
use super::super::ring::Ends;
use super::super::tree::{Gone, NotStarted, Reason, Report, Status};
use super::{Order, Shared, lock};
use crate::world::{Command, Ending, ExecError, Finished, Leftover, Redactor};

/// Most bytes taken from the pipe of a tree that is gone. More can only come from somebody outside of it.
const LAST_BYTES: usize = 4 << 20;
const CHUNK_BYTES: usize = 64 << 10;

/// Where a tree's output and end go.
pub(super) enum Owner {
    Foreground {
        ends: Ends,
        done: oneshot::Sender<Result<Finished, ExecError>>,
    },
    /// What a command left running, with leave: nobody reads what it prints.
    Kept,
    Job {
        id: String,
        started: Option<oneshot::Sender<Result<(), ExecError>>>,
    },
}

/// Looks after one tree until it is gone.
pub(super) struct Task {
    pub shared: Arc<Shared>,
    pub id: u64,
    pub command: Command,
    pub begun: Instant,
    pub owner: Owner,
    pub redactor: Redactor,
}

/// How a tree's reports ended.
enum End {
    NotStarted(NotStarted),
    Gone(Gone),
}

impl Task {
    pub(super) async fn run(
        mut self,
        mut tree: Tree,
        output: AsyncFd<OwnedFd>,
        mut orders: mpsc::UnboundedReceiver<Order>,
    ) {
        let mut buffer = vec![0; CHUNK_BYTES];
        let (mut killed, mut vanished) = (false, false);
        let mut open = true;
        let end = loop {
            tokio::select! {
                report = tree.next() => match report {
                    Some(Report::Started { supervisor, leader }) => self.started(supervisor, leader),
                    Some(Report::NotStarted(why)) => break End::NotStarted(why),
                    Some(Report::LeaderEnded { status, alive }) => self.alive(Some(status), alive),
                    Some(Report::Alive(alive)) => self.alive(None, alive),
                    Some(Report::Kept { status, leftovers }) => {
                        self.take_rest(&output, &mut buffer);
                        self.keep(status, leftovers);
                    }
                    Some(Report::Gone(gone)) => break End::Gone(gone),
                    // The supervisor died, or was killed, without a word.
                    None => {
                        let ours = killed || self.shared.gate.is_closed();
                        let reason = if ours { Reason::Ordered } else { Reason::Lost };
                        vanished = true;
                        break End::Gone(Gone { status: None, reason, leftovers: Vec::new(), survivors: Vec::new() });
                    }
                },
                read = read_some(&output, &mut buffer), if open => match read {
                    Ok(length) if length > 0 => self.take(&buffer[..length]),
                    // Everybody has closed it; the tree may live on.
                    Ok(_) | Err(_) => open = false,
                },
                Some(order) = orders.recv() => match order {
                    Order::Terminate(grace) => tree.terminate(grace),
                    Order::Kill => {
                        killed = true;
                        tree.kill();
                    }
                },
            }
        };
        if vanished || matches!(&end, End::Gone(gone) if gone.reason == Reason::Lost) {
            // The entry keeps its place until the orphans are dead, so the run stays busy, but no longer protects
            // the supervisor's pid.
            let supervisor = lock(&self.shared.trees).alive.get_mut(&self.id).and_then(|entry| entry.supervisor.take());
            self.shared.end_orphans(supervisor).await;
        }
        self.take_rest(&output, &mut buffer);
        self.finish(end);
    }

    fn started(&mut self, supervisor: i32, leader: i32) {
        if let Some(entry) = lock(&self.shared.trees).alive.get_mut(&self.id) {
            entry.supervisor = Some(supervisor);
        }
        if let Some(ledger) = self.shared.ledger.get() {
            ledger.record(&[leader, supervisor]);
        }
        if let Owner::Job { started, .. } = &mut self.owner {
            answer(started, Ok(()));
        }
    }

    fn alive(&self, status: Option<Status>, alive: usize) {
        if let Owner::Job { id, .. } = &self.owner {
            self.shared.jobs.leader_ended(id, status, alive);
        }
    }

    fn take(&mut self, chunk: &[u8]) {
        let safe = self.redactor.push(chunk);
        match &mut self.owner {
            Owner::Foreground { ends, .. } => ends.write(&safe),
            Owner::Kept => {}
            Owner::Job { id, .. } => self.shared.jobs.write(id, &safe),
        }
    }

    /// What is in the pipe when nobody of the tree can write any more. Its end of file is not waited for.
    fn take_rest(&mut self, output: &AsyncFd<OwnedFd>, buffer: &mut [u8]) {
        let mut most = LAST_BYTES;
        while most > 0 {
            match rustix::io::read(output.get_ref(), &mut *buffer) {
                Ok(0) => break,
                Ok(length) => {
                    self.take(&buffer[..length]);
                    most = most.saturating_sub(length);
                }
                Err(Errno::INTR) => {}
                // Empty. Another error would have the same meaning: nothing more will come.
                Err(_) => break,
            }
        }
        let held = self.redactor.flush();
        match &mut self.owner {
            Owner::Foreground { ends, .. } => ends.write(&held),
            Owner::Kept => {}
            Owner::Job { id, .. } => self.shared.jobs.write(id, &held),
        }
    }

    /// The command is over; what it left lives on, and this task goes on looking after it.
    fn keep(&mut self, status: Status, leftovers: Vec<Leftover>) {
        let Owner::Foreground { ends, done } = std::mem::replace(&mut self.owner, Owner::Kept) else { return };
        if let Some(entry) = lock(&self.shared.trees).alive.get_mut(&self.id) {
            entry.kept = true;
        }
        let finished = Finished {
            ending: match status {
                Status::Exited(code) => Ending::Exited(code),
                Status::Signaled(signal) => Ending::Signaled(signal),
            },
            output: ends.finish(),
            duration: self.begun.elapsed(),
            leftovers,
            kept: true,
        };
        if done.send(Ok(finished)).is_err() {
            // Nobody waits any more: the command was given up, and with it what it left.
            self.shared.order(self.id, Order::Kill);
        }
    }

    fn finish(self, end: End) {
        let Task { shared, id, command, begun, owner, .. } = self;
        match owner {
            Owner::Foreground { ends, done } => {
                let result = match end {
                    End::NotStarted(why) => Err(not_started(&command, why)),
                    End::Gone(gone) => Ok(Finished {
                        ending: ending(&gone),
                        output: ends.finish(),
                        duration: begun.elapsed(),
                        leftovers: gone.leftovers,
                        kept: false,
                    }),
                };
                // Before the answer, so that who hears it finds the run idle.
                shared.forget(id);
                // Nobody waits when the future of the command was dropped.
                let _dropped = done.send(result);
            }
            Owner::Kept => shared.forget(id),
            Owner::Job { id: job, mut started } => {
                match end {
                    End::NotStarted(why) => answer(&mut started, Err(not_started(&command, why))),
                    End::Gone(gone) => {
                        if gone.reason == Reason::TooMany {
                            let most = shared.options.max_descendants;
                            let note = format!("\n[ended: more than {most} processes]\n");
                            shared.jobs.write(&job, note.as_bytes());
                        }
                        shared.jobs.gone(&job, &gone);
                    }
                }
                shared.forget(id);
                // A job that vanished before it began is there, and lost.
                answer(&mut started, Ok(()));
            }
        }
        shared.ended.notify_waiters();
    }
}

fn answer(started: &mut Option<oneshot::Sender<Result<(), ExecError>>>, result: Result<(), ExecError>) {
    if let Some(started) = started.take() {
        // Who started it may have stopped waiting.
        let _dropped = started.send(result);
    }
}

fn ending(gone: &Gone) -> Ending {
    match (gone.reason, gone.status) {
        (Reason::Ended, Some(Status::Exited(code))) => Ending::Exited(code),
        (Reason::Ended, Some(Status::Signaled(signal))) => Ending::Signaled(signal),
        (Reason::TimedOut, _) => Ending::TimedOut,
        (Reason::Ordered, _) => Ending::Cancelled,
        (Reason::TooMany, _) => Ending::TooManyProcesses,
        (Reason::Lost | Reason::Ended, _) => Ending::Lost,
    }
}

fn not_started(command: &Command, why: NotStarted) -> ExecError {
    let program = command.argv.first().cloned().unwrap_or_default();
    match why {
        NotStarted::Cwd => ExecError::BadCwd(command.cwd.display().to_string()),
        NotStarted::Missing => ExecError::NotFound(program),
        NotStarted::Denied => ExecError::NotExecutable(program),
        NotStarted::Other(errno) => ExecError::Failed(program, io::Error::from_raw_os_error(errno).to_string()),
    }
}

/// Waits for output; 0 when everybody has closed the pipe. May be dropped at any point.
async fn read_some(output: &AsyncFd<OwnedFd>, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        let mut ready = output.readable().await?;
        let read = ready.try_io(|fd| rustix::io::read(fd.get_ref(), &mut *buffer).map_err(io::Error::from));
        match read {
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(result) => return result,
            Err(_would_block) => {}
        }
    }
}
