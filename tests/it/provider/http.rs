//! HTTP/1.1, as much as a client of a model speaks.

use std::io::{BufRead, Read, Write};
use std::time::Instant;

/// A request, whatever it asks for.
#[derive(Debug)]
pub struct Arrived {
    pub method: String,
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub first_byte: Instant,
    pub received: Instant,
}

impl Arrived {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub fn wants_close(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

/// Why there is no (further) request.
#[derive(Debug)]
pub enum NoRequest {
    /// The client hung up, between requests or within one.
    Gone,
    /// What it sent is no HTTP.
    Malformed(String),
}

const MOST_HEAD_BYTES: usize = 256 << 10;
const MOST_BODY_BYTES: usize = 512 << 20;

/// Reads one request; answers `expect: 100-continue` on the way.
pub fn read_request(reader: &mut impl BufRead, mut writer: impl Write) -> Result<Arrived, NoRequest> {
    if reader.fill_buf().map_err(|_| NoRequest::Gone)?.is_empty() {
        return Err(NoRequest::Gone);
    }
    let first_byte = Instant::now();
    let malformed = |what: &str, line: &str| NoRequest::Malformed(format!("{what}: {line:?}"));

    let mut head_bytes = 0;
    let request_line = line(reader, &mut head_bytes)?;
    let mut words = request_line.split(' ');
    let (Some(method), Some(target), Some("HTTP/1.1"), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(malformed("request line", &request_line));
    };
    let mut headers = Vec::new();
    loop {
        let header = line(reader, &mut head_bytes)?;
        if header.is_empty() {
            break;
        }
        let Some((name, value)) = header.split_once(':') else { return Err(malformed("header", &header)) };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut arrived = Arrived {
        method: method.to_owned(),
        target: target.to_owned(),
        headers,
        body: Vec::new(),
        first_byte,
        received: first_byte,
    };
    if arrived.header("host").is_none() {
        return Err(NoRequest::Malformed("no host header".to_owned()));
    }
    if arrived.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
        writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").map_err(|_| NoRequest::Gone)?;
    }
    arrived.body = match (arrived.header("transfer-encoding"), arrived.header("content-length")) {
        (Some(coding), None) if coding.eq_ignore_ascii_case("chunked") => chunked_body(reader)?,
        (None, Some(length)) => {
            let length: usize = length.parse().map_err(|_| malformed("content-length", length))?;
            let mut body = Vec::new();
            exactly(reader, length, &mut body)?;
            body
        }
        (None, None) => Vec::new(),
        (coding, length) => return Err(malformed("framing", &format!("{coding:?} with length {length:?}"))),
    };
    arrived.received = Instant::now();
    Ok(arrived)
}

fn chunked_body(reader: &mut impl BufRead) -> Result<Vec<u8>, NoRequest> {
    let mut body = Vec::new();
    loop {
        let size_line = line(reader, &mut 0)?;
        let digits = size_line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(digits, 16)
            .map_err(|_| NoRequest::Malformed(format!("chunk size: {size_line:?}")))?;
        if size == 0 {
            while !line(reader, &mut 0)?.is_empty() {}
            return Ok(body);
        }
        exactly(reader, size, &mut body)?;
        let end = line(reader, &mut 0)?;
        if !end.is_empty() {
            return Err(NoRequest::Malformed(format!("bytes behind a chunk: {end:?}")));
        }
    }
}

fn exactly(reader: &mut impl BufRead, bytes: usize, into: &mut Vec<u8>) -> Result<(), NoRequest> {
    if into.len().saturating_add(bytes) > MOST_BODY_BYTES {
        return Err(NoRequest::Malformed(format!("a body above {MOST_BODY_BYTES} bytes")));
    }
    let read = reader.take(bytes as u64).read_to_end(into).map_err(|_| NoRequest::Gone)?;
    if read == bytes { Ok(()) } else { Err(NoRequest::Gone) }
}

/// One line without its CR LF.
fn line(reader: &mut impl BufRead, head_bytes: &mut usize) -> Result<String, NoRequest> {
    let mut bytes = Vec::new();
    let limit = MOST_HEAD_BYTES - *head_bytes;
    reader.take(limit as u64).read_until(b'\n', &mut bytes).map_err(|_| NoRequest::Gone)?;
    *head_bytes += bytes.len();
    let Some(text) = bytes.strip_suffix(b"\r\n") else {
        return Err(if bytes.ends_with(b"\n") || bytes.len() == limit {
            NoRequest::Malformed(format!("a line without CR LF: {:?}", String::from_utf8_lossy(&bytes)))
        } else {
            NoRequest::Gone
        });
    };
    String::from_utf8(text.to_vec()).map_err(|e| NoRequest::Malformed(e.to_string()))
}

/// The bytes of a response's head. `length` absent: chunked.
pub fn response_head(status: u16, headers: &[(String, String)], length: Option<usize>, close: bool) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(status));
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    match length {
        Some(length) => head.push_str(&format!("content-length: {length}\r\n")),
        None => head.push_str("transfer-encoding: chunked\r\n"),
    }
    if close {
        head.push_str("connection: close\r\n");
    }
    head.push_str("\r\n");
    head.into_bytes()
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Payload Too Large",
        425 => "Too Early",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        529 => "Overloaded",
        _ => "Scripted",
    }
}
