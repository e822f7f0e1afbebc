//! Where a model's requests go: an own endpoint, or the vendor's.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::near::unknown_provider;
use super::table::{Provider, table};
use super::{EndpointError, KeySource, ModelSpec, ProviderSpec};
use crate::model::wire::Wire;
use crate::world::Env;

/// Where a model's requests go, and with which key.
pub(super) struct Place {
    pub wire: Wire,
    pub base_url: String,
    pub key: KeySource,
    pub own: bool,
    /// An own endpoint: its models need no row.
    pub unlisted: bool,
    pub headers: BTreeMap<String, String>,
    pub env_headers: BTreeMap<String, String>,
    pub query_params: BTreeMap<String, String>,
    pub extra_body: Vec<(String, String)>,
    pub ca_file: Option<PathBuf>,
}

impl Place {
    /// # Errors
    /// An unknown provider, or an own endpoint that lacks a key of its map.
    pub fn find(
        spec: &ModelSpec,
        provider: &str,
        model: &str,
        providers: &BTreeMap<String, ProviderSpec>,
        env: &dyn Env,
    ) -> Result<Place, EndpointError> {
        let incomplete = |key| EndpointError::Incomplete { name: format!("{provider}/{model}"), key };
        let named = providers.get(provider);
        let listed = table().provider(provider);
        let own_key = |name: &Option<String>| match name {
            Some(name) => KeySource::Env(vec![name.clone()]),
            None => KeySource::None,
        };
        let (wire, base_url, key, own) = match (&spec.base_url, named, listed) {
            (Some(base_url), _, _) => {
                let default = named.map(|p| p.wire).or(listed.map(|p| p.wire));
                let wire = spec.wire.or(default).ok_or_else(|| incomplete("wire"))?;
                (wire, base_url.clone(), own_key(&spec.api_key_env), false)
            }
            (None, Some(named), _) => {
                let wire = spec.wire.unwrap_or(named.wire);
                let key = match (&spec.api_key_env, &named.api_key_at) {
                    (None, Some(at)) => KeySource::At(at.clone()),
                    (given, _) => own_key(&given.as_ref().or(named.api_key_env.as_ref()).cloned()),
                };
                (wire, named.base_url.clone(), key, false)
            }
            // The vendor's URL of another wire is not known.
            (None, None, Some(listed)) if spec.wire.is_some_and(|wire| !listed.speaks(wire)) => {
                return Err(incomplete("base_url"));
            }
            (None, None, Some(listed)) => {
                let redirected = listed.redirected(env);
                let own = redirected.as_ref().is_none_or(|url| url.trim_end_matches('/') == listed.base_url);
                let key = match &spec.api_key_env {
                    Some(name) => KeySource::Env(vec![name.clone()]),
                    None => KeySource::Env(listed.keys.clone()),
                };
                let wire = spec.wire.unwrap_or(listed.wire);
                (wire, redirected.unwrap_or_else(|| listed.base_url.clone()), key, own)
            }
            (None, None, None) if spec.wire.is_some() => return Err(incomplete("base_url")),
            (None, None, None) => return Err(unknown_provider(provider, providers)),
        };
        // A URL of the map's own is another server than the one that the provider's headers are meant for.
        let base = named.filter(|_| spec.base_url.is_none());
        let empty = BTreeMap::new();
        Ok(Place {
            wire,
            base_url,
            key,
            own,
            unlisted: spec.base_url.is_some() || named.is_some(),
            headers: merged(base.map_or(&empty, |p| &p.headers), &spec.headers, str::to_ascii_lowercase),
            env_headers: merged(base.map_or(&empty, |p| &p.env_http_headers), &empty, str::to_ascii_lowercase),
            ca_file: base.and_then(|p| p.ca_file.clone()),
            query_params: merged(base.map_or(&empty, |p| &p.query_params), &spec.query_params, str::to_owned),
            extra_body: merged_body(base.map_or(&[], |p| p.extra_body.as_slice()), &spec.extra_body),
        })
    }
}

impl Provider {
    /// Whether its base URL is that of the wire.
    fn speaks(&self, wire: Wire) -> bool {
        self.wire == wire || self.also.contains(&wire)
    }

    /// The base URL that the process environment sets instead of the vendor's.
    fn redirected(&self, env: &dyn Env) -> Option<String> {
        env.var(self.base_url_env.as_deref()?).filter(|url| !url.trim().is_empty())
    }
}

fn merged(
    base: &BTreeMap<String, String>,
    over: &BTreeMap<String, String>,
    name: fn(&str) -> String,
) -> BTreeMap<String, String> {
    base.iter().chain(over).map(|(key, value)| (name(key), value.clone())).collect()
}

fn merged_body(base: &[(String, String)], over: &[(String, String)]) -> Vec<(String, String)> {
    let kept = base.iter().filter(|(name, _)| !over.iter().any(|(other, _)| other == name));
    kept.chain(over).cloned().collect()
}
