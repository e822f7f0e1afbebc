//! What runner and supervisor say to each other over a command's control socket.
//!
//! The runner sends one request, then orders; the supervisor sends reports. Every message is a length (`u32`,
//! little endian) and so many bytes. The end of the runner's stream means: kill everything now.

use std::ffi::CString;
use std::time::Duration;

use super::super::tree::{Confined, Gone, NotStarted, Reason, Report, Request, Status};
use crate::world::Leftover;

/// First byte of a message to the zygote that starts a command.
pub const COMMAND: u8 = 0;
/// First byte of a message to the zygote that is a piece of an order of confinement.
pub const ORDER: u8 = 1;
/// Most bytes of such a piece: far below what a socket takes at once.
pub const PIECE_BYTES: usize = 16 << 10;

/// TERM, then KILL after so many milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terminate {
    pub grace_ms: u64,
}

/// Longer messages are not ours. The kernel takes at most 2 MiB of arguments and environment by default.
const LONGEST_BYTES: usize = 64 << 20;

/// Takes the first whole message off `buffer`. `Err` when it cannot be one.
pub fn take_message(buffer: &mut Vec<u8>) -> Result<Option<Vec<u8>>, BadMessage> {
    let Some((length, rest)) = buffer.split_first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    if length > LONGEST_BYTES {
        return Err(BadMessage);
    }
    if rest.len() < length {
        return Ok(None);
    }
    let message = rest[..length].to_vec();
    buffer.drain(..4 + length);
    Ok(Some(message))
}

#[derive(Debug)]
pub struct BadMessage;

struct Writer(Vec<u8>);

impl Writer {
    fn new(kind: u8) -> Writer {
        Writer(vec![0, 0, 0, 0, kind])
    }

    fn int(mut self, value: u64) -> Writer {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Writer {
        self.0.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        self.0.extend_from_slice(bytes);
        self
    }

    fn list(mut self, list: &[CString]) -> Writer {
        self = self.int(list.len() as u64);
        for item in list {
            self = self.bytes(item.as_bytes());
        }
        self
    }

    fn processes(mut self, list: &[Leftover]) -> Writer {
        self = self.int(list.len() as u64);
        for process in list {
            self = self.int(process.pid as u64).bytes(process.name.as_bytes());
        }
        self
    }

    fn finish(mut self) -> Vec<u8> {
        let length = (self.0.len() - 4) as u32;
        self.0[..4].copy_from_slice(&length.to_le_bytes());
        self.0
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn int(&mut self) -> Option<u64> {
        let (int, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*int))
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.int()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes.to_vec())
    }

    fn string(&mut self) -> Option<CString> {
        CString::new(self.bytes()?).ok()
    }

    fn list(&mut self) -> Option<Vec<CString>> {
        (0..self.int()?).map(|_| self.string()).collect()
    }

    fn processes(&mut self) -> Option<Vec<Leftover>> {
        let count = self.int()?;
        let mut one = || {
            let pid = self.int()? as i32;
            Some(Leftover { pid, name: String::from_utf8_lossy(&self.bytes()?).into_owned() })
        };
        (0..count).map(|_| one()).collect()
    }
}

pub fn encode_request(request: &Request) -> Vec<u8> {
    Writer::new(0)
        .list(&request.argv)
        .list(&request.env)
        .bytes(request.cwd.as_bytes())
        .int(request.timeout.map_or(u64::MAX, millis))
        .int(millis(request.grace))
        .int(millis(request.settle))
        .int(request.max_descendants as u64)
        .int(request.confined as u64)
        .int(u64::from(request.job))
        .int(u64::from(request.keep))
        .finish()
}

pub fn decode_request(message: &[u8]) -> Option<Request> {
    let mut reader = Reader(message.strip_prefix(&[0])?);
    Some(Request {
        argv: reader.list()?,
        env: reader.list()?,
        cwd: reader.string()?,
        timeout: Some(reader.int()?).filter(|&ms| ms != u64::MAX).map(Duration::from_millis),
        grace: Duration::from_millis(reader.int()?),
        settle: Duration::from_millis(reader.int()?),
        max_descendants: reader.int()? as usize,
        confined: match reader.int()? {
            0 => Confined::No,
            1 => Confined::Command,
            2 => Confined::Git,
            _ => return None,
        },
        job: reader.int()? != 0,
        keep: reader.int()? != 0,
    })
}

pub fn encode_terminate(order: Terminate) -> Vec<u8> {
    Writer::new(1).int(order.grace_ms).finish()
}

pub fn decode_terminate(message: &[u8]) -> Option<Terminate> {
    Some(Terminate { grace_ms: Reader(message.strip_prefix(&[1])?).int()? })
}

pub fn encode_report(report: &Report) -> Vec<u8> {
    match report {
        Report::Started { supervisor, leader } => Writer::new(2).int(*supervisor as u64).int(*leader as u64),
        Report::NotStarted(why) => {
            let (stage, errno) = match why {
                NotStarted::Cwd => (0, 0),
                NotStarted::Missing => (1, 0),
                NotStarted::Denied => (2, 0),
                NotStarted::Other(errno) => (3, *errno),
            };
            Writer::new(3).int(stage).int(errno as u64)
        }
        Report::LeaderEnded { status, alive } => status_to(Writer::new(4), Some(*status)).int(*alive as u64),
        Report::Alive(alive) => Writer::new(5).int(*alive as u64),
        Report::Kept { status, leftovers } => status_to(Writer::new(7), Some(*status)).processes(leftovers),
        Report::Gone(gone) => status_to(Writer::new(6), gone.status)
            .int(gone.reason as u64)
            .processes(&gone.leftovers)
            .processes(&gone.survivors),
    }
    .finish()
}

pub fn decode_report(message: &[u8]) -> Option<Report> {
    let (kind, rest) = message.split_first()?;
    let mut reader = Reader(rest);
    Some(match kind {
        2 => Report::Started { supervisor: reader.int()? as i32, leader: reader.int()? as i32 },
        3 => Report::NotStarted(match (reader.int()?, reader.int()? as i32) {
            (0, _) => NotStarted::Cwd,
            (1, _) => NotStarted::Missing,
            (2, _) => NotStarted::Denied,
            (_, errno) => NotStarted::Other(errno),
        }),
        4 => Report::LeaderEnded { status: status_from(&mut reader)??, alive: reader.int()? as usize },
        5 => Report::Alive(reader.int()? as usize),
        7 => Report::Kept { status: status_from(&mut reader)??, leftovers: reader.processes()? },
        6 => Report::Gone(Gone {
            status: status_from(&mut reader)?,
            reason: match reader.int()? {
                0 => Reason::Ended,
                1 => Reason::TimedOut,
                2 => Reason::Ordered,
                3 => Reason::TooMany,
                _ => Reason::Lost,
            },
            leftovers: reader.processes()?,
            survivors: reader.processes()?,
        }),
        _ => return None,
    })
}

fn status_to(writer: Writer, status: Option<Status>) -> Writer {
    match status {
        None => writer.int(0).int(0),
        Some(Status::Exited(code)) => writer.int(1).int(code as u64),
        Some(Status::Signaled(signal)) => writer.int(2).int(signal as u64),
    }
}

fn status_from(reader: &mut Reader<'_>) -> Option<Option<Status>> {
    let (kind, value) = (reader.int()?, reader.int()? as i32);
    Some(match kind {
        1 => Some(Status::Exited(value)),
        2 => Some(Status::Signaled(value)),
        _ => None,
    })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).map_or(u64::MAX - 1, |ms| ms.min(u64::MAX - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(list: &[&str]) -> Vec<CString> {
        list.iter().map(|&text| CString::new(text).unwrap()).collect()
    }

    fn message(bytes: &[u8]) -> Vec<u8> {
        take_message(&mut bytes.to_vec()).unwrap().unwrap()
    }

    #[test]
    fn a_request_arrives_as_it_was_sent_in_pieces_of_any_size() {
        let request = Request {
            argv: strings(&["bash", "-c", "", "ü"]),
            env: strings(&["A=1", "B="]),
            cwd: CString::new("/w").unwrap(),
            timeout: None,
            grace: Duration::from_millis(1500),
            settle: Duration::ZERO,
            max_descendants: 1024,
            confined: Confined::Git,
            job: true,
            keep: true,
        };
        let mut sent = encode_request(&request);
        sent.extend(encode_terminate(Terminate { grace_ms: 7 }));
        for size in 1..sent.len() {
            let (mut buffer, mut got) = (Vec::new(), Vec::new());
            for piece in sent.chunks(size) {
                buffer.extend_from_slice(piece);
                while let Some(message) = take_message(&mut buffer).unwrap() {
                    got.push(message);
                }
            }
            assert_eq!(decode_request(&got[0]), Some(request.clone()));
            assert_eq!(decode_terminate(&got[1]), Some(Terminate { grace_ms: 7 }));
            assert!(got.len() == 2 && buffer.is_empty());
        }
    }

    #[test]
    fn reports_arrive_as_they_were_sent_and_cut_ones_are_none() {
        let process = |pid, name: &str| Leftover { pid, name: name.to_owned() };
        let gone = |status, reason| {
            let (leftovers, survivors) =
                (vec![process(4711, "python3"), process(4712, "sl eep")], vec![process(1, "")]);
            Report::Gone(Gone { status, reason, leftovers, survivors })
        };
        for report in [
            Report::Started { supervisor: 10, leader: 11 },
            Report::NotStarted(NotStarted::Cwd),
            Report::NotStarted(NotStarted::Missing),
            Report::NotStarted(NotStarted::Denied),
            Report::NotStarted(NotStarted::Other(7)),
            Report::LeaderEnded { status: Status::Signaled(9), alive: 2 },
            Report::Alive(0),
            Report::Kept { status: Status::Exited(0), leftovers: vec![process(3, "daemon")] },
            gone(Some(Status::Exited(255)), Reason::Ended),
            gone(None, Reason::Lost),
            gone(Some(Status::Signaled(15)), Reason::TimedOut),
            gone(None, Reason::Ordered),
            gone(None, Reason::TooMany),
        ] {
            let message = message(&encode_report(&report));
            assert_eq!(decode_report(&message), Some(report.clone()));
            for cut in 0..message.len() {
                assert_eq!(decode_report(&message[..cut]), None, "{report:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn a_length_beyond_reason_is_refused() {
        assert!(take_message(&mut vec![255, 255, 255, 255, 0]).is_err());
        assert!(take_message(&mut vec![1, 0, 0]).unwrap().is_none());
    }
}
