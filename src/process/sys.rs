//! The system calls that need `unsafe`. Nothing else in the crate does.
//!
//! Invariant: each function here is safe to call from anywhere the comment of its block says; callers need no
//! knowledge of memory or of which thread they are on.

#![allow(unsafe_code, reason = "the one place for it")]

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

#[cfg(target_os = "linux")]
pub use linux::*;

/// What a signal does when it arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    Default,
    Ignored,
    Handled,
}

/// The present disposition of `signal`; an invalid number counts as default.
pub fn disposition(signal: c_int) -> Disposition {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with a null new action the call only writes the old one into memory we own; zeroes are a valid value.
    let action = unsafe {
        if libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) != 0 {
            return Disposition::Default;
        }
        action.assume_init()
    };
    match action.sa_sigaction {
        libc::SIG_DFL => Disposition::Default,
        libc::SIG_IGN => Disposition::Ignored,
        _ => Disposition::Handled,
    }
}

pub fn set_default(signal: c_int) -> io::Result<()> {
    set_disposition(signal, libc::SIG_DFL)
}

pub fn set_ignored(signal: c_int) -> io::Result<()> {
    set_disposition(signal, libc::SIG_IGN)
}

fn set_disposition(signal: c_int, handler: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: SIG_DFL and SIG_IGN run no code of ours; the struct is fully initialised by zeroes and its handler.
    let result = unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = handler;
        libc::sigaction(signal, &action, std::ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets `signal` through in this thread.
pub fn unblock(signal: c_int) -> io::Result<()> {
    // SAFETY: the set is initialised by `sigemptyset` before it is read; a mask has no memory effects.
    let result = unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
}

/// Registers a descriptor with the runtime.
pub fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` stays open, and is the same descriptor, until the `AsyncFd` that owns it is dropped.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(io::Error::from)
}

/// Ends the process now: no destructors, no flushing.
pub fn exit_now(code: c_int) -> ! {
    // SAFETY: does not return and touches no memory of the program.
    unsafe { libc::_exit(code) }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::cell::Cell;
    use std::ffi::{CStr, CString, c_char, c_int, c_void};
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

    use rustix::process::Pid;

    use crate::process::sandbox::Confinement;

    /// Blocks every signal that can be blocked, in this thread and what it forks.
    pub fn block_all_signals() -> io::Result<()> {
        // SAFETY: the set is initialised by `sigfillset` before it is read.
        let result = unsafe {
            let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
            libc::sigfillset(set.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut())
        };
        if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
    }

    /// A descriptor that becomes readable when one of the (blocked) signals is pending. Non-blocking.
    pub fn signal_fd(signals: &[c_int]) -> io::Result<OwnedFd> {
        // SAFETY: the set is initialised before it is read, and a descriptor returned by the kernel is ours alone.
        unsafe {
            let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
            libc::sigemptyset(set.as_mut_ptr());
            for &signal in signals {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            match libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
                -1 => Err(io::Error::last_os_error()),
                fd => Ok(OwnedFd::from_raw_fd(fd)),
            }
        }
    }

    /// Closes every descriptor from 3 on. For a process that has just begun and owns none of them by a value.
    pub fn close_inherited() {
        // SAFETY: called first in the zygote, before anything there has opened a descriptor.
        unsafe {
            if libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) == 0 {
                return;
            }
            let most = libc::sysconf(libc::_SC_OPEN_MAX).clamp(256, 65_536) as c_int;
            for fd in 3..most {
                libc::close(fd);
            }
        }
    }

    /// Makes descriptor `to` (0, 1 or 2) the same as `from`.
    pub fn redirect(from: BorrowedFd<'_>, to: RawFd) -> io::Result<()> {
        // SAFETY: only standard descriptors are replaced, which no value in the program owns.
        let result = unsafe { libc::dup2(from.as_raw_fd(), to) };
        if result == to { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Forks. `None` in the child. For processes with one thread only, so that the child may go on as it likes.
    pub fn fork() -> io::Result<Option<Pid>> {
        // SAFETY: zygote and supervisors have one thread, so no lock can be held by a thread that is not copied.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            pid => Ok(Pid::from_raw(pid)),
        }
    }

    /// The process group of `pid`. `None` for one that cannot be named from here: in a pid namespace, that of a process
    /// whose group was made outside of it.
    pub fn group_of(pid: Pid) -> Option<c_int> {
        // SAFETY: takes a number and gives one.
        let group = unsafe { libc::getpgid(pid.as_raw_nonzero().get()) };
        (group > 0).then_some(group)
    }

    /// Whether the kernel takes filters of system calls that answer with an error.
    pub fn seccomp_available() -> bool {
        let action: u32 = libc::SECCOMP_RET_ERRNO;
        // SAFETY: the kernel reads the four bytes of `action`, which live as long as the call.
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, std::ptr::from_ref(&action)) == 0 }
    }

    /// Puts a filter of system calls upon this process, which has one thread, and all that it will start.
    pub fn filter_calls(filter: &[libc::sock_filter]) -> io::Result<()> {
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
        // SAFETY: the kernel copies the program, which lives as long as the call, and writes nothing.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, std::ptr::from_ref(&program)) == 0
        };
        if done { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// What a leader executes, and how.
    pub struct Leader<'a> {
        /// Tried in this order.
        pub programs: &'a [CString],
        pub argv: &'a [CString],
        pub env: &'a [CString],
        pub cwd: &'a CStr,
        pub stdin: BorrowedFd<'a>,
        pub output: BorrowedFd<'a>,
        pub confinement: Option<&'a Confinement>,
    }

    /// Where the start of a leader failed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Stage {
        Setup,
        Cwd,
        Exec,
    }

    struct Plan<'a> {
        leader: &'a Leader<'a>,
        programs: Vec<*const c_char>,
        argv: Vec<*const c_char>,
        env: Vec<*const c_char>,
        ruleset: Option<RawFd>,
        filter: Option<libc::sock_fprog>,
        parent: c_int,
        failure: Cell<Option<(Stage, c_int)>>,
    }

    /// Starts a leader: own process group, dies with this process, signals unblocked, `stdin`, both outputs, working
    /// directory. Returns when it executes its program or could not.
    pub fn spawn_leader(leader: &Leader<'_>) -> Result<Pid, (Stage, io::Error)> {
        let pointers = |strings: &[CString]| -> Vec<*const c_char> {
            strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let plan = Plan {
            leader,
            programs: leader.programs.iter().map(|program| program.as_ptr()).collect(),
            argv: pointers(leader.argv),
            env: pointers(leader.env),
            ruleset: leader.confinement.and_then(|all| all.ruleset.as_ref()).map(AsRawFd::as_raw_fd),
            filter: leader
                .confinement
                .map(|all| &all.filter)
                .filter(|filter| !filter.is_empty())
                .map(|filter| libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() }),
            parent: rustix::process::getpid().as_raw_nonzero().get(),
            failure: Cell::new(None),
        };
        let mut stack = vec![MaybeUninit::<u128>::uninit(); 4096];
        // SAFETY: like `posix_spawn`: the child borrows our memory while CLONE_VFORK keeps us stopped, runs on a stack of
        // its own (64 KiB, aligned to 16) and calls nothing but system calls until it executes or exits. All it
        // reads lives in `plan`, which outlives it. Every signal is blocked, so no handler runs in between.
        let pid = unsafe {
            let top = stack.as_mut_ptr().add(stack.len()).cast::<c_void>();
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            libc::clone(become_leader, top, flags, std::ptr::from_ref(&plan).cast_mut().cast::<c_void>())
        };
        let error = io::Error::last_os_error();
        let Some(pid) = Pid::from_raw(pid).filter(|_| pid > 0) else {
            return Err((Stage::Setup, error));
        };
        match plan.failure.get() {
            None => Ok(pid),
            Some((stage, errno)) => {
                let _it_has_exited = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
                Err((stage, io::Error::from_raw_os_error(errno)))
            }
        }
    }

    /// Takes upon this task what was prepared; false when the kernel refuses a part.
    ///
    /// # Safety
    /// For [`become_leader`] alone: only system calls, with pointers into `plan`, which the kernel copies from.
    unsafe fn confine(plan: &Plan<'_>) -> bool {
        // SAFETY: as above.
        unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && plan.ruleset.is_none_or(|fd| libc::syscall(libc::SYS_landlock_restrict_self, fd, 0) == 0)
                && plan.filter.as_ref().is_none_or(|filter| {
                    let filter: *const libc::sock_fprog = filter;
                    libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, filter) == 0
                })
        }
    }

    extern "C" fn become_leader(plan: *mut c_void) -> c_int {
        // SAFETY: `plan` is the one that `spawn_leader` keeps alive; its pointers are to null-terminated arrays of
        // C strings that live as long. Only async-signal-safe system calls follow.
        unsafe {
            let plan = &*plan.cast::<Plan<'_>>();
            let fail = |stage| -> ! {
                plan.failure.set(Some((stage, *libc::__errno_location())));
                libc::_exit(127)
            };
            // The kernel sends the signal when the parent dies after this; if it died before, it is not our parent now.
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 || libc::getppid() != plan.parent {
                fail(Stage::Setup);
            }
            let output = plan.leader.output.as_raw_fd();
            if libc::setpgid(0, 0) != 0
                || libc::dup2(plan.leader.stdin.as_raw_fd(), 0) < 0
                || libc::dup2(output, 1) < 0
                || libc::dup2(output, 2) < 0
            {
                fail(Stage::Setup);
            }
            if libc::chdir(plan.leader.cwd.as_ptr()) != 0 {
                fail(Stage::Cwd);
            }
            let mut none = MaybeUninit::<libc::sigset_t>::zeroed();
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
            if plan.leader.confinement.is_some() && !confine(plan) {
                fail(Stage::Setup);
            }
            let mut denied = false;
            for &program in &plan.programs {
                libc::execve(program, plan.argv.as_ptr(), plan.env.as_ptr());
                match *libc::__errno_location() {
                    libc::EACCES => denied = true,
                    libc::ENOENT | libc::ENOTDIR => {}
                    _ => fail(Stage::Exec),
                }
            }
            *libc::__errno_location() = if denied { libc::EACCES } else { libc::ENOENT };
            fail(Stage::Exec)
        }
    }
}
