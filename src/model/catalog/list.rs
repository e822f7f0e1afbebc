//! The catalogue as it is shown to people.

use serde::Serialize;

use super::any_set;
use super::table::{Reasoning, Row, own_name, table};
use crate::model::price::Price;
use crate::model::wire::Wire;
use crate::world::Env;

/// Whether the catalogue has a provider of that name.
pub fn is_listed(provider: &str) -> bool {
    table().provider(provider).is_some()
}

/// A model of the catalogue, as it is shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Listed {
    /// `provider/model`.
    pub name: String,
    pub wire: Wire,
    pub window_tokens: u64,
    pub max_output_tokens: u64,
    pub reasoning: Reasoning,
    /// Micro-dollars per million tokens.
    pub price: Price,
    /// Whether a variable that holds the provider's key is set.
    pub key_set: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Year and month in which the sources were read.
    pub date: String,
    pub sources: Vec<String>,
}

impl Listed {
    /// Whether it is a model of that provider, by either of its names.
    pub fn is_of(&self, provider: &str) -> bool {
        self.name.split_once('/').is_some_and(|(own, _)| own == own_name(provider))
    }
}

/// All models of the catalogue, by name.
pub fn listed(env: &dyn Env) -> Vec<Listed> {
    let of = |row: &Row| {
        let provider = table().provider(row.name.split_once('/')?.0)?;
        Some(Listed {
            name: row.name.clone(),
            wire: provider.wire,
            window_tokens: row.window_tokens,
            max_output_tokens: row.max_output_tokens,
            reasoning: row.reasoning,
            price: row.price.clone(),
            key_set: any_set(env, &provider.keys),
            note: row.note.clone(),
            date: row.date.clone(),
            sources: row.sources.clone(),
        })
    };
    table().models.iter().filter_map(of).collect()
}
