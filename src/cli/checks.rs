//! `spettro checks FILE`: the goal's checks, executed without a model.

use std::io::Write;
use std::rc::Rc;

use serde::Serialize;

use super::args::ChecksArgs;
use super::confine::{self, Ground};
use super::crashed::sweep_crashed;
use super::failure::Failure;
use super::lanes::NoExec;
use super::run::current_dir;
use crate::event::{CheckResult, CheckStatus, Outcome, ResultProblem};
use crate::goal::{Check, GoalSource, Problem, checks, load};
use crate::process::{self, Dispositions, ProcessOptions, SignalEvent, Signals};
use crate::report::duration_ms;
use crate::session::{Spool, Store};
use crate::world::{Halt, RealClock, RealDir, RealEnv, RealIds, Roots, Secrets, Why, World, home_dir};

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    outcome: Outcome,
    exit_code: u8,
    checks: Vec<CheckResult>,
    /// Of the goal file; then no check was run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<ResultProblem>,
}

/// Runs every check and says how it ended: 0 when all required ones pass, 10 when not, 23 when a program is missing.
///
/// # Errors
/// An invalid goal file, or what keeps checks from being run at all.
pub fn checks(
    args: &ChecksArgs,
    dispositions: &Dispositions,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<Outcome, Failure> {
    let env = RealEnv;
    let cwd = current_dir()?;
    let overrides = match args.overrides() {
        Ok(overrides) => overrides,
        Err(problems) => return refused(args, &problems, out, err),
    };
    let source = GoalSource::File(args.file.clone());
    let effective = match load(&source, &overrides, &env, home_dir(&env).as_deref(), &cwd) {
        Ok(effective) => effective,
        Err(problems) => return refused(args, &problems, out, err),
    };
    let config = effective.config;
    let settled = match args.trust.doubt(effective.untrusted) {
        Ok(Some(doubt)) => doubt.settle(config.goal_file.as_deref())?,
        Ok(None) => Ok(()),
        Err(problems) => Err(problems),
    };
    if let Err(problems) = settled {
        return refused(args, &problems, out, err);
    }
    let mut signals = Signals::install(dispositions)?;
    use crate::world::Env;
    let stores: Vec<_> = home_dir(&env).into_iter().collect();
    let temporary = confine::temporary_folder(&stores)?;
    let secrets = Secrets::new(env.vars().into_iter().filter(|(name, _)| process::looks_secret(name)));
    let child = process::child_environment(
        &env.vars(),
        &config.env,
        &[],
        &secrets,
        &config.workspace,
        "checks",
        temporary.path(),
    );
    let mut world = World {
        transport: Rc::new(crate::model::Http::new()),
        exec: Rc::new(NoExec),
        dir: Rc::new(RealDir),
        clock: Rc::new(RealClock::new()),
        ids: Rc::new(RealIds::random()?),
        env: Rc::new(RealEnv),
    };
    if let Some(home) = home_dir(&env) {
        for note in sweep_crashed(&world, &Store::new(home.join("sessions")), &secrets) {
            writeln!(err, "note: {note}")?;
        }
    }
    let exec = process::start(ProcessOptions {
        environment: child.vars,
        git_environment: child.git,
        secrets: secrets.clone(),
        run_id: "checks".to_owned(),
        keep_leftovers: config.leftovers_run,
        ..ProcessOptions::default()
    })?;
    let keys = confine::key_places(&config);
    let ground = Ground { stores, keys, temporary: temporary.path().to_owned(), pretended_abi: None };
    let level = confine::confine(&exec, &ground.policy(&config, &config.workspace, None)?)?;
    if !level.missing.is_empty() {
        writeln!(err, "note: sandbox {level}")?;
    }
    world.exec = exec;
    let roots = Roots::same(config.workspace.clone());
    let spool = Spool::new(temporary.path().join("spool"));
    let halt = Halt::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if config.checks.is_empty() && !args.json {
        writeln!(out, "no checks: the goal has none")?;
    }
    let mut results: Vec<CheckResult> = Vec::new();
    let outcome = runtime.block_on(async {
        let work = async {
            let mut outcome = Outcome::Met;
            for check in &config.checks {
                let result = checks::run(&world, &halt, &roots, &spool, check, &child.removed).await;
                if halt.why().is_some() {
                    break;
                }
                if args.json {
                    results.push(result.clone());
                } else {
                    show(check, &result, out)?;
                }
                if let Err(error) = checks::program_exists(check, &result) {
                    writeln!(err, "error: {error}")?;
                    outcome = Outcome::Environment;
                } else if check.required && result.status != CheckStatus::Pass && outcome == Outcome::Met {
                    outcome = Outcome::Unmet;
                }
            }
            Ok::<Outcome, Failure>(outcome)
        };
        let stop = async {
            loop {
                if let SignalEvent::Stop(signal) = signals.next().await {
                    halt.set(Why::Signal(Outcome::of_signal(signal)));
                }
            }
        };
        let outcome = tokio::select! {
            biased;
            outcome = work => outcome,
            () = stop => Ok(Outcome::Internal),
        };
        world.exec.shutdown(std::time::Duration::from_secs(5)).await;
        outcome
    })?;
    let outcome = halt.why().map_or(outcome, Why::outcome);
    if args.json {
        super::sessions::json(
            out,
            &Report { outcome, exit_code: outcome.code(), checks: results, problems: Vec::new() },
        )?;
    }
    Ok(outcome)
}

/// One line for a check, and what it printed below when it does not pass.
fn show(check: &Check, result: &CheckResult, out: &mut dyn Write) -> std::io::Result<()> {
    let exit = result.exit_code.map(|code| format!(" (exit {code})")).unwrap_or_default();
    let required = if check.required { "" } else { ", not required" };
    let time = duration_ms(result.duration_ms);
    writeln!(out, "{} {}{exit} {time}{required}", result.name, result.status.name())?;
    if result.status != CheckStatus::Pass {
        for line in result.tail.lines() {
            writeln!(out, "  {line}")?;
        }
    }
    Ok(())
}

/// A goal that is no goal.
fn refused(
    args: &ChecksArgs,
    problems: &[Problem],
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<Outcome, Failure> {
    if args.json {
        let outcome = Outcome::Usage;
        let problems = problems.iter().map(Into::into).collect();
        super::sessions::json(out, &Report { outcome, exit_code: outcome.code(), checks: Vec::new(), problems })?;
    } else {
        super::validate::write_problems(problems, err)?;
    }
    Ok(Outcome::Usage)
}
