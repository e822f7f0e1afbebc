//! Runs that never began, or broke off: each has a result all the same.

use std::any::Any;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use super::super::failure::Failure;
use super::super::output::{self, Output};
use super::{Exit, run_id};
use crate::compact::Budget;
use crate::event::{Commands, EVENT_VERSION, Event, Lane, Leaked, Outcome, Paths, Record, ResultError, RunResult};
use crate::goal::{Cause, early};
use crate::model::Ledger;
use crate::report::{Format, summary_markdown};
use crate::session::{self, Fact, Session, SessionError};
use crate::world::{Clock, RealClock, World, rfc3339};

/// What a panic comes to, in words.
pub(super) fn panicked(panic: &(dyn Any + Send)) -> (String, String) {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    let message = format!("spettro panicked: {}", text.unwrap_or("unknown"));
    (
        message,
        "this is a bug of spettro; what was written so far is kept, and `SPETTRO_LOG=debug` writes more to debug.log"
            .to_owned(),
    )
}

/// The one event of a run that never began: its end.
pub(super) fn only_event(result: &RunResult) -> Record {
    Record {
        v: EVENT_VERSION,
        seq: 1,
        t: rfc3339(RealClock::new().now()),
        run: result.run_id.clone(),
        session: String::new(),
        fact: None,
        event: Event::RunFinished { result: Box::new(result.clone()) },
    }
}

/// The end of a run whose command line could not be read: what was asked for on stdout and with `-o` is there all
/// the same. `words` follow the verb.
pub fn misused(words: &[OsString], message: &str) -> Exit {
    let asked = output::asked(words);
    let mut paragraphs = message.split("\n\n");
    let first = paragraphs.next().unwrap_or_default();
    let message = first.strip_prefix("error: ").unwrap_or(first).trim().to_owned();
    let result = early(&run_id(), Outcome::Usage, message, Some("`spettro help run` lists the flags".to_owned()));
    let line = match asked.format {
        Format::Text => Ok(String::new()),
        Format::Json => serde_json::to_string(&result).map(|line| line + "\n"),
        Format::Jsonl => serde_json::to_string(&only_event(&result)).map(|line| line + "\n"),
    };
    // A closed pipe has seen enough.
    let _ = write!(std::io::stdout(), "{}", line.unwrap_or_default());
    let written = asked.file.as_deref().map_or(Ok(()), |file| {
        let output = Output::find(file).map_err(|failure| failure.message)?;
        output.write(&result).map_err(|error| format!("write `{}`: {error}", file.display()))
    });
    if let Err(error) = written {
        let _ = writeln!(std::io::stderr(), "error: {error}");
    }
    Outcome::Usage.into()
}

/// A run that could not begin: nothing was asked of a model, so nothing but its folder is left, and that goes too.
/// A session that was there before stays, with this end in its log.
pub(super) async fn give_up(
    world: &World,
    session: &Session,
    run_id: &str,
    cause: Cause,
    fresh: bool,
    copy: Option<&Path>,
) -> RunResult {
    let leaked = world.exec.shutdown(std::time::Duration::from_secs(5)).await;
    let mut result = early(run_id, cause.outcome, cause.message, cause.hint);
    result.retryable = cause.retryable;
    result.limit_hit = cause.limit;
    result.copy = copy.map(|copy| copy.to_string_lossy().into_owned());
    let end = session::End { run: run_id.to_owned(), outcome: cause.outcome, result: Box::new(result.clone()), leaked };
    if let Err(error) = session.append(Fact::End(Box::new(end))) {
        tracing::error!(%error, "the end cannot be logged");
    }
    if !fresh && let Err(error) = session.write_result(&result, &summary_markdown(&result)) {
        tracing::error!(%error, "result.json cannot be written");
    }
    if fresh && let Err(error) = session.clone().discard() {
        tracing::warn!(%error, "the unused session cannot be removed");
    }
    result
}

/// The end of a run that panicked: the session is there, and can be gone on with.
pub(super) fn broken_off(
    session: &Session,
    resume: Vec<String>,
    run_id: &str,
    panic: &(dyn Any + Send),
    leaked: Vec<Leaked>,
) -> RunResult {
    let (message, hint) = panicked(panic);
    let dir = session.dir();
    let shown = |name: &str| dir.join(name).to_string_lossy().into_owned();
    let mut result = RunResult {
        session_id: Some(session.id()),
        leaked: leaked.clone(),
        paths: Some(Paths {
            session: dir.to_string_lossy().into_owned(),
            result: shown("result.json"),
            summary: shown("summary.md"),
            events: shown("events.jsonl"),
            copy: None,
        }),
        commands: Commands { resume: Some(resume), ..Commands::default() },
        ..early(run_id, Outcome::Internal, message, Some(hint))
    };
    counted(&mut result, &dir);
    let end =
        session::End { run: run_id.to_owned(), outcome: Outcome::Internal, result: Box::new(result.clone()), leaked };
    // What panicked may do so again on the way: the other steps are made all the same.
    session.spool().flush(std::time::Duration::from_secs(3));
    let steps: [&dyn Fn() -> Result<(), SessionError>; 4] = [
        &|| session.tell_spool(),
        &|| session.append(Fact::End(Box::new(end.clone()))).map(|_| ()),
        &|| session.write_result(&result, &summary_markdown(&result)),
        &|| session.save_derived(),
    ];
    for step in steps {
        if let Ok(Err(error)) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(step)) {
            tracing::error!(%error, "the end cannot be written");
        }
    }
    result
}

/// A run that met its goal, and whose cassette or result file could not be written: who asked for it does not have it.
/// What is printed, the exit code and the session's result and last event say so; the log keeps that the goal is met.
pub(super) fn unwritten(result: &mut RunResult, message: String, hint: Option<String>) {
    result.outcome = Some(Outcome::Environment);
    result.exit_code = Some(Outcome::Environment.code());
    result.error = Some(ResultError { message, hint });
    if let Some(paths) = &result.paths
        && let Err(error) = session::amend_result(Path::new(&paths.session), result, &summary_markdown(result))
    {
        tracing::error!(%error, "result.json cannot be written");
    }
}

/// What the session has come to and cost, as its log says.
pub(super) fn counted(result: &mut RunResult, dir: &Path) {
    match Session::read(dir) {
        Ok((_, lines)) => {
            let state = session::fold(&lines);
            result.iterations = state.iteration;
            result.compactions = Budget::fold(lines.iter().map(|line| &line.fact)).tally();
            if let Some(run) = state.runs.last() {
                let ledger = Ledger::fold(&run.limits, &state.calls);
                result.steps = ledger.calls(Lane::Agent);
                result.total_cost_usd = ledger.spent().dollars();
                result.usage_by_lane = ledger.by_lane().clone();
            }
        }
        Err(error) => tracing::error!(%error, "the log cannot be read"),
    }
}

/// The end of a run of which something went wrong while it was put together; see [`give_up`].
pub(super) async fn not_begun(
    world: &World,
    session: &Session,
    run_id: &str,
    failure: Failure,
    fresh: bool,
    copy: Option<&Path>,
) -> RunResult {
    let cause = Cause { hint: failure.hint, ..Cause::new(failure.outcome, failure.message) };
    give_up(world, session, run_id, cause, fresh, copy).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Compactions;
    use crate::session::tests::{Lab, run};

    #[test]
    fn a_run_that_panicked_has_its_outputs_on_the_disk_and_counts_what_was_compacted() {
        let lab = Lab::new();
        let session = lab.create("s");
        session.append(run("run-1")).expect("appended");
        let failed = Fact::CompactionFailed { reason: "no sections".to_owned(), failures: 1, of: 1 };
        session.append(failed).expect("appended");
        session.append(Fact::CompactionPaused { reason: "1 failure in a row".to_owned() }).expect("appended");
        let id = session.spool().put(vec![b'x'; 3_000].into());
        let result = broken_off(&session, Vec::new(), "run-1", &"out of bounds", Vec::new());
        assert_eq!((result.outcome, result.exit_code), (Some(Outcome::Internal), Some(1)));
        let Compactions { failed, paused, .. } = result.compactions;
        assert_eq!((failed, paused), (1, true));
        assert_eq!(std::fs::read(session.spool().path(id)).expect("a file"), vec![b'x'; 3_000]);
        let (_, lines) = Session::read(&lab.dir("s")).expect("read");
        let Some(Fact::End(end)) = lines.last().map(|line| &line.fact) else { panic!("no end: {lines:?}") };
        assert_eq!(end.result.compactions, result.compactions);
        let stored = std::fs::read(lab.dir("s").join("result.json")).expect("a result");
        assert_eq!(serde_json::from_slice::<RunResult>(&stored).expect("it reads back"), result);
    }
}
