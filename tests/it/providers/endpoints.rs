//! The way to a provider: proxies, certificates, keys that expire, headers from variables, windows that only the
//! server knows.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;

use spettro::event::Outcome;

use super::tls::Way;
use crate::goal::support::{Case, content, met};
use crate::provider::{Lane, Reply, Request, Script, Wire, respond_with};
use crate::sandbox::{PATIENCE, Sandbox};

const HOST: &str = "models.corp.test";
const OLD: &str = "sk-corp-0000-first";
const NEW: &str = "sk-corp-1111-second";

/// A provider that takes the old key for two requests of the agent, and then the new one only.
fn expiring() -> Script {
    let key = |request: &Request| request.header("x-api-key").unwrap_or_default().to_owned();
    let agent = respond_with(move |request: &Request| match (request.lane_n, key(request).as_str()) {
        (1 | 2, OLD) | (3.., NEW) => match request.lane_n {
            n if n < 5 => Reply::bash(&format!("echo {n} >> steps")),
            _ => Reply::complete("done"),
        },
        _ => Reply::error(401),
    });
    let judge = respond_with(move |request: &Request| if key(request) == NEW { met() } else { Reply::error(401) });
    Script::new().any_key().agent(agent.forever()).judge(judge.forever())
}

/// A command that prints the old key the first time, and then the new one.
fn key_command(sandbox: &Sandbox) -> String {
    let script = format!(
        "#!/bin/sh\necho run >> {0}.runs\nif [ -e {0}.asked ]; then echo {NEW}; else touch {0}.asked; echo {OLD}; fi\n",
        sandbox.root().join("key").display()
    );
    let path = sandbox.write(sandbox.root().join("key.sh"), script);
    format!("[sh, {}]", path.display())
}

fn corp(sandbox: &Sandbox, url: &str, more: &str) -> String {
    format!(
        "goal: x\nproviders: {{corp: {{wire: anthropic, base_url: \"{url}\", api_key_command: {}{more}}}}}\n\
         model: {{id: corp/m, context_window: 200000}}\nprices: {{corp/m: {{input: 3.00, output: 15.00}}}}\n",
        key_command(sandbox)
    )
}

fn nothing_of_the_keys_is_kept(case: &Case, said: &str) {
    for key in [OLD, NEW] {
        assert!(!said.contains(key), "{key} was printed");
    }
    let found = case.sandbox.sh(&format!("grep -rlE '{OLD}|{NEW}' {} || true", case.sandbox.home().display()));
    assert_eq!(found, "", "a key was stored");
}

#[test]
fn through_a_proxy_with_its_own_ca_and_a_key_that_expires_in_the_middle() {
    let sandbox = Sandbox::new();
    let provider = expiring().start();
    let ca = sandbox.root().join("ca.pem");
    let way = Way::start(HOST, provider.url().as_str(), &ca);
    sandbox.set("HTTPS_PROXY", way.url());
    let yaml = corp(&sandbox, &format!("https://{HOST}"), ", ca_file: ca.pem");
    let case = Case::of(sandbox, provider, &yaml);
    let ended = case.run().expect(Outcome::Met);
    assert_eq!(case.sandbox.read("steps"), "1\n2\n4\n");
    let asked = way.asked();
    assert!(
        !asked.is_empty() && asked.iter().all(|line| line.starts_with(&format!("CONNECT {HOST}:443 "))),
        "{asked:?}"
    );
    let runs = case.sandbox.read(case.sandbox.root().join("key.runs"));
    assert_eq!(runs, "run\nrun\n", "once at the start, once when it was refused");
    let refused = ended.facts("attempt");
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(refused[0]["attempt"]["status"], 401);
    assert!(ended.finished.stderr.contains(HOST), "an endpoint that is not the provider's own is named");
    nothing_of_the_keys_is_kept(&case, &format!("{}{}", ended.finished.stdout, ended.finished.stderr));
    case.provider.finish();
}

#[test]
fn certificates_of_the_environment_are_trusted_and_no_others() {
    for variable in [Some("SSL_CERT_FILE"), Some("SSL_CERT_DIR"), None] {
        let trusted = variable.is_some();
        let sandbox = Sandbox::new();
        let provider = content().start();
        let ca = sandbox.write(sandbox.root().join("certificates/ca.pem"), "");
        let way = Way::start(HOST, provider.url().as_str(), &ca);
        sandbox.set("HTTPS_PROXY", way.url());
        if let Some(variable) = variable {
            let place = if variable == "SSL_CERT_DIR" { ca.parent().expect("a folder") } else { &ca };
            sandbox.set(variable, place.to_str().expect("UTF-8"));
        }
        let model = format!("model: {{id: m, wire: anthropic, base_url: \"https://{HOST}\", context_window: 200000}}");
        let yaml = format!("goal: x\n{model}\nlimits: {{cost: unlimited}}\nrate_limit: {{max_wait: 100ms}}\n");
        let case = Case::of(sandbox, provider, &yaml);
        let ended = case.run().expect(if trusted { Outcome::Met } else { Outcome::Provider });
        assert_eq!(case.provider.requests().is_empty(), !trusted);
        assert!(
            trusted || ended.error().contains("certificate"),
            "{}",
            if trusted { String::new() } else { ended.error() }
        );
        case.provider.finish();
    }
}

/// Answers one request with 400 and gives its first line.
fn one_request(listener: TcpListener) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a connection");
        let mut reader = BufReader::new(stream.try_clone().expect("the same socket"));
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).expect("a header");
            if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a number");
            }
            if header.trim().is_empty() {
                break;
            }
        }
        reader.take(length).read_to_end(&mut Vec::new()).expect("the body");
        let body = r#"{"error":{"type":"invalid_request_error","message":"seen by the proxy"}}"#;
        let answer =
            format!("HTTP/1.1 400 Bad Request\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
        (&stream).write_all(answer.as_bytes()).expect("it listens");
        line
    })
}

#[test]
fn plain_requests_take_the_other_proxy_and_no_proxy_takes_none() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let proxy = format!("http://{}", listener.local_addr().expect("an address"));
    let sandbox = Sandbox::new();
    sandbox.set("HTTP_PROXY", proxy.as_str()).set("NO_PROXY", "127.0.0.1");
    let seen = one_request(listener);
    let model = format!("model: {{id: m, wire: openai-chat, base_url: \"http://{HOST}/v1\", context_window: 200000}}");
    let goal = sandbox.goal_without_model(&format!("goal: x\n{model}\nlimits: {{cost: unlimited}}\n"));
    let ended = sandbox.run(["run", "--goal", goal.to_str().expect("UTF-8")]);
    assert_eq!(ended.code, Some(21), "{}", ended.stderr);
    assert!(ended.stderr.contains("seen by the proxy"), "{}", ended.stderr);
    assert_eq!(seen.join().expect("it was asked"), format!("POST http://{HOST}/v1/chat/completions HTTP/1.1\r\n"));
    // The proxy is gone by now; a server that is named in NO_PROXY does not miss it.
    let case = Case::within(sandbox, content(), "goal: x");
    case.run().expect(Outcome::Met);
    case.provider.finish();
}

#[test]
fn a_key_file_is_read_again_and_an_empty_one_is_missing() {
    let sandbox = Sandbox::new();
    let file = sandbox.write(sandbox.root().join("key"), format!("{OLD}\n"));
    let rotated = file.clone();
    let key = |request: &Request| request.header("x-api-key").unwrap_or_default().to_owned();
    let agent = respond_with(move |request: &Request| {
        if key(request) == NEW {
            return Reply::complete("done");
        }
        std::fs::write(&rotated, NEW).expect("the key's file");
        Reply::error(401)
    });
    let provider = Script::new().any_key().agent(agent.forever()).judge(met()).start();
    let yaml = format!(
        "goal: x\nproviders: {{corp: {{wire: anthropic, base_url: \"{}\", api_key_file: key}}}}\n\
         model: {{id: corp/m, context_window: 200000}}\n",
        provider.url()
    );
    let case = Case::of(sandbox, provider, &yaml);
    let ended = case.run().expect(Outcome::Met);
    assert_eq!(case.provider.count(Lane::Agent), 2);
    nothing_of_the_keys_is_kept(&case, &ended.finished.stderr);
    // Refused again after it was read anew: final.
    std::fs::write(&file, "sk-a-third-one-0000").expect("the key's file");
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o400)).expect("the key's mode");
    for content in ["", " \n", "two\nlines"] {
        std::fs::remove_file(&file).expect("it is there");
        std::fs::write(&file, content).expect("the key's file");
        let ended = case.run().expect(Outcome::Auth);
        assert!(ended.error().contains("key file"), "{}", ended.error());
        assert_eq!(ended.result.session_id, None);
    }
    std::fs::remove_file(&file).expect("it is there");
    case.run().expect(Outcome::Auth);
    case.provider.finish();
}

#[test]
fn a_key_that_stays_refused_is_asked_for_once_more_and_no_further() {
    let sandbox = Sandbox::new();
    let provider = Script::new().any_key().agent(Reply::error(401).forever()).start();
    let yaml = corp(&sandbox, provider.url().as_str(), "");
    let case = Case::of(sandbox, provider, &yaml);
    case.run().expect(Outcome::Auth);
    assert_eq!(case.provider.count(Lane::Agent), 2);
    for failing in ["[\"false\"]", "[sh, -c, 'echo; exit 0']", "[no-such-program]", "exit 3"] {
        let yaml = format!(
            "goal: x\nproviders: {{corp: {{wire: anthropic, base_url: \"{}\", api_key_command: {failing}}}}}\n\
             model: {{id: corp/m, context_window: 200000}}\n",
            case.provider.url()
        );
        let goal = case.sandbox.goal(&case.provider, &yaml);
        let ended = case.sandbox.spawn(["run", "--goal", goal.to_str().expect("UTF-8")]).wait(PATIENCE);
        assert_eq!(ended.code, Some(20), "{failing}: {}", ended.stderr);
        assert!(ended.stderr.contains("key command"), "{}", ended.stderr);
    }
    case.provider.finish();
}

#[test]
fn headers_from_variables_query_parameters_and_additions_arrive() {
    let sandbox = Sandbox::new();
    sandbox.set("CORP_TENANT", "tenant-secret-77\n");
    let provider = content().start();
    let yaml = format!(
        "goal: x\nproviders: {{corp: {{wire: anthropic, base_url: \"{}\", env_http_headers: {{X-Tenant: CORP_TENANT}}, \
         headers: {{X-Team: ci}}, query_params: {{api-version: '2026 11'}}, extra_body: {{temperature: 0}}}}}}\n\
         model: {{id: corp/m, context_window: 200000}}\n",
        provider.url()
    );
    let case = Case::of(sandbox, provider, &yaml);
    let ended = case.run().expect(Outcome::Met);
    for request in case.provider.requests() {
        assert_eq!(request.header("x-tenant"), Some("tenant-secret-77"));
        assert_eq!((request.header("x-team"), request.query.as_str()), (Some("ci"), "api-version=2026%2011"));
        assert_eq!(request.json()["temperature"], 0);
    }
    let stored = case.sandbox.sh(&format!("grep -rl tenant-secret-77 {} || true", case.sandbox.home().display()));
    assert_eq!(stored, "", "{}", ended.finished.stderr);
    case.sandbox.unset("CORP_TENANT");
    let ended = case.run().expect(Outcome::Auth);
    assert!(ended.error().contains("CORP_TENANT"), "{}", ended.error());
    case.provider.finish();
}

#[test]
fn a_local_server_is_asked_how_large_its_window_is() {
    // What each kind of server answers to whom, and the window that is to be taken.
    let props = ("/props", r#"{"default_generation_settings":{"n_ctx":12288}}"#);
    let models = ("/v1/models", r#"{"data":[{"id":"m","max_model_len":24576}]}"#);
    let show = ("/api/show", r#"{"model_info":{"llama.context_length":16384}}"#);
    for (answers, window) in
        [(vec![props, models], 12_288), (vec![models], 24_576), (vec![show], 16_384), (vec![], 8_192)]
    {
        let server = Described::start(answers);
        let sandbox = Sandbox::new();
        let model = format!("model: {{id: m, wire: openai-chat, base_url: \"{}/v1\"}}", server.url);
        let goal = sandbox.goal_without_model(&format!("goal: x\n{model}\nrate_limit: {{max_wait: 0s}}\n"));
        let ended = sandbox.run(["run", "--goal", goal.to_str().expect("UTF-8")]);
        assert!(ended.stderr.contains(&format!("{window} tokens")), "{window}: {}", ended.stderr);
        let frozen = crate::sandbox::json_lines(&sandbox.session_dirs()[0].join("session.jsonl"));
        let frozen = frozen.iter().find(|fact| fact["kind"] == "frozen").expect("it was frozen");
        for lane in ["agent", "judge"] {
            assert_eq!(frozen["endpoints"][lane]["window_tokens"], window, "{lane}");
        }
    }
}

/// A server that describes its model, and has none.
struct Described {
    url: String,
}

impl Described {
    fn start(answers: Vec<(&'static str, &'static str)>) -> Described {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        // It ends with the test's process: nobody is left to ask it then.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut reader = BufReader::new(stream.try_clone().expect("the same socket"));
                let mut line = String::new();
                let mut length = 0;
                if reader.read_line(&mut line).is_err() {
                    continue;
                }
                let mut header = String::new();
                while reader.read_line(&mut header).is_ok_and(|read| read > 2) {
                    if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
                        length = value.trim().parse().expect("a number");
                    }
                    header.clear();
                }
                drop(reader.take(length).read_to_end(&mut Vec::new()));
                let path = line.split(' ').nth(1).unwrap_or_default();
                let (status, body) = match answers.iter().find(|(known, _)| *known == path) {
                    Some((_, body)) => ("200 OK", *body),
                    None => ("400 Bad Request", r#"{"error":{"message":"no model here"}}"#),
                };
                let answer =
                    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
                drop((&stream).write_all(answer.as_bytes()));
            }
        });
        Described { url }
    }
}

#[test]
fn a_forced_tool_that_is_refused_gives_way_to_words_on_every_wire() {
    for wire in Wire::ALL {
        let judge = respond_with(|request: &Request| match request.forced() {
            Some(_) => Reply::error(400),
            None => Reply::text("So: {\"verdict\": \"met\", \"reason\": \"it is so\"}"),
        });
        let script = Script::new().agent(Reply::complete("done")).judge(judge.forever());
        let case = Case::within(Sandbox::new().wire(wire), script, "goal: x");
        case.run().expect(Outcome::Met);
        assert_eq!(case.provider.count(Lane::Judge), 2, "{}", wire.name());
        case.provider.finish();
    }
}
