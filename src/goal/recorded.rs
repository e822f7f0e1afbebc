//! What this build would send, and what a goal says today, against what a session froze: the sources of a replay.

use std::rc::Rc;

use super::config::Config;
use super::failure::Cause;
use super::{judge, sources};
use crate::compact;
use crate::model::Endpoint;
use crate::process::sandbox::Policy;
use crate::session::Frozen;
use crate::turn;
use crate::world::{Roots, Secrets};

/// The part of a session's sources that something belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    Goal,
    Prompt,
    Tools,
    Config,
}

impl Source {
    pub const fn name(self) -> &'static str {
        match self {
            Source::Goal => "goal",
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

/// The keys of a stored configuration that say what it is of and where, and not how.
const PLACES: [&str; 3] = ["name", "goal", "workspace"];

/// What of this build's prompts and tool schemas differs from the session's. With `today`, a goal's configuration as it
/// is now and what is secret in it, goal, configuration and instruction files are compared too; without, they are the
/// session's.
///
/// # Errors
/// When an instruction file of today cannot be read.
pub fn changed(
    frozen: &Frozen,
    config: &Config,
    lanes: &Lanes<'_>,
    today: Option<(&Config, &Secrets)>,
) -> Result<Vec<Changed>, Cause> {
    let mut changed = Vec::new();
    let mut look = |source, which: &str, recorded: &str, now: &str| {
        if recorded != now {
            let (recorded, now, which) = (recorded.to_owned(), now.to_owned(), which.to_owned());
            changed.push(Changed { source, which, recorded, now });
        }
    };
    let (prompt, instructions) = parts(&frozen.system, &config.instructions);
    look(Source::Prompt, "system prompt", prompt, &turn::system(&[]));
    let offers = match today {
        None => config,
        Some((today, secrets)) => {
            let cleaned = today.without(secrets);
            let roots = Roots::same(today.workspace.clone());
            let (system, _cut) = sources::system(today, &roots, secrets)?;
            look(Source::Prompt, "instructions", instructions, parts(&system, &today.instructions).1);
            look(Source::Goal, "goal", &frozen.goal, &cleaned.goal);
            look(Source::Config, "configuration", &without_places(&frozen.config), &without_places(&cleaned.yaml));
            today
        }
    };
    let tools = sources::tools(offers, &[], &[], &Secrets::default(), Rc::new(Policy::off()));
    let head = |lane: &str| frozen.heads.get(lane).map_or("", String::as_str);
    // Of the agent's head everything but the system prompt is its tools.
    look(Source::Tools, "tool schemas", head("agent"), &lanes.agent.wire.head(&frozen.system, &tools.schemas()));
    if let Some(judge) = lanes.judge {
        look(Source::Prompt, "judge's prompt", head("judge"), &judge::head(judge));
    }
    look(Source::Prompt, "summarizer's prompt", head("summarizer"), &compact::head(lanes.summarizer));
    Ok(changed)
}

/// A system prompt as two: what is spettro's own, and the instruction files of these names.
fn parts<'a>(system: &'a str, names: &[String]) -> (&'a str, &'a str) {
    let marks = names.iter().map(|name| format!("\n# Instructions from {name}\n"));
    let at = marks.filter_map(|mark| system.find(&mark)).min();
    system.split_at(at.unwrap_or(system.len()))
}

/// A stored configuration without the keys that another copy of the same goal may have otherwise.
fn without_places(yaml: &str) -> String {
    let mut kept = String::new();
    let mut skips = false;
    for line in yaml.lines() {
        if line.starts_with(|first: char| !first.is_whitespace()) {
            skips = line.split_once(':').is_some_and(|(key, _)| PLACES.contains(&key));
        }
        if !skips {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_goal_is_of_and_where_is_no_part_of_its_configuration() {
        let yaml = "name: a\ngoal: |\n  one\n\n  name: two\nworkspace: /x\nchecks:\n  - run: goal\n";
        assert_eq!(without_places(yaml), "checks:\n  - run: goal\n");
    }

    #[test]
    fn a_prompt_parts_where_its_first_instructions_begin() {
        let names = ["AGENTS.md".to_owned(), "OTHER.md".to_owned()];
        let system = "You work.\n\n# Instructions from OTHER.md\nBe kind.\n";
        assert_eq!(parts(system, &names), ("You work.\n", "\n# Instructions from OTHER.md\nBe kind.\n"));
        assert_eq!(parts("You work.\n", &names), ("You work.\n", ""));
    }
}
