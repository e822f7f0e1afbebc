//! What the model gets to see of an output: escaping at capture, cutting to a budget, paging through the spool.
//!
//! Invariant: everything here is pure but for [`page`], which reads the spool.

use std::fmt::Write;

use super::error::ToolError;
use crate::session::Spool;

/// Results longer than this are written to the spool when they are produced.
pub(super) const SPOOL_OVER_BYTES: usize = 2_000;
/// Most characters of a command's result, and of any tool without a limit of its own.
pub(super) const COMMAND_CHARS: usize = 30_000;
/// Most characters of a `grep` result.
const GREP_CHARS: usize = 16_000;
/// Most characters of the lines of one `file-read` page.
pub(super) const PAGE_CHARS: usize = 60_000;
/// What a page may take besides its lines: the note that says how to read on.
const PAGE_NOTE_CHARS: usize = 1_000;
/// Bytes of a spooled output that `tool-output` gives when no limit is named.
const CHUNK_BYTES: u64 = 8_000;
/// Stands between the head and the tail of a cut command output.
const SEAM: &str = "[...]\n";

/// The most characters that a tool's result may take, whatever the budget.
fn limit_chars(tool: &str) -> usize {
    match tool {
        "grep" => GREP_CHARS,
        "file-read" => PAGE_CHARS + PAGE_NOTE_CHARS,
        _ => COMMAND_CHARS,
    }
}

/// Whether `cut` would return it unchanged.
pub(super) fn fits(tool: &str, full: &str, budget_chars: usize) -> bool {
    let limit = limit_chars(tool).min(budget_chars);
    full.len() <= limit || full.chars().nth(limit).is_none()
}

/// Cuts a full output to a budget of characters, or to the tool's own limit where that is smaller: the head, for
/// commands the head (¾) and the tail (¼), at line ends where one is near and else at character borders, and the
/// footer that says how to read on. Pure; returns the text unchanged when it fits. The result is never longer than
/// budget and footer together.
///
/// `spool` is the id under which exactly `full` was kept: the footer's offset counts its bytes.
pub fn cut(tool: &str, full: &str, budget_chars: usize, spool: Option<u64>) -> String {
    if fits(tool, full, budget_chars) {
        return full.to_owned();
    }
    let budget = limit_chars(tool).min(budget_chars);
    let (head_chars, tail_chars) = if tool == "bash" {
        let room = budget.saturating_sub(SEAM.len() + 1);
        (room - room / 4, room / 4)
    } else {
        (budget, 0)
    };
    let head_end = head_border(full, head_chars);
    let tail_start = tail_border(full, tail_chars);
    let mut out = full[..head_end].to_owned();
    end_line(&mut out);
    if tail_start < full.len() {
        out.push_str(SEAM);
        out.push_str(&full[tail_start..]);
        end_line(&mut out);
    }
    out.push_str(&footer(full, head_end, tail_start, spool));
    out
}

/// Where a head of at most `chars` characters ends: after the last line end of it, unless that would give away
/// more than half of it.
fn head_border(full: &str, chars: usize) -> usize {
    let end = full.char_indices().nth(chars).map_or(full.len(), |(at, _)| at);
    let head = &full[..end];
    match head.rfind('\n') {
        Some(at) if (at + 1) * 2 >= end => at + 1,
        _ => end,
    }
}

/// Where a tail of at most `chars` characters starts; the mirror of [`head_border`].
fn tail_border(full: &str, chars: usize) -> usize {
    if chars == 0 {
        return full.len();
    }
    let start = full.char_indices().rev().nth(chars - 1).map_or(0, |(at, _)| at);
    if at_line_start(full, start) {
        return start;
    }
    match full[start..].find('\n') {
        Some(at) if at + 1 < full.len() - start && (at + 1) * 2 <= full.len() - start => start + at + 1,
        _ => start,
    }
}

fn at_line_start(text: &str, at: usize) -> bool {
    at == 0 || at == text.len() || text.as_bytes()[at - 1] == b'\n'
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

fn footer(full: &str, head_end: usize, tail_start: usize, spool: Option<u64>) -> String {
    let omitted = &full[head_end..tail_start];
    let (gone, all, unit) = if at_line_start(full, head_end) && at_line_start(full, tail_start) {
        (omitted.lines().count(), full.lines().count(), "lines")
    } else {
        (omitted.chars().count(), full.chars().count(), "characters")
    };
    let (gone, all) = (thousands(gone as u64), thousands(all as u64));
    match spool {
        Some(id) => format!(
            "[truncated: {gone} of {all} {unit} omitted; use tool-output {{\"id\":\"spool:{id}\",\"offset\":{head_end}}} to read more]"
        ),
        None => format!("[truncated: {gone} of {all} {unit} omitted]"),
    }
}

/// `12400` → `12,400`.
pub(super) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Captured bytes as text: bytes that are not UTF-8 and control characters become `\xNN`, `\r\n` becomes `\n`,
/// terminal escape sequences go; newline and tab stay.
pub(super) fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        escape_text(chunk.valid(), &mut out);
        push_hex(chunk.invalid(), &mut out);
    }
    out
}

fn escape_text(text: &str, out: &mut String) {
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_control() && c != '\n' && c != '\t') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let skip = if rest.starts_with("\r\n") { 1 } else { sequence_len(rest) };
        if skip > 0 {
            rest = &rest[skip..];
            continue;
        }
        let mut chars = rest.chars();
        let control = chars.next().map_or(0, char::len_utf8);
        push_hex(&rest.as_bytes()[..control], out);
        rest = chars.as_str();
    }
    out.push_str(rest);
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
            let body = bytes[2..].iter().take_while(|b| (0x20..0x40).contains(*b)).count();
            match bytes.get(2 + body) {
                Some(0x40..=0x7e) => body + 3,
                _ => 0,
            }
        }
        // Operating system command (titles, links): up to BEL or ESC \ on the same line.
        Some(b']') => {
            let body = bytes[2..].iter().take(2_048).take_while(|b| !matches!(b, 0x07 | 0x1b | b'\n')).count();
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

/// At most `chars` characters on one line, whitespace folded, control characters gone, `…` where it was cut.
pub(super) fn one_line(text: &str, chars: usize) -> String {
    let mut out = String::new();
    let mut count = 0;
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if count > 0 {
            out.push(' ');
            count += 1;
        }
        out.push_str(word);
        count += word.chars().count();
        if count > chars {
            break;
        }
    }
    clip(&out, chars)
}

/// At most `chars` characters, the last one a `…` where something was cut.
pub(super) fn clip(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some(_) => text.chars().take(chars.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// The length of the longest start of `bytes` that does not end inside a character. Bytes that can start no
/// character count as whole.
pub(super) fn whole_chars(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(3);
    for at in (from..bytes.len()).rev() {
        if bytes[at] & 0b1100_0000 == 0b1000_0000 {
            continue;
        }
        return match std::str::from_utf8(&bytes[at..]) {
            Err(error) if error.error_len().is_none() => at,
            _ => bytes.len(),
        };
    }
    bytes.len()
}

/// `tool-output`: a chunk of a spooled output, at most `budget_chars` long with its header.
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
    // The header takes less than 100 characters; at least one character is given in any case.
    let most = limit_chars("tool-output").min(budget_chars).saturating_sub(100).max(4) as u64;
    let limit = limit.unwrap_or(CHUNK_BYTES).min(most).max(1);
    let unknown = || ToolError::Failed(format!("no output `spool:{number}` in this session"));
    let failed = |error| ToolError::Failed(format!("read `spool:{number}`: {error}"));
    // Up to three bytes before, in case the offset lies inside a character, and as many behind.
    let lead = offset.min(3);
    let (bytes, size) = spool.read(number, offset - lead, limit as usize + 6).map_err(failed)?.ok_or_else(unknown)?;
    let mut start = (lead as usize).min(bytes.len());
    while start > 0 && is_inside(&bytes, start) {
        start -= 1;
    }
    let end = (lead as usize).saturating_add(limit as usize).min(bytes.len()).max(start);
    let mut chunk = &bytes[start..end];
    if (offset - lead) + (end as u64) < size {
        let whole = whole_chars(chunk);
        // A limit below one character's length still gives that character, or nothing would ever move.
        let more = (end..=bytes.len()).find(|end| std::str::from_utf8(&bytes[start..*end]).is_ok());
        chunk = match (whole, more) {
            (0, Some(end)) => &bytes[start..end],
            (0, None) => chunk,
            (whole, _) => &chunk[..whole],
        };
    }
    let next = (offset - lead + start as u64 + chunk.len() as u64).min(size);
    let state = if next < size { "more available" } else { "end of output" };
    Ok(format!("output=spool:{number} size={size} next_offset={next} ({state})\n{}", escape(chunk)))
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_fits_is_unchanged_and_the_footer_names_lines_and_offset() {
        assert_eq!(cut("grep", "a\nb\n", 4, None), "a\nb\n");
        let full: String = (0..13_000).map(|n| format!("{:02}\n", n % 100)).collect();
        let text = cut("grep", &full, 1_800, Some(2));
        assert!(text.starts_with(&full[..1_800]));
        assert_eq!(
            &text[1_800..],
            "[truncated: 12,400 of 13,000 lines omitted; use tool-output {\"id\":\"spool:2\",\"offset\":1800} to read more]"
        );
    }

    #[test]
    fn a_command_keeps_three_quarters_of_head_and_a_quarter_of_tail() {
        let full: String = (0..9_999).map(|n| format!("line {n:04}\n")).chain(["[exit status 1]".into()]).collect();
        let text = cut("bash", &full, usize::MAX, Some(7));
        let (head, rest) = text.split_once("[...]\n").expect("a seam");
        let (tail, footer) = rest.split_once("[truncated: ").expect("a footer");
        assert!((22_400..=22_500).contains(&head.len()), "{}", head.len());
        assert!((7_400..=7_500).contains(&tail.len()), "{}", tail.len());
        assert!(head.starts_with("line 0000\n") && tail.starts_with("line ") && tail.ends_with("[exit status 1]\n"));
        assert!(footer.contains(&format!("\"offset\":{}", head.len())), "{footer}");
        let kept = head.lines().count() + tail.lines().count();
        assert!(footer.starts_with(&format!("{} of 10,000 lines omitted", thousands(10_000 - kept as u64))));
    }

    #[test]
    fn one_endless_line_is_cut_at_a_character_and_counted_in_characters() {
        let full = "ä".repeat(40_000);
        let text = cut("grep", &full, usize::MAX, Some(1));
        assert!(text.starts_with(&"ä".repeat(16_000)));
        assert!(text.ends_with(
            "\n[truncated: 24,000 of 40,000 characters omitted; use tool-output {\"id\":\"spool:1\",\"offset\":32000} to read more]"
        ));
        assert!(cut("grep", &full, 0, None).starts_with("[truncated: "));
    }

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
    fn one_line_has_no_control_characters_and_is_short() {
        assert_eq!(one_line("  cargo\n\ttest \x1b[1m ", 120), "cargo test [1m");
        assert_eq!(one_line(&"x".repeat(200), 120), format!("{}…", "x".repeat(119)));
    }

    fn spool_of(body: &[u8]) -> (tempfile::TempDir, Spool) {
        let dir = tempfile::tempdir().expect("a folder");
        let spool = Spool::new(dir.path().join("spool"));
        assert_eq!(spool.put(body).expect("a body"), 1);
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

    proptest! {
        #[test]
        fn a_cut_stays_within_its_budget(
            full in "([a-zä☃]{0,12}\n?){0,60}", budget in 0usize..300, shell: bool, spool in proptest::option::of(1u64..9)
        ) {
            let tool = if shell { "bash" } else { "grep" };
            let text = cut(tool, &full, budget, spool);
            let chars = |s: &str| s.chars().count();
            if chars(&full) <= budget {
                prop_assert_eq!(text, full);
            } else {
                let at = text.rfind("[truncated: ").expect("a footer");
                // One newline may stand between the text and the footer.
                prop_assert!(chars(&text[..at]) <= budget + 1, "{} > {budget}", chars(&text[..at]));
                prop_assert!(text.ends_with(']'));
                let head = text[..at].split(SEAM).next().unwrap_or("");
                prop_assert!(full.starts_with(head) || full.starts_with(head.trim_end_matches('\n')));
                if let Some(spool) = spool {
                    let named = format!("\"id\":\"spool:{spool}\",\"offset\":");
                    let offset = text.split_once(&named).expect("an offset").1;
                    let offset: usize = offset[..offset.find('}').expect("a brace")].parse().expect("a number");
                    prop_assert!(full.is_char_boundary(offset));
                    prop_assert_eq!(full[..offset].trim_end_matches('\n'), head.trim_end_matches('\n'));
                }
            }
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

        #[test]
        fn escaped_text_has_no_control_characters(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(!escape(&bytes).contains(|c: char| c.is_control() && c != '\n' && c != '\t'));
        }
    }
}
