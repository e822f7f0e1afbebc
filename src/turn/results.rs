//! How large the results of one step may be, together and each.

use crate::tools::{Ran, cut};

/// Characters that are taken for one token when a budget in tokens becomes one in characters: dense listings run
/// at about three.
const CHARS_PER_TOKEN: u64 = 3;

/// The most characters one result may take: an eighth of the window.
pub fn one(window_tokens: u64) -> usize {
    (window_tokens / 8 * CHARS_PER_TOKEN) as usize
}

/// Cuts the results of one step, largest first, until together they take at most a quarter of the window. Returns
/// the index and new text of each that was cut again.
pub fn together(results: &[Ran], window_tokens: u64) -> Vec<(usize, String)> {
    let budget = (window_tokens / 4 * CHARS_PER_TOKEN) as usize;
    let mut sizes: Vec<usize> = results.iter().map(|ran| ran.text.chars().count()).collect();
    let total: usize = sizes.iter().sum();
    if total <= budget {
        return Vec::new();
    }
    // The level to which the largest must come down so that the sum fits.
    let level = level(&sizes, budget);
    let mut out = Vec::new();
    for (index, ran) in results.iter().enumerate() {
        if sizes[index] > level {
            let mut text = cut(&ran.tool, &ran.full, level, ran.spool);
            // The note about the cut has its length too.
            let over = text.chars().count().saturating_sub(level);
            if over > 0 {
                text = cut(&ran.tool, &ran.full, level.saturating_sub(over), ran.spool);
            }
            sizes[index] = text.chars().count();
            out.push((index, text));
        }
    }
    out
}

/// The largest level L with Σ min(size, L) ≤ budget.
fn level(sizes: &[usize], budget: usize) -> usize {
    let mut sorted = sizes.to_vec();
    sorted.sort_unstable();
    let mut left = budget;
    for (index, size) in sorted.iter().enumerate() {
        let share = left / (sorted.len() - index);
        if *size > share {
            return share;
        }
        left -= size;
    }
    usize::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_come_down_first() {
        assert_eq!(level(&[10, 100, 1_000], 600), 490);
        assert_eq!(level(&[10, 20], 600), usize::MAX);
        assert_eq!(level(&[500, 500], 600), 300);
    }
}
