//! The program's own source as the rules about it read it.

use std::fs;
use std::path::{Path, PathBuf};

/// A file of `src/`.
pub struct Source {
    /// Relative to `src/`, with slashes.
    pub path: String,
    pub text: String,
}

impl Source {
    /// The text without comments, and without what stands within quotes; lines keep their numbers.
    pub fn code(&self) -> String {
        code_only(&self.text)
    }
}

/// Every Rust file below `src/`, sorted by path.
pub fn files() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    collect(&root, &mut paths);
    paths.sort();
    assert!(!paths.is_empty(), "no source below {}", root.display());
    let read = |path: PathBuf| Source {
        path: path.strip_prefix(&root).expect("it was found below the root").to_string_lossy().into_owned(),
        text: fs::read_to_string(&path).expect("source is readable UTF-8"),
    };
    paths.into_iter().map(read).collect()
}

fn collect(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a source folder is readable") {
        let path = entry.expect("a source folder is readable").path();
        if path.is_dir() {
            collect(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// Blanks comments, strings and character literals.
pub fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let rest = &chars[at..];
        let after_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
        let end = if rest.starts_with(&['/', '/']) {
            rest.iter().position(|c| *c == '\n').unwrap_or(rest.len())
        } else if rest.starts_with(&['/', '*']) {
            block_comment(rest)
        } else if rest[0] == '"' {
            string(rest)
        } else if rest[0] == 'r' && !after_word && raw_string(rest).is_some() {
            raw_string(rest).unwrap_or(1)
        } else if rest[0] == '\'' {
            character(rest)
        } else {
            out.push(rest[0]);
            at += 1;
            continue;
        };
        out.extend(rest[..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
        at += end;
    }
    out
}

/// Comments nest.
fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(&['/', '*']) {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with(&['*', '/']) {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn string(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != '"' {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// `r"…"`, `r#"…"#`; `None` for a word that starts with r, or a raw identifier.
fn raw_string(rest: &[char]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|c| **c == '#').count();
    if rest.get(1 + hashes) != Some(&'"') {
        return None;
    }
    let close: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let body = 2 + hashes;
    let found = rest[body..].windows(close.len()).position(|window| window == close);
    Some(found.map_or(rest.len(), |found| body + found + close.len()))
}

/// A character literal; a lifetime is its quote alone.
fn character(rest: &[char]) -> usize {
    match (rest.get(1), rest.get(2)) {
        (Some('\\'), Some(_)) => rest[3..].iter().position(|c| *c == '\'').map_or(1, |end| end + 4),
        (Some(_), Some('\'')) => 3,
        _ => 1,
    }
}

/// Cuts inline test modules (`#[cfg(test)] mod … { … }`) off: they stand last in a file.
pub fn without_tests(code: &str) -> &str {
    let mut from = 0;
    while let Some(found) = code[from..].find("#[cfg(test)]") {
        let start = from + found;
        let behind = code[start + "#[cfg(test)]".len()..].trim_start();
        if behind.starts_with("mod ") && behind.split_once('{').is_some_and(|(head, _)| !head.contains(';')) {
            return &code[..start];
        }
        from = start + 1;
    }
    code
}

#[test]
fn code_is_told_from_words() {
    let text =
        "let a = \"crate::x \\\" unsafe\"; // crate::y\n/* crate /* :: */ z */ r#\"unsafe\" \"# 'u' '\\'' &'a str";
    let code = code_only(text);
    assert_eq!(code.len(), text.len(), "everything stays in its place");
    let words: Vec<&str> = code.split_whitespace().collect();
    assert_eq!(words, ["let", "a", "=", ";", "&", "a", "str"]);
    assert_eq!(code_only("for r in rows { r#type }"), "for r in rows { r#type }");
}

#[test]
fn test_modules_are_cut_off() {
    assert_eq!(without_tests("use a;\n#[cfg(test)]\nmod tests { use b; }"), "use a;\n");
    assert_eq!(without_tests("#[cfg(test)]\nmod tests;\nuse a;"), "#[cfg(test)]\nmod tests;\nuse a;");
    assert_eq!(without_tests("#[cfg(test)]\nuse b;\nuse a;"), "#[cfg(test)]\nuse b;\nuse a;");
}
