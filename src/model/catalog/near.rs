//! Names that are known and look like one that is not.

use std::collections::BTreeMap;

use super::table::table;
use super::{EndpointError, ProviderSpec};

pub(super) fn unknown_model(provider: &str, model: &str) -> EndpointError {
    let name = format!("{provider}/{model}");
    let suggestions = nearest(&name, table().models.iter().map(|row| row.name.as_str()));
    EndpointError::UnknownModel { name, suggestions }
}

pub(super) fn unknown_provider(provider: &str, providers: &BTreeMap<String, ProviderSpec>) -> EndpointError {
    let known = table().providers.keys().chain(providers.keys()).map(String::as_str);
    EndpointError::UnknownProvider { name: provider.to_owned(), suggestions: nearest(provider, known) }
}

/// Up to three names within an edit distance of a third of the length, nearest first.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let limit = (name.chars().count() / 3).max(2);
    let mut near: Vec<(usize, &str)> =
        known.map(|other| (edit_distance(name, other), other)).filter(|(distance, _)| *distance <= limit).collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(3).map(|(_, other)| other.to_owned()).collect()
}

/// Insertions, deletions and replacements of characters that make one text the other.
pub(super) fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
