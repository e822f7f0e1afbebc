//! This program again, in a process of its own: for what only another environment can show.

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::{Command, Output, Stdio};

/// Runs this program with these words and these variables in place of its own of the same name, to its end.
///
/// # Errors
/// When it cannot be started.
pub fn itself(words: &[OsString], variables: &[(&str, &OsStr)]) -> io::Result<Output> {
    Command::new(std::env::current_exe()?).args(words).envs(variables.iter().copied()).stdin(Stdio::null()).output()
}
