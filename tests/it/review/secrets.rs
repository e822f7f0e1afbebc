//! Keys and what is like them: never in a log, an event or a file.

use std::path::Path;

use spettro::event::Outcome;

use crate::goal::support::{Case, met};
use crate::provider::{Reply, Script};
use crate::sandbox::KEY_VARIABLE;

/// Every file below a folder that holds the text.
fn holding(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).contains(text) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

#[test]
fn values_of_headers_and_query_parameters_are_sent_and_never_stored() {
    let script = Script::new().agent(Reply::complete("done")).judge(met().stall()).judge(met());
    let case = Case::new(script, "goal: x");
    let model = case.sandbox.model_yaml(&case.provider, "test/model-1");
    let model = model.trim().replacen(
        "model: {",
        "model: {headers: {x-team: team-value-12345}, query_params: {code: query-value-12345}, ",
        1,
    );
    let goal = case
        .sandbox
        .read(&case.goal)
        .lines()
        .filter(|line| !line.starts_with("model:"))
        .fold(String::new(), |text, line| text + line + "\n");
    case.sandbox.write(&case.goal, format!("{goal}{model}\nlimits: {{time: 700ms}}\n"));
    let ended = case.run().expect(Outcome::TimeLimit);
    // The resume reads them again from where they came from.
    case.resume(&ended, &["--max-time", "1m"]).expect(Outcome::Met);
    for request in case.provider.requests() {
        assert_eq!(request.header("x-team"), Some("team-value-12345"));
        assert_eq!(request.query, "code=query-value-12345");
    }
    let home = case.sandbox.spettro_home();
    assert_eq!(holding(&home, "team-value-12345"), Vec::<String>::new());
    assert_eq!(holding(&home, "query-value-12345"), Vec::<String>::new());
    case.provider.finish();
}

#[test]
fn a_key_with_a_line_end_is_the_key_without_it() {
    let script = Script::new().key("the-key-12345").agent(Reply::complete("done")).judge(met());
    let case = Case::new(script, "goal: x");
    case.sandbox.set(KEY_VARIABLE, "the-key-12345\n");
    case.run().expect(Outcome::Met);
    case.provider.finish();
}

#[test]
fn a_key_that_no_header_can_hold_is_said_at_once() {
    let script = Script::new().key("the-key-12345");
    let case = Case::new(script, "goal: x");
    case.sandbox.set(KEY_VARIABLE, "the-key\n-12345");
    let ended = case.run().expect(Outcome::Provider);
    assert!(!ended.result.retryable);
    assert!(ended.finished.duration.as_secs() < 20, "{:?}", ended.finished.duration);
    case.provider.finish();
}

#[test]
fn a_provider_that_repeats_the_key_in_its_error_does_not_get_it_into_a_file() {
    let body = r#"{"error":{"type":"authentication_error","message":"wrong key the-key-12345"}}"#;
    let script = Script::new().key("the-key-12345").agent(Reply::error(401).body(body));
    let case = Case::new(script, "goal: x");
    let ended = case.run().expect(Outcome::Auth);
    assert_eq!(holding(&case.sandbox.spettro_home(), "the-key-12345"), Vec::<String>::new());
    assert!(!ended.finished.stdout.contains("the-key-12345") && !ended.finished.stderr.contains("the-key-12345"));
    case.provider.finish();
}
