//! `debug.log`: what the program says about itself, in the session's folder; `SPETTRO_LOG` says how much (`warn`
//! without it).
//!
//! Invariant: no secret value of the run gets into the file, and nothing that goes wrong with it disturbs the run.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::failure::Failure;
use crate::world::{Env, Secrets};

/// Most bytes that are kept until there is a session to write them to.
const MOST_EARLY_BYTES: usize = 256 * 1024;

/// Where the lines go. Cheap to clone.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Sink>>);

#[derive(Default)]
struct Sink {
    /// Said before there was a session.
    early: Vec<u8>,
    secrets: Secrets,
    place: Place,
}

#[derive(Default)]
enum Place {
    #[default]
    Unknown,
    /// Made with the first line.
    At(PathBuf),
    Open(File),
    /// It could not be opened or written: the rest is lost.
    Lost,
}

impl Log {
    /// Listens to everything that is said from now on, in the whole process.
    ///
    /// # Errors
    /// When `SPETTRO_LOG` is no filter.
    pub fn start(env: &dyn Env) -> Result<Log, Failure> {
        let wanted = env.var("SPETTRO_LOG").filter(|filter| !filter.trim().is_empty());
        let filter = EnvFilter::try_new(wanted.as_deref().unwrap_or("warn")).map_err(|error| {
            Failure::usage(format!("`SPETTRO_LOG` is no log filter: {error}"))
                .hint("use `warn`, `info`, `debug`, `trace`, or `spettro=debug,h2=warn`")
        })?;
        let log = Log::default();
        let subscriber =
            tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(log.clone()).finish();
        // Only a second run in one process finds another subscriber there, and then that one goes on listening.
        let _ = tracing::subscriber::set_global_default(subscriber);
        Ok(log)
    }

    /// Values that are replaced in everything written from now on.
    pub fn hide(&self, secrets: Secrets) {
        self.sink().secrets = secrets;
    }

    /// Where the log is kept: what was said so far goes there now, all the rest as it comes.
    pub fn keep(&self, file: PathBuf) {
        let mut sink = self.sink();
        sink.place = Place::At(file);
        let early = std::mem::take(&mut sink.early);
        sink.put(&early);
    }

    fn sink(&self) -> MutexGuard<'_, Sink> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink {
    fn put(&mut self, line: &[u8]) {
        if line.is_empty() {
            return;
        }
        if let Place::At(path) = &self.place {
            let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
            self.place = opened.map_or(Place::Lost, Place::Open);
        }
        match &mut self.place {
            Place::Unknown if self.early.len() + line.len() <= MOST_EARLY_BYTES => self.early.extend_from_slice(line),
            Place::Open(file) => {
                if file.write_all(&self.secrets.redact(line)).is_err() {
                    self.place = Place::Lost;
                }
            }
            Place::Unknown | Place::At(_) | Place::Lost => {}
        }
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Log;

    fn make_writer(&'a self) -> Log {
        self.clone()
    }
}

impl Write for Log {
    /// Gets whole lines: the subscriber formats one before it writes it.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.sink().put(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn early_lines_follow_into_the_private_file_and_secrets_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("debug.log");
        let mut log = Log::default();
        log.write_all(b"early hunter2-hunter2\n").unwrap();
        log.hide(Secrets::new([("KEY".to_owned(), "hunter2-hunter2".to_owned())]));
        log.keep(file.clone());
        log.write_all(b"late hunter2-hunter2\n").unwrap();
        let written = std::fs::read_to_string(&file).unwrap();
        assert_eq!(written, "early «secret:KEY»\nlate «secret:KEY»\n");
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn nothing_said_makes_no_file_and_a_lost_folder_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gone/debug.log");
        let mut log = Log::default();
        log.keep(file.clone());
        assert!(!file.exists());
        log.write_all(b"a line\n").unwrap();
        assert!(!file.exists());
    }
}
