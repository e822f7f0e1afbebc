//! The zygote itself: a small process that forks one supervisor for each command.
//!
//! It has one thread, knows nothing of the commands, and holds no secret: the environment it was started with is
//! empty, and requests go past it, from the runner to the supervisor. Invariant: it does nothing but wait, fork, and
//! once prepare the confinement of what it forks.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags};

use super::super::sandbox::{Order, keep_to_itself, prepare};
use super::super::sys;
use super::{supervisor, wire};

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
    // Of the same user as its children: they shall not look into it, nor the supervisors it becomes.
    keep_to_itself().map_err(to_errno)?;
    let mut common = supervisor::Common::new(null);
    let mut order = Vec::new();
    loop {
        match receive(&socket)? {
            Received::Command(control, output) => match sys::fork() {
                Ok(Some(_supervisor)) => {}
                Ok(None) => {
                    drop(socket);
                    supervisor::supervise(control, output, &common);
                }
                // Both descriptors close, which tells the runner that this command is lost.
                Err(_) => {}
            },
            Received::Order(piece) if piece.is_empty() => {
                let answer = confine(&mut common, &std::mem::take(&mut order));
                rustix::net::send(&socket, &answer, SendFlags::NOSIGNAL)?;
            }
            Received::Order(piece) => order.extend_from_slice(&piece),
            Received::Nothing => {}
            Received::End => return Ok(()),
        }
    }
}

/// Prepares what leaders from now on take upon themselves, and says what was obtained.
fn confine(common: &mut supervisor::Common, order: &[u8]) -> Vec<u8> {
    let prepared = serde_json::from_slice::<Order>(order)
        .map_err(|error| format!("read the order of confinement: {error}"))
        .and_then(prepare);
    let answer = prepared.map(|(obtained, confinements)| {
        common.confinements = Some(confinements);
        obtained
    });
    // Numbers and words can be written as JSON; without them the runner takes it for a failure.
    serde_json::to_vec(&answer).unwrap_or_default()
}

/// What the runner wants.
enum Received {
    /// To start the command of this control socket and output pipe.
    Command(OwnedFd, OwnedFd),
    /// A piece of an order of confinement; an empty one ends it.
    Order(Vec<u8>),
    /// What it does not understand.
    Nothing,
    /// The runner is gone.
    End,
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

/// The next message: its first byte says what it is.
fn receive(socket: &OwnedFd) -> rustix::io::Result<Received> {
    let mut bytes = vec![0; 1 + wire::PIECE_BYTES];
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let message = match rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        if message.bytes == 0 {
            return Ok(Received::End);
        }
        if bytes[0] == wire::ORDER {
            return Ok(Received::Order(bytes[1..message.bytes].to_vec()));
        }
        let mut received = Vec::with_capacity(2);
        for part in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = part {
                received.extend(rights);
            }
        }
        let truncated = message.flags.contains(ReturnFlags::CTRUNC);
        return Ok(match (truncated, <[OwnedFd; 2]>::try_from(received)) {
            (false, Ok([control, output])) => Received::Command(control, output),
            _ => Received::Nothing,
        });
    }
}

fn to_errno(error: std::io::Error) -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::INVAL)
}
