//! What a model name resolves to.

use super::near::edit_distance;
use super::*;

struct TestEnv(Vec<(&'static str, &'static str)>);

impl Env for TestEnv {
    fn var(&self, name: &str) -> Option<String> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    }

    fn vars(&self) -> Vec<(String, String)> {
        self.0.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }
}

const KEYS: [(&str, &str); 3] = [("ANTHROPIC_API_KEY", "a"), ("OPENAI_API_KEY", "b"), ("GROQ_API_KEY", "c")];

fn keys() -> TestEnv {
    TestEnv(KEYS.to_vec())
}

fn named(id: &str) -> ModelSpec {
    ModelSpec { id: id.to_owned(), ..ModelSpec::default() }
}

fn own(id: &str, base_url: &str) -> ModelSpec {
    ModelSpec { wire: Some(Wire::OpenAiChat), base_url: Some(base_url.to_owned()), ..named(id) }
}

fn local_provider() -> BTreeMap<String, ProviderSpec> {
    let provider = ProviderSpec {
        wire: Wire::OpenAiChat,
        base_url: "http://127.0.0.1:8080/v1/".to_owned(),
        api_key_env: None,
        api_key_at: None,
        env_http_headers: BTreeMap::new(),
        ca_file: None,
        headers: BTreeMap::from([("X-Team".to_owned(), "ci".to_owned())]),
        query_params: BTreeMap::new(),
        extra_body: vec![("temperature".to_owned(), "0".to_owned()), ("seed".to_owned(), "7".to_owned())],
    };
    BTreeMap::from([("local".to_owned(), provider)])
}

fn resolved(spec: &ModelSpec) -> Endpoint {
    resolve(spec, &BTreeMap::new(), &BTreeMap::new(), &keys()).unwrap()
}

fn refused(spec: &ModelSpec) -> EndpointError {
    resolve(spec, &BTreeMap::new(), &BTreeMap::new(), &keys()).unwrap_err()
}

#[test]
fn a_listed_model_brings_its_wire_window_and_price() {
    let endpoint = resolved(&named("anthropic/claude-opus-5-5"));
    assert_eq!(endpoint.wire, Wire::Anthropic);
    assert_eq!(endpoint.base_url, "https://api.anthropic.com");
    assert_eq!(endpoint.key, KeySource::Env(vec!["ANTHROPIC_API_KEY".into()]));
    assert!(endpoint.own && !endpoint.local && !endpoint.free_because_local);
    assert_eq!((endpoint.window_tokens, endpoint.max_output_tokens), (1_000_000, 128_000));
    let price = endpoint.price.clone().unwrap();
    assert_eq!((price.input, price.output, price.cache_read), (4_000_000, 20_000_000, Some(200_000)));
    assert_eq!((price.cache_write, price.cache_write_1h), (Some(5_000_000), Some(8_000_000)));
    assert!(!endpoint.force_tool, "this model refuses a forced tool");
    assert_eq!(endpoint.idle_timeout, Duration::from_secs(300), "it reasons");
    assert_eq!(endpoint.first_event_timeout, Duration::from_secs(600));
    assert_eq!(endpoint.name(), "anthropic/claude-opus-5-5");
}

#[test]
fn an_openai_model_speaks_responses_and_chat_when_it_is_told_to() {
    let endpoint = resolved(&named("openai/gpt-6-sol"));
    assert_eq!(endpoint.wire, Wire::OpenAiResponses);
    assert_eq!(endpoint.url(), "https://api.openai.com/v1/responses");
    assert_eq!(endpoint.reasoning_effort, None, "the provider's own default");
    assert!(endpoint.force_tool);
    let tier = endpoint.price.unwrap().above.unwrap();
    assert_eq!((tier.input_tokens, tier.price.input, tier.price.output), (272_000, 4_000_000, 15_000_000));
    let chat = ModelSpec { wire: Some(Wire::OpenAiChat), ..named("openai/gpt-6-sol") };
    let endpoint = resolved(&chat);
    assert_eq!(
        (endpoint.wire, endpoint.url().as_str()),
        (Wire::OpenAiChat, "https://api.openai.com/v1/chat/completions")
    );
    assert_eq!(endpoint.reasoning_effort.as_deref(), Some("none"), "what that wire needs for tools");
    assert!(endpoint.own);
    let spec = ModelSpec { reasoning_effort: Some("high".into()), ..chat };
    assert_eq!(resolved(&spec).reasoning_effort.as_deref(), Some("high"));
}

#[test]
fn a_gemini_model_has_two_names_and_two_keys() {
    for (variable, name) in [("GEMINI_API_KEY", "gemini/gemini-4-neon"), ("GOOGLE_API_KEY", "google/gemini-4-neon")] {
        let env = TestEnv(vec![(variable, "k")]);
        let endpoint = resolve(&self::named(name), &BTreeMap::new(), &BTreeMap::new(), &env).unwrap();
        assert_eq!((endpoint.wire, endpoint.name().as_str()), (Wire::Gemini, "gemini/gemini-4-neon"));
        assert_eq!(endpoint.key, KeySource::Env(vec!["GEMINI_API_KEY".into(), "GOOGLE_API_KEY".into()]));
        assert_eq!(
            endpoint.url(),
            "https://generativelanguage.googleapis.com/v1beta/models/gemini-4-neon:streamGenerateContent?alt=sse"
        );
        assert_eq!(endpoint.price.map(|price| price.input), Some(3_000_000));
    }
    let error =
        resolve(&named("google/gemini-4-neon"), &BTreeMap::new(), &BTreeMap::new(), &TestEnv(vec![])).unwrap_err();
    let EndpointError::MissingKey { variables, .. } = error else { panic!("{error}") };
    assert_eq!(variables, ["GEMINI_API_KEY", "GOOGLE_API_KEY"]);
    // A provider of the goal file may be called so, and is another one.
    let own = BTreeMap::from([("google".to_owned(), local_provider().remove("local").unwrap())]);
    let endpoint = resolve(&named("google/x"), &own, &BTreeMap::new(), &keys()).unwrap();
    assert_eq!((endpoint.provider.as_str(), endpoint.wire), ("google", Wire::OpenAiChat));
}

#[test]
fn a_dated_id_goes_to_the_provider_as_written() {
    let endpoint = resolved(&named("anthropic/claude-haiku-4-5-20251001"));
    assert_eq!(endpoint.model, "claude-haiku-4-5-20251001");
    assert_eq!(endpoint.window_tokens, 200_000);
    assert_eq!(endpoint.price.unwrap().input, 1_000_000);
}

#[test]
fn a_model_id_may_hold_slashes() {
    let endpoint = resolved(&named("groq/openai/gpt-oss-120b"));
    assert_eq!((endpoint.provider.as_str(), endpoint.model.as_str()), ("groq", "openai/gpt-oss-120b"));
    let spec = ModelSpec { provider: Some("groq".into()), ..named("openai/gpt-oss-120b") };
    assert_eq!(resolved(&spec).model, "openai/gpt-oss-120b");
    let spec = ModelSpec { provider: Some("openai".into()), ..named("openai/gpt-6-sol") };
    assert_eq!(resolved(&spec).model, "gpt-6-sol");
    let spec = ModelSpec { provider: Some("openai".into()), ..named("gpt-6-sol") };
    assert_eq!(resolved(&spec).model, "gpt-6-sol");
}

#[test]
fn unknown_names_are_answered_with_near_ones() {
    let EndpointError::UnknownModel { name, suggestions } = refused(&named("anthropic/claude-opus-55")) else {
        panic!("an unknown model")
    };
    assert_eq!(name, "anthropic/claude-opus-55");
    assert_eq!(suggestions.first().map(String::as_str), Some("anthropic/claude-opus-5"));
    assert!(suggestions.len() <= 3);
    assert_eq!(
        refused(&named("antropic/claude-opus-5-5")),
        EndpointError::UnknownProvider { name: "antropic".into(), suggestions: vec!["anthropic".into()] }
    );
    assert_eq!(
        refused(&named("claude-opus-5-5")),
        EndpointError::UnknownModel {
            name: "claude-opus-5-5".into(),
            suggestions: vec!["anthropic/claude-opus-5-5".into()]
        }
    );
    assert_eq!(refused(&named("zzz")), EndpointError::NotAName("zzz".into()));
    for bad in ["", "/x", "anthropic/", "/"] {
        assert_eq!(refused(&named(bad)), EndpointError::NotAName(bad.into()), "{bad}");
    }
}

#[test]
fn a_name_from_providers_is_suggested_too() {
    let error = resolve(&named("locl/x"), &local_provider(), &BTreeMap::new(), &keys()).unwrap_err();
    assert_eq!(error, EndpointError::UnknownProvider { name: "locl".into(), suggestions: vec!["local".into()] });
}

#[test]
fn an_unlisted_model_of_a_known_provider_needs_its_window() {
    let spec = ModelSpec { context_window: Some(64_000), ..named("openai/gpt-9-new") };
    let endpoint = resolved(&spec);
    assert_eq!((endpoint.window_tokens, endpoint.max_output_tokens), (64_000, 8_192));
    assert_eq!(endpoint.price, None);
    assert!(!endpoint.free_because_local);
    let spec = ModelSpec { like: Some("openai/gpt-6-sol".into()), ..named("openai/gpt-9-new") };
    let endpoint = resolved(&spec);
    assert_eq!((endpoint.window_tokens, endpoint.max_output_tokens), (1_050_000, 128_000));
    assert_eq!(endpoint.price.unwrap().input, 2_000_000);
}

#[test]
fn an_unknown_like_is_named() {
    for like in ["openai/gpt-99", "nonsense", ""] {
        let spec = ModelSpec { like: Some(like.into()), ..named("openai/gpt-6-sol") };
        assert_eq!(refused(&spec), EndpointError::UnknownLike(like.into()));
    }
}

#[test]
fn a_smaller_window_leaves_room_for_input() {
    let spec = ModelSpec { context_window: Some(40_000), ..named("anthropic/claude-opus-5-5") };
    let endpoint = resolved(&spec);
    assert_eq!((endpoint.window_tokens, endpoint.max_output_tokens), (40_000, 10_000));
    let spec = ModelSpec { max_output_tokens: Some(2_000), ..spec };
    assert_eq!(resolved(&spec).max_output_tokens, 2_000);
}

#[test]
fn an_own_endpoint_is_keyless_and_free_where_it_is_local() {
    let endpoint = resolved(&own("Qwen/Qwen3-8B", "http://127.0.0.1:8080/v1"));
    assert_eq!((endpoint.provider.as_str(), endpoint.model.as_str()), ("own", "Qwen/Qwen3-8B"));
    assert_eq!(endpoint.key, KeySource::None);
    assert!(endpoint.local && !endpoint.own && endpoint.free_because_local);
    assert_eq!(endpoint.price, Some(Price::FREE));
    assert_eq!((endpoint.window_tokens, endpoint.max_output_tokens), (8_192, 2_048));
    assert_eq!(endpoint.idle_timeout, Duration::from_secs(120));
    assert_eq!(endpoint.first_event_timeout, Duration::from_secs(300));

    let endpoint = resolved(&own("qwen", "https://gpu.example.com/v1"));
    assert!(!endpoint.local && !endpoint.free_because_local);
    assert_eq!(endpoint.price, None, "elsewhere nothing is free by itself");
    assert_eq!((endpoint.window_tokens, endpoint.max_output_tokens), (100_000, 8_192));
}

#[test]
fn a_vendors_key_never_goes_to_a_url_of_the_goal_file() {
    let spec = ModelSpec { base_url: Some("https://evil.example.com".into()), ..named("anthropic/claude-opus-5-5") };
    let endpoint = resolved(&spec);
    assert_eq!(endpoint.key, KeySource::None);
    assert_eq!(endpoint.wire, Wire::Anthropic, "the provider's own wire");
    assert!(!endpoint.own);
    assert_eq!(endpoint.price.unwrap().input, 4_000_000, "its facts are still known");
}

#[test]
fn an_own_endpoint_needs_a_wire_and_a_url() {
    let spec = ModelSpec { base_url: Some("http://localhost:1/v1".into()), ..named("qwen") };
    assert_eq!(refused(&spec), EndpointError::Incomplete { name: "own/qwen".into(), key: "wire" });
    let spec = ModelSpec { wire: Some(Wire::Anthropic), ..named("other/qwen") };
    assert_eq!(refused(&spec), EndpointError::Incomplete { name: "other/qwen".into(), key: "base_url" });
    let spec = ModelSpec { wire: Some(Wire::Anthropic), ..named("openai/gpt-6-sol") };
    assert_eq!(refused(&spec), EndpointError::Incomplete { name: "openai/gpt-6-sol".into(), key: "base_url" });
    assert_eq!(refused(&own("qwen", "nonsense")), EndpointError::BadUrl("nonsense".into()));
}

#[test]
fn an_entry_of_providers_is_an_own_endpoint() {
    let mut spec = named("local/qwen3:8b");
    spec.headers.insert("x-team".into(), "nightly".into());
    spec.extra_body.push(("seed".into(), "8".into()));
    let endpoint = resolve(&spec, &local_provider(), &BTreeMap::new(), &TestEnv(vec![])).unwrap();
    assert_eq!((endpoint.provider.as_str(), endpoint.model.as_str()), ("local", "qwen3:8b"));
    assert_eq!(endpoint.base_url, "http://127.0.0.1:8080/v1");
    assert_eq!(endpoint.key, KeySource::None);
    assert!(!endpoint.own && endpoint.local && endpoint.free_because_local);
    assert_eq!(endpoint.headers, BTreeMap::from([("x-team".to_owned(), "nightly".to_owned())]));
    assert_eq!(endpoint.extra_body, [("temperature".to_owned(), "0".to_owned()), ("seed".to_owned(), "8".to_owned())]);
}

#[test]
fn named_prices_win() {
    let price = Price { input: 200_000, output: 600_000, ..Price::FREE };
    let prices = BTreeMap::from([("local/qwen".to_owned(), price.clone()), ("qwen".to_owned(), price.clone())]);
    let endpoint = resolve(&named("local/qwen"), &local_provider(), &prices, &keys()).unwrap();
    assert_eq!(endpoint.price.as_ref(), Some(&price));
    assert!(!endpoint.free_because_local);
    let spec = own("qwen", "https://gpu.example.com/v1");
    let endpoint = resolve(&spec, &BTreeMap::new(), &prices, &keys()).unwrap();
    assert_eq!(endpoint.price.as_ref(), Some(&price), "by the id as written");
    let prices = BTreeMap::from([("openai/gpt-6-sol".to_owned(), price.clone())]);
    let endpoint = resolve(&named("openai/gpt-6-sol"), &BTreeMap::new(), &prices, &keys()).unwrap();
    assert_eq!(endpoint.price, Some(price), "over the catalogue");
}

#[test]
fn the_environment_redirects_a_vendor_and_says_so() {
    let mut env = KEYS.to_vec();
    env.push(("ANTHROPIC_BASE_URL", "http://localhost:4000/"));
    env.push(("OPENAI_BASE_URL", "https://api.openai.com/v1/"));
    let env = TestEnv(env);
    let none = BTreeMap::new();
    let endpoint = resolve(&named("anthropic/claude-sonnet-5-5"), &none, &BTreeMap::new(), &env).unwrap();
    assert_eq!(endpoint.base_url, "http://localhost:4000");
    assert!(!endpoint.own && endpoint.local);
    assert_eq!(endpoint.key, KeySource::Env(vec!["ANTHROPIC_API_KEY".into()]));
    assert_eq!(endpoint.price.as_ref().map(|p| p.input), Some(2_000_000), "a proxy's calls are billed by the vendor");
    let endpoint = resolve(&named("openai/gpt-6-sol"), &none, &BTreeMap::new(), &env).unwrap();
    assert!(endpoint.own, "the vendor's own URL written out");
    let env = TestEnv(vec![("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", "")]);
    let endpoint = resolve(&named("openai/gpt-6-sol"), &none, &BTreeMap::new(), &env).unwrap();
    assert_eq!(endpoint.base_url, "https://api.openai.com/v1", "empty is unset");
}

#[test]
fn a_missing_or_empty_key_is_named() {
    for env in [vec![], vec![("ANTHROPIC_API_KEY", "")], vec![("ANTHROPIC_API_KEY", " \n")]] {
        let spec = named("anthropic/claude-opus-5-5");
        assert_eq!(
            resolve(&spec, &BTreeMap::new(), &BTreeMap::new(), &TestEnv(env)).unwrap_err(),
            EndpointError::MissingKey {
                model: "anthropic/claude-opus-5-5".into(),
                variables: vec!["ANTHROPIC_API_KEY".into()]
            }
        );
    }
    let spec = ModelSpec { api_key_env: Some("TEAM_KEY".into()), ..named("anthropic/claude-opus-5-5") };
    let EndpointError::MissingKey { variables, .. } = refused(&spec) else { panic!("a missing key") };
    assert_eq!(variables, ["TEAM_KEY"]);
    let env = TestEnv(vec![("TEAM_KEY", "k")]);
    let endpoint = resolve(&spec, &BTreeMap::new(), &BTreeMap::new(), &env).unwrap();
    assert_eq!(endpoint.key, KeySource::Env(vec!["TEAM_KEY".into()]));
    let spec = ModelSpec { api_key_env: Some("GPU_KEY".into()), ..own("qwen", "https://gpu.example.com/v1") };
    assert!(matches!(refused(&spec), EndpointError::MissingKey { .. }));
}

#[test]
fn a_recorded_model_needs_no_key_and_costs_nothing() {
    let spec = ModelSpec { cassette: Some("/tapes/quickstart.jsonl".into()), ..ModelSpec::default() };
    let endpoint = resolve(&spec, &BTreeMap::new(), &BTreeMap::new(), &TestEnv(vec![])).unwrap();
    assert_eq!(endpoint.name(), "recorded/quickstart");
    assert_eq!(endpoint.price, Some(Price::FREE));
    assert_eq!(endpoint.key, KeySource::None);
    assert_eq!(endpoint.cassette, Some(PathBuf::from("/tapes/quickstart.jsonl")));
}

#[test]
fn timeouts_of_the_goal_file_win() {
    let spec = ModelSpec {
        idle_timeout: Some(Duration::from_secs(5)),
        first_event_timeout: Some(Duration::from_secs(6)),
        ..named("anthropic/claude-opus-5-5")
    };
    let endpoint = resolved(&spec);
    assert_eq!((endpoint.idle_timeout, endpoint.first_event_timeout), (Duration::from_secs(5), Duration::from_secs(6)));
}

#[test]
fn usable_models_are_those_with_a_key() {
    assert_eq!(usable(&TestEnv(vec![])), Vec::<String>::new());
    assert_eq!(usable(&TestEnv(vec![("OPENAI_API_KEY", "")])), Vec::<String>::new());
    let names = usable(&TestEnv(vec![("ANTHROPIC_API_KEY", "k")]));
    assert_eq!(names.first().map(String::as_str), Some("anthropic/claude-opus-5-5"));
    assert!(names.contains(&"anthropic/claude-haiku-4-5".to_owned()));
    assert!(names.iter().all(|name| name.starts_with("anthropic/")));
    let mut unique = names.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), names.len(), "each once");
}

#[test]
fn the_list_has_every_row_with_its_wire_and_says_which_keys_are_set() {
    let listed = listed(&TestEnv(vec![("GOOGLE_API_KEY", "k")]));
    assert_eq!(listed.len(), table().models.len());
    let row = listed.iter().find(|row| row.name == "gemini/gemini-3.1-pro-preview").unwrap();
    assert!(row.is_of("google") && row.is_of("gemini") && !row.is_of("openai"));
    assert_eq!((row.wire, row.window_tokens, row.price.output), (Wire::Gemini, 1_048_576, 12_000_000));
    assert!(listed.iter().all(|row| row.key_set == row.is_of("gemini")));
    let wires: std::collections::BTreeSet<&str> = listed.iter().map(|row| row.wire.name()).collect();
    assert!(wires.contains("openai-responses") && wires.contains("anthropic") && wires.contains("openai-chat"));
}

#[test]
fn an_endpoint_survives_being_frozen() {
    let endpoint = resolved(&named("anthropic/claude-haiku-5-5"));
    let json = serde_json::to_string(&endpoint).unwrap();
    assert_eq!(serde_json::from_str::<Endpoint>(&json).unwrap(), endpoint);
}

#[test]
fn distances_count_edits() {
    for (a, b, distance) in [("", "", 0), ("", "abc", 3), ("abc", "abc", 0), ("kitten", "sitting", 3), ("ab", "ba", 2)]
    {
        assert_eq!(edit_distance(a, b), distance, "{a} {b}");
        assert_eq!(edit_distance(b, a), distance, "{b} {a}");
    }
}

#[test]
fn a_reply_is_priced_by_the_model_that_gave_it() {
    let asked = resolved(&named("anthropic/claude-haiku-4-5"));
    let other = resolved(&named("anthropic/claude-opus-5-5"));
    assert_ne!(asked.price, other.price);
    assert_eq!(price_of_answer(&asked, Some("claude-opus-5-5")), other.price.as_ref());
    for same in [None, Some("claude-haiku-4-5-20251001"), Some("claude-haiku-4-5"), Some("what-nobody-knows")] {
        assert_eq!(price_of_answer(&asked, same), asked.price.as_ref(), "{same:?}");
    }
    // An own endpoint's price is its own, whatever it calls its model.
    let local = resolved(&own("Qwen/Qwen3-8B", "http://127.0.0.1:8080/v1"));
    assert_eq!(price_of_answer(&local, Some("anthropic/claude-opus-5-5")), local.price.as_ref());
}
