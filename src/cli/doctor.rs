//! `spettro doctor`: what a run would find on this machine. Nothing is sent anywhere, unless it is asked to speak to
//! the models.

mod live;

use std::io::{IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;

use super::args::DoctorArgs;
use super::confine::{self, Ground};
use super::failure::Failure;
use super::run::current_dir;
use crate::event::Outcome;
use crate::goal::{Effective, GoalSource, Overrides, Setting, load};
use crate::model::key_variables;
use crate::process::sandbox::{KeyPlaces, Missing, Network, Wanted};
use crate::process::{self, EnvPolicy, Process, ProcessOptions};
use crate::report::clean_line;
use crate::workspace::repository_top;
use crate::world::{Command, CommandKind, Ending, Env, Exec, KeyAt, RealEnv, Secrets, home_dir};

/// Below it a session soon cannot be written any more.
const LEAST_FREE_BYTES: u64 = 64 << 20;
const LITTLE_FREE_BYTES: u64 = 1 << 30;
/// A question to git or bash.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Ok,
    /// Runs can start; something is less than it could be.
    Note,
    /// Runs cannot start.
    Fail,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Item {
    name: String,
    state: State,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

/// A guarantee of the sandbox, and whether this kernel gives it.
#[derive(Debug, Serialize)]
struct Promise {
    guarantee: &'static str,
    needs: &'static str,
    kept: bool,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    items: Vec<Item>,
    sandbox: Vec<Promise>,
    /// Of `--live`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    live: Vec<live::Spoken>,
}

impl Report {
    fn add(&mut self, name: &str, state: State, text: impl Into<String>, hint: Option<&str>) {
        let hint = hint.map(str::to_owned);
        self.items.push(Item { name: name.to_owned(), state, text: text.into(), hint });
    }
}

/// Looks, and says what it saw: 0, or 23 when something is missing that runs need.
///
/// # Errors
/// When `out` cannot be written, and, with `live`, when a goal file or flags name no models.
pub fn doctor(args: &DoctorArgs, out: &mut dyn Write, err: &mut dyn Write) -> Result<Outcome, Failure> {
    let env = RealEnv;
    let cwd = current_dir()?;
    let mut report = Report::default();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let system = format!("{} {} on {}", std::env::consts::OS, kernel.trim(), std::env::consts::ARCH);
    report.add("spettro", State::Ok, format!("{}, {system}", env!("CARGO_PKG_VERSION")), None);
    let home = home_dir(&env);
    stores(&mut report, home.as_deref(), &cwd);
    commands(&mut report, home.as_deref(), &cwd, &env)?;
    let seen = std::io::stderr().is_terminal();
    report.add("terminal", State::Ok, if seen { "stderr is one" } else { "none: lines are written" }, None);
    keys(&mut report, home.as_deref(), &cwd, &env);
    if args.live {
        live::live(&mut report, args, home.as_deref(), &cwd, err)?;
    }

    let failed = report.items.iter().any(|item| item.state == State::Fail);
    if args.json {
        let line = serde_json::to_string(&report).map_err(|error| Failure::new(Outcome::Internal, error))?;
        writeln!(out, "{line}")?;
    } else {
        write(&report, out)?;
    }
    Ok(if failed { Outcome::Environment } else { Outcome::Met })
}

fn write(report: &Report, out: &mut dyn Write) -> std::io::Result<()> {
    for item in &report.items {
        let state = match item.state {
            State::Ok => "ok",
            State::Note => "note",
            State::Fail => "FAIL",
        };
        writeln!(out, "{state:<5} {:<12} {}", item.name, clean_line(&item.text))?;
        if let Some(hint) = &item.hint {
            writeln!(out, "{:<18} hint: {}", "", clean_line(hint))?;
        }
        if item.name == "sandbox" {
            for promise in &report.sandbox {
                let kept = if promise.kept { "yes" } else { "no" };
                writeln!(out, "{:<18} {kept:<4} {} ({})", "", promise.guarantee, promise.needs)?;
            }
        }
    }
    Ok(())
}

/// Whether sessions can be kept, and for how long there is room.
fn stores(report: &mut Report, home: Option<&Path>, cwd: &Path) {
    let Some(home) = home else {
        let hint = "set `HOME` or `SPETTRO_HOME`";
        report.add("home", State::Fail, "there is no home directory to keep sessions in", Some(hint));
        return;
    };
    // What is not there yet is made in what is.
    let there = home.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    match rustix::fs::access(there, rustix::fs::Access::WRITE_OK) {
        Ok(()) => report.add("home", State::Ok, home.display().to_string(), None),
        Err(error) => {
            let hint = "`SPETTRO_HOME` names another folder";
            report.add("home", State::Fail, format!("`{}` cannot be written: {error}", there.display()), Some(hint));
        }
    }
    for (what, folder) in [("sessions", there), ("workspace", cwd)] {
        let Ok(disk) = rustix::fs::statvfs(folder) else { continue };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let state = match free {
            0..LEAST_FREE_BYTES => State::Fail,
            LEAST_FREE_BYTES..LITTLE_FREE_BYTES => State::Note,
            _ => State::Ok,
        };
        let text = format!("{} MiB free for the {what} (`{}`)", free >> 20, folder.display());
        report.add("disk", state, text, (state != State::Ok).then_some("free some space"));
    }
}

/// What needs commands to be started: the helper, the sandbox, bash, git.
fn commands(report: &mut Report, home: Option<&Path>, cwd: &Path, env: &RealEnv) -> Result<(), Failure> {
    let stores: Vec<PathBuf> = home.iter().map(|home| (*home).to_owned()).collect();
    let temporary = confine::temporary_folder(&stores)?;
    let secrets = Secrets::new(env.vars().into_iter().filter(|(name, _)| process::looks_secret(name)));
    let policy = EnvPolicy::default();
    let child = process::child_environment(&env.vars(), &policy, &[], &secrets, cwd, "doctor", temporary.path());
    let options = ProcessOptions {
        environment: child.vars,
        git_environment: child.git,
        secrets,
        run_id: "doctor".to_owned(),
        ..ProcessOptions::default()
    };
    let exec = match process::start(options) {
        Ok(exec) => exec,
        Err(error) => {
            report.add("processes", State::Fail, error.to_string(), None);
            return Ok(());
        }
    };
    containment(report);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ask = |argv: &[&str]| runtime.block_on(ask(&exec, argv, cwd));
    match ask(&["bash", "-c", "exit 0"]) {
        Some((0, _)) => report.add("bash", State::Ok, "starts", None),
        _ => report.add("bash", State::Fail, "cannot be started", Some("install bash: commands and checks need it")),
    }
    git(report, cwd, &ask);
    let keys = KeyPlaces::default();
    let ground = Ground { stores, keys, temporary: temporary.path().to_owned(), pretended_abi: None };
    sandbox(report, &exec, &ground, cwd);
    runtime.block_on(exec.shutdown(Duration::from_secs(2)));
    Ok(())
}

/// Status and output of a command; `None` when it did not come to an end of its own.
async fn ask(exec: &Rc<Process>, argv: &[&str], cwd: &Path) -> Option<(i32, String)> {
    let command = Command {
        kind: CommandKind::Git,
        argv: argv.iter().map(|part| (*part).to_owned()).collect(),
        cwd: cwd.to_owned(),
        env: vec![("LC_ALL".to_owned(), "C".to_owned()), ("GIT_OPTIONAL_LOCKS".to_owned(), "0".to_owned())],
        timeout: Some(PATIENCE),
        grace: Duration::from_secs(1),
        keep_bytes: 64 << 10,
        label: argv.first().copied().unwrap_or_default().to_owned(),
    };
    let finished = exec.run(command).await.ok()?;
    match finished.ending {
        Ending::Exited(status) => Some((status, String::from_utf8_lossy(&finished.output.head).trim().to_owned())),
        _ => None,
    }
}

/// How surely a run's processes end with it.
fn containment(report: &mut Report) {
    if !cfg!(target_os = "linux") {
        let hint = "run it in a Linux container where nothing may be left behind";
        report.add("processes", State::Note, "process groups: what leaves its group is not found", Some(hint));
        return;
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    let nested = numbers.split_whitespace().count() > 1 || rustix::process::getpid().as_raw_nonzero().get() == 1;
    let namespace = if nested { "; in a pid namespace" } else { "" };
    report.add("processes", State::Ok, format!("a supervisor for each command ends its whole tree{namespace}"), None);
}

/// Runs a command: its exit status and what it printed.
type Ask<'a> = &'a dyn Fn(&[&str]) -> Option<(i32, String)>;

fn git(report: &mut Report, cwd: &Path, ask: Ask<'_>) {
    let quiet = ["git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"];
    let ask = |args: &[&str]| ask(&[&quiet[..], args].concat());
    let Some((0, version)) = ask(&["--version"]) else {
        let hint = "install git: changes, progress and patches of a repository come from it";
        report.add("git", State::Note, "is not installed", Some(hint));
        return;
    };
    let Some(top) = repository_top(cwd) else {
        report.add("git", State::Ok, format!("{version}; no repository here"), None);
        return;
    };
    let text = format!("{version}; repository `{}`", top.display());
    let foreign = top.metadata().is_ok_and(|data| data.uid() != rustix::process::geteuid().as_raw());
    match ask(&["rev-parse", "--is-shallow-repository"]) {
        Some((0, _)) if foreign => {
            let hint = "runs tell git that this folder is safe; other programs may refuse it";
            report.add("git", State::Note, format!("{text}, which belongs to another user"), Some(hint));
        }
        Some((0, shallow)) if shallow == "true" => {
            let depth = ask(&["rev-list", "--count", "HEAD"]).map(|(_, count)| count).unwrap_or_default();
            let hint = "`git fetch --unshallow` (in CI `fetch-depth: 0`) gives the agent the history";
            report.add("git", State::Note, format!("{text}, shallow ({depth} commits)"), Some(hint));
        }
        Some((0, _)) => report.add("git", State::Ok, text, None),
        Some((_, why)) => {
            let first = why.lines().next().unwrap_or("no answer").to_owned();
            let hint = "without an answer of git, changes and progress are told from file contents alone";
            report.add("git", State::Note, format!("{text}: {first}"), Some(hint));
        }
        None => report.add("git", State::Note, format!("{text}: no answer"), None),
    }
}

/// The level that a run here gets by itself, and each guarantee with the kernel that it needs.
fn sandbox(report: &mut Report, exec: &Rc<Process>, ground: &Ground, cwd: &Path) {
    let everything = Wanted { network: Network::Ports(vec![443]), ..Wanted::default() };
    let probed = ground.wanted(&everything, None, cwd).and_then(|policy| Ok(exec.confine(&policy)?));
    if let Ok(level) = &probed {
        report.sandbox = Missing::ALL
            .into_iter()
            .map(|missing| Promise {
                guarantee: missing.name(),
                needs: missing.needs(),
                kept: !level.missing.contains(&missing),
            })
            .collect();
    }
    let usual = ground.wanted(&Wanted::default(), None, cwd).and_then(|policy| Ok(exec.confine(&policy)?));
    match usual {
        Ok(level) if level.missing.is_empty() => report.add("sandbox", State::Ok, level.to_string(), None),
        Ok(level) => {
            let hint = "runs start all the same, unless `sandbox:` is written; a newer kernel gives the rest";
            report.add("sandbox", State::Note, level.to_string(), Some(hint));
        }
        Err(failure) => {
            let Failure { message, hint, .. } = failure;
            report.add("sandbox", State::Note, format!("not here: {message}"), hint.as_deref());
        }
    }
}

/// Keys and endpoints, by name.
fn keys(report: &mut Report, home: Option<&Path>, cwd: &Path, env: &RealEnv) {
    let state = |name: &str| match env.var(name) {
        None => "missing",
        Some(value) if value.trim().is_empty() => "empty",
        Some(_) => "set",
    };
    // A goal of no matter, so that the user's own configuration is read as a run reads it.
    let setting =
        |key: &str, value: &str| Setting { flag: format!("--set {key}"), key: key.to_owned(), value: value.to_owned() };
    let overrides = Overrides { settings: vec![setting("model", "none/none")], ..Overrides::default() };
    let loaded = load(&GoalSource::Prompt("none".to_owned()), &overrides, env, home, cwd);
    let providers = match loaded {
        Ok(Effective { config, .. }) => config.providers,
        Err(problems) => {
            for problem in problems {
                report.add("config", State::Fail, problem.to_string().replace('\n', " "), problem.hint.as_deref());
            }
            Default::default()
        }
    };
    for (provider, names) in key_variables() {
        let states: Vec<String> = names.iter().map(|name| format!("{name} {}", state(name))).collect();
        let any = names.iter().any(|name| state(name) == "set");
        let found = if any { State::Ok } else { State::Note };
        report.add("key", found, format!("{provider}: {}", states.join(", ")), None);
    }
    for (name, spec) in &providers {
        let key = match (&spec.api_key_env, &spec.api_key_at) {
            (Some(key), _) => format!("{key} {}", state(key)),
            (None, Some(KeyAt::File(path))) if !path.is_file() => format!("{} missing", KeyAt::File(path.clone())),
            (None, Some(at)) => at.to_string(),
            (None, None) => "no key".to_owned(),
        };
        report.add("endpoint", State::Ok, format!("{name}: {} ({key})", spec.base_url), None);
    }
    for name in ["ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "HTTPS_PROXY", "HTTP_PROXY"] {
        if state(name) == "set" {
            report.add("endpoint", State::Note, format!("{name} is set: requests go there"), None);
        }
    }
}
