//! `spettro replay SESSION --cassette F | --live --yes`: the session's goal against other replies.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::rc::Rc;

use super::super::args::ReplayArgs;
use super::super::failure::Failure;
use super::super::models::models;
use super::super::run::{current_dir, last_limits};
use super::real::Machine;
use super::{place, problems_of, tape, temporary, untrusted};
use crate::cassette::Tape;
use crate::event::{Outcome, Record};
use crate::goal::{Config, GoalSource, Overrides, Setting, load};
use crate::model::ModelSpec;
use crate::process::Dispositions;
use crate::replay::{Against, Endpoints, Retake, RetakeReport, retake as again};
use crate::report::{ColourChoice, Console, Format, Look};
use crate::session::Listener;
use crate::world::{Env, RealEnv, home_dir};

/// Shows what happens, on stderr.
struct Shown(Rc<Console>);

impl Listener for Shown {
    fn event(&self, record: &Record) {
        self.0.event(record);
    }
}

/// Runs it and says what came of it beside the original.
///
/// # Errors
/// What is missing or refused before anything is asked.
pub fn retake(args: &ReplayArgs, dispositions: &Dispositions, err: &mut dyn Write) -> Result<RetakeReport, Failure> {
    let packed = args.recording.is_file();
    if args.cassette.is_some() && !args.trust {
        return Err(untrusted("`--cassette` runs the commands that its replies ask for"));
    }
    if args.live && packed && !args.trust {
        return Err(untrusted("setup and checks of a packed session are commands"));
    }
    let tape = Rc::new(tape(args, &place(args)?, true)?);
    let config = config(args, &tape)?;
    if args.live && !args.yes {
        return Err(unpaid(&config));
    }
    let mut notes = Vec::new();
    let mut machine = Machine::new(args, &tape, dispositions)?;
    let models = models(&config, None, &RealEnv, machine.run_id(), &mut notes)?;
    machine.ask(&models);
    for note in notes {
        writeln!(err, "note: {note}")?;
    }
    let against = match &args.cassette {
        Some(file) => Against::Cassette(file.display().to_string()),
        None => Against::Model(models.agent.name()),
    };
    let name = tape.head().goal.name.clone();
    let console = Rc::new(Console::new(Format::Text, look(), false, name));
    let ticking = console.clone();
    let retake = Retake {
        against,
        config,
        endpoints: Endpoints { agent: models.agent, judge: models.judge, summarizer: models.summarizer },
        transport: models.transport,
        real: &machine,
        temporary: temporary(),
        listener: Rc::new(Shown(console)),
        tick: Rc::new(move |since| ticking.tick(since)),
    };
    Ok(again(&tape, retake)?)
}

/// The configuration that the session was started with, under the limits of its last run, with other models.
fn config(args: &ReplayArgs, tape: &Tape) -> Result<Config, Failure> {
    let frozen = tape
        .frozen()
        .ok_or_else(|| Failure::new(Outcome::Unusable, format!("`{}` holds no session", args.recording.display())))?;
    let goal_file = frozen.goal_file.as_ref().map(PathBuf::from);
    let source = GoalSource::Stored { yaml: frozen.config.clone(), goal_file };
    let setting = |flag: &str, key: &str, value: String| Setting { flag: flag.to_owned(), key: key.to_owned(), value };
    // Any folder that there is: the scratch copy is made later.
    let mut settings = vec![setting("--workspace", "workspace", temporary().to_string_lossy().into_owned())];
    settings.extend(args.model.clone().map(|model| setting("--model", "model", model)));
    let overrides = Overrides { settings, ..Overrides::default() };
    let env = RealEnv;
    let loaded = load(&source, &overrides, &env, home_dir(&env).as_deref(), &current_dir()?);
    let mut config = loaded.map_err(|problems| problems_of(&problems))?.config;
    config.goal.clone_from(&frozen.goal);
    config.name.clone_from(&frozen.goal_name);
    if let Some(limits) = last_limits(tape.facts()) {
        config.limits.clone_from(limits);
    }
    if let Some(file) = &args.cassette {
        let file = current_dir()?.join(file);
        config.model = ModelSpec { cassette: Some(file), ..config.model };
        config.judge.iter_mut().for_each(|judge| judge.model = None);
        config.summarizer = None;
    } else if let Some(recorded) = recorded(&config) {
        return Err(Failure::usage(format!("the session's {recorded} is a cassette, which is not live"))
            .hint("name a live one with `--model PROVIDER/MODEL`"));
    }
    Ok(config)
}

/// Which of the models is a cassette.
fn recorded(config: &Config) -> Option<&'static str> {
    let is = |model: Option<&ModelSpec>| model.is_some_and(|model| model.cassette.is_some());
    let judge = config.judge.as_ref().and_then(|judge| judge.model.as_ref());
    let all = [
        ("model", is(Some(&config.model))),
        ("judge's model", is(judge)),
        ("summarizer's model", is(config.summarizer.as_ref())),
    ];
    all.into_iter().find(|(_, is)| *is).map(|(which, _)| which)
}

fn unpaid(config: &Config) -> Failure {
    let most = match config.limits.cost {
        Some(most) => format!("may cost up to ${most} (`limits.cost` of the goal)"),
        None => "may cost any amount (`limits.cost` of the goal is `unlimited`)".to_owned(),
    };
    Failure::usage(format!("`--live` asks a live model and {most}")).hint("`--yes` spends it")
}

fn look() -> Look {
    let env = RealEnv;
    let (err, out) = (std::io::stderr().is_terminal(), std::io::stdout().is_terminal());
    Look::decide(err, out, &|name| env.var(name), ColourChoice::Auto, false, false)
}
