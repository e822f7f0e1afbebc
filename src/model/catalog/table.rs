//! The built-in table: providers, models, and what was published about them on a date (`catalog.json`).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Deserializer, Serialize};

use crate::event::Micros;
use crate::model::price::{Price, Tier};
use crate::model::wire::Wire;

/// The whole table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers of the table"))]
    pub version: u32,
    pub providers: BTreeMap<String, Provider>,
    /// Sorted by name.
    pub models: Vec<Row>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Provider {
    pub wire: Wire,
    /// Further wires that it speaks at the same base URL.
    #[serde(default)]
    pub also: Vec<Wire>,
    pub base_url: String,
    /// The variable with which the vendor's own clients are pointed elsewhere.
    #[serde(default)]
    pub base_url_env: Option<String>,
    /// Variables that may hold the key, in the order they are tried.
    pub keys: Vec<String>,
    /// The models to name first, best first.
    pub best: Vec<String>,
}

/// How a model reasons. Whatever but `None` may be silent for minutes before it says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reasoning {
    None,
    /// A token budget in the request.
    Budget,
    /// `reasoning_effort`.
    Effort,
    /// The model decides, the request may turn it off.
    Adaptive,
    /// It cannot be turned off.
    Always,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    /// `provider/model`.
    pub name: String,
    pub window_tokens: u64,
    pub max_output_tokens: u64,
    pub reasoning: Reasoning,
    /// Sent on the chat wire when the goal file sets none: what the model needs to be given to take tools there.
    #[serde(default)]
    pub chat_effort: Option<String>,
    /// False where a request that forces a tool is refused.
    #[serde(default = "yes")]
    pub force_tool: bool,
    #[serde(deserialize_with = "price")]
    pub price: Price,
    #[serde(default)]
    pub note: Option<String>,
    /// Year and month in which the sources were read.
    pub date: String,
    /// Where the facts stand, by name: two at least, and they agree.
    pub sources: Vec<String>,
}

const fn yes() -> bool {
    true
}

/// Prices as they are published: decimal dollars per million tokens.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Dollars {
    input: String,
    output: String,
    cache_read: Option<String>,
    cache_write: Option<String>,
    cache_write_1h: Option<String>,
    above: Option<Box<Above>>,
}

#[derive(Deserialize)]
struct Above {
    input_tokens: u64,
    #[serde(flatten)]
    price: Dollars,
}

fn price<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Price, D::Error> {
    Dollars::deserialize(deserializer)?.price().map_err(serde::de::Error::custom)
}

impl Dollars {
    fn price(&self) -> Result<Price, String> {
        let amount = |text: &String| match Micros::parse_dollars(text) {
            Some(micros) => Ok(micros.0),
            None => Err(format!("`{text}` is not an amount of dollars")),
        };
        let maybe = |text: &Option<String>| text.as_ref().map(amount).transpose();
        let above = match &self.above {
            Some(above) => Some(Box::new(Tier { input_tokens: above.input_tokens, price: above.price.price()? })),
            None => None,
        };
        Ok(Price {
            input: amount(&self.input)?,
            output: amount(&self.output)?,
            cache_read: maybe(&self.cache_read)?,
            cache_write: maybe(&self.cache_write)?,
            cache_write_1h: maybe(&self.cache_write_1h)?,
            above,
        })
    }
}

/// The table, parsed once. It is part of the program, and a test parses it: it cannot fail here.
pub(super) fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| match serde_json::from_str(include_str!("../catalog.json")) {
        Ok(table) => table,
        Err(error) => unreachable!("catalog.json: {error}"),
    });
    &TABLE
}

/// The table's name of a provider that is also called otherwise.
pub(super) fn own_name(provider: &str) -> &str {
    if provider == "google" { "gemini" } else { provider }
}

/// Words that name another model when they follow a known id (`gpt-5-mini-fast` is not priced as `gpt-5-mini`).
const OTHER_MODELS: [&str; 9] = ["codex", "fast", "flash", "lite", "mini", "nano", "pro", "turbo", "ultrafast"];

impl Table {
    /// The row of `provider/model`: the exact one, else the longest whose id this one continues with a date or
    /// another suffix. A continuation that is a version (`-5`, `.1`) or a size names another model.
    pub fn row(&self, provider: &str, model: &str) -> Option<&Row> {
        let name = format!("{provider}/{model}");
        let fits = |row: &&Row| name.strip_prefix(row.name.as_str()).is_some_and(continues);
        self.models.iter().filter(fits).max_by_key(|row| row.name.len())
    }

    /// The provider of that name, or of that other name.
    pub fn provider(&self, name: &str) -> Option<&Provider> {
        self.providers.get(own_name(name))
    }

    /// The row that `like: provider/model` names.
    pub fn named(&self, name: &str) -> Option<&Row> {
        let (provider, model) = name.split_once('/')?;
        self.row(own_name(provider), model)
    }
}

/// Whether what follows an entry's id leaves it the same model.
fn continues(rest: &str) -> bool {
    let Some(first) = rest.chars().next() else { return true };
    if matches!(first, '@' | ':' | '[') {
        return true;
    }
    if first != '-' {
        return false;
    }
    let word: &str = rest[1..].split(['-', '.', '@', ':', '[']).next().unwrap_or("");
    let is_number = word.bytes().all(|b| b.is_ascii_digit());
    !word.is_empty() && (!is_number || word.len() >= 4) && !OTHER_MODELS.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk_tiers(price: &Price, check: &mut impl FnMut(&Price)) {
        check(price);
        if let Some(tier) = &price.above {
            walk_tiers(&tier.price, check);
        }
    }

    #[test]
    fn the_table_is_sorted_and_each_row_has_its_sources() {
        let table = table();
        assert_eq!(table.version, 1);
        assert!(table.models.len() >= 30, "{} models", table.models.len());
        assert!(table.models.is_sorted_by(|a, b| a.name < b.name), "sorted by name, no name twice");
        for row in &table.models {
            assert!(row.sources.len() >= 2, "{}: two sources", row.name);
            assert!(row.sources.iter().all(|s| s.len() > 8), "{}: a source without a name", row.name);
            assert_ne!(row.sources[0], row.sources[1], "{}: two different sources", row.name);
            assert!(row.date.len() == 7 && row.date.as_str() >= "2026-10", "{}: {}", row.name, row.date);
            let (provider, _) = row.name.split_once('/').expect("provider/model");
            assert!(table.providers.contains_key(provider), "{}: unknown provider", row.name);
            assert!(row.note.as_ref().is_none_or(|note| !note.is_empty()));
        }
    }

    #[test]
    fn windows_and_prices_are_sane() {
        for row in &table().models {
            assert!((100_000..=2_000_000).contains(&row.window_tokens), "{}", row.name);
            assert!(row.max_output_tokens >= 8_192, "{}", row.name);
            assert!(row.max_output_tokens * 2 <= row.window_tokens, "{}: the output takes the window", row.name);
            walk_tiers(&row.price, &mut |price| {
                // Between one cent and a hundred dollars per million tokens; a slipped decimal point shows here.
                assert!((10_000..=100_000_000).contains(&price.input), "{}: {}", row.name, price.input);
                let ratio = price.output as f64 / price.input as f64;
                assert!((2.0..=10.0).contains(&ratio), "{}: output costs {ratio} × input", row.name);
                if let Some(read) = price.cache_read {
                    assert!(read * 2 <= price.input, "{}: a cache read is cheap", row.name);
                }
                if let Some(write) = price.cache_write {
                    assert!(write >= price.input && write <= 2 * price.input, "{}", row.name);
                }
                if let (Some(write), Some(hour)) = (price.cache_write, price.cache_write_1h) {
                    assert!(hour >= write, "{}", row.name);
                }
            });
            if let Some(tier) = &row.price.above {
                assert!(tier.price.input >= row.price.input && tier.price.output >= row.price.output, "{}", row.name);
                assert!(tier.input_tokens < row.window_tokens, "{}: a tier nobody reaches", row.name);
            }
        }
    }

    #[test]
    fn the_best_models_of_a_provider_are_in_the_table() {
        let table = table();
        for (name, provider) in &table.providers {
            assert!(!provider.keys.is_empty(), "{name}");
            assert!(provider.base_url.starts_with("https://") && !provider.base_url.ends_with('/'), "{name}");
            for model in &provider.best {
                assert!(table.models.iter().any(|row| row.name == format!("{name}/{model}")), "{name}/{model}");
            }
        }
    }

    #[test]
    fn the_longest_entry_wins_and_a_version_is_another_model() {
        let name = |provider, model| table().row(provider, model).map(|row| row.name.as_str());
        assert_eq!(name("anthropic", "claude-opus-5-5"), Some("anthropic/claude-opus-5-5"));
        assert_eq!(name("anthropic", "claude-opus-5"), Some("anthropic/claude-opus-5"));
        assert_eq!(name("anthropic", "claude-opus-5-5-20260922"), Some("anthropic/claude-opus-5-5"));
        assert_eq!(name("anthropic", "claude-haiku-4-5-20251001"), Some("anthropic/claude-haiku-4-5"));
        assert_eq!(name("anthropic", "claude-opus-5[1m]"), Some("anthropic/claude-opus-5"));
        assert_eq!(name("openai", "gpt-5-mini-2025-08-07"), Some("openai/gpt-5-mini"));
        assert_eq!(name("openai", "gpt-6-sol-preview"), Some("openai/gpt-6-sol"));
        assert_eq!(name("groq", "openai/gpt-oss-120b"), Some("groq/openai/gpt-oss-120b"));
        for other in ["claude-opus-5-7", "claude-opus-5.1", "claude-opus-51", "claude-opus", "claude-opus-5-"] {
            assert_eq!(name("anthropic", other), None, "{other}");
        }
        assert_eq!(name("openai", "gpt-6-sol-fast"), None, "billed at twice the price");
        assert_eq!(name("xai", "grok-4.70"), None);
    }
}
