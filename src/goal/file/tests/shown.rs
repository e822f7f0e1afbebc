//! The effective configuration as it is shown and stored, the schema, and hostile texts.

use proptest::prelude::*;

use super::*;
use crate::event::Micros;

#[test]
fn the_effective_configuration_is_whole_stable_and_without_secrets() {
    let mut place = everything();
    place.var("MY_PASS", "x");
    let effective = place.load().unwrap();
    let shown = effective.config.yaml.replace(&place.path().display().to_string(), "FOLDER");
    insta::assert_snapshot!("effective", shown);
    assert!(!effective.config.yaml.contains("hush-hush") && !effective.config.yaml.contains("blue"));
    assert_eq!(effective.config.digest, format!("{:x}", Sha256::digest(&effective.config.yaml)));
    assert_eq!(place.load().unwrap().config, effective.config);
    assert!(effective.annotated.contains("cost: 0.50  # goal.yaml\n"), "{}", effective.annotated);
    assert!(effective.origins.iter().any(|(key, value, origin)| {
        (key.as_str(), value.as_str(), origin) == ("limits.time", "unlimited", &Origin::GoalFile("goal.yaml".into()))
    }));
    // Comments aside, what `validate` prints is the same configuration.
    let annotated = place.source(&GoalSource::Stdin(effective.annotated.clone())).unwrap().config;
    assert_eq!(annotated.limits, effective.config.limits);
    assert_eq!(annotated.checks, effective.config.checks);
}

#[test]
fn a_stored_configuration_means_the_same_again() {
    let mut place = everything();
    let first = place.load().unwrap().config;
    let stored = GoalSource::Stored { yaml: first.yaml.clone(), goal_file: first.goal_file.clone() };
    // What is set in the meantime does not count, but for the command line.
    place.var("SPETTRO_LIMITS_STALL", "9");
    place.write("home/config.yaml", "limits: {idle: 1h}\n");
    assert_eq!(place.source(&stored).map_err(|problems| place.lines(&problems)).unwrap().config, first);
    place.set("limits.cost", "8");
    assert_eq!(place.source(&stored).unwrap().config.limits.cost, Some(Micros(8_000_000)));

    // Masked values come from where they came from, and not from anywhere else.
    let text = std::fs::read_to_string(place.path().join("goal.yaml")).unwrap();
    place.write("goal.yaml", text.replace("hush-hush", "hush-2").replace("iterations: 7", "iterations: 8"));
    let again = place.source(&stored).unwrap().config;
    assert_eq!(again.env.set[1].1, "hush-2");
    assert_eq!(again.limits.iterations, 7);
    std::fs::remove_file(place.path().join("goal.yaml")).unwrap();
    let problems = place.lines(&place.source(&stored).unwrap_err());
    assert!(problems.iter().all(|problem| problem.contains("holds a secret that was not stored")), "{problems:?}");
    assert!(problems.iter().any(|problem| problem.starts_with("session: env.set: ")), "{problems:?}");
}

#[test]
fn an_unchanged_goal_with_odd_texts_survives_being_stored() {
    let texts = [
        "plain",
        "two\nlines",
        "  indented\n    more",
        "ends with space \nx",
        "trailing\n\n\ngap",
        "tab\there",
        "yes",
        "5.00",
        "null",
        "# no comment",
        "a: b",
        "- x",
        "'quoted'",
        "\"double\"",
        "emoji 🎉 «x»",
        "\u{85}next",
        "\u{2028}sep",
        "a\\nb",
        "|",
        "{x}",
        "%directive",
        "@at",
        "`tick",
        "back\\slash\nx",
        "${env:NOPE}",
    ];
    for text in texts {
        let place = Place::new();
        let mut first = Place::new();
        first.set("model", "a/b");
        let config = first.source(&GoalSource::Prompt(text.into())).unwrap().config;
        let stored = GoalSource::Stored { yaml: config.yaml.clone(), goal_file: None };
        let again = place.source(&stored);
        let again = again.unwrap_or_else(|problems| panic!("{text:?}\n{}\n{:?}", config.yaml, place.lines(&problems)));
        assert_eq!(again.config, config, "{text:?}");
    }
}

#[test]
fn the_schema_knows_every_key_and_says_what_is_required() {
    let schema = schema();
    assert_eq!(schema["required"], serde_json::json!(["version", "goal", "model"]));
    assert_eq!(schema["additionalProperties"], false);
    for path in key_paths() {
        let mut at = &schema;
        for step in path.replace("[]", ".[]").split('.') {
            let mut objects: Vec<&serde_json::Value> = vec![at];
            if let Some(name) = at["$ref"].as_str() {
                objects = vec![&schema["$defs"][name.trim_start_matches("#/$defs/")]];
            }
            objects.extend(objects.clone().iter().flat_map(|object| object["anyOf"].as_array().into_iter().flatten()));
            let found = objects.into_iter().find_map(|object| match step {
                "[]" => object.get("items"),
                "*" => object.get("additionalProperties"),
                name => object["properties"].get(name),
            });
            // What comes later accepts nothing, so it has no keys of its own.
            if at.get("not").is_some() {
                break;
            }
            at = found.unwrap_or_else(|| panic!("{path}: {step}: {at}"));
        }
    }
    assert_eq!(schema["properties"]["limits"]["properties"]["cost"]["default"], 5.0);
    insta::assert_snapshot!("schema", serde_json::to_string_pretty(&schema).unwrap());
}

/// Any sequence of edits of a good file: cut, doubled, replaced.
fn mutate(text: &str, edits: &[(usize, u8, String)]) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for (at, what, with) in edits {
        let at = at % (chars.len() + 1);
        match what % 3 {
            0 => drop(chars.drain(at..(at + with.len()).min(chars.len()))),
            1 => drop(chars.splice(at..at, with.chars())),
            _ => {
                let line: Vec<char> = chars[at..].iter().copied().take_while(|c| *c != '\n').chain(['\n']).collect();
                drop(chars.splice(at..at, line));
            }
        }
    }
    chars.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_the_reader_panic(
        edits in proptest::collection::vec((0usize..4_000, any::<u8>(), "[ -~\n\t\u{e9}&*!|>{}\\[\\]:#'\"]{0,8}"), 1..6)
    ) {
        let place = Place::new();
        place.write("work/x", "");
        let sample = format!("version: 1\ngoal: do it\nmodel: local/tiny\n{EVERYTHING}");
        let text = mutate(&sample, &edits);
        match place.source(&GoalSource::Stdin(text)) {
            Ok(effective) => {
                // Whatever is accepted is shown as something that means the same.
                let stored = GoalSource::Stored { yaml: effective.config.yaml.clone(), goal_file: None };
                if !effective.config.yaml.contains(show::MASK) {
                    prop_assert_eq!(place.source(&stored).unwrap().config, effective.config);
                }
            }
            Err(problems) => {
                prop_assert!(!problems.is_empty());
                for problem in problems {
                    let shown = problem.to_string();
                    prop_assert!(!shown.contains(char::from(27)), "{}", shown);
                }
            }
        }
    }

    #[test]
    fn any_goal_text_survives_being_stored(text in "[ -~\n\t\r\u{85}\u{e9}\u{2028}«]{1,60}") {
        prop_assume!(!text.trim().is_empty());
        let mut place = Place::new();
        place.set("model", "a/b");
        let config = place.source(&GoalSource::Prompt(text)).unwrap().config;
        let stored = GoalSource::Stored { yaml: config.yaml.clone(), goal_file: None };
        place.overrides.settings.clear();
        prop_assert_eq!(place.source(&stored).unwrap().config, config);
    }
}

#[test]
fn texts_made_to_be_slow_are_refused_early() {
    let place = Place::new();
    let first = |text: String| place.source(&GoalSource::Stdin(text)).unwrap_err()[0].to_string();
    // The parser's time grows with the square of what is open at once: this one would take half an hour.
    let open = "[".repeat(200_000);
    assert_eq!(
        first(format!("version: 1\na: {open}")),
        "stdin:2:1004: is not valid YAML: more than 1000 brackets are open at once"
    );
    assert_eq!(first("- ".repeat(20_000)), "stdin:1:257: is not valid YAML: recursion limit exceeded");
    let wide: String = (0..20_000).map(|n| format!("k{n}: 1\n")).collect();
    assert!(first(wide).ends_with("is not valid YAML: more than 20000 values"));
    assert_eq!(first(format!("a: {}", "x".repeat(300_000))), "stdin: has 300003 bytes; at most 262144");
}
