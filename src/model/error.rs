//! Every way in which a call of a model can fail, whatever the wire.

use std::time::Duration;

/// One attempt's failure, classified.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    #[error("credentials refused: {0}")]
    Auth(String),
    /// Money or quota at the provider is used up: final.
    #[error("quota used up: {0}")]
    Quota(String),
    #[error("rate limited: {message}")]
    RateLimited { message: String, wait: Option<Duration> },
    #[error("overloaded: {message}")]
    Overloaded { message: String, wait: Option<Duration> },
    #[error("the request does not fit the context window: {message}")]
    ContextOverflow { message: String, limit_tokens: Option<u64> },
    #[error("invalid request: {0}")]
    InvalidRequest(String),
    /// Declined before or while answering, as an error instead of a reply; the gateway makes the reply of it.
    #[error("refused: {0}")]
    Refused(String),
    /// The response ended before its terminal signal: nothing of it ran.
    #[error("the reply was cut off")]
    Truncated,
    #[error("malformed reply: {0}")]
    Malformed(String),
    #[error("network: {0}")]
    Network(String),
    #[error("timeout: {0}")]
    Timeout(String),
    /// A recorded model has no (further) reply.
    #[error("no recorded reply: {0}")]
    Miss(String),
}

impl ModelError {
    /// Retried within the outage budget. The rest is final at once.
    pub const fn retryable(&self) -> bool {
        matches!(
            self,
            ModelError::RateLimited { .. }
                | ModelError::Overloaded { .. }
                | ModelError::Truncated
                | ModelError::Malformed(_)
                | ModelError::Network(_)
                | ModelError::Timeout(_)
        )
    }

    /// With the text that came from outside rewritten by `clean`.
    pub fn map_text(self, clean: impl Fn(&str) -> String) -> ModelError {
        match self {
            ModelError::Auth(text) => ModelError::Auth(clean(&text)),
            ModelError::Quota(text) => ModelError::Quota(clean(&text)),
            ModelError::RateLimited { message, wait } => ModelError::RateLimited { message: clean(&message), wait },
            ModelError::Overloaded { message, wait } => ModelError::Overloaded { message: clean(&message), wait },
            ModelError::ContextOverflow { message, limit_tokens } => {
                ModelError::ContextOverflow { message: clean(&message), limit_tokens }
            }
            ModelError::InvalidRequest(text) => ModelError::InvalidRequest(clean(&text)),
            ModelError::Refused(text) => ModelError::Refused(clean(&text)),
            ModelError::Truncated => ModelError::Truncated,
            ModelError::Malformed(text) => ModelError::Malformed(clean(&text)),
            ModelError::Network(text) => ModelError::Network(clean(&text)),
            ModelError::Timeout(text) => ModelError::Timeout(clean(&text)),
            ModelError::Miss(text) => ModelError::Miss(clean(&text)),
        }
    }

    /// The wait that the provider asked for.
    pub const fn wait(&self) -> Option<Duration> {
        match self {
            ModelError::RateLimited { wait, .. } | ModelError::Overloaded { wait, .. } => *wait,
            _ => None,
        }
    }
}
