//! The file of `-o`, and where a run's result is to go.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::failure::Failure;
use super::target::Target;
use crate::event::{Outcome, RunResult};
use crate::goal::early;
use crate::process::sandbox::Policy;
use crate::report::Format;

/// Where the result goes that `-o` asks for.
#[derive(Debug)]
pub struct Output(Target);

impl Output {
    /// Refuses a file that could not be written at the end, before anything is spent.
    ///
    /// # Errors
    /// As [`Target::find`].
    pub fn find(file: &Path) -> Result<Output, Failure> {
        let found = Target::find("-o", file);
        found.map(Output).map_err(|failure| match file.as_os_str() == "-" {
            true => failure.hint("`--json` writes the result to stdout"),
            false => failure,
        })
    }

    /// As it was named.
    pub fn named(&self) -> &Path {
        self.0.named()
    }

    /// See [`Target::is_stream`].
    pub fn is_stream(&self) -> bool {
        self.0.is_stream()
    }

    /// Marks a result of an earlier run as that of one that is running: should this one be killed, nobody takes the old
    /// one for its own. Where there is none yet, none is made; it might stand in the workspace. Where a link leads
    /// there that is not settled, [`Output::settle`] does it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn begin(&self, run_id: &str) -> Result<(), Failure> {
        if !self.0.is_settled() || !self.0.is_file() {
            return Ok(());
        }
        let running = RunResult {
            state: "running".to_owned(),
            outcome: None,
            exit_code: None,
            error: None,
            ..early(run_id, Outcome::Internal, String::new(), None)
        };
        let failed = |error| Failure::new(Outcome::Environment, format!("write `{}`: {error}", self.named().display()));
        self.write(&running).map_err(failed)
    }

    /// See [`Target::settle`]; then the mark, if there was none yet.
    ///
    /// # Errors
    /// A usage error for a link that others can have put there, and when the mark cannot be written.
    pub fn settle(&self, policy: &Policy, project: &Path, run_id: &str) -> Result<(), Failure> {
        if self.0.is_settled() {
            return Ok(());
        }
        self.0.settle(policy, project)?;
        self.begin(run_id)
    }

    /// Writes a result whole; see [`Target::write`].
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, result: &RunResult) -> std::io::Result<()> {
        let mut text = serde_json::to_vec_pretty(result)?;
        text.push(b'\n');
        self.0.write(&text)
    }
}

/// Where a run's result is to go, as far as a command line that is wrong elsewhere says.
#[derive(Debug, PartialEq, Eq)]
pub struct AskedOutput {
    pub format: Format,
    pub file: Option<PathBuf>,
}

/// Reads `--json`, `--output-format` and `-o` from the words after the verb.
pub fn asked(words: &[OsString]) -> AskedOutput {
    let mut asked = AskedOutput { format: Format::Text, file: None };
    let mut json = false;
    let mut words = words.iter().map(|word| word.to_string_lossy()).take_while(|word| word != "--");
    while let Some(word) = words.next() {
        let (flag, inline) = match word.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => (flag.to_owned(), Some(value.to_owned())),
            _ => match word.strip_prefix("-o").filter(|file| !file.is_empty()) {
                Some(file) => ("-o".to_owned(), Some(file.to_owned())),
                None => (word.to_string(), None),
            },
        };
        let mut value = || inline.clone().or_else(|| words.next().map(|word| word.to_string()));
        match flag.as_str() {
            "--json" => json = true,
            "--output-format" => {
                asked.format = match value().as_deref() {
                    Some("json") => Format::Json,
                    Some("jsonl") => Format::Jsonl,
                    _ => Format::Text,
                };
            }
            "-o" | "--output-file" => asked.file = value().map(PathBuf::from),
            _ => {}
        }
    }
    if json && asked.format == Format::Text {
        // Both were given, which is refused: what was asked for once is there all the same.
        asked.format = Format::Json;
    }
    asked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stdout_is_no_file() {
        let failure = Output::find(Path::new("-")).unwrap_err();
        assert!(failure.outcome == Outcome::Usage && failure.hint.is_some_and(|hint| hint.contains("--json")));
    }

    #[test]
    fn an_old_result_is_marked_as_running_and_no_new_one_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let (old, new) = (folder.join("old"), folder.join("new"));
        let result = early("run-1", Outcome::Usage, "no".to_owned(), None);
        let begin = |file: &Path| Output::find(file).unwrap().begin("run-2").unwrap();
        Output::find(&old).unwrap().write(&RunResult { outcome: Some(Outcome::Met), ..result }).unwrap();
        begin(&old);
        begin(&new);
        begin(Path::new("/dev/null"));
        let read = || -> serde_json::Value { serde_json::from_slice(&std::fs::read(&old).unwrap()).unwrap() };
        let marked = read();
        assert_eq!((marked["state"].as_str(), marked["run_id"].as_str()), (Some("running"), Some("run-2")));
        assert!(marked["outcome"].is_null() && marked["exit_code"].is_null() && marked["error"].is_null());
        assert!(!new.exists());

        // Behind a link it is done once somebody knows who may put links there.
        let link = folder.join("link");
        std::os::unix::fs::symlink(&old, &link).unwrap();
        let output = Output::find(&link).unwrap();
        output.begin("run-3").unwrap();
        assert_eq!(read()["run_id"], "run-2");
        output.settle(&Policy::off(), &folder, "run-3").unwrap();
        assert_eq!(read()["run_id"], "run-3");
        assert!(link.symlink_metadata().unwrap().is_symlink());
    }
}
