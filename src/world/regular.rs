//! Regular files, opened without waiting for anybody.
//!
//! Whoever may write in a workspace can put a pipe where a file was, which an ordinary open waits at for ever, or a
//! file without end. So what stands in a workspace or a `.git` is opened here. Links are followed; for paths on which
//! none may stand there is `beneath`.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a regular file for reading.
///
/// # Errors
/// The system's; `IsADirectory`, and `InvalidInput` for what is no regular file.
pub fn open(path: &Path) -> io::Result<File> {
    // Opening a device may already do something to it. What takes the file's place after this look is not waited for.
    is_regular(&path.metadata()?)?;
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    is_regular(&file.metadata()?)?;
    Ok(file)
}

/// The content of a regular file of at most `most_bytes`.
///
/// # Errors
/// As [`open`]; `FileTooLarge` for a larger one.
pub fn read(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let mut content = Vec::new();
    // It may grow meanwhile.
    file.take(most_bytes.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 > most_bytes {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {most_bytes} bytes")));
    }
    Ok(content)
}

fn is_regular(metadata: &std::fs::Metadata) -> io::Result<()> {
    if metadata.is_dir() {
        Err(io::ErrorKind::IsADirectory.into())
    } else if metadata.is_file() {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_nothing_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "text").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert_eq!(read(&at("file"), 4).unwrap(), b"text");
        assert_eq!(read(&at("link"), 4).unwrap(), b"text");
        let kind = |name: &str, most| read(&at(name), most).unwrap_err().kind();
        assert_eq!(kind("file", 3), io::ErrorKind::FileTooLarge);
        assert_eq!(kind("none", 3), io::ErrorKind::NotFound);
        assert_eq!(kind("pipe", 3), io::ErrorKind::InvalidInput);
        assert_eq!(kind("", 3), io::ErrorKind::IsADirectory);
        assert_eq!(read(Path::new("/dev/zero"), 3).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        File::create(at("sparse")).unwrap().set_len(3 << 40).unwrap();
        assert_eq!(kind("sparse", 1_000), io::ErrorKind::FileTooLarge);
    }
}
