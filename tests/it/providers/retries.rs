//! Which failures are tried again, and which end a run at once, on every wire.

use std::time::Duration;

use serde_json::json;
use spettro::event::Outcome;

use crate::goal::support::{Case, content, met};
use crate::provider::{Lane, Reply, Request, Script, Wire, respond_with};
use crate::sandbox::Sandbox;

fn soon(reply: Reply) -> Reply {
    reply.header("retry-after-ms", "1")
}

#[test]
fn what_may_pass_is_tried_again_on_every_wire() {
    let said = |text: &str| Reply::error(429).body(format!(r#"{{"error":{{"message":"{text}"}}}}"#));
    let passing = [
        // Three a step: so many waits of its own a server may name in a row, however short.
        [soon(Reply::error(408)), soon(Reply::error(409)), soon(Reply::error(425))],
        [soon(Reply::error(429)), soon(Reply::error(500)), soon(Reply::error(502))],
        [soon(Reply::error(503)), soon(Reply::error(504)), soon(Reply::error(529))],
        [
            said("Rate limit reached. Please try again in 20ms"),
            soon(Reply::error(400).header("x-should-retry", "true")),
            Reply::error(429).header("retry-after", "Mon, 01 Jan 2024 00:00:00 GMT"),
        ],
    ];
    for wire in Wire::ALL {
        let mut script = Script::new();
        for (n, three) in passing.iter().enumerate() {
            for failure in three {
                script = script.agent(failure.clone());
            }
            script = script.agent(Reply::bash(&format!("echo {n}")));
        }
        let script = script.agent(Reply::complete("done")).judge(met());
        let case = Case::within(Sandbox::new().wire(wire), script, "goal: x");
        let ended = case.run().expect(Outcome::Met);
        let failed = ended.facts("attempt");
        assert_eq!(failed.len(), 12, "{}", wire.name());
        assert!(failed.iter().all(|fact| fact["attempt"]["wait_ms"].is_u64()), "each with the wait that follows");
        assert!(failed.iter().all(|fact| fact["attempt"]["cost"].is_null()), "none of them began to answer");
        assert!(ended.result.unreported_calls.is_empty());
        case.provider.finish();
    }
}

#[test]
fn what_cannot_pass_ends_at_once_on_every_wire() {
    let body = |status: u16, code: &str, message: &str| {
        Reply::error(status).body(format!(r#"{{"error":{{"code":"{code}","message":"{message}"}}}}"#))
    };
    let finals = [
        (Reply::error(401), Outcome::Auth),
        (Reply::error(403), Outcome::Auth),
        (Reply::error(402), Outcome::Auth),
        (soon(body(429, "insufficient_quota", "You exceeded your current quota")), Outcome::Auth),
        (
            body(400, "invalid_request_error", "You have reached your specified API usage limits: spend limit"),
            Outcome::Auth,
        ),
        (Reply::error(400), Outcome::Provider),
        (Reply::error(404), Outcome::Provider),
        (Reply::error(500).header("x-should-retry", "false"), Outcome::Provider),
    ];
    for wire in Wire::ALL {
        for (failure, outcome) in &finals {
            let case = Case::within(Sandbox::new().wire(wire), Script::new().agent(failure.clone()), "goal: x");
            let ended = case.run().expect(*outcome);
            assert_eq!(case.provider.count(Lane::Agent), 1, "{}: {}", wire.name(), ended.error());
            assert_eq!(ended.result.total_cost_usd, 0.0);
            case.provider.finish();
        }
    }
}

#[test]
fn a_prompt_that_a_filter_declines_is_a_refused_turn() {
    let azure = r#"{"error":{"message":"The response was filtered","param":"prompt","code":"content_filter","status":400,
        "innererror":{"code":"ResponsibleAIPolicyViolation"}}}"#;
    let flagged = r#"{"error":{"code":"invalid_prompt","message":"Invalid prompt: your prompt was flagged as potentially violating our usage policy."}}"#;
    for wire in Wire::ALL {
        for body in [azure, flagged] {
            let script = Script::new().agent(Reply::error(400).body(body)).agent(Reply::complete("done")).judge(met());
            let case = Case::within(Sandbox::new().wire(wire), script, "goal: x");
            let ended = case.run().expect(Outcome::Met);
            assert_eq!(ended.turns(), ["refused", "done"], "{}", wire.name());
            assert!(ended.result.unreported_calls.is_empty(), "a request that was turned away costs nothing");
            case.provider.finish();
        }
        let script = Script::new().agent(Reply::error(400).body(azure).forever());
        let case = Case::within(Sandbox::new().wire(wire), script, "goal: x");
        case.run().expect(Outcome::Refused);
        assert_eq!(case.provider.count(Lane::Agent), 3, "{}", wire.name());
        case.provider.finish();
    }
}

#[test]
fn a_server_that_says_nothing_is_given_up_though_the_time_is_unlimited() {
    let model = "first_event_timeout: 300ms, idle_timeout: 300ms";
    for silent in [Reply::complete("x").stall(), Reply::text("a few words and then").stall_after(120)] {
        let case = Case::new(Script::new().agent(silent.forever()), "goal: x");
        let url = case.provider.url();
        let model = format!(
            "model={{id: test/model-1, wire: anthropic, base_url: \"{url}\", context_window: 200000, {model}}}"
        );
        let more = ["--set", &model, "--set", "limits.time=unlimited", "--set", "rate_limit.max_wait=2s"];
        let ended = case.with(&more).expect(Outcome::Provider);
        // 0.3 s an attempt, and 0.5 s at least before the second, 1 s before the third, 2 s before the fourth.
        assert!((2..=3).contains(&case.provider.count(Lane::Agent)), "{}", case.provider.count(Lane::Agent));
        assert!(ended.result.duration_ms < 5_000, "{}", ended.result.duration_ms);
        assert!(ended.result.retryable);
        case.provider.finish();
    }
}

#[test]
fn keep_alives_are_no_news_and_the_timer_that_ran_is_named() {
    let ping = "event: ping\ndata: {\"type\": \"ping\"}\n\n: still here\n\n".repeat(200);
    let begun = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[]}}\n\n\
        event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\
        \"content_block\":{\"type\":\"text\",\"text\":\"a\"}}\n\n";
    // Some 60 bytes each 20 ms: for 4 s there is always something.
    let sent = |stream: String| Reply::raw(stream).split(60).pace(Duration::from_millis(20));
    for (stream, timers, said) in [
        (ping.clone(), "first_event_timeout: 400ms, idle_timeout: 30s", "nothing but keep-alives for 400ms"),
        (
            format!("{begun}{ping}"),
            "first_event_timeout: 30s, idle_timeout: 400ms",
            "nothing new in the reply for 400ms",
        ),
    ] {
        let case = Case::new(Script::new().agent(sent(stream).forever()), "goal: x");
        let url = case.provider.url();
        let model = format!(
            "model={{id: test/model-1, wire: anthropic, base_url: \"{url}\", context_window: 200000, {timers}}}"
        );
        let ended = case.with(&["--set", &model, "--set", "rate_limit.max_wait=0s"]).expect(Outcome::Provider);
        assert_eq!(case.provider.count(Lane::Agent), 1);
        assert!(ended.error().contains(said), "{}", ended.error());
        assert!(ended.result.duration_ms < 3_000, "{}", ended.result.duration_ms);
        case.provider.finish();
    }
}

#[test]
fn what_a_provider_changes_is_stored_each_time_and_told_once() {
    let changes = json!([{"type": "thinking_dropped", "path": "messages.1"}]);
    let transformed = |n: u64| {
        let call = json!({"type": "tool_use", "id": format!("t{n}"), "name": "bash", "input": {"command": "true"}});
        let events = [
            json!({"type": "message_start", "message": {"content": [], "usage": {"input_tokens": 9, "output_tokens": 1}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": call}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "input_transformations": changes,
                "usage": {"output_tokens": 9}}),
            json!({"type": "message_stop"}),
        ];
        Reply::raw(events.map(|event| format!("event: {}\ndata: {event}\n\n", event["type"])).concat())
    };
    let script = Script::new()
        .agent(transformed(1))
        .agent(transformed(2))
        .agent(transformed(3))
        .agent(Reply::complete("done"))
        .judge(met());
    let case = Case::new(script, "goal: x");
    let ended = case.run().expect(Outcome::Met);
    let settled = ended.facts("settled");
    let stored = settled.iter().filter(|fact| !fact["input_transformations"].is_null()).count();
    assert_eq!(stored, 3, "{settled:?}");
    let told = ended.facts("notice").iter().filter(|fact| fact["code"] == "input_transformed").count();
    assert_eq!(told, 1);
    case.provider.finish();
}

#[test]
fn a_pause_is_sent_back_as_it_is() {
    // Of no kind that is known here; its bytes are the provider's own.
    let block =
        json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "\u{e9}1"}});
    let bytes = block.to_string();
    let script = Script::new()
        .agent(Reply::text("I look it up").and_block(block).stop("pause"))
        .agent(respond_with(move |request: &Request| {
            let messages = request.messages();
            let last = messages.last().expect("messages");
            let as_it_was = last["content"][0]["text"] == "I look it up" && request.text().contains(&bytes);
            if last["role"] == "assistant" && as_it_was { Reply::complete("done") } else { Reply::error(400) }
        }))
        .judge(met());
    let case = Case::new(script, "goal: x");
    case.run().expect(Outcome::Met);
    case.provider.finish();
}

#[test]
fn the_vendors_own_variables_lead_elsewhere_and_it_is_said() {
    for (wire, variable, key, model, path) in [
        (Wire::Anthropic, "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "anthropic/claude-haiku-4-5", ""),
        (Wire::OpenAiResponses, "OPENAI_BASE_URL", "OPENAI_API_KEY", "openai/gpt-6-sol", ""),
        (Wire::OpenAiChat, "OPENAI_BASE_URL", "OPENAI_API_KEY", "{id: openai/gpt-5-mini, wire: openai-chat}", ""),
    ] {
        let sandbox = Sandbox::new().wire(wire);
        let provider = content().key("sk-the-vendors-own-key").start();
        let base = if wire == Wire::Anthropic { provider.url() } else { format!("{}/v1", provider.url()) };
        sandbox.set(variable, format!("{base}{path}/")).set(key, "sk-the-vendors-own-key");
        let case = Case::of(sandbox, provider, &format!("goal: x\nmodel: {model}"));
        let ended = case.run().expect(Outcome::Met);
        let first = ended.finished.stderr.lines().next().unwrap_or_default().to_owned();
        assert!(first.contains("127.0.0.1"), "{first}");
        case.sandbox.set(key, "  ");
        let ended = case.run().expect(Outcome::Auth);
        assert!(ended.error().contains(key), "an empty key is none: {}", ended.error());
        case.provider.finish();
    }
}
