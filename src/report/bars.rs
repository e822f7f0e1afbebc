//! The bars on a terminal: iterations, cost, time, context, and what goes on now. Never made off a terminal.

use std::cell::{Cell, RefCell};
use std::io;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::lines::State;
use super::text::{RESET, Style, age, duration_ms, fill_style, money, percent};

/// One bar: how full it is (absent: there is no limit, and so no bar) and what stands behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gauge {
    pub(super) label: &'static str,
    pub(super) percent: Option<u64>,
    pub(super) text: String,
    pub(super) style: Style,
}

/// What the bars show (pure).
pub(super) fn gauges(state: &State) -> [Gauge; 4] {
    let limits = state.limits.as_ref();
    let gauge = |label, percent: Option<u64>, text| Gauge { label, percent, text, style: Style::Plain };

    let iterations = (state.of > 0).then(|| percent(state.iteration(), state.of));
    let iterations = gauge("iterations", iterations, format!("{}/{}", state.iteration(), state.of));

    let cost_limit = limits.and_then(|limits| limits.cost);
    let cost = state.cost.map_or_else(String::new, |cost| money(cost, cost_limit));
    let cost_percent = state.cost.zip(cost_limit).map(|(cost, limit)| percent(cost.0, limit.0));
    let cost = gauge("cost", cost_percent, cost);

    let active = state.now.saturating_sub(state.waited);
    let time_limit = limits.and_then(|limits| limits.time_ms);
    let time = match time_limit {
        Some(limit) => format!("{}/{}", age(active), duration_ms(limit)),
        None => age(active),
    };
    let active_ms = u64::try_from(active.as_millis()).unwrap_or(u64::MAX);
    let time = gauge("time", time_limit.map(|limit| percent(active_ms, limit)), time);

    let full = state.context.map(|(occupancy, window)| percent(occupancy, window));
    let context = Gauge {
        label: "context",
        percent: full,
        text: full.map_or_else(String::new, |full| format!("{full}%")),
        style: full.map_or(Style::Plain, fill_style),
    };
    [iterations, cost, time, context]
}

/// The bars themselves.
pub(super) struct Bars {
    all: MultiProgress,
    bars: Vec<ProgressBar>,
    now: ProgressBar,
    colour: bool,
    /// What each bar shows, so that only what changes is drawn.
    shown: RefCell<Vec<Option<Gauge>>>,
    closed: Cell<bool>,
}

impl Bars {
    pub(super) fn new(target: ProgressDrawTarget, colour: bool) -> Bars {
        let all = MultiProgress::with_draw_target(target);
        let bars: Vec<ProgressBar> = (0..4).map(|_| all.add(ProgressBar::new(100))).collect();
        let now = all.add(ProgressBar::new(1).with_style(style("{wide_msg}")));
        let shown = RefCell::new(vec![None; bars.len()]);
        Bars { all, bars, now, colour, shown, closed: Cell::new(false) }
    }

    pub(super) fn update(&self, state: &State) {
        if self.closed.get() {
            return;
        }
        let mut shown = self.shown.borrow_mut();
        for ((bar, shown), gauge) in self.bars.iter().zip(shown.iter_mut()).zip(gauges(state)) {
            if shown.as_ref() == Some(&gauge) {
                continue;
            }
            bar.set_style(style(&template(&gauge, self.colour)));
            bar.set_prefix(gauge.label);
            bar.set_position(gauge.percent.unwrap_or(0).min(100));
            bar.set_message(gauge.text.clone());
            *shown = Some(gauge);
        }
        self.now.set_message(state.doing().map_or_else(String::new, |doing| format!("… {doing}")));
    }

    /// Prints whole lines above the bars. `None` when no bars are on the screen: the caller prints by itself.
    pub(super) fn print_above(&self, text: &str) -> Option<io::Result<()>> {
        // `MultiProgress::suspend` would do for any writer, but it panics on a terminal that is gone.
        let on_screen = !self.closed.get() && !self.all.is_hidden();
        on_screen.then(|| self.all.println(text.trim_end_matches('\n')))
    }

    /// Takes the bars away for good.
    pub(super) fn close(&self) {
        if !self.closed.replace(true) {
            // A terminal that is gone needs no clearing.
            let _ = self.all.clear();
            self.all.set_draw_target(ProgressDrawTarget::hidden());
        }
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.close();
    }
}

fn template(gauge: &Gauge, coloured: bool) -> String {
    let bar = if gauge.percent.is_some() { "{bar:20} " } else { "" };
    let (on, off) = if coloured && gauge.style != Style::Plain { (gauge.style.code(), RESET) } else { ("", "") };
    format!("{{prefix:10}} {on}{bar}{{msg}}{off}")
}

fn style(template: &str) -> ProgressStyle {
    // The templates are those of this file; should one be wrong, a plain bar is shown.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// So many columns has the terminal that stderr is; `None` when it is none.
pub(super) fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}
