//! `spettro run`: from flags to a driven run, and from its result to output and exit code.

mod broken;
mod drive;
mod earlier;
mod record;
mod secret;
mod stuck;

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

pub use self::broken::misused;
use self::broken::{broken_off, only_event, panicked};
use self::drive::{Begun, Go, Place};
pub(super) use self::earlier::last_limits;
use self::earlier::{earlier, kept_limits, unfinished};
pub(super) use self::secret::{key_names, secrets};
use self::stuck::Known;
use super::args::{Asked, Color, OutputFormat, RunArgs};
use super::confine::{self, Ground};
use super::crashed::sweep_crashed;
use super::dry_run::{self, DryRun};
use super::failure::Failure;
use super::lanes::NoExec;
use super::logging::Log;
use super::models::{Frozen as FrozenModels, models};
use super::output;
use super::streams::Data;
use crate::event::{Outcome, ResultError, RunResult};
use crate::goal::{Config, GoalSource, Overrides, Problem, early, load, refused};
use crate::process::{self, Dispositions, ProcessOptions, Signals, Watchdog};
use crate::report::{ColourChoice, Console, Format, Look};
use crate::session::{self, Store};
use crate::world::{Env, RealClock, RealDir, RealEnv, RealIds, World, home_dir};

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
    // A dry run writes no result.
    let replaced = file.filter(|_| !args.dry_run).map_or(Ok(()), |file| output::begin(file, &run_id));
    let checked = checked.and(replaced);
    let started = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        checked?;
        let known = Arc::new(Known::new(&run_id, format(args), file.map(Path::to_owned)));
        start(args, dispositions, &env, &known, &console)
    }));
    let began = matches!(started, Ok(Ok(_)));
    let mut result = match started {
        Ok(Ok(result)) => result,
        Ok(Err(Stop::Failure(failure))) => early(&run_id, failure.outcome, failure.message, failure.hint),
        Ok(Err(Stop::Problems(problems))) => refused(&run_id, &problems),
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

/// Everything up to the run's first await.
fn start(
    args: &RunArgs,
    dispositions: &Dispositions,
    env: &RealEnv,
    known: &Arc<Known>,
    console: &Rc<Console>,
) -> Result<RunResult, Stop> {
    let run_id = known.run();
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
    if let Some(file) = &args.cassette {
        record::check(file)?;
    }
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
    if let Some(doubt) = args.trust.doubt(effective.untrusted).map_err(Stop::Problems)? {
        doubt.settle(config.goal_file.as_deref())?.map_err(Stop::Problems)?;
    }
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

    let frozen = earlier.as_ref().map(|earlier| {
        let state = session::fold(&earlier.lines);
        FrozenModels {
            endpoints: &earlier.frozen.endpoints,
            learned_window: state.window_tokens,
            lost: state.lost_calls(),
            config: Box::new(|| Ok(load(&earlier.source(), &Overrides::default(), env, Some(&home), &cwd)?.config)),
        }
    });
    let models = models(&config, frozen.as_ref(), env, run_id, &mut notes)?;
    drop(frozen);
    let secrets = secrets(&config, [Some(&models.agent), models.judge.as_ref(), Some(&models.summarizer)], env);
    models.keys.hide_in(&secrets);
    log.hide(secrets.clone());

    // Before threads, runtime and TLS: the helper that starts commands.
    let signals = Signals::install(dispositions)?;
    let workspace = config.workspace.clone();
    let stores = vec![home.clone(), session_root.clone()];
    let temporary = confine::temporary_folder(&stores)?;
    let keys: Vec<String> = key_names([Some(&models.agent), models.judge.as_ref(), Some(&models.summarizer)]);
    let child =
        process::child_environment(&env.vars(), &config.env, &keys, &secrets, &workspace, run_id, temporary.path());
    let child_path = child.vars.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.clone());
    notes.extend(sweep_crashed(&world, &store, &secrets));
    let exec = process::start(ProcessOptions {
        environment: child.vars,
        git_environment: child.git,
        secrets: secrets.clone(),
        run_id: run_id.to_owned(),
        keep_leftovers: config.leftovers_run,
        ..ProcessOptions::default()
    })?;
    needs_bash(child_path.as_deref(), &config)?;
    let ground = Ground {
        stores,
        keys: confine::key_places(&config),
        temporary: temporary.path().to_owned(),
        pretended_abi: args.pretend_landlock,
    };
    // What cannot be kept is known before anything is made; where everything is, only once the session is there.
    let policy = ground.policy(&config, &workspace, None)?;
    let level = confine::confine(&exec, &policy)?;
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
            temporary: temporary.path(),
            sandbox: level.to_string(),
            run_id,
        };
        let preview = local.block_on(&runtime, dry.look(signals))?;
        for note in notes.iter().chain(&preview.notes) {
            console.notice(note);
        }
        dry_run::show(&preview, format(args), &mut Data::new(std::io::stdout()))?;
        return Err(Stop::Shown);
    }
    let limit = config.limits.time_ms.map(Duration::from_millis);
    let last = known.clone();
    let watchdog = Watchdog::start(limit, Box::new(move |outcome| last.last_words(outcome)))?;
    let place = Place { home, session_root, store };
    let begun: Begun = Rc::default();
    let go = Go {
        args,
        begun: begun.clone(),
        known: known.clone(),
        watchdog: watchdog.clone(),
        world: world.clone(),
        exec,
        ground,
        place,
        config,
        agent: models.agent,
        judge: models.judge,
        summarizer: models.summarizer,
        keys: models.keys,
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
    watchdog.off();
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

/// Refuses to begin what needs `bash` where there is none. `path`: the search path of commands.
fn needs_bash(path: Option<&str>, config: &Config) -> Result<(), Failure> {
    let named = |list: &[String]| list.iter().any(|tool| tool == "bash");
    let offered = config.tools_allow.as_deref().is_none_or(named) && !named(&config.tools_deny);
    let checked = config.checks.iter().any(|check| check.run.argv.first().is_some_and(|program| program == "bash"));
    let Some(path) = path.filter(|_| offered || checked) else { return Ok(()) };
    let executable = |folder: &Path| rustix::fs::access(folder.join("bash"), rustix::fs::Access::EXEC_OK).is_ok();
    if std::env::split_paths(path).any(|folder| executable(&folder)) {
        return Ok(());
    }
    Err(Failure::new(Outcome::Environment, format!("there is no `bash` in `{path}`"))
        .hint("install it: commands and checks need it; `PATH` says where it is looked for"))
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
