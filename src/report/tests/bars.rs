//! What a terminal shows while a run goes on.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use indicatif::{ProgressDrawTarget, TermLike};

use super::*;
use crate::report::bars::{Bars, gauges};
use crate::report::lines::State;
use crate::report::text::Style;

#[test]
fn the_gauges_show_fill_and_stay_text_where_there_is_no_limit() {
    let mut state = State::new("upgrade", false);
    let mut take = |event: Event| {
        let record = script().at("12:00:00", event).records.remove(0);
        state.event(&record);
    };
    take(started());
    take(Event::IterationStarted { iteration: 5, of: 20 });
    take(call(Lane::Agent, 1, 1_250_000, 1_250_000, Some(150_000)));
    state.tick(Duration::from_secs(720));
    let shown = |state: &State| gauges(state).map(|gauge| (gauge.label, gauge.percent, gauge.text, gauge.style));
    assert_eq!(
        shown(&state),
        [
            ("iterations", Some(25), "5/20".into(), Style::Plain),
            ("cost", Some(25), "$1.25/5.00".into(), Style::Plain),
            ("time", Some(10), "12m/2h".into(), Style::Plain),
            ("context", Some(75), "75%".into(), Style::Yellow),
        ]
    );
    // Waiting for a provider is no time of the run.
    let wait = Event::RunWaiting { lane: Lane::Agent, reason: "rate limited".into(), wait_ms: 1_200_000 };
    state.event(&script().at("12:12:00", wait).records.remove(0));
    for minute in 13..=33 {
        state.tick(Duration::from_secs(minute * 60));
    }
    assert_eq!(gauges(&state)[2].text, "13m/2h");

    let mut unlimited = State::new("upgrade", false);
    let event = match started() {
        Event::RunStarted {
            version, goal, config_digest, workspace, model, judge_model, endpoints, sandbox, ..
        } => {
            let limits = Limits { cost: None, time_ms: None, ..limits() };
            Event::RunStarted {
                version,
                goal,
                config_digest,
                workspace,
                model,
                judge_model,
                limits,
                endpoints,
                sandbox,
                resumed: false,
                recorded: false,
            }
        }
        other => other,
    };
    unlimited.event(&script().at("12:00:00", event).records.remove(0));
    unlimited.tick(Duration::from_secs(5));
    assert_eq!(
        shown(&unlimited),
        [
            ("iterations", Some(0), "0/20".into(), Style::Plain),
            ("cost", None, "$0.00".into(), Style::Plain),
            ("time", None, "5s".into(), Style::Plain),
            ("context", None, String::new(), Style::Plain),
        ]
    );
}

/// A terminal that keeps what is written to it, until it is gone.
#[derive(Debug, Clone, Default)]
struct Terminal(Arc<Mutex<(String, bool)>>);

impl Terminal {
    fn put(&self, text: &str) -> io::Result<()> {
        let mut inner = self.0.lock().expect("one thread");
        if inner.1 {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        inner.0.push_str(text);
        Ok(())
    }

    fn text(&self) -> String {
        self.0.lock().expect("one thread").0.clone()
    }
}

impl TermLike for Terminal {
    fn width(&self) -> u16 {
        80
    }
    fn move_cursor_up(&self, _: usize) -> io::Result<()> {
        self.put("<up>")
    }
    fn move_cursor_down(&self, _: usize) -> io::Result<()> {
        self.put("<down>")
    }
    fn move_cursor_right(&self, _: usize) -> io::Result<()> {
        self.put("<right>")
    }
    fn move_cursor_left(&self, _: usize) -> io::Result<()> {
        self.put("<left>")
    }
    fn write_line(&self, text: &str) -> io::Result<()> {
        self.put(&format!("{text}\n"))
    }
    fn write_str(&self, text: &str) -> io::Result<()> {
        self.put(text)
    }
    fn clear_line(&self) -> io::Result<()> {
        self.put("<clear>")
    }
    fn flush(&self) -> io::Result<()> {
        self.put("")
    }
}

fn with_bars(terminal: &Terminal, out: &Shared, err: &Shared) -> Console {
    let look = Look { terminal: true, bars: true, colour: true, ..Look::default() };
    let (out, err) = (Box::new(out.clone()), Box::new(err.clone()));
    let mut console = Console::with_writers(out, err, Format::Text, look, false, "upgrade".into());
    let target = ProgressDrawTarget::term_like_with_hz(Box::new(terminal.clone()), 255);
    console.set_bars(Bars::new(target, true));
    console
}

#[test]
fn on_a_terminal_bars_stand_below_the_lines_and_go_away_at_the_end() {
    let (terminal, out, err) = (Terminal::default(), Shared::default(), Shared::default());
    let console = with_bars(&terminal, &out, &err);
    let mut records = whole_run();
    let last = records.pop().expect("the run has an end");
    for record in &records {
        console.event(record);
    }
    console.event(&script().at("12:04:13", tool_started("bash", "\"cargo test\"")).records.remove(0));
    console.tick(Duration::from_secs(100));
    // Draws are limited in time, a printed line is not.
    console.notice("look");
    let text = terminal.text();
    let tail = text.rsplit("look").next().expect("a line was printed");
    for part in ["iterations", "2/20", "$0.31/5.00", "\x1b[33m", "80%", "… bash \"cargo test\" running for 1m40s"] {
        assert!(tail.contains(part), "{part:?} in {tail:?}");
    }
    assert!(text.contains("goal met"), "lines are printed above the bars: {text:?}");
    assert!(!text.contains("… agent call running for 1m40s\n"), "no heartbeat beside bars");
    assert_eq!(err.text(), "", "nothing goes past the bars while they stand");

    console.event(&last);
    console.finish(&unfinished(Outcome::Unmet));
    let closed = terminal.text().len();
    console.tick(Duration::from_secs(200));
    assert_eq!(terminal.text().len(), closed, "no bar after the end");
    let err = err.text();
    assert!(err.contains("finished") && err.contains("resume: spettro run"), "{err}");
    assert!(out.text().starts_with("unmet"), "{}", out.text());
}

#[test]
fn a_terminal_that_is_gone_stops_the_talk_and_nothing_else() {
    let (terminal, out, err) = (Terminal::default(), Shared::default(), Shared::default());
    let console = with_bars(&terminal, &out, &err);
    let records = whole_run();
    console.event(&records[0]);
    terminal.0.lock().expect("one thread").1 = true;
    for record in &records[1..] {
        console.event(record);
        console.tick(Duration::from_secs(record.seq));
    }
    console.finish(&unfinished(Outcome::Unmet));
    assert_eq!(out.text(), summary_text(&unfinished(Outcome::Unmet)), "stdout goes on");
    assert_eq!(err.text(), "", "stderr was that terminal");
}
