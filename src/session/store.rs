//! Where sessions are: `<root>/<workspace hash>/<id>/`, found by id, by prefix, or as the latest.
//!
//! Lists read `metadata.json` alone (the log's first lines where it is missing), never a whole log.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use super::derived::{METADATA_FILE, Metadata, title};
use super::error::SessionError;
use super::facts::Fact;
use super::files::read_optional;
use super::lock::is_held;
use super::log::{LOG_FILE, read_start};
use crate::event::Outcome;
use crate::world::{World, rfc3339};

/// The folders of all sessions: `<root>/<workspace hash>/<id>/`.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
}

/// One line of a list, from metadata alone.
#[derive(Debug, Clone)]
pub struct Listed {
    pub id: String,
    pub dir: PathBuf,
    pub workspace: String,
    pub title: String,
    /// RFC 3339.
    pub updated: String,
    pub goal_name: String,
    pub goal_digest: String,
    /// Of its last run; absent while one runs, and when the last one died.
    pub outcome: Option<Outcome>,
    pub running: bool,
}

impl Store {
    /// `root` is `<SPETTRO_HOME>/sessions` or `--session-dir`. Nothing is made yet.
    pub fn new(root: PathBuf) -> Store {
        Store { root }
    }

    /// `session-YYYYMMDD-HHMMSS-<8 hex>` (UTC). `Session::create` refuses an id in use.
    pub fn new_id(world: &World) -> String {
        let digits: String = rfc3339(world.clock.now()).chars().filter(char::is_ascii_digit).collect();
        let (day, time) = digits.split_at(8);
        let chance = world.ids.draw("session") & 0xffff_ffff;
        format!("session-{day}-{}-{chance:08x}", &time[..6])
    }

    /// Sessions of a workspace, newest first; broken ones are skipped with a note.
    pub fn list(&self, world: &World, workspace: &Path) -> (Vec<Listed>, Vec<String>) {
        let (sessions, broken) = self.entries(world, workspace);
        let notes = broken.into_iter().map(|(id, error)| match id {
            Some(id) => format!("skipped `{id}`: {error}"),
            None => error.to_string(),
        });
        (sessions, notes.collect())
    }

    /// Sessions of every workspace, newest first; broken ones are skipped with a note.
    pub fn list_all(&self, world: &World) -> (Vec<Listed>, Vec<String>) {
        let (mut sessions, mut notes) = (Vec::new(), Vec::new());
        let folders = folders_in(world, &self.root).unwrap_or_else(|error| {
            notes.push(error.to_string());
            Vec::new()
        });
        for folder in folders {
            match sessions_in(world, &self.root.join(folder)) {
                Ok(dirs) => {
                    for (id, dir) in dirs {
                        match listed(&id, &dir) {
                            Ok(session) => sessions.push(session),
                            Err(error) => notes.push(format!("skipped `{id}`: {error}")),
                        }
                    }
                }
                Err(error) => notes.push(error.to_string()),
            }
        }
        sessions.sort_by(|a: &Listed, b| b.updated.cmp(&a.updated).then_with(|| b.id.cmp(&a.id)));
        (sessions, notes)
    }

    /// Sessions of a workspace, newest first, and why some are none; without an id the folder itself is at fault.
    fn entries(&self, world: &World, workspace: &Path) -> (Vec<Listed>, Vec<(Option<String>, SessionError)>) {
        let (mut sessions, mut broken) = (Vec::new(), Vec::new());
        let folder = self.root.join(workspace_hash(workspace));
        let dirs = sessions_in(world, &folder).unwrap_or_else(|error| {
            broken.push((None, error));
            Vec::new()
        });
        for (id, dir) in dirs {
            match listed(&id, &dir) {
                Ok(session) => sessions.push(session),
                Err(error) => broken.push((Some(id), error)),
            }
        }
        sessions.sort_by(|a, b| b.updated.cmp(&a.updated).then_with(|| b.id.cmp(&a.id)));
        (sessions, broken)
    }

    /// What a list would say of the session in `dir`.
    ///
    /// # Errors
    /// When neither its metadata nor its log can be read.
    pub fn look(dir: &Path) -> Result<Listed, SessionError> {
        listed(&dir.file_name().unwrap_or_default().to_string_lossy(), dir)
    }

    /// An id, a unique prefix (this workspace first, then any), or `latest` (of this workspace) → its folder.
    pub fn find(&self, world: &World, workspace: &Path, id: &str) -> Result<PathBuf, SessionError> {
        if id == "latest" {
            let (sessions, mut broken) = self.entries(world, workspace);
            return match sessions.into_iter().next() {
                Some(newest) => Ok(newest.dir),
                // Of several that are broken the last is the newest: ids sort by their time.
                None => Err(broken.pop().map_or_else(
                    || SessionError::NoneSaved { workspace: workspace.display().to_string() },
                    |(_, error)| error,
                )),
            };
        }
        check_id(id)?;
        let here = self.root.join(workspace_hash(workspace));
        let others = folders_in(world, &self.root)?;
        let others = others.into_iter().map(|name| self.root.join(name)).filter(|folder| *folder != here);
        let mut elsewhere = Vec::new();
        for folder in others {
            elsewhere.extend(sessions_in(world, &folder)?);
        }
        for sessions in [sessions_in(world, &here)?, elsewhere] {
            if let Some((_, dir)) = sessions.iter().find(|(name, _)| name == id) {
                return Ok(dir.clone());
            }
            let mut fitting: Vec<_> = sessions.into_iter().filter(|(name, _)| name.starts_with(id)).collect();
            match fitting.len() {
                0 => {}
                1 => return Ok(fitting.remove(0).1),
                _ => {
                    let ids = fitting.into_iter().map(|(name, _)| name).collect();
                    return Err(SessionError::Ambiguous { prefix: id.to_owned(), ids });
                }
            }
        }
        Err(SessionError::Unknown { id: id.to_owned() })
    }

    /// The folders of all sessions, of every workspace, that hold a file `name`: the `most` in which it was written
    /// last, the newest first. A store that is not there has none.
    ///
    /// # Errors
    /// When a folder of the store cannot be listed.
    pub fn with_file(&self, world: &World, name: &str, most: usize) -> Result<Vec<PathBuf>, SessionError> {
        let mut found = Vec::new();
        for workspace in folders_in(world, &self.root)? {
            for (_, dir) in sessions_in(world, &self.root.join(workspace))? {
                if let Ok(written) = std::fs::metadata(dir.join(name)).and_then(|meta| meta.modified()) {
                    found.push((written, dir));
                }
            }
        }
        found.sort();
        Ok(found.into_iter().rev().take(most).map(|(_, dir)| dir).collect())
    }

    /// Where a session of a workspace is or would be. The id is not checked here.
    pub fn dir_of(&self, workspace: &Path, id: &str) -> PathBuf {
        self.root.join(workspace_hash(workspace)).join(id)
    }
}

/// Refuses what may not be a file name of the store.
pub fn check_id(id: &str) -> Result<(), SessionError> {
    let starts_well = id.starts_with(|first: char| first.is_ascii_alphanumeric());
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if starts_well && id.len() <= 128 && id.bytes().all(allowed) {
        return Ok(());
    }
    Err(SessionError::BadId(id.to_owned()))
}

/// The first 16 hex digits of the sha256 of a workspace's canonical path.
pub(super) fn workspace_hash(workspace: &Path) -> String {
    // A workspace that is gone keeps the name it was given.
    let path = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
    let digest = Sha256::digest(path.as_os_str().as_encoded_bytes());
    digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn folders_in(world: &World, folder: &Path) -> Result<Vec<String>, SessionError> {
    match world.dir.list(folder) {
        Ok(entries) => Ok(entries.into_iter().filter(|e| e.is_dir).filter_map(|e| e.name.into_string().ok()).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(SessionError::Io { what: "list", file: folder.to_owned(), error }),
    }
}

fn sessions_in(world: &World, folder: &Path) -> Result<Vec<(String, PathBuf)>, SessionError> {
    let names = folders_in(world, folder)?.into_iter().filter(|name| check_id(name).is_ok());
    Ok(names.map(|name| (name.clone(), folder.join(name))).collect())
}

fn listed(id: &str, dir: &Path) -> Result<Listed, SessionError> {
    let metadata = read_optional(&dir.join(METADATA_FILE))?;
    if let Some(metadata) = metadata.and_then(|bytes| serde_json::from_slice::<Metadata>(&bytes).ok()) {
        return Ok(Listed {
            id: id.to_owned(),
            dir: dir.to_owned(),
            running: metadata.outcome.is_none() && is_held(&dir.join(LOCK_FILE)),
            workspace: metadata.workspace,
            title: metadata.title,
            updated: metadata.updated_at,
            goal_name: metadata.goal.name,
            goal_digest: metadata.goal.digest,
            outcome: metadata.outcome,
        });
    }
    // Derived, and gone or never written: the start of the log knows what a list needs.
    let path = dir.join(LOG_FILE);
    let (header, frozen) = read_start(&path, |fact| matches!(fact, Fact::Frozen(_)))?;
    let (goal_name, goal_digest, title) = match frozen.map(|line| line.fact) {
        Some(Fact::Frozen(frozen)) => {
            let title = frozen.title.unwrap_or_else(|| title(&frozen.goal));
            (frozen.goal_name, frozen.goal_digest, title)
        }
        _ => Default::default(),
    };
    let changed = std::fs::metadata(&path).and_then(|meta| meta.modified());
    Ok(Listed {
        id: id.to_owned(),
        dir: dir.to_owned(),
        workspace: header.workspace,
        title,
        updated: rfc3339(changed.unwrap_or(SystemTime::UNIX_EPOCH)),
        goal_name,
        goal_digest,
        outcome: None,
        running: is_held(&dir.join(LOCK_FILE)),
    })
}

/// The name of the lock in a session's folder.
pub(super) const LOCK_FILE: &str = "lock";
