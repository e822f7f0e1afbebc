//! What the recorded workspace holds and the scratch folder does not: known by kind and digest, and written there when
//! somebody is about to look.
//!
//! Invariant: folder and this together are the recorded workspace; a file is up to date in the one in which it stands.
//! A digest that is held is that of the content at hand, whatever the recording says of it; what the recording has no
//! content of is never written.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::Bytes;

use super::files::{self, sha256};
use crate::cassette::Tape;
use crate::session::{Fact, FileKind, FileState};
use crate::workspace::is_ignore_file;

pub struct Held {
    root: PathBuf,
    tape: Rc<Tape>,
    files: BTreeMap<PathBuf, File>,
    /// Those of them that say what is ignored.
    rules: BTreeSet<PathBuf>,
    /// Folders out of which something recorded was removed: whether an empty one is left is not recorded.
    emptied: BTreeSet<PathBuf>,
    /// Something may stand in the folder.
    looked: bool,
}

struct File {
    kind: FileKind,
    /// Hex.
    sha256: String,
    content: Content,
}

/// Where a content is in the recording.
enum Content {
    /// Among those of the base, by its digest.
    Base,
    /// In an `effects` fact: its place, and which of its files.
    Effect(usize, usize),
    Nowhere,
}

impl Held {
    /// Nothing is held yet, and the folder is empty.
    pub fn new(tape: &Rc<Tape>, root: &Path) -> Held {
        let (files, rules, emptied) = Default::default();
        Held { root: root.to_owned(), tape: tape.clone(), files, rules, emptied, looked: false }
    }

    /// Takes the workspace as it was found.
    pub fn take_base(&mut self) {
        let tape = self.tape.clone();
        for file in tape.base().into_iter().flat_map(|base| &base.files) {
            let (sha256, content) = self.of_base(&file.sha256);
            self.insert(file.path.clone(), File { kind: file.kind, sha256, content });
        }
    }

    /// Takes what the fact at a place left of one of its files, in place of whatever stood there or on its way.
    ///
    /// # Errors
    /// When what stands in the folder cannot be removed.
    pub fn take(&mut self, path: &Path, after: &FileState, place: (usize, usize)) -> io::Result<()> {
        let (sha256, content) = match &after.content {
            Some(content) => (sha256(&content.0), Content::Effect(place.0, place.1)),
            None => self.of_base(&after.sha256),
        };
        if self.looked && files::stands(&self.root, path).is_some_and(|(kind, is)| kind == after.kind && is == sha256) {
            // A tool has just written it here, too.
            self.forget(path);
            return Ok(());
        }
        for above in path.ancestors().skip(1) {
            self.forget(above);
        }
        self.forget_below(path);
        if self.looked {
            files::make_way(&self.root, path)?;
        }
        self.insert(path.to_owned(), File { kind: after.kind, sha256, content });
        Ok(())
    }

    /// Nothing recorded stands at a path any more.
    ///
    /// # Errors
    /// When what stands in the folder cannot be removed.
    pub fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.forget_below(path);
        self.emptied.extend(path.parent().map(Path::to_owned));
        if self.looked { files::remove(&self.root, path) } else { Ok(()) }
    }

    /// Kind and sha256 (hex) of what stands at a path, here or in the folder.
    pub fn stands(&self, path: &Path) -> Option<(FileKind, String)> {
        let held = || self.files.get(path).map(|file| (file.kind, file.sha256.clone()));
        files::stands(&self.root, path).or_else(held)
    }

    /// What is held, each with its kind and sha256 (hex).
    pub fn iter(&self) -> impl Iterator<Item = (&Path, FileKind, &str)> {
        self.files.iter().map(|(path, file)| (path.as_path(), file.kind, file.sha256.as_str()))
    }

    /// Whether something at or below a path is held.
    pub fn holds(&self, path: &Path) -> bool {
        self.below(path).next().is_some()
    }

    /// Whether at or below a path there may have been a folder without files.
    pub fn may_be_bare(&self, path: &Path) -> bool {
        let bare = |folder: &PathBuf| !self.holds(folder) && files::is_bare(&self.root.join(folder));
        self.emptied.iter().filter(|folder| folder.starts_with(path)).any(bare)
    }

    /// Somebody is about to look who is given this path: what stands at it, on its way or below it is written, with
    /// what says what is ignored. `None`: a path that may lead anywhere.
    pub fn look(&mut self, path: Option<&Path>) {
        self.looked = true;
        if self.files.is_empty() {
            return;
        }
        let Some(path) = path.filter(|path| !self.leads_on(path)) else { return self.look_everywhere() };
        let here = self.below(path).map(|(path, _)| path.clone());
        let wanted: BTreeSet<PathBuf> = here.chain(self.rules.iter().cloned()).collect();
        if wanted.iter().any(|path| is_ignore_file(path) && self.is_link(path)) {
            return self.look_everywhere();
        }
        for path in path.ancestors().skip(1).map(Path::to_owned).chain(wanted) {
            self.write(&path);
        }
    }

    /// All that can be is written.
    pub fn look_everywhere(&mut self) {
        self.looked = true;
        for path in self.files.keys().cloned().collect::<Vec<_>>() {
            self.write(&path);
        }
    }

    /// What says what is ignored is written, where somebody has looked before: the folder is about to be listed.
    pub fn list(&mut self) {
        if self.looked && !self.rules.is_empty() {
            match self.rules.iter().any(|path| self.is_link(path)) {
                true => self.look_everywhere(),
                false => self.rules.clone().iter().for_each(|path| self.write(path)),
            }
        }
    }

    /// Whether a path is, or goes through, a link.
    fn leads_on(&self, path: &Path) -> bool {
        path.ancestors().any(|part| self.is_link(part))
    }

    fn is_link(&self, path: &Path) -> bool {
        let held = self.files.get(path).map(|file| file.kind == FileKind::Symlink);
        held.unwrap_or_else(|| !path.as_os_str().is_empty() && self.root.join(path).is_symlink())
    }

    /// Writes one that is held; one that has no content, or cannot be written, stays.
    fn write(&mut self, path: &Path) {
        let Some(file) = self.files.get(path) else { return };
        let Some(content) = self.content(file) else { return };
        if files::place(&self.root, path, file.kind, &content).is_ok() {
            self.forget(path);
        }
    }

    fn content(&self, file: &File) -> Option<Bytes> {
        match file.content {
            Content::Base => self.tape.blob(&file.sha256),
            Content::Effect(at, index) => match &self.tape.facts()[at].fact {
                Fact::Effects(effects) => {
                    let content = effects.files.get(index)?.after.as_ref()?.content.as_ref()?;
                    Some(Bytes::copy_from_slice(&content.0))
                }
                _ => None,
            },
            Content::Nowhere => None,
        }
    }

    /// A content of the base. One that has another digest than it is called by is none, and that is its digest.
    fn of_base(&self, told: &str) -> (String, Content) {
        match self.tape.blob(told).map(|content| sha256(&content)) {
            Some(sha256) if sha256 == told => (sha256, Content::Base),
            Some(sha256) => (sha256, Content::Nowhere),
            None => (told.to_owned(), Content::Nowhere),
        }
    }

    fn insert(&mut self, path: PathBuf, file: File) {
        if is_ignore_file(&path) {
            self.rules.insert(path.clone());
        }
        self.files.insert(path, file);
    }

    fn below<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = (&'a PathBuf, &'a File)> {
        // Paths are in the order of their parts: what is below one stands directly behind it.
        let from = (Bound::Included(path), Bound::Unbounded);
        self.files.range::<Path, _>(from).take_while(move |(one, _)| one.starts_with(path))
    }

    fn forget(&mut self, path: &Path) {
        self.files.remove(path);
        self.rules.remove(path);
    }

    fn forget_below(&mut self, path: &Path) {
        for path in self.below(path).map(|(path, _)| path.clone()).collect::<Vec<_>>() {
            self.forget(&path);
        }
    }
}
