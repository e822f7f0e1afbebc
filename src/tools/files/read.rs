//! `file-read`: a page of numbered lines.

use super::path::{Access, File};
use crate::tools::args::Args;
use crate::tools::dispatch::{Done, Place};
use crate::tools::error::ToolError;
use crate::tools::escape::escape;
use crate::tools::output::{PAGE_CHARS, thousands};

/// Most lines of a page.
const PAGE_LINES: u64 = 2_000;
/// Most characters of a line.
const LINE_CHARS: usize = 2_000;
/// A NUL in so many first bytes makes a file binary.
const SNIFF_BYTES: usize = 8_192;

pub(in crate::tools) fn read(at: Place<'_>, args: &Args) -> Result<Done, ToolError> {
    let file = File::at(&at.guard(), args.required("path")?, Access::Read)?;
    let content = file.content()?;
    if let Some(kind) = binary_kind(&content) {
        let size = thousands(content.len() as u64);
        return Err(ToolError::Failed(format!("`{}` is binary ({kind}, {size} bytes)", file.label)));
    }
    let mark = file.mark(&content);
    let first = args.number("offset").unwrap_or(1);
    let most = args.number("limit").unwrap_or(PAGE_LINES).min(PAGE_LINES);
    // Before lines are numbered and clipped: a secret may be longer than either leaves it.
    let content = at.options.secrets.redact(&content);
    let text = page(&file.label, &content, first, most)?;
    Ok(Done { marks: vec![mark], ..Done::ok(text) })
}

/// Lines `first` (from 1) to at most `first + most - 1`, and how to read on.
fn page(label: &str, content: &[u8], first: u64, most: u64) -> Result<String, ToolError> {
    let lines: Vec<&[u8]> = content.split_inclusive(|b| *b == b'\n').collect();
    let total = lines.len() as u64;
    if total == 0 {
        return Ok("[the file is empty]".into());
    }
    if first > total {
        let lines = if total == 1 { "line" } else { "lines" };
        return Err(ToolError::Failed(format!("`{label}` has only {} {lines}", thousands(total))));
    }
    let mut out = String::new();
    let mut chars = 0;
    let mut next = first;
    for line in lines.iter().skip((first - 1) as usize).take(most as usize) {
        let shown = numbered(next, line);
        chars += shown.chars().count();
        if chars > PAGE_CHARS {
            break;
        }
        out.push_str(&shown);
        next += 1;
    }
    if next <= total {
        let path = serde_json::Value::from(label);
        out.push_str(&format!(
            "[lines {}-{} of {}; read on with file-read {{\"path\":{path},\"offset\":{next}}}]",
            thousands(first),
            thousands(next - 1),
            thousands(total)
        ));
    }
    Ok(out)
}

/// `     1\ttext` and a line end; a long line is clipped, with a mark that says so.
pub(super) fn numbered(number: u64, line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let text = escape(line);
    match text.char_indices().nth(LINE_CHARS) {
        None => format!("{number:>6}\t{text}\n"),
        Some((end, _)) => {
            let more = thousands(text[end..].chars().count() as u64);
            format!("{number:>6}\t{} [clipped: {more} more characters]\n", &text[..end])
        }
    }
}

/// What kind of binary file it is; `None` for text.
fn binary_kind(content: &[u8]) -> Option<&'static str> {
    const MAGIC: [(&[u8], &str); 16] = [
        (b"\x89PNG\r\n\x1a\n", "PNG image"),
        (b"\xff\xd8\xff", "JPEG image"),
        (b"GIF8", "GIF image"),
        (b"%PDF-", "PDF document"),
        (b"\x7fELF", "ELF program or library"),
        (b"\xcf\xfa\xed\xfe", "Mach-O program or library"),
        (b"MZ", "Windows program or library"),
        (b"PK\x03\x04", "ZIP archive"),
        (b"\x1f\x8b", "gzip data"),
        (b"\x28\xb5\x2f\xfd", "Zstandard data"),
        (b"\xfd7zXZ\0", "XZ data"),
        (b"BZh", "bzip2 data"),
        (b"SQLite format 3\0", "SQLite database"),
        (b"\0asm", "WebAssembly module"),
        (b"\xff\xfe", "UTF-16 text"),
        (b"\xfe\xff", "UTF-16 text"),
    ];
    let head = &content[..content.len().min(SNIFF_BYTES)];
    let known = MAGIC.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, kind)| *kind);
    if head.contains(&0) {
        return Some(match known {
            Some(kind) => kind,
            None if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP") => "WebP image",
            None => "unknown type",
        });
    }
    // Without a NUL only what is no text either way: a file may well begin with the letters MZ.
    known.filter(|_| {
        std::str::from_utf8(head).is_err_and(|error| error.error_len().is_some()) || head.starts_with(b"%PDF-")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_files_are_told_from_text() {
        assert_eq!(binary_kind(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"), Some("PNG image"));
        assert_eq!(binary_kind(b"\x1f\x8b\x08\xff\xff"), Some("gzip data"));
        assert_eq!(binary_kind(b"\xff\xfeh\0i\0"), Some("UTF-16 text"));
        assert_eq!(binary_kind(b"x\0y"), Some("unknown type"));
        assert_eq!(binary_kind(b"%PDF-1.7\n"), Some("PDF document"));
        for text in [&b""[..], b"MZ is a text", b"BZh", b"caf\xe9", "ä".as_bytes()] {
            assert_eq!(binary_kind(text), None, "{text:?}");
        }
    }

    #[test]
    fn pages_are_bounded_in_lines_and_characters_and_say_how_to_go_on() {
        assert_eq!(page("f", b"a\r\n\tb", 1, 9).expect("a page"), "     1\ta\n     2\t\tb\n");
        assert_eq!(page("f", b"", 1, 9).expect("a page"), "[the file is empty]");
        let many = "x\n".repeat(13_000);
        let text = page("a \"b\"", many.as_bytes(), 1, PAGE_LINES).expect("a page");
        assert!(text.starts_with("     1\tx\n") && text.contains("\n  2000\tx\n["));
        let on = r#"[lines 1-2,000 of 13,000; read on with file-read {"path":"a \"b\"","offset":2001}]"#;
        assert!(text.ends_with(on), "{}", &text[text.len() - 120..]);
        assert!(page("f", b"a\nb\n", 3, 1).expect_err("past the end").to_string().contains("only 2 lines"));

        let wide = format!("{}\n", "y".repeat(2_100)).repeat(40);
        let text = page("f", wide.as_bytes(), 1, PAGE_LINES).expect("a page");
        let (lines, note) = text.rsplit_once('\n').expect("a note");
        assert!(lines.chars().count() < PAGE_CHARS && lines.chars().count() > PAGE_CHARS - 2_100);
        assert!(lines.lines().all(|line| line.ends_with("y [clipped: 100 more characters]") && line.len() == 2_038));
        assert!(note.contains("of 40; read on"), "{note}");
    }
}
