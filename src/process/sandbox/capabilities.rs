//! What the root user's children may do beyond other users.

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// Enough to build and install in a container that only knows root, in a checkout that belongs to somebody else.
/// Nothing to look into other processes, to mount, to trace, to load, or to change the machine.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::NET_BIND_SERVICE);

/// Takes everything else from all that this process will execute; it keeps its own capabilities itself, which it
/// needs to end children of other users. False when something could not be taken.
pub fn shrink() -> bool {
    let inherited = capabilities(None).and_then(|mut sets| {
        // What is not inheritable is not ambient either.
        sets.inheritable = CapabilitySet::empty();
        set_capabilities(None, sets)
    });
    if !rustix::process::geteuid().is_root() {
        // It executes without new privileges, so a bounding set bounds nothing.
        return inherited.is_ok();
    }
    let excess = (0..64).map(|bit| CapabilitySet::from_bits_retain(1 << bit)).filter(|one| !KEPT.contains(*one));
    let taken = excess.map(|one| {
        // An error: no such capability in this kernel.
        !rustix::thread::capability_is_in_bounding_set(one).unwrap_or(false)
            || rustix::thread::remove_capability_from_bounding_set(one).is_ok()
    });
    taken.fold(inherited.is_ok(), |all, this| all && this)
}
