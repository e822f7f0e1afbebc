//! The zygote itself: a small process that forks one supervisor for each command.
//!
//! It has one thread, knows nothing of the commands, and holds no secret: the environment it was started with is
//! empty, and requests go past it, from the runner to the supervisor. Invariant: it does nothing but wait and fork.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};

use super::super::sys;
use super::supervisor;

/// Not started by spettro: there is nothing to serve.
const EXIT_USAGE: i32 = 2;
/// The system refuses what every zygote needs.
const EXIT_SYSTEM: i32 = 23;

/// The hidden subcommand `__zygote`, with its socket as stdin. Ends when the runner's end of the socket closes.
pub fn zygote_main() -> ! {
    sys::exit_now(match serve() {
        Ok(()) => 0,
        Err(error) if error == rustix::io::Errno::NOTSOCK => EXIT_USAGE,
        Err(_) => EXIT_SYSTEM,
    })
}

fn serve() -> rustix::io::Result<()> {
    sys::close_inherited();
    rustix::net::sockopt::socket_type(rustix::stdio::stdin())?;
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    for standard in 0..3 {
        sys::redirect(null.as_fd(), standard).map_err(to_errno)?;
    }
    reset_signals().map_err(to_errno)?;
    // A name is for people who look at the process list; without one everything works the same.
    let _only_cosmetic = rustix::thread::set_name(c"spettro-zygote");
    let common = supervisor::Common::new(null);
    loop {
        let Some((control, output)) = receive(&socket)? else { return Ok(()) };
        match sys::fork() {
            Ok(Some(_supervisor)) => {}
            Ok(None) => {
                drop(socket);
                supervisor::supervise(control, output, &common);
            }
            // Both descriptors close, which tells the runner that this command is lost.
            Err(_) => {}
        }
    }
}

/// What was inherited as ignored among the signals a runner heeds stays so; all others get their default. Nothing
/// but KILL and STOP reaches zygote or supervisors. The kernel reaps supervisors.
fn reset_signals() -> std::io::Result<()> {
    sys::block_all_signals()?;
    for signal in 1..=64 {
        let kept = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM].contains(&signal);
        if !kept && sys::disposition(signal) == sys::Disposition::Ignored {
            sys::set_default(signal)?;
        }
    }
    sys::set_ignored(libc::SIGCHLD)
}

/// The next command's control socket and output pipe; `None` when the runner is gone.
fn receive(socket: &OwnedFd) -> rustix::io::Result<Option<(OwnedFd, OwnedFd)>> {
    loop {
        let mut byte = [0];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let message = match rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut byte)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        if message.bytes == 0 {
            return Ok(None);
        }
        let mut received = Vec::with_capacity(2);
        for part in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = part {
                received.extend(rights);
            }
        }
        let truncated = message.flags.contains(ReturnFlags::CTRUNC);
        if let (false, Ok([control, output])) = (truncated, <[OwnedFd; 2]>::try_from(received)) {
            return Ok(Some((control, output)));
        }
    }
}

fn to_errno(error: std::io::Error) -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::INVAL)
}
