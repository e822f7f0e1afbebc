//! What a secret looks like in the encodings that tools write.

use std::collections::BTreeSet;

/// The columns at which common tools wrap base64: coreutils and MIME, PEM and OpenSSL.
const WRAPS: [usize; 2] = [76, 64];

/// Wrapped base64 longer than this is recognised in pieces: whole, it would take a form for each column.
const WHOLE_MOST_CHARS: usize = 400;
/// 72 bits: no text looks like one by chance.
pub(super) const PIECE_CHARS: usize = 12;

pub(super) const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
pub(super) const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// So many characters of the base64 of a long value. They are looked for apart from other forms: a line break may
/// stand anywhere in them, and a form for each place would make a table that takes long to build.
pub(super) type Piece = [u8; PIECE_CHARS];

/// What a value looks like in the encodings that are recognised.
pub(super) fn encoded_forms(value: &[u8]) -> BTreeSet<Vec<u8>> {
    let mut forms = BTreeSet::new();
    for offset in 0..3 {
        let core = base64_core(value, offset, STANDARD);
        if core.len() <= WHOLE_MOST_CHARS {
            forms.extend(WRAPS.iter().flat_map(|width| wrapped(&core, *width)));
        }
        forms.insert(core);
        forms.insert(base64_core(value, offset, URL_SAFE));
    }
    // What `encodeURIComponent`, Python's `quote` and the strict rule leave alone; form encoding's plus for a space.
    for kept in [&b"-_.~"[..], b"-_.~!'()*", b"-_.~/"] {
        for upper in [true, false] {
            forms.insert(percent_encoded(value, kept, upper, false));
            forms.insert(percent_encoded(value, kept, upper, true));
        }
    }
    if let Ok(text) = std::str::from_utf8(value) {
        for slash in [false, true] {
            for html in [false, true] {
                forms.insert(json_escaped(text, slash, html, None));
                forms.insert(json_escaped(text, slash, html, Some(false)));
                forms.insert(json_escaped(text, slash, html, Some(true)));
            }
        }
    }
    forms
}

/// The pieces of the base64 of a long value, for each alignment.
pub(super) fn pieces(value: &[u8]) -> Vec<Piece> {
    let mut all = Vec::new();
    for offset in 0..3 {
        let core = base64_core(value, offset, STANDARD);
        if core.len() > WHOLE_MOST_CHARS {
            // What says nothing stands in other texts too.
            let telling = |piece: &&Piece| piece.iter().any(|byte| *byte != piece[0]);
            all.extend(core.as_chunks::<PIECE_CHARS>().0.iter().filter(telling));
        }
    }
    all
}

/// The characters of base64 that `rest` starts with, when they are as many as a piece has, with one line break among
/// them or none; and how many bytes they take. Else how far the next place is that may start a piece.
pub(super) fn piece_at(rest: &[u8]) -> Result<(Piece, usize), usize> {
    let (mut piece, mut taken, mut broken) = ([0; PIECE_CHARS], 0, false);
    for (at, &byte) in rest.iter().enumerate() {
        if byte == b'\n' && taken > 0 {
            if broken {
                return Err(1);
            }
            broken = true;
        } else if byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/' {
            piece[taken] = byte;
            taken += 1;
            if taken == PIECE_CHARS {
                return Ok((piece, at + 1));
            }
        } else {
            return Err(at + 1);
        }
    }
    Err(rest.len().max(1))
}

/// Whether some piece is longer than `rest` and starts with it, as it is or broken once. `pieces` are sorted.
pub(super) fn begins_piece(pieces: &[(Piece, usize)], rest: &[u8]) -> bool {
    if pieces.is_empty() || rest.len() > PIECE_CHARS || rest[0] == b'\n' {
        return false;
    }
    let mut lines = rest.splitn(2, |byte| *byte == b'\n');
    let start = [lines.next().unwrap_or_default(), lines.next().unwrap_or_default()].concat();
    if start.len() >= PIECE_CHARS || start.contains(&b'\n') {
        return false;
    }
    let next = pieces.partition_point(|(piece, _)| piece.as_slice() < start.as_slice());
    pieces.get(next).is_some_and(|(piece, _)| piece.starts_with(&start))
}

/// The base64 characters that depend on `value` alone when `offset` bytes of something else precede it.
fn base64_core(value: &[u8], offset: usize, alphabet: &[u8; 64]) -> Vec<u8> {
    let mut bytes = vec![0; offset];
    bytes.extend_from_slice(value);
    let first = (offset * 8).div_ceil(6);
    let last = bytes.len() * 8 / 6;
    let sextet = |index: usize| {
        let bit = index * 6;
        let high = u16::from(bytes[bit / 8]) << 8;
        let low = bytes.get(bit / 8 + 1).copied().map_or(0, u16::from);
        usize::from(((high | low) >> (10 - bit % 8)) & 0x3f)
    };
    (first..last).map(|index| alphabet[sextet(index)]).collect()
}

/// `core` as it looks when a line break falls into it, for each column at which it may start.
fn wrapped(core: &[u8], width: usize) -> Vec<Vec<u8>> {
    let break_at = |first: usize| {
        let mut out = core[..first].to_vec();
        for line in core[first..].chunks(width) {
            out.push(b'\n');
            out.extend_from_slice(line);
        }
        out
    };
    (1..core.len().min(width + 1)).map(break_at).collect()
}

fn percent_encoded(value: &[u8], kept: &[u8], upper: bool, plus: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    for &byte in value {
        if byte.is_ascii_alphanumeric() || kept.contains(&byte) {
            out.push(byte);
        } else if plus && byte == b' ' {
            out.push(b'+');
        } else {
            let code = if upper { format!("%{byte:02X}") } else { format!("%{byte:02x}") };
            out.extend_from_slice(code.as_bytes());
        }
    }
    out
}

/// `text` inside a JSON string. `slash` and `html` escape what some writers escape too; `ascii` writes everything
/// else as `\u`, with digits in upper case or not.
fn json_escaped(text: &str, slash: bool, html: bool, ascii: Option<bool>) -> Vec<u8> {
    let mut out = String::with_capacity(text.len());
    let mut units = [0; 2];
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '/' if slash => out.push_str("\\/"),
            '\0'..='\u{1f}' => out.push_str(&unicode_escape(character as u16, ascii == Some(true))),
            '<' | '>' | '&' if html => out.push_str(&unicode_escape(character as u16, ascii == Some(true))),
            _ if ascii.is_some() && !character.is_ascii() => {
                for unit in character.encode_utf16(&mut units) {
                    out.push_str(&unicode_escape(*unit, ascii == Some(true)));
                }
            }
            _ => out.push(character),
        }
    }
    out.into_bytes()
}

fn unicode_escape(unit: u16, upper: bool) -> String {
    if upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") }
}
