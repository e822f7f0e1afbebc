//! Digests say what is there, and only that.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use super::super::testing::{sh, world, write};
use super::*;

fn tree(root: &Path) -> Tree {
    Tree::new(Roots::same(root.to_owned()), Vec::new())
}

fn fresh(root: &Path) -> String {
    tree(root).digest(&world()).unwrap()
}

fn sample() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a.txt", "one");
    write(dir.path(), "lib/b.txt", "two");
    write(dir.path(), "lib-c.txt", "three");
    dir
}

#[test]
fn the_same_content_has_the_same_digest_anywhere() {
    let (one, two) = (sample(), sample());
    let digest = fresh(one.path());
    assert_eq!(digest.len(), 64);
    assert_eq!(digest, fresh(two.path()));
    let mut tree = tree(one.path());
    for _ in 0..3 {
        assert_eq!(tree.digest(&world()).unwrap(), digest, "from the cache too");
    }
    let empty = tempfile::tempdir().unwrap();
    assert_ne!(fresh(empty.path()), digest);
}

#[test]
fn each_kind_of_change_shows_and_going_back_shows_too() {
    let dir = sample();
    let mut tree = tree(dir.path());
    let start = tree.digest(&world()).unwrap();
    let mut seen = vec![start.clone()];
    for change in [
        "printf TWO > lib/b.txt",    // the same size
        "printf 'two ' > lib/b.txt", // another size
        "printf two > lib/b.txt; chmod +x lib/b.txt",
        "chmod -x lib/b.txt; mv a.txt A.txt",
        "mv A.txt a.txt; rm lib-c.txt",
        "printf three > lib-c.txt; touch new",
        "rm new; ln -s a.txt new",
        "rm new; ln -s b.txt new",
        "rm new; mkfifo new",
    ] {
        sh(dir.path(), change);
        let digest = tree.digest(&world()).unwrap();
        assert_eq!(digest, fresh(dir.path()), "the cache agrees with a fresh look: {change}");
        assert!(!seen.contains(&digest), "{change}");
        seen.push(digest);
    }
    sh(dir.path(), "rm new");
    assert_eq!(tree.digest(&world()).unwrap(), start);
}

#[test]
fn touching_is_no_change() {
    let dir = sample();
    let mut tree = tree(dir.path());
    let start = tree.digest(&world()).unwrap();
    sh(dir.path(), "touch a.txt lib/b.txt; chmod g+w a.txt; mkdir empty");
    assert_eq!(tree.digest(&world()).unwrap(), start);
}

#[test]
fn an_edit_right_after_a_look_with_size_and_time_put_back_is_seen() {
    let dir = sample();
    let path = dir.path().join("a.txt");
    let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    File::options().write(true).open(&path).unwrap().set_modified(past).unwrap();
    let mut tree = tree(dir.path());
    let mut last = tree.digest(&world()).unwrap();
    // Many edits within one tick of the file system's clock.
    for round in 0..200 {
        fs::write(&path, format!("{:03}", round)).unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(past).unwrap();
        let digest = tree.digest(&world()).unwrap();
        assert_ne!(digest, last, "round {round}");
        last = digest;
    }
}

#[test]
fn what_is_old_is_not_read_again() {
    let dir = sample();
    let mut tree = tree(dir.path());
    tree.digest(&world()).unwrap();
    // Newer than everything, so that the rest is past the racy moment.
    sh(dir.path(), "sleep 0.05; printf x > z.txt");
    tree.digest(&world()).unwrap();
    let cached: Vec<_> = tree.entries.iter().map(|e| (e.path.to_str().unwrap(), e.stamp.is_some())).collect();
    assert_eq!(cached, [("a.txt", true), ("lib-c.txt", true), ("lib/b.txt", true), ("z.txt", false)]);
}

#[test]
fn ignored_and_own_files_do_not_count() {
    let dir = sample();
    write(dir.path(), ".gitignore", "target\n*.log\n");
    let own = dir.path().join("home");
    fs::create_dir(&own).unwrap();
    let mut tree = Tree::new(Roots::same(dir.path().to_owned()), vec![own]);
    let start = tree.digest(&world()).unwrap();
    write(dir.path(), "target/x", "built");
    write(dir.path(), "lib/y.log", "noise");
    write(dir.path(), "home/session.jsonl", "{}");
    write(dir.path(), ".spettro/sessions/1/session.jsonl", "{}");
    write(dir.path(), ".git/index", "not content");
    assert_eq!(tree.digest(&world()).unwrap(), start);
    write(dir.path(), ".spettro/config.yaml", "name: x");
    write(dir.path(), "homework/x", "counts");
    assert_ne!(tree.digest(&world()).unwrap(), start);
    let names: Vec<_> = tree.files().keys().map(|path| path.to_str().unwrap()).collect();
    assert_eq!(names, [".gitignore", ".spettro/config.yaml", "a.txt", "homework/x", "lib/b.txt", "lib-c.txt"],);
}

#[test]
fn a_workspace_inside_an_excluded_folder_still_counts() {
    let dir = sample();
    let inside = dir.path().join("lib");
    let mut tree = Tree::new(Roots::same(inside.clone()), vec![dir.path().to_owned(), inside]);
    let start = tree.digest(&world()).unwrap();
    write(dir.path(), "lib/b.txt", "2");
    assert_ne!(tree.digest(&world()).unwrap(), start);
}

#[test]
fn a_nested_repository_stands_for_its_commit() {
    let dir = sample();
    write(dir.path(), "lib/inner/deep/file", "x");
    write(dir.path(), "lib/inner/.git/HEAD", "0123456789abcdef0123456789abcdef01234567");
    let mut tree = tree(dir.path());
    let start = tree.digest(&world()).unwrap();
    write(dir.path(), "lib/inner/deep/file", "y");
    write(dir.path(), "lib/inner/more", "z");
    assert_eq!(tree.digest(&world()).unwrap(), start, "opaque");
    write(dir.path(), "lib/inner/.git/HEAD", "1123456789abcdef0123456789abcdef01234567");
    assert_ne!(tree.digest(&world()).unwrap(), start);
    assert_eq!(tree.digest(&world()).unwrap(), fresh(dir.path()));
    let names: Vec<_> = tree.files().keys().map(|path| path.to_str().unwrap()).collect();
    assert_eq!(names, ["a.txt", "lib/b.txt", "lib/inner", "lib-c.txt"]);
}

#[test]
fn large_files_are_told_by_size_and_time() {
    let dir = sample();
    let path = dir.path().join("big");
    let file = File::create(&path).unwrap();
    file.set_len(LARGEST_HASHED_BYTES + 1).unwrap();
    let mut tree = tree(dir.path());
    let start = tree.digest(&world()).unwrap();
    assert_eq!(tree.digest(&world()).unwrap(), start);
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
    assert_ne!(tree.digest(&world()).unwrap(), start);
    file.set_len(LARGEST_HASHED_BYTES).unwrap();
    let hash = tree.digest(&world()).map(|_| tree.files()[Path::new("big")].clone()).unwrap();
    let mut zeros = Sha256::new();
    zeros.update(vec![0; LARGEST_HASHED_BYTES as usize]);
    assert_eq!(hash, hex(&zeros.finalize()), "the cap itself is hashed");
}

#[test]
fn names_of_any_bytes_and_unreadable_files_are_fine() {
    let dir = sample();
    let odd = std::ffi::OsString::from_vec(b"caf\xe9 \n\t.txt".to_vec());
    fs::write(dir.path().join(&odd), "x").unwrap();
    symlink("nowhere", dir.path().join("dangling")).unwrap();
    write(dir.path(), "secret", "s");
    fs::set_permissions(dir.path().join("secret"), fs::Permissions::from_mode(0o000)).unwrap();
    let mut tree = tree(dir.path());
    let digest = tree.digest(&world()).unwrap();
    assert_eq!(digest, fresh(dir.path()));
    assert!(tree.files().contains_key(Path::new(&odd)));
    if rustix::process::geteuid().is_root() {
        // Root reads everything: that part cannot be seen here.
        return;
    }
    assert_eq!(tree.unread(), ["secret"]);
}

#[test]
fn listed_hashes_are_those_of_the_content() {
    let dir = sample();
    let mut tree = tree(dir.path());
    tree.digest(&world()).unwrap();
    // printf one | sha256sum
    assert_eq!(tree.files()[Path::new("a.txt")], "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed");
}

#[test]
fn a_missing_workspace_is_an_error() {
    let dir = sample();
    let mut tree = tree(&dir.path().join("nowhere"));
    assert!(matches!(tree.digest(&world()), Err(WorkspaceError::Io { .. })));
}

#[test]
fn changed_files_are_added_removed_and_changed_ones() {
    let list = |entries: &[(&str, &str)]| entries.iter().map(|(p, h)| (PathBuf::from(p), (*h).to_owned())).collect();
    let before: BTreeMap<PathBuf, String> = list(&[("a", "1"), ("b", "1"), ("d/e", "1"), ("d-e", "1")]);
    let after: BTreeMap<PathBuf, String> = list(&[("a", "1"), ("b", "2"), ("c", "1"), ("d-e", "1")]);
    assert_eq!(changed_files(&before, &after), ["b", "c", "d/e"]);
    assert_eq!(changed_files(&before, &before), Vec::<String>::new());
}

/// The numbers of the specification, by hand: `cargo test --release -- --ignored --nocapture digest_speed`.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::disallowed_methods, clippy::disallowed_macros)]
fn digest_speed() {
    let dir = tempfile::tempdir().unwrap();
    for i in 0..50_000 {
        write(dir.path(), &format!("d{}/s{}/file{i}.txt", i % 50, i % 1_000), format!("{i:>2000}"));
    }
    let mut tree = tree(dir.path());
    for round in ["first (100 MB)", "second", "unchanged", "unchanged"] {
        let start = std::time::Instant::now();
        tree.digest(&world()).unwrap();
        writeln!(std::io::stderr(), "{round}: {:?}", start.elapsed()).unwrap();
    }
}
