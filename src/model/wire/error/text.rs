//! What stands only in the text of an error: that it is an overflow or a used-up quota, limits, waits.
//!
//! All functions but [`of_page`] and [`retry_after`] take text in lower case.

use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;

/// The patterns here are constants, and each is compiled by a test.
fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a constant pattern")
}

fn any(text: &str, parts: &[&str]) -> bool {
    parts.iter().any(|part| text.contains(part))
}

/// True when the text says that the request is too long for the model.
pub(super) fn is_overflow(text: &str) -> bool {
    let window = [
        "context window",
        "context length",
        "context size",
        "context limit",
        "context_length",
        "maximum prompt length",
        "maximum model length",
        "maximum input length",
        "model token limit",
        "maximum number of tokens allowed",
    ];
    let exceeded = [
        "exceed",
        "too long",
        "too large",
        "too many",
        "longer than",
        "larger than",
        "greater than",
        "overflow",
        "resulted in",
        "you requested",
        "request contains",
        "your request has",
    ];
    let whole = [
        "prompt is too long",
        "input is too long",
        "prompt exceeds max length",
        "tokens exceed the configured limit",
        "max_new_tokens` must be <=",
        "reduce the length of the messages",
        "reduce the length of the prompt",
        "reduce the length of the input",
        "context the overflows",
    ];
    any(text, &whole)
        || (any(text, &window) && any(text, &exceeded))
        || (text.contains("prompt token count") && text.contains("exceeds the limit"))
}

/// The window that an overflow names.
pub(super) fn limit(text: &str) -> Option<u64> {
    static LIMITS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
        [
            r"too long: [0-9,]+ tokens? > ([0-9][0-9,]*)",
            r"exceed context limit: [^>]*> ([0-9][0-9,]*)",
            r"model with ([0-9][0-9,]*) maximum context length",
            r"maximum (?:context|prompt|model|input) length(?: is| of|:)? \(?([0-9][0-9,]*)",
            r"tokens allowed \(?([0-9][0-9,]*)",
            r"(?:token limit|configured limit|the limit)(?: is| of|:)? ([0-9][0-9,]*)",
            r"must be <= ([0-9][0-9,]*)",
            r"context (?:size|window|length|limit)(?: is| of|:)?(?: only)? \(?([0-9][0-9,]*)",
        ]
        .into_iter()
        .map(pattern)
        .collect()
    });
    LIMITS.iter().find_map(|pattern| number(text, pattern))
}

/// True for one request that is larger than what a minute allows: waiting never helps, making it smaller does.
pub(super) fn too_large_per_minute(text: &str) -> bool {
    text.contains("request too large") && text.contains("tokens per min")
}

pub(super) fn per_minute_limit(text: &str) -> Option<u64> {
    static LIMIT: LazyLock<Regex> = LazyLock::new(|| pattern(r"limit:? ([0-9][0-9,]*)"));
    number(text, &LIMIT)
}

fn number(text: &str, pattern: &Regex) -> Option<u64> {
    pattern.captures(text)?.get(1)?.as_str().replace(',', "").parse().ok()
}

/// True when the text says that money or quota is used up.
pub(super) fn is_quota(text: &str) -> bool {
    any(
        text,
        &[
            "credit balance",
            "current quota",
            "spend limit",
            "spending limit",
            "usage limit",
            "billing hard limit",
            "insufficient credit",
            "insufficient balance",
            "insufficient funds",
            "insufficient quota",
            "requires more credits",
            "out of credits",
            "used all available credits",
            "billing is not active",
            "billing issue",
        ],
    )
}

/// True when the text says that a prompt was declined for what it asks.
pub(super) fn is_policy(text: &str) -> bool {
    any(text, &["usage policy", "usage policies", "content policy", "flagged"])
}

/// The wait that a text names («try again in 1m26.4s»).
pub(super) fn wait(text: &str) -> Option<Duration> {
    static WAIT: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?:try again|retry|retry your request|please wait|retrydelay)(?:[ ]+(?:in|after|for|about|at least|approximately))*[ :]+((?:[0-9]+(?:\.[0-9]+)?[ ]?(?:milliseconds?|ms|seconds?|secs?|sec|minutes?|mins?|min|hours?|hrs?|hr|s|m|h)\b[ ]?)+|(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h))+)",
        )
    });
    duration(WAIT.captures(text)?.get(1)?.as_str())
}

/// A duration as a sum of numbers with units (`1h2m3.5s`, `20 seconds`, `359ms`).
pub(super) fn duration(text: &str) -> Option<Duration> {
    static PART: LazyLock<Regex> = LazyLock::new(|| pattern(r"([0-9]+(?:\.[0-9]+)?) ?([a-z]+)"));
    let mut seconds = 0.0;
    let mut parts = 0;
    for part in PART.captures_iter(text) {
        let factor = match &part[2] {
            unit if unit == "ms" || unit.starts_with("milli") => 0.001,
            unit if unit.starts_with('s') => 1.0,
            unit if unit.starts_with('m') => 60.0,
            unit if unit.starts_with('h') => 3_600.0,
            _ => return None,
        };
        seconds += part[1].parse::<f64>().ok()? * factor;
        parts += 1;
    }
    if parts == 0 { None } else { Duration::try_from_secs_f64(seconds).ok() }
}

/// The value of `retry-after`: seconds, or an HTTP date.
pub(super) fn retry_after(value: &str, now_unix: u64) -> Option<Duration> {
    if let Ok(seconds) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    http_date(value).map(|at| Duration::from_secs(at.saturating_sub(now_unix)))
}

/// Seconds since 1970 of an HTTP date in the preferred format (RFC 9110 §5.6.7).
fn http_date(value: &str) -> Option<u64> {
    let mut parts = value.split_once(", ")?.1.split(' ');
    let day: u64 = parts.next()?.parse().ok()?;
    let name = parts.next()?;
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|other| *other == name)? as u64 + 1;
    let year: u64 = parts.next()?.parse().ok()?;
    let mut clock = parts.next()?.split(':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    if parts.next() != Some("GMT") || !(1970..=9999).contains(&year) || !(1..=31).contains(&day) || hour > 23 {
        return None;
    }
    // Days of the civil calendar, counted in years that begin in March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = y * 365 + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1;
    let days = days.checked_sub(719_468)?;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// What a body that is not JSON says: the title of a page, or its first text.
pub(super) fn of_page(body: &str) -> String {
    let lower = body.to_ascii_lowercase();
    let title = lower.find("<title>").map(|at| at + 7).and_then(|from| {
        let to = lower[from..].find("</title>")?;
        Some(body[from..from + to].to_owned())
    });
    title.unwrap_or_else(|| {
        static TAG: LazyLock<Regex> = LazyLock::new(|| pattern(r"<[^>]*>"));
        TAG.replace_all(body, " ").trim().to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(seconds: f64) -> Option<Duration> {
        Some(Duration::from_secs_f64(seconds))
    }

    #[test]
    fn waits_in_texts_are_read() {
        assert_eq!(wait("rate limit reached. please try again in 35.9s. visit"), secs(35.9));
        assert_eq!(wait("please try again in 1m26.4s."), secs(86.4));
        assert_eq!(wait("please try again in 359ms"), secs(0.359));
        assert_eq!(wait("please try again in 6m0s."), secs(360.0));
        assert_eq!(wait("try again in 2h1m"), secs(7_260.0));
        assert_eq!(wait("please retry in 35.9s."), secs(35.9));
        assert_eq!(wait("please retry after 10 seconds."), secs(10.0));
        assert_eq!(wait("try again in 20 seconds"), secs(20.0));
        assert_eq!(wait("please wait 5 minutes"), secs(300.0));
        for none in ["try again later", "try again in a moment", "retry 3 times", "in 35.9s", ""] {
            assert_eq!(wait(none), None, "{none}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        assert_eq!(retry_after("30", 0), secs(30.0));
        assert_eq!(retry_after("0.5", 0), secs(0.5));
        assert_eq!(retry_after("-1", 0), None);
        assert_eq!(retry_after("NaN", 0), None);
        assert_eq!(retry_after("soon", 0), None);
        // RFC 9110's own example is 784,111,777 seconds after 1970.
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_700), secs(77.0));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_800), secs(0.0));
        assert_eq!(http_date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(http_date("Thu, 29 Feb 2024 12:00:00 GMT"), Some(1_709_208_000));
        assert_eq!(http_date("Thu, 29 Feb 2024 12:00:00 CET"), None);
    }

    #[test]
    fn limits_stand_where_the_servers_put_them() {
        for (text, expected) in [
            ("prompt is too long: 208310 tokens > 200000 maximum", 200_000),
            ("input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease", 200_000),
            (
                "this model's maximum context length is 128000 tokens. however, your messages resulted in 204308",
                128_000,
            ),
            ("this endpoint's maximum context length is 131,072 tokens. however, you requested about 138956", 131_072),
            ("request (6104 tokens) exceeds the available context size (4096 tokens), try increasing it", 4_096),
            ("the decoder prompt (length 8193) is longer than the maximum model length of 8192.", 8_192),
            ("prompt contains 40000 tokens, too large for model with 32768 maximum context length", 32_768),
            ("this model's maximum prompt length is 131072 but the request contains 537812 tokens.", 131_072),
            ("the input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", 1_048_576),
            ("input tokens exceed the configured limit of 272000 tokens. your messages resulted in 300000", 272_000),
            ("prompt token count of 70000 exceeds the limit of 64000", 64_000),
            ("your request exceeded model token limit: 131072", 131_072),
            ("`inputs` tokens + `max_new_tokens` must be <= 4096. given: 5000", 4_096),
            ("the input (9000 tokens) is longer than the model's context length (8192 tokens).", 8_192),
            (
                "'max_tokens' is too large: 9000. this model's maximum context length is 8192 tokens and your request has 100 input tokens",
                8_192,
            ),
        ] {
            assert!(is_overflow(text), "{text}");
            assert_eq!(limit(text), Some(expected), "{text}");
        }
        for text in ["your input exceeds the context window of this model.", "input is too long for requested model."] {
            assert!(is_overflow(text), "{text}");
            assert_eq!(limit(text), None, "{text}");
        }
        for other in [
            "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens",
            "max_tokens is too large: 100000. this model supports at most 16384 completion tokens",
            "messages.0.content: field required",
        ] {
            assert!(!is_overflow(other), "{other}");
        }
    }

    #[test]
    fn a_page_is_known_by_its_title() {
        assert_eq!(of_page("<html><head><TITLE>502 Bad Gateway</TITLE></head><body>x</body>"), "502 Bad Gateway");
        assert_eq!(of_page("<p>upstream <b>gone</b></p>").split_whitespace().collect::<Vec<_>>(), ["upstream", "gone"]);
        assert_eq!(of_page("plain"), "plain");
        // Lower-casing must not move byte offsets.
        assert_eq!(of_page("İ<title>É</title>"), "É");
    }
}
