//! `tool-output`: a spooled output, chunk by chunk.

use std::ops::ControlFlow;

use super::error::ToolError;
use super::escape::{LOOKAHEAD_BYTES, Unit, units};
use super::output::limit_chars;
use crate::session::{Found, Spool};

/// Bytes of a spooled output that are given when no limit is named.
const CHUNK_BYTES: u64 = 8_000;
/// More than the header of a chunk takes.
const HEADER_CHARS: usize = 100;

/// A chunk of a spooled output, at most `budget_chars` long with its header. It ends between two characters, and
/// never inside of something that is shown as a whole: all chunks together are the whole output, escaped.
pub(super) fn page(
    spool: &Spool,
    id: &str,
    offset: u64,
    limit: Option<u64>,
    budget_chars: usize,
) -> Result<String, ToolError> {
    let number = id.strip_prefix("spool:").unwrap_or(id);
    let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    let Some(number) = number.parse::<u64>().ok().filter(|_| digits) else {
        return Err(ToolError::argument("id", "must be `spool:N` or `N` as a footer names it"));
    };
    let most = limit_chars("tool-output").min(budget_chars).saturating_sub(HEADER_CHARS).max(4);
    let limit = usize::try_from(limit.unwrap_or(CHUNK_BYTES)).unwrap_or(usize::MAX).clamp(1, most);
    // Up to three bytes before, in case the offset lies inside a character.
    let lead = offset.min(3);
    let found = spool
        .read(number, offset - lead, lead as usize + limit + LOOKAHEAD_BYTES)
        .map_err(|error| ToolError::Failed(format!("read `spool:{number}`: {error}")))?;
    let (bytes, size) = match found {
        Found::Body { bytes, size } => (bytes, size),
        Found::Unknown => return Err(ToolError::Failed(format!("no output `spool:{number}` in this session"))),
        Found::Dropped => {
            return Err(ToolError::Failed(format!(
                "`spool:{number}` is no longer kept: the oldest outputs were removed to make room for newer ones"
            )));
        }
        Found::Lost(why) => return Err(ToolError::Failed(format!("`spool:{number}` is lost: {why}"))),
    };
    let mut start = (lead as usize).min(bytes.len());
    while start > 0 && is_inside(&bytes, start) {
        start -= 1;
    }
    let (taken, chunk) = take(&bytes[start..], limit, most);
    let next = (offset - lead + (start + taken) as u64).min(size);
    let state = if next < size { "more available" } else { "end of output" };
    Ok(format!("output=spool:{number} size={size} next_offset={next} ({state})\n{chunk}"))
}

/// How many bytes of these are given, and how they are shown: as many whole units as fit, at least one.
fn take(bytes: &[u8], limit_bytes: usize, most_chars: usize) -> (usize, String) {
    let (mut taken, mut chars, mut out) = (0, 0, String::new());
    units(bytes, |unit| {
        let room = limit_bytes.saturating_sub(taken);
        if let Unit::Plain(text) = unit {
            let part = start_of(text, room, most_chars - chars, taken == 0);
            out.push_str(part);
            taken += part.len();
            chars += part.chars().count();
            return if part.len() < text.len() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        }
        let fits = unit.raw_len() <= room && chars + unit.shown_len() <= most_chars;
        if !fits && taken > 0 {
            return ControlFlow::Break(());
        }
        unit.show(&mut out);
        taken += unit.raw_len();
        chars = (chars + unit.shown_len()).min(most_chars);
        ControlFlow::Continue(())
    });
    (taken, out)
}

/// The longest start of a text within so many bytes and characters. A limit below one character's length still gives
/// that character where there would be nothing else, or nothing would ever move.
fn start_of(text: &str, bytes: usize, chars: usize, at_least_one: bool) -> &str {
    let mut end = 0;
    for (index, (at, c)) in text.char_indices().enumerate() {
        let next = at + c.len_utf8();
        let first = at_least_one && index == 0;
        if (next > bytes || index >= chars) && !first {
            break;
        }
        end = next;
    }
    &text[..end]
}

/// Whether the position lies inside a valid character (and not only among stray continuation bytes).
fn is_inside(bytes: &[u8], at: usize) -> bool {
    (1..=3.min(at)).any(|back| {
        let lead = bytes[at - back];
        let len = match lead {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 0,
        };
        len > back && bytes.get(at - back..at - back + len).is_some_and(|c| std::str::from_utf8(c).is_ok())
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::tools::escape::escape;

    fn spool_of(body: &[u8]) -> (tempfile::TempDir, Spool) {
        let dir = tempfile::tempdir().expect("a folder");
        let spool = Spool::new(dir.path().join("spool"));
        assert_eq!(spool.put(Bytes::copy_from_slice(body)), 1);
        (dir, spool)
    }

    #[test]
    fn a_spooled_output_is_paged_by_bytes_at_character_borders() {
        let (_dir, spool) = spool_of("aäbc".as_bytes());
        let read = |id: &str, offset, limit| page(&spool, id, offset, limit, 9_999);
        assert_eq!(
            read("spool:1", 0, Some(2)).expect("a page"),
            "output=spool:1 size=5 next_offset=1 (more available)\na"
        );
        assert_eq!(read("1", 1, Some(1)).expect("a page"), "output=spool:1 size=5 next_offset=3 (more available)\nä");
        assert_eq!(read("1", 2, Some(8)).expect("a page"), "output=spool:1 size=5 next_offset=5 (end of output)\näbc");
        assert_eq!(read("1", 3, None).expect("a page"), "output=spool:1 size=5 next_offset=5 (end of output)\nbc");
        assert_eq!(read("1", 99, None).expect("a page"), "output=spool:1 size=5 next_offset=5 (end of output)\n");
        assert!(read("2", 0, None).is_err() && read("spool:", 0, None).is_err() && read("+1", 0, None).is_err());
    }

    #[test]
    fn what_a_terminal_would_obey_is_shown_whole_or_not_at_all() {
        let (_dir, spool) = spool_of(b"\x1b[1;31mred\x1b[0m\x00\xff\r\nend");
        let read = |offset, limit| page(&spool, "1", offset, Some(limit), 9_999).expect("a page");
        assert_eq!(read(0, 3), "output=spool:1 size=21 next_offset=7 (more available)\n");
        assert_eq!(read(7, 5), "output=spool:1 size=21 next_offset=10 (more available)\nred");
        assert_eq!(read(10, 5), "output=spool:1 size=21 next_offset=15 (more available)\n\\x00");
        assert_eq!(read(15, 99), "output=spool:1 size=21 next_offset=21 (end of output)\n\\xff\nend");
    }

    proptest! {
        #[test]
        fn bytes_of_any_kind_page_to_their_end_within_the_budget(
            body in proptest::collection::vec(any::<u8>(), 1..300), limit in 1u64..40, budget in 104usize..160
        ) {
            let (_dir, spool) = spool_of(&body);
            let (mut got, mut offset) = (String::new(), 0);
            loop {
                let text = page(&spool, "1", offset, Some(limit), budget).expect("a page");
                let (header, chunk) = text.split_once('\n').expect("a header");
                // Two bytes of one control character are shown as eight.
                prop_assert!(chunk.chars().count() <= (budget - 100).max(8), "{chunk}");
                got.push_str(chunk);
                let next = header.split_once("next_offset=").expect("a next offset").1;
                let next: u64 = next[..next.find(' ').expect("a state")].parse().expect("a number");
                if header.ends_with("(end of output)") {
                    break;
                }
                prop_assert!(next > offset);
                offset = next;
            }
            prop_assert_eq!(got, escape(&body));
        }

        #[test]
        fn pages_put_together_are_the_whole_output(body in "[aä☃😀\n]{1,80}", limit in 1u64..9) {
            let (_dir, spool) = spool_of(body.as_bytes());
            let (mut got, mut offset) = (String::new(), 0);
            loop {
                let text = page(&spool, "1", offset, Some(limit), 10_000).expect("a page");
                let (header, chunk) = text.split_once('\n').expect("a header");
                got.push_str(chunk);
                let next = header.split_once("next_offset=").expect("a next offset").1;
                let next: u64 = next[..next.find(' ').expect("a state")].parse().expect("a number");
                if header.ends_with("(end of output)") {
                    break;
                }
                prop_assert!(next > offset);
                offset = next;
            }
            prop_assert_eq!(got, body);
        }
    }
}
