//! Signals to the runner: heard on one thread, told to the loop as events.
//!
//! What was inherited as ignored stays ignored (HUP under `nohup`, INT and QUIT of a script's background job):
//! nothing is installed for it, and children inherit it.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use tokio::sync::{Notify, mpsc};

use super::ProcessError;
use super::sys::{self, Disposition};

static FORCE: AtomicBool = AtomicBool::new(false);
/// The first signal to end the run, until the loop takes it; 0 for none.
static UNTAKEN: AtomicI32 = AtomicI32::new(0);
static FORCED: Notify = Notify::const_new();

/// The signals that end a run.
const ENDING: [i32; 3] = [SIGHUP, SIGINT, SIGTERM];

/// Which signals were inherited as ignored. To be read before the runtime starts and anything is installed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dispositions {
    ignored: Vec<i32>,
}

impl Dispositions {
    pub fn read() -> Dispositions {
        let heeded = ENDING.into_iter().chain([SIGUSR1, SIGUSR2]);
        Dispositions { ignored: heeded.filter(|&signal| sys::disposition(signal) == Disposition::Ignored).collect() }
    }

    pub fn ignored(&self, signal: i32) -> bool {
        self.ignored.contains(&signal)
    }
}

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalEvent {
    /// The first HUP, INT or TERM (its number): end the run in good order.
    Stop(i32),
    /// The second: kill now. [`force`] is true from here on. The third ends the process.
    Force(i32),
    /// USR1: finish the running tool call, save, end.
    Drain,
    /// USR2: a status line.
    Status,
}

/// The signals of this process, heard from [`Signals::install`] on until the end of the process.
pub struct Signals {
    events: mpsc::UnboundedReceiver<SignalEvent>,
}

impl Signals {
    /// Starts to listen. XFSZ and PIPE are ignored from here on: a limit or a closed pipe is an error where it
    /// occurs, not a death.
    pub fn install(inherited: &Dispositions) -> Result<Signals, ProcessError> {
        sys::set_ignored(SIGXFSZ).map_err(ProcessError::Signals)?;
        sys::set_ignored(SIGPIPE).map_err(ProcessError::Signals)?;
        let heeded = ENDING.into_iter().chain([SIGUSR1, SIGUSR2]).filter(|&signal| !inherited.ignored(signal));
        let mut arriving = signal_hook::iterator::Signals::new(heeded).map_err(ProcessError::Signals)?;
        let (told, events) = mpsc::unbounded_channel();
        let listen = move || {
            let mut stops = 0;
            for signal in arriving.forever() {
                let event = match signal {
                    SIGUSR1 => SignalEvent::Drain,
                    SIGUSR2 => SignalEvent::Status,
                    _ => {
                        stops += 1;
                        match stops {
                            1 => {
                                UNTAKEN.store(signal, Ordering::SeqCst);
                                SignalEvent::Stop(signal)
                            }
                            2 => {
                                FORCE.store(true, Ordering::SeqCst);
                                FORCED.notify_waiters();
                                SignalEvent::Force(signal)
                            }
                            _ => sys::exit_now(128 + signal),
                        }
                    }
                };
                // Without a listener the loop is over, and the process about to end.
                let _over = told.send(event);
            }
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(ProcessError::Signals)?;
        Ok(Signals { events })
    }

    /// Signals that come when somebody says so, and never from outside: a replay's.
    pub fn scripted() -> (mpsc::UnboundedSender<SignalEvent>, Signals) {
        let (told, events) = mpsc::unbounded_channel();
        (told, Signals { events })
    }

    /// The next event. May be dropped and called again without losing one.
    pub async fn next(&mut self) -> SignalEvent {
        match self.events.recv().await {
            Some(event) => {
                if matches!(event, SignalEvent::Stop(_)) {
                    UNTAKEN.store(0, Ordering::SeqCst);
                }
                event
            }
            // The listening thread lives as long as the process.
            None => std::future::pending().await,
        }
    }
}

/// True after a second HUP, INT or TERM: no grace any more.
pub fn force() -> bool {
    FORCE.load(Ordering::SeqCst)
}

/// The signal to end the run that the loop has not taken yet.
pub(super) fn untaken() -> Option<i32> {
    Some(UNTAKEN.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
}

/// Resolves when [`force`] becomes true.
pub(super) async fn forced() {
    let told = FORCED.notified();
    tokio::pin!(told);
    told.as_mut().enable();
    if !force() {
        told.await;
    }
}

/// Dies of `signal`, so that whoever started spettro sees what ended it. The first process of a container cannot
/// die of one by its own hand and exits with 128 + the number.
pub fn reraise(signal: i32) -> ! {
    if rustix::process::getpid().as_raw_nonzero().get() != 1 {
        let prepared = sys::set_default(signal).and_then(|()| sys::unblock(signal));
        if let (Ok(()), Some(named)) = (prepared, rustix::process::Signal::from_named_raw(signal)) {
            // It does not return when it works.
            let _failed = rustix::process::kill_process(rustix::process::getpid(), named);
        }
    }
    sys::exit_now(128 + signal)
}
