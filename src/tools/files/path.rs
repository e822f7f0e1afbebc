//! The guard for paths, and the ways in which a file is read and replaced.

use std::ffi::OsString;
use std::fs::{Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::session::ReadMark;
use crate::tools::error::ToolError;
use crate::tools::escape::escape_line;
use crate::tools::output::thousands;
use crate::world::Roots;

/// Files larger than this are left to commands.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Where paths may lead, resolved once for a call.
pub(in crate::tools) struct Guard<'a> {
    roots: &'a Roots,
    /// The workspace without links.
    pub root: PathBuf,
    own: Vec<PathBuf>,
}

impl<'a> Guard<'a> {
    pub(in crate::tools) fn new(roots: &'a Roots, own_dirs: &[PathBuf]) -> Guard<'a> {
        let resolved = |path: &PathBuf| canonical(path).unwrap_or_else(|_| path.clone());
        Guard { roots, root: resolved(&roots.real), own: own_dirs.iter().map(resolved).collect() }
    }

    /// Whether a path (without links) lies in a folder of spettro's own. A workspace inside such a folder (a private
    /// copy) is not spettro's own.
    pub(in crate::tools) fn is_own(&self, real: &Path) -> bool {
        let in_workspace = real.starts_with(&self.root);
        self.own.iter().any(|dir| real.starts_with(dir) && !(in_workspace && self.root.starts_with(dir)))
    }

    /// As the model sees it: relative inside the workspace, on one line.
    pub(in crate::tools) fn label(&self, real: &Path) -> String {
        let path = real.strip_prefix(&self.root).unwrap_or(real);
        match path.as_os_str().as_encoded_bytes() {
            b"" => ".".into(),
            path => escape_line(path),
        }
    }

    /// A message of the system with the workspace under the name that the model knows.
    pub(in crate::tools) fn message(&self, text: &str) -> String {
        text.replace(&*self.root.to_string_lossy(), &self.roots.shown.to_string_lossy())
    }
}

/// A path that a tool may touch.
#[derive(Debug, Clone)]
pub(in crate::tools) struct File {
    /// Absolute, without links; the last parts may not exist yet.
    pub real: PathBuf,
    /// The same as shown, absolute: what facts name.
    pub shown: String,
    /// Short, for people and the model: relative inside the workspace.
    pub label: String,
}

impl File {
    /// Takes a path as the model wrote it. Refuses spettro's own folders and the environment of processes.
    pub(in crate::tools) fn at(guard: &Guard<'_>, written: &str) -> Result<File, ToolError> {
        if written.contains('\0') {
            return Err(ToolError::argument("path", "must not contain a NUL character"));
        }
        let label = escape_line(written.as_bytes());
        let real = canonical(&guard.roots.to_real(Path::new(written))).map_err(|error| ToolError::Io {
            what: "open",
            path: label.clone(),
            error,
        })?;
        if guard.is_own(&real) {
            return Err(ToolError::Forbidden { path: label, why: "it belongs to spettro itself" });
        }
        let name = real.file_name().unwrap_or_default();
        if real.starts_with("/proc") && (name == "environ" || name == "mem") {
            return Err(ToolError::Forbidden { path: label, why: "it holds the environment or memory of a process" });
        }
        let shown = match real.strip_prefix(&guard.root) {
            Ok(rest) if rest.as_os_str().is_empty() => guard.roots.shown.clone(),
            Ok(rest) => guard.roots.shown.join(rest),
            Err(_) => real.clone(),
        };
        Ok(File { shown: escape_line(shown.as_os_str().as_encoded_bytes()), label: guard.label(&real), real })
    }

    pub(in crate::tools) fn failed(&self, what: &'static str, error: io::Error) -> ToolError {
        match error.kind() {
            io::ErrorKind::NotFound => ToolError::Failed(format!("`{}` does not exist", self.label)),
            _ => ToolError::Io { what, path: self.label.clone(), error },
        }
    }

    /// The metadata of what is there; `None` when nothing is.
    pub(in crate::tools) fn metadata(&self) -> Result<Option<Metadata>, ToolError> {
        match self.real.metadata() {
            Ok(metadata) => Ok(Some(metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed("open", error)),
        }
    }

    /// The whole content of a regular file of at most 64 MiB.
    pub(super) fn content(&self) -> Result<Vec<u8>, ToolError> {
        let failed = |error| self.failed("read", error);
        // The path has no links: one that stands here now was put here since. Non-blocking, because nothing may wait
        // for the other end of a pipe.
        let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_NOCTTY;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(&self.real).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        self.check_regular(&metadata)?;
        let mut content = Vec::with_capacity(metadata.len().min(MAX_FILE_BYTES) as usize + 1);
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content).map_err(failed)?;
        if content.len() as u64 > MAX_FILE_BYTES {
            return Err(ToolError::Failed(format!(
                "`{}` is larger than {} MiB ({} bytes); read parts of it with a command, as sed or head",
                self.label,
                MAX_FILE_BYTES >> 20,
                thousands(metadata.len())
            )));
        }
        Ok(content)
    }

    pub(super) fn check_regular(&self, metadata: &Metadata) -> Result<(), ToolError> {
        if metadata.is_file() {
            return Ok(());
        }
        Err(ToolError::Failed(if metadata.is_dir() {
            format!("`{}` is a folder; list it with glob", self.label)
        } else {
            format!("`{}` is no regular file", self.label)
        }))
    }

    /// Replaces the content in one step: a new file beside it, renamed over it. Keeps mode and, where that is
    /// permitted, owner; makes missing folders.
    pub(super) fn replace(&self, content: &[u8]) -> Result<(), ToolError> {
        let failed = |error| self.failed("write", error);
        let old = self.metadata()?;
        let folder = self.real.parent().unwrap_or(Path::new("/"));
        if old.is_none() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        // The mask applies to a new file's mode when it is made.
        let mut new = tempfile::Builder::new()
            .prefix(".spettro-")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder)
            .map_err(failed)?;
        new.write_all(content).map_err(failed)?;
        if let Some(old) = old {
            let made = new.as_file().metadata().map_err(failed)?;
            if (made.uid(), made.gid()) != (old.uid(), old.gid()) {
                // Only root may give a file away; for others the new file is theirs, as with any editor.
                let owner = rustix::process::Uid::from_raw(old.uid());
                let group = rustix::process::Gid::from_raw(old.gid());
                if let Err(error) = rustix::fs::fchown(new.as_file(), Some(owner), Some(group)) {
                    tracing::debug!(path = self.label, %error, "owner not kept");
                }
            }
            // After the owner: a change of owner clears the set-id bits.
            new.as_file().set_permissions(Permissions::from_mode(old.mode() & 0o7777)).map_err(failed)?;
        }
        new.persist(&self.real).map_err(|error| failed(error.error))?;
        Ok(())
    }

    pub(super) fn mark(&self, content: &[u8]) -> ReadMark {
        ReadMark { path: self.shown.clone(), sha256: sha256(content) }
    }
}

pub(super) fn sha256(content: &[u8]) -> String {
    format!("{:x}", Sha256::digest(content))
}

/// A path without links: that of the deepest part that exists, and the rest as written. A link that leads nowhere
/// is an error, because what is written through it would land somewhere else.
fn canonical(path: &Path) -> io::Result<PathBuf> {
    let mut missing: Vec<OsString> = Vec::new();
    let mut at = path.to_owned();
    loop {
        match at.canonicalize() {
            Ok(mut base) => {
                base.extend(missing.iter().rev());
                return Ok(base);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if at.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink()) {
                    return Err(io::Error::other("it is a symbolic link that leads nowhere"));
                }
                match at.components().next_back() {
                    Some(Component::Normal(name)) => missing.push(name.to_owned()),
                    _ => return Err(error),
                }
                at.pop();
            }
            Err(error) => return Err(error),
        }
    }
}
