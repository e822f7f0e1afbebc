//! One question to a live run, and its answer.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::{Answer, ControlError, MOST_BYTES, Request};
use crate::session::Live;

/// More than the server gives a connection.
const PATIENCE: Duration = Duration::from_secs(60);
/// A list of jobs may be longer than any request; an answer without end is none.
const MOST_ANSWER_BYTES: u64 = 4 << 20;

/// Asks and waits for the answer; blocking.
///
/// # Errors
/// When the run cannot be reached, is not who answers, or ends meanwhile. What the run itself refuses is an
/// [`Answer::Error`].
pub fn ask(live: &Live, request: &Request) -> Result<Answer, ControlError> {
    let socket = live.socket.clone().ok_or(ControlError::Deaf)?;
    let mut line = serde_json::to_vec(request).map_err(|error| ControlError::Garbled(error.to_string()))?;
    line.push(b'\n');
    if line.len() > MOST_BYTES {
        return Err(ControlError::TooLong);
    }
    let reach = |error| ControlError::Reach { socket: socket.clone(), error };
    let mut stream = UnixStream::connect(&socket).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => ControlError::Ended,
        _ => reach(error),
    })?;
    is_the_run(&stream, live).map_err(|found| match found {
        Ok(found) => ControlError::Impostor { socket: socket.clone(), wanted: live.pid, found },
        Err(error) => reach(error),
    })?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(reach)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(reach)?;
    // The run may refuse before it has read: what it says is read whatever became of the writing.
    let written = stream.write_all(&line).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    let read = (&stream).take(MOST_ANSWER_BYTES).read_to_end(&mut answer);
    match answer.iter().position(|byte| *byte == b'\n') {
        Some(end) => serde_json::from_slice(&answer[..end]).map_err(|error| ControlError::Garbled(error.to_string())),
        None => match read.and(written) {
            Err(error) if !matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                Err(reach(error))
            }
            _ => Err(ControlError::Ended),
        },
    }
}

/// Only the process that holds the session's lock may answer for it: a socket in its place could be anybody's.
#[cfg(target_os = "linux")]
fn is_the_run(stream: &UnixStream, live: &Live) -> Result<(), Result<i32, std::io::Error>> {
    let peer = rustix::net::sockopt::socket_peercred(stream).map_err(|error| Err(error.into()))?;
    let pid = peer.pid.as_raw_nonzero().get();
    let same = u32::try_from(pid).is_ok_and(|pid| pid == live.pid) && peer.uid == rustix::process::geteuid();
    if same { Ok(()) } else { Err(Ok(pid)) }
}

#[cfg(not(target_os = "linux"))]
fn is_the_run(_stream: &UnixStream, _live: &Live) -> Result<(), Result<i32, std::io::Error>> {
    Ok(())
}
