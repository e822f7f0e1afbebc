//! What a goal file of the repository may set by itself, and what it may not.

use super::*;

/// What needs somebody to vouch for a goal file with these lines, by key; the file lies in the workspace.
fn doubts(rest: &str) -> Vec<String> {
    let place = Place::new();
    place.write("goal.yaml", format!("version: 1\ngoal: do it\n{rest}"));
    keys(&place)
}

fn keys(place: &Place) -> Vec<String> {
    match place.load() {
        Ok(effective) => effective.untrusted.into_iter().map(|problem| problem.key).collect(),
        Err(problems) => panic!("{}", place.lines(&problems).join("\n")),
    }
}

#[test]
fn where_requests_and_keys_go_is_not_for_the_repository_to_say() {
    let model = |more: &str| doubts(&format!("model: {{id: a/b, wire: openai-chat, {more}}}\n"));
    assert_eq!(model("base_url: \"https://evil.example/v1\""), ["model.base_url"]);
    assert_eq!(model("base_url: \"http://10.0.0.1/v1\""), ["model.base_url"], "private is not this machine");
    assert_eq!(model("base_url: \"http://127.0.0.1.evil.example/v1\""), ["model.base_url"]);
    assert_eq!(
        model("base_url: \"http://127.0.0.1:8/v1\", api_key_env: A_KEY"),
        ["model.base_url", "model.api_key_env"]
    );
    assert_eq!(model("headers: {x-a: b}"), ["model.headers"]);
    assert_eq!(model("headers: {}"), Vec::<String>::new());
    for local in ["http://127.0.0.1:8080/v1", "http://localhost/v1", "http://[::1]:1/v1", "https://127.9.9.9/v1"] {
        assert_eq!(model(&format!("base_url: \"{local}\"")), Vec::<String>::new(), "{local}");
    }
    let rest = "model: a/b\nproviders: {p: {wire: openai-chat, base_url: \"https://x.example\", api_key_env: K, headers: {a: b}}}\n";
    assert_eq!(doubts(rest), ["providers.p.base_url", "providers.p.api_key_env", "providers.p.headers"]);
    let provider = |url: &str, more: &str| {
        doubts(&format!("model: a/b\nproviders: {{p: {{wire: openai-chat, base_url: \"{url}\", {more}}}}}\n"))
    };
    for (key, value) in [("api_key_file", "key"), ("api_key_command", "[print, key]"), ("api_key_command", "print key")]
    {
        let names = ["providers.p.base_url".to_owned(), format!("providers.p.{key}")];
        assert_eq!(provider("http://127.0.0.1:8/v1", &format!("{key}: {value}")), names, "{value}");
    }
    assert_eq!(provider("http://127.0.0.1:8/v1", "env_http_headers: {x-a: A_TOKEN}"), ["providers.p.env_http_headers"]);
    assert_eq!(provider("http://127.0.0.1:8/v1", "env_http_headers: {}"), Vec::<String>::new());
    assert_eq!(provider("https://127.0.0.1:8/v1", "ca_file: ca.pem"), ["providers.p.ca_file"]);
    let judge = "model: a/b\njudge: {model: {id: c, wire: anthropic, base_url: \"https://x.example\"}}\n";
    assert_eq!(doubts(judge), ["judge.model.base_url"]);
    let summarizer = "model: a/b\nsummarizer: {model: {id: c, wire: anthropic, base_url: \"https://x.example\"}}\n";
    assert_eq!(doubts(summarizer), ["summarizer.model.base_url"]);
}

#[test]
fn nor_what_commands_may_see_and_touch() {
    assert_eq!(doubts("model: a/b\nenv: {pass: [A_TOKEN], set: {A: b}, clean: true}\n"), ["env.pass"]);
    assert_eq!(doubts("model: a/b\nenv: {pass: []}\n"), Vec::<String>::new());
    assert_eq!(
        doubts("model: a/b\nsandbox: {files: off, write: [/srv], read: [/srv]}\n"),
        ["sandbox.write", "sandbox.read", "sandbox.files"]
    );
    assert_eq!(doubts("model: a/b\nsandbox: {files: read-only, network: none}\n"), Vec::<String>::new());
}

#[test]
fn who_lies_outside_may_and_so_may_everybody_else() {
    let rest =
        "model: {id: a/b, wire: openai-chat, base_url: \"https://x.example\", api_key_env: K}\nenv: {pass: [T]}\n";
    let file = |workspace: &str| format!("version: 1\ngoal: do it\nworkspace: {workspace}\n{rest}");
    let place = Place::new();
    place.write("work/keep", "");
    place.write("goal.yaml", file("work"));
    assert_eq!(keys(&place), Vec::<String>::new(), "beside the workspace");

    // The repository around the workspace is the workspace's, and one that the command is given in is no other.
    place.write(".git/HEAD", "ref: refs/heads/main");
    assert_eq!(keys(&place).len(), 3);
    let elsewhere = tempfile::tempdir().unwrap();
    place.write("goal.yaml", file(&elsewhere.path().display().to_string()));
    let all = ["model.base_url", "model.api_key_env", "workspace", "env.pass"];
    assert_eq!(keys(&place), all, "nor does it choose a folder elsewhere to be written");

    let mut place = Place::new();
    place.write("goal.yaml", goal(""));
    place.write(
        "home/config.yaml",
        "env: {pass: [T]}\nproviders: {p: {wire: anthropic, base_url: \"https://x.example\"}}\n",
    );
    place.set("sandbox.files", "off");
    place.var("SPETTRO_SANDBOX_WRITE", "[/srv]");
    assert_eq!(keys(&place), Vec::<String>::new(), "flags, variables and the user's configuration");
}

#[test]
fn a_link_does_not_hide_where_a_file_is_and_a_text_file_stays_inside() {
    let place = Place::new();
    let outside = tempfile::tempdir().unwrap();
    place.write("work/goal.yaml", "version: 1\ngoal: do it\nworkspace: WORK\nmodel: a/b\nenv: {pass: [T]}\n");
    let work = place.path().join("work");
    let text = std::fs::read_to_string(work.join("goal.yaml")).unwrap().replace("WORK", &work.display().to_string());
    place.write("work/goal.yaml", text);
    std::os::unix::fs::symlink(work.join("goal.yaml"), outside.path().join("goal.yaml")).unwrap();
    let source = GoalSource::File(outside.path().join("goal.yaml"));
    assert_eq!(place.source(&source).unwrap().untrusted.len(), 1);

    std::fs::write(outside.path().join("secret"), "not for the model").unwrap();
    place.write("goal.yaml", format!("version: 1\nmodel: a/b\ngoal: {{file: {}/secret}}\n", outside.path().display()));
    assert_eq!(keys(&place), ["goal.file"]);
    place.write("goal.yaml", "version: 1\nmodel: a/b\ngoal: {file: text.md}\n");
    place.write("text.md", "do it");
    assert_eq!(keys(&place), Vec::<String>::new());
}

#[test]
fn an_untrusted_repository_gives_neither_configuration_nor_goal() {
    let mut place = Place::new();
    place.write("work/.spettro/config.yaml", "name: theirs\n");
    place.write("goal.yaml", goal("workspace: work\n"));
    assert_eq!(place.load().unwrap().config.name, "theirs");
    place.overrides.untrusted = true;
    assert_eq!(place.load().unwrap().config.name, "goal");
    place.write("work/goal.yaml", goal(""));
    let problems = place.source(&GoalSource::File("work/goal.yaml".into())).unwrap_err();
    assert!(problems[0].to_string().contains("--untrusted"), "{problems:?}");
}

#[test]
fn what_holds_a_secret_is_not_interpolated() {
    let mut place = Place::new();
    place.var("MY_TOKEN", "a-secret-value");
    place.var("HEADER", "Bearer a-secret-value");
    place.var("COPY", "a-secret-value");
    place.var("PLAIN", "fine");
    for name in ["MY_TOKEN", "HEADER", "COPY"] {
        place.write("goal.yaml", format!("version: 1\nmodel: a/b\ngoal: \"say ${{env:{name}}} and ${{env:PLAIN}}\"\n"));
        let problems = place.problems();
        assert!(problems.len() == 1 && problems[0].contains("secret"), "{problems:?}");
        assert!(!problems[0].contains("a-secret-value"), "{problems:?}");
    }
}
