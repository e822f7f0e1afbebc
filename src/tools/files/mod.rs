//! The file tools: reading, writing and editing, behind one guard for paths.
//!
//! Invariant: no file is opened but at a path that [`Guard::refusal`] has let pass, and on which no link is followed
//! any more. It knows what the sandbox grants, what belongs to spettro, and what would give its environment away.

mod edit;
mod path;
mod read;
mod write;

pub(super) use edit::edit;
pub(super) use path::{Access, File, Guard};
pub(super) use read::read;
pub(super) use write::write;
