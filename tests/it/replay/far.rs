//! A replay by somebody else: another user, who owns one empty folder, without a home, a network, a program on the
//! path, or a key.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::support::Replayed;
use crate::sandbox::{PATIENCE, Sandbox};

const NOBODY: u32 = 65_534;

/// What stands before the program: no network, and another user where that is possible. `None` when this machine gives
/// neither; it is said.
fn wrapper() -> Option<(Vec<&'static str>, bool)> {
    let network = ["unshare", "--net"];
    let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let works = |words: &[&str]| {
        let tried = Command::new(words[0]).args(&words[1..]).arg("true").output();
        tried.is_ok_and(|output| output.status.success())
    };
    let both = [&network[..], &user[..]].concat();
    if works(&both) {
        return Some((both, true));
    }
    let alone = vec!["unshare", "--map-root-user", "--net"];
    if works(&alone) {
        return Some((alone, false));
    }
    println!("skipped: this machine gives no namespace without a network");
    None
}

/// Replays a session's folder or a file so, and holds it against having written anything.
#[track_caller]
pub fn far(recording: &Path, more: &[&str]) -> Option<Replayed> {
    let (wrapper, other) = wrapper()?;
    let place = Sandbox::new();
    let root = place.root();
    let copied = root.join("work").join(recording.file_name().expect("a name"));
    let done = Command::new("cp").arg("-r").args([recording, &copied]).status().expect("cp runs");
    assert!(done.success());
    let program = program(&root, other);
    let mut left = list(&root);
    left.iter().for_each(|path| {
        let mode = if path.is_dir() || *path == program { 0o755 } else { 0o644 };
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
    });
    std::fs::set_permissions(&root, Permissions::from_mode(0o755)).expect("it is ours");
    if other {
        chown(root.join("tmp"), Some(NOBODY), Some(NOBODY)).expect("the folder is given away");
    }
    let mut command = place.command(wrapper[0]);
    command.args(&wrapper[1..]).arg(&program).arg("replay").arg(&copied).args(["--output-format", "json"]).args(more);
    command.env_clear().env("TMPDIR", root.join("tmp")).env("PATH", "/usr/bin:/bin").env("HOME", "/nonexistent");
    let finished = place.start(command).wait(PATIENCE);
    let mut there = list(&root);
    left.sort();
    there.sort();
    assert_eq!(there, left, "nothing was made, or what was made is gone: {finished:?}");
    let report = serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}: {finished:?}"));
    Some(Replayed { finished, report })
}

/// The program where that user can start it.
fn program(root: &Path, other: bool) -> PathBuf {
    let built = PathBuf::from(env!("CARGO_BIN_EXE_spettro"));
    let open = |path: &Path| path.metadata().is_ok_and(|found| found.permissions().mode() & 0o005 == 0o005);
    if !other || built.ancestors().all(open) {
        return built;
    }
    let copy = root.join("spettro");
    std::fs::copy(&built, &copy).expect("the program can be copied");
    copy
}

fn list(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            found.extend(list(&path));
        }
        found.push(path);
    }
    found
}
