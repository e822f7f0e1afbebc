//! A recorded session in memory, whether it came from a session's folder or from a file.
//!
//! Invariant: a tape that was made has been checked: its facts read and chained, every request put together and its
//! digest proved, every attempt that a fact names there, or said to be lost.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;

use super::chain::{Chain, Rest};
use super::error::CassetteError;
use super::read::MOST_BYTES;
use super::records::{End, Head, Reply};
use crate::event::{Lane, Outcome};
use crate::session::{Block, Call, Fact, Frozen, Line, Message, Settled, State, WireLine, fold};
use crate::workspace::Base;
use crate::world::regular;

/// A recorded session.
#[derive(Debug)]
pub struct Tape {
    pub(super) head: Head,
    pub(super) facts: Vec<Line>,
    pub(super) lanes: BTreeMap<Lane, Vec<Exchange>>,
    pub(super) spool: Outputs,
    pub(super) base: Option<Base>,
    pub(super) blobs: BTreeMap<String, Bytes>,
    pub(super) end: Option<End>,
}

/// One call of a lane: the request that left, and all that came.
#[derive(Debug, Clone)]
pub struct Exchange {
    pub lane: Lane,
    /// As the session counted the lane's calls; in a tape of replies only, counted anew without gaps.
    pub n: u64,
    /// sha256 of the rest of the request's body.
    pub digest: String,
    /// In order. Empty when spettro died before the first was written down; fewer than were settled when their bytes
    /// were lost (a fact says so), or stood behind the place where a file breaks off.
    pub attempts: Vec<Attempt>,
    /// Absent in a tape of replies only.
    pub call: Option<Call>,
    /// Absent in a tape of replies only, and where spettro died within the call.
    pub settled: Option<Settled>,
    /// What the reply said, decoded, where the facts hold it.
    pub said: Option<Vec<Block>>,
}

/// One HTTP try.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// Counts from 1.
    pub number: u64,
    /// Absent in a tape of replies only.
    pub request: Option<Request>,
    /// Absent when no response came.
    pub status: Option<u16>,
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    /// The offsets in the body at which network reads began, ascending.
    pub reads: Vec<u64>,
    /// `eof`, `reset`, `timeout`, `abort`, `connect`.
    pub end: String,
    pub ms: u64,
    /// The body was composed anew from a cleaned reply, because what came held a secret.
    pub redacted: bool,
}

/// A request as it left.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    /// What may differ from call to call: model, limits, cache hints.
    pub front: Bytes,
    /// System prompt, tools, messages.
    pub rest: Rest,
}

impl Exchange {
    /// Whether attempts were settled that are not here.
    pub fn lacks_attempts(&self) -> bool {
        self.settled.as_ref().is_some_and(|settled| settled.attempts.len() > self.attempts.len())
    }

    /// The attempt that brought the reply, if one arrived whole.
    pub fn reply(&self) -> Option<&Attempt> {
        let failed = self.lacks_attempts()
            || self.call.is_some() && self.settled.as_ref().is_none_or(|settled| settled.error.is_some());
        self.attempts.last().filter(|attempt| !failed && attempt.status.is_some())
    }
}

impl Attempt {
    /// The body in the reads in which it came.
    pub fn chunks(&self) -> Vec<Bytes> {
        // What stands before the first read belongs to it.
        let inner = || self.reads.iter().skip(1).map(|&at| at as usize);
        let starts = std::iter::once(0).chain(inner());
        let ends = inner().chain(std::iter::once(self.body.len()));
        let chunks = starts.zip(ends).map(|(start, end)| self.body.slice(start..end));
        chunks.filter(|chunk| !chunk.is_empty()).collect()
    }
}

/// Where spooled outputs are.
#[derive(Debug)]
pub(super) enum Outputs {
    Folder(PathBuf),
    Held(BTreeMap<u64, Bytes>),
}

impl Tape {
    /// Reads a session's folder, without a lock and without repairing anything. What stands behind the last whole
    /// line of its log is left out; so a session that runs is taped as far as it has come.
    ///
    /// # Errors
    /// A session that cannot be read, or whose wire log lacks what its facts name.
    pub fn of_session(dir: &Path) -> Result<Tape, CassetteError> {
        super::gather::gather(dir, false)
    }

    /// As [`Tape::of_session`], with every content of the workspace that the session keeps, not only those that its own
    /// tools looked at.
    ///
    /// # Errors
    /// As [`Tape::of_session`].
    pub fn of_whole_session(dir: &Path) -> Result<Tape, CassetteError> {
        super::gather::gather(dir, true)
    }

    /// Reads a cassette whole and checks it.
    ///
    /// # Errors
    /// Whatever is not a whole cassette that this build can read.
    pub fn of_file(path: &Path) -> Result<Tape, CassetteError> {
        let tape = super::read::read(path)?;
        match tape.end {
            Some(_) => Ok(tape),
            None => Err(CassetteError::Incomplete(path.to_owned())),
        }
    }

    /// As [`Tape::of_file`], but one that breaks off (it has no `end`) is taken as far as its whole lines go.
    ///
    /// # Errors
    /// As [`Tape::of_file`], without `Incomplete`.
    pub fn of_incomplete_file(path: &Path) -> Result<Tape, CassetteError> {
        super::read::read(path)
    }

    /// What it is called: the session's id, else the goal's name.
    pub fn name(&self) -> &str {
        self.head.source.as_ref().map_or(&self.head.goal.name, |source| &source.session)
    }

    pub(super) fn unpackable(&self, reason: String) -> CassetteError {
        CassetteError::Unpackable { session: self.name().to_owned(), reason }
    }

    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Whether it is more than replies: facts, requests, outputs.
    pub fn is_session(&self) -> bool {
        self.head.source.is_some()
    }

    /// All facts of the session, in order. Empty in a tape of replies only.
    pub fn facts(&self) -> &[Line] {
        &self.facts
    }

    /// What the session froze at its start: goal, prompt, tools, configuration as YAML, endpoints.
    pub fn frozen(&self) -> Option<&Frozen> {
        self.facts.iter().find_map(|line| match &line.fact {
            Fact::Frozen(frozen) => Some(&**frozen),
            _ => None,
        })
    }

    pub fn state(&self) -> State {
        fold(&self.facts)
    }

    /// The outcome of the session's last run; `None` when that run has not ended.
    pub fn outcome(&self) -> Option<Outcome> {
        match &self.end {
            Some(end) => end.outcome,
            None => last_outcome(&self.facts),
        }
    }

    /// The lanes that called, each with its calls in order.
    pub fn lanes(&self) -> impl Iterator<Item = (Lane, &[Exchange])> {
        self.lanes.iter().map(|(lane, calls)| (*lane, calls.as_slice()))
    }

    /// A lane's calls in order.
    pub fn exchanges(&self, lane: Lane) -> &[Exchange] {
        self.lanes.get(&lane).map_or(&[], Vec::as_slice)
    }

    /// The whole output behind a spool id; `None` when it was not kept: removed to make room, or lost.
    ///
    /// # Errors
    /// When a session's folder cannot be read.
    pub fn spool(&self, id: u64) -> io::Result<Option<Bytes>> {
        match &self.spool {
            Outputs::Held(outputs) => Ok(outputs.get(&id).cloned()),
            Outputs::Folder(dir) => match regular::read(&dir.join(id.to_string()), MOST_BYTES) {
                Ok(bytes) => Ok(Some(bytes.into())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            },
        }
    }

    /// Whether it comes from a file that breaks off.
    pub fn is_cut(&self) -> bool {
        self.end.is_none() && matches!(self.spool, Outputs::Held(_))
    }

    /// The spooled outputs that facts name.
    pub fn spooled(&self) -> BTreeSet<u64> {
        super::spool_ids(&self.facts)
    }

    /// How the workspace stood when the session began, where that was recorded.
    pub fn base(&self) -> Option<&Base> {
        self.base.as_ref()
    }

    /// A content of the base by its sha256 (hex); `None` where only the digest was recorded.
    pub fn blob(&self, sha256: &str) -> Option<Bytes> {
        self.blobs.get(sha256).cloned()
    }

    /// What closes a file: counts, outcome, digests. `None` for a folder, and for a file that breaks off.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }
}

/// Of the last run, when that has ended.
pub(super) fn last_outcome(facts: &[Line]) -> Option<Outcome> {
    facts.iter().rev().find_map(|line| match &line.fact {
        Fact::End(end) => Some(Some(end.outcome)),
        Fact::Run(_) => Some(None),
        _ => None,
    })?
}

/// Digest of the workspace after the last iteration, where it was measured.
pub(super) fn last_tree(facts: &[Line]) -> Option<String> {
    facts.iter().rev().find_map(|line| match &line.fact {
        Fact::Progress(progress) => Some(progress.workspace.clone()),
        _ => None,
    })?
}

/// Puts exchanges together from facts and wire lines, as they come.
#[derive(Default)]
pub(super) struct Assembly {
    lanes: BTreeMap<Lane, Vec<Exchange>>,
    chains: BTreeMap<Lane, Chain>,
    /// Place of each call in its lane.
    places: BTreeMap<(Lane, u64), usize>,
    /// The last message of the agent that no call was settled with.
    message: Option<Vec<Block>>,
    /// The calls of which bytes were lost.
    lost: BTreeSet<(Lane, u64)>,
}

impl Assembly {
    /// Takes a fact; an error says in words what is wrong with it.
    pub fn fact(&mut self, fact: &Fact) -> Result<(), String> {
        match fact {
            Fact::Call(call) => {
                let lane = self.lanes.entry(call.lane).or_default();
                if self.places.insert((call.lane, call.n), lane.len()).is_some() {
                    return Err(format!("{} call {} is there twice", call.lane, call.n));
                }
                lane.push(Exchange {
                    lane: call.lane,
                    n: call.n,
                    digest: call.digest.clone(),
                    attempts: Vec::new(),
                    call: Some(call.clone()),
                    settled: None,
                    said: None,
                });
            }
            Fact::Settled(settled) => {
                let message = self.message.take();
                let exchange = self.exchange(settled.lane, settled.n)?;
                if exchange.settled.is_some() {
                    return Err(format!("{} call {} is settled twice", settled.lane, settled.n));
                }
                exchange.settled = Some((**settled).clone());
                if settled.error.is_none() {
                    exchange.said = settled.reply.clone().or(message.filter(|_| settled.lane == Lane::Agent));
                }
            }
            Fact::Effects(effects) => {
                use std::os::unix::ffi::OsStrExt;
                let mut paths = effects.files.iter().map(|file| Path::new(OsStr::from_bytes(&file.path.0)));
                return paths.try_for_each(inside);
            }
            Fact::WireCut { bytes } => {
                let settled = self.lanes.values().flatten().filter_map(|exchange| exchange.settled.as_ref());
                let lost = settled.filter(|settled| settled.attempts.iter().any(|attempt| attempt.ends() > *bytes));
                self.lost.extend(lost.map(|settled| (settled.lane, settled.n)));
            }
            // The agent's reply is a message of the history, written just before its call is settled.
            Fact::Message(Message::Assistant { blocks, .. }) => self.message = Some(blocks.clone()),
            _ => {}
        }
        Ok(())
    }

    /// Takes the next line of the wire log.
    pub fn wire(&mut self, line: WireLine) -> Result<(), String> {
        let WireLine { lane, n, attempt, request, response, end, ms, redacted } = line;
        let say = |reason: String| format!("{lane} call {n}, attempt {attempt}: {reason}");
        let rest = self.chains.entry(lane).or_default();
        let rest = rest.follow(request.keep, Bytes::from(request.add.0), &request.sha256).map_err(say)?;
        let exchange = self.exchange(lane, n)?;
        if exchange.digest != request.sha256 {
            return Err(say("its request is not the one that the call names".to_owned()));
        }
        if exchange.attempts.len() as u64 + 1 != attempt {
            return Err(say(format!("attempt {} is due", exchange.attempts.len() + 1)));
        }
        if !well_cut(&response.reads, response.body.0.len()) {
            return Err(say("its reads do not lie in its body".to_owned()));
        }
        exchange.attempts.push(Attempt {
            number: attempt,
            request: Some(Request {
                method: request.method,
                url: request.url,
                headers: request.headers,
                front: Bytes::from(request.front.0),
                rest,
            }),
            status: response.status,
            headers: response.headers,
            body: Bytes::from(response.body.0),
            reads: response.reads,
            end,
            ms,
            redacted,
        });
        Ok(())
    }

    /// Takes one reply of a tape that has nothing else.
    pub fn reply(&mut self, reply: Reply) -> Result<(), String> {
        let lane = self.lanes.entry(reply.lane).or_default();
        if reply.n != lane.len() as u64 + 1 {
            return Err(format!("{} reply {} out of order", reply.lane, reply.n));
        }
        if !well_cut(&reply.reads, reply.body.0.len()) {
            return Err("its reads do not lie in its body".to_owned());
        }
        lane.push(Exchange {
            lane: reply.lane,
            n: reply.n,
            digest: reply.sha256,
            attempts: vec![Attempt {
                number: 1,
                request: None,
                status: Some(reply.status),
                headers: reply.headers,
                body: Bytes::from(reply.body.0),
                reads: reply.reads,
                end: "eof".to_owned(),
                ms: 0,
                redacted: false,
            }],
            call: None,
            settled: None,
            said: None,
        });
        Ok(())
    }

    /// The lanes, when every attempt that a settled call names is there, or said to be lost.
    pub fn finish(self) -> Result<BTreeMap<Lane, Vec<Exchange>>, String> {
        for exchange in self.lanes.values().flatten() {
            let Some(settled) = &exchange.settled else { continue };
            let (named, there) = (settled.attempts.len(), exchange.attempts.len());
            let lost = there < named && self.lost.contains(&(exchange.lane, exchange.n));
            if named != there && !lost {
                let Exchange { lane, n, .. } = exchange;
                return Err(format!("{lane} call {n} had {named} attempts, of which {there} are there"));
            }
            for (named, there) in settled.attempts.iter().zip(&exchange.attempts) {
                if named.status != there.status {
                    let Exchange { lane, n, .. } = exchange;
                    let number = there.number;
                    return Err(format!("{lane} call {n}, attempt {number}: its status is not the one settled"));
                }
            }
        }
        Ok(self.lanes)
    }

    /// The lanes as far as they go.
    pub fn finish_incomplete(self) -> BTreeMap<Lane, Vec<Exchange>> {
        self.lanes
    }

    fn exchange(&mut self, lane: Lane, n: u64) -> Result<&mut Exchange, String> {
        let unknown = || format!("no {lane} call {n} was made");
        let place = *self.places.get(&(lane, n)).ok_or_else(unknown)?;
        self.lanes.get_mut(&lane).and_then(|calls| calls.get_mut(place)).ok_or_else(unknown)
    }
}

/// A replay makes files by recorded names in a scratch copy: none may lead out of it, or to what git believes.
pub(super) fn inside(path: &Path) -> Result<(), String> {
    let plain = |part| matches!(part, Component::Normal(name) if name != ".git");
    // Parts alone forget a `.` and doubled slashes.
    let parts: PathBuf = path.components().collect();
    if path.components().all(plain) && !path.as_os_str().is_empty() && parts.as_os_str() == path.as_os_str() {
        return Ok(());
    }
    Err(format!("`{}` is no path inside a workspace", path.display().to_string().escape_debug()))
}

/// Whether the offsets of reads ascend and lie in a body.
fn well_cut(reads: &[u64], body_bytes: usize) -> bool {
    let ascending = reads.windows(2).all(|pair| pair[0] < pair[1]);
    ascending && reads.last().is_none_or(|&last| last < body_bytes.max(1) as u64)
}
