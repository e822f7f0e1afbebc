//! The plain-text summary that ends a run on stdout.

use super::clean::{clean, clean_line};
use super::lines::{check_words, outcome_words};
use super::text::{Line, Style, count, dollars, duration_ms, money};
use crate::event::{Changes, Compactions, CostKnown, RunResult, VerdictBy};

/// Files named in the text; the result has them all.
const FILES: usize = 20;

/// The width of the labels at the start of the lines.
const LABEL: usize = 11;

/// The plain-text summary for stdout: the outcome first, then what it rests on. Ends with a newline.
pub fn summary_text(result: &RunResult) -> String {
    render(result, false)
}

pub(super) fn render(result: &RunResult, colour: bool) -> String {
    let mut out: String = lines(result).iter().map(|line| line.render(colour, None) + "\n").collect();
    if out.is_empty() {
        out.push('\n');
    }
    out
}

/// `2 iterations, 7 steps, $0.31, 4m12s`, of the session but for the time.
pub(super) fn totals(result: &RunResult) -> String {
    let waited =
        if result.waited_ms == 0 { String::new() } else { format!(" ({} waiting)", duration_ms(result.waited_ms)) };
    format!(
        "{}, {}, {}, {}{waited}",
        count(result.iterations, "iteration"),
        count(result.steps, "step"),
        money(dollars(result.total_cost_usd), None),
        duration_ms(result.duration_ms)
    )
}

/// `met (judge, iteration 2)`.
pub(super) fn verdict_head(verdict: &crate::event::Verdict) -> String {
    let by = match verdict.by {
        VerdictBy::Checks => "checks",
        VerdictBy::Judge => "judge",
    };
    format!("{} ({by}, iteration {})", verdict.kind.name(), verdict.iteration)
}

/// `3 files, +120 -14, main, 1a2b3c4d..5e6f7a8b`.
pub(super) fn changes_head(changes: &Changes) -> String {
    let mut words = vec![count(changes.files.len() as u64, "file")];
    if let (Some(insertions), Some(deletions)) = (changes.insertions, changes.deletions) {
        words.push(format!("+{insertions} -{deletions}"));
    }
    words.extend(changes.branch.as_deref().map(clean_line));
    let short = |id: &String| clean_line(id).chars().take(8).collect::<String>();
    match (&changes.base, &changes.head) {
        (Some(base), Some(head)) if base != head => words.push(format!("{}..{}", short(base), short(head))),
        (Some(base), _) => words.push(short(base)),
        _ => {}
    }
    words.join(", ")
}

/// `3 times pruned, 2 times summarized; 1 summary failed`; `None` when there was nothing of it.
fn compactions(done: Compactions) -> Option<String> {
    let times = |count: u64| if count == 1 { "once".to_owned() } else { format!("{count} times") };
    let parts: Vec<String> =
        [(done.pruned, "pruned"), (done.summarized, "summarized"), (done.extracted, "cut down without a summary")]
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{} {word}", times(count)))
            .collect();
    let failed = match done.failed {
        0 => None,
        1 => Some("1 summary failed".to_owned()),
        count => Some(format!("{count} summaries failed")),
    };
    let paused = done.paused.then(|| "paused".to_owned());
    let all: Vec<String> =
        [Some(parts.join(", ")).filter(|text| !text.is_empty()), failed, paused].into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// What this run alone used, when the session had runs before.
pub(super) fn this_run(result: &RunResult) -> Option<String> {
    let run = &result.run_usage;
    (run.steps != result.steps || run.iterations != result.iterations).then(|| {
        format!(
            "{}, {}, {}, {}, {}",
            count(run.iterations, "iteration"),
            count(run.steps, "step"),
            count(run.calls, "call"),
            count(run.tokens, "token"),
            money(run.cost, None)
        )
    })
}

/// Calls whose cost the provider did not report, each with what was charged for it.
pub(super) fn unreported(result: &RunResult) -> Vec<String> {
    let why = |known| match known {
        CostKnown::Reservation => "its reservation",
        CostKnown::UpperBound => "the upper bound",
        CostKnown::Reported => "as reported",
        CostKnown::Free => "free",
    };
    let calls = result.unreported_calls.iter();
    calls
        .map(|call| format!("{} call {}: {}, {}", call.lane, call.n, money(call.charged, None), why(call.why)))
        .collect()
}

fn lines(result: &RunResult) -> Vec<Line> {
    let mut rows = Rows(Vec::new());
    let (outcome, style) = outcome_words(result.outcome);
    let hit = result.limit_hit.as_deref().map_or_else(String::new, |hit| format!(" ({})", clean_line(hit)));
    rows.0.push(Line::default().styled(style, outcome).plain(format!("{hit} after {}", totals(result))));
    if let Some(error) = &result.error {
        rows.text("error", &error.message);
    }
    if let Some(verdict) = &result.verdict {
        rows.text("verdict", &verdict_head(verdict));
        rows.text("", &verdict.reason);
    }
    for (at, check) in result.checks.iter().enumerate() {
        rows.line(if at == 0 { "checks" } else { "" }, |line| check_words(line, check));
    }
    for (at, criterion) in result.verdict.iter().flat_map(|verdict| &verdict.criteria).enumerate() {
        let met = if criterion.met { "met" } else { "not met" };
        let text = format!("{} {met}: {}", criterion.index, clean_line(&criterion.evidence));
        rows.text(if at == 0 { "criteria" } else { "" }, text.trim_end_matches([' ', ':']));
    }
    if let Some(changes) = &result.changes {
        rows.text("changes", &changes_head(changes));
        for file in changes.files.iter().take(FILES) {
            rows.text("", &clean_line(file));
        }
        if let Some(more) = changes.files.len().checked_sub(FILES).filter(|more| *more > 0) {
            rows.text("", &format!("… and {}", count(more as u64, "more file")));
        }
    }
    let lanes: Vec<String> = result
        .cost_usd
        .iter()
        .map(|(lane, cost)| format!("{} {}", clean_line(lane), money(dollars(*cost), None)))
        .collect();
    if !lanes.is_empty() {
        rows.text("cost", &lanes.join(", "));
    }
    if let Some(compactions) = compactions(result.compactions) {
        rows.text("compacted", &compactions);
    }
    if let Some(run) = this_run(result) {
        rows.text("this run", &run);
    }
    rows.list("unreported", unreported(result));
    rows.list("memory", result.memory_saved.clone());
    let leaked = result.leaked.iter();
    rows.list("left alive", leaked.map(|left| format!("{} (pid {}, uid {})", left.command, left.pid, left.uid)));
    if let Some(verdict) = result.verdict.as_ref().filter(|verdict| !verdict.next_step.is_empty()) {
        rows.text("next step", &verdict.next_step);
    }
    if result.recorded_model {
        rows.text("model", "recorded replies");
    }
    if let Some(patch) = result.changes.as_ref().and_then(|changes| changes.patch.as_ref()) {
        rows.text("patch", &clean_line(patch));
    }
    if let Some(paths) = &result.paths {
        rows.list("copy", paths.copy.clone());
        rows.text("result", &clean_line(&paths.result));
    }
    rows.0
}

/// Lines in two columns: a label, and text that keeps its own lines.
struct Rows(Vec<Line>);

impl Rows {
    fn line(&mut self, label: &str, fill: impl FnOnce(Line) -> Line) {
        let style = if label.is_empty() { Style::Plain } else { Style::Dim };
        self.0.push(fill(Line::default().styled(style, format!("{label:LABEL$}"))));
    }

    fn text(&mut self, label: &str, text: &str) {
        let cleaned = clean(text);
        let mut label = label;
        for line in cleaned.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
            self.line(label, |row| row.plain(line));
            label = "";
        }
    }

    fn list(&mut self, label: &str, items: impl IntoIterator<Item = String>) {
        for (at, item) in items.into_iter().enumerate() {
            self.text(if at == 0 { label } else { "" }, &clean_line(&item));
        }
    }
}
