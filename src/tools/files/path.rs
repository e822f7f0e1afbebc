//! The guard for paths, and the ways in which a file is read and replaced.

use std::fs::Metadata;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use crate::process::sandbox::{self, Policy};
use crate::session::ReadMark;
use crate::tools::error::ToolError;
use crate::tools::escape::escape_line;
use crate::tools::output::thousands;
use crate::world::{Roots, beneath};

/// Files larger than this are left to commands.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Of the roots that may be touched, so many are named in a refusal.
const NAMED_ROOTS: usize = 8;
/// Files below `/proc/<pid>` that give away what is in a process: its environment holds keys.
const PROCESS_SECRETS: [&str; 3] = ["environ", "mem", "auxv"];

/// What a tool wants to do with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tools) enum Access {
    /// To name what is in a folder.
    List,
    Read,
    Write,
}

/// Where paths may lead, resolved once for a call.
pub(in crate::tools) struct Guard<'a> {
    roots: &'a Roots,
    /// The workspace without links.
    pub root: PathBuf,
    own: Vec<PathBuf>,
    policy: &'a Policy,
}

impl<'a> Guard<'a> {
    pub(in crate::tools) fn new(roots: &'a Roots, own_dirs: &[PathBuf], policy: &'a Policy) -> Guard<'a> {
        let resolved = |path: &PathBuf| beneath::resolve(path).unwrap_or_else(|_| path.clone());
        Guard { roots, root: resolved(&roots.real), own: own_dirs.iter().map(resolved).collect(), policy }
    }

    /// Why a path (without links) is out of reach; `None` when it is not. Every tool that touches a file asks here,
    /// and nowhere else.
    pub(in crate::tools) fn refusal(&self, real: &Path, access: Access) -> Option<String> {
        let in_workspace = real.starts_with(&self.root);
        // A workspace inside such a folder (a private copy) is not spettro's own.
        let own = |dir: &PathBuf| real.starts_with(dir) && !(in_workspace && self.root.starts_with(dir));
        if self.own.iter().any(own) {
            return Some("it belongs to spettro itself".to_owned());
        }
        let secret = |name: &str| real.components().any(|part| part.as_os_str() == name);
        if real.starts_with("/proc") && PROCESS_SECRETS.into_iter().any(secret) {
            return Some("it holds the environment or memory of a process".to_owned());
        }
        match access {
            Access::List if !self.policy.may_list(real) => Some(self.allowed("listed", sandbox::Access::List)),
            Access::Read if !self.policy.may_read(real) => Some(self.allowed("read", sandbox::Access::Read)),
            Access::Write if !self.policy.may_write(real) => Some(self.allowed("written", sandbox::Access::Write)),
            _ => None,
        }
    }

    /// What a refusal says of the roots there are.
    fn allowed(&self, what: &str, access: sandbox::Access) -> String {
        let mut named: Vec<String> = Vec::new();
        // The workspace first: it is where the work is.
        let rules = self.policy.rules.iter().filter(|rule| rule.access >= access);
        let mut roots: Vec<&PathBuf> = rules.map(|rule| &rule.path).collect();
        roots.sort_by_key(|root| **root != self.root);
        for root in roots {
            let name = if *root == self.root { "the workspace".to_owned() } else { self.shown(root) };
            if !named.contains(&name) {
                named.push(name);
            }
        }
        let more = named.len().saturating_sub(NAMED_ROOTS);
        named.truncate(NAMED_ROOTS);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        match named.as_slice() {
            [] => format!("the sandbox lets nothing be {what}"),
            _ => format!("outside of what the sandbox lets be {what}: {}{more}", named.join(", ")),
        }
    }

    fn shown(&self, real: &Path) -> String {
        escape_line(self.roots.to_shown(real).as_os_str().as_encoded_bytes())
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
    /// Takes a path as the model wrote it, for that access.
    ///
    /// # Errors
    /// What is out of reach: spettro's own folders, the environment of processes, what the sandbox does not grant.
    pub(in crate::tools) fn at(guard: &Guard<'_>, written: &str, access: Access) -> Result<File, ToolError> {
        if written.contains('\0') {
            return Err(ToolError::argument("path", "must not contain a NUL character"));
        }
        let label = escape_line(written.as_bytes());
        let real = beneath::resolve(&guard.roots.to_real(Path::new(written))).map_err(|error| ToolError::Io {
            what: "open",
            path: label.clone(),
            error,
        })?;
        if let Some(why) = guard.refusal(&real, access) {
            return Err(ToolError::Forbidden { path: label, why });
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
        // Looking does not open: a pipe is not waited for, and a file that may not be read has its metadata.
        #[cfg(target_os = "linux")]
        let flags = OFlags::PATH;
        #[cfg(not(target_os = "linux"))]
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        match beneath::open(&self.real, flags).and_then(|file| std::fs::File::from(file).metadata()) {
            Ok(metadata) => Ok(Some(metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed("open", error)),
        }
    }

    /// The whole content of a regular file of at most 64 MiB.
    pub(super) fn content(&self) -> Result<Vec<u8>, ToolError> {
        let failed = |error| self.failed("read", error);
        let file = beneath::open_to_read(&self.real).map_err(failed)?;
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
        beneath::replace(&self.real, content, None).map_err(|error| self.failed("write", error))
    }

    pub(super) fn mark(&self, content: &[u8]) -> ReadMark {
        ReadMark { path: self.shown.clone(), sha256: sha256(content) }
    }
}

pub(super) fn sha256(content: &[u8]) -> String {
    format!("{:x}", Sha256::digest(content))
}
