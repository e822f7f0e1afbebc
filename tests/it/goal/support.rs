//! A goal, its provider and its runs; and what every end owes, whatever its outcome.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use spettro::event::{Outcome, Record, RunResult};

use crate::provider::{Provider, Reply, Script};
use crate::sandbox::{Finished, PATIENCE, Running, Sandbox, json_lines};

/// The longest that a run with a limit on time may outlast it.
pub const LATE: Duration = Duration::from_secs(3);

/// A goal beside its provider.
pub struct Case {
    pub sandbox: Sandbox,
    pub provider: Provider,
    pub goal: PathBuf,
    runs: Cell<u32>,
}

impl Case {
    #[track_caller]
    pub fn new(script: Script, yaml: &str) -> Case {
        Case::within(Sandbox::new(), script, yaml)
    }

    /// The same in a sandbox that the test has filled.
    #[track_caller]
    pub fn within(sandbox: Sandbox, script: Script, yaml: &str) -> Case {
        let provider = script.start();
        let goal = sandbox.goal(&provider, yaml);
        Case { sandbox, provider, goal, runs: Cell::new(0) }
    }

    /// The same with a provider that runs already.
    #[track_caller]
    pub fn of(sandbox: Sandbox, provider: Provider, yaml: &str) -> Case {
        let goal = sandbox.goal(&provider, yaml);
        Case { sandbox, provider, goal, runs: Cell::new(0) }
    }

    /// Runs the goal to its end.
    #[track_caller]
    pub fn run(&self) -> Ended {
        self.with(&[])
    }

    /// The same with more arguments.
    #[track_caller]
    pub fn with(&self, more: &[&str]) -> Ended {
        self.start(more).end()
    }

    #[track_caller]
    pub fn start(&self, more: &[&str]) -> Started {
        let goal = self.goal.to_str().expect("a UTF-8 path");
        let mut args = vec!["run", "--goal", goal];
        args.extend(more);
        self.spawn(&args)
    }

    /// Goes on with the session as the end's own `resume:` line says, with more arguments.
    #[track_caller]
    pub fn resume(&self, ended: &Ended, more: &[&str]) -> Ended {
        let resume = ended.resume_command();
        let args: Vec<&str> = resume.iter().skip(1).map(String::as_str).chain(more.iter().copied()).collect();
        self.spawn(&args).end()
    }

    /// A run whose events are on stdout and whose result goes to a file too.
    #[track_caller]
    fn spawn(&self, args: &[&str]) -> Started {
        self.runs.set(self.runs.get() + 1);
        let file = self.sandbox.root().join(format!("out-{}.json", self.runs.get()));
        let mut all: Vec<&str> = args.to_vec();
        let shown = file.to_str().expect("a UTF-8 path").to_owned();
        all.extend(["--output-format", "jsonl", "-o", &shown]);
        Started { running: self.sandbox.spawn(&all), file }
    }
}

pub struct Started {
    pub running: Running,
    file: PathBuf,
}

impl Started {
    /// Waits for the end and holds it against what every end owes.
    #[track_caller]
    pub fn end(self) -> Ended {
        self.end_within(PATIENCE)
    }

    /// The same for a run that takes longer than others.
    #[track_caller]
    pub fn end_within(self, patience: Duration) -> Ended {
        let finished = self.running.wait(patience);
        Ended::of(finished, &self.file)
    }
}

/// A run that ended as every run must.
#[derive(Debug)]
pub struct Ended {
    pub finished: Finished,
    pub result: RunResult,
    /// The session folder, where there is one.
    pub dir: Option<PathBuf>,
}

impl Ended {
    #[track_caller]
    fn of(finished: Finished, file: &Path) -> Ended {
        let said = || format!("--- stdout\n{}\n--- stderr\n{}", finished.stdout, finished.stderr);
        let lines: Vec<Value> = finished
            .stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}\n{}", said())))
            .collect();
        let mut before = 0;
        for line in &lines {
            let record: Record =
                serde_json::from_value(line.clone()).unwrap_or_else(|error| panic!("{error}: {line}\n{}", said()));
            assert_eq!(record.v, 1);
            // The model's words are no event of their own: they carry the number of the one before.
            let next = if line["type"] == "model.delta" { record.seq == before } else { record.seq > before };
            assert!(next, "seq {} after {before}: {line}", record.seq);
            before = record.seq;
        }
        let last = lines.last().unwrap_or_else(|| panic!("nothing on stdout\n{}", said()));
        assert_eq!(last["type"], "run.finished", "the last line of its run\n{}", said());
        assert_eq!(lines.iter().filter(|line| line["type"] == "run.finished").count(), 1);

        let value = last["result"].clone();
        let result: RunResult = serde_json::from_value(value.clone()).expect("the result object");
        assert_eq!(serde_json::to_value(&result).expect("it serializes"), value, "nothing but the result's own fields");
        assert_eq!(result.state, "finished");
        let outcome = result.outcome.expect("a finished run has an outcome");
        assert_eq!(result.exit_code, Some(outcome.code()));
        match outcome.signal() {
            Some(signal) => assert_eq!((finished.code, finished.signal), (None, Some(signal)), "{}", said()),
            None => assert_eq!((finished.code, finished.signal), (Some(outcome.code().into()), None), "{}", said()),
        }
        let written: Value = serde_json::from_str(&read(file)).expect("JSON in the output file");
        assert_eq!(written, value, "`-o` holds the same");

        let dir = result.paths.as_ref().map(|paths| PathBuf::from(&paths.session));
        assert_eq!(dir.is_some(), result.session_id.is_some());
        if let Some(dir) = &dir {
            let stored: Value = serde_json::from_str(&read(&dir.join("result.json"))).expect("JSON in result.json");
            assert_eq!(stored, value, "result.json holds the same");
            let events = json_lines(&dir.join("events.jsonl"));
            assert_eq!(events.last(), Some(last), "events.jsonl ends with the same line");
            let summary = read(&dir.join("summary.md"));
            assert!(summary.starts_with(&format!("# {}", outcome.name())), "{summary}");
        }
        let resume = finished.stderr.lines().find_map(|line| line.strip_prefix("resume: "));
        match (&result.session_id, outcome) {
            (Some(id), outcome) if outcome != Outcome::Met => {
                // A limit that is used up has to be raised: the line says by which flag.
                let plain = format!("spettro run --resume {id}");
                let more = resume.and_then(|resume| resume.strip_prefix(&plain)).unwrap_or("no resume line");
                assert!(more.is_empty() || result.limit_hit.is_some() && more.starts_with(" --max-"), "{}", said());
                let argv = ["spettro", "run", "--resume", id].map(str::to_owned);
                assert_eq!(result.commands.resume.as_deref(), Some(&argv[..]));
            }
            _ => assert_eq!(resume, None, "{}", said()),
        }
        for left in &result.leaked {
            assert!(gone(left.pid), "left alive: {left:?}");
        }
        Ended { finished, result, dir }
    }

    #[track_caller]
    pub fn expect(self, outcome: Outcome) -> Ended {
        assert!(
            self.result.outcome == Some(outcome),
            "{:?} instead of {outcome:?}\n--- stdout\n{}\n--- stderr\n{}",
            self.result.outcome,
            self.finished.stdout,
            self.finished.stderr
        );
        self
    }

    pub fn resume_command(&self) -> Vec<String> {
        self.result.commands.resume.clone().expect("an unfinished session can be resumed")
    }

    /// What the result says went wrong.
    #[track_caller]
    pub fn error(&self) -> String {
        let error = self.result.error.as_ref().expect("an error in the result");
        format!("{}\n{}", error.message, error.hint.as_deref().unwrap_or_default())
    }

    /// Why the goal is not met, or is.
    #[track_caller]
    pub fn reason(&self) -> &str {
        &self.result.verdict.as_ref().expect("a verdict").reason
    }

    /// The session's facts of one kind.
    #[track_caller]
    pub fn facts(&self, kind: &str) -> Vec<Value> {
        let dir = self.dir.as_ref().expect("a session");
        json_lines(&dir.join("session.jsonl")).into_iter().filter(|line| line["kind"] == kind).collect()
    }

    /// How the turns ended, in order.
    #[track_caller]
    pub fn turns(&self) -> Vec<String> {
        self.facts("turn").iter().map(|fact| fact["end"].as_str().expect("a turn's end").to_owned()).collect()
    }
}

/// Whether a process is no more, or is within a moment: one that was just killed may still be on its way out.
fn gone(pid: i32) -> bool {
    let deadline = Instant::now() + LATE;
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        if matches!(state, None | Some('Z' | 'X')) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[track_caller]
fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("read {}: {error}", path.display()))
}

pub fn met() -> Reply {
    Reply::verdict("met", "it is so", "")
}

pub fn unmet(reason: &str) -> Reply {
    Reply::verdict("unmet", reason, "do the rest")
}

pub fn impossible() -> Reply {
    Reply::verdict("impossible", "it contradicts itself", "")
}

/// A script whose agent says it is done, and whose judge agrees.
pub fn content() -> Script {
    Script::new().agent(Reply::complete("done").forever()).judge(met().forever())
}
