//! The wires on bytes: streams written for one rule each, captures of a real server, recordings of live vendors.

#[path = "wires/bounds.rs"]
mod bounds;
#[path = "wires/encode.rs"]
mod encode;
#[path = "wires/hostile_anthropic.rs"]
mod hostile_anthropic;
#[path = "wires/hostile_chat.rs"]
mod hostile_chat;
#[path = "wires/hostile_gemini.rs"]
mod hostile_gemini;
#[path = "wires/hostile_responses.rs"]
mod hostile_responses;
#[path = "wires/naive.rs"]
mod naive;
#[path = "wires/recorded.rs"]
mod recorded;

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use spettro::model::wire::Wire;
use spettro::model::{Delta, ModelError, Partial, Reply};

/// What decoding a body in some chunking gave.
#[derive(Debug, Clone, PartialEq)]
struct Decoded {
    reply: Result<Reply, ModelError>,
    partial: Partial,
    /// Text and thinking as they were reported.
    text: String,
    thinking: String,
    semantic: bool,
}

fn decode<'a>(wire: Wire, chunks: impl IntoIterator<Item = &'a [u8]>) -> Decoded {
    let mut decoder = wire.decoder();
    let mut deltas = Vec::new();
    let pushed = chunks.into_iter().try_for_each(|chunk| decoder.push(chunk, &mut deltas));
    let partial = decoder.partial();
    let reply = decoder.finish();
    if let Err(error) = pushed {
        assert_eq!(reply, Err(error), "the end repeats the error");
    }
    let (mut text, mut thinking) = (String::new(), String::new());
    for delta in &deltas {
        match delta {
            Delta::Text(more) => text.push_str(more),
            Delta::Thinking(more) => thinking.push_str(more),
            Delta::Call | Delta::Other => {}
        }
    }
    Decoded { reply, partial, text, thinking, semantic: !deltas.is_empty() }
}

/// `body` in chunks whose sizes (from 1 to `most`) follow from `seed`.
fn cut(body: &[u8], seed: u64, most: u64) -> Vec<&[u8]> {
    let mut state = seed | 1;
    let mut rest = body;
    let mut chunks = Vec::new();
    while !rest.is_empty() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let size = ((state >> 33) % most + 1).min(rest.len() as u64) as usize;
        let (chunk, after) = rest.split_at(size);
        chunks.push(chunk);
        rest = after;
    }
    chunks
}

/// Decodes a body whole, byte by byte and in random chunks: all must give the same.
fn in_any_chunking(wire: Wire, body: &[u8]) -> Decoded {
    let whole = decode(wire, [body]);
    assert_eq!(decode(wire, body.chunks(1)), whole, "byte by byte");
    for (seed, most) in [(1, 3), (2, 17), (3, 200), (4, 5_000)] {
        assert_eq!(decode(wire, cut(body, seed, most)), whole, "seed {seed}, at most {most} bytes");
    }
    whole
}

fn own(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wires").join(path)
}

/// A body of `tests/wires`.
fn body(path: &str) -> Vec<u8> {
    std::fs::read(own(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "a test lists its own recordings")]
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.ends_with(ending) && !name.ends_with(".request.json")
        })
        .collect();
    files.sort();
    files
}

fn hostile() -> Vec<(Wire, Vec<u8>)> {
    Wire::ALL
        .into_iter()
        .flat_map(|wire| {
            let folder = own(wire.name());
            let all = [files(&folder, ".sse"), files(&folder, ".json"), files(&folder, ".html")].concat();
            assert!(all.len() > 20, "{wire:?}");
            all.into_iter().map(move |path| (wire, std::fs::read(path).unwrap()))
        })
        .collect()
}

#[test]
fn hostile_streams_decode_alike_in_any_chunking() {
    for (wire, body) in hostile() {
        in_any_chunking(wire, &body);
    }
}

/// All that `tests/wires` holds: what was written for one rule each, and what a real server sent.
fn committed() -> Vec<(Wire, Vec<u8>)> {
    let captures = recorded::captures().into_iter().map(|(_, wire, (_, _, body))| (wire, body));
    hostile().into_iter().chain(captures).collect()
}

/// Each place is a cut once, far from every other cut.
#[test]
fn a_cut_anywhere_changes_nothing() {
    const APART: usize = 97;
    for (wire, body) in committed() {
        let whole = decode(wire, [&body[..]]);
        for first in 0..APART.min(body.len()) {
            let (start, rest) = body.split_at(first);
            let cut = decode(wire, std::iter::once(start).chain(rest.chunks(APART)));
            assert_eq!(cut, whole, "{wire:?} cut at {first} of {}", String::from_utf8_lossy(&body));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Any cut of any stream: the same chunks or others, the result is the same, and nothing panics.
    #[test]
    fn a_cut_stream_decodes_alike_in_any_chunking(which in 0..1_000usize, end in 0.0..1.0f64, seed: u64, most in 1..64u64) {
        let streams = committed();
        let (wire, body) = &streams[which % streams.len()];
        let body = &body[..(body.len() as f64 * end) as usize];
        prop_assert_eq!(decode(*wire, cut(body, seed, most)), decode(*wire, [body]));
    }

    /// Bytes that are no stream at all give an error, never a reply or a panic.
    #[test]
    fn noise_is_never_a_reply(noise in proptest::collection::vec(any::<u8>(), 0..200), lines: bool) {
        let body = if lines { [b"data: ", &noise[..], b"\n\n"].concat() } else { noise };
        for wire in Wire::ALL {
            prop_assert!(decode(wire, [&body[..]]).reply.is_err());
        }
    }
}

#[test]
fn nothing_is_truncated() {
    for wire in Wire::ALL {
        for body in ["", " \n\r\n", "\u{feff}", ": keep-alive\n\n", "event: message_start\n\n"] {
            let decoded = in_any_chunking(wire, body.as_bytes());
            assert_eq!(decoded.reply, Err(ModelError::Truncated), "{body:?}");
            assert!(!decoded.semantic, "{body:?}");
        }
    }
}
