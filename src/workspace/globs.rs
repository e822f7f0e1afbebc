//! Which files the globs of `protect:` mean, and in which folders such files may stand.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::WorkspaceError;
use crate::world::Roots;

/// The globs, relative to the workspace. `.git` counts only where one names it.
pub(super) struct Globs {
    files: GlobSet,
    folders: GlobSet,
    /// Where the walks start, relative to the workspace: the literal beginnings of the globs.
    pub bases: BTreeSet<PathBuf>,
}

impl Globs {
    /// `WorkspaceError::Glob` for what is no glob, or leads out of the workspace.
    pub fn new(globs: &[String], roots: &Roots) -> Result<Globs, WorkspaceError> {
        let (mut files, mut folders) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        let mut bases = BTreeSet::new();
        for glob in globs {
            let wrong = |why: &str| WorkspaceError::Glob(glob.clone(), why.to_owned());
            let built = |pattern: &str| {
                let built = GlobBuilder::new(pattern).literal_separator(true).build();
                built.map_err(|error| wrong(&error.kind().to_string()))
            };
            let pattern = relative_pattern(glob, roots).map_err(wrong)?;
            files.add(built(&pattern)?);
            files.add(built(&format!("{pattern}/**"))?);
            for pattern in folder_patterns(&pattern) {
                folders.add(built(&pattern)?);
            }
            let base = literal_base(&pattern);
            let rest = pattern.split('/').skip(base.components().count());
            if rest.clone().any(|part| part == ".git") {
                bases.insert(base.join(".git"));
            }
            bases.insert(base);
        }
        let set =
            |set: GlobSetBuilder| set.build().map_err(|error| WorkspaceError::Glob(String::new(), error.to_string()));
        Ok(Globs { files: set(files)?, folders: set(folders)?, bases })
    }

    pub fn is_empty(&self) -> bool {
        self.bases.is_empty()
    }

    /// Of a path that a walk from a base came to.
    pub fn is_match(&self, relative: &Path) -> bool {
        self.files.is_match(relative)
    }

    /// Whether such a file would count, wherever it was seen.
    pub fn concern(&self, relative: &Path) -> bool {
        self.is_match(relative) && self.come_to(relative)
    }

    /// Whether files that count may stand in this folder, or below it.
    pub fn may_be_in(&self, folder: &Path) -> bool {
        self.bases.iter().any(|base| base.starts_with(folder)) || self.folders.is_match(folder) && self.come_to(folder)
    }

    /// Whether a glob names a folder around this one.
    pub fn name_a_folder_around(&self, folder: &Path) -> bool {
        self.bases.iter().any(|base| *base != Path::new("") && folder.starts_with(base))
    }

    /// Whether a walk from a base does: none enters a `.git`.
    fn come_to(&self, relative: &Path) -> bool {
        let mut below = self.bases.iter().filter_map(|base| relative.strip_prefix(base).ok());
        below.any(|rest| !rest.iter().any(|part| part == ".git"))
    }
}

/// A glob as written → relative to the workspace, without `./` and a closing slash.
fn relative_pattern(glob: &str, roots: &Roots) -> Result<String, &'static str> {
    let mut pattern = glob.trim();
    if pattern.starts_with('!') {
        return Err("exceptions are not possible");
    }
    if pattern.starts_with('/') {
        let inside = [&roots.shown, &roots.real].into_iter().filter_map(|root| root.to_str()).find_map(|root| {
            let rest = pattern.strip_prefix(root)?;
            (rest.is_empty() || rest.starts_with('/')).then_some(rest)
        });
        pattern = inside.ok_or("it leads out of the workspace")?.trim_start_matches('/');
        if pattern.is_empty() {
            return Ok("**".to_owned());
        }
    }
    let parts: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") {
        return Err("it leads out of the workspace");
    }
    match (pattern.is_empty(), parts.is_empty()) {
        (true, _) => Err("it is empty"),
        (false, true) => Ok("**".to_owned()),
        (false, false) => Ok(parts.join("/")),
    }
}

/// The folders (or the file) that a pattern begins with, up to its first special character.
fn literal_base(pattern: &str) -> PathBuf {
    let literal = |part: &&str| !part.contains(['*', '?', '[', ']', '{', '}', '\\']);
    pattern.split('/').take_while(literal).collect()
}

/// Globs of the folders on the way to what a pattern means, and below it. Behind what may hold a slash it is all.
fn folder_patterns(pattern: &str) -> Vec<String> {
    let (mut patterns, mut before) = (Vec::new(), String::new());
    for part in pattern.split('/') {
        if part.contains("**") || part.contains(['[', ']', '{', '}', '\\']) {
            break;
        }
        before.push_str(part);
        patterns.push(before.clone());
        before.push('/');
    }
    patterns.push(format!("{before}**"));
    patterns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn globs(globs: &[&str]) -> Globs {
        let globs: Vec<String> = globs.iter().map(|glob| (*glob).to_owned()).collect();
        Globs::new(&globs, &Roots::same("/w".into())).unwrap()
    }

    #[test]
    fn folders_on_the_way_to_a_match_are_told_from_others() {
        for (glob, may, may_not) in [
            ("tests/**", &["", "tests", "tests/a", "tests/a/b"][..], &["src", "tests2", "tests/.git"][..]),
            ("tests/*.py", &["", "tests", "tests/x.py/y"], &["tests/__pycache__", "src", ".git"]),
            ("a/b*/c/*.rs", &["", "a", "a/b", "a/bb/c"], &["a/x", "a/b/x", "a/b/c/x"]),
            ("**/*.lock", &["", "a", "a/b/c"], &[".git", ".git/refs", "a/.git"]),
            ("{a/b,c}/x", &["", "a", "a/b", "c"], &[".git"]),
            (".git/hooks/*", &["", ".git", ".git/hooks"], &[".git/objects", "a", "a/.git"]),
            ("Cargo.lock", &[""], &["src", "target"]),
        ] {
            let globs = globs(&[glob]);
            for folder in may {
                assert!(globs.may_be_in(Path::new(folder)), "{glob}: {folder}");
            }
            for folder in may_not {
                assert!(!globs.may_be_in(Path::new(folder)), "{glob}: {folder}");
            }
        }
        assert!(!globs(&[]).may_be_in(Path::new("")));
    }

    #[test]
    fn a_file_in_git_counts_where_a_glob_names_it() {
        assert!(!globs(&["**"]).concern(Path::new(".git/index.lock")));
        assert!(!globs(&["**"]).concern(Path::new("a/.git")));
        assert!(globs(&["**"]).concern(Path::new("a/b")));
        assert!(globs(&["**/.git/hooks/*"]).concern(Path::new(".git/hooks/x")));
        assert!(!globs(&["**/.git/hooks/*"]).concern(Path::new("a/.git/hooks/x")), "as no walk comes there");
        assert!(globs(&["tests/**/*.py", "**/x"]).name_a_folder_around(Path::new("tests/a")));
        assert!(!globs(&["tests/**/*.py", "**/x"]).name_a_folder_around(Path::new("src/a")));
    }
}
