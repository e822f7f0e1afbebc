//! What a run owes on each wire. The scripted provider holds every request against its wire's rules, reasoning and
//! signatures byte for byte among them.

use serde_json::json;
use spettro::event::Outcome;

use super::support::{Case, met, unmet};
use crate::compaction::support::{GOAL, case_on, events, summary};
use crate::provider::{Lane, Reply, Request, Script, Wire, respond_with};
use crate::sandbox::Sandbox;

#[test]
fn three_turns_with_tools_and_reasoning_on_every_wire() {
    for wire in Wire::ALL {
        let add = |word: &str| json!({"command": format!("echo {word} >> made")});
        let script = Script::new()
            .one_session()
            .key("sk-its-own-key")
            .agent(Reply::thinking("first I look").and_text("I look.").and_call("bash", add("one")))
            .agent(
                Reply::thinking("two at once")
                    .and_call("bash", add("two"))
                    .and_thinking("and the other")
                    .and_call("file-read", json!({"path": "made"})),
            )
            .agent(Reply::thinking("that is enough").and_text("The first part is made."))
            .judge(unmet("two lines are not three"))
            .agent(Reply::thinking("a third").and_text("é \"quoted\" \u{1F600}").and_call("bash", add("three")))
            .agent(Reply::complete("three lines"))
            .judge(unmet("the fourth is missing"))
            .agent(Reply::thinking("a fourth").and_call("bash", add("four")))
            .agent(Reply::complete("four lines"))
            .judge(met());
        let case = Case::within(Sandbox::new().wire(wire), script, "goal: write four lines");
        let ended = case.run().expect(Outcome::Met);
        assert_eq!((ended.result.iterations, ended.result.steps), (3, 7), "{}", wire.name());
        assert_eq!(case.sandbox.read("made"), "one\ntwo\nthree\nfour\n");
        for request in case.provider.judge_requests() {
            assert_eq!(request.forced().as_deref(), Some("verdict"), "{}", wire.name());
        }
        let usage = case.provider.served_usage();
        let billed: u64 = usage.values().map(|usage| usage.input + usage.output).sum();
        assert_eq!(
            ended.result.usage_by_lane.values().map(|row| row.usage.total_tokens()).sum::<u64>(),
            billed,
            "{}: each token once",
            wire.name()
        );
        case.provider.finish();
    }
}

/// A stream that ends with a rate limit, in the wire's own words.
fn limited_inside(wire: Wire) -> Reply {
    let message = "Rate limit reached. Please try again in 20ms";
    Reply::raw(match wire {
        Wire::Anthropic => format!(
            "event: error\ndata: {}\n\n",
            json!({"type": "error", "error": {"type": "rate_limit_error", "message": message}})
        ),
        Wire::OpenAiResponses => format!(
            "event: response.created\ndata: {}\n\nevent: response.failed\ndata: {}\n\n",
            json!({"type": "response.created", "response": {"status": "in_progress"}}),
            json!({"type": "response.failed", "response": {"status": "failed",
                "error": {"code": "rate_limit_exceeded", "message": message}}})
        ),
        Wire::OpenAiChat => format!("data: {}\n\n", json!({"error": {"code": 429, "message": message}})),
        Wire::Gemini => format!(
            "data: {}\r\n\r\n",
            json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Resource has been exhausted",
                "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.02s"}]}})
        ),
    })
}

#[test]
fn what_broke_off_is_asked_again_and_its_calls_never_ran() {
    for wire in Wire::ALL {
        let script = Script::new()
            .agent(Reply::text("half").and_call("bash", json!({"command": "echo ran >> never"})).no_terminal())
            .agent(limited_inside(wire))
            .agent(Reply::error(429).header("retry-after-ms", "20"))
            .agent(Reply::bash("echo ran >> once"))
            .agent(Reply::complete("done"))
            .judge(met());
        let case = Case::within(Sandbox::new().wire(wire), script, "goal: x");
        let ended = case.run().expect(Outcome::Met);
        assert!(!case.sandbox.exists("never"), "{}", wire.name());
        assert_eq!(case.sandbox.read("once"), "ran\n");
        let errors: Vec<String> =
            ended.facts("attempt").iter().map(|fact| fact["attempt"]["error"].to_string()).collect();
        assert_eq!(errors.len(), 3, "{}: {errors:?}", wire.name());
        assert!(errors[0].contains("cut off"), "{errors:?}");
        assert!(errors[1..].iter().all(|error| error.contains("rate limited")), "{errors:?}");
        case.provider.finish();
    }
}

#[test]
fn a_refused_turn_and_a_refused_prompt_are_left_out_of_what_follows() {
    for wire in Wire::ALL {
        let script = Script::new()
            .agent(Reply::thinking("hm").and_text("that is beyond me").stop("refusal"))
            .agent(Reply::complete("done"))
            .judge(met());
        let case = Case::within(Sandbox::new().wire(wire), script, "goal: x");
        let ended = case.run().expect(Outcome::Met);
        assert_eq!(ended.turns(), ["refused", "done"], "{}", wire.name());
        assert!(!case.provider.agent_requests()[1].text().contains("beyond me"), "{}", wire.name());
        case.provider.finish();
    }
    let blocked = Reply::raw("data: {\"promptFeedback\":{\"blockReason\":\"PROHIBITED_CONTENT\"}}\r\n\r\n");
    let script = Script::new().agent(blocked).agent(Reply::complete("done")).judge(met());
    let case = Case::within(Sandbox::new().wire(Wire::Gemini), script, "goal: x");
    let ended = case.run().expect(Outcome::Met);
    assert_eq!(ended.turns(), ["refused", "done"]);
    case.provider.finish();
}

#[test]
fn an_overflow_is_learned_from_and_compacted_away_on_every_wire() {
    for wire in Wire::ALL {
        let agent = respond_with(|request: &Request| match request.lane_n {
            30 => Reply::overflow(16_000),
            n if n > 36 => Reply::complete("done"),
            n => Reply::thinking(&format!("thought {n}")).and_call(
                "bash",
                json!({"command": format!("echo {n}; head -c 900 /dev/zero | tr '\\0' x | fold -w 60")}),
            ),
        });
        let script = Script::new().agent(agent.forever()).summarizer(summary()).judge(met());
        let case = case_on(wire, script, 100_000, "");
        let ended = case.run().expect(Outcome::Met);
        assert_eq!(ended.facts("learned")[0]["window_tokens"], 16_000, "{}", wire.name());
        assert_eq!(events(&ended, "compaction.finished")[0]["forced"], true, "{}", wire.name());
        for request in &case.provider.agent_requests()[30..] {
            assert!(request.text().contains(GOAL), "{}", wire.name());
            assert!(request.body.len().div_ceil(4) <= 16_000, "{}: the learned window holds", wire.name());
        }
        case.provider.finish();
    }
}

#[test]
fn a_small_window_is_kept_on_every_wire() {
    for wire in Wire::ALL {
        let script =
            Script::new().agent(crate::compaction::support::steps(60, 1_500)).summarizer(summary()).judge(met());
        let case = case_on(wire, script, 16_000, "");
        let ended = case.run().expect(Outcome::Met);
        crate::compaction::support::audit(&case, &ended, 16_000);
        assert!(case.provider.rewrites() > 0 && case.provider.count(Lane::Agent) > 60, "{}", wire.name());
        case.provider.finish();
    }
}

#[test]
fn the_catalogue_can_be_listed() {
    let sandbox = Sandbox::new();
    sandbox.set("GOOGLE_API_KEY", "k");
    let shown = sandbox.spawn(["models", "google"]).wait(crate::sandbox::PATIENCE).expect_code(0).stdout;
    let row = shown.lines().find(|line| line.starts_with("gemini/gemini-2.5-pro ")).expect("a row");
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(words, ["gemini/gemini-2.5-pro", "gemini", "1048576", "65536", "1.25", "10.00", "set"]);
    assert!(!shown.contains("openai/"), "{shown}");
    let json = sandbox.spawn(["models", "--json"]).wait(crate::sandbox::PATIENCE).expect_code(0).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let sourced = |row: &serde_json::Value| row["sources"].as_array().is_some_and(|sources| sources.len() >= 2);
    assert!(json.as_array().is_some_and(|rows| rows.len() >= 30 && rows.iter().all(sourced)));
    sandbox.spawn(["models", "nobody"]).wait(crate::sandbox::PATIENCE).expect_code(2);
}
