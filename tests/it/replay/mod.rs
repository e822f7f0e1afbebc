//! `spettro replay`: runs of all kinds, run again from what they left behind.

mod plain;
mod support;
