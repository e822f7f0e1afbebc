//! The scripted provider by hand: `cargo run --example provider -- --script FILE`.
//!
//! Prints its base URL on stdout and then serves until it is interrupted; requests and complaints go to stderr.
//! A script is a YAML or JSON file with a list of replies per lane:
//!
//! ```yaml
//! agent:
//!   - bash: cargo test
//!   - {text: "Rate limits come first.", status: 429, headers: {retry-after: 1}}
//!   - calls: [{name: file-write, arguments: {path: a.txt, content: "a"}}]
//!     usage: {input: 1200, output: 40}
//!   - complete: all done
//! judge:
//!   - {verdict: met, reason: the tests pass}
//! ```
#![allow(clippy::disallowed_methods, reason = "a program for tests, outside the ports")]

#[path = "provider/mod.rs"]
mod provider;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use provider::{Reply, Script};

const HELP: &str = "\
Usage: provider [--port N] [--script FILE]

  --port N       listen on that loopback port (default: a free one)
  --script FILE  replies per lane, as YAML or JSON (default: every goal is met at once)

The base URL is printed on stdout. It serves POST /v1/messages (wire `anthropic`) and POST /chat/completions or
/v1/chat/completions (wire `openai-chat`), under any prefix.
";

struct Arguments {
    port: u16,
    script: Script,
}

/// `None`: help was asked for.
fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Arguments>, String> {
    let mut arguments = Arguments { port: 0, script: default_script() };
    while let Some(word) = words.next() {
        let (flag, inline) = match word.split_once('=') {
            Some((flag, value)) => (flag.to_owned(), Some(value.to_owned())),
            None => (word, None),
        };
        if flag == "--help" || flag == "-h" {
            return Ok(None);
        }
        let mut value = || inline.clone().or_else(|| words.next()).ok_or_else(|| format!("`{flag}` needs a value"));
        match flag.as_str() {
            "--port" => {
                let text = value()?;
                arguments.port = text.parse().map_err(|_| format!("`{text}` is no port"))?;
            }
            "--script" => arguments.script = Script::from_file(Path::new(&value()?))?,
            _ => return Err(format!("unknown argument `{flag}`")),
        }
    }
    Ok(Some(arguments))
}

fn default_script() -> Script {
    Script::new()
        .agent(Reply::complete("done").forever())
        .judge(Reply::verdict("met", "the default script says so", "").forever())
}

fn main() -> ExitCode {
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            let _ = out.write_all(HELP.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            let _ = writeln!(err, "error: {message}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let provider = match arguments.script.forget_bodies().serve(arguments.port) {
        Ok(provider) => provider,
        Err(error) => {
            let _ = writeln!(err, "error: port {}: {error}", arguments.port);
            return ExitCode::from(2);
        }
    };
    let _ = writeln!(out, "{}", provider.url());
    let _ = out.flush();
    loop {
        for line in provider.wait_for_news(Duration::from_secs(3600)) {
            let _ = writeln!(err, "{line}");
        }
    }
}
