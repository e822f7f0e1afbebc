//! Why a cassette could not be made or used.

use std::io;
use std::path::{Path, PathBuf};

use super::lint::Finding;
use super::records::FORMAT;
use crate::session::SessionError;

/// Why a cassette could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum CassetteError {
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The session holds no reply that arrived whole.
    #[error("session `{0}` has no reply to pack")]
    Nothing(String),
    /// Its log ends before what it was started with.
    #[error("session `{0}` holds nothing: it ended before it had begun")]
    Empty(String),
    /// The session's files do not fit together.
    #[error("session `{session}` cannot be packed: {reason}")]
    Unpackable { session: String, reason: String },
    #[error("{} exists already", .0.display())]
    Exists(PathBuf),
    #[error("{} is no cassette: {reason}", .file.display())]
    NotOne { file: PathBuf, reason: String },
    /// Lines count from 1; 0 is the file as a whole.
    #[error("{}: {}{reason}", .file.display(), place(*.line))]
    Corrupt { file: PathBuf, line: u64, reason: String },
    #[error("{} is incomplete: it has no `end`", .0.display())]
    Incomplete(PathBuf),
    #[error("{} was written by a newer spettro (format {format}; this build reads {FORMAT})", .file.display())]
    Newer { file: PathBuf, format: String },
    /// What `lint` found: line, place in it, and rule; never the value.
    #[error("{}", findings(.0))]
    Secrets(Vec<Finding>),
    #[error("{what} {}: {error}", .file.display())]
    Io {
        what: &'static str,
        file: PathBuf,
        #[source]
        error: io::Error,
    },
}

fn place(line: u64) -> String {
    if line == 0 { String::new() } else { format!("line {line}: ") }
}

/// So many findings are listed in a message.
const MOST_LISTED: usize = 20;

fn findings(found: &[Finding]) -> String {
    let looks = if found.len() == 1 { "1 place looks" } else { &format!("{} places look", found.len()) };
    let mut text = format!("{looks} like a secret:");
    for finding in found.iter().take(MOST_LISTED) {
        text.push_str(&format!("\n  {finding}"));
    }
    if found.len() > MOST_LISTED {
        text.push_str(&format!("\n  and {} more", found.len() - MOST_LISTED));
    }
    text
}

impl CassetteError {
    pub(super) fn io(what: &'static str, file: &Path) -> impl FnOnce(io::Error) -> CassetteError {
        move |error| CassetteError::Io { what, file: file.to_owned(), error }
    }
}
