//! Secrets in every form, at once and in pieces, in texts and in paths.

use proptest::prelude::*;

use super::forms::{STANDARD, URL_SAFE};
use super::*;

fn secrets(pairs: &[(&str, &str)]) -> Secrets {
    Secrets::new(pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())))
}

fn text(secrets: &Secrets, input: &str) -> String {
    String::from_utf8(secrets.redact(input.as_bytes()).into_owned()).unwrap()
}

/// Plain base64, written down apart from the code under test.
fn base64(bytes: &[u8], alphabet: &[u8; 64]) -> String {
    let bits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
    let sextets = bits.as_bytes().chunks(6).map(|chunk| {
        let padded = format!("{:0<6}", std::str::from_utf8(chunk).unwrap());
        char::from(alphabet[usize::from_str_radix(&padded, 2).unwrap()])
    });
    let mut out: String = sextets.collect();
    while !out.len().is_multiple_of(4) {
        out.push('=');
    }
    out
}

#[test]
fn a_clone_knows_what_is_added_later() {
    let first = secrets(&[]);
    let clone = first.clone();
    first.add("LATE_KEY", "sk-later-than-all");
    assert_eq!(text(&clone, "x sk-later-than-all y"), "x «secret:LATE_KEY» y");
    first.add("OTHER_KEY", "sk-another-one\n");
    assert_eq!(text(&clone, "sk-another-one sk-later-than-all"), "«secret:OTHER_KEY» «secret:LATE_KEY»");
    let mut stream = clone.redactor();
    assert_eq!(&*stream.push(b"before\n"), b"before\n");
    first.add("THIRD_KEY", "sk-while-it-streams");
    assert_eq!(&*stream.push(b"sk-while-it-"), b"");
    assert_eq!(String::from_utf8_lossy(&stream.push(b"streams\n")), "«secret:THIRD_KEY»\n");
}

#[test]
fn short_values_are_no_secrets() {
    let secrets = secrets(&[("A", "1234567")]);
    assert!(secrets.is_empty());
    assert_eq!(text(&secrets, "1234567"), "1234567");
}

#[test]
fn every_form_is_replaced() {
    let value = "p\"s/w <ö>+1";
    let secrets = secrets(&[("KEY", value)]);
    for form in [
        "p\"s/w <ö>+1",
        r#"p\"s/w <ö>+1"#,
        r#"p\"s\/w <ö>+1"#,
        r#"p\"s/w <\u00f6>+1"#,
        r#"p\"s/w \u003c\u00f6\u003e+1"#,
        r#"p\"s/w \u003C\u00F6\u003E+1"#,
        "p%22s%2Fw%20%3C%C3%B6%3E%2B1",
        "p%22s%2fw%20%3c%c3%b6%3e%2b1",
        "p%22s/w%20%3C%C3%B6%3E%2B1",
        "p%22s%2Fw+%3C%C3%B6%3E%2B1",
    ] {
        assert_eq!(text(&secrets, &format!("<{form}>")), "<«secret:KEY»>", "{form}");
    }
}

#[test]
fn base64_is_found_at_each_alignment_in_both_alphabets_and_wrapped() {
    // Long, and with bytes that become + and / (or - and _).
    let value = "key>>>???~~~".repeat(9);
    let secrets = secrets(&[("KEY", &value)]);
    for before in ["", "a", "ab", "abc", "user:"] {
        for alphabet in [STANDARD, URL_SAFE] {
            let encoded = base64(format!("{before}{value}:after").as_bytes(), alphabet);
            let redacted = text(&secrets, &encoded);
            assert!(redacted.contains("«secret:KEY»"), "{before} {redacted}");
            let middle = &encoded[20..encoded.len() - 20];
            assert!(!redacted.contains(middle));
        }
        for width in [76, 64] {
            let encoded = base64(format!("{before}{value}:after").as_bytes(), STANDARD);
            let lines: Vec<&str> =
                encoded.as_bytes().chunks(width).map(|line| std::str::from_utf8(line).unwrap()).collect();
            let redacted = text(&secrets, &lines.join("\n"));
            assert!(redacted.contains("«secret:KEY»"), "{before} {width} {redacted}");
        }
    }
}

#[test]
fn of_a_long_secret_in_wrapped_base64_no_run_is_left_and_its_table_stays_small() {
    let value = digits(8_000);
    let secrets = secrets(&[("KEY", &value)]);
    for (before, width) in [("", 76), ("a", 76), ("ab", 76), ("", 64), ("a", 64), ("ab", 64)] {
        let encoded = base64(format!("{before}{value}:after").as_bytes(), STANDARD);
        let lines: Vec<&str> =
            encoded.as_bytes().chunks(width).map(|line| std::str::from_utf8(line).unwrap()).collect();
        let redacted = text(&secrets, &lines.join("\n")).replace('\n', "");
        let kept = redacted.split("«secret:KEY»").map(str::len).max();
        assert!(kept < Some(2 * PIECE_CHARS), "{before} {width} {kept:?}");
    }
    let table = secrets.table().unwrap();
    let bytes: usize = table.forms.iter().map(Vec::len).sum();
    assert!(bytes < 100 * value.len(), "{bytes} for {}", value.len());
}

/// Digits of a generator (Lehmer's), so that nothing in it repeats.
fn digits(bytes: usize) -> String {
    let digits = std::iter::successors(Some(1u64), |x| Some(x * 48_271 % 0x7fff_ffff)).take(bytes / 8);
    digits.map(|x| format!("{x:08x}")).collect()
}

#[test]
fn a_very_long_secret_costs_a_small_table_and_no_form_of_it_is_lost() {
    let value = digits(48 << 10);
    let secrets = secrets(&[("KEY", &value)]);
    let table = secrets.table().unwrap();
    // What is searched for byte by byte does not grow with the value.
    let heads: usize = table.forms.iter().map(|form| form.len().min(HEAD_BYTES)).sum();
    assert!(heads < 100 * HEAD_BYTES, "{heads}");
    assert!(table.heads.memory_usage() < 1 << 20, "{}", table.heads.memory_usage());
    let pieces = table.pieces.len() * PIECE_CHARS;
    assert!(pieces <= 4 * value.len(), "the base64 of it once for each alignment: {pieces}");

    assert_eq!(text(&secrets, &format!("<{value}>")), "<«secret:KEY»>");
    for alphabet in [STANDARD, URL_SAFE] {
        let encoded = base64(value.as_bytes(), alphabet);
        assert_eq!(text(&secrets, &format!("<{}>", encoded.trim_end_matches('='))), "<«secret:KEY»>");
    }
    // A part of it is none, but for its base64.
    let half = &value[..value.len() / 2];
    assert_eq!(text(&secrets, half), half);
}

#[test]
fn the_pieces_of_a_long_secret_are_found_across_chunks_and_line_breaks() {
    let value = digits(2 << 10);
    let secrets = secrets(&[("KEY", &value)]);
    let encoded = base64(format!("ab{value}").as_bytes(), STANDARD);
    for width in [64, 75, 76, 77] {
        let lines: Vec<&str> =
            encoded.as_bytes().chunks(width).map(|line| std::str::from_utf8(line).unwrap()).collect();
        let input = format!("words before it\n{}\nand words behind it\n", lines.join("\n"));
        let whole = text(&secrets, &input);
        assert!(whole.starts_with("words before it\n") && whole.ends_with("\nand words behind it\n"), "{whole}");
        let kept = whole.split("«secret:KEY»").map(str::len).max();
        assert!(kept < Some(2 * PIECE_CHARS + "\nand words behind it\n".len()), "{width} {kept:?}");
        for cut in [1, 5, 7, 64, 1_000] {
            let mut redactor = secrets.redactor();
            let mut out = Vec::new();
            for chunk in input.as_bytes().chunks(cut) {
                out.extend_from_slice(&redactor.push(chunk));
            }
            out.extend(redactor.flush());
            assert_eq!(String::from_utf8(out).unwrap(), whole, "{width} {cut}");
        }
    }
}

#[test]
fn paths_that_hold_a_secret_stay_distinct() {
    let secrets = secrets(&[("KEY", "sk-in-a-name\n"), ("OTHER", "another-one")]);
    let path = |path: &str| secrets.redact_path(Path::new(path)).to_str().unwrap().to_owned();
    assert_eq!(path("src/main.rs"), "src/main.rs");
    assert_eq!(path("a/sk-in-a-name.txt"), "a/«secret:KEY».txt");
    assert_eq!(path("sk-in-a-name/another-one"), "«secret:KEY»/«secret:OTHER»");
    let encoded = base64(b"sk-in-a-name", STANDARD);
    let hidden = path(&encoded);
    assert!(hidden.starts_with("«secret:KEY»~"), "{hidden}");
    assert_eq!(hidden, path(&encoded), "the same each time");
    let all = BTreeSet::from([path("sk-in-a-name"), hidden, path("sk-in-a-name\n"), path("another-one")]);
    assert_eq!(all.len(), 4, "{all:?}");
    assert!(all.iter().all(|path| !secrets.contains(path.as_bytes())), "{all:?}");
}

#[test]
fn the_longest_secret_wins_and_the_first_name_stays() {
    let secrets = secrets(&[("SHORT", "abcdefgh"), ("LONG", "abcdefghij"), ("TWIN", "abcdefgh")]);
    assert_eq!(text(&secrets, "abcdefghij abcdefgh"), "«secret:LONG» «secret:SHORT»");
}

#[test]
fn placeholders_are_recognised_by_name() {
    let secrets = secrets(&[("API_KEY", "0123456789")]);
    assert!(secrets.contains_placeholder("curl -H «secret:API_KEY»"));
    assert!(!secrets.contains_placeholder("the docs say «secret:NAME»"));
    assert!(secrets.contains(b"x0123456789") && !secrets.contains(b"x012345678"));
    assert!(secrets.is_secret("0123456789\n") && !secrets.is_secret("x0123456789"));
}

#[test]
fn only_what_may_become_a_secret_is_held_back() {
    let secrets = secrets(&[("KEY", "hunter2-hunter2")]);
    let mut redactor = secrets.redactor();
    assert_eq!(&*redactor.push(b"listening on 8080"), b"listening on 8080");
    assert_eq!(&*redactor.push(b" hunter2-"), b" ");
    assert_eq!(&*redactor.push(b"hunt"), b"");
    assert_eq!(&*redactor.push(b"!"), b"hunter2-hunt!");
    assert_eq!(&*redactor.push(b"hunter2"), b"");
    assert_eq!(redactor.flush(), b"hunter2");
    assert_eq!(redactor.flush(), b"");
}

#[test]
fn names_are_shown_and_values_are_not() {
    assert_eq!(format!("{:?}", secrets(&[("KEY", "hunter2-hunter2")])), "Secrets([\"KEY\"])");
}

proptest! {
    /// However a stream is cut, the result is that of the whole.
    #[test]
    fn chunks_do_not_matter(
        pieces in prop::collection::vec(prop_oneof![
            Just("aaaaaaaab"), Just("aaaaaaaa"), Just("aaaa"), Just("b"), Just("YWFhYWFhYW"), Just("c%20"),
            Just("aabbaabbaa"), Just("\n"), Just("é"),
        ], 0..40),
        cuts in prop::collection::vec(1usize..9, 1..200),
    ) {
        let secrets = secrets(&[("A", "aaaaaaaa"), ("AB", "aaaaaaaab"), ("MIX", "aabbaabb"), ("URL", "aab b aa")]);
        let input = pieces.concat().into_bytes();
        let whole = secrets.redact(&input).into_owned();
        let mut redactor = secrets.redactor();
        let (mut out, mut rest, mut cut) = (Vec::new(), input.as_slice(), cuts.iter().cycle());
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at((*cut.next().unwrap()).min(rest.len()));
            out.extend_from_slice(&redactor.push(chunk));
            rest = after;
        }
        out.extend(redactor.flush());
        prop_assert_eq!(&out, &whole);
        prop_assert!(!out.windows(8).any(|window| window == b"aaaaaaaa" || window == b"aabbaabb"));
    }

    /// Any value, hidden anywhere, in any chunks, never comes out.
    #[test]
    fn no_value_comes_out(
        value in "[ -~é]{8,40}",
        before in "[a-z ]{0,20}",
        cut in 1usize..30,
    ) {
        prop_assume!(value.trim().len() >= 8 && !before.contains(value.trim()));
        let secrets = secrets(&[("V", &value)]);
        let encoded = base64(format!("{before}{value}").as_bytes(), STANDARD);
        let json = serde_json::to_string(&value).unwrap();
        let input = format!("{before}{value}|{encoded}|{json}");
        let mut redactor = secrets.redactor();
        let mut out = Vec::new();
        for chunk in input.as_bytes().chunks(cut) {
            out.extend_from_slice(&redactor.push(chunk));
        }
        out.extend(redactor.flush());
        let out = String::from_utf8_lossy(&out).into_owned();
        prop_assert_eq!(out.matches("«secret:V»").count(), 3, "{}", out);
    }
}
