//! `spettro replay`: runs of all kinds, run again from what they left behind.

mod effects;
mod ends;
mod guards;
mod parted;
mod plain;
mod support;
