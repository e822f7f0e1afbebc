//! Recordings of live vendors (from `WIRES_DIR`) and of a real llama.cpp server (in `tests/wires`).

use std::path::{Path, PathBuf};

use spettro::model::wire::Wire;
use spettro::model::{ModelError, Stop, blocks_text};
use spettro::session::{Block, Message};

use super::naive::{self, Plain};
use super::{decode, files, in_any_chunking, own};

/// The folder of the vendors' recordings, unless there is none here.
fn vendor(wire: Wire) -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "the folder is given to tests by the environment")]
    let folder = std::env::var_os("WIRES_DIR");
    if folder.is_none() {
        use std::io::Write;
        // A test runner's output may be closed; then nobody needs the note.
        let _ = writeln!(std::io::stderr(), "skipped: WIRES_DIR is not set");
    }
    Some(Path::new(&folder?).join("vendor").join(wire.name()))
}

fn naive_stream(wire: Wire, stream: &str) -> Plain {
    match wire {
        Wire::Anthropic => naive::anthropic(stream),
        Wire::OpenAiResponses => naive::responses(stream),
        Wire::OpenAiChat => naive::chat(stream),
        Wire::Gemini => naive::gemini(stream),
    }
}

fn naive_whole(wire: Wire, body: &str) -> Plain {
    match wire {
        Wire::Anthropic => naive::anthropic_whole(body),
        Wire::OpenAiResponses => naive::responses_whole(body),
        Wire::OpenAiChat => naive::chat_whole(body),
        Wire::Gemini => naive::gemini_whole(body),
    }
}

/// Where the frame that holds the stop reason ends: the byte after its closing brace.
fn stop_ends(wire: Wire, stream: &str) -> usize {
    let mut at = 0;
    for line in stream.split_inclusive('\n') {
        if let Some(data) = line.strip_prefix("data:") {
            let frame = serde_json::from_str::<serde_json::Value>(data).unwrap_or_default();
            let reason = match wire {
                Wire::Anthropic => &frame["delta"]["stop_reason"],
                Wire::OpenAiResponses if frame["type"] == "response.completed" => &frame["response"]["status"],
                Wire::OpenAiResponses => &serde_json::Value::Null,
                Wire::OpenAiChat => &frame["choices"][0]["finish_reason"],
                Wire::Gemini => &frame["candidates"][0]["finishReason"],
            };
            if reason.is_string() {
                return at + line.trim_end().len();
            }
        }
        at += line.len();
    }
    panic!("no stop reason");
}

fn check_stream(wire: Wire, name: &str, bytes: &[u8]) {
    let stream = std::str::from_utf8(bytes).unwrap();
    let decoded = in_any_chunking(wire, bytes);
    let reply = decoded.reply.unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(naive::plain(&reply, wire == Wire::Anthropic), naive_stream(wire, stream), "{name}");
    assert_eq!(decoded.text, reply.text(), "{name}");
    assert!(reply.model.is_some(), "{name}");

    let end = stop_ends(wire, stream);
    let near = end.saturating_sub(40)..end;
    let spread = (0..20).map(|n| end * n / 20);
    for cut in near.chain(spread) {
        assert_eq!(decode(wire, [&bytes[..cut]]).reply, Err(ModelError::Truncated), "{name} cut at {cut} of {end}");
    }
    for cut in end..=(end + 40).min(bytes.len()) {
        let cut_reply = decode(wire, [&bytes[..cut]]).reply.unwrap_or_else(|error| panic!("{name} at {cut}: {error}"));
        assert_eq!((&cut_reply.blocks, &cut_reply.stop), (&reply.blocks, &reply.stop), "{name} cut at {cut}");
    }
    check_way_back(wire, name, &reply.blocks);
    check_verbatim(wire, name, stream, &reply.blocks);
}

/// What the decoder kept verbatim stands verbatim in the next request.
fn check_way_back(wire: Wire, name: &str, blocks: &[Block]) {
    let message = Message::Assistant { blocks: blocks.to_vec(), interrupted: false, refused: None };
    let mut out = Vec::new();
    if wire.messages(&[message], false, &mut out) == 0 {
        assert!(blocks_text(blocks).trim().is_empty(), "{name}");
        return;
    }
    let sent = String::from_utf8(out).unwrap();
    // Items stand side by side; the other wires make one message of a reply.
    let listed = if wire == Wire::OpenAiResponses { format!("[{sent}]") } else { sent.clone() };
    let parsed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    match wire {
        Wire::Anthropic | Wire::OpenAiChat => assert_eq!(parsed["role"], "assistant", "{name}"),
        Wire::Gemini => assert_eq!(parsed["role"], "model", "{name}"),
        Wire::OpenAiResponses => {}
    }
    for block in blocks {
        match (wire, block) {
            (_, Block::Raw { raw }) | (Wire::Anthropic, Block::Thinking { raw: Some(raw), .. }) => {
                assert!(sent.contains(raw.as_str()), "{name}: {raw}");
            }
            (Wire::OpenAiChat, Block::Thinking { raw: Some(raw), .. }) => {
                assert!(sent.contains(&raw[1..raw.len() - 1]), "{name}: {raw}");
            }
            _ => {}
        }
    }
}

/// The pieces that must stand in the next request as they were received: finished items, signed parts.
fn verbatim(wire: Wire, stream: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    for data in stream.lines().filter_map(|line| line.strip_prefix("data:")) {
        let frame: serde_json::Value = serde_json::from_str(data).unwrap_or_default();
        match wire {
            Wire::OpenAiResponses if frame["type"] == "response.output_item.done" => {
                let item = &data[data.find("\"item\":").unwrap() + 7..];
                let mut values = serde_json::Deserializer::from_str(item).into_iter::<&serde_json::value::RawValue>();
                pieces.push(values.next().unwrap().unwrap().get().to_owned());
            }
            Wire::Gemini => {
                let signatures = data.split("\"thoughtSignature\": \"").skip(1);
                pieces.extend(
                    signatures.map(|rest| format!("\"thoughtSignature\": \"{}\"", rest.split('"').next().unwrap())),
                );
            }
            _ => {}
        }
    }
    pieces
}

/// Items and signatures of a recording go back byte for byte, unless nothing of the reply is stored at the provider.
fn check_verbatim(wire: Wire, name: &str, stream: &str, blocks: &[Block]) {
    let message = Message::Assistant { blocks: blocks.to_vec(), interrupted: false, refused: None };
    let mut out = Vec::new();
    wire.messages(&[message], false, &mut out);
    let sent = String::from_utf8(out).unwrap();
    let pieces = verbatim(wire, stream);
    let unsealed =
        |piece: &String| piece.contains("\"type\":\"reasoning\"") && !piece.contains("\"encrypted_content\":\"");
    if wire == Wire::OpenAiResponses && pieces.iter().any(unsealed) {
        assert!(!sent.contains("\"id\":"), "{name}: ids without their reasoning");
        return;
    }
    for piece in pieces {
        assert!(sent.contains(&piece), "{name}: {piece} is not in {sent}");
    }
}

fn check_recordings(wire: Wire, streams: usize, bodies: usize) {
    let Some(folder) = vendor(wire) else { return };
    let (sse, json) = (files(&folder, ".sse"), files(&folder, ".json"));
    assert_eq!((sse.len(), json.len()), (streams, bodies));
    for path in sse {
        check_stream(wire, &path.display().to_string(), &std::fs::read(&path).unwrap());
    }
    for path in json {
        let bytes = std::fs::read(&path).unwrap();
        let name = path.display().to_string();
        let reply = match in_any_chunking(wire, &bytes).reply {
            Ok(reply) => reply,
            // A request that counts tokens is no reply.
            Err(ModelError::Malformed(_)) if bytes.starts_with(b"{\"input_tokens\":") => continue,
            Err(error) => panic!("{name}: {error}"),
        };
        let plain = naive_whole(wire, std::str::from_utf8(&bytes).unwrap());
        assert_eq!(naive::plain(&reply, wire == Wire::Anthropic), plain, "{name}");
        for cut in [1, bytes.len() / 2, bytes.trim_ascii().len() - 1] {
            assert_eq!(decode(wire, [&bytes[..cut]]).reply, Err(ModelError::Truncated), "{name} cut at {cut}");
        }
        check_way_back(wire, &name, &reply.blocks);
    }
}

#[test]
fn recordings_of_anthropic_are_read() {
    check_recordings(Wire::Anthropic, 26, 12);
}

#[test]
fn recordings_of_the_responses_api_are_read() {
    check_recordings(Wire::OpenAiResponses, 49, 27);
}

#[test]
fn recordings_of_gemini_are_read() {
    check_recordings(Wire::Gemini, 32, 27);
}

#[test]
fn recordings_of_chat_vendors_are_read() {
    check_recordings(Wire::OpenAiChat, 171, 91);
}

/// Status, headers (names in lower case), body without its chunked framing.
type Response = (u16, Vec<(String, String)>, Vec<u8>);

/// A captured HTTP response.
fn response(bytes: &[u8]) -> Response {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let text = std::str::from_utf8(&bytes[..head]).unwrap();
    let mut lines = text.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers: Vec<(String, String)> = lines
        .map(|line| line.split_once(':').unwrap())
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    let mut rest = &bytes[head + 4..];
    if headers.iter().all(|(name, _)| name != "transfer-encoding") {
        return (status, headers, rest.to_vec());
    }
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|window| window == b"\r\n").unwrap();
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        if size == 0 {
            return (status, headers, body);
        }
        body.extend_from_slice(&rest[line + 2..line + 2 + size]);
        rest = &rest[line + 2 + size + 2..];
    }
}

/// What a llama.cpp server answered: the name, the wire that was asked, and the response.
pub fn captures() -> Vec<(String, Wire, Response)> {
    let capture = |path: PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let wire = match name.split('-').next() {
            Some("anthropic") => Wire::Anthropic,
            Some("responses") => Wire::OpenAiResponses,
            _ => Wire::OpenAiChat,
        };
        (name, wire, response(&std::fs::read(&path).unwrap()))
    };
    files(&own("llama.cpp"), ".http").into_iter().map(capture).collect()
}

#[test]
fn captures_of_llama_cpp_are_read() {
    let mut streams = 0;
    for (name, wire, (status, headers, body)) in captures() {
        let error = (status != 200).then(|| wire.error(status, &headers, &body, 0));
        match name.as_str() {
            "anthropic-overflow.http" | "chat-overflow.http" | "responses-overflow.http" => assert_eq!(
                error,
                Some(ModelError::ContextOverflow {
                    message:
                        "request (6104 tokens) exceeds the available context size (4096 tokens), try increasing it"
                            .into(),
                    limit_tokens: Some(4_096),
                })
            ),
            "anthropic-bad-json.http" => assert!(matches!(error, Some(ModelError::InvalidRequest(_)))),
            "anthropic-tool-nonstream.http" => {
                let reply = in_any_chunking(wire, &body).reply.unwrap();
                let plain = naive::anthropic_whole(std::str::from_utf8(&body).unwrap());
                assert_eq!(naive::plain(&reply, true), plain);
                assert_eq!(reply.stop, Stop::MaxTokens);
            }
            _ => {
                assert_eq!(status, 200, "{name}");
                check_stream(wire, &name, &body);
                streams += 1;
            }
        }
    }
    assert_eq!(streams, 11);
}
