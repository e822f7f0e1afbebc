//! What the console knows, from events alone, and the line that each event gives. Nothing is printed here.

use std::mem::take;
use std::time::{Duration, SystemTime};

use super::clean::{clean, clean_line};
use super::text::{self, Line, Style, count, duration_ms, fill_style, money, percent, thousands};
use crate::event::{
    CheckResult, CheckStatus, CompactionStage, CostKnown, Event, Lane, Limits, Micros, Outcome, Record, RunResult,
    ToolStatus, Verdict, VerdictKind,
};

/// How long something runs or waits before, and between, two lines that say so.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// Between a reply and its tools, or a tool and the next step, nothing worth a word goes on for this long.
const SETTLED: Duration = Duration::from_secs(2);

/// Text of the agent that is held back until its line ends; a longer line is shown in pieces.
const MAX_HELD_BYTES: usize = 64 * 1024;

/// Who wants to see a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weight {
    /// With `-v`.
    Detail,
    Normal,
    /// Even with `-q`.
    Warning,
}

/// What goes on right now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Activity {
    Nothing,
    /// From the start of a run or an iteration to its first step.
    Preparing,
    Call(Lane),
    Tool(String),
    Wait {
        why: String,
        lane: Lane,
        total: Duration,
    },
    /// After a reply or a tool: for longer than a moment only while checks run or the judge thinks.
    Settling,
}

/// Small, and made from events only. Times are those of `tick`; an event happens at the last one.
pub(super) struct State {
    goal: String,
    keep_text: bool,
    iteration: u64,
    pub(super) of: u64,
    pub(super) limits: Option<Limits>,
    model: String,
    judge_model: Option<String>,
    /// Of the session, all lanes; not known at the start of a resumed run.
    pub(super) cost: Option<Micros>,
    /// Tokens in the agent's window, and the window.
    pub(super) context: Option<(u64, u64)>,
    pub(super) activity: Activity,
    pub(super) since: Duration,
    pub(super) now: Duration,
    /// Spent waiting for a provider, as far as ticks saw it.
    pub(super) waited: Duration,
    beat: Duration,
    /// The last record's time, and the tick it came at.
    anchor: Option<(SystemTime, Duration)>,
    /// The agent's text that has not been shown, with `-v`.
    held: String,
}

impl State {
    pub(super) fn new(goal: &str, keep_text: bool) -> State {
        State {
            goal: clean_line(goal),
            keep_text,
            iteration: 0,
            of: 0,
            limits: None,
            model: String::new(),
            judge_model: None,
            cost: None,
            context: None,
            activity: Activity::Nothing,
            since: Duration::ZERO,
            now: Duration::ZERO,
            waited: Duration::ZERO,
            beat: Duration::ZERO,
            anchor: None,
            held: String::new(),
        }
    }

    pub(super) fn iteration(&self) -> u64 {
        self.iteration
    }

    /// Takes an event in; the lines it gives.
    pub(super) fn event(&mut self, record: &Record) -> Vec<(Weight, Line)> {
        if let Ok(time) = humantime::parse_rfc3339(&record.t) {
            self.anchor = Some((time, self.now));
        }
        let mut lines = Vec::new();
        match &record.event {
            Event::ModelDelta { lane: Lane::Agent, text } if self.keep_text => {
                self.held.push_str(text);
                let end = if self.held.len() > MAX_HELD_BYTES { Some(self.held.len()) } else { self.held.rfind('\n') };
                if let Some(end) = end {
                    let rest = self.held.split_off(end);
                    let said = std::mem::replace(&mut self.held, rest.trim_start_matches('\n').to_owned());
                    self.say(&record.t, &said, &mut lines);
                }
            }
            Event::ModelDelta { .. } => {}
            event => {
                let said = take(&mut self.held);
                self.say(&record.t, &said, &mut lines);
                self.other(&record.t, &record.session, event, &mut lines);
            }
        }
        lines
    }

    fn say(&self, t: &str, said: &str, lines: &mut Vec<(Weight, Line)>) {
        for text in clean(said).lines().filter(|text| !text.trim().is_empty()) {
            let text = text.replace('\t', "    ");
            lines.push((Weight::Detail, self.head(t).styled(Style::Dim, "| ").plain(text)));
        }
    }

    fn other(&mut self, t: &str, session: &str, event: &Event, lines: &mut Vec<(Weight, Line)>) {
        let (mut weight, mut wanted) = (Weight::Normal, true);
        let body = Line::default();
        let body = match event {
            Event::RunStarted { goal, model, judge_model, limits, endpoints, sandbox, resumed, recorded, .. } => {
                self.goal = clean_line(goal);
                self.model = clean_line(model);
                self.judge_model = judge_model.as_deref().map(clean_line);
                self.of = limits.iterations;
                self.limits = Some(limits.clone());
                self.cost = (!resumed).then_some(Micros::ZERO);
                self.start(Activity::Preparing);
                started(body, session, self, endpoints, sandbox, (*resumed, *recorded))
            }
            Event::RunWaiting { lane, reason, wait_ms } => {
                let total = Duration::from_millis(*wait_ms);
                // A failed attempt has already said how long the wait after it is.
                wanted = !matches!(&self.activity, Activity::Wait { total: known, .. } if *known == total);
                weight = Weight::Warning;
                let why = clean_line(reason);
                let body = body.styled(Style::Yellow, format!("waiting {}", duration_ms(*wait_ms)));
                let body = body.plain(format!(": {why}"));
                self.start(Activity::Wait { why, lane: *lane, total });
                body
            }
            Event::IterationStarted { iteration, of } => {
                (self.iteration, self.of) = (*iteration, *of);
                self.start(Activity::Preparing);
                weight = Weight::Detail;
                body.styled(Style::Dim, "iteration started")
            }
            Event::StepStarted { iteration, step } => {
                self.iteration = *iteration;
                self.start(Activity::Call(Lane::Agent));
                weight = Weight::Detail;
                body.styled(Style::Dim, format!("step {step}"))
            }
            Event::CallFinished { lane, total_cost, occupancy_tokens, window_tokens, .. } => {
                self.cost = Some(*total_cost);
                if *lane == Lane::Agent
                    && let (Some(occupancy), Some(window)) = (occupancy_tokens, window_tokens)
                {
                    self.context = Some((*occupancy, *window));
                }
                self.start(Activity::Settling);
                weight = Weight::Detail;
                call_finished(body, event)
            }
            Event::AttemptFailed { lane, attempt, error, status, wait_ms, .. } => {
                weight = Weight::Warning;
                let why = self.failure(*lane, error, *status);
                let body = body.styled(Style::Yellow, why.clone());
                match wait_ms {
                    Some(wait_ms) => {
                        let total = Duration::from_millis(*wait_ms);
                        self.start(Activity::Wait { why, lane: *lane, total });
                        let next = attempt.saturating_add(1);
                        body.plain(format!("; trying again in {} (attempt {next})", duration_ms(*wait_ms)))
                    }
                    None => {
                        self.start(Activity::Settling);
                        body.plain(format!("; not tried again after attempt {attempt}"))
                    }
                }
            }
            Event::ToolStarted { tool, summary, .. } => {
                self.start(Activity::Tool(tool_words(tool, summary)));
                wanted = false;
                body
            }
            Event::ToolFinished { tool, summary, status, duration_ms: ms, .. } => {
                self.start(Activity::Settling);
                let style = if *status == ToolStatus::Ok { Style::Green } else { Style::Red };
                let body = body.plain(format!("{} ", tool_words(tool, summary))).styled(style, status.name());
                self.meter(body.plain(format!(" {}", duration_ms(*ms))))
            }
            Event::ToolDenied { tool, reason, .. } => {
                weight = Weight::Warning;
                self.start(Activity::Settling);
                body.plain(format!("{} ", clean_line(tool)))
                    .styled(Style::Red, "denied")
                    .plain(format!(": {}", clean_line(reason)))
            }
            Event::JobStarted { job, command } => {
                body.plain(format!("{} started \"{}\"", clean_line(job), clean_line(command)))
            }
            Event::JobFinished { job, state, duration_ms: ms } => {
                body.plain(format!("{} {} {}", clean_line(job), clean_line(state), duration_ms(*ms)))
            }
            Event::TaskChanged { tasks } => {
                weight = Weight::Detail;
                let closed = tasks.iter().filter(|task| task.status.is_closed()).count();
                body.styled(Style::Dim, format!("tasks {closed}/{} closed", tasks.len()))
            }
            Event::SteerDelivered { text } => body.plain(format!("steering delivered: {}", clean_line(text))),
            Event::CompactionStarted { input_tokens, .. } => {
                self.start(Activity::Call(Lane::Summarizer));
                weight = Weight::Detail;
                body.styled(Style::Dim, format!("summarizing {} tokens", short(*input_tokens)))
            }
            Event::CompactionFinished { .. } => {
                self.start(Activity::Settling);
                body.plain(compacted_words(event).unwrap_or_default())
            }
            Event::CompactionFailed { reason, failures, of } => {
                weight = Weight::Warning;
                self.start(Activity::Settling);
                body.styled(Style::Yellow, "not compacted").plain(format!(
                    ": {} ({})",
                    clean_line(reason),
                    failure_words(*failures, *of)
                ))
            }
            Event::CompactionPaused { reason } => {
                weight = Weight::Warning;
                body.styled(Style::Yellow, "compaction paused").plain(format!(": {}", clean_line(reason)))
            }
            Event::CheckFinished { iteration, check } => {
                let body = check_words(body.plain("check "), check);
                let body = if *iteration == 0 { body.plain(" at the start") } else { body };
                if check.status == CheckStatus::Pass { body } else { body.whole() }
            }
            Event::Verdict { verdict, of } => verdict_words(body, verdict, *of).whole(),
            Event::Checkpoint { digest, .. } => {
                weight = Weight::Detail;
                body.styled(Style::Dim, format!("checkpoint {}", clean_line(digest)))
            }
            Event::Notice { code, text } => {
                // That recorded replies serve other requests is what they are for.
                if code != "recorded_differs" {
                    weight = Weight::Warning;
                }
                body.styled(Style::Yellow, "notice").plain(format!(": {}", clean_line(text))).whole()
            }
            Event::RunInterrupted { reason } => {
                weight = Weight::Warning;
                body.styled(Style::Red, "interrupted").plain(format!(": {}", signal_words(reason)))
            }
            Event::RunFinished { result } => {
                self.start(Activity::Nothing);
                finished(body, result, self).whole()
            }
            Event::ModelDelta { .. } => return,
        };
        if wanted {
            lines.push((weight, self.head(t).then(body)));
        }
    }

    fn start(&mut self, activity: Activity) {
        self.activity = activity;
        self.since = self.now;
        self.beat = self.now;
    }

    /// Time has come to `since_start`. True when a heartbeat is due.
    pub(super) fn tick(&mut self, since_start: Duration) -> bool {
        let passed = since_start.saturating_sub(self.now);
        self.now = self.now.max(since_start);
        if let Activity::Wait { lane, total, .. } = &self.activity {
            let end = self.since.saturating_add(*total);
            self.waited += passed.min(end.saturating_sub(self.now.saturating_sub(passed)));
            if self.now >= end {
                self.activity = Activity::Call(*lane);
                self.since = end;
            }
        }
        let due = self.activity != Activity::Nothing && self.now.saturating_sub(self.beat) >= HEARTBEAT;
        if due {
            self.beat = self.now;
        }
        due
    }

    pub(super) fn heartbeat(&self) -> Line {
        let t = self.anchor.map_or_else(String::new, |(time, at)| {
            humantime::format_rfc3339_millis(time + self.now.saturating_sub(at)).to_string()
        });
        self.head(&t).styled(Style::Dim, format!("… {}", self.doing().unwrap_or_default()))
    }

    /// `bash "cargo test" running for 1m30s`.
    pub(super) fn doing(&self) -> Option<String> {
        let age = self.now.saturating_sub(self.since);
        let is_brief = age < SETTLED;
        let age = text::age(age);
        Some(match &self.activity {
            Activity::Nothing => return None,
            Activity::Settling if is_brief => return None,
            Activity::Preparing => format!("preparing for {age}"),
            Activity::Call(lane) => format!("{lane} call running for {age}"),
            Activity::Tool(tool) => format!("{tool} running for {age}"),
            Activity::Wait { why, total, .. } => {
                let total = duration_ms(u64::try_from(total.as_millis()).unwrap_or(u64::MAX));
                format!("waiting for {age} of {total}: {why}")
            }
            Activity::Settling => format!("checks or judge running for {age}"),
        })
    }

    /// `12:03:41 upgrade 3/20 `.
    fn head(&self, t: &str) -> Line {
        // `2026-11-29T12:03:41.512Z`
        let clock = t.get(11..19).map_or_else(|| "--:--:--".to_owned(), clean_line);
        let line = Line::default().styled(Style::Dim, clock).plain(format!(" {} ", self.goal));
        if self.iteration == 0 { line } else { line.plain(format!("{}/{} ", self.iteration, self.of)) }
    }

    /// The line with `  $0.31/5.00  ctx 42%` at its end, as far as they are known.
    fn meter(&self, line: Line) -> Line {
        let limit = self.limits.as_ref().and_then(|limits| limits.cost);
        let line = match self.cost {
            Some(cost) => line.plain(format!("  {}", money(cost, limit))),
            None => line,
        };
        match self.context {
            Some((occupancy, window)) => {
                let percent = percent(occupancy, window);
                line.plain("  ").styled(fill_style(percent), format!("ctx {percent}%"))
            }
            None => line,
        }
    }

    /// `anthropic 529 overloaded`.
    fn failure(&self, lane: Lane, error: &str, status: Option<u16>) -> String {
        let model = match lane {
            Lane::Judge => self.judge_model.as_ref().unwrap_or(&self.model),
            _ => &self.model,
        };
        let provider = model.split_once('/').map_or(model.as_str(), |(provider, _)| provider);
        let error = clean_line(error);
        let status = status.map(|status| status.to_string()).filter(|status| !error.contains(status));
        let words = [Some(provider), status.as_deref(), Some(&error)];
        words.into_iter().flatten().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

/// `compacted 42k → 6k tokens (pruned 31k, summarized 5k)`; `None` of another event.
pub fn compacted_words(event: &Event) -> Option<String> {
    let Event::CompactionFinished { stage, before_tokens, after_tokens, pruned_tokens, summarized_tokens, .. } = event
    else {
        return None;
    };
    let word = if *stage == CompactionStage::Extract { "cut down without a summary" } else { "summarized" };
    let parts: Vec<String> = [("pruned", *pruned_tokens), (word, *summarized_tokens)]
        .into_iter()
        .filter(|(_, tokens)| *tokens > 0)
        .map(|(word, tokens)| format!("{word} {}", short(tokens)))
        .collect();
    Some(format!("compacted {} → {} tokens ({})", short(*before_tokens), short(*after_tokens), parts.join(", ")))
}

/// `failure 1 of 3 before it pauses`; once it has paused, only how many there were.
fn failure_words(failures: u64, of: u64) -> String {
    if failures <= of {
        format!("failure {failures} of {of} before it pauses")
    } else {
        format!("failure {failures} in a row, while it is paused")
    }
}

/// `42k`; below a thousand the number itself.
fn short(tokens: u64) -> String {
    if tokens < 1_000 { tokens.to_string() } else { format!("{}k", (tokens + 500) / 1_000) }
}

/// `bash "cargo test"`.
fn tool_words(tool: &str, summary: &str) -> String {
    let (tool, summary) = (clean_line(tool), clean_line(summary));
    if summary.is_empty() { tool } else { format!("{tool} {summary}") }
}

fn started(
    line: Line,
    session: &str,
    state: &State,
    endpoints: &[String],
    sandbox: &str,
    (resumed, recorded): (bool, bool),
) -> Line {
    let mut line = line.plain("session ").styled(Style::Bold, clean_line(session));
    if resumed {
        line = line.plain(" resumed");
    }
    line = line.plain(format!("  {}", state.model));
    if recorded {
        line = line.plain(" (recorded model)");
    }
    if let Some(judge) = state.judge_model.as_ref().filter(|judge| **judge != state.model) {
        line = line.plain(format!("  judge {judge}"));
    }
    if let Some(limits) = &state.limits {
        line = line.plain(format!("  limits {}", limits_words(limits)));
    }
    if !endpoints.is_empty() {
        let endpoints: Vec<String> = endpoints.iter().map(|endpoint| clean_line(endpoint)).collect();
        line = line.plain("  ").styled(Style::Yellow, format!("endpoint {}", endpoints.join(", ")));
    }
    line.plain(format!("  sandbox {}", clean_line(sandbox))).whole()
}

/// `20 iterations, 500 steps, $5.00, 2h`; what is unlimited says so where it would surprise.
fn limits_words(limits: &Limits) -> String {
    let mut words = vec![count(limits.iterations, "iteration"), count(limits.steps, "step")];
    words.push(limits.cost.map_or_else(|| "no cost limit".to_owned(), |cost| money(cost, None)));
    words.extend(limits.tokens.map(|tokens| count(tokens, "token")));
    words.push(limits.time_ms.map_or_else(|| "no time limit".to_owned(), duration_ms));
    words.join(", ")
}

fn call_finished(line: Line, event: &Event) -> Line {
    let Event::CallFinished { lane, n, model, usage, cost, known, duration_ms: ms, .. } = event else { return line };
    let tokens = usage.as_ref().map_or_else(
        || "no usage reported".to_owned(),
        |usage| format!("{} in, {} out", thousands(usage.input_tokens), thousands(usage.output_tokens)),
    );
    let how = match known {
        CostKnown::Reported => "",
        CostKnown::UpperBound => " (upper bound)",
        CostKnown::Reservation => " (reservation)",
        CostKnown::Free => " (nothing charged)",
    };
    let text =
        format!("{lane} call {n} {}: {tokens}, {}{how}, {}", clean_line(model), money(*cost, None), duration_ms(*ms));
    line.styled(Style::Dim, text)
}

/// `tests fail (exit 101) 3.4s`.
pub(super) fn check_words(line: Line, check: &CheckResult) -> Line {
    let (word, style) = match check.status {
        CheckStatus::Pass => ("pass", Style::Green),
        CheckStatus::Fail => ("fail", Style::Red),
        CheckStatus::Timeout => ("timeout", Style::Red),
        CheckStatus::NotRun => ("not run", Style::Yellow),
    };
    let mut line = line.plain(format!("{} ", clean_line(&check.name))).styled(style, word);
    if let Some(code) = check.exit_code.filter(|_| check.status == CheckStatus::Fail) {
        line = line.plain(format!(" (exit {code})"));
    }
    if check.status != CheckStatus::NotRun {
        line = line.plain(format!(" {}", duration_ms(check.duration_ms)));
    }
    if check.required { line } else { line.plain(" optional") }
}

fn verdict_words(line: Line, verdict: &Verdict, of: u64) -> Line {
    let reason = clean_line(&verdict.reason);
    match verdict.kind {
        VerdictKind::Met => line.styled(Style::Green, "goal met").plain(format!(": {reason}")),
        VerdictKind::Unmet => {
            line.styled(Style::Yellow, "goal not met yet").plain(format!(" ({}/{of}): {reason}", verdict.iteration))
        }
        VerdictKind::Impossible => line.styled(Style::Red, "goal impossible").plain(format!(": {reason}")),
    }
}

fn finished(line: Line, result: &RunResult, state: &State) -> Line {
    let (name, style) = outcome_words(result.outcome);
    let code = result.exit_code.map_or_else(String::new, |code| format!(" (exit {code})"));
    let line = line.plain("finished ").styled(style, name);
    state.meter(line.plain(format!("{code} {}", duration_ms(result.duration_ms))))
}

/// Why a run was interrupted, with the signal by its name.
pub fn signal_words(reason: &str) -> String {
    match reason {
        "hangup" => "SIGHUP".to_owned(),
        "interrupt" => "SIGINT".to_owned(),
        "terminated" => "SIGTERM".to_owned(),
        other => clean_line(other),
    }
}

/// An outcome's name and colour. A run without one has not ended.
pub(super) fn outcome_words(outcome: Option<Outcome>) -> (&'static str, Style) {
    match outcome {
        None => ("running", Style::Plain),
        Some(Outcome::Met) => (Outcome::Met.name(), Style::Green),
        Some(outcome) if outcome.retryable() || outcome == Outcome::Unmet => (outcome.name(), Style::Yellow),
        Some(outcome) => (outcome.name(), Style::Red),
    }
}
