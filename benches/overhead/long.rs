//! Thousands of steps in a small window, with a summarizer that fails one time in four: what the tests assert of
//! fewer steps, counted here.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::scripted::{Lane, Reply, Request, Script, respond_with};
use crate::work::{FILES, failing, file, step};
use crate::{Result, say};

pub const STEPS: usize = 5_000;
const GOAL: &str = "Count to the very end: goal-marker-4711.";

/// What was counted. All but the first three are mistakes.
pub struct Seen {
    pub took: Duration,
    pub compactions: u64,
    pub failures: u64,
    pub requests_without_goal: u64,
    /// Requests that do not repeat the one before, against the compactions that were reported.
    pub unreported_breaks: u64,
    pub uncounted_failures: u64,
    /// Micro-dollars between the result and the provider's own count.
    pub money_apart: u64,
    /// What the provider complained of.
    pub complaints: u64,
}

impl Seen {
    pub const fn mistakes(&self) -> u64 {
        self.requests_without_goal
            + self.unreported_breaks
            + self.uncounted_failures
            + self.money_apart
            + self.complaints
    }
}

pub fn run(spettro: &Path) -> Result<Seen> {
    let (lost, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (losing, failures) = (lost.clone(), failed.clone());
    let agent = respond_with(move |request: &Request| {
        if !crate::scripted::contains(&request.body, GOAL.as_bytes()) {
            losing.fetch_add(1, Ordering::SeqCst);
        }
        let n = request.lane_n;
        if n > STEPS { Reply::complete("all steps are done") } else { step(n as u64) }
    });
    let summarizer = respond_with(move |request: &Request| match failing(request.lane_n as u64) {
        Some(reply) => {
            failures.fetch_add(1, Ordering::SeqCst);
            reply
        }
        None => Reply::summary(&format!("summary number {}", request.lane_n)),
    });
    let provider = Script::new()
        .agent(agent.forever())
        .summarizer(summarizer.forever())
        .judge(Reply::verdict("met", "it is so", ""))
        .forget_bodies()
        .allow_rewrite()
        .serve(0)?;

    let folder = tempfile::tempdir()?;
    for name in ["home", "work", "tmp"] {
        std::fs::create_dir(folder.path().join(name))?;
    }
    for bytes in FILES {
        std::fs::write(folder.path().join(format!("work/f-{bytes}")), file(bytes))?;
    }
    let goal = format!(
        "version: 1\nname: long\ngoal: \"{GOAL}\"\nworkspace: work\n\
         model: {{ id: test/model-1, wire: anthropic, base_url: \"{}\", context_window: 32000, max_output_tokens: 1024 }}\n\
         prices: {{ \"test/model-1\": {{ input: 1.00, output: 4.00 }} }}\n\
         limits: {{ iterations: 1, steps: 10000, steps_per_iteration: 10000, cost: unlimited }}\n",
        provider.url()
    );
    std::fs::write(folder.path().join("goal.yaml"), goal)?;
    let begun = Instant::now();
    let output = Command::new(spettro)
        .args(["run", "--quiet", "--json", "--goal", "goal.yaml"])
        .current_dir(folder.path())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", folder.path().join("home"))
        .env("TMPDIR", folder.path().join("tmp"))
        .stdin(Stdio::null())
        .output()?;
    let took = begun.elapsed();
    if !output.status.success() {
        return Err(format!("the run ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr)).into());
    }
    let result: Value = serde_json::from_slice(&output.stdout)?;
    let number = |name: &str| result["compactions"][name].as_u64().ok_or("the result counts its compactions");
    let compactions = number("pruned")? + number("summarized")? + number("extracted")?;
    let failures = failed.load(Ordering::SeqCst);
    let cost: u64 = provider.served_usage().values().map(|usage| usage.input + 4 * usage.output).sum();
    let told = (result["total_cost_usd"].as_f64().ok_or("the result has its cost")? * 1e6).round() as u64;
    let problems = provider.take_problems();
    for problem in &problems {
        say(problem)?;
    }
    if provider.count(Lane::Agent) != STEPS + 1 {
        return Err(format!("{} requests where {} were due", provider.count(Lane::Agent), STEPS + 1).into());
    }
    Ok(Seen {
        took,
        compactions,
        failures,
        requests_without_goal: lost.load(Ordering::SeqCst),
        unreported_breaks: provider.rewrites().abs_diff(compactions),
        uncounted_failures: number("failed")?.abs_diff(failures),
        money_apart: told.abs_diff(cost),
        complaints: problems.len() as u64,
    })
}
