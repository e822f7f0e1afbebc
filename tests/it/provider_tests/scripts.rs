//! Scripts, files and hooks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::client::*;
use crate::provider::{Gate, Lane, Provider, Reply, Script, Wire, respond_with};

#[test]
fn an_exhausted_script_answers_500_and_is_a_failure() {
    let provider = Script::new().agent(Reply::text("only")).start();
    let mut client = Client::new(&provider);
    let body = request(Wire::Anthropic, hello());
    assert_eq!(client.ask(Wire::Anthropic, &body).status, 200);
    assert_eq!(provider.remaining(Lane::Agent), Some(0));
    let response = client.ask(Wire::Anthropic, &body);
    assert_eq!((response.status, response.body.as_slice()), (500, &br#"{"error":"script exhausted"}"#[..]));
    assert_eq!(response.header("x-should-retry"), Some("false"), "so that the run ends at once");
    assert_eq!(provider.problems(), ["request 2 (agent 2): script exhausted"]);
    for end in [Provider::finish as fn(Provider), drop] {
        let provider = Script::new().start();
        Client::new(&provider).ask(Wire::Anthropic, &body);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| end(provider)));
        let message = *ended.expect_err("it must panic").downcast::<String>().expect("a message");
        assert!(message.contains("request 1 (agent 1): script exhausted"), "{message}");
    }
    provider.take_problems();
}

#[test]
fn replies_repeat_and_can_be_added_and_computed() {
    let provider = Script::new()
        .agent(Reply::text("twice").repeat(2))
        .agent(respond_with(|request| Reply::text(&format!("you said {}", request.new_text()))).repeat(1))
        .start();
    let mut client = Client::new(&provider);
    let body = request(Wire::OpenAiChat, hello());
    let mut ask = || read(Wire::OpenAiChat, &client.ask(Wire::OpenAiChat, &body)).text;
    assert_eq!(provider.remaining(Lane::Agent), Some(3));
    assert_eq!([ask(), ask(), ask()], ["twice", "twice", "you said hello"]);
    provider.push(Lane::Agent, Reply::text("more").forever());
    assert_eq!(provider.remaining(Lane::Agent), None);
    assert_eq!([ask(), ask()], ["more", "more"]);
    provider.finish();
}

#[test]
fn ids_differ_from_request_to_request() {
    let provider = Script::new().agent(Reply::bash("true").forever()).start();
    let mut client = Client::new(&provider);
    let body = request(Wire::Anthropic, hello());
    let mut id = || read(Wire::Anthropic, &client.ask(Wire::Anthropic, &body)).calls.remove(0).0;
    assert_ne!(id(), id());
    provider.finish();
}

#[test]
fn hooks_run_when_the_request_is_there_and_before_its_answer() {
    let seen = Arc::new(AtomicUsize::new(0));
    let (first, second) = (Arc::clone(&seen), Arc::clone(&seen));
    let before_reply = Arc::clone(&seen);
    let provider = Script::new()
        .on_request(2, move |request| {
            assert_eq!(request.lane, Lane::Judge);
            first.fetch_add(1, Ordering::SeqCst);
        })
        .on_lane_request(Lane::Agent, 2, move |request| {
            assert_eq!((request.n, request.lane_n), (3, 2));
            second.fetch_add(10, Ordering::SeqCst);
        })
        .agent(Reply::text("a"))
        .agent(respond_with(move |_| Reply::text(&before_reply.load(Ordering::SeqCst).to_string())))
        .judge(Reply::verdict("met", "", ""))
        .start();
    let mut client = Client::new(&provider);
    client.ask(Wire::Anthropic, &request(Wire::Anthropic, hello()));
    client.ask(Wire::Anthropic, &judge_request(Wire::Anthropic));
    let last = client.ask(Wire::Anthropic, &request(Wire::Anthropic, hello()));
    assert_eq!(read(Wire::Anthropic, &last).text, "11");
    provider.finish();
}

#[test]
fn a_closure_that_panics_is_a_failure_of_the_test() {
    let provider = Script::new().agent(Reply::text("a")).on_request(1, |_| panic!("not what I expected")).start();
    let mut client = Client::new(&provider);
    client.send_request(Wire::Anthropic, &request(Wire::Anthropic, hello()));
    client.end();
    assert!(provider.served().is_empty());
    assert_eq!(provider.take_problems(), ["a closure of the test panicked: not what I expected"]);
}

#[test]
fn gates_hold_one_reply_or_all() {
    let gate = Gate::new();
    let provider = Script::new().agent(Reply::text("a").held(&gate)).agent(Reply::text("b")).start();
    let ask = |provider: &Provider| {
        let mut client = Client::new(provider);
        std::thread::spawn(move || {
            read(Wire::Anthropic, &client.ask(Wire::Anthropic, &request(Wire::Anthropic, hello()))).text
        })
    };
    let held = ask(&provider);
    gate.wait_until_held(SOON);
    assert!(provider.requests().len() == 1 && provider.remaining(Lane::Agent) == Some(1));
    gate.release();
    assert_eq!(held.join().expect("an answer"), "a");
    let all = provider.hold();
    let held = ask(&provider);
    all.wait_until_held(SOON);
    assert!(!held.is_finished());
    all.release();
    assert_eq!(held.join().expect("an answer"), "b");
    provider.finish();
}

#[test]
fn a_light_provider_counts_and_keeps_nothing() {
    let provider = Script::new().agent(Reply::text("a").forever()).light().start();
    let mut client = Client::new(&provider);
    let malformed = json!({"messages": []});
    let response = client.ask(Wire::Anthropic, &malformed);
    assert!(response.whole);
    assert_eq!((provider.count(Lane::Agent), provider.requests()[0].body.len()), (1, 0));
    provider.finish();
}

#[test]
fn a_script_file_says_the_same_as_the_builder() {
    let yaml = r#"
key: the-key
agent:
  - just text
  - {thinking: hm, text: "now", calls: [{name: bash, arguments: {command: ls}}, {name: x, arguments: "{bad", id: mine}]}
  - {bash: "echo a", usage: {input: 10, output: 2, cache_read: 4}}
  - {thinking: {text: t, signature: s}, complete: done, usage: none, stop: max_tokens}
  - {status: 429, headers: {retry-after: 1}, body: {error: slow}}
  - {overflow: 1000}
  - {text: a, cut_after_bytes: 5}
  - {raw: "data: x\n\n"}
  - {text: z, split: 3, repeat: forever}
judge:
  - {verdict: unmet, reason: r, next_step: n, criteria: [{index: 1, met: true, evidence: e}]}
"#;
    let json = serde_json::to_string(&serde_yaml::from_str::<Value>(yaml).expect("YAML")).expect("JSON");
    for script in [Script::from_yaml(yaml), Script::from_json(&json)] {
        let provider = script.expect("a valid script").start();
        let wire = Wire::OpenAiChat;
        let headers = format!("{}Authorization: Bearer the-key\r\n", headers(wire));
        let mut client = Client::new(&provider);
        let mut ask = |body: Value| client.post(path(wire), &headers, body.to_string().as_bytes());
        let mut agent = || ask(request(wire, hello()));
        assert_eq!(read(wire, &agent()).text, "just text");
        let second = read(wire, &agent());
        assert_eq!((second.thinking.as_str(), second.text.as_str()), ("hm", "now"));
        assert_eq!(second.calls[0].2, r#"{"command":"ls"}"#);
        assert_eq!(second.calls[1], ("mine".to_owned(), "x".to_owned(), "{bad".to_owned()));
        assert_eq!(read(wire, &agent()).usage, Some((10, 2, 4)));
        let fourth = read(wire, &agent());
        assert_eq!((fourth.calls[0].1.as_str(), fourth.usage, fourth.stop.as_str()), ("goal-complete", None, "length"));
        let fifth = agent();
        assert_eq!((fifth.status, fifth.header("retry-after")), (429, Some("1")));
        assert_eq!(fifth.body, br#"{"error":"slow"}"#);
        assert_eq!(agent().status, 400);
        let cut = agent();
        assert_eq!((cut.body.len(), cut.whole), (5, false));
        let mut client = Client::new(&provider);
        let mut ask = |body: Value| client.post(path(wire), &headers, body.to_string().as_bytes());
        assert_eq!(ask(request(wire, hello())).body, b"data: x\n\n");
        for _ in 0..2 {
            assert!(ask(request(wire, hello())).chunks.iter().all(|size| *size <= 3));
        }
        let verdict: Value = serde_json::from_str(&read(wire, &ask(judge_request(wire))).calls[0].2).expect("JSON");
        assert_eq!(verdict["criteria"][0]["evidence"], "e");
        provider.finish();
    }
}

#[test]
fn a_bad_script_file_is_refused_with_its_place() {
    for (yaml, place) in [
        ("agents: []", "agents"),
        ("agent: [{txt: a}]", "agent[0]: unknown field `txt`"),
        ("agent: [a, {text: a, repeat: 0}]", "agent[1]: `repeat`"),
        ("agent: [{text: a, repeat: always}]", "agent[0]: `repeat`"),
        ("judge: [{reason: r}]", "judge[0]: `reason`"),
        ("agent: [{text: a, split: 0}]", "agent[0]: `split`"),
        ("agent: [{text: a, usage: some}]", "agent[0]: `usage`"),
        ("agent: [{text: a, status: 99}]", "agent[0]: `status`"),
        ("agent: [{text: a, stall_after_bytes: 3}]", "agent[0]: `stall_after_bytes`"),
        ("agent: [", ""),
    ] {
        let Err(error) = Script::from_yaml(yaml) else { panic!("{yaml} is no script") };
        assert!(error.contains(place), "{yaml}: {error}");
    }
    let missing = Script::from_file(std::path::Path::new("/nowhere/script.yaml")).err().expect("no such file");
    assert!(missing.starts_with("/nowhere/script.yaml: "), "{missing}");
}
