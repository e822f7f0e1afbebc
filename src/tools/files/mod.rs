//! The file tools: reading, writing and editing, behind one guard for paths.
//!
//! Invariant: no file is opened but through [`File`], which has resolved every link and refused what belongs to
//! spettro or would give its environment away.

mod edit;
mod path;
mod read;
mod write;

pub(super) use edit::edit;
pub(super) use path::{File, Guard};
pub(super) use read::read;
pub(super) use write::write;
