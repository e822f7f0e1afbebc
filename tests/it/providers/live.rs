//! `spettro doctor --live`: what each lane's model is found to do, and what finding it out has cost.

use serde_json::Value;

use crate::goal::support::Case;
use crate::provider::{Lane, Reply, Request, Script, Wire, respond_with};
use crate::sandbox::Sandbox;

fn ready() -> Reply {
    Reply::call("ready", serde_json::json!({"ok": true})).usage(200, 20)
}

fn ask(case: &Case, code: i32) -> Value {
    let goal = case.goal.to_str().expect("UTF-8");
    let finished = case.sandbox.run(["doctor", "--live", "--json", "--goal", goal]).expect_code(code);
    serde_json::from_str(&finished.stdout).expect("one object")
}

const PRICED: &str = "goal: x\n";

#[test]
fn one_request_says_what_the_model_does_on_every_wire() {
    for wire in Wire::ALL {
        let script = Script::new().agent(ready());
        let case = Case::within(Sandbox::new().wire(wire), script, PRICED);
        let report = ask(&case, 0);
        let live = report["live"].as_array().expect("what was found");
        assert_eq!(live.len(), 1, "one model serves all lanes: {live:?}");
        let one = &live[0];
        assert_eq!(one["lanes"], serde_json::json!(["agent", "judge", "summarizer"]));
        assert_eq!((&one["tools"], &one["forced_tool"]), (&true.into(), &true.into()), "{one}");
        assert_eq!(one["window_tokens"], 200_000);
        // 200 input tokens at $3 and 20 output tokens at $15 a million.
        assert_eq!((&one["cost"], &one["cost_reported"]), (&900.into(), &true.into()), "{one}");
        assert_eq!((&one["input_price"], &one["output_price"]), (&3_000_000.into(), &15_000_000.into()));
        let requests = case.provider.agent_requests();
        assert_eq!(requests.len(), 1);
        assert_eq!(requests[0].forced().as_deref(), Some("ready"));
        assert!(requests[0].body.len() < 2_000, "a cheap one: {} bytes", requests[0].body.len());
        assert_eq!(case.sandbox.session_dirs().len(), 0, "nothing of it is kept");
        case.provider.finish();
    }
}

#[test]
fn a_server_that_cannot_force_a_tool_is_asked_without() {
    let agent = respond_with(|request: &Request| if request.forced().is_some() { Reply::error(400) } else { ready() });
    let case = Case::new(Script::new().agent(agent.forever()), PRICED);
    let report = ask(&case, 0);
    assert_eq!((&report["live"][0]["tools"], &report["live"][0]["forced_tool"]), (&true.into(), &false.into()));
    assert_eq!(case.provider.count(Lane::Agent), 2);
    let goal = case.goal.to_str().expect("UTF-8");
    let said = case.sandbox.run(["doctor", "--live", "--goal", goal]).expect_code(0).stdout;
    let line = said.lines().find(|line| line.contains("test/model-1")).expect("its line");
    for part in ["window 200000", "calls tools", "refuses to be forced", "$3.00 and $15.00", "this cost $0.0009"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    case.provider.finish();
}

#[test]
fn what_is_wrong_with_a_provider_is_said_and_ends_with_23() {
    for (reply, said) in [
        (Reply::error(401), "credentials refused"),
        (Reply::text("I am here.").usage(200, 5), "called no tool"),
        (Reply::error(404), "invalid request"),
    ] {
        let case = Case::new(Script::new().any_key().agent(reply.forever()), PRICED);
        let report = ask(&case, 23);
        let items = report["items"].as_array().expect("items");
        let item = items.iter().find(|item| item["name"] == "live").expect("an item");
        assert_eq!(item["state"], "fail");
        let text = item["text"].as_str().expect("a text").to_lowercase();
        assert!(text.contains(said), "{said}: {text}");
        case.provider.finish();
    }
    // Without the key nothing is asked; and without a model there is nobody to ask.
    let sandbox = Sandbox::new();
    let finished = sandbox.run(["doctor", "--live", "--model", "anthropic/claude-haiku-4-5"]).expect_code(23);
    assert!(finished.stdout.contains("ANTHROPIC_API_KEY"), "{}", finished.stdout);
    let finished = sandbox.run(["doctor", "--live"]).expect_code(2);
    assert!(finished.stderr.contains("model"), "{}", finished.stderr);
    sandbox.run(["doctor", "--model", "a/b"]).expect_code(2);
}
