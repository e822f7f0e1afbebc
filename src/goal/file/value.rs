//! Values as the key table's kinds read them, and the scalars among them: durations, money, prices.

use std::time::Duration;

use crate::event::Micros;

/// A value that its kind has accepted.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Bool(bool),
    Whole(u64),
    Time(Duration),
    /// In bytes.
    Size(u64),
    Money(Micros),
    /// Micro-dollars per million tokens.
    Price(u64),
    Text(String),
    List(Vec<Value>),
    Map(Vec<(String, Value)>),
    Json(serde_json::Value),
    Off,
    Unlimited,
}

impl Value {
    /// The text of a text, nothing of anything else.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value of a name in a map.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        match self {
            Value::Map(map) => map.iter().find(|(key, _)| key == name).map(|(_, value)| value),
            _ => None,
        }
    }
}

/// The longest duration that a goal may name.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Reads `90s`, `2h`, `1h30m`, `500ms`. The error reads after «expected …, ».
pub(super) fn time(text: &str, zero: bool) -> Result<Duration, String> {
    let text = text.trim();
    if !zero && !text.is_empty() && text.bytes().all(|b| b == b'0' || b == b'.') && text.contains('0') {
        return Err("must be longer than nothing".into());
    }
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(format!("`{text}` has no unit; write `{text}s`, `{text}m` or `{text}h`"));
    }
    let Ok(time) = humantime::parse_duration(text) else {
        return Err(format!("expected a duration such as `90s`, `2h` or `1h30m`, found `{}`", super::node::cut(text)));
    };
    if time.is_zero() && !zero {
        return Err("must be longer than nothing".into());
    }
    if !time.is_zero() && time < Duration::from_millis(1) {
        return Err("must be at least `1ms`".into());
    }
    if time > LONGEST {
        return Err("must be at most `366d`".into());
    }
    Ok(Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
}

/// `2h`, `1h30m`, `1m30s`, `500ms`: what [`time`] reads back as the same, to the millisecond.
pub(super) fn time_text(time: Duration) -> String {
    let millis = time.as_millis();
    if millis == 0 {
        return "0s".into();
    }
    let parts =
        [(millis / 3_600_000, "h"), (millis / 60_000 % 60, "m"), (millis / 1_000 % 60, "s"), (millis % 1_000, "ms")];
    parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect()
}

const SIZES: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

/// Reads `1GiB`, `500 MB`, `4096B`: bytes, a whole number of a unit. The error reads after «expected …, ».
pub(super) fn size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = (&text[..digits], text[digits..].trim_start());
    if unit.is_empty() && !number.is_empty() {
        return Err(format!("`{number}` has no unit; write `{number}B`, `{number}MiB` or `{number}GiB`"));
    }
    let factor = SIZES.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let (Some(factor), false) = (factor, number.is_empty()) else {
        return Err(format!("expected a size such as `500MB` or `1GiB`, found `{}`", super::node::cut(text)));
    };
    match number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)) {
        Some(0) => Err("must be more than nothing".into()),
        Some(bytes) => Ok(bytes),
        None => Err(format!("`{}` is too large", super::node::cut(text))),
    }
}

/// What [`size`] reads back as the same, in the largest unit that gives a whole number.
pub(super) fn size_text(bytes: u64) -> String {
    let unit = SIZES.iter().find(|(_, factor)| bytes > 0 && bytes.is_multiple_of(*factor));
    let (name, factor) = unit.copied().unwrap_or(("B", 1));
    format!("{}{name}", bytes / factor)
}

/// Reads a decimal amount of dollars exactly, to the micro-dollar.
pub(super) fn dollars(text: &str) -> Result<u64, String> {
    let text = text.trim();
    if let Some(Micros(micros)) = Micros::parse_dollars(text) {
        return Ok(micros);
    }
    let shown = super::node::cut(text);
    if is_non_finite(text) {
        return Err(format!("`{shown}` is no finite number; write a decimal such as `5.00`"));
    }
    let decimal = text.split_once('.').filter(|(whole, fraction)| {
        [whole, fraction].iter().all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    });
    match decimal {
        Some((_, fraction)) if fraction.len() > 6 => Err(format!("`{shown}` has more than six decimals")),
        _ if text.starts_with('-') => Err(format!("`{shown}` is below zero")),
        _ if text.starts_with('+') => {
            Err(format!("`{shown}` would add to a stored limit, which only `--max-cost` with `--resume` does"))
        }
        _ => Err(format!("expected dollars as a decimal such as `5.00`, found `{shown}`")),
    }
}

/// Micro-dollars as the shortest decimal with at least two places, exactly.
pub(super) fn dollars_text(micros: u64) -> String {
    let (whole, fraction) = (micros / 1_000_000, micros % 1_000_000);
    let mut fraction = format!("{fraction:06}");
    while fraction.len() > 2 && fraction.ends_with('0') {
        fraction.pop();
    }
    format!("{whole}.{fraction}")
}

/// YAML's words for numbers that are none, and what other programs write for them.
pub(super) fn is_non_finite(text: &str) -> bool {
    let bare = text.trim_start_matches(['+', '-']).trim_start_matches('.').to_ascii_lowercase();
    matches!(bare.as_str(), "inf" | "nan" | "infinity")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        for (text, seconds) in [("90s", 90), ("2h", 7_200), ("1h30m", 5_400), ("1h 30m", 5_400), ("2days", 172_800)] {
            assert_eq!(time(text, false), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(time("250ms", false), Ok(Duration::from_millis(250)));
        assert_eq!(time("90", false).unwrap_err(), "`90` has no unit; write `90s`, `90m` or `90h`");
        assert_eq!(time("0", false).unwrap_err(), "must be longer than nothing");
        for bad in ["", "h", "-5m", "two hours", "5 parsecs", "1e3s", "0s", "1us", "367d", "99999999999999999999h"] {
            assert!(time(bad, false).is_err(), "{bad:?}");
        }
        assert_eq!(time("0s", true), Ok(Duration::ZERO));
    }

    #[test]
    fn durations_are_shown_as_they_are_read() {
        for (millis, text) in [
            (7_200_000, "2h"),
            (5_400_000, "1h30m"),
            (90_000, "1m30s"),
            (1_500, "1s500ms"),
            (172_800_000, "48h"),
            (0, "0s"),
        ] {
            assert_eq!(time_text(Duration::from_millis(millis)), text);
            assert_eq!(time(text, true), Ok(Duration::from_millis(millis)));
        }
    }

    #[test]
    fn sizes_need_a_unit_and_are_shown_as_they_are_read() {
        for (text, bytes, shown) in [
            ("1GiB", 1 << 30, "1GiB"),
            ("500 MB", 500_000_000, "500MB"),
            ("64KiB", 65_536, "64KiB"),
            ("2048MiB", 2 << 30, "2GiB"),
            ("1B", 1, "1B"),
            ("4096B", 4_096, "4KiB"),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
            assert_eq!(size_text(bytes), shown);
            assert_eq!(size(shown), Ok(bytes));
        }
        assert_eq!(size("1024").unwrap_err(), "`1024` has no unit; write `1024B`, `1024MiB` or `1024GiB`");
        assert_eq!(size("0GiB").unwrap_err(), "must be more than nothing");
        for bad in
            ["", "GiB", "-1GiB", "1.5GiB", "1gib", "1 G iB", "99999999999TiB", "99999999999999999999B", "unlimited"]
        {
            assert!(size(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn money_is_exact() {
        for (text, micros) in [
            ("5", 5_000_000),
            ("5.00", 5_000_000),
            ("0.5", 500_000),
            ("0.000001", 1),
            ("0.1", 100_000),
            ("18446744073709.551615", u64::MAX),
        ] {
            assert_eq!(dollars(text), Ok(micros), "{text}");
            assert_eq!(dollars(&dollars_text(micros)), Ok(micros), "{text}");
        }
        for (text, message) in [
            ("4.9999999999999999999", "`4.9999999999999999999` has more than six decimals"),
            ("-1", "`-1` is below zero"),
            (".nan", "`.nan` is no finite number; write a decimal such as `5.00`"),
            ("-.Inf", "`-.Inf` is no finite number; write a decimal such as `5.00`"),
            ("$5", "expected dollars as a decimal such as `5.00`, found `$5`"),
            ("1e3", "expected dollars as a decimal such as `5.00`, found `1e3`"),
            ("5,00", "expected dollars as a decimal such as `5.00`, found `5,00`"),
            ("18446744073710", "expected dollars as a decimal such as `5.00`, found `18446744073710`"),
        ] {
            assert_eq!(dollars(text), Err(message.to_owned()));
        }
        assert_eq!(dollars_text(5_000_000), "5.00");
        assert_eq!(dollars_text(1), "0.000001");
        assert_eq!(dollars_text(12_345_678), "12.345678");
    }
}
