//! What the ignore files of a folder and of those above it leave out of a walk.
//!
//! Their rules are the `ignore` crate's. Their files are read here, because the crate waits at a pipe and reads a file
//! without end. One that is no regular file, or too large, says nothing.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::regular;

/// Larger ones nobody writes, and turning them into matchers would take its time.
const MOST_BYTES: u64 = 256 << 10;
/// Of a file that names another one.
const MOST_NAME_BYTES: u64 = 4_096;

/// The rules of one walk; shared by its threads.
pub(super) struct Ignored {
    root: PathBuf,
    /// By folder: the rules that hold in it.
    folders: Mutex<HashMap<PathBuf, Arc<Rules>>>,
}

/// The rules of one folder, before those of the ones above.
#[derive(Default)]
struct Rules {
    above: Option<Arc<Rules>>,
    /// Of `.ignore`, `.gitignore`, and the repository's `info/exclude`; each wins over the next.
    kinds: [Option<Gitignore>; 3],
}

impl Ignored {
    pub(super) fn new(root: &Path) -> Ignored {
        Ignored { root: root.to_owned(), folders: Mutex::default() }
    }

    /// Whether an entry somewhere below the root is left out. What is below a folder that is left out is not asked for.
    pub(super) fn leaves_out(&self, path: &Path, is_dir: bool) -> bool {
        let Some(folder) = path.parent() else { return false };
        let rules = self.rules(folder);
        let chain = || std::iter::successors(Some(&rules), |rules| rules.above.as_ref());
        (0..3)
            .flat_map(|kind| chain().filter_map(move |rules| rules.kinds[kind].as_ref()))
            .map(|matcher| matcher.matched(path, is_dir))
            .find(|matched| !matched.is_none())
            .is_some_and(|matched| matches!(matched, Match::Ignore(_)))
    }

    fn rules(&self, folder: &Path) -> Arc<Rules> {
        let known = |folder: &Path| self.folders.lock().unwrap_or_else(PoisonError::into_inner).get(folder).cloned();
        if let Some(rules) = known(folder) {
            return rules;
        }
        let above = folder.parent().filter(|_| folder != self.root && folder.starts_with(&self.root));
        let above = above.map(|above| self.rules(above));
        let kinds = [
            matcher(folder, &folder.join(".ignore")),
            matcher(folder, &folder.join(".gitignore")),
            exclude(folder).and_then(|file| matcher(folder, &file)),
        ];
        let rules = match above {
            // Most folders have none of their own.
            Some(above) if kinds.iter().all(Option::is_none) => above,
            above => Arc::new(Rules { above, kinds }),
        };
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        folders.insert(folder.to_owned(), rules.clone());
        rules
    }
}

/// The rules in a file, about what is below the folder. A line that is no rule says nothing.
fn matcher(folder: &Path, file: &Path) -> Option<Gitignore> {
    let content = match regular::read(file, MOST_BYTES) {
        Ok(content) => content,
        Err(error) => {
            if error.kind() != std::io::ErrorKind::NotFound {
                tracing::debug!(file = %file.display(), %error, "an ignore file is passed over");
            }
            return None;
        }
    };
    let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&content);
    let mut builder = GitignoreBuilder::new(folder);
    for line in content.split(|byte| *byte == b'\n') {
        let Ok(line) = std::str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line)) else { continue };
        if let Err(error) = builder.add_line(None, line) {
            tracing::debug!(file = %file.display(), %error, "a line is no rule");
        }
    }
    builder.build().ok().filter(|rules| !rules.is_empty())
}

/// The exclude file of the repository whose top a folder is. A linked worktree has that of its main one.
fn exclude(folder: &Path) -> Option<PathBuf> {
    let dot_git = folder.join(".git");
    if dot_git.metadata().ok()?.is_dir() {
        return Some(dot_git.join("info/exclude"));
    }
    let named = |file: &Path| regular::read(file, MOST_NAME_BYTES).ok();
    let path = |text: &[u8]| PathBuf::from(OsStr::from_bytes(text.trim_ascii()));
    let git_dir = folder.join(path(named(&dot_git)?.strip_prefix(b"gitdir:")?));
    let common_dir = match named(&git_dir.join("commondir")) {
        Some(text) => git_dir.join(path(&text)),
        None => git_dir,
    };
    Some(common_dir.join("info/exclude"))
}

#[cfg(test)]
mod tests {
    use super::super::{Dir, RealDir, WalkOptions};

    const OPTIONS: WalkOptions = WalkOptions { gitignore: true, nested_repositories: true };

    fn place(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        dir
    }

    fn walked(dir: &tempfile::TempDir) -> Vec<String> {
        let (paths, errors) = RealDir.walk(dir.path(), OPTIONS);
        assert_eq!(errors, Vec::<String>::new());
        paths.into_iter().map(|path| path.to_string_lossy().into_owned()).collect()
    }

    /// What the crate itself finds by the same files.
    fn as_the_crate_does(dir: &tempfile::TempDir) -> Vec<String> {
        let walk = ignore::WalkBuilder::new(dir.path())
            .hidden(false)
            .parents(false)
            .git_global(false)
            .require_git(false)
            .filter_entry(|entry| entry.file_name() != ".git")
            .build();
        let mut found: Vec<String> = walk
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.file_type().is_some_and(|kind| !kind.is_dir()))
            .map(|entry| entry.path().strip_prefix(dir.path()).unwrap().to_string_lossy().into_owned())
            .collect();
        found.sort();
        found
    }

    #[test]
    fn the_rules_are_those_of_the_crate() {
        let dir = place(&[
            (".gitignore", "\u{feff}*.log\r\n/target/\n!keep.log\n# no rule\n[\nsub/only-here\n"),
            (".ignore", "secret\n!shown.log\n"),
            (".git/info/exclude", "excluded\n*.tmp\n"),
            ("a.log", ""),
            ("keep.log", ""),
            ("shown.log", ""),
            ("secret", ""),
            ("excluded", ""),
            ("target/x", ""),
            ("sub/.gitignore", "!b.log\n/deep/*\n!/deep/kept\n"),
            ("sub/b.log", ""),
            ("sub/c.log", ""),
            ("sub/only-here", ""),
            ("sub/target/x", ""),
            ("sub/deep/kept", ""),
            ("sub/deep/lost", ""),
            ("sub/deep/x.tmp", ""),
            ("sub/.ignore", "!secret\n"),
            ("sub/secret", ""),
            ("plain/folder/file", ""),
        ]);
        let found = walked(&dir);
        assert_eq!(found, as_the_crate_does(&dir));
        for name in ["keep.log", "shown.log", "sub/b.log", "sub/deep/kept", "sub/secret", "sub/target/x"] {
            assert!(found.contains(&name.to_owned()), "{name}: {found:?}");
        }
        for name in ["a.log", "secret", "excluded", "target/x", "sub/c.log", "sub/only-here", "sub/deep/lost"] {
            assert!(!found.contains(&name.to_owned()), "{name}: {found:?}");
        }
    }

    #[test]
    fn a_linked_worktree_goes_by_the_repositorys_own_exclude_file() {
        let dir = place(&[
            ("main/.git/info/exclude", "excluded\n"),
            ("main/.git/worktrees/w/commondir", "../..\n"),
            (".git", "gitdir: main/.git/worktrees/w\n"),
            ("excluded", ""),
            ("file", ""),
        ]);
        assert_eq!(walked(&dir), ["file"]);
    }

    #[test]
    fn pipes_and_files_without_end_say_nothing_and_are_not_waited_for() {
        let dir = place(&[(".gitignore", "lost\n"), ("sub/file", ""), ("deep/file", ""), ("lost", "")]);
        let pipe = |name: &str| {
            let path = dir.path().join(name);
            rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        };
        for name in [".ignore", "sub/.gitignore", "deep/.git"] {
            pipe(name);
        }
        std::fs::create_dir_all(dir.path().join(".git/info")).unwrap();
        pipe(".git/info/exclude");
        std::fs::File::create(dir.path().join("deep/.gitignore")).unwrap().set_len(3 << 40).unwrap();
        assert_eq!(
            walked(&dir),
            [".gitignore", ".ignore", "deep/.gitignore", "deep/file", "sub/.gitignore", "sub/file"]
        );
    }
}
