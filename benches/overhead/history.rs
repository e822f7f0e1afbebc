//! What a large history costs: the look before each step, and a pass that prunes it, in time and in memory.
//!
//! Measured in a fresh process, whose memory nothing else has used.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use spettro::compact::{Budget, Compacted, Compactor, History, Place, Settings};
use spettro::event::{Limits, ToolStatus};
use spettro::model::wire::Wire;
use spettro::model::{Conversation, Endpoint, Factor, Gateway, GatewayParts, Http, KeySource};
use spettro::process::ProcessOptions;
use spettro::session::{Block, Fact, Message, Origin, Output, Session, State, Store};
use spettro::world::{Halt, RealClock, RealDir, RealEnv, RealIds, Secrets, World};

use crate::{Result, median};

/// Rounds of a call and its result: two entries each.
const ROUNDS: usize = 10_000;
/// Every so many rounds the result is long enough to become a stub.
const LARGE_EVERY: usize = 50;
const LARGE_BYTES: usize = 5_200;
const LOOKS: usize = 400;

/// What was measured.
pub struct Seen {
    pub tokens: u64,
    pub entries: u64,
    /// The look before a step, below the threshold.
    pub below: Duration,
    /// The same above it, where nothing can be done.
    pub above: Duration,
    pub prune: Duration,
    /// The most memory that pruning took on top, as a share of the history's own.
    pub more_pct: f64,
}

/// Starts this program again and reads what it measured.
pub fn measure(spettro: &Path) -> Result<Seen> {
    let output = Command::new(std::env::current_exe()?)
        .arg("--history-inside")
        .arg(spettro)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err("a large history could not be measured".into());
    }
    let text = String::from_utf8(output.stdout)?;
    let numbers = text.split_whitespace().map(str::parse).collect::<std::result::Result<Vec<u64>, _>>()?;
    let [tokens, entries, below, above, prune, history_kib, more_kib] = numbers[..] else {
        return Err("other numbers were expected".into());
    };
    Ok(Seen {
        tokens,
        entries,
        below: Duration::from_nanos(below),
        above: Duration::from_nanos(above),
        prune: Duration::from_nanos(prune),
        more_pct: more_kib as f64 * 100.0 / history_kib as f64,
    })
}

/// The numbers on one line.
pub fn inside(words: &[String]) -> Result<()> {
    let executable = PathBuf::from(words.first().ok_or("which program?")?);
    let exec = spettro::process::start(ProcessOptions {
        executable,
        run_id: "bench".to_owned(),
        ..ProcessOptions::default()
    })?;
    let folder = tempfile::tempdir()?;
    let world = World {
        transport: Rc::new(Http::new()),
        exec,
        dir: Rc::new(RealDir),
        clock: Rc::new(RealClock::new()),
        ids: Rc::new(RealIds::from_seed(b"bench")),
        env: Rc::new(RealEnv),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let line = runtime.block_on(look(&world, folder.path()))?;
    writeln!(std::io::stdout(), "{line}")?;
    Ok(())
}

async fn look(world: &World, folder: &Path) -> Result<String> {
    let store = Store::new(folder.to_owned());
    let session = Session::create(world, &store, folder, &Store::new_id(world), "bench", Vec::new())?;
    let gateway = gateway(world, &session);
    let mut endpoint = endpoint();
    let head = endpoint.wire.head("You work.", &[]);
    let settings = Settings { auto: true, threshold_pct: 85, max_failures: 3 };
    // Without summaries, so that nobody is asked: what is looked at is the same.
    let paused = Budget::fold([&Fact::CompactionPaused { reason: "bench".to_owned() }]);
    let mut compactor = Compactor::new(settings, endpoint.clone(), String::new(), "You work.", paused);

    let before = resident("VmRSS")?;
    let mut conversation = Conversation::new(endpoint.wire, &head, Factor::default());
    let mut history = History::default();
    let mut next = 0;
    for round in 0..ROUNDS {
        say(&mut history, &mut next, round);
        conversation.seal(history.take_unsealed());
    }
    let own = resident("VmRSS")?.saturating_sub(before);
    let (tokens, entries) = (conversation.occupancy_tokens(), next);

    let mut steps = Vec::with_capacity(LOOKS);
    endpoint.window_tokens = tokens * 2;
    for round in 0..LOOKS {
        say(&mut history, &mut next, ROUNDS + round * LARGE_EVERY + 1);
        let begun = Instant::now();
        conversation.seal(history.take_unsealed());
        let mut place = place(&gateway, &session, &mut endpoint, &mut history, &mut conversation);
        let done = compactor.before_call(&mut place).await?;
        steps.push(begun.elapsed());
        expect(done, Compacted::No)?;
    }
    let below = median(&steps);

    endpoint.window_tokens = conversation.occupancy_tokens() * 115 / 100;
    std::fs::write("/proc/self/clear_refs", "5")?;
    let at_rest = resident("VmRSS")?;
    let begun = Instant::now();
    let mut there = place(&gateway, &session, &mut endpoint, &mut history, &mut conversation);
    let done = compactor.before_call(&mut there).await?;
    let prune = begun.elapsed();
    expect(done, Compacted::Pruned)?;
    let more = resident("VmHWM")?.saturating_sub(at_rest);

    endpoint.window_tokens = conversation.occupancy_tokens();
    steps.clear();
    for _ in 0..LOOKS {
        let begun = Instant::now();
        let mut place = place(&gateway, &session, &mut endpoint, &mut history, &mut conversation);
        let done = compactor.before_call(&mut place).await?;
        steps.push(begun.elapsed());
        expect(done, Compacted::No)?;
    }
    let (below, above, prune) = (below.as_nanos(), median(&steps).as_nanos(), prune.as_nanos());
    world.exec.shutdown(Duration::ZERO).await;
    Ok(format!("{tokens} {entries} {below} {above} {prune} {own} {more}"))
}

fn place<'a>(
    gateway: &'a Gateway,
    session: &'a Session,
    endpoint: &'a mut Endpoint,
    history: &'a mut History,
    conversation: &'a mut Conversation,
) -> Place<'a> {
    Place { gateway, session, endpoint, history, conversation }
}

fn expect(done: Compacted, wanted: Compacted) -> Result<()> {
    if done == wanted { Ok(()) } else { Err(format!("{done:?} where {wanted:?} was due").into()) }
}

/// One round, with the prompt before the first.
fn say(history: &mut History, entry: &mut u64, round: usize) {
    let mut push = |message: Message| {
        *entry += 1;
        history.push(*entry, message);
        *entry
    };
    if round == 0 {
        push(Message::User { origin: Origin::Prompt, text: "Reach the goal.".to_owned() });
    }
    let id = format!("toolu_{round:08}");
    let call = Block::Call { id: id.clone(), name: "bash".to_owned(), arguments: r#"{"command":"make"}"#.to_owned() };
    push(Message::Assistant { blocks: vec![call], interrupted: false, refused: None });
    let long = round.is_multiple_of(LARGE_EVERY);
    let text = "word and word, and more\n".repeat(if long { LARGE_BYTES / 24 } else { 1 });
    let output = Output {
        status: ToolStatus::Ok,
        chars: text.len() as u64,
        lines: text.lines().count() as u64,
        spool: long.then_some(round as u64),
    };
    let entry = push(Message::Tool { call_id: id, tool: "bash".to_owned(), text, is_error: false });
    history.output(entry, output);
}

fn gateway(world: &World, session: &Session) -> Gateway {
    let limits = Limits {
        iterations: 1,
        steps: 1,
        steps_per_iteration: 1,
        cost: None,
        tokens: None,
        time_ms: None,
        idle_ms: None,
        command_ms: 1,
        stall: 1,
        consecutive_errors: 1,
    };
    Gateway::new(GatewayParts {
        world: world.clone(),
        session: session.clone(),
        halt: Halt::new(),
        limits: &limits,
        state: &State::default(),
        max_wait: Duration::ZERO,
        deltas: false,
        secrets: Secrets::default(),
    })
}

fn endpoint() -> Endpoint {
    Endpoint {
        provider: "bench".to_owned(),
        model: "bench".to_owned(),
        wire: Wire::Anthropic,
        base_url: "http://127.0.0.1:9".to_owned(),
        key: KeySource::None,
        own: false,
        local: true,
        window_tokens: 0,
        max_output_tokens: 4_096,
        reasoning_effort: None,
        headers: BTreeMap::new(),
        env_headers: BTreeMap::new(),
        ca_file: None,
        window_assumed: false,
        query_params: BTreeMap::new(),
        extra_body: Vec::new(),
        price: None,
        free_because_local: true,
        force_tool: true,
        idle_timeout: Duration::from_secs(1),
        first_event_timeout: Duration::from_secs(1),
        cassette: None,
    }
}

/// A line of `/proc/self/status` in KiB.
fn resident(name: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(line.and_then(|rest| rest.split_whitespace().next()).ok_or("no such line")?.parse()?)
}
