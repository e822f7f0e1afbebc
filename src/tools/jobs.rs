//! Background jobs: reading, ending and waiting for them.

use std::collections::BTreeMap;
use std::time::Duration;

use regex::bytes::Regex;

use super::args::Args;
use super::dispatch::{Done, Place};
use super::error::ToolError;
use super::escape::{escape, escape_line};
use super::output::{clip, one_line, thousands, whole_chars};
use crate::world::{Exec, JobInfo};

/// Most bytes that one `job-output` call gives.
const CHUNK_BYTES: usize = 24_000;
/// The longest wait.
const MAX_WAIT: Duration = Duration::from_secs(30 * 60);
/// Bytes read at once while looking for a pattern.
const SCAN_BYTES: usize = 64 << 10;
/// An unfinished line longer than this is looked at in pieces.
const LONG_LINE_BYTES: usize = 32 << 10;
const LAST_LINE_CHARS: usize = 200;

/// Where the last match of a pattern in a job's output ended: the next wait for it goes on there.
pub(super) type Matched = BTreeMap<(String, String), u64>;

/// The id for the next job: one above the highest that this run has and that the session is known to have had.
pub(super) fn next_id(exec: &dyn Exec, known: u64) -> (u64, String) {
    let highest = exec.jobs().iter().filter_map(|job| job.id.strip_prefix("job-")?.parse().ok()).max().unwrap_or(0);
    let next = highest.max(known) + 1;
    (next, format!("job-{next}"))
}

fn find(exec: &dyn Exec, id: &str) -> Result<JobInfo, ToolError> {
    let jobs = exec.jobs();
    let names: Vec<String> = jobs.iter().map(|job| format!("{} [{}]", job.id, job.state)).collect();
    jobs.into_iter().find(|job| job.id == id).ok_or_else(|| {
        let known = if names.is_empty() { "there are none".to_owned() } else { format!("known: {}", names.join(", ")) };
        ToolError::Failed(format!("no background job `{}` in this run; {known}", one_line(id, 40)))
    })
}

/// `job-output`.
pub(super) fn output(at: Place<'_>, args: &Args) -> Result<Done, ToolError> {
    let job = find(&*at.world.exec, args.required("job_id")?)?;
    let asked = args.number("offset").unwrap_or(0);
    if asked > job.printed_bytes {
        let printed = job.printed_bytes;
        return Err(ToolError::Failed(format!("{} has printed only {printed} bytes so far", job.id)));
    }
    let (start, bytes) =
        at.world.exec.read(&job.id, asked, CHUNK_BYTES).unwrap_or_else(|| (job.printed_bytes, Vec::new()));
    let end = start + bytes.len() as u64;
    // A character may still be in the making, unless nothing more will come.
    let keep = if end < job.printed_bytes || job.state.alive() { whole_chars(&bytes) } else { bytes.len() };
    let next = start + keep as u64;
    let more = if end < job.printed_bytes {
        "more available"
    } else if job.state.alive() {
        "end so far"
    } else {
        "end of output"
    };
    let mut text = format!("{} [{}] offset={start} next_offset={next} ({more})\n", job.id, job.state);
    if start > asked {
        text.push_str(&format!("[{} bytes before this are no longer kept]\n", thousands(start - asked)));
    }
    text.push_str(&escape(&bytes[..keep]));
    Ok(Done { output_bytes: Some(keep as u64), ..Done::ok(text) })
}

/// `job-kill`.
pub(super) async fn kill(at: Place<'_>, args: &Args) -> Result<Done, ToolError> {
    let job = find(&*at.world.exec, args.required("job_id")?)?;
    if !job.state.alive() {
        return Ok(Done::ok(format!("{} had ended already: {}", job.id, job.state)));
    }
    at.world.exec.kill(&job.id).await;
    let now = find(&*at.world.exec, &job.id)?;
    Ok(Done::ok(format!("{} [{}]{}", now.id, now.state, last_line(&now))))
}

fn last_line(job: &JobInfo) -> String {
    match job.last_line.trim() {
        "" => String::new(),
        line => format!("; last line: {}", clip(&escape_line(line.as_bytes()), LAST_LINE_CHARS)),
    }
}

/// `5m23s`.
fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, rest) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}

/// `job-1 exited 0 after 5m23s; last line: …`
fn ended(job: &JobInfo) -> String {
    let took = job.ended.and_then(|end| end.duration_since(job.started).ok());
    let after = took.map_or(String::new(), |took| format!(" after {}", span(took)));
    format!("{} {}{after}{}", job.id, job.state, last_line(job))
}

/// `wait`: parks until one of the jobs ends or prints the pattern, or time is up.
pub(super) async fn wait(at: Place<'_>, args: &Args, matched: &mut Matched) -> Result<Done, ToolError> {
    let exec = &*at.world.exec;
    let timeout = Duration::from_secs(args.number("timeout").unwrap_or(0)).min(MAX_WAIT);
    let pattern = match args.text("pattern") {
        None => None,
        Some(text) => {
            let regex = Regex::new(text)
                .map_err(|error| ToolError::argument("pattern", format!("is no regular expression: {error}")))?;
            Some((text, regex))
        }
    };
    let targets: Vec<String> = match args.text("job_id") {
        Some(id) => vec![find(exec, id)?.id],
        None => exec.jobs().iter().filter(|job| job.state.alive()).map(|job| job.id.clone()).collect(),
    };
    if targets.is_empty() {
        return Err(ToolError::Failed("no background job is running: there is nothing to wait for".into()));
    }
    let mut scans: Vec<Scan> = targets
        .iter()
        .map(|id| {
            let key = (id.clone(), pattern.as_ref().map_or("", |(text, _)| text).to_owned());
            Scan { from: matched.get(&key).copied().unwrap_or(0), job: id.clone() }
        })
        .collect();
    let mut time_is_up = at.world.clock.sleep(timeout);
    loop {
        // Taken before looking, so that nothing that happens in between is missed.
        let changed = exec.changed();
        let jobs = exec.jobs();
        if let Some((text, regex)) = &pattern {
            for scan in &mut scans {
                if let Some((line, end)) = scan.next(exec, regex) {
                    matched.insert((scan.job.clone(), (*text).to_owned()), end);
                    let line = clip(&escape_line(&line), LAST_LINE_CHARS);
                    return Ok(Done::ok(format!("{} printed: {line}\n[next_offset={end}]", scan.job)));
                }
            }
        }
        let over: Vec<String> =
            jobs.iter().filter(|job| targets.contains(&job.id) && !job.state.alive()).map(ended).collect();
        if !over.is_empty() {
            let without = if pattern.is_some() { "\n[no further line matched the pattern]" } else { "" };
            return Ok(Done::ok(format!("{}{without}", over.join("\n"))));
        }
        tokio::select! {
            biased;
            () = changed => {}
            () = &mut time_is_up => {
                let rest: Vec<String> = exec
                    .jobs()
                    .iter()
                    .filter(|job| targets.contains(&job.id))
                    .map(|job| format!("{} [{}]{}", job.id, job.state, last_line(job)))
                    .collect();
                return Ok(Done::ok(format!("time is up after {}\n{}", span(timeout), rest.join("\n"))));
            }
        }
    }
}

/// How far a job's output was searched.
struct Scan {
    job: String,
    /// Where the first line starts that was not searched to its end.
    from: u64,
}

impl Scan {
    /// The first line from here on that matches, and the offset behind it.
    fn next(&mut self, exec: &dyn Exec, regex: &Regex) -> Option<(Vec<u8>, u64)> {
        loop {
            let (start, bytes) = exec.read(&self.job, self.from, SCAN_BYTES)?;
            let mut at = 0;
            let mut rest: &[u8] = &bytes;
            while let Some(end) = rest.iter().position(|b| *b == b'\n') {
                let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
                at += end + 1;
                if regex.is_match(line) {
                    return Some((line.to_owned(), start + at as u64));
                }
                rest = &rest[end + 1..];
            }
            // A prompt has no line end; a line without end must not be read again and again as a whole.
            if !rest.is_empty() && regex.is_match(rest) {
                return Some((rest.to_owned(), start + bytes.len() as u64));
            }
            if rest.len() > LONG_LINE_BYTES {
                at += rest.len() - LONG_LINE_BYTES / 4;
            }
            self.from = start + at as u64;
            if bytes.len() < SCAN_BYTES {
                return None;
            }
        }
    }
}
