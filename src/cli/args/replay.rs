//! Flags of `spettro replay`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::goal::Source;
use crate::replay::{Chunks, Faults};

#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  \
                        spettro replay latest                          the newest session of this workspace\n  \
                        spettro replay run.cassette.zst                a packed one, on any machine\n  \
                        spettro replay run.cassette.zst --times 3 --perturb\n\n\
                        Nothing is asked of a provider, no key is needed, and no process is started. Exit codes: 0 \
                        identical, 30 diverged, 31 unusable, 32 nothing differed but some checks could not be made.")]
pub struct ReplayArgs {
    /// A cassette file, or a session: its id, or `latest` of this workspace
    #[arg(value_name = "FILE|SESSION")]
    pub recording: PathBuf,

    /// Take these from the recording although this build has others
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

    /// Change what must not matter, one thing at a time: folder, variables, time of day, order, umask, pieces
    #[arg(long)]
    pub perturb: bool,

    /// Replay a cassette that breaks off as far as it goes
    #[arg(long)]
    pub allow_incomplete: bool,

    /// What stdout carries
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub output_format: ReportFormat,

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

impl ReplayArgs {
    /// `--json` is `--output-format json`.
    pub const fn format(&self) -> ReportFormat {
        if self.json { ReportFormat::Json } else { self.output_format }
    }
}

/// A part of a session's sources.
///
/// Goal and memory are not among them: they are the recording's anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PartName {
    Prompt,
    Tools,
    Config,
}

impl From<PartName> for Source {
    fn from(name: PartName) -> Source {
        match name {
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
