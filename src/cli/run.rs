//! `spettro run`: from flags to a driven run, and from its result to output and exit code.

use std::any::Any;
use std::cell::RefCell;
use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::args::{Asked, Color, OutputFormat, RunArgs};
use super::crashed::sweep_crashed;
use super::dry_run::{self, DryRun};
use super::failure::Failure;
use super::lanes::NoExec;
use super::logging::Log;
use super::models::{Frozen as FrozenModels, models};
use super::output;
use crate::control::{Desk, Server};
use crate::event::{
    Commands, EVENT_VERSION, Event, Lane, Leaked, Limits, Outcome, Paths, Record, ResultError, RunResult,
};
use crate::goal::{
    Cause, Config, Effective, GoalSource, Overrides, Problem, Run, RunParts, WorkspaceMode, early, goal_digest, load,
    own_dirs,
};
use crate::model::{Endpoint, KeySource, Ledger};
use crate::process::{self, Dispositions, Process, ProcessOptions, Signals};
use crate::report::{ColourChoice, Console, Format, Look, summary_markdown};
use crate::session::{self, Fact, Frozen, Line, Listener, Session, SessionError, Store, WorkspaceLock};
use crate::world::{Clock, Env, Halt, RealClock, RealDir, RealEnv, RealIds, Roots, Secrets, World, home_dir, rfc3339};

/// How much of the machine a run sees, said in every output until the sandbox is there.
const NO_SANDBOX: &str = "none";

/// What the process does with a verb's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    pub code: u8,
    /// To die of, after everything was written.
    pub signal: Option<i32>,
}

impl From<Outcome> for Exit {
    fn from(outcome: Outcome) -> Self {
        Exit { code: outcome.code(), signal: outcome.signal() }
    }
}

/// Runs a goal and prints what the format asks for; never panics on a dead terminal or a closed pipe.
pub fn run(args: &RunArgs, dispositions: &Dispositions) -> Exit {
    let env = RealEnv;
    let run_id = run_id();
    let console = Rc::new(Console::new(format(args), look(args, &env), args.deltas, String::new()));
    // A file that cannot be written is no place for the result either.
    let file = args.output_file.as_deref();
    let checked = file.map_or(Ok(()), output::check);
    let file = file.filter(|_| checked.is_ok());
    let started = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        checked?;
        start(args, dispositions, &env, &run_id, &console)
    }));
    let began = matches!(started, Ok(Ok(_)));
    let mut result = match started {
        Ok(Ok(result)) => result,
        Ok(Err(Stop::Failure(failure))) => early(&run_id, failure.outcome, failure.message, failure.hint),
        Ok(Err(Stop::Problems(problems))) => {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            early(&run_id, Outcome::Usage, lines.join("\n"), None)
        }
        Ok(Err(Stop::Shown)) => return Outcome::Met.into(),
        Err(panic) => {
            let (message, hint) = panicked(&*panic);
            early(&run_id, Outcome::Internal, message, Some(hint))
        }
    };
    if !began {
        console.unbegun(&only_event(&result));
    }
    if let Some(file) = file
        && let Err(error) = output::write(file, &result)
    {
        let message = format!("write `{}`: {error}", file.display());
        if result.outcome == Some(Outcome::Met) {
            // Who asked for the file does not have it; what is printed and the exit code say the same.
            result.outcome = Some(Outcome::Environment);
            result.exit_code = Some(Outcome::Environment.code());
            result.error = Some(ResultError { message, hint: None });
        } else {
            console.notice(&message);
        }
    }
    console.finish(&result);
    result.outcome.unwrap_or(Outcome::Internal).into()
}

/// What a panic comes to, in words.
fn panicked(panic: &(dyn Any + Send)) -> (String, String) {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    let message = format!("spettro panicked: {}", text.unwrap_or("unknown"));
    (
        message,
        "this is a bug of spettro; what was written so far is kept, and `SPETTRO_LOG=debug` writes more to debug.log"
            .to_owned(),
    )
}

/// The one event of a run that never began: its end.
fn only_event(result: &RunResult) -> Record {
    Record {
        v: EVENT_VERSION,
        seq: 1,
        t: rfc3339(RealClock::new().now()),
        run: result.run_id.clone(),
        session: String::new(),
        fact: None,
        event: Event::RunFinished { result: Box::new(result.clone()) },
    }
}

/// The end of a run whose command line could not be read: what was asked for on stdout and with `-o` is there all
/// the same. `words` follow the verb.
pub fn misused(words: &[OsString], message: &str) -> Exit {
    let asked = output::asked(words);
    let mut paragraphs = message.split("\n\n");
    let first = paragraphs.next().unwrap_or_default();
    let message = first.strip_prefix("error: ").unwrap_or(first).trim().to_owned();
    let result = early(&run_id(), Outcome::Usage, message, Some("`spettro help run` lists the flags".to_owned()));
    let line = match asked.format {
        Format::Text => Ok(String::new()),
        Format::Json => serde_json::to_string(&result).map(|line| line + "\n"),
        Format::Jsonl => serde_json::to_string(&only_event(&result)).map(|line| line + "\n"),
    };
    // A closed pipe has seen enough.
    let _ = write!(std::io::stdout(), "{}", line.unwrap_or_default());
    if let Some(file) = asked.file
        && let Err(error) = output::write(&file, &result)
    {
        let _ = writeln!(std::io::stderr(), "error: write `{}`: {error}", file.display());
    }
    Outcome::Usage.into()
}

/// Why no run came to its end.
enum Stop {
    Failure(Failure),
    Problems(Vec<Problem>),
    /// `--dry-run` showed what it had to.
    Shown,
}

impl<E: Into<Failure>> From<E> for Stop {
    fn from(error: E) -> Self {
        Stop::Failure(error.into())
    }
}

fn run_id() -> String {
    use crate::world::Ids;
    match RealIds::random() {
        Ok(ids) => format!("run-{:016x}", ids.draw("run id")),
        Err(_) => format!("run-{}", std::process::id()),
    }
}

fn format(args: &RunArgs) -> Format {
    match args.format() {
        OutputFormat::Auto | OutputFormat::Text => Format::Text,
        OutputFormat::Jsonl => Format::Jsonl,
        OutputFormat::Json => Format::Json,
    }
}

fn look(args: &RunArgs, env: &dyn Env) -> Look {
    let colour = match args.color {
        Color::Auto => ColourChoice::Auto,
        Color::Always => ColourChoice::Always,
        Color::Never => ColourChoice::Never,
    };
    Look::decide(
        std::io::stderr().is_terminal(),
        std::io::stdout().is_terminal(),
        &|name| env.var(name),
        colour,
        args.quiet,
        args.verbose,
    )
}

/// The listener that shows events.
struct Shown(Rc<Console>);

impl Listener for Shown {
    fn event(&self, record: &Record) {
        self.0.event(record);
    }
}

/// An earlier session that this run goes on with.
struct Earlier {
    dir: PathBuf,
    /// That it was started in.
    workspace: String,
    lines: Vec<Line>,
    frozen: Box<Frozen>,
}

/// Everything up to the run's first await.
fn start(
    args: &RunArgs,
    dispositions: &Dispositions,
    env: &RealEnv,
    run_id: &str,
    console: &Rc<Console>,
) -> Result<RunResult, Stop> {
    if env.var("SPETTRO_RUN_ID").is_some() && !args.nested {
        return Err(Failure::usage("this is already inside a run of spettro")
            .hint("`--nested` allows a run inside a run")
            .into());
    }
    let log = Log::start(env)?;
    let home = home_dir(env).ok_or_else(|| {
        Failure::usage("there is no home directory to keep sessions in").hint("set `HOME` or `SPETTRO_HOME`")
    })?;
    let cwd = current_dir()?;
    let asked = args.asked().map_err(Stop::Problems)?;
    let overrides = args.overrides().map_err(Stop::Problems)?;
    let title = args.title().map_err(Stop::Problems)?;
    let session_root = match &args.session_dir {
        Some(dir) => cwd.join(dir),
        None => home.join("sessions"),
    };
    let store = Store::new(session_root.clone());
    let ids = RealIds::random().map_err(|error| Failure::new(Outcome::Environment, error))?;
    let mut world = World {
        transport: Rc::new(crate::model::Http::new()),
        exec: Rc::new(NoExec),
        dir: Rc::new(RealDir),
        clock: Rc::new(RealClock::new()),
        ids: Rc::new(ids),
        env: Rc::new(RealEnv),
    };

    // The configuration: stored, or read, or both.
    let given = match &asked {
        Asked::File(path) => Some(GoalSource::File(path.clone())),
        Asked::Stdin => Some(GoalSource::Stdin(read_stdin()?)),
        Asked::Prompt(text) => Some(GoalSource::Prompt(text.clone())),
        Asked::Stored => None,
    };
    let loaded = match &given {
        Some(source) => Some(load(source, &overrides, env, Some(&home), &cwd).map_err(Stop::Problems)?),
        None => None,
    };
    let named = args.workspace.as_ref().map(|folder| cwd.join(folder)).and_then(|folder| folder.canonicalize().ok());
    let workspace = match &loaded {
        Some(loaded) => loaded.config.workspace.clone(),
        None => named.unwrap_or_else(|| cwd.clone()),
    };
    let mut notes: Vec<String> = Vec::new();
    let earlier = match &args.resume {
        Some(wanted) => earlier(&world, &store, &workspace, wanted, loaded.as_ref(), args.resume_changed, &mut notes)?,
        None => {
            if let Some(loaded) = &loaded {
                unfinished(&world, &store, &loaded.config, &mut notes);
            }
            None
        }
    };
    let mut effective = match (loaded, &earlier) {
        (Some(loaded), _) => loaded,
        (None, Some(earlier)) => {
            let source = earlier.source();
            let mut loaded = load(&source, &overrides, env, Some(&home), &cwd).map_err(Stop::Problems)?;
            let plain = load(&source, &Overrides::default(), env, Some(&home), &cwd).map_err(Stop::Problems)?;
            if let Some(last) = last_limits(&earlier.lines) {
                // What an earlier resume was allowed stays allowed, unless this one says otherwise.
                loaded.config.limits = kept_limits(&loaded.config.limits, &plain.config.limits, last);
            }
            loaded
        }
        (None, None) => return Err(Failure::usage("no goal was given").into()),
    };
    if let Some(added) = args.added_cost().map_err(Stop::Problems)? {
        // To what the session had last: an earlier resume may have added to it too.
        let had = earlier.as_ref().and_then(|earlier| last_limits(&earlier.lines));
        let had = had.map_or(effective.config.limits.cost, |limits| limits.cost);
        effective.config.limits.cost = had.map(|limit| limit.saturating_add(added));
    }
    let mut config = effective.config;
    if let Some(earlier) = &earlier {
        // The goal's text was frozen at the session's start; what a resume may change are its limits.
        if config.goal != earlier.frozen.goal {
            notes.push("the goal's text is another one than at the session's start; the session keeps its own".into());
        }
        config.goal.clone_from(&earlier.frozen.goal);
        if config.workspace != Path::new(&earlier.workspace) {
            notes.push(format!(
                "the session was started in `{}` and goes on in `{}`",
                earlier.workspace,
                config.workspace.display()
            ));
        }
    }

    let frozen = earlier.as_ref().map(|earlier| FrozenModels {
        endpoints: &earlier.frozen.endpoints,
        learned_window: session::fold(&earlier.lines).window_tokens,
        config: Box::new(|| Ok(load(&earlier.source(), &Overrides::default(), env, Some(&home), &cwd)?.config)),
    });
    let models = models(&config, frozen.as_ref(), env, &mut notes)?;
    drop(frozen);
    let secrets = secrets(&config, [Some(&models.agent), models.judge.as_ref(), Some(&models.summarizer)], env);
    log.hide(secrets.clone());

    // Before threads, runtime and TLS: the helper that starts commands.
    let signals = Signals::install(dispositions)?;
    let workspace = config.workspace.clone();
    let temporary = tempfile::Builder::new()
        .prefix("spettro-")
        .tempdir()
        .map_err(|error| Failure::new(Outcome::Environment, format!("make a temporary folder: {error}")))?;
    let keys: Vec<String> = key_names([Some(&models.agent), models.judge.as_ref(), Some(&models.summarizer)]);
    let child =
        process::child_environment(&env.vars(), &config.env, &keys, &secrets, &workspace, run_id, temporary.path());
    notes.extend(sweep_crashed(&world, &store, &secrets));
    let exec = process::start(ProcessOptions {
        environment: child.vars,
        secrets: secrets.clone(),
        run_id: run_id.to_owned(),
        keep_leftovers: config.leftovers_run,
        ..ProcessOptions::default()
    })?;
    world.exec = exec.clone();
    world.transport = models.transport;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Outcome::Environment, format!("start the runtime: {error}")))?;
    let local = tokio::task::LocalSet::new();
    if args.dry_run {
        let dry = DryRun {
            world,
            config: &config,
            endpoint: &models.agent,
            removed: child.removed,
            secrets,
            home: &home,
            session_root: &session_root,
            run_id,
        };
        let preview = local.block_on(&runtime, dry.look(signals))?;
        for note in notes.iter().chain(&preview.notes) {
            console.notice(note);
        }
        dry_run::show(&preview, format(args), &mut std::io::stdout())
            .map_err(|error| Failure::new(Outcome::Internal, error))?;
        return Err(Stop::Shown);
    }
    let place = Place { home, session_root, store };
    let begun: Begun = Rc::default();
    let go = Go {
        args,
        begun: begun.clone(),
        world: world.clone(),
        exec,
        place,
        config,
        agent: models.agent,
        judge: models.judge,
        summarizer: models.summarizer,
        earlier,
        notes,
        run_id,
        console: console.clone(),
        removed: child.removed,
        secrets,
        title,
        log,
    };
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| local.block_on(&runtime, go.drive(signals))));
    match ended {
        Ok(result) => Ok(result?),
        Err(panic) => {
            // One teardown serves a panic too: nothing that was started may live on.
            let leaked = runtime.block_on(world.exec.shutdown(std::time::Duration::from_secs(5)));
            match begun.take() {
                Some((session, resume)) => Ok(broken_off(&session, resume, run_id, &*panic, leaked)),
                None => std::panic::resume_unwind(panic),
            }
        }
    }
}

pub fn current_dir() -> Result<PathBuf, Failure> {
    std::env::current_dir()
        .map_err(|error| Failure::new(Outcome::Environment, format!("find the current directory: {error}")))
}

fn read_stdin() -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| Failure::usage(format!("read the goal from stdin: {error}")))?;
    Ok(text)
}

/// The session to go on with; `None` for `auto` when there is none.
fn earlier(
    world: &World,
    store: &Store,
    workspace: &Path,
    wanted: &str,
    loaded: Option<&Effective>,
    changed_allowed: bool,
    notes: &mut Vec<String>,
) -> Result<Option<Earlier>, Failure> {
    let dir = if wanted == "auto" {
        let Some(loaded) = loaded else {
            return Err(Failure::usage("`--resume auto` needs a goal").hint("name the goal file too"));
        };
        let digest = goal_digest(&loaded.config.goal);
        let (listed, broken) = store.list(world, workspace);
        notes.extend(broken);
        let fits = listed.into_iter().find(|session| {
            session.goal_name == loaded.config.name
                && session.goal_digest == digest
                && session.outcome != Some(Outcome::Met)
        });
        match fits {
            Some(session) => session.dir,
            None => return Ok(None),
        }
    } else {
        store.find(world, workspace, wanted)?
    };
    let (header, lines) = Session::read(&dir)?;
    let state = session::fold(&lines);
    if state.ends.last().is_some_and(|end| end.outcome == Outcome::Met) {
        return Err(Failure::usage(format!("session `{}` is met already", header.id))
            .hint("start a new run without `--resume`"));
    }
    let Some(frozen) = state.frozen else {
        return Err(Failure::new(
            Outcome::Unusable,
            format!("session `{}` ended before it began; nothing to resume", header.id),
        ));
    };
    if let Some(loaded) = loaded
        && goal_digest(&loaded.config.goal) != frozen.goal_digest
        && !changed_allowed
    {
        return Err(Failure::usage(format!("the goal's text differs from that of session `{}`", header.id))
            .hint("`--resume-changed` goes on with the session's own text, or start anew without `--resume`"));
    }
    if let Some(loaded) = loaded
        && loaded.config.digest != frozen.config_digest
    {
        notes.push("the configuration differs from the one the session was started with".to_owned());
    }
    Ok(Some(Earlier { dir, workspace: header.workspace, lines, frozen }))
}

impl Earlier {
    /// The configuration that the session was started with.
    fn source(&self) -> GoalSource {
        let goal_file = self.frozen.goal_file.as_ref().map(PathBuf::from);
        GoalSource::Stored { yaml: self.frozen.config.clone(), goal_file }
    }
}

/// The limits of a resume without a goal file: those that were `asked` for now, else those of the `last` run.
/// `stored` are the ones that the session was started with.
fn kept_limits(asked: &Limits, stored: &Limits, last: &Limits) -> Limits {
    fn kept<T: PartialEq + Copy>(asked: T, stored: T, last: T) -> T {
        if asked == stored { last } else { asked }
    }
    Limits {
        iterations: kept(asked.iterations, stored.iterations, last.iterations),
        steps: kept(asked.steps, stored.steps, last.steps),
        steps_per_iteration: kept(asked.steps_per_iteration, stored.steps_per_iteration, last.steps_per_iteration),
        cost: kept(asked.cost, stored.cost, last.cost),
        tokens: kept(asked.tokens, stored.tokens, last.tokens),
        time_ms: kept(asked.time_ms, stored.time_ms, last.time_ms),
        idle_ms: kept(asked.idle_ms, stored.idle_ms, last.idle_ms),
        command_ms: kept(asked.command_ms, stored.command_ms, last.command_ms),
        stall: kept(asked.stall, stored.stall, last.stall),
        consecutive_errors: kept(asked.consecutive_errors, stored.consecutive_errors, last.consecutive_errors),
    }
}

/// The limits of a session's last run.
fn last_limits(lines: &[Line]) -> Option<&Limits> {
    lines.iter().rev().find_map(|line| match &line.fact {
        Fact::Run(run) => Some(&run.limits),
        _ => None,
    })
}

/// One line about an unfinished session of the same goal.
fn unfinished(world: &World, store: &Store, config: &Config, notes: &mut Vec<String>) {
    let (listed, _) = store.list(world, &config.workspace);
    let digest = goal_digest(&config.goal);
    let found = listed.into_iter().find(|session| {
        session.goal_name == config.name
            && session.goal_digest == digest
            && !session.running
            && session.outcome != Some(Outcome::Met)
    });
    if let Some(session) = found {
        notes.push(format!("an unfinished session of this goal: {} (`--resume auto` goes on with it)", session.id));
    }
}

fn key_names<'a>(endpoints: impl IntoIterator<Item = Option<&'a Endpoint>>) -> Vec<String> {
    let mut names: Vec<String> = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"]
        .iter()
        .map(|name| (*name).to_owned())
        .collect();
    for endpoint in endpoints.into_iter().flatten() {
        if let KeySource::Env(of) = &endpoint.key {
            names.extend(of.iter().cloned());
        }
    }
    names.sort();
    names.dedup();
    names
}

/// The values that may appear nowhere: keys in use, variables that look like secrets, and those under `redact`.
pub(super) fn secrets<'a>(
    config: &Config,
    endpoints: impl IntoIterator<Item = Option<&'a Endpoint>>,
    env: &dyn Env,
) -> Secrets {
    let keys = key_names(endpoints);
    let values = env
        .vars()
        .into_iter()
        .filter(|(name, _)| keys.contains(name) || config.redact.contains(name) || process::looks_secret(name));
    Secrets::new(values)
}

struct Place {
    home: PathBuf,
    session_root: PathBuf,
    store: Store,
}

/// The session of a run, and the command that resumes it, once there is one.
type Begun = Rc<RefCell<Option<(Session, Vec<String>)>>>;

/// A run that is about to start.
struct Go<'a> {
    args: &'a RunArgs,
    begun: Begun,
    world: World,
    /// The world's `Exec`.
    exec: Rc<Process>,
    place: Place,
    config: Config,
    agent: Endpoint,
    judge: Option<Endpoint>,
    summarizer: Endpoint,
    earlier: Option<Earlier>,
    notes: Vec<String>,
    run_id: &'a str,
    console: Rc<Console>,
    /// Variables that children do not see.
    removed: Vec<String>,
    secrets: Secrets,
    title: Option<String>,
    log: Log,
}

impl Go<'_> {
    async fn drive(self, signals: Signals) -> Result<RunResult, Failure> {
        let Go { args, world, exec, place, config, agent, judge, summarizer, earlier, .. } = self;
        let Go { mut notes, run_id, console, removed, secrets, title, log, .. } = self;
        let project = config.workspace.clone();
        let lock = match config.workspace_mode {
            WorkspaceMode::InPlace => Some(WorkspaceLock::take(&world, &place.home, &project, run_id).await?),
            WorkspaceMode::Copy => None,
        };
        let shown: Rc<dyn Listener> = Rc::new(Shown(console.clone()));
        let ephemeral = if args.ephemeral {
            let folder = tempfile::Builder::new()
                .prefix("spettro-session-")
                .tempdir()
                .map_err(|error| Failure::new(Outcome::Environment, format!("make a private folder: {error}")))?;
            Some(folder)
        } else {
            None
        };
        let store = match &ephemeral {
            Some(folder) => Store::new(folder.path().to_owned()),
            None => place.store,
        };
        let (session, lines) = match &earlier {
            Some(earlier) => {
                let opened = Session::open(&world, &earlier.dir, run_id, vec![shown]).await?;
                notes.extend(opened.notes);
                let lines =
                    if opened.lines.len() >= earlier.lines.len() { opened.lines } else { earlier.lines.clone() };
                (opened.session, lines)
            }
            None => {
                let id = Store::new_id(&world);
                (Session::create(&world, &store, &project, &id, run_id, vec![shown])?, Vec::new())
            }
        };
        log.keep(session.dir().join("debug.log"));
        if ephemeral.is_none() {
            // By it the next start finds what this run leaves should it be killed.
            if let Err(error) = exec.open_ledger(&session.dir()) {
                return Ok(not_begun(&world, &session, run_id, error.into(), earlier.is_none()).await);
            }
        }
        let copy = match config.workspace_mode {
            WorkspaceMode::InPlace => None,
            WorkspaceMode::Copy => {
                let to = place.home.join("workspaces").join(session.id());
                match copy(&world, &to, &project, earlier.is_some(), &mut notes) {
                    Ok(copy) => Some(copy),
                    Err(failure) => return Ok(not_begun(&world, &session, run_id, failure, earlier.is_none()).await),
                }
            }
        };
        let roots = Roots::same(copy.clone().unwrap_or_else(|| project.clone()));
        let mut own = own_dirs(&place.home, &place.session_root, &roots.real);
        own.push(session.dir());
        let halt = Halt::new();
        let console_tick = console.clone();
        let session_id = session.id();
        let mut resume = vec!["spettro".to_owned(), "run".to_owned(), "--resume".to_owned(), session_id.clone()];
        if args.session_dir.is_some() {
            // Absolute: the command works from any folder.
            resume.extend(["--session-dir".to_owned(), place.session_root.to_string_lossy().into_owned()]);
        }
        if ephemeral.is_none() {
            self.begun.replace(Some((session.clone(), resume.clone())));
        }
        notes.extend(removed_note(&removed));
        let desk = Desk {
            world: world.clone(),
            session: session.clone(),
            halt: halt.clone(),
            steering: Rc::default(),
            secrets: secrets.clone(),
            run: run_id.to_owned(),
        };
        let steering = desk.steering.clone();
        let parts = RunParts {
            world: world.clone(),
            halt,
            session: session.clone(),
            lines,
            config: Rc::new(config),
            endpoint: agent,
            judge,
            summarizer,
            title,
            roots,
            run: run_id.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            copy,
            sandbox: NO_SANDBOX.to_owned(),
            own_dirs: own,
            deltas: args.deltas || args.verbose > 0,
            resume: if ephemeral.is_some() { Vec::new() } else { resume },
            steering: steering.clone(),
            notes,
            removed,
            secrets,
            tick: Rc::new(move |since| console_tick.tick(since)),
            summarize: summary_markdown,
        };
        let mut signals = Some(signals);
        let result = match Run::prepare(parts, &mut signals).await {
            Ok(run) if ephemeral.is_some() => run.drive(signals).await,
            Ok(run) => {
                // What is asked becomes facts, and those come after the ones that begin a run.
                tokio::select! {
                    biased;
                    result = run.drive(signals) => result,
                    never = serve(desk) => match never {},
                }
            }
            Err(cause) => give_up(&world, &session, run_id, cause, earlier.is_none()).await,
        };
        let undelivered = steering.borrow().len();
        if undelivered > 0 {
            let messages = if undelivered == 1 { "message" } else { "messages" };
            console
                .notice(&format!("{undelivered} steering {messages} did not reach the agent; a resume delivers them"));
        }
        drop(lock);
        Ok(result)
    }
}

/// Listens for other processes. A run that cannot be talked to is still a run: it says so and goes on.
async fn serve(desk: Desk) -> Infallible {
    let session = desk.session.clone();
    let why = match Server::listen(desk) {
        Ok(server) => match session.name_socket(server.socket()) {
            Ok(()) => match server.serve().await {},
            Err(error) => error.to_string(),
        },
        Err(error) => error.to_string(),
    };
    let text = format!("`steer`, `stop` and `jobs` cannot reach this run: {why}");
    if let Err(error) = session.append(Fact::Notice { code: "no_control".to_owned(), text }) {
        // The loop meets the same error, and ends the run with it.
        tracing::error!(%error, "a notice cannot be logged");
    }
    std::future::pending().await
}

/// A run that could not begin: nothing was asked of a model, so nothing but its folder is left, and that goes too.
/// A session that was there before stays, with this end in its log.
async fn give_up(world: &World, session: &Session, run_id: &str, cause: Cause, fresh: bool) -> RunResult {
    let leaked = world.exec.shutdown(std::time::Duration::from_secs(5)).await;
    let mut result = early(run_id, cause.outcome, cause.message, cause.hint);
    result.retryable = cause.retryable;
    let end = session::End { run: run_id.to_owned(), outcome: cause.outcome, result: Box::new(result.clone()), leaked };
    if let Err(error) = session.append(Fact::End(Box::new(end))) {
        tracing::error!(%error, "the end cannot be logged");
    }
    if !fresh && let Err(error) = session.write_result(&result, &summary_markdown(&result)) {
        tracing::error!(%error, "result.json cannot be written");
    }
    if fresh && let Err(error) = session.clone().discard() {
        tracing::warn!(%error, "the unused session cannot be removed");
    }
    result
}

/// The end of a run that panicked: the session is there, and can be gone on with.
fn broken_off(
    session: &Session,
    resume: Vec<String>,
    run_id: &str,
    panic: &(dyn Any + Send),
    leaked: Vec<Leaked>,
) -> RunResult {
    let (message, hint) = panicked(panic);
    let dir = session.dir();
    let shown = |name: &str| dir.join(name).to_string_lossy().into_owned();
    let mut result = RunResult {
        session_id: Some(session.id()),
        leaked: leaked.clone(),
        paths: Some(Paths {
            session: dir.to_string_lossy().into_owned(),
            result: shown("result.json"),
            summary: shown("summary.md"),
            events: shown("events.jsonl"),
            copy: None,
        }),
        commands: Commands { resume: Some(resume), ..Commands::default() },
        ..early(run_id, Outcome::Internal, message, Some(hint))
    };
    // What the session has cost stands in its log.
    match Session::read(&dir) {
        Ok((_, lines)) => {
            let state = session::fold(&lines);
            result.iterations = state.iteration;
            if let Some(run) = state.runs.last() {
                let ledger = Ledger::fold(&run.limits, &state.calls);
                result.steps = ledger.calls(Lane::Agent);
                result.total_cost_usd = ledger.spent().dollars();
                result.usage_by_lane = ledger.by_lane().clone();
            }
        }
        Err(error) => tracing::error!(%error, "the log cannot be read"),
    }
    let end =
        session::End { run: run_id.to_owned(), outcome: Outcome::Internal, result: Box::new(result.clone()), leaked };
    // What panicked may do so again on the way: the other steps are made all the same.
    session.spool().flush(std::time::Duration::from_secs(3));
    let steps: [&dyn Fn() -> Result<(), SessionError>; 4] = [
        &|| session.tell_spool(),
        &|| session.append(Fact::End(Box::new(end.clone()))).map(|_| ()),
        &|| session.write_result(&result, &summary_markdown(&result)),
        &|| session.save_derived(),
    ];
    for step in steps {
        if let Ok(Err(error)) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(step)) {
            tracing::error!(%error, "the end cannot be written");
        }
    }
    result
}

/// The end of a run of which something went wrong while it was put together; see [`give_up`].
async fn not_begun(world: &World, session: &Session, run_id: &str, failure: Failure, fresh: bool) -> RunResult {
    let cause = Cause { hint: failure.hint, ..Cause::new(failure.outcome, failure.message) };
    give_up(world, session, run_id, cause, fresh).await
}

/// The private copy of a project, made at the session's first run and kept. A resume needs that one: in another the
/// agent's work would be missing, of which it takes to be there.
fn copy(world: &World, to: &Path, project: &Path, resumed: bool, notes: &mut Vec<String>) -> Result<PathBuf, Failure> {
    if !resumed {
        notes.extend(crate::workspace::copy(world, project, to)?);
    } else if !to.is_dir() {
        return Err(Failure::new(Outcome::Unusable, format!("the session's copy `{}` is gone", to.display()))
            .hint("what was done in it cannot be gone on with: start anew without `--resume`"));
    }
    Ok(to.to_owned())
}

/// How many variables children do not see, and how to let one through.
fn removed_note(removed: &[String]) -> Option<String> {
    if removed.is_empty() {
        return None;
    }
    let count = removed.len();
    Some(format!("{count} variables that look like secrets are kept from commands (`env.pass` lets one through)"))
}
