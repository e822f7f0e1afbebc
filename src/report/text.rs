//! Small pure pieces: styled lines and their clipping, durations, money, percentages, shell quoting.

use std::time::Duration;

use unicode_width::UnicodeWidthChar;

use crate::event::Micros;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Dim,
    Bold,
    Green,
    Yellow,
    Red,
}

impl Style {
    pub(super) const fn code(self) -> &'static str {
        match self {
            Style::Plain => "",
            Style::Dim => "\x1b[2m",
            Style::Bold => "\x1b[1m",
            Style::Green => "\x1b[32m",
            Style::Yellow => "\x1b[33m",
            Style::Red => "\x1b[31m",
        }
    }
}

pub(super) const RESET: &str = "\x1b[0m";

/// One line of output in pieces, each with its style. The text of a piece is clean and has no newline.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Line {
    pieces: Vec<(Style, String)>,
    whole: bool,
}

impl Line {
    pub(super) fn plain(self, text: impl Into<String>) -> Line {
        self.styled(Style::Plain, text)
    }

    pub(super) fn styled(mut self, style: Style, text: impl Into<String>) -> Line {
        self.pieces.push((style, text.into()));
        self
    }

    /// Never to be clipped: it says what nobody may miss, or what stands nowhere else on the screen.
    pub(super) fn whole(mut self) -> Line {
        self.whole = true;
        self
    }

    /// This line, and the other one behind it.
    pub(super) fn then(mut self, other: Line) -> Line {
        self.pieces.extend(other.pieces);
        self.whole |= other.whole;
        self
    }

    /// The line as text, clipped to `width` columns (its last one then is `…`) unless it is a
    /// whole one.
    pub(super) fn render(&self, colour: bool, width: Option<usize>) -> String {
        let all: usize = self.pieces.iter().flat_map(|(_, text)| text.chars()).map(columns).sum();
        let mut room = match width {
            Some(width) if all > width && !self.whole => Some(width.saturating_sub(1)),
            _ => None,
        };
        let mut out = String::new();
        for (style, text) in &self.pieces {
            let kept = room.as_mut().map_or(text.as_str(), |room| clip(text, room));
            if colour && *style != Style::Plain && !kept.is_empty() {
                out.push_str(style.code());
                out.push_str(kept);
                out.push_str(RESET);
            } else {
                out.push_str(kept);
            }
            if kept.len() < text.len() {
                break;
            }
        }
        if room.is_some() {
            out.push('…');
        }
        out
    }
}

/// The longest start of `text` that fits into `room` columns, which it uses up.
fn clip<'a>(text: &'a str, room: &mut usize) -> &'a str {
    for (at, c) in text.char_indices() {
        match room.checked_sub(columns(c)) {
            Some(left) => *room = left,
            None => return &text[..at],
        }
    }
    text
}

/// Columns of a character. The selector that makes the one before it a picture also makes it wide.
fn columns(c: char) -> usize {
    if c == '\u{fe0f}' { 1 } else { c.width().unwrap_or(0) }
}

/// `35ms`, `4.2s`, `4s`, `42s`, `1m30s`, `10m`, `2h`, `27h05m`.
pub fn duration_ms(ms: u64) -> String {
    let tenths = ms.saturating_add(50) / 100;
    match tenths {
        _ if ms < 1_000 => format!("{ms}ms"),
        0..100 if !tenths.is_multiple_of(10) => format!("{}.{}s", tenths / 10, tenths % 10),
        _ => whole_seconds(ms.saturating_add(500) / 1_000),
    }
}

/// An age, in whole seconds that have passed.
pub(super) fn age(age: Duration) -> String {
    whole_seconds(age.as_secs())
}

fn whole_seconds(seconds: u64) -> String {
    let (hours, minutes, rest) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes, rest) {
        (0, 0, s) => format!("{s}s"),
        (0, m, 0) => format!("{m}m"),
        (0, m, s) => format!("{m}m{s:02}s"),
        (h, 0, _) => format!("{h}h"),
        (h, m, _) => format!("{h}h{m:02}m"),
    }
}

/// `$0.31`, and with a limit `$0.31/5.00`.
pub(super) fn money(cost: Micros, limit: Option<Micros>) -> String {
    limit.map_or_else(|| format!("${cost}"), |limit| format!("${cost}/{limit}"))
}

/// Published dollars, back as what they were made from.
pub(super) fn dollars(amount: f64) -> Micros {
    // A float-to-integer cast saturates, and NaN gives 0.
    Micros((amount * 1_000_000.0).round() as u64)
}

/// How full something is, in whole percent; nothing at all is as good as full.
pub(super) fn percent(part: u64, whole: u64) -> u64 {
    if whole == 0 { 100 } else { u64::try_from(u128::from(part) * 100 / u128::from(whole)).unwrap_or(u64::MAX) }
}

/// The colour of a fill: yellow from 75 %, red from 90 %.
pub(super) const fn fill_style(percent: u64) -> Style {
    match percent {
        0..75 => Style::Plain,
        75..90 => Style::Yellow,
        _ => Style::Red,
    }
}

/// `1 step`, `7 steps`.
pub fn count(n: u64, noun: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", thousands(n))
}

/// `1,234,567`.
pub(super) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// An argument list as one line that a shell reads back as the same list.
pub fn shell_line(argv: &[String]) -> String {
    let words: Vec<String> = argv.iter().map(|word| shell_word(word)).collect();
    words.join(" ")
}

fn shell_word(word: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(is_safe) {
        word.to_owned()
    } else if super::clean_line(word) == word {
        format!("'{}'", word.replace('\'', r"'\''"))
    } else {
        // What would not survive on a terminal or in a CI log is spelled in bytes.
        let mut out = String::from("$'");
        for byte in word.bytes() {
            match byte {
                b'\'' | b'\\' => out.extend(['\\', char::from(byte)]),
                b' '..=b'~' if byte != b'#' => out.push(char::from(byte)),
                _ => out.push_str(&format!("\\x{byte:02x}")),
            }
        }
        out.push('\'');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short_and_round_to_what_they_show() {
        for (ms, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (4_000, "4s"),
            (4_240, "4.2s"),
            (9_949, "9.9s"),
            (8_960, "9s"),
            (9_960, "10s"),
            (59_499, "59s"),
            (59_600, "1m"),
            (90_000, "1m30s"),
            (252_000, "4m12s"),
            (600_000, "10m"),
            (3_600_000, "1h"),
            (7_200_000, "2h"),
            (3_900_000, "1h05m"),
            (97_500_000, "27h05m"),
        ] {
            assert_eq!(duration_ms(ms), text, "{ms}");
        }
        assert_eq!(age(Duration::from_millis(90_999)), "1m30s");
    }

    #[test]
    fn a_line_is_clipped_by_columns_not_by_characters() {
        let line = Line::default().plain("ab").styled(Style::Green, "日本語").plain(" end");
        assert_eq!(line.render(false, None), "ab日本語 end");
        assert_eq!(line.render(false, Some(12)), "ab日本語 end");
        assert_eq!(line.render(false, Some(11)), "ab日本語 e…");
        assert_eq!(line.render(false, Some(6)), "ab日…");
        assert_eq!(line.render(true, Some(6)), "ab\x1b[32m日\x1b[0m…");
        assert_eq!(line.render(false, Some(2)), "a…");
        assert_eq!(line.render(false, Some(1)), "…");
        assert_eq!(Line::default().plain("x ").then(line.whole()).render(false, Some(2)), "x ab日本語 end");
    }

    #[test]
    fn money_percent_and_counts() {
        assert_eq!(money(Micros(310_000), Some(Micros(5_000_000))), "$0.31/5.00");
        assert_eq!(money(Micros(310_000), None), "$0.31");
        assert_eq!(dollars(0.31), Micros(310_000));
        assert_eq!(dollars(f64::NAN), Micros(0));
        assert_eq!((percent(42, 100), percent(199, 200), percent(1, 0)), (42, 99, 100));
        assert_eq!((fill_style(74), fill_style(75)), (Style::Plain, Style::Yellow));
        assert_eq!((fill_style(89), fill_style(90)), (Style::Yellow, Style::Red));
        assert_eq!((count(1, "step"), count(1_234_567, "token")), ("1 step".into(), "1,234,567 tokens".into()));
    }

    #[test]
    fn a_shell_reads_back_the_same_words() {
        let argv = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(shell_line(&argv(&["spettro", "run", "--resume", "session-1"])), "spettro run --resume session-1");
        assert_eq!(shell_line(&argv(&["a b", "", "it's", "$HOME"])), r"'a b' '' 'it'\''s' '$HOME'");
        assert_eq!(shell_line(&argv(&["a\n\x1b[31m'b\\é"])), r"$'a\x0a\x1b[31m\'b\\\xc3\xa9'");
    }
}
