//! Secret values and their replacement by `«secret:NAME»`.
//!
//! A secret is recognised raw, in base64 (each of the three alignments, both alphabets, also wrapped at 64 or 76
//! columns), percent-encoded and JSON-escaped. Replacement happens once, at capture, before anything measures,
//! stores or sends the text.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use aho_corasick::{AhoCorasick, MatchKind};

/// Shorter values are no secrets: replacing them would tear ordinary text apart.
const SHORTEST_BYTES: usize = 8;

/// The columns at which common tools wrap base64: coreutils and MIME, PEM and OpenSSL.
const WRAPS: [usize; 2] = [76, 64];

/// Wrapped base64 longer than this is recognised in pieces: whole, it would take a form for each column.
const WHOLE_MOST_CHARS: usize = 400;
/// 72 bits: no text looks like one by chance.
const PIECE_CHARS: usize = 12;

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// All secrets of a run. Cheap to clone; a clone knows what is added later.
#[derive(Clone, Default)]
pub struct Secrets {
    table: Arc<RwLock<Option<Arc<Table>>>>,
}

struct Table {
    /// Raw value → name of the secret.
    values: BTreeMap<Vec<u8>, String>,
    /// Every form of every value, sorted by bytes, without duplicates.
    forms: Vec<Vec<u8>>,
    /// For each form what stands in its place.
    placeholders: Vec<Vec<u8>>,
    /// Whether some form starts with that byte.
    starts: [bool; 256],
    longest_bytes: usize,
    matcher: AhoCorasick,
}

impl Secrets {
    /// From (name, value) pairs. Values below 8 bytes are ignored; of two names with one value the first stays.
    pub fn new<I>(pairs: I) -> Secrets
    where
        I: IntoIterator<Item = (String, String)>,
    {
        let mut values = BTreeMap::new();
        for (name, value) in pairs {
            take(&mut values, &name, &value);
        }
        Secrets { table: Arc::new(RwLock::new(Table::of(values))) }
    }

    /// One more secret: a key that was read while the run goes on.
    pub fn add(&self, name: &str, value: &str) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let mut values = table.as_ref().map(|table| table.values.clone()).unwrap_or_default();
        let before = values.len();
        take(&mut values, name, value);
        if values.len() > before {
            *table = Table::of(values);
        }
    }

    fn table(&self) -> Option<Arc<Table>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn is_empty(&self) -> bool {
        self.table().is_none()
    }

    /// The names, sorted.
    pub fn names(&self) -> Vec<String> {
        let table = self.table();
        let names: BTreeSet<&String> = table.iter().flat_map(|table| table.values.values()).collect();
        names.into_iter().cloned().collect()
    }

    /// True when `value` is a secret as a whole.
    pub fn is_secret(&self, value: &str) -> bool {
        self.table().is_some_and(|table| {
            table.values.contains_key(value.as_bytes()) || table.values.contains_key(value.trim().as_bytes())
        })
    }

    /// True when any form of any secret occurs in `bytes`.
    pub fn contains(&self, bytes: &[u8]) -> bool {
        self.table().is_some_and(|table| table.matcher.is_match(bytes))
    }

    /// True when the placeholder of one of these secrets occurs in `text`.
    pub fn contains_placeholder(&self, text: &str) -> bool {
        self.table().is_some_and(|table| {
            text.contains("«secret:") && table.values.values().any(|name| text.contains(&format!("«secret:{name}»")))
        })
    }

    /// `bytes` with each secret replaced.
    pub fn redact<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        match self.table() {
            Some(table) if table.matcher.is_match(bytes) => {
                let mut out = Vec::with_capacity(bytes.len());
                table.replace(bytes, bytes.len(), &mut out);
                Cow::Owned(out)
            }
            _ => Cow::Borrowed(bytes),
        }
    }

    /// Like [`Secrets::redact`], for text.
    pub fn redact_str<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.redact(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    /// For bytes that arrive in chunks.
    pub fn redactor(&self) -> Redactor {
        Redactor { secrets: self.clone(), held: Vec::new() }
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let table = self.table();
        let names: Vec<&String> = table.iter().flat_map(|table| table.values.values()).collect();
        f.debug_tuple("Secrets").field(&names).finish()
    }
}

/// Takes one value, as it is and trimmed.
fn take(values: &mut BTreeMap<Vec<u8>, String>, name: &str, value: &str) {
    for value in [value, value.trim()] {
        if value.len() >= SHORTEST_BYTES {
            values.entry(value.as_bytes().to_vec()).or_insert_with(|| name.to_owned());
        }
    }
}

impl Table {
    /// `None` without a value.
    fn of(values: BTreeMap<Vec<u8>, String>) -> Option<Arc<Table>> {
        // Raw values first: where one secret's encoded form is another one's value, the value names it.
        let mut forms: BTreeMap<Vec<u8>, &str> = values.iter().map(|(value, name)| (value.clone(), &**name)).collect();
        for (value, name) in &values {
            for form in encoded_forms(value) {
                forms.entry(form).or_insert(name);
            }
        }
        if forms.is_empty() {
            return None;
        }
        let placeholders = forms.values().map(|name| format!("«secret:{name}»").into_bytes()).collect();
        let forms: Vec<Vec<u8>> = forms.into_keys().collect();
        let mut starts = [false; 256];
        for form in &forms {
            starts[usize::from(form[0])] = true;
        }
        let longest_bytes = forms.iter().map(Vec::len).max().unwrap_or(0);
        let Ok(matcher) = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&forms) else {
            // Fails only when the forms together exceed 2^31 states, and environments are far below that.
            unreachable!("the forms of all secrets together are below 2 GiB");
        };
        Some(Arc::new(Table { values, forms, placeholders, starts, longest_bytes, matcher }))
    }

    /// Appends `bytes` to `out` with each form that starts before `until` replaced; returns where it stopped,
    /// which is `until` or the end of the last form.
    fn replace(&self, bytes: &[u8], until: usize, out: &mut Vec<u8>) -> usize {
        let mut done = 0;
        for found in self.matcher.find_iter(bytes).take_while(|found| found.start() < until) {
            out.extend_from_slice(&bytes[done..found.start()]);
            out.extend_from_slice(&self.placeholders[found.pattern().as_usize()]);
            done = found.end();
        }
        if done < until {
            out.extend_from_slice(&bytes[done..until]);
            done = until;
        }
        done
    }

    /// The first index from `from` on at which the rest of `bytes` could be the beginning of a form.
    fn open_end(&self, bytes: &[u8], from: usize) -> usize {
        let first = from.max(bytes.len().saturating_sub(self.longest_bytes - 1));
        (first..bytes.len()).find(|&index| self.begins_form(&bytes[index..])).unwrap_or(bytes.len())
    }

    /// True when some form is longer than `rest` and starts with it.
    fn begins_form(&self, rest: &[u8]) -> bool {
        self.starts[usize::from(rest[0])] && {
            // Forms are sorted, so those that start with `rest` follow it directly.
            let next = self.forms.partition_point(|form| form.as_slice() <= rest);
            self.forms.get(next).is_some_and(|form| form.starts_with(rest))
        }
    }
}

/// Replaces secrets in a stream, also those that lie across chunk borders. It holds back only what could still
/// become a secret, so ordinary text passes at once. It knows a secret from the moment on at which it became one.
pub struct Redactor {
    secrets: Secrets,
    held: Vec<u8>,
}

impl Redactor {
    /// Takes the next chunk; returns what is safe by now.
    pub fn push<'a>(&mut self, chunk: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(table) = self.secrets.table() else { return Cow::Borrowed(chunk) };
        if self.held.is_empty() && table.open_end(chunk, 0) == chunk.len() && !table.matcher.is_match(chunk) {
            return Cow::Borrowed(chunk);
        }
        self.held.extend_from_slice(chunk);
        let mut out = Vec::with_capacity(self.held.len());
        // Before `open` nothing can grow by what comes next, so each form that starts there is final.
        let open = table.open_end(&self.held, 0);
        let done = table.replace(&self.held, open, &mut out);
        // The last form may have swallowed the open part, or a piece of it.
        let open = table.open_end(&self.held, done);
        let done = done + table.replace(&self.held[done..], open - done, &mut out);
        self.held.drain(..done);
        Cow::Owned(out)
    }

    /// The end of the stream: returns what was held back.
    pub fn flush(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        let Some(table) = self.secrets.table() else { return held };
        let mut out = Vec::with_capacity(held.len());
        table.replace(&held, held.len(), &mut out);
        out
    }
}

fn encoded_forms(value: &[u8]) -> BTreeSet<Vec<u8>> {
    let mut forms = BTreeSet::new();
    for offset in 0..3 {
        let core = base64_core(value, offset, STANDARD);
        if core.len() > WHOLE_MOST_CHARS {
            let telling = |piece: &&[u8]| piece.iter().any(|byte| *byte != piece[0]);
            forms.extend(core.chunks_exact(PIECE_CHARS).filter(telling).flat_map(broken));
        } else {
            forms.extend(WRAPS.iter().flat_map(|width| wrapped(&core, *width)));
        }
        forms.insert(core);
        forms.insert(base64_core(value, offset, URL_SAFE));
    }
    // What `encodeURIComponent`, Python's `quote` and the strict rule leave alone; form encoding's plus for a space.
    for kept in [&b"-_.~"[..], b"-_.~!'()*", b"-_.~/"] {
        for upper in [true, false] {
            forms.insert(percent_encoded(value, kept, upper, false));
            forms.insert(percent_encoded(value, kept, upper, true));
        }
    }
    if let Ok(text) = std::str::from_utf8(value) {
        for slash in [false, true] {
            for html in [false, true] {
                forms.insert(json_escaped(text, slash, html, None));
                forms.insert(json_escaped(text, slash, html, Some(false)));
                forms.insert(json_escaped(text, slash, html, Some(true)));
            }
        }
    }
    forms
}

/// The base64 characters that depend on `value` alone when `offset` bytes of something else precede it.
fn base64_core(value: &[u8], offset: usize, alphabet: &[u8; 64]) -> Vec<u8> {
    let mut bytes = vec![0; offset];
    bytes.extend_from_slice(value);
    let first = (offset * 8).div_ceil(6);
    let last = bytes.len() * 8 / 6;
    let sextet = |index: usize| {
        let bit = index * 6;
        let high = u16::from(bytes[bit / 8]) << 8;
        let low = bytes.get(bit / 8 + 1).copied().map_or(0, u16::from);
        usize::from(((high | low) >> (10 - bit % 8)) & 0x3f)
    };
    (first..last).map(|index| alphabet[sextet(index)]).collect()
}

/// `core` as it looks when a line break falls into it, for each column at which it may start.
fn wrapped(core: &[u8], width: usize) -> Vec<Vec<u8>> {
    let break_at = |first: usize| {
        let mut out = core[..first].to_vec();
        for line in core[first..].chunks(width) {
            out.push(b'\n');
            out.extend_from_slice(line);
        }
        out
    };
    (1..core.len().min(width + 1)).map(break_at).collect()
}

/// `piece` as it is, and with a line break at each place in it.
fn broken(piece: &[u8]) -> Vec<Vec<u8>> {
    let break_at = |at: usize| [&piece[..at], b"\n", &piece[at..]].concat();
    std::iter::once(piece.to_vec()).chain((1..piece.len()).map(break_at)).collect()
}

fn percent_encoded(value: &[u8], kept: &[u8], upper: bool, plus: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    for &byte in value {
        if byte.is_ascii_alphanumeric() || kept.contains(&byte) {
            out.push(byte);
        } else if plus && byte == b' ' {
            out.push(b'+');
        } else {
            let code = if upper { format!("%{byte:02X}") } else { format!("%{byte:02x}") };
            out.extend_from_slice(code.as_bytes());
        }
    }
    out
}

/// `text` inside a JSON string. `slash` and `html` escape what some writers escape too; `ascii` writes everything
/// else as `\u`, with digits in upper case or not.
fn json_escaped(text: &str, slash: bool, html: bool, ascii: Option<bool>) -> Vec<u8> {
    let mut out = String::with_capacity(text.len());
    let mut units = [0; 2];
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '/' if slash => out.push_str("\\/"),
            '\0'..='\u{1f}' => out.push_str(&unicode_escape(character as u16, ascii == Some(true))),
            '<' | '>' | '&' if html => out.push_str(&unicode_escape(character as u16, ascii == Some(true))),
            _ if ascii.is_some() && !character.is_ascii() => {
                for unit in character.encode_utf16(&mut units) {
                    out.push_str(&unicode_escape(*unit, ascii == Some(true)));
                }
            }
            _ => out.push(character),
        }
    }
    out.into_bytes()
}

fn unicode_escape(unit: u16, upper: bool) -> String {
    if upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        // Digits of a generator (Lehmer's), so that nothing in it repeats.
        let digits = std::iter::successors(Some(1u64), |x| Some(x * 48_271 % 0x7fff_ffff)).take(1_000);
        let value: String = digits.map(|x| format!("{x:08x}")).collect();
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
}
