//! What stands in the workspace, and what changed: content digests, protected files, the user's git, private copies.
//!
//! Invariant: nothing here ever writes into the user's workspace or `.git`, but for `tripwire`, which puts back what a
//! command must not have changed. Listing goes through `Dir`, processes
//! through `Exec`. Called by the goal loop (progress, policy, changes) and the command line.

mod base;
mod cloned;
mod copy;
mod effects;
mod folders;
mod git;
mod globs;
mod meanwhile;
mod protect;
mod reference;
mod repository;
mod scratch;
mod settings;
mod stamp;
#[cfg(test)]
mod testing;
mod tree;
mod tripwire;

pub use crate::session::FileKind as BaseKind;
pub use base::{BASE_FILE, Base, BaseFile};
pub use copy::copy;
pub use effects::shown_digest;
pub use folders::is_ignore_file;
pub use git::{Git, GitState};
pub use protect::Protected;
pub use reference::Named;
pub use repository::repository_top;
pub use scratch::make_read_only_beside;
pub use tree::{Listed, Listings, Tree, changed_files};
pub use tripwire::{Tampered, Tripwire};

/// Why the workspace could not be read, compared or copied.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error("{what} `{path}`: {error}")]
    Io {
        what: &'static str,
        path: String,
        #[source]
        error: std::io::Error,
    },
    #[error("`{0}` is not a valid glob: {1}")]
    Glob(String, String),
    #[error("git: {0}")]
    Git(String),
}

impl WorkspaceError {
    fn io(what: &'static str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> WorkspaceError {
        move |error| WorkspaceError::Io { what, path: path.display().to_string(), error }
    }
}
