//! What the model gets to see of an output: the whole of it as text, and that text cut to a budget. Pure.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use super::escape::{escape, needs_escape, raw_offset};
use crate::world::Secrets;

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
/// Stands between the head and the tail of a cut command output.
const SEAM: &str = "[...]\n";

/// The whole output of a tool: as the model may read it, and as it is kept. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whole {
    text: Arc<String>,
    /// The bytes that the text shows, where that is another thing.
    raw: Option<Bytes>,
    /// Its file is on the disk: a cut may name it.
    pub(super) filed: bool,
}

/// The text's bytes, shared.
struct TextBytes(Arc<String>);

impl AsRef<[u8]> for TextBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Whole {
    /// A text that has nothing to escape.
    pub fn of_text(text: String) -> Whole {
        Whole { text: Arc::new(text), raw: None, filed: false }
    }

    /// Captured bytes, which are escaped for the model and kept as they are.
    pub(super) fn of_bytes(bytes: Vec<u8>) -> Whole {
        match String::from_utf8(bytes) {
            Ok(text) if !text.contains(needs_escape) => Whole::of_text(text),
            Ok(text) => Whole::shown(text.into_bytes()),
            Err(error) => Whole::shown(error.into_bytes()),
        }
    }

    fn shown(bytes: Vec<u8>) -> Whole {
        Whole { text: Arc::new(escape(&bytes)), raw: Some(bytes.into()), filed: false }
    }

    /// The same with secrets replaced, in the text and in what is kept.
    pub(super) fn without(self, secrets: &Secrets) -> Whole {
        let clean = match &self.raw {
            Some(raw) => match secrets.redact(raw) {
                Cow::Owned(clean) => Some(Whole::of_bytes(clean)),
                Cow::Borrowed(_) => None,
            },
            None => None,
        };
        let clean = clean.unwrap_or(self);
        // A secret that only shows once it is escaped: then the text is what is kept.
        match secrets.redact_str(&clean.text) {
            Cow::Owned(text) => Whole::of_text(text),
            Cow::Borrowed(_) => clean,
        }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// How long that is which is kept of it.
    pub fn kept_bytes(&self) -> u64 {
        self.raw.as_ref().map_or(self.text.len(), Bytes::len) as u64
    }

    /// What is kept of it; nothing is copied.
    pub(super) fn bytes(&self) -> Bytes {
        match &self.raw {
            Some(raw) => raw.clone(),
            None => Bytes::from_owner(TextBytes(Arc::clone(&self.text))),
        }
    }

    /// Where in what is kept the text from `at` on begins.
    fn offset(&self, at: usize) -> usize {
        self.raw.as_ref().map_or(at, |raw| raw_offset(raw, at))
    }
}

/// The most characters that a tool's result may take, whatever the budget.
pub(super) fn limit_chars(tool: &str) -> usize {
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
/// `spool` is the id under which it is kept: the footer's offset counts the bytes of that. A command's footer also
/// names its file, once that is written.
pub fn cut(tool: &str, whole: &Whole, budget_chars: usize, spool: Option<u64>) -> String {
    let full = whole.text();
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
    out.push_str(&footer(whole, head_end, tail_start, spool));
    if let Some(id) = spool.filter(|_| whole.filed && tool == "bash") {
        out.push_str(&format!(" [whole output: spool/{id} in the session's folder]"));
    }
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

fn footer(whole: &Whole, head_end: usize, tail_start: usize, spool: Option<u64>) -> String {
    let full = whole.text();
    let omitted = &full[head_end..tail_start];
    let (gone, all, unit) = if at_line_start(full, head_end) && at_line_start(full, tail_start) {
        (omitted.lines().count(), full.lines().count(), "lines")
    } else {
        (omitted.chars().count(), full.chars().count(), "characters")
    };
    let (gone, all) = (thousands(gone as u64), thousands(all as u64));
    match spool {
        Some(id) => {
            let offset = whole.offset(head_end);
            format!(
                "[truncated: {gone} of {all} {unit} omitted; use tool-output {{\"id\":\"spool:{id}\",\"offset\":{offset}}} to read more]"
            )
        }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(tool: &str, full: &str, budget_chars: usize, spool: Option<u64>) -> String {
        super::cut(tool, &Whole::of_text(full.to_owned()), budget_chars, spool)
    }

    #[test]
    fn the_offset_counts_the_bytes_that_are_kept() {
        let line = b"\x1b[32mok\x1b[0m \x00\xff\r\n";
        let whole = Whole::of_bytes(line.repeat(1_000));
        assert_eq!(whole.text(), "ok \\x00\\xff\n".repeat(1_000));
        assert_eq!(whole.bytes(), line.repeat(1_000));
        let text = super::cut("grep", &whole, 120, Some(4));
        assert_eq!(
            text,
            format!(
                "{}[truncated: 990 of 1,000 lines omitted; use tool-output {{\"id\":\"spool:4\",\"offset\":{}}} to read more]",
                "ok \\x00\\xff\n".repeat(10),
                line.len() * 10
            )
        );
    }

    #[test]
    fn only_a_command_names_its_file_and_only_once_it_is_there() {
        let whole = Whole::of_text("line\n".repeat(100));
        let filed = Whole { filed: true, ..whole.clone() };
        let names = |tool, whole| {
            super::cut(tool, whole, 60, Some(3)).ends_with("[whole output: spool/3 in the session's folder]")
        };
        assert!(names("bash", &filed) && !names("bash", &whole) && !names("grep", &filed));
    }

    #[test]
    fn secrets_are_replaced_in_what_is_kept_too() {
        let secrets = Secrets::new([("KEY".to_owned(), "s3cr3t-value-long".to_owned())]);
        let whole = Whole::of_bytes(b"\x00 s3cr3t-value-long".to_vec()).without(&secrets);
        assert_eq!(whole.text(), "\\x00 \u{ab}secret:KEY\u{bb}");
        assert_eq!(whole.bytes(), "\0 \u{ab}secret:KEY\u{bb}".as_bytes());
        let whole = Whole::of_bytes(b"s3cr3t-\x1b[0mvalue-long".to_vec()).without(&secrets);
        assert_eq!(whole.bytes(), "\u{ab}secret:KEY\u{bb}".as_bytes(), "what shows it is not kept");
    }

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
    fn one_line_has_no_control_characters_and_is_short() {
        assert_eq!(one_line("  cargo\n\ttest \x1b[1m ", 120), "cargo test [1m");
        assert_eq!(one_line(&"x".repeat(200), 120), format!("{}…", "x".repeat(119)));
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
    }
}
