//! `kill -9` at twenty moments of a run of ten iterations.

use std::time::Duration;

use super::support::{Scene, audit};
use crate::sandbox::PATIENCE;

const ITERATIONS: u64 = 10;
/// Of the provider: three an iteration.
const REQUESTS: usize = 30;

/// A generator of chance that gives the same moments in every run (splitmix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

#[derive(Debug, Clone, Copy)]
enum Moment {
    /// This request has arrived, and its answer is on its way; then so many microseconds.
    Request(usize, u64),
    /// The log has so many lines.
    Lines(usize),
}

#[track_caller]
fn killed_at(moment: Moment) {
    let scene = Scene::of(ITERATIONS);
    let running = scene.start();
    match moment {
        Moment::Request(n, micros) => {
            scene.provider.wait_for_request(n, PATIENCE);
            // What happens in this time is the point: it is no wait for anything.
            std::thread::sleep(Duration::from_micros(micros));
        }
        Moment::Lines(count) => scene.wait_for_log("so many lines", |lines| lines.len() >= count),
    }
    let killed = running.kill();
    assert_eq!(killed.signal, Some(9), "{moment:?}: it was still running\n{}", killed.stderr);
    let finished = scene.resume(&[]).expect_code(0);
    let money = audit(&scene, &finished, ITERATIONS);
    assert!(money.unsettled.len() <= 1, "{moment:?}: one call at most was under way: {money:?}");
    assert_eq!(scene.facts("run").len(), 2);
    scene.provider.finish();
}

/// Ten requests out of the run, each with another small delay.
fn by_request(half: usize) {
    let mut chance = Chance(7 + half as u64);
    for index in 0..5 {
        let n = 1 + (index * 2 + half) * (REQUESTS - 2) / 10 + chance.below(2) as usize;
        killed_at(Moment::Request(n, chance.below(4_000)));
    }
}

/// Ten lengths of the log: about sixteen lines are an iteration.
fn by_lines(half: usize) {
    let mut chance = Chance(99 + half as u64);
    for index in 0..5 {
        killed_at(Moment::Lines(6 + (index * 2 + half) * 13 + chance.below(13) as usize));
    }
}

#[test]
fn killed_at_a_request_it_goes_on_even() {
    by_request(0);
}

#[test]
fn killed_at_a_request_it_goes_on_odd() {
    by_request(1);
}

#[test]
fn killed_at_a_line_of_the_log_it_goes_on_even() {
    by_lines(0);
}

#[test]
fn killed_at_a_line_of_the_log_it_goes_on_odd() {
    by_lines(1);
}

#[test]
fn killed_again_and_again_one_session_still_comes_to_its_end() {
    let scene = Scene::of(ITERATIONS);
    let mut chance = Chance(2026);
    let mut running = scene.start();
    let mut seen = 0;
    for _ in 0..8 {
        scene.provider.wait_for_request(seen + 3, PATIENCE);
        std::thread::sleep(Duration::from_micros(chance.below(3_000)));
        assert_eq!(running.kill().signal, Some(9));
        seen = scene.provider.requests().len();
        running = scene.sandbox.spawn(["run", "--resume", "latest"]);
    }
    let finished = running.wait(PATIENCE).expect_code(0);
    let money = audit(&scene, &finished, ITERATIONS);
    assert!(money.unsettled.len() <= 8, "{money:?}");
    assert_eq!(scene.facts("run").len(), 9);
    scene.provider.finish();
}
