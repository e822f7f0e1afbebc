//! The flags of `spettro run`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::super::later::LaterArgs;
use super::super::trust::TrustArgs;
use super::set;
use crate::event::Micros;
use crate::goal::{Overrides, Problem, Setting};

#[derive(Debug, Clone, Default, Args)]
#[command(
    after_help = "Examples:\n  \
                  spettro run --goal goal.yaml\n  \
                  spettro run goal.yaml --max-cost 2.50 --max-time 30m --output-format jsonl\n  \
                  cat goal.yaml | spettro run --goal -\n  \
                  spettro run -p 'make the tests pass' --check 'cargo test' --model PROVIDER/MODEL\n  \
                  spettro run --resume latest --max-cost +5\n\n\
                  Every key of the goal file can be set: a flag wins over a variable (SPETTRO_LIMITS_COST=2.50), \
                  a variable over the goal file, the goal file over `config.yaml` in spettro's own folder.\n\
                  `spettro help exit-codes` lists how a run can end.",
    group = clap::ArgGroup::new("what").args(["goal", "prompt"]).multiple(false)
)]
pub struct RunArgs {
    /// The goal file
    #[arg(value_name = "GOAL", conflicts_with_all = ["prompt"])]
    pub goals: Vec<PathBuf>,

    /// The goal file; `-` reads it from stdin
    #[arg(long, value_name = "FILE")]
    pub goal: Vec<PathBuf>,

    /// A goal without a file
    #[arg(short, long, value_name = "TEXT")]
    pub prompt: Option<String>,

    /// A command that must succeed, besides the goal file's checks; repeatable
    #[arg(long, value_name = "CMD")]
    pub check: Vec<String>,

    /// Any key of the goal file, e.g. `limits.stall=5`; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// The agent's model
    #[arg(long, value_name = "PROVIDER/MODEL", help_heading = "Models")]
    pub model: Option<String>,

    /// The judge's model, where it is another one
    #[arg(long, value_name = "PROVIDER/MODEL", help_heading = "Models")]
    pub judge_model: Option<String>,

    /// Turns of the agent
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub max_iterations: Option<String>,

    /// Model calls of the agent
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub max_steps: Option<String>,

    /// Dollars, e.g. `2.50`; `+5` adds to what a resumed session had; or `unlimited`
    #[arg(long, value_name = "DOLLARS", help_heading = "Limits")]
    pub max_cost: Option<String>,

    /// Tokens of all model calls, or `unlimited`
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub max_tokens: Option<String>,

    /// Time at work, e.g. `90s`, `2h`; or `unlimited`
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    pub max_time: Option<String>,

    /// Iterations without progress before the nudge
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub stall: Option<String>,

    /// Whether the history is compacted before a request is too large
    #[arg(long, value_name = "on|off", value_enum, help_heading = "Compaction")]
    pub auto_compact: Option<Switch>,

    /// How full the window may be, in percent (50 to 95)
    #[arg(long, value_name = "PCT", help_heading = "Compaction")]
    pub compact_threshold: Option<String>,

    /// The folder to work in
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<String>,

    /// What commands may write: `workspace-write`, `read-only` or `off`; what this system cannot keep of it ends the run
    #[arg(long, value_name = "MODE")]
    pub sandbox: Option<String>,

    /// For tests: as if the kernel knew no newer Landlock than this
    #[arg(long, value_name = "ABI", hide = true)]
    pub pretend_landlock: Option<u8>,

    /// Go on with a session: its id, `latest` of this workspace, or `auto` (this goal's unfinished one, else a new one)
    #[arg(long, value_name = "ID|latest|auto", help_heading = "Sessions")]
    pub resume: Option<String>,

    /// Resume although the goal's text is another one now
    #[arg(long, requires = "resume", help_heading = "Sessions")]
    pub resume_changed: bool,

    /// What the session is called in lists; without it, by the goal's first line
    #[arg(long, value_name = "NAME", conflicts_with_all = ["resume", "ephemeral"], help_heading = "Sessions")]
    pub session_name: Option<String>,

    /// The folder that sessions are stored in
    #[arg(long, value_name = "DIR", help_heading = "Sessions")]
    pub session_dir: Option<PathBuf>,

    /// Write down more for replays: `effects`, what each step does to the files
    #[arg(long, value_name = "WHAT", help_heading = "Sessions")]
    pub record: Option<String>,

    /// At the end, also write the session to this new file, for replay (`spettro cassette`)
    #[arg(long, value_name = "FILE", help_heading = "Sessions")]
    pub cassette: Option<PathBuf>,

    /// Keep no session
    #[arg(long, conflicts_with_all = ["resume", "session_dir"], help_heading = "Sessions")]
    pub ephemeral: bool,

    /// What stdout carries: a summary, events as they happen, or one result object at the end
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t, help_heading = "Output")]
    pub output_format: OutputFormat,

    /// The same as `--output-format json`
    #[arg(long, conflicts_with = "output_format", help_heading = "Output")]
    pub json: bool,

    /// Write the result object to a file, on every end
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub output_file: Option<PathBuf>,

    /// Only warnings and errors on stderr
    #[arg(short, long, conflicts_with = "verbose", help_heading = "Output")]
    pub quiet: bool,

    /// More on stderr
    #[arg(short, long, help_heading = "Output")]
    pub verbose: bool,

    /// Colours on stderr
    #[arg(long, value_name = "WHEN", value_enum, default_value_t, help_heading = "Output")]
    pub color: Color,

    /// Add the model's words to the events, as they arrive
    #[arg(long, help_heading = "Output")]
    pub deltas: bool,

    /// Run the checks of the baseline and show the first request; no model call, no session
    #[arg(long, conflicts_with_all = ["resume", "output_file", "session_name"])]
    pub dry_run: bool,

    /// Start although spettro was started by a run of spettro
    #[arg(long)]
    pub nested: bool,

    #[command(flatten)]
    pub trust: TrustArgs,

    /// For a repository that is not trusted: none of its instructions and configuration, no network for commands, and
    /// a goal from elsewhere
    #[arg(long, help_heading = "Trust")]
    pub untrusted: bool,

    #[command(flatten)]
    pub later: LaterArgs,
}

/// What stdout carries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// The same as text
    #[default]
    Auto,
    /// The summary at the end
    Text,
    /// One event a line
    Jsonl,
    /// The result object at the end
    Json,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR or TERM=dumb says otherwise
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

/// What a run is asked to work on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    File(PathBuf),
    Stdin,
    Prompt(String),
    /// Only `--resume` was given: the stored configuration.
    Stored,
}

impl RunArgs {
    /// `--json` is `--output-format json`.
    pub fn format(&self) -> OutputFormat {
        if self.json { OutputFormat::Json } else { self.output_format }
    }

    /// What to work on.
    ///
    /// # Errors
    /// Flags of later versions, more than one goal, and no goal at all; each is a usage error.
    pub fn asked(&self) -> Result<Asked, Vec<Problem>> {
        let mut problems: Vec<Problem> = Vec::new();
        if self.deltas && self.format() != OutputFormat::Jsonl {
            let hint = "add `--output-format jsonl`";
            problems.push(usage(
                "--deltas",
                "stands in the events, and no events were asked for".to_owned(),
                Some(hint),
            ));
        }
        for flag in self.later.given() {
            problems.push(usage(flag, format!("`{flag}` is not in this version yet"), None));
        }
        let goals: Vec<&PathBuf> = self.goal.iter().chain(&self.goals).collect();
        let asked = match (goals.as_slice(), &self.prompt, &self.resume) {
            ([], Some(prompt), _) => Some(Asked::Prompt(prompt.clone())),
            ([goal], None, _) if goal.as_os_str() == "-" => Some(Asked::Stdin),
            ([goal], None, _) => Some(Asked::File((*goal).clone())),
            ([], None, Some(_)) => Some(Asked::Stored),
            ([], None, None) => {
                let hint = "`spettro run --goal goal.yaml`, `spettro run -p 'TEXT'`, or `spettro run --resume latest`";
                problems.push(usage("", "no goal was given".to_owned(), Some(hint)));
                None
            }
            ([_], Some(_), _) => {
                problems.push(usage("--prompt", "stands instead of a goal file, not beside one".to_owned(), None));
                None
            }
            _ => {
                let hint = "start `spettro run` once for each";
                let message = format!("{} goals in one run are not in this version yet", goals.len());
                problems.push(usage("--goal", message, Some(hint)));
                None
            }
        };
        match asked {
            Some(asked) if problems.is_empty() => Ok(asked),
            _ => Err(problems),
        }
    }

    /// What the flags set, in a fixed order, `--set` last. `--max-cost +N` is not among it: [`RunArgs::added_cost`].
    ///
    /// # Errors
    /// `--set` without `=`.
    pub fn overrides(&self) -> Result<Overrides, Vec<Problem>> {
        let auto_compact = self.auto_compact.map(|switch| (switch == Switch::On).to_string());
        let flags = [
            ("--workspace", "workspace", &self.workspace),
            ("--model", "model", &self.model),
            ("--judge-model", "judge.model", &self.judge_model),
            ("--max-iterations", "limits.iterations", &self.max_iterations),
            ("--max-steps", "limits.steps", &self.max_steps),
            ("--max-cost", "limits.cost", &self.max_cost),
            ("--max-tokens", "limits.tokens", &self.max_tokens),
            ("--max-time", "limits.time", &self.max_time),
            ("--stall", "limits.stall", &self.stall),
            ("--auto-compact", "compaction.auto", &auto_compact),
            ("--sandbox", "sandbox.files", &self.sandbox),
            ("--record", "record", &self.record),
            ("--compact-threshold", "compaction.threshold_pct", &self.compact_threshold),
        ];
        let mut settings: Vec<Setting> = Vec::new();
        for (flag, key, value) in flags {
            if let Some(value) = value
                && !(flag == "--max-cost" && self.resume.is_some() && value.starts_with('+'))
            {
                settings.push(Setting { flag: flag.to_owned(), key: key.to_owned(), value: value.clone() });
            }
        }
        settings.extend(set(&self.set)?);
        if self.untrusted {
            // Last, so that nothing above says otherwise.
            let all = [("instructions", "[]"), ("sandbox.network", "none")];
            settings.extend(all.map(|(key, value)| Setting {
                flag: "--untrusted".to_owned(),
                key: key.to_owned(),
                value: value.to_owned(),
            }));
        }
        Ok(Overrides { settings, checks: self.check.clone(), untrusted: self.untrusted })
    }

    /// `--session-name`, as it is stored: one line, at most 60 characters.
    ///
    /// # Errors
    /// A name of white space alone.
    pub fn title(&self) -> Result<Option<String>, Vec<Problem>> {
        let Some(name) = &self.session_name else { return Ok(None) };
        let plain: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        match crate::session::title(&plain) {
            title if title.is_empty() => Err(vec![usage("--session-name", "is empty".to_owned(), None)]),
            title => Ok(Some(title)),
        }
    }

    /// `--resume … --max-cost +5`: what is added to the session's own limit.
    ///
    /// # Errors
    /// When what follows the plus is no decimal amount of dollars above 0.
    pub fn added_cost(&self) -> Result<Option<Micros>, Vec<Problem>> {
        let Some(added) = self.max_cost.as_deref().and_then(|text| text.strip_prefix('+')) else {
            return Ok(None);
        };
        if self.resume.is_none() {
            // `overrides` has left it in, and the reader says what is wrong.
            return Ok(None);
        }
        match Micros::parse_dollars(added) {
            Some(Micros(0)) | None => {
                let message = format!("expected `+` and dollars as a decimal such as `+5.00`, found `+{added}`");
                Err(vec![usage("--max-cost", message, None)])
            }
            added => Ok(added),
        }
    }
}

pub(super) fn usage(flag: &str, message: String, hint: Option<&str>) -> Problem {
    Problem {
        file: "command line".to_owned(),
        line_column: None,
        key: flag.to_owned(),
        message,
        hint: hint.map(str::to_owned),
    }
}
