//! Who wins.

use super::*;

#[test]
fn a_flag_wins_over_a_variable_over_the_file_over_the_users_over_the_default() {
    let mut place = Place::new();
    let cost = |place: &Place| {
        let effective = place.load().map_err(|problems| place.lines(&problems)).unwrap();
        let origin = effective.origins.iter().find(|(key, ..)| key == "limits.cost").unwrap();
        (effective.config.limits.cost.unwrap().0 / 1_000_000, origin.1.clone(), origin.2.clone())
    };
    place.write("goal.yaml", goal(""));
    assert_eq!(cost(&place), (5, "5.00".into(), Origin::Default));
    place.write("home/config.yaml", "limits: {cost: 1, stall: 9}\n");
    let user = place.path().join("home/config.yaml").display().to_string();
    assert_eq!(cost(&place), (1, "1.00".into(), Origin::User(user)));
    place.write("goal.yaml", goal("limits: {cost: 2}\n"));
    assert_eq!(cost(&place), (2, "2.00".into(), Origin::GoalFile("goal.yaml".into())));
    place.var("SPETTRO_LIMITS_COST", "3");
    assert_eq!(cost(&place), (3, "3.00".into(), Origin::Env("SPETTRO_LIMITS_COST".into())));
    place.set("limits.cost", "4");
    assert_eq!(cost(&place), (4, "4.00".into(), Origin::Flag("--set limits.cost".into())));
    // The layers are laid over each other key by key.
    assert_eq!(place.load().unwrap().config.limits.stall, 9);
}

#[test]
fn endpoints_and_prices_of_the_user_and_the_goal_are_joined_by_name() {
    let place = Place::new();
    let provider = |port: u16| format!("{{wire: openai-chat, base_url: 'http://127.0.0.1:{port}/v1'}}");
    place.write("home/config.yaml", format!("providers: {{a: {}, b: {}}}\n", provider(1), provider(2)));
    place.write("goal.yaml", goal(&format!("providers: {{b: {}, c: {}}}\n", provider(3), provider(4))));
    let config = place.load().unwrap().config;
    let urls: Vec<(&str, &str)> =
        config.providers.iter().map(|(name, spec)| (name.as_str(), spec.base_url.as_str())).collect();
    let url = |port: u16| format!("http://127.0.0.1:{port}/v1");
    assert_eq!(urls, [("a", url(1).as_str()), ("b", url(3).as_str()), ("c", url(4).as_str())]);
}

#[test]
fn variables_that_set_nothing_known_are_errors() {
    let mut place = Place::new();
    place.write("goal.yaml", goal(""));
    for name in ["SPETTRO_HOME", "SPETTRO_LOG", "SPETTRO_RUN_ID", "SPETTRO_JOB_ID", "SPETTROX", "OTHER"] {
        place.var(name, "x");
    }
    place.var("SPETTRO_LIMITS_STALL", "");
    assert_eq!(place.load().unwrap().config.limits.stall, 3);
    place.var("SPETTRO_LIMIT_COST", "1");
    place.var("SPETTRO_MAX_COST", "1");
    place.var("SPETTRO_XYZZY", "1");
    place.var("SPETTRO_VERSION", "1");
    place.var("SPETTRO_COMPACTION_AUTO", "true");
    place.var("SPETTRO_MEMORY", "off");
    place.var("SPETTRO_LIMITS", "{}");
    place.var("SPETTRO_LIMITS_TIME", "90");
    place.var("SPETTRO_CHECKS", "[make, {rum: x}]");
    place.var("SPETTRO_CRITERIA", "[a");
    insta::assert_snapshot!("variables", place.problems().join("\n"));
}

#[test]
fn settings_of_the_command_line_are_checked_like_the_file() {
    let mut place = Place::new();
    place.write("goal.yaml", goal(""));
    place.set("limits.cots", "1");
    place.set("max_cost", "1");
    place.set("model.base_url", "x");
    place.set("version", "1");
    place.set("limits", "{cost: 1}");
    place.set("memory", "off");
    place.set("limits.cost", "+5");
    place.set("checks", "make");
    place.set("skip_if_met", "yes");
    place.set("judge.votes", "2");
    insta::assert_snapshot!("settings", place.problems().join("\n"));

    let mut place = Place::new();
    place.write("goal.yaml", goal("checks: [make]\n"));
    place.set("judge", "off");
    place.set("criteria", "[]");
    place.set("tools.allow", "[bash]");
    place.set("model", "{id: x/y, context_window: 5000}");
    place.overrides.checks = vec!["make lint".into()];
    let effective = place.load().map_err(|problems| place.lines(&problems)).unwrap();
    let config = effective.config;
    assert_eq!((config.judge, config.tools_allow), (None, Some(vec!["bash".to_owned()])));
    assert_eq!((config.model.id.as_str(), config.model.context_window), ("x/y", Some(5000)));
    assert_eq!(config.checks.len(), 2);
    let origin = effective.origins.iter().find(|(key, ..)| key == "checks").unwrap();
    assert_eq!(origin.2.to_string(), "goal.yaml and --check");
}

#[test]
fn a_judge_that_is_off_takes_no_settings_and_a_map_turns_it_on() {
    let mut place = Place::new();
    place.write("home/config.yaml", "judge: off\n");
    place.write("goal.yaml", goal("judge: {messages: 3}\n"));
    assert_eq!(place.load().unwrap().config.judge.unwrap().messages, 3);
    place.write("home/config.yaml", "judge: {timeout: 5m}\n");
    place.write("goal.yaml", goal("judge: off\nchecks: [make]\n"));
    assert_eq!(place.load().unwrap().config.judge, None);
    place.overrides.settings.push(Setting {
        flag: "--judge-model".into(),
        key: "judge.model".into(),
        value: "a/b".into(),
    });
    assert_eq!(
        place.problems(),
        ["command line: --judge-model: the judge is `off` (goal.yaml), so this has no effect"]
    );
}

#[test]
fn the_users_configuration_has_no_goal_and_is_as_strict() {
    let place = Place::new();
    place.write("goal.yaml", goal(""));
    place.write("home/config.yaml", "goal: x\nlimits: {coost: 5}\nversion: 3\n");
    assert_eq!(
        place.problems(),
        [
            "home/config.yaml:1:1: goal: a goal stands in a goal file",
            "home/config.yaml:2:10: limits.coost: unknown key; did you mean `limits.cost`?",
            "home/config.yaml:3:1: version: found `3`; this build reads 1",
        ]
    );
    place.write("home/config.yaml", "# nothing yet\n");
    place.write("home/config.json", "{\n  \"auto_compact_enabled\": true,\n  \"auto_compact_threshold_pct\": 80,\n  \"auto_compact_max_failures\": 3,\n  \"x\": 1\n}\n");
    assert_eq!(place.problems(), ["home/config.json:5:3: x: unknown key",]);
    place.write(
        "home/config.json",
        "{\"auto_compact_enabled\": false, \"auto_compact_threshold_pct\": 60, \"auto_compact_max_failures\": 5}\n",
    );
    let compaction = place.load().unwrap().config.compaction;
    assert_eq!((compaction.auto, compaction.threshold_pct, compaction.max_failures), (false, 60, 5));
    place.write("home/config.yaml", "compaction: {threshold_pct: 70}\n");
    assert_eq!(place.load().unwrap().config.compaction.threshold_pct, 70);
    place.write("home/config.json", "{\"auto_compact_threshold_pct\": 40}\n");
    let problems = place.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with("home/config.json: auto_compact_threshold_pct: "), "{problems:?}");
}

#[test]
fn a_projects_own_configuration_sets_a_name_and_instructions_only() {
    let place = Place::new();
    place.write("project/.spettro/config.yaml", "name: theirs\ninstructions: [GUIDE.md]\n");
    place.write("goal.yaml", goal("workspace: project\n"));
    place.write("home/config.yaml", "instructions: [MINE.md]\n");
    let config = place.load().unwrap().config;
    assert_eq!((config.name.as_str(), config.instructions), ("theirs", vec!["GUIDE.md".to_owned()]));
    place.write("goal.yaml", goal("workspace: project\nname: mine\ninstructions: [X.md]\n"));
    let config = place.load().unwrap().config;
    assert_eq!((config.name.as_str(), config.instructions), ("mine", vec!["X.md".to_owned()]));

    let forbidden = "limits: {cost: 9}\nsandbox: {files: off}\nenv: {clean: false}\nproviders: {}\nredact: []\n\
                     model: a/b\ncompaction: {auto: true}\nname: ok\nchecks: []\n";
    place.write("project/.spettro/config.yaml", forbidden);
    let problems = place.problems();
    assert_eq!(problems.len(), 7, "{problems:?}");
    for name in ["limits", "sandbox", "env", "providers", "redact", "model", "checks"] {
        let message = format!(": {name}: a project's own configuration cannot set this\n");
        assert!(problems.iter().any(|problem| problem.contains(&message)), "{name}: {problems:?}");
    }
    place.write("project/.spettro/config.yaml", "compaction: {auto: false, threshold_pct: 55}\n");
    let compaction = place.load().unwrap().config.compaction;
    assert_eq!((compaction.auto, compaction.threshold_pct, compaction.max_failures), (false, 55, 3));
}
