//! One answer on its way through a connection, with whatever is to go wrong with it.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::{RecvFlags, recv};

use super::http::response_head;
use super::reply::{Gate, Reply};
use super::stream::Response;

/// How a connection goes on after an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum After {
    KeepAlive,
    Close,
    Reset,
}

/// A short answer that no script knows of.
pub fn plain(mut stream: &TcpStream, status: u16, body: &str) -> After {
    let headers = [("content-type".to_owned(), "application/json".to_owned())];
    let mut bytes = response_head(status, &headers, Some(body.len()), false);
    bytes.extend_from_slice(body.as_bytes());
    if stream.write_all(&bytes).is_ok() { After::KeepAlive } else { After::Close }
}

/// One answer on its way.
pub struct Answer<'a> {
    stream: &'a TcpStream,
    /// The provider ends.
    closing: &'a AtomicBool,
    /// No further request on this connection.
    close: bool,
    /// Absent before the head.
    pub status: Option<u16>,
    pub body_bytes: usize,
    pub whole: bool,
    /// Not written yet: an answer that goes out undisturbed is one write.
    buffer: Vec<u8>,
}

impl<'a> Answer<'a> {
    pub fn new(stream: &'a TcpStream, closing: &'a AtomicBool, close: bool) -> Answer<'a> {
        Answer { stream, closing, close, status: None, body_bytes: 0, whole: false, buffer: Vec::new() }
    }

    /// `None` when the client is gone or the provider ends.
    pub fn send(&mut self, reply: &Reply, response: &Response, hold: Option<&Gate>) -> Option<After> {
        for gate in hold.into_iter().chain(&reply.gate) {
            if !gate.pass(|| self.gone()) {
                return None;
            }
        }
        if let Some(stall) = reply.stall.filter(|stall| stall.after_bytes.is_none()) {
            self.wait(stall.time)?;
        }
        if reply.reset && reply.cut_after.is_none() || reply.refuse_connection {
            return Some(After::Reset);
        }
        let total: usize = response.pieces.iter().map(Vec::len).sum();
        let length = (!response.chunked).then_some(total);
        self.buffer = response_head(response.status, &response.headers, length, self.close);
        self.status = Some(response.status);

        let split;
        let pieces: Vec<&[u8]> = match reply.split {
            Some(bytes) => {
                split = response.pieces.concat();
                split.chunks(bytes).collect()
            }
            None => response.pieces.iter().map(Vec::as_slice).collect(),
        };
        let mut stall = reply.stall.and_then(|stall| stall.after_bytes.map(|after| (after, stall.time)));
        for mut piece in pieces {
            if let Some(cut) = reply.cut_after {
                piece = &piece[..piece.len().min(cut - self.body_bytes)];
            }
            if let Some((after, time)) = stall.filter(|(after, _)| *after < self.body_bytes + piece.len()) {
                let (before, behind) = piece.split_at(after - self.body_bytes);
                self.piece(response, before);
                self.flush()?;
                self.wait(time)?;
                stall = None;
                piece = behind;
            }
            self.piece(response, piece);
            if reply.cut_after == Some(self.body_bytes) {
                self.flush()?;
                return Some(if reply.reset { After::Reset } else { After::Close });
            }
            if reply.split.is_some() || reply.pace.is_some() {
                self.flush()?;
            }
            if let Some(pace) = reply.pace {
                self.wait(Some(pace))?;
            }
        }
        if let Some((_, time)) = stall {
            self.flush()?;
            self.wait(time)?;
        }
        if response.chunked {
            self.buffer.extend_from_slice(b"0\r\n\r\n");
        }
        self.flush()?;
        self.whole = true;
        Some(if self.close { After::Close } else { After::KeepAlive })
    }

    fn piece(&mut self, response: &Response, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.body_bytes += bytes.len();
        if response.chunked {
            self.buffer.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
            self.buffer.extend_from_slice(bytes);
            self.buffer.extend_from_slice(b"\r\n");
        } else {
            self.buffer.extend_from_slice(bytes);
        }
    }

    fn flush(&mut self) -> Option<()> {
        let mut stream = self.stream;
        stream.write_all(&self.buffer).ok()?;
        self.buffer.clear();
        Some(())
    }

    /// Waits that long, or without a time for good; `None` as soon as the client hangs up or the provider ends
    /// (which hangs up for it).
    fn wait(&self, time: Option<Duration>) -> Option<()> {
        if time.is_some_and(|time| time.is_zero()) {
            return Some(());
        }
        self.stream.set_read_timeout(time).ok()?;
        let looked = self.stream.peek(&mut [0]);
        self.stream.set_read_timeout(None).ok()?;
        match looked {
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                Some(())
            }
            Ok(0) | Err(_) => None,
            // A client that sends on before it has its answer: nothing here does.
            Ok(_) => None,
        }
    }

    /// Whether the client has hung up or the provider ends.
    fn gone(&self) -> bool {
        let looked = recv(self.stream, &mut [0u8][..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        let hung_up = match looked {
            Ok((_, bytes)) => bytes == 0,
            Err(error) => error != rustix::io::Errno::AGAIN,
        };
        hung_up || self.closing.load(Ordering::SeqCst)
    }
}
