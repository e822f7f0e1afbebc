//! One estimator for every decision. There is no tokenizer: characters are counted by kind, and the sum is
//! corrected by a factor learnt from what the provider reported.

/// Counts in twelfths of a token, so that counts of segments add up exactly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count(u64);

/// What one byte weighs, in twelfths of a token: prose runs at about 4.3 letters a token, digits at two to three,
/// punctuation at one to two, other scripts at about two bytes. Escaped text counts as it is sent.
const fn weight(byte: u8) -> u64 {
    match byte {
        b'a'..=b'z' => 3,
        b'A'..=b'Z' => 4,
        b'0'..=b'9' => 5,
        b' ' | b'\t' | b'\r' | b'\n' => 1,
        0x80.. => 5,
        _ => 7,
    }
}

const WEIGHTS: [u8; 256] = {
    let mut table = [0u8; 256];
    let mut byte = 0usize;
    while byte < 256 {
        table[byte] = weight(byte as u8) as u8;
        byte += 1;
    }
    table
};

impl Count {
    pub fn of(bytes: &[u8]) -> Count {
        Count(bytes.iter().map(|byte| u64::from(WEIGHTS[usize::from(*byte)])).sum())
    }

    /// A text as it will stand in a request: inside a JSON string, where some characters become two.
    pub fn of_text(text: &str) -> Count {
        let escaped = text.bytes().filter(|byte| matches!(byte, b'\n' | b'\t' | b'\r' | b'"' | b'\\'));
        let more: u64 = escaped.map(|byte| if byte.is_ascii_whitespace() { 9 } else { 7 }).sum();
        Count(Count::of(text.as_bytes()).0 + more)
    }

    /// So many tokens before correction.
    pub const fn of_tokens(tokens: u64) -> Count {
        Count(tokens * 12)
    }

    pub const fn plus(self, other: Count) -> Count {
        Count(self.0 + other.0)
    }

    pub const fn minus(self, other: Count) -> Count {
        Count(self.0.saturating_sub(other.0))
    }

    /// Tokens before correction, rounded up.
    pub const fn tokens(self) -> u64 {
        self.0.div_ceil(12)
    }
}

/// The learnt correction in percent, within 50 and 300.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Factor(pub u64);

impl Default for Factor {
    fn default() -> Self {
        Factor(100)
    }
}

impl Factor {
    /// From a request that was estimated at `estimated` tokens (uncorrected) and reported at `reported`. Requests
    /// too small to teach anything leave the factor as it was, and so do reports that no tokenizer can explain: such
    /// a server counts something else.
    pub fn learn(self, estimated: u64, reported: u64) -> Factor {
        let plausible = estimated / 8..=estimated.saturating_mul(8);
        if estimated < 200 || !plausible.contains(&reported) {
            return self;
        }
        Factor((reported.saturating_mul(100) / estimated).clamp(50, 300))
    }

    pub const fn apply(self, tokens: u64) -> u64 {
        tokens.saturating_mul(self.0).div_ceil(100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_add_up_and_listings_weigh_more_than_prose() {
        let prose = b"The quick brown fox jumps over the lazy dog and runs away from the farm";
        let listing = b"-rw-r--r-- 1 root root 10859 Nov 29 19:45 src/main.rs:12:5: E0308 {x: 1}";
        assert_eq!(Count::of(&prose[..20]).plus(Count::of(&prose[20..])), Count::of(prose));
        let (p, l) = (Count::of(prose).0 / prose.len() as u64, Count::of(listing).0 / listing.len() as u64);
        assert!(l > p, "listing {l} prose {p}");
    }

    #[test]
    fn the_factor_stays_within_its_bounds() {
        assert_eq!(Factor::default().learn(1_000, 1_200), Factor(120));
        assert_eq!(Factor::default().learn(1_000, 7_000), Factor(300));
        assert_eq!(Factor::default().learn(1_000, 200), Factor(50));
        assert_eq!(Factor(130).learn(50, 500), Factor(130));
        assert_eq!(Factor(150).apply(101), 152);
    }

    #[test]
    fn an_absurd_report_teaches_nothing() {
        for absurd in [0, 10, 124, 8_001, u64::MAX] {
            assert_eq!(Factor(130).learn(1_000, absurd), Factor(130), "{absurd}");
        }
        assert_eq!(Factor(300).apply(u64::MAX), u64::MAX.div_ceil(100));
    }
}
