//! Why a cassette could not be made or used.

use std::io;
use std::path::{Path, PathBuf};

use super::file::FORMAT;
use crate::session::SessionError;

/// Why a cassette could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum CassetteError {
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The session holds no reply that arrived whole.
    #[error("session `{0}` has no reply to pack")]
    Nothing(String),
    /// A reply's raw bytes are not in the wire log any more.
    #[error("{lane} call {n} of session `{session}` cannot be packed: {reason}")]
    Unpackable { session: String, lane: String, n: u64, reason: String },
    #[error("{} exists already", .0.display())]
    Exists(PathBuf),
    #[error("{} is no cassette: {reason}", .file.display())]
    NotOne { file: PathBuf, reason: String },
    /// Lines count from 1.
    #[error("{}: line {line}: {reason}", .file.display())]
    Corrupt { file: PathBuf, line: u64, reason: String },
    #[error("{} is incomplete: it has no `end`", .0.display())]
    Incomplete(PathBuf),
    #[error("{} was written by a newer spettro (format {format}; this build reads {FORMAT})", .file.display())]
    Newer { file: PathBuf, format: String },
    #[error("{} is compressed, which is not in this version yet", .0.display())]
    Compressed(PathBuf),
    #[error("{what} {}: {error}", .file.display())]
    Io {
        what: &'static str,
        file: PathBuf,
        #[source]
        error: io::Error,
    },
}

impl CassetteError {
    pub(super) fn io(what: &'static str, file: &Path) -> impl FnOnce(io::Error) -> CassetteError {
        move |error| CassetteError::Io { what, file: file.to_owned(), error }
    }
}
