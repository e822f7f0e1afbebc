//! A recorded session, and its replay somewhere else: another folder, another home, no key, no provider.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::provider::{Provider, Script, Wire};
use crate::sandbox::{Finished, PATIENCE, Sandbox};

/// A goal that was run, or is about to be.
pub struct Recording {
    pub sandbox: Sandbox,
    pub provider: Provider,
    pub goal: PathBuf,
}

impl Recording {
    pub fn new(script: Script, goal: &str) -> Recording {
        Recording::in_place(Sandbox::new(), script, goal)
    }

    pub fn on(wire: Wire, script: Script, goal: &str) -> Recording {
        Recording::in_place(Sandbox::new().wire(wire), script, goal)
    }

    pub fn in_place(sandbox: Sandbox, script: Script, goal: &str) -> Recording {
        let provider = script.key("sk-recorded-0123456789").start();
        let goal = sandbox.goal(&provider, goal);
        Recording { sandbox, provider, goal }
    }

    #[track_caller]
    pub fn run(&self, code: i32) -> Finished {
        let finished = self.sandbox.spawn([Path::new("run"), Path::new("--goal"), &self.goal]).wait(PATIENCE);
        finished.expect_code(code)
    }

    /// Replays the newest session in a sandbox of its own. The provider must not be asked.
    #[track_caller]
    pub fn replay(&self, more: &[&str]) -> Replayed {
        let asked = self.provider.requests().len();
        let replayed = replay(&self.sandbox.session_dir(), more);
        assert_eq!(self.provider.requests().len(), asked, "a replay asks no provider");
        replayed
    }
}

/// What a replay said.
pub struct Replayed {
    pub finished: Finished,
    pub report: Value,
}

/// Replays a session's folder or a file somewhere else.
#[track_caller]
pub fn replay(recording: &Path, more: &[&str]) -> Replayed {
    let replayed = really(recording, more);
    assert_eq!(replayed.report["processes"], 0, "a replay starts no process");
    replayed
}

/// The same where processes may start.
#[track_caller]
pub fn really(recording: &Path, more: &[&str]) -> Replayed {
    let elsewhere = Sandbox::new();
    let finished = elsewhere.run(words(recording, more));
    assert!(!finished.stdout.is_empty(), "{:?}", finished);
    let report: Value = serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}: {finished:?}"));
    assert_left_nothing(&elsewhere);
    Replayed { finished, report }
}

/// A replay somewhere else that gives no report.
#[track_caller]
pub fn refused(recording: &Path, more: &[&str], code: i32) -> String {
    let elsewhere = Sandbox::new();
    let finished = elsewhere.run(words(recording, more)).expect_code(code);
    assert_eq!(finished.stdout, "");
    assert_left_nothing(&elsewhere);
    finished.stderr
}

fn words<'a>(recording: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec!["replay", recording.to_str().expect("UTF-8"), "--output-format", "json"];
    words.extend(more);
    words
}

/// What a replay makes is removed.
#[track_caller]
pub fn assert_left_nothing(place: &Sandbox) {
    assert!(!place.spettro_home().exists(), "a replay writes nothing into its home");
    let left: Vec<_> = std::fs::read_dir(place.root().join("tmp")).expect("there").collect();
    assert!(left.is_empty(), "the scratch folder is removed: {left:?}");
}

impl Replayed {
    /// How an aspect came out.
    #[track_caller]
    pub fn standing(&self, what: &str) -> String {
        let compared = self.report["compared"].as_array().expect("a list");
        let one = compared.iter().find(|one| one["what"] == what).unwrap_or_else(|| panic!("no {what}"));
        one["standing"].as_str().expect("a word").to_owned()
    }

    /// Everything that can be compared without the workspace's content is the same.
    #[track_caller]
    pub fn expect_same(&self) -> &Replayed {
        for what in ["requests", "hints", "tools", "deliveries", "events", "ledger", "leftovers"] {
            assert_eq!(self.standing(what), "identical", "{what}: {:#}", self.report);
        }
        assert_eq!(self.report.get("diverged"), None, "{:#}", self.report);
        assert!(matches!(self.finished.code, Some(0 | 32)), "{:?}\n{:#}", self.finished.code, self.report);
        self
    }

    /// The first divergence.
    #[track_caller]
    pub fn first(&self) -> &Value {
        assert_eq!(self.finished.code, Some(30), "{:#}", self.report);
        &self.report["diverged"][0]
    }
}
