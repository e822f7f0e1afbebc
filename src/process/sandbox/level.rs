//! What of a policy the kernel keeps, and what it does not.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Files, Network, Policy};

/// What the kernel gave, as the zygote found out by building the real thing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obtained {
    /// The newest Landlock interface of those spettro uses; 0 for none.
    pub abi: u8,
    /// Filters of system calls.
    pub seccomp: bool,
    /// Children of root have only the capabilities of the list.
    pub capabilities: bool,
}

/// A guarantee that this kernel does not give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// No file is kept from anybody.
    Files,
    /// Files outside the roots can be cut to another length.
    Truncation,
    /// Files cannot be moved from folder to folder, not even inside the roots.
    MovingFiles,
    /// Devices that may be read can be configured too.
    DeviceControl,
    /// TCP is not held to the listed ports.
    Ports,
    /// UDP, raw sockets and the like are open.
    Network,
    /// Processes of the same user outside the sandbox can be signalled, supervisors too; runner and zygote by the
    /// numbers of their threads, which no filter knows beforehand.
    SignalScope,
    /// Sockets without a file, of processes outside, can be reached.
    AbstractSockets,
    /// Runner and zygote can be signalled.
    Signals,
    /// Children of root keep capabilities that they should not have.
    Capabilities,
}

impl Missing {
    pub const ALL: [Missing; 10] = [
        Missing::Files,
        Missing::MovingFiles,
        Missing::Truncation,
        Missing::Ports,
        Missing::DeviceControl,
        Missing::SignalScope,
        Missing::AbstractSockets,
        Missing::Network,
        Missing::Signals,
        Missing::Capabilities,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Missing::Files => "files",
            Missing::Truncation => "truncation",
            Missing::MovingFiles => "moving files between folders",
            Missing::DeviceControl => "device control",
            Missing::Ports => "ports",
            Missing::Network => "network",
            Missing::SignalScope => "signals to processes outside and to threads of the runner",
            Missing::AbstractSockets => "abstract sockets",
            Missing::Signals => "signals",
            Missing::Capabilities => "capabilities",
        }
    }

    /// What gives it.
    pub const fn needs(self) -> &'static str {
        match self {
            Missing::Files => "Landlock (Linux 5.13 with `landlock` in `lsm=`)",
            Missing::MovingFiles => "Landlock 2 (Linux 5.19)",
            Missing::Truncation => "Landlock 3 (Linux 6.2)",
            Missing::Ports => "Landlock 4 (Linux 6.7)",
            Missing::DeviceControl => "Landlock 5 (Linux 6.10)",
            Missing::SignalScope | Missing::AbstractSockets => "Landlock 6 (Linux 6.12)",
            Missing::Network | Missing::Signals => "seccomp filters",
            Missing::Capabilities => "the capability SETPCAP",
        }
    }

    /// Whether a policy that was written does not hold without it. The others make the wall lower, or the room
    /// smaller, without touching what `files` and `network` say.
    pub const fn breaks_the_policy(self) -> bool {
        match self {
            Missing::Files
            | Missing::Truncation
            | Missing::Ports
            | Missing::Network
            | Missing::Signals
            | Missing::Capabilities => true,
            Missing::MovingFiles | Missing::DeviceControl | Missing::SignalScope | Missing::AbstractSockets => false,
        }
    }
}

/// The sandbox that a run has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    pub files: Files,
    pub network: Network,
    pub missing: Vec<Missing>,
    /// See [`Policy::narrowed`].
    pub narrowed: Vec<String>,
    pub pretended_abi: Option<u8>,
}

impl Level {
    pub fn of(policy: &Policy, obtained: Obtained) -> Level {
        let mut missing = Vec::new();
        let mut lacks = |lacks: bool, what: Missing| {
            if lacks {
                missing.push(what);
            }
        };
        if !policy.is_off() {
            let (abi, files) = (obtained.abi, policy.files != Files::Off);
            lacks(files && abi < 1, Missing::Files);
            lacks(files && abi == 1, Missing::MovingFiles);
            lacks(files && (1..3).contains(&abi), Missing::Truncation);
            lacks(files && (1..5).contains(&abi), Missing::DeviceControl);
            lacks(matches!(policy.network, Network::Ports(_)) && abi < 4, Missing::Ports);
            lacks(policy.network != Network::All && !obtained.seccomp, Missing::Network);
            lacks(abi < 6, Missing::SignalScope);
            lacks(abi < 6, Missing::AbstractSockets);
            lacks(!obtained.seccomp && abi < 6, Missing::Signals);
            lacks(!obtained.capabilities, Missing::Capabilities);
        }
        Level {
            files: policy.files,
            network: policy.network.clone(),
            missing,
            narrowed: policy.narrowed.clone(),
            pretended_abi: policy.pretended_abi.filter(|_| !policy.is_off()),
        }
    }

    /// What a written policy cannot do without, and does not have.
    pub fn broken(&self) -> Vec<Missing> {
        self.missing.iter().copied().filter(|missing| missing.breaks_the_policy()).collect()
    }
}

/// One line: `workspace-write, network all; missing: truncation (Landlock 3 (Linux 6.2))`.
impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.files == Files::Off && self.network == Network::All {
            return f.write_str("off");
        }
        write!(f, "{}, network {}", self.files.name(), self.network)?;
        if let Some(abi) = self.pretended_abi {
            write!(f, "; pretending Landlock {abi}")?;
        }
        for (index, missing) in self.missing.iter().enumerate() {
            let lead = if index == 0 { "; missing:" } else { "," };
            write!(f, "{lead} {} (needs {})", missing.name(), missing.needs())?;
        }
        self.narrowed.iter().try_for_each(|clause| write!(f, "; {clause}"))
    }
}
