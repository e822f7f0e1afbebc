//! Request bodies from the wire log: each is a front, and a rest told as «the first `keep` bytes of the lane's previous
//! rest, then `add`».
//!
//! Invariant: what two bodies share is in memory once, and a body that is handed out has the recorded digest.

use std::rc::Rc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::records::hex;

/// A whole body stands in a session's log every 50 calls, in a cassette more seldom; so many are borne in a row.
const DEEPEST: u32 = 512;

/// The rest of a request's body: its digest was proved when the tape was read.
#[derive(Debug, Clone)]
pub struct Rest(Rc<Piece>);

#[derive(Debug)]
struct Piece {
    /// Absent for a body that stands whole.
    before: Option<Rc<Piece>>,
    keep: u64,
    add: Bytes,
    depth: u32,
}

impl Rest {
    /// The body's bytes, in order, shared with the bodies before it.
    pub fn segments(&self) -> Vec<Bytes> {
        let mut segments = Vec::new();
        let (mut piece, mut end) = (&self.0, self.len());
        loop {
            if end > piece.keep {
                segments.push(piece.add.slice(..(end - piece.keep) as usize));
                end = piece.keep;
            }
            match &piece.before {
                Some(before) => piece = before,
                None => break,
            }
        }
        segments.reverse();
        segments
    }

    /// The whole body in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        self.segments().concat()
    }

    pub fn len(&self) -> u64 {
        self.0.keep + self.0.add.len() as u64
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the first bytes of both are the same, so many.
    fn begins_as(&self, other: &Rest, bytes: u64) -> bool {
        let (one, other) = (self.to_vec(), other.to_vec());
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        one.get(..bytes).is_some_and(|start| other.get(..bytes) == Some(start))
    }

    /// Bytes at the start that are those of the lane's request before it.
    pub fn kept(&self) -> u64 {
        self.0.keep
    }

    /// What stands behind them.
    pub fn added(&self) -> &Bytes {
        &self.0.add
    }
}

/// How the bodies of one lane are written, in their order: whole as seldom as may be, so that a long session costs
/// what is new in it.
#[derive(Default)]
pub(super) struct Telling {
    last: Option<Told>,
}

struct Told {
    rest: Rest,
    keep: u64,
    depth: u32,
}

impl Telling {
    /// The bytes at the start of a body that are those of the one before, and what stands behind them.
    pub fn next(&mut self, rest: &Rest) -> (u64, Bytes) {
        let last = self.last.take().filter(|last| last.depth < DEEPEST);
        let (keep, depth) = match &last {
            // What the log repeats whole, for whoever reads it from there on, is known.
            Some(last) if rest.kept() == 0 && rest.begins_as(&last.rest, last.keep) => (last.keep, last.depth + 1),
            Some(last) if rest.kept() >= last.keep => (rest.kept(), last.depth + 1),
            _ => (0, 0),
        };
        let add = match keep {
            0 => Bytes::from(rest.to_vec()),
            keep if keep == rest.kept() => rest.added().clone(),
            keep => Bytes::from(rest.to_vec().split_off(keep as usize)),
        };
        self.last = Some(Told { rest: rest.clone(), keep, depth: if keep == 0 { 0 } else { depth } });
        (keep, add)
    }
}

/// The bodies of one lane, in the order of the log.
#[derive(Default)]
pub(super) struct Chain {
    last: Option<Rc<Piece>>,
    /// Of the first `last.keep` bytes. So proving a body costs what is new in it.
    hash: Sha256,
}

impl Chain {
    /// The lane's next body.
    ///
    /// # Errors
    /// In words: the body cannot be put together, or has not the recorded digest.
    pub fn follow(&mut self, keep: u64, add: Bytes, sha256: &str) -> Result<Rest, String> {
        let piece = match self.last.take() {
            _ if keep == 0 => {
                self.hash = Sha256::new();
                Piece { before: None, keep, add, depth: 0 }
            }
            None => return Err(format!("its request keeps {keep} bytes of one that is not there")),
            Some(last) => {
                // A sealed part of a request never shrinks, short of a new beginning.
                if keep < last.keep || keep > last.keep + last.add.len() as u64 {
                    return Err(format!("its request keeps {keep} bytes, which is not where the one before it was"));
                }
                if last.depth >= DEEPEST {
                    return Err(format!("no whole request stands among the {DEEPEST} before it"));
                }
                self.hash.update(&last.add[..(keep - last.keep) as usize]);
                Piece { keep, add, depth: last.depth + 1, before: Some(last) }
            }
        };
        let mut whole = self.hash.clone();
        whole.update(&piece.add);
        if hex(&whole.finalize()) != sha256 {
            return Err("its request has not the digest that was recorded".to_owned());
        }
        let piece = Rc::new(piece);
        self.last = Some(Rc::clone(&piece));
        Ok(Rest(piece))
    }
}
