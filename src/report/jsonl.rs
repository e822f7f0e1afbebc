//! JSON for stdout: one value, one line, and nothing in it that a terminal or a CI system would obey.

use std::fmt::Write as _;

use serde::Serialize;

use super::clean::break_hashes;

/// A value as one line of JSON without its newline. Characters that a terminal or a CI system would act on are
/// written as escapes: the value that a reader gets is the same.
pub(super) fn line<T: Serialize>(value: &T) -> Result<String, serde_json::Error> {
    let json = serde_json::to_string(value)?;
    // Number signs and control characters stand in JSON only inside strings, where an escape may stand for them.
    let json = if json.contains("##") { break_hashes(&json, "\0").replace("\0#", "\\u0023") } else { json };
    if !json.contains(is_risky) {
        return Ok(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_risky(c) {
            // Writing to a `String` cannot fail.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    Ok(out)
}

/// DEL, C1 and the Unicode line ends; C0 is escaped already.
fn is_risky(c: char) -> bool {
    matches!(c, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_line_is_safe_to_print_and_reads_back_the_same() {
        let text = "a\n\x1b[31m\u{9b}31m\u{7f}\u{2028}##[error]x \\##vso[y] ## Title 🦀";
        let line = super::line(&text).expect("a text serializes");
        assert_eq!(line, r#""a\n\u001b[31m\u009b31m\u007f\u2028#\u0023[error]x \\#\u0023vso[y] ## Title 🦀""#);
        assert_eq!(serde_json::from_str::<String>(&line).expect("it is JSON"), text);
    }
}
