//! `spettro replay`: runs of all kinds, run again from what they left behind.

mod ends;
mod parted;
mod plain;
pub mod support;
