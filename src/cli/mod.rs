//! The verbs of the command line.

pub mod exit_codes;
pub mod schema;
