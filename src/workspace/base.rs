//! The base of a workspace: how it stood when its session began, kept with the session so that a replay has it.
//!
//! `base.zst` holds one JSON line a path, with the content where all contents together are small enough.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::WorkspaceError;
use super::effects::unhex;
use super::stamp::hex;
use super::tree::{Tree, whole};
use crate::session::{Blob, FileKind as BaseKind};
use crate::world::{Secrets, regular};

/// The name of the file in a session's folder.
pub const BASE_FILE: &str = "base.zst";
/// Contents are kept when all of them together have no more than this.
const MOST_CONTENT_BYTES: u64 = 64 << 20;
/// Reading more files than this would take longer than it is worth.
const MOST_CONTENTS: usize = 20_000;
/// A line of the file has at most this: a content escaped as JSON, in the worst case.
const MOST_LINE_BYTES: u64 = 8 * MOST_CONTENT_BYTES;

/// One path of a workspace as it stood when the session began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseFile {
    /// Relative to the workspace.
    pub path: PathBuf,
    pub kind: BaseKind,
    pub bytes: u64,
    /// Of the content; of a file over 20 MB, of its size and modification time.
    pub sha256: String,
}

/// The listing of a workspace as it stood when the session began, sorted by the bytes of the paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Base {
    /// HEAD then, where the workspace is a git repository.
    pub git_commit: Option<String>,
    pub files: Vec<BaseFile>,
    /// Where those of them really stand whose paths hold a secret. Only known where the workspace is.
    pub hidden: BTreeMap<PathBuf, PathBuf>,
}

#[derive(Serialize, Deserialize)]
struct Row {
    path: Blob,
    kind: BaseKind,
    bytes: u64,
    sha256: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content: Option<Blob>,
}

impl Base {
    /// The content digest of a workspace that holds this. `None` when one of its digests is none.
    pub fn digest(&self) -> Option<String> {
        let hashes = self.files.iter().map(|file| unhex(&file.sha256)).collect::<Option<Vec<_>>>()?;
        let states = self.files.iter().zip(&hashes);
        Some(whole(states.map(|(file, hash)| (file.path.as_path(), file.kind.into(), hash))))
    }

    /// How a tree stood when it was last digested. `root` is where it really is.
    pub fn of(tree: &Tree, root: &Path) -> Base {
        let mut base = Base::default();
        for (path, entry) in tree.listed() {
            let path = path.into_owned();
            if path != entry.path {
                base.hidden.insert(path.clone(), entry.path.clone());
            }
            let bytes = std::fs::symlink_metadata(root.join(&entry.path)).map_or(0, |meta| meta.len());
            base.files.push(BaseFile { path, kind: entry.kind.into(), bytes, sha256: hex(&entry.hash) });
        }
        base
    }

    /// Writes the listing to `file`, with the contents of what stands below `root` when they are few enough. A content
    /// that holds a secret, or is not the one listed any more, is left out. Blocks; for a thread of its own.
    ///
    /// # Errors
    /// When `file` cannot be written.
    pub fn keep(&self, root: &Path, file: &Path, secrets: &Secrets) -> Result<(), WorkspaceError> {
        let folder = file.parent().unwrap_or(Path::new("."));
        // 0600, and in place only when it is whole.
        let kept = tempfile::NamedTempFile::new_in(folder).and_then(|mut temporary| {
            let mut encoder = zstd::stream::write::Encoder::new(temporary.as_file_mut(), 1)?;
            self.write(root, secrets, &mut encoder)?;
            encoder.finish()?;
            temporary.persist(file)?;
            Ok(())
        });
        kept.map_err(WorkspaceError::io("write", file))
    }

    fn write(&self, root: &Path, secrets: &Secrets, to: &mut impl Write) -> io::Result<()> {
        let all: u64 = self.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add);
        let with_contents = all <= MOST_CONTENT_BYTES && self.files.len() <= MOST_CONTENTS;
        let mut line = Vec::new();
        for file in &self.files {
            let stands = root.join(self.hidden.get(&file.path).unwrap_or(&file.path));
            let content = if with_contents { content(&stands, file) } else { None };
            let content = content.filter(|content| !secrets.contains(content));
            let row = Row {
                path: Blob(file.path.as_os_str().as_bytes().to_vec()),
                kind: file.kind,
                bytes: file.bytes,
                sha256: file.sha256.clone(),
                content: content.map(Blob),
            };
            line.clear();
            serde_json::to_writer(&mut line, &row)?;
            line.push(b'\n');
            to.write_all(&line)?;
        }
        Ok(())
    }

    /// Reads what [`Base::keep`] wrote: the listing, and the contents by their sha256.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(file: &Path) -> io::Result<(Base, BTreeMap<String, Bytes>)> {
        let mut reader = BufReader::new(zstd::stream::read::Decoder::new(File::open(file)?)?);
        let (mut base, mut contents, mut line) = (Base::default(), BTreeMap::new(), Vec::new());
        loop {
            line.clear();
            if (&mut reader).take(MOST_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
                return Ok((base, contents));
            }
            let Row { path, kind, bytes, sha256, content } = serde_json::from_slice(&line)?;
            if let Some(content) = content {
                contents.insert(sha256.clone(), Bytes::from(content.0));
            }
            base.files.push(BaseFile { path: PathBuf::from(OsString::from_vec(path.0)), kind, bytes, sha256 });
        }
    }
}

/// A content as it was listed.
fn content(path: &Path, file: &BaseFile) -> Option<Vec<u8>> {
    let content = match file.kind {
        BaseKind::File | BaseKind::Executable => regular::read(path, file.bytes).ok()?,
        BaseKind::Symlink => std::fs::read_link(path).ok()?.into_os_string().into_vec(),
        BaseKind::Repository | BaseKind::Special => return None,
    };
    (hex(&Sha256::digest(&content)) == file.sha256).then_some(content)
}
