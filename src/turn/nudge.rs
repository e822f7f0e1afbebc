//! Seeing that a turn goes in circles: the same call with the same result, again and again.

use sha2::{Digest, Sha256};

/// Repetitions after which the agent is told, and after which the turn ends.
pub const TOLD_AT: u32 = 3;
pub const STUCK_AT: u32 = 8;

/// The latest call and how often it came in a row.
#[derive(Debug, Default)]
pub struct Repeats {
    last: Option<[u8; 32]>,
    count: u32,
}

/// What one more call means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    Fine,
    /// Tell the agent, once.
    Tell,
    Stuck,
}

impl Repeats {
    /// Arguments are compared exactly, the result masked.
    pub fn saw(&mut self, tool: &str, arguments: &str, result: &str) -> Repeat {
        let mut hash = Sha256::new();
        for part in [tool, arguments, &mask(result)] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let key: [u8; 32] = hash.finalize().into();
        self.count = if self.last == Some(key) { self.count + 1 } else { 1 };
        self.last = Some(key);
        match self.count {
            TOLD_AT => Repeat::Tell,
            STUCK_AT.. => Repeat::Stuck,
            _ => Repeat::Fine,
        }
    }
}

/// Text with what differs between two otherwise equal outputs masked: numbers (so dates, durations, pids, line
/// numbers), hexadecimal words, and paths but for their last part.
pub fn mask(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (index, line) in text.lines().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        let mut rest = line;
        while !rest.is_empty() {
            let word = |c: char| c.is_alphanumeric() || matches!(c, '/' | '_' | '.' | '-' | '~');
            let end = rest.find(|c| !word(c)).unwrap_or(rest.len());
            if end == 0 {
                let Some(c) = rest.chars().next() else { break };
                out.push(c);
                rest = &rest[c.len_utf8()..];
                continue;
            }
            mask_word(&rest[..end], &mut out);
            rest = &rest[end..];
        }
    }
    out
}

fn mask_word(word: &str, out: &mut String) {
    let hex =
        word.len() >= 7 && word.bytes().all(|b| b.is_ascii_hexdigit()) && word.bytes().any(|b| b.is_ascii_digit());
    if hex || word.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit())) {
        out.push('#');
        return;
    }
    let name = match word.rsplit_once('/') {
        Some((_, name)) => {
            out.push_str("…/");
            name
        }
        None => word,
    };
    let mut digits = false;
    for c in name.chars() {
        if c.is_ascii_digit() {
            if !digits {
                out.push('#');
            }
            digits = true;
        } else if !(digits && c == '.') {
            digits = false;
            out.push(c);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_varies_is_masked_and_the_rest_is_not() {
        let one = "test a::b failed at /tmp/x1/src/lib.rs:12:5 in 3.41s (pid 4711, 0x7ffe12, deadbee1)";
        let two = "test a::b failed at /var/y/src/lib.rs:99:1 in 12s (pid 1, 0xabc, 0badcafe)";
        assert_eq!(mask(one), mask(two));
        assert_ne!(mask("expected 1, got true"), mask("expected 1, got false"));
        assert_ne!(mask("test a failed"), mask("test b failed"));
    }

    #[test]
    fn the_third_time_is_told_and_the_eighth_is_stuck() {
        let mut repeats = Repeats::default();
        let seen: Vec<Repeat> = (0..8).map(|n| repeats.saw("bash", "{}", &format!("took {n} ms"))).collect();
        assert_eq!(seen[..3], [Repeat::Fine, Repeat::Fine, Repeat::Tell]);
        assert_eq!(seen[3..7], [Repeat::Fine; 4]);
        assert_eq!(seen[7], Repeat::Stuck);
        assert_eq!(repeats.saw("bash", "{\"a\":1}", "took 1 ms"), Repeat::Fine);
        assert_eq!(repeats.saw("bash", "{}", "took 1 ms"), Repeat::Fine);
    }
}
