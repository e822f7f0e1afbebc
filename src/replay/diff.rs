//! Two texts side by side: the lines that differ with a few around them, and what the difference looks like.

use std::sync::LazyLock;

use regex::Regex;
use similar::{ChangeTag, TextDiff};

use super::finding::Guess;

/// Unchanged lines shown around a change.
const CONTEXT: usize = 2;
/// Most lines of a diff.
const MOST_LINES: usize = 40;
/// Characters of a line that are shown around the difference.
const MOST_CHARS: usize = 160;
/// Texts longer than this are compared around their first difference alone.
const MOST_BYTES: usize = 64 << 10;

/// The lines that differ, each with its sign.
pub fn diff(recorded: &str, now: &str) -> Vec<String> {
    let (recorded, now) = (around(recorded, now), around(now, recorded));
    let mut lines = Vec::new();
    let whole = TextDiff::from_lines(recorded, now);
    for (index, group) in whole.grouped_ops(CONTEXT).iter().enumerate() {
        if index > 0 {
            lines.push(" …".to_owned());
        }
        for change in group.iter().flat_map(|op| whole.iter_changes(op)) {
            let sign = match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            };
            lines.push(format!("{sign} {}", change.value().trim_end_matches('\n')));
        }
    }
    clip(&mut lines);
    if lines.len() > MOST_LINES {
        let more = lines.len() - MOST_LINES;
        lines.truncate(MOST_LINES);
        lines.push(format!(" … {more} more lines"));
    }
    lines
}

/// A long text from a little before where it parts from the other.
fn around<'a>(text: &'a str, other: &str) -> &'a str {
    if text.len().max(other.len()) <= MOST_BYTES {
        return text;
    }
    let same = common(text, other);
    let start = text.floor_char_boundary(same.saturating_sub(400));
    let start = text[..start].rfind('\n').filter(|at| same - at < 2_000).map_or(start, |at| at + 1);
    let end = text.floor_char_boundary((same + 2_000).min(text.len()));
    &text[start..end]
}

/// Bytes that two texts begin with alike.
fn common(one: &str, other: &str) -> usize {
    one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count()
}

/// Long lines are cut around where the first changed ones part.
fn clip(lines: &mut [String]) {
    let of = |sign: &str| lines.iter().find(|line| line.starts_with(sign)).cloned().unwrap_or_default();
    let (minus, plus) = (of("-"), of("+"));
    let parts = common(minus.get(1..).unwrap_or_default(), plus.get(1..).unwrap_or_default()) + 1;
    for line in lines {
        if line.chars().count() <= MOST_CHARS {
            continue;
        }
        let changed = line.starts_with(['-', '+']);
        let from = if changed { line.floor_char_boundary(parts.saturating_sub(MOST_CHARS / 2).max(1)) } else { 1 };
        let shown: String = line[from..].chars().take(MOST_CHARS).collect();
        let (before, after) = (if from > 1 { "…" } else { "" }, if from + shown.len() < line.len() { "…" } else { "" });
        *line = format!("{}{before}{shown}{after}", &line[..1]);
    }
}

static CLOCK: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(\.\d+)?Z?)?|\d\d:\d\d:\d\d(\.\d+)?|\b\d+(\.\d+)?(ms|s|m|h)\b")
});
static PATHS: LazyLock<Regex> = LazyLock::new(|| pattern(r"(/[A-Za-z0-9._@~+-]+){2,}/?"));
static IDS: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\b[0-9a-fA-F]{8,}\b|\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\bspool:\d+\b"));

fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap_or_else(|_| unreachable!("the patterns are constants, compiled by a test"))
}

/// What alone makes two texts differ, as far as it can be seen.
pub fn guess(recorded: &str, now: &str) -> Option<Guess> {
    for (pattern, guess) in [(&CLOCK, Guess::Clock), (&PATHS, Guess::Path), (&IDS, Guess::Id)] {
        if pattern.replace_all(recorded, "…") == pattern.replace_all(now, "…") {
            return Some(guess);
        }
    }
    let lines = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    (recorded != now && lines(recorded) == lines(now)).then_some(Guess::Ordering)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_stand_between_a_few_others() {
        let one = "a\nb\nc\nd\ne\nf\n";
        let two = "a\nb\nc\nX\ne\nf\n";
        assert_eq!(diff(one, two), ["  b", "  c", "- d", "+ X", "  e", "  f"]);
        assert!(diff(one, one).is_empty());
    }

    #[test]
    fn a_long_line_is_cut_around_its_difference() {
        let one = format!("{}one{}", "x".repeat(5_000), "y".repeat(5_000));
        let two = format!("{}two{}", "x".repeat(5_000), "y".repeat(5_000));
        let lines = diff(&one, &two);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("xone") && lines[1].contains("xtwo"), "{lines:?}");
        assert!(lines.iter().all(|line| line.chars().count() < 200));
    }

    #[test]
    fn long_texts_are_compared_where_they_part() {
        let long = "same line\n".repeat(20_000);
        let lines = diff(&format!("{long}one\n"), &format!("{long}two\n"));
        assert!(lines.contains(&"- one".to_owned()) && lines.contains(&"+ two".to_owned()), "{lines:?}");
    }

    #[test]
    fn the_cause_is_guessed() {
        assert_eq!(guess("at 2026-11-29 x", "at 2026-11-30 x"), Some(Guess::Clock));
        assert_eq!(guess("in /tmp/a/b: no", "in /home/x/b: no"), Some(Guess::Path));
        assert_eq!(guess("id 0123456789", "id 9876543210"), Some(Guess::Id));
        assert_eq!(guess("a\nb", "b\na"), Some(Guess::Ordering));
        assert_eq!(guess("a", "b"), None);
    }
}
