//! Where output goes: a ring for jobs, both ends for foreground commands. Memory is bounded in each.

use std::collections::VecDeque;

use crate::world::Captured;

/// The last `capacity` bytes of a stream. Offsets are absolute: they count from the first byte ever written.
pub struct Ring {
    bytes: VecDeque<u8>,
    capacity: usize,
    dropped: u64,
}

impl Ring {
    pub fn new(capacity: usize) -> Ring {
        Ring { bytes: VecDeque::new(), capacity, dropped: 0 }
    }

    pub fn write(&mut self, chunk: &[u8]) {
        let kept = &chunk[chunk.len().saturating_sub(self.capacity)..];
        let overflow = (self.bytes.len() + kept.len()).saturating_sub(self.capacity);
        self.bytes.drain(..overflow);
        self.bytes.extend(kept);
        self.dropped += (overflow + chunk.len() - kept.len()) as u64;
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.dropped + self.bytes.len() as u64
    }

    /// Bytes that are no longer here: the offset of the first that is.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Up to `limit` bytes from `offset` on, or from the first that is still here; with the offset they start at.
    pub fn read(&self, offset: u64, limit: usize) -> (u64, Vec<u8>) {
        let from = offset.clamp(self.dropped, self.written());
        let skip = (from - self.dropped) as usize;
        let end = skip.saturating_add(limit).min(self.bytes.len());
        (from, self.bytes.range(skip..end).copied().collect())
    }

    /// The last line that is not blank, without what a carriage return has overwritten; cut to 200 characters.
    pub fn last_line(&self) -> String {
        let (_, end) = self.read(self.written().saturating_sub(4096), 4096);
        let text = String::from_utf8_lossy(&end);
        let line = text.split(['\n', '\r']).rev().find(|line| !line.trim().is_empty()).unwrap_or("");
        line.trim().chars().take(200).collect()
    }
}

/// The first and the last `keep` bytes of a stream.
pub struct Ends {
    keep: usize,
    head: Vec<u8>,
    tail: Ring,
}

impl Ends {
    pub fn new(keep: usize) -> Ends {
        Ends { keep, head: Vec::new(), tail: Ring::new(keep) }
    }

    pub fn write(&mut self, chunk: &[u8]) {
        let (head, tail) = chunk.split_at(chunk.len().min(self.keep - self.head.len()));
        self.head.extend_from_slice(head);
        if !tail.is_empty() {
            self.tail.write(tail);
        }
    }

    pub fn finish(self) -> Captured {
        Captured { head: self.head, omitted_bytes: self.tail.dropped, tail: self.tail.bytes.into() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_ring_is_the_end_of_everything_written(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
            capacity in 1usize..50,
            offset in 0u64..500,
            limit in 0usize..60,
        ) {
            let mut ring = Ring::new(capacity);
            let mut everything = Vec::new();
            for chunk in &chunks {
                ring.write(chunk);
                everything.extend_from_slice(chunk);
            }
            let first = everything.len().saturating_sub(capacity);
            prop_assert_eq!(ring.written(), everything.len() as u64);
            prop_assert_eq!(ring.dropped(), first as u64);
            let from = usize::try_from(offset).unwrap().max(first).min(everything.len());
            let to = (from + limit).min(everything.len());
            prop_assert_eq!(ring.read(offset, limit), (from as u64, everything[from..to].to_vec()));
        }

        #[test]
        fn both_ends_of_a_stream_are_kept_and_the_middle_is_counted(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
            keep in 0usize..60,
        ) {
            let mut ends = Ends::new(keep);
            for chunk in &chunks {
                ends.write(chunk);
            }
            let everything = chunks.concat();
            let captured = ends.finish();
            prop_assert_eq!(captured.total_bytes(), everything.len() as u64);
            prop_assert!(everything.starts_with(&captured.head));
            prop_assert!(everything.ends_with(&captured.tail));
            let expected = everything.len().saturating_sub(2 * keep);
            prop_assert_eq!(captured.omitted_bytes, expected as u64);
        }
    }

    #[test]
    fn the_last_line_is_what_a_person_would_see() {
        let mut ring = Ring::new(1 << 20);
        assert_eq!(ring.last_line(), "");
        ring.write(b"one\ntwo  \n\n  \n");
        assert_eq!(ring.last_line(), "two");
        ring.write(b"10%\r20%\r");
        assert_eq!(ring.last_line(), "20%");
    }
}
