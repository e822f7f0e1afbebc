//! `spettro replay`: runs of all kinds, run again from what they left behind.

mod changes;
mod effects;
mod ends;
#[cfg(target_os = "linux")]
mod far;
mod goals;
mod guards;
#[cfg(target_os = "linux")]
mod harmful;
mod hostile;
#[cfg(target_os = "linux")]
mod live;
mod looks;
#[cfg(target_os = "linux")]
mod outcomes;
mod parted;
mod plain;
mod retakes;
mod sealed;
mod stubs;
pub mod support;
mod tampered;
mod torn;
mod wires;
