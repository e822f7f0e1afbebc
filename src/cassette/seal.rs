//! The seal of a compressed file: behind the compressed data stands a frame that every decompressor skips, with the
//! sha256 of all bytes before it. So a changed byte shows even where it changes nothing in what comes out.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use sha2::{Digest, Sha256};

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// A skippable frame of 32 bytes (RFC 8878 §3.1.2).
const SEAL_MAGIC: [u8; 8] = [0x5e, 0x2a, 0x4d, 0x18, 32, 0, 0, 0];
const SEAL_BYTES: u64 = 8 + 32;
/// So far before a file's end a seal is looked for that something follows.
const LOOK_BACK_BYTES: u64 = 64 << 10;

/// What stands at the end of a file.
pub(super) enum Found {
    /// The file is not compressed.
    Plain,
    /// A seal that fits the so many bytes before it.
    Whole(u64),
    Missing,
    Broken,
    /// A seal that fits the bytes before it, and something behind it.
    Followed,
}

/// The seal of a file whose bytes have this digest.
pub(super) fn of(digest: Sha256) -> Vec<u8> {
    let mut seal = SEAL_MAGIC.to_vec();
    seal.extend_from_slice(&digest.finalize());
    seal
}

/// Looks at a file from its start.
pub(super) fn look(file: &mut File) -> io::Result<Found> {
    let mut first = [0; 4];
    file.seek(SeekFrom::Start(0))?;
    match file.read_exact(&mut first) {
        Ok(()) if first == ZSTD_MAGIC => {}
        Ok(()) => return Ok(Found::Plain),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Found::Plain),
        Err(error) => return Err(error),
    }
    let Some(before) = file.metadata()?.len().checked_sub(SEAL_BYTES) else { return Ok(Found::Missing) };
    let mut seal = [0; SEAL_BYTES as usize];
    file.seek(SeekFrom::Start(before))?;
    file.read_exact(&mut seal)?;
    if seal[..8] != SEAL_MAGIC {
        return Ok(if is_followed(file, before)? { Found::Followed } else { Found::Missing });
    }
    Ok(if fits(file, before, &seal[8..])? { Found::Whole(before) } else { Found::Broken })
}

/// Whether a seal that fits stands near the end of a file whose last bytes, from `before`, are none.
fn is_followed(file: &mut File, before: u64) -> io::Result<bool> {
    let from = before.saturating_sub(LOOK_BACK_BYTES);
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.take(LOOK_BACK_BYTES + SEAL_BYTES).read_to_end(&mut tail)?;
    let Some(at) = memchr::memmem::rfind(&tail, &SEAL_MAGIC) else { return Ok(false) };
    match tail.get(at + 8..at + SEAL_BYTES as usize) {
        Some(seal) => fits(file, from + at as u64, seal),
        None => Ok(false),
    }
}

fn fits(file: &mut File, bytes: u64, seal: &[u8]) -> io::Result<bool> {
    file.seek(SeekFrom::Start(0))?;
    let mut digest = Sha256::new();
    io::copy(&mut file.take(bytes), &mut digest)?;
    Ok(digest.finalize()[..] == *seal)
}
