//! Why a tool call gave an error result.

use std::io;

use crate::event::ToolStatus;

/// Every variant's text is what the model reads after `error: `.
#[derive(Debug, thiserror::Error)]
pub(super) enum ToolError {
    #[error("unknown tool `{name}`{}", suggest(.near))]
    Unknown { name: String, near: Vec<&'static str> },
    #[error("the tool `{0}` is not available in this run")]
    NotOffered(&'static str),
    #[error("the arguments must be one JSON object: {0}; the tool was not run")]
    NotAnObject(String),
    #[error("`{field}` {problem}; the tool was not run")]
    Argument { field: String, problem: String },
    #[error(
        "the arguments hold `{0}`, which stands for a secret value that is not known here; name the environment variable instead; the tool was not run"
    )]
    Secret(String),
    /// A path that no tool may touch.
    #[error("`{path}` may not be accessed: {why}")]
    Forbidden { path: String, why: String },
    #[error("{what} `{path}`: {}", plain(.error))]
    Io {
        what: &'static str,
        path: String,
        #[source]
        error: io::Error,
    },
    /// The tool ran and says why it could not do what was asked.
    #[error("{0}")]
    Failed(String),
}

impl ToolError {
    pub(super) fn argument(field: impl Into<String>, problem: impl Into<String>) -> ToolError {
        ToolError::Argument { field: field.into(), problem: problem.into() }
    }

    /// `Refused` where nothing was run, `Error` where the tool ran and failed.
    pub(super) fn status(&self) -> ToolStatus {
        match self {
            ToolError::Unknown { .. }
            | ToolError::NotOffered(_)
            | ToolError::NotAnObject(_)
            | ToolError::Argument { .. }
            | ToolError::Secret(_)
            | ToolError::Forbidden { .. } => ToolStatus::Refused,
            ToolError::Io { .. } | ToolError::Failed(_) => ToolStatus::Error,
        }
    }
}

fn suggest(near: &[&str]) -> String {
    match near {
        [] => String::new(),
        near => {
            let names: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
            format!("; did you mean {}?", names.join(", "))
        }
    }
}

/// The system's message without the error number, which says nothing to a model.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(at) => text[..at].to_lowercase(),
        None => text,
    }
}
