//! `spettro checks FILE`: the goal's checks, executed without a model.

use std::io::Write;
use std::rc::Rc;

use super::args::ChecksArgs;
use super::confine::{self, Ground};
use super::crashed::sweep_crashed;
use super::failure::Failure;
use super::lanes::NoExec;
use super::run::current_dir;
use crate::event::{CheckStatus, Outcome};
use crate::goal::{GoalSource, checks, load};
use crate::process::{self, Dispositions, ProcessOptions, SignalEvent, Signals};
use crate::session::{Spool, Store};
use crate::world::{Halt, RealClock, RealDir, RealEnv, RealIds, Roots, Secrets, Why, World, home_dir};

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
        Err(problems) => {
            super::validate::write_problems(&problems, err)?;
            return Ok(Outcome::Usage);
        }
    };
    let source = GoalSource::File(args.file.clone());
    let effective = match load(&source, &overrides, &env, home_dir(&env).as_deref(), &cwd) {
        Ok(effective) => effective,
        Err(problems) => {
            super::validate::write_problems(&problems, err)?;
            return Ok(Outcome::Usage);
        }
    };
    let config = effective.config;
    let settled = match args.trust.doubt(effective.untrusted) {
        Ok(Some(doubt)) => doubt.settle(config.goal_file.as_deref())?,
        Ok(None) => Ok(()),
        Err(problems) => Err(problems),
    };
    if let Err(problems) = settled {
        super::validate::write_problems(&problems, err)?;
        return Ok(Outcome::Usage);
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
    let outcome = runtime.block_on(async {
        let work = async {
            let mut outcome = Outcome::Met;
            for check in &config.checks {
                let result = checks::run(&world, &halt, &roots, &spool, check, &child.removed).await;
                if halt.why().is_some() {
                    break;
                }
                let exit = result.exit_code.map(|code| format!(" (exit {code})")).unwrap_or_default();
                let required = if check.required { "" } else { ", not required" };
                let seconds = result.duration_ms as f64 / 1_000.0;
                writeln!(out, "{} {}{exit} {seconds:.1}s{required}", result.name, result.status.name())?;
                if result.status != CheckStatus::Pass {
                    for line in result.tail.lines() {
                        writeln!(out, "  {line}")?;
                    }
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
    Ok(halt.why().map_or(outcome, Why::outcome))
}
