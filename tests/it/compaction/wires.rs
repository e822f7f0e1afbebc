//! What an edit does to earlier reasoning, wire by wire: what the fact says is what is sent. The scripted provider
//! refuses reasoning about another history, and misses what should have come back.

use serde_json::Value;
use spettro::event::Outcome;

use super::support::{GOAL, case, events, met, steps, summary, yaml};
use crate::goal::support::Case;
use crate::provider::{Request, Script, Wire};
use crate::sandbox::Sandbox;

/// The steps whose thought stands in a request.
fn thoughts(request: &Request) -> Vec<u64> {
    let text = request.text();
    let numbers = text.split("\"thought ").skip(1);
    numbers.map(|rest| rest.split('"').next().expect("a quote").parse().expect("a number")).collect()
}

/// The steps of the replies between two entries, `until` not included.
fn withheld_steps(lines: &[Value], fact: &Value) -> Vec<u64> {
    let seq = |name: &Value| name.as_str().and_then(|name| name.strip_prefix('e')?.parse::<u64>().ok());
    let from = seq(&fact["from"]).expect("an entry");
    let until = seq(&fact["until"]).unwrap_or(u64::MAX);
    let replies = lines.iter().filter(|line| line["kind"] == "message" && line["role"] == "assistant");
    let steps = replies.enumerate().map(|(index, line)| (index as u64 + 1, line["seq"].as_u64().expect("a seq")));
    steps.filter(|(_, seq)| (from..until).contains(seq)).map(|(step, _)| step).collect()
}

#[test]
fn bound_thinking_behind_an_edit_is_withheld_and_the_fact_says_which() {
    for (bytes, window) in [(900, 16_000), (6_000, 60_000)] {
        let script = Script::new().agent(steps(120, bytes)).summarizer(summary()).judge(met());
        let case = case(script, window, "");
        let ended = case.run().expect(Outcome::Met);
        let dir = ended.dir.as_ref().expect("a session");
        let lines = crate::sandbox::json_lines(&dir.join("session.jsonl"));
        let edits: Vec<&Value> =
            lines.iter().filter(|line| matches!(line["kind"].as_str(), Some("prune" | "compaction"))).collect();
        assert!(edits.len() >= 2, "{}", edits.len());
        let agents = case.provider.agent_requests();
        let mut gone: Vec<u64> = Vec::new();
        for fact in edits {
            let n = fact["before_call"].as_u64().expect("a number") as usize;
            let withheld = withheld_steps(&lines, &fact["withheld"]);
            assert!(!withheld.is_empty(), "there is thinking behind every edit here: {fact}");
            let (sent, now) = (thoughts(&agents[n - 2]), thoughts(&agents[n - 1]));
            gone.extend(&withheld);
            assert!(withheld.iter().all(|step| !now.contains(step)), "{withheld:?} {now:?}");
            assert!(now.contains(&(n as u64 - 1)), "that of the open round is there: {now:?}");
            let missing: Vec<u64> = sent.into_iter().filter(|step| !now.contains(step)).collect();
            let summarized = fact["kind"] == "compaction";
            assert!(
                missing.iter().all(|step| withheld.contains(step) || summarized),
                "no other is missing: {missing:?} {withheld:?}"
            );
        }
        case.provider.finish();
    }
}

#[test]
fn reasoning_of_the_chat_wire_is_bound_to_nothing_and_always_comes_back() {
    for (bytes, window) in [(900, 16_000), (6_000, 60_000)] {
        let provider =
            Script::new().agent(steps(120, bytes)).summarizer(summary()).judge(met()).allow_rewrite().start();
        let yaml = yaml(Wire::OpenAiChat, &provider, window, "");
        let case = Case::of(Sandbox::new(), provider, &yaml);
        let ended = case.run().expect(Outcome::Met);
        let finished = events(&ended, "compaction.finished");
        assert!(finished.len() >= 2);
        assert_eq!(case.provider.rewrites(), finished.len() as u64);
        for kind in ["prune", "compaction"] {
            assert!(ended.facts(kind).iter().all(|fact| fact.get("withheld").is_none()), "{kind}");
        }
        for request in case.provider.agent_requests() {
            assert!(request.text().contains(GOAL));
            let messages = request.messages();
            let replies: Vec<&Value> = messages.iter().filter(|message| message["role"] == "assistant").collect();
            assert!(
                replies.iter().all(|reply| reply["reasoning_content"].as_str().is_some()),
                "each reply has the reasoning that came with it"
            );
        }
        case.provider.finish();
    }
}
