//! Content digests of a workspace, cheap when little changed.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use sha2::{Digest, Sha256};

use super::WorkspaceError;
use super::folders::{Folders, Renewed, is_ignore_file};
use super::repository::Repository;
use super::stamp::{Content, Hash, Kind, Stamp, content, hex, in_parallel};
use crate::world::{Explored, Roots, Secrets, WalkOptions, World};

/// Files over this size are told by size and modification time.
const LARGEST_HASHED_BYTES: u64 = 20 * 1024 * 1024;

/// Nested repositories are gone into, so that they can be seen, and then taken as one entry each.
const EVERYTHING: WalkOptions = WalkOptions { gitignore: true, nested_repositories: true };

/// A path that is another than before, and what stands there now; absent when it is gone.
pub(super) type Difference = (PathBuf, Option<(Kind, Hash)>);

/// Digests of a workspace, with a stat cache between them.
///
/// Counted is what git would track or show as untracked: gitignore is honoured, nested repositories stand for their
/// commit, symlinks for their target's text. Names may be any bytes. All that leaves a tree (digests, listings, effects)
/// names paths as they may be written down: a secret in one is replaced, and its digest is that of such a workspace.
pub struct Tree {
    roots: Roots,
    excluded: Vec<PathBuf>,
    /// In the order of the last walk: by the bytes of the path.
    entries: Vec<Entry>,
    /// As they were listed last.
    folders: Folders,
    /// The newest change time that the last look saw.
    past: i128,
    /// Built when asked for: most workspaces are git repositories, and nobody asks.
    files: OnceCell<BTreeMap<PathBuf, String>>,
    unread: Vec<String>,
    /// Replaced in paths.
    secrets: Secrets,
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
pub(super) struct Entry {
    pub(super) path: PathBuf,
    /// `None`: must be hashed next time whatever its stat data say.
    stamp: Option<Stamp>,
    pub(super) kind: Kind,
    pub(super) hash: Hash,
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
        Tree::with(roots, excluded, None)
    }

    fn with(roots: Roots, excluded: Vec<PathBuf>, told: Option<Listings>) -> Tree {
        Tree {
            roots,
            excluded,
            entries: Vec::new(),
            folders: Folders::default(),
            past: i128::MIN,
            files: OnceCell::new(),
            unread: Vec::new(),
            secrets: Secrets::default(),
            told,
        }
    }

    /// A tree that reads nothing: each digest is the next of these listings.
    pub fn told(listings: Listings) -> Tree {
        Tree::with(Roots::same(PathBuf::new()), Vec::new(), Some(listings))
    }

    /// The same with these replaced in the paths that it gives.
    pub fn without(self, secrets: Secrets) -> Tree {
        Tree { secrets, ..self }
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
        self.look(world, true)?;
        Ok(self.whole())
    }

    /// Brings the entries up to date; what differs from before, by the bytes of the paths. Without `all` only those
    /// folders are listed whose names may have changed; what stands in the others is looked at in any case.
    pub(super) fn look(&mut self, world: &World, all: bool) -> Result<Vec<Difference>, WorkspaceError> {
        let root = self.roots.real.clone();
        let folder = self.open()?;
        let folder = folder.as_fd();
        let old = std::mem::take(&mut self.entries);
        // A moment that is over before anything is listed or read, and the newest one of this look.
        let (mut past, mut newest) = (self.past, i128::MIN);
        let part = if all { None } else { self.part(world, folder, &root, &mut newest) };
        past = past.max(newest);
        let (merged, mut differing) = match part {
            Some((_, _, renewed)) if renewed.keeps_all() => {
                (Merged { entries: old, fresh: BTreeMap::new() }, Vec::new())
            }
            Some((found, explored, renewed)) => {
                let merged = merge(old, found, |path| renewed.keeps(parent(path)));
                self.folders.renew(folder, &explored, renewed, past);
                merged
            }
            None => merge(old, self.all(world, folder, &root, past), |_| false),
        };
        self.files = OnceCell::new();
        differing.extend(self.read(folder, &root, merged, past, &mut newest));
        differing.sort_by(|(one, _), (other, _)| bytes(one).cmp(bytes(other)));
        self.past = newest;
        Ok(differing)
    }

    fn open(&self) -> Result<OwnedFd, WorkspaceError> {
        // An error, not an empty tree: «nothing there» would look like a change.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = &self.roots.real;
        rustix::fs::open(root, flags, Mode::empty())
            .map_err(|error| WorkspaceError::io("open the workspace", root)(error.into()))
    }

    /// Lists everything.
    fn all(&mut self, world: &World, folder: BorrowedFd<'_>, root: &Path, past: i128) -> Vec<Found> {
        let explored = world.dir.explore(root, EVERYTHING, Arc::new(|_| true));
        self.folders = Folders::listed(folder, root, &explored, past);
        self.unread = explored.unread;
        let found = collapse(root, explored.files, &self.excluded);
        if found.iter().any(Found::is_repository) {
            // What stands for its commit changes without any folder that is listed.
            self.folders.forget();
        }
        found
    }

    /// Lists what may have changed. `None`: that is not enough.
    fn part(
        &mut self,
        world: &World,
        folder: BorrowedFd<'_>,
        root: &Path,
        newest: &mut i128,
    ) -> Option<(Vec<Found>, Explored, Renewed)> {
        let stale = Arc::new(self.folders.stale(folder, root, newest)?);
        let mut explored = Explored::default();
        if !stale.is_empty() {
            let stale = Arc::clone(&stale);
            explored = world.dir.explore(root, EVERYTHING, Arc::new(move |path| stale.enters(path)));
        }
        let listed = std::mem::take(&mut explored.files).into_iter().filter(|path| stale.lists(parent(path)));
        let found = collapse(root, listed.collect(), &self.excluded);
        if !explored.unread.is_empty() || found.iter().any(Found::is_repository) {
            return None;
        }
        self.unread.clear();
        let renewed = Arc::try_unwrap(stale).ok()?.explored(&explored);
        Some((found, explored, renewed))
    }

    /// Looks at each path and reads what is not known to be as it was; what differs. `past`: a moment that was over
    /// before.
    fn read(
        &mut self,
        folder: BorrowedFd<'_>,
        root: &Path,
        merged: Merged,
        past: i128,
        newest: &mut i128,
    ) -> Vec<Difference> {
        let Merged { mut entries, fresh } = merged;
        let was = |i: usize, entry: &Entry| fresh.get(&i).map_or(Some((entry.kind, entry.hash)), |was| *was);
        let mut differing = Vec::new();
        // First look at everything, then read: the newest change time seen is a moment before all reading.
        let mut to_read = Vec::new();
        for (i, (reads, ctime)) in in_parallel(entries.len(), |i, (): &mut ()| {
            let entry = &entries[i];
            if entry.kind == Kind::Repository {
                return (false, i128::MIN);
            }
            match Stamp::read(folder, &entry.path).ok().flatten() {
                Some(stamp) => (entry.stamp != Some(stamp), stamp.ctime),
                None => (true, i128::MIN),
            }
        }) {
            *newest = (*newest).max(ctime);
            if reads {
                to_read.push(i);
            }
        }
        for (i, entry) in entries.iter_mut().enumerate().filter(|(_, entry)| entry.kind == Kind::Repository) {
            let was = was(i, entry);
            entry.hash = repository_hash(&root.join(&entry.path));
            if was != Some((entry.kind, entry.hash)) {
                differing.push((entry.path.clone(), Some((entry.kind, entry.hash))));
            }
        }
        let before_reading = past.max(*newest);
        let contents = in_parallel(to_read.len(), |i, buffer: &mut Vec<u8>| {
            content(folder, &entries[to_read[i]].path, LARGEST_HASHED_BYTES, buffer)
        });
        let mut gone = Vec::new();
        for (i, content) in contents {
            let at = to_read[i];
            let entry = &mut entries[at];
            let was = was(at, entry);
            entry.stamp = None;
            match content {
                Content::Read { stamp, hash } => {
                    (entry.kind, entry.hash) = (stamp.kind, hash);
                    entry.stamp = (stamp.ctime < before_reading).then_some(stamp);
                }
                Content::Unreadable => {
                    (entry.kind, entry.hash) = (Kind::File, Sha256::digest(b"unreadable").into());
                    self.unread.push(entry.path.display().to_string());
                }
                Content::Gone => gone.push(at),
            }
            let now = (content != Content::Gone).then_some((entry.kind, entry.hash));
            if now != was {
                differing.push((entry.path.clone(), now));
            }
        }
        gone.sort_unstable();
        for at in gone.into_iter().rev() {
            entries.remove(at);
        }
        self.unread.sort();
        self.entries = entries;
        differing
    }

    /// As `look`, for files that somebody is known to have written, and nothing else. `None` where that is not enough.
    pub(super) fn look_at(&mut self, paths: &[PathBuf]) -> Option<Vec<Difference>> {
        let folder = self.open().ok()?;
        let places = paths.iter().map(|path| {
            let at = self.entries.binary_search_by(|entry| bytes(&entry.path).cmp(bytes(path))).ok()?;
            // What stands behind a link has another path, and what is ignored follows from some.
            let plain = |kind| matches!(kind, Kind::File | Kind::Executable);
            (plain(self.entries[at].kind) && !is_ignore_file(path)).then_some(at)
        });
        let places: BTreeSet<usize> = places.collect::<Option<_>>()?;
        let mut buffer = Vec::new();
        let read = places.into_iter().map(|at| {
            match content(folder.as_fd(), &self.entries[at].path, LARGEST_HASHED_BYTES, &mut buffer) {
                Content::Read { stamp, hash } if matches!(stamp.kind, Kind::File | Kind::Executable) => {
                    Some((at, stamp, hash))
                }
                _ => None,
            }
        });
        let read = read.collect::<Option<Vec<_>>>()?;
        self.files = OnceCell::new();
        let mut differing = Vec::new();
        for (at, stamp, hash) in read {
            let entry = &mut self.entries[at];
            if (entry.kind, entry.hash) != (stamp.kind, hash) {
                differing.push((entry.path.clone(), Some((stamp.kind, hash))));
            }
            (entry.kind, entry.hash) = (stamp.kind, hash);
            entry.stamp = (stamp.ctime < self.past).then_some(stamp);
        }
        Some(differing)
    }

    /// Relative path → sha256, as of the last `digest`. Of a plain file it is that of its content; an executable,
    /// symlink or nested repository differs from a plain file with the same bytes.
    pub fn files(&self) -> &BTreeMap<PathBuf, String> {
        let shown = |(path, entry): (Cow<'_, Path>, &Entry)| (path.into_owned(), shown(entry.kind, &entry.hash));
        self.files.get_or_init(|| self.listed().into_iter().map(shown).collect())
    }

    /// Everything as of the last `digest` by the paths as they may be written down, sorted by the bytes of those.
    pub(super) fn listed(&self) -> Vec<(Cow<'_, Path>, &Entry)> {
        let mut listed: Vec<_> =
            self.entries.iter().map(|entry| (self.secrets.redact_path(&entry.path), entry)).collect();
        if listed.iter().any(|(path, _)| matches!(path, Cow::Owned(_))) {
            listed.sort_by(|(one, _), (other, _)| bytes(one).cmp(bytes(other)));
        }
        listed
    }

    /// Path, kind and digest of everything as of the last `digest`, sorted by the bytes of the paths.
    pub(super) fn states(&self) -> impl Iterator<Item = (Cow<'_, Path>, Kind, Hash)> {
        self.listed().into_iter().map(|(path, entry)| (path, entry.kind, entry.hash))
    }

    pub(super) fn root(&self) -> &Path {
        &self.roots.real
    }

    pub(super) fn shown(&self) -> &Path {
        &self.roots.shown
    }

    /// What the last `digest` could not read, as a person may be told.
    pub fn unread(&self) -> &[String] {
        &self.unread
    }

    fn whole(&self) -> String {
        let listed = self.listed();
        whole(listed.iter().map(|(path, entry)| (&**path, entry.kind, &entry.hash)))
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

/// The paths that may be there.
struct Merged {
    entries: Vec<Entry>,
    /// Those of them about which nothing is known but how they were when they were last looked at.
    fresh: BTreeMap<usize, Option<(Kind, Hash)>>,
}

/// What was known, where `keep` says that its folder is as it was, and what was found; and what is gone.
fn merge(old: Vec<Entry>, found: Vec<Found>, keep: impl Fn(&Path) -> bool) -> (Merged, Vec<Difference>) {
    let (mut merged, mut gone) = (Merged { entries: Vec::new(), fresh: BTreeMap::new() }, Vec::new());
    let (mut old, mut found) = (old.into_iter().peekable(), found.into_iter().peekable());
    loop {
        let order = match (old.peek(), found.peek()) {
            (None, None) => return (merged, gone),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(entry), Some(found)) => bytes(&entry.path).cmp(bytes(found.path())),
        };
        let entry = if order.is_le() { old.next() } else { None };
        let path = if order.is_ge() { found.next() } else { None };
        match (entry, path) {
            (Some(entry), None) if keep(&entry.path) => merged.entries.push(entry),
            (Some(entry), None) => gone.push((entry.path, None)),
            // The stamp says for what stood here; a repository is no file.
            (Some(entry), Some(found)) if (entry.kind == Kind::Repository) == found.is_repository() => {
                merged.entries.push(entry);
            }
            (entry, Some(found)) => {
                merged.fresh.insert(merged.entries.len(), entry.map(|entry| (entry.kind, entry.hash)));
                let kind = if found.is_repository() { Kind::Repository } else { Kind::File };
                let (path, hash) = (found.into_path(), Hash::default());
                merged.entries.push(Entry { path, stamp: None, kind, hash });
            }
            (None, None) => {}
        }
    }
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

/// The folder that something stands in. (Paths as such take themselves apart each time.)
pub(super) fn parent(path: &Path) -> &Path {
    let above = bytes(path).iter().rposition(|byte| *byte == b'/').map_or(&b""[..], |at| &bytes(path)[..at]);
    Path::new(OsStr::from_bytes(above))
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

    fn into_path(self) -> PathBuf {
        match self {
            Found::Path(path) | Found::Repository(path) => path,
        }
    }

    const fn is_repository(&self) -> bool {
        matches!(self, Found::Repository(_))
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
        let above = parent(&path);
        if bytes(above) != last.0 {
            last = (bytes(above).to_owned(), nested_root(root, above, &mut known));
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
