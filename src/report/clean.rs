//! Makes foreign text harmless: no control sequence reaches a terminal, no workflow command reaches a CI system.

/// Text without control sequences (CSI, OSC and the other strings with either terminator, C0, C1, a lone ESC,
/// backspaces, marks that turn the reading direction), and with CI workflow commands broken visibly: `::error` at
/// the start of a line becomes `: :error`, `##[error]` anywhere becomes `# #[error]`. Newlines and tabs stay; a
/// lone carriage return is a newline, because a CI system reads it as one.
pub fn clean(text: &str) -> String {
    break_commands(&strip(text))
}

/// The same on one line: its lines joined by single spaces, tabs as spaces.
pub fn clean_line(text: &str) -> String {
    let stripped = strip(text).replace('\t', " ");
    let lines: Vec<&str> = stripped.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    break_commands(&lines.join(" "))
}

/// `text` with `mark` put between the two number signs of everything that a CI system could take for a command
/// (`##[…`, `##vso[…`, `##teamcity[…`); they are recognised anywhere in a line.
pub(super) fn break_hashes(text: &str, mark: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("##") {
        let (before, from) = rest.split_at(at + 1);
        out.push_str(before);
        let word = from[1..].trim_start_matches(|c: char| c.is_ascii_alphabetic());
        if word.starts_with('[') {
            out.push_str(mark);
        }
        rest = from;
    }
    out.push_str(rest);
    out
}

fn break_commands(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let command = line.trim_start_matches(|c: char| c.is_whitespace() || is_invisible(c));
        match command.strip_prefix("::") {
            Some(rest) => {
                out.push_str(&line[..line.len() - command.len()]);
                out.push_str(": :");
                out.push_str(rest);
            }
            None => out.push_str(line),
        }
    }
    break_hashes(&out, " ")
}

/// Nothing is left that a terminal could take for more than a character.
fn strip(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\x1b' => rest = after_escape(rest),
            '\u{9b}' => rest = after_csi(rest),
            c if opens_string(c) => rest = after_string(rest),
            '\r' if rest.starts_with('\n') => {}
            '\r' | '\u{2028}' | '\u{2029}' => out.push('\n'),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || turns_direction(c) => {}
            c => out.push(c),
        }
    }
    out
}

fn after_escape(rest: &str) -> &str {
    let Some(c) = rest.chars().next() else { return rest };
    match c {
        '[' => after_csi(&rest[1..]),
        ']' | 'P' | 'X' | '^' | '_' => after_string(&rest[1..]),
        ' '..='/' => {
            let end = rest.trim_start_matches(|c| matches!(c, ' '..='/'));
            if end.starts_with(|c| matches!(c, '0'..='~')) { &end[1..] } else { end }
        }
        '0'..='~' => &rest[1..],
        // A lone ESC: what follows stands for itself.
        _ => rest,
    }
}

fn after_csi(rest: &str) -> &str {
    let end = rest.trim_start_matches(|c| matches!(c, '0'..='?')).trim_start_matches(|c| matches!(c, ' '..='/'));
    if end.starts_with(|c| matches!(c, '@'..='~')) { &end[1..] } else { end }
}

/// After a control string (OSC, DCS, SOS, PM, APC). One without an end on its line loses only its introducer, so
/// that nobody can hide the rest of a text behind it.
fn after_string(rest: &str) -> &str {
    for (at, c) in rest.char_indices() {
        match c {
            '\x07' | '\x18' | '\x1a' | '\u{9c}' => return &rest[at + c.len_utf8()..],
            '\x1b' => return rest[at + 1..].strip_prefix('\\').unwrap_or(rest),
            '\n' | '\r' | '\u{9b}' => return rest,
            c if opens_string(c) => return rest,
            _ => {}
        }
    }
    rest
}

fn opens_string(c: char) -> bool {
    matches!(c, '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}')
}

/// Marks that make text read in another order than it stands.
fn turns_direction(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Nothing to see, though no white space either; some readers skip them at the start of a line.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn control_sequences_are_gone_and_their_text_stays() {
        for (text, cleaned) in [
            ("\x1b[1;31mred\x1b[0m", "red"),
            ("\u{9b}31mred\u{9b}m", "red"),
            ("\x1b]0;title\x07after", "after"),
            ("\x1b]0;title\x1b\\after", "after"),
            ("\u{9d}0;title\u{9c}after", "after"),
            ("\x1b]8;;http://x\x07link\x1b]8;;\x07", "link"),
            ("\x1bPq#0\x1b\\dcs", "dcs"),
            ("\x1b(Bcharset", "charset"),
            ("\x1b7saved\x1b8", "saved"),
            ("lone \x1b", "lone "),
            ("lone \x1bé", "lone é"),
            ("a\x08\x08b\x00\x7f\u{85}c", "abc"),
            ("10%\r20%\r\ndone", "10%\n20%\ndone"),
            ("tab\tstays", "tab\tstays"),
            ("ab\u{202e}cd\u{2066}", "abcd"),
            ("🦀 👩‍💻 日本", "🦀 👩‍💻 日本"),
            // without an end, only the introducer goes: nothing can be hidden
            ("\x1b]0;the rest stays\nnext", "0;the rest stays\nnext"),
            ("\x1b[12", ""),
            ("\x1b[12é", "é"),
        ] {
            assert_eq!(clean(text), cleaned, "{text:?}");
        }
    }

    #[test]
    fn workflow_commands_are_broken_visibly() {
        for (text, cleaned) in [
            ("::error file=a::x", ": :error file=a::x"),
            (" \t\u{a0}::add-mask::x", " \t\u{a0}: :add-mask::x"),
            ("\u{feff}::error::x", "\u{feff}: :error::x"),
            ("fine\n  ::warning::y\nfine", "fine\n  : :warning::y\nfine"),
            ("\r::error::x", "\n: :error::x"),
            (":\x1b[0m:error::x", ": :error::x"),
            (":::x", ": ::x"),
            ("std::vec::Vec", "std::vec::Vec"),
            ("##[error]x", "# #[error]x"),
            ("in the middle ##[group]x", "in the middle # #[group]x"),
            ("##vso[task.setvariable]", "# #vso[task.setvariable]"),
            ("#\x08#teamcity[x]", "# #teamcity[x]"),
            ("####[x", "### #[x"),
            ("## Title [link]", "## Title [link]"),
        ] {
            assert_eq!(clean(text), cleaned, "{text:?}");
        }
    }

    #[test]
    fn one_line_is_one_line() {
        assert_eq!(clean_line("  a\n\n\tb\r\nc  d\r"), "a b c  d");
        assert_eq!(clean_line("\n::error::x"), ": :error::x");
        assert_eq!(clean_line("a\n::error::x"), "a ::error::x");
        assert_eq!(clean_line("\u{b}\u{c}"), "");
    }

    proptest! {
        #[test]
        fn nothing_dangerous_is_left(
            text in proptest::collection::vec(
                proptest::sample::select(vec![
                    "\x1b", "[", "]", "0", ";", "m", "\x07", "\\", "\u{9b}", "\u{9d}", "\u{9c}", "\r", "\n", " ", ":",
                    "::", "#", "##", "error", "\x08", "\u{202e}", "é", "\u{feff}", "\t",
                ]),
                0..40,
            )
        ) {
            let text: String = text.concat();
            let cleaned = clean(&text);
            prop_assert!(!cleaned.chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
            for line in cleaned.split('\n') {
                let start = line.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
                prop_assert!(!start.starts_with("::"), "{cleaned:?}");
                prop_assert!(!line.contains("##[") && !line.contains("##error["), "{cleaned:?}");
            }
            prop_assert_eq!(clean(&cleaned), cleaned.clone());
            let line = clean_line(&text);
            prop_assert!(!line.chars().any(char::is_control) && !line.trim_start().starts_with("::"), "{line:?}");
        }
    }
}
