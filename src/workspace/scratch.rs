//! The private folder of spettro's own git, and the one beside it.
//!
//! What a repository configures runs with git and may write the folder too: a filter can put a link, a pipe or a
//! folder where a file of ours is looked for. So nothing here follows a link, waits for a writer, or reads without a
//! bound; and what git is told is written into the folder beside, where git may only read.

use std::fs::{self, File, FileTimes};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::WorkspaceError;
use crate::world::beneath;

/// An index of a million files has about 100 MB; a larger file is none, or one that would fill the disk.
const LARGEST_INDEX_BYTES: u64 = 1 << 30;

/// Of what git says when it fails.
const MOST_WORDS_BYTES: u64 = 64 << 10;

#[derive(Debug)]
pub(super) struct Scratch {
    /// Without links above its last name.
    folder: PathBuf,
}

/// The folder beside a scratch folder: git's sandbox may read it and not write.
pub fn read_only_beside(scratch: &Path) -> PathBuf {
    let name = scratch.file_name().unwrap_or_default().to_string_lossy();
    scratch.with_file_name(format!("{name}-settings"))
}

/// `read_only_beside`, made when missing.
///
/// # Errors
/// When it cannot be made.
pub fn make_read_only_beside(scratch: &Path) -> Result<PathBuf, WorkspaceError> {
    let folder = read_only_beside(scratch);
    private_folder(&folder)?;
    Ok(folder)
}

impl Scratch {
    pub fn new(folder: &Path) -> Scratch {
        let canonical = |folder: &Path| Some(beneath::resolve(folder.parent()?).ok()?.join(folder.file_name()?));
        // One that cannot be resolved cannot be opened either, and that is an error where it is needed.
        Scratch { folder: canonical(folder).unwrap_or_else(|| folder.to_owned()) }
    }

    /// The session that it belongs to.
    pub fn parent(&self) -> Option<&Path> {
        self.folder.parent()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The folder itself.
    pub fn make(&self) -> Result<(), WorkspaceError> {
        private_folder(&self.folder)
    }

    /// A folder in it, made when missing.
    pub fn folder(&self, name: &str) -> Result<PathBuf, WorkspaceError> {
        self.make()?;
        let path = self.path(name);
        beneath::make_folders(&path).map_err(WorkspaceError::io("create", &path))?;
        Ok(path)
    }

    /// Where nothing is: in the folder beside, so that nobody puts anything there.
    pub fn nothing(&self) -> PathBuf {
        read_only_beside(&self.folder).join("none")
    }

    /// A file in the folder beside, with this content.
    pub fn told(&self, name: &str, content: &[u8]) -> Result<PathBuf, WorkspaceError> {
        let path = make_read_only_beside(&self.folder)?.join(name);
        let written = beneath::create(&path, 0o600).and_then(|mut file| file.write_all(content));
        written.map_err(WorkspaceError::io("write", &path))?;
        Ok(path)
    }

    /// A name in the folder under which nothing stands any more.
    pub fn cleared(&self, name: &str) -> Result<PathBuf, WorkspaceError> {
        let path = self.path(name);
        beneath::remove(&path).map_err(WorkspaceError::io("remove", &path))?;
        Ok(path)
    }

    /// What git wrote under that name, as far as it is a file and no longer than an error message is.
    pub fn words(&self, name: &str) -> Vec<u8> {
        let read = |file: File| -> io::Result<Vec<u8>> {
            let mut words = Vec::new();
            if file.metadata()?.is_file() {
                file.take(MOST_WORDS_BYTES).read_to_end(&mut words)?;
            }
            Ok(words)
        };
        // Without its words the failure is told by its status.
        beneath::open_to_read(&self.path(name)).and_then(read).unwrap_or_default()
    }

    /// A copy of an index in the folder, with its time: git tells by it which entries it must not trust. Without an
    /// index there is no copy.
    pub fn copy_of_index(&self, source: &Path) -> Result<PathBuf, WorkspaceError> {
        self.cleared("index.lock")?;
        let target = self.cleared("index")?;
        let copy = |source: File| -> io::Result<()> {
            let metadata = source.metadata()?;
            if !metadata.is_file() || metadata.len() > LARGEST_INDEX_BYTES {
                return Err(io::Error::other("it is no file, or larger than any index"));
            }
            let mut copy = beneath::create(&target, 0o600)?;
            io::copy(&mut source.take(LARGEST_INDEX_BYTES), &mut copy)?;
            copy.set_times(FileTimes::new().set_modified(metadata.modified()?))
        };
        // `.git` may be reached by a link, as some tools have it; the index is a file. What a link in its place leads to
        // would be copied to where a filter reads it.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(source, flags, Mode::empty());
        match opened.map_err(io::Error::from).map(File::from).and_then(copy) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(WorkspaceError::io("copy the index", source)(error))
            }
            _ => Ok(target),
        }
    }
}

fn private_folder(path: &Path) -> Result<(), WorkspaceError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(WorkspaceError::io("create", path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A scratch folder with a session around it, and a file elsewhere that nobody may touch.
    fn place() -> (tempfile::TempDir, Scratch, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        fs::write(path.join("elsewhere"), "PRIVATE").unwrap();
        let scratch = Scratch::new(&path.join("session/git"));
        scratch.make().unwrap();
        (dir, scratch, path.join("elsewhere"))
    }

    #[test]
    fn a_link_where_a_file_of_ours_is_looked_for_leads_nowhere() {
        let (dir, scratch, elsewhere) = place();
        let index = dir.path().join("index");
        fs::write(&index, "DIRC").unwrap();
        for name in ["index", "index.lock", "git-errors"] {
            symlink(&elsewhere, scratch.path(name)).unwrap();
        }
        assert_eq!(scratch.words("git-errors"), b"");
        let copy = scratch.copy_of_index(&index).unwrap();
        assert_eq!(fs::read(copy).unwrap(), b"DIRC");
        fs::create_dir_all(read_only_beside(&scratch.folder)).unwrap();
        symlink(&elsewhere, read_only_beside(&scratch.folder).join("settings")).unwrap();
        let told = scratch.told("settings", b"[a]").unwrap();
        assert_eq!(fs::read(&told).unwrap(), b"[a]");
        assert!(told.symlink_metadata().unwrap().is_file() && !told.starts_with(&scratch.folder));
        symlink(dir.path(), scratch.path("objects")).unwrap();
        assert!(scratch.folder("objects").is_err());
        assert_eq!(fs::read_to_string(elsewhere).unwrap(), "PRIVATE");
    }

    #[test]
    fn what_is_no_index_is_not_copied() {
        let (dir, scratch, elsewhere) = place();
        let index = dir.path().join("index");
        symlink(&elsewhere, &index).unwrap();
        assert!(scratch.copy_of_index(&index).is_err(), "a link");
        assert!(!scratch.path("index").exists());
        fs::remove_file(&index).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &index, Mode::from_raw_mode(0o600)).unwrap();
        assert!(scratch.copy_of_index(&index).is_err(), "a pipe, without waiting for a writer");
        fs::remove_file(&index).unwrap();
        File::create(&index).unwrap().set_len(LARGEST_INDEX_BYTES + 1).unwrap();
        assert!(scratch.copy_of_index(&index).is_err(), "a hole");
        fs::remove_file(&index).unwrap();
        assert!(!scratch.copy_of_index(&index).unwrap().exists(), "none is none");
    }
}
