//! `file-write`: a whole file, or more at its end.

use std::collections::BTreeMap;

use super::path::{Access, File, sha256};
use crate::tools::args::Args;
use crate::tools::dispatch::{Done, Place};
use crate::tools::error::ToolError;
use crate::tools::output::thousands;

/// `marks` are the files that were read, with the digest of their content then.
pub(in crate::tools) fn write(at: Place<'_>, args: &Args, marks: &BTreeMap<String, String>) -> Result<Done, ToolError> {
    let path = args.required("path")?;
    let file = File::at(&at.guard(), path, Access::Write)?;
    let content = args.required("content")?;
    if path.ends_with('/') {
        return Err(ToolError::argument("path", "names a folder"));
    }
    let old = match file.metadata()? {
        None => None,
        Some(metadata) => {
            file.check_regular(&metadata)?;
            Some(file.content()?)
        }
    };
    let marked = marks.get(&file.shown);
    let known = old.as_ref().is_some_and(|old| marked == Some(&sha256(old)));
    let append = args.flag("append");
    if old.is_some() && !append && !known {
        let why = if marked.is_some() { "has changed since it was read" } else { "exists and was not read" };
        return Err(ToolError::Failed(format!(
            "`{}` {why}; nothing was written: read it with file-read first, or change parts of it with file-edit",
            file.label
        )));
    }
    let (verb, new) = match old {
        None => ("created", content.as_bytes().to_vec()),
        Some(old) if append => ("appended to", [&old, content.as_bytes()].concat()),
        Some(_) => ("replaced", content.as_bytes().to_vec()),
    };
    file.replace(&new)?;
    // Who appends to a file unread does not know it.
    let mark = (verb != "appended to" || known).then(|| file.mark(&new));
    let text = format!("{verb} {}: {}, {} bytes", file.label, lines(&new), thousands(new.len() as u64));
    Ok(Done { marks: mark.into_iter().collect(), changed: vec![file.shown], ..Done::ok(text) })
}

fn lines(content: &[u8]) -> String {
    match content.split_inclusive(|b| *b == b'\n').count() {
        1 => "1 line".into(),
        n => format!("{} lines", thousands(n as u64)),
    }
}
