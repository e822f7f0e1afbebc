//! Which endpoint a model name means: the catalogue of current models, own providers, prices, keys by name.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::price::Price;
use super::wire::Wire;
use crate::world::Env;

/// A model as the goal file names it: `provider/model`, a map, or `{cassette: FILE}`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelSpec {
    /// `provider/model`, or the model alone when `provider` is given. Empty with a cassette.
    pub id: String,
    pub provider: Option<String>,
    pub wire: Option<Wire>,
    pub base_url: Option<String>,
    pub api_key_env: Option<String>,
    pub context_window: Option<u64>,
    pub max_output_tokens: Option<u64>,
    pub reasoning_effort: Option<String>,
    pub headers: BTreeMap<String, String>,
    pub query_params: BTreeMap<String, String>,
    /// Top-level fields of the request body, as `(name, JSON text)`.
    pub extra_body: Vec<(String, String)>,
    /// `provider/model` of the catalogue whose row (window, limits, prices) is borrowed.
    pub like: Option<String>,
    pub idle_timeout: Option<Duration>,
    pub first_event_timeout: Option<Duration>,
    /// Recorded replies are the model. Absolute.
    pub cassette: Option<PathBuf>,
}

/// An own endpoint (`providers:`).
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderSpec {
    pub wire: Wire,
    pub base_url: String,
    pub api_key_env: Option<String>,
    pub headers: BTreeMap<String, String>,
    pub query_params: BTreeMap<String, String>,
    pub extra_body: Vec<(String, String)>,
}

/// Where the key of an endpoint comes from; never the key itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeySource {
    None,
    /// The first of these environment variables that is set and not empty.
    Env(Vec<String>),
}

/// A model, resolved: everything a call needs but the key's value. Frozen into the session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Endpoint {
    pub provider: String,
    /// As the provider knows it.
    pub model: String,
    pub wire: Wire,
    pub base_url: String,
    pub key: KeySource,
    /// False when the base URL is not the provider's own: named in the first line.
    pub own: bool,
    /// Loopback or a private address.
    pub local: bool,
    pub window_tokens: u64,
    pub max_output_tokens: u64,
    pub reasoning_effort: Option<String>,
    pub headers: BTreeMap<String, String>,
    pub query_params: BTreeMap<String, String>,
    pub extra_body: Vec<(String, String)>,
    /// `None`: unpriced (only allowed without a cost limit).
    pub price: Option<Price>,
    pub idle_timeout: Duration,
    pub first_event_timeout: Duration,
    /// It has no price and is local, so it counts as free.
    pub free_because_local: bool,
    pub cassette: Option<PathBuf>,
}

impl Endpoint {
    /// `provider/model`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.provider, self.model)
    }
}

/// Why a model name means nothing usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error("`{name}` is no known model{}", did_you_mean(.suggestions))]
    UnknownModel { name: String, suggestions: Vec<String> },
    #[error("`{name}` is no known provider{}", did_you_mean(.suggestions))]
    UnknownProvider { name: String, suggestions: Vec<String> },
    #[error("`{0}` is not `provider/model`")]
    NotAName(String),
    /// The variables that were looked for.
    #[error("no key for `{model}`: {} is not set", .variables.join(" or "))]
    MissingKey { model: String, variables: Vec<String> },
    #[error("the base URL `{0}` is not an http or https URL")]
    BadUrl(String),
    #[error("`like: {0}` names no model of the catalogue")]
    UnknownLike(String),
}

fn did_you_mean(suggestions: &[String]) -> String {
    if suggestions.is_empty() { String::new() } else { format!(" (did you mean {}?)", suggestions.join(", ")) }
}

/// Resolves a model. `prices` are the goal file's, by `provider/model`; they win over the catalogue.
pub fn resolve(
    spec: &ModelSpec,
    providers: &BTreeMap<String, ProviderSpec>,
    prices: &BTreeMap<String, Price>,
    env: &dyn Env,
) -> Result<Endpoint, EndpointError> {
    let _ = (spec, providers, prices, env);
    todo!("catalog helper")
}

/// What a message lists when a goal names no model: models whose key is in the environment, best first.
pub fn usable(env: &dyn Env) -> Vec<String> {
    let _ = env;
    todo!("catalog helper")
}
