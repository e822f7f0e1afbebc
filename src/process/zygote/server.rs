//! The zygote itself: a small process that forks one supervisor for each command, ahead of the command.
//!
//! It has one thread, knows nothing of the commands, and holds no secret: the environment it was started with is
//! empty, and requests go past it, from the runner to the supervisor. There is always one supervisor that waits on
//! the zygote's own socket and takes the next command from it; then the zygote makes another. Invariant: it does
//! nothing but wait and fork.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};

use super::super::sys;
use super::supervisor::{Common, Ready, supervise};

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
    let common = Common::new(null);
    loop {
        let (taken, waiting) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        match sys::fork() {
            Ok(Some(_supervisor)) => {
                drop(waiting);
                if !closes(&taken, &socket)? {
                    return Ok(());
                }
            }
            Ok(None) => {
                drop(taken);
                ahead(socket, waiting, &common);
            }
            // None can be made now. The next command may be luckier; when it is not, its descriptors close, which
            // tells the runner that it is lost.
            Err(_) => {
                let Some((control, output)) = receive(&socket)? else { return Ok(()) };
                if let Ok(None) = sys::fork() {
                    drop(socket);
                    supervise(Ready::make(&common), control, output, &common);
                }
            }
        }
    }
}

/// Waits until the supervisor ahead has a command, or has died. False when the runner is gone.
fn closes(taken: &OwnedFd, socket: &OwnedFd) -> rustix::io::Result<bool> {
    loop {
        let mut fds = [PollFd::new(taken, PollFlags::IN), PollFd::new(socket, PollFlags::empty())];
        match rustix::event::poll(&mut fds, None) {
            Ok(_) if !fds[1].revents().is_empty() => return Ok(false),
            Ok(_) if !fds[0].revents().is_empty() => return Ok(true),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// The life of a supervisor made ahead: it does what can be done before there is a command, and waits for one. It
/// dies with the zygote, so the runner's end of the socket breaks when the zygote is gone. `waiting` is closed when
/// it waits no more.
fn ahead(socket: OwnedFd, waiting: OwnedFd, common: &Common) -> ! {
    let ready = Ready::make(common);
    let Ok(Some((control, output))) = receive(&socket) else { sys::exit_now(0) };
    drop((waiting, socket));
    supervise(ready, control, output, common)
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
