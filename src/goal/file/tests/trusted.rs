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

/// What needs somebody to vouch for a goal file with these lines, where the user's configuration has those.
fn against(users: &str, rest: &str) -> Vec<String> {
    let place = Place::new();
    place.write("home/config.yaml", users);
    place.write("goal.yaml", format!("version: 1\ngoal: do it\nmodel: a/b\n{rest}\n"));
    keys(&place)
}

#[test]
fn nor_is_what_the_user_has_set_undone() {
    let same = Vec::<String>::new();
    for (key, users, weaker, fine) in [
        ("sandbox.files", "read-only", &["workspace-write", "off"][..], &["read-only"][..]),
        ("sandbox.files", "workspace-write", &["off"], &["read-only", "workspace-write"]),
        ("sandbox.network", "none", &["all", "[80]"], &["none", "[]"]),
        ("sandbox.network", "[80, 443]", &["all", "[443, 22]"], &["none", "[443]", "[443, 80]"]),
        ("env.clean", "true", &["false"], &["true"]),
        ("env.clean", "false", &[], &["false", "true"]),
        ("tools.deny", "[bash, grep]", &["[]", "[grep]"], &["[grep, bash]", "[glob, bash, grep]"]),
        ("tools.allow", "[bash, grep]", &["[web-fetch]", "[bash, grep, glob]"], &["[grep]", "[]"]),
        ("workspace_mode", "copy", &["in_place"], &["copy"]),
        ("limits.cost", "0.50", &["0.51", "unlimited"], &["0.50", "0.01"]),
        ("limits.tokens", "9000", &["9001", "unlimited"], &["9000", "1"]),
        ("limits.time", "1h", &["61m", "unlimited"], &["60m", "1s"]),
        ("limits.idle", "unlimited", &[], &["unlimited", "1m"]),
        ("limits.iterations", "5", &["6"], &["5", "1"]),
        ("limits.stall", "2", &["3"], &["2"]),
        ("rate_limit.max_wait", "1m", &["2m"], &["1m", "0s"]),
        ("spool_max", "1MiB", &["1GiB"], &["1MiB", "1KiB"]),
    ] {
        let line = |value: &str| match key.split_once('.') {
            Some((group, name)) => format!("{group}: {{{name}: {value}}}"),
            None => format!("{key}: {value}"),
        };
        for value in weaker {
            assert_eq!(against(&line(users), &line(value)), [key], "{value} against {users}");
        }
        for value in fine {
            assert_eq!(against(&line(users), &line(value)), same, "{key}: {value} against {users}");
        }
        // Where the user's configuration says nothing of it, nothing changes.
        let alone: Vec<String> = weaker.iter().flat_map(|value| against("name: mine", &line(value))).collect();
        let off = key == "sandbox.files";
        assert_eq!(alone, if off { vec!["sandbox.files"] } else { Vec::new() }, "{key}");
    }
    let place = Place::new();
    place.write("home/config.yaml", "limits: {cost: 0.50}\n");
    place.write("goal.yaml", "version: 1\ngoal: do it\nmodel: a/b\nlimits: {cost: 5.00}\n");
    let said = place.lines(&place.load().unwrap().untrusted);
    assert!(
        said[0].starts_with("goal.yaml:4:10: limits.cost: is weaker than the `0.50` of home/config.yaml"),
        "{said:?}"
    );
}

#[test]
fn what_is_hidden_and_protected_adds_up_for_a_file_of_the_repository_alone() {
    let users = "redact: [OURS, BOTH]\nprotect: [ours]\n";
    let goal = "version: 1\ngoal: do it\nmodel: a/b\nredact: [BOTH, THEIRS]\nprotect: []\n";
    let place = Place::new();
    place.write("home/config.yaml", users);
    place.write("goal.yaml", goal);
    let config = place.load().unwrap().config;
    assert_eq!(
        (config.redact.as_slice(), config.protect.as_slice()),
        (&["BOTH", "THEIRS", "OURS"].map(String::from)[..], &["ours".to_owned()][..])
    );
    place.write("work/keep", "");
    place.write("goals/goal.yaml", format!("{goal}workspace: ../work\n"));
    let own = place.source(&GoalSource::File("goals/goal.yaml".into())).unwrap().config;
    assert_eq!((own.redact.as_slice(), own.protect.len()), (&["BOTH", "THEIRS"].map(String::from)[..], 0));
}

/// A goal file that sets these two keys, and names a workspace.
fn with_keys(workspace: &str) -> String {
    let model = "model: {id: a/b, wire: openai-chat, base_url: \"https://x.example\", api_key_env: K}";
    format!("version: 1\ngoal: do it\nworkspace: {workspace}\n{model}\nenv: {{pass: [T]}}\n")
}

/// What needs somebody to vouch for a goal file of that name in the place.
fn keys_of(place: &Place, name: &str) -> Vec<String> {
    let effective = place.source(&GoalSource::File(name.into())).unwrap();
    effective.untrusted.into_iter().map(|problem| problem.key).collect()
}

const BOTH: [&str; 3] = ["model.base_url", "model.api_key_env", "env.pass"];
const ALL: [&str; 4] = ["model.base_url", "model.api_key_env", "workspace", "env.pass"];

#[test]
fn who_lies_outside_may_and_so_may_everybody_else() {
    let place = Place::new();
    place.write("work/keep", "");
    place.write("goals/goal.yaml", with_keys("../work"));
    assert_eq!(keys_of(&place, "goals/goal.yaml"), Vec::<String>::new(), "in a folder of its own");
    place.write("work/.git/HEAD", "ref: refs/heads/main");
    assert_eq!(keys_of(&place, "goals/goal.yaml"), Vec::<String>::new(), "outside of the repository it is about");

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
fn a_folder_that_holds_what_is_worked_on_is_its_own_boundary() {
    let mut place = Place::new();
    let elsewhere = tempfile::tempdir().unwrap();
    // No repository: an unpacked archive, whose goal file names a folder in it, or one elsewhere.
    place.write("tree/src/keep", "");
    place.write("tree/goal.yaml", with_keys("src"));
    assert_eq!(keys_of(&place, "tree/goal.yaml"), BOTH);
    place.write("goal.yaml", with_keys(&elsewhere.path().display().to_string()));
    assert_eq!(keys_of(&place, "goal.yaml"), ALL, "the current folder's own");
    place.write("tree/deep/goal.yaml", with_keys(".."));
    assert_eq!(keys_of(&place, "tree/deep/goal.yaml"), ALL, "what it names does not widen the boundary");

    // A folder that holds the home directory as well is no archive, unless one stands right in it.
    place.var("HOME", &place.path().join("tree/home").display().to_string());
    place.write("tree/home/keep", "");
    assert_eq!(keys_of(&place, "tree/goal.yaml"), Vec::<String>::new());
    place.write("tree/goal.yaml", with_keys("."));
    assert_eq!(keys_of(&place, "tree/goal.yaml"), BOTH);
}

#[test]
fn a_file_of_a_repository_does_not_choose_its_way_out() {
    let mut place = Place::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let elsewhere = elsewhere.path().canonicalize().unwrap().display().to_string();
    place.write("repo/.git/HEAD", "ref: refs/heads/main");
    place.write("repo/goals/goal.yaml", with_keys(&elsewhere));
    assert_eq!(keys_of(&place, "repo/goals/goal.yaml"), ALL, "run from outside");
    place.write("repo/goals/goal.yaml", with_keys("../.."));
    place.write("secret.txt", "not for the model");
    assert_eq!(keys_of(&place, "repo/goals/goal.yaml"), ALL, "wider is outside too");
    let text = "version: 1\ngoal: {file: ../../secret.txt}\nworkspace: ../..\nmodel: a/b\n";
    place.write("repo/goals/goal.yaml", text);
    assert_eq!(keys_of(&place, "repo/goals/goal.yaml"), ["goal.file", "workspace"]);
    place.write("repo/goals/goal.yaml", with_keys(".."));
    assert_eq!(keys_of(&place, "repo/goals/goal.yaml"), BOTH, "the repository is all its own");
    place.write("repo/goals/goal.yaml", with_keys(&place.path().join("repo").display().to_string()));
    std::os::unix::fs::symlink(place.path().join("repo/goals/goal.yaml"), place.path().join("linked.yaml")).unwrap();
    assert_eq!(keys_of(&place, "linked.yaml"), BOTH, "whatever name it goes by");

    // Whoever names the workspace himself, elsewhere, uses the file as one of his own.
    place.set("workspace", &elsewhere);
    assert_eq!(keys_of(&place, "repo/goals/goal.yaml"), Vec::<String>::new());
    place.set("workspace", &place.path().join("repo").display().to_string());
    assert_eq!(keys_of(&place, "repo/goals/goal.yaml"), BOTH);
}

#[test]
fn a_provider_of_the_repository_gets_nobody_elses_key() {
    let provider =
        |name: &str| format!("providers: {{{name}: {{wire: openai-chat, base_url: \"http://127.0.0.1:8/v1\"}}}}\n");
    let local = |rest: &str| format!("version: 1\ngoal: do it\n{rest}");
    let place = Place::new();
    place.write("goal.yaml", local(&format!("model: mine/x\n{}", provider("mine"))));
    assert_eq!(keys(&place), Vec::<String>::new(), "keyless, and its own");
    for listed in ["anthropic", "google"] {
        place.write("goal.yaml", local(&format!("model: {listed}/x\n{}", provider(listed))));
        assert_eq!(keys(&place), [format!("providers.{listed}")]);
    }
    place.write(
        "home/config.yaml",
        "providers: {corp: {wire: openai-chat, base_url: \"https://corp.example\", api_key_env: K}}\n",
    );
    place.write("goal.yaml", local(&format!("model: corp/x\n{}", provider("corp"))));
    assert_eq!(keys(&place), ["providers.corp"]);

    // The user's model, with a key or headers, and the file's provider.
    for carried in ["api_key_env: USERS_KEY", "headers: {x-team: b}", "query_params: {code: c}"] {
        let mut place = Place::new();
        place.write("goal.yaml", local(&provider("mine")));
        place.write("home/config.yaml", format!("model: {{id: mine/x, {carried}}}\n"));
        assert_eq!(keys(&place), ["providers.mine.base_url"], "{carried}");
        place.write("home/config.yaml", "model: {id: mine/x, context_window: 9000}\n");
        assert_eq!(keys(&place), Vec::<String>::new());
        place.set("model", &format!("{{provider: mine, id: x, {carried}}}"));
        assert_eq!(keys(&place), ["providers.mine.base_url"], "{carried}");
    }
}

#[test]
fn nor_what_calls_cost_and_what_else_is_sent() {
    let price = |name: &str| format!("prices: {{\"{name}\": {{input: 0, output: 0}}}}\n");
    assert_eq!(doubts(&format!("model: anthropic/x\n{}", price("anthropic/x"))), ["prices.anthropic/x"]);
    assert_eq!(doubts(&format!("model: a/b\n{}", price("anthropic/x"))), ["prices.anthropic/x"], "for a flag");
    for (key, value) in
        [("like", "anthropic/claude-haiku-5-5"), ("extra_body", "{service_tier: fast}"), ("query_params", "{a: b}")]
    {
        let path = format!("model.{key}");
        assert_eq!(doubts(&format!("model: {{id: anthropic/x, {key}: {value}}}\n")), [path], "{key}");
        let local = "wire: openai-chat, base_url: \"http://127.0.0.1:8/v1\"";
        assert_eq!(doubts(&format!("model: {{id: a/b, {local}, {key}: {value}}}\n")), Vec::<String>::new(), "{key}");
    }
    // A keyless server on this machine costs what its operator's file says.
    let local = "providers: {p: {wire: openai-chat, base_url: \"http://localhost:8/v1\", extra_body: {a: 1}}}\n";
    let rest =
        format!("model: p/x\n{local}prices: {{\"p/x\": {{input: 1, output: 1}}, \"p/y\": {{input: 1, output: 1}}}}\n");
    assert_eq!(doubts(&rest), Vec::<String>::new());
    let mut place = Place::new();
    place.write("goal.yaml", format!("version: 1\ngoal: do it\nmodel: a/b\n{}", price("openai/x")));
    place.set("model", "openai/x");
    assert_eq!(keys(&place), ["prices.openai/x"], "of the model that the operator chose");
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
    place.write("goals/goal.yaml", goal("workspace: ../work\n"));
    let outside = GoalSource::File("goals/goal.yaml".into());
    assert_eq!(place.source(&outside).unwrap().config.name, "theirs");
    place.overrides.untrusted = true;
    assert_eq!(place.source(&outside).unwrap().config.name, "goal");
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
