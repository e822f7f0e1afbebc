//! The base of a workspace: how it stood when its session began, kept with the session so that a replay has it.
//!
//! `base.zst` holds one JSON line a path, with the content where all contents together are small enough.

use std::collections::BTreeMap;
use std::ffi::OsString;
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
/// A session's folder may come from anywhere: what is read of the file is bounded, and no more is written.
const MOST: Most =
    Most { rows: 1_000_000, line_bytes: 64 << 20, text_bytes: 512 << 20, content_bytes: MOST_CONTENT_BYTES };
/// The largest window that is unpacked, as a power of two: 8 MiB. What is written needs less than one.
const MOST_WINDOW_LOG: u32 = 23;

/// How much a file of a base may hold.
struct Most {
    rows: usize,
    line_bytes: u64,
    /// All lines together.
    text_bytes: u64,
    /// All contents together.
    content_bytes: u64,
}

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
        let too_large = || io::Error::new(io::ErrorKind::FileTooLarge, "the listing is longer than a replay takes");
        if self.files.len() > MOST.rows {
            return Err(too_large());
        }
        let (mut line, mut text_bytes) = (Vec::new(), 0);
        for file in &self.files {
            let stands = root.join(self.hidden.get(&file.path).unwrap_or(&file.path));
            let content = if with_contents { content(&stands, file) } else { None };
            let content = content.filter(|content| !secrets.contains(content));
            let mut row = Row {
                path: Blob(file.path.as_os_str().as_bytes().to_vec()),
                kind: file.kind,
                bytes: file.bytes,
                sha256: file.sha256.clone(),
                content: content.map(Blob),
            };
            encode(&row, &mut line)?;
            if line.len() as u64 > MOST.line_bytes {
                // Escaped it is longer than it is.
                row.content = None;
                encode(&row, &mut line)?;
            }
            text_bytes += line.len() as u64;
            if text_bytes > MOST.text_bytes {
                return Err(too_large());
            }
            to.write_all(&line)?;
        }
        Ok(())
    }

    /// Reads what [`Base::keep`] wrote: the listing, and the contents by their sha256.
    ///
    /// # Errors
    /// When the file cannot be read; `InvalidData` for one that was not written so.
    pub fn read(file: &Path) -> io::Result<(Base, BTreeMap<String, Bytes>)> {
        let mut decoder = zstd::stream::read::Decoder::new(regular::open(file)?)?;
        decoder.window_log_max(MOST_WINDOW_LOG)?;
        take(BufReader::new(decoder), &MOST)
    }
}

fn encode(row: &Row, line: &mut Vec<u8>) -> io::Result<()> {
    line.clear();
    serde_json::to_writer(&mut *line, row)?;
    line.push(b'\n');
    Ok(())
}

fn take(mut reader: impl BufRead, most: &Most) -> io::Result<(Base, BTreeMap<String, Bytes>)> {
    let bad = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason);
    let (mut base, mut contents, mut line) = (Base::default(), BTreeMap::new(), Vec::new());
    let (mut text_bytes, mut content_bytes) = (0, 0);
    loop {
        line.clear();
        let read = (&mut reader).take(most.line_bytes + 1).read_until(b'\n', &mut line)? as u64;
        if read == 0 {
            return Ok((base, contents));
        }
        text_bytes += read;
        if read > most.line_bytes || text_bytes > most.text_bytes || base.files.len() == most.rows {
            return Err(bad("it is larger than any that is kept"));
        }
        let Row { path, kind, bytes, sha256, content } = serde_json::from_slice(&line)?;
        if let Some(Blob(content)) = content {
            content_bytes += content.len() as u64;
            if content_bytes > most.content_bytes {
                return Err(bad("its contents are larger than any that are kept"));
            }
            if hex(&Sha256::digest(&content)) != sha256 {
                return Err(bad("a content has another digest than its own"));
            }
            contents.insert(sha256.clone(), Bytes::from(content));
        }
        base.files.push(BaseFile { path: PathBuf::from(OsString::from_vec(path.0)), kind, bytes, sha256 });
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

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: Most = Most { rows: 3, line_bytes: 300, text_bytes: 600, content_bytes: 20 };

    fn row(path: &str, content: Option<&str>) -> String {
        let sha256 = hex(&Sha256::digest(content.unwrap_or("x")));
        let content = content.map(|content| Blob(content.as_bytes().to_vec()));
        let path = Blob(path.as_bytes().to_vec());
        let mut line = Vec::new();
        encode(&Row { path, kind: BaseKind::File, bytes: 9, sha256, content }, &mut line).unwrap();
        String::from_utf8(line).unwrap()
    }

    fn taken(rows: &[String]) -> io::Result<usize> {
        take(rows.concat().as_bytes(), &FEW).map(|(base, _)| base.files.len())
    }

    #[test]
    fn rows_lines_and_contents_are_bounded() {
        let content = "ten bytes.";
        let fits = [row("a", Some(content)), row("b", Some(content)), row("c", None)];
        assert_eq!(taken(&fits).unwrap(), 3);
        let refused = |rows: &[String]| taken(rows).unwrap_err().kind();
        let invalid = io::ErrorKind::InvalidData;
        assert_eq!(refused(&[row("a", None), row("b", None), row("c", None), row("d", None)]), invalid, "four rows");
        assert_eq!(refused(&[row("a", Some(content)), row("b", Some(content)), row("c", Some("y"))]), invalid, "21 B");
        assert_eq!(refused(&[row(&"a".repeat(300), None)]), invalid, "a long line");
        let long = "a".repeat(150);
        assert_eq!(refused(&[row(&long, None), row(&long, None), row(&long, None)]), invalid, "long lines together");
        assert_eq!(refused(&["\0".repeat(301)]), invalid, "no line at all");
    }

    #[test]
    fn a_content_has_the_digest_that_names_it() {
        let whole = row("a", Some("ten bytes."));
        assert_eq!(taken(std::slice::from_ref(&whole)).unwrap(), 1);
        let other = taken(&[whole.replace("ten bytes.", "Ten bytes.")]).unwrap_err();
        assert!(other.to_string().contains("another digest"), "{other}");
    }

    #[test]
    fn what_is_kept_is_read_back_and_what_escapes_to_too_much_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        // Six bytes each in JSON.
        std::fs::write(at("control"), vec![1; 11 << 20]).unwrap();
        std::fs::write(at("plain"), "plain\n").unwrap();
        let file = |name: &str| {
            let content = std::fs::read(at(name)).unwrap();
            let (bytes, sha256) = (content.len() as u64, hex(&Sha256::digest(&content)));
            BaseFile { path: name.into(), kind: BaseKind::File, bytes, sha256 }
        };
        let base = Base { git_commit: None, files: vec![file("control"), file("plain")], hidden: BTreeMap::new() };
        base.keep(dir.path(), &at("base.zst"), &Secrets::default()).unwrap();
        let (read, contents) = Base::read(&at("base.zst")).unwrap();
        assert_eq!(read, base);
        assert_eq!(contents.keys().collect::<Vec<_>>(), [&base.files[1].sha256]);
    }
}
