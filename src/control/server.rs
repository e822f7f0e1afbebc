//! The run's side: listens, looks who asks, and does what is asked.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use super::{Answer, ControlError, Job, MOST_BYTES, Request, kin, place};
use crate::process;
use crate::session::{Fact, Session, SessionError};
use crate::world::{Halt, JobInfo, Secrets, Why, World};

/// A request has to be there within this time, and an answer taken.
const TALK_FOR: Duration = Duration::from_secs(5);
/// Ending jobs takes their grace; a connection that is not done by then is closed.
const WORK_FOR: Duration = Duration::from_secs(30);
/// Connections at once; further ones wait in the kernel's queue.
const MOST_OPEN: usize = 16;
/// After an accept that failed (no descriptors left), so that the loop does not spin.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// Names that are drawn before giving up.
const MOST_NAMES: usize = 8;

/// What requests may reach.
pub struct Desk {
    pub world: World,
    pub session: Session,
    pub halt: Halt,
    /// Where the agent takes steering from.
    pub steering: Rc<RefCell<VecDeque<String>>>,
    /// Replaced in what is steered.
    pub secrets: Secrets,
    pub run: String,
}

/// A listening socket; its file is removed when this is dropped.
pub struct Server {
    listener: UnixListener,
    socket: PathBuf,
    desk: Rc<Desk>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Gone already is as good.
        let _gone = std::fs::remove_file(&self.socket);
    }
}

impl Server {
    /// Starts to listen; to be called within a runtime.
    ///
    /// # Errors
    /// When there is no place for the socket that is this user's alone.
    pub fn listen(desk: Desk) -> Result<Server, ControlError> {
        let folder = place::folder(&*desk.world.env)?;
        let mut names = 0;
        let (listener, socket) = loop {
            let socket = place::socket(&folder, &*desk.world.ids);
            names += 1;
            match UnixListener::bind(&socket) {
                Ok(listener) => break (listener, socket),
                Err(error) if error.kind() == ErrorKind::AddrInUse && names < MOST_NAMES => {}
                Err(error) => return Err(ControlError::Listen { socket, error }),
            }
        };
        let server = Server { listener, socket, desk: Rc::new(desk) };
        std::fs::set_permissions(&server.socket, PermissionsExt::from_mode(0o600))
            .map_err(|error| ControlError::Listen { socket: server.socket.clone(), error })?;
        Ok(server)
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Answers until it is dropped; within a `LocalSet`.
    pub async fn serve(self) -> Infallible {
        let mut open = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if open.len() < MOST_OPEN => match accepted {
                    Ok((stream, _)) => {
                        let desk = Rc::clone(&self.desk);
                        open.spawn_local(async move { desk.attend(&stream).await });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a control connection cannot be accepted");
                        self.desk.world.clock.sleep(AGAIN_AFTER).await;
                    }
                },
                Some(ended) = open.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a control connection failed");
                    }
                }
            }
        }
    }
}

impl Desk {
    /// One connection: who is it, what is asked, the answer.
    async fn attend(&self, stream: &UnixStream) {
        let answer = match refusal(stream) {
            Some(message) => Answer::Error { message },
            None => match self.within(TALK_FOR, read_line(stream)).await {
                None => Answer::Error { message: "the request did not come in time".to_owned() },
                Some(Err(ReadError::TooLong)) => Answer::Error { message: ControlError::TooLong.to_string() },
                Some(Err(ReadError::Gone)) => return,
                Some(Ok(line)) => match serde_json::from_slice(&line) {
                    Err(error) => Answer::Error { message: format!("the request is not understood: {error}") },
                    Ok(request) => match self.within(WORK_FOR, self.answer(request)).await {
                        Some(answer) => answer,
                        None => Answer::Error { message: "it takes too long; it goes on".to_owned() },
                    },
                },
            },
        };
        let mut line = match serde_json::to_vec(&answer) {
            Ok(line) => line,
            Err(error) => {
                tracing::error!(%error, "an answer cannot be encoded");
                return;
            }
        };
        line.push(b'\n');
        if let Some(Err(error)) = self.within(TALK_FOR, write(stream, &line)).await {
            tracing::debug!(%error, "who asked did not wait for the answer");
        }
    }

    async fn within<T>(&self, time: Duration, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.world.clock.sleep(time) => None,
        }
    }

    async fn answer(&self, request: Request) -> Answer {
        let done = match request {
            Request::Steer { text } => self.steer(&text),
            Request::Stop => self.stop(),
            Request::Jobs => Ok(Answer::Jobs { jobs: self.jobs() }),
            Request::Kill { ids } => Ok(self.kill(ids).await),
            Request::Status => Ok(Answer::Status {
                run: self.run.clone(),
                session: self.session.id(),
                ending: self.halt.why().map(|why| why.name().to_owned()),
                jobs_alive: self.jobs().iter().filter(|job| job.alive).count(),
                undelivered: self.steering.borrow().len(),
            }),
        };
        done.unwrap_or_else(|error| Answer::Error { message: error.to_string() })
    }

    fn steer(&self, text: &str) -> Result<Answer, SessionError> {
        if text.trim().is_empty() {
            return Ok(Answer::Error { message: "there is nothing to tell the agent: the text is empty".to_owned() });
        }
        let text = self.secrets.redact_str(text).into_owned();
        // In the log before anybody counts on it: a run that dies now leaves it to the next one.
        self.session.append(Fact::Steer { text: text.clone() })?;
        self.steering.borrow_mut().push_back(text);
        Ok(Answer::Accepted { ending: self.halt.why().is_some() })
    }

    fn stop(&self) -> Result<Answer, SessionError> {
        if self.halt.why().is_none() {
            // A log that takes no more ends the run anyhow: the halt comes first.
            self.halt.set(Why::Drain);
            let text = "stopping as asked: saving after the running tool call".to_owned();
            self.session.append(Fact::Notice { code: "drain".to_owned(), text })?;
        }
        Ok(Answer::Stopping)
    }

    fn jobs(&self) -> Vec<Job> {
        self.world.exec.jobs().into_iter().map(|job| self.job(job)).collect()
    }

    fn job(&self, job: JobInfo) -> Job {
        let age = self.world.clock.now().duration_since(job.started).unwrap_or_default();
        Job {
            state: job.state.to_string(),
            alive: job.state.alive(),
            command: job.command,
            started_ms_ago: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
            id: job.id,
        }
    }

    /// Ends jobs side by side. An id that is unknown ends none.
    async fn kill(&self, ids: Vec<String>) -> Answer {
        let jobs = self.jobs();
        let unknown: Vec<&str> =
            ids.iter().map(String::as_str).filter(|id| *id != "all" && !jobs.iter().any(|job| job.id == *id)).collect();
        if !unknown.is_empty() {
            let known: Vec<&str> = jobs.iter().map(|job| job.id.as_str()).collect();
            let known =
                if known.is_empty() { "there are none".to_owned() } else { format!("known: {}", known.join(", ")) };
            return Answer::Error { message: format!("no background job {}; {known}", unknown.join(", ")) };
        }
        let all = ids.iter().any(|id| id == "all");
        let chosen: Vec<String> = jobs
            .into_iter()
            .filter(|job| if all { job.alive } else { ids.contains(&job.id) })
            .map(|job| job.id)
            .collect();
        let mut ending = JoinSet::new();
        for id in chosen.clone() {
            let exec = Rc::clone(&self.world.exec);
            ending.spawn_local(async move { exec.kill(&id).await });
        }
        while ending.join_next().await.is_some() {}
        Answer::Killed { jobs: self.jobs().into_iter().filter(|job| chosen.contains(&job.id)).collect() }
    }
}

/// Why this peer may not ask; `None` when it may.
fn refusal(stream: &UnixStream) -> Option<String> {
    let Ok(peer) = stream.peer_cred() else { return Some("it cannot be told who asks".to_owned()) };
    if peer.uid() != rustix::process::geteuid().as_raw() {
        return Some("only the run's own user may ask".to_owned());
    }
    let me = rustix::process::getpid().as_raw_nonzero().get();
    match peer.pid() {
        // A process that this one cannot see is outside of its pid namespace, and no child of it.
        Some(0) => None,
        Some(pid) => match kin::descends(pid, me, process::stat) {
            Some(false) if confined(pid, me) => Some("a command of another run may not control this one".to_owned()),
            Some(false) => None,
            Some(true) => Some("a command of this run may not control it".to_owned()),
            None => Some("it cannot be told whether a command of this run asks".to_owned()),
        },
        None => Some("it cannot be told who asks".to_owned()),
    }
}

/// Whether the peer is a command of some run, this one's or another's: it descends from what starts those, or is under
/// more filters than this run itself. What cannot be told is taken to be one.
fn confined(pid: i32, me: i32) -> bool {
    let filtered = match (process::filters(pid), process::filters(me)) {
        (Some(peer), Some(mine)) => peer > mine,
        _ => true,
    };
    filtered || kin::comes_from(pid, me, process::stat, process::is_helper).unwrap_or(true)
}

enum ReadError {
    TooLong,
    /// Nobody is there to be answered.
    Gone,
}

async fn read_line(stream: &UnixStream) -> Result<Vec<u8>, ReadError> {
    let mut line = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        if stream.readable().await.is_err() {
            return Err(ReadError::Gone);
        }
        match stream.try_read(&mut chunk) {
            Ok(0) if line.is_empty() => return Err(ReadError::Gone),
            // Half a request is answered like any other text that is none.
            Ok(0) => return Ok(line),
            Ok(length) => {
                let end = chunk[..length].iter().position(|byte| *byte == b'\n');
                line.extend_from_slice(&chunk[..end.unwrap_or(length)]);
                if line.len() >= MOST_BYTES {
                    return Err(ReadError::TooLong);
                }
                if end.is_some() {
                    return Ok(line);
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => return Err(ReadError::Gone),
        }
    }
}

async fn write(stream: &UnixStream, mut rest: &[u8]) -> io::Result<()> {
    while !rest.is_empty() {
        stream.writable().await?;
        match stream.try_write(rest) {
            Ok(length) => rest = &rest[length..],
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
