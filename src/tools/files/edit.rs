//! `file-edit`: exact replacements, all or none.

use std::collections::BTreeMap;

use serde_json::Value;
use similar::TextDiff;

use super::path::{Access, File, sha256};
use super::read::numbered;
use crate::tools::args::Args;
use crate::tools::dispatch::{Done, Place};
use crate::tools::error::ToolError;
use crate::tools::escape::escape;
use crate::tools::output::thousands;

/// Larger changes are answered without a diff.
const DIFF_BYTES: usize = 64 << 10;
/// Most lines of a diff that are shown.
const DIFF_LINES: usize = 80;
/// A place is shown as a near miss from this likeness on.
const NEAR: f64 = 0.4;
const NEAR_LINES: usize = 12;
/// How many lines of the file are searched for a near miss, and how many of the text decide.
const NEAR_FILE_LINES: usize = 20_000;
const NEAR_TEXT_LINES: usize = 10;
/// Edits of larger files are answered without a diff.
const DIFF_FILE_BYTES: usize = 4 << 20;

#[derive(Debug, Clone, Copy)]
struct Edit<'a> {
    old: &'a str,
    new: &'a str,
    all: bool,
}

pub(in crate::tools) fn edit(at: Place<'_>, args: &Args, marks: &BTreeMap<String, String>) -> Result<Done, ToolError> {
    let edits = edits_of(args)?;
    let file = File::at(&at.guard(), args.required("path")?, Access::Write)?;
    let before = file.content()?;
    let (after, count) = apply(&before, &edits)
        .map_err(|text| ToolError::Failed(format!("{}: {text}; nothing was changed", file.label)))?;
    if let Some(expected) = args.number("expected_replacements").filter(|expected| *expected != count) {
        return Err(ToolError::Failed(format!(
            "{}: {count} places would be replaced, {expected} were expected; nothing was changed",
            file.label
        )));
    }
    if after == before {
        return Err(ToolError::Failed(format!("{}: the edits change nothing", file.label)));
    }
    file.replace(&after)?;
    // The mark moves on only with a file that was known as it stood.
    let known = marks.get(&file.shown) == Some(&sha256(&before));
    let places = if count == 1 { "place" } else { "places" };
    let text = format!("edited {}: {} {places}\n{}", file.label, thousands(count), diff(&before, &after));
    Ok(Done {
        marks: known.then(|| file.mark(&after)).into_iter().collect(),
        changed: vec![file.shown],
        ..Done::ok(text.trim_end().to_owned())
    })
}

/// The list, or the flat form of a single edit; never both.
fn edits_of(args: &Args) -> Result<Vec<Edit<'_>>, ToolError> {
    let flat = args.has("old_string") || args.has("new_string") || args.has("replace_all");
    let Some(list) = args.list("edits") else {
        let (old, new) = (args.required("old_string")?, args.required("new_string")?);
        return Ok(vec![Edit { old, new, all: args.flag("replace_all") }]);
    };
    if flat {
        return Err(ToolError::argument("edits", "does not go with old_string, new_string or replace_all beside it"));
    }
    // The schema has checked that both texts are there.
    Ok(list.iter().map(edit_of).collect())
}

fn edit_of(edit: &Value) -> Edit<'_> {
    let text = |name: &str| edit.get(name).and_then(Value::as_str).unwrap_or_default();
    Edit {
        old: text("old_string"),
        new: text("new_string"),
        all: edit.get("replace_all").and_then(Value::as_bool).unwrap_or(false),
    }
}

/// The content after all edits and the number of places replaced, or what is wrong with which edit.
fn apply(content: &[u8], edits: &[Edit<'_>]) -> Result<(Vec<u8>, u64), String> {
    let mut now = content.to_owned();
    let mut count = 0;
    for (i, edit) in edits.iter().enumerate() {
        let name = if edits.len() == 1 { "`old_string`".to_owned() } else { format!("`edits[{i}].old_string`") };
        if edit.old.is_empty() {
            return Err(format!("{name} is empty"));
        }
        if edit.old == edit.new {
            return Err(format!("{name} and its new_string are the same"));
        }
        let (old, new) = with_line_ends(&now, edit);
        let places = find(&now, &old, edit.all);
        match places.len() {
            0 => return Err(format!("{name} was not found{}", near_miss(&now, edit.old))),
            1 => {}
            n if !edit.all => {
                let lines: Vec<String> = places.iter().take(5).map(|at| line_of(&now, *at).to_string()).collect();
                let more = if n > 5 { ", …" } else { "" };
                return Err(format!(
                    "{name} is there {n} times (lines {}{more}): add context to make it unique, or set replace_all",
                    lines.join(", ")
                ));
            }
            _ => {}
        }
        count += places.len() as u64;
        now = replaced(&now, &places, old.len(), &new);
    }
    if content.ends_with(b"\n") && !now.is_empty() && !now.ends_with(b"\n") {
        let end: &[u8] = if content.ends_with(b"\r\n") { b"\r\n" } else { b"\n" };
        now.extend_from_slice(end);
    }
    Ok((now, count))
}

/// Both texts of an edit with the line ends of the file: those that most of its lines have, unless the text is there
/// exactly as written.
fn with_line_ends(content: &[u8], edit: &Edit<'_>) -> (Vec<u8>, Vec<u8>) {
    let lines = content.iter().filter(|b| **b == b'\n').count();
    let crlf = content.windows(2).filter(|pair| pair == b"\r\n").count();
    let unix = |text: &str| text.replace("\r\n", "\n");
    let convert = |text: &str| if crlf * 2 > lines { unix(text).replace('\n', "\r\n") } else { unix(text) };
    let converted = convert(edit.old).into_bytes();
    if converted != edit.old.as_bytes() && find(content, &converted, true).is_empty() {
        // Not there with the file's usual line ends; in a mixed file it may be there as written.
        return (edit.old.as_bytes().to_vec(), edit.new.as_bytes().to_vec());
    }
    (converted, convert(edit.new).into_bytes())
}

/// Where a text stands: apart from each other to replace all, else every place, overlapping ones too.
fn find(content: &[u8], text: &[u8], apart: bool) -> Vec<usize> {
    let mut places = Vec::new();
    let (Some(first), Some(last)) = (text.first(), content.len().checked_sub(text.len())) else { return places };
    let mut at = 0;
    while at <= last {
        let Some(skip) = content[at..=last].iter().position(|b| b == first) else { break };
        at += skip;
        if content[at..].starts_with(text) {
            places.push(at);
            at += if apart { text.len() } else { 1 };
        } else {
            at += 1;
        }
    }
    places
}

fn replaced(content: &[u8], places: &[usize], old_len: usize, new: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + places.len() * new.len());
    let mut from = 0;
    for at in places {
        out.extend_from_slice(&content[from..*at]);
        out.extend_from_slice(new);
        from = at + old_len;
    }
    out.extend_from_slice(&content[from..]);
    out
}

fn line_of(content: &[u8], at: usize) -> usize {
    content[..at].iter().filter(|b| **b == b'\n').count() + 1
}

/// A short unified diff without its header; empty when the change is too large to show.
fn diff(before: &[u8], after: &[u8]) -> String {
    if before.len().max(after.len()) > DIFF_FILE_BYTES {
        return "[the file is too large for a diff]".into();
    }
    let start = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let end = before[start..].iter().rev().zip(after[start..].iter().rev()).take_while(|(a, b)| a == b).count();
    if before.len().max(after.len()) - start - end > DIFF_BYTES {
        return "[the change is too large to show]".into();
    }
    let (before, after) = (escape(before), escape(after));
    let text =
        TextDiff::from_lines(&before, &after).unified_diff().context_radius(2).missing_newline_hint(false).to_string();
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() <= DIFF_LINES {
        return text;
    }
    let more = lines.len() - DIFF_LINES;
    format!("{}\n[{} more lines of the diff]", lines[..DIFF_LINES].join("\n"), thousands(more as u64))
}

/// Where in the file something most like the text stands, as a sentence and numbered lines.
fn near_miss(content: &[u8], text: &str) -> String {
    let lines: Vec<&[u8]> = content.split_inclusive(|b| *b == b'\n').take(NEAR_FILE_LINES).collect();
    let wanted: Vec<Vec<u8>> = text.lines().map(|line| line.trim().as_bytes().to_vec()).collect();
    let trimmed: Vec<&[u8]> = lines.iter().map(|line| line.trim_ascii()).collect();
    let height = wanted.len().clamp(1, lines.len().max(1));
    let score = |start: usize| -> f64 {
        let pairs = wanted.iter().zip(&trimmed[start..]).take(NEAR_TEXT_LINES);
        let sum: f64 = pairs.map(|(a, b)| likeness(a, b)).sum();
        sum / wanted.len().min(NEAR_TEXT_LINES) as f64
    };
    let mut best = (0.0, 0);
    for start in 0..=trimmed.len().saturating_sub(height) {
        // The first line decides whether the rest is worth comparing; a text that begins otherwise is no near miss.
        if trimmed.get(start).zip(wanted.first()).is_none_or(|(have, want)| likeness(want, have) < NEAR / 2.0) {
            continue;
        }
        let likeness = score(start);
        if likeness > best.0 {
            best = (likeness, start);
        }
    }
    let (likeness, start) = best;
    if likeness < NEAR {
        return String::new();
    }
    let only_space = wanted.iter().zip(&trimmed[start..]).all(|(a, b)| a == b) && wanted.len() <= lines.len() - start;
    let how = if only_space { "; it differs only in white space" } else { "" };
    let shown: String = (start..start + height.min(NEAR_LINES)).map(|at| numbered(at as u64 + 1, lines[at])).collect();
    format!(" (the closest place is line {}{how}):\n{}", start + 1, shown.trim_end_matches('\n'))
}

/// How much two lines have in common, from 0 to 1: the share of their pairs of neighbouring bytes that both have.
fn likeness(a: &[u8], b: &[u8]) -> f64 {
    if a == b {
        return 1.0;
    }
    let pairs = |line: &[u8]| {
        let mut pairs: Vec<[u8; 2]> = line.windows(2).take(400).map(|pair| [pair[0], pair[1]]).collect();
        pairs.sort_unstable();
        pairs
    };
    let (a, b) = (pairs(a), pairs(b));
    let (mut i, mut j, mut common) = (0, 0, 0);
    while i < a.len() && j < b.len() {
        match a[i].cmp(&b[j]) {
            std::cmp::Ordering::Less => i += 1,
            std::cmp::Ordering::Greater => j += 1,
            std::cmp::Ordering::Equal => {
                (i, j, common) = (i + 1, j + 1, common + 1);
            }
        }
    }
    if a.is_empty() || b.is_empty() { 0.0 } else { 2.0 * f64::from(common) / (a.len() + b.len()) as f64 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one<'a>(old: &'a str, new: &'a str) -> Edit<'a> {
        Edit { old, new, all: false }
    }

    fn edited(content: &str, edits: &[Edit<'_>]) -> String {
        String::from_utf8(apply(content.as_bytes(), edits).expect("edits that hold").0).expect("UTF-8")
    }

    fn refused(content: &str, edits: &[Edit<'_>]) -> String {
        apply(content.as_bytes(), edits).expect_err("edits that do not hold")
    }

    #[test]
    fn edits_apply_in_order_and_each_must_be_unique() {
        assert_eq!(edited("a b c\n", &[one("a", "x"), one("x b", "y")]), "y c\n");
        let text = refused("a\nb\na\n", &[one("b", "c"), one("a", "z")]);
        assert!(text.starts_with("`edits[1].old_string` is there 2 times (lines 1, 3)"), "{text}");
        assert!(refused("aaa", &[one("aa", "b")]).contains("2 times"));
        let (after, count) = apply(b"aaaa", &[Edit { old: "aa", new: "b", all: true }]).expect("fine");
        assert_eq!((after.as_slice(), count), (&b"bb"[..], 2));
        assert!(refused("a", &[one("a", "a")]).contains("the same"));
    }

    #[test]
    fn line_ends_and_the_final_newline_are_kept() {
        assert_eq!(edited("a\r\nb\r\nc\r\n", &[one("a\nb", "x\ny\nz")]), "x\r\ny\r\nz\r\nc\r\n");
        assert_eq!(edited("a\r\nb\r\n", &[one("b", "c\nd")]), "a\r\nc\r\nd\r\n");
        assert_eq!(edited("a\nb\n", &[one("a\r\nb", "c\r\nd")]), "c\nd\n");
        assert_eq!(edited("a\nb\n", &[one("b\n", "c")]), "a\nc\n");
        assert_eq!(edited("a\r\nb\r\n", &[one("b\n", "c")]), "a\r\nc\r\n");
        assert_eq!(edited("a\nb", &[one("b", "c")]), "a\nc");
        assert_eq!(edited("a\n", &[one("a\n", "")]), "");
        // Mixed: most lines are \r\n, the place is not.
        assert_eq!(edited("1\r\n2\r\n3\r\na\nb\n", &[one("a\nb", "c\nd")]), "1\r\n2\r\n3\r\nc\nd\n");
    }

    #[test]
    fn a_near_miss_shows_the_closest_place() {
        let file = "fn main() {\n    let x = 1;\n    let y = 2;\n}\n";
        let text = refused(file, &[one("let x = 1;\n  let y = 2;", "z")]);
        assert!(text.contains("line 2; it differs only in white space"), "{text}");
        assert!(text.ends_with("     2\t    let x = 1;\n     3\t    let y = 2;"), "{text}");
        let text = refused(file, &[one("    let y = 3;", "z")]);
        assert!(text.contains("closest place is line 3)") && !text.contains("white space"), "{text}");
        assert_eq!(refused(file, &[one("unrelated", "z")]), "`old_string` was not found");
        assert_eq!(refused("", &[one("x", "z")]), "`old_string` was not found");
    }

    #[test]
    fn the_answer_is_a_short_diff() {
        assert_eq!(diff(b"1\n2\n3\n4\n5\n6\n", b"1\n2\n3\nX\n5\n6\n"), "@@ -2,5 +2,5 @@\n 2\n 3\n-4\n+X\n 5\n 6\n");
        let long: String = (0..300).map(|n| format!("{n}\n")).collect();
        let text = diff(b"", long.as_bytes());
        assert!(text.ends_with("\n[221 more lines of the diff]"), "{}", &text[text.len() - 60..]);
        let huge = "x\n".repeat(100_000);
        assert_eq!(diff(b"", huge.as_bytes()), "[the change is too large to show]");
    }

    proptest! {
        #[test]
        fn replace_all_agrees_with_the_standard_library(content in "[ab\n]{0,40}", old in "[ab]{1,3}", new in "[c]{0,3}") {
            let expected = content.replace(&old, &new);
            let newline = content.ends_with('\n');
            match apply(content.as_bytes(), &[Edit { old: &old, new: &new, all: true }]) {
                Ok((after, count)) => {
                    prop_assert_eq!(count as usize, content.matches(&old).count());
                    prop_assert_eq!(String::from_utf8(after).expect("UTF-8"), expected);
                }
                Err(_) => prop_assert!(!content.contains(&old)),
            }
            prop_assert!(!newline || content.ends_with('\n'));
        }
    }
}
