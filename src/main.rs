//! The program: the helper that starts commands first, then the command line, then the exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything else exists: this process may be that helper.
    if std::env::args_os().nth(1).is_some_and(|verb| verb == "__zygote") {
        spettro::process::zygote_main();
    }
    let dispositions = spettro::process::Dispositions::read();
    let exit = spettro::cli::main(std::env::args_os(), &dispositions);
    match exit.signal {
        Some(signal) => spettro::process::reraise(signal),
        None => ExitCode::from(exit.code),
    }
}
