//! What a provider's error means: envelopes of every shape to one [`ModelError`].
//!
//! Some that look retryable are final (no quota, sent as 429), some waits and limits stand only in the text, and
//! some gateways answer in HTML. Sources of the wordings: the messages of Anthropic, OpenAI, Azure, Google, Groq,
//! xAI, Mistral, OpenRouter, vLLM, SGLang, TGI, llama.cpp and LM Studio as their users report them.

mod text;

use std::time::Duration;

use serde_json::Value;

use super::super::error::ModelError;

/// Most characters of a provider's message that are kept.
const MAX_MESSAGE_CHARS: usize = 1_000;

/// Most bytes of an error that are read.
const MAX_ERROR_BYTES: usize = 1 << 20;

/// Classifies a response that is not 2xx.
pub(super) fn http(status: u16, headers: &[(String, String)], body: &[u8], now_unix: u64) -> ModelError {
    let mut report = Report::from_body(body);
    if report.message.is_empty() {
        report.message = format!("HTTP {status}");
    }
    let header = |name: &str| headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.trim());
    let named_wait = header("retry-after-ms")
        .and_then(|ms| ms.parse::<f64>().ok())
        .and_then(|ms| Duration::try_from_secs_f64(ms / 1_000.0).ok())
        .or_else(|| header("retry-after").and_then(|value| text::retry_after(value, now_unix)));
    let error = report.classify(Some(status), named_wait);
    match header("x-should-retry") {
        // The provider says that trying again is of no use.
        Some("false") if error.retryable() => ModelError::InvalidRequest(report.message),
        Some("true") => match error {
            ModelError::InvalidRequest(message) => ModelError::Overloaded { message, wait: named_wait },
            error => error,
        },
        _ => error,
    }
}

/// Classifies an error that came inside a 2xx response, as its JSON text.
pub(super) fn in_reply(json: &[u8]) -> ModelError {
    let mut report = Report::from_body(json);
    if report.message.is_empty() {
        report.message = "the provider reported an error without a message".into();
    }
    report.classify(None, None)
}

/// What an envelope says.
#[derive(Debug, Default)]
struct Report {
    message: String,
    /// Further text to search: an upstream's own answer.
    detail: String,
    /// Types, codes and statuses, in lower case.
    kinds: Vec<String>,
    /// An HTTP status that the envelope repeats.
    status: Option<u16>,
    limit_tokens: Option<u64>,
    wait: Option<Duration>,
}

impl Report {
    fn from_body(body: &[u8]) -> Report {
        let mut report = Report::default();
        let body = &body[..body.len().min(MAX_ERROR_BYTES)];
        match serde_json::from_slice::<Value>(body) {
            Ok(value) => report.read(&value, 0),
            Err(_) => report.message = text::of_page(&String::from_utf8_lossy(body)),
        }
        report.message = tidy(&report.message);
        report
    }

    /// Collects what any known envelope holds; outer fields win over those further in.
    fn read(&mut self, value: &Value, depth: usize) {
        match value {
            Value::String(text) => self.say(text),
            Value::Array(all) => {
                if let Some(first) = all.first() {
                    self.read(first, depth);
                }
            }
            Value::Object(object) if depth < 4 => {
                for key in ["type", "code", "status", "error_code", "reason"] {
                    match object.get(key) {
                        Some(Value::String(kind)) if kind != "error" => {
                            self.status = self.status.or_else(|| status(kind.parse().ok()));
                            self.kinds.push(kind.to_lowercase());
                        }
                        Some(Value::Number(code)) => self.status = self.status.or_else(|| status(code.as_u64())),
                        _ => {}
                    }
                }
                self.limit_tokens = self.limit_tokens.or_else(|| object.get("n_ctx").and_then(Value::as_u64));
                if let Some(delay) = object.get("retryDelay").and_then(Value::as_str) {
                    self.wait = self.wait.or_else(|| text::duration(delay));
                }
                for key in ["error", "innererror", "message", "msg", "detail", "errors", "title"] {
                    if let Some(inner) = object.get(key) {
                        self.read(inner, depth + 1);
                    }
                }
                for detail in object.get("details").and_then(Value::as_array).into_iter().flatten() {
                    self.read(detail, depth + 1);
                }
                if let Some(raw) = object.get("metadata").and_then(|metadata| metadata.get("raw")) {
                    self.detail = raw.as_str().map_or_else(|| raw.to_string(), str::to_owned);
                }
            }
            _ => {}
        }
    }

    fn say(&mut self, text: &str) {
        if self.message.is_empty() {
            self.message = text.to_owned();
        }
    }

    /// True when it is not the request that is wrong but what it asks for: a filter has declined the prompt.
    fn refuses(&self, text: &str) -> bool {
        let filtered =
            ["content_filter", "content_policy_violation", "responsibleaipolicyviolation", "safety_violation"];
        // One vendor's code for a declined prompt is also its code for a broken one.
        self.is(&filtered)
            || (self.is(&["invalid_prompt"]) && text::is_policy(text))
            || text.contains("requires moderation")
    }

    fn is(&self, kinds: &[&str]) -> bool {
        self.kinds.iter().any(|kind| kinds.contains(&kind.as_str()))
    }

    fn classify(&self, http_status: Option<u16>, named_wait: Option<Duration>) -> ModelError {
        let all = format!("{} {}", self.message, self.detail).to_lowercase();
        let message = if self.detail.is_empty() {
            self.message.clone()
        } else {
            tidy(&format!("{}: {}", self.message, self.detail))
        };
        let wait = named_wait.or(self.wait).or_else(|| text::wait(&all));
        // A gateway's 200, 400 or 500 may repeat the status that counts.
        let status = match (http_status, self.status) {
            (None | Some(200..=299 | 400 | 500), Some(inner)) => Some(inner),
            (outer, _) => outer,
        };
        let code = status.unwrap_or(0);

        if text::too_large_per_minute(&all) {
            return ModelError::ContextOverflow { message, limit_tokens: text::per_minute_limit(&all) };
        }
        if matches!(code, 0 | 400 | 403 | 422) && self.refuses(&all) {
            return ModelError::Refused(message);
        }
        let overflow = self.is(&["context_length_exceeded", "exceed_context_size_error", "request_too_large"])
            || text::is_overflow(&all)
            || code == 413;
        if overflow && !matches!(code, 401..=404 | 429) {
            let limit_tokens = self.limit_tokens.or_else(|| text::limit(&all));
            return ModelError::ContextOverflow { message, limit_tokens };
        }
        let quota_kind = self.is(&[
            "insufficient_quota",
            "billing_error",
            "billing_hard_limit_reached",
            "billing_not_active",
            "credit_balance_too_low",
            "insufficient_credits",
        ]);
        if quota_kind || code == 402 {
            return ModelError::Quota(message);
        }
        // «quota» in a text is final unless a wait is named: some call a rate limit that.
        if matches!(code, 0 | 400 | 403 | 429) && text::is_quota(&all) && (code != 429 || wait.is_none()) {
            return ModelError::Quota(message);
        }
        // Google refuses a key with the status of any other wrong argument.
        if self.is(&["api_key_invalid", "api_key_expired"]) {
            return ModelError::Auth(message);
        }
        match code {
            401 | 403 => return ModelError::Auth(message),
            408 | 409 | 425 | 503 | 504 | 529 => return ModelError::Overloaded { message, wait },
            429 => return ModelError::RateLimited { message, wait },
            _ => {}
        }
        if self.is(&["rate_limit_error", "rate_limit_exceeded", "too_many_requests", "resource_exhausted"]) {
            return ModelError::RateLimited { message, wait };
        }
        if self.is(&[
            "overloaded_error",
            "api_error",
            "server_error",
            "internal_server_error",
            "internal_error",
            "timeout_error",
            "unavailable",
        ]) {
            return ModelError::Overloaded { message, wait };
        }
        if self.is(&["authentication_error", "permission_error", "invalid_api_key", "unauthenticated"]) {
            return ModelError::Auth(message);
        }
        match code {
            500.. => ModelError::Overloaded { message, wait },
            // Inside a reply, without a status or a known type: the provider failed, and may not the next time.
            0 if !self.is(&["invalid_request_error", "not_found_error", "invalid_prompt", "model_not_found"]) => {
                ModelError::Overloaded { message, wait }
            }
            _ => ModelError::InvalidRequest(message),
        }
    }
}

fn status(number: Option<u64>) -> Option<u16> {
    number.and_then(|number| u16::try_from(number).ok()).filter(|number| (400..600).contains(number))
}

/// One line without control characters, of bounded length.
fn tidy(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    line.split(' ')
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .take(MAX_MESSAGE_CHARS)
        .collect()
}

#[cfg(test)]
mod tests;
