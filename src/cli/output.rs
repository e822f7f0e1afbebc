//! The file of `-o`, and where a run's result is to go.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::failure::Failure;
use crate::event::{Outcome, RunResult};
use crate::goal::early;
use crate::report::Format;

/// Refuses a file that could not be written at the end, before anything is spent.
///
/// # Errors
/// A folder, and a file whose folder does not exist.
pub fn check(file: &Path) -> Result<(), Failure> {
    let shown = file.display();
    if file.as_os_str() == "-" {
        return Err(Failure::usage("`-o -` is no file").hint("`--json` writes the result to stdout"));
    }
    match std::fs::metadata(file) {
        Ok(metadata) if metadata.is_dir() => {
            return Err(Failure::usage(format!("`-o {shown}` is a folder")).hint("name a file in it"));
        }
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(Failure::usage(format!("`-o {shown}` cannot be written: {error}"))),
    }
    let folder = folder(file);
    match std::fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() && file.file_name().is_some() => Ok(()),
        Ok(_) => Err(Failure::usage(format!("`-o {shown}` is no file"))),
        Err(error) => Err(Failure::usage(format!("the folder of `-o {shown}` cannot be used: {error}"))
            .hint(format!("make it first: `mkdir -p {}`", folder.display()))),
    }
}

/// Marks a result of an earlier run as that of one that is running: should this one be killed, nobody takes the old one
/// for its own. Where there is none yet, none is made; it might stand in the workspace.
///
/// # Errors
/// When it cannot be written.
pub fn begin(file: &Path, run_id: &str) -> Result<(), Failure> {
    if !std::fs::metadata(file).is_ok_and(|metadata| metadata.is_file()) {
        return Ok(());
    }
    let running = RunResult {
        state: "running".to_owned(),
        outcome: None,
        exit_code: None,
        error: None,
        ..early(run_id, Outcome::Internal, String::new(), None)
    };
    write(file, &running)
        .map_err(|error| Failure::new(Outcome::Environment, format!("write `{}`: {error}", file.display())))
}

/// Writes a result whole, under another name first; into a device or a pipe as it is.
///
/// # Errors
/// When it cannot be written.
pub fn write(file: &Path, result: &RunResult) -> std::io::Result<()> {
    let mut text = serde_json::to_vec_pretty(result)?;
    text.push(b'\n');
    if std::fs::metadata(file).is_ok_and(|metadata| !metadata.is_file()) {
        // Nothing may take the place of `/dev/null`.
        return std::fs::OpenOptions::new().write(true).open(file)?.write_all(&text);
    }
    // What a link leads to is replaced, not the link.
    let file = &std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let mut temporary = tempfile::NamedTempFile::new_in(folder(file))?;
    temporary.write_all(&text)?;
    temporary.persist(file).map_err(|error| error.error)?;
    Ok(())
}

fn folder(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
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

    fn result() -> RunResult {
        crate::goal::early("run-1", Outcome::Usage, "no".to_owned(), None)
    }

    #[test]
    fn what_cannot_be_written_is_refused_before() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("old"), "x").unwrap();
        assert!(check(&at("new")).is_ok() && check(&at("old")).is_ok() && check(Path::new("/dev/null")).is_ok());
        assert!(check(Path::new("plain")).is_ok());
        let failure = check(Path::new("-")).unwrap_err();
        assert!(failure.outcome == Outcome::Usage && failure.hint.is_some_and(|hint| hint.contains("--json")));
        for bad in [at(""), at("none/new"), at("old/new"), PathBuf::from("/")] {
            let failure = check(&bad).unwrap_err();
            assert_eq!(failure.outcome, Outcome::Usage, "{}", bad.display());
        }
    }

    #[test]
    fn an_old_result_is_marked_as_running_and_no_new_one_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        write(&old, &RunResult { outcome: Some(Outcome::Met), ..result() }).unwrap();
        begin(&old, "run-2").unwrap();
        begin(&new, "run-2").unwrap();
        begin(Path::new("/dev/null"), "run-2").unwrap();
        let marked: serde_json::Value = serde_json::from_slice(&std::fs::read(&old).unwrap()).unwrap();
        assert_eq!((marked["state"].as_str(), marked["run_id"].as_str()), (Some("running"), Some("run-2")));
        assert!(marked["outcome"].is_null() && marked["exit_code"].is_null() && marked["error"].is_null());
        assert!(!new.exists());
    }

    #[test]
    fn links_stay_links_and_pipes_pipes() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write(&link, &result()).unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert!(std::fs::read_to_string(&file).unwrap().contains("\"usage\""));

        let null = folder.path().join("null");
        std::os::unix::fs::symlink("/dev/null", &null).unwrap();
        write(&null, &result()).unwrap();
        assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
        assert!(null.symlink_metadata().unwrap().is_symlink());
    }
}
