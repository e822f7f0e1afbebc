//! One small process, started before anything else, that forks a supervisor for each command, one ahead.
//!
//! Forking the runner itself would cost more with each megabyte it has; the zygote stays small. The runner sends
//! nothing but two descriptors, the command's control socket and output pipe, to the supervisor that waits, and talks
//! to it over the socket. Whoever dies closes a descriptor somebody else is watching: the runner's death ends every tree, a
//! supervisor's death is seen by the runner, the zygote's death reaches its supervisors as a signal.

mod server;
mod supervisor;
mod wire;

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::sandbox::{Obtained, Order, Policy};
use super::sys;
use super::tree::{Report, Request};

pub use server::zygote_main;

/// What starts trees: the present zygote, until it is stopped for good.
pub struct Backend {
    zygote: Option<Zygote>,
    /// What the next zygote is told too.
    policy: Option<Policy>,
}

impl Backend {
    pub fn start(executable: &Path) -> io::Result<Backend> {
        Ok(Backend { zygote: Some(Zygote::start(executable)?), policy: None })
    }

    pub fn pid(&self) -> Option<i32> {
        self.zygote.as_ref().map(|zygote| zygote.child.id() as i32)
    }

    /// Starts the tree of `request`, with `output` as its output. `WouldBlock` when the zygote has fallen behind,
    /// `BrokenPipe` or `ConnectionReset` when it is dead; in each case nothing was started.
    pub fn spawn(&mut self, request: &Request, output: BorrowedFd<'_>) -> io::Result<Tree> {
        match &mut self.zygote {
            Some(zygote) => zygote.spawn(request, output),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Confines what is started confined from now on, and says what of it the kernel keeps.
    pub fn confine(&mut self, policy: &Policy) -> io::Result<Obtained> {
        let zygote = self.zygote.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        let obtained = zygote.confine(policy)?;
        self.policy = Some(policy.clone());
        Ok(obtained)
    }

    /// A new zygote for a dead one.
    pub fn restart(&mut self, executable: &Path) -> io::Result<()> {
        self.stop();
        let zygote = Zygote::start(executable)?;
        if let Some(policy) = &self.policy {
            zygote.confine(policy)?;
        }
        self.zygote = Some(zygote);
        Ok(())
    }

    /// Ends the zygote; returns when it is reaped.
    pub fn stop(&mut self) {
        if let Some(zygote) = self.zygote.take() {
            zygote.stop();
        }
    }
}

struct Zygote {
    child: Child,
    socket: OwnedFd,
}

impl Zygote {
    fn start(executable: &Path) -> io::Result<Zygote> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        super::starting();
        let child = std::process::Command::new(executable)
            .arg0("spettro")
            .arg("__zygote")
            // What it does not know cannot be read from its `/proc/<pid>/environ`.
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Zygote { child, socket: ours })
    }

    fn spawn(&mut self, request: &Request, output: BorrowedFd<'_>) -> io::Result<Tree> {
        // The supervisor ahead dies with it, but a moment later: until then the socket would take a command.
        if self.child.try_wait()?.is_some() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let descriptors = [theirs.as_fd(), output];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(&[wire::COMMAND])], &mut ancillary, flags)?;
        drop(theirs);
        rustix::io::ioctl_fionbio(&ours, true)?;
        let mut outgoing = wire::encode_request(request);
        push_out(&ours, &mut outgoing);
        // Nearly every request fits into the socket at once. Being told that there is room again would only wake the
        // runner while the command starts.
        let wanted = if outgoing.is_empty() { Interest::READABLE } else { Interest::READABLE | Interest::WRITABLE };
        Ok(Tree { control: sys::watch(ours, wanted)?, wanted, incoming: Vec::new(), outgoing, ended: false })
    }

    /// Blocks for the moment that the zygote takes to prepare it.
    fn confine(&self, policy: &Policy) -> io::Result<Obtained> {
        let order = serde_json::to_vec(&Order::of(policy))?;
        for piece in order.chunks(wire::PIECE_BYTES).chain([&[] as &[u8]]) {
            let message = [&[wire::ORDER], piece].concat();
            retry(|| rustix::net::send(&self.socket, &message, SendFlags::NOSIGNAL))?;
        }
        let mut answer = vec![0; wire::PIECE_BYTES];
        let (length, _) = retry(|| rustix::net::recv(&self.socket, answer.as_mut_slice(), RecvFlags::empty()))?;
        if length == 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let answer: Result<Obtained, String> = serde_json::from_slice(&answer[..length])?;
        answer.map_err(io::Error::other)
    }

    /// It has nothing to lose, and requests it has not read yet must not be served any more.
    fn stop(mut self) {
        // Both fail only when it is gone already.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// The runner's handle on one supervised tree. Dropping it kills the tree at once.
pub struct Tree {
    control: AsyncFd<OwnedFd>,
    /// What `control` was registered for.
    wanted: Interest,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// The supervisor's stream has ended; what it said may not have been taken yet.
    ended: bool,
}

impl Tree {
    /// The next report; `None` when the supervisor is gone. May be dropped and called again at any point.
    pub async fn next(&mut self) -> Option<Report> {
        loop {
            match wire::take_message(&mut self.incoming) {
                Ok(Some(message)) => return wire::decode_report(&message),
                Ok(None) => {}
                Err(wire::BadMessage) => return None,
            }
            if self.ended {
                return None;
            }
            let interest = if self.outgoing.is_empty() { Interest::READABLE } else { self.wanted };
            {
                let mut guard = self.control.ready(interest).await.ok()?;
                // Each side is tried below until it would block, so both may be cleared beforehand.
                guard.clear_ready();
            }
            push_out(self.control.get_ref(), &mut self.outgoing);
            self.pull_in();
        }
    }

    /// TERM to the whole tree, KILL after `grace`.
    pub fn terminate(&mut self, grace: Duration) {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        // An order is a few bytes, and the request before it was read or is still being pushed: it finds room.
        self.outgoing.extend(wire::encode_terminate(wire::Terminate { grace_ms }));
        push_out(self.control.get_ref(), &mut self.outgoing);
    }

    /// KILL to the whole tree.
    pub fn kill(&mut self) {
        self.outgoing.clear();
        // Fails only when the supervisor is gone, and then `next` says so.
        let _gone = rustix::net::shutdown(self.control.get_ref(), Shutdown::Write);
    }

    fn pull_in(&mut self) {
        let mut buffer = [0; 4096];
        while !self.ended {
            match rustix::net::recv(self.control.get_ref(), buffer.as_mut_slice(), RecvFlags::DONTWAIT) {
                Ok((0, _)) => self.ended = true,
                Ok((length, _)) => self.incoming.extend_from_slice(&buffer[..length]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.ended = true,
            }
        }
    }
}

/// Sends what the socket takes without waiting; what it did not take stays in `outgoing`.
fn push_out(control: &OwnedFd, outgoing: &mut Vec<u8>) {
    let mut sent = 0;
    while sent < outgoing.len() {
        match rustix::net::send(control, &outgoing[sent..], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(length) => sent += length,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            // Nobody reads any more; reading will tell.
            Err(_) => sent = outgoing.len(),
        }
    }
    outgoing.drain(..sent);
}
