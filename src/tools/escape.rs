//! Captured bytes as text that a model and a terminal can take.
//!
//! Invariant: what stands for a byte depends on that byte and those behind it alone. So a text that is escaped in
//! chunks, each cut between two units, is the text that is escaped whole.

use std::fmt::Write;
use std::ops::ControlFlow;

/// Most bytes inside a terminal escape sequence; longer ones are taken for text.
const MOST_SEQUENCE_BYTES: usize = 2_048;
/// How far behind a unit's first byte its end is known.
pub(super) const LOOKAHEAD_BYTES: usize = MOST_SEQUENCE_BYTES + 64;

/// A piece of captured bytes, by how it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit<'a> {
    /// As it is; it may be parted between two characters.
    Plain(&'a str),
    /// A control character or a byte that is no UTF-8: `\xNN` for each byte.
    Hex(&'a [u8]),
    /// So many bytes are not shown: a terminal escape sequence, the `\r` of `\r\n`.
    Hidden(usize),
}

impl Unit<'_> {
    /// The bytes it stands for.
    pub(super) const fn raw_len(&self) -> usize {
        match self {
            Unit::Plain(text) => text.len(),
            Unit::Hex(bytes) => bytes.len(),
            Unit::Hidden(bytes) => *bytes,
        }
    }

    /// The bytes that are shown.
    pub(super) const fn shown_len(&self) -> usize {
        match self {
            Unit::Plain(text) => text.len(),
            Unit::Hex(bytes) => bytes.len() * 4,
            Unit::Hidden(_) => 0,
        }
    }

    pub(super) fn show(&self, out: &mut String) {
        match self {
            Unit::Plain(text) => out.push_str(text),
            Unit::Hex(bytes) => push_hex(bytes, out),
            Unit::Hidden(_) => {}
        }
    }
}

/// Gives the units of captured bytes one by one, until it is told to stop.
pub(super) fn units<'a>(bytes: &'a [u8], mut each: impl FnMut(Unit<'a>) -> ControlFlow<()>) {
    let mut all = || {
        for chunk in bytes.utf8_chunks() {
            text_units(chunk.valid(), &mut each)?;
            for byte in chunk.invalid().chunks(1) {
                each(Unit::Hex(byte))?;
            }
        }
        ControlFlow::Continue(())
    };
    let _ = all();
}

fn text_units<'a>(text: &'a str, each: &mut impl FnMut(Unit<'a>) -> ControlFlow<()>) -> ControlFlow<()> {
    let mut rest = text;
    while let Some(at) = rest.find(needs_escape) {
        if at > 0 {
            each(Unit::Plain(&rest[..at]))?;
            rest = &rest[at..];
        }
        let hidden = if rest.starts_with("\r\n") { 1 } else { sequence_len(rest) };
        let len = if hidden > 0 {
            each(Unit::Hidden(hidden))?;
            hidden
        } else {
            let len = rest.chars().next().map_or(0, char::len_utf8);
            each(Unit::Hex(&rest.as_bytes()[..len]))?;
            len
        };
        rest = &rest[len..];
    }
    if rest.is_empty() { ControlFlow::Continue(()) } else { each(Unit::Plain(rest)) }
}

/// Whether a character does not stand as it is.
pub(super) fn needs_escape(c: char) -> bool {
    c.is_control() && c != '\n' && c != '\t'
}

/// Captured bytes as text: bytes that are not UTF-8 and control characters become `\xNN`, `\r\n` becomes `\n`,
/// terminal escape sequences go; newline and tab stay.
pub(super) fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    units(bytes, |unit| {
        unit.show(&mut out);
        ControlFlow::Continue(())
    });
    out
}

/// Where in the captured bytes the text stands that comes after `shown` bytes of what [`escape`] makes of them.
pub(super) fn raw_offset(bytes: &[u8], shown: usize) -> usize {
    let (mut raw, mut seen) = (0, 0);
    units(bytes, |unit| {
        let left = shown - seen;
        if unit.shown_len() >= left {
            // A byte that is shown as several characters belongs to what follows unless all of them came before.
            raw += match unit {
                Unit::Plain(_) => left,
                Unit::Hex(bytes) if unit.shown_len() == left => bytes.len(),
                Unit::Hex(_) | Unit::Hidden(_) => 0,
            };
            return ControlFlow::Break(());
        }
        seen += unit.shown_len();
        raw += unit.raw_len();
        ControlFlow::Continue(())
    });
    raw
}

fn push_hex(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(out, "\\x{byte:02x}");
    }
}

/// The length of the terminal escape sequence that the text starts with; 0 when there is none.
fn sequence_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    if bytes.first() != Some(&0x1b) {
        return 0;
    }
    match bytes.get(1) {
        // Control sequence: parameters, intermediates, one final byte.
        Some(b'[') => {
            let body = bytes[2..].iter().take(MOST_SEQUENCE_BYTES).take_while(|b| (0x20..0x40).contains(*b)).count();
            match bytes.get(2 + body) {
                Some(0x40..=0x7e) => body + 3,
                _ => 0,
            }
        }
        // Operating system command (titles, links): up to BEL or ESC \ on the same line.
        Some(b']') => {
            let body = bytes[2..].iter().take(MOST_SEQUENCE_BYTES);
            let body = body.take_while(|b| !matches!(b, 0x07 | 0x1b | b'\n')).count();
            match (bytes.get(2 + body), bytes.get(3 + body)) {
                (Some(0x07), _) => body + 3,
                (Some(0x1b), Some(b'\\')) => body + 4,
                _ => 0,
            }
        }
        // Character set.
        Some(b'(' | b')') if bytes.get(2).is_some_and(u8::is_ascii_alphanumeric) => 3,
        _ => 0,
    }
}

/// A name or path on one line: like `escape`, but newline and tab are escaped too.
pub fn escape_line(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() {
                push_hex(c.encode_utf8(&mut [0; 4]).as_bytes(), &mut out);
            } else {
                out.push(c);
            }
        }
        push_hex(chunk.invalid(), &mut out);
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn captured_bytes_are_escaped() {
        assert_eq!(escape(b"a\r\nb\tc\n"), "a\nb\tc\n");
        assert_eq!(escape(b"\x00\x07\x7f\r"), "\\x00\\x07\\x7f\\x0d");
        assert_eq!(escape(b"ok \xff\xc3("), "ok \\xff\\xc3(");
        assert_eq!(escape("\u{9b}ä".as_bytes()), "\\xc2\\x9bä");
        assert_eq!(escape(b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07x \x1b(By"), "red x y");
        assert_eq!(escape(b"\x1b[\n \x1b]open\n"), "\\x1b[\n \\x1b]open\n");
        assert_eq!(escape_line(b"a\nb\xff"), "a\\x0ab\\xff");
    }

    #[test]
    fn a_place_in_the_text_is_a_place_in_the_bytes() {
        let bytes = b"ab\x00c\x1b[1md\r\ne\xff";
        assert_eq!(escape(bytes), "ab\\x00cd\ne\\xff");
        let places: Vec<usize> = (0..=13).map(|shown| raw_offset(bytes, shown)).collect();
        // a b \ x 0 0 c (hidden: 4) d (hidden: 1) \n e \ x f f
        assert_eq!(places, [0, 1, 2, 2, 2, 2, 3, 4, 9, 11, 12, 12, 12, 12]);
        assert_eq!(raw_offset(bytes, 14 - 1 + 1), 13);
    }

    /// Bytes with everything in them that is escaped.
    fn odd_bytes() -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            Just(b"\x1b[1;31m".to_vec()),
            Just(b"\x1b]0;t\x07".to_vec()),
            Just(b"\r\n".to_vec()),
            Just("ä☃😀".as_bytes().to_vec()),
            proptest::collection::vec(any::<u8>(), 0..4),
            "[a-z\n]{0,6}".prop_map(String::into_bytes),
        ];
        proptest::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn escaped_text_has_no_control_characters(bytes in odd_bytes()) {
            prop_assert!(!escape(&bytes).contains(|c: char| c.is_control() && c != '\n' && c != '\t'));
        }

        #[test]
        fn units_cover_every_byte_and_parts_make_the_whole(bytes in odd_bytes(), at in 0usize..300) {
            let whole = escape(&bytes);
            let mut cuts = vec![(0, 0)];
            let (mut raw, mut shown) = (0, 0);
            units(&bytes, |unit| {
                raw += unit.raw_len();
                shown += unit.shown_len();
                cuts.push((raw, shown));
                ControlFlow::Continue(())
            });
            prop_assert_eq!((raw, shown), (bytes.len(), whole.len()));
            let (cut, first) = cuts[at % cuts.len()];
            prop_assert_eq!(escape(&bytes[cut..]), &whole[first..]);
            let place = raw_offset(&bytes, first);
            prop_assert!(place <= cut);
            prop_assert_eq!(escape(&bytes[place..]), &whole[first..]);
        }
    }
}
