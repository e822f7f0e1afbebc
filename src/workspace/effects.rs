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
/// The same for so many bytes together, as they are written down: what is escaped takes up to six times its size, and a
/// line of a cassette holds no more than 64 MiB. What does not fit in without any content is left out.
const MOST_BYTES: u64 = 64_000_000;
/// What is written down beside a path and a content.
const BESIDE_BYTES: u64 = 200;
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
        let (mut named, mut left) = (0, MOST_BYTES);
        for (path, after) in differing {
            if path.iter().any(|part| NEVER.iter().any(|never| part == OsStr::new(never))) {
                effects.partial = true;
                continue;
            }
            let name = Blob(bytes(&secrets.redact_path(&path)).to_vec());
            let takes = name.encoded_bytes() + BESIDE_BYTES;
            named += takes;
            if named > MOST_BYTES {
                effects.partial = true;
                break;
            }
            left = left.saturating_sub(takes);
            let after = after.map(|(kind, hash)| {
                let mut content = None;
                if !effects.partial {
                    match content_within(&self.root().join(&path), kind, &hash, &mut left) {
                        Ok(found) => content = found.filter(|content| !secrets.contains(&content.0)),
                        Err(TooMuch) => effects.partial = true,
                    }
                }
                FileState { kind: kind.into(), sha256: hex(&hash), content }
            });
            effects.files.push(FileEffect { path: name, after });
        }
        if effects.files.len() > MOST_FILES {
            effects.partial = true;
        }
        // Names with another one in the place of a secret stand elsewhere among them.
        effects.files.sort_by(|one, other| one.path.0.cmp(&other.path.0));
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
        let here: Vec<_> = self.states().collect();
        states.extend(here.iter().map(|(path, kind, hash)| (bytes(path), (*kind, *hash))));
        Ok(whole(states.iter().map(|(path, (kind, hash))| (Path::new(OsStr::from_bytes(path)), *kind, hash))))
    }
}

/// A content takes more than is left.
struct TooMuch;

/// The content that has this digest; `left` is what it may take as it is written down, and then what is left of that.
fn content_within(path: &Path, kind: Kind, hash: &Hash, left: &mut u64) -> Result<Option<Blob>, TooMuch> {
    let content = match kind {
        Kind::File | Kind::Executable => {
            let Some(there) = std::fs::symlink_metadata(path).ok().filter(std::fs::Metadata::is_file) else {
                return Ok(None);
            };
            if there.len() > *left {
                return Err(TooMuch);
            }
            regular::read(path, there.len()).ok()
        }
        Kind::Symlink => std::fs::read_link(path).ok().map(|target| target.into_os_string().into_vec()),
        Kind::Repository | Kind::Special => None,
    };
    let Some(content) = content.filter(|content| Sha256::digest(content).as_slice() == hash).map(Blob) else {
        return Ok(None);
    };
    *left = left.checked_sub(content.encoded_bytes()).ok_or(TooMuch)?;
    Ok(Some(content))
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
        let states = tree.states().map(|(path, kind, hash)| (path.into_owned(), FileKind::from(kind), hex(&hash)));
        let others: Vec<_> = states.collect();
        sh(dir.path(), "rm -r a a-b");
        assert_ne!(tree.digest(&world()).unwrap(), whole);
        let others = others.iter().map(|(path, kind, sha256)| (path.as_path(), *kind, sha256.as_str()));
        assert_eq!(tree.digest_with(&world(), others).unwrap(), whole);
    }

    #[test]
    fn names_that_hold_a_secret_are_told_without_it_and_so_is_the_digest() {
        let secrets = Secrets::new([("KEY".to_owned(), "sk-in-a-name".to_owned())]);
        let dir = tempfile::tempdir().unwrap();
        let mut tree = Tree::new(Roots::same(dir.path().to_owned()), Vec::new()).without(secrets.clone());
        tree.digest(&world()).unwrap();
        // Raw, and in base64; both are one name without a mark.
        for (name, text) in [("z/sk-in-a-name", "raw"), ("z/c2staW4tYS1uYW1l", "base64"), ("a", "other")] {
            write(dir.path(), name, text);
        }
        let effects = tree.effects(&world(), &secrets, None).unwrap();
        let told = told(&effects);
        let names: Vec<&str> = told.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names[..2], ["a", "z/«secret:KEY»"]);
        assert!(names[2].starts_with("z/«secret:KEY»~"), "{names:?}");
        assert_eq!(told[1].1.as_deref(), Some("raw"));
        assert_eq!(told[2].1.as_deref(), Some("base64"));
        assert!(!secrets.contains(serde_json::to_string(&effects).unwrap().as_bytes()));

        // A workspace into which that is put has the same digest.
        let replayed = tempfile::tempdir().unwrap();
        for (name, content) in &told {
            write(replayed.path(), name, content.as_deref().unwrap());
        }
        let digest = tree.digest(&world()).unwrap();
        let mut other = Tree::new(Roots::same(replayed.path().to_owned()), Vec::new());
        assert_eq!(other.digest(&world()).unwrap(), digest);
        assert_eq!(other.files(), tree.files());
        let base = crate::workspace::Base::of(&tree, dir.path());
        assert_eq!(base.digest(), Some(digest));
        let file = replayed.path().join("base.zst");
        base.keep(dir.path(), &file, &secrets).unwrap();
        let (read, contents) = crate::workspace::Base::read(&file).unwrap();
        assert_eq!(read.files, base.files);
        assert_eq!(contents.len(), 3, "each content is there, wherever it really stands");
    }

    #[test]
    fn contents_count_as_they_are_written_down() {
        for bytes in [&b"plain"[..], b"\0\x01\x1f\x7f\"\\/\n\r\t\x08\x0c", "äö€".as_bytes(), b"\xff\0x", b""] {
            let blob = Blob(bytes.to_vec());
            assert_eq!(blob.encoded_bytes(), serde_json::to_vec(&blob).unwrap().len() as u64, "{bytes:?}");
        }
        let dir = tempfile::tempdir().unwrap();
        let mut tree = Tree::new(Roots::same(dir.path().to_owned()), Vec::new());
        tree.digest(&world()).unwrap();
        // Together less than is taken, were they not escaped: each NUL takes six bytes.
        for name in ["a", "b"] {
            std::fs::write(dir.path().join(name), vec![0; 6_000_000]).unwrap();
        }
        let effects = tree.effects(&world(), &Secrets::default(), None).unwrap();
        assert!(effects.partial);
        assert!(effects.files.iter().all(|file| file.after.as_ref().is_some_and(|after| after.content.is_none())));
        std::fs::remove_file(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("b"), vec![0; 5_999_999]).unwrap();
        let effects = tree.effects(&world(), &Secrets::default(), None).unwrap();
        assert!(!effects.partial && effects.files[1].after.as_ref().is_some_and(|after| after.content.is_some()));
        let line = serde_json::to_vec(&effects).unwrap().len() as u64;
        assert!(line <= MOST_BYTES, "{line}");
    }
}
