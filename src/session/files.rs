//! Private files and folders, and appending whole lines.
//!
//! Invariant: after a failed append the file holds what it held before it, and takes nothing more.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::SessionError;
use super::modes::with_rights;

/// Makes a folder and those above it, 0700 each. One that exists stays as it is.
pub(super) fn make_dirs(path: &Path) -> Result<(), SessionError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(SessionError::io("make", path))
}

/// Makes one new folder, 0700. An existing one is an error.
pub(super) fn make_new_dir(path: &Path) -> Result<(), SessionError> {
    DirBuilder::new().mode(0o700).create(path).map_err(SessionError::io("make", path))
}

/// Writes a whole file, 0600: a temporary one beside it, then a rename. With `sync`, the disk has it before it
/// takes the name.
pub(super) fn write_whole(path: &Path, content: &[u8], sync: bool) -> Result<(), SessionError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let temporary = path.with_file_name(name);
    let written = with_rights(path, || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(content)?;
        if sync {
            file.sync_data()?;
        }
        std::fs::rename(&temporary, path)
    });
    written.map_err(|error| {
        // The error at hand is the one to report; a leftover is overwritten by the next attempt.
        let _ = std::fs::remove_file(&temporary);
        SessionError::Io { what: "write", file: path.to_owned(), error }
    })
}

/// Reads a file that may be missing.
pub(super) fn read_optional(path: &Path) -> Result<Option<Vec<u8>>, SessionError> {
    match with_rights(path, || std::fs::read(path)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(SessionError::Io { what: "read", file: path.to_owned(), error }),
    }
}

/// A file that grows by whole lines, and that nobody else may touch meanwhile.
pub(super) struct AppendFile {
    path: PathBuf,
    file: Arc<File>,
    bytes: u64,
    failed: Option<Failure>,
}

#[derive(Clone)]
enum Failure {
    Foreign,
    Io { what: &'static str, kind: io::ErrorKind, code: Option<i32> },
}

impl AppendFile {
    /// Makes a new file, 0600.
    pub(super) fn create(path: PathBuf) -> Result<AppendFile, SessionError> {
        AppendFile::with(path, OpenOptions::new().append(true).create_new(true).mode(0o600), "make")
    }

    /// Opens an existing one at its present end.
    pub(super) fn open(path: PathBuf) -> Result<AppendFile, SessionError> {
        AppendFile::with(path, OpenOptions::new().append(true), "open")
    }

    fn with(path: PathBuf, options: &OpenOptions, what: &'static str) -> Result<AppendFile, SessionError> {
        let opened = with_rights(&path, || options.open(&path)).and_then(|file| Ok((file.metadata()?, file)));
        let (meta, file) = opened.map_err(SessionError::io(what, &path))?;
        Ok(AppendFile { path, file: Arc::new(file), bytes: meta.len(), failed: None })
    }

    /// For a sync on another thread.
    pub(super) fn handle(&self) -> (PathBuf, Arc<File>) {
        (self.path.clone(), Arc::clone(&self.file))
    }

    /// Appends whole lines (newlines included) with one `write`; returns the offset where the first starts. After an
    /// error every later call gives the same kind of error, and the file holds what it held before the first.
    pub(super) fn append(&mut self, lines: &[u8]) -> Result<u64, SessionError> {
        if let Some(failure) = &self.failed {
            return Err(self.error(failure));
        }
        match self.try_append(lines) {
            Ok(()) => {
                let offset = self.bytes;
                self.bytes += lines.len() as u64;
                Ok(offset)
            }
            Err(failure) => {
                self.failed = Some(failure.clone());
                Err(self.error(&failure))
            }
        }
    }

    fn try_append(&self, lines: &[u8]) -> Result<(), Failure> {
        // Without a name it was removed, or another file took its place. Asking the open file costs less than walking
        // the path, and this is done for every line.
        match self.file.metadata() {
            Ok(meta) if meta.nlink() > 0 && meta.len() == self.bytes => {}
            Ok(_) => return Err(Failure::Foreign),
            Err(error) => return Err(Failure::io("check", &error)),
        }
        let mut written = 0;
        while written < lines.len() {
            let error = match (&*self.file).write(&lines[written..]) {
                Ok(0) => io::Error::from(io::ErrorKind::WriteZero),
                Ok(more) => {
                    written += more;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            if written > 0 {
                // Should this fail too, a torn line is set aside when the session is opened next.
                let _ = self.file.set_len(self.bytes);
            }
            return Err(Failure::io("write", &error));
        }
        Ok(())
    }

    /// A sync failed: what is on the disk is unknown, so nothing more is written.
    pub(super) fn poison(&mut self, what: &'static str, error: &io::Error) {
        self.failed.get_or_insert(Failure::io(what, error));
    }

    fn error(&self, failure: &Failure) -> SessionError {
        match failure {
            Failure::Foreign => SessionError::Foreign { file: self.path.clone() },
            Failure::Io { what, kind, code } => {
                let error = code.map_or_else(|| io::Error::from(*kind), io::Error::from_raw_os_error);
                SessionError::Io { what, file: self.path.clone(), error }
            }
        }
    }
}

impl Failure {
    fn io(what: &'static str, error: &io::Error) -> Failure {
        Failure::Io { what, kind: error.kind(), code: error.raw_os_error() }
    }
}
