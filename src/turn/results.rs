//! How large the results of one step may be, together and each.

use crate::model::{Count, Factor};
use crate::tools::{Ran, cut};

/// Characters that are taken for one token when a tool is told its budget: dense listings run at about three. What is
/// denser still is cut again by the estimator's count.
const CHARS_PER_TOKEN: u64 = 3;
/// So often a result is cut again because its text is denser than it was on the whole.
const ROUNDS: u32 = 6;

/// The most characters one result may take: an eighth of the window.
pub fn one(window_tokens: u64) -> usize {
    usize::try_from(window_tokens / 8 * CHARS_PER_TOKEN).unwrap_or(usize::MAX)
}

/// Cuts the results of one step, largest first, until each takes at most an eighth of the window and all together at
/// most a quarter, as the estimator counts them. Returns the index and new text of each that was cut again.
pub fn together(results: &[Ran], window_tokens: u64, factor: Factor) -> Vec<(usize, String)> {
    let bytes: usize = results.iter().map(|ran| ran.text.len()).sum();
    // No byte is more than one token before the correction, which is at most threefold.
    if bytes as u64 * 3 <= window_tokens / 8 {
        return Vec::new();
    }
    let sizes: Vec<u64> = results.iter().map(|ran| tokens(&ran.text, factor)).collect();
    // The level to which the largest must come down so that the sum fits.
    let level = level(&sizes, window_tokens / 4).min(window_tokens / 8);
    let over = results.iter().zip(&sizes).enumerate().filter(|(_, (_, size))| **size > level);
    over.map(|(index, (ran, size))| (index, within(ran, *size, level, factor))).collect()
}

/// The result cut to a level of tokens; `size` is what it takes now.
fn within(ran: &Ran, size: u64, level: u64, factor: Factor) -> String {
    let (mut text, mut size) = (ran.text.clone(), size);
    let mut chars = text.chars().count() as u64;
    for _ in 0..ROUNDS {
        if size <= level {
            break;
        }
        // The note about the cut has its length too.
        let over = (text.chars().count() as u64).saturating_sub(chars);
        chars = (u128::from(chars) * u128::from(level) / u128::from(size)) as u64;
        chars = chars.saturating_sub(over);
        text = cut(&ran.tool, &ran.full, usize::try_from(chars).unwrap_or(usize::MAX), ran.spool);
        size = tokens(&text, factor);
    }
    text
}

/// Tokens of a text as it stands in a request; plain prose is taken to be as dense as a listing.
fn tokens(text: &str, factor: Factor) -> u64 {
    let counted = factor.apply(Count::of_text(text).tokens());
    counted.max((text.chars().count() as u64).div_ceil(CHARS_PER_TOKEN))
}

/// The largest level L with Σ min(size, L) ≤ budget.
fn level(sizes: &[u64], budget: u64) -> u64 {
    let mut sorted = sizes.to_vec();
    sorted.sort_unstable();
    let mut left = budget;
    for (index, size) in sorted.iter().enumerate() {
        let share = left / (sorted.len() - index) as u64;
        if *size > share {
            return share;
        }
        left -= size;
    }
    u64::MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ToolStatus;
    use crate::tools::Whole;

    fn ran(text: String) -> Ran {
        Ran {
            tool: "bash".to_owned(),
            summary: String::new(),
            status: ToolStatus::Ok,
            output_bytes: text.len() as u64,
            full: Whole::of_text(text.clone()),
            text,
            spool: Some(1),
            marks: Vec::new(),
            changed: Vec::new(),
            tasks: None,
            complete: None,
            job: None,
        }
    }

    #[test]
    fn the_largest_come_down_first() {
        assert_eq!(level(&[10, 100, 1_000], 600), 490);
        assert_eq!(level(&[10, 20], 600), u64::MAX);
        assert_eq!(level(&[500, 500], 600), 300);
    }

    #[test]
    fn results_fit_the_window_whatever_script_they_are_in() {
        for (text, factor) in
            [("目標を達成する", 100), ("a\n", 100), ("{\"k\":[1,2]}", 100), ("plain words here ", 300)]
        {
            let factor = Factor(factor);
            for window in [8_192, 32_000, 200_000] {
                let full = ran(text.repeat(200_000 / text.len()));
                let results = [full.clone(), full.clone(), ran("short".to_owned()), full];
                let cuts = together(&results, window, factor);
                let mut sizes: Vec<u64> = results.iter().map(|ran| tokens(&ran.text, factor)).collect();
                for (index, text) in cuts {
                    assert!(text.len() < results[index].text.len());
                    sizes[index] = tokens(&text, factor);
                    assert!(sizes[index] <= window / 8 + window / 50, "{} of {window}: {text:.20}", sizes[index]);
                }
                assert_eq!(sizes[2], tokens("short", factor));
                assert!(sizes.iter().sum::<u64>() <= window / 4 + window / 20, "{sizes:?} of {window}");
            }
        }
    }

    #[test]
    fn what_fits_is_left_alone() {
        let results = [ran("x".repeat(2_000)), ran("y".repeat(2_000))];
        assert!(together(&results, 200_000, Factor::default()).is_empty());
        assert!(together(&results, 16_000, Factor::default()).is_empty());
    }
}
