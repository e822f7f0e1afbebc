//! The two streams: lines (or bars) on stderr, data on stdout. A stream that fails is given up, the other goes on.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::time::Duration;

use indicatif::ProgressDrawTarget;

use super::bars::{Bars, terminal_width};
use super::clean::clean;
use super::lines::{State, Weight};
use super::look::{Format, Look};
use super::text::{Line, Style, shell_line};
use super::{jsonl, summary};
use crate::event::{Event, Outcome, Record, RunResult};

/// The lines (or bars) on stderr, and for `jsonl` the events on stdout. Never panics on a dead terminal or closed
/// pipe, and never makes a run fail.
pub struct Console {
    format: Format,
    look: Look,
    deltas: bool,
    out: Stream,
    err: Stream,
    width: Width,
    bars: Option<Bars>,
    state: RefCell<State>,
}

/// Where a line on stderr is clipped.
enum Width {
    Fixed(Option<usize>),
    /// The terminal's, whatever it is at that moment.
    Terminal,
}

impl Console {
    /// Writes to the process's stdout and stderr. `goal_name` stands in the lines before `run.started`.
    pub fn new(format: Format, look: Look, deltas: bool, goal_name: String) -> Console {
        let bars = look.bars.then(|| Bars::new(ProgressDrawTarget::stderr(), look.colour));
        let width = if look.terminal { Width::Terminal } else { Width::Fixed(None) };
        Console {
            width,
            bars,
            ..Console::with_writers(Box::new(io::stdout()), Box::new(io::stderr()), format, look, deltas, goal_name)
        }
    }

    /// Writes to these instead, without bars and without clipping.
    pub fn with_writers(
        out: Box<dyn Write>,
        err: Box<dyn Write>,
        format: Format,
        look: Look,
        deltas: bool,
        goal_name: String,
    ) -> Console {
        Console {
            format,
            look,
            deltas,
            out: Stream::new(out),
            err: Stream::new(err),
            width: Width::Fixed(None),
            bars: None,
            state: RefCell::new(State::new(&goal_name, look.verbose)),
        }
    }

    #[cfg(test)]
    pub(super) fn set_width(&mut self, columns: usize) {
        self.width = Width::Fixed(Some(columns));
    }

    #[cfg(test)]
    pub(super) fn set_bars(&mut self, bars: Bars) {
        self.bars = Some(bars);
    }

    /// Shows what happened. Records come in the order of their `seq`.
    pub fn event(&self, record: &Record) {
        if self.format == Format::Jsonl && (self.deltas || !matches!(record.event, Event::ModelDelta { .. })) {
            self.json(record);
        }
        let lines = self.state.borrow_mut().event(record);
        if let (Some(bars), Event::RunFinished { .. }) = (&self.bars, &record.event) {
            bars.close();
        }
        for (weight, line) in lines {
            self.show(weight, &line);
        }
        self.redraw();
    }

    /// Called about once a second with the time since the run's start: bars move; without them a heartbeat line
    /// every 30 s while something runs or waits.
    pub fn tick(&self, since_start: Duration) {
        let heartbeat = {
            let mut state = self.state.borrow_mut();
            (state.tick(since_start) && self.bars.is_none()).then(|| state.heartbeat())
        };
        if let Some(line) = heartbeat {
            self.show(Weight::Normal, &line);
        }
        self.redraw();
    }

    /// The end, with or without a session: an error and its hint on stderr, the summary (`text`) or the result
    /// object (`json`) on stdout, and for an unfinished run how to resume it, on stderr.
    pub fn finish(&self, result: &RunResult) {
        if let Some(bars) = &self.bars {
            bars.close();
        }
        if result.problems.len() > 1 {
            for problem in &result.problems {
                self.labelled("error", Style::Red, &problem.line());
                if let Some(hint) = &problem.hint {
                    self.labelled("hint", Style::Bold, hint);
                }
            }
        } else if let Some(error) = &result.error {
            self.labelled("error", Style::Red, &error.message);
            if let Some(hint) = &error.hint {
                self.labelled("hint", Style::Bold, hint);
            }
        }
        match self.format {
            Format::Json => self.json(result),
            // Where nothing was run, the error says it all.
            Format::Text if result.error.is_some() && result.session_id.is_none() => {}
            Format::Text => self.data(&summary::render(result, self.look.out_colour)),
            Format::Jsonl => {}
        }
        if let Some(argv) = &result.commands.resume
            && result.outcome != Some(Outcome::Met)
        {
            let more = raise(result).unwrap_or_default();
            let _lost = self.err.write(&format!("resume: {}{more}\n", shell_line(argv)));
        }
    }

    /// The only event of a run that never began; nobody else is there to emit it.
    pub fn unbegun(&self, record: &Record) {
        if self.format == Format::Jsonl {
            self.json(record);
        }
    }

    /// Something for the operator that is no event, because there is no run (yet).
    pub fn notice(&self, text: &str) {
        self.labelled("notice", Style::Yellow, text);
    }

    fn json<T: serde::Serialize>(&self, value: &T) {
        match jsonl::line(value) {
            Ok(line) => self.data(&(line + "\n")),
            Err(error) => self.labelled("error", Style::Red, &format!("failed to write JSON: {error}")),
        }
    }

    /// Something for stdout. That it cannot be written is said once, unless a reader went away, who has seen enough.
    fn data(&self, text: &str) {
        if let Err(error) = self.out.write(text)
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            self.labelled("warning", Style::Yellow, &format!("write stdout: {error}; nothing more is written there"));
        }
    }

    /// Messages are never clipped: they may have several lines, and each says what to do.
    fn labelled(&self, label: &str, style: Style, text: &str) {
        let label = Line::default().styled(style, label).plain(": ").render(self.look.colour, None);
        self.print(&format!("{label}{}\n", clean(text).trim_end()));
    }

    fn show(&self, weight: Weight, line: &Line) {
        let least = match self.look {
            Look { quiet: true, .. } => Weight::Warning,
            Look { verbose: false, .. } => Weight::Normal,
            _ => Weight::Detail,
        };
        if weight >= least {
            let width = match self.width {
                Width::Fixed(width) => width,
                Width::Terminal => terminal_width(),
            };
            self.print(&(line.render(self.look.colour, width) + "\n"));
        }
    }

    fn print(&self, text: &str) {
        if self.err.broken.get() {
            return;
        }
        match self.bars.as_ref().and_then(|bars| bars.print_above(text)) {
            Some(Ok(())) => {}
            Some(Err(_)) => self.err.give_up(),
            // When nobody takes what is said, nothing is missing.
            None => drop(self.err.write(text)),
        }
    }

    fn redraw(&self) {
        if let Some(bars) = self.bars.as_ref().filter(|_| !self.err.broken.get()) {
            bars.update(&self.state.borrow());
        }
    }
}

/// What a resume needs beside, when a limit is used up: the same again would end where it began.
fn raise(result: &RunResult) -> Option<String> {
    let flag = match result.limit_hit.as_deref()? {
        "limits.cost" => "--max-cost +DOLLARS",
        "limits.tokens" => "--max-tokens N",
        "limits.time" => "--max-time TIME",
        "limits.iterations" => "--max-iterations N",
        "limits.steps" => "--max-steps N",
        _ => return None,
    };
    Some(format!(" {flag}"))
}

/// One stream, until it fails.
struct Stream {
    writer: RefCell<Box<dyn Write>>,
    broken: Cell<bool>,
}

impl Stream {
    fn new(writer: Box<dyn Write>) -> Stream {
        Stream { writer: RefCell::new(writer), broken: Cell::new(false) }
    }

    /// Writes whole lines and flushes them. After an error (a closed pipe, a full disk), which is told once, nothing
    /// more is written.
    fn write(&self, text: &str) -> io::Result<()> {
        if self.broken.get() {
            return Ok(());
        }
        let mut writer = self.writer.borrow_mut();
        writer.write_all(text.as_bytes()).and_then(|()| writer.flush()).inspect_err(|_| self.give_up())
    }

    fn give_up(&self) {
        self.broken.set(true);
    }
}
