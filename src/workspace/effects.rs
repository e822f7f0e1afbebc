//! What changed in a workspace between two looks, with the contents.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::WorkspaceError;
use super::stamp::{Hash, Kind, hex};
use super::tree::{Tree, bytes, shown, whole};
use crate::session::{Blob, Effects, FileEffect, FileKind, FileState};
use crate::world::{Secrets, World, regular};

/// More files in one step are told without their contents.
const MOST_FILES: usize = 2_000;
/// The same for so many bytes together.
const MOST_BYTES: u64 = 64_000_000;
/// What tools make anew, in a digest or not, is no effect.
const NEVER: [&str; 5] = [".git", "target", "node_modules", ".venv", "__pycache__"];

impl Tree {
    /// What differs from the last look; the next ones compare with now. What was never digested was empty. `written`:
    /// the files (as shown) that can be others than before, where somebody knows.
    pub fn effects(
        &mut self,
        world: &World,
        secrets: &Secrets,
        written: Option<&[String]>,
    ) -> Result<Effects, WorkspaceError> {
        let known = written.and_then(|files| {
            let inside = |file: &String| Path::new(file).strip_prefix(self.shown()).ok().map(Path::to_owned);
            self.look_at(&files.iter().map(inside).collect::<Option<Vec<_>>>()?)
        });
        let differing = match known {
            Some(differing) => differing,
            None => self.look(world, false)?,
        };
        let mut effects = Effects::default();
        let mut budget = MOST_BYTES;
        for (path, after) in differing {
            if path.iter().any(|part| NEVER.iter().any(|never| part == OsStr::new(never))) {
                effects.partial = true;
                continue;
            }
            let after = after.map(|(kind, hash)| {
                let content = content(&self.root().join(&path), kind, &hash, &mut budget);
                effects.partial |= content.is_none() && budget == 0;
                let content = content.filter(|content| !secrets.contains(content)).map(Blob);
                FileState { kind: kind.into(), sha256: hex(&hash), content }
            });
            effects.files.push(FileEffect { path: Blob(bytes(&path).to_vec()), after });
        }
        if effects.files.len() > MOST_FILES {
            effects.partial = true;
        }
        if effects.partial {
            effects.files.iter_mut().filter_map(|file| file.after.as_mut()).for_each(|after| after.content = None);
        }
        Ok(effects)
    }

    /// The digest that a workspace has which holds this one's files and, where it has none at those paths, these
    /// others: kinds and sha256.
    pub fn digest_with<'a>(
        &mut self,
        world: &World,
        others: impl Iterator<Item = (&'a Path, FileKind, &'a str)>,
    ) -> Result<String, WorkspaceError> {
        self.digest(world)?;
        let others = others.filter_map(|(path, kind, sha256)| Some((bytes(path), (kind.into(), unhex(sha256)?))));
        let mut states: BTreeMap<&[u8], (Kind, Hash)> = others.collect();
        states.extend(self.states().map(|(path, kind, hash)| (bytes(path), (kind, hash))));
        Ok(whole(states.iter().map(|(path, (kind, hash))| (Path::new(OsStr::from_bytes(path)), *kind, hash))))
    }
}

/// The content that has this digest, while the budget lasts.
fn content(path: &Path, kind: Kind, hash: &Hash, budget: &mut u64) -> Option<Vec<u8>> {
    let content = match kind {
        Kind::File | Kind::Executable => {
            let size = std::fs::symlink_metadata(path).ok().filter(std::fs::Metadata::is_file)?.len();
            let left = budget.checked_sub(size);
            *budget = left.unwrap_or(0);
            left?;
            regular::read(path, size).ok()?
        }
        Kind::Symlink => std::fs::read_link(path).ok()?.into_os_string().into_vec(),
        Kind::Repository | Kind::Special => return None,
    };
    (Sha256::digest(&content).as_slice() == hash).then_some(content)
}

/// The digest of a path as [`Tree::files`] gives it, from its kind and the sha256 of its content. `None` when that is none.
pub fn shown_digest(kind: FileKind, sha256: &str) -> Option<String> {
    Some(shown(kind.into(), &unhex(sha256)?))
}

pub(super) fn unhex(text: &str) -> Option<Hash> {
    let mut hash = Hash::default();
    if text.len() != hash.len() * 2 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(at * 2..at * 2 + 2)?, 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{sh, world, write};
    use super::*;
    use crate::world::Roots;

    fn told(effects: &Effects) -> Vec<(String, Option<String>)> {
        let text = |blob: &Blob| String::from_utf8_lossy(&blob.0).into_owned();
        let content =
            |file: &FileEffect| file.after.as_ref().map(|after| after.content.as_ref().map_or("-".into(), text));
        effects.files.iter().map(|file| (text(&file.path), content(file))).collect()
    }

    #[test]
    fn what_was_made_changed_and_removed_is_told_once() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c/d"] {
            write(dir.path(), name, name);
        }
        write(dir.path(), ".gitignore", "ignored\n");
        sh(dir.path(), "sleep 0.02");
        let mut tree = Tree::new(Roots::same(dir.path().to_owned()), Vec::new());
        tree.digest(&world()).unwrap();
        sh(dir.path(), "rm a; echo 2 > b; chmod +x c/d; ln -s b e; echo x > ignored; mkdir target; echo y > target/o");
        let effects = tree.effects(&world(), &Secrets::default(), None).unwrap();
        let some = |text: &str| Some(text.to_owned());
        let all = [("a", None), ("b", some("-")), ("c/d", some("-")), ("e", some("-"))];
        assert_eq!(told(&effects), all.map(|(path, content)| (path.to_owned(), content)));
        assert!(effects.partial, "what is built is left out, and that is said");
        sh(dir.path(), "echo 3 > b");
        let effects = tree.effects(&world(), &Secrets::default(), None).unwrap();
        assert_eq!(told(&effects), [("b".to_owned(), some("3\n"))]);
        assert!(!effects.partial);
        assert_eq!(told(&tree.effects(&world(), &Secrets::default(), None).unwrap()), []);
    }

    #[test]
    fn the_digest_with_what_is_elsewhere_is_that_of_all() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "a-b", "a/c"] {
            if name != "a" {
                write(dir.path(), name, name);
            }
        }
        write(dir.path(), "z", "z");
        let mut tree = Tree::new(Roots::same(dir.path().to_owned()), Vec::new());
        let whole = tree.digest(&world()).unwrap();
        let states = tree.states().map(|(path, kind, hash)| (path.to_owned(), FileKind::from(kind), hex(&hash)));
        let others: Vec<_> = states.collect();
        sh(dir.path(), "rm -r a a-b");
        assert_ne!(tree.digest(&world()).unwrap(), whole);
        let others = others.iter().map(|(path, kind, sha256)| (path.as_path(), *kind, sha256.as_str()));
        assert_eq!(tree.digest_with(&world(), others).unwrap(), whole);
    }
}
