//! From a policy to what the kernel takes, once in the zygote, for all commands.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::level::Obtained;
use super::{Access, Files, Network, Policy, Rule, capabilities, landlock, seccomp};
use crate::process::sys;

/// A policy on its way to the zygote.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    files: Files,
    network: Network,
    /// Paths as bytes: one need not be UTF-8.
    rules: Vec<(Vec<u8>, Access)>,
    git: Vec<(Vec<u8>, Access)>,
    pretended_abi: Option<u8>,
}

impl Order {
    pub fn of(policy: &Policy) -> Order {
        let sent = |rules: &[Rule]| {
            rules.iter().map(|rule| (rule.path.as_os_str().as_bytes().to_vec(), rule.access)).collect()
        };
        Order {
            files: policy.files,
            network: policy.network.clone(),
            rules: sent(&policy.rules),
            git: sent(&policy.git),
            pretended_abi: policy.pretended_abi,
        }
    }
}

/// What a leader takes upon itself before it executes its program.
pub struct Confinement {
    pub ruleset: Option<OwnedFd>,
    /// What a leader must not do and its supervisor may; empty where there is nothing of that kind, or no filters.
    pub filter: Vec<libc::sock_filter>,
}

/// For all that a run starts.
pub struct Confinements {
    pub commands: Confinement,
    /// Of spettro's own git.
    pub git: Confinement,
}

/// Builds everything. To be called in the zygote, which has the runner for its parent.
///
/// The filter of system calls is put upon the zygote itself, once for each kind of network: what is inherited costs a
/// command nothing, while the kernel takes long to look through a new filter.
///
/// # Errors
/// In words, when the kernel has the means and refuses to apply them.
pub fn prepare(order: Order, filtered: &mut Option<Network>) -> Result<(Obtained, Confinements), String> {
    let rule = |(path, access): (Vec<u8>, Access)| Rule { path: PathBuf::from(OsStr::from_bytes(&path)), access };
    let mut rules: Vec<Rule> = order.rules.into_iter().map(rule).collect();
    let build = |rules: &[Rule]| {
        landlock::build(order.files, &order.network, rules, order.pretended_abi)
            .map_err(|error| format!("build the Landlock ruleset: {error}"))
    };
    let (abi, ruleset) = build(&rules)?;
    rules.extend(order.git.into_iter().map(rule));
    let (_, of_git) = build(&rules)?;
    let mut filter = Vec::new();
    if sys::seccomp_available() {
        let failed = |error: seccompiler::BackendError| format!("build the seccomp filter: {error}");
        if filtered.as_ref() != Some(&order.network) {
            let untouchable = seccomp::Untouchable::of_this_zygote();
            let program = seccomp::program(&order.network, abi, &untouchable).map_err(failed)?;
            if !program.is_empty() {
                sys::filter_calls(&program).map_err(|error| format!("filter system calls: {error}"))?;
                *filtered = Some(order.network);
            }
        }
        filter = seccomp::program_of_leaders(abi).map_err(failed)?;
    }
    let obtained = Obtained { abi, seccomp: filtered.is_some(), capabilities: capabilities::shrink() };
    let git = Confinement { ruleset: of_git, filter: filter.clone() };
    Ok((obtained, Confinements { commands: Confinement { ruleset, filter }, git }))
}
