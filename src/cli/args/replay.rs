//! Flags of `spettro replay`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::goal::Source;
use crate::replay::{Chunks, Faults, ToolMode};

#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  \
                        spettro replay latest                          the newest session of this workspace\n  \
                        spettro replay run.cassette.zst                a packed one, on any machine\n  \
                        spettro replay run.cassette.zst --times 3 --perturb\n  \
                        spettro replay run.cassette.zst --goal goal.yaml     the goal file as it is today\n  \
                        spettro replay run.cassette.zst --tools live --trust\n  \
                        spettro replay latest --live --yes --model PROVIDER/MODEL\n\n\
                        Without `--tools live`, `--cassette` and `--live` nothing is asked of a provider, no key is \
                        needed, and no process is started. Exit codes: 0 identical, 30 diverged, 31 unusable, 32 \
                        nothing differed but some checks could not be made. With `--cassette` and `--live`: 0 the \
                        same tools and outcome, 30 others.")]
pub struct ReplayArgs {
    /// A cassette file, or a session: its id, or `latest` of this workspace
    #[arg(value_name = "FILE|SESSION")]
    pub recording: PathBuf,

    /// Where the answers of tools come from; `live` needs `--trust`
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    pub tools: ToolsName,

    /// Take goal, configuration and instructions from this goal file and its workspace, as they are today
    #[arg(long, value_name = "FILE")]
    pub goal: Option<PathBuf>,

    /// Take these from the recording although they are others today
    #[arg(long, value_name = "PARTS", value_enum, value_delimiter = ',')]
    pub from_tape: Vec<PartName>,

    /// What becomes of recorded attempts that failed and cost nothing
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    pub faults: FaultsName,

    /// In which pieces replies come: tape, whole, 1, or rand:SEED
    #[arg(long, value_name = "HOW", value_parser = chunks, default_value = "tape")]
    pub chunks: Chunks,

    /// Replay so often; all must agree
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub times: u32,

    /// Change what must not matter, one thing at a time: folder, time of day, order, umask, pieces, and the variables
    /// of a second process of this program
    #[arg(long)]
    pub perturb: bool,

    /// Replay a cassette that breaks off as far as it goes
    #[arg(long)]
    pub allow_incomplete: bool,

    /// What stdout carries
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub output_format: ReportFormat,

    /// Let recorded commands really run, in the sandbox and in a scratch copy
    #[arg(long, help_heading = "What really runs")]
    pub trust: bool,

    /// The repository that holds the recorded commit; else that of the current directory, else the recorded one
    #[arg(long, value_name = "DIR", help_heading = "What really runs")]
    pub repo: Option<PathBuf>,

    /// Run the session's goal against the replies of this cassette instead, tools for real; needs `--trust`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["live", "tools", "goal", "from_tape", "faults", "chunks",
          "times", "perturb", "git_bisect"], help_heading = "What really runs")]
    pub cassette: Option<PathBuf>,

    /// Run the session's goal against a live model instead, tools for real, within the goal's limits; needs `--yes`
    #[arg(long, conflicts_with_all = ["tools", "goal", "from_tape", "faults", "chunks", "times", "perturb",
          "git_bisect"], help_heading = "What really runs")]
    pub live: bool,

    /// Spend what `--live` costs
    #[arg(long, requires = "live", help_heading = "What really runs")]
    pub yes: bool,

    /// The live model, in place of the session's
    #[arg(long, value_name = "PROVIDER/MODEL", requires = "live", help_heading = "What really runs")]
    pub model: Option<String>,
    /// The same as `--output-format json`
    #[arg(long, conflicts_with = "output_format")]
    pub json: bool,

    /// Exit codes for `git bisect run`: 0 identical, 1 diverged, 125 anything else
    #[arg(long)]
    pub git_bisect: bool,

    /// The folder that sessions are stored in
    #[arg(long, value_name = "DIR")]
    pub session_dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ToolsName {
    /// The recording; tools for files run beside it in a scratch copy
    #[default]
    Recorded,
    /// They really run in a scratch copy, until a result differs
    Live,
    /// The recording, without a workspace
    Stub,
}

impl From<ToolsName> for ToolMode {
    fn from(name: ToolsName) -> ToolMode {
        match name {
            ToolsName::Recorded => ToolMode::Recorded,
            ToolsName::Live => ToolMode::Live,
            ToolsName::Stub => ToolMode::Stub,
        }
    }
}

impl ReplayArgs {
    /// `--json` is `--output-format json`.
    pub const fn format(&self) -> ReportFormat {
        if self.json { ReportFormat::Json } else { self.output_format }
    }

    /// The words that replay the same once, with a report as one object.
    pub fn once_more(&self, place: &Path) -> Vec<OsString> {
        let value = |name: Option<clap::builder::PossibleValue>| name.map(|name| name.get_name().to_owned());
        let mut words: Vec<OsString> = vec!["replay".into(), place.into(), "--output-format".into(), "json".into()];
        words.extend(["--faults".into(), value(self.faults.to_possible_value()).unwrap_or_default().into()]);
        words.extend(["--tools".into(), value(self.tools.to_possible_value()).unwrap_or_default().into()]);
        words.extend(["--chunks".into(), told(self.chunks).into()]);
        for part in self.from_tape.iter().filter_map(|part| value(part.to_possible_value())) {
            words.extend(["--from-tape".into(), part.into()]);
        }
        words.extend(self.allow_incomplete.then(|| "--allow-incomplete".into()));
        words
    }
}

/// As `--chunks` takes it.
fn told(chunks: Chunks) -> String {
    match chunks {
        Chunks::Tape => "tape".to_owned(),
        Chunks::Whole => "whole".to_owned(),
        Chunks::Bytes => "1".to_owned(),
        Chunks::Random(seed) => format!("rand:{seed}"),
    }
}

/// A part of a session's sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PartName {
    /// The goal's text; without `--goal` it is the recording's anyway
    Goal,
    /// System prompts and instruction files
    Prompt,
    Tools,
    Config,
}

impl From<PartName> for Source {
    fn from(name: PartName) -> Source {
        match name {
            PartName::Goal => Source::Goal,
            PartName::Prompt => Source::Prompt,
            PartName::Tools => Source::Tools,
            PartName::Config => Source::Config,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum FaultsName {
    /// They are left out
    #[default]
    Skip,
    /// They fail again
    Replay,
}

impl From<FaultsName> for Faults {
    fn from(name: FaultsName) -> Faults {
        match name {
            FaultsName::Skip => Faults::Skip,
            FaultsName::Replay => Faults::Replay,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    #[default]
    Text,
    /// One object
    Json,
}

fn chunks(text: &str) -> Result<Chunks, String> {
    match text {
        "tape" => Ok(Chunks::Tape),
        "whole" => Ok(Chunks::Whole),
        "1" => Ok(Chunks::Bytes),
        _ => match text.strip_prefix("rand:").map(str::parse) {
            Some(Ok(seed)) => Ok(Chunks::Random(seed)),
            _ => Err("expected `tape`, `whole`, `1` or `rand:SEED` (a number)".to_owned()),
        },
    }
}
