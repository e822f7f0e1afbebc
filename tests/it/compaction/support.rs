//! Agents that fill their window step by step, and what every request must hold all the same.

use serde_json::Value;

use crate::goal::support::Case;
pub use crate::goal::support::{Ended, met, unmet};
use crate::provider::{Provider, Reply, Request, Script, Step, Wire, respond_with};
use crate::sandbox::{Sandbox, json_lines};

/// Stands in the goal; every agent request must hold it.
pub const GOAL: &str = "Count to the very end: goal-marker-4711.";

/// A goal on a wire whose window has so many tokens. `more` are further lines.
pub fn yaml(wire: Wire, provider: &Provider, window: u64, more: &str) -> String {
    format!(
        "goal: \"{GOAL}\"\n{more}\nlimits: {{steps: 6000, steps_per_iteration: 6000, cost: unlimited, stall: 50}}\n\
         model: {{id: test/model-1, wire: {}, base_url: \"{}\", context_window: {window}, \
         max_output_tokens: 1024}}\n",
        wire.name(),
        provider.url()
    )
}

/// A case with a window; requests may be rewritten, and how often is held against the events.
#[track_caller]
pub fn case(script: Script, window: u64, more: &str) -> Case {
    case_on(Wire::Anthropic, script, window, more)
}

/// The same on a wire.
#[track_caller]
pub fn case_on(wire: Wire, script: Script, window: u64, more: &str) -> Case {
    let provider = script.allow_rewrite().start();
    let sandbox = Sandbox::new();
    let yaml = yaml(wire, &provider, window, more);
    Case::of(sandbox, provider, &yaml)
}

/// An agent that takes so many steps, and tells from the request alone which one is next: a repeated request gets
/// the same reply.
pub fn steps_by_history(count: usize, bytes: usize) -> Step {
    respond_with(move |request: &Request| next_step(request, count, bytes)).forever()
}

pub fn next_step(request: &Request, count: usize, bytes: usize) -> Reply {
    let results = request.tool_results();
    // By the id: what a call printed may be gone, when its runner died.
    let last = results.last().and_then(|result| result.id.strip_prefix("call-")?.parse().ok());
    let n = last.map_or(1, |last: usize| last + 1);
    if n > count {
        return Reply::complete("all steps are done").id("call-end");
    }
    let command = format!("echo step {n}; head -c {bytes} /dev/zero | tr '\\0' 'x' | fold -w 60");
    Reply::call("bash", serde_json::json!({"command": command})).id(&format!("call-{n}"))
}

/// An agent that takes so many steps, each with thinking and one output of about `bytes` bytes, then says it is done.
pub fn steps(count: usize, bytes: usize) -> Step {
    respond_with(move |request: &Request| {
        let n = request.lane_n;
        if n > count {
            return Reply::complete("all steps are done");
        }
        let command = format!("echo step {n}; head -c {bytes} /dev/zero | tr '\\0' 'x' | fold -w 60");
        Reply::thinking(&format!("thought {n}")).and_call("bash", serde_json::json!({"command": command}))
    })
    .forever()
}

pub fn summary() -> Step {
    respond_with(|request: &Request| Reply::summary(&format!("summary number {}", request.lane_n))).forever()
}

/// The session's events of one type.
#[track_caller]
pub fn events(ended: &Ended, kind: &str) -> Vec<Value> {
    let dir = ended.dir.as_ref().expect("a session");
    json_lines(&dir.join("events.jsonl")).into_iter().filter(|event| event["type"] == kind).collect()
}

/// Holds a run against what every run with compaction owes: the goal in every request, one broken prefix for each
/// compaction that is reported, requests within the window, no complaint of the provider.
#[track_caller]
pub fn audit(case: &Case, ended: &Ended, window: u64) {
    for request in case.provider.agent_requests() {
        assert!(request.text().contains(GOAL), "request {} lost the goal", request.n);
        let tokens = request.body.len().div_ceil(4) as u64 + request.max_tokens().unwrap_or(0);
        assert!(tokens <= window, "request {}: {tokens} tokens in a window of {window}", request.n);
    }
    let finished = events(ended, "compaction.finished");
    assert_eq!(case.provider.rewrites(), finished.len() as u64, "broken prefixes are reported compactions");
    for event in finished {
        let (before, after) = (event["before_tokens"].as_u64(), event["after_tokens"].as_u64());
        assert!(after < before, "{event}");
    }
    let started = events(ended, "compaction.started").len();
    assert_eq!(started, case.provider.summarizer_requests().len());
}
