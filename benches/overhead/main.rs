//! What spettro costs beside the work itself, as ratios to a minimal client in one run.
//!
//! `ci/bench [--strict] [--rounds N] [--only-compaction] [--only-cassette] [--only-wires] [--spettro FILE]`. Both
//! clients talk to a loopback provider of this process that serves them in turns of a few steps, so that the machine's
//! moods hit both. Times are taken at the provider: from the last byte of a reply to the first byte of the request that
//! follows. Exits with 0 whatever it finds, with 1 if `--strict` is given and a limit is passed, and with 2 when nothing
//! could be measured.

#![allow(clippy::disallowed_methods, reason = "a program of its own: time and processes are what it measures")]

mod cassette;
mod history;
mod long;
mod look;
mod minimal;
mod provider;
mod runner;
#[path = "../../tests/it/provider/mod.rs"]
mod scripted;
mod spawn;
mod table;
mod wires;
#[path = "../../tests/it/compaction/work.rs"]
mod work;

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use provider::Provider;
use runner::{Launch, Seen, Sizes};
use table::{Limit, Table};

pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Steps of the short and of the long session, and how many of the long one's last steps are looked at.
const SHORT: usize = 400;
const LONG: usize = 2_000;
const LAST: usize = 200;
/// Starts of a program whose median is taken.
const STARTS: usize = 20;

/// What is measured.
enum Part {
    All,
    Compaction,
    Cassette,
    Wires,
}

struct Options {
    strict: bool,
    rounds: usize,
    part: Part,
    spettro: PathBuf,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.first().map(String::as_str) {
        Some("--spawn-inside") => spawn::inside(&words[1..]).map(|()| true),
        Some("--history-inside") => history::inside(&words[1..]).map(|()| true),
        _ => options(&words).and_then(|options| bench(&options)),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::from(2)
        }
    }
}

fn options(words: &[String]) -> Result<Options> {
    let spettro = PathBuf::from(env!("CARGO_BIN_EXE_spettro"));
    let mut options = Options { strict: false, rounds: 3, part: Part::All, spettro };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("`{word}` needs a value"));
        match word.as_str() {
            "--strict" => options.strict = true,
            "--only-compaction" => options.part = Part::Compaction,
            "--only-cassette" => options.part = Part::Cassette,
            "--only-wires" => options.part = Part::Wires,
            "--rounds" => options.rounds = value()?.parse::<usize>()?.max(1),
            "--spettro" => options.spettro = PathBuf::from(value()?),
            // Given by `cargo bench` to every bench.
            "--bench" => {}
            other => return Err(format!("unknown argument `{other}`").into()),
        }
    }
    Ok(options)
}

/// True unless `--strict` finds a limit passed.
fn bench(options: &Options) -> Result<bool> {
    let mut table = Table::default();
    match options.part {
        Part::All => everything(options, &mut table)?,
        Part::Compaction => compaction(options, &mut table)?,
        Part::Cassette => cassettes(options, &mut table)?,
        Part::Wires => wires(options, &mut table)?,
    }
    std::io::stdout().write_all(table.text().as_bytes())?;
    Ok(!options.strict || table.all_within())
}

fn everything(options: &Options, table: &mut Table) -> Result<()> {
    say("looks")?;
    let look = look::measure(&options.spettro)?;
    let providers = Provider::pair()?;
    let [_, provider] = &providers;

    say("starts")?;
    let version = median(&repeat(STARTS, || runner::version(&options.spettro))?);
    let first = median(&repeat(STARTS, || {
        provider.expect(0);
        let run = Launch::new(provider, &options.spettro)?.run(0)?;
        run.first_request.ok_or_else(|| "no request came".into())
    })?);

    say("short sessions")?;
    let (mut floor, mut ours) = (Vec::new(), Vec::new());
    let mut sizes = Sizes::default();
    for _ in 0..options.rounds {
        let (gaps, run) = both(&providers, &options.spettro, SHORT)?;
        floor.extend(gaps);
        ours.extend(run.gaps);
        sizes = sizes.most(&run.sizes);
    }
    let (floor, ours) = (median(&floor), median(&ours));
    let short = ratio(ours, floor);

    say("long sessions")?;
    let (mut long_floor, mut long_ours) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds.div_ceil(2) {
        let (gaps, run) = both(&providers, &options.spettro, LONG)?;
        long_floor.extend_from_slice(last(&gaps));
        long_ours.extend_from_slice(last(&run.gaps));
    }
    let (long_floor, long_ours) = (median(&long_floor), median(&long_ours));
    let long = ratio(long_ours, long_floor);

    say("spawns")?;
    let spawns = spawn::measure(&options.spettro)?;

    table.note(format!("minimal client, p50 a step (of {SHORT})"), ms(floor));
    table.note("spettro, p50 a step", ms(ours));
    table.row(format!("overhead at {SHORT} steps"), format!("{short:.3} ×"), Limit::most(short, 1.5, "1.5 ×"));
    table.note(format!("minimal client, p50 of the last {LAST} of {LONG}"), ms(long_floor));
    table.note("spettro, the same", ms(long_ours));
    let limit = format!("{:.3} ×", short + 0.1);
    table.row(format!("overhead at step {LONG}"), format!("{long:.3} ×"), Limit::most(long, short + 0.1, limit));
    table.row(format!("runner's memory at step {SHORT}"), mib(sizes.runner), memory(sizes.runner));
    table.row("its helper's memory", mib(sizes.helper), memory(sizes.helper));
    table.row("`spettro --version`", ms(version), time(version, "10 ms", 10.0));
    table.row("start to first request", ms(first), time(first, "40 ms", 40.0));
    for spawn in &spawns {
        let name = format!("command over a plain spawn, {} MiB of heap", spawn.heap_mib);
        let over = spawn.ours.saturating_sub(spawn.plain);
        table.row(name, format!("{} over {}", ms(over), ms(spawn.plain)), time(over, "0.5 ms", 0.5));
        let name = format!("sandboxed command over one without, {} MiB of heap", spawn.heap_mib);
        let over = spawn.confined.saturating_sub(spawn.ours);
        table.row(name, format!("{} over {}", ms(over), ms(spawn.ours)), time(over, "0.1 ms", 0.1));
    }
    wires(options, table)?;
    table.row("look at git's settings and protected files", ms(look), time(look, "0.1 ms", 0.1));
    let head = provider.fixed_head().ok_or("no request came")?;
    table.row("fixed head of a request", format!("{head} B"), Limit::most(head as f64, 12_288.0, "12 KB"));
    compaction(options, table)?;
    cassettes(options, table)
}

/// The wires by themselves.
fn wires(options: &Options, table: &mut Table) -> Result<()> {
    say("wires")?;
    for cost in wires::measure(options.rounds)? {
        let name = format!("{} decoded a second", cost.wire.name());
        let limit = Limit::least(cost.megabytes, 200.0, "≥ 200 MB");
        table.row(name, format!("{:.0} MB", cost.megabytes), limit);
        let name = format!("{}: a step encoded behind 10 MB", cost.wire.name());
        table.row(name, ms(cost.step), time(cost.step, "1 ms", 1.0));
        let name = format!("{}: the same over a step behind 20", cost.wire.name());
        table.row(name, format!("{:.2} ×", cost.growth), Limit::most(cost.growth, 1.5, "1.5 ×"));
    }
    Ok(())
}

/// A history that is large, and a long run in a window that is small.
fn compaction(options: &Options, table: &mut Table) -> Result<()> {
    say("a large history")?;
    let history = history::measure(&options.spettro)?;
    say("a long run in a small window")?;
    let run = long::run(&options.spettro)?;

    table.note("a large history", format!("{} tokens, {} entries", history.tokens, history.entries));
    table.row("look at it before a step, p50", ms(history.below), time(history.below, "1 ms", 1.0));
    table.row("the same, full and nothing to be done", ms(history.above), time(history.above, "1 ms", 1.0));
    table.row("pruning it", ms(history.prune), time(history.prune, "50 ms", 50.0));
    let more = format!("{:.0} %", history.more_pct);
    table.row("memory that takes, of the history's own", more, Limit::most(history.more_pct, 20.0, "20 %"));
    table.note(format!("{} steps in 32k tokens", long::STEPS), ms(run.took));
    let told = format!("{} and {}", run.compactions, run.failures);
    table.note("compactions, and failed summaries", told);
    let broken = run.unreported_breaks.to_string();
    table.row("broken prefixes that no compaction tells", broken, Limit::most(run.unreported_breaks as f64, 0.0, "0"));
    let lost = run.requests_without_goal.to_string();
    table.row("requests without the goal", lost, Limit::most(run.requests_without_goal as f64, 0.0, "0"));
    let apart = format!("{} µ$", run.money_apart);
    table.row("money beside the provider's count", apart, Limit::most(run.money_apart as f64, 0.0, "0"));
    table.row("mistakes of any kind in it", run.mistakes().to_string(), Limit::most(run.mistakes() as f64, 0.0, "0"));
    Ok(())
}

/// Runs that are recorded, and their replays.
fn cassettes(options: &Options, table: &mut Table) -> Result<()> {
    say("cassettes")?;
    let seen = cassette::measure(&options.spettro, options.rounds)?;

    let (steps, small) = (cassette::STEPS, cassette::SMALL);
    table.row(format!("replay of {steps} steps"), ms(seen.replay), time(seen.replay, "1000 ms", 1_000.0));
    table.note(format!("replay of {} steps", 2 * steps), ms(seen.twice_as_long));
    let growth = format!("{:.2} ×", seen.growth());
    table.row("the same over the one before", growth, Limit::most(seen.growth(), 2.3, "2.3 ×"));
    table.note(format!("last request of {small} steps"), format!("{} B", seen.last_request_bytes));
    let packed = Limit::most(seen.packed_bytes as f64, 1.5e6, "1.5 MB");
    table.row("their cassette", format!("{} B", seen.packed_bytes), packed);
    table.note("a step that sleeps 100 ms, p50", ms(seen.plain));
    table.note("the same with `record: effects`", ms(seen.with_effects));
    let share = format!("{:.1} %", seen.effects_pct());
    table.row("what that adds to 100 ms", share, Limit::most(seen.effects_pct(), 3.0, "3 %"));
    table.row("a miss is told after", ms(seen.miss), time(seen.miss, "100 ms", 100.0));
    Ok(())
}

/// A session of each client, in turns.
fn both(providers: &[Provider; 2], spettro: &Path, steps: usize) -> Result<(Vec<Duration>, Seen)> {
    let [theirs, ours] = providers;
    // Requests of both start alike, so that both send as much.
    let head = ours.fixed_head().ok_or("no request came")?;
    let launch = Launch::new(ours, spettro)?;
    theirs.expect(steps);
    ours.expect(steps);
    std::thread::scope(|scope| {
        let minimal = scope.spawn(|| minimal::run(theirs, steps, head).map_err(|error| error.to_string()));
        let seen = launch.run(steps);
        let gaps = minimal.join().map_err(|_| "the minimal client panicked")??;
        Ok((gaps, seen?))
    })
}

/// Progress goes to stderr, so that stdout is the table.
fn say(what: &str) -> Result<()> {
    writeln!(std::io::stderr(), "measuring: {what}")?;
    Ok(())
}

fn repeat(times: usize, mut once: impl FnMut() -> Result<Duration>) -> Result<Vec<Duration>> {
    (0..times).map(|_| once()).collect()
}

pub fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

fn last(gaps: &[Duration]) -> &[Duration] {
    &gaps[gaps.len().saturating_sub(LAST)..]
}

fn ratio(ours: Duration, floor: Duration) -> f64 {
    ours.as_secs_f64() / floor.as_secs_f64()
}

fn ms(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1e3)
}

fn mib(kib: u64) -> String {
    format!("{:.1} MiB", kib as f64 / 1024.0)
}

fn time(measured: Duration, shown: &str, limit_ms: f64) -> Limit {
    Limit::most(measured.as_secs_f64() * 1e3, limit_ms, shown)
}

fn memory(kib: u64) -> Limit {
    Limit::most(kib as f64 / 1024.0, 40.0, "40 MiB")
}
