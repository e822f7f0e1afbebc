//! `spettro jobs`: the background jobs of a live run, listed or ended.

use std::io::Write;

use super::args::{JobsArgs, JobsVerb};
use super::failure::Failure;
use super::live::{Found, Shelf};
use crate::control::{Answer, Job, Request};
use crate::event::Outcome;
use crate::report::clean_line;

/// Lists jobs, or ends some and says how they ended.
///
/// # Errors
/// An unknown session or job, a session that is not running, several live runs, and no live run to end jobs of.
pub fn jobs(args: &JobsArgs, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let shelf = Shelf::open(args.session_dir.as_deref())?;
    let found = match &args.session {
        Some(id) => Some(shelf.session(id)?),
        None => shelf.only()?,
    };
    match (&args.what, found) {
        (None | Some(JobsVerb::List), Some(found)) => list(&found, out)?,
        (None | Some(JobsVerb::List), None) => {
            writeln!(out, "no background jobs: no run of `{}` is live", workspace(&shelf))?;
        }
        (Some(JobsVerb::Kill { ids }), Some(found)) => kill(&found, ids, out)?,
        (Some(JobsVerb::Kill { .. }), None) => {
            return Err(Failure::usage(format!("no run of `{}` is live", workspace(&shelf)))
                .hint("a run of another workspace is named with `--session ID`"));
        }
    }
    Ok(Outcome::Met)
}

/// The workspace, on one line.
fn workspace(shelf: &Shelf) -> String {
    clean_line(&shelf.workspace().to_string_lossy())
}

fn list(found: &Found, out: &mut dyn Write) -> Result<(), Failure> {
    let Answer::Jobs { jobs } = found.ask(&Request::Jobs)? else { return Err(found.misunderstood()) };
    if jobs.is_empty() {
        writeln!(out, "no background jobs")?;
        return Ok(());
    }
    writeln!(out, "background jobs:")?;
    for job in &jobs {
        writeln!(out, "{}", line(job))?;
    }
    writeln!(out, "\nkill with spettro jobs kill <id> or all")?;
    Ok(())
}

fn kill(found: &Found, ids: &[String], out: &mut dyn Write) -> Result<(), Failure> {
    let Answer::Killed { jobs } = found.ask(&Request::Kill { ids: ids.to_vec() })? else {
        return Err(found.misunderstood());
    };
    if jobs.is_empty() {
        writeln!(out, "no background job is running")?;
    }
    for job in &jobs {
        writeln!(out, "{} {}", job.id, job.state)?;
    }
    Ok(())
}

/// `- job-1 [running] npx vite --port 5173 (started 5m23s ago)`
fn line(job: &Job) -> String {
    let command = clean_line(&job.command);
    format!("- {} [{}] {command} (started {} ago)", job.id, job.state, age(job.started_ms_ago))
}

/// `42s`, `5m23s`, `2h0m5s`.
fn age(milliseconds: u64) -> String {
    let seconds = milliseconds / 1_000;
    let (hours, minutes, rest) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_one_line() {
        let job = Job {
            id: "job-1".to_owned(),
            state: "running".to_owned(),
            alive: true,
            command: "npx vite --port 5173".to_owned(),
            started_ms_ago: 323_900,
        };
        assert_eq!(line(&job), "- job-1 [running] npx vite --port 5173 (started 5m23s ago)");
        let hostile = Job { command: "a\u{1b}[2J\nb".to_owned(), started_ms_ago: 999, ..job };
        assert_eq!(line(&hostile), "- job-1 [running] a b (started 0s ago)");
        assert_eq!(age(7_205_000), "2h0m5s");
    }
}
