//! Content digests of a workspace, cheap when little changed.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{Mode, OFlags};
use sha2::{Digest, Sha256};

use super::WorkspaceError;
use super::repository::Repository;
use super::stamp::{Content, Hash, Kind, Stamp, content, hex, in_parallel};
use crate::world::{Roots, WalkOptions, World};

/// Files over this size are told by size and modification time.
const LARGEST_HASHED_BYTES: u64 = 20 * 1024 * 1024;

/// Digests of a workspace, with a stat cache between them.
///
/// Counted is what git would track or show as untracked: gitignore is honoured, nested repositories stand for their
/// commit, symlinks for their target's text. Names may be any bytes.
pub struct Tree {
    roots: Roots,
    excluded: Vec<PathBuf>,
    /// In the order of the last walk: by the bytes of the path.
    entries: Vec<Entry>,
    /// Built when asked for: most workspaces are git repositories, and nobody asks.
    files: OnceCell<BTreeMap<PathBuf, String>>,
    unread: Vec<String>,
    /// Where it is told instead of read.
    told: Option<Listings>,
}

/// A workspace's listing as it was once: its digest, and of its files those that count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listed {
    pub digest: Option<String>,
    pub files: BTreeMap<PathBuf, String>,
}

/// Gives one recorded listing after another.
pub type Listings = Rc<dyn Fn() -> Option<Listed>>;

#[derive(Debug)]
struct Entry {
    path: PathBuf,
    /// `None`: must be hashed next time whatever its stat data say.
    stamp: Option<Stamp>,
    kind: Kind,
    hash: Hash,
}

impl Tree {
    /// `excluded`: absolute paths never counted (spettro's own); `.spettro/sessions` of the workspace never is.
    pub fn new(roots: Roots, excluded: Vec<PathBuf>) -> Tree {
        let mut excluded: Vec<PathBuf> = excluded
            .iter()
            .map(|path| std::fs::canonicalize(path).unwrap_or_else(|_| path.clone()))
            .filter_map(|path| path.strip_prefix(&roots.real).ok().map(Path::to_owned))
            // The workspace inside a folder of spettro's (a private copy in a session): nothing of it is spettro's.
            .filter(|path| !path.as_os_str().is_empty())
            .collect();
        excluded.push(PathBuf::from(".spettro/sessions"));
        Tree { roots, excluded, entries: Vec::new(), files: OnceCell::new(), unread: Vec::new(), told: None }
    }

    /// A tree that reads nothing: each digest is the next of these listings.
    pub fn told(listings: Listings) -> Tree {
        let roots = Roots::same(PathBuf::new());
        Tree {
            roots,
            excluded: Vec::new(),
            entries: Vec::new(),
            files: OnceCell::new(),
            unread: Vec::new(),
            told: Some(listings),
        }
    }

    /// Whether it is told by a recording, and knows no files but those that count.
    pub const fn is_told(&self) -> bool {
        self.told.is_some()
    }

    /// The content digest now (sha256 hex): over the sorted paths, each with its kind and content digest.
    pub fn digest(&mut self, world: &World) -> Result<String, WorkspaceError> {
        if let Some(listings) = &self.told {
            let listed = listings().unwrap_or_default();
            self.files = OnceCell::from(listed.files);
            return listed.digest.ok_or_else(|| {
                let error = std::io::Error::other("it had no digest when it was recorded");
                WorkspaceError::io("list the workspace", &self.roots.shown)(error)
            });
        }
        let root = self.roots.real.clone();
        // An error, not an empty tree: «nothing there» would look like a change.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(&root, flags, Mode::empty())
            .map_err(|error| WorkspaceError::io("open the workspace", &root)(error.into()))?;
        // Nested repositories are walked into, so that they can be seen, and then taken as one entry each.
        let (paths, unread) = world.dir.walk(&root, WalkOptions { gitignore: true, nested_repositories: true });
        self.unread = unread;
        let paths = collapse(&root, paths, &self.excluded);

        // First look at everything, then read: the newest change time seen is a moment before all reading.
        let mut stamps = vec![None; paths.len()];
        for (i, stamp) in in_parallel(paths.len(), |i, (): &mut ()| match &paths[i] {
            Found::Path(path) => Stamp::read(folder.as_fd(), path).ok().flatten(),
            Found::Repository(_) => None,
        }) {
            stamps[i] = stamp;
        }
        let before_reading = stamps.iter().flatten().map(|stamp| stamp.ctime).max().unwrap_or(i128::MIN);

        let mut entries = Vec::with_capacity(paths.len());
        let mut to_read = Vec::new();
        let mut old = std::mem::take(&mut self.entries).into_iter().peekable();
        for (found, stamp) in paths.into_iter().zip(stamps) {
            let path = match found {
                Found::Repository(path) => {
                    let hash = repository_hash(&root.join(&path));
                    entries.push(Entry { path, stamp: None, kind: Kind::Repository, hash });
                    continue;
                }
                Found::Path(path) => path,
            };
            // Both lists are sorted by bytes: what the old one has before this path is gone.
            while old.next_if(|entry| bytes(&entry.path) < bytes(&path)).is_some() {}
            let cached = old.next_if(|entry| entry.path == path);
            match cached {
                Some(entry) if stamp.is_some() && entry.stamp == stamp => entries.push(entry),
                _ => {
                    to_read.push(entries.len());
                    entries.push(Entry { path, stamp: None, kind: Kind::File, hash: Hash::default() });
                }
            }
        }

        let contents = in_parallel(to_read.len(), |i, buffer: &mut Vec<u8>| {
            content(folder.as_fd(), &entries[to_read[i]].path, LARGEST_HASHED_BYTES, buffer)
        });
        let mut gone = Vec::new();
        for (i, content) in contents {
            let at = to_read[i];
            let entry = &mut entries[at];
            match content {
                Content::Read { stamp, hash } => {
                    entry.kind = stamp.kind;
                    entry.hash = hash;
                    entry.stamp = (stamp.ctime < before_reading).then_some(stamp);
                }
                Content::Unreadable => {
                    entry.hash = Sha256::digest(b"unreadable").into();
                    self.unread.push(entry.path.display().to_string());
                }
                Content::Gone => gone.push(at),
            }
        }
        gone.sort_unstable();
        for at in gone.into_iter().rev() {
            entries.remove(at);
        }
        self.unread.sort();
        self.entries = entries;
        self.files = OnceCell::new();
        Ok(self.whole())
    }

    /// Relative path → sha256, as of the last `digest`. Of a plain file it is that of its content; an executable,
    /// symlink or nested repository differs from a plain file with the same bytes.
    pub fn files(&self) -> &BTreeMap<PathBuf, String> {
        let list = || self.entries.iter().map(|entry| (entry.path.clone(), shown(entry.kind, &entry.hash))).collect();
        self.files.get_or_init(list)
    }

    /// All paths as of the last `digest`, sorted by their bytes.
    pub(super) fn listed(&self) -> impl Iterator<Item = (&Path, Kind, String)> {
        self.entries.iter().map(|entry| (entry.path.as_path(), entry.kind, hex(&entry.hash)))
    }

    /// Path, kind and digest of everything as of the last `digest`, sorted by the bytes of the paths.
    pub(super) fn states(&self) -> Vec<(PathBuf, Kind, Hash)> {
        self.entries.iter().map(|entry| (entry.path.clone(), entry.kind, entry.hash)).collect()
    }

    pub(super) fn root(&self) -> &Path {
        &self.roots.real
    }

    /// What the last `digest` could not read, as a person may be told.
    pub fn unread(&self) -> &[String] {
        &self.unread
    }

    fn whole(&self) -> String {
        whole(self.entries.iter().map(|entry| (entry.path.as_path(), entry.kind, &entry.hash)))
    }
}

/// The digest of a workspace that holds this, sorted by the bytes of the paths.
pub(super) fn whole<'a>(states: impl Iterator<Item = (&'a Path, Kind, &'a Hash)>) -> String {
    let mut digest = Sha256::new();
    for (path, kind, hash) in states {
        digest.update(bytes(path));
        digest.update([0, kind.tag(), 0]);
        digest.update(hash);
    }
    hex(&digest.finalize())
}

/// A file's digest is that of its content; anything else differs from a file with the same bytes.
pub(super) fn shown(kind: Kind, hash: &Hash) -> String {
    if kind == Kind::File {
        return hex(hash);
    }
    let mut digest = Sha256::new();
    digest.update([kind.tag(), 0]);
    digest.update(hash);
    hex(&digest.finalize())
}

pub(super) fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

enum Found {
    Path(PathBuf),
    /// The root of a nested repository.
    Repository(PathBuf),
}

impl Found {
    fn path(&self) -> &Path {
        match self {
            Found::Path(path) | Found::Repository(path) => path,
        }
    }
}

/// Leaves out what is excluded and puts each nested repository in the place of its files. Sorted by bytes.
fn collapse(root: &Path, paths: Vec<PathBuf>, excluded: &[PathBuf]) -> Vec<Found> {
    // Directory → the nested repository it belongs to, if any. Sorted walks visit a directory's files together.
    let mut known: BTreeMap<PathBuf, Option<PathBuf>> = BTreeMap::from([(PathBuf::new(), None)]);
    let mut found: Vec<Found> = Vec::with_capacity(paths.len());
    let mut repositories = BTreeSet::new();
    let mut last: (Vec<u8>, Option<PathBuf>) = (Vec::new(), None);
    for path in paths {
        // Comparing paths as paths takes them apart each time, and there may be very many.
        if excluded.iter().any(|excluded| bytes(&path).starts_with(bytes(excluded)) && path.starts_with(excluded)) {
            continue;
        }
        let parent = bytes(&path).iter().rposition(|byte| *byte == b'/').map_or(&b""[..], |at| &bytes(&path)[..at]);
        if parent != last.0 {
            last = (parent.to_owned(), nested_root(root, Path::new(OsStr::from_bytes(parent)), &mut known));
        }
        match &last.1 {
            None => found.push(Found::Path(path)),
            Some(repository) => {
                if repositories.insert(repository.clone()) {
                    found.push(Found::Repository(repository.clone()));
                }
            }
        }
    }
    if !repositories.is_empty() {
        // A repository stands where its first file stood (`lib/a` after `lib-b`); its own name sorts differently.
        found.sort_by(|a, b| bytes(a.path()).cmp(bytes(b.path())));
    }
    found
}

fn nested_root(root: &Path, dir: &Path, known: &mut BTreeMap<PathBuf, Option<PathBuf>>) -> Option<PathBuf> {
    if let Some(answer) = known.get(dir) {
        return answer.clone();
    }
    let answer = match dir.parent().and_then(|parent| nested_root(root, parent, known)) {
        Some(outer) => Some(outer),
        None => std::fs::symlink_metadata(root.join(dir).join(".git")).is_ok().then(|| dir.to_owned()),
    };
    known.insert(dir.to_owned(), answer.clone());
    answer
}

/// A nested repository's commit; one that has none, or whose HEAD cannot be read, is always the same.
fn repository_hash(dir: &Path) -> Hash {
    let head = Repository::at(dir).and_then(|repository| repository.head().ok().flatten());
    Sha256::digest(head.unwrap_or_default()).into()
}

/// What differs between two listings, sorted: added, removed and changed paths. For a workspace without git.
pub fn changed_files(before: &BTreeMap<PathBuf, String>, after: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let mut changed: Vec<&OsStr> = after
        .iter()
        .filter(|(path, hash)| before.get(*path) != Some(hash))
        .chain(before.iter().filter(|(path, _)| !after.contains_key(*path)))
        .map(|(path, _)| path.as_os_str())
        .collect();
    changed.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    changed.into_iter().map(|path| path.to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
