//! The last words of a run whose loop stands still: said on another thread, from what stands on the disk.

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use super::super::output::Output;
use super::broken::{counted, only_event};
use crate::event::{Outcome, Paths, ResultError, RunResult};
use crate::goal::early;
use crate::report::{Format, summary_markdown};
use crate::session;

/// A reader that takes nothing may be why the loop stands still.
const PRINT_WITHIN: Duration = Duration::from_secs(1);

/// What is known of a run without asking its loop.
pub(super) struct Known {
    run: String,
    format: Format,
    output: Option<Arc<Output>>,
    /// The session's folder and the command that resumes it; none for one that is not kept.
    session: OnceLock<(PathBuf, Vec<String>)>,
    /// Of the last event that was shown.
    seq: AtomicU64,
}

impl Known {
    pub fn new(run: &str, format: Format, output: Option<Arc<Output>>) -> Known {
        Known { run: run.to_owned(), format, output, session: OnceLock::new(), seq: AtomicU64::new(0) }
    }

    pub fn run(&self) -> &str {
        &self.run
    }

    pub fn output(&self) -> Option<&Output> {
        self.output.as_deref()
    }

    pub fn began(&self, dir: PathBuf, resume: Vec<String>) {
        // There is one session to a run.
        let _known = self.session.set((dir, resume));
    }

    pub fn shown(&self, seq: u64) {
        self.seq.store(seq, Ordering::Relaxed);
    }

    /// Writes the result where it belongs and prints it as far as somebody takes it. The log gets no end: only the
    /// loop may write it, and for a resume and a replay the run was killed. `sessions show` and a resume tell of it.
    pub fn last_words(&self, outcome: Outcome) {
        let result = self.result(outcome);
        if let Some((dir, _)) = self.session.get()
            && let Err(error) = session::write_result(dir, &result, &summary_markdown(&result))
        {
            tracing::error!(%error, "result.json cannot be written");
        }
        let (streams, file): (Vec<_>, Vec<_>) = self.output.iter().cloned().partition(|output| output.is_stream());
        let mut unwritten: Vec<std::io::Error> = file.iter().filter_map(|file| file.write(&result).err()).collect();
        let data = match self.format {
            Format::Text => Ok(String::new()),
            Format::Json => serde_json::to_string(&result).map(|line| line + "\n"),
            Format::Jsonl => {
                let mut record = only_event(&result);
                record.seq = self.seq.load(Ordering::Relaxed) + 1;
                record.session = result.session_id.clone().unwrap_or_default();
                serde_json::to_string(&record).map(|line| line + "\n")
            }
        };
        let message = result.error.as_ref().map(|error| error.message.clone()).unwrap_or_default();
        let (printed, done) = mpsc::channel();
        let print = move || {
            let _ = writeln!(std::io::stderr(), "error: {message}");
            unwritten.extend(streams.iter().filter_map(|stream| stream.write(&result).err()));
            for error in unwritten {
                let _ = writeln!(std::io::stderr(), "error: write the result: {error}");
            }
            let _ = std::io::stdout().write_all(data.unwrap_or_default().as_bytes());
            let _ = printed.send(());
        };
        if std::thread::Builder::new().name("last words".to_owned()).spawn(print).is_ok() {
            let _late = done.recv_timeout(PRINT_WITHIN);
        }
    }

    fn result(&self, outcome: Outcome) -> RunResult {
        let message = match outcome.signal() {
            Some(_) => format!("{} while spettro stood still: the teardown was left to its helpers", outcome.name()),
            None => {
                "spettro stood still until behind its limit on time: the teardown was left to its helpers".to_owned()
            }
        };
        let plain = early(&self.run, outcome, message.clone(), None);
        let Some((dir, resume)) = self.session.get() else { return plain };
        // As the run said when it began.
        let begun = std::fs::read(dir.join("result.json")).ok();
        let begun = begun.and_then(|text| serde_json::from_slice::<RunResult>(&text).ok());
        let shown = |name: &str| dir.join(name).to_string_lossy().into_owned();
        let mut result = begun.filter(|begun| begun.run_id == self.run).unwrap_or_else(|| RunResult {
            session_id: dir.file_name().map(|id| id.to_string_lossy().into_owned()),
            paths: Some(Paths {
                session: dir.to_string_lossy().into_owned(),
                result: shown("result.json"),
                summary: shown("summary.md"),
                events: shown("events.jsonl"),
                copy: None,
            }),
            ..plain
        });
        counted(&mut result, dir);
        result.state = "finished".to_owned();
        result.outcome = Some(outcome);
        result.exit_code = Some(outcome.code());
        result.retryable = outcome.retryable();
        result.error = Some(ResultError { message, hint: None });
        result.commands.resume = Some(resume.clone());
        result
    }
}
