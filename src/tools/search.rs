//! `grep` and `glob`: finding text and files.
//!
//! Invariant: candidates come from the `Dir` port sorted by bytes, so that limits always cut the same results.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use globset::{Glob, GlobBuilder, GlobMatcher};
use grep_regex::RegexMatcherBuilder;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkFinish, SinkMatch};
use ignore::types::{Types, TypesBuilder};

use super::args::Args;
use super::dispatch::{Done, Place};
use super::error::ToolError;
use super::escape::{escape, escape_line};
use super::files::{Access, File, Guard};
use super::output::{clip, thousands};
use crate::world::{WalkOptions, beneath};

const DEFAULT_RESULTS: u64 = 500;
const MAX_RESULTS: u64 = 10_000;
/// Most characters of one line of a match.
const LINE_CHARS: usize = 500;
/// Most paths that `glob` gives.
const MAX_PATHS: usize = 1_000;

/// A candidate: where it is, its path below the folder searched, and how it is shown.
struct Candidate {
    real: PathBuf,
    relative: PathBuf,
    label: String,
}

/// Every file below a folder that git does not ignore, and what could not be read. A folder that is itself ignored
/// was named on purpose: then nothing in it is left out.
fn candidates(at: Place<'_>, guard: &Guard<'_>, folder: &File) -> (Vec<Candidate>, Vec<String>) {
    let options = WalkOptions { gitignore: true, nested_repositories: true };
    // Ignore files above the folder count too, so the walk starts at the workspace.
    let inside = folder.real.strip_prefix(&guard.root).ok();
    let (mut found, mut errors) = match inside {
        Some(below) => {
            let (paths, errors) = at.world.dir.walk(&guard.root, options);
            let paths = paths.iter().filter_map(|path| path.strip_prefix(below).ok().map(Path::to_owned)).collect();
            (paths, errors)
        }
        None => at.world.dir.walk(&folder.real, options),
    };
    if found.is_empty() && inside.is_some_and(|below| !below.as_os_str().is_empty()) {
        let everything = WalkOptions { gitignore: false, ..options };
        (found, errors) = at.world.dir.walk(&folder.real, everything);
    }
    // By bytes, in whichever order it was listed.
    found.sort_by(|one, other| one.as_os_str().cmp(other.as_os_str()));
    let files = found
        .into_iter()
        .map(|relative| {
            let real = folder.real.join(&relative);
            Candidate { label: guard.label(&real), real, relative }
        })
        .filter(|file| guard.refusal(&file.real, Access::Read).is_none())
        .collect();
    (files, errors.iter().map(|error| guard.message(error)).collect())
}

fn matcher_of(field: &'static str, pattern: &str) -> Result<GlobMatcher, ToolError> {
    let glob: Result<Glob, _> = GlobBuilder::new(pattern).literal_separator(true).build();
    match glob {
        Ok(glob) => Ok(glob.compile_matcher()),
        Err(error) => Err(ToolError::argument(field, format!("is no valid glob: {}", error.kind()))),
    }
}

/// `glob`: files by pattern, or one folder's entries.
pub(super) fn glob(at: Place<'_>, args: &Args) -> Result<Done, ToolError> {
    let guard = at.guard();
    let path = args.text("path").unwrap_or(".");
    let access = if args.text("pattern").is_some() { Access::Read } else { Access::List };
    let folder = File::at(&guard, path, access)?;
    let missing = || ToolError::Failed(format!("`{}` does not exist", folder.label));
    let metadata = folder.metadata()?.ok_or_else(missing)?;
    let Some(pattern) = args.text("pattern") else {
        return list(at, &guard, &folder, metadata.is_dir());
    };
    if !metadata.is_dir() {
        return Err(ToolError::Failed(format!("`{}` is no folder", folder.label)));
    }
    let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
    if pattern.starts_with('/') || pattern.split('/').any(|part| part == "..") {
        return Err(ToolError::argument("pattern", "must be relative, without `..`; name another folder as `path`"));
    }
    let matcher = matcher_of("pattern", pattern)?;
    let (files, errors) = candidates(at, &guard, &folder);
    let paths: Vec<String> =
        files.into_iter().filter(|file| matcher.is_match(&file.relative)).map(|file| file.label).collect();
    Ok(Done::ok(with_errors(listing(paths, "no files match"), &errors)))
}

fn list(at: Place<'_>, guard: &Guard<'_>, folder: &File, is_dir: bool) -> Result<Done, ToolError> {
    if !is_dir {
        return Ok(Done::ok(folder.label.clone()));
    }
    let mut entries = at.world.dir.list(&folder.real).map_err(|error| folder.failed("list", error))?;
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    let names: Vec<String> = entries
        .into_iter()
        .filter(|entry| guard.refusal(&folder.real.join(&entry.name), Access::List).is_none())
        .map(|entry| {
            let kind = match (entry.is_dir, entry.is_symlink) {
                (_, true) => "@",
                (true, false) => "/",
                (false, false) => "",
            };
            format!("{}{kind}", escape_line(entry.name.as_encoded_bytes()))
        })
        .collect();
    Ok(Done::ok(listing(names, "the folder is empty")))
}

fn listing(mut lines: Vec<String>, none: &str) -> String {
    let total = lines.len();
    if total == 0 {
        return format!("[{none}]");
    }
    if total > MAX_PATHS {
        lines.truncate(MAX_PATHS);
        let (most, total) = (thousands(MAX_PATHS as u64), thousands(total as u64));
        lines.push(format!("[{most} of {total} shown; narrow the pattern or the path]"));
    }
    lines.join("\n")
}

fn with_errors(mut text: String, errors: &[String]) -> String {
    if !errors.is_empty() {
        let first = clip(&escape_line(errors[0].as_bytes()), 200);
        text.push_str(&format!("\n[{} could not be read: {first}]", thousands(errors.len() as u64)));
    }
    text
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Content,
    Files,
    Count,
}

/// `grep`.
pub(super) fn grep(at: Place<'_>, args: &Args) -> Result<Done, ToolError> {
    let matcher = RegexMatcherBuilder::new()
        .case_insensitive(args.flag("case_insensitive"))
        .line_terminator(Some(b'\n'))
        .build(args.required("pattern")?)
        .map_err(|error| ToolError::argument("pattern", format!("is no regular expression for one line: {error}")))?;
    let mode = match args.text("output_mode") {
        Some("files") => Mode::Files,
        Some("count") => Mode::Count,
        _ => Mode::Content,
    };
    let types = args.text("type").map(types_of).transpose()?;
    let glob = args.text("glob").map(name_glob).transpose()?;
    let guard = at.guard();
    let folder = File::at(&guard, args.text("path").unwrap_or("."), Access::Read)?;
    let missing = || ToolError::Failed(format!("`{}` does not exist", folder.label));
    let metadata = folder.metadata()?.ok_or_else(missing)?;
    let (files, mut errors) = if metadata.is_dir() {
        candidates(at, &guard, &folder)
    } else {
        let relative = PathBuf::from(folder.real.file_name().unwrap_or_default());
        (vec![Candidate { real: folder.real.clone(), relative, label: folder.label.clone() }], Vec::new())
    };
    let context = if mode == Mode::Content { args.number("context").unwrap_or(0) as usize } else { 0 };
    let mut searcher = SearcherBuilder::new()
        .binary_detection(BinaryDetection::quit(0))
        .line_number(true)
        .before_context(context)
        .after_context(context)
        .build();
    let most = args.number("max_results").unwrap_or(DEFAULT_RESULTS).min(MAX_RESULTS);
    let mut found = Found { mode, most, total: 0, out: String::new() };
    for file in &files {
        let wanted = types.as_ref().is_none_or(|types| types.matched(&file.relative, false).is_whitelist())
            && glob.as_ref().is_none_or(|glob| glob.is_match(&file.relative));
        // Links are not followed: what they lead to is a candidate itself, or lies outside.
        if !wanted || !file.real.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
            continue;
        }
        let mut hits = Hits::new(&file.label, context, if mode == Mode::Content { found.room() } else { 0 });
        let searched =
            beneath::open_to_read(&file.real).and_then(|open| searcher.search_file(&matcher, &open, &mut hits));
        match searched {
            Ok(()) if !hits.binary => found.add(&file.label, &hits),
            Ok(()) if files.len() == 1 && !metadata.is_dir() => {
                return Err(ToolError::Failed(format!("`{}` is binary", folder.label)));
            }
            Ok(()) => {}
            Err(error) => errors.push(format!("{}: {error}", file.label)),
        }
    }
    Ok(Done::ok(with_errors(found.finish(), &errors)))
}

fn types_of(name: &str) -> Result<Types, ToolError> {
    let mut builder = TypesBuilder::new();
    builder.add_defaults().select(name);
    builder
        .build()
        .map_err(|_| ToolError::argument("type", "is no known file type (as rust, py, js, ts, go, java, c, md)"))
}

/// A glob without `/` is about the name, wherever the file is; one with `/` about the path below the folder searched.
fn name_glob(pattern: &str) -> Result<GlobMatcher, ToolError> {
    match pattern.strip_prefix('/').or_else(|| pattern.strip_prefix("./")) {
        Some(anchored) => matcher_of("glob", anchored),
        None if pattern.contains('/') => matcher_of("glob", pattern),
        None => matcher_of("glob", &format!("**/{pattern}")),
    }
}

/// What was found so far, in the order of the files.
struct Found {
    mode: Mode,
    most: u64,
    /// Matching lines, or files, all of them.
    total: u64,
    out: String,
}

impl Found {
    fn room(&self) -> u64 {
        self.most.saturating_sub(self.total)
    }

    fn add(&mut self, label: &str, hits: &Hits<'_>) {
        if hits.count == 0 {
            return;
        }
        let room = self.room();
        // Writing to a String cannot fail.
        let _ = match self.mode {
            Mode::Content if room > 0 && hits.context > 0 && !self.out.is_empty() => {
                write!(self.out, "--\n{}", hits.text)
            }
            Mode::Content => write!(self.out, "{}", hits.text),
            Mode::Files if room > 0 => writeln!(self.out, "{label}"),
            Mode::Count if room > 0 => writeln!(self.out, "{label}:{}", hits.count),
            Mode::Files | Mode::Count => Ok(()),
        };
        self.total += if self.mode == Mode::Content { hits.count } else { 1 };
    }

    fn finish(mut self) -> String {
        if self.total == 0 {
            return "[no matches]".into();
        }
        if self.total > self.most {
            let what = if self.mode == Mode::Content { "matching lines" } else { "files" };
            let (most, total) = (thousands(self.most), thousands(self.total));
            let _ = write!(self.out, "[{most} of {total} {what} shown; narrow the search or raise max_results]");
        }
        self.out.truncate(self.out.trim_end_matches('\n').len());
        self.out
    }
}

/// The matches of one file: all are counted, at most `room` are kept with their context.
struct Hits<'a> {
    label: &'a str,
    context: usize,
    room: u64,
    count: u64,
    text: String,
    binary: bool,
}

impl<'a> Hits<'a> {
    fn new(label: &'a str, context: usize, room: u64) -> Hits<'a> {
        Hits { label, context, room, count: 0, text: String::new(), binary: false }
    }

    fn line(&mut self, number: Option<u64>, sign: char, bytes: &[u8]) {
        let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let line = clip(&escape(line.strip_suffix(b"\r").unwrap_or(line)), LINE_CHARS);
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{}{sign}{}{sign}{line}", self.label, number.unwrap_or(0));
    }
}

impl Sink for Hits<'_> {
    type Error = std::io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, Self::Error> {
        self.count += 1;
        if self.count <= self.room {
            self.line(found.line_number(), ':', found.bytes());
        }
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> Result<bool, Self::Error> {
        // What precedes a match that is not kept is left out with it.
        let before = matches!(context.kind(), grep_searcher::SinkContextKind::Before);
        if self.count < self.room || (!before && self.count == self.room && self.room > 0) {
            self.line(context.line_number(), '-', context.bytes());
        }
        Ok(true)
    }

    fn context_break(&mut self, _: &Searcher) -> Result<bool, Self::Error> {
        if self.count < self.room && !self.text.is_empty() {
            self.text.push_str("--\n");
        }
        Ok(true)
    }

    fn finish(&mut self, _: &Searcher, finish: &SinkFinish) -> Result<(), Self::Error> {
        self.binary = finish.binary_byte_offset().is_some();
        Ok(())
    }
}
