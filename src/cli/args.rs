//! The command line: verbs, flags, help texts.

mod cassette;
mod replay;
mod run;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use self::cassette::{CassetteArgs, CassetteVerb};
pub use self::replay::{ReplayArgs, ReportFormat};
use self::run::usage;
pub use self::run::{Asked, Color, OutputFormat, RunArgs, Switch};
use super::trust::TrustArgs;
use crate::goal::{Overrides, Problem, Setting};

#[derive(Debug, Parser)]
#[command(
    name = "spettro",
    version,
    about = "Works toward a goal without anybody watching, until checks and a judge say it is met",
    long_about = "Works toward a goal without anybody watching: a coding agent goes on, iteration after iteration, \
                  until checks that spettro runs itself and a judge say the goal is met, or a limit ends it. \
                  Every run is bounded in money and time and can be resumed.",
    after_help = "Examples:\n  \
                  spettro run --goal goal.yaml                      work until it is met\n  \
                  spettro run -p 'fix the tests' --check 'make test' --model PROVIDER/MODEL\n  \
                  spettro validate goal.yaml                        every problem at once, no network\n  \
                  spettro run --resume latest                       go on where the last run ended\n\n\
                  `spettro help exit-codes` lists how a run can end.",
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 100
)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Work toward a goal
    Run(Box<RunArgs>),
    /// Check goal files, without any network, and show what is in force
    Validate(ValidateArgs),
    /// Run a goal's checks, without a model
    Checks(ChecksArgs),
    /// Print a JSON Schema
    Schema(SchemaArgs),
    /// Pack a session for replay; look at, compare and check what was packed
    Cassette(CassetteArgs),
    /// Run a recorded session again, and say whether anything differs
    Replay(ReplayArgs),
    /// Look at stored sessions, and make their history smaller
    Sessions(SessionsArgs),
    /// List the models that are known, with windows and prices
    Models(ModelsArgs),
    /// Tell a running agent something
    Steer(SteerArgs),
    /// End a running session, saving its state
    Stop(StopArgs),
    /// List or end the background jobs of a running session
    Jobs(JobsArgs),
    /// Look at what runs find on this machine: sandbox, helper, git, disk, keys
    Doctor(DoctorArgs),
    /// Help on a verb, or on `exit-codes`
    Help(HelpArgs),
    /// The process that starts commands; started by spettro itself
    #[command(name = "__zygote", hide = true)]
    Zygote,
}

/// `key=value` settings.
fn set(texts: &[String]) -> Result<Vec<Setting>, Vec<Problem>> {
    let (mut settings, mut problems) = (Vec::new(), Vec::new());
    for text in texts {
        match text.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => settings.push(Setting {
                flag: format!("--set {}", key.trim()),
                key: key.trim().to_owned(),
                value: value.to_owned(),
            }),
            _ => problems.push(usage("--set", format!("expected KEY=VALUE, found `{text}`"), None)),
        }
    }
    if problems.is_empty() { Ok(settings) } else { Err(problems) }
}

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  spettro validate goal.yaml\n  spettro validate goals/*.yaml --set limits.cost=1\n\n\
                        Exit codes: 0 all are valid, 2 not."
)]
pub struct ValidateArgs {
    /// Goal files; `-` reads one from stdin
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// Any key of the goal file, as for `spettro run`; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// One object: for each file whether it is valid, and its problems
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub trust: TrustArgs,
}

impl ValidateArgs {
    /// What `--set` sets.
    ///
    /// # Errors
    /// `--set` without `=`.
    pub fn overrides(&self) -> Result<Overrides, Vec<Problem>> {
        Ok(Overrides { settings: set(&self.set)?, ..Overrides::default() })
    }
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "Example:\n  spettro checks goal.yaml\n\n\
                        Exit codes: 0 all required checks pass, 10 not, 23 a program is missing.")]
pub struct ChecksArgs {
    /// The goal file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Any key of the goal file, as for `spettro run`; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// One object instead of lines
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub trust: TrustArgs,
}

impl ChecksArgs {
    /// What `--set` sets.
    ///
    /// # Errors
    /// `--set` without `=`.
    pub fn overrides(&self) -> Result<Overrides, Vec<Problem>> {
        Ok(Overrides { settings: set(&self.set)?, ..Overrides::default() })
    }
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "Example:\n  spettro schema goal > goal.schema.json")]
pub struct SchemaArgs {
    /// Of what
    #[arg(value_enum)]
    pub of: SchemaOf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaOf {
    /// The goal file
    Goal,
    /// A line of `--output-format jsonl` and of events.jsonl
    Events,
    /// The result object
    Result,
    /// A line of a session's log
    Facts,
    /// A line of a cassette in plain lines
    Cassette,
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  spettro models\n  spettro models gemini\n\n\
                        Prices are dollars per million tokens; long requests may cost more. They are a table inside the \
                        program: `--json` tells their date and where they stand.")]
pub struct ModelsArgs {
    /// Only this provider's
    pub provider: Option<String>,

    /// All that is known, as JSON; prices in millionths of a dollar per million tokens
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  spettro sessions list\n  spettro sessions context latest\n  \
                        spettro sessions compact latest --focus 'the failing tests'\n\n\
                        An id may be shortened to a beginning that fits one session alone; `latest` is the newest of \
                        this workspace.")]
pub struct SessionsArgs {
    #[command(subcommand)]
    pub what: SessionsVerb,

    /// The folder that sessions are stored in
    #[arg(long, value_name = "DIR", global = true)]
    pub session_dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Subcommand)]
pub enum SessionsVerb {
    /// List the sessions of this workspace, the newest first
    List {
        /// Those of every workspace
        #[arg(long)]
        all: bool,
        /// JSON instead of lines
        #[arg(long)]
        json: bool,
    },
    /// Outline a session: runs, iterations, compactions, verdicts
    Show {
        /// The session's id, or `latest` of this workspace
        #[arg(value_name = "ID")]
        id: String,
        /// JSON instead of lines
        #[arg(long)]
        json: bool,
    },
    /// What a session has used, by lane and by model
    Usage {
        /// The session's id, or `latest` of this workspace
        #[arg(value_name = "ID")]
        id: String,
        /// JSON instead of lines
        #[arg(long)]
        json: bool,
    },
    /// How full a session's context window is, and with what
    Context {
        /// The session's id, or `latest` of this workspace
        #[arg(value_name = "ID")]
        id: String,
        /// JSON instead of lines
        #[arg(long)]
        json: bool,
    },
    /// Make a session's history smaller now; it must not be running
    Compact {
        /// The session's id, or `latest` of this workspace
        #[arg(value_name = "ID")]
        id: String,
        /// What the summary should keep most of
        #[arg(long, value_name = "TEXT", conflicts_with = "prune_only")]
        focus: Option<String>,
        /// Only old outputs become stubs; no model is asked
        #[arg(long)]
        prune_only: bool,
        /// JSON instead of lines
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "Example:\n  spettro steer session-20261129-120341-4f2a7c10 'leave the parser alone'\n\n\
                        The agent reads it before its next model call.")]
pub struct SteerArgs {
    /// The session's id
    pub id: String,
    /// What the agent is told
    pub text: String,

    /// The folder that sessions are stored in
    #[arg(long, value_name = "DIR")]
    pub session_dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "Example:\n  spettro stop session-20261129-120341-4f2a7c10\n\n\
                        The run finishes its running tool call, saves and ends with 75; `--resume` goes on.")]
pub struct StopArgs {
    /// The session's id
    pub id: String,

    /// The folder that sessions are stored in
    #[arg(long, value_name = "DIR")]
    pub session_dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  spettro jobs\n  spettro jobs kill job-1 job-3\n  spettro jobs kill all")]
pub struct JobsArgs {
    #[command(subcommand)]
    pub what: Option<JobsVerb>,

    /// The session's id (default: the running one of this workspace)
    #[arg(long, value_name = "ID", global = true)]
    pub session: Option<String>,

    /// The folder that sessions are stored in
    #[arg(long, value_name = "DIR", global = true)]
    pub session_dir: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum JobsVerb {
    /// List them (the default)
    List,
    /// End jobs and everything they started
    Kill {
        /// `job-N`, several of them, or `all`
        #[arg(value_name = "JOB", required = true)]
        ids: Vec<String>,
    },
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  spettro doctor --json | jq '.items[] | select(.state != \"ok\")'\n  \
                        spettro doctor --live --goal goal.yaml\n\n\
                        Without `--live` nothing is sent anywhere. Exit codes: 0 runs can start here, 23 something that they need is \
                        missing.")]
pub struct DoctorArgs {
    /// One object instead of lines
    #[arg(long)]
    pub json: bool,

    /// Speak to each lane's model: one cheap request with a tool, which costs what it says
    #[arg(long)]
    pub live: bool,

    /// The goal file that names the models; without one the user's configuration does
    #[arg(long, value_name = "FILE", requires = "live")]
    pub goal: Option<PathBuf>,

    /// The model of all lanes that name none of their own
    #[arg(long, value_name = "PROVIDER/MODEL", requires = "live")]
    pub model: Option<String>,

    /// Any key of the goal file, as for `spettro run`; repeatable
    #[arg(long, value_name = "KEY=VALUE", requires = "live")]
    pub set: Vec<String>,

    /// Accept what a goal file inside the repository may not set by itself
    #[arg(long, requires = "live")]
    pub trust_goal: bool,
}

impl DoctorArgs {
    /// What `--model` and `--set` set.
    ///
    /// # Errors
    /// `--set` without `=`.
    pub fn overrides(&self) -> Result<Overrides, Vec<Problem>> {
        let model = self.model.iter().map(|name| Setting {
            flag: "--model".to_owned(),
            key: "model".to_owned(),
            value: name.clone(),
        });
        Ok(Overrides { settings: model.chain(set(&self.set)?).collect(), ..Overrides::default() })
    }
}

#[derive(Debug, Clone, Args)]
pub struct HelpArgs {
    /// A verb, or `exit-codes`
    #[arg(value_name = "TOPIC")]
    pub topic: Vec<String>,
}

#[cfg(test)]
mod tests;
