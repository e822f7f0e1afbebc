//! Secret values and their replacement by `«secret:NAME»`.
//!
//! A secret is recognised raw, in base64 (each of the three alignments, both alphabets, also wrapped at 64 or 76
//! columns), percent-encoded and JSON-escaped. Replacement happens once, at capture, before anything measures,
//! stores or sends the text.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use aho_corasick::{AhoCorasick, Input, MatchKind};
use sha2::{Digest, Sha256};

use self::forms::{PIECE_CHARS, Piece, begins_piece, encoded_forms, piece_at, pieces};

mod forms;

/// Shorter values are no secrets: replacing them would tear ordinary text apart.
const SHORTEST_BYTES: usize = 8;

/// Forms are first looked for by so many of their bytes: a table grows with the number of forms, not with their length.
const HEAD_BYTES: usize = 32;

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
    /// Of the base64 of long values, sorted, each with the place of its form in `placeholders`.
    pieces: Vec<(Piece, usize)>,
    /// Whether some form or piece starts with that byte.
    starts: [bool; 256],
    longest_bytes: usize,
    /// Finds the beginnings of forms.
    heads: AhoCorasick,
}

/// Where a secret stands, and the place of what replaces it in `placeholders`.
#[derive(Debug, Clone, Copy)]
struct Found {
    start: usize,
    end: usize,
    form: usize,
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
        self.table().is_some_and(|table| table.next(bytes, 0).is_some())
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
            Some(table) if table.next(bytes, 0).is_some() => {
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

    /// A path as it may be written down: with each secret replaced. One that holds a secret otherwise than as it is (in
    /// base64, say) ends with a mark of its own, so that two paths are never written down as one.
    pub fn redact_path<'a>(&self, path: &'a Path) -> Cow<'a, Path> {
        let bytes = path.as_os_str().as_bytes();
        let Some(table) = self.table().filter(|table| table.next(bytes, 0).is_some()) else {
            return Cow::Borrowed(path);
        };
        let mut out = Vec::with_capacity(bytes.len());
        table.replace(bytes, bytes.len(), &mut out);
        if !table.as_they_are(bytes) {
            let digest = Sha256::digest(bytes);
            // Short, so that it says no more than that it is another one.
            out.push(b'~');
            out.extend(digest[..4].iter().flat_map(|byte| format!("{byte:02x}").into_bytes()));
        }
        Cow::Owned(PathBuf::from(OsString::from_vec(out)))
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
        let mut pieces: Vec<(Piece, usize)> = values
            .keys()
            .filter_map(|value| Some((value, forms.binary_search(value).ok()?)))
            .flat_map(|(value, form)| pieces(value).into_iter().map(move |piece| (piece, form)))
            .collect();
        pieces.sort_unstable();
        pieces.dedup_by_key(|(piece, _)| *piece);
        let mut starts = [false; 256];
        for first in forms.iter().map(|form| form[0]).chain(pieces.iter().map(|(piece, _)| piece[0])) {
            starts[usize::from(first)] = true;
        }
        let longest = forms.iter().map(Vec::len).max().unwrap_or(0);
        // A piece may be broken once.
        let longest_bytes = if pieces.is_empty() { longest } else { longest.max(PIECE_CHARS + 1) };
        let mut heads: Vec<&[u8]> = forms.iter().map(|form| &form[..form.len().min(HEAD_BYTES)]).collect();
        heads.dedup();
        let Ok(heads) = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&heads) else {
            // Fails only when the heads together exceed 2^31 states, and environments are far below that.
            unreachable!("the heads of all forms together are below 2 GiB");
        };
        Some(Arc::new(Table { values, forms, placeholders, pieces, starts, longest_bytes, heads }))
    }

    /// The first secret that starts at `from` or behind it, the longest of those that start there.
    fn next(&self, bytes: &[u8], from: usize) -> Option<Found> {
        let form = self.next_form(bytes, from);
        match self.next_piece(bytes, from, form.map_or(bytes.len(), |form| form.start + 1)) {
            Some(piece) if form.is_none_or(|form| (piece.start, form.end) < (form.start, piece.end)) => Some(piece),
            _ => form,
        }
    }

    fn next_form(&self, bytes: &[u8], mut from: usize) -> Option<Found> {
        loop {
            let start = self.heads.find(Input::new(bytes).range(from..))?.start();
            if let Some(form) = self.longest_form(&bytes[start..]) {
                return Some(Found { start, end: start + self.forms[form].len(), form });
            }
            from = start + 1;
        }
    }

    /// The longest form with which `rest` starts.
    fn longest_form(&self, mut rest: &[u8]) -> Option<usize> {
        loop {
            // All forms between one that `rest` starts with and `rest` itself start with that one too.
            let last = self.forms.partition_point(|form| form.as_slice() <= rest).checked_sub(1)?;
            let form = &self.forms[last];
            let same = form.iter().zip(rest).take_while(|(one, other)| one == other).count();
            if same == form.len() {
                return Some(last);
            }
            rest = &rest[..same];
        }
    }

    fn next_piece(&self, bytes: &[u8], from: usize, until: usize) -> Option<Found> {
        let mut start = from;
        while !self.pieces.is_empty() && start < until {
            match piece_at(&bytes[start..]) {
                Ok((piece, length)) => {
                    if let Ok(at) = self.pieces.binary_search_by(|(known, _)| known.cmp(&piece)) {
                        return Some(Found { start, end: start + length, form: self.pieces[at].1 });
                    }
                    start += 1;
                }
                Err(skip) => start += skip,
            }
        }
        None
    }

    /// Whether each secret in `bytes` stands there as it is, and each name has but this value: then the placeholders say
    /// all that there is to know.
    fn as_they_are(&self, bytes: &[u8]) -> bool {
        let mut from = 0;
        while let Some(found) = self.next(bytes, from) {
            let text = &bytes[found.start..found.end];
            let first = self.values.get(text).and_then(|name| {
                let of_name = self.values.iter().find(|(_, other)| *other == name);
                of_name.map(|(value, _)| value.as_slice() == text)
            });
            if first != Some(true) {
                return false;
            }
            from = found.end;
        }
        true
    }

    /// Appends `bytes` to `out` with each form that starts before `until` replaced; returns where it stopped,
    /// which is `until` or the end of the last form.
    fn replace(&self, bytes: &[u8], until: usize, out: &mut Vec<u8>) -> usize {
        let mut done = 0;
        while let Some(found) = self.next(bytes, done).filter(|found| found.start < until) {
            out.extend_from_slice(&bytes[done..found.start]);
            out.extend_from_slice(&self.placeholders[found.form]);
            done = found.end;
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

    /// True when some form or piece is longer than `rest` and starts with it.
    fn begins_form(&self, rest: &[u8]) -> bool {
        self.starts[usize::from(rest[0])] && {
            // Forms are sorted, so those that start with `rest` follow it directly.
            let next = self.forms.partition_point(|form| form.as_slice() <= rest);
            self.forms.get(next).is_some_and(|form| form.starts_with(rest)) || begins_piece(&self.pieces, rest)
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
        if self.held.is_empty() && table.open_end(chunk, 0) == chunk.len() && table.next(chunk, 0).is_none() {
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

#[cfg(test)]
#[path = "secrets_tests.rs"]
mod tests;
