//! Cutting texts at character borders.

/// At most `chars` characters on one line; the last is a `…` where something was cut.
pub fn clip(text: &str, chars: usize) -> String {
    let mut out = String::new();
    for (count, c) in text.chars().enumerate() {
        if count + 1 >= chars && text.chars().nth(chars).is_some() {
            out.push('…');
            break;
        }
        out.push(if c.is_whitespace() || c.is_control() { ' ' } else { c });
    }
    out
}

/// The first and last characters of a text that is longer than `chars`, half and half, with a note between.
pub fn head_and_tail(text: &str, chars: usize) -> String {
    let all = text.chars().count();
    if all <= chars {
        return text.to_owned();
    }
    let half = chars / 2;
    let head = text.char_indices().nth(half).map_or(text.len(), |(at, _)| at);
    let tail = text.char_indices().rev().nth(half.saturating_sub(1)).map_or(0, |(at, _)| at);
    format!("{}\n[… {} characters left out …]\n{}", &text[..head], all - 2 * half, &text[tail.max(head)..])
}

/// The first characters, and a note when that is not all.
pub fn head(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}\n[… cut]", &text[..at]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_fall_between_characters_and_say_so() {
        assert_eq!(clip("a\nb", 10), "a b");
        assert_eq!(clip("äöüß", 3), "äö…");
        assert_eq!(clip("äöü", 3), "äöü");
        assert_eq!(head_and_tail("äöüßä", 2), "ä\n[… 3 characters left out …]\nä");
        assert_eq!(head_and_tail("äö", 2), "äö");
        assert_eq!(head("äöü", 2), "äö\n[… cut]");
    }
}
