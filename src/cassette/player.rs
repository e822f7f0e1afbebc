//! Recorded replies as the provider: in the order of each lane, in the recorded reads.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::path::Path;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::error::CassetteError;
use super::records::{Head, hex};
use super::tape::Tape;
use crate::event::Lane;
use crate::world::{Boxed, HttpBody, HttpRequest, HttpResponse, Transport, TransportError};

/// A request that was not the recorded one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    pub lane: Lane,
    pub n: u64,
    /// sha256 of the rest of the request body: as recorded, and as sent now.
    pub recorded: String,
    pub sent: String,
}

/// Serves the replies of a cassette: call `n` of a lane gets the lane's n-th reply that arrived whole, so a resumed
/// session goes on where it was. A request that differs from the recorded one is reported, not refused.
pub struct Player {
    head: Head,
    replies: BTreeMap<Lane, Vec<Stored>>,
    mismatches: RefCell<Vec<Mismatch>>,
}

struct Stored {
    sha256: String,
    status: u16,
    headers: Vec<(String, String)>,
    chunks: Vec<Bytes>,
}

impl Player {
    /// Reads a cassette whole and checks order, counts, digest and end.
    ///
    /// # Errors
    /// As [`Tape::of_file`].
    pub fn open(path: &Path) -> Result<Player, CassetteError> {
        let tape = Tape::of_file(path)?;
        let mut replies: BTreeMap<Lane, Vec<Stored>> = BTreeMap::new();
        for (lane, calls) in tape.lanes() {
            for call in calls {
                let Some((attempt, status)) = call.reply().and_then(|attempt| Some((attempt, attempt.status?))) else {
                    continue;
                };
                replies.entry(lane).or_default().push(Stored {
                    sha256: call.digest.clone(),
                    status,
                    headers: attempt.headers.clone(),
                    chunks: attempt.chunks(),
                });
            }
        }
        Ok(Player { head: tape.head().clone(), replies, mismatches: RefCell::default() })
    }

    pub fn head(&self) -> &Head {
        &self.head
    }

    /// How many replies a lane has.
    pub fn count(&self, lane: Lane) -> u64 {
        self.replies.get(&lane).map_or(0, |replies| replies.len() as u64)
    }

    /// The requests so far that were not the recorded ones.
    pub fn mismatches(&self) -> Vec<Mismatch> {
        self.mismatches.borrow().clone()
    }

    fn answer(&self, request: &HttpRequest) -> Result<HttpResponse, TransportError> {
        let (lane, n) = (request.tag.lane, request.tag.n);
        let index = n.checked_sub(1).and_then(|index| usize::try_from(index).ok());
        let reply = index.and_then(|index| self.replies.get(&lane)?.get(index));
        let Some(reply) = reply else {
            let has = self.count(lane);
            return Err(TransportError::Miss(format!("{lane} call {n}: the cassette has {has} {lane} replies")));
        };
        let sent = rest_digest(request);
        if sent != reply.sha256 {
            self.mismatches.borrow_mut().push(Mismatch { lane, n, recorded: reply.sha256.clone(), sent });
        }
        let body = Box::new(Recorded { chunks: reply.chunks.clone().into() });
        Ok(HttpResponse { status: reply.status, headers: reply.headers.clone(), body })
    }
}

/// A body's first segment is its front, which may differ from call to call; the digest is that of the rest.
fn rest_digest(request: &HttpRequest) -> String {
    let mut digest = Sha256::new();
    for segment in request.body.0.iter().skip(1) {
        digest.update(segment);
    }
    hex(&digest.finalize())
}

struct Recorded {
    chunks: VecDeque<Bytes>,
}

impl HttpBody for Recorded {
    fn next(&mut self) -> Boxed<'_, Result<Option<Bytes>, TransportError>> {
        let chunk = self.chunks.pop_front();
        Box::pin(async move { Ok(chunk) })
    }
}

impl Transport for Player {
    fn send(&self, request: HttpRequest) -> Boxed<'_, Result<HttpResponse, TransportError>> {
        let answer = self.answer(&request);
        Box::pin(async move { answer })
    }

    fn recorded(&self) -> bool {
        true
    }

    fn differing(&self) -> u64 {
        self.mismatches.borrow().len() as u64
    }
}
