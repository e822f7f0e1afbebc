//! Error bodies and headers of real servers, and what a retry makes of them.

use super::*;

const NOW: u64 = 784_111_700;

fn classify(status: u16, headers: &[(&str, &str)], body: &str) -> ModelError {
    let headers: Vec<_> = headers.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    http(status, &headers, body.as_bytes(), NOW)
}

fn limited(message: &str, seconds: Option<f64>) -> ModelError {
    ModelError::RateLimited { message: message.into(), wait: seconds.map(Duration::from_secs_f64) }
}

fn overloaded(message: &str, seconds: Option<f64>) -> ModelError {
    ModelError::Overloaded { message: message.into(), wait: seconds.map(Duration::from_secs_f64) }
}

#[test]
fn envelopes_of_every_shape_are_read() {
    for body in [
        r#"{"type":"error","error":{"type":"authentication_error","message":"no"}}"#,
        r#"{"error":{"message":"no","type":"invalid_request_error","code":"invalid_api_key"}}"#,
        r#"{"error":"no"}"#,
        r#"{"message":"no"}"#,
        r#"{"object":"error","message":"no","code":401}"#,
        r#"{"detail":"no"}"#,
        r#"{"detail":[{"msg":"no"}]}"#,
        r#"[{"error":{"code":401,"message":"no","status":"UNAUTHENTICATED"}}]"#,
        r#"{"errors":[{"message":"no"}]}"#,
        "<html><title>no</title></html>",
        "no",
    ] {
        assert_eq!(classify(401, &[], body), ModelError::Auth("no".into()), "{body}");
    }
    assert_eq!(classify(401, &[], ""), ModelError::Auth("HTTP 401".into()));
    assert_eq!(classify(503, &[], "{}"), overloaded("HTTP 503", None));
}

#[test]
fn waits_come_from_headers_first() {
    let body = r#"{"error":{"message":"Try again in 35.9s","type":"tokens","code":"rate_limit_exceeded"}}"#;
    let text = "Try again in 35.9s";
    assert_eq!(classify(429, &[], body), limited(text, Some(35.9)));
    assert_eq!(classify(429, &[("retry-after", "7")], body), limited(text, Some(7.0)));
    assert_eq!(classify(429, &[("retry-after", "7"), ("retry-after-ms", "250")], body), limited(text, Some(0.25)));
    assert_eq!(classify(429, &[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")], body), limited(text, Some(77.0)));
    assert_eq!(classify(429, &[("retry-after", "later")], body), limited(text, Some(35.9)));
    assert_eq!(classify(529, &[("retry-after", "3")], ""), overloaded("HTTP 529", Some(3.0)));
}

#[test]
fn used_up_money_is_final_under_any_status() {
    for (status, body) in [
        (
            429,
            r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the API"}}"#,
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on 2026-12-01"}}"#,
        ),
        (402, r#"{"error":{"message":"This request requires more credits","code":402}}"#),
        (
            403,
            r#"{"error":{"message":"Your team has used all available credits or reached its monthly spending limit"}}"#,
        ),
        (429, r#"{"error":{"message":"You exceeded your current quota, please check your plan"}}"#),
        (400, r#"{"error":{"type":"billing_error","message":"x"}}"#),
    ] {
        let error = classify(status, &[], body);
        assert!(matches!(error, ModelError::Quota(_)), "{body}: {error:?}");
        assert!(!error.retryable());
    }
    // With a named wait it is a rate limit in other words.
    assert_eq!(
        classify(
            429,
            &[],
            r#"[{"error":{"code":429,"message":"You exceeded your current quota. Please retry in 12s.","status":"RESOURCE_EXHAUSTED"}}]"#
        ),
        limited("You exceeded your current quota. Please retry in 12s.", Some(12.0))
    );
    assert_eq!(
        classify(
            429,
            &[],
            r#"{"error":{"message":"q","status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"34s"}]}}"#
        ),
        limited("q", Some(34.0))
    );
}

#[test]
fn an_overflow_names_its_limit() {
    let overflow = |message: &str, limit| ModelError::ContextOverflow { message: message.into(), limit_tokens: limit };
    assert_eq!(
        classify(
            400,
            &[],
            r#"{"error":{"code":400,"message":"too big","type":"exceed_context_size_error","n_prompt_tokens":6104,"n_ctx":4096}}"#
        ),
        overflow("too big", Some(4_096))
    );
    assert_eq!(
        classify(
            400,
            &[],
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}"#
        ),
        overflow("prompt is too long: 208310 tokens > 200000 maximum", Some(200_000))
    );
    assert_eq!(
        classify(400, &[], r#"{"error":{"message":"m","code":"context_length_exceeded"}}"#),
        overflow("m", None)
    );
    assert_eq!(
        classify(413, &[], "<title>413 Request Entity Too Large</title>"),
        overflow("413 Request Entity Too Large", None)
    );
    assert_eq!(
        classify(
            429,
            &[],
            r#"{"error":{"message":"Request too large for x on tokens per min (TPM): Limit 30000, Requested 35000.","code":"rate_limit_exceeded"}}"#
        ),
        overflow("Request too large for x on tokens per min (TPM): Limit 30000, Requested 35000.", Some(30_000))
    );
    // A gateway hides the upstream's words.
    let hidden = r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"This model's maximum context length is 8192 tokens. However, you requested 9000 tokens\"}}"}}}"#;
    assert!(matches!(classify(400, &[], hidden), ModelError::ContextOverflow { limit_tokens: Some(8_192), .. }));
}

#[test]
fn the_rest_goes_by_status() {
    for status in [408, 409, 425, 500, 502, 503, 504, 529] {
        assert_eq!(classify(status, &[], r#"{"message":"m"}"#), overloaded("m", None), "{status}");
    }
    for status in [400, 404, 405, 422] {
        assert_eq!(classify(status, &[], r#"{"message":"m"}"#), ModelError::InvalidRequest("m".into()), "{status}");
    }
    assert_eq!(classify(403, &[], r#"{"message":"m"}"#), ModelError::Auth("m".into()));
    assert_eq!(classify(400, &[], r#"{"error":{"type":"overloaded_error","message":"m"}}"#), overloaded("m", None));
}

#[test]
fn the_provider_may_say_whether_to_try_again() {
    assert_eq!(
        classify(429, &[("x-should-retry", "false")], r#"{"message":"m"}"#),
        ModelError::InvalidRequest("m".into())
    );
    assert_eq!(classify(503, &[("x-should-retry", "true")], r#"{"message":"m"}"#), overloaded("m", None));
    assert_eq!(
        classify(400, &[("x-should-retry", "true"), ("retry-after", "2")], r#"{"message":"m"}"#),
        overloaded("m", Some(2.0))
    );
    assert_eq!(classify(401, &[("x-should-retry", "true")], r#"{"message":"m"}"#), ModelError::Auth("m".into()));
}

#[test]
fn errors_inside_a_reply_are_typed() {
    assert_eq!(
        in_reply(br#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#),
        overloaded("m", None)
    );
    assert_eq!(in_reply(br#"{"type":"error","error":{"type":"rate_limit_error","message":"m"}}"#), limited("m", None));
    assert_eq!(in_reply(br#"{"error":{"code":502,"message":"m"}}"#), overloaded("m", None));
    assert_eq!(in_reply(br#"{"error":{"code":401,"message":"m"}}"#), ModelError::Auth("m".into()));
    assert_eq!(
        in_reply(br#"{"error":{"type":"invalid_request_error","message":"m"}}"#),
        ModelError::InvalidRequest("m".into())
    );
    assert_eq!(in_reply(br#"{"error":{"message":"m"}}"#), overloaded("m", None));
}

#[test]
fn a_message_is_one_line_of_bounded_length() {
    let body = format!(r#"{{"message":"a\n\tb{}"}}"#, "x".repeat(5_000));
    let ModelError::InvalidRequest(message) = classify(400, &[], &body) else { panic!() };
    assert!(message.starts_with("a bxx"));
    assert_eq!(message.chars().count(), MAX_MESSAGE_CHARS);
}
