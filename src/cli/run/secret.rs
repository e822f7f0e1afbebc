//! Which values are secret: keys in use, variables that look like it, and those that the goal names.

use crate::goal::Config;
use crate::model::{Endpoint, KeySource};
use crate::process;
use crate::world::{Env, Secrets};

pub(in crate::cli) fn key_names<'a>(endpoints: impl IntoIterator<Item = Option<&'a Endpoint>>) -> Vec<String> {
    let mut names: Vec<String> = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"]
        .iter()
        .map(|name| (*name).to_owned())
        .collect();
    for endpoint in endpoints.into_iter().flatten() {
        if let KeySource::Env(of) = &endpoint.key {
            names.extend(of.iter().cloned());
        }
    }
    names.sort();
    names.dedup();
    names
}

/// The values that may appear nowhere: keys in use, variables that look like secrets, and those under `redact`.
pub(in crate::cli) fn secrets<'a>(
    config: &Config,
    endpoints: impl IntoIterator<Item = Option<&'a Endpoint>>,
    env: &dyn Env,
) -> Secrets {
    let keys = key_names(endpoints);
    let values = env
        .vars()
        .into_iter()
        .filter(|(name, _)| keys.contains(name) || config.redact.contains(name) || process::looks_secret(name));
    Secrets::new(values)
}
