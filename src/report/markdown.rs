//! `summary.md`: the same story as the text summary, for a pull request or a job's page.

use std::fmt::Write as _;

use super::clean::{clean, clean_line};
use super::lines::outcome_words;
use super::summary::{changes_head, this_run, totals, unreported, verdict_head};
use super::text::{count, dollars, duration_ms, money, shell_line, thousands};
use crate::event::{CheckStatus, RunResult};

/// Files named; the result has them all.
const FILES: usize = 200;

/// Characters of the agent's last message; its end is what counts.
const MESSAGE: usize = 8_000;

/// `summary.md`: verdict first, then checks, criteria, cost by lane, iterations, changes, next step, how to resume
/// and replay. Foreign text stands in code spans and fences that it cannot close.
pub fn summary_markdown(result: &RunResult) -> String {
    let mut page = Page(String::new());
    let name = result.goal.as_ref().map_or_else(|| "spettro".to_owned(), |goal| code(&goal.name));
    page.line(&format!("# {}: {name}", outcome_words(result.outcome).0));
    page.verdict(result);
    page.checks(result);
    page.criteria(result);
    page.cost(result);
    page.iterations(result);
    page.changes(result);
    if let Some(verdict) = result.verdict.as_ref().filter(|verdict| !verdict.next_step.is_empty()) {
        page.heading("Next step");
        page.fence("text", &verdict.next_step);
    }
    if let Some(message) = result.result.as_ref().filter(|message| !message.trim().is_empty()) {
        page.heading("Last message of the agent");
        page.fence("text", &end_of(message, MESSAGE));
    }
    page.commands(result);
    page.0
}

struct Page(String);

impl Page {
    fn line(&mut self, text: &str) {
        self.0.push_str(text);
        self.0.push('\n');
    }

    fn heading(&mut self, title: &str) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(self.0, "\n## {title}\n");
    }

    /// Text that keeps its lines, between fences longer than any run of backticks in it.
    fn fence(&mut self, language: &str, text: &str) {
        let text = clean(text);
        let fence = "`".repeat(longest_run(&text).max(2) + 1);
        let _ = writeln!(self.0, "{fence}{language}\n{}\n{fence}", text.trim_end());
    }

    fn verdict(&mut self, result: &RunResult) {
        let hit = result.limit_hit.as_ref().map_or_else(String::new, |hit| format!(" ({})", code(hit)));
        let _ = writeln!(self.0, "\nAfter {}{hit}.", totals(result));
        if !result.sandbox.is_empty() {
            let _ = writeln!(self.0, "\nSandbox: {}", code(&result.sandbox));
        }
        if let Some(error) = &result.error {
            self.line("\nError:\n");
            self.fence("text", &error.message);
            if let Some(hint) = &error.hint {
                self.line("\nHint:\n");
                self.fence("text", hint);
            }
        }
        if let Some(verdict) = &result.verdict {
            let _ = writeln!(self.0, "\nVerdict: {}\n", verdict_head(verdict));
            self.fence("text", &verdict.reason);
        }
    }

    fn checks(&mut self, result: &RunResult) {
        if result.checks.is_empty() {
            return;
        }
        self.heading("Checks");
        self.line("| check | status | exit | time | required |\n|---|---|---:|---:|---|");
        for check in &result.checks {
            let exit = check.exit_code.map_or_else(String::new, |exit| exit.to_string());
            let required = if check.required { "yes" } else { "no" };
            let (status, time) = (check.status.name(), duration_ms(check.duration_ms));
            let _ = writeln!(self.0, "| {} | {status} | {exit} | {time} | {required} |", cell(&check.name));
        }
        for check in &result.checks {
            if matches!(check.status, CheckStatus::Fail | CheckStatus::Timeout) && !check.tail.trim().is_empty() {
                let _ = writeln!(self.0, "\nThe end of the output of {}:\n", code(&check.name));
                self.fence("text", &check.tail);
            }
        }
    }

    fn criteria(&mut self, result: &RunResult) {
        let Some(verdict) = result.verdict.as_ref().filter(|verdict| !verdict.criteria.is_empty()) else { return };
        self.heading("Criteria");
        self.line("| # | met | evidence |\n|---:|---|---|");
        for criterion in &verdict.criteria {
            let met = if criterion.met { "yes" } else { "no" };
            let _ = writeln!(self.0, "| {} | {met} | {} |", criterion.index, cell(&criterion.evidence));
        }
    }

    fn cost(&mut self, result: &RunResult) {
        self.heading("Cost");
        self.line("| lane | calls | input tokens | output tokens | cost |\n|---|---:|---:|---:|---:|");
        for (lane, row) in &result.usage_by_lane {
            let (input, output) = (thousands(row.usage.input_tokens), thousands(row.usage.output_tokens));
            let cost = money(row.cost, None);
            let _ = writeln!(self.0, "| {} | {} | {input} | {output} | {cost} |", cell(lane), row.calls);
        }
        let total = money(dollars(result.total_cost_usd), result.limits.as_ref().and_then(|limits| limits.cost));
        let _ = writeln!(self.0, "| all | | | | {total} |");
        let unreported = unreported(result);
        if !unreported.is_empty() {
            self.line("\nCharged without the provider's report:\n");
            for call in unreported {
                let _ = writeln!(self.0, "- {call}");
            }
        }
    }

    fn iterations(&mut self, result: &RunResult) {
        self.heading("Iterations");
        let (iterations, steps) = (count(result.iterations, "iteration"), count(result.steps, "step"));
        match &result.limits {
            Some(limits) => {
                let _ = writeln!(self.0, "{iterations} of {}, {steps} of {}.", limits.iterations, limits.steps);
            }
            None => {
                let _ = writeln!(self.0, "{iterations}, {steps}.");
            }
        }
        if let Some(run) = this_run(result) {
            let _ = writeln!(self.0, "This run alone: {run}.");
        }
        let model = result.model.as_ref().map(|model| {
            let recorded = if result.recorded_model { " (recorded)" } else { "" };
            format!("Model {}{recorded}", code(model))
        });
        let judge = result.judge_model.as_ref().map(|judge| format!("judge {}", code(judge)));
        let session = result.session_id.as_ref().map(|session| format!("session {}", code(session)));
        let words: Vec<String> = [model, judge, session].into_iter().flatten().collect();
        if !words.is_empty() {
            let _ = writeln!(self.0, "\n{}.", words.join(", "));
        }
    }

    fn changes(&mut self, result: &RunResult) {
        let Some(changes) = &result.changes else { return };
        self.heading("Changes");
        let _ = writeln!(self.0, "{}", code(&changes_head(changes)));
        if !changes.files.is_empty() {
            self.0.push('\n');
        }
        for file in changes.files.iter().take(FILES) {
            let _ = writeln!(self.0, "- {}", code(file));
        }
        if let Some(more) = changes.files.len().checked_sub(FILES).filter(|more| *more > 0) {
            let _ = writeln!(self.0, "- … and {}", count(more as u64, "more file"));
        }
    }

    fn commands(&mut self, result: &RunResult) {
        let commands = &result.commands;
        let lines: Vec<String> = [&commands.resume, &commands.export, &commands.replay]
            .into_iter()
            .flatten()
            .map(|argv| shell_line(argv))
            .collect();
        if lines.is_empty() {
            return;
        }
        self.heading(match (&commands.resume, &commands.replay) {
            (Some(_), Some(_)) => "Resume and replay",
            (Some(_), None) => "Resume",
            _ => "Replay",
        });
        self.fence("sh", &lines.join("\n"));
    }
}

/// Foreign text on one line: a code span that it cannot leave.
fn code(text: &str) -> String {
    let text = clean_line(text);
    if text.is_empty() {
        return String::new();
    }
    let ticks = "`".repeat(longest_run(&text) + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{ticks}{pad}{text}{pad}{ticks}")
}

/// The same in a table, where a bar would end the cell even in a code span.
fn cell(text: &str) -> String {
    code(&text.replace('|', "¦"))
}

fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

/// The last `chars` characters, with a mark where something was left out.
fn end_of(text: &str, chars: usize) -> String {
    match text.char_indices().rev().nth(chars) {
        Some((at, c)) => format!("…{}", &text[at + c.len_utf8()..]),
        None => text.to_owned(),
    }
}
