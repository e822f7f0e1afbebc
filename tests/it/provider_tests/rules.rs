//! What makes a request well formed: every rule has a request that breaks it.

use serde_json::{Value, json};

use super::client::*;
use crate::provider::{Lane, Provider, Reply, Script, Wire, rest_start};

/// The complaints about one request, without their «request 1 (agent 1): ».
fn complaints(wire: Wire, body: &Value) -> Vec<String> {
    let provider = Script::new().agent(Reply::text("a").forever()).judge(Reply::text("a").forever()).start();
    Client::new(&provider).ask(wire, body);
    stripped(provider.take_problems())
}

fn stripped(problems: Vec<String>) -> Vec<String> {
    problems.into_iter().map(|problem| problem.split_once("): ").expect("it names the request").1.to_owned()).collect()
}

#[track_caller]
fn assert_complains(wire: Wire, messages: Value, about: &str) {
    let body = request(wire, messages);
    let found = complaints(wire, &body);
    assert!(found.iter().any(|complaint| complaint.contains(about)), "{}: {about:?} not in {found:?}", wire.name());
}

#[test]
fn well_formed_requests_are_left_in_peace() {
    let anthropic = json!([
        {"role": "user", "content": [{"type": "text", "text": "go"}]},
        {"role": "assistant", "content": [
            {"type": "text", "text": "ok"},
            {"type": "tool_use", "id": "a", "name": "bash", "input": {"command": "ls"}},
            {"type": "tool_use", "id": "b", "name": "bash", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": "", "is_error": true},
            {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "x"}]},
            {"type": "text", "text": "a note"}]},
        {"role": "user", "content": "a second one in a row"},
    ]);
    assert_eq!(complaints(Wire::Anthropic, &request(Wire::Anthropic, anthropic)), Vec::<String>::new());
    let chat = json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "bash", "arguments": "{}"}},
            {"id": "b", "type": "function", "function": {"name": "bash", "arguments": "{\"a\": 1}"}}]},
        {"role": "tool", "tool_call_id": "b", "content": ""},
        {"role": "tool", "tool_call_id": "a", "content": "x"},
        {"role": "system", "content": "a note"},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": [{"type": "text", "text": "go on"}]},
    ]);
    assert_eq!(complaints(Wire::OpenAiChat, &request(Wire::OpenAiChat, chat)), Vec::<String>::new());
    for wire in Wire::MESSAGES {
        assert_eq!(complaints(wire, &judge_request(wire)), Vec::<String>::new());
    }
}

#[test]
fn settings_are_checked() {
    for wire in Wire::MESSAGES {
        let cases: [(&str, Value, &str); 10] = [
            ("model", json!(""), "`model`"),
            ("model", Value::Null, "`model`"),
            ("stream", json!(false), "`stream`"),
            ("max_tokens", json!(0), "output limit"),
            ("max_tokens", json!(-1), "output limit"),
            ("max_tokens", json!(1.5), "output limit"),
            ("max_tokens", Value::Null, "output limit"),
            ("messages", json!([]), "`messages`"),
            ("tools", json!([]), "`tools`"),
            (
                "tool_choice",
                json!({"type": "tool", "name": "nothing", "function": {"name": "nothing"}}),
                "forces nothing",
            ),
        ];
        for (key, value, about) in cases {
            let mut body = request(wire, hello());
            body[key] = value;
            let found = complaints(wire, &body);
            assert!(found.iter().any(|complaint| complaint.contains(about)), "{key}: {about:?} not in {found:?}");
        }
        let mut twice = request(wire, hello());
        let tool = twice["tools"][0].clone();
        twice["tools"].as_array_mut().expect("a list").push(tool);
        assert_eq!(complaints(wire, &twice), ["tools[1]: bash is offered twice"]);
    }
    let mut no_schema = request(Wire::Anthropic, hello());
    no_schema["tools"][0]["input_schema"] = json!("none");
    assert_eq!(complaints(Wire::Anthropic, &no_schema), ["tools[0]: the schema of bash is no object's"]);
    let mut no_name = request(Wire::OpenAiChat, hello());
    no_name["tools"][0]["function"]["name"] = json!("with space");
    assert_eq!(complaints(Wire::OpenAiChat, &no_name), ["tools[0]: \"with space\" is no name for a tool"]);
    let mut both = request(Wire::OpenAiChat, hello());
    both["max_completion_tokens"] = json!(5);
    assert!(complaints(Wire::OpenAiChat, &both).iter().any(|complaint| complaint.contains("named twice")));
    let mut empty = request(Wire::Anthropic, hello());
    empty["system"] = json!([{"type": "text", "text": " "}]);
    assert_eq!(complaints(Wire::Anthropic, &empty).len(), 1, "an empty system block");
}

#[test]
fn invalid_json_and_no_http_are_named() {
    let provider = Script::new().agent(Reply::text("a").forever()).start();
    let response = Client::new(&provider).post("/v1/messages", headers(Wire::Anthropic), b"{\"model\":");
    assert!(response.whole, "it is answered all the same");
    let found = provider.take_problems();
    assert!(found.len() == 1 && found[0].contains("not valid JSON"), "{found:?}");

    let mut client = Client::new(&provider);
    client.send(b"hello?\r\n\r\n");
    client.end();
    let found = provider.take_problems();
    assert!(found.len() == 1 && found[0].contains("no HTTP"), "{found:?}");

    let mut client = Client::new(&provider);
    client.send(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
    drop(client);
    let response = Client::new(&provider).post("/v1/nothing", "", b"{}");
    assert_eq!(response.status, 404);
    let mut client = Client::new(&provider);
    client.send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.response().expect("an answer").status, 404);
    assert_eq!(provider.others(), ["POST /v1/nothing", "GET /v1/models"]);
    let found = provider.take_problems();
    assert_eq!(found, ["a request for something that does not exist: POST /v1/nothing"], "a client may die or look");
}

#[test]
fn headers_and_the_key_are_checked() {
    let keyed = || Script::new().agent(Reply::text("a").forever()).key("sk-right").start();
    let keyless = || Script::new().agent(Reply::text("a").forever()).start();
    for wire in Wire::MESSAGES {
        let key_header = |key: &str| match wire {
            Wire::Anthropic => format!("x-api-key: {key}\r\n"),
            _ => format!("Authorization: Bearer {key}\r\n"),
        };
        let ask = |provider: Provider, more: &str, body: &Value| {
            let headers = format!("{}{more}", headers(wire));
            Client::new(&provider).post(path(wire), &headers, body.to_string().as_bytes());
            stripped(provider.take_problems())
        };
        let body = request(wire, hello());
        assert_eq!(ask(keyed(), &key_header("sk-right"), &body), Vec::<String>::new());
        assert_eq!(ask(keyed(), &key_header("sk-wrong"), &body), ["another API key than the expected one"]);
        assert_eq!(ask(keyed(), "", &body), ["no API key"]);
        assert_eq!(ask(keyless(), &key_header("sk-any"), &body), ["an API key although the endpoint is keyless"]);
        let leaking = request(wire, json!([{"role": "user", "content": "echo sk-right"}]));
        assert_eq!(ask(keyed(), &key_header("sk-right"), &leaking), ["the body contains a secret"]);
    }
    let provider = keyless();
    let body = request(Wire::Anthropic, hello()).to_string();
    Client::new(&provider).post("/v1/messages", "", body.as_bytes());
    let found = stripped(provider.take_problems());
    assert_eq!(found, ["content-type is None, not application/json", "no anthropic-version header"]);
}

#[test]
fn secrets_are_found_wherever_they_stand() {
    let secret = "hunter\"2/ü";
    for (where_, body, path, header) in [
        (
            "body",
            request(Wire::Anthropic, json!([{"role": "user", "content": format!("a {secret} b")}])),
            "/v1/messages",
            "",
        ),
        ("URL", request(Wire::Anthropic, hello()), "/v1/messages?k=hunter\"2/ü", ""),
        ("header x-note", request(Wire::Anthropic, hello()), "/v1/messages", "x-note: hunter\"2/ü\r\n"),
    ] {
        let provider = Script::new().agent(Reply::text("a")).secret(secret).start();
        let headers = format!("{}{header}", headers(Wire::Anthropic));
        Client::new(&provider).post(path, &headers, body.to_string().as_bytes());
        let found = stripped(provider.take_problems());
        assert_eq!(found.len(), 1, "{where_}");
        assert!(found[0].contains(where_), "{found:?}");
    }
}

#[test]
fn every_call_has_one_result_right_after_it_and_every_result_its_call() {
    for wire in Wire::MESSAGES {
        let user = json!({"role": "user", "content": "go"});
        let [call, result] = round(wire, "a");
        let [other_call, other_result] = round(wire, "b");
        assert_complains(wire, json!([user, call]), "the call a has no result");
        assert_complains(wire, json!([user, call, user]), "the call a before it has no result");
        assert_complains(wire, json!([user, call, user, result]), "the result of a has no call in the message before");
        assert_complains(wire, json!([user, result]), "the result of a has no call");
        assert_complains(wire, json!([user, call, other_result]), "the result of b has no call");
        assert_complains(
            wire,
            json!([user, call, result, result]),
            match wire {
                Wire::Anthropic => "the result of a has no call in the message before",
                _ => "two results for the call a",
            },
        );
        assert_complains(wire, json!([user, call, other_call, other_result]), "the call a before it has no result");
        assert_complains(wire, json!([user, call, result, call, result]), "the call id a was used before");
    }
    let user = json!({"role": "user", "content": "go"});
    let [call, _] = round(Wire::Anthropic, "a");
    let result = json!({"type": "tool_result", "tool_use_id": "a", "content": "ok"});
    let twice = json!([user, call, {"role": "user", "content": [result, result]}]);
    assert_complains(Wire::Anthropic, twice, "two results for the call a");
    let late = json!([user, call, {"role": "user", "content": [{"type": "text", "text": "first"}, result]}]);
    assert_complains(Wire::Anthropic, late, "the result of a stands behind other content");
}

#[test]
fn roles_and_contents_are_the_wires_own() {
    let user = json!({"role": "user", "content": "go"});
    let said = json!({"role": "assistant", "content": "ok"});
    for wire in Wire::MESSAGES {
        assert_complains(wire, json!([user, {"role": "operator", "content": "x"}]), "role \"operator\"");
        assert_complains(wire, json!([user, said, said, user]), "two assistant messages in a row");
        assert_complains(wire, json!([user, said]), "the last message is the assistant's");
        assert_complains(wire, json!([{"role": "user", "content": []}]), "has no content");
        assert_complains(wire, json!([{"role": "user"}]), "has no content");
    }
    assert_complains(Wire::Anthropic, json!([said, user]), "the first message is not the user's");
    assert_complains(Wire::Anthropic, json!([user, {"role": "system", "content": "x"}]), "role \"system\"");
    assert_complains(Wire::Anthropic, json!([user, {"role": "tool", "content": "x"}]), "role \"tool\"");
    assert_complains(Wire::Anthropic, json!([{"role": "user", "content": " \n"}]), "has an empty text");
    let call = |block: Value| json!([user, {"role": "assistant", "content": [block]}]);
    let text = json!({"type": "tool_use", "id": "a", "name": "bash", "input": "ls"});
    assert_complains(Wire::Anthropic, call(text), "the input of call a is no object");
    assert_complains(Wire::Anthropic, call(json!({"type": "tool_use", "name": "x", "input": {}})), "without an id");
    let dotted = json!({"type": "tool_use", "id": "a.b", "name": "x", "input": {}});
    assert_complains(Wire::Anthropic, call(dotted), "other characters");

    let mut headless = request(Wire::OpenAiChat, hello());
    headless["messages"].as_array_mut().expect("a list").remove(0);
    assert_eq!(complaints(Wire::OpenAiChat, &headless), ["the first message is the user's, not the system's"]);
    assert_complains(Wire::OpenAiChat, json!([{"role": "user", "content": ""}]), "has no content");
    let nothing = json!([user, {"role": "assistant", "content": null}, user]);
    assert_complains(Wire::OpenAiChat, nothing, "neither text nor calls");
    let empty = json!([user, {"role": "assistant", "content": "x", "tool_calls": []}, user]);
    assert_complains(Wire::OpenAiChat, empty, "`tool_calls` is an empty list");
    for arguments in [json!({}), json!("{not JSON"), json!("[]")] {
        let function = json!({"name": "bash", "arguments": arguments});
        let call = json!({"id": "a", "type": "function", "function": function});
        let messages = json!([user, {"role": "assistant", "content": null, "tool_calls": [call]}]);
        assert_complains(Wire::OpenAiChat, messages, "the arguments of call a are no text of an object");
    }
}

#[test]
fn a_paused_turn_is_resent_as_it_is() {
    let provider = Script::new().agent(Reply::text("wait").stop("pause")).agent(Reply::text("done")).start();
    let mut client = Client::new(&provider);
    client.ask(Wire::Anthropic, &request(Wire::Anthropic, hello()));
    let messages = json!([hello()[0], {"role": "assistant", "content": "wait"}]);
    client.ask(Wire::Anthropic, &request(Wire::Anthropic, messages));
    provider.finish();
}

#[test]
fn thinking_comes_back_as_it_was_sent_and_in_its_place() {
    let block = json!({"type": "server_note", "data": {"z": 1, "a": 2}});
    let reply = || {
        Reply::thinking("first")
            .and_call("bash", json!({}))
            .id("a")
            .and_thinking("second")
            .and_block(block.clone())
            .and_call("bash", json!({}))
            .id("b")
    };
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "bash", "input": {}});
    let thought = |text: &str, place: usize| json!({"type": "thinking", "thinking": text, "signature": format!("c2lnbmF0dXJl+1/{place}==")});
    let (first, second) = (thought("first", 0), thought("second", 2));
    let changed = json!({"type": "thinking", "thinking": "First", "signature": first["signature"]});
    let marked = json!({"type": "thinking", "thinking": "first", "signature": first["signature"], "cache_control": {"type": "ephemeral"}});
    let reordered = json!({"type": "server_note", "data": {"a": 2, "z": 1}});
    let after = |content: &[&Value]| {
        let provider = Script::new().agent(reply()).agent(Reply::text("x")).start();
        let mut client = Client::new(&provider);
        client.ask(Wire::Anthropic, &request(Wire::Anthropic, hello()));
        let results: Vec<Value> = content
            .iter()
            .filter(|block| block["type"] == "tool_use")
            .map(|block| json!({"type": "tool_result", "tool_use_id": block["id"], "content": "ok"}))
            .collect();
        let results = if results.is_empty() { json!("go on") } else { json!(results) };
        let messages =
            json!([hello()[0], {"role": "assistant", "content": content}, {"role": "user", "content": results}]);
        client.ask(Wire::Anthropic, &request(Wire::Anthropic, messages));
        stripped(provider.take_problems())
    };
    let (a, b) = (&call("a"), &call("b"));
    let text = &json!({"type": "text", "text": "by the way"});
    assert_eq!(after(&[&first, a, &second, &block, b]), Vec::<String>::new());
    assert_eq!(after(&[&first, text, a, &second, &block, b]), Vec::<String>::new(), "texts are no thinking");
    let missing = ["messages[1]: its thinking is missing or not in its place"];
    assert_eq!(after(&[a, &second, &block, b]), missing);
    assert_eq!(after(&[a, b]), missing);
    assert_eq!(after(&[&first, &second, a, &block, b]), missing);
    assert_eq!(after(&[&first, a, &block, &second, b]), missing);
    for wrong in [&changed, &marked] {
        let found = after(&[wrong, a, &second, &block, b]);
        assert!(found[0].contains("not one that was sent, byte for byte"), "{found:?}");
    }
    let found = after(&[&first, a, &second, &reordered, b]);
    assert_eq!(found, ["messages[1]: the server_note block was serialized anew"]);
}

#[test]
fn thinking_before_a_text_is_kept_too() {
    let ask_again = |with: bool| {
        let provider = Script::new().agent(Reply::thinking("t").and_text("done")).agent(Reply::text("x")).start();
        let mut client = Client::new(&provider);
        client.ask(Wire::Anthropic, &request(Wire::Anthropic, hello()));
        let mut content = vec![json!({"type": "text", "text": "done"})];
        if with {
            content.insert(0, json!({"type": "thinking", "thinking": "t", "signature": "c2lnbmF0dXJl+1/0=="}));
        }
        let messages =
            json!([hello()[0], {"role": "assistant", "content": content}, {"role": "user", "content": "go on"}]);
        client.ask(Wire::Anthropic, &request(Wire::Anthropic, messages));
        provider.take_problems().len()
    };
    assert_eq!((ask_again(true), ask_again(false)), (0, 1));
}

#[test]
fn reasoning_on_the_chat_wire_is_what_was_sent() {
    let ask_again = |reasoning: &str| {
        let provider = Script::new().agent(Reply::thinking("because").and_text("done")).agent(Reply::text("x")).start();
        let mut client = Client::new(&provider);
        client.ask(Wire::OpenAiChat, &request(Wire::OpenAiChat, hello()));
        let said = json!({"role": "assistant", "content": "done", "reasoning_content": reasoning});
        let messages = json!([hello()[0], said, {"role": "user", "content": "go on"}]);
        client.ask(Wire::OpenAiChat, &request(Wire::OpenAiChat, messages));
        stripped(provider.take_problems())
    };
    assert_eq!(ask_again("because"), Vec::<String>::new());
    assert_eq!(ask_again(""), ["messages[2]: its reasoning is missing"]);
    let wrong = ask_again("why not");
    assert!(wrong.len() == 1 && wrong[0].contains("the reasoning is not one that was sent"), "{wrong:?}");
}

/// Sends these bodies to an endless agent and gives the complaints.
fn in_a_row(script: Script, wire: Wire, bodies: &[String]) -> Vec<String> {
    let provider = script.agent(Reply::text("x").forever()).judge(Reply::text("x").forever()).start();
    let mut client = Client::new(&provider);
    for body in bodies {
        client.post(path(wire), headers(wire), body.as_bytes());
    }
    provider.take_problems()
}

#[test]
fn each_agent_request_continues_the_one_before() {
    for wire in Wire::MESSAGES {
        let user = json!({"role": "user", "content": "go"});
        let [call, result] = round(wire, "a");
        let [call2, result2] = round(wire, "b");
        let body = |messages: Value| request(wire, messages).to_string();
        let first = body(json!([user]));
        let second = body(json!([user, call, result]));
        let third = body(json!([user, call, result, call2, result2]));
        let none = Vec::<String>::new();
        let row = |bodies: &[&String]| {
            in_a_row(Script::new(), wire, &bodies.iter().map(|b| (*b).clone()).collect::<Vec<_>>())
        };
        assert_eq!(row(&[&first, &first, &second, &third]), none, "a retry, then on and on");
        let front = third.replace("\"max_tokens\":100", "\"max_tokens\":50");
        assert_eq!(row(&[&first, &second, &front]), none, "the front may differ");
        let judge = judge_request(wire).to_string();
        assert_eq!(row(&[&first, &judge, &second, &judge, &third]), none, "the judge's are each their own");

        let edited = third.replace("\"ok\"", "\"OK\"");
        let found = row(&[&first, &second, &edited]);
        assert!(
            found.len() == 1 && found[0].starts_with("request 3 (agent 3): the previous request is not a prefix"),
            "{found:?}"
        );
        assert!(found[0].contains("now:") && found[0].contains("OK"), "it shows the place: {found:?}");
        let spaced = third.replace("\"messages\":[", "\"messages\": [");
        assert_eq!(row(&[&first, &second, &spaced]).len(), 1, "byte for byte");
        let prompt = third.replace("be good", "be better");
        assert_eq!(row(&[&first, &second, &prompt]).len(), 1, "the head too");
        assert_eq!(row(&[&first, &second, &third, &second]).len(), 1, "and never back");
        assert_eq!(row(&[&first, &second, &edited, &edited]).len(), 1, "one break is one complaint");

        let rewrite = |script: Script| {
            in_a_row(script, wire, &[first.clone(), second.clone(), edited.clone(), third.clone()]).len()
        };
        assert_eq!(rewrite(Script::new()), 2);
        assert_eq!(rewrite(Script::new().allow_rewrites(1)), 1);
        assert_eq!(rewrite(Script::new().allow_rewrite()), 0);
    }
}

#[test]
fn sessions_are_told_apart_unless_there_is_only_one() {
    let wire = Wire::Anthropic;
    let [call, result] = round(wire, "a");
    let body = |messages: Value| request(wire, messages).to_string();
    let session = |name: &str| {
        let user = json!({"role": "user", "content": name});
        [body(json!([user])), body(json!([user, call, result]))]
    };
    let ([a1, a2], [b1, b2]) = (session("one"), session("two"));
    let bodies = [a1.clone(), b1.clone(), a2.clone(), b2.clone(), a1.clone(), a2.clone()];
    assert_eq!(in_a_row(Script::new(), wire, &bodies), Vec::<String>::new(), "side by side, and one anew");
    let found = in_a_row(Script::new().one_session(), wire, &[a1.clone(), b1]);
    assert_eq!(found.len(), 1, "a restart that changed its first message: {found:?}");
    assert_eq!(in_a_row(Script::new().one_session(), wire, &[a1, a2]), Vec::<String>::new());
}

#[test]
fn the_rest_runs_from_its_first_key_to_the_brackets() {
    let at = |body: &str| rest_start(body.as_bytes()).map(|start| body[start..].to_owned());
    assert_eq!(
        at(r#"{"model":"m","x":{"messages":[1]},"s":"\"tools\":","tools":[],"messages":[]}"#).as_deref(),
        Some(r#""tools":[],"messages":[]}"#)
    );
    assert_eq!(at(r#"{ "a" : [1, {"system": 2}] , "system":"s"}"#).as_deref(), Some(r#""system":"s"}"#));
    assert_eq!(at(r#"{"model":"m"}"#), None);
    assert_eq!(at("[]"), None);
    assert_eq!(at(r#"{"a"#), None);
    let mut late = request(Wire::Anthropic, hello());
    late["temperature"] = json!(1);
    let found = complaints(Wire::Anthropic, &late);
    assert!(found.len() == 1 && found[0].contains("to `]}`"), "a field behind the messages: {found:?}");
}

#[test]
fn the_lane_can_be_told_by_the_test() {
    let provider = Script::new()
        .lane_of(|body| (body["model"] == "judge-model").then_some(Lane::Judge))
        .agent(Reply::text("agent"))
        .judge(Reply::text("judge"))
        .start();
    let mut client = Client::new(&provider);
    let mut body = request(Wire::Anthropic, hello());
    assert_eq!(read(Wire::Anthropic, &client.ask(Wire::Anthropic, &body)).text, "agent");
    body["model"] = json!("judge-model");
    assert_eq!(read(Wire::Anthropic, &client.ask(Wire::Anthropic, &body)).text, "judge");
    let mut forced = request(Wire::OpenAiChat, hello());
    forced["tool_choice"] = json!({"type": "function", "function": {"name": "verdict"}});
    assert_eq!(provider.judge_requests().len(), 1);
    client.ask(Wire::OpenAiChat, &forced);
    assert_eq!(provider.judge_requests().len(), 2, "forcing it is enough");
    provider.take_problems();
}

#[test]
fn requests_answer_what_tests_ask() {
    for wire in Wire::MESSAGES {
        let provider = Script::new().agent(Reply::text("x")).start();
        let [call, result] = round(wire, "a");
        let messages = json!([{"role": "user", "content": "go"}, call, result, {"role": "user", "content": "a note"}]);
        Client::new(&provider).ask(wire, &request(wire, messages));
        let request = provider.wait_for_lane_request(Lane::Agent, 1, SOON);
        assert_eq!(request.system(), "be good");
        assert_eq!(request.tool_names(), ["bash"]);
        assert_eq!(request.max_tokens(), Some(100));
        let results = request.tool_results();
        assert_eq!((results.len(), results[0].id.as_str(), results[0].text.as_str()), (1, "a", "ok"));
        assert_eq!(request.new_text(), "a note");
        assert_eq!(request.header("Content-Type"), Some("application/json"));
        assert!(request.rest().ends_with(b"]}") && request.rest().starts_with(b"\""));
        provider.finish();
    }
}
