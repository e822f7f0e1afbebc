//! The verbs of `spettro cassette`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  spettro cassette pack latest\n  spettro cassette show run.cassette.zst\n  \
                        spettro cassette diff good.cassette.zst latest\n\n\
                        Where a FILE is taken, a session's id does as well: a beginning that fits one alone, or \
                        `latest` of this workspace.")]
pub struct CassetteArgs {
    #[command(subcommand)]
    pub what: CassetteVerb,

    /// The folder that sessions are stored in
    #[arg(long, value_name = "DIR", global = true)]
    pub session_dir: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum CassetteVerb {
    /// Write a session to one file, for replay and as a goal's model
    #[command(
        after_help = "Examples:\n  spettro cassette pack latest\n  spettro cassette pack latest -o run.jsonl\n\n\
                            A name that ends in `.zst` is compressed, any other holds plain lines. The goal that is \
                            answered from it says `model: {cassette: FILE}`."
    )]
    Pack {
        /// The session's id, or `latest` of this workspace
        session: String,
        /// The file to write; without it, `run.cassette.zst` in the session's folder
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Replace a file that exists
        #[arg(long)]
        force: bool,
        /// Pack although this rule of `cassette lint` finds something; repeatable, never for known values
        #[arg(long, value_name = "RULE")]
        allow: Vec<String>,
    },
    /// Say what is recorded
    Show {
        /// A cassette, or a session's id
        #[arg(value_name = "FILE")]
        file: String,
        /// One object instead of lines
        #[arg(long)]
        json: bool,
        /// Take a file that breaks off as far as it goes
        #[arg(long)]
        allow_incomplete: bool,
    },
    /// Read all of it and check every digest
    Verify {
        /// A cassette, or a session's id
        #[arg(value_name = "FILE")]
        file: String,
        /// One object instead of lines
        #[arg(long)]
        json: bool,
        /// Take a file that breaks off as far as it goes
        #[arg(long)]
        allow_incomplete: bool,
    },
    /// Say where two recorded runs part: 0 when nowhere, 30 when they do
    Diff {
        /// A cassette, or a session's id
        #[arg(value_name = "FILE")]
        first: String,
        /// The one to compare it with
        #[arg(value_name = "FILE")]
        second: String,
        /// One object instead of lines
        #[arg(long)]
        json: bool,
    },
    /// Look for secrets, by value and by pattern
    Lint {
        /// A cassette, or a session's id
        #[arg(value_name = "FILE")]
        file: String,
        /// One object instead of lines
        #[arg(long)]
        json: bool,
        /// Pass over what this rule finds; repeatable, never for known values
        #[arg(long, value_name = "RULE")]
        allow: Vec<String>,
    },
    /// Write a copy with the replies alone: enough to be a goal's model
    Strip {
        /// A cassette, or a session's id
        #[arg(value_name = "FILE")]
        file: String,
        /// The file to write
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Replace a file that exists
        #[arg(long)]
        force: bool,
        /// Write it although this rule of `cassette lint` finds something; repeatable, never for known values
        #[arg(long, value_name = "RULE")]
        allow: Vec<String>,
    },
}
