//! The only table from errors to message, hint and exit code.

use std::fmt;

use crate::cassette::CassetteError;
use crate::event::Outcome;
use crate::goal::Cause;
use crate::model::EndpointError;
use crate::process::ProcessError;
use crate::session::SessionError;
use crate::workspace::WorkspaceError;

/// What a verb says when it cannot do its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub outcome: Outcome,
    pub message: String,
    pub hint: Option<String>,
}

impl Failure {
    pub fn new(outcome: Outcome, message: impl fmt::Display) -> Failure {
        Failure { outcome, message: message.to_string(), hint: None }
    }

    pub fn usage(message: impl fmt::Display) -> Failure {
        Failure::new(Outcome::Usage, message)
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }
}

impl From<Cause> for Failure {
    fn from(cause: Cause) -> Self {
        Failure { outcome: cause.outcome, message: cause.message, hint: cause.hint }
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let hint = match &error {
            SessionError::NoneSaved { .. } => Some(
                "start one with `spettro run --goal FILE`; `spettro sessions list --all` shows those of other workspaces"
                    .to_owned(),
            ),
            SessionError::Busy { session: Some(session), .. } => {
                Some(format!("wait for it, or end it with `spettro stop {session}`"))
            }
            SessionError::Busy { .. } => Some("wait for it".to_owned()),
            _ => None,
        };
        let failure: Failure = Cause::from(error).into();
        Failure { hint: hint.or(failure.hint), ..failure }
    }
}

impl From<EndpointError> for Failure {
    fn from(error: EndpointError) -> Self {
        match &error {
            EndpointError::MissingKey { variables, .. } => {
                let hint = format!(
                    "set {}; in CI, add it to the job's secrets (workflows from forks get no secrets)",
                    variables.join(" or ")
                );
                Failure::new(Outcome::Auth, &error).hint(hint)
            }
            EndpointError::NoKey { .. } => Failure::new(Outcome::Auth, &error),
            EndpointError::MissingHeader { variable, .. } => Failure::new(Outcome::Auth, &error).hint(format!(
                "set {variable}; in CI, add it to the job's secrets (workflows from forks get no secrets)"
            )),
            EndpointError::UnknownModel { .. } => Failure::usage(&error).hint(
                "give `model` as a map with `id`, `wire` and `base_url` for a model that is not in the catalogue",
            ),
            EndpointError::UnknownProvider { .. } => Failure::usage(&error)
                .hint("own endpoints stand under `providers:`, in the goal file or in the user's config"),
            _ => Failure::usage(&error),
        }
    }
}

impl From<ProcessError> for Failure {
    fn from(error: ProcessError) -> Self {
        Failure::new(Outcome::Environment, error)
    }
}

impl From<WorkspaceError> for Failure {
    fn from(error: WorkspaceError) -> Self {
        Failure::new(Outcome::Environment, error)
    }
}

impl From<CassetteError> for Failure {
    fn from(error: CassetteError) -> Self {
        let hint = match &error {
            CassetteError::Exists(_) => Some("name another file, or replace it with `--force`"),
            CassetteError::Secrets(_) => Some("`--allow RULE` passes over a pattern that is no secret; a value is one"),
            CassetteError::Incomplete(_) => {
                Some("`replay` and `cassette verify` take it as far as it goes with `--allow-incomplete`")
            }
            CassetteError::Newer { .. } => Some("use the version of spettro that wrote it, or a newer one"),
            _ => None,
        };
        // An existing file is a conflict, and a full or missing disk is the machine's.
        let outcome = match &error {
            CassetteError::Exists(_) => Outcome::Usage,
            CassetteError::Io { what: "write" | "sync" | "make" | "rename to", .. } => Outcome::Environment,
            _ => Outcome::Unusable,
        };
        Failure { hint: hint.map(str::to_owned), ..Failure::new(outcome, error) }
    }
}
