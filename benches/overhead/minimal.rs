//! The minimal client that spettro is compared with: one kept-alive socket, a body that grows by appending, one plain
//! spawn a step. It checks nothing, keeps nothing and understands next to nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Result;
use crate::provider::{BEFORE_TEXT, END, Provider, TEXT_LENGTH, find};
use crate::runner;

const CLOSE: &[u8] = b"]}";

/// Runs a session of so many steps, whose requests start with `head` bytes; the gaps as the provider saw them. The
/// provider expects it already.
pub fn run(provider: &Provider, steps: usize, head: usize) -> Result<Vec<Duration>> {
    let ran = session(provider, steps, head);
    let gaps = provider.ended().1;
    ran.map(|()| gaps)
}

fn session(provider: &Provider, steps: usize, head: usize) -> Result<()> {
    // Its commands see what those of spettro see: what a shell does first depends on it.
    let folder = tempfile::tempdir()?;
    let mut stream = TcpStream::connect(provider.address())?;
    stream.set_nodelay(true)?;
    let system = "x".repeat(head);
    let mut body = format!(
        r#"{{"model":"bench","max_tokens":4096,"stream":true,"system":"{system}","messages":[{{"role":"user","content":"go"}}"#
    )
    .into_bytes();
    let mut reply = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    for step in 0..=steps {
        body.extend_from_slice(CLOSE);
        let head = format!(
            "POST /v1/messages HTTP/1.1\r\nhost: loopback\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(&body)?;
        body.truncate(body.len() - CLOSE.len());
        reply.clear();
        while !reply.ends_with(END) {
            match stream.read(&mut buffer)? {
                0 => return Err("the provider closed the connection".into()),
                length => reply.extend_from_slice(&buffer[..length]),
            }
        }
        let Some(at) = find(&reply, BEFORE_TEXT.as_bytes()) else { continue };
        let command = std::str::from_utf8(&reply[at..at + BEFORE_TEXT.len() + TEXT_LENGTH])?;
        let output = Command::new("bash")
            .args(["-c", command])
            .env_clear()
            .envs(runner::environment(folder.path()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()?
            .wait_with_output()?;
        let text = String::from_utf8(output.stdout)?;
        write!(
            body,
            r#",{{"role":"assistant","content":[{{"type":"tool_use","id":"toolu_{step:08}","name":"bash","input":{{"command":"{command}"}}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"toolu_{step:08}","content":"{}\n"}}]}}"#,
            text.trim_end()
        )?;
    }
    Ok(())
}
