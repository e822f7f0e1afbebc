//! Keys and what is like them: never in a log, an event or a file.

use std::path::Path;

use spettro::event::Outcome;

use crate::goal::support::{Case, met};
use crate::provider::{Reply, Script};
use crate::replay::support::{Recording, replay};
use crate::sandbox::{KEY_VARIABLE, Sandbox};

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

/// The value of a variable that is a secret, put together so that the model's own words hold none; and its base64.
const SPLIT: &str = "a=in-a-names; v=\"sk-$a-value\"; e=$(printf %s \"$v\" | base64)";
const NAMED: &str = "sk-in-a-names-value";
const NAMED_BASE64: &str = "c2staW4tYS1uYW1lcy12YWx1ZQ";

#[test]
fn names_of_files_that_are_a_secret_stay_in_the_workspace_and_replay() {
    for repository in [false, true] {
        let sandbox = Sandbox::new();
        sandbox.set("MY_PASS", NAMED);
        sandbox.write(format!("before/{NAMED}"), "from the start");
        if repository {
            sandbox.git_init();
        }
        let script = Script::new()
            .agent(Reply::bash(&format!("{SPLIT}; mkdir d; echo 1 > d/$v; echo 2 > d/$e; echo 3 > \"$v.txt\"; ls d")))
            .agent(Reply::text("One."))
            .judge(Reply::verdict("unmet", "no", "more"))
            .agent(Reply::bash(&format!("{SPLIT}; rm d/$v; mv d/$e e-$e; echo 4 >> before/$v")))
            .agent(Reply::complete("done"))
            .judge(met());
        let recording = Recording::in_place(sandbox, script, "goal: x\nrecord: effects\nredact: [MY_PASS]\n");
        recording.run(0);
        let packets: String = recording.provider.judge_requests().iter().map(|request| request.text()).collect();
        assert!(packets.contains("«secret:MY_PASS».txt"), "{packets}");
        for request in recording.provider.requests() {
            let body = String::from_utf8_lossy(&request.body).into_owned();
            assert!(!body.contains(NAMED) && !body.contains(NAMED_BASE64), "{repository} {body}");
        }
        let home = recording.sandbox.spettro_home();
        for value in [NAMED, NAMED_BASE64] {
            let stored = holding(&home, value).into_iter().filter(|file| !file.contains("/git/")).collect::<Vec<_>>();
            assert_eq!(stored, Vec::<String>::new(), "{repository}");
        }
        assert!(recording.sandbox.exists(format!("{NAMED}.txt")), "the workspace is left alone");
        assert!(recording.sandbox.exists(format!("e-{NAMED_BASE64}==")));

        let cassette = recording.sandbox.root().join("run.jsonl");
        let name = cassette.to_str().expect("UTF-8");
        recording.sandbox.run(["cassette", "pack", "latest", "-o", name]).expect_code(0);
        let text = recording.sandbox.read("../run.jsonl");
        assert!(!text.contains(NAMED) && !text.contains(NAMED_BASE64));
        for replayed in [recording.replay(&[]), replay(&cassette, &[])] {
            replayed.expect_same();
            assert_eq!(replayed.standing("trees"), "identical", "{repository} {:#}", replayed.report);
            assert_eq!(replayed.finished.code, Some(0), "{repository} {:#}", replayed.report);
        }
    }
}
