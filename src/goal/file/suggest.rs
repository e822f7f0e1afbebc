//! «Did you mean»: the nearest known name, at the right level of the goal file.

use super::keys;

/// Words that people write for a key of another name. The path is as [`keys::paths`] writes it.
const ALIASES: &[(&str, &str)] = &[
    ("prompt", "goal"),
    ("task", "goal"),
    ("objective", "goal"),
    ("description", "goal"),
    ("title", "name"),
    ("id", "name"),
    ("cwd", "workspace"),
    ("dir", "workspace"),
    ("directory", "workspace"),
    ("working_directory", "workspace"),
    ("path", "workspace"),
    ("verify", "checks"),
    ("tests", "checks"),
    ("test", "checks"),
    ("validate", "checks"),
    ("acceptance", "criteria"),
    ("acceptance_criteria", "criteria"),
    ("prepare", "setup"),
    ("before", "setup"),
    ("budget", "limits.cost"),
    ("max_budget", "limits.cost"),
    ("max_usd", "limits.cost"),
    ("cost_usd", "limits.cost"),
    ("timeout", "limits.time"),
    ("duration", "limits.time"),
    ("max_duration", "limits.time"),
    ("max_turns", "limits.iterations"),
    ("turns", "limits.iterations"),
    ("max_retries", "limits.consecutive_errors"),
    ("protected", "protect"),
    ("secrets", "redact"),
    ("environment", "env"),
    ("pricing", "prices"),
    ("endpoints", "providers"),
    ("allowed_tools", "tools.allow"),
    ("disallowed_tools", "tools.deny"),
    ("cmd", "checks[].run"),
    ("command", "checks[].run"),
    ("script", "checks[].run"),
    ("exit_code", "checks[].expect"),
    ("optional", "checks[].required"),
    ("auto_compact_enabled", "compaction.auto"),
    ("auto_compact_threshold_pct", "compaction.threshold_pct"),
    ("auto_compact_max_failures", "compaction.max_failures"),
    ("url", "providers.*.base_url"),
    ("key_env", "providers.*.api_key_env"),
];

/// The candidate that a misspelt word most likely means: at most a third of its letters away.
pub(super) fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The known key path that an unknown key most likely means. `level` is the pattern of the map that holds it
/// (`""`, `limits`, `checks[]`).
pub(super) fn key(unknown: &str, level: &str) -> Option<String> {
    let word = snake(unknown);
    let paths = keys::paths();
    let parent = |path: &str| path.rsplit_once('.').map_or("", |(parent, _)| parent).to_owned();
    let last = |path: &str| path.rsplit_once('.').map_or(path, |(_, last)| last).to_owned();
    let siblings: Vec<String> = paths.iter().filter(|path| parent(path) == level).map(|path| last(path)).collect();
    let here = |name: &str| if level.is_empty() { name.to_owned() } else { format!("{level}.{name}") };
    if siblings.contains(&word) {
        return Some(here(&word));
    }
    let aliases: Vec<&str> = ALIASES.iter().filter(|(alias, _)| *alias == word).map(|(_, path)| *path).collect();
    if let Some(path) = aliases.iter().find(|path| parent(path) == level) {
        return Some((*path).to_owned());
    }
    if let Some(name) = closest(&word, siblings.iter().map(String::as_str)) {
        return Some(here(name));
    }
    if let Some(path) = aliases.first() {
        return Some((*path).to_owned());
    }
    // The same word at another level: `cost`, `max_cost` and `limits_cost` are all `limits.cost`.
    let bare = word.strip_prefix("max_").unwrap_or(&word);
    let elsewhere = |path: &&String| last(path) == word || path.replace('.', "_") == word || last(path) == bare;
    let shortest = paths.iter().filter(elsewhere).min_by_key(|path| path.matches('.').count());
    if let Some(path) = shortest {
        return Some(path.clone());
    }
    let near = closest(&word, paths.iter().map(String::as_str))?;
    Some(near.to_owned())
}

/// The key that one of the three settings of a `config.json` stands for.
pub(super) fn seed_key(name: &str) -> Option<&'static str> {
    let found = ALIASES.iter().find(|(alias, _)| *alias == name && alias.starts_with("auto_compact_"));
    found.map(|(_, path)| *path)
}

/// `maxCost`, `max-cost`, `MAX_COST` → `max_cost`.
fn snake(word: &str) -> String {
    let mut snake = String::new();
    let mut lower = false;
    for c in word.trim().chars() {
        if c.is_uppercase() && lower {
            snake.push('_');
        }
        lower = c.is_lowercase();
        match c {
            '-' | ' ' => snake.push('_'),
            c => snake.extend(c.to_lowercase()),
        }
    }
    snake
}

/// Edit distance (insert, delete, replace, swap neighbours), in characters. Words of more than 64 characters are
/// no misspellings of anything.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().max(b.len()) > 64 {
        return usize::MAX;
    }
    let mut rows = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("cost", "cost"), 0);
        assert_eq!(distance("cots", "cost"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn unknown_keys_find_their_level() {
        for (unknown, level, meant) in [
            ("max_cost", "", Some("limits.cost")),
            ("cost", "", Some("limits.cost")),
            ("maxIterations", "", Some("limits.iterations")),
            ("max-cost", "limits", Some("limits.cost")),
            ("judge_model", "", Some("judge.model")),
            ("goall", "", Some("goal")),
            ("prompt", "", Some("goal")),
            ("wen", "checks[]", Some("checks[].when")),
            ("command", "checks[]", Some("checks[].run")),
            ("itertaions", "limits", Some("limits.iterations")),
            ("timeout", "", Some("limits.time")),
            ("colour_of_the_sky", "", None),
        ] {
            assert_eq!(key(unknown, level).as_deref(), meant, "{unknown} in {level:?}");
        }
    }

    #[test]
    fn every_alias_leads_to_a_known_key() {
        for (alias, path) in ALIASES {
            assert!(keys::paths().iter().any(|known| known == path), "{alias} → {path}");
            assert_ne!(alias, path);
        }
    }
}
