//! Which endpoint a model name means: the catalogue of current models, own providers, prices, keys by name.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::address::Address;
pub use self::list::{Listed, is_listed, listed};
use self::near::unknown_model;
use self::place::Place;
use self::table::{Reasoning, Row, own_name, table};
use super::price::Price;
use super::request::Front;
use super::wire::Wire;
use crate::world::{Env, KeyAt};

pub use self::address::is_loopback;

mod address;
mod list;
mod near;
mod place;
mod table;
#[cfg(test)]
mod tests;

/// The provider's name of a recorded model.
const RECORDED: &str = "recorded";

/// The provider's name of an endpoint that a goal file describes without one.
const UNNAMED: &str = "own";

/// Windows of models that nothing is known of: a local server's usual default, and a cautious one elsewhere.
const LOCAL_WINDOW: u64 = 8_192;
const REMOTE_WINDOW: u64 = 100_000;

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
    /// Where the key stands when no variable holds it.
    pub api_key_at: Option<KeyAt>,
    pub headers: BTreeMap<String, String>,
    /// Header → the variable that holds its value.
    pub env_http_headers: BTreeMap<String, String>,
    pub query_params: BTreeMap<String, String>,
    pub extra_body: Vec<(String, String)>,
    /// Absolute.
    pub ca_file: Option<PathBuf>,
}

/// Where the key of an endpoint comes from; never the key itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeySource {
    None,
    /// The first of these environment variables that is set and not empty.
    Env(Vec<String>),
    /// A file or a command's output; read at the start, and again when the provider refuses it.
    At(KeyAt),
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
    /// Header (lower case) → the variable that holds its value.
    #[serde(default)]
    pub env_headers: BTreeMap<String, String>,
    pub query_params: BTreeMap<String, String>,
    pub extra_body: Vec<(String, String)>,
    /// Certificates to trust beside the machine's own.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// Nobody named the window: the local server is asked for it.
    #[serde(default)]
    pub window_assumed: bool,
    /// `None`: unpriced (only allowed without a cost limit).
    pub price: Option<Price>,
    /// The price is nothing because the server is local and nobody named one: said in a notice.
    pub free_because_local: bool,
    /// False where a request that forces a tool is refused: the verdict is then asked for in words.
    pub force_tool: bool,
    pub idle_timeout: Duration,
    pub first_event_timeout: Duration,
    pub cassette: Option<PathBuf>,
}

impl Endpoint {
    /// `provider/model`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.provider, self.model)
    }

    /// Where its calls go, without query parameters of its own.
    pub fn url(&self) -> String {
        self.wire.url(&self.base_url, &self.model)
    }

    /// The start of a request's body.
    ///
    /// `slow_steps`: see [`Front::slow_steps`].
    pub fn front(&self, max_output_tokens: u64, force_tool: Option<&str>, slow_steps: bool) -> Vec<u8> {
        self.wire.front(&Front {
            model: &self.model,
            max_output_tokens,
            force_tool,
            reasoning_effort: self.reasoning_effort.as_deref(),
            extra_body: &self.extra_body,
            native: self.provider == "openai" && self.own,
            slow_steps,
        })
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
    #[error("no key for `{model}`: {why}")]
    NoKey { model: String, why: String },
    #[error("no value for the header `{header}` of `{model}`: {variable} is not set")]
    MissingHeader { model: String, header: String, variable: String },
    /// Not http(s), without a host, or with credentials, query or fragment in it.
    #[error("the base URL `{0}` is not a plain http or https URL")]
    BadUrl(String),
    /// An own endpoint lacks a key of its map.
    #[error("`{name}` is an own endpoint and needs `{key}`")]
    Incomplete { name: String, key: &'static str },
    #[error("`like: {0}` names no model of the catalogue")]
    UnknownLike(String),
}

fn did_you_mean(suggestions: &[String]) -> String {
    if suggestions.is_empty() { String::new() } else { format!(" (did you mean {}?)", suggestions.join(", ")) }
}

/// Resolves a model. `prices` are the goal file's, by `provider/model`; they win over the catalogue.
///
/// An own endpoint (`base_url` in the map, or an entry of `providers`) is keyless unless it names a key: a key of a
/// vendor never goes to a server that a goal file names. Only the process environment may redirect a vendor's calls
/// with the vendor's key.
pub fn resolve(
    spec: &ModelSpec,
    providers: &BTreeMap<String, ProviderSpec>,
    prices: &BTreeMap<String, Price>,
    env: &dyn Env,
) -> Result<Endpoint, EndpointError> {
    let endpoint = describe(spec, providers, prices, env)?;
    match &endpoint.key {
        KeySource::Env(variables) if !any_set(env, variables) => {
            Err(EndpointError::MissingKey { model: endpoint.name(), variables: variables.clone() })
        }
        _ => missing_header(&endpoint, env).map_or(Ok(endpoint), Err),
    }
}

/// [`resolve`], whether or not there is a key.
pub fn describe(
    spec: &ModelSpec,
    providers: &BTreeMap<String, ProviderSpec>,
    prices: &BTreeMap<String, Price>,
    env: &dyn Env,
) -> Result<Endpoint, EndpointError> {
    let like = match &spec.like {
        Some(name) => Some(table().named(name).ok_or_else(|| EndpointError::UnknownLike(name.clone()))?),
        None => None,
    };
    if let Some(cassette) = &spec.cassette {
        return Ok(recorded(spec, cassette.clone(), like));
    }
    let (provider, model) = split(spec, providers)?;
    let place = Place::find(spec, &provider, &model, providers, env)?;
    let own_row = table().row(&provider, &model);
    if let (None, None, None, false) = (own_row, like, spec.context_window, place.unlisted) {
        return Err(unknown_model(&provider, &model));
    }
    let row = like.or(own_row);
    let address = Address::parse(&place.base_url)?;

    let known_window = spec.context_window.or(row.map(|row| row.window_tokens));
    let window_tokens = known_window.unwrap_or(if address.local { LOCAL_WINDOW } else { REMOTE_WINDOW });
    let max_output_tokens = spec.max_output_tokens.unwrap_or_else(|| match row {
        Some(row) if window_tokens >= row.window_tokens => row.max_output_tokens,
        // A window smaller than the model's own must still leave room for input.
        Some(row) => row.max_output_tokens.min(window_tokens / 4).max(1),
        None => reply_of(window_tokens),
    });
    let name = format!("{provider}/{model}");
    let price = prices.get(&name).or_else(|| prices.get(&spec.id)).or(row.map(|row| &row.price)).cloned();
    let free_because_local = price.is_none() && address.local;
    let needed = row.and_then(|row| row.chat_effort.clone()).filter(|_| place.wire == Wire::OpenAiChat);
    let reasoning_effort = spec.reasoning_effort.clone().or(needed);
    let reasons = match row {
        Some(row) => row.reasoning != Reasoning::None,
        None => reasoning_effort.is_some(),
    };
    let (idle_timeout, first_event_timeout) = timeouts(reasons);
    Ok(Endpoint {
        provider,
        model,
        wire: place.wire,
        base_url: address.text,
        key: place.key,
        own: place.own,
        local: address.local,
        window_tokens,
        max_output_tokens,
        reasoning_effort,
        headers: place.headers,
        env_headers: place.env_headers,
        query_params: place.query_params,
        extra_body: place.extra_body,
        ca_file: place.ca_file,
        window_assumed: address.local && known_window.is_none(),
        price: if free_because_local { Some(Price::FREE) } else { price },
        free_because_local,
        force_tool: row.is_none_or(|row| row.force_tool),
        idle_timeout: spec.idle_timeout.unwrap_or(idle_timeout),
        first_event_timeout: spec.first_event_timeout.unwrap_or(first_event_timeout),
        cassette: None,
    })
}

/// The first header whose variable is not set.
fn missing_header(endpoint: &Endpoint, env: &dyn Env) -> Option<EndpointError> {
    let missing = endpoint.env_headers.iter().find(|(_, variable)| !any_set(env, std::slice::from_ref(variable)));
    missing.map(|(header, variable)| EndpointError::MissingHeader {
        model: endpoint.name(),
        header: header.clone(),
        variable: variable.clone(),
    })
}

/// The longest reply of a model of which only the window is known.
pub(super) fn reply_of(window_tokens: u64) -> u64 {
    (window_tokens / 4).clamp(1, 8_192)
}

/// The price of the model that answered, where the catalogue knows it for another one than was asked.
pub(super) fn price_of_answer<'a>(endpoint: &'a Endpoint, answered: Option<&str>) -> Option<&'a Price> {
    let row = |model: &str| table().row(&endpoint.provider, model);
    let other = answered.and_then(row).filter(|row| {
        let asked = table().row(&endpoint.provider, &endpoint.model);
        asked.is_some_and(|asked| asked.name != row.name)
    });
    other.map(|row| &row.price).or(endpoint.price.as_ref())
}

/// The catalogue's providers, each with the variables that may hold its key, in the order they are tried.
pub fn key_variables() -> impl Iterator<Item = (&'static str, &'static [String])> {
    table().providers.iter().map(|(name, provider)| (name.as_str(), provider.keys.as_slice()))
}

/// What a message lists when a goal names no model: models whose key is in the environment, best first.
pub fn usable(env: &dyn Env) -> Vec<String> {
    let mut names = Vec::new();
    for (name, provider) in table().providers.iter().filter(|(_, provider)| any_set(env, &provider.keys)) {
        names.extend(provider.best.iter().map(|model| format!("{name}/{model}")));
        let prefix = format!("{name}/");
        let others: Vec<String> = table()
            .models
            .iter()
            .filter(|row| row.name.starts_with(&prefix) && !names.contains(&row.name))
            .map(|row| row.name.clone())
            .collect();
        names.extend(others);
    }
    names
}

/// Replies from a file: no server, no key, no money.
fn recorded(spec: &ModelSpec, cassette: PathBuf, like: Option<&Row>) -> Endpoint {
    let window_tokens = spec.context_window.or(like.map(|row| row.window_tokens)).unwrap_or(REMOTE_WINDOW);
    let (idle_timeout, first_event_timeout) = timeouts(false);
    let model = cassette.file_stem().map_or_else(|| RECORDED.to_owned(), |stem| stem.to_string_lossy().into_owned());
    Endpoint {
        provider: RECORDED.to_owned(),
        model,
        wire: spec.wire.unwrap_or(Wire::Anthropic),
        base_url: String::new(),
        key: KeySource::None,
        own: true,
        local: false,
        window_tokens,
        max_output_tokens: spec
            .max_output_tokens
            .or(like.map(|row| row.max_output_tokens))
            .unwrap_or_else(|| reply_of(window_tokens)),
        reasoning_effort: spec.reasoning_effort.clone(),
        headers: BTreeMap::new(),
        env_headers: BTreeMap::new(),
        query_params: BTreeMap::new(),
        extra_body: Vec::new(),
        ca_file: None,
        window_assumed: false,
        price: Some(like.map_or(Price::FREE, |row| row.price.clone())),
        free_because_local: false,
        force_tool: true,
        idle_timeout,
        first_event_timeout,
        cassette: Some(cassette),
    }
}

/// Between two events, and before the first one. A model that reasons is silent for longer.
const fn timeouts(reasons: bool) -> (Duration, Duration) {
    if reasons {
        (Duration::from_secs(300), Duration::from_secs(600))
    } else {
        (Duration::from_secs(120), Duration::from_secs(300))
    }
}

/// Provider and model of a specification.
fn split(spec: &ModelSpec, providers: &BTreeMap<String, ProviderSpec>) -> Result<(String, String), EndpointError> {
    let not_a_name = || EndpointError::NotAName(spec.id.clone());
    if let Some(provider) = &spec.provider {
        // `provider: openai, id: openai/gpt-6-sol` says the same thing twice, unless the model itself is so called.
        let doubled = spec.id.strip_prefix(provider.as_str()).and_then(|rest| rest.strip_prefix('/'));
        let model = match doubled {
            Some(model) if table().row(provider, &spec.id).is_none() => model,
            _ => spec.id.as_str(),
        };
        let valid = !provider.is_empty() && !model.is_empty();
        return if valid { Ok((ours(provider, providers), model.to_owned())) } else { Err(not_a_name()) };
    }
    let known = |provider: &str| providers.contains_key(provider) || table().provider(provider).is_some();
    match spec.id.split_once('/') {
        Some((provider, model)) if !provider.is_empty() && !model.is_empty() => {
            if spec.base_url.is_some() && !known(provider) {
                // The servers of own endpoints have models like `Qwen/Qwen3-8B`.
                return Ok((UNNAMED.to_owned(), spec.id.clone()));
            }
            Ok((ours(provider, providers), model.to_owned()))
        }
        None if spec.base_url.is_some() && !spec.id.is_empty() => Ok((UNNAMED.to_owned(), spec.id.clone())),
        None => {
            let suggestions: Vec<String> =
                table().providers.keys().filter_map(|p| table().row(p, &spec.id)).map(|row| row.name.clone()).collect();
            if suggestions.is_empty() {
                Err(not_a_name())
            } else {
                Err(EndpointError::UnknownModel { name: spec.id.clone(), suggestions })
            }
        }
        Some(_) => Err(not_a_name()),
    }
}

/// The table's own name of a provider that has two, unless the goal file means another one by it.
fn ours(provider: &str, providers: &BTreeMap<String, ProviderSpec>) -> String {
    let name = if providers.contains_key(provider) { provider } else { own_name(provider) };
    name.to_owned()
}

fn any_set(env: &dyn Env, variables: &[String]) -> bool {
    variables.iter().any(|name| env.var(name).is_some_and(|value| !value.trim().is_empty()))
}
