//! A look that lists little sees what one sees that lists everything.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::super::stamp::{Hash, Kind};
use super::super::testing::{sh, world, write};
use super::super::tree::Tree;
use crate::world::{Dir, DirEntry, Enter, Explored, RealDir, Roots, WalkOptions, World};

fn tree(root: &Path) -> Tree {
    Tree::new(Roots::same(root.to_owned()), Vec::new())
}

type States = BTreeMap<PathBuf, (Kind, Hash)>;

fn states(tree: &Tree) -> States {
    tree.states().map(|(path, kind, hash)| (path.into_owned(), (kind, hash))).collect()
}

/// Looks, and holds what the tree knows and what it told against a tree that lists everything.
fn look(tree: &mut Tree, root: &Path, all: bool) {
    let before = states(tree);
    let differing = tree.look(&world(), all).unwrap();
    let mut fresh = Tree::new(Roots::same(root.to_owned()), Vec::new());
    let digest = fresh.digest(&world()).unwrap();
    let now = states(&fresh);
    assert_eq!(states(tree), now);
    assert_eq!(tree.unread(), fresh.unread());
    let mut told = before.clone();
    for (path, after) in differing {
        assert_ne!(before.get(&path).copied(), after, "{} is no difference", path.display());
        match after {
            Some(state) => drop(told.insert(path, state)),
            None => drop(told.remove(&path)),
        }
    }
    assert_eq!(told, now, "what is told is all there is");
    if all {
        assert_eq!(tree.digest(&world()).unwrap(), digest);
    }
}

/// What happens to a workspace. Whatever cannot be done where it falls is not done.
#[derive(Debug, Clone)]
enum Deed {
    Write(PathBuf, u8),
    /// With the same size, and the modification time put back.
    Forge(PathBuf, u8),
    Remove(PathBuf),
    Folder(PathBuf),
    Rename(PathBuf, PathBuf),
    Swap(PathBuf, PathBuf),
    Mode(PathBuf, u32),
    Link(PathBuf, PathBuf),
    Pipe(PathBuf),
    Ignore(PathBuf, &'static str, &'static str),
    Exclude(&'static str),
    Repository(PathBuf, u8),
    Look,
    LookAtAll,
}

fn path() -> impl Strategy<Value = PathBuf> {
    let name = prop::sample::select(vec!["a", "b", "a-b", "c.log", "target"]);
    prop::collection::vec(name, 1..4).prop_map(|names| names.iter().collect())
}

fn deed() -> impl Strategy<Value = Deed> {
    let rule = || prop::sample::select(vec!["target", "*.log", "/a", "!c.log", "b/", "*", ""]);
    let rules = prop::sample::select(vec![".gitignore", ".ignore"]);
    prop_oneof![
        6 => (path(), any::<u8>()).prop_map(|(path, byte)| Deed::Write(path, byte)),
        2 => (path(), any::<u8>()).prop_map(|(path, byte)| Deed::Forge(path, byte)),
        3 => path().prop_map(Deed::Remove),
        2 => path().prop_map(Deed::Folder),
        3 => (path(), path()).prop_map(|(one, other)| Deed::Rename(one, other)),
        1 => (path(), path()).prop_map(|(one, other)| Deed::Swap(one, other)),
        2 => (path(), prop::sample::select(vec![0o644, 0o755, 0o600])).prop_map(|(path, mode)| Deed::Mode(path, mode)),
        1 => (path(), path()).prop_map(|(target, link)| Deed::Link(target, link)),
        1 => path().prop_map(Deed::Pipe),
        2 => (path(), rules, rule()).prop_map(|(path, name, rule)| Deed::Ignore(path, name, rule)),
        1 => rule().prop_map(Deed::Exclude),
        1 => (path(), any::<u8>()).prop_map(|(path, byte)| Deed::Repository(path, byte)),
        8 => Just(Deed::Look),
        1 => Just(Deed::LookAtAll),
    ]
}

fn put(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap())?;
    // A pipe would wait for a reader.
    if fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    fs::write(path, content)
}

impl Deed {
    fn happens(&self, root: &Path) -> io::Result<()> {
        let at = |path: &PathBuf| root.join(path);
        match self {
            Deed::Write(path, byte) => put(&at(path), [*byte]),
            Deed::Forge(path, byte) => {
                let there = fs::symlink_metadata(at(path))?;
                put(&at(path), vec![*byte; there.len() as usize])?;
                fs::File::options().write(true).open(at(path))?.set_modified(there.modified()?)
            }
            Deed::Remove(path) if fs::symlink_metadata(at(path))?.is_dir() => fs::remove_dir_all(at(path)),
            Deed::Remove(path) => fs::remove_file(at(path)),
            Deed::Folder(path) => fs::create_dir_all(at(path)),
            Deed::Rename(one, other) => fs::rename(at(one), at(other)),
            Deed::Swap(one, other) => {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let cwd = rustix::fs::CWD;
                Ok(rustix::fs::renameat_with(cwd, at(one), cwd, at(other), flags)?)
            }
            Deed::Mode(path, _) if !fs::symlink_metadata(at(path))?.is_file() => Ok(()),
            Deed::Mode(path, mode) => fs::set_permissions(at(path), Permissions::from_mode(*mode)),
            Deed::Link(target, link) => symlink(target, at(link)),
            Deed::Pipe(path) => {
                let kind = rustix::fs::FileType::Fifo;
                Ok(rustix::fs::mknodat(rustix::fs::CWD, at(path), kind, 0o600.into(), 0)?)
            }
            Deed::Ignore(path, name, rule) => {
                // Often where it holds for much.
                let folder = if rule.starts_with('/') { root.to_owned() } else { at(path) };
                put(&folder.join(name), format!("{rule}\n"))
            }
            Deed::Exclude(rule) => put(&root.join(".git/info/exclude"), format!("{rule}\n")),
            Deed::Repository(path, byte) => put(&at(path).join(".git/HEAD"), format!("{byte:040x}\n")),
            Deed::Look | Deed::LookAtAll => Ok(()),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn looking_at_what_may_have_changed_is_enough(deeds in prop::collection::vec(deed(), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let mut tree = tree(dir.path());
        for deed in deeds {
            match deed {
                Deed::Look => look(&mut tree, dir.path(), false),
                Deed::LookAtAll => look(&mut tree, dir.path(), true),
                // What cannot be done is not done.
                deed => drop(deed.happens(dir.path())),
            }
        }
        look(&mut tree, dir.path(), false);
    }
}

/// Notes which folders are gone into.
struct Watched(Arc<Mutex<Vec<PathBuf>>>);

impl Dir for Watched {
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        RealDir.list(path)
    }

    fn explore(&self, root: &Path, options: WalkOptions, enter: Enter) -> Explored {
        let entered = Arc::clone(&self.0);
        entered.lock().unwrap().push(PathBuf::new());
        RealDir.explore(
            root,
            options,
            Arc::new(move |path| {
                let enters = enter(path);
                if enters {
                    entered.lock().unwrap().push(path.to_owned());
                }
                enters
            }),
        )
    }
}

/// A tree whose folders are all past the racy moment, and what it goes into from then on.
fn settled(root: &Path) -> (Tree, World, impl Fn() -> Vec<String> + use<>) {
    let entered = Arc::new(Mutex::new(Vec::new()));
    let world = World { dir: Rc::new(Watched(Arc::clone(&entered))), ..world() };
    let mut tree = tree(root);
    tree.digest(&world).unwrap();
    sh(root, "sleep 0.02; echo x > newest");
    for _ in 0..2 {
        tree.look(&world, false).unwrap();
        sh(root, "sleep 0.02; echo y > newest");
    }
    tree.look(&world, false).unwrap();
    entered.lock().unwrap().clear();
    let taken = move || {
        let mut entered = std::mem::take(&mut *entered.lock().unwrap());
        entered.sort();
        entered.iter().map(|path| path.display().to_string()).collect()
    };
    (tree, world, taken)
}

fn sample() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a/b/c", "a/d/e", "f/g/h"] {
        write(dir.path(), name, name);
    }
    write(dir.path(), ".gitignore", "built\n");
    fs::create_dir(dir.path().join("empty")).unwrap();
    dir
}

fn told(tree: &mut Tree, world: &World) -> Vec<String> {
    tree.look(world, false).unwrap().into_iter().map(|(path, _)| path.display().to_string()).collect()
}

#[test]
fn only_folders_whose_names_may_have_changed_are_listed() {
    let dir = sample();
    let (mut tree, world, entered) = settled(dir.path());
    assert_eq!((told(&mut tree, &world), entered()), (vec![], vec![]));
    sh(dir.path(), "echo more >> a/b/c");
    assert_eq!(told(&mut tree, &world), ["a/b/c"]);
    assert_eq!(entered(), [""; 0], "a content is no name");
    sh(dir.path(), "mkdir -p built/deep; touch built/deep/x");
    assert_eq!(told(&mut tree, &world), [""; 0]);
    assert_eq!(entered(), [""], "what is ignored is not gone into");
    sh(dir.path(), "touch a/d/new");
    assert_eq!(told(&mut tree, &world), ["a/d/new"]);
    let now = entered();
    assert!(now.contains(&"a/d".to_owned()) && !now.iter().any(|path| path.starts_with('f')), "{now:?}");
    sh(dir.path(), "mkdir -p empty/x/y; touch empty/x/y/z");
    assert_eq!(told(&mut tree, &world), ["empty/x/y/z"]);
    sh(dir.path(), "mv a/b f/b");
    assert_eq!(told(&mut tree, &world), ["a/b/c", "f/b/c"]);
}

#[test]
fn what_is_ignored_from_now_on_is_gone_and_comes_back() {
    let dir = sample();
    let (mut tree, world, _) = settled(dir.path());
    sh(dir.path(), "echo d > a/.gitignore");
    assert_eq!(told(&mut tree, &world), ["a/.gitignore", "a/d/e"]);
    sh(dir.path(), "sleep 0.02; echo x > newest");
    assert_eq!(told(&mut tree, &world), ["newest"]);
    sh(dir.path(), "echo other > a/.gitignore");
    assert_eq!(told(&mut tree, &world), ["a/.gitignore", "a/d/e"]);
    sh(dir.path(), "mkdir -p .git/info; echo h > .git/info/exclude");
    assert_eq!(told(&mut tree, &world), ["f/g/h"]);
}

#[test]
fn what_somebody_wrote_is_looked_at_alone() {
    let dir = sample();
    let (mut tree, world, entered) = settled(dir.path());
    sh(dir.path(), "echo 1 > a/b/c; echo 2 > f/g/h");
    let paths = |tree: &mut Tree, names: &[&str]| {
        let names: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
        let found = tree.look_at(&names)?;
        Some(found.into_iter().map(|(path, _)| path.display().to_string()).collect::<Vec<_>>())
    };
    assert_eq!(paths(&mut tree, &["a/b/c"]), Some(vec!["a/b/c".to_owned()]));
    assert_eq!(entered(), [""; 0]);
    assert_eq!(told(&mut tree, &world), ["f/g/h"], "the other one is told by the next look");
    assert_eq!(paths(&mut tree, &["a/b/c"]), Some(vec![]));
    sh(dir.path(), "ln -s b/c a/link; rm a/d/e");
    look(&mut tree, dir.path(), false);
    for more in ["new", "a/link", "a/d/e", ".gitignore", "a/../a/b/c"] {
        assert_eq!(paths(&mut tree, &[more]), None, "{more} needs a whole look");
    }
}
