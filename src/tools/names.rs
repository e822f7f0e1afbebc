//! The tools by name: real names, hidden aliases, and misspelt names that fit exactly one tool.

use super::error::ToolError;

/// Names longer than this are shown cut.
const SHOWN_CHARS: usize = 80;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tool {
    Bash,
    JobOutput,
    JobKill,
    Wait,
    FileRead,
    FileWrite,
    FileEdit,
    Grep,
    Glob,
    TodoWrite,
    Output,
    GoalComplete,
}

impl Tool {
    /// In the order in which they are offered.
    pub(super) const ALL: [Tool; 12] = [
        Tool::Bash,
        Tool::JobOutput,
        Tool::JobKill,
        Tool::Wait,
        Tool::FileRead,
        Tool::FileWrite,
        Tool::FileEdit,
        Tool::Grep,
        Tool::Glob,
        Tool::TodoWrite,
        Tool::Output,
        Tool::GoalComplete,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Tool::Bash => "bash",
            Tool::JobOutput => "job-output",
            Tool::JobKill => "job-kill",
            Tool::Wait => "wait",
            Tool::FileRead => "file-read",
            Tool::FileWrite => "file-write",
            Tool::FileEdit => "file-edit",
            Tool::Grep => "grep",
            Tool::Glob => "glob",
            Tool::TodoWrite => "todo-write",
            Tool::Output => "tool-output",
            Tool::GoalComplete => "goal-complete",
        }
    }

    /// Needs background jobs.
    pub(super) const fn is_for_jobs(self) -> bool {
        matches!(self, Tool::JobOutput | Tool::JobKill | Tool::Wait)
    }

    /// Needs nothing but the files of the workspace.
    pub(super) const fn is_for_files(self) -> bool {
        matches!(self, Tool::FileRead | Tool::FileWrite | Tool::FileEdit | Tool::Grep | Tool::Glob)
    }

    /// Looks at the workspace or at jobs: what it gives depends on the world outside.
    pub(super) const fn is_outside(self) -> bool {
        matches!(
            self,
            Tool::FileRead
                | Tool::FileWrite
                | Tool::FileEdit
                | Tool::Grep
                | Tool::Glob
                | Tool::JobOutput
                | Tool::JobKill
                | Tool::Wait
        )
    }

    /// Gives results that may be larger than a request should carry.
    pub(super) const fn spools(self) -> bool {
        matches!(self, Tool::Bash | Tool::JobOutput | Tool::FileRead | Tool::FileEdit | Tool::Grep | Tool::Glob)
    }
}

/// Under which arguments a tool was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Its own.
    Own,
    /// One task's fields, for `todo-write`.
    TaskCreate,
    TaskUpdate,
    TaskGet,
    TaskList,
    TaskDelete,
    /// A folder, for `glob`.
    Ls,
}

/// Names that are not offered and work all the same.
const ALIASES: [(&str, Tool, Form); 9] = [
    ("bash-output", Tool::JobOutput, Form::Own),
    ("shell-exec", Tool::Bash, Form::Own),
    ("multi-edit", Tool::FileEdit, Form::Own),
    ("ls", Tool::Glob, Form::Ls),
    ("task-create", Tool::TodoWrite, Form::TaskCreate),
    ("task-update", Tool::TodoWrite, Form::TaskUpdate),
    ("task-get", Tool::TodoWrite, Form::TaskGet),
    ("task-list", Tool::TodoWrite, Form::TaskList),
    ("task-delete", Tool::TodoWrite, Form::TaskDelete),
];

/// Which tool a name means. A name that is none is taken when it fits exactly one offered tool or alias: the same
/// letters whatever the case and the separators, the same words in another order, or one or two typing errors.
pub(super) fn resolve(name: &str, offered: &[Tool]) -> Result<(Tool, Form), ToolError> {
    let real = Tool::ALL.iter().map(|tool| (tool.name(), *tool, Form::Own));
    let known: Vec<(&'static str, Tool, Form)> = real.chain(ALIASES).collect();
    if let Some((_, tool, form)) = known.iter().find(|(known, ..)| *known == name) {
        return if offered.contains(tool) { Ok((*tool, *form)) } else { Err(ToolError::NotOffered(tool.name())) };
    }
    let known: Vec<_> = known.into_iter().filter(|(_, tool, _)| offered.contains(tool)).collect();
    let unknown = |near| ToolError::Unknown { name: super::output::one_line(name, SHOWN_CHARS), near };
    if name.len() > 128 {
        return Err(unknown(Vec::new()));
    }
    let written = letters(name);
    let sorted = sorted_words(name);
    let fits: Vec<_> =
        known.iter().filter(|(known, ..)| letters(known) == written || sorted_words(known) == sorted).collect();
    if let [(_, tool, form)] = fits[..] {
        return Ok((*tool, *form));
    }
    let mut near: Vec<(usize, &'static str, Tool)> = known
        .iter()
        .filter(|(.., form)| *form == Form::Own)
        .map(|(known, tool, _)| (distance(&letters(known), &written), tool.name(), *tool))
        .collect();
    near.sort_by_key(|(distance, ..)| *distance);
    near.dedup_by_key(|(.., tool)| *tool);
    let allowed = if written.len() < 6 { 1 } else { 2 };
    let fits: Vec<_> = near.iter().filter(|(distance, ..)| *distance <= allowed).collect();
    if let [(_, _, tool)] = fits[..] {
        return Ok((*tool, Form::Own));
    }
    let most = (written.len() / 2).max(2);
    let mut names: Vec<&'static str> = Vec::new();
    for (_, name, _) in near.iter().filter(|(distance, name, _)| *distance <= most || shares_word(name, &sorted)) {
        if names.len() < 3 && !names.contains(name) {
            names.push(name);
        }
    }
    Err(unknown(names))
}

fn letters(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// The words of `file_read`, `file-read` or `FileRead`, in byte order.
fn sorted_words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut previous_lower = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && previous_lower) {
            words.push(String::new());
        }
        previous_lower = c.is_lowercase();
        if c.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words.sort();
    words
}

fn shares_word(name: &str, words: &[String]) -> bool {
    name.split('-').any(|word| words.iter().any(|other| other == word))
}

/// How many insertions, deletions, replacements and swaps of neighbours lie between two names.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (rows[i - 1][j - 1] + same).min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(rows[i - 2][j - 2] + 1);
            }
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> Option<(Tool, Form)> {
        resolve(name, &Tool::ALL).ok()
    }

    #[test]
    fn real_names_and_aliases() {
        for real in Tool::ALL {
            assert_eq!(tool(real.name()), Some((real, Form::Own)));
        }
        assert_eq!(tool("bash-output"), Some((Tool::JobOutput, Form::Own)));
        assert_eq!(tool("shell-exec"), Some((Tool::Bash, Form::Own)));
        assert_eq!(tool("multi-edit"), Some((Tool::FileEdit, Form::Own)));
        assert_eq!(tool("ls"), Some((Tool::Glob, Form::Ls)));
        assert_eq!(tool("task-update"), Some((Tool::TodoWrite, Form::TaskUpdate)));
    }

    #[test]
    fn a_misspelt_name_that_fits_one_tool_is_taken() {
        for (name, real) in [
            ("file_read", Tool::FileRead),
            ("FileRead", Tool::FileRead),
            ("read_file", Tool::FileRead),
            ("Bash", Tool::Bash),
            ("bsah", Tool::Bash),
            ("gerp", Tool::Grep),
            ("todowrite", Tool::TodoWrite),
            ("tood-write", Tool::TodoWrite),
            ("goal_complet", Tool::GoalComplete),
            ("MultiEdit", Tool::FileEdit),
        ] {
            assert_eq!(tool(name).map(|(tool, _)| tool), Some(real), "{name}");
        }
    }

    #[test]
    fn otherwise_the_error_names_up_to_three() {
        let error = |name: &str| resolve(name, &Tool::ALL).expect_err(name).to_string();
        assert_eq!(error("web-fetch"), "unknown tool `web-fetch`");
        assert_eq!(
            error("file-tree"),
            "unknown tool `file-tree`; did you mean `file-read`, `file-write`, `file-edit`?"
        );
        assert!(error(&"x".repeat(5_000)).len() < 120);
        assert!(error("job-list").contains("`job-"), "{}", error("job-list"));
        assert!(!error("").contains("did you mean"));
    }

    #[test]
    fn a_tool_that_is_not_offered_is_neither_taken_nor_named() {
        let offered = [Tool::FileRead];
        assert!(matches!(resolve("bash", &offered), Err(ToolError::NotOffered("bash"))));
        assert!(matches!(resolve("bash-output", &offered), Err(ToolError::NotOffered("job-output"))));
        assert!(matches!(resolve("bsah", &offered), Err(ToolError::Unknown { near, .. }) if near.is_empty()));
    }
}
