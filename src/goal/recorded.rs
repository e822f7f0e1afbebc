//! What this build would send, against what a session froze: the sources of a replay.

use std::rc::Rc;

use super::config::Config;
use super::{judge, sources};
use crate::compact;
use crate::model::Endpoint;
use crate::process::sandbox::Policy;
use crate::session::Frozen;
use crate::turn;
use crate::world::Secrets;

/// The part of a session's sources that something belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    Prompt,
    Tools,
    Config,
}

impl Source {
    pub const fn name(self) -> &'static str {
        match self {
            Source::Prompt => "prompt",
            Source::Tools => "tools",
            Source::Config => "config",
        }
    }
}

/// A source that is another one now than when the session was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    pub source: Source,
    /// Which of it, for people.
    pub which: String,
    pub recorded: String,
    pub now: String,
}

/// The endpoints of a session, by lane.
pub struct Lanes<'a> {
    pub agent: &'a Endpoint,
    pub judge: Option<&'a Endpoint>,
    pub summarizer: &'a Endpoint,
}

/// What of this build's prompts and tool schemas differs from the session's. The instruction files are the session's.
pub fn changed(frozen: &Frozen, config: &Config, lanes: &Lanes<'_>) -> Vec<Changed> {
    let mut changed = Vec::new();
    let mut look = |source, which: &str, recorded: &str, now: &str| {
        if recorded != now {
            let (recorded, now, which) = (recorded.to_owned(), now.to_owned(), which.to_owned());
            changed.push(Changed { source, which, recorded, now });
        }
    };
    look(Source::Prompt, "system prompt", &frozen.system, &prompt(frozen, config));
    let tools = sources::tools(config, &[], &[], &Secrets::default(), Rc::new(Policy::off()));
    let head = |lane: &str| frozen.heads.get(lane).map_or("", String::as_str);
    // Of the agent's head everything but the system prompt is its tools.
    look(Source::Tools, "tool schemas", head("agent"), &lanes.agent.wire.head(&frozen.system, &tools.schemas()));
    if let Some(judge) = lanes.judge {
        look(Source::Prompt, "judge's prompt", head("judge"), &judge::head(judge));
    }
    look(Source::Prompt, "summarizer's prompt", head("summarizer"), &compact::head(lanes.summarizer));
    changed
}

/// The system prompt as this build makes it around the session's instruction files.
fn prompt(frozen: &Frozen, config: &Config) -> String {
    let marks = config.instructions.iter().map(|name| format!("\n# Instructions from {name}\n"));
    let instructions = marks.filter_map(|mark| frozen.system.find(&mark)).min();
    format!("{}{}", turn::system(&[]), instructions.map_or("", |at| &frozen.system[at..]))
}
