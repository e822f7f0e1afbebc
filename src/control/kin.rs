//! Who is of the run's own making.
//!
//! Every child of a run descends from the runner, and stays so: it is the last subreaper above them all, so an orphan
//! can rise to it and no further.

use crate::process::Stat;

/// Ends meanwhile are rare; a process whose parents cannot be told after so many looks is not trusted.
const LOOKS: usize = 5;
/// No real family is deeper.
const MOST_GENERATIONS: usize = 4096;

/// Whether `pid` is `ancestor` or descends from it; `None` when that cannot be told.
pub fn descends(pid: i32, ancestor: i32, look: impl Fn(i32) -> Option<Stat>) -> Option<bool> {
    (0..LOOKS).find_map(|_| climb(pid, ancestor, &look))
}

/// Whether `pid` or one above it is `marked` and not above `me` as well; `None` when that cannot be told.
pub fn comes_from(pid: i32, me: i32, look: impl Fn(i32) -> Option<Stat>, marked: impl Fn(i32) -> bool) -> Option<bool> {
    let line = |of: i32| (0..LOOKS).find_map(|_| lineage(of, &look));
    let peer = line(pid)?;
    let mine = line(me).unwrap_or_default();
    Some(peer.into_iter().any(|above| !mine.contains(&above) && marked(above)))
}

/// A process and those above it.
fn lineage(pid: i32, look: &impl Fn(i32) -> Option<Stat>) -> Option<Vec<i32>> {
    let mut child = look(pid)?;
    let mut line = vec![pid];
    while child.parent != 0 {
        let parent = look(child.parent)?;
        if parent.start > child.start || line.len() >= MOST_GENERATIONS {
            return None;
        }
        line.push(parent.pid);
        child = parent;
    }
    Some(line)
}

fn climb(pid: i32, ancestor: i32, look: &impl Fn(i32) -> Option<Stat>) -> Option<bool> {
    let mut child = look(pid)?;
    for _ in 0..MOST_GENERATIONS {
        if child.pid == ancestor || child.parent == ancestor {
            return Some(true);
        }
        // The first process of the machine or container, or one that came in from outside of it.
        if child.parent == 0 {
            return Some(false);
        }
        let parent = look(child.parent)?;
        if parent.start > child.start {
            // The parent ended between the two looks, and its number went to somebody younger.
            return None;
        }
        child = parent;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn process(pid: i32, parent: i32, start: u64) -> Stat {
        Stat { pid, name: String::new(), state: b'S', parent, group: pid, session: pid, start }
    }

    fn among(all: &[Stat]) -> impl Fn(i32) -> Option<Stat> + '_ {
        |pid| all.iter().find(|stat| stat.pid == pid).cloned()
    }

    #[test]
    fn children_at_any_depth_are_kin_and_so_is_the_runner_itself() {
        let all = [process(1, 0, 0), process(10, 1, 5), process(11, 10, 6), process(12, 11, 7), process(13, 12, 8)];
        for pid in [10, 11, 12, 13] {
            assert_eq!(descends(pid, 10, among(&all)), Some(true), "{pid}");
        }
    }

    #[test]
    fn parents_siblings_and_visitors_are_not() {
        let all = [process(1, 0, 0), process(9, 1, 1), process(10, 9, 5), process(20, 9, 6), process(30, 0, 7)];
        for pid in [1, 9, 20, 30] {
            assert_eq!(descends(pid, 10, among(&all)), Some(false), "{pid}");
        }
    }

    #[test]
    fn who_is_gone_or_has_impossible_parents_is_unknown() {
        let all = [process(1, 0, 0), process(20, 19, 6), process(30, 31, 7), process(31, 1, 8)];
        for pid in [99, 20, 30] {
            assert_eq!(descends(pid, 10, among(&all)), None, "{pid}");
        }
        let circle = [process(2, 3, 1), process(3, 2, 1)];
        assert_eq!(descends(2, 10, among(&circle)), None);
    }

    #[test]
    fn children_of_another_run_are_told_and_those_of_a_run_around_both_are_not() {
        // 5 and 50 are helpers: 5 of a run in which both others were started, 50 of another one.
        let all = [
            process(1, 0, 0),
            process(5, 1, 1),
            process(10, 5, 5),
            process(20, 5, 6),
            process(50, 5, 7),
            process(51, 50, 8),
            process(52, 51, 9),
        ];
        let helper = |pid| pid == 5 || pid == 50;
        assert_eq!(comes_from(52, 10, among(&all), helper), Some(true));
        assert_eq!(comes_from(50, 10, among(&all), helper), Some(true));
        assert_eq!(comes_from(20, 10, among(&all), helper), Some(false));
        assert_eq!(comes_from(99, 10, among(&all), helper), None);
        assert_eq!(comes_from(20, 1, among(&all), helper), Some(true), "seen from outside of it");
    }

    #[test]
    fn a_parent_that_ends_meanwhile_is_looked_for_again() {
        let first = Cell::new(true);
        let look = |pid| match pid {
            20 => Some(process(20, if first.replace(false) { 19 } else { 1 }, 6)),
            1 => Some(process(1, 0, 0)),
            _ => None,
        };
        assert_eq!(descends(20, 10, look), Some(false));
    }
}
