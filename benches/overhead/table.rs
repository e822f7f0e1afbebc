//! The table that is printed: what, measured, limit, whether it is kept.

use std::fmt::Write;

/// Whether a measurement keeps its limit, and how the limit is shown.
pub struct Limit {
    within: bool,
    shown: String,
}

impl Limit {
    pub fn least(measured: f64, limit: f64, shown: impl Into<String>) -> Limit {
        Limit { within: measured >= limit, shown: shown.into() }
    }

    pub fn most(measured: f64, limit: f64, shown: impl Into<String>) -> Limit {
        Limit { within: measured <= limit, shown: shown.into() }
    }
}

#[derive(Default)]
pub struct Table {
    rows: Vec<(String, String, Option<Limit>)>,
}

impl Table {
    pub fn row(&mut self, what: impl Into<String>, measured: String, limit: Limit) {
        self.rows.push((what.into(), measured, Some(limit)));
    }

    /// A measurement without a limit of its own.
    pub fn note(&mut self, what: impl Into<String>, measured: String) {
        self.rows.push((what.into(), measured, None));
    }

    pub fn all_within(&self) -> bool {
        self.rows.iter().all(|(_, _, limit)| limit.as_ref().is_none_or(|limit| limit.within))
    }

    pub fn text(&self) -> String {
        let mut lines = vec![["what", "measured", "limit", ""].map(str::to_owned)];
        lines.extend(self.rows.iter().map(|(what, measured, limit)| {
            let (shown, verdict) = match limit {
                Some(limit) => (limit.shown.clone(), if limit.within { "ok" } else { "OVER" }),
                None => (String::new(), ""),
            };
            [what.clone(), measured.clone(), shown, verdict.to_owned()]
        }));
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let (first, second, third) = (width(0), width(1), width(2));
        lines.iter().fold(String::new(), |mut text, [what, measured, limit, verdict]| {
            let line = format!("{what:<first$}  {measured:>second$}  {limit:>third$}  {verdict}");
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}", line.trim_end());
            text
        })
    }
}
