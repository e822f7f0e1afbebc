//! Looks for secrets in what a cassette holds: those whose values are known, and what only keys look like.
//!
//! Invariant: a finding never repeats what was found.

use std::fmt;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use regex::Regex;
use serde_json::Value;

use crate::world::Secrets;

/// Something that should not be in a file that is passed on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Of the file, counted from 1.
    pub line: u64,
    /// RFC 6901, into that line.
    pub pointer: String,
    /// `value` of a secret, or the name of a pattern.
    pub rule: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.pointer.is_empty() { "/" } else { &self.pointer };
        write!(f, "line {}, {place}: {}", self.line, self.rule)
    }
}

/// The rule for values that are known.
const VALUE: &str = "value";

/// What keys of common services look like; each with a sign before it that ordinary words do not have.
static PATTERNS: LazyLock<Vec<(&str, Regex)>> = LazyLock::new(|| {
    let patterns = [
        ("sk-key", r"(?:^|[^0-9A-Za-z_-])sk-(?:[a-z]+[0-9]*-)*[0-9A-Za-z_]{20,}"),
        ("github-token", r"(?:^|[^0-9A-Za-z_])(?:gh[pousr]_[0-9A-Za-z]{36,}|github_pat_[0-9A-Za-z_]{40,})"),
        ("gitlab-token", r"(?:^|[^0-9A-Za-z_])glpat-[0-9A-Za-z_-]{20,}"),
        ("aws-key-id", r"(?:^|[^0-9A-Za-z])(?:AKIA|ASIA)[0-9A-Z]{16}(?:$|[^0-9A-Za-z])"),
        ("google-key", r"(?:^|[^0-9A-Za-z_-])AIza[0-9A-Za-z_-]{35}"),
        ("slack-token", r"(?:^|[^0-9A-Za-z])xox[abeoprs]-[0-9A-Za-z-]{20,}"),
        ("npm-token", r"(?:^|[^0-9A-Za-z_])npm_[0-9A-Za-z]{36,}"),
        ("private-key", r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----"),
    ];
    let compiled = patterns.into_iter().filter_map(|(rule, pattern)| Some((rule, Regex::new(pattern).ok()?)));
    compiled.collect()
});

/// Looks at a file's lines, one after another.
pub(super) struct Linter<'a> {
    secrets: &'a Secrets,
    line: u64,
    findings: Vec<Finding>,
}

impl<'a> Linter<'a> {
    pub fn new(secrets: &'a Secrets) -> Linter<'a> {
        Linter { secrets, line: 0, findings: Vec::new() }
    }

    pub fn look(&mut self, line: &[u8]) {
        self.line += 1;
        match serde_json::from_slice(line) {
            Ok(value) => self.value(&value, &mut String::new()),
            Err(_) => self.text(&String::from_utf8_lossy(line), ""),
        }
    }

    /// What was found, in the order of the file. `allow` names rules that are passed over; a known value is none.
    pub fn finish(mut self, allow: &[String]) -> Vec<Finding> {
        self.findings.retain(|finding| finding.rule == VALUE || !allow.contains(&finding.rule));
        self.findings.dedup();
        self.findings
    }

    fn value(&mut self, value: &Value, pointer: &mut String) {
        match value {
            Value::String(text) => self.text(text, pointer),
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.below(&index.to_string(), item, pointer);
                }
            }
            Value::Object(fields) => {
                for (name, field) in fields {
                    self.text(name, pointer);
                    self.below(&name.replace('~', "~0").replace('/', "~1"), field, pointer);
                    // Bytes that are no text.
                    if let ("base64", Value::String(text)) = (name.as_str(), field)
                        && let Ok(bytes) = BASE64.decode(text)
                    {
                        self.text(&String::from_utf8_lossy(&bytes), pointer);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn below(&mut self, name: &str, value: &Value, pointer: &mut String) {
        let length = pointer.len();
        pointer.push('/');
        pointer.push_str(name);
        self.value(value, pointer);
        pointer.truncate(length);
    }

    fn text(&mut self, text: &str, pointer: &str) {
        if self.secrets.contains(text.as_bytes()) {
            self.found(VALUE, pointer);
        }
        for (rule, pattern) in PATTERNS.iter() {
            if pattern.is_match(text) {
                self.found(rule, pointer);
            }
        }
    }

    fn found(&mut self, rule: &str, pointer: &str) {
        self.findings.push(Finding { line: self.line, pointer: pointer.to_owned(), rule: rule.to_owned() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(line: &str) -> Vec<String> {
        let secrets = Secrets::new([("TOKEN".to_owned(), "hunter2-\"hunter2".to_owned())]);
        let mut linter = Linter::new(&secrets);
        linter.look(line.as_bytes());
        linter.finish(&[]).into_iter().map(|finding| format!("{} {}", finding.pointer, finding.rule)).collect()
    }

    #[test]
    fn every_pattern_finds_what_it_is_for() {
        assert_eq!(PATTERNS.len(), 8, "each compiles");
        let (a20, a36) = ("a1B2c3D4e5F6g7H8i9J0", "a1B2c3D4e5F6g7H8i9J0a1B2c3D4e5F6g7H8");
        for (rule, text) in [
            ("sk-key", format!("key: sk-{a20}")),
            ("sk-key", format!("sk-ant-api03-{a20}")),
            ("sk-key", format!("\"sk-proj-{a20}\"")),
            ("github-token", format!("ghp_{a36}")),
            ("github-token", format!("github_pat_{a36}{a20}")),
            ("gitlab-token", format!("glpat-{a20}")),
            ("aws-key-id", "AKIAIOSFODNN7EXAMPLE".to_owned()),
            ("google-key", format!("AIza{}", &a36[1..])),
            ("slack-token", format!("xoxb-{a20}")),
            ("npm-token", format!("npm_{a36}")),
            ("private-key", "-----BEGIN OPENSSH PRIVATE KEY-----".to_owned()),
            ("private-key", "-----BEGIN PRIVATE KEY-----".to_owned()),
        ] {
            let line = serde_json::json!({"a/b": [{"x": text}]}).to_string();
            assert_eq!(rules(&line), [format!("/a~1b/0/x {rule}")], "{text}");
        }
    }

    #[test]
    fn ordinary_text_passes() {
        for text in [
            "task-runner-configuration-for-everything",
            "ask-me-anything-about-this-very-long-name",
            "sk-short",
            "desk-0123456789012345678901234567890",
            "AKIA is a prefix",
            "ghp_short",
            "-----BEGIN CERTIFICATE-----",
            "-----BEGIN PUBLIC KEY-----",
            "«secret:TOKEN»",
        ] {
            assert_eq!(rules(&serde_json::json!({ "x": text }).to_string()), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn a_known_value_is_found_in_every_encoding_and_in_bytes() {
        let value = "hunter2-\"hunter2";
        let base64 = BASE64.encode(value);
        let percent = "hunter2-%22hunter2";
        let escaped = r#"{"text":"hunter2-\"hunter2"}"#;
        for text in [value, &base64, percent, escaped] {
            assert_eq!(rules(&serde_json::json!({"b": {"x": text}}).to_string()), ["/b/x value"], "{text}");
        }
        let bytes = [b"\xff\xfe".as_slice(), value.as_bytes()].concat();
        // Shifted by two bytes the base64 of it is another one.
        let line = serde_json::json!({"body": {"base64": BASE64.encode(bytes)}}).to_string();
        assert!(rules(&line).contains(&"/body value".to_owned()), "{:?}", rules(&line));
        assert_eq!(rules(r#"{"hunter2-\"hunter2":1}"#), [" value"], "names of fields count");
    }
}
