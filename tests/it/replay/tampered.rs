#[test]
fn a_head_and_an_end_that_say_something_else_than_the_facts_are_refused() {
    let (_recording, file) = recorded();
    let end =
        |name: &str, value: Value| rewritten(&file, false, |lines| lines.last_mut().expect("an end")[name] = value);
    refused(&end("events", json!(ZEROS)), "events");
    refused(&end("outcome", json!("impossible")), "outcome");
    refused(&end("tree", json!(ZEROS)), "workspace");
    let head = |name: &str, value: Value| rewritten(&file, false, |lines| lines[0][name] = value);
    refused(&head("goal", json!({"name": "other", "text": "another goal"})), "goal");
    refused(&head("lanes", json!({})), "endpoints");
    let source = |name: &str, value: Value| rewritten(&file, false, |lines| lines[0]["source"][name] = value);
    refused(&source("id_seed", json!("00")), "seed");
    for id in ["../../x", "a/b", ".hidden", ""] {
        refused(&source("session", json!(id)), "id");
    }
    refused(
        &rewritten(&file, true, |lines| {
            let frozen = last(lines, "frozen");
            frozen["config"] = json!(format!("{}# another\n", frozen["config"].as_str().expect("YAML")));
        }),
        "digest",
    );
    refused(&rewritten(&file, true, |lines| last(lines, "attempt")["attempt"]["error"] = json!("auth")), "attempt");
}

