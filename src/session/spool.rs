//! Full tool outputs, `spool/N`, as long as the session lives.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::PathBuf;

use bytes::Bytes;

use crate::world::Dir;

/// Full tool outputs, `spool/N`. The folder is made with the first one.
pub struct Spool {
    dir: PathBuf,
    /// The highest id in use.
    last: Cell<u64>,
}

impl Spool {
    /// A spool without any output yet.
    pub fn new(dir: PathBuf) -> Spool {
        Spool { dir, last: Cell::new(0) }
    }

    /// Goes on after the outputs that are there.
    pub(super) fn open(dir: PathBuf, lister: &dyn Dir) -> io::Result<Spool> {
        let entries = match lister.list(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let ids = entries.iter().filter_map(|entry| entry.name.to_str()?.parse().ok());
        Ok(Spool { last: Cell::new(ids.max().unwrap_or(0)), dir })
    }

    /// Writes one body; its id (counted from 1 in the session). After an error nothing is left of it.
    pub fn put(&self, bytes: &[u8]) -> io::Result<u64> {
        let id = self.last.get() + 1;
        if id == 1 {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        }
        let path = self.path(id);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        if let Err(error) = file.write_all(bytes) {
            std::fs::remove_file(&path)?;
            return Err(error);
        }
        self.last.set(id);
        Ok(id)
    }

    pub fn path(&self, id: u64) -> PathBuf {
        self.dir.join(id.to_string())
    }

    /// Up to `limit` bytes from `offset`, and the whole size. `None` for an unknown id.
    pub fn read(&self, id: u64, offset: u64, limit: usize) -> io::Result<Option<(Bytes, u64)>> {
        let file = match File::open(self.path(id)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let size = file.metadata()?.len();
        let wanted = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX).min(limit);
        let mut bytes = vec![0; wanted];
        if wanted > 0 {
            file.read_exact_at(&mut bytes, offset)?;
        }
        Ok(Some((Bytes::from(bytes), size)))
    }
}
