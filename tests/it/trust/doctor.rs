//! `spettro doctor`: what is there, by name, and never a value.

use serde_json::Value;

use crate::sandbox::Sandbox;

fn item<'a>(report: &'a Value, name: &str, text: &str) -> &'a Value {
    let items = report["items"].as_array().expect("items");
    let found =
        items.iter().find(|item| item["name"] == name && item["text"].as_str().is_some_and(|it| it.contains(text)));
    found.unwrap_or_else(|| panic!("no `{name}` with `{text}`: {report:#}"))
}

#[test]
fn it_names_what_is_there_and_no_value() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "");
    sandbox.git_init();
    sandbox.set("ANTHROPIC_API_KEY", "a-secret-value").set("OPENAI_API_KEY", "");
    sandbox.write(
        sandbox.spettro_home().join("config.yaml"),
        "providers: {mine: {wire: openai-chat, base_url: \"https://llm.example.com/v1\", api_key_env: MY_LLM_KEY}}\n",
    );
    let finished = sandbox.run(["doctor", "--json"]).expect_code(0);
    assert!(!finished.stdout.contains("a-secret-value"));
    let report: Value = serde_json::from_str(&finished.stdout).expect("one object");
    assert_eq!(item(&report, "git", "repository")["state"], "ok");
    item(&report, "key", "ANTHROPIC_API_KEY set");
    item(&report, "key", "OPENAI_API_KEY empty");
    item(&report, "key", "XAI_API_KEY missing");
    item(&report, "endpoint", "mine: https://llm.example.com/v1 (MY_LLM_KEY missing)");
    item(&report, "disk", "MiB free");
    item(&report, "processes", "");
    item(&report, "bash", "starts");
    let promises = report["sandbox"].as_array().expect("the table");
    let files = promises.iter().find(|promise| promise["guarantee"] == "files").expect("files");
    assert!(files["needs"].as_str().is_some_and(|needs| needs.contains("5.13")) && files["kept"].is_boolean());

    let lines = sandbox.run(["doctor"]).expect_code(0).stdout;
    assert!(lines.lines().any(|line| line.starts_with("ok    bash")), "{lines}");
    assert!(lines.contains("Landlock 6 (Linux 6.12)") && !lines.contains("a-secret-value"), "{lines}");
    assert_eq!(sandbox.session_dirs().len(), 0);
}

#[test]
fn what_runs_need_and_is_missing_is_23() {
    let sandbox = Sandbox::new();
    sandbox.set("PATH", sandbox.root().join("none").display().to_string());
    let finished = sandbox.run(["doctor"]).expect_code(23);
    assert!(finished.stdout.contains("FAIL  bash"), "{}", finished.stdout);

    let sandbox = Sandbox::new();
    sandbox.write(sandbox.spettro_home().join("config.yaml"), "limits: {costs: 1}\n");
    let finished = sandbox.run(["doctor"]).expect_code(23);
    assert!(finished.stdout.contains("limits.costs"), "{}", finished.stdout);
}

#[test]
fn a_shallow_clone_is_named() {
    let sandbox = Sandbox::new();
    sandbox.sh("git init -q ../full; git -C ../full -c user.name=a -c user.email=a@b commit -q --allow-empty -m one
        git -C ../full -c user.name=a -c user.email=a@b commit -q --allow-empty -m two
        git clone -q --depth 1 file://$(realpath ../full) .");
    let text = sandbox.run(["doctor"]).expect_code(0).stdout;
    assert!(text.contains("shallow (1 commits)"), "{text}");
}
