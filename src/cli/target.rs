//! A file that a flag names and that is written at a run's end: where it goes is decided before the run.
//!
//! The agent can put a link, a pipe or a folder where the file is to be, and so can whoever changes the repository.
//! Hence a path is followed once, before anything is started, and what it led to is kept; at the end no link on the way
//! is followed, and one that stands in the file's place is replaced by the file. A link that commands or the repository
//! can have put there leads nowhere that commands may not write themselves.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, Mode, OFlags};
use rustix::io::Errno;

use super::failure::Failure;
use crate::process::sandbox::Policy;
use crate::workspace::repository_top;
use crate::world::beneath;

/// So many links are followed on one way, as by the kernel.
const MOST_LINKS: usize = 40;
/// So long a pipe may take nothing.
const PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
/// What a pipe that has room takes without waiting.
const PIECE_BYTES: usize = 4096;
/// The mode of a new file.
const PRIVATE: u32 = 0o600;

/// Where a file goes.
#[derive(Debug)]
pub struct Target {
    flag: &'static str,
    /// As it was named.
    named: PathBuf,
    /// Absolute, and without links.
    real: PathBuf,
    /// Folders in which links stand that led there, as far as a command could have put one into them.
    links: Vec<PathBuf>,
    /// Whether those may be followed.
    settled: AtomicBool,
    /// What is no file, and is written to as it is: a pipe, a device, this process's own output.
    stream: Option<OwnedFd>,
}

impl Target {
    /// Finds out where `file` leads now, for the flag that named it. Relative paths start at the current folder.
    ///
    /// # Errors
    /// A usage error for what could not be written at the end: a folder, and a file whose folder does not exist.
    pub fn find(flag: &'static str, file: &Path) -> Result<Target, Failure> {
        let shown = file.display();
        let unwritable = |error: io::Error| Failure::usage(format!("`{flag} {shown}` cannot be written: {error}"));
        let no_file = || Failure::usage(format!("`{flag} {shown}` is no file"));
        if file.as_os_str() == "-" {
            return Err(no_file());
        }
        let is_folder = || Failure::usage(format!("`{flag} {shown}` is a folder")).hint("name a file in it");
        let Way { real, links, ends_in_the_kernel } =
            std::path::absolute(file).and_then(|path| way(&path)).map_err(unwritable)?;
        let found = match ends_in_the_kernel {
            true => real.metadata(),
            false => real.symlink_metadata(),
        };
        let stream = match found {
            Ok(found) if found.is_dir() => return Err(is_folder()),
            Ok(found) if found.is_file() && !ends_in_the_kernel => None,
            Ok(_) => Some(pinned(&real, ends_in_the_kernel).map_err(unwritable)?),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(unwritable(error)),
        };
        if stream.is_none() {
            let (Some(folder), Some(_)) = (real.parent(), real.file_name()) else { return Err(is_folder()) };
            match folder.symlink_metadata() {
                Ok(metadata) if metadata.is_dir() => {}
                Ok(_) => return Err(no_file()),
                Err(error) => {
                    return Err(Failure::usage(format!("the folder of `{flag} {shown}` cannot be used: {error}"))
                        .hint(format!("make it first: `mkdir -p {}`", folder.display())));
                }
            }
        }
        let settled = AtomicBool::new(links.is_empty());
        Ok(Target { flag, named: file.to_owned(), real, links, settled, stream })
    }

    /// As it was named.
    pub fn named(&self) -> &Path {
        &self.named
    }

    /// Whether no link led there that somebody else can have put where it stands, or [`Target::settle`] had a look.
    pub fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Relaxed)
    }

    /// Holds the links on the way against what commands of a run may write, and against the repository of its project.
    ///
    /// # Errors
    /// When such a link leads where commands may not write.
    pub fn settle(&self, policy: &Policy, project: &Path) -> Result<(), Failure> {
        let repository = repository_top(project).unwrap_or_else(|| project.to_owned());
        let planted = |folder: &&PathBuf| policy.may_write(folder) || folder.starts_with(&repository);
        let of_git = self.real.components().any(|part| part.as_os_str() == ".git");
        let gains_nothing = policy.may_write(&self.real) && !of_git;
        if let Some(folder) = self.links.iter().find(planted).filter(|_| !gains_nothing) {
            let (flag, named, real) = (self.flag, self.named.display(), self.real.display());
            let message = format!("`{flag} {named}` leads by a link in `{}` to `{real}`", folder.display());
            return Err(Failure::usage(message).hint(format!(
                "commands or the repository can have put that link there: remove it, or name the place itself, \
                 `{flag} {real}`"
            )));
        }
        self.settled.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether it is written to as it is, so that somebody has to take it.
    pub fn is_stream(&self) -> bool {
        self.stream.is_some()
    }

    /// Whether a file stands there.
    pub fn is_file(&self) -> bool {
        self.stream.is_none() && self.real.symlink_metadata().as_ref().is_ok_and(Metadata::is_file)
    }

    /// Puts a file there whole, in place of a file or link; into what is no file, it is written as it is.
    ///
    /// # Errors
    /// When it cannot be written, when a link stands on the way by now, and while the links that stood there before
    /// are not settled.
    pub fn write(&self, content: &[u8]) -> io::Result<()> {
        if !self.is_settled() {
            let why = "it leads over a link, and it was not known yet who can have put that there";
            return Err(io::Error::other(why));
        }
        match &self.stream {
            Some(stream) => pour(&reopened(stream)?, content),
            None => beneath::replace(&self.real, content, Some(PRIVATE)).map_err(displaced),
        }
    }

    /// The path at which a file can be made: no link leads there now.
    ///
    /// # Errors
    /// When one does, and when the folder is gone.
    pub fn place(&self) -> io::Result<&Path> {
        if !self.is_settled() || self.stream.is_some() {
            return Err(io::Error::other("no file can be made there"));
        }
        let folder = self.real.parent().unwrap_or(Path::new("/"));
        beneath::open(folder, OFlags::RDONLY | OFlags::DIRECTORY).map_err(displaced)?;
        Ok(&self.real)
    }
}

/// A link where a folder was is told as what it is.
fn displaced(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::NotADirectory => io::Error::other("a link, or a file, stands on its way where a folder was"),
        _ => error,
    }
}

/// A path that was followed to its end.
struct Way {
    real: PathBuf,
    links: Vec<PathBuf>,
    /// At a descriptor of a process: what that leads to has no path.
    ends_in_the_kernel: bool,
}

/// Follows an absolute path. What does not exist is taken as it is written.
fn way(path: &Path) -> io::Result<Way> {
    let reversed = |path: &Path| -> Vec<OsString> {
        let mut parts: Vec<OsString> = path.components().map(|part| part.as_os_str().to_owned()).collect();
        parts.reverse();
        parts
    };
    let (mut at, mut rest) = (PathBuf::from("/"), reversed(path));
    let (mut links, mut followed) = (Vec::new(), 0);
    while let Some(part) = rest.pop() {
        match Path::new(&part).components().next() {
            Some(Component::RootDir) => at = PathBuf::from("/"),
            Some(Component::ParentDir) => drop(at.pop()),
            Some(Component::Normal(name)) => {
                let next = at.join(name);
                let is_link = match next.symlink_metadata() {
                    Ok(found) => found.is_symlink(),
                    Err(error) if error.kind() == ErrorKind::NotFound => false,
                    Err(error) => return Err(error),
                };
                if !is_link {
                    at = next;
                    continue;
                }
                if rest.is_empty() && at.starts_with("/proc") && at.file_name() == Some(OsStr::new("fd")) {
                    return Ok(Way { real: next, links, ends_in_the_kernel: true });
                }
                followed += 1;
                if followed > MOST_LINKS {
                    return Err(Errno::LOOP.into());
                }
                if !nobody_links_in(&at) {
                    links.push(at.clone());
                }
                rest.extend(reversed(&next.read_link()?));
            }
            _ => {}
        }
    }
    Ok(Way { real: at, links, ends_in_the_kernel: false })
}

/// Whether no command can have put a link into this folder: it has no more rights than this process.
fn nobody_links_in(folder: &Path) -> bool {
    let kept = ["/", "/dev"].iter().any(|kept| folder == Path::new(kept)) || folder.starts_with("/proc");
    kept || rustix::fs::access(folder, Access::WRITE_OK).is_err()
}

/// A hold on what stands at a path, without opening it: a pipe is not waited for, a device not touched.
fn pinned(path: &Path, follow: bool) -> io::Result<OwnedFd> {
    #[cfg(target_os = "linux")]
    let how = OFlags::PATH;
    // There is no such hold here, so it is opened for good.
    #[cfg(not(target_os = "linux"))]
    let how = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let follow = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
    Ok(rustix::fs::open(path, how | follow | OFlags::CLOEXEC, Mode::empty())?)
}

/// What is held, opened for writing. This process's own output is that output, with its place in a file.
fn reopened(held: &OwnedFd) -> io::Result<OwnedFd> {
    let is = |fd: BorrowedFd<'_>| -> io::Result<(u64, u64)> {
        let stat = rustix::fs::fstat(fd)?;
        Ok((stat.st_dev, stat.st_ino))
    };
    let wanted = is(held.as_fd())?;
    for own in [rustix::stdio::stdout(), rustix::stdio::stderr()] {
        if is(own).is_ok_and(|own| own == wanted) {
            return own.try_clone_to_owned();
        }
    }
    if !cfg!(target_os = "linux") {
        return held.try_clone();
    }
    let path = format!("/proc/self/fd/{}", held.as_raw_fd());
    let how = OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, how, Mode::empty()).map_err(|error| match error {
        Errno::NXIO => io::Error::other("nobody reads from it"),
        error => error.into(),
    })
}

/// Writes all of it, as long as somebody takes some.
fn pour(to: &OwnedFd, mut content: &[u8]) -> io::Result<()> {
    while !content.is_empty() {
        if poll(&mut [PollFd::new(to, PollFlags::OUT)], Some(&PATIENCE))? == 0 {
            return Err(io::Error::new(ErrorKind::TimedOut, "nobody reads from it any more"));
        }
        match rustix::io::write(to, &content[..content.len().min(PIECE_BYTES)]) {
            Ok(written) => content = &content[written..],
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::event::Outcome;

    fn find(file: &Path) -> Result<Target, Failure> {
        Target::find("-o", file)
    }

    /// A folder that commands may write, one that they may not, and a policy that says so.
    fn ground() -> (tempfile::TempDir, PathBuf, Policy) {
        use crate::process::sandbox::{Access, Files, Rule};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        for name in ["work/.git", "home"] {
            fs::create_dir_all(path.join(name)).unwrap();
        }
        let rules = vec![Rule { path: path.join("work"), access: Access::Write }];
        (folder, path, Policy { files: Files::WorkspaceWrite, rules, ..Policy::off() })
    }

    #[test]
    fn what_cannot_be_written_is_refused_before() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("old"), "x").unwrap();
        symlink(folder.path(), at("loop")).unwrap();
        for good in [at("new"), at("old"), at("loop/loop/new"), PathBuf::from("/dev/null"), PathBuf::from("plain")] {
            find(&good).unwrap();
        }
        let outcome = |file: &Path| find(file).unwrap_err().outcome;
        for bad in [at(""), at("none/new"), at("old/new"), at("loop"), PathBuf::from("/"), PathBuf::from("-")] {
            assert_eq!(outcome(&bad), Outcome::Usage, "{}", bad.display());
        }
        symlink(at("b"), at("a")).unwrap();
        symlink(at("a"), at("b")).unwrap();
        assert_eq!(outcome(&at("a")), Outcome::Usage, "links in a ring");
    }

    #[test]
    fn a_link_of_the_operators_stays_and_leads_where_it_led() {
        let (_folder, path, policy) = ground();
        fs::write(path.join("home/file"), "old").unwrap();
        symlink(path.join("home/file"), path.join("link")).unwrap();
        let target = find(&path.join("link")).unwrap();
        assert!(!target.is_settled() && target.write(b"x").is_err(), "not before it is known who puts links there");
        target.settle(&policy, &path.join("work")).unwrap();
        // What the link leads to meanwhile is of no account.
        fs::remove_file(path.join("link")).unwrap();
        symlink(path.join("home/other"), path.join("link")).unwrap();
        target.write(b"new").unwrap();
        assert_eq!(fs::read(path.join("home/file")).unwrap(), b"new");
        assert!(!path.join("home/other").exists());
    }

    #[test]
    fn a_link_that_others_put_there_leads_nowhere_that_they_may_not_write() {
        let (_folder, path, policy) = ground();
        let work = path.join("work");
        fs::create_dir(work.join("inner")).unwrap();
        symlink(path.join("home"), work.join("out")).unwrap();
        symlink(path.join("home/.bashrc"), work.join("file")).unwrap();
        symlink(work.join("file"), path.join("twice")).unwrap();
        symlink(work.join(".git/config"), work.join("config")).unwrap();
        symlink("inner", work.join("in")).unwrap();
        for planted in ["work/out/new", "work/file", "twice", "work/config"] {
            let target = find(&path.join(planted)).unwrap();
            assert_eq!(target.settle(&policy, &work).unwrap_err().outcome, Outcome::Usage, "{planted}");
            assert!(target.write(b"x").is_err(), "{planted}");
        }
        assert!(!path.join("home/.bashrc").exists() && !path.join("home/new").exists());
        let own = find(&work.join("in/new")).unwrap();
        own.settle(&policy, &work).unwrap();
        own.write(b"x").unwrap();
        assert!(work.join("inner/new").is_file());
        // Where commands write nothing, links of the repository are somebody else's still.
        let read_only = Policy { rules: Vec::new(), ..policy };
        assert!(find(&work.join("in/new")).unwrap().settle(&read_only, &work).is_err());
    }

    #[test]
    fn what_is_put_in_its_place_meanwhile_is_replaced_or_refused() {
        let (_folder, path, _) = ground();
        let (file, folder) = (path.join("work/deep/result"), path.join("work/deep"));
        fs::create_dir(&folder).unwrap();
        let target = find(&file).unwrap();
        fs::write(path.join("home/.bashrc"), "mine").unwrap();
        symlink(path.join("home/.bashrc"), &file).unwrap();
        target.write(b"one").unwrap();
        assert!(file.symlink_metadata().unwrap().is_file());
        fs::remove_file(&file).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        target.write(b"two").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        // A folder that was removed and made anew is that folder; a link is not.
        fs::remove_dir_all(&folder).unwrap();
        target.write(b"three").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"three");
        fs::remove_dir_all(&folder).unwrap();
        symlink(path.join("home"), &folder).unwrap();
        assert!(target.write(b"four").is_err() && target.place().is_err());
        assert!(!path.join("home/result").exists());
        assert_eq!(fs::read(path.join("home/.bashrc")).unwrap(), b"mine");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn pipes_are_written_to_as_they_are_and_waited_for_by_nobody() {
        use std::io::Read;
        let (_folder, path, _) = ground();
        let pipe = path.join("work/pipe");
        let make = || rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        make();
        let target = find(&pipe).unwrap();
        assert!(target.write(b"x").unwrap_err().to_string().contains("nobody reads"));
        let reader = rustix::fs::open(&pipe, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        target.write(b"whole").unwrap();
        let mut text = String::new();
        fs::File::from(reader).read_to_string(&mut text).unwrap();
        assert_eq!(text, "whole");
        // Another one in its place is not the one that was named.
        fs::remove_file(&pipe).unwrap();
        make();
        let _reader = rustix::fs::open(&pipe, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        assert!(target.write(b"x").is_err());
        find(Path::new("/dev/null")).unwrap().write(b"x").unwrap();
    }
}
