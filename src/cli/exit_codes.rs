//! `spettro help exit-codes`: the table of outcomes, from the enum that gives them.

use crate::event::Outcome;

/// The whole text, with a newline at its end.
pub fn text() -> String {
    let mut out = String::from("Exit codes, one for each outcome of a run\n\ncode  outcome       retry  meaning\n");
    for outcome in Outcome::ALL {
        let retry = if outcome.retryable() { "yes" } else { "" };
        out.push_str(&format!("{:>4}  {:<12}  {retry:<5}  {}\n", outcome.code(), outcome.name(), outcome.meaning()));
    }
    out.push_str(
        "\n\
         retry: the same again (with `--resume` where there is a session) may end differently by itself.\n\
         129, 130 and 143: the process dies of that signal. Never used: 124 to 127, and 137.\n\
         \n\
         Other verbs: 0, 2 (wrong argument, unknown id), 23 (disk), 31 (corrupt), 75 (busy).\n\
         `spettro checks`: 0 all required checks pass, 10 not, 23 a program is missing.\n\
         `spettro doctor`: 0 runs can start here, 23 not.\n\
         `spettro replay`: 0 identical, 30 diverged, 31 unusable, 32 equal as far as it could be compared.\n\
         `spettro cassette diff`: 0 equal, 30 not. `cassette verify --allow-incomplete`: 32 when it breaks off.\n\
         `spettro cassette lint`: 0 nothing found, 31 a secret, or unusable.\n",
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_its_row() {
        let text = text();
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        for outcome in Outcome::ALL {
            let code = outcome.code().to_string();
            let row =
                rows.iter().find(|row| row.first() == Some(&code.as_str()) && row.get(1) == Some(&outcome.name()));
            let row = row.unwrap_or_else(|| panic!("no row for {}", outcome.name()));
            assert_eq!(row.get(2) == Some(&"yes"), outcome.retryable(), "{row:?}");
            assert!(row.join(" ").ends_with(&outcome.meaning().split_whitespace().collect::<Vec<_>>().join(" ")));
        }
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
        assert!(text.contains("  75  saved         yes    state saved, run again with `--resume`\n"), "{text}");
    }
}
