//! What a replay comes to: one object, one text, one exit code.

use std::fmt::Write;

use serde::Serialize;
use serde_json::Value;

use super::finding::{Aspect, Compared, Divergence, Standing};
use crate::event::Outcome;

/// A source that is another one in this build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangedPart {
    /// `prompt`, `tools`, …, as `--from-tape` names it.
    pub source: &'static str,
    pub which: String,
    /// The recording's was taken instead.
    pub from_tape: bool,
    pub diff: Vec<String>,
}

/// What a replay found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    pub v: u32,
    /// Of the recorded session.
    pub session: String,
    /// Where the answers of tools came from: `recorded`, `live` or `stub`.
    pub tools: &'static str,
    /// The level that was obtained for what really ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// All of them together.
    pub standing: Standing,
    pub runs: u64,
    pub iterations: u64,
    /// Agent calls.
    pub steps: u64,
    /// Processes that were started: none, unless tools ran live.
    pub processes: u64,
    pub compared: Vec<Compared>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<ChangedPart>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub diverged: Vec<Divergence>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Further replays, each with what was another way in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variant>,
}

/// A further replay of the same recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Variant {
    pub what: String,
    pub standing: Standing,
    /// It found what the first one found.
    pub agrees: bool,
}

impl Report {
    /// Of several standings the one that counts.
    pub fn overall(compared: &[Compared], changed: &[ChangedPart]) -> Standing {
        let any = |standing| compared.iter().any(|one| one.standing == standing);
        if any(Standing::Diverged) || changed.iter().any(|part| !part.from_tape) {
            Standing::Diverged
        } else if any(Standing::Unverified) {
            Standing::Unverified
        } else {
            Standing::Identical
        }
    }

    /// Takes the report of a further replay. One that does not agree is a divergence, whatever it says itself.
    pub fn vary(&mut self, what: String, other: &Report) {
        let agrees = self.compared == other.compared && self.diverged == other.diverged;
        if !agrees {
            self.standing = Standing::Diverged;
            let new = other.diverged.iter().filter(|divergence| !self.diverged.contains(divergence)).cloned();
            let new: Vec<Divergence> = new.collect();
            self.diverged.extend(new);
        }
        self.variants.push(Variant { what, standing: other.standing, agrees });
    }

    /// The same of a replay in another process, by its report; `null` when it gave none.
    pub fn vary_told(&mut self, what: String, other: &Value) {
        let own = serde_json::to_value(&*self).unwrap_or_default();
        let same = |name: &str| own.get(name) == other.get(name);
        let agrees = !other.is_null() && same("compared") && same("diverged");
        if !agrees {
            self.standing = Standing::Diverged;
        }
        let standings = [Standing::Identical, Standing::Diverged];
        let told = |standing: &Standing| serde_json::to_value(standing).ok().as_ref() == other.get("standing");
        let standing = standings.into_iter().find(told).unwrap_or(Standing::Unverified);
        self.variants.push(Variant { what, standing, agrees });
    }

    pub const fn outcome(&self) -> Outcome {
        match self.standing {
            Standing::Identical => Outcome::Met,
            Standing::Diverged => Outcome::Diverged,
            Standing::Unverified => Outcome::Unverified,
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let plural = |count: u64, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        let size = [plural(self.runs, "run"), plural(self.iterations, "iteration"), plural(self.steps, "step")];
        let verdict = match self.standing {
            Standing::Identical => "identical",
            Standing::Diverged if self.diverged.is_empty() => "changed",
            Standing::Diverged => "diverged",
            Standing::Unverified => "nothing differed, but some checks could not be made",
        };
        let tools = if self.tools == "recorded" { String::new() } else { format!(", tools {}", self.tools) };
        let _ = writeln!(out, "{}: {verdict} ({}{tools})", self.session, size.join(", "));
        if let Some(sandbox) = &self.sandbox {
            let _ = writeln!(out, "sandbox: {sandbox}");
        }
        for part in &self.changed {
            let how = if part.from_tape { "the recording's is used" } else { "not replayed" };
            let _ = writeln!(out, "changed: {} ({how})", part.which);
            diff(&mut out, &part.diff);
        }
        if self.changed.iter().any(|part| !part.from_tape) {
            let names: Vec<&str> = self.changed.iter().map(|part| part.source).collect();
            let mut names = names;
            names.dedup();
            let _ = writeln!(out, "hint: `--from-tape {}` replays with the recording's", names.join(","));
        }
        for divergence in &self.diverged {
            told(&mut out, divergence);
        }
        for warning in &self.warnings {
            let _ = writeln!(out, "warning: {warning}");
        }
        for variant in &self.variants {
            let agrees = if variant.agrees { "the same" } else { "another result" };
            let _ = writeln!(out, "  again, {}: {agrees}", variant.what);
        }
        for one in &self.compared {
            let standing = match one.standing {
                Standing::Identical => "identical",
                Standing::Diverged => "diverged",
                Standing::Unverified => "unverified",
            };
            let count = if one.count > 0 { format!(" ({})", one.count) } else { String::new() };
            let why = one.why.as_ref().map_or(String::new(), |why| format!(": {why}"));
            let _ = writeln!(out, "  {:<18} {standing}{count}{why}", one.what.name());
        }
        out
    }
}

fn told(out: &mut String, divergence: &Divergence) {
    let _ = writeln!(out, "{}: {}", divergence.what.name(), divergence.text);
    let mut place = Vec::new();
    if divergence.run > 1 {
        place.push(format!("run {}", divergence.run));
    }
    place.push(format!("iteration {}, step {}", divergence.iteration, divergence.step));
    if let (Some(lane), Some(call)) = (divergence.lane, divergence.call) {
        place.push(format!("{lane} request {call}"));
    }
    if let Some(message) = divergence.message {
        place.push(format!("message {message}"));
    }
    if !divergence.pointer.is_empty() {
        place.push(divergence.pointer.clone());
    }
    if let Some(byte) = divergence.byte {
        place.push(format!("byte {byte}"));
    }
    let _ = writeln!(out, "  at {}", place.join(", "));
    diff(out, &divergence.diff);
    if divergence.guess != super::Guess::Unknown {
        let _ = writeln!(out, "  probably: {}", divergence.guess.words());
    }
}

fn diff(out: &mut String, lines: &[String]) {
    for line in lines {
        let _ = writeln!(out, "    {}", printable(line));
    }
}

/// What models and tools wrote must not steer a terminal.
fn printable(line: &str) -> String {
    line.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect()
}

/// Every aspect with how it came out, from what was counted and found.
pub fn compared(
    counts: &std::collections::BTreeMap<Aspect, u64>,
    found: &[Divergence],
    warnings: usize,
    cut_short: Option<&str>,
    doubts: &std::collections::BTreeMap<Aspect, String>,
) -> Vec<Compared> {
    Aspect::ALL
        .into_iter()
        .map(|what| {
            let count = counts.get(&what).copied().unwrap_or(0);
            let diverged = found.iter().any(|divergence| divergence.what == what);
            let (standing, why) = match (what, cut_short, doubts.get(&what)) {
                _ if diverged => (Standing::Diverged, None),
                (Aspect::Hints, ..) if warnings > 0 => {
                    (Standing::Identical, Some("differences are warnings".to_owned()))
                }
                (_, Some(why), _) => (Standing::Unverified, Some(why.to_owned())),
                (_, _, Some(why)) => (Standing::Unverified, Some(why.clone())),
                _ => (Standing::Identical, None),
            };
            Compared { what, standing, count, why }
        })
        .collect()
}
