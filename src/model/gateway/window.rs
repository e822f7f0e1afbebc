//! Asks a local server how much fits its window, when nobody has said so. The one request beside the calls: it costs
//! nothing and tells nothing of the goal.

use std::time::Duration;

use serde_json::Value;

use super::super::catalog::{Endpoint, reply_of};
use super::attempt::{Key, headers, with_query};
use crate::event::Lane;
use crate::world::{Body, HttpRequest, Tag, World};

/// A local server that takes longer is not asked further.
const PATIENCE: Duration = Duration::from_secs(2);
/// What describes a model is far smaller.
const MOST_BYTES: usize = 4 << 20;
/// A smaller window is none that a server of models has.
const LEAST_TOKENS: u64 = 256;

/// Puts the window into the endpoint that its own server names. False when it names none: the assumption stands.
pub async fn ask_window(world: &World, endpoint: &mut Endpoint) -> bool {
    if !endpoint.window_assumed {
        return true;
    }
    let base = endpoint.base_url.trim_end_matches('/');
    let root = ["/v1", "/v1beta"].iter().find_map(|end| base.strip_suffix(end)).unwrap_or(base).to_owned();
    let shown = serde_json::json!({"model": endpoint.model}).to_string();
    // llama.cpp says what a slot really has, vLLM what it was started with, Ollama what the model file allows.
    let asked: [(&str, &str, Option<&str>); 3] =
        [("GET", "/props", None), ("GET", "/v1/models", None), ("POST", "/api/show", Some(&shown))];
    for (method, path, body) in asked {
        let Some(answer) = get(world, endpoint, method, format!("{root}{path}"), body).await else { continue };
        let window = match path {
            "/props" => of_props(&answer),
            "/v1/models" => of_models(&answer, &endpoint.model),
            _ => of_show(&answer),
        };
        if let Some(window) = window.filter(|window| *window >= LEAST_TOKENS) {
            if endpoint.max_output_tokens == reply_of(endpoint.window_tokens) {
                endpoint.max_output_tokens = reply_of(window);
            }
            endpoint.window_tokens = window;
            endpoint.window_assumed = false;
            return true;
        }
    }
    false
}

fn of_props(answer: &Value) -> Option<u64> {
    let slot = answer.pointer("/default_generation_settings/n_ctx");
    slot.or_else(|| answer.get("n_ctx")).and_then(Value::as_u64)
}

fn of_models(answer: &Value, model: &str) -> Option<u64> {
    let all = answer.get("data")?.as_array()?;
    let named = all.iter().find(|row| row.get("id").and_then(Value::as_str) == Some(model));
    // A server of one model answers to any name.
    let row = named.or_else(|| all.first().filter(|_| all.len() == 1))?;
    let keys = ["max_model_len", "context_length", "context_window", "max_context_length"];
    keys.iter().find_map(|key| row.get(*key).and_then(Value::as_u64))
}

fn of_show(answer: &Value) -> Option<u64> {
    // What the model is run with stands in its parameters; what it was made for in its description.
    let parameters = answer.get("parameters").and_then(Value::as_str).unwrap_or_default();
    let set = parameters.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        if words.next() == Some("num_ctx") { words.next()?.parse().ok() } else { None }
    });
    set.or_else(|| {
        let info = answer.get("model_info")?.as_object()?;
        info.iter().find(|(key, _)| key.ends_with(".context_length")).and_then(|(_, value)| value.as_u64())
    })
}

/// The JSON of a 2xx answer; whatever else comes is no answer.
async fn get(
    world: &World,
    endpoint: &Endpoint,
    method: &'static str,
    url: String,
    body: Option<&str>,
) -> Option<Value> {
    let asking = async {
        let request = HttpRequest {
            tag: Tag { lane: Lane::Agent, n: 0, attempt: 0 },
            method,
            url: with_query(endpoint, url),
            headers: headers(world, endpoint, Key::Known).await.ok()?,
            body: Body(body.map(|text| bytes::Bytes::copy_from_slice(text.as_bytes())).into_iter().collect()),
            connect_timeout: PATIENCE,
            ca_file: endpoint.ca_file.clone(),
        };
        let mut response = world.transport.send(request).await.ok()?;
        let mut whole = Vec::new();
        while let Some(chunk) = response.body.next().await.ok()? {
            whole.extend_from_slice(&chunk);
            if whole.len() > MOST_BYTES {
                return None;
            }
        }
        if (200..300).contains(&response.status) { serde_json::from_slice(&whole).ok() } else { None }
    };
    tokio::select! {
        biased;
        answer = asking => answer,
        () = world.clock.sleep(PATIENCE) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_servers_words_are_understood() {
        assert_eq!(of_props(&json!({"default_generation_settings": {"n_ctx": 4096, "params": {}}})), Some(4_096));
        assert_eq!(of_props(&json!({"error": "not found"})), None);
        let models = json!({"data": [{"id": "a", "max_model_len": 32768}, {"id": "b", "max_model_len": 9000}]});
        assert_eq!(of_models(&models, "b"), Some(9_000));
        assert_eq!(of_models(&models, "c"), None);
        // What a model was trained with is not what the server gives it.
        assert_eq!(of_models(&json!({"data": [{"id": "x", "meta": {"n_ctx_train": 131_072}}]}), "x"), None);
        let info = json!({"llama.context_length": 131_072, "llama.block_count": 28});
        assert_eq!(of_show(&json!({"model_info": info})), Some(131_072));
        let set = json!({"model_info": info, "parameters": "stop \"<|eot|>\"\nnum_ctx                        4096"});
        assert_eq!(of_show(&set), Some(4_096));
    }
}
