//! What is refused, and in which words.

use super::*;
use crate::event::Micros;

#[test]
fn all_problems_at_once() {
    insta::assert_snapshot!(
        "all_problems",
        refused(
            "max_cost: 5\nnmae: x\nlimits: {time: 90, cost: 0, iterations: 0, tokens: .inf, stepps: 3}\n\
             checks:\n  - name: a\n  - {run: x, timeout: soon, when: never}\n  - [a, b]\n\
             judge: {votes: 2}\ncriteria: one\nsandbox: {files: open, network: [0]}\nsync: fast\nname: x\nname: y\n"
        )
        .join("\n")
    );
}

#[test]
fn each_malformed_line_has_its_message() {
    let mut wrong = Vec::new();
    for (line, wanted) in [
        // names
        ("goall: x", "4:1: goall: unknown key; did you mean `goal`?"),
        ("max_iterations: 3", "4:1: max_iterations: unknown key; did you mean `limits.iterations`?"),
        ("xyzzy: 3", "4:1: xyzzy: unknown key"),
        ("limits: {max_cost: 3}", "4:10: limits.max_cost: unknown key; did you mean `limits.cost`?"),
        ("checks: [{cmd: x, run: y}]", "4:11: checks[0].cmd: unknown key; did you mean `checks[].run`?"),
        ("model: a/c", "4:1: model: given twice"),
        ("limits: {stall: 1, stall: 2}", "4:20: limits.stall: given twice"),
        ("env: {set: {A: 1, A: 2}}", "4:19: env.set.A: given twice"),
        ("'a.b c': 1", "4:1: \"a.b c\": unknown key"),
        ("<<: {name: x}", "4:1: \"<<\": unknown key"),
        // wrong types
        ("checks: make", "4:1: checks: expected a list, found text"),
        ("limits: 5", "4:1: limits: expected a map, found the number `5`"),
        ("criteria:", "4:1: criteria: expected a list, found nothing"),
        ("skip_if_met: yes", "4:1: skip_if_met: expected `true` or `false`, found `yes`"),
        ("name: [a]", "4:1: name: expected text, found a list"),
        ("name: 5", "4:1: name: expected text, found the number `5`\n  hint: put it into quotes"),
        ("protect: [{a: b}]", "4:11: protect[0]: expected text, found a map"),
        ("criteria: !x [a]", "4:1: criteria: expected a list, found the tag `!x`"),
        ("providers: [a]", "4:1: providers: expected a map of names, found a list"),
        ("setup: [{run: x}]", "4:9: setup[0]: expected a command as text, or an argument list, found a map"),
        ("checks: [true]", "4:10: checks[0]: expected a command or a map, found `true`\n  hint: put it into quotes"),
        (
            "checks: [5]",
            "4:10: checks[0]: expected a command or a map, found the number `5`\n  hint: put it into quotes",
        ),
        ("env: {set: {A: true}}", "4:13: env.set.A: expected text, found `true`\n  hint: put it into quotes"),
        // numbers
        ("limits: {stall: 0}", "4:10: limits.stall: `0` is not between 1 and 1000; `0` never means unlimited"),
        ("limits: {stall: -1}", "4:10: limits.stall: `-1` is below zero"),
        ("limits: {stall: 2.0}", "4:10: limits.stall: expected a whole number, found `2.0`"),
        ("limits: {stall: '2'}", "4:10: limits.stall: expected a whole number, found text"),
        ("limits: {stall: .nan}", "4:10: limits.stall: `.nan` is no finite number"),
        ("limits: {stall: unlimited}", "4:10: limits.stall: expected a whole number, found text"),
        ("limits: {steps: 99999999999999999999}", "4:10: limits.steps: `99999999999999999999` is too large"),
        (
            "limits: {tokens: 0}",
            "4:10: limits.tokens: `0` would allow nothing\n  hint: write `unlimited` to lift the limit",
        ),
        ("judge: {votes: 2}", "4:9: judge.votes: `2` is even; an odd number of votes always has a majority"),
        ("checks: [{run: x, expect: 256}]", "4:19: checks[0].expect: `256` is not between 0 and 255"),
        // money
        (
            "limits: {cost: 0}",
            "4:10: limits.cost: `0` would allow nothing\n  hint: write `unlimited` to lift the limit",
        ),
        ("limits: {cost: -5}", "4:10: limits.cost: `-5` is below zero"),
        ("limits: {cost: .inf}", "4:10: limits.cost: `.inf` is no finite number; write a decimal such as `5.00`"),
        ("limits: {cost: 0.0000001}", "4:10: limits.cost: `0.0000001` has more than six decimals"),
        (
            "limits: {cost: 5 dollars}",
            "4:10: limits.cost: expected dollars as a decimal such as `5.00`, found `5 dollars`",
        ),
        ("prices: {local/x: {input: 1}}", "4:19: prices.local/x.output: missing: output, reasoning included"),
        ("prices: {tiny: {input: 1, output: 1}}", "4:10: prices.tiny: `tiny` is not `provider/model`"),
        // durations
        ("limits: {command: 90}", "4:10: limits.command: `90` has no unit; write `90s`, `90m` or `90h`"),
        ("limits: {command: '90'}", "4:10: limits.command: `90` has no unit; write `90s`, `90m` or `90h`"),
        ("limits: {command: 0s}", "4:10: limits.command: must be longer than nothing"),
        (
            "limits: {command: unlimited}",
            "4:10: limits.command: this limit cannot be lifted; write a duration such as `90s` or `2h`",
        ),
        (
            "limits: {time: 0h}",
            "4:10: limits.time: must be longer than nothing\n  hint: write `unlimited` to lift the limit",
        ),
        (
            "limits: {time: 0}",
            "4:10: limits.time: must be longer than nothing\n  hint: write `unlimited` to lift the limit",
        ),
        (
            "limits: {time: 2 fortnights}",
            "4:10: limits.time: expected a duration such as `90s`, `2h` or `1h30m`, found `2 fortnights`",
        ),
        // words
        (
            "workspace_mode: in-place",
            "4:1: workspace_mode: `in-place` is not one of `in_place`, `copy`; did you mean `in_place`?",
        ),
        ("leftovers: 5", "4:1: leftovers: expected one of `stop`, `run`, found the number `5`"),
        ("judge: false", "4:1: judge: expected `off` or a map, found `false`\n  hint: write `off`"),
        ("judge: on", "4:1: judge: expected `off` or a map, found text"),
        // names of things
        (
            "name: my goal",
            "4:1: name: `my goal` is no name; it starts with a letter or digit and has only letters, digits, `.`, `_` and `-`",
        ),
        ("tools: {allow: [bsh]}", "4:17: tools.allow[0]: `bsh` is no tool; did you mean `bash`?"),
        ("redact: [MY-PASS]", "4:10: redact[0]: `MY-PASS` is no name of a variable"),
        ("env: {set: {A=B: x}}", "4:13: env.set.\"A=B\": `A=B` is no name of a variable"),
        (
            "protect: ['a{b']",
            "4:11: protect[0]: `a{b` is no glob: unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)",
        ),
        (
            "protect: [/etc/x]",
            "4:11: protect[0]: `/etc/x` is not below the workspace; write it relative to the workspace",
        ),
        (
            "instructions: [../x]",
            "4:16: instructions[0]: `../x` is not below the workspace; write it relative to the workspace",
        ),
        // commands
        ("checks: ['']", "4:10: checks[0]: an empty command runs nothing"),
        ("checks: [{run: []}]", "4:11: checks[0].run: an empty argument list runs nothing"),
        ("checks: [{run: ['', x]}]", "4:17: checks[0].run[0]: the program's name is empty"),
        ("checks: [{name: a}]", "4:10: checks[0].run: missing: text for `bash -euo pipefail -c`, or an argument list"),
        ("checks: [make, make]", "4:16: checks[1]: two checks are named `make`; give one of them another `name`"),
        // endpoints
        (
            "providers: {l: {wire: openai-chat}}",
            "4:16: providers.l.base_url: missing: the endpoint, as the vendor's own clients take it",
        ),
        (
            "providers: {l: {wire: openai_chat, base_url: 'http://h'}}",
            "4:17: providers.l.wire: `openai_chat` is not one of `anthropic`, `openai-responses`, `openai-chat`, `gemini`; did you mean `openai-chat`?",
        ),
        (
            "providers: {l: {wire: anthropic, base_url: 'ftp://h'}}",
            "4:34: providers.l.base_url: `ftp://h` is no http or https URL",
        ),
        (
            "providers: {l: {wire: anthropic, base_url: 'http://u:p@h'}}",
            "4:34: providers.l.base_url: a URL must not hold credentials\n  hint: name the variable that holds the key as `api_key_env`",
        ),
        ("judge: {model: tiny}", "4:9: judge.model: `tiny` is not `provider/model`"),
        (
            "judge: {model: {provider: x}}",
            "4:16: judge.model.id: missing: `provider/model`, or the model's name alone when `provider` is given",
        ),
        (
            "judge: {model: {id: tiny}}",
            "4:17: judge.model.id: `tiny` is not `provider/model`\n  hint: write the provider before a slash, or give it as `provider`",
        ),
        (
            "judge: {model: {cassette: x, id: a/b}}",
            "4:9: judge.model: `cassette` stands alone: its replies are the model",
        ),
        ("judge: {model: {cassette: no.jsonl}}", "4:17: judge.model.cassette: `no.jsonl` is no file"),
        (
            "judge: {model: {id: a/b, extra_body: {stream: false}}}",
            "4:39: judge.model.extra_body.stream: spettro writes this field itself",
        ),
        (
            "judge: {model: {id: a/b, extra_body: {t: .inf}}}",
            "4:39: judge.model.extra_body.t: `.inf` is no number that JSON knows",
        ),
        // rules that span keys
        ("judge: off", "4:1: judge: `off` needs at least one required check (not one with `when: start`)"),
        (
            "judge: off\nchecks: [{run: x, required: false}, {run: y, when: start}]",
            "4:1: judge: `off` needs at least one required check (not one with `when: start`)",
        ),
        (
            "judge: off\nchecks: [x]\ncriteria: [y]",
            "6:1: criteria: criteria are answered by the judge, and `judge` is `off`",
        ),
        ("workspace: nowhere", "4:1: workspace: `nowhere` does not exist"),
        ("workspace: goal.yaml", "4:1: workspace: `goal.yaml` is no folder"),
        // syntax
        (
            "a: [1, 2\nb: 3",
            "5:2: is not valid YAML: did not find expected ',' or ']', while parsing a flow sequence at line 4 column 4",
        ),
        (
            "\tname: x",
            "4:1: is not valid YAML: found a tab character that violates indentation, while scanning a plain scalar at line 3 column 8",
        ),
    ] {
        let (found, wanted) = (refused(&format!("{line}\n")), [format!("goal.yaml:{wanted}")]);
        if found != wanted {
            wrong.push(format!("{line}\n  found  {found:?}\n  wanted {wanted:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn later_keys_are_known_and_refused() {
    let mut later = Vec::new();
    keys::walk(keys::GOAL, "", &mut |path, key| {
        if matches!(key.kind, keys::Kind::Later(_)) {
            later.push(path.to_owned());
        }
    });
    let names = ["memory", "checkpoint", "commit", "on_start", "on_end", "matrix", "repeat", "retries"];
    for name in names {
        assert!(later.iter().any(|path| path == name), "{name}");
    }
    for path in later.iter().filter(|path| !path.contains('.')) {
        for value in ["x", "off", "none", "1", "[]", "{}", "{model: a/b}"] {
            let problems = refused(&format!("{path}: {value}\n"));
            assert!(
                problems[0].starts_with(&format!("goal.yaml:4:1: {path}"))
                    || path == "summarizer"
                    || !problems.is_empty()
            );
            assert!(
                problems
                    .iter()
                    .all(|problem| problem.contains("not in this version yet") || problem.contains("unknown key")),
                "{path}: {value}: {problems:?}"
            );
        }
    }
    assert_eq!(
        refused("compaction: {auto: false, treshold_pct: 5}\n"),
        ["goal.yaml:4:27: compaction.treshold_pct: unknown key; did you mean `compaction.threshold_pct`?",]
    );
    assert_eq!(
        refused("workspace_mode: worktree\nsession_location: project\n"),
        [
            "goal.yaml:4:1: workspace_mode: `worktree` is not in this version yet; there is `in_place`, `copy`",
            "goal.yaml:5:1: session_location: `project` is not in this version yet; there is `home`",
        ]
    );
    let both = refused("providers: {l: {wire: anthropic, base_url: 'http://h', api_key_env: K, api_key_file: x}}\n");
    assert!(both.len() == 1 && both[0].contains("`api_key_env` and `api_key_file`"), "{both:?}");
    assert_eq!(
        refused("tools: {allow: [save-memory]}\n"),
        ["goal.yaml:4:17: tools.allow[0]: `save-memory` is not in this version yet"]
    );
    assert_eq!(config("tools: {deny: [save-memory]}\n").tools_deny, ["save-memory"]);
    assert!(!config("tools: {allow: [web-fetch]}\n").web_private);
    assert!(config("tools: {allow: [web-fetch], web_private: true}\n").web_private);
}

#[test]
fn what_is_missing_and_what_is_no_goal_file() {
    let place = Place::new();
    let first = |text: &str| {
        place.write("goal.yaml", text);
        place.problems()
    };
    assert_eq!(first(""), ["goal.yaml: is empty"]);
    assert_eq!(first("# nothing\n"), ["goal.yaml: is empty"]);
    assert_eq!(first("just text\n"), ["goal.yaml:1:1: expected a map of keys, found text"]);
    assert_eq!(first("version: 1\ngoal: ''\nmodel: a/b\n"), ["goal.yaml:2:1: goal: is empty"]);
    assert_eq!(first("version: 1\ngoal: \"  \\n \"\nmodel: a/b\n"), ["goal.yaml:2:1: goal: is empty"]);
    assert_eq!(
        first("goal: x\nmodel: a/b\n"),
        ["goal.yaml: version: missing; this build reads 1\n  hint: write `version: 1`"]
    );
    assert_eq!(first("version: 2\nfuture: x\n"), ["goal.yaml:1:1: version: found `2`; this build reads 1"]);
    let quoted =
        "goal.yaml:1:1: version: found the text `1`; this build reads the number\n  hint: write it without quotes";
    assert_eq!(first("version: '1'\ngoal: x\nmodel: a/b\n"), [quoted]);
    assert_eq!(
        first("version: 1\nmodel: a/b\n"),
        ["goal.yaml: goal: missing\n  hint: write what is to be reached: `goal: …`, or `goal: {file: PATH}`"]
    );
    assert_eq!(
        first("version: 1\ngoal: x\n"),
        ["goal.yaml: model: missing\n  hint: write `model: provider/model`; no variable with a provider's key is set"]
    );
    let big = "x".repeat(64 * 1024);
    place.write("goal.yaml", format!("version: 1\ngoal: {big}\nmodel: a/b\n"));
    assert_eq!(place.load().unwrap().config.goal.len(), 65_536);
    assert_eq!(
        first(&format!("version: 1\ngoal: {big}y\nmodel: a/b\n")),
        ["goal.yaml:2:1: goal: has 65537 bytes; at most 65536 (64 KiB)"]
    );
    assert_eq!(
        first("version: 1\ngoal: {file: no.md}\nmodel: a/b\n"),
        ["goal.yaml:2:8: goal.file: `no.md` does not exist"]
    );
    assert_eq!(
        first("version: 1\ngoal: {text: no.md}\nmodel: a/b\n"),
        ["goal.yaml:2:8: goal.text: unknown key; did you mean `file`?"]
    );
    let many = vec!["c"; 51].join(", ");
    assert_eq!(refused(&format!("criteria: [{many}]\n")), ["goal.yaml:4:1: criteria: 51 entries; at most 50"]);
    place.write("goal.yaml", b"version: 1\ngoal: \xff\n");
    assert_eq!(place.problems(), ["goal.yaml: is not UTF-8 in line 2"]);
    let absent = place.source(&GoalSource::File("absent.yaml".into())).unwrap_err();
    assert_eq!(place.lines(&absent), ["absent.yaml: does not exist"]);
    let folder = place.source(&GoalSource::File("home".into())).unwrap_err();
    assert_eq!(place.lines(&folder), ["home: is no file"]);

    let mut place = Place::new();
    place.write("goal.yaml", "version: 1\ngoal: x\n");
    place.var("USABLE", "anthropic/best");
    assert_eq!(
        place.problems(),
        ["goal.yaml: model: missing\n  hint: write `model: anthropic/best`; usable here: anthropic/best"]
    );
    // A model that is there and wrong is not missing as well.
    place.write("goal.yaml", "version: 1\ngoal: x\nmodel: best\n");
    assert_eq!(place.problems(), ["goal.yaml:3:1: model: `best` is not `provider/model`"]);
}

#[test]
fn only_variables_that_are_no_secrets_are_interpolated() {
    let mut place = Place::new();
    for (name, value) in [
        ("WHO", "world"),
        ("N", "7"),
        ("ANTHROPIC_API_KEY", "sk-abcdefgh"),
        ("COPY", "sk-abcdefgh"),
        ("MINE", "x"),
        ("DB_PASSWORD", "x"),
        ("THING", "x"),
        ("AWS_CREDENTIALS_FILE", "x"),
    ] {
        place.var(name, value);
    }
    place.write(
        "goal.yaml",
        "version: 1\ngoal: hello ${env:WHO}, ${HOME} $WHO ${other:WHO}\nmodel: {id: 'a/${env:WHO}', api_key_env: MINE}\n\
         limits: {iterations: '${env:N}', cost: '${env:N}.50'}\nskip_if_met: '${env:T}'\nenv: {set: {X: 'a${env:N}b'}}\n",
    );
    place.var("T", "true");
    let config = place.load().map_err(|problems| place.lines(&problems)).unwrap().config;
    assert_eq!(config.goal, "hello world, ${HOME} $WHO ${other:WHO}");
    assert_eq!((config.model.id.as_str(), config.limits.iterations), ("a/world", 7));
    assert_eq!((config.limits.cost, config.skip_if_met), (Some(Micros(7_500_000)), true));
    assert_eq!(config.env.set, [("X".to_owned(), "a7b".to_owned())]);

    for (text, message) in [
        ("${env:NOT_SET}", "`${env:NOT_SET}` is not set"),
        ("${env:ANTHROPIC_API_KEY}", "`${env:ANTHROPIC_API_KEY}` is a secret, and secrets are never interpolated"),
        ("${env:GOOGLE_API_KEY}", "`${env:GOOGLE_API_KEY}` is a secret, and secrets are never interpolated"),
        ("${env:MINE}", "`${env:MINE}` is a secret, and secrets are never interpolated"),
        ("${env:DB_PASSWORD}", "`${env:DB_PASSWORD}` is a secret, and secrets are never interpolated"),
        (
            "${env:AWS_CREDENTIALS_FILE}",
            "`${env:AWS_CREDENTIALS_FILE}` is a secret, and secrets are never interpolated",
        ),
        ("${env:THING}", "`${env:THING}` is a secret, and secrets are never interpolated"),
        ("${env:COPY}", "`${env:COPY}` has the value of a secret, and is not interpolated"),
        ("${env:}", "`${env:}` names no variable"),
        ("${env:A-B}", "`${env:A-B}` names no variable"),
        ("${env:WHO", "`${env:` has no closing `}`"),
    ] {
        let rest = format!("model: {{id: a/b, api_key_env: MINE}}\nredact: [THING]\nchecks: ['echo {text}']\n");
        place.write("goal.yaml", format!("version: 1\ngoal: x\n{rest}"));
        assert_eq!(place.problems(), [format!("goal.yaml:5:10: checks[0]: {message}")], "{text}");
    }
}
