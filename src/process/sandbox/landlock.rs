//! The Landlock ruleset.

use std::os::fd::OwnedFd;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};
use rustix::fs::{FileType, OFlags};

use super::{Access, Files, Network, Rule};
use crate::world::beneath;

/// The newest interface that has anything spettro uses.
const NEWEST: u8 = 6;

/// The newest interface that this kernel gives (0 for none; never above `most`), and the ruleset built with it.
pub fn build(
    files: Files,
    network: &Network,
    rules: &[Rule],
    most: Option<u8>,
) -> Result<(u8, Option<OwnedFd>), RulesetError> {
    for level in (1..=most.map_or(NEWEST, |most| most.min(NEWEST))).rev() {
        let abi = ABI::from(i32::from(level));
        if let Ok(ruleset) = create(files, network, abi) {
            let ruleset = grant(ruleset, files, network, rules, abi)?;
            return Ok((level, ruleset.into()));
        }
    }
    Ok((0, None))
}

/// Everything that is refused unless a rule grants it. Fails when the kernel does not know all of it.
fn create(files: Files, network: &Network, abi: ABI) -> Result<RulesetCreated, RulesetError> {
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    if files != Files::Off {
        ruleset = ruleset.handle_access(AccessFs::from_all(abi))?;
    }
    if *network != Network::All && abi >= ABI::V4 {
        ruleset = ruleset.handle_access(AccessNet::from_all(ABI::V4))?;
    }
    if abi >= ABI::V6 {
        ruleset = ruleset.scope(Scope::from_all(abi))?;
    }
    ruleset.create()
}

fn grant(
    mut ruleset: RulesetCreated,
    files: Files,
    network: &Network,
    rules: &[Rule],
    abi: ABI,
) -> Result<RulesetCreated, RulesetError> {
    if files != Files::Off {
        for rule in rules {
            // What has gone since, or cannot be opened by this user, needs no grant.
            let Ok((place, is_dir)) = open(rule) else { continue };
            let rights =
                if is_dir { rights(rule.access, abi) } else { rights(rule.access, abi) & AccessFs::from_file(abi) };
            ruleset = ruleset.add_rule(PathBeneath::new(place, rights))?;
        }
    }
    if let (Network::Ports(ports), true) = (network, abi >= ABI::V4) {
        for &port in ports {
            ruleset = ruleset.add_rule(NetPort::new(port, AccessNet::from_all(ABI::V4)))?;
        }
    }
    Ok(ruleset)
}

/// Without following links: a rule's path had none when it was made, and whoever put one there since does not
/// choose what is granted.
fn open(rule: &Rule) -> std::io::Result<(OwnedFd, bool)> {
    let place = beneath::open(&rule.path, OFlags::PATH)?;
    let mode = rustix::fs::fstat(&place)?.st_mode;
    Ok((place, FileType::from_raw_mode(mode) == FileType::Directory))
}

fn rights(access: Access, abi: ABI) -> BitFlags<AccessFs> {
    let rights = match access {
        Access::List => AccessFs::ReadDir.into(),
        Access::Read => AccessFs::Execute | AccessFs::ReadFile | AccessFs::ReadDir,
        Access::Device => {
            AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev
        }
        Access::Write => BitFlags::all() & !(AccessFs::IoctlDev | AccessFs::MakeChar | AccessFs::MakeBlock),
    };
    rights & AccessFs::from_all(abi)
}
