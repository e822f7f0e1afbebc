//! The filter of system calls: signals to the runner and its zygote, the kernel's keyrings, and the network where
//! Landlock has no word for it. A filter sees numbers, never what a pointer leads to.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpArgLen::Qword, SeccompCmpOp,
    SeccompCmpOp::Eq, SeccompCmpOp::MaskedEq, SeccompCmpOp::Ne, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

use super::Network;
use crate::process::sys;

/// The processes that children may not signal.
pub struct Untouchable {
    pids: Vec<i32>,
    /// Process groups that any of them is in.
    groups: Vec<i32>,
}

impl Untouchable {
    pub fn of_this_zygote() -> Untouchable {
        let me = Some(rustix::process::getpid());
        let processes = [rustix::process::getppid(), me];
        let number = |pid: rustix::process::Pid| pid.as_raw_nonzero().get();
        Untouchable {
            pids: processes.into_iter().flatten().map(number).collect(),
            groups: processes.into_iter().flatten().filter_map(sys::group_of).collect(),
        }
    }
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;
type Condition = Result<SeccompCondition, BackendError>;

/// The program for zygote, supervisors and all they start; empty on a machine whose system calls are not known here.
pub fn program(network: &Network, abi: u8, untouchable: &Untouchable) -> Result<Vec<libc::sock_filter>, BackendError> {
    let mut rules = Rules::new();
    signals(&mut rules, untouchable)?;
    // Keys of a user are open to all that runs as that user, and no file says so.
    for call in [libc::SYS_keyctl, libc::SYS_add_key, libc::SYS_request_key] {
        rules.insert(call, Vec::new());
    }
    if *network != Network::All {
        sockets(&mut rules, network)?;
    }
    if *network != Network::All || abi < 1 {
        for call in [libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev] {
            rules.insert(call, Vec::new());
        }
    }
    compiled(rules)
}

/// What leaders get besides, and supervisors not: they signal by descriptors themselves. Empty where it is not needed.
pub fn program_of_leaders(abi: u8) -> Result<Vec<libc::sock_filter>, BackendError> {
    let mut rules = Rules::new();
    if abi < 6 {
        signals_without_scope(&mut rules)?;
    }
    if rules.is_empty() { Ok(Vec::new()) } else { compiled(rules) }
}

fn compiled(rules: Rules) -> Result<Vec<libc::sock_filter>, BackendError> {
    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else { return Ok(Vec::new()) };
    let refusal = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let program: BpfProgram = SeccompFilter::new(rules, SeccompAction::Allow, refusal, arch)?.try_into()?;
    let step =
        |step: seccompiler::sock_filter| libc::sock_filter { code: step.code, jt: step.jt, jf: step.jf, k: step.k };
    Ok(no_x32().into_iter().chain(program.into_iter().map(step)).collect())
}

/// Numbers from 2^30 on are a second name for the calls of x86-64, by which the rules would be passed.
fn no_x32() -> Vec<libc::sock_filter> {
    const X32_BIT: u32 = 0x4000_0000;
    if cfg!(not(target_arch = "x86_64")) {
        return Vec::new();
    }
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    vec![
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32_BIT),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs()),
    ]
}

fn is(argument: u8, op: SeccompCmpOp, value: u32) -> Condition {
    SeccompCondition::new(argument, Dword, op, u64::from(value))
}

/// Refuses `call` when all conditions hold. Of several rules for one call each refuses.
fn refuse<const N: usize>(rules: &mut Rules, call: i64, conditions: [Condition; N]) -> Result<(), BackendError> {
    let conditions = conditions.into_iter().collect::<Result<Vec<_>, _>>()?;
    rules.entry(call).or_default().push(SeccompRule::new(conditions)?);
    Ok(())
}

fn signals(rules: &mut Rules, untouchable: &Untouchable) -> Result<(), BackendError> {
    let groups: Vec<u32> = untouchable.groups.iter().map(|group| (-group) as u32).collect();
    for &pid in &untouchable.pids {
        let pid = pid as u32;
        for call in [libc::SYS_kill, libc::SYS_tkill, libc::SYS_rt_sigqueueinfo, libc::SYS_pidfd_open] {
            refuse(rules, call, [is(0, Eq, pid)])?;
        }
        for call in [libc::SYS_tgkill, libc::SYS_rt_tgsigqueueinfo] {
            refuse(rules, call, [is(0, Eq, pid)])?;
            refuse(rules, call, [is(1, Eq, pid)])?;
        }
        refuse(rules, libc::SYS_fcntl, [is(1, Eq, libc::F_SETOWN as u32), is(2, Eq, pid)])?;
    }
    // All processes that may be signalled: the runner is one of them.
    refuse(rules, libc::SYS_kill, [is(0, Eq, u32::MAX)])?;
    for &group in &groups {
        refuse(rules, libc::SYS_kill, [is(0, Eq, group)])?;
        refuse(rules, libc::SYS_fcntl, [is(1, Eq, libc::F_SETOWN as u32), is(2, Eq, group)])?;
    }
    // A limit on processor time is a way to kill. Nobody needs it for another process; reading stays possible.
    refuse(rules, libc::SYS_prlimit64, [is(0, Ne, 0), SeccompCondition::new(2, Qword, Ne, 0)])
}

/// Ways to signal that name the process where a filter cannot look, for kernels whose Landlock does not see them.
fn signals_without_scope(rules: &mut Rules) -> Result<(), BackendError> {
    const F_SETOWN_EX: u32 = 15;
    const FIOSETOWN: u32 = 0x8901;
    const SIOCSPGRP: u32 = 0x8902;
    rules.insert(libc::SYS_pidfd_send_signal, Vec::new());
    refuse(rules, libc::SYS_fcntl, [is(1, Eq, F_SETOWN_EX)])?;
    refuse(rules, libc::SYS_ioctl, [is(1, Eq, FIOSETOWN)])?;
    refuse(rules, libc::SYS_ioctl, [is(1, Eq, SIOCSPGRP)])
}

/// Leaves sockets of this machine's processes, the kernel's own (which names interfaces), and for listed ports TCP.
fn sockets(rules: &mut Rules, network: &Network) -> Result<(), BackendError> {
    const UNIX: u32 = libc::AF_UNIX as u32;
    const NETLINK: u32 = libc::AF_NETLINK as u32;
    const INET: u32 = libc::AF_INET as u32;
    const INET6: u32 = libc::AF_INET6 as u32;
    const TYPE_MASK: u64 = 0xf;
    const TCP: u32 = libc::IPPROTO_TCP as u32;
    const FASTOPEN: u32 = libc::MSG_FASTOPEN as u32;
    let socket = libc::SYS_socket;
    let remote = || [is(0, Ne, UNIX), is(0, Ne, NETLINK)];
    // It could open sockets behind the filter's back.
    for call in [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register] {
        rules.insert(call, Vec::new());
    }
    if !matches!(network, Network::Ports(_)) {
        return refuse(rules, socket, remote());
    }
    let [not_unix, not_netlink] = remote();
    refuse(rules, socket, [not_unix, not_netlink, is(0, Ne, INET), is(0, Ne, INET6)])?;
    for kind in (0..16).filter(|&kind| kind != libc::SOCK_STREAM as u32) {
        let [not_unix, not_netlink] = remote();
        refuse(rules, socket, [not_unix, not_netlink, is(1, MaskedEq(TYPE_MASK), kind)])?;
    }
    let [not_unix, not_netlink] = remote();
    refuse(rules, socket, [not_unix, not_netlink, is(2, Ne, 0), is(2, Ne, TCP)])?;
    // It connects without asking Landlock.
    for (call, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
        refuse(rules, call, [is(flags, MaskedEq(u64::from(FASTOPEN)), FASTOPEN)])?;
    }
    Ok(())
}
