//! The zygote itself: a small process that forks one supervisor for each command, ahead of the command.
//!
//! It has one thread, knows nothing of the commands, and holds no secret: the environment it was started with is
//! empty, and requests go past it, from the runner to the supervisor. There is always one supervisor that waits on
//! the zygote's own socket and takes the next command from it; then the zygote makes another. Invariant: it does
//! nothing but wait, fork, and once prepare the confinement of what it forks.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags};

use super::super::sandbox::{Order, keep_to_itself, prepare};
use super::super::sys;
use super::supervisor::{Common, Ready, supervise};
use super::wire;

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
    let mut common = Common::new(null);
    loop {
        let (taken, waiting) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let next = match sys::fork() {
            Ok(Some(_supervisor)) => {
                drop(waiting);
                await_taken(&taken, &socket)?
            }
            Ok(None) => {
                drop(taken);
                ahead(socket, waiting, &common);
            }
            // None can be made now. The next command may be luckier; when it is not, its descriptors close, which
            // tells the runner that it is lost.
            Err(_) => match receive(&socket)? {
                Received::Command(control, output) => {
                    if let Ok(None) = sys::fork() {
                        drop(socket);
                        supervise(Ready::make(&common), control, output, &common);
                    }
                    Next::Another
                }
                Received::Order(order) => Next::Confine(order),
                Received::End => Next::End,
            },
        };
        match next {
            Next::Another => {}
            Next::Confine(order) => {
                let answer = confine(&mut common, &order);
                rustix::net::send(&socket, &answer, SendFlags::NOSIGNAL)?;
            }
            Next::End => return Ok(()),
        }
    }
}

/// What the zygote does when no supervisor waits ahead any more.
enum Next {
    /// It makes another.
    Another,
    /// It obeys this order of confinement first.
    Confine(Vec<u8>),
    /// The runner is gone.
    End,
}

/// Waits until the supervisor ahead has a command, has heard an order, which it leaves in the pipe, or has died.
fn await_taken(taken: &OwnedFd, socket: &OwnedFd) -> rustix::io::Result<Next> {
    let mut order = Vec::new();
    loop {
        let mut fds = [PollFd::new(taken, PollFlags::IN), PollFd::new(socket, PollFlags::empty())];
        match rustix::event::poll(&mut fds, None) {
            Ok(_) if !fds[1].revents().is_empty() => return Ok(Next::End),
            Ok(_) if !fds[0].revents().is_empty() => {
                let mut piece = [0; 4096];
                match rustix::io::read(taken, &mut piece) {
                    Ok(0) if order.is_empty() => return Ok(Next::Another),
                    Ok(0) => return Ok(Next::Confine(order)),
                    Ok(length) => order.extend_from_slice(&piece[..length]),
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// The life of a supervisor made ahead: it does what can be done before there is a command, and waits for one. It
/// dies with the zygote, so the runner's end of the socket breaks when the zygote is gone. `waiting` is closed when
/// it waits no more; an order that it hears instead of a command goes through it to the zygote, and ends it, since
/// it was made without.
fn ahead(socket: OwnedFd, waiting: OwnedFd, common: &Common) -> ! {
    let ready = Ready::make(common);
    match receive(&socket) {
        Ok(Received::Command(control, output)) => {
            drop((waiting, socket));
            supervise(ready, control, output, common)
        }
        Ok(Received::Order(order)) => {
            let mut left: &[u8] = &order;
            while let Ok(length @ 1..) = rustix::io::retry_on_intr(|| rustix::io::write(&waiting, left)) {
                left = &left[length..];
            }
            // Cut short it is no order, and the zygote says so.
            sys::exit_now(0)
        }
        Ok(Received::End) | Err(_) => sys::exit_now(0),
    }
}

/// Prepares what leaders from now on take upon themselves, and says what was obtained.
fn confine(common: &mut Common, order: &[u8]) -> Vec<u8> {
    let prepared = serde_json::from_slice::<Order>(order)
        .map_err(|error| format!("read the order of confinement: {error}"))
        .and_then(|order| prepare(order, &mut common.filtered));
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
    /// To confine what is forked from now on.
    Order(Vec<u8>),
    /// Nothing any more: it is gone.
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

/// The next message: its first byte says what it is. An order comes in pieces, of which the last is empty. What is
/// not understood is passed over.
fn receive(socket: &OwnedFd) -> rustix::io::Result<Received> {
    let mut bytes = vec![0; 1 + wire::PIECE_BYTES];
    let mut order = Vec::new();
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
            let piece = &bytes[1..message.bytes];
            if piece.is_empty() {
                return Ok(Received::Order(order));
            }
            order.extend_from_slice(piece);
            continue;
        }
        let mut received = Vec::with_capacity(2);
        for part in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = part {
                received.extend(rights);
            }
        }
        let truncated = message.flags.contains(ReturnFlags::CTRUNC);
        if let (false, Ok([control, output])) = (truncated, <[OwnedFd; 2]>::try_from(received)) {
            return Ok(Received::Command(control, output));
        }
    }
}

fn to_errno(error: std::io::Error) -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::INVAL)
}
