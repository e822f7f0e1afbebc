//! The user's git, asked through `Exec`.
//!
//! Invariant: the user's `.git` is read and never written. Snapshots go through a copy of the index into an object
//! store of their own. Hooks, the file system monitor, external diff programs and lazy
//! fetches are off; filters of large-file storage are off because they write into `.git`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::WorkspaceError;
use super::repository::Repository;
use super::scratch::Scratch;
use crate::event::Changes;
use crate::world::{Command, CommandKind, Ending, ExecError, Roots, World};

/// A git command ends within this; the largest repositories need seconds.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Most bytes of an answer kept from its start and from its end.
const KEEP_BYTES: usize = 32 * 1024 * 1024;

/// Untracked files over this size are left out of snapshots, as they are out of the digest by content.
const LARGEST_UNTRACKED_BYTES: u64 = 20 * 1024 * 1024;

/// Of a failed command's words, so many lines are repeated.
const ERROR_LINES: usize = 3;

/// Variables that would lead git to another repository or index (they are set inside hooks).
const MISLEADING: [&str; 11] = [
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_DIFF_OPTS",
    "GIT_EXTERNAL_DIFF",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_QUARANTINE_PATH",
    "GIT_WORK_TREE",
];

/// An object is what its id says.
pub(super) const WITHOUT_REPLACEMENTS: [(&str, &str); 1] = [("GIT_NO_REPLACE_OBJECTS", "1")];

/// Configuration that no command of spettro's may take from the user.
const CONFIG: [&str; 12] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.splitIndex=false",
    "core.quotePath=false",
    "core.safecrlf=false",
    "core.pager=cat",
    "color.ui=false",
    "filter.lfs.clean=",
    "filter.lfs.process=",
    "filter.lfs.required=false",
    "status.showUntrackedFiles=normal",
];

/// The workspace's git, through `Exec`. All answers are `None` where it is no repository; where git cannot answer
/// (not installed, a repository of somebody else, a broken one) they are errors: «unknown», never «same».
///
/// A workspace may be a folder inside a repository: everything is then restricted and relative to it.
pub struct Git {
    roots: Roots,
    scratch: Scratch,
}

/// How the workspace stands in its repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GitState {
    /// The commit id; `None` before the first commit.
    pub head: Option<String>,
    /// `None` when detached.
    pub branch: Option<String>,
    /// What differs from HEAD, untracked files too (a wholly untracked folder is one entry, with a closing slash);
    /// relative to the workspace, sorted.
    pub dirty: Vec<String>,
    /// The folder of the workspace inside the repository; `None` at its top.
    pub prefix: Option<String>,
}

impl Git {
    /// `scratch`: a private folder (in the session) for snapshots, made when needed. A base tree is only known to
    /// the `Git` with the scratch folder that it was written to.
    pub fn new(roots: Roots, scratch: PathBuf) -> Git {
        Git { roots, scratch: Scratch::new(&scratch) }
    }

    /// HEAD, branch, and what is dirty. `Ok(None)`: not a repository.
    pub async fn state(&self, world: &World) -> Result<Option<GitState>, WorkspaceError> {
        let Some(repository) = self.tracked(world).await? else { return Ok(None) };
        let own = self.excludes();
        let mut args = vec!["status", "--porcelain=v1", "-z", "--no-renames", "--"];
        args.extend(own.iter().map(String::as_str));
        let listed = self.run(world, &args, &[]).await?;
        let head = repository.read_head()?;
        let prefix = self.prefix(&repository);
        let mut dirty: Vec<Vec<u8>> = listed
            .split(|byte| *byte == 0)
            .filter_map(|line| line.get(3..))
            .map(|path| path.strip_prefix(prefix.as_slice()).unwrap_or(path).to_vec())
            .collect();
        dirty.sort();
        let dirty = dirty.into_iter().map(|path| String::from_utf8_lossy(&path).into_owned()).collect();
        let prefix = String::from_utf8_lossy(prefix.strip_suffix(b"/").unwrap_or(&prefix)).into_owned();
        let prefix = (!prefix.is_empty()).then_some(prefix);
        Ok(Some(GitState { head: head.commit, branch: head.branch, dirty, prefix }))
    }

    /// HEAD alone, read from the files of `.git` without starting a process (`None`: no repository or no commit).
    pub fn head(&self) -> Result<Option<String>, WorkspaceError> {
        match self.repository() {
            Some(repository) => repository.head(),
            None => Ok(None),
        }
    }

    /// Writes the tree of everything (tracked, dirty, untracked, not ignored) into a private object store; its id.
    /// Untracked files over 20 MB and spettro's own are left out. `Ok(None)`: not a repository.
    pub async fn snapshot(&self, world: &World) -> Result<Option<String>, WorkspaceError> {
        let Some(repository) = self.tracked(world).await? else { return Ok(None) };
        self.scratch.folder("objects")?;
        // What git knows of unchanged files need not be found out again.
        let env = self.private(&self.scratch.copy_of_index(&repository.git_dir.join("index"))?);

        let mut exclude = self.excludes();
        exclude.extend(self.too_large(world, &env).await?);
        let mut args = vec!["add", "--all", "--ignore-errors", "--"];
        args.extend(exclude.iter().map(String::as_str));
        // Exit code 1: some files could not be read; everything else is in the index.
        self.run_allowing(world, &args, &env, &[0, 1]).await?;
        // Blobs that only the user's store has are known by their ids alone.
        let tree = self.run(world, &["write-tree", "--missing-ok"], &env).await?;
        let tree = String::from_utf8_lossy(&tree).trim().to_owned();
        match tree.len() {
            40 | 64 => Ok(Some(tree)),
            _ => Err(WorkspaceError::Git(format!("`write-tree` said `{tree}`"))),
        }
    }

    /// From a snapshot to now: the change list, relative to the workspace, and the binary-safe patch, relative to the
    /// repository: it applies with `git apply` where the base tree is checked out, in whichever of its folders. It is
    /// empty when nothing changed, and when it would be larger than 64 MiB. `base` and `patch` of the list are the caller's to fill in.
    pub async fn changes(&self, world: &World, base_tree: &str) -> Result<(Changes, Vec<u8>), WorkspaceError> {
        let Some(repository) = self.repository() else {
            return Err(WorkspaceError::Git("the workspace is no repository any more".into()));
        };
        let Some(tree) = self.snapshot(world).await? else {
            return Err(WorkspaceError::Git("the workspace is no repository any more".into()));
        };
        let mut env = self.private(&self.scratch.path("index"));
        let objects = repository.common_dir.join("objects");
        env.push(("GIT_ALTERNATE_OBJECT_DIRECTORIES".into(), alternate(&objects.to_string_lossy())));
        let always = ["diff-tree", "-r", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none"];
        let trees = [base_tree, tree.as_str(), "--", "."];
        let list = [&always[..], &["--relative", "--numstat", "-z", "--no-renames"], &trees].concat();
        let numbers = self.run(world, &list, &env).await?;
        let options = ["-p", "--binary", "--full-index", "-M", "--src-prefix=a/", "--dst-prefix=b/"];
        let full = [&always[..], &options, &trees].concat();
        let patch = self.answer(world, &full, &env, &[0]).await?.unwrap_or_default();

        let head = repository.read_head()?;
        let mut changes = Changes { head: head.commit, branch: head.branch, ..Changes::default() };
        let (mut insertions, mut deletions) = (0, 0);
        for record in numbers.split(|byte| *byte == 0).filter(|record| !record.is_empty()) {
            let mut fields = record.splitn(3, |byte| *byte == b'\t');
            let mut number = || -> Option<u64> { std::str::from_utf8(fields.next()?).ok()?.parse().ok() };
            // A binary file has `-` for both.
            insertions += number().unwrap_or(0);
            deletions += number().unwrap_or(0);
            if let Some(path) = fields.next() {
                changes.files.push(String::from_utf8_lossy(path).into_owned());
            }
        }
        (changes.insertions, changes.deletions) = (Some(insertions), Some(deletions));
        Ok((changes, patch))
    }

    /// The settings of a configuration file with this content, in its order, its includes left alone: names as git
    /// gives them (section and key in lower case), values empty where there are none. `Ok(None)`: git cannot read it.
    pub async fn settings(
        &self,
        world: &World,
        content: &[u8],
    ) -> Result<Option<Vec<(String, String)>>, WorkspaceError> {
        let file = self.scratch.told("settings", content)?;
        // The user's own configuration is not asked, and no repository is looked for: it may be what is broken.
        let none = utf8(&self.scratch.nothing())?;
        let env = [("GIT_DIR", none.as_str()), ("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let file = utf8(&file)?;
        let args = ["config", "--file", &file, "--no-includes", "--list", "-z"];
        // 128: it is not valid.
        let Some(listed) = self.answer_or(world, &args, &env, &[0], &[128]).await? else { return Ok(None) };
        let entries = listed.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
        let pair = |entry: &[u8]| {
            let entry = String::from_utf8_lossy(entry).into_owned();
            match entry.split_once('\n') {
                Some((name, value)) => (name.to_owned(), value.to_owned()),
                None => (entry, String::new()),
            }
        };
        Ok(Some(entries.map(pair).collect()))
    }

    /// The content of a file of the workspace as it is at a commit, replacements aside. `Ok(None)`: the commit or the
    /// file is not there.
    pub async fn blob(&self, world: &World, reference: &str, name: &str) -> Result<Option<Vec<u8>>, WorkspaceError> {
        let object = format!("{reference}:./{name}");
        let env = WITHOUT_REPLACEMENTS.map(|(name, value)| (name.to_owned(), value.to_owned()));
        self.answer_or(world, &["cat-file", "blob", &object], &env, &[0], &[128]).await
    }

    fn repository(&self) -> Option<Repository> {
        Repository::around(&self.roots.real)
    }

    /// The repository, unless it ignores the workspace: a copy below somebody's versioned home folder is none of it.
    async fn tracked(&self, world: &World) -> Result<Option<Repository>, WorkspaceError> {
        let Some(repository) = self.repository() else { return Ok(None) };
        if repository.top == self.roots.real {
            return Ok(Some(repository));
        }
        // Prints the folder, or nothing and status 1.
        let ignored = self.run_allowing(world, &["check-ignore", "--", "."], &[], &[0, 1]).await?;
        Ok(ignored.is_empty().then_some(repository))
    }

    /// The workspace's path inside the repository with a closing slash, or nothing at its top.
    fn prefix(&self, repository: &Repository) -> Vec<u8> {
        let inside = self.roots.real.strip_prefix(&repository.top).unwrap_or(Path::new(""));
        let mut prefix = inside.as_os_str().as_bytes().to_vec();
        if !prefix.is_empty() {
            prefix.push(b'/');
        }
        prefix
    }

    /// Pathspecs: the workspace, without what is spettro's.
    fn excludes(&self) -> Vec<String> {
        let mut specs = vec![".".to_owned(), ":(exclude).spettro/sessions".to_owned()];
        // A session folder inside the workspace (`SPETTRO_HOME` may lie there).
        if let Some(Ok(session)) = self.scratch.parent().map(|session| session.strip_prefix(&self.roots.real))
            && !session.as_os_str().is_empty()
        {
            specs.extend(literal_exclude(session.as_os_str().as_bytes()));
        }
        specs
    }

    /// Pathspecs that leave out untracked files over the size limit.
    async fn too_large(&self, world: &World, env: &[(String, String)]) -> Result<Vec<String>, WorkspaceError> {
        let args = ["ls-files", "--others", "--exclude-standard", "-z", "--", "."];
        let listed = self.run(world, &args, env).await?;
        let large = |path: &&[u8]| {
            let metadata = fs::symlink_metadata(self.roots.real.join(OsStr::from_bytes(path)));
            metadata.is_ok_and(|metadata| metadata.is_file() && metadata.len() > LARGEST_UNTRACKED_BYTES)
        };
        let paths = listed.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        Ok(paths.filter(large).filter_map(literal_exclude).collect())
    }

    /// The environment that leads git to the private index and object store. What writes must not see the user's
    /// store beside it: git sets the time of an object that it would write and finds there.
    fn private(&self, index: &Path) -> Vec<(String, String)> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        vec![
            ("GIT_INDEX_FILE".into(), text(index)),
            ("GIT_OBJECT_DIRECTORY".into(), text(&self.scratch.path("objects"))),
        ]
    }

    pub(super) fn folder(&self) -> &Path {
        &self.roots.real
    }

    pub(super) async fn run(
        &self,
        world: &World,
        args: &[&str],
        env: &[(String, String)],
    ) -> Result<Vec<u8>, WorkspaceError> {
        self.run_allowing(world, args, env, &[0]).await
    }

    async fn run_allowing(
        &self,
        world: &World,
        args: &[&str],
        env: &[(String, String)],
        allowed: &[i32],
    ) -> Result<Vec<u8>, WorkspaceError> {
        let answer = self.answer(world, args, env, allowed).await?;
        answer.ok_or_else(|| WorkspaceError::Git("the answer is longer than 64 MiB".into()))
    }

    /// Runs git in the workspace; what it printed, `None` when that was too long to keep.
    async fn answer(
        &self,
        world: &World,
        args: &[&str],
        env: &[(String, String)],
        allowed: &[i32],
    ) -> Result<Option<Vec<u8>>, WorkspaceError> {
        self.answer_or(world, args, env, allowed, &[]).await
    }

    /// The same; `None` too when it ends with a status of `none`.
    ///
    /// Errors go to a file: the one pipe of a command would mix them into the answer.
    pub(super) async fn answer_or(
        &self,
        world: &World,
        args: &[&str],
        env: &[(String, String)],
        allowed: &[i32],
        none: &[i32],
    ) -> Result<Option<Vec<u8>>, WorkspaceError> {
        self.scratch.make()?;
        let errors = self.scratch.cleared("git-errors")?;
        let what = args.first().copied().unwrap_or_default();
        let mut argv = vec!["sh".to_owned(), "-c".to_owned(), r#"exec "$@" 2>"$0""#.to_owned()];
        argv.push(utf8(&errors)?);
        let misleading: Vec<&str> = MISLEADING.into_iter().filter(|name| world.env.var(name).is_some()).collect();
        if !misleading.is_empty() {
            argv.push("env".into());
            argv.extend(misleading.iter().flat_map(|name| ["-u".to_owned(), (*name).to_owned()]));
            // What is set for this command must be set behind that.
            argv.extend(env.iter().map(|(name, value)| format!("{name}={value}")));
        }
        argv.extend(["git".to_owned(), "-C".to_owned(), utf8(&self.roots.real)?]);
        argv.extend(CONFIG.iter().flat_map(|setting| ["-c".to_owned(), (*setting).to_owned()]));
        argv.extend(args.iter().map(|arg| (*arg).to_owned()));
        let mut variables: Vec<(String, String)> =
            [("GIT_OPTIONAL_LOCKS", "0"), ("GIT_TERMINAL_PROMPT", "0"), ("GIT_NO_LAZY_FETCH", "1"), ("LC_ALL", "C")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec();
        variables.extend(env.iter().cloned());
        let command = Command {
            kind: CommandKind::Git,
            argv,
            cwd: self.roots.real.clone(),
            env: variables,
            timeout: Some(TIMEOUT),
            grace: Duration::from_secs(2),
            keep_bytes: KEEP_BYTES,
            label: format!("git {what}"),
        };
        let finished = world.exec.run(command).await.map_err(|error| match error {
            ExecError::NotFound(program) => WorkspaceError::Git(format!("`{program}` is not installed")),
            other => WorkspaceError::Git(other.to_string()),
        })?;
        match finished.ending {
            Ending::Exited(status) if allowed.contains(&status) => {}
            Ending::Exited(status) if none.contains(&status) => return Ok(None),
            Ending::Exited(127) => return Err(WorkspaceError::Git("git is not installed".into())),
            Ending::Exited(status) => {
                let words = self.scratch.words("git-errors");
                return Err(WorkspaceError::Git(first_lines(&words, what, status)));
            }
            Ending::TimedOut => {
                return Err(WorkspaceError::Git(format!("`{what}` took longer than {} s", TIMEOUT.as_secs())));
            }
            other => return Err(WorkspaceError::Git(format!("`{what}` ended as {other:?}"))),
        }
        let output = finished.output;
        Ok((output.omitted_bytes == 0).then(|| [output.head, output.tail].concat()))
    }
}

/// The start of what git said, or that it said nothing.
fn first_lines(words: &[u8], what: &str, status: i32) -> String {
    let words = String::from_utf8_lossy(words);
    let lines: Vec<&str> = words.lines().map(str::trim).filter(|line| !line.is_empty()).take(ERROR_LINES).collect();
    if lines.is_empty() { format!("`{what}` failed with status {status}") } else { lines.join(" · ") }
}

/// `None` for a name that is not UTF-8: arguments of a `Command` are text.
fn literal_exclude(path: &[u8]) -> Option<String> {
    std::str::from_utf8(path).ok().map(|path| format!(":(exclude,literal){path}"))
}

/// An entry of a list that is separated by colons; quoted when it needs to be.
fn alternate(path: &str) -> String {
    if !path.contains([':', '"', '\\', '\n']) {
        return path.to_owned();
    }
    let escaped = path.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
    format!("\"{escaped}\"")
}

pub(super) fn utf8(path: &Path) -> Result<String, WorkspaceError> {
    let not_text = || WorkspaceError::Git(format!("`{}` is not UTF-8", path.display()));
    path.to_str().map(str::to_owned).ok_or_else(not_text)
}

#[cfg(test)]
#[path = "git_tests.rs"]
mod tests;
