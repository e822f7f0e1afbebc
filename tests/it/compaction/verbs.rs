//! `spettro sessions`: what it shows of a session, and a compaction that somebody asks for.

use serde_json::Value;
use spettro::event::Outcome;

use super::support::{GOAL, case, events, met, steps, steps_by_history, summary, unmet};
use crate::provider::{Lane, Reply, Request, Script, respond_with};
use crate::sandbox::{PATIENCE, json_lines};

#[test]
fn compact_resets_a_paused_budget_and_the_next_run_goes_on_from_it() {
    let summarizer = respond_with(|request: &Request| {
        if request.text().contains("the failing parser") {
            Reply::summary("asked-for notes")
        } else {
            Reply::text("no")
        }
    });
    let script = Script::new()
        .agent(steps_by_history(80, 900))
        .summarizer(summarizer.forever())
        .judge(unmet("go on"))
        .judge(met());
    let case = case(script, 16_000, "");
    let ended = case.with(&["--max-steps", "52"]).expect(Outcome::Unmet);
    assert_eq!(events(&ended, "compaction.paused").len(), 1);
    let id = ended.result.session_id.clone().expect("a session");
    let context = |id: &str| -> Value {
        let shown = case.sandbox.run(["sessions", "context", id, "--json"]).expect_code(0);
        serde_json::from_str(&shown.stdout).expect("JSON")
    };
    let before = context(&id);
    assert_eq!((&before["paused"], &before["max_failures"]), (&true.into(), &3.into()));
    assert!(before["failures"].as_u64() >= Some(3), "{before}");
    assert_eq!((&before["window_tokens"], &before["threshold_tokens"]), (&16_000.into(), &13_600.into()));
    let parts = before["attribution"].as_object().expect("parts");
    let sum: u64 = parts.values().filter_map(Value::as_u64).sum();
    let used = before["used_tokens"].as_u64().expect("a number");
    assert!(sum.abs_diff(used) * 5 < used, "the parts make the whole: {before}");

    let focused = ["sessions", "compact", &id, "--focus", "the failing parser", "--json"];
    let done = case.sandbox.run(focused).expect_code(0);
    let done: Value = serde_json::from_str(&done.stdout).expect("JSON");
    // The pause does not stop the compaction of a request that does not fit, so the size depends on when that was.
    assert_eq!((&done["compacted"], &done["stage"]), (&true.into(), &"summary".into()));
    let counted = done["before_tokens"].as_u64().expect("a number");
    assert!(counted.abs_diff(used) * 100 < used, "an estimate beside what was reported: {counted} {used}");
    let asked = case.provider.summarizer_requests();
    assert!(asked.last().expect("asked").text().contains("the failing parser"));
    let after = context(&id);
    assert_eq!((&after["paused"], &after["failures"]), (&false.into(), &0.into()));
    let (told, seen) = (done["after_tokens"].as_u64().expect("a number"), after["used_tokens"].as_u64());
    assert!(seen.is_some_and(|seen| seen.abs_diff(told) * 20 < told), "what was told is there: {told} {seen:?}");
    let again = case.sandbox.run(["sessions", "compact", &id]).expect_code(0);
    assert_eq!(again.stdout, "nothing to compact: the history is as small as it gets\n");
    assert_eq!(case.provider.summarizer_requests().len(), asked.len(), "nobody was asked for nothing");
    let none: Value =
        serde_json::from_str(&case.sandbox.run(["sessions", "compact", &id, "--json"]).stdout).expect("JSON");
    assert_eq!(none, serde_json::json!({"compacted": false}));
    assert!(after["used_tokens"].as_u64() < before["used_tokens"].as_u64());

    let ended = case.resume(&ended, &["--max-steps", "6000"]).expect(Outcome::Met);
    assert!(!ended.finished.stderr.contains("differs"), "{}", ended.finished.stderr);
    let agents = case.provider.agent_requests();
    assert!(agents.iter().all(|request| request.text().contains(GOAL)));
    assert!(agents[52].text().contains("asked-for notes"), "the resumed run sends the compacted history");
    case.provider.finish();
}

#[test]
fn context_tells_what_the_next_request_has_and_a_live_run_is_not_compacted() {
    // The last request is never answered, so that a resume sends it again as it was.
    let agent = respond_with(|request: &Request| match request.lane_n {
        55 => Reply::empty().stall(),
        n => Reply::bash(&format!("echo {n}; head -c 900 /dev/zero | tr '\\0' 'x' | fold -w 60")),
    });
    let script = Script::new().agent(agent.forever()).summarizer(summary()).judge(met());
    let case = case(script, 16_000, "");
    let started = case.start(&[]);
    let last = case.provider.wait_for_lane_request(Lane::Agent, 55, PATIENCE);
    let dir = case.sandbox.session_dirs().pop().expect("a session");
    let id = dir.file_name().expect("a name").to_string_lossy().into_owned();
    let busy = case.sandbox.run(["sessions", "compact", &id]).expect_code(75);
    assert!(busy.stderr.contains("hint"), "{}", busy.stderr);
    let look = || -> Value {
        let shown = case.sandbox.run(["sessions", "context", &id, "--json"]).expect_code(0);
        serde_json::from_str(&shown.stdout).expect("JSON")
    };
    // A look at a running session is allowed.
    assert_eq!(look()["window_tokens"], 16_000);
    started.running.kill();
    let context = look();
    let calls: Vec<Value> = json_lines(&dir.join("session.jsonl"))
        .into_iter()
        .filter(|line| line["kind"] == "call" && line["lane"] == "agent")
        .collect();
    assert_eq!(calls.len(), 55);
    assert_eq!(context["used_tokens"], calls[54]["estimate_tokens"], "{context}");
    let shown = case.sandbox.run(["sessions", "context", &id]).expect_code(0).stdout;
    assert!(shown.contains(&format!("currently used:  {} tokens", context["used_tokens"])), "{shown}");

    // Somebody makes it smaller between the runs; the next one sends what was told.
    let done = case.sandbox.run(["sessions", "compact", &id, "--prune-only"]).expect_code(0);
    assert!(done.stdout.starts_with("nothing to prune"), "{}", done.stdout);
    case.sandbox.run(["sessions", "compact", &id]).expect_code(0);
    let context = look();
    let asked = case.provider.count(Lane::Agent);
    let running = case.sandbox.spawn(["run", "--resume", &id]);
    let next = case.provider.wait_for_lane_request(Lane::Agent, asked + 1, PATIENCE);
    running.kill();
    let lines = json_lines(&dir.join("session.jsonl"));
    let call = lines.iter().filter(|line| line["kind"] == "call" && line["lane"] == "agent").nth(55).expect("a call");
    assert_eq!(context["used_tokens"], call["estimate_tokens"]);
    assert!(next.body.len() < last.body.len() && next.text().contains("summary number"));
    case.provider.finish();
}

#[test]
fn a_session_is_listed_outlined_and_counted() {
    let script = Script::new().agent(steps(45, 900)).summarizer(summary()).judge(met());
    let case = case(script, 16_000, "");
    let ended = case.run().expect(Outcome::Met);
    let id = ended.result.session_id.clone().expect("a session");
    let run = |args: &[&str]| case.sandbox.run(args).expect_code(0).stdout;
    assert!(run(&["sessions", "list"]).contains(&id));
    let listed: Value = serde_json::from_str(&run(&["sessions", "list", "--all", "--json"])).expect("JSON");
    assert_eq!((&listed[0]["id"], &listed[0]["state"]), (&Value::from(id.as_str()), &"met".into()));
    let shown = run(&["sessions", "show", &id]);
    for part in ["iteration 1", "summarized before step", "turn done after 46 steps", "verdict met", "ended met"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let usage: Value = serde_json::from_str(&run(&["sessions", "usage", &id, "--json"])).expect("JSON");
    assert_eq!(usage["by_lane"]["agent"]["calls"], 46);
    assert_eq!(usage["by_lane"]["summarizer"]["calls"], case.provider.summarizer_requests().len());
    let context = run(&["sessions", "context", &id]);
    for part in ["context window:  16000 tokens", "threshold:       13600 tokens (85 %)", "failures:        0 / 3"] {
        assert!(context.contains(part), "{part}: {context}");
    }
    case.sandbox.run(["sessions", "show", "nothing-like-it"]).expect_code(2);
    case.provider.finish();
}

#[test]
fn a_job_that_ends_after_a_compaction_is_told_as_a_message_of_its_own() {
    let agent = respond_with(|request: &Request| {
        let n = request.lane_n;
        if n == 1 {
            let command = "until test -e go; do sleep 0.05; done; echo job is through";
            return Reply::call("bash", serde_json::json!({"command": command, "run_in_background": true}));
        }
        if request.text().contains("job-1 exited") {
            return Reply::complete("done");
        }
        // The job ends once there is a summary, however long that takes.
        let end = if request.text().contains("summary number") { "touch go; sleep 0.2; " } else { "" };
        Reply::bash(&format!("{end}echo {n}; head -c 900 /dev/zero | tr '\\0' 'x' | fold -w 60"))
    });
    let script = Script::new().agent(agent.forever()).summarizer(summary()).judge(met());
    let case = case(script, 16_000, "");
    let ended = case.run().expect(Outcome::Met);
    assert!(!ended.facts("compaction").is_empty());
    let told = case.provider.agent_requests().last().expect("requests").new_text();
    assert!(told.contains("job-1 exited with 0") && told.contains("job is through"), "{told}");
    case.provider.finish();
}
