//! CONTRACT (tools helper): the one door to a tool.
#![allow(unused_variables, dead_code)]
use std::collections::BTreeMap;
use std::time::Duration;

use crate::event::{TaskGraph, ToolStatus};
use crate::model::ToolSchema;
use crate::session::{ReadMark, Spool};
use crate::world::{Roots, World};

/// What the tools of a session need to know once.
pub struct ToolOptions {
    pub allow: Option<Vec<String>>,
    pub deny: Vec<String>,
    /// `limits.command`: default and most of a command's timeout.
    pub command_limit: Duration,
    /// Folders that no file tool may touch (spettro's home, session store).
    pub own_dirs: Vec<std::path::PathBuf>,
    /// Offer the job tools and `wait` (background jobs).
    pub jobs: bool,
}

/// A tool call of a reply.
#[derive(Debug, Clone)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    pub arguments: String,
}

/// What a tool call gave.
#[derive(Debug, Clone)]
pub struct Ran {
    /// The tool's real name (aliases and near misses resolved), or the name as written when unknown.
    pub tool: String,
    /// At most 120 characters, no control characters: `"cargo test"`, `src/main.rs`.
    pub summary: String,
    pub status: ToolStatus,
    /// What the model sees.
    pub text: String,
    /// The full text before any cut, for a later, smaller cut.
    pub full: String,
    pub output_bytes: u64,
    pub spool: Option<u64>,
    pub marks: Vec<ReadMark>,
    /// Shown paths of files it changed.
    pub changed: Vec<String>,
    /// The graph after a `todo-write` that changed it.
    pub tasks: Option<TaskGraph>,
    /// `goal-complete`: summary, verified.
    pub complete: Option<(String, Option<String>)>,
}

pub struct Tools {}

impl Tools {
    pub fn new(options: ToolOptions) -> Tools {
        todo!()
    }
    /// On resume: what was read and the tasks as they stood.
    pub fn restore(&mut self, marks: BTreeMap<String, String>, tasks: TaskGraph) {
        todo!()
    }
    /// As offered, in a fixed order; a pure function of the options.
    pub fn schemas(&self) -> Vec<ToolSchema> {
        todo!()
    }
    pub fn tasks(&self) -> &TaskGraph {
        todo!()
    }
    /// The resolved name and the one-line summary, before it runs.
    pub fn describe(&self, call: &ToolCall) -> (String, String) {
        todo!()
    }
    /// Whether the (resolved) call can change the workspace (bash, file-write, file-edit).
    pub fn changes(&self, call: &ToolCall) -> bool {
        todo!()
    }
    /// Runs one call to its end. `budget_chars` is the most that the result may take besides the tool's own limit.
    /// Dropping the future ends a running command. Never fails: every problem is an error result.
    pub async fn run(
        &mut self,
        world: &World,
        roots: &Roots,
        spool: &Spool,
        call: &ToolCall,
        budget_chars: usize,
    ) -> Ran {
        todo!()
    }
}

/// Cuts a full output to a budget of characters (pure; head, or for commands head ¾ and tail ¼, at line ends and
/// character borders, with the footer that says how to read on). Returns the text unchanged when it fits.
pub fn cut(tool: &str, full: &str, budget_chars: usize, spool: Option<u64>) -> String {
    todo!()
}
