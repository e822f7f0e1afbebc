//! A git repository as its files show it, without starting a process.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::WorkspaceError;
use super::stamp::is_gone;
use crate::world::regular;

/// Of `packed-refs`, which holds a line a branch or tag; a repository with a million of them has 80 MB.
const MOST_PACKED_BYTES: u64 = 256 << 20;
/// Of one line there.
const MOST_LINE_BYTES: u64 = 64 << 10;

/// The folders of one repository. A linked worktree has its own HEAD and index and shares everything else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Repository {
    /// The folder that holds `.git`.
    pub top: PathBuf,
    /// HEAD and index.
    pub git_dir: PathBuf,
    /// Objects and branches.
    pub common_dir: PathBuf,
}

/// What HEAD says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Head {
    /// Without `refs/heads/`; `None` when detached.
    pub branch: Option<String>,
    /// `None` before the first commit.
    pub commit: Option<String>,
}

/// The top folder of the repository that a folder belongs to, as its files show it.
pub fn repository_top(folder: &Path) -> Option<PathBuf> {
    Repository::around(folder).map(|repository| repository.top)
}

impl Repository {
    /// The repository that `dir` belongs to: its own, or that of the nearest folder above.
    pub fn around(dir: &Path) -> Option<Repository> {
        dir.ancestors().find_map(Repository::at)
    }

    /// The repository whose top is `dir`.
    pub fn at(dir: &Path) -> Option<Repository> {
        let dot_git = dir.join(".git");
        let git_dir = if dot_git.is_dir() {
            dot_git
        } else {
            let text = small_file(&dot_git).ok()??;
            dir.join(path_of(text.strip_prefix(b"gitdir:")?))
        };
        // As git does, a folder of that name without a HEAD is passed over.
        std::fs::symlink_metadata(git_dir.join("HEAD")).ok()?;
        let common_dir = match small_file(&git_dir.join("commondir")) {
            Ok(Some(text)) => git_dir.join(path_of(&text)),
            _ => git_dir.clone(),
        };
        Some(Repository { top: dir.to_owned(), git_dir, common_dir })
    }

    /// The commit that HEAD stands for.
    pub fn head(&self) -> Result<Option<String>, WorkspaceError> {
        Ok(self.read_head()?.commit)
    }

    pub fn read_head(&self) -> Result<Head, WorkspaceError> {
        if self.common_dir.join("reftable").is_dir() {
            return Err(WorkspaceError::Git("the repository keeps its branches in the reftable format".into()));
        }
        let path = self.git_dir.join("HEAD");
        let text = small_file(&path).map_err(WorkspaceError::io("read", &path))?.unwrap_or_default();
        let mut value = trimmed(&text);
        let mut branch = None;
        // A branch may itself be a symbolic name; git follows five.
        for step in 0..=5 {
            let Some(name) = value.strip_prefix("ref:").map(str::trim) else {
                return match is_commit(&value) {
                    true => Ok(Head { branch, commit: Some(value) }),
                    false => Err(WorkspaceError::Git(format!("`{}` holds no commit", path.display()))),
                };
            };
            if !name.starts_with("refs/") || name.split('/').any(|part| part == "..") {
                return Err(WorkspaceError::Git(format!("`{name}` is no name of a branch")));
            }
            if step == 0 {
                branch = name.strip_prefix("refs/heads/").map(str::to_owned);
            }
            match self.reference(name)? {
                Some(next) => value = next,
                None => return Ok(Head { branch, commit: None }),
            }
        }
        Err(WorkspaceError::Git(format!("`{}` goes round in circles", path.display())))
    }

    /// The text of a reference: loose in the worktree's own folder or the common one, else packed.
    fn reference(&self, name: &str) -> Result<Option<String>, WorkspaceError> {
        for dir in [&self.git_dir, &self.common_dir] {
            let path = dir.join(name);
            match small_file(&path) {
                Ok(Some(text)) => return Ok(Some(trimmed(&text))),
                Ok(None) => {}
                // A folder of that name: the branches below it exist, this one does not.
                Err(error) if error.kind() == io::ErrorKind::IsADirectory => {}
                Err(error) => return Err(WorkspaceError::io("read", &path)(error)),
            }
        }
        let path = self.common_dir.join("packed-refs");
        packed(&path, name).map_err(WorkspaceError::io("read", &path))
    }
}

/// The text of a reference in a `packed-refs`; `None` where there is none.
fn packed(path: &Path, name: &str) -> io::Result<Option<String>> {
    let file = match regular::open(path) {
        Ok(file) => file,
        Err(error) if is_gone(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    if file.metadata()?.len() > MOST_PACKED_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it is larger than {MOST_PACKED_BYTES} bytes"),
        ));
    }
    // It may grow meanwhile.
    let (mut lines, mut line) = (BufReader::new(file.take(MOST_PACKED_BYTES)), Vec::new());
    loop {
        line.clear();
        if (&mut lines).take(MOST_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        let whole = line.strip_suffix(b"\n").unwrap_or(&line);
        let Some(space) = whole.iter().position(|byte| *byte == b' ') else { continue };
        if &whole[space + 1..] == name.as_bytes() {
            return Ok(Some(trimmed(&whole[..space])));
        }
    }
}

/// The first 4 KiB of a file; `None` when there is none.
fn small_file(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match regular::open(path) {
        Ok(file) => file,
        Err(error) if is_gone(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(4_096).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

fn trimmed(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// A path as git writes it into a file: to the end of the line, which is not part of it.
fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes.trim_ascii()))
}

fn is_commit(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    fn repository(files: &[(&str, &str)]) -> (tempfile::TempDir, Option<Repository>) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let found = Repository::at(dir.path());
        (dir, found)
    }

    #[test]
    fn a_branch_is_read_loose_then_packed() {
        let head = Head { branch: Some("main".into()), commit: Some(COMMIT.into()) };
        let (_dir, found) =
            repository(&[(".git/HEAD", "ref: refs/heads/main\n"), (".git/refs/heads/main", &format!("{COMMIT}\n"))]);
        assert_eq!(found.unwrap().read_head().unwrap(), head);
        let packed =
            format!("# pack-refs with: peeled\n{} refs/tags/v1\n^{COMMIT}\n{COMMIT} refs/heads/main\n", "f".repeat(40));
        let (_dir, found) = repository(&[(".git/HEAD", "ref: refs/heads/main\n"), (".git/packed-refs", &packed)]);
        assert_eq!(found.unwrap().read_head().unwrap(), head);
    }

    #[test]
    fn detached_unborn_and_broken_heads_are_told_apart() {
        let (_dir, found) = repository(&[(".git/HEAD", COMMIT)]);
        assert_eq!(found.unwrap().read_head().unwrap(), Head { branch: None, commit: Some(COMMIT.into()) });
        let (_dir, found) = repository(&[(".git/HEAD", "ref: refs/heads/new\n")]);
        assert_eq!(found.unwrap().read_head().unwrap(), Head { branch: Some("new".into()), commit: None });
        let (_dir, found) = repository(&[(".git/HEAD", "ref: refs/heads/a\n"), (".git/refs/heads/a/b", COMMIT)]);
        assert_eq!(found.unwrap().read_head().unwrap(), Head { branch: Some("a".into()), commit: None });
        for broken in ["", "nonsense", "ref: ../../etc/passwd", "ref: refs/heads/../../x", "0123"] {
            let (_dir, found) = repository(&[(".git/HEAD", broken)]);
            assert!(found.unwrap().read_head().is_err(), "{broken}");
        }
        let (_dir, found) =
            repository(&[(".git/HEAD", "ref: refs/heads/a"), (".git/refs/heads/a", "ref: refs/heads/a")]);
        assert!(found.unwrap().read_head().is_err(), "a circle");
        let (_dir, found) = repository(&[(".git/HEAD", "ref: refs/heads/.invalid"), (".git/reftable/tables.list", "")]);
        assert!(found.unwrap().read_head().is_err(), "a format that is not read here is unknown, not unborn");
    }

    #[test]
    fn a_linked_worktree_reads_shared_branches() {
        let (dir, found) = repository(&[
            (".git", "gitdir: main/.git/worktrees/w\n"),
            ("main/.git/HEAD", "ref: refs/heads/main\n"),
            ("main/.git/refs/heads/side", COMMIT),
            ("main/.git/worktrees/w/HEAD", "ref: refs/heads/side\n"),
            ("main/.git/worktrees/w/commondir", "../..\n"),
        ]);
        let found = found.unwrap();
        assert_eq!(found.git_dir, dir.path().join("main/.git/worktrees/w"));
        assert_eq!(found.read_head().unwrap(), Head { branch: Some("side".into()), commit: Some(COMMIT.into()) });
    }

    #[test]
    fn pipes_and_files_without_end_are_errors_and_not_waited_for() {
        use rustix::fs::{CWD, FileType, mknodat};
        let start: &[(&str, &str)] = &[(".git/HEAD", "ref: refs/heads/main\n"), (".git/refs/heads/side", COMMIT)];
        for file in [".git/HEAD", ".git/refs/heads/main", ".git/packed-refs"] {
            let (dir, _) = repository(start);
            let path = dir.path().join(file);
            if file == ".git/HEAD" {
                std::fs::remove_file(&path).unwrap();
            }
            mknodat(CWD, &path, FileType::Fifo, 0o600.into(), 0).unwrap();
            let found = Repository::at(dir.path()).unwrap();
            assert!(found.read_head().is_err(), "{file}");
        }
        let (dir, _) = repository(start);
        mknodat(CWD, dir.path().join(".git/commondir"), FileType::Fifo, 0o600.into(), 0).unwrap();
        let found = Repository::at(dir.path()).unwrap();
        assert_eq!(found.common_dir, found.git_dir, "as without one");
        std::fs::remove_dir_all(dir.path().join(".git")).unwrap();
        mknodat(CWD, dir.path().join(".git"), FileType::Fifo, 0o600.into(), 0).unwrap();
        assert_eq!(Repository::at(dir.path()), None);

        let (dir, found) = repository(start);
        std::fs::File::create(dir.path().join(".git/packed-refs")).unwrap().set_len(40 << 30).unwrap();
        assert!(found.unwrap().read_head().is_err());
        // A line without end is passed over, and what is behind it is found.
        let long = "x".repeat(usize::try_from(2 * MOST_LINE_BYTES).unwrap());
        let (_dir, found) =
            repository(&[start[0], (".git/packed-refs", &format!("{long}\n{COMMIT} refs/heads/main\n"))]);
        assert_eq!(found.unwrap().read_head().unwrap().commit.as_deref(), Some(COMMIT));
    }

    #[test]
    fn the_nearest_folder_above_counts() {
        let (dir, _) = repository(&[(".git/HEAD", COMMIT), ("a/.git/config", ""), ("a/b/c", "")]);
        let found = Repository::around(&dir.path().join("a/b")).unwrap();
        assert_eq!(found.top, dir.path(), "`a/.git` has no HEAD and is none");
        assert_eq!(Repository::at(&dir.path().join("a/b")), None);
    }
}
