//! What recording and replaying a run cost: long cassettes, their size, what commands do to files, and how fast a
//! replay says that it has parted from its recording.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::scripted::{Lane, Provider, Reply, Request, Script, respond_with};
use crate::{Result, median, runner};

/// Steps of the cassettes whose replays are timed, and of the one whose size counts.
pub const STEPS: usize = 1_000;
pub const SMALL: usize = 200;
/// What the last request of the small one has at least.
const LAST_REQUEST_BYTES: usize = 600_000;
/// Files of the workspace, and folders that they are in.
const FILES: usize = 2_000;
const FOLDERS: usize = 100;
/// Steps of a run of which half record effects, and how long their commands sleep.
const SLOW_STEPS: usize = 40;
const SLEEP: Duration = Duration::from_millis(100);
/// Replays whose median is taken.
const REPLAYS: usize = 5;

/// What was measured.
pub struct Seen {
    pub replay: Duration,
    pub twice_as_long: Duration,
    /// The last request of the cassette of [`SMALL`] steps, and that cassette packed.
    pub last_request_bytes: usize,
    pub packed_bytes: u64,
    /// A step whose command sleeps for [`SLEEP`], without and with effects.
    pub plain: Duration,
    pub with_effects: Duration,
    /// How much longer a replay takes that misses at its last request.
    pub miss: Duration,
}

impl Seen {
    pub fn growth(&self) -> f64 {
        self.twice_as_long.as_secs_f64() / self.replay.as_secs_f64()
    }

    pub fn effects_pct(&self) -> f64 {
        self.with_effects.saturating_sub(self.plain).as_secs_f64() * 100.0 / SLEEP.as_secs_f64()
    }
}

pub fn measure(spettro: &Path, rounds: usize) -> Result<Seen> {
    let small = Recorded::new(spettro, SMALL, LAST_REQUEST_BYTES / SMALL + 200, true)?;
    let packed_bytes = fs::metadata(small.pack()?)?.len();
    let last_request_bytes = small.last_request_bytes()?;
    if last_request_bytes < LAST_REQUEST_BYTES {
        return Err(format!("its last request has {last_request_bytes} bytes only").into());
    }

    let (mut plain, mut with_effects) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        plain.extend(slow(spettro, false)?);
        with_effects.extend(slow(spettro, true)?);
    }

    let once = Recorded::new(spettro, STEPS, 1_000, true)?;
    let twice = Recorded::new(spettro, 2 * STEPS, 1_000, true)?;
    let (one, other) = (once.pack()?, twice.pack()?);
    let (mut replays, mut longer) = (Vec::new(), Vec::new());
    for _ in 0..REPLAYS {
        replays.push(once.replay(&one, &[0])?);
        longer.push(twice.replay(&other, &[0])?);
    }
    let parted = once.parted_at_its_end()?;
    let (mut whole, mut missed) = (Vec::new(), Vec::new());
    for _ in 0..REPLAYS {
        whole.push(once.replay(&once.session, &[0])?);
        missed.push(once.replay(&parted, &[30])?);
    }
    Ok(Seen {
        replay: median(&replays),
        twice_as_long: median(&longer),
        last_request_bytes,
        packed_bytes,
        plain: median(&plain),
        with_effects: median(&with_effects),
        miss: median(&missed).saturating_sub(median(&whole)),
    })
}

/// A run that was recorded.
struct Recorded<'a> {
    spettro: &'a Path,
    folder: tempfile::TempDir,
    session: PathBuf,
    /// From the arrival of each request of the agent to that of the next.
    periods: Vec<Duration>,
}

impl<'a> Recorded<'a> {
    /// `step_bytes`: what each step adds to the request at least.
    fn new(spettro: &'a Path, steps: usize, step_bytes: usize, effects: bool) -> Result<Recorded<'a>> {
        let agent = move |request: &Request| match request.lane_n {
            n if n <= steps => step(n, step_bytes),
            _ => Reply::complete("all steps are done"),
        };
        Recorded::of(spettro, steps, agent, effects)
    }

    fn of(
        spettro: &'a Path,
        steps: usize,
        agent: impl Fn(&Request) -> Reply + Send + Sync + 'static,
        effects: bool,
    ) -> Result<Recorded<'a>> {
        let script = Script::new().agent(respond_with(agent).forever()).judge(Reply::verdict("met", "it is so", ""));
        let provider = script.light().serve(0)?;
        let folder = tempfile::tempdir()?;
        for name in ["home", "tmp"] {
            fs::create_dir(folder.path().join(name))?;
        }
        workspace(&folder.path().join("work"))?;
        let record = if effects { "record: effects\n" } else { "" };
        let goal = format!(
            "version: 1\nname: cassette\ngoal: Run every step.\nworkspace: work\n{record}\
             model: {{ id: test/model-1, wire: anthropic, base_url: \"{}\", context_window: 4000000, max_output_tokens: 4096 }}\n\
             prices: {{ \"test/model-1\": {{ input: 1.00, output: 4.00 }} }}\n\
             limits: {{ iterations: 1, steps: 10000, steps_per_iteration: 10000, cost: unlimited }}\n",
            provider.url()
        );
        fs::write(folder.path().join("goal.yaml"), goal)?;
        let mut recorded = Recorded { spettro, folder, session: PathBuf::new(), periods: Vec::new() };
        recorded.spettro(&["run", "--quiet", "--goal", "../goal.yaml"], &[0])?;
        recorded.periods = periods(&provider);
        if provider.count(Lane::Agent) != steps + 1 {
            return Err(format!("{} requests where {} were due", provider.count(Lane::Agent), steps + 1).into());
        }
        let sessions = recorded.folder.path().join("home/.spettro/sessions");
        recorded.session = only(&only(&sessions)?)?;
        Ok(recorded)
    }

    /// Runs the program here and gives its time.
    fn spettro(&self, words: &[&str], codes: &[i32]) -> Result<Duration> {
        let begun = Instant::now();
        let output = Command::new(self.spettro)
            .args(words)
            .current_dir(self.folder.path().join("work"))
            .env_clear()
            .envs(runner::environment(self.folder.path()))
            .stdin(Stdio::null())
            .output()?;
        let took = begun.elapsed();
        match output.status.code() {
            Some(code) if codes.contains(&code) => Ok(took),
            _ => {
                let (said, told) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
                Err(format!("`{}` ended with {}: {said}{told}", words.join(" "), output.status).into())
            }
        }
    }

    fn pack(&self) -> Result<PathBuf> {
        let file = self.folder.path().join("run.cassette.zst");
        self.spettro(&["cassette", "pack", "latest", "-o", utf8(&file)?], &[0])?;
        Ok(file)
    }

    fn replay(&self, recording: &Path, codes: &[i32]) -> Result<Duration> {
        self.spettro(&["replay", utf8(recording)?], codes)
    }

    fn last_request_bytes(&self) -> Result<usize> {
        let tape = spettro::cassette::Tape::of_session(&self.session)?;
        let last = tape.exchanges(spettro::event::Lane::Agent).last().and_then(|call| call.attempts.last());
        let request = last.and_then(|attempt| attempt.request.as_ref()).ok_or("no request was recorded")?;
        Ok(request.front.len() + usize::try_from(request.rest.len())?)
    }

    /// A copy whose last command printed something else, so that the request behind it is not the recorded one.
    fn parted_at_its_end(&self) -> Result<PathBuf> {
        let copy = self.folder.path().join("parted");
        fs::create_dir(&copy)?;
        let copied = Command::new("cp").arg("-a").arg(self.session.join(".")).arg(&copy).status()?;
        if !copied.success() {
            return Err("the session could not be copied".into());
        }
        let log = copy.join("session.jsonl");
        let mut lines: Vec<String> = fs::read_to_string(&log)?.lines().map(str::to_owned).collect();
        let marker = printed(STEPS);
        let command = |line: &&mut String| line.contains("\"kind\":\"command\"") && line.contains(&marker);
        let line = lines.iter_mut().rev().find(command).ok_or("no command printed the last step")?;
        // As long as before, so that nothing but this text differs.
        *line = line.replace(&marker, &marker.replace("step", "Step"));
        fs::write(&log, lines.join("\n") + "\n")?;
        Ok(copy)
    }
}

/// The periods of a run whose commands sleep and change a file.
fn slow(spettro: &Path, effects: bool) -> Result<Vec<Duration>> {
    let seconds = SLEEP.as_secs_f64();
    let agent = move |request: &Request| match request.lane_n {
        n if n <= SLOW_STEPS => Reply::bash(&format!("sleep {seconds}; echo {n} >> {}", name(n * 37))),
        _ => Reply::complete("all steps are done"),
    };
    let recorded = Recorded::of(spettro, SLOW_STEPS, agent, effects)?;
    // The first one waits for the baseline.
    Ok(recorded.periods[1..].to_vec())
}

/// What the agent does in a step: commands that change a file, and now and then spettro's own tools.
fn step(n: usize, bytes: usize) -> Reply {
    let (file, text) = (name(n * 37), words(n, bytes));
    let command = format!("echo '{}'; echo '{text}' >> {file}", printed(n));
    match n % 5 {
        // The last one is a command in any case.
        1 => Reply::thinking(&text).and_call("file-read", json!({"path": file})),
        2 => Reply::call("file-write", json!({"path": format!("made/{n}.txt"), "content": text})),
        3 => Reply::bash(&format!("{command}; cat {file} | head -c {bytes}")),
        _ => Reply::text(&format!("Now comes step {n}.")).and_call("bash", json!({"command": command})),
    }
}

fn printed(n: usize) -> String {
    format!("this is step {n} of many")
}

/// A repository with many files.
fn workspace(root: &Path) -> Result<()> {
    for folder in 0..FOLDERS {
        fs::create_dir_all(root.join(format!("src/part-{folder}")))?;
    }
    for n in 0..FILES {
        fs::write(root.join(name(n)), words(n, 500 + n % 4_000))?;
    }
    fs::write(root.join(".gitignore"), "target\n*.log\n")?;
    let made = Command::new("git").args(["init", "-q"]).current_dir(root).stdin(Stdio::null()).status()?;
    if made.success() { Ok(()) } else { Err("git could not make a repository".into()) }
}

fn name(n: usize) -> String {
    let n = n % FILES;
    format!("src/part-{}/file-{n}.txt", n % FOLDERS)
}

/// Text that gets smaller about as text does, and is the same in every run.
fn words(seed: usize, bytes: usize) -> String {
    let mut state = seed as u64 + 1;
    let mut text = String::new();
    while text.len() < bytes {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        // Writing to a string cannot fail.
        let _ = write!(text, "{:x} word and ", state >> 48);
    }
    text.truncate(bytes);
    text
}

fn periods(provider: &Provider) -> Vec<Duration> {
    let arrived: Vec<Instant> = provider.agent_requests().iter().map(|request| request.first_byte).collect();
    arrived.windows(2).map(|pair| pair[1].saturating_duration_since(pair[0])).collect()
}

/// The one folder inside another.
fn only(folder: &Path) -> Result<PathBuf> {
    let mut inside = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir());
    inside.next().ok_or_else(|| format!("nothing is in {}", folder.display()).into())
}

fn utf8(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| "a path is no UTF-8".into())
}
