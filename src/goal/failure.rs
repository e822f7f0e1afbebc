//! From what ended a turn to the outcome it means, with a message and a hint.

use std::time::Duration;

use crate::event::Outcome;
use crate::model::{CallError, ModelError};
use crate::session::SessionError;
use crate::turn::Ended;

/// Why a run ended otherwise than by its verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    pub outcome: Outcome,
    pub message: String,
    pub hint: Option<String>,
    /// The key of the limit that was hit.
    pub limit: Option<String>,
    pub retry_after: Option<Duration>,
    /// False when trying again cannot help although the outcome is a retryable one.
    pub retryable: bool,
}

impl Cause {
    pub fn new(outcome: Outcome, message: impl Into<String>) -> Cause {
        Cause {
            outcome,
            message: message.into(),
            hint: None,
            limit: None,
            retry_after: None,
            retryable: outcome.retryable(),
        }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Cause {
        self.hint = Some(hint.into());
        self
    }

    pub fn limit(mut self, key: &str) -> Cause {
        self.limit = Some(key.to_owned());
        self
    }
}

/// What an error that ends the run means.
pub fn cause(ended: &Ended) -> Cause {
    match ended {
        Ended::Baseline => Cause::new(Outcome::Environment, "the baseline failed"),
        Ended::Halted(why) => {
            let cause = Cause::new(why.outcome(), format!("stopped by {}", why.name()));
            match why {
                crate::world::Why::Drain => Cause { message: "stopped as asked, its state is saved".into(), ..cause },
                crate::world::Why::Signal(outcome) => {
                    let name = match outcome {
                        Outcome::Hangup => "SIGHUP",
                        Outcome::Interrupt => "SIGINT",
                        _ => "SIGTERM",
                    };
                    Cause { message: format!("ended by {name}"), ..cause }
                }
                crate::world::Why::TimeLimit => {
                    Cause { message: "the time limit is over".into(), ..cause }.limit("limits.time")
                }
                crate::world::Why::Idle => {
                    Cause { message: "nothing happened for `limits.idle`".into(), ..cause }.limit("limits.idle")
                }
                _ => cause,
            }
        }
        Ended::Session(error) => session(error),
        Ended::Call(error) => call(error),
    }
}

/// What an error of the log means: disk trouble, or somebody else's hand in spettro's own files.
pub fn session(error: &SessionError) -> Cause {
    match error {
        SessionError::Foreign { .. } => Cause::new(Outcome::Policy, error.to_string()),
        SessionError::Io { error: io, .. } => {
            use std::io::ErrorKind::{FileTooLarge, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
            let cause = Cause::new(Outcome::Environment, error.to_string());
            match io.kind() {
                StorageFull | QuotaExceeded => cause.hint("free some space, then resume the session"),
                FileTooLarge => cause.hint("raise the limit on file sizes (`ulimit -f`), then resume the session"),
                PermissionDenied | ReadOnlyFilesystem => {
                    cause.hint("`SPETTRO_HOME` or `--session-dir` names another folder for sessions")
                }
                _ => cause,
            }
        }
        SessionError::Busy { .. } => Cause::new(Outcome::Saved, error.to_string()),
        SessionError::Corrupt { .. } | SessionError::Newer { .. } => Cause::new(Outcome::Unusable, error.to_string()),
        _ => Cause::new(Outcome::Usage, error.to_string()),
    }
}

/// What a call that gave no reply means.
pub fn call(error: &CallError) -> Cause {
    match error {
        CallError::Limit(hit) => Cause::new(Outcome::CostLimit, error.to_string()).limit(hit.key()),
        CallError::NoRoom { .. } => Cause::new(Outcome::Context, error.to_string())
            .hint("use a model with a larger window, or set `model.context_window` if it is larger than known"),
        CallError::Cut { .. } => Cause::new(Outcome::Context, error.to_string()).hint(
            "give the server a larger window (llama.cpp: `--ctx-size`, Ollama: `num_ctx`), or take another model",
        ),
        CallError::Exhausted { retry_after, .. } => {
            let outcome = if retry_after.is_some() { Outcome::Saved } else { Outcome::Provider };
            Cause { retry_after: *retry_after, ..Cause::new(outcome, error.to_string()) }
        }
        CallError::Halted { why, .. } => cause(&Ended::Halted(*why)),
        CallError::Session(error) => session(error),
        CallError::Model(model) => match model {
            ModelError::Auth(_) => Cause::new(Outcome::Auth, error.to_string())
                .hint("check the key's variable and what it may be used for"),
            ModelError::Quota(_) => Cause::new(Outcome::Auth, error.to_string()),
            ModelError::ContextOverflow { .. } => Cause::new(Outcome::Context, error.to_string())
                .hint("set `model.context_window` to what the server really has"),
            ModelError::Miss(_) => Cause::new(Outcome::Unusable, error.to_string())
                .hint("the goal needs more replies than the cassette holds"),
            _ => Cause { retryable: false, ..Cause::new(Outcome::Provider, error.to_string()) },
        },
    }
}
