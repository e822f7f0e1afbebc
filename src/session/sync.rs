//! Bringing the logs to the disk on one plain thread, beside the work of the loop.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};

use tokio::sync::oneshot;

use super::error::SessionError;
use super::handle::Session;
use super::modes::with_rights;
use crate::world::Boxed;

struct Job {
    /// Folders with new names, to be synced after the files.
    folders: Vec<PathBuf>,
    /// In this order.
    files: Vec<(PathBuf, Arc<File>)>,
    done: oneshot::Sender<Result<(), (PathBuf, io::Error)>>,
}

/// The writer thread of a session; it ends with it.
pub(super) struct Syncer {
    jobs: mpsc::Sender<Job>,
}

impl Syncer {
    pub(super) fn start() -> io::Result<Syncer> {
        let (jobs, queue) = mpsc::channel::<Job>();
        std::thread::Builder::new().name("spettro-sync".to_owned()).spawn(move || {
            for job in queue {
                let result = sync(&job);
                // Nobody waits any more when the run was torn down meanwhile.
                let _ = job.done.send(result);
            }
        })?;
        Ok(Syncer { jobs })
    }

    pub(super) fn start_sync(&self, folders: Vec<PathBuf>, files: Vec<(PathBuf, Arc<File>)>) -> Started {
        let (done, result) = oneshot::channel();
        // A thread that is gone drops the job and with it the sender: `wait` then says so.
        let _ = self.jobs.send(Job { folders, files, done });
        Started { result }
    }
}

fn sync(job: &Job) -> Result<(), (PathBuf, io::Error)> {
    for (path, file) in &job.files {
        file.sync_data().map_err(|error| (path.clone(), error))?;
    }
    for folder in &job.folders {
        // A file in it stands for the folder itself.
        let opened = with_rights(&folder.join("file"), || File::open(folder));
        opened.and_then(|folder| folder.sync_all()).map_err(|error| (folder.clone(), error))?;
    }
    Ok(())
}

pub(super) struct Started {
    result: oneshot::Receiver<Result<(), (PathBuf, io::Error)>>,
}

impl Started {
    pub(super) fn for_session(self, session: Session) -> Sync {
        Sync(Kind::Disk { started: self, session })
    }
}

/// A started fdatasync of wire.jsonl and session.jsonl on the writer thread, or what is waited for instead.
pub struct Sync(Kind);

enum Kind {
    Disk { started: Started, session: Session },
    Instead(Boxed<'static, ()>),
}

impl Sync {
    pub(super) fn instead(instead: Boxed<'static, ()>) -> Sync {
        Sync(Kind::Instead(instead))
    }

    /// Resolves when the disk has what was written before it was started. After an error the session takes nothing
    /// more.
    pub fn wait(self) -> Boxed<'static, Result<(), SessionError>> {
        Box::pin(async move {
            let (started, session) = match self.0 {
                Kind::Disk { started, session } => (started, session),
                Kind::Instead(instead) => {
                    instead.await;
                    return Ok(());
                }
            };
            let gone = |_| Err((session.dir(), io::Error::other("the sync thread is gone")));
            match started.result.await.unwrap_or_else(gone) {
                Ok(()) => Ok(()),
                Err((file, error)) => {
                    session.poison(&error);
                    if error.kind() == io::ErrorKind::NotFound {
                        // The disk does not take folders away.
                        return Err(SessionError::Foreign { file });
                    }
                    Err(SessionError::Io { what: "sync", file, error })
                }
            }
        })
    }
}
