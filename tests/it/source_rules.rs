//! Rules about the source that the compiler does not know.

use regex::Regex;

use crate::source::{self, Source};

/// A file of this many lines wants to be two; one above the other number is refused.
const WANTS_TO_BE_TWO: usize = 500;
const TOO_LONG: usize = 600;

/// `path:line: text` of every line whose code matches.
fn matches(files: &[Source], pattern: &str) -> Vec<String> {
    let pattern = Regex::new(pattern).expect("the pattern is valid");
    let mut found = Vec::new();
    for file in files {
        let code = file.code();
        for (number, (code, line)) in code.lines().zip(file.text.lines()).enumerate() {
            if pattern.is_match(code) {
                found.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
            }
        }
    }
    found
}

const PRINTS: &str = r"\b(println|eprintln|print|eprint|dbg)!";
const UNSAFE: &str = r"\bunsafe\b";

#[test]
fn nothing_prints_by_macro() {
    let found = matches(&source::files(), PRINTS);
    assert!(found.is_empty(), "these panic on a closed pipe; use `writeln!`:\n{}", found.join("\n"));
}

#[test]
fn unsafe_stands_in_one_file() {
    let mut files = source::files();
    files.retain(|file| file.path != "process/sys.rs");
    let found = matches(&files, UNSAFE);
    assert!(found.is_empty(), "`unsafe` belongs into src/process/sys.rs:\n{}", found.join("\n"));
}

#[test]
fn every_file_says_what_it_is() {
    let opens = |file: &Source| file.path == "main.rs" || file.text.starts_with("//! ");
    let found: Vec<String> = source::files().into_iter().filter(|file| !opens(file)).map(|file| file.path).collect();
    assert!(found.is_empty(), "these do not open with `//!`: {}", found.join(", "));
}

#[test]
fn no_file_grows_too_long() {
    let mut long = Vec::new();
    for file in source::files() {
        let lines = file.text.lines().count();
        if lines > TOO_LONG {
            long.push(format!("{} ({lines})", file.path));
        } else if lines > WANTS_TO_BE_TWO {
            eprintln!("note: src/{} has {lines} lines and wants to be two files", file.path);
        }
    }
    assert!(long.is_empty(), "files of more than {TOO_LONG} lines: {}", long.join(", "));
}

#[test]
fn the_patterns_find_what_they_forbid() {
    let text = "fn f() {\n    println!(\"a\");\n    let b = \"eprintln!\"; // print!\n    unsafe { g() }\n}\n";
    let files = [Source { path: "x.rs".to_owned(), text: text.to_owned() }];
    assert_eq!(matches(&files, PRINTS), ["x.rs:2: println!(\"a\");"]);
    assert_eq!(matches(&files, UNSAFE), ["x.rs:4: unsafe { g() }"]);
    let files = [Source { path: "x.rs".to_owned(), text: "#![deny(unsafe_code)]\nfn sprint(){}".to_owned() }];
    assert!(matches(&files, PRINTS).is_empty() && matches(&files, UNSAFE).is_empty());
}
